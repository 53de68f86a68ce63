//! `extant chmod`: changes permissions.

use crate::change::{Change, Steps};
use crate::failure::Failure;
use crate::image::{as_path, inner_path};
use extant::{Error, Node, SetAttributes, Site, What};
use extant_image::{ModeChange, SourceError};
use std::collections::HashSet;
use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;

/// Change permissions of files in a volume.
///
/// MODE is octal, or symbolic as for chmod: u+rwX,go-w. An octal mode is exact for directories too:
/// it clears set-user-ID and set-group-ID bits that it does not contain. Symbolic links given as
/// PATH are followed; links found by -R are skipped. Either all files are changed, or none.
#[derive(Debug, clap::Args)]
#[command(after_long_help = "Examples:
  extant chmod root.img 0600 /etc/shadow
  extant chmod root.img u+s /usr/bin/su
  extant chmod -R root.img go-w,a+rX /srv

Exit status: 0 changed, 1 failed: nothing was changed.")]
pub(crate) struct Args {
    /// Image file or block device, or IMG?partition=NUMBER
    #[arg(value_name = "IMG")]
    image: OsString,
    /// Octal or symbolic permissions
    #[arg(value_name = "MODE", value_parser = mode, allow_hyphen_values = true)]
    mode: ModeChange,
    /// Files in the volume
    #[arg(value_name = "PATH", required = true)]
    paths: Vec<OsString>,
    /// Change directories and everything in them
    #[arg(short = 'R', long)]
    recursive: bool,
    #[command(flatten)]
    steps: Steps,
}

/// Parses permissions.
pub(super) fn mode(text: &str) -> Result<ModeChange, String> {
    ModeChange::parse(text).map_err(|error| match error {
        // The caller's message names the option.
        SourceError::Option { fault, .. } => fault,
        error => error.to_string(),
    })
}

impl Args {
    pub(crate) fn run(self) -> Result<u8, Failure> {
        let change = Change::begin(&self.image, self.steps)?;
        for path in &self.paths {
            each(&change, &inner_path(path)?, self.recursive, &mut |path, node| {
                let metadata = node.metadata();
                let mode = Some(self.mode.apply(metadata.permissions(), metadata.is_dir()));
                let changes = SetAttributes { mode, ..SetAttributes::default() };
                change.at(path, |_| node.set_attributes(&changes))
            })?;
        }
        change.finish()?;
        Ok(0)
    }
}

/// Operation on one file. Its path is for messages.
pub(super) type Work<'a> = &'a mut dyn FnMut(&[u8], &Node) -> Result<(), Failure>;

/// A directory whose children `each` is visiting.
struct Level {
    node: Node,
    /// Length of its path in bytes.
    path_len: usize,
    /// Its names, all read before anything below it changes.
    names: std::vec::IntoIter<OsString>,
}

/// Applies `work` to the file at `path`, following symlinks, and with `recursive` to everything
/// below it, skipping symlinks. A directory that is reached twice, as in a damaged volume, is an
/// error.
pub(super) fn each(
    change: &Change,
    path: &[u8],
    recursive: bool,
    work: Work<'_>,
) -> Result<(), Failure> {
    let top = change.at(path, |fs| fs.node(as_path(path)))?;
    work(path, &top)?;
    if !recursive || !top.metadata().is_dir() {
        return Ok(());
    }
    let mut entered = HashSet::from([top.ino()]);
    let mut path = path.to_vec();
    let mut stack = vec![enter(change, top, &path)?];
    // Each name is looked up in its own directory, because the volume decides how deep a tree is.
    while let Some(level) = stack.last_mut() {
        path.truncate(level.path_len);
        let Some(name) = level.names.next() else {
            stack.pop();
            continue;
        };
        if !path.ends_with(b"/") {
            path.push(b'/');
        }
        path.extend_from_slice(name.as_bytes());
        let there = match level.node.lookup(&name) {
            Err(Error::NotFound) => continue,
            found => found.map_err(|error| change.failure(&path, &error))?,
        };
        let metadata = there.metadata();
        if metadata.is_symlink() {
            continue;
        }
        if metadata.is_dir() && !entered.insert(there.ino()) {
            let twice = Site::of_ino(there.ino()).corrupt(What::DirectoryLoop);
            return Err(change.failure(&path, &twice));
        }
        work(&path, &there)?;
        if metadata.is_dir() {
            stack.push(enter(change, there, &path)?);
        }
    }
    Ok(())
}

fn enter(change: &Change, node: Node, path: &[u8]) -> Result<Level, Failure> {
    let names = change.at(path, |_| {
        node.read_dir()?
            .map(|entry| Ok(entry?.file_name().to_owned()))
            .collect::<extant::Result<Vec<_>>>()
    })?;
    Ok(Level { node, path_len: path.len(), names: names.into_iter() })
}
