//! `extant trim`: returns free space to the device or to the filesystem that holds the image file.

#![allow(unsafe_code)]

use crate::amount;
use crate::failure::Failure;
use crate::image::Image;
use crate::out::Out;
use crate::shown::Shown;
use rustix::ioctl::{Opcode, Updater, ioctl, opcode};
use std::ffi::OsString;
use std::fs::File;
use std::path::{Path, PathBuf};

/// Return free space: punch holes in an image file, discard blocks of a block device.
///
/// To trim a mounted volume, name a directory of its mount, as root or as the user who mounted it.
/// File contents are not changed.
#[derive(Debug, clap::Args)]
#[command(after_long_help = "Examples:
  extant trim disk.img
  extant trim --min 1M /mnt

Exit status: 0 done, 1 failed.")]
pub(crate) struct Args {
    /// Image file or block device, IMG?partition=NUMBER, or a directory where a volume is mounted
    #[arg(value_name = "IMG|DIR")]
    volume: OsString,
    /// Minimum length of a run of free space
    #[arg(long, value_name = "SIZE", default_value = "0", value_parser = amount::bytes)]
    min: u64,
    /// Print nothing
    #[arg(short, long)]
    quiet: bool,
}

impl Args {
    pub(crate) fn run(self) -> Result<u8, Failure> {
        let path = PathBuf::from(&self.volume);
        let bytes = match path.is_dir() {
            true => trim_mount(&path, self.min)
                .map_err(|error| Failure::of_file("trim it", &path, error))?,
            false => self.trim_image()?,
        };
        if !self.quiet {
            let mut out = Out::of_report();
            let name = Shown::path(&path);
            out.text(format_args!("{name}: {bytes} bytes of free space trimmed\n"))?;
            out.finish()?;
        }
        Ok(0)
    }

    fn trim_image(&self) -> Result<u64, Failure> {
        let image = Image::parse(&self.volume)?;
        let failed = |error: &extant::Error| Failure::of_image(&image.name, error);
        let fs = image.options().write(true).open(&image.path).map_err(|error| failed(&error))?;
        let trimmed = fs.trim(0..u64::MAX, self.min).map_err(|error| failed(&error));
        let closed = fs.close().map_err(|error| failed(&error));
        let bytes = trimmed?;
        closed.map(|()| bytes)
    }
}

/// `struct fstrim_range`.
#[repr(C)]
#[derive(Clone, Copy)]
struct TrimRange {
    start: u64,
    len: u64,
    min_len: u64,
}

const FITRIM: Opcode = opcode::read_write::<TrimRange>(b'X', 121);

/// Trims the volume that is mounted on `dir`. Source: ioctl_fitrim in fstrim(8).
fn trim_mount(dir: &Path, min: u64) -> std::io::Result<u64> {
    let dir = File::open(dir)?;
    let mut range = TrimRange { start: 0, len: u64::MAX, min_len: min };
    // SAFETY: FITRIM reads and writes one `TrimRange`, which is initialised and for which every bit
    // pattern is valid.
    unsafe { ioctl(&dir, Updater::<FITRIM, TrimRange>::new(&mut range)) }?;
    Ok(range.len)
}
