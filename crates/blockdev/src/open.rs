//! How a file or block device is opened.
//!
//! ```text
//!   path ──► is it a file or block device? ──► open ──► lock ──► length ──► [O_DIRECT beside it]
//!                                                        │
//!   create: the old content goes only after the lock ◄───┘
//!
//!               reader   writer       a second opener, anywhere on this machine
//!   reader        ok      Busy
//!   writer       Busy     Busy
//! ```
//! Opening a loop device locks the file behind it, too, so that the device and the file keep each other's users out.

use crate::dax::DaxMode;
use crate::direct::DirectFile;
use crate::file::FileDevice;
use extant_base::{ByteOffset, Error, IoOp, Result};
use std::ffi::OsStr;
use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Seek, SeekFrom};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileTypeExt, MetadataExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Options of a [`FileDevice`]: read-only, locked and through the page cache unless said otherwise.
#[derive(Clone, Debug)]
pub struct FileOptions {
    write: bool,
    direct: bool,
    lock: bool,
    dax: DaxMode,
}

impl Default for FileOptions {
    fn default() -> FileOptions {
        FileOptions::new()
    }
}

impl FileOptions {
    /// Read-only, locked, through the page cache.
    pub fn new() -> FileOptions {
        FileOptions { write: false, direct: false, lock: true, dax: DaxMode::default() }
    }

    /// Whether the device may be written.
    pub fn write(&mut self, write: bool) -> &mut FileOptions {
        self.write = write;
        self
    }

    /// Whether large aligned transfers go around the page cache. Where that is impossible they go
    /// through it: see [`FileDevice::is_direct`].
    pub fn direct(&mut self, direct: bool) -> &mut FileOptions {
        self.direct = direct;
        self
    }

    /// Whether other users are kept out: all of them when writing, writers when reading. The lock
    /// is advisory (`flock`), so it keeps out those who ask, and ends with the device.
    pub fn lock(&mut self, lock: bool) -> &mut FileOptions {
        self.lock = lock;
        self
    }

    /// Whether the device offers windows ([`BlockDevice::dax`](crate::BlockDevice::dax)):
    /// [`DaxMode::IfDurable`] unless said otherwise. A window keeps the file open, and locked, as
    /// long as it lives.
    pub fn dax(&mut self, mode: DaxMode) -> &mut FileOptions {
        self.dax = mode;
        self
    }

    /// Opens a regular file or block device that exists.
    ///
    /// Errors: [`Error::Busy`] when somebody else uses it, which includes a mounted block device,
    /// and a file mounted through a loop device, opened for writing; [`Error::Invalid`] when it is neither
    /// a file nor a block device; [`Error::Device`] for what the system says.
    pub fn open(&self, path: impl AsRef<Path>) -> Result<FileDevice> {
        let path = path.as_ref();
        let kind = kind_of(&fs::metadata(path).map_err(open_failed)?)?;
        let mut options = OpenOptions::new();
        options.read(true).write(self.write);
        if self.write && self.lock && kind == Kind::BlockDevice {
            // On a block device O_EXCL claims it, and fails while it is mounted.
            options.custom_flags(libc::O_EXCL);
        }
        let file = options.open(path).map_err(open_failed)?;
        let kind = kind_of(&file.metadata().map_err(open_failed)?)?;
        self.take_lock(&file, self.write)?;
        let backing = match kind {
            Kind::BlockDevice if self.lock => loop_backing(&file),
            _ => None,
        };
        if let Some(backing) = &backing {
            // Partitions share their loop device, so they do not keep each other out of its file.
            self.take_lock(&backing.file, self.write && !backing.in_part)?;
        }
        let (stored, of) = match &backing {
            Some(backing) => (&backing.file, Some(backing.device.as_path())),
            None => (&file, None),
        };
        if self.write && self.lock && is_loop_mounted(stored, of) {
            return Err(Error::Busy);
        }
        self.finish(file, kind, backing.map(|backing| backing.file))
    }

    /// Makes a file of `len` zero bytes that takes no space, or empties the one that is there.
    ///
    /// The device can be written, whatever [`write`](FileOptions::write) said. Errors: as
    /// [`open`](FileOptions::open), and [`Error::Invalid`] for a block device, whose length is
    /// its own.
    pub fn create(&self, path: impl AsRef<Path>, len: u64) -> Result<FileDevice> {
        let path = path.as_ref();
        match fs::metadata(path) {
            Ok(old) if kind_of(&old)? == Kind::BlockDevice => return Err(Error::Invalid(OWN_LEN)),
            Ok(_) => {}
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(open_failed(error)),
        }
        let mut options = OpenOptions::new();
        let file = options.read(true).write(true).create(true).truncate(false).open(path);
        self.fill_new(file.map_err(open_failed)?, len)
    }

    /// Makes a file of `len` zero bytes like [`create`](FileOptions::create), and fails with
    /// `EEXIST` when there is anything under that name.
    pub fn create_new(&self, path: impl AsRef<Path>, len: u64) -> Result<FileDevice> {
        let file = OpenOptions::new().read(true).write(true).create_new(true).open(path);
        self.fill_new(file.map_err(open_failed)?, len)
    }

    fn fill_new(&self, file: File, len: u64) -> Result<FileDevice> {
        let options = FileOptions { write: true, ..self.clone() };
        let kind = kind_of(&file.metadata().map_err(open_failed)?)?;
        if kind == Kind::BlockDevice {
            return Err(Error::Invalid(OWN_LEN));
        }
        // Emptied only now: before the lock the old content may be in use.
        options.take_lock(&file, true)?;
        file.set_len(0).and_then(|()| file.set_len(len)).map_err(|source| Error::Device {
            op: IoOp::Resize,
            at: ByteOffset(len),
            len: 0,
            source,
        })?;
        options.finish(file, kind, None)
    }

    fn finish(&self, mut file: File, kind: Kind, backing: Option<File>) -> Result<FileDevice> {
        // The end of a block device is its size; its metadata says 0.
        let len = file.seek(SeekFrom::End(0)).map_err(open_failed)?;
        let direct = if self.direct { DirectFile::beside(&file, self.write) } else { None };
        let device =
            FileDevice::new(file, direct, len, !self.write, kind == Kind::BlockDevice, self.dax);
        Ok(device.with_backing(backing))
    }

    fn take_lock(&self, file: &File, exclusive: bool) -> Result<()> {
        if !self.lock {
            return Ok(());
        }
        // Locks that pass: a device manager probes a block device, or a thread of a program that
        // has just closed its image starts another one, which shares the lock until it executes.
        let mut patience = 20;
        loop {
            let tried = if exclusive { file.try_lock() } else { file.try_lock_shared() };
            match tried {
                Ok(()) => return Ok(()),
                Err(TryLockError::WouldBlock) if patience > 0 => {
                    patience -= 1;
                    std::thread::sleep(Duration::from_millis(10));
                }
                Err(TryLockError::WouldBlock) => return Err(Error::Busy),
                // Some network filesystems know no locks: then nobody else can ask for one either.
                Err(TryLockError::Error(error)) if has_no_locks(&error) => return Ok(()),
                Err(TryLockError::Error(error)) => return Err(open_failed(error)),
            }
        }
    }
}

const OWN_LEN: &str = "a block device has a length of its own: open it for writing instead";

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    File,
    BlockDevice,
}

/// The file behind a loop device.
struct Backing {
    file: File,
    /// The loop device's directory in sysfs.
    device: PathBuf,
    /// Whether a partition of the loop device was opened, and not all of it.
    in_part: bool,
}

/// The directory in sysfs of the loop device with these numbers (`MAJOR:MINOR`), or of which they number a partition,
/// whether it is a partition, and the path of the file behind it. A name that is gone is no path.
fn loop_device(numbers: &str) -> Option<(PathBuf, bool, PathBuf)> {
    let device = Path::new("/sys/dev/block").join(numbers).canonicalize().ok()?;
    [(device.as_path(), false), (device.parent()?, true)].into_iter().find_map(|(dir, in_part)| {
        let backing = fs::read(dir.join("loop/backing_file")).ok()?;
        let path = Path::new(OsStr::from_bytes(backing.trim_ascii_end()));
        Some((dir.to_path_buf(), in_part, path.to_path_buf()))
    })
}

/// The file behind the block device `file`, if that is a loop device whose file can still be opened.
fn loop_backing(file: &File) -> Option<Backing> {
    let rdev = file.metadata().ok()?.rdev();
    let numbers = format!("{}:{}", libc::major(rdev), libc::minor(rdev));
    let (device, in_part, path) = loop_device(&numbers)?;
    // O_NONBLOCK: a name that came to mean something else must not make this wait.
    let file = OpenOptions::new().read(true).custom_flags(libc::O_NONBLOCK).open(path).ok()?;
    Some(Backing { file, device, in_part })
}

/// Whether the kernel has the file mounted through a loop device, or a partition of one, other than `of`. Files are
/// compared by device and inode, so links and bind mounts hide nothing. What the system does not say counts as no.
fn is_loop_mounted(file: &File, of: Option<&Path>) -> bool {
    let Ok(own) = file.metadata() else { return false };
    let Ok(mounts) = fs::read_to_string("/proc/self/mountinfo") else { return false };
    mounts.lines().filter_map(|line| line.split(' ').nth(2)).filter_map(loop_device).any(
        |(device, _, path)| {
            Some(device.as_path()) != of
                && fs::metadata(path)
                    .is_ok_and(|other| (other.dev(), other.ino()) == (own.dev(), own.ino()))
        },
    )
}

fn kind_of(metadata: &fs::Metadata) -> Result<Kind> {
    let kind = metadata.file_type();
    if kind.is_file() {
        Ok(Kind::File)
    } else if kind.is_block_device() {
        Ok(Kind::BlockDevice)
    } else if kind.is_dir() {
        Err(Error::IsADirectory)
    } else {
        Err(Error::Invalid("neither a regular file nor a block device"))
    }
}

fn has_no_locks(error: &io::Error) -> bool {
    matches!(error.raw_os_error(), Some(libc::ENOLCK | libc::EOPNOTSUPP | libc::ENOSYS))
}

fn open_failed(source: io::Error) -> Error {
    match source.raw_os_error() {
        Some(libc::EBUSY | libc::ETXTBSY) => Error::Busy,
        _ => Error::Device { op: IoOp::Open, at: ByteOffset(0), len: 0, source },
    }
}
