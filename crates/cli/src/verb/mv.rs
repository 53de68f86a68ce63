//! `extant mv`: renames files.

use crate::change::{Change, Steps, split_last};
use crate::failure::Failure;
use crate::image::{as_path, inner_path, join};
use extant::{Error, InodeFlags, RenameFlags};
use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;

/// Rename files and directories inside a volume.
///
/// If there are several names, or DEST is a directory, they move into DEST. Either all are renamed,
/// or none.
#[derive(Debug, clap::Args)]
#[command(
    override_usage = "extant mv [OPTIONS] <IMG> <PATH>... <DEST>",
    after_long_help = "Examples:
  extant mv root.img /etc/hosts.new /etc/hosts
  extant mv root.img /a /b /old
  extant mv --exchange root.img /current /next

Exit status: 0 renamed, 1 failed: nothing was changed."
)]
pub(crate) struct Args {
    /// Image file or block device, or IMG?partition=NUMBER
    #[arg(value_name = "IMG")]
    image: OsString,
    /// Names to move, then the destination
    #[arg(value_name = "PATH", required = true, num_args = 2..)]
    paths: Vec<OsString>,
    /// Fail instead of replacing an existing file
    #[arg(short, long)]
    no_clobber: bool,
    /// Treat DEST as the new name, even if it is a directory
    #[arg(short = 'T', long)]
    no_target_directory: bool,
    /// Exchange the two names
    #[arg(long, conflicts_with = "no_clobber")]
    exchange: bool,
}

impl Args {
    pub(crate) fn run(self) -> Result<u8, Failure> {
        let Some((dest, sources)) = self.paths.split_last() else {
            return Err(Failure::usage("no name was given"));
        };
        if self.exchange && sources.len() > 1 {
            return Err(Failure::usage("--exchange takes two names"));
        }
        let change = Change::begin(&self.image, Steps { in_steps: false })?;
        let into_directory = dest.as_bytes().ends_with(b"/");
        let dest = inner_path(dest)?;
        let target = change.metadata_following_links(&dest)?;
        let dest_is_dir = target.is_some_and(|dest| dest.is_dir());
        let is_dir = !self.no_target_directory && !self.exchange && dest_is_dir;
        if !is_dir && sources.len() > 1 || !dest_is_dir && into_directory {
            return Err(change.failure(&dest, &Error::NotADirectory));
        }
        if dest == b"/" && !is_dir {
            return Err(change.refuse(&dest, "the root directory cannot be renamed"));
        }
        for source in sources {
            let source = change.named(source, "renamed")?;
            let target = match is_dir {
                true => join(&dest, split_last(&source).1),
                false => dest.clone(),
            };
            self.rename(&change, &source, &target)?;
        }
        change.finish()?;
        Ok(0)
    }

    fn rename(&self, change: &Change, source: &[u8], target: &[u8]) -> Result<(), Failure> {
        let from = change.look(source)?;
        let to = change.look(target)?;
        if let (Some(from), Some(to)) = (&from, &to)
            && from.ino() == to.ino()
        {
            if change.is_same_name(source, target)? {
                return Err(change.refuse(target, "the old and the new name are the same"));
            }
            let dir = change.metadata_following_links(split_last(source).0)?;
            let folds = dir.is_some_and(|dir| dir.flags().contains(InodeFlags::CASEFOLD));
            // Two names of one file: rename(2) would leave both. In a casefolding directory they
            // may be one name in two spellings, and that name must stay.
            if !self.exchange && !self.no_clobber && !folds && from.nlink() > 1 {
                return change.at(source, |fs| fs.remove_file(as_path(source)));
            }
        }
        let flags = RenameFlags {
            no_replace: self.no_clobber,
            exchange: self.exchange,
            ..RenameFlags::REPLACE
        };
        // The error names the target, because usually something that exists there is the cause.
        let wrong = match from {
            None => source,
            Some(_) => target,
        };
        change.at(wrong, |fs| fs.rename_with(as_path(source), as_path(target), flags))
    }
}
