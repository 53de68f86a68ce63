//! `extant mkdir`: makes directories.

use crate::change::{Change, Steps, split_last};
use crate::failure::Failure;
use crate::image::{as_path, inner_path};
use crate::verb::mkfs::format_options::owner;
use extant::{NewFile, SetAttributes};
use extant_image::ModeChange;
use std::ffi::OsString;

/// Make directories in a volume.
///
/// All of them are made, or, when one cannot be or the program is interrupted, none.
#[derive(Debug, clap::Args)]
#[command(after_long_help = "Examples:
  extant mkdir root.img /srv
  extant mkdir -p root.img /var/lib/app/data
  extant mkdir -m 0700 --owner 1000:1000 root.img /home/user

Exit status: 0 made, 1 failed: nothing was changed.")]
pub(crate) struct Args {
    /// Image file or block device, or IMG?offset=BYTES
    #[arg(value_name = "IMG")]
    image: OsString,
    /// Directories to make
    #[arg(value_name = "PATH", required = true)]
    paths: Vec<OsString>,
    /// Make those above it that are missing; one that is there is fine
    #[arg(short, long)]
    parents: bool,
    /// Permissions: octal, or a change of 0755
    #[arg(short, long, value_name = "MODE", value_parser = super::chmod::mode)]
    mode: Option<ModeChange>,
    /// Owner and group; default: root, with the group of a set-group-ID directory above
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
            let made = match self.parents {
                true => missing(&change, &path)?,
                false => vec![&path[..]],
            };
            change
                .at(&path, |fs| match self.parents {
                    true => fs.create_dir_all(as_path(&path), &new),
                    false => fs.create_dir(as_path(&path), &new).map(drop),
                })
                .map_err(|failure| match change.look_behind(split_last(&path).0) {
                    Ok(None) => change
                        .refuse(&path, "the directory that it is to be in is missing: -p makes it"),
                    _ => failure,
                })?;
            if self.owner.is_none() {
                continue;
            }
            // A group that is asked for wins over that of a set-group-ID directory.
            let wish = SetAttributes { gid: Some(gid), ..SetAttributes::default() };
            for path in made {
                change.at(path, |fs| fs.set_attributes(as_path(path), &wish))?;
            }
        }
        change.finish()?;
        Ok(0)
    }
}

/// The directories of `path` that are not there, the last first.
fn missing<'p>(change: &Change, path: &'p [u8]) -> Result<Vec<&'p [u8]>, Failure> {
    let mut missing = Vec::new();
    let mut at = path;
    while at != b"/" && change.look_behind(at)?.is_none() {
        missing.push(at);
        at = split_last(at).0;
    }
    Ok(missing)
}
