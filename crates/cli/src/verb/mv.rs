//! `extant mv`: gives files other names.

use crate::change::{Change, Steps, split_last};
use crate::failure::Failure;
use crate::image::{as_path, inner_path, join};
use extant::{Error, RenameFlags};
use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;

/// Rename files and directories inside a volume.
///
/// Several names, or a DEST that is a directory, go into it. All are renamed, or none.
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
    /// Image file or block device, or IMG?offset=BYTES
    #[arg(value_name = "IMG")]
    image: OsString,
    /// Names, and where they go
    #[arg(value_name = "PATH", required = true, num_args = 2..)]
    paths: Vec<OsString>,
    /// Do not replace what is there: fail
    #[arg(short, long)]
    no_clobber: bool,
    /// DEST is the new name, even if a directory is there
    #[arg(short = 'T', long)]
    no_target_directory: bool,
    /// The two names change places
    #[arg(long, conflicts_with = "no_clobber")]
    exchange: bool,
}

impl Args {
    pub(crate) fn run(self) -> Result<u8, Failure> {
        let change = Change::begin(&self.image, Steps { in_steps: false })?;
        let Some((dest, sources)) = self.paths.split_last() else {
            return Err(Failure::new("no name was given"));
        };
        let into_directory = dest.as_bytes().ends_with(b"/");
        let dest = inner_path(dest);
        let whole = self.no_target_directory || self.exchange;
        let is_dir = !whole && change.look_behind(&dest)?.is_some_and(|dest| dest.is_dir());
        if !is_dir && (sources.len() > 1 || into_directory) {
            return Err(change.failure(&dest, &Error::NotADirectory));
        }
        let flags = RenameFlags {
            no_replace: self.no_clobber,
            exchange: self.exchange,
            ..RenameFlags::REPLACE
        };
        for source in sources {
            let source = inner_path(source);
            let target = match is_dir {
                true => join(&dest, split_last(&source).1),
                false => dest.clone(),
            };
            // Named after the target: what stands there is what usually is in the way.
            let wrong = match change.look(&source)? {
                None => &source,
                Some(_) => &target,
            };
            change.at(wrong, |fs| fs.rename_with(as_path(&source), as_path(&target), flags))?;
        }
        change.finish()?;
        Ok(0)
    }
}
