//! The volume as programs see it: paths in, content and metadata out, in the manner of `std::fs`.
//!
//! ```text
//!   Filesystem ──clone──► Filesystem        all clones share one Volume; any number of threads
//!       │ path
//!       ├─ read, read_link, metadata, xattr …     resolved from the root
//!       ├─ open_file ──► File                     Read + Seek + read_at
//!       ├─ read_dir ───► ReadDir                  one directory, block by block
//!       └─ walk ───────► Walk                     everything below a directory
//! ```
//!
//! Paths start at the volume's root, with or without a leading slash. No symlink leads out of the
//! volume.

use crate::api::file::File;
use crate::api::read_dir::ReadDir;
use crate::api::walk::Walk;
use crate::inodes::metadata::Metadata;
use crate::inodes::statfs::SpaceInfo;
use crate::tree::names::hold::Held;
use crate::tree::path::Last;
use crate::volume::Volume;
use extant_base::{Error, Feature, Result};
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

/// A file larger than both this and the device is not read in one call.
const READ_WHOLE_MAX: u64 = 1 << 30;
/// How many bytes such a read allocates at first; each further step doubles the buffer.
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

/// What an open volume has done so far.
#[derive(Clone, Debug)]
#[non_exhaustive]
pub struct Stats {
    /// Statistics of commits; `None` without a journal, or if the volume is open for reading only.
    pub journal: Option<JournalStats>,
    /// Statistics of the page cache; `None` if the volume has none.
    pub cache: Option<CacheStats>,
}

/// The volume that all clones share. Dropping the last clone closes it.
struct Opened {
    volume: Arc<Volume>,
    /// The volume was opened with `one_transaction`: a drop without `close` leaves the image
    /// unchanged.
    one_transaction: bool,
    /// The feature that kept the volume from being opened for writing.
    read_only_reason: Option<Feature>,
}

impl Drop for Opened {
    fn drop(&mut self) {
        if !self.one_transaction && !std::thread::panicking() {
            // A drop cannot return the error. A volume that could not be closed is recovered when
            // it is next opened.
            let _ = self.volume.mount_state().close();
        }
        self.volume.mount_state().stop_cache();
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

    /// Makes everything durable that any thread changed before the call.
    ///
    /// # Errors
    /// `Device`; `Aborted` after an earlier failed write.
    pub fn sync(&self) -> Result<()> {
        self.volume().mount_state().sync()?;
        if self.volume().space().discards() {
            self.volume().space().release_durable(usize::MAX);
        }
        Ok(())
    }

    /// Writes back the dirty bytes that files had when one of their openings was closed. The next
    /// sync of any file or directory commits what is needed to read them and makes them durable. A
    /// file that has been open without a break since its last change is not written.
    ///
    /// This is for mount servers. The kernel does not pass a program's `sync_file_range` on to
    /// them, and a program that later syncs one file expects the bytes of all of them to be
    /// durable. An error in one file is returned by the next sync of that file.
    pub fn write_back_closed_files(&self) {
        self.volume().mount_state().write_back_closed_files();
    }

    /// Writes back the dirty bytes of all files, if they are at most `most` bytes. Otherwise it
    /// does nothing. It does not flush: the bytes are on the device, and each file's next sync
    /// commits what is needed to read them. An error in one file is returned by that file's next
    /// sync.
    ///
    /// Use before the first of several syncs of different files: one commit then serves them.
    pub fn write_back_up_to(&self, most: u64) {
        self.volume().mount_state().write_back_up_to(most);
    }

    /// Discards free space, as `fstrim` does: tells the device about every free run of at least
    /// `min` bytes in `range`, which is in bytes of the volume. Returns how many bytes were
    /// discarded.
    ///
    /// Only space that would also be free after a crash is discarded.
    ///
    /// # Errors
    /// `Invalid` for a range that contains no block of the volume; `ReadOnly`; `NotSupported` if
    /// the device has no discard; `Corrupt`, `Device`, `Aborted`.
    pub fn trim(&self, range: std::ops::Range<u64>, min: u64) -> Result<u64> {
        self.volume().context().recording_errors(|| self.volume().space().trim(range, min))
    }

    /// The volume's current label, without trailing NULs.
    pub fn label(&self) -> Vec<u8> {
        let name = self.volume().context().superblock().read().volume_name;
        name.split(|byte| *byte == 0).next().unwrap_or_default().to_vec()
    }

    /// Sets the volume's label; it is durable on return. The backup superblocks keep the old label.
    ///
    /// # Errors
    /// `Invalid` for more than 16 bytes; `ReadOnly`; `Corrupt`, `Device`, `Aborted`.
    pub fn set_label(&self, label: &[u8]) -> Result<()> {
        self.volume().context().recording_errors(|| self.volume().mount_state().set_label(label))
    }

    /// Stops all changes, as damage does with `errors=remount-ro`. With `sync`, everything is made
    /// durable first; without it, changes that are not durable yet may be lost.
    ///
    /// # Errors
    /// Those of [`Filesystem::sync`]. Changes are stopped even then.
    pub fn shut_down(&self, sync: bool) -> Result<()> {
        let done = if sync { self.sync() } else { Ok(()) };
        self.volume().context().stop_changes();
        done
    }

    /// Makes all earlier changes of names in directories durable. Data of files that was not synced
    /// stays in memory.
    ///
    /// # Errors
    /// `Device`, `Aborted`.
    pub fn sync_names(&self) -> Result<()> {
        self.volume().mount_state().sync_names()
    }

    /// Makes everything durable and leaves a volume that needs no recovery. From then on other
    /// clones, and files open on the volume, can only read.
    ///
    /// Dropping the last clone does the same but cannot report errors. With
    /// [`OpenOptions::one_transaction`](crate::OpenOptions::one_transaction), only this call keeps
    /// the changes.
    ///
    /// # Errors
    /// `Device`; `Aborted` after an earlier failed write. The volume is recovered when it is opened
    /// again.
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
        self.volume().mount_state().close()
    }

    /// The superblock as it was when the volume was opened, after any recovery.
    pub fn superblock(&self) -> &Superblock {
        self.volume().at_open()
    }

    /// Blocks of the volume as it is now, its own metadata included.
    /// [`grow`](crate::resize::grow) changes it.
    pub fn blocks_count(&self) -> u64 {
        self.volume().geometry().blocks_count()
    }

    /// How much of the volume is used and free.
    pub fn space(&self) -> SpaceInfo {
        self.volume().statistics().space_info()
    }

    /// Statistics of the page cache; `None` if the volume has none.
    pub fn cache_stats(&self) -> Option<CacheStats> {
        self.volume().page_cache().map(PageCache::stats)
    }

    /// Statistics of the commits since the volume was opened, and of the page cache.
    pub fn stats(&self) -> Stats {
        let journal = self.volume().journal();
        Stats { journal: (!journal.is_off()).then(|| journal.stats()), cache: self.cache_stats() }
    }

    /// The superblock of the internal journal as it is on disk now. `None` without a journal or
    /// with an external one.
    ///
    /// # Errors
    /// `Device`; `Corrupt` if the journal inode or the journal is damaged.
    pub fn journal_superblock(&self) -> Result<Option<JournalSuperblock>> {
        self.volume().context().recording_errors(|| {
            if !self.volume().at_open().has_journal() || self.volume().at_open().journal_inum == 0 {
                return Ok(None);
            }
            let Some(place) = self.volume().journal_file().place(None)? else { return Ok(None) };
            Ok(Some(Log::open(place.device, place.map)?.superblock().clone()))
        })
    }

    /// Where transactions lie in the internal journal, as it is on disk now. `None` as for
    /// [`Filesystem::journal_superblock`].
    ///
    /// # Errors
    /// As [`Filesystem::journal_superblock`]; `Corrupt` for damage in a committed transaction.
    pub fn journal_usage(&self) -> Result<Option<LogUsage>> {
        self.volume().context().recording_errors(|| {
            if !self.volume().at_open().has_journal() || self.volume().at_open().journal_inum == 0 {
                return Ok(None);
            }
            let Some(place) = self.volume().journal_file().place(None)? else { return Ok(None) };
            Log::open(place.device, place.map)?.usage().map(Some)
        })
    }

    /// Whether the volume refuses changes: it was opened read-only, is closed, or was fenced after
    /// an error.
    pub fn is_read_only(&self) -> bool {
        self.volume().context().check_writable().is_err()
    }

    /// The feature that this engine cannot maintain, if the volume was to be opened for writing and
    /// is open read-only because of it: see
    /// [`OpenOptions::read_only_if_needed`](crate::OpenOptions::read_only_if_needed).
    pub fn read_only_reason(&self) -> Option<Feature> {
        self.opened.read_only_reason
    }

    /// Reads the whole content of a file. Symlinks are followed.
    ///
    /// Memory is allocated in steps as bytes arrive, so a damaged inode with a huge size costs
    /// little.
    ///
    /// # Errors
    /// `FileTooLarge` for a file larger than both 1 GiB and the device (read sparse files in
    /// pieces); `NoMemory`; those of [`Filesystem::open_file`] and [`File::read_at`].
    pub fn read(&self, path: impl AsRef<Path>) -> Result<Vec<u8>> {
        self.volume().context().recording_errors(|| {
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
            // This also runs for a length of 0: it returns the error for other kinds of file.
            loop {
                let done = bytes.len();
                let step = READ_WHOLE_STEP.max(done).min(len - done);
                bytes.try_reserve_exact(step).map_err(|_| Error::NoMemory)?;
                bytes.resize(done + step, 0);
                let part = &mut bytes[done..];
                let n =
                    self.volume().io(&inode).read_missing(&body, done as u64, part, how, None)?;
                if n < step || done + n == len {
                    bytes.truncate(done + n);
                    break;
                }
            }
            Ok(bytes)
        })
    }

    /// Reads the content of a file as UTF-8 text.
    ///
    /// # Errors
    /// `Invalid` if the content is not UTF-8; those of [`Filesystem::read`].
    pub fn read_to_string(&self, path: impl AsRef<Path>) -> Result<String> {
        String::from_utf8(self.read(path)?).map_err(|_| Error::Invalid("the file is not UTF-8"))
    }

    /// The metadata of a file. Symlinks are followed.
    ///
    /// # Errors
    /// `NotFound`, `NotADirectory`, `TooManyLinks`, `NameTooLong`; `Corrupt`, `Device`.
    pub fn metadata(&self, path: impl AsRef<Path>) -> Result<Metadata> {
        self.metadata_of(path.as_ref(), Last::Follow)
    }

    /// The metadata of a file. A symlink at the end of the path is not followed.
    ///
    /// # Errors
    /// As [`Filesystem::metadata`].
    pub fn symlink_metadata(&self, path: impl AsRef<Path>) -> Result<Metadata> {
        self.metadata_of(path.as_ref(), Last::Keep)
    }

    /// Whether the path names a file. Symlinks are followed.
    ///
    /// # Errors
    /// Those of [`Filesystem::metadata`], except for a missing name.
    pub fn exists(&self, path: impl AsRef<Path>) -> Result<bool> {
        self.volume().context().recording_errors(|| {
            match self.resolve(path.as_ref(), Last::Follow) {
                Ok(_) => Ok(true),
                Err(Error::NotFound | Error::NotADirectory) => Ok(false),
                Err(error) => Err(error),
            }
        })
    }

    /// The target of a symlink, as it is stored.
    ///
    /// # Errors
    /// `Invalid` if the path names another kind of file; `Encrypted`.
    pub fn read_link(&self, path: impl AsRef<Path>) -> Result<PathBuf> {
        self.volume().context().recording_errors(|| {
            let inode = self.resolve(path.as_ref(), Last::Keep)?;
            let target = self.volume().file(&inode.read()).symlink_target()?;
            Ok(PathBuf::from(OsString::from_vec(target)))
        })
    }

    /// Opens a regular file for reading. Symlinks are followed.
    ///
    /// # Errors
    /// `IsADirectory`; `Invalid` for devices, pipes and sockets.
    pub fn open_file(&self, path: impl AsRef<Path>) -> Result<File> {
        self.volume()
            .context()
            .recording_errors(|| File::open(self.hold_path(path.as_ref(), Last::Follow)?))
    }

    /// Lists a directory in stored order, without "." and "..". Symlinks are followed.
    ///
    /// # Errors
    /// `NotADirectory`. An item of the iterator reports damage in single entries or blocks.
    pub fn read_dir(&self, path: impl AsRef<Path>) -> Result<ReadDir> {
        self.volume().context().recording_errors(|| {
            let dir = self.hold_path(path.as_ref(), Last::Follow)?;
            ReadDir::new(dir, path.as_ref().to_path_buf())
        })
    }

    /// Walks a directory tree: the directory itself first, then everything below it. Symlinks are
    /// not followed.
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
    ///
    /// # Errors
    /// As [`Filesystem::metadata`].
    pub fn xattrs(&self, path: impl AsRef<Path>) -> Result<Vec<OsString>> {
        self.volume().context().recording_errors(|| {
            let inode = self.resolve(path.as_ref(), Last::Keep)?;
            let names = self.volume().xattrs(&inode.read()).names()?;
            Ok(names.into_iter().map(OsString::from_vec).collect())
        })
    }

    /// The value of an extended attribute. Access control lists have the format of the system
    /// calls. Symlinks are not followed.
    ///
    /// # Errors
    /// As [`Node::xattr`](crate::Node::xattr) and [`Filesystem::metadata`].
    pub fn xattr(&self, path: impl AsRef<Path>, name: impl AsRef<OsStr>) -> Result<Vec<u8>> {
        self.node_nofollow(path)?.xattr(name)
    }

    fn metadata_of(&self, path: &Path, last: Last) -> Result<Metadata> {
        self.volume()
            .context()
            .recording_errors(|| Ok(self.resolve(path, last)?.metadata(self.volume())))
    }

    pub(crate) fn resolve(&self, path: &Path, last: Last) -> Result<Held<'_>> {
        self.volume().names().resolve(path.as_os_str().as_bytes(), last)
    }
}
