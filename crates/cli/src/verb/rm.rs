//! `extant rm`: removes names.

use crate::change::{Change, Steps};
use crate::failure::Failure;
use crate::image::as_path;
use extant::Error;
use std::ffi::OsString;

/// Remove files, or whole directories with -r, from a volume.
///
/// If one name cannot be removed or the program is interrupted, none is removed.
#[derive(Debug, clap::Args)]
#[command(after_long_help = "Examples:
  extant rm root.img /etc/machine-id
  extant rm -rf root.img /var/cache/apt /var/log/journal
  extant rm -d root.img /srv

Exit status: 0 removed, 1 failed: nothing was changed.")]
pub(crate) struct Args {
    /// Image file or block device, or IMG?partition=NUMBER
    #[arg(value_name = "IMG")]
    image: OsString,
    /// Names to remove
    #[arg(value_name = "PATH", required = true)]
    paths: Vec<OsString>,
    /// Remove directories and everything in them
    #[arg(short, long, visible_short_alias = 'R')]
    recursive: bool,
    /// Remove empty directories
    #[arg(short, long)]
    dir: bool,
    /// Ignore names that do not exist
    #[arg(short, long)]
    force: bool,
    #[command(flatten)]
    steps: Steps,
}

impl Args {
    pub(crate) fn run(self) -> Result<u8, Failure> {
        let change = Change::begin(&self.image, self.steps)?;
        for path in &self.paths {
            let path = change.named(path, "removed")?;
            let there = change.look(&path);
            match there? {
                None if self.force => {}
                None => return Err(change.failure(&path, &Error::NotFound)),
                Some(there) if there.is_dir() && self.recursive => {
                    change.at(&path, |fs| fs.remove_dir_all(as_path(&path)))?;
                }
                Some(there) if there.is_dir() && self.dir => {
                    change.at(&path, |fs| fs.remove_dir(as_path(&path)))?;
                }
                Some(there) if there.is_dir() => {
                    return Err(change.refuse(&path, "a directory: use -r"));
                }
                Some(_) => change.at(&path, |fs| fs.remove_file(as_path(&path)))?,
            }
        }
        change.finish()?;
        Ok(0)
    }
}
