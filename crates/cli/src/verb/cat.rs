//! `extant cat`: writes the content of files, one after the other.

use crate::failure::Failure;
use crate::image::{Image, as_path, lookup_path};
use crate::out::Out;
use crate::repaired::ReadArgs;
use std::ffi::OsString;

const PIECE: usize = 1 << 20;

/// Write the content of files to standard output, in order.
///
/// Symbolic links are followed inside the volume only. Holes are written as zeros.
#[derive(Debug, clap::Args)]
#[command(after_long_help = "Examples:
  extant cat disk.img /etc/fstab
  extant cat disk.img /boot/vmlinuz > vmlinuz
  extant cat 'sd.img?offset=1M' /config.txt

Exit status: 0 written, 1 something could not be read.")]
pub(crate) struct Args {
    /// Image file or block device, or IMG?partition=NUMBER
    #[arg(value_name = "IMG")]
    image: OsString,
    /// Files in the volume
    #[arg(value_name = "PATH", required = true)]
    paths: Vec<OsString>,
    #[command(flatten)]
    read: ReadArgs,
}

impl Args {
    /// The arguments for `get IMG PATH -`.
    pub(crate) fn of(image: OsString, path: OsString, read: ReadArgs) -> Args {
        Args { image, paths: vec![path], read }
    }

    pub(crate) fn run(self) -> Result<u8, Failure> {
        let image = Image::parse(&self.image)?;
        let fs = self.read.open(&image)?;
        let mut out = Out::new();
        let mut buffer = vec![0; PIECE];
        for path in &self.paths {
            let path = lookup_path(path)?;
            let failed = |error| image.failure(&path, &error);
            let file = fs.open_file(as_path(&path)).map_err(failed)?;
            let mut at = 0;
            loop {
                let n = file.read_at(&mut buffer, at).map_err(failed)?;
                if n == 0 {
                    break;
                }
                out.bytes(&buffer[..n])?;
                at += n as u64;
            }
        }
        out.finish()?;
        Ok(0)
    }
}
