//! The cache of metadata blocks: its table, its limits, and how many of its bytes are dirty.
//!
//! ```text
//!   nr ──hash of nr/16──► shard ──index──► block          in the table: shared
//!                           └─ none: an empty block enters the table and is read (`load.rs`)
//! ```
//!
//! A shard's lock is of `Rank::Leaf` and is never held across device I/O. When more bytes are dirty
//! than the limit allows, the next thread that starts a handle or misses a block writes some home
//! (`write_out.rs`).

use crate::cache::checkpoint_queue::CheckpointQueue;
use crate::cache::shard::Shard;
use crate::cache::writer::Writer;
use extant_base::lock::{Mutex, Rank};
use extant_base::{BlockNr, BlockSize, Error, Result, Tid};
use extant_blockdev::BlockDevice;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicIsize, AtomicU32, AtomicU64, AtomicUsize, Ordering};

/// Most bytes of one prefetch or merged write.
pub(crate) const MAX_RUN_BYTES: usize = 1 << 20;

/// Memory limits of the cache.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CacheOptions {
    /// Bytes of cached blocks, clean and dirty. Blocks that callers hold stay and count, so the
    /// cache can exceed this for a while.
    pub limit_bytes: usize,
    /// Bytes of dirty blocks beyond which they are written home.
    pub dirty_limit_bytes: usize,
}

impl Default for CacheOptions {
    fn default() -> CacheOptions {
        CacheOptions { limit_bytes: 64 << 20, dirty_limit_bytes: 32 << 20 }
    }
}

/// Sizes and counts of the cache.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CacheStats {
    /// Bytes of cached blocks, now.
    pub cached_bytes: usize,
    /// Bytes of blocks not yet written home, now.
    pub dirty_bytes: usize,
    /// Blocks read from the device, prefetched ones included.
    pub blocks_read: u64,
    /// Blocks written home.
    pub blocks_written: u64,
    /// Device writes that wrote them.
    pub writes: u64,
    /// Clean blocks that were evicted.
    pub evictions: u64,
}

/// All cached metadata blocks of one volume. Shared by every thread.
pub struct MetaCache {
    pub(crate) device: Arc<dyn BlockDevice>,
    pub(crate) block_size: BlockSize,
    /// Whether the device has mirrors: only those ask for stable buffers.
    pub(crate) has_copies: bool,
    pub(super) options: CacheOptions,
    pub(crate) shards: Box<[Mutex<Shard>]>,
    shard_bits: u32,
    pub(super) sweep_at: AtomicUsize,
    /// The cache is swept when it holds more bytes than this.
    pub(super) sweep_above: AtomicUsize,
    pub(super) cached: AtomicUsize,
    pub(crate) dirty: AtomicIsize,
    pub(crate) writer: Mutex<Writer>,
    pub(super) loading: parking_lot::Mutex<()>,
    pub(super) loaded: parking_lot::Condvar,
    aborted: AtomicBool,
    /// The first transaction that was not durable at the abort.
    aborted_in: AtomicU32,
    /// The running transaction; 0 without a log.
    pub(crate) running: AtomicU64,
    /// Blocks that are committed and not yet home; always empty without a log.
    pub(crate) checkpoint_queue: Mutex<CheckpointQueue>,
    pub(super) blocks_read: AtomicU64,
    pub(crate) blocks_written: AtomicU64,
    pub(crate) writes: AtomicU64,
    pub(super) evictions: AtomicU64,
}

impl std::fmt::Debug for MetaCache {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("MetaCache").field("block_size", &self.block_size).finish_non_exhaustive()
    }
}

impl MetaCache {
    pub(crate) fn new(
        device: Arc<dyn BlockDevice>,
        block_size: BlockSize,
        options: CacheOptions,
    ) -> MetaCache {
        let blocks = options.limit_bytes / block_size.bytes();
        // In a shard of fewer than 64 blocks the clock would have too few candidates.
        let shard_bits = (blocks / 64).max(1).ilog2().min(6);
        let shards = (0..1usize << shard_bits)
            .map(|_| Mutex::new(Rank::Leaf, Shard::default()))
            .collect::<Vec<_>>();
        MetaCache {
            has_copies: device.needs_stable_buffers(),
            device,
            block_size,
            options,
            shards: shards.into_boxed_slice(),
            shard_bits,
            sweep_at: AtomicUsize::new(0),
            sweep_above: AtomicUsize::new(options.limit_bytes),
            cached: AtomicUsize::new(0),
            dirty: AtomicIsize::new(0),
            writer: Mutex::new(Rank::JournalState, Writer::default()),
            loading: parking_lot::Mutex::new(()),
            loaded: parking_lot::Condvar::new(),
            aborted: AtomicBool::new(false),
            aborted_in: AtomicU32::new(0),
            running: AtomicU64::new(0),
            checkpoint_queue: Mutex::new(Rank::Leaf, CheckpointQueue::default()),
            blocks_read: AtomicU64::new(0),
            blocks_written: AtomicU64::new(0),
            writes: AtomicU64::new(0),
            evictions: AtomicU64::new(0),
        }
    }

    /// The size of every block.
    pub fn block_size(&self) -> BlockSize {
        self.block_size
    }

    /// The device that holds the blocks.
    pub fn device(&self) -> &Arc<dyn BlockDevice> {
        &self.device
    }

    /// Sizes and counts, now.
    pub fn stats(&self) -> CacheStats {
        CacheStats {
            cached_bytes: self.cached.load(Ordering::Relaxed),
            dirty_bytes: self.dirty_bytes(),
            blocks_read: self.blocks_read.load(Ordering::Relaxed),
            blocks_written: self.blocks_written.load(Ordering::Relaxed),
            writes: self.writes.load(Ordering::Relaxed),
            evictions: self.evictions.load(Ordering::Relaxed),
        }
    }

    pub(crate) fn refuse_if_aborted(&self) -> Result<()> {
        if self.aborted.load(Ordering::Relaxed) {
            return Err(Error::Aborted { tid: Tid(self.aborted_in.load(Ordering::Relaxed)) });
        }
        Ok(())
    }

    pub(crate) fn abort(&self) {
        self.aborted.store(true, Ordering::Relaxed);
    }

    /// [`MetaCache::abort`] when `tid` is the first transaction that is not durable.
    pub(crate) fn abort_in(&self, tid: Tid) {
        self.aborted_in.store(tid.0, Ordering::Relaxed);
        self.abort();
    }

    /// Flushes the device. A failure aborts.
    pub(crate) fn flush(&self) -> Result<()> {
        self.refuse_if_aborted()?;
        self.device.flush().inspect_err(|_| self.abort())
    }

    /// Whether more than half of the bytes that may be dirty are.
    pub(crate) fn is_half_dirty(&self) -> bool {
        self.dirty_bytes() > self.dirty_limit_bytes() / 2
    }

    /// Dirty bytes above which a thread that starts a handle writes some home.
    pub(crate) fn dirty_limit_bytes(&self) -> usize {
        self.options.dirty_limit_bytes
    }

    /// Blocks that the cache may hold.
    pub(crate) fn limit_blocks(&self) -> usize {
        self.options.limit_bytes >> self.block_size.log2()
    }

    pub(crate) fn dirty_bytes(&self) -> usize {
        usize::try_from(self.dirty.load(Ordering::Relaxed)).unwrap_or(0)
    }

    pub(crate) fn add_dirty_bytes(&self) {
        self.dirty.fetch_add(self.block_size.bytes() as isize, Ordering::Relaxed);
    }

    pub(crate) fn sub_dirty_bytes(&self) {
        self.dirty.fetch_sub(self.block_size.bytes() as isize, Ordering::Relaxed);
    }

    /// Puts a newly dirty block on its shard's list.
    pub(crate) fn note_dirty(&self, nr: BlockNr) {
        self.shard(nr).lock().dirty.push(nr.0);
    }

    pub(crate) fn shard(&self, nr: BlockNr) -> &Mutex<Shard> {
        // Neighbours share a shard, so that a prefetch visits few shards.
        let hash = (nr.0 >> 4).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        &self.shards[(hash >> 32) as usize & ((1 << self.shard_bits) - 1)]
    }
}
