//! Opening a volume.
//!
//! ```text
//!   path ──FileOptions──► device ──[Slice]──► [Hold] ──► superblock ── needs recovery? ──► Volume
//!                                                             │ yes
//!                        to write:  recover the device
//!                        to read:   recover an Overlay over it, in memory (decision 0001)
//! ```

use crate::data::DataMode;
use crate::environment::Environment;
use crate::errors::ErrorHook;
use crate::exclusive::Devices;
use crate::filesystem::Filesystem;
use crate::journal_map::JournalPlace;
use crate::mmp::Hold;
use crate::quota::QuotaPolicy;
use crate::recovery::{self, RecoveryReport, Wish};
use crate::scrub::bring_in_line;
use crate::sync_way::ByteLogMode;
use crate::volume::{Volume, VolumeOptions, read_superblock};
use extant_base::{
    BlockSize, ByteOffset, Error, Feature, GroupNr, MemberError, MemberProblem, Result, What,
};
use extant_blockdev::{BlockDevice, DaxMode, FileDevice, FileOptions, Overlay, ReadOnly, Slice};
use extant_journal::{CacheOptions, Log};
use extant_layout::{Assembled, Mirror, Opening, Part};
use extant_ondisk::features::RoCompat;
use extant_ondisk::superblock::Superblock;
use extant_pagecache::{CacheConfig, DontCachePolicy, Owner, PageCache};
use std::fmt;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

/// Options of an opening: read-only, recovered in memory where needed, unless said otherwise.
///
/// # Examples
///
/// ```
/// # let _here = extant_guide_tests::with_image();
/// let fs = extant::OpenOptions::new().write(true).open("disk.img")?;
/// # Ok::<(), extant::Error>(())
/// ```
#[derive(Clone, Debug)]
pub struct OpenOptions {
    write: bool,
    read_only_if_needed: bool,
    backup: Option<u32>,
    offset: u64,
    direct: bool,
    lock: bool,
    recover: bool,
    cache_bytes: usize,
    page_cache: PageCacheOptions,
    journal_device: Option<JournalDevice>,
    members: Vec<PathBuf>,
    degraded: bool,
    one_transaction: bool,
    commit_interval: Option<Duration>,
    byte_log: ByteLogMode,
    dax: DaxMode,
    fast_commits: bool,
    enforce_quota: bool,
    data_mode: DataMode,
    on_error: Option<ErrorHook>,
    use_reserve: bool,
    short_cuts: bool,
    environment: Environment,
}

/// How much of files is kept in memory, and how.
#[derive(Clone, Copy, Debug, Default)]
struct PageCacheOptions {
    limit: Option<u64>,
    dirty_limit: Option<u64>,
    cap: Option<u64>,
    policy: DontCachePolicy,
    drop_behind: bool,
}

/// Where an external journal is.
#[derive(Clone)]
enum JournalDevice {
    Path(PathBuf),
    Open(Arc<dyn BlockDevice>),
}

impl fmt::Debug for JournalDevice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            JournalDevice::Path(path) => path.fmt(f),
            JournalDevice::Open(_) => f.write_str("an open device"),
        }
    }
}

impl Default for OpenOptions {
    fn default() -> OpenOptions {
        OpenOptions::new()
    }
}

impl OpenOptions {
    /// Read-only, from the device's start, with 64 MiB for metadata.
    pub fn new() -> OpenOptions {
        OpenOptions {
            write: false,
            read_only_if_needed: false,
            backup: None,
            offset: 0,
            direct: false,
            lock: true,
            recover: true,
            cache_bytes: 64 << 20,
            page_cache: PageCacheOptions::default(),
            journal_device: None,
            members: Vec::new(),
            degraded: false,
            one_transaction: false,
            commit_interval: Some(Duration::from_secs(5)),
            byte_log: ByteLogMode::Off,
            dax: DaxMode::default(),
            fast_commits: true,
            enforce_quota: false,
            data_mode: DataMode::Ordered,
            on_error: None,
            use_reserve: true,
            short_cuts: true,
            environment: Environment::default(),
        }
    }

    /// Whether the volume may be changed. A volume with a feature that cannot be kept whole then
    /// fails to open with `Unsupported`, naming it; it can be opened read-only.
    pub fn write(&mut self, write: bool) -> &mut OpenOptions {
        self.write = write;
        self
    }

    /// Whether a volume with a feature that cannot be kept whole opens read-only instead, with
    /// [`Filesystem::read_only_reason`] to name it. For programs that show what they can; one that
    /// has to change something wants the error.
    pub fn read_only_if_needed(&mut self, read_only_if_needed: bool) -> &mut OpenOptions {
        self.read_only_if_needed = read_only_if_needed;
        self
    }

    /// Reads superblock and descriptors from the copies in block group `group`, for a volume whose
    /// primary ones are damaged. Only to read.
    pub fn backup_superblock(&mut self, group: u32) -> &mut OpenOptions {
        self.backup = Some(group);
        self
    }

    /// Where on the device the volume starts, in bytes: a partition inside a disk image.
    pub fn offset(&mut self, bytes: u64) -> &mut OpenOptions {
        self.offset = bytes;
        self
    }

    /// Whether large transfers go around the system's page cache.
    pub fn direct(&mut self, direct: bool) -> &mut OpenOptions {
        self.direct = direct;
        self
    }

    /// Whether the file is locked against other users of it (the default).
    pub fn lock(&mut self, lock: bool) -> &mut OpenOptions {
        self.lock = lock;
        self
    }

    /// Whether a volume that needs recovery is recovered (the default): on the device when opened
    /// to write, in memory when only to read. Without, a reader sees the volume as it stands.
    pub fn recover(&mut self, recover: bool) -> &mut OpenOptions {
        self.recover = recover;
        self
    }

    /// Memory for metadata blocks, in bytes.
    pub fn cache_bytes(&mut self, bytes: usize) -> &mut OpenOptions {
        self.cache_bytes = bytes;
        self
    }

    /// Memory for the bytes of files, in bytes: a quarter of the machine's unless said otherwise. 0 for none: reads
    /// and writes then go straight to the device, as they do with [`OpenOptions::one_transaction`].
    pub fn page_cache_bytes(&mut self, bytes: u64) -> &mut OpenOptions {
        self.page_cache.limit = Some(bytes);
        self
    }

    /// Bytes of files that may wait to be written to the device before writers wait for it: two fifths
    /// of the page cache unless said otherwise.
    pub fn dirty_limit_bytes(&mut self, bytes: u64) -> &mut OpenOptions {
        self.page_cache.dirty_limit = Some(bytes);
        self
    }

    /// Whether bytes of files leave the cache once they are used: for volumes that are written or read once. A
    /// file may say otherwise, [`File::set_dont_cache`](crate::File::set_dont_cache).
    pub fn dont_cache(&mut self, dont_cache: bool) -> &mut OpenOptions {
        self.page_cache.drop_behind = dont_cache;
        self
    }

    /// How bytes that shall not stay in the cache get to the device.
    pub fn dont_cache_policy(&mut self, policy: DontCachePolicy) -> &mut OpenOptions {
        self.page_cache.policy = policy;
        self
    }

    /// Most bytes that shall not stay in the cache and are there nevertheless, dirty or being written: 64 MiB
    /// unless said otherwise. Who writes more waits.
    pub fn dont_cache_cap_bytes(&mut self, bytes: u64) -> &mut OpenOptions {
        self.page_cache.cap = Some(bytes);
        self
    }

    /// The device of the volume's external journal.
    pub fn journal_device(&mut self, path: impl Into<PathBuf>) -> &mut OpenOptions {
        self.journal_device = Some(JournalDevice::Path(path.into()));
        self
    }

    /// The device of the volume's external journal, open already.
    pub fn journal_on(&mut self, device: Arc<dyn BlockDevice>) -> &mut OpenOptions {
        self.journal_device = Some(JournalDevice::Open(device));
        self
    }

    /// Another device that the volume lies on, besides the one that is opened: a member of its layout.
    /// [`OpenOptions::offset`] holds for each.
    pub fn member(&mut self, path: impl Into<PathBuf>) -> &mut OpenOptions {
        self.members.push(path.into());
        self
    }

    /// Whether a mirrored volume may be changed without members that it counts on. What is missing
    /// is out of date from then on and has to be rebuilt.
    pub fn degraded(&mut self, degraded: bool) -> &mut OpenOptions {
        self.degraded = degraded;
        self
    }

    /// The device that the volume lies on, its members put together, as long as it may be used.
    ///
    /// Errors: `Device`, `Busy` from opening files; `Member` naming the member that is wrong, or what is
    /// missing.
    pub fn assemble(&self, path: impl AsRef<Path>) -> Result<Assembled> {
        let path = path.as_ref();
        self.assembled(self.open_file(path)?, &path.to_string_lossy())
    }

    /// Whether everything that is changed until [`Filesystem::close`] is one transaction: whole, or
    /// absent when the program ends or the power goes before. A change larger than the journal then
    /// fails with `TransactionTooLarge`. Without a journal nothing can promise that.
    pub fn one_transaction(&mut self, one_transaction: bool) -> &mut OpenOptions {
        self.one_transaction = one_transaction;
        self
    }

    /// How long a change may wait until it is made durable without being asked for: 5 seconds
    /// unless said otherwise; `None` for as long as there is room in the journal.
    pub fn commit_interval(&mut self, interval: impl Into<Option<Duration>>) -> &mut OpenOptions {
        self.commit_interval = interval.into();
        self
    }

    /// Whether fsyncs store what changed into the byte log, memory that the device offers, instead of
    /// writing and flushing blocks; off unless said otherwise. See [`Filesystem::sync_way`] for what
    /// came of it. While such a volume is open to write no kernel and no e2fsck takes it, nor after a
    /// crash before [`recover`] was here.
    pub fn byte_log(&mut self, mode: ByteLogMode) -> &mut OpenOptions {
        self.byte_log = mode;
        self
    }

    /// Whether the file may be mapped for the byte log: where that is durable against a power cut unless
    /// said otherwise. A device that is handed over open decides for itself.
    pub fn dax(&mut self, mode: DaxMode) -> &mut OpenOptions {
        self.dax = mode;
        self
    }

    /// Whether a sync of a file may take a fast commit (the default), on a volume with the feature
    /// `fast_commit`: a record of what changed, in one small write, instead of all blocks that changed.
    /// Linux from 5.10 on and extant recover it; e2fsck may not, see `docs/DURABILITY.md`.
    pub fn fast_commits(&mut self, fast_commits: bool) -> &mut OpenOptions {
        self.fast_commits = fast_commits;
        self
    }

    /// Whether limits in the volume's quota files hold: what would exceed one fails with
    /// `QuotaExceeded`, whoever asks. Usage is kept up to date with or without.
    pub fn enforce_quota(&mut self, enforce: bool) -> &mut OpenOptions {
        self.enforce_quota = enforce;
        self
    }

    /// Whom to tell of every damage that is met while the volume is open, whoever asked: the caller
    /// gets the error, too, where it could not be passed over. `tell` is called from any thread,
    /// with locks held: it must not call the volume.
    ///
    /// # Examples
    ///
    /// ```
    /// # let _here = extant_guide_tests::with_image();
    /// use std::sync::Arc;
    /// let mut options = extant::OpenOptions::new();
    /// options.on_error(Arc::new(|error| eprintln!("disk.img: {error}")));
    /// let fs = options.open("disk.img")?;
    /// # Ok::<(), extant::Error>(())
    /// ```
    pub fn on_error(&mut self, tell: Arc<dyn Fn(&Error) + Send + Sync>) -> &mut OpenOptions {
        self.on_error = Some(ErrorHook(tell));
        self
    }

    /// Whether data may take the blocks that the volume reserves for root (the default).
    pub fn use_reserve(&mut self, use_reserve: bool) -> &mut OpenOptions {
        self.use_reserve = use_reserve;
        self
    }

    /// Whether free space is found and checksums follow without reading whole blocks (the
    /// default). Without is for comparison.
    #[doc(hidden)]
    pub fn short_cuts(&mut self, short_cuts: bool) -> &mut OpenOptions {
        self.short_cuts = short_cuts;
        self
    }

    /// Which files' bytes go through the journal; [`DataMode::Ordered`] unless said otherwise.
    pub fn data_mode(&mut self, mode: DataMode) -> &mut OpenOptions {
        self.data_mode = mode;
        self
    }

    /// Where time and chance come from; the system unless said otherwise.
    pub fn environment(&mut self, environment: Environment) -> &mut OpenOptions {
        self.environment = environment;
        self
    }

    /// Opens the volume in a file or block device.
    ///
    /// A volume with multiple mount protection is held against other hosts while it is open to
    /// write. When its last holder did not give it back, opening waits as long as the volume says,
    /// 42 seconds and more, to see whether that one still lives.
    ///
    /// Errors: `Device`, `Busy` from opening the file; `Corrupt`, `Unsupported`, `Held` from the
    /// volume.
    pub fn open(&self, path: impl AsRef<Path>) -> Result<Filesystem> {
        let path = path.as_ref();
        self.open_named(self.open_file(path)?, name_of(path))
    }

    /// Opens the volume on a device.
    ///
    /// Errors: as [`OpenOptions::open`].
    pub fn open_device(&self, device: Arc<dyn BlockDevice>) -> Result<Filesystem> {
        self.open_named(device, b"")
    }

    fn open_named(&self, device: Arc<dyn BlockDevice>, name: &[u8]) -> Result<Filesystem> {
        match self.open_as_asked(Arc::clone(&device), name, None) {
            // Nothing was written: features are looked at first.
            Err(Error::Unsupported { feature }) if self.write && self.read_only_if_needed => {
                let to_read = OpenOptions { write: false, ..self.clone() };
                to_read.open_as_asked(device, name, Some(feature))
            }
            opened => opened,
        }
    }

    fn open_as_asked(
        &self,
        device: Arc<dyn BlockDevice>,
        name: &[u8],
        read_only_reason: Option<Feature>,
    ) -> Result<Filesystem> {
        let (mut device, mirror) = self.volume_part(device, name)?;
        let hold = self.hold(&mut device, name)?;
        let may_recover = self.recover && self.backup.is_none();
        let mut is_overlay = false;
        let mut overlaid = |device: Arc<dyn BlockDevice>| -> Arc<dyn BlockDevice> {
            match std::mem::replace(&mut is_overlay, true) || self.write {
                true => device,
                false => Arc::new(Overlay::new(device)),
            }
        };
        let superblock = match read_superblock(&*device, self.backup.map(GroupNr)) {
            Err(error) if may_recover && is_torn(&error) => {
                device = overlaid(device);
                self.mend(&device, hold.as_ref())?
            }
            superblock => superblock?,
        };
        if self.write && !may_recover && superblock.needs_recovery() {
            return Err(Error::Invalid(
                "a volume that needs recovery is recovered before a change",
            ));
        }
        if may_recover && recovery::is_due(&superblock, self.write) {
            device = overlaid(device);
            self.recover_device(&device, &superblock, hold.as_ref())?;
        } else if !self.write {
            // What is open to read cannot be written by any mistake above.
            device = Arc::new(ReadOnly::new(device));
        }
        if let Some(mirror) = &mirror {
            match mirror.behind_bytes() {
                bytes if bytes > RESYNC_AT_ONCE => Mirror::resync_in_background(mirror)?,
                _ => bring_in_line(mirror, &mut |_, _| ())?,
            }
        }
        if self.write
            && self.data_mode == DataMode::Journal
            && superblock.features.ro_compat.contains(RoCompat::DATA_CSUM)
        {
            return Err(Error::NotSupported(
                "data_csum: sums of data are not kept for data that goes through the journal",
            ));
        }
        let quota = self.write.then_some(match self.enforce_quota {
            true => QuotaPolicy::Enforce,
            false => QuotaPolicy::Count,
        });
        let options = VolumeOptions {
            quota,
            data_mode: self.data_mode,
            byte_log: self.byte_log != ByteLogMode::Off,
            fast_commits: self.fast_commits && !self.one_transaction,
            ..self.volume_options(!self.write)
        };
        let mut volume = match self.log(&device, hold.as_ref())? {
            Some(log) => {
                let how = (self.commit_interval, self.one_transaction);
                Volume::open_with_log(device, &options, log, how)?
            }
            None => Volume::open_parts(device, &options)?,
        };
        if self.write && self.byte_log == ByteLogMode::Force && volume.journal.byte_log().is_none()
        {
            return Err(Error::NotSupported(
                "the byte log needs a journal on the volume, the feature fast_commit, and a device that \
                 can be mapped (dax=)",
            ));
        }
        volume.hold = hold;
        volume.page_cache = self.new_page_cache(volume.block_size());
        volume.drop_behind = self.page_cache.drop_behind;
        if self.write {
            volume.begin_writing(self.one_transaction)?;
        }
        let volume = Arc::new(volume);
        if let Some(cache) = &volume.page_cache {
            cache.start(Arc::clone(&volume) as Arc<dyn Owner>)?;
        }
        Ok(Filesystem::new(volume, self.one_transaction, read_only_reason))
    }

    fn new_page_cache(&self, block_size: BlockSize) -> Option<PageCache> {
        let options = &self.page_cache;
        if options.limit == Some(0) || self.one_transaction {
            return None;
        }
        let mut config = CacheConfig::new(block_size);
        config.limit = options.limit.unwrap_or(config.limit);
        config.dirty_limit = options.dirty_limit;
        config.dont_cache_cap = options.cap.unwrap_or(config.dont_cache_cap);
        config.policy = options.policy;
        Some(PageCache::new(config))
    }

    /// The log to write changes through; `None` to read, and for a volume without one.
    fn log(&self, device: &Arc<dyn BlockDevice>, hold: Option<&Hold>) -> Result<Option<Log>> {
        if !self.write {
            return Ok(None);
        }
        let volume = Volume::open_parts(Arc::clone(device), &self.volume_options(true))?;
        match volume.journal_place(self.external_journal(hold)?.as_ref())? {
            Some(JournalPlace { device, map }) => Log::open(device, map).map(Some),
            None => Ok(None),
        }
    }

    /// Makes the volume in a file or block device whole: its log is replayed, what fsync left
    /// behind the log applied, and inodes without a name freed. A volume that is whole stays as
    /// it is, and one that could not be written stays readable.
    ///
    /// Errors: as [`OpenOptions::open`] to write.
    ///
    /// # Examples
    ///
    /// ```
    /// # let _here = extant_guide_tests::with_image();
    /// let report = extant::OpenOptions::new().recover_in_place("disk.img")?;
    /// println!("{} transactions, {} fast commits", report.transactions, report.fast_commits);
    /// # Ok::<(), extant::Error>(())
    /// ```
    pub fn recover_in_place(&self, path: impl AsRef<Path>) -> Result<RecoveryReport> {
        let to_write = OpenOptions { write: true, ..self.clone() };
        let path = path.as_ref();
        to_write.recover_named(to_write.open_file(path)?, name_of(path))
    }

    /// As [`OpenOptions::recover_in_place`], for a volume on any device.
    pub fn recover_device_in_place(&self, device: Arc<dyn BlockDevice>) -> Result<RecoveryReport> {
        OpenOptions { write: true, ..self.clone() }.recover_named(device, b"")
    }

    fn recover_named(&self, device: Arc<dyn BlockDevice>, name: &[u8]) -> Result<RecoveryReport> {
        let (_, hold, report) = self.recover_and_hold(device, name)?;
        hold.as_ref().map_or(Ok(()), Hold::release)?;
        Ok(report)
    }

    /// Recovers the volume on `device`; it stays held.
    fn recover_and_hold(
        &self,
        device: Arc<dyn BlockDevice>,
        name: &[u8],
    ) -> Result<(Arc<dyn BlockDevice>, Option<Hold>, RecoveryReport)> {
        let (mut device, mirror) = self.volume_part(device, name)?;
        let hold = self.hold(&mut device, name)?;
        let superblock = match read_superblock(&*device, None) {
            Err(error) if is_torn(&error) => self.mend(&device, hold.as_ref())?,
            superblock => superblock?,
        };
        let report = self.recover_device(&device, &superblock, hold.as_ref())?;
        // More is left to whoever uses the volume for longer: until then the source alone is read there.
        if let Some(mirror) = mirror.filter(|mirror| mirror.behind_bytes() <= RESYNC_AT_ONCE) {
            bring_in_line(&mirror, &mut |_, _| ())?;
        }
        Ok((device, hold, report))
    }

    /// Recovers the volume on `device`, which has the name `name`, and gives it to `change`, held
    /// against other hosts, as it is only open for that.
    ///
    /// Errors: as [`OpenOptions::open`] to write; those of `change`.
    pub(crate) fn change_whole<T>(
        &self,
        device: Arc<dyn BlockDevice>,
        name: &[u8],
        change: impl FnOnce(&Devices) -> Result<T>,
    ) -> Result<T> {
        let to_write = OpenOptions { write: true, backup: None, ..self.clone() };
        let (volume, hold, _) = to_write.recover_and_hold(device, name)?;
        let journal = to_write.external_journal(hold.as_ref())?;
        let done = change(&Devices { volume, journal })?;
        hold.as_ref().map_or(Ok(()), Hold::release)?;
        Ok(done)
    }

    /// As [`OpenOptions::change_whole`], for the file `path`, which `change` gets as well.
    pub(crate) fn change_file<T>(
        &self,
        path: &Path,
        change: impl FnOnce(&FileDevice, &Devices) -> Result<T>,
    ) -> Result<T> {
        let mut options = FileOptions::new();
        let file = Arc::new(options.write(true).direct(self.direct).lock(self.lock).open(path)?);
        let device = Arc::clone(&file) as Arc<dyn BlockDevice>;
        self.change_whole(device, name_of(path), |devices| change(&file, devices))
    }

    /// Marks the volume in the file `path` as held by nobody.
    pub(crate) fn clear_hold(&self, path: &Path) -> Result<()> {
        let to_write = OpenOptions { write: true, ..self.clone() };
        let (device, _) = to_write.volume_part(to_write.open_file(path)?, name_of(path))?;
        crate::mmp::clear(&device, &self.environment)
    }

    /// Whether the volume lies on several devices, as far as the options say.
    pub(crate) fn has_members(&self) -> bool {
        !self.members.is_empty() || self.degraded
    }

    /// Where on the device the volume starts, in bytes.
    pub(crate) fn start(&self) -> u64 {
        self.offset
    }

    /// Time and chance.
    pub(crate) fn its_environment(&self) -> &Environment {
        &self.environment
    }

    /// The part of the device that the volume may take.
    fn slice(&self, device: Arc<dyn BlockDevice>) -> Result<Arc<dyn BlockDevice>> {
        Ok(match self.offset {
            0 => device,
            start => Arc::new(Slice::from_offset(device, ByteOffset(start))?),
        })
    }

    /// The same, with the other members of its layout; the mirror, if it may be written: its log is replayed before
    /// members are brought in line, as sums then say which copy is right.
    fn volume_part(&self, device: Arc<dyn BlockDevice>, name: &[u8]) -> Result<VolumePart> {
        let assembled = self.assembled(device, &String::from_utf8_lossy(name))?;
        let mut mirror = None;
        if let Assembled::Mirrored(assembled) = &assembled {
            let hook = self.on_error.clone();
            let tell = move |error: MemberError| {
                if let Some(ErrorHook(tell)) = &hook {
                    tell(&Error::Member(Box::new(error)));
                }
            };
            assembled.left_out().iter().cloned().for_each(&tell);
            assembled.on_failed(tell.clone());
            if let Some(index) = assembled.missing().filter(|_| !self.degraded) {
                let problem = MemberProblem::Missing { index, count: assembled.count() };
                tell(MemberError { member: String::from_utf8_lossy(name).into_owned(), problem });
            }
            mirror = self.write.then(|| Arc::clone(assembled));
        }
        Ok((assembled.device(), mirror))
    }

    fn assembled(&self, device: Arc<dyn BlockDevice>, name: &str) -> Result<Assembled> {
        let mut parts = vec![Part::new(self.slice(device)?, name)];
        if self.members.is_empty() && !self.write && !matches!(parts[0].record(), Ok(Some(_))) {
            return Ok(Assembled::Single(parts.remove(0).device));
        }
        for path in &self.members {
            let member = path.to_string_lossy();
            let file = self.open_file(path).map_err(|error| {
                let problem = MemberProblem::CannotOpen { errno: error.errno() };
                Error::Member(Box::new(MemberError { member: member.to_string(), problem }))
            });
            parts.push(Part::new(self.slice(file?)?, member));
        }
        let opening = Opening { write: self.write, degraded: self.degraded, together: true };
        extant_layout::assemble(parts, opening)
    }

    /// Holds the volume against other hosts, if it is opened to write and asks for that. `device`
    /// then takes writes for as long as that is so.
    fn hold(&self, device: &mut Arc<dyn BlockDevice>, name: &[u8]) -> Result<Option<Hold>> {
        if !self.write || self.backup.is_some() {
            return Ok(None);
        }
        let hold = Hold::take(device, name, &self.environment)?;
        if let Some(hold) = &hold {
            *device = hold.guard(Arc::clone(device));
        }
        Ok(hold)
    }

    fn open_file(&self, path: &Path) -> Result<Arc<dyn BlockDevice>> {
        let mut options = FileOptions::new();
        options.write(self.write).direct(self.direct).lock(self.lock).dax(self.dax);
        Ok(Arc::new(options.open(path)?))
    }

    /// Recovers `device`, which is an overlay unless the volume is opened to write.
    fn recover_device(
        &self,
        device: &Arc<dyn BlockDevice>,
        superblock: &Superblock,
        hold: Option<&Hold>,
    ) -> Result<RecoveryReport> {
        if self.write
            && let Some(feature) = superblock.features.all_unwritable().next()
        {
            return Err(Error::Unsupported { feature });
        }
        let external = self.external_journal(hold)?;
        let options = self.volume_options(!self.write);
        recovery::recover(&Wish { home: Arc::clone(device), external, options: &options })
    }

    /// Mends the superblock of `device`, whose checksum is wrong, if a power cut tore it.
    fn mend(&self, device: &Arc<dyn BlockDevice>, hold: Option<&Hold>) -> Result<Superblock> {
        let external = self.external_journal(hold)?;
        let options = self.volume_options(!self.write);
        recovery::mend_superblock(&Wish { home: Arc::clone(device), external, options: &options })
    }

    /// The device of the external journal, if one was given: an overlay of it unless to write.
    fn external_journal(&self, hold: Option<&Hold>) -> Result<Option<Arc<dyn BlockDevice>>> {
        let external = match &self.journal_device {
            Some(JournalDevice::Path(path)) => self.open_file(path)?,
            Some(JournalDevice::Open(device)) => Arc::clone(device),
            None => return Ok(None),
        };
        Ok(Some(match (self.write, hold) {
            (true, Some(hold)) => hold.guard(external),
            (true, None) => external,
            (false, _) => Arc::new(Overlay::new(external)),
        }))
    }

    fn volume_options(&self, read_only: bool) -> VolumeOptions {
        VolumeOptions {
            read_only,
            backup: self.backup.map(GroupNr),
            cache: CacheOptions {
                limit_bytes: self.cache_bytes,
                dirty_limit_bytes: self.cache_bytes / 2,
            },
            environment: self.environment.clone(),
            on_error: self.on_error.clone(),
            privileged: self.use_reserve,
            short_cuts: self.short_cuts,
            ..VolumeOptions::default()
        }
    }
}

/// Where a volume lies, and the mirror that this is or is a part of, if it may be written.
type VolumePart = (Arc<dyn BlockDevice>, Option<Arc<Mirror>>);

/// What is brought in line before a mirror is in use; more takes a thread meanwhile, which asks no sums.
const RESYNC_AT_ONCE: u64 = 256 << 20;

/// What a file is called on this machine.
fn name_of(path: &Path) -> &[u8] {
    path.file_name().unwrap_or_default().as_bytes()
}

/// Whether a superblock may have been torn by a power cut.
fn is_torn(error: &Error) -> bool {
    matches!(error, Error::Corrupt { what: What::SuperblockChecksum, .. })
}

/// Makes the volume in a file or block device whole, on the device itself: what
/// [`OpenOptions::recover_in_place`] does with its defaults.
///
/// # Examples
///
/// ```
/// # let _here = extant_guide_tests::with_image();
/// let report = extant::recover("disk.img")?;
/// println!("{} transactions, {} fast commits", report.transactions, report.fast_commits);
/// # Ok::<(), extant::Error>(())
/// ```
pub fn recover(path: impl AsRef<Path>) -> Result<RecoveryReport> {
    OpenOptions::new().recover_in_place(path)
}
