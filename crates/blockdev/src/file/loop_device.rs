//! Loop devices: in which file a loop device stores its blocks, and whether another device over
//! that file is in use.
//!
//! ```text
//!   opened        stored in                                   what keeps a writer out
//!   loop1    ──►  loop0  ──►  disk.img                        locks on loop0 and disk.img
//!   disk.img        ▲            ▲                            the same locks
//!                   └── loop1    └── loop2                    an exclusive opener of one over it
//! ```
//!
//! The kernel identifies the file by device and inode number (`LOOP_GET_STATUS64`), so links, bind
//! mounts and other namespaces hide nothing. The path in sysfs is used only to open the file; it
//! may be gone or name another file. A file without a path cannot be locked from here. In that case
//! the code looks up whether a writer has marked it.

use std::collections::HashSet;
use std::ffi::OsStr;
use std::fs::{self, File, OpenOptions};
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// Identifies a file by device and inode number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub(super) struct Numbers {
    pub(super) dev: u64,
    pub(super) ino: u64,
}

impl Numbers {
    fn of(metadata: &fs::Metadata) -> Numbers {
        Numbers { dev: metadata.dev(), ino: metadata.ino() }
    }
}

fn numbers_of(file: &File) -> Option<Numbers> {
    file.metadata().ok().as_ref().map(Numbers::of)
}

/// In which files the bytes of an opened file or device are stored.
pub(super) struct Stored {
    /// The files below it that could be opened, the nearest first. The caller locks them.
    pub(super) layers: Vec<Layer>,
    /// The opened file and all files below it.
    numbers: Vec<Numbers>,
    /// The lowest of these files, if it has no usable path.
    pub(super) hidden: Option<Numbers>,
    /// The sysfs directory of the opened loop device, if it is one.
    device: Option<PathBuf>,
}

/// A file in which a loop device stores its blocks.
pub(super) struct Layer {
    pub(super) file: File,
    /// Whether a partition of the loop device above was opened, and not the whole device.
    pub(super) in_part: bool,
}

/// The most loop devices on top of each other that are followed. Linux allows no cycles of them.
const LAYERS_MAX: usize = 16;
const LOOP_GET_STATUS64: libc::c_ulong = 0x4C05;

/// The structure that `LOOP_GET_STATUS64` fills.
#[repr(C)]
struct Status {
    device: u64,
    inode: u64,
    /// The rest of the structure, whose size is 232 bytes.
    rest: [u64; 27],
}
const _: () = assert!(size_of::<Status>() == 232);

/// Finds where the bytes of `file` are stored. Opens the files below it: for writing where `write`
/// is set and the system allows it, else for reading.
pub(super) fn stored_in(file: &File, is_block_device: bool, write: bool) -> Stored {
    let own = file.metadata().ok();
    let numbers = own.iter().map(Numbers::of).collect();
    let mut stored = Stored { layers: Vec::new(), numbers, hidden: None, device: None };
    let mut above = own.filter(|_| is_block_device).and_then(|own| device_of(own.rdev()));
    let mut in_part = false;
    while let Some(device) = above.take()
        && stored.layers.len() < LAYERS_MAX
    {
        let opened = stored.layers.last().map_or(file, |layer: &Layer| &layer.file);
        let below = numbers_behind(opened);
        in_part |= device.in_part;
        stored.numbers.extend(below);
        stored.device.get_or_insert(device.dir);
        let Some(layer) = open_behind(&device.path, below, write) else {
            stored.hidden = below;
            break;
        };
        let metadata = layer.metadata().ok();
        above = metadata
            .filter(|metadata| metadata.file_type().is_block_device())
            .and_then(|metadata| device_of(metadata.rdev()));
        stored.layers.push(Layer { file: layer, in_part });
    }
    stored
}

impl Stored {
    /// Whether the bytes can be written in another way: a loop device over one of the files, or a
    /// block device among them, has an exclusive opener, such as a mount. A question that the
    /// system does not answer counts as no.
    pub(super) fn is_in_use(&self) -> bool {
        let is_opened_exclusively =
            |layer: &Layer| !layer.in_part && has_exclusive_opener(&layer.file);
        if self.layers.iter().any(is_opened_exclusively) {
            return true;
        }
        let mounted = mounted_devices();
        let mut files: HashSet<Numbers> = self.numbers.iter().copied().collect();
        let mut left = attached();
        // Loop devices may lie on top of each other, so each one found adds a file to search for.
        while let Some(at) = left.iter().position(|device| files.contains(&device.behind)) {
            let device = left.swap_remove(at);
            files.extend(device.node.as_ref().and_then(numbers_of));
            if self.device.as_ref() != Some(&device.dir)
                && (mounted.contains(&device.dir)
                    || device.node.as_ref().is_some_and(has_exclusive_opener))
            {
                return true;
            }
        }
        false
    }
}

/// Whether a program has opened a block device, or a part of it, exclusively, as a mount does.
fn has_exclusive_opener(device: &File) -> bool {
    if !device.metadata().is_ok_and(|metadata| metadata.file_type().is_block_device()) {
        return false;
    }
    let mut options = OpenOptions::new();
    let same = format!("/proc/self/fd/{}", device.as_raw_fd());
    let opened = options.read(true).custom_flags(libc::O_EXCL).open(same);
    opened.is_err_and(|error| error.raw_os_error() == Some(libc::EBUSY))
}

/// A loop device, or a partition of one.
struct Device {
    /// The sysfs directory of the loop device.
    dir: PathBuf,
    in_part: bool,
    /// The path of the file in which it stores its blocks. The path may be old, or belong to
    /// another namespace.
    path: PathBuf,
}

/// The loop device with this device number, or the one of which that is a partition.
fn device_of(rdev: u64) -> Option<Device> {
    named(&format!("{}:{}", libc::major(rdev), libc::minor(rdev)))
}

/// As `device_of`, for a device number written as `MAJOR:MINOR`.
fn named(numbers: &str) -> Option<Device> {
    let device = Path::new("/sys/dev/block").join(numbers).canonicalize().ok()?;
    [(device.as_path(), false), (device.parent()?, true)].into_iter().find_map(|(dir, in_part)| {
        Some(Device { path: path_behind(dir)?, dir: dir.into(), in_part })
    })
}

/// The path that sysfs gives for the file of a loop device.
fn path_behind(dir: &Path) -> Option<PathBuf> {
    let path = fs::read(dir.join("loop/backing_file")).ok()?;
    Some(Path::new(OsStr::from_bytes(path.trim_ascii_end())).to_path_buf())
}

/// The file in which an open loop device stores its blocks.
fn numbers_behind(device: &File) -> Option<Numbers> {
    let mut status = Status { device: 0, inode: 0, rest: [0; 27] };
    // SAFETY: the descriptor is open as long as `device` exists. A loop device fills the structure,
    // whose size is the one that the command implies; other devices and files reject the command
    // and write nothing.
    let done = unsafe {
        libc::ioctl(device.as_raw_fd(), LOOP_GET_STATUS64 as _, &mut status as *mut Status)
    };
    (done == 0).then_some(Numbers { dev: status.device, ino: status.inode })
}

/// Opens `path` if it is the file `wanted`.
fn open_behind(path: &Path, wanted: Option<Numbers>, write: bool) -> Option<File> {
    let open = |write: bool| {
        // O_NONBLOCK: if the name now belongs to another kind of file, the open must not block.
        OpenOptions::new().read(true).write(write).custom_flags(libc::O_NONBLOCK).open(path)
    };
    // Other programs see from a descriptor that is open for writing that its lock is a writer's.
    let file = match write {
        true => open(true).or_else(|_| open(false)),
        false => open(false),
    };
    let file = file.ok()?;
    let found = numbers_of(&file)?;
    wanted.is_none_or(|wanted| wanted == found).then_some(file)
}

/// A loop device with a file.
struct Attached {
    dir: PathBuf,
    behind: Numbers,
    /// The opened device, if this process may open it.
    node: Option<File>,
}

/// All loop devices with a file.
fn attached() -> Vec<Attached> {
    let Ok(devices) = fs::read_dir("/sys/block") else { return Vec::new() };
    let found = devices.flatten().filter_map(|entry| {
        let path = path_behind(&entry.path())?;
        let node = File::open(Path::new("/dev").join(entry.file_name())).ok();
        // A caller that may not open the device uses the path from sysfs.
        let by_path = || fs::metadata(&path).ok().as_ref().map(Numbers::of);
        let behind = node.as_ref().and_then(numbers_behind).or_else(by_path)?;
        Some(Attached { dir: entry.path().canonicalize().ok()?, behind, node })
    });
    found.collect()
}

/// The loop devices of which the device or a partition is mounted in this namespace.
fn mounted_devices() -> HashSet<PathBuf> {
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    let numbers = mounts.lines().filter_map(|line| line.split(' ').nth(2));
    numbers.filter_map(named).map(|device| device.dir).collect()
}
