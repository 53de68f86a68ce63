//! The options of opening a volume.

use crate::api::sync_way::ByteLogMode;
use crate::context::damage::{DamagePolicy, ErrorHook};
use crate::context::environment::Environment;
use crate::volume::DataMode;
use extant_base::Error;
use extant_blockdev::{BlockDevice, DaxMode};
use extant_disk::Selector;
use extant_pagecache::DontCachePolicy;
use std::fmt;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// Options for opening a volume. By default it is opened read-only, and recovered in memory if
/// needed.
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
    pub(super) write: bool,
    pub(super) read_only_if_needed: bool,
    pub(super) backup: Option<u32>,
    pub(super) place: Place,
    pub(super) direct: bool,
    pub(super) lock: bool,
    pub(super) recover: bool,
    pub(super) cache_bytes: usize,
    pub(super) page_cache: PageCacheOptions,
    pub(super) journal_device: Option<JournalDevice>,
    pub(super) members: Vec<PathBuf>,
    pub(super) degraded: bool,
    pub(super) one_transaction: bool,
    pub(super) commit_interval: Option<Duration>,
    pub(super) byte_log: ByteLogMode,
    pub(super) dax: DaxMode,
    pub(super) fast_commits: bool,
    pub(super) enforce_quota: bool,
    pub(super) data_mode: DataMode,
    pub(super) on_error: Option<ErrorHook>,
    pub(super) damage_policy: DamagePolicy,
    pub(super) discard: bool,
    pub(super) stripe: Option<u32>,
    pub(super) use_reserve: bool,
    pub(super) short_cuts: bool,
    pub(super) environment: Environment,
}

/// How much file data is kept in memory, and how.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct PageCacheOptions {
    pub(super) limit: Option<u64>,
    pub(super) dirty_limit: Option<u64>,
    pub(super) cap: Option<u64>,
    pub(super) policy: DontCachePolicy,
    pub(super) drop_behind: bool,
}

/// Where on its device a volume is.
#[derive(Clone, Debug)]
pub(super) enum Place {
    /// In the only partition that has a volume, or on the whole device.
    Found,
    /// From this byte to the end.
    From(u64),
    /// In these bytes.
    Bytes(Range<u64>),
    /// In this partition.
    Partition(Selector),
}

/// Where an external journal is.
#[derive(Clone)]
pub(super) enum JournalDevice {
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
            place: Place::Found,
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
            damage_policy: DamagePolicy::AsStored,
            discard: false,
            stripe: None,
            use_reserve: true,
            short_cuts: true,
            environment: Environment::default(),
        }
    }

    /// Whether the volume may be changed. If the volume has a feature that the engine cannot keep
    /// consistent, opening it for writing fails with `Unsupported` naming the feature; it can be
    /// opened read-only.
    pub fn write(&mut self, write: bool) -> &mut OpenOptions {
        self.write = write;
        self
    }

    /// Whether such a volume opens read-only instead;
    /// [`Filesystem::read_only_reason`](crate::Filesystem::read_only_reason) then names the
    /// feature. For programs that show what they can; a program that has to change something wants
    /// the error.
    pub fn read_only_if_needed(&mut self, read_only_if_needed: bool) -> &mut OpenOptions {
        self.read_only_if_needed = read_only_if_needed;
        self
    }

    /// Reads superblock and descriptors from the copies in block group `group`, for a volume whose
    /// primary ones are damaged. Only for reading.
    pub fn backup_superblock(&mut self, group: u32) -> &mut OpenOptions {
        self.backup = Some(group);
        self
    }

    /// Where on the device the volume starts, in bytes. It ends where the partition ends that
    /// starts there, or before the next one; without a partition table, at the device's end.
    ///
    /// Without this and [`OpenOptions::partition`], a disk with a partition table on which exactly
    /// one partition has a volume stands for that volume; any other device is one volume.
    pub fn offset(&mut self, bytes: u64) -> &mut OpenOptions {
        self.place = Place::From(bytes);
        self
    }

    /// The bytes of the device that the volume is in. No partition table is read then.
    pub fn range(&mut self, bytes: Range<u64>) -> &mut OpenOptions {
        self.place = Place::Bytes(bytes);
        self
    }

    /// The partition of a disk that the volume is in.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// use extant::{OpenOptions, disk::Selector};
    ///
    /// let fs = OpenOptions::new().partition(Selector::Number(2)).open("disk.img")?;
    /// # Ok::<(), extant::Error>(())
    /// ```
    pub fn partition(&mut self, selector: Selector) -> &mut OpenOptions {
        self.place = Place::Partition(selector);
        self
    }

    /// Whether large transfers bypass the system's page cache.
    pub fn direct(&mut self, direct: bool) -> &mut OpenOptions {
        self.direct = direct;
        self
    }

    /// Whether the file is locked against other users (the default).
    pub fn lock(&mut self, lock: bool) -> &mut OpenOptions {
        self.lock = lock;
        self
    }

    /// Whether a volume that needs recovery is recovered (the default): on the device when opened
    /// for writing, in memory when opened for reading. Without recovery, a reader sees the volume
    /// as the crash left it.
    pub fn recover(&mut self, recover: bool) -> &mut OpenOptions {
        self.recover = recover;
        self
    }

    /// Memory for metadata blocks, in bytes.
    pub fn cache_bytes(&mut self, bytes: usize) -> &mut OpenOptions {
        self.cache_bytes = bytes;
        self
    }

    /// Memory for file data, in bytes. The default is a quarter of the machine's memory. With 0
    /// there is no page cache: reads and writes go directly to the device, as they do with
    /// [`OpenOptions::one_transaction`].
    ///
    /// Without a call of this, a volume that is only read, on a file or device of which the system
    /// has a page cache, leaves its bytes there: reads do not fill memory of the engine.
    pub fn page_cache_bytes(&mut self, bytes: u64) -> &mut OpenOptions {
        self.page_cache.limit = Some(bytes);
        self
    }

    /// Bytes of file data that may be dirty before writers are throttled. The default is two fifths
    /// of the page cache.
    pub fn dirty_limit_bytes(&mut self, bytes: u64) -> &mut OpenOptions {
        self.page_cache.dirty_limit = Some(bytes);
        self
    }

    /// Whether file data leaves the cache once it is used: for volumes that are written or read
    /// once. [`File::set_dont_cache`](crate::File::set_dont_cache) changes it for one file.
    pub fn dont_cache(&mut self, dont_cache: bool) -> &mut OpenOptions {
        self.page_cache.drop_behind = dont_cache;
        self
    }

    /// How don't-cache data reaches the device.
    pub fn dont_cache_policy(&mut self, policy: DontCachePolicy) -> &mut OpenOptions {
        self.page_cache.policy = policy;
        self
    }

    /// Most don't-cache bytes that may be in the cache, dirty or being written. The default is 64
    /// MiB. Further writers wait.
    pub fn dont_cache_cap_bytes(&mut self, bytes: u64) -> &mut OpenOptions {
        self.page_cache.cap = Some(bytes);
        self
    }

    /// The device of the volume's external journal. Opening fails with `Invalid` if it has none.
    pub fn journal_device(&mut self, path: impl Into<PathBuf>) -> &mut OpenOptions {
        self.journal_device = Some(JournalDevice::Path(path.into()));
        self
    }

    /// The device of the volume's external journal, already open.
    pub fn journal_on(&mut self, device: Arc<dyn BlockDevice>) -> &mut OpenOptions {
        self.journal_device = Some(JournalDevice::Open(device));
        self
    }

    /// Another device of the volume, besides the one that is opened: a member of its layout.
    /// [`OpenOptions::offset`] applies to each.
    pub fn member(&mut self, path: impl Into<PathBuf>) -> &mut OpenOptions {
        self.members.push(path.into());
        self
    }

    /// Whether a mirrored volume may be changed while members are missing. These are out of date
    /// from then on and have to be rebuilt.
    pub fn degraded(&mut self, degraded: bool) -> &mut OpenOptions {
        self.degraded = degraded;
        self
    }

    /// Whether all changes until [`Filesystem::close`](crate::Filesystem::close) are one
    /// transaction. If the program ends or the power fails before that, none of them is there. A
    /// change larger than the journal then fails with `TransactionTooLarge`. A volume without a
    /// journal cannot guarantee this.
    pub fn one_transaction(&mut self, one_transaction: bool) -> &mut OpenOptions {
        self.one_transaction = one_transaction;
        self
    }

    /// How long a change may wait before it is committed without a sync. The default is 5 seconds;
    /// with `None`, as long as the journal has space.
    pub fn commit_interval(&mut self, interval: impl Into<Option<Duration>>) -> &mut OpenOptions {
        self.commit_interval = interval.into();
        self
    }

    /// Whether fsyncs store changes into the byte log, memory that the device offers, instead of
    /// writing and flushing blocks. Off by default.
    /// [`Filesystem::sync_way`](crate::Filesystem::sync_way) tells what is in use. While such a
    /// volume is open for writing, and after a crash until [`recover`](crate::recover) has run, no
    /// kernel and no e2fsck accepts it.
    pub fn byte_log(&mut self, mode: ByteLogMode) -> &mut OpenOptions {
        self.byte_log = mode;
        self
    }

    /// Whether the file may be mapped for the byte log. The default is to map it if stores then
    /// survive a power cut. A device that is passed already open decides for itself.
    pub fn dax(&mut self, mode: DaxMode) -> &mut OpenOptions {
        self.dax = mode;
        self
    }

    /// Whether a sync of a file may use a fast commit (the default), on a volume with the feature
    /// `fast_commit`. A fast commit records what changed in one small write, instead of all blocks
    /// that changed. Linux from 5.10 on and extant recover it; e2fsck may not, see
    /// `docs/DURABILITY.md`.
    pub fn fast_commits(&mut self, fast_commits: bool) -> &mut OpenOptions {
        self.fast_commits = fast_commits;
        self
    }

    /// Whether limits in the volume's quota files are enforced: a change that would exceed one
    /// fails with `QuotaExceeded`, for every caller. Usage is kept up to date in any case.
    pub fn enforce_quota(&mut self, enforce: bool) -> &mut OpenOptions {
        self.enforce_quota = enforce;
        self
    }

    /// A function that is called for each damage found while the volume is open, and for each write
    /// that the device refused, whichever thread met it. The caller also gets the error, unless the
    /// operation could continue without it. It is also called for members of a mirror that fail,
    /// and when a read repaired a place on one
    /// ([`MemberProblem::Repaired`](crate::error::MemberProblem::Repaired)). `hook` is called from
    /// any thread, with locks held: it must not call the volume.
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
    pub fn on_error(&mut self, hook: Arc<dyn Fn(&Error) + Send + Sync>) -> &mut OpenOptions {
        self.on_error = Some(ErrorHook(hook));
        self
    }

    /// Whether freed blocks are discarded, so that the device can reuse them: a flash device erases
    /// them, an image file takes less space. The discard follows once the transaction that freed
    /// the blocks is durable, at the next sync or allocation. A volume without a journal has no
    /// such moment: use [`Filesystem::trim`](crate::Filesystem::trim) there.
    pub fn discard(&mut self, discard: bool) -> &mut OpenOptions {
        self.discard = discard;
        self
    }

    /// The blocks of a stripe of the RAID that the volume is on. Large files begin at stripes,
    /// which saves such a device reads. The default is the superblock's hints (`mke2fs -E
    /// stride=…,stripe_width=…`). A number larger than a block group is ignored.
    pub fn stripe(&mut self, blocks: u32) -> &mut OpenOptions {
        self.stripe = Some(blocks);
        self
    }

    /// What happens when damage is found while the volume is open for writing;
    /// [`DamagePolicy::AsStored`] by default.
    pub fn damage_policy(&mut self, policy: DamagePolicy) -> &mut OpenOptions {
        self.damage_policy = policy;
        self
    }

    /// Whether data may take the blocks that the volume reserves for root (the default).
    pub fn use_reserve(&mut self, use_reserve: bool) -> &mut OpenOptions {
        self.use_reserve = use_reserve;
        self
    }

    /// Whether free space is found, and checksums are updated, without reading whole blocks (the
    /// default). Switching it off is for comparison.
    #[cfg(feature = "compare")]
    pub fn short_cuts(&mut self, short_cuts: bool) -> &mut OpenOptions {
        self.short_cuts = short_cuts;
        self
    }

    /// Which files' data goes through the journal; [`DataMode::Ordered`] by default.
    pub fn data_mode(&mut self, mode: DataMode) -> &mut OpenOptions {
        self.data_mode = mode;
        self
    }

    /// The source of time and randomness; the system by default.
    pub fn environment(&mut self, environment: Environment) -> &mut OpenOptions {
        self.environment = environment;
        self
    }
}
