//! Growing a volume that is mounted by extant: the request goes to the server of the mount.

#![allow(unsafe_code)]

use crate::failure::{Failure, plain};
use crate::image::{Image, is_same_file};
use crate::mounts::Mounted;
use crate::shown::Shown;
use extant::resize::Resized;
use extant_base::narrow::fits_usize;
use extant_fuse::{NewSize, RESIZE, RESIZE_BYTES, ResizeAnswer};
use rustix::io::Errno;
use rustix::ioctl::{Opcode, Updater, ioctl};
use std::fs::File;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

/// The directory of a mount by extant: `image` itself if it is a directory, or where it is mounted
/// for writing. `None` if it is an image that is not mounted.
///
/// # Errors
/// A message if the table of mounts cannot be read.
pub(crate) fn mount_of(image: &Image) -> Result<Option<PathBuf>, Failure> {
    if image.path.is_dir() {
        return Ok(Some(image.path.clone()));
    }
    let is_same = |mounted: &Mounted| {
        !mounted.read_only
            && (is_device_of(&image.path, &mounted.dir)
                || Image::parse(mounted.image.as_os_str()).is_ok_and(|other| {
                    other.offset == image.offset && is_same_file(&other.path, &image.path)
                }))
    };
    let found = Mounted::all()?.into_iter().rev().find(is_same);
    Ok(found.filter(|mounted| !mounted.is_dead()).map(|mounted| mounted.dir))
}

/// Whether `path` is the block device of the mount on `dir`, as the loop device of an image is.
fn is_device_of(path: &Path, dir: &Path) -> bool {
    let (Ok(path), Ok(dir)) = (std::fs::metadata(path), std::fs::metadata(dir)) else {
        return false;
    };
    path.file_type().is_block_device() && path.rdev() == dir.dev()
}

/// Why a mounted volume has not the size that was requested.
#[derive(Debug)]
pub(crate) struct Refusal {
    /// The reason in words.
    pub(crate) message: String,
}

impl Refusal {
    /// The failure that names `image`.
    pub(crate) fn of(self, image: &Path) -> Failure {
        Failure::new(format_args!("{}: {}", Shown::path(image), self.message))
    }
}

/// Makes the volume larger that is mounted on `dir`.
///
/// # Errors
/// The answer of the mount's server; the error of the kernel.
pub(crate) fn grow_mount(dir: &Path, size: NewSize) -> Result<Resized, Refusal> {
    match ask(dir, size) {
        Ok(ResizeAnswer::Done { from_blocks, to_blocks, block_bytes, now_meta_bg }) => {
            let block_bytes = fits_usize(block_bytes);
            let (moved_blocks, moved_inodes) = (0, 0);
            Ok(Resized {
                from_blocks,
                to_blocks,
                block_bytes,
                moved_blocks,
                moved_inodes,
                now_meta_bg,
            })
        }
        Ok(ResizeAnswer::Refused { message, .. }) => Err(Refusal { message }),
        Err(Errno::NOTTY | Errno::INVAL | Errno::OPNOTSUPP) => Err(Refusal {
            message: "no volume is mounted there by extant: resize2fs resizes mounts of Linux"
                .into(),
        }),
        Err(Errno::PERM) => {
            Err(Refusal { message: "only root and the user who mounted it can resize it".into() })
        }
        Err(errno) => {
            Err(Refusal { message: format!("cannot resize it: {}", plain(&errno.into())) })
        }
    }
}

fn ask(dir: &Path, size: NewSize) -> Result<ResizeAnswer, Errno> {
    let dir = File::open(dir)
        .map_err(|error| error.raw_os_error().map_or(Errno::IO, Errno::from_raw_os_error))?;
    let mut bytes: [u8; RESIZE_BYTES] = size.to_bytes();
    const COMMAND: Opcode = RESIZE as Opcode;
    // SAFETY: RESIZE reads and writes `RESIZE_BYTES` initialised bytes, for which every bit pattern
    // is valid.
    unsafe { ioctl(&dir, Updater::<COMMAND, [u8; RESIZE_BYTES]>::new(&mut bytes)) }?;
    Ok(ResizeAnswer::from_bytes(&bytes))
}
