//! The volume as its users see it: paths in, content and metadata out, in the manner of `std::fs`.
//!
//! ```text
//!   Filesystem ──clone──► Filesystem        one Volume behind all clones, any number of threads
//!       │ path
//!       ├─ read, read_link, metadata, xattr …     resolved from the root, answered at once
//!       ├─ open_file ──► File                     Read + Seek + read_at
//!       ├─ read_dir ───► ReadDir                  one directory, block by block
//!       └─ walk ───────► Walk                     everything below a directory
//! ```
//!
//! Paths count from the volume's root, with or without a leading slash; no symlink leads out.

use crate::file::File;
use crate::metadata::Metadata;
use crate::names::hold::Held;
use crate::open::OpenOptions;
use crate::path::Last;
use crate::read_dir::ReadDir;
use crate::statfs::SpaceInfo;
use crate::volume::Volume;
use crate::walk::Walk;
use extant_base::{Error, Feature, Ino, Result};
use extant_blockdev::BlockDevice;
use extant_journal::{JournalStats, Log, LogUsage};
use extant_ondisk::inode::FileKind;
use extant_ondisk::jbd2::JournalSuperblock;
use extant_ondisk::superblock::Superblock;
use extant_pagecache::{CacheStats, PageCache};
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// Files larger than this, and than the device, are not read in one piece.
const READ_WHOLE_MAX: u64 = 1 << 30;
/// Bytes that such a read takes memory for first; then it doubles.
const READ_WHOLE_STEP: usize = 16 << 20;

/// An open volume. Clones are the same volume; all methods may be called from many threads.
///
/// # Examples
///
/// ```
/// # let _here = extant_guide_tests::with_image();
/// let fs = extant::Filesystem::open("disk.img")?;
/// for entry in fs.read_dir("/etc")? {
///     let entry = entry?;
///     println!("{} {}", entry.file_name().display(), entry.metadata()?.len());
/// }
/// print!("{}", fs.read_to_string("/etc/hostname")?);
/// # Ok::<(), extant::Error>(())
/// ```
#[derive(Clone)]
pub struct Filesystem {
    opened: Arc<Opened>,
}

impl std::fmt::Debug for Filesystem {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Filesystem")
            .field("uuid", &self.superblock().uuid)
            .field("read_only", &self.is_read_only())
            .finish_non_exhaustive()
    }
}

/// What an open volume did so far.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Stats {
    /// Commits; `None` without a journal, or open to read.
    pub journal: Option<JournalStats>,
    /// Folios; `None` where nothing is kept in memory.
    pub cache: Option<CacheStats>,
}

/// The volume behind all clones; the last one closes it.
struct Opened {
    volume: Arc<Volume>,
    /// Dropped without a word, it leaves the volume as it was.
    one_transaction: bool,
    /// What kept it from being opened to write.
    read_only_reason: Option<Feature>,
}

impl Drop for Opened {
    fn drop(&mut self) {
        if !self.one_transaction && !std::thread::panicking() {
            // Nobody is left to be told. A volume that could not be closed is recovered when it is
            // opened again.
            let _ = self.volume.close();
        }
        self.volume.stop_cache();
    }
}

impl Filesystem {
    pub(crate) fn new(
        volume: Arc<Volume>,
        one_transaction: bool,
        read_only_reason: Option<Feature>,
    ) -> Filesystem {
        Filesystem { opened: Arc::new(Opened { volume, one_transaction, read_only_reason }) }
    }

    pub(crate) fn volume(&self) -> &Volume {
        &self.opened.volume
    }

    /// Everything that was changed before the call, by any thread, is durable after it.
    ///
    /// Errors: `Device`; `Aborted` after an earlier failed write.
    pub fn sync(&self) -> Result<()> {
        self.volume().sync()?;
        if self.volume().space().discards() {
            self.volume().space().absorb_durable(usize::MAX);
        }
        Ok(())
    }

    /// Writes the bytes to the device that files held when an opening of them ended, and commits what is needed to read
    /// them. The next sync of any file makes them durable. Files that are open since their last change are left alone.
    ///
    /// For servers of a mount: a program's `sync_file_range` does not reach them, and with a later sync of one file the
    /// program expects the bytes of all to be durable. An error of a file is returned by that file's next sync.
    ///
    /// # Errors
    /// `Device`, `Aborted`: the commit did not work.
    pub fn sync_closed_files(&self) -> Result<()> {
        self.volume().context().noting(|| self.volume().sync_closed_files())
    }

    /// Tells the device that it may use the volume's free space otherwise, as `fstrim` does: of `range`, in bytes of the
    /// volume, the free runs of at least `min` bytes. Returns how many bytes these were.
    ///
    /// Only space that is free after a crash, too, is discarded.
    ///
    /// # Errors
    /// `Invalid` for a range that holds no block of the volume; `ReadOnly`; `NotSupported` where the device cannot;
    /// `Corrupt`, `Device`, `Aborted`.
    pub fn trim(&self, range: std::ops::Range<u64>, min: u64) -> Result<u64> {
        self.volume().context().noting(|| self.volume().space().trim(range, min))
    }

    /// The volume's label as it is now, without the NULs behind it.
    pub fn label(&self) -> Vec<u8> {
        let name = self.volume().context().superblock().read().volume_name;
        name.split(|byte| *byte == 0).next().unwrap_or_default().to_vec()
    }

    /// Sets the volume's label, durable on return. The copies of the superblock keep the one before.
    ///
    /// # Errors
    /// `Invalid` for more than 16 bytes; `ReadOnly`; `Corrupt`, `Device`, `Aborted`.
    pub fn set_label(&self, label: &[u8]) -> Result<()> {
        self.volume().context().noting(|| self.volume().set_label(label))
    }

    /// Takes no more changes, as after damage with `errors=remount-ro`. With `sync`, everything is durable before; else
    /// what is not durable may be lost.
    ///
    /// # Errors
    /// Those of [`Filesystem::sync`]; changes end all the same.
    pub fn shut_down(&self, sync: bool) -> Result<()> {
        let done = if sync { self.sync() } else { Ok(()) };
        self.volume().context().fence();
        done
    }

    /// Makes everything durable and leaves a volume that needs no recovery. Other clones, and files
    /// open on the volume, can only read from now on.
    ///
    /// The last clone does the same when it is dropped, but has nobody to tell about errors. With
    /// [`OpenOptions::one_transaction`] only this keeps what was changed.
    ///
    /// Errors: `Device`; `Aborted` after an earlier failed write. The volume is recovered when it
    /// is opened again.
    ///
    /// # Examples
    ///
    /// ```
    /// # let _here = extant_guide_tests::with_image();
    /// let fs = extant::OpenOptions::new().write(true).open("disk.img")?;
    /// fs.close()?;
    /// # Ok::<(), extant::Error>(())
    /// ```
    pub fn close(self) -> Result<()> {
        self.volume().close()
    }

    /// Opens the volume in a file or block device, to read. See [`OpenOptions`] for more.
    ///
    /// Errors: `Device` and `Busy` from opening the file; `Corrupt` and `Unsupported` from the
    /// volume.
    pub fn open(path: impl AsRef<Path>) -> Result<Filesystem> {
        OpenOptions::new().open(path)
    }

    /// Opens the volume on any device, to read.
    ///
    /// # Examples
    ///
    /// ```
    /// use extant::{Error, Filesystem, MemoryDevice};
    /// use std::sync::Arc;
    /// let empty = Arc::new(MemoryDevice::new(1 << 20));
    /// assert!(matches!(Filesystem::open_device(empty), Err(Error::Corrupt { .. })));
    /// ```
    pub fn open_device(device: Arc<dyn BlockDevice>) -> Result<Filesystem> {
        OpenOptions::new().open_device(device)
    }

    /// The superblock as it was when the volume was opened, after any recovery.
    pub fn superblock(&self) -> &Superblock {
        self.volume().at_open()
    }

    /// How full the volume is.
    pub fn space(&self) -> SpaceInfo {
        self.volume().space_info()
    }

    /// What is in memory of files' bytes, and how it fared; `None` where nothing is kept there.
    pub fn cache_stats(&self) -> Option<CacheStats> {
        self.volume().page_cache().map(PageCache::stats)
    }

    /// What was committed since the volume was opened, and what is in memory of files' bytes.
    pub fn stats(&self) -> Stats {
        let journal = self.volume().journal();
        Stats { journal: (!journal.is_off()).then(|| journal.stats()), cache: self.cache_stats() }
    }

    /// The superblock of the journal inside the volume, as the disk has it now; `None` when there is
    /// none, or when it is on another device.
    ///
    /// Errors: `Device`; `Corrupt` when journal inode or journal are damaged.
    pub fn journal_superblock(&self) -> Result<Option<JournalSuperblock>> {
        self.volume().context().noting(|| {
            if !self.volume().at_open().has_journal() || self.volume().at_open().journal_inum == 0 {
                return Ok(None);
            }
            let Some(place) = self.volume().journal_place(None)? else { return Ok(None) };
            Ok(Some(Log::open(place.device, place.map)?.superblock().clone()))
        })
    }

    /// Where the transactions lie in the journal inside the volume, as the disk has it now; `None` as for
    /// [`Filesystem::journal_superblock`].
    ///
    /// Errors: as there; `Corrupt` for damage in a committed transaction.
    pub fn journal_usage(&self) -> Result<Option<LogUsage>> {
        self.volume().context().noting(|| {
            if !self.volume().at_open().has_journal() || self.volume().at_open().journal_inum == 0 {
                return Ok(None);
            }
            let Some(place) = self.volume().journal_place(None)? else { return Ok(None) };
            Log::open(place.device, place.map)?.usage().map(Some)
        })
    }

    /// Whether nothing can be changed: opened so, closed, or fenced after an error.
    pub fn is_read_only(&self) -> bool {
        self.volume().context().check_writable().is_err()
    }

    /// The feature that cannot be kept whole, so that the volume is open read-only although it was
    /// to be written: see [`OpenOptions::read_only_if_needed`].
    pub fn read_only_reason(&self) -> Option<Feature> {
        self.opened.read_only_reason
    }

    /// The content of a file, all of it. Symlinks are followed.
    ///
    /// Memory is taken as it is filled, so that a file that claims to be large and cannot be read takes
    /// little. Errors: `FileTooLarge` for one larger than 1 GiB and the device (sparse files: read them in
    /// pieces); `NoMemory`; those of [`Filesystem::open_file`] and [`File::read_at`].
    pub fn read(&self, path: impl AsRef<Path>) -> Result<Vec<u8>> {
        self.volume().context().noting(|| {
            let inode = self.resolve(path.as_ref(), Last::Follow)?;
            let body = inode.read();
            let size = body.disk.size;
            if body.file_kind() == FileKind::Regular
                && size > READ_WHOLE_MAX.max(self.volume().device().len())
            {
                return Err(Error::FileTooLarge);
            }
            let len = match body.file_kind() {
                FileKind::Regular => usize::try_from(size).map_err(|_| Error::FileTooLarge)?,
                _ => 0,
            };
            let mut bytes = Vec::new();
            let how = self.volume().cache_use();
            // Even of nothing: other kinds of file say so.
            loop {
                let done = bytes.len();
                let step = READ_WHOLE_STEP.max(done).min(len - done);
                bytes.try_reserve_exact(step).map_err(|_| Error::NoMemory)?;
                bytes.resize(done + step, 0);
                let part = &mut bytes[done..];
                let n = self.volume().read_missing(&inode, &body, done as u64, part, how, None)?;
                if n < step || done + n == len {
                    bytes.truncate(done + n);
                    break;
                }
            }
            Ok(bytes)
        })
    }

    /// The content of a file of UTF-8 text.
    ///
    /// Errors: `Invalid` when it is not UTF-8; those of [`Filesystem::read`].
    pub fn read_to_string(&self, path: impl AsRef<Path>) -> Result<String> {
        String::from_utf8(self.read(path)?).map_err(|_| Error::Invalid("the file is not UTF-8"))
    }

    /// What is known of a file; symlinks are followed.
    pub fn metadata(&self, path: impl AsRef<Path>) -> Result<Metadata> {
        self.metadata_of(path.as_ref(), Last::Follow)
    }

    /// What is known of a file; a symlink at the path's end stands for itself.
    pub fn symlink_metadata(&self, path: impl AsRef<Path>) -> Result<Metadata> {
        self.metadata_of(path.as_ref(), Last::Keep)
    }

    /// What is known of the inode `ino`, which some name must mean.
    ///
    /// Errors: `Corrupt` naming the inode when it is not in use.
    pub fn metadata_of_ino(&self, ino: Ino) -> Result<Metadata> {
        self.volume().context().noting(|| Ok(self.volume().hold_ino(ino)?.look(self.volume())))
    }

    /// Whether the path names something; symlinks are followed. Errors other than a missing name
    /// are errors.
    pub fn exists(&self, path: impl AsRef<Path>) -> Result<bool> {
        self.volume().context().noting(|| match self.resolve(path.as_ref(), Last::Follow) {
            Ok(_) => Ok(true),
            Err(Error::NotFound | Error::NotADirectory) => Ok(false),
            Err(error) => Err(error),
        })
    }

    /// The target of a symlink, as it is stored.
    ///
    /// Errors: `Invalid` when the path names something else; `Encrypted`.
    pub fn read_link(&self, path: impl AsRef<Path>) -> Result<PathBuf> {
        self.volume().context().noting(|| {
            let inode = self.resolve(path.as_ref(), Last::Keep)?;
            let target = self.volume().symlink_target(inode.ino, &inode.read())?;
            Ok(PathBuf::from(OsString::from_vec(target)))
        })
    }

    /// Opens a regular file to read. Symlinks are followed.
    ///
    /// Errors: `IsADirectory`; `Invalid` for devices and the like.
    pub fn open_file(&self, path: impl AsRef<Path>) -> Result<File> {
        self.volume().context().noting(|| File::open(self.hold_path(path.as_ref(), Last::Follow)?))
    }

    /// Opens the regular file with this inode number.
    ///
    /// Errors: as [`Filesystem::open_file`]; `Corrupt` when the inode is not in use.
    pub fn open_ino(&self, ino: Ino) -> Result<File> {
        self.volume().context().noting(|| File::open(self.volume().hold_ino(ino)?.keep(self)))
    }

    /// The names in a directory, "." and ".." left out, in the order they are stored. Symlinks are
    /// followed.
    ///
    /// Errors: `NotADirectory`. What is wrong with single entries or blocks comes as an item.
    pub fn read_dir(&self, path: impl AsRef<Path>) -> Result<ReadDir> {
        self.volume().context().noting(|| {
            let dir = self.hold_path(path.as_ref(), Last::Follow)?;
            ReadDir::new(dir, path.as_ref().to_path_buf())
        })
    }

    /// The names in the directory with this inode number; their paths start with the names.
    ///
    /// Errors: as [`Filesystem::read_dir`]; `Corrupt` when the inode is not in use.
    pub fn read_dir_ino(&self, ino: Ino) -> Result<ReadDir> {
        self.volume()
            .context()
            .noting(|| ReadDir::new(self.volume().hold_ino(ino)?.keep(self), PathBuf::new()))
    }

    /// The target of the symlink with this inode number.
    ///
    /// Errors: as [`Filesystem::read_link`]; `Corrupt` when the inode is not in use.
    pub fn read_link_ino(&self, ino: Ino) -> Result<PathBuf> {
        self.volume().context().noting(|| {
            let inode = self.volume().hold_ino(ino)?;
            let target = self.volume().symlink_target(ino, &inode.read())?;
            Ok(PathBuf::from(OsString::from_vec(target)))
        })
    }

    /// Everything below a directory, and the directory itself first. Symlinks are not followed.
    ///
    /// # Examples
    ///
    /// ```
    /// # let _here = extant_guide_tests::with_image();
    /// let fs = extant::Filesystem::open("disk.img")?;
    /// for entry in fs.walk("/").sorted(true) {
    ///     println!("{}", entry?.path().display());
    /// }
    /// # Ok::<(), extant::Error>(())
    /// ```
    pub fn walk(&self, path: impl AsRef<Path>) -> Walk {
        Walk::new(self.clone(), path.as_ref())
    }

    /// The names of a file's extended attributes, with their prefixes. Symlinks are not followed.
    pub fn xattrs(&self, path: impl AsRef<Path>) -> Result<Vec<OsString>> {
        self.volume().context().noting(|| {
            let inode = self.resolve(path.as_ref(), Last::Keep)?;
            let names = self.volume().xattr_names(inode.ino, &inode.read())?;
            Ok(names.into_iter().map(OsString::from_vec).collect())
        })
    }

    /// The value of an extended attribute; access control lists as system calls have them. Symlinks
    /// are not followed.
    ///
    /// Errors: `NoAttribute`.
    pub fn xattr(&self, path: impl AsRef<Path>, name: impl AsRef<OsStr>) -> Result<Vec<u8>> {
        self.volume().context().noting(|| {
            let inode = self.resolve(path.as_ref(), Last::Keep)?;
            let name = name.as_ref().as_bytes();
            let body = inode.read();
            self.volume().xattr(inode.ino, &body, name)?.ok_or(Error::NoAttribute)
        })
    }

    /// All extended attributes of the inode `ino`, names with their prefixes and values.
    pub fn xattrs_of_ino(&self, ino: Ino) -> Result<Vec<(Vec<u8>, Vec<u8>)>> {
        self.volume().context().noting(|| {
            let inode = self.volume().hold_ino(ino)?;
            let body = inode.read();
            let mut all = Vec::new();
            for name in self.volume().xattr_names(ino, &body)? {
                if let Some(value) = self.volume().xattr(ino, &body, &name)? {
                    all.push((name, value));
                }
            }
            Ok(all)
        })
    }

    fn metadata_of(&self, path: &Path, last: Last) -> Result<Metadata> {
        self.volume().context().noting(|| Ok(self.resolve(path, last)?.look(self.volume())))
    }

    pub(crate) fn resolve(&self, path: &Path, last: Last) -> Result<Held<'_>> {
        self.volume().resolve(path.as_os_str().as_bytes(), last)
    }
}
