//! `extant ln`: creates links.

use crate::change::{Change, Steps, split_last, without_slashes};
use crate::failure::Failure;
use crate::image::{as_path, inner_path, join};
use crate::verb::mkfs::format_options::owner;
use extant::{Error, NewFile};
use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;

/// Make hard links, or symbolic ones with -s, in a volume.
#[derive(Debug, clap::Args)]
#[command(after_long_help = "Examples:
  extant ln root.img /bin/busybox /bin/sh
  extant ln -s root.img ../run/resolv.conf /etc/resolv.conf
  extant ln -sf root.img /usr/lib/os-release /etc/os-release

Exit status: 0 created, 1 failed: nothing was changed.")]
pub(crate) struct Args {
    /// Image file or block device, or IMG?partition=NUMBER
    #[arg(value_name = "IMG")]
    image: OsString,
    /// Target of the link: a path in the volume; with -s any text
    #[arg(value_name = "TARGET")]
    target: OsString,
    /// Name of the link, or directory in which it is created
    #[arg(value_name = "LINK")]
    link: OsString,
    /// Make a symbolic link
    #[arg(short, long)]
    symbolic: bool,
    /// Replace an existing file, but not a directory
    #[arg(short, long)]
    force: bool,
    /// Treat LINK as the new name, even if it is a directory
    #[arg(short = 'T', long)]
    no_target_directory: bool,
    /// Owner and group of a symbolic link
    #[arg(long, value_name = "UID:GID", value_parser = owner, default_value = "0:0")]
    owner: (u32, u32),
}

impl Args {
    pub(crate) fn run(self) -> Result<u8, Failure> {
        let change = Change::begin(&self.image, Steps { in_steps: false })?;
        if self.symbolic && self.target.is_empty() {
            return Err(Failure::usage("the target of a symbolic link cannot be empty"));
        }
        let mut link = inner_path(&self.link)?;
        let is_dir = change.metadata_following_links(&link)?.is_some_and(|there| there.is_dir());
        if !is_dir && self.link.as_bytes().ends_with(b"/") {
            return Err(change.failure(self.link.as_bytes(), &Error::NotADirectory));
        }
        if is_dir && !self.no_target_directory {
            link = join(&link, split_last(without_slashes(self.target.as_bytes())).1);
        }
        let target = match self.symbolic {
            true => Vec::new(),
            false => inner_path(&self.target)?,
        };
        if !self.symbolic {
            let there = change.look(&target)?;
            if there.is_some_and(|there| there.is_dir()) {
                let why = "a directory cannot have hard links: make a symbolic link with -s";
                return Err(change.refuse(&target, why));
            }
            if change.look(&link)?.is_some() && change.is_same_name(&target, &link)? {
                return Err(change.refuse(&link, "the link and its target are the same file"));
            }
        }
        if self.force && change.look(&link)?.is_some_and(|there| !there.is_dir()) {
            change.at(&link, |fs| fs.remove_file(as_path(&link)))?;
        }
        if self.symbolic {
            let (uid, gid) = self.owner;
            let new = NewFile { uid, gid, ..NewFile::default() };
            change.at(&link, |fs| fs.symlink(&self.target, as_path(&link), &new).map(drop))?;
        } else {
            let wrong = match change.look(&target)? {
                None => &target,
                Some(_) => &link,
            };
            change.at(wrong, |fs| fs.hard_link(as_path(&target), as_path(&link)))?;
        }
        change.finish()?;
        Ok(0)
    }
}
