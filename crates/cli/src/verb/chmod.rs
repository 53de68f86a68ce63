//! `extant chmod`: changes permissions.

use crate::change::{Change, Steps};
use crate::failure::Failure;
use crate::image::{as_path, inner_path, join};
use extant::SetAttributes;
use extant_image::{ModeChange, SourceError};
use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;

/// Change permissions of files in a volume.
///
/// MODE is octal, and then exact for directories too (their set-ID bits go unless it has them), or
/// as chmod takes it: u+rwX,go-w. Symbolic links that are named are followed; -R
/// passes over those it meets. All files are changed, or none.
#[derive(Debug, clap::Args)]
#[command(after_long_help = "Examples:
  extant chmod root.img 0600 /etc/shadow
  extant chmod root.img u+s /usr/bin/su
  extant chmod -R root.img go-w,a+rX /srv

Exit status: 0 changed, 1 failed: nothing was changed.")]
pub(crate) struct Args {
    /// Image file or block device, or IMG?offset=BYTES
    #[arg(value_name = "IMG")]
    image: OsString,
    /// Octal or symbolic permissions
    #[arg(value_name = "MODE", value_parser = mode, allow_hyphen_values = true)]
    mode: ModeChange,
    /// Files in the volume
    #[arg(value_name = "PATH", required = true)]
    paths: Vec<OsString>,
    /// Directories with everything in them
    #[arg(short = 'R', long)]
    recursive: bool,
    #[command(flatten)]
    steps: Steps,
}

/// Reads permissions.
pub(super) fn mode(text: &str) -> Result<ModeChange, String> {
    ModeChange::parse(text).map_err(|error| match error {
        // Whose value it is is said around it.
        SourceError::Option { fault, .. } => fault,
        error => error.to_string(),
    })
}

impl Args {
    pub(crate) fn run(self) -> Result<u8, Failure> {
        let change = Change::begin(&self.image, self.steps)?;
        for path in &self.paths {
            each(&change, &inner_path(path)?, self.recursive, &mut |path, is_dir| {
                let mode = change.at(path, |fs| fs.metadata(as_path(path)))?.permissions();
                let mode = Some(self.mode.apply(mode, is_dir));
                let wish = SetAttributes { mode, ..SetAttributes::default() };
                change.at(path, |fs| fs.set_attributes(as_path(path), &wish))
            })?;
        }
        change.finish()?;
        Ok(0)
    }
}

/// Done to one file, by its path and whether it is a directory.
pub(super) type Work<'a> = &'a mut dyn FnMut(&[u8], bool) -> Result<(), Failure>;

/// Does `work` to the file at `path`, which symlinks may lead to, and, where asked for, to all below
/// it, symlinks passed over.
pub(super) fn each(
    change: &Change,
    path: &[u8],
    recursive: bool,
    work: Work<'_>,
) -> Result<(), Failure> {
    let is_dir = change.at(path, |fs| fs.metadata(as_path(path)))?.is_dir();
    work(path, is_dir)?;
    if !recursive || !is_dir {
        return Ok(());
    }
    // A directory's names are read before anything below it changes.
    let mut dirs = vec![path.to_vec()];
    while let Some(dir) = dirs.pop() {
        let names = change.at(&dir, |fs| {
            let entries = fs.read_dir(as_path(&dir))?;
            entries
                .map(|entry| Ok(entry?.file_name().to_owned()))
                .collect::<extant::Result<Vec<_>>>()
        })?;
        for name in names {
            let path = join(&dir, name.as_bytes());
            let Some(there) = change.look(&path)? else { continue };
            if there.is_symlink() {
                continue;
            }
            work(&path, there.is_dir())?;
            if there.is_dir() {
                dirs.push(path);
            }
        }
    }
    Ok(())
}
