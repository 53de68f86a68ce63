//! How a file or block device is opened.
//!
//! ```text
//!   path ──► is it a file or block device? ──► open ──► lock ──► length ──► [O_DIRECT beside it]
//!                                                        │
//!   create: the old content goes only after the lock ◄───┘
//!
//!                     reader            writer       a second opener, anywhere on this machine
//!   reader              ok               Busy
//!   writer      goes on, names it        Busy
//! ```
//! A reader of the same process keeps a writer out, too, as does one that cannot be examined: see `lock`.
//! Opening a loop device locks the file behind it, too, so that the device and the file keep each other's users out:
//! see `loop_device`.

use crate::dax::DaxMode;
use crate::direct::DirectFile;
use crate::file::FileDevice;
use crate::lock::lock;
use crate::loop_device;
use extant_base::{ByteOffset, Error, IoOp, Result};
use std::fs::{self, File, OpenOptions};
use std::io::{self, Seek, SeekFrom};
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::Path;

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

    /// Whether other users are kept out: other writers always, and readers of the same process when writing. The
    /// lock is advisory (`flock` and a record lock), so programs that set no lock are not kept out; it ends with
    /// the device. A lock of a process that has the file open only to read keeps no one out:
    /// [`FileDevice::passed_locks`] names that process.
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
    /// Errors: [`Error::Busy`] when another program uses it, which includes a mounted block device,
    /// and a file mounted through a loop device, opened for writing; [`Error::Locked`] when a process that cannot be
    /// examined has locked it; [`Error::Invalid`] when it is neither
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
        let mut passed = self.take_lock(&file, self.write)?;
        let mut backing = Vec::new();
        if self.lock {
            let stored = loop_device::stored_in(&file, kind == Kind::BlockDevice, self.write);
            if self.write && stored.is_in_use() {
                return Err(Error::Busy);
            }
            for layer in stored.layers {
                // Partitions share their loop device, so they do not keep each other out of its file.
                passed.extend(self.take_lock(&layer.file, self.write && !layer.in_part)?);
                backing.push(layer.file);
            }
        }
        Ok(self.finish(file, kind, backing)?.with_passed_locks(passed))
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
        let passed = options.take_lock(&file, true)?;
        file.set_len(0).and_then(|()| file.set_len(len)).map_err(|source| Error::Device {
            op: IoOp::Resize,
            at: ByteOffset(len),
            len: 0,
            source,
        })?;
        Ok(options.finish(file, kind, Vec::new())?.with_passed_locks(passed))
    }

    fn finish(&self, mut file: File, kind: Kind, backing: Vec<File>) -> Result<FileDevice> {
        // The end of a block device is its size; its metadata says 0.
        let len = file.seek(SeekFrom::End(0)).map_err(open_failed)?;
        let direct = if self.direct { DirectFile::beside(&file, self.write) } else { None };
        let device =
            FileDevice::new(file, direct, len, !self.write, kind == Kind::BlockDevice, self.dax);
        Ok(device.with_backing(backing))
    }

    fn take_lock(&self, file: &File, exclusive: bool) -> Result<Vec<u32>> {
        if self.lock { lock(file, exclusive) } else { Ok(Vec::new()) }
    }
}

const OWN_LEN: &str = "a block device has a length of its own: open it for writing instead";

#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    File,
    BlockDevice,
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

pub(crate) fn open_failed(source: io::Error) -> Error {
    match source.raw_os_error() {
        Some(libc::EBUSY | libc::ETXTBSY) => Error::Busy,
        _ => Error::Device { op: IoOp::Open, at: ByteOffset(0), len: 0, source },
    }
}
