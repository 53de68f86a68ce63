//! The file or device on which a volume is made.

use crate::compat::clock;
use crate::compat::console::Console;
use crate::compat::volume::{Copy, RawVolume};
use crate::failure::Failure;
use crate::image::Image;
use crate::shown::Shown;
use crate::{shown, signature};
use extant::{BlockDevice, Error, FileDevice, FileOptions};
use extant_base::ByteOffset;
use extant_blockdev::Slice;
use std::fs;
use std::io::{self, BufRead, IsTerminal};
use std::os::unix::fs::FileTypeExt;
use std::path::Path;
use std::sync::Arc;

/// Bytes of a sector, if the device does not say.
const SECTOR: u32 = 512;

/// What the path leads to.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Kind {
    Missing,
    /// A file of this many bytes.
    File(u64),
    /// A block device of this many bytes.
    Device(u64),
}

impl Kind {
    /// Looks at `path`.
    pub(super) fn of(path: &Path) -> io::Result<Kind> {
        let meta = match fs::metadata(path) {
            Ok(meta) => meta,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Kind::Missing),
            Err(error) => return Err(error),
        };
        if meta.file_type().is_block_device() {
            let device = FileOptions::new().lock(false).open(path);
            return Ok(Kind::Device(device.map_or(0, |device| device.len())));
        }
        match meta.is_file() {
            true => Ok(Kind::File(meta.len())),
            false if meta.is_dir() => Err(io::ErrorKind::IsADirectory.into()),
            false => Err(io::ErrorKind::InvalidInput.into()),
        }
    }

    pub(super) fn bytes(self) -> Option<u64> {
        match self {
            Kind::Missing => None,
            Kind::File(bytes) | Kind::Device(bytes) => Some(bytes),
        }
    }
}

/// Bytes of a sector of the device at `path`. A variable of the environment replaces it.
pub(super) fn sector(path: &Path) -> u32 {
    let given = std::env::var("MKE2FS_DEVICE_SECTSIZE").ok();
    if let Some(size) = given.and_then(|text| text.parse().ok()) {
        return size;
    }
    let device = fs::File::open(path).ok();
    let size = device.and_then(|device| rustix::fs::ioctl_blksszget(&device).ok());
    size.unwrap_or(SECTOR)
}

/// Whether the device at `path` is mounted by this system.
pub(super) fn is_mounted(path: &Path) -> bool {
    let table = fs::read_to_string("/proc/self/mounts").unwrap_or_default();
    let Ok(path) = fs::canonicalize(path) else { return false };
    table.lines().any(|line| line.split(' ').next().is_some_and(|device| path == Path::new(device)))
}

/// Asks on the terminal whether the content of `path` may be overwritten, and returns the answer.
/// Without a terminal, or without known content, the answer is yes.
pub(super) fn confirm(path: &Path, console: &mut Console) -> Result<bool, Failure> {
    if !io::stdin().is_terminal() || !io::stdout().is_terminal() {
        return Ok(true);
    }
    let Some(found) = signature::find(path, 0).ok().flatten() else { return Ok(true) };
    let name = Shown::path(path);
    match history(path) {
        Some(text) => console.print(format_args!("{name} contains a {text}"))?,
        None if found == "data" => return Ok(true),
        None => console.print(format_args!("{name} contains {found}\n"))?,
    }
    console.print(format_args!("Proceed anyway? (y,N) "))?;
    console.flush()?;
    let mut answer = String::new();
    io::stdin().lock().read_line(&mut answer).map_err(Failure::of_output)?;
    Ok(answer.trim_start().starts_with(['y', 'Y']))
}

/// The type, label and last use of the volume at `path`.
fn history(path: &Path) -> Option<String> {
    let volume = RawVolume::open(
        &Image::parse_for_new(path.as_os_str()).ok()?.whole_device(),
        Copy::default(),
    )
    .ok()?;
    let sb = &volume.sb;
    let of_type = match (sb.has_journal(), sb.features.incompat.bits() & !0x6 != 0) {
        (_, true) => "ext4",
        (true, false) => "ext3",
        (false, false) => "ext2",
    };
    let text = |bytes: &[u8]| {
        let end = bytes.iter().position(|&byte| byte == 0).unwrap_or(bytes.len());
        shown::encoded(&bytes[..end])
    };
    let label = match text(&sb.volume_name) {
        label if label.is_empty() => String::new(),
        label => format!(" labelled '{label}'"),
    };
    let time = |seconds: u64| clock::ctime(i64::try_from(seconds).unwrap_or(i64::MAX));
    let last = match (sb.mtime, text(&sb.last_mounted)) {
        (0, _) => format!("\tcreated on {}\n", time(sb.mkfs_time)),
        (mounted, dir) if dir.is_empty() => format!("\tlast mounted on {}\n", time(mounted)),
        (mounted, dir) => format!("\tlast mounted on {dir} on {}\n", time(mounted)),
    };
    Some(format!("{of_type} file system{label}\n{last}"))
}

/// A device for a volume, and whether it reads as zeros.
pub(super) struct Target {
    pub(super) device: Arc<dyn BlockDevice>,
    pub(super) zeroed: bool,
}

impl Target {
    /// Opens `path` for a volume of `bytes` at `offset`, and creates or extends a file for it. What
    /// is in the place of the volume is discarded, if `discard` says so.
    ///
    /// Errors: `Busy`; `Device`.
    pub(super) fn open(
        path: &Path,
        kind: Kind,
        (offset, bytes): (u64, u64),
        discard: bool,
    ) -> Result<Target, Error> {
        let end = offset.checked_add(bytes).ok_or(Error::FileTooLarge)?;
        let (device, zeroed) = match kind {
            Kind::Missing => (FileOptions::new().create_new(path, end)?, true),
            Kind::File(len) => {
                let device = FileOptions::new().write(true).open(path)?;
                if len < end {
                    device.set_len(end)?;
                }
                let zeroed = discard && make_zero(&device, offset, bytes);
                (device, zeroed)
            }
            Kind::Device(_) => {
                let device = FileOptions::new().write(true).open(path)?;
                if discard {
                    // Advice only: not every device can do that.
                    let _ = device.discard(ByteOffset(offset), bytes);
                }
                (device, false)
            }
        };
        let part = Slice::new(Arc::new(device), ByteOffset(offset), bytes)?;
        Ok(Target { device: Arc::new(part), zeroed })
    }
}

/// Makes a part of a file read as zeros. Returns whether that succeeded.
fn make_zero(device: &FileDevice, offset: u64, bytes: u64) -> bool {
    device.discard(ByteOffset(offset), bytes).is_ok()
        && device.zero(ByteOffset(offset), bytes).is_ok()
}
