//! How a file or block device is opened.
//!
//! ```text
//!   path ──► is it a file or block device? ──► open ──► lock ──► length ──► [O_DIRECT beside it]
//!                                                        │
//!   create: the old content is removed after the lock ◄──┘
//!
//!                     reader               writer       a second opener, anywhere on this machine
//!   reader              ok                  Busy
//!   writer      continues, names it         Busy
//! ```
//! A reader of the same process, or one that cannot be examined, keeps a writer out, too: see
//! `lock`. Opening a loop device also locks the file in which it stores its blocks, so that users
//! of the device and users of the file exclude each other: see `loop_device`.

use super::FileDevice;
use super::direct::DirectFile;
use super::lock::{has_mark, lock, open_failed, try_again_while};
use super::loop_device;
use crate::dax::DaxMode;
use extant_base::{ByteOffset, Error, IoOp, Result};
use std::fs::{self, File, OpenOptions};
use std::io::{self, Seek, SeekFrom};
use std::os::unix::fs::{FileTypeExt, OpenOptionsExt};
use std::path::Path;
use std::time::{Duration, Instant};

/// How long an opening waits for a mount over the same bytes that the kernel is taking down.
const TEARDOWN: Duration = Duration::from_secs(1);

/// Options of a [`FileDevice`]. By default it is read-only, locked, and uses the page cache.
#[derive(Clone, Debug)]
pub struct FileOptions {
    write: bool,
    direct: bool,
    lock: bool,
    dax: DaxMode,
}

impl FileDevice {
    /// Opens `path` for reading, locked against writers.
    ///
    /// # Errors
    /// As [`FileOptions::open`].
    pub fn open(path: impl AsRef<Path>) -> Result<FileDevice> {
        FileOptions::new().open(path)
    }

    /// Opens `path` for reading and writing, locked against all other users.
    ///
    /// # Errors
    /// As [`FileOptions::open`].
    pub fn open_rw(path: impl AsRef<Path>) -> Result<FileDevice> {
        FileOptions::new().write(true).open(path)
    }

    /// Creates the file `path`, or empties it, and gives it `len` zero bytes; locked.
    ///
    /// # Errors
    /// As [`FileOptions::create`].
    pub fn create(path: impl AsRef<Path>, len: u64) -> Result<FileDevice> {
        FileOptions::new().create(path, len)
    }
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

    /// Whether large aligned transfers bypass the page cache. Where that is impossible they use the
    /// page cache: see [`FileDevice::is_direct`].
    pub fn direct(&mut self, direct: bool) -> &mut FileOptions {
        self.direct = direct;
        self
    }

    /// Whether other users are kept out: other writers always, and readers of the same process when
    /// writing. The lock is advisory (`flock` and a record lock), so it does not keep out programs
    /// that use no locks. It ends with the device. The lock of another process that has the file
    /// open for reading only is ignored: [`FileDevice::passed_locks`] names that process.
    pub fn lock(&mut self, lock: bool) -> &mut FileOptions {
        self.lock = lock;
        self
    }

    /// Whether the device offers windows ([`BlockDevice::dax`](crate::BlockDevice::dax)); the
    /// default is [`DaxMode::IfDurable`]. A window keeps the file open, and locked, as long as it
    /// exists.
    pub fn dax(&mut self, mode: DaxMode) -> &mut FileOptions {
        self.dax = mode;
        self
    }

    /// Opens an existing regular file or block device.
    ///
    /// # Errors
    /// - [`Error::Busy`] when another program uses it. That includes a mounted block device, and a
    ///   file that is mounted through a loop device when it is opened for writing.
    /// - [`Error::Locked`] when a process that cannot be examined has locked it.
    /// - [`Error::Invalid`] when it is neither a file nor a block device.
    /// - [`Error::Device`] for an error of the system.
    pub fn open(&self, path: impl AsRef<Path>) -> Result<FileDevice> {
        let path = path.as_ref();
        let kind = kind_of(&fs::metadata(path).map_err(open_failed)?)?;
        let mut options = OpenOptions::new();
        options.read(true).write(self.write);
        let file = if self.write && self.lock && kind == Kind::BlockDevice {
            // On a block device O_EXCL requests exclusive use. It fails while the device is
            // mounted.
            options.custom_flags(libc::O_EXCL);
            let is_busy = |opened: &io::Result<File>| {
                opened.as_ref().is_err_and(|error| error.raw_os_error() == Some(libc::EBUSY))
            };
            try_again_while(is_busy, || options.open(path))
        } else {
            options.open(path)
        };
        let file = file.map_err(open_failed)?;
        let kind = kind_of(&file.metadata().map_err(open_failed)?)?;
        let mut passed = self.take_lock(&file, self.write)?;
        let mut backing = Vec::new();
        if self.lock {
            let stored = loop_device::stored_in(&file, kind == Kind::BlockDevice, self.write);
            let is_marked = stored.hidden.is_some_and(|file| has_mark(file.dev, file.ino));
            if self.write && (is_marked || stays_in_use(&stored)) {
                return Err(Error::Busy);
            }
            for layer in stored.layers {
                // Partitions share their loop device, so they do not exclude each other from its
                // file.
                passed.extend(self.take_lock(&layer.file, self.write && !layer.in_part)?);
                backing.push(layer.file);
            }
        }
        Ok(self.finish(file, kind, backing)?.with_passed_locks(passed))
    }

    /// Creates a file of `len` zero bytes that takes no space, or empties the existing one.
    ///
    /// The device can be written, whatever [`write`](FileOptions::write) was set to.
    ///
    /// # Errors
    /// As [`open`](FileOptions::open), and [`Error::Invalid`] for a block device, whose length
    /// cannot change.
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

    /// Creates a file of `len` zero bytes, like [`create`](FileOptions::create).
    ///
    /// # Errors
    /// As [`create`](FileOptions::create), and [`Error::Device`] with `EEXIST` when the name
    /// exists.
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
        // Emptied only after the lock: before it, another program may use the old content.
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
        // The position of the end is the size of a block device, whose metadata says 0.
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

/// Whether the bytes can be written in another way, and that does not end within [`TEARDOWN`].
///
/// A mount whose server was killed ends only after its last file is closed, and the kernel takes it
/// down, with its loop device, after that `close` has returned.
fn stays_in_use(stored: &loop_device::Stored) -> bool {
    let began = Instant::now();
    while stored.is_in_use() {
        if began.elapsed() >= TEARDOWN {
            return true;
        }
        std::thread::sleep(TEARDOWN / 40);
    }
    false
}
