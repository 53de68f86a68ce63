//! `extant apply-tar`: unpacks archives over a volume.

use crate::amount;
use crate::apply::Apply;
use crate::bar::{self, Bar};
use crate::change::{Change, Steps};
use crate::failure::{Failure, print_message, without_number};
use crate::image::inner_path;
use crate::out::Out;
use crate::shown::{Shown, encoded};
use crate::verb::mkfs::format_options::owner;
use extant_image::{SourceKind, SourceOptions, SourceSpec, Tree};
use serde::Serialize;
use std::ffi::OsString;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

/// Unpack tar archives into a volume.
///
/// TAR is a tar archive (plain, gzip or zstd), or - for standard input. The archives are unpacked
/// in order: entries replace files of the same name in the volume and in earlier archives. Owners,
/// modes, times, extended attributes, ACLs, capabilities, hard links, devices and holes are those
/// of the archive. A hard link may name a file that only the volume has. As in the layers of
/// container images, a file .wh.NAME removes NAME, and .wh..wh..opq empties its directory first. If
/// an archive cannot be applied or the program is interrupted, the volume is not changed.
#[derive(Debug, clap::Args)]
#[command(after_long_help = "Examples:
  extant apply-tar root.img update.tar.zst
  docker export app | extant apply-tar root.img -
  extant apply-tar --to /srv --owner 33:33 root.img site.tar.gz

Exit status: 0 applied, 1 failed: nothing was changed.")]
pub(crate) struct Args {
    /// Image file or block device, or IMG?partition=NUMBER
    #[arg(value_name = "IMG")]
    image: OsString,
    /// Tar archives, in the order in which they are unpacked
    #[arg(value_name = "TAR", required = true)]
    archives: Vec<OsString>,
    /// Directory of the volume into which the archives are unpacked
    #[arg(long, value_name = "PATH", default_value = "/")]
    to: OsString,
    /// Set the owner and group of every entry
    #[arg(long, value_name = "UID:GID", value_parser = owner)]
    owner: Option<(u32, u32)>,
    /// Treat names that begin with .wh. as ordinary names
    #[arg(long)]
    no_whiteouts: bool,
    /// Directory for temporary files with the content of compressed archives
    #[arg(long, value_name = "DIR")]
    spool_dir: Option<PathBuf>,
    /// Refuse an archive whose unpacked size, headers included, is larger
    #[arg(long, value_name = "SIZE", value_parser = amount::bytes)]
    max_size: Option<u64>,
    #[command(flatten)]
    steps: Steps,
    /// Print what was applied as JSON (docs/JSON.md)
    #[arg(long)]
    json: bool,
}

#[derive(Serialize)]
struct Answer {
    image: String,
    entries: u64,
    data_bytes: u64,
}

impl Args {
    pub(crate) fn run(self) -> Result<u8, Failure> {
        let mut options = SourceOptions::new().links_outside(true);
        if let Some((uid, gid)) = self.owner {
            options = options.owner(uid, gid);
        }
        if let Some(dir) = &self.spool_dir {
            options = options.spool_dir(dir);
        }
        if let Some(bytes) = self.max_size {
            options = options.max_unpacked(bytes);
        }
        let to = inner_path(&self.to)?;
        let (mut entries, mut data_bytes) = (0, 0);
        // Opened first, so that an image that cannot be changed is reported before an archive is
        // read.
        let change = Change::begin(&self.image, self.steps)?;
        for archive in &self.archives {
            let spec = SourceSpec { path: archive.into(), kind: Some(SourceKind::Tar) };
            let spinner = Bar::of_build(false);
            let tree = Tree::read(&[spec], &options, &spinner);
            spinner.clear();
            let tree = tree.map_err(Failure::new)?;
            for problem in tree.take_problems() {
                print_message(without_number(&problem.to_string()));
            }
            let bar = bar::copying(tree.data_bytes());
            let mut progress = |bytes| bar.inc(bytes);
            let mut apply = Apply::new(&change, &tree, (!self.no_whiteouts, true), &mut progress);
            let done = apply.run(&to);
            entries += apply.entries;
            data_bytes += tree.data_bytes();
            bar.finish_and_clear();
            done.map_err(|failure| match failure {
                Failure::Message(text) => {
                    Failure::Message(format!("{text} (from {})", Shown(archive.as_bytes())))
                }
                failure => failure,
            })?;
        }
        change.finish()?;
        if self.json {
            let mut out = Out::of_report();
            out.json(&Answer { image: encoded(self.image.as_bytes()), entries, data_bytes })?;
            out.finish()?;
        }
        Ok(0)
    }
}
