//! Refuses an output directory on the volume from which files are copied.
//!
//! ```text
//!   DIR ─► its device ─┬─ partition ──► whole device
//!                      ├─ loop ───────► its file ──► the device of that
//!                      └─ mapped, RAID ► the devices below
//!          a mount of extant ─► its image                      any of them the source: refused
//! ```

use crate::failure::Failure;
use crate::image::Image;
use crate::mounts::Mounted;
use crate::shown::Shown;
use rustix::fs::{major, minor};
use std::collections::HashSet;
use std::fs::{self, Metadata};
use std::ops::Range;
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};

/// Refuses `dir` if what is written there goes to the volume, which is `len` bytes long: it may
/// destroy the files that are copied.
pub(super) fn refuse_on_source(image: &Image, len: u64, dir: &Path) -> Result<(), Failure> {
    let existing = dir.ancestors().find_map(|dir| {
        let dir = if dir.as_os_str().is_empty() { Path::new(".") } else { dir };
        fs::metadata(dir).ok()
    });
    let Some(existing) = existing else { return Ok(()) };
    let bytes = image.offset..image.offset.saturating_add(len);
    let sources = std::iter::once(&image.path).chain(&image.members);
    let mut sources = sources.filter_map(|path| Source::of(path, bytes.clone()));
    if !sources.any(|source| source.holds(existing.dev())) {
        return Ok(());
    }
    Err(Failure::new(format_args!(
        "{}: on the volume from which files are copied: what is written there may destroy them; \
         name a directory elsewhere",
        Shown::path(dir)
    )))
}

/// A file or block device with the volume, and the bytes of the volume in it.
struct Source {
    metadata: Metadata,
    bytes: Range<u64>,
}

impl Source {
    fn of(path: &Path, bytes: Range<u64>) -> Option<Source> {
        Some(Source { metadata: fs::metadata(path).ok()?, bytes })
    }

    /// Whether a filesystem on this device lies in the volume.
    fn holds(&self, device: u64) -> bool {
        self.is_mounted_as(device) || self.is_below(device)
    }

    fn is_device(&self, device: u64) -> bool {
        self.metadata.file_type().is_block_device() && self.metadata.rdev() == device
    }

    fn is_file(&self, file: &Metadata) -> bool {
        let numbers = |metadata: &Metadata| (metadata.dev(), metadata.ino());
        self.metadata.is_file() && numbers(&self.metadata) == numbers(file)
    }

    /// Whether it is the image of a mount by extant that has this device number.
    fn is_mounted_as(&self, device: u64) -> bool {
        let mounts = Mounted::all().unwrap_or_default();
        let on_device = |mounted: &&Mounted| {
            fs::metadata(&mounted.dir).is_ok_and(|metadata| metadata.dev() == device)
        };
        let images = mounts.iter().filter(on_device);
        let mut images = images.filter_map(|mounted| Image::parse(mounted.image.as_os_str()).ok());
        images.any(|image| {
            let found = fs::metadata(&image.path);
            found.is_ok_and(|found| self.is_file(&found) || self.is_device(found.rdev()))
        })
    }

    /// Whether the device or one below it is the source.
    fn is_below(&self, device: u64) -> bool {
        let mut left = vec![device];
        let mut seen = HashSet::new();
        while let Some(device) = left.pop() {
            if self.is_device(device) {
                return true;
            }
            if !seen.insert(device) {
                continue;
            }
            let Some(dir) = sysfs(device) else { continue };
            if let Some((whole, bytes)) = partition(&dir)
                && !(self.is_device(whole) && self.is_apart(&bytes))
            {
                left.push(whole);
            }
            if let Ok(file) = fs::metadata(backing_file(&dir)) {
                if self.is_file(&file) {
                    return true;
                }
                left.push(if file.file_type().is_block_device() {
                    file.rdev()
                } else {
                    file.dev()
                });
            }
            let below = fs::read_dir(dir.join("slaves")).into_iter().flatten().flatten();
            left.extend(below.filter_map(|slave| number(&slave.path())));
        }
        false
    }

    /// Whether the volume has none of these bytes of its device.
    fn is_apart(&self, bytes: &Range<u64>) -> bool {
        bytes.end <= self.bytes.start || self.bytes.end <= bytes.start
    }
}

/// The sysfs directory of a block device.
fn sysfs(device: u64) -> Option<PathBuf> {
    let name = format!("{}:{}", major(device), minor(device));
    Path::new("/sys/dev/block").join(name).canonicalize().ok()
}

/// The number of the device with this sysfs directory.
fn number(dir: &Path) -> Option<u64> {
    let text = fs::read_to_string(dir.join("dev")).ok()?;
    let (major, minor) = text.trim().split_once(':')?;
    Some(rustix::fs::makedev(major.parse().ok()?, minor.parse().ok()?))
}

/// For a partition: the device that it is a part of, and which bytes of it.
fn partition(dir: &Path) -> Option<(u64, Range<u64>)> {
    let read = |what| fs::read_to_string(dir.join(what)).ok()?.trim().parse::<u64>().ok();
    read("partition")?;
    let (start, sectors) = (read("start")?.checked_mul(512)?, read("size")?.checked_mul(512)?);
    Some((number(dir.parent()?)?, start..start.checked_add(sectors)?))
}

/// The file of a loop device.
fn backing_file(dir: &Path) -> PathBuf {
    use std::os::unix::ffi::OsStrExt;
    let path = fs::read(dir.join("loop/backing_file")).unwrap_or_default();
    PathBuf::from(std::ffi::OsStr::from_bytes(path.trim_ascii_end()))
}
