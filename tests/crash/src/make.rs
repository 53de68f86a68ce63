//! The volumes on which workloads run: small, in memory, and with a pattern in every free byte.
//!
//! ```text
//!   device full of POISON ──mkfs──► base image ──clone──► one run each
//! ```

use crate::external::{self, FlushPart, Part};
use crate::layouts::Layout;
use crate::prepare::{Prepared, prepare};
use crate::view::POISON;
use extant::cache::DontCachePolicy;
use extant::dax::ByteLogMode;
use extant::mkfs::{self, JournalSize, MkfsOptions};
use extant::raid::{Assembled, Mirror};
use extant::{BlockSize, DataMode, Environment, OpenOptions, Result, Timestamp};
use extant_base::ByteOffset;
use extant_blockdev::{BlockDevice, MemoryDevice};
use extant_testkit::manifest::Look;
use std::collections::HashMap;
use std::sync::{Arc, Mutex, OnceLock};

/// The time at which volumes are made; runs begin a day later.
const MADE: Timestamp = Timestamp { sec: 1_700_000_000, nsec: 0 };

/// A kind of volume.
#[derive(Clone, Copy, Debug)]
pub struct Make {
    /// Its name in replays.
    pub name: &'static str,
    mib: u64,
    block_bytes: u64,
    features: &'static str,
    ext3: bool,
    /// MiB of a journal on a device of its own, 0 for one inside the volume.
    journal_mib: u64,
    /// The data mode. With data in the journal, a write is whole or absent. For writeback the suite
    /// requires the same as for ordered mode, including no stale data: `docs/DURABILITY.md`
    /// guarantees less (F6), but the engine does it.
    data_mode: DataMode,
    prepared: Prepared,
    /// How bytes go through the page cache; `None` if they do not.
    page_cache: Option<Through>,
    /// How it is distributed over members; `None` if on one device.
    layout: Option<Layout>,
    /// Fsyncs go to the byte log.
    byte_log: bool,
    /// Nothing commits until a call requires it.
    pub one_transaction: bool,
}

/// How the bytes of files go through the page cache.
#[derive(Clone, Copy, Debug)]
struct Through {
    /// Memory in KiB: so small that writers wait and folios are evicted.
    kib: u64,
    /// The policy for don't-cache bytes, and whether any I/O is don't-cache.
    policy: DontCachePolicy,
    drop_behind: bool,
    /// The timer commits continuously.
    commits: bool,
}

/// A volume and its journal.
pub struct Parts {
    /// The volume.
    pub volume: Arc<dyn BlockDevice>,
    /// Its journal, if that is on a device of its own.
    pub journal: Option<Arc<dyn BlockDevice>>,
    /// The same device as the volume, if that is on one device.
    pub mirror: Option<Arc<Mirror>>,
}

const PLAIN: Make = Make {
    name: "4k",
    mib: 16,
    block_bytes: 4096,
    features: "",
    ext3: false,
    journal_mib: 0,
    data_mode: DataMode::Ordered,
    prepared: Prepared::Empty,
    page_cache: None,
    layout: None,
    byte_log: false,
    one_transaction: false,
};

/// All kinds.
pub const MAKES: &[Make] = &[
    PLAIN,
    // The log has 1024 blocks of 1 KiB, so it wraps, and operations reach its end.
    Make { name: "1k", mib: 8, block_bytes: 1024, ..PLAIN },
    Make { name: "orphan_file", features: "orphan_file", mib: 8, block_bytes: 1024, ..PLAIN },
    Make { name: "inline_data", features: "inline_data", ..PLAIN },
    Make { name: "bigalloc", features: "bigalloc", mib: 32, ..PLAIN },
    Make {
        name: "block_map",
        features: "^extent,^64bit,^metadata_csum",
        mib: 8,
        block_bytes: 1024,
        ..PLAIN
    },
    Make { name: "ext3", ext3: true, mib: 8, block_bytes: 1024, ..PLAIN },
    Make { name: "no_csum", features: "^metadata_csum,uninit_bg", ..PLAIN },
    Make {
        name: "ea_inode",
        features: "ea_inode,large_dir,metadata_csum_seed",
        mib: 8,
        block_bytes: 1024,
        ..PLAIN
    },
    Make { name: "quota", features: "quota,project", ..PLAIN },
    Make { name: "external", features: "^has_journal", journal_mib: 6, ..PLAIN },
    Make { name: "data_journal", data_mode: DataMode::Journal, mib: 8, block_bytes: 1024, ..PLAIN },
    Make {
        name: "data_writeback",
        data_mode: DataMode::Writeback,
        mib: 8,
        block_bytes: 1024,
        ..PLAIN
    },
    Make {
        name: "casefold",
        features: "casefold,large_dir",
        mib: 8,
        block_bytes: 1024,
        prepared: Prepared::FoldedRoot,
        ..PLAIN
    },
    Make {
        name: "encrypt",
        features: "encrypt,^metadata_csum",
        mib: 8,
        block_bytes: 1024,
        prepared: Prepared::Vault,
        ..PLAIN
    },
    Make { name: "one_transaction", one_transaction: true, ..PLAIN },
];

/// Kinds whose fsyncs are fast commits. e2fsck does not judge their recovery, see
/// `docs/TESTING.md`.
pub const FAST: &[Make] = &[
    Make { name: "fast_4k", features: "fast_commit", ..PLAIN },
    Make { name: "fast_1k", features: "fast_commit", mib: 8, block_bytes: 1024, ..PLAIN },
    Make {
        name: "fast_orphan_file",
        features: "fast_commit,orphan_file,^metadata_csum",
        mib: 8,
        block_bytes: 1024,
        ..PLAIN
    },
    Make { name: "fast_external", features: "fast_commit,^has_journal", journal_mib: 6, ..PLAIN },
];

/// Kinds whose files have checksums of data. Overwritten data goes to other blocks, so the old
/// bytes stay until the new ones are there.
pub const SUMS: &[Make] = &[
    Make { name: "sums_4k", features: "data_csum", ..PLAIN },
    Make {
        name: "sums_1k",
        features: "data_csum,orphan_file",
        mib: 12,
        block_bytes: 1024,
        ..PLAIN
    },
    Make { name: "sums_inline", features: "data_csum,inline_data,quota", ..PLAIN },
    Make { name: "sums_fast", features: "data_csum,fast_commit", ..PLAIN },
    Make { name: "sums_one_transaction", features: "data_csum", one_transaction: true, ..PLAIN },
];

/// The same, with files that go through the page cache.
pub const SUMS_CACHED: &[Make] = &[
    Make { name: "sums_cache_4k", features: "data_csum", page_cache: SMALL, ..ROOMY },
    Make {
        name: "sums_cache_1k",
        features: "data_csum,quota",
        page_cache: LARGER,
        block_bytes: 1024,
        ..ROOMY
    },
    Make {
        name: "sums_cache_64k",
        features: "data_csum",
        page_cache: LARGER,
        mib: 192,
        block_bytes: 65536,
        ..ROOMY
    },
    Make { name: "sums_commits", features: "data_csum", page_cache: COMMITTED, ..ROOMY },
    Make {
        name: "sums_drop",
        features: "data_csum,inline_data",
        page_cache: dropped(DontCachePolicy::Inline),
        ..ROOMY
    },
];

/// The same as [`FAST`], with files that go through the page cache.
pub const FAST_CACHED: &[Make] = &[
    Make { name: "fast_cache_4k", features: "fast_commit", page_cache: SMALL, ..ROOMY },
    Make {
        name: "fast_cache_1k",
        features: "fast_commit",
        page_cache: COMMITTED,
        block_bytes: 1024,
        ..ROOMY
    },
];

/// Kinds whose fsyncs go to the byte log. Only extant can read it.
pub const BYTE_LOG: &[Make] = &[
    Make { name: "byte_log_4k", features: "fast_commit", byte_log: true, ..PLAIN },
    // A ring of 14 KiB, which overflows.
    Make {
        name: "byte_log_1k",
        features: "fast_commit",
        mib: 8,
        block_bytes: 1024,
        byte_log: true,
        ..PLAIN
    },
    Make {
        name: "byte_log_cache",
        features: "fast_commit",
        page_cache: SMALL,
        byte_log: true,
        ..ROOMY
    },
];

/// A directory whose index has two full levels: the next name adds the third. Too large for every
/// workload.
pub const DEEP: Make = Make {
    name: "deep",
    features: "large_dir",
    mib: 40,
    block_bytes: 1024,
    prepared: Prepared::FullIndex,
    ..PLAIN
};

const KEPT: Through =
    Through { kib: 256, policy: DontCachePolicy::Flusher, drop_behind: false, commits: false };
const SMALL: Option<Through> = Some(KEPT);
const LARGER: Option<Through> = Some(Through { kib: 8192, ..KEPT });
const COMMITTED: Option<Through> = Some(Through { kib: 1024, commits: true, ..KEPT });

const fn dropped(policy: DontCachePolicy) -> Option<Through> {
    Some(Through { kib: 512, policy, drop_behind: true, ..KEPT })
}

const ROOMY: Make = Make { mib: 32, ..PLAIN };

/// Kinds whose files go through the page cache.
pub const CACHED: &[Make] = &[
    Make { name: "cache_4k", page_cache: SMALL, ..ROOMY },
    Make { name: "cache_1k", page_cache: LARGER, block_bytes: 1024, ..ROOMY },
    Make { name: "cache_64k", page_cache: LARGER, mib: 128, block_bytes: 65536, ..ROOMY },
    Make { name: "cache_bigalloc", page_cache: SMALL, features: "bigalloc", ..ROOMY },
    Make {
        name: "cache_block_map",
        page_cache: SMALL,
        features: "^extent,^64bit,^metadata_csum",
        block_bytes: 1024,
        ..ROOMY
    },
    Make { name: "cache_inline", page_cache: SMALL, features: "inline_data", ..ROOMY },
    Make { name: "commits_4k", page_cache: COMMITTED, ..ROOMY },
    Make { name: "commits_1k", page_cache: COMMITTED, block_bytes: 1024, ..ROOMY },
    Make { name: "cache_quota", page_cache: LARGER, features: "quota,project", ..ROOMY },
    Make {
        name: "cache_data_writeback",
        page_cache: SMALL,
        data_mode: DataMode::Writeback,
        block_bytes: 1024,
        ..ROOMY
    },
    Make {
        name: "cache_data_journal",
        page_cache: SMALL,
        data_mode: DataMode::Journal,
        block_bytes: 1024,
        ..ROOMY
    },
    Make {
        name: "cache_external",
        page_cache: SMALL,
        features: "^has_journal",
        journal_mib: 6,
        ..ROOMY
    },
    Make { name: "drop_flusher", page_cache: dropped(DontCachePolicy::Flusher), ..ROOMY },
    Make { name: "drop_inline", page_cache: dropped(DontCachePolicy::Inline), ..ROOMY },
    Make {
        name: "drop_rate_limited",
        page_cache: dropped(DontCachePolicy::RateLimited),
        block_bytes: 1024,
        ..ROOMY
    },
];

/// Kinds whose files are written past the page cache. They have no page cache.
pub const DIRECT: &[Make] = &[
    Make { name: "direct_4k", ..PLAIN },
    Make { name: "direct_1k", mib: 8, block_bytes: 1024, ..PLAIN },
    Make { name: "direct_bigalloc", features: "bigalloc", mib: 32, ..PLAIN },
    Make {
        name: "direct_block_map",
        features: "^extent,^64bit,^metadata_csum",
        mib: 8,
        block_bytes: 1024,
        ..PLAIN
    },
    Make { name: "direct_sums", features: "data_csum", ..PLAIN },
    Make { name: "direct_fast", features: "fast_commit", ..PLAIN },
];

/// The same with a page cache.
pub const DIRECT_CACHED: &[Make] = &[
    Make { name: "direct_cache_4k", page_cache: SMALL, ..ROOMY },
    Make { name: "direct_cache_1k", page_cache: COMMITTED, block_bytes: 1024, ..ROOMY },
    Make { name: "direct_cache_inline", page_cache: LARGER, features: "inline_data", ..ROOMY },
    Make { name: "direct_cache_sums", page_cache: LARGER, features: "data_csum", ..ROOMY },
];

/// Kinds on several members.
pub const LAYOUTS: &[Make] = &[
    Make { name: "mirror_4k", layout: Some(Layout::Mirrored(2)), ..PLAIN },
    Make { name: "mirror_1k", layout: Some(Layout::Mirrored(2)), ..ON_MEMBERS },
    Make { name: "mirror_of_3", layout: Some(Layout::Mirrored(3)), ..ON_MEMBERS },
    Make {
        name: "mirror_sums",
        layout: Some(Layout::Mirrored(2)),
        features: "data_csum",
        mib: 12,
        ..ON_MEMBERS
    },
    Make {
        name: "mirror_fast",
        layout: Some(Layout::Mirrored(2)),
        features: "fast_commit",
        ..ON_MEMBERS
    },
    Make { name: "stripes_4k", layout: Some(Layout::Striped(2, 65536)), ..PLAIN },
    Make { name: "stripes_of_3", layout: Some(Layout::Striped(3, 4096)), ..ON_MEMBERS },
];

/// The same, with files that go through the page cache.
pub const LAYOUTS_CACHED: &[Make] = &[
    Make { name: "mirror_cache", layout: Some(Layout::Mirrored(2)), page_cache: SMALL, ..ROOMY },
    Make {
        name: "mirror_cache_sums",
        layout: Some(Layout::Mirrored(2)),
        page_cache: COMMITTED,
        features: "data_csum",
        ..ROOMY
    },
    Make {
        name: "stripes_cache",
        layout: Some(Layout::Striped(2, 16384)),
        page_cache: SMALL,
        ..ROOMY
    },
];

const ON_MEMBERS: Make = Make { mib: 8, block_bytes: 1024, ..PLAIN };

impl Make {
    /// The kind of this name.
    pub fn named(name: &str) -> Option<Make> {
        [
            MAKES,
            CACHED,
            FAST,
            FAST_CACHED,
            BYTE_LOG,
            SUMS,
            SUMS_CACHED,
            DIRECT,
            DIRECT_CACHED,
            LAYOUTS,
            LAYOUTS_CACHED,
            &[DEEP],
        ]
        .into_iter()
        .flatten()
        .find(|make| make.name == name)
        .copied()
    }

    /// Whether files go through the page cache. Then the log differs from run to run, because
    /// threads write back.
    pub fn is_cached(&self) -> bool {
        self.page_cache.is_some()
    }

    /// Whether the timer commits continuously.
    pub fn commits_by_time(&self) -> bool {
        self.page_cache.is_some_and(|through| through.commits)
    }

    /// Bytes of a block.
    pub fn block_bytes(&self) -> u64 {
        self.block_bytes
    }

    /// Whether fsyncs may be fast commits.
    pub fn has_fast_commits(&self) -> bool {
        self.features.contains("fast_commit")
    }

    /// Whether its files have checksums of data.
    pub fn has_sums(&self) -> bool {
        self.features.contains("data_csum")
    }

    /// Whether attribute values may be in inodes of their own. e2fsck 1.47 frees an orphan and
    /// leaves such values allocated.
    pub fn has_value_inodes(&self) -> bool {
        self.features.contains("ea_inode")
    }

    /// Whether a write is whole or absent.
    pub fn journals_data(&self) -> bool {
        self.data_mode == DataMode::Journal
    }

    /// Whether it has an encrypted directory.
    pub fn has_vault(&self) -> bool {
        self.prepared == Prepared::Vault
    }

    /// The fields in which another recovery must show the same. Fast commits do not record when
    /// directories changed, their sizes, and how many blocks a map takes.
    pub fn look(&self) -> Look {
        match self.features.contains("fast_commit") {
            // Linux completes no truncation on a volume that it does not write to.
            _ if self.has_sums() => {
                Look { dir_shape: false, dir_times: false, blocks: false, ..Look::all() }
            }
            true => Look { dir_shape: false, dir_times: false, blocks: false, ..Look::all() },
            false => Look::all(),
        }
    }

    /// A new volume. It has the same bytes every time, and what is written to one does not appear
    /// in another.
    ///
    /// Panics if the engine cannot make it, because then there is nothing to test.
    pub fn base(&self) -> MemoryDevice {
        static MADE: OnceLock<Mutex<HashMap<&str, MemoryDevice>>> = OnceLock::new();
        let mut made = MADE.get_or_init(Mutex::default).lock().unwrap_or_else(|e| e.into_inner());
        let make = || self.format().unwrap_or_else(|e| panic!("mkfs of {}: {e}", self.name));
        made.entry(self.name).or_insert_with(make).clone()
    }

    fn format(&self) -> Result<MemoryDevice> {
        let volume_bytes = self.mib << 20;
        let all_bytes = match self.layout {
            Some(layout) => layout.device_bytes(volume_bytes),
            None => volume_bytes + (self.journal_mib << 20),
        };
        let device = Arc::new(MemoryDevice::new(all_bytes));
        let poison = vec![POISON; 1 << 20];
        for at in (0..all_bytes).step_by(poison.len()) {
            let len = (all_bytes - at).min(1 << 20) as usize;
            device.write_at(ByteOffset(at), &poison[..len])?;
        }
        if let Some(layout) = self.layout {
            layout.create(&device, volume_bytes)?;
        }
        let options = if self.ext3 { MkfsOptions::of_type("ext3")? } else { MkfsOptions::new() };
        let options = options
            .block_size(BlockSize::from_bytes(self.block_bytes as u32).expect("the table is right"))
            .journal(JournalSize::Blocks(1024))
            // A directory that contains a name cannot start to fold case.
            .lost_and_found(self.prepared != Prepared::FoldedRoot)
            .features(self.features)?;
        let parts = self.parts(&device)?;
        mkfs::format(Arc::clone(&parts.volume), &options, &Environment::fixed(MADE, 1))?;
        if let Some(journal) = &parts.journal {
            external::attach(&*parts.volume, &**journal, self.has_fast_commits())?;
        }
        drop(parts);
        prepare(self, self.prepared, &device)?;
        Ok((*device).clone())
    }

    /// The volume on a device, and its journal if that is on another one.
    ///
    /// Errors: `Member` if members do not fit together.
    pub fn parts<D: FlushPart + 'static>(&self, device: &Arc<D>) -> Result<Parts> {
        let (volume, journal) = (self.mib << 20, self.journal_mib << 20);
        if let Some(layout) = self.layout {
            let made = layout.assemble(device, volume)?;
            let mirror = match &made {
                Assembled::Mirrored(mirror) => Some(Arc::clone(mirror)),
                _ => None,
            };
            return Ok(Parts { volume: made.device(), journal: None, mirror });
        }
        if journal == 0 {
            return Ok(Parts { volume: device.clone(), journal: None, mirror: None });
        }
        Ok(Parts {
            volume: Arc::new(Part::new(device.clone(), 0, volume)),
            journal: Some(Arc::new(Part::new(device.clone(), volume, journal))),
            mirror: None,
        })
    }

    /// Each mirror as it is on the device, which holds a state of such a volume.
    pub fn mirrors(&self, device: &MemoryDevice) -> Result<Vec<MemoryDevice>> {
        self.layout.map_or(Ok(Vec::new()), |layout| layout.mirrors(device, self.mib << 20))
    }

    /// Whether it is on several members.
    pub fn has_members(&self) -> bool {
        self.layout.is_some()
    }

    /// How to open such a volume.
    pub fn open_options(&self, parts: &Parts) -> OpenOptions {
        let mut options = OpenOptions::new();
        if let Some(journal) = &parts.journal {
            options.journal_on(Arc::clone(journal));
        }
        options.data_mode(self.data_mode);
        options.environment(Environment::fixed(run_time(0), 2)).cache_bytes(8 << 20);
        options.page_cache_bytes(0);
        if self.byte_log {
            options.byte_log(ByteLogMode::Force);
        }
        if let Some(Through { kib, policy, drop_behind, .. }) = self.page_cache {
            options.page_cache_bytes(kib << 10).dont_cache_cap_bytes(kib << 8);
            options.dont_cache_policy(policy).dont_cache(drop_behind);
        }
        options
    }
}

/// The time of the `n`th operation of a run.
pub fn run_time(n: usize) -> Timestamp {
    Timestamp { sec: MADE.sec + 86_400 + n as i64, nsec: 1000 + n as u32 }
}
