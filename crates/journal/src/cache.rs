//! The cache of metadata blocks: found by number, read once, forgotten by a clock.
//!
//! ```text
//!   nr ──hash of nr/16──► shard ──index──► block          in the table: shared
//!                           └─ none: an empty block enters the table, its first asker reads it
//! ```
//!
//! A shard's lock is of `Rank::Leaf` and is never held across device I/O: a block enters the table
//! empty, its first asker reads it, later ones wait for that read. Dirty blocks beyond the dirty
//! limit are written home by whoever starts a handle or misses a block next (`write_out.rs`).

use crate::block::{Block, DIRTY, FAILED, LOADED, REFERENCED, Seq, WRITING};
use crate::homeward::Homeward;
use crate::meta_block::MetaBlock;
use crate::shard::Shard;
use crate::write_out::Writer;
use extant_base::lock::{Mutex, Rank};
use extant_base::{BlockNr, BlockSize, Error, IoOp, Result, Tid};
use extant_blockdev::BlockDevice;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicIsize, AtomicU32, AtomicU64, AtomicUsize, Ordering};

/// Most bytes one prefetch or merged write moves.
pub(crate) const MAX_RUN_BYTES: usize = 1 << 20;

/// How much memory the cache may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CacheOptions {
    /// Bytes of cached blocks, clean and dirty. Blocks that are held count and stay, so the cache
    /// can exceed this for a while.
    pub limit_bytes: usize,
    /// Bytes of dirty blocks beyond which they are written home.
    pub dirty_limit_bytes: usize,
}

impl Default for CacheOptions {
    fn default() -> CacheOptions {
        CacheOptions { limit_bytes: 64 << 20, dirty_limit_bytes: 32 << 20 }
    }
}

/// What the cache holds and has done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct CacheStats {
    /// Bytes of cached blocks.
    pub cached_bytes: usize,
    /// Bytes of blocks not yet written home.
    pub dirty_bytes: usize,
    /// Blocks read from the device because they were absent, prefetched ones included.
    pub blocks_read: u64,
    /// Blocks written home.
    pub blocks_written: u64,
    /// Device writes that took.
    pub writes: u64,
    /// Clean blocks that left to make room.
    pub evictions: u64,
}

/// All cached metadata blocks of one volume. Shared by every thread.
pub struct MetaCache {
    pub(crate) device: Arc<dyn BlockDevice>,
    pub(crate) block_size: BlockSize,
    /// Whether the device is one of mirrors: they alone ask for memory that keeps still.
    pub(crate) has_copies: bool,
    options: CacheOptions,
    pub(crate) shards: Box<[Mutex<Shard>]>,
    shard_bits: u32,
    sweep_at: AtomicUsize,
    /// Above this many cached bytes a sweep is due.
    sweep_above: AtomicUsize,
    cached: AtomicUsize,
    pub(crate) dirty: AtomicIsize,
    pub(crate) writer: Mutex<Writer>,
    loading: parking_lot::Mutex<()>,
    loaded: parking_lot::Condvar,
    aborted: AtomicBool,
    /// The transaction in which that was.
    aborted_in: AtomicU32,
    /// The transaction that takes changes now; 0 without a log.
    pub(crate) running: AtomicU64,
    /// What is committed and not yet home; always empty without a log.
    pub(crate) homeward: Mutex<Homeward>,
    blocks_read: AtomicU64,
    pub(crate) blocks_written: AtomicU64,
    pub(crate) writes: AtomicU64,
    evictions: AtomicU64,
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
        // A shard of fewer than 64 blocks would let the clock hand see too little.
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
            homeward: Mutex::new(Rank::Leaf, Homeward::default()),
            blocks_read: AtomicU64::new(0),
            blocks_written: AtomicU64::new(0),
            writes: AtomicU64::new(0),
            evictions: AtomicU64::new(0),
        }
    }

    /// The size of every block here.
    pub fn block_size(&self) -> BlockSize {
        self.block_size
    }

    /// The device the blocks live on.
    pub fn device(&self) -> &Arc<dyn BlockDevice> {
        &self.device
    }

    /// The block `nr`, read from the device when it is not cached; several threads asking for one
    /// block read it once.
    ///
    /// Errors: `Device`, also for a block beyond the device's end. Locks: takes `Leaf`, and
    /// `JournalState` when dirty blocks have to make room; waits for I/O with none held.
    #[track_caller]
    pub fn get(&self, nr: BlockNr) -> Result<MetaBlock> {
        loop {
            let (block, ours) = self.find_or_insert(nr);
            if block.has(LOADED) || (!ours && self.wait_loaded(&block)) {
                return Ok(MetaBlock::new(block));
            }
            if ours {
                self.load(&block)?;
                return Ok(MetaBlock::new(block));
            }
            // The thread that read it failed: read it ourselves, for an error of our own.
        }
    }

    /// The block `nr`, all zero, without reading it: for a block just allocated. The caller fills
    /// it whole under a handle before it lets go of it.
    #[track_caller]
    pub fn get_new(&self, nr: BlockNr) -> Result<MetaBlock> {
        self.check_inside(nr)?;
        loop {
            let (block, ours) = self.find_or_insert(nr);
            if !ours && !block.has(LOADED) && !self.wait_loaded(&block) {
                continue;
            }
            block.set_verified_as(0);
            if !ours {
                block.clear(self.running.load(Ordering::Acquire));
            } else {
                block.fill(self.zeroed());
                self.finish_load(&block, LOADED);
                let _ = self.make_room();
            }
            return Ok(MetaBlock::new(block));
        }
    }

    /// Reads `count` blocks from `first` on into the cache, in few large reads. Blocks that are
    /// cached already stay as they are; blocks beyond the device's end are left out.
    ///
    /// A hint: an error here says nothing that `get` would not say again.
    pub fn prefetch(&self, first: BlockNr, count: u32) -> Result<()> {
        let device_blocks = self.device.len() >> self.block_size.log2();
        // More than a quarter of the cache would push out what it brought in.
        let most = (self.options.limit_bytes / 4) >> self.block_size.log2();
        let count = u64::from(count).min(most as u64);
        let end = first.0.saturating_add(count).min(device_blocks);
        let step = (MAX_RUN_BYTES >> self.block_size.log2()) as u64;
        let mut at = first.0;
        while at < end {
            let upto = end.min(at + step);
            self.prefetch_run(at, upto)?;
            at = upto;
        }
        Ok(())
    }

    /// Drops the block `nr`: its content is not written home any more. Waits for a write of it
    /// that is on its way, so that the block can be used for file data at once.
    pub fn forget(&self, nr: BlockNr) {
        self.take_out(nr, 0);
    }

    /// [`MetaCache::forget`] in transaction `seq`; the block, if it was cached.
    pub(crate) fn take_out(&self, nr: BlockNr, seq: Seq) -> Option<Arc<Block>> {
        let gone = self.shard(nr).lock().remove(nr)?;
        self.cached.fetch_sub(self.block_size.bytes(), Ordering::Relaxed);
        gone.set_forgotten_in(seq);
        let before = gone.set_forgotten();
        if before & DIRTY != 0 {
            self.sub_dirty_bytes();
        }
        if before & WRITING != 0 {
            drop(self.writer.lock());
        }
        Some(gone)
    }

    /// What the cache holds and has done so far.
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

    /// [`MetaCache::abort`] while `tid` was the first transaction not durable.
    pub(crate) fn abort_in(&self, tid: Tid) {
        self.aborted_in.store(tid.0, Ordering::Relaxed);
        self.abort();
    }

    /// Flushes the device; a failure aborts.
    pub(crate) fn flush(&self) -> Result<()> {
        self.refuse_if_aborted()?;
        self.device.flush().inspect_err(|_| self.abort())
    }

    /// Writes dirty blocks home when there are more than the limit.
    #[inline]
    pub(crate) fn relieve(&self) -> Result<()> {
        if self.dirty_bytes() > self.options.dirty_limit_bytes {
            self.write_back(self.options.dirty_limit_bytes / 2)?;
        }
        Ok(())
    }

    /// Whether write-out has something to do soon.
    pub(crate) fn is_half_dirty(&self) -> bool {
        self.dirty_bytes() > self.dirty_limit_bytes() / 2
    }

    /// Dirty bytes beyond which whoever starts a handle writes some home.
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
        // Neighbours share a shard, so that a prefetch visits few.
        let hash = (nr.0 >> 4).wrapping_mul(0x9E37_79B9_7F4A_7C15);
        &self.shards[(hash >> 32) as usize & ((1 << self.shard_bits) - 1)]
    }

    fn zeroed(&self) -> Box<[u8]> {
        vec![0; self.block_size.bytes()].into_boxed_slice()
    }

    /// The block in the table, or a new empty one in it that the caller must load (true).
    #[inline]
    #[track_caller]
    fn find_or_insert(&self, nr: BlockNr) -> (Arc<Block>, bool) {
        let mut shard = self.shard(nr).lock();
        if let Some(block) = shard.find(nr) {
            block.touch();
            return (Arc::clone(block), false);
        }
        let block = Block::new(nr);
        shard.insert(Arc::clone(&block));
        drop(shard);
        self.cached.fetch_add(self.block_size.bytes(), Ordering::Relaxed);
        (block, true)
    }

    fn check_inside(&self, nr: BlockNr) -> Result<()> {
        if nr.0 < self.device.len() >> self.block_size.log2() {
            return Ok(());
        }
        Err(Error::Device {
            op: IoOp::Read,
            at: self.block_size.start_of(nr),
            len: self.block_size.bytes(),
            source: std::io::ErrorKind::UnexpectedEof.into(),
        })
    }

    #[cold]
    fn load(&self, block: &Arc<Block>) -> Result<()> {
        // A failed write-out has aborted the journal; reading goes on.
        let _ = self.make_room();
        let mut bytes = self.zeroed();
        let read = self
            .check_inside(block.nr)
            .and_then(|()| self.device.read_at(self.block_size.start_of(block.nr), &mut bytes));
        match read {
            Ok(()) => {
                self.blocks_read.fetch_add(1, Ordering::Relaxed);
                block.fill(bytes);
                self.finish_load(block, LOADED);
                Ok(())
            }
            Err(error) => {
                self.fail_load(block);
                Err(error)
            }
        }
    }

    /// Takes out a block whose read failed, unless it was forgotten meanwhile.
    fn fail_load(&self, block: &Arc<Block>) {
        let removed = {
            let mut shard = self.shard(block.nr).lock();
            let same = shard.find(block.nr).is_some_and(|found| Arc::ptr_eq(found, block));
            if same { shard.remove(block.nr) } else { None }
        };
        if removed.is_some() {
            self.cached.fetch_sub(self.block_size.bytes(), Ordering::Relaxed);
        }
        self.finish_load(block, FAILED);
    }

    fn finish_load(&self, block: &Block, flag: u32) {
        block.flags.fetch_or(flag | REFERENCED, Ordering::AcqRel);
        // A waiter checks the flag under this lock, so it either sees it or is woken.
        drop(self.loading.lock());
        self.loaded.notify_all();
    }

    /// Waits until another thread has read `block`; false when that failed.
    #[cold]
    fn wait_loaded(&self, block: &Block) -> bool {
        let mut guard = self.loading.lock();
        while !block.has(LOADED | FAILED) {
            self.loaded.wait(&mut guard);
        }
        block.has(LOADED)
    }

    fn prefetch_run(&self, from: u64, upto: u64) -> Result<()> {
        let mut ours = Vec::new();
        for nr in from..upto {
            let (block, new) = self.find_or_insert(BlockNr(nr));
            if new {
                ours.push(block);
            }
        }
        let (Some(first), Some(last)) = (ours.first(), ours.last()) else { return Ok(()) };
        let (first, last) = (first.nr.0, last.nr.0);
        let _ = self.make_room();
        let size = self.block_size.bytes();
        let mut bytes = vec![0; (last - first + 1) as usize * size];
        let read = self.device.read_at(self.block_size.start_of(BlockNr(first)), &mut bytes);
        for block in &ours {
            if read.is_err() {
                self.fail_load(block);
                continue;
            }
            let at = (block.nr.0 - first) as usize * size;
            block.fill(bytes[at..at + size].into());
            self.finish_load(block, LOADED);
        }
        if read.is_ok() {
            self.blocks_read.fetch_add(ours.len() as u64, Ordering::Relaxed);
        }
        read
    }

    /// Lets clean blocks go when there are too many blocks, and writes dirty ones home when there
    /// are too many of those.
    fn make_room(&self) -> Result<()> {
        self.relieve()?;
        if self.cached.load(Ordering::Relaxed) <= self.sweep_above.load(Ordering::Relaxed) {
            return Ok(());
        }
        let limit = self.options.limit_bytes;
        let size = self.block_size.bytes();
        let mut out = Vec::new();
        // Two rounds: the first one takes the second chances away.
        for _ in 0..2 * self.shards.len() {
            let over = self.cached.load(Ordering::Relaxed).saturating_sub(limit - limit / 32);
            if over == 0 {
                break;
            }
            let at = self.sweep_at.fetch_add(1, Ordering::Relaxed) % self.shards.len();
            self.shards[at].lock().sweep(over.div_ceil(size).min(64), &mut out);
            self.cached.fetch_sub(out.len() * size, Ordering::Relaxed);
            self.evictions.fetch_add(out.len() as u64, Ordering::Relaxed);
            out.clear();
        }
        // With everything held or dirty, sweeping again for each new block would cost without gain.
        let cached = self.cached.load(Ordering::Relaxed);
        let above = if cached > limit { cached + limit / 64 } else { limit };
        self.sweep_above.store(above, Ordering::Relaxed);
        Ok(())
    }
}
