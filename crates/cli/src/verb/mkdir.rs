//! `extant mkdir`: creates directories.

use crate::change::{Change, Steps, split_last};
use crate::failure::Failure;
use crate::image::{as_path, inner_path};
use crate::verb::mkfs::format_options::owner;
use extant::{NewFile, SetAttributes};
use extant_image::ModeChange;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt;

/// Create directories in a volume.
///
/// If one cannot be created or the program is interrupted, none is created.
#[derive(Debug, clap::Args)]
#[command(after_long_help = "Examples:
  extant mkdir root.img /srv
  extant mkdir -p root.img /var/lib/app/data
  extant mkdir -m 0700 --owner 1000:1000 root.img /home/user

Exit status: 0 created, 1 failed: nothing was changed.")]
pub(crate) struct Args {
    /// Image file or block device, or IMG?partition=NUMBER
    #[arg(value_name = "IMG")]
    image: OsString,
    /// Directories to create
    #[arg(value_name = "PATH", required = true)]
    paths: Vec<OsString>,
    /// Create missing parent directories; accept directories that exist
    #[arg(short, long)]
    parents: bool,
    /// Permissions: octal, or symbolic changes of 0755
    #[arg(short, long, value_name = "MODE", value_parser = super::chmod::mode)]
    mode: Option<ModeChange>,
    /// Owner and group; default: root, with the group of the parent if that has the set-group-ID
    /// bit
    #[arg(long, value_name = "UID:GID", value_parser = owner)]
    owner: Option<(u32, u32)>,
}

impl Args {
    pub(crate) fn run(self) -> Result<u8, Failure> {
        let change = Change::begin(&self.image, Steps { in_steps: false })?;
        let mode = self.mode.as_ref().map_or(0o755, |mode| mode.apply(0o755, true));
        let (uid, gid) = self.owner.unwrap_or((0, 0));
        let new = NewFile { mode, uid, gid, ..NewFile::default() };
        for path in &self.paths {
            let path = inner_path(path)?;
            let there = match self.parents && self.owner.is_some() {
                true => end_of_what_is_there(&change, &path)?,
                false => path.len() - split_last(&path).1.len(),
            };
            change
                .at(&path, |fs| match self.parents {
                    true => fs.create_dir_all(as_path(&path), &new),
                    false => fs.create_dir(as_path(&path), &new).map(drop),
                })
                .map_err(|failure| match change.metadata_following_links(split_last(&path).0) {
                    Ok(None) if !self.parents => {
                        change.refuse(&path, "its parent directory does not exist: -p creates it")
                    }
                    _ => failure,
                })?;
            if self.owner.is_none() {
                continue;
            }
            // A requested group takes precedence over that of a set-group-ID directory.
            let changes = SetAttributes { gid: Some(gid), ..SetAttributes::default() };
            // Each one is created in its parent, because a path can be of any depth.
            let mut at = change.at(&path[..there], |fs| fs.node(as_path(&path[..there])))?;
            let mut end = there;
            while end < path.len() {
                let start = end + usize::from(path[end] == b'/');
                let slash = path[start..].iter().position(|&byte| byte == b'/');
                end = slash.map_or(path.len(), |n| start + n);
                let name = &path[start..end];
                at = change.at(&path[..end], |fs| match name {
                    b".." => fs.node(as_path(&path[..end])),
                    _ => {
                        let below = at.lookup(OsStr::from_bytes(name))?;
                        below.set_attributes(&changes)?;
                        Ok(below)
                    }
                })?;
            }
        }
        change.finish()?;
        Ok(0)
    }
}

/// Length of the part of `path` that exists, which ends at a name's end.
fn end_of_what_is_there(change: &Change, path: &[u8]) -> Result<usize, Failure> {
    let ends = path.iter().enumerate().skip(1).filter(|(_, byte)| **byte == b'/');
    let ends: Vec<usize> = ends.map(|(at, _)| at).chain([path.len()]).collect();
    // All directories above an existing one exist, so a binary search looks up few of the paths.
    let (mut there, mut missing) = (0, ends.len());
    while there < missing {
        let middle = there + (missing - there) / 2;
        match change.metadata_following_links(&path[..ends[middle]])? {
            Some(_) => there = middle + 1,
            None => missing = middle,
        }
    }
    Ok(there.checked_sub(1).map_or(1, |last| ends[last]))
}
