//! The partitions of the file or device that a verb works on.

use extant::disk::{Disk, Selector};
use extant::{BlockDevice, Error, FileDevice, FileOptions};
use std::fs;
use std::ops::Range;
use std::os::unix::fs::FileTypeExt;
use std::path::Path;

/// The bytes of the partition of `path` that is meant: the one that `selector` names, or without it
/// the only one that has a volume. `None` if the volume is the whole file or device, or, without
/// `selector`, if that cannot be opened.
///
/// Errors: `Disk`, `Device`.
pub(crate) fn volume_part(
    path: &Path,
    selector: Option<&Selector>,
) -> Result<Option<Range<u64>>, Error> {
    let device = match (device(path), selector) {
        (Some(device), _) => device,
        (None, Some(_)) => FileOptions::new().lock(false).open(path)?,
        (None, None) => return Ok(None),
    };
    let part = extant_disk::volume_part(&device, selector)?;
    Ok((part != (0..device.len())).then_some(part))
}

/// The partition table of `path`, if there is one.
///
/// Errors: `Disk`, `Device`.
pub(crate) fn table(path: &Path) -> Result<Option<Disk>, Error> {
    match device(path) {
        Some(device) => Disk::read(&device),
        None => Ok(None),
    }
}

/// The file or block device at `path`, for reading and without a lock. Anything else is not opened:
/// a pipe, for example, would wait.
pub(crate) fn device(path: &Path) -> Option<FileDevice> {
    let kind = fs::metadata(path).ok()?.file_type();
    if !kind.is_file() && !kind.is_block_device() {
        return None;
    }
    FileOptions::new().lock(false).open(path).ok()
}
