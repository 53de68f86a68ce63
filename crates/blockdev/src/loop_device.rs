//! Loop devices: which file one stores its blocks in, and whether another one over the same file is in use.
//!
//! ```text
//!   opened        stored in                                   a writer is kept out by
//!   loop1    ──►  loop0  ──►  disk.img                        locks on loop0 and disk.img
//!   disk.img        ▲            ▲                            the same locks
//!                   └── loop1    └── loop2                    an exclusive opener of a device over it
//! ```
//!
//! The kernel says which file it is by device and inode number (`LOOP_GET_STATUS64`), so links, bind mounts and other
//! namespaces hide nothing. Its path, in sysfs, is only for opening the file, and may be gone or mean another file.
//! A file without a path cannot be locked from here; then a writer's mark on it is looked up.

use crate::lock;
use std::collections::HashSet;
use std::ffi::OsStr;
use std::fs::{self, File, OpenOptions};
use std::os::fd::AsRawFd;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};

/// A file, by device and inode number.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
struct Numbers {
    dev: u64,
    ino: u64,
}

impl Numbers {
    fn of(metadata: &fs::Metadata) -> Numbers {
        Numbers { dev: metadata.dev(), ino: metadata.ino() }
    }
}

fn numbers_of(file: &File) -> Option<Numbers> {
    file.metadata().ok().as_ref().map(Numbers::of)
}

/// Where the bytes of an opened file or device are.
pub(crate) struct Stored {
    /// The files below it that could be opened, the nearest first: to be locked.
    pub(crate) layers: Vec<Layer>,
    /// The opened file and all files below it.
    numbers: Vec<Numbers>,
    /// The last of them, if it has no path.
    hidden: Option<Numbers>,
    /// The loop device that was opened, if it is one: its directory in sysfs.
    device: Option<PathBuf>,
}

/// A file behind a loop device.
pub(crate) struct Layer {
    pub(crate) file: File,
    /// Whether a partition of the loop device above was opened, and not all of it.
    pub(crate) in_part: bool,
}

/// The most loop devices over each other that are followed. Linux makes no cycles of them.
const LAYERS_MAX: usize = 16;
const LOOP_GET_STATUS64: libc::c_ulong = 0x4C05;

/// What `LOOP_GET_STATUS64` fills.
#[repr(C)]
struct Status {
    device: u64,
    inode: u64,
    /// The rest of the structure, which has 232 bytes.
    rest: [u64; 27],
}
const _: () = assert!(size_of::<Status>() == 232);

/// Where the bytes of `file` are; the files below it are opened, to write where `write` says so and that is allowed.
pub(crate) fn stored_in(file: &File, is_block_device: bool, write: bool) -> Stored {
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
    /// Whether the bytes can be written by another way: a loop device over one of the files, or a block device among
    /// them, has an exclusive opener, such as a mount; or a writer has marked the file that has no path. What the
    /// system does not say counts as no.
    pub(crate) fn is_in_use(&self) -> bool {
        let is_claimed = |layer: &Layer| !layer.in_part && has_exclusive_opener(&layer.file);
        if self.layers.iter().any(is_claimed)
            || self.hidden.is_some_and(|file| lock::has_mark(file.dev, file.ino))
        {
            return true;
        }
        let mounted = mounted_devices();
        let mut files: HashSet<Numbers> = self.numbers.iter().copied().collect();
        let mut left = attached();
        // Devices may lie over each other, so each one found adds a file.
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

/// Whether a program has opened a block device, or a part of it, for itself alone, as a mount does.
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
    /// Its directory in sysfs.
    dir: PathBuf,
    in_part: bool,
    /// The path of the file behind it, as it was or is in some namespace.
    path: PathBuf,
}

/// The loop device with this number, or the one that it numbers a partition of.
fn device_of(rdev: u64) -> Option<Device> {
    named(&format!("{}:{}", libc::major(rdev), libc::minor(rdev)))
}

/// The same, of a number as `MAJOR:MINOR`.
fn named(numbers: &str) -> Option<Device> {
    let device = Path::new("/sys/dev/block").join(numbers).canonicalize().ok()?;
    [(device.as_path(), false), (device.parent()?, true)].into_iter().find_map(|(dir, in_part)| {
        Some(Device { path: path_behind(dir)?, dir: dir.into(), in_part })
    })
}

/// The path that sysfs gives for the file behind a loop device.
fn path_behind(dir: &Path) -> Option<PathBuf> {
    let path = fs::read(dir.join("loop/backing_file")).ok()?;
    Some(Path::new(OsStr::from_bytes(path.trim_ascii_end())).to_path_buf())
}

/// The file behind an open loop device.
fn numbers_behind(device: &File) -> Option<Numbers> {
    let mut status = Status { device: 0, inode: 0, rest: [0; 27] };
    // SAFETY: the descriptor is open as long as `device` lives. A loop device fills the structure, which has the size
    // that its command says; other devices and files do not know the command and write nothing.
    let done = unsafe {
        libc::ioctl(device.as_raw_fd(), LOOP_GET_STATUS64 as _, &mut status as *mut Status)
    };
    (done == 0).then_some(Numbers { dev: status.device, ino: status.inode })
}

/// Opens `path` if it is the file `wanted`.
fn open_behind(path: &Path, wanted: Option<Numbers>, write: bool) -> Option<File> {
    let open = |write: bool| {
        // O_NONBLOCK: a name that came to mean something else must not make this wait.
        OpenOptions::new().read(true).write(write).custom_flags(libc::O_NONBLOCK).open(path)
    };
    // A descriptor that is open for writing shows other programs that its lock is a writer's.
    let file = match write {
        true => open(true).or_else(|_| open(false)),
        false => open(false),
    };
    let file = file.ok()?;
    let found = numbers_of(&file)?;
    wanted.is_none_or(|wanted| wanted == found).then_some(file)
}

/// A loop device that has a file.
struct Attached {
    dir: PathBuf,
    behind: Numbers,
    /// The device, if it may be opened.
    node: Option<File>,
}

/// All loop devices that have a file.
fn attached() -> Vec<Attached> {
    let Ok(devices) = fs::read_dir("/sys/block") else { return Vec::new() };
    let found = devices.flatten().filter_map(|entry| {
        let path = path_behind(&entry.path())?;
        let node = File::open(Path::new("/dev").join(entry.file_name())).ok();
        // For a caller that may not open the device there is its path.
        let by_path = || fs::metadata(&path).ok().as_ref().map(Numbers::of);
        let behind = node.as_ref().and_then(numbers_behind).or_else(by_path)?;
        Some(Attached { dir: entry.path().canonicalize().ok()?, behind, node })
    });
    found.collect()
}

/// The loop devices that are mounted here, themselves or in part.
fn mounted_devices() -> HashSet<PathBuf> {
    let mounts = fs::read_to_string("/proc/self/mountinfo").unwrap_or_default();
    let numbers = mounts.lines().filter_map(|line| line.split(' ').nth(2));
    numbers.filter_map(named).map(|device| device.dir).collect()
}
