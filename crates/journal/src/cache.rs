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

use crate::meta_block::{Block, DIRTY, FAILED, FORGOTTEN, LOADED, MetaBlock, REFERENCED, WRITING};
use crate::shard::Shard;
use crate::write_out::Writer;
use extant_base::lock::{Mutex, Rank};
use extant_base::{BlockNr, BlockSize, Error, IoOp, Result, Tid};
use extant_blockdev::BlockDevice;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicIsize, AtomicU64, AtomicUsize, Ordering};

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
    blocks_read: AtomicU64,
    pub(crate) blocks_written: AtomicU64,
    pub(crate) writes: AtomicU64,
    evictions: AtomicU64,
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
            {
                let mut bytes = block.bytes.write();
                if ours {
                    *bytes = self.zeroed();
                } else {
                    bytes.fill(0);
                }
            }
            if ours {
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
        let gone = {
            let mut shard = self.shard(nr).lock();
            let Some(block) = shard.remove(nr) else { return };
            block
        };
        self.cached.fetch_sub(self.block_size.bytes(), Ordering::Relaxed);
        let before = gone
            .flags
            .fetch_update(Ordering::AcqRel, Ordering::Relaxed, |flags| {
                Some((flags | FORGOTTEN) & !DIRTY)
            })
            .expect("the closure always answers");
        if before & DIRTY != 0 {
            self.sub_dirty_bytes();
        }
        if before & WRITING != 0 {
            drop(self.writer.lock());
        }
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
            return Err(Error::Aborted { tid: Tid(0) });
        }
        Ok(())
    }

    pub(crate) fn abort(&self) {
        self.aborted.store(true, Ordering::Relaxed);
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
        let block = Block::new(nr, 0, Box::default());
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
                *block.bytes.write() = bytes;
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
            *block.bytes.write() = bytes[at..at + size].into();
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_device::{Asked, TestDevice};
    use crate::{Credits, Journal};
    use extant_base::ByteOffset;

    const SIZE: usize = 1024;

    fn journal(blocks: usize, options: CacheOptions) -> (Arc<TestDevice>, Journal) {
        let bytes = (0..blocks * SIZE).map(|at| (at / SIZE) as u8).collect();
        let device = Arc::new(TestDevice::new(bytes));
        let block_size = BlockSize::from_bytes(SIZE as u32).unwrap();
        let journal =
            Journal::off(Arc::clone(&device) as Arc<dyn BlockDevice>, block_size, options);
        (device, journal)
    }

    fn change(journal: &Journal, nr: u64, value: u8) {
        let handle = journal.start(Credits::blocks(1)).unwrap();
        let block = journal.cache().get(BlockNr(nr)).unwrap();
        block.write(&handle).unwrap().bytes_mut().fill(value);
        handle.stop().unwrap();
    }

    #[test]
    fn a_block_is_read_once() {
        let (device, journal) = journal(64, CacheOptions::default());
        for _ in 0..3 {
            assert_eq!(journal.cache().get(BlockNr(7)).unwrap().read()[..], [7; SIZE]);
        }
        assert_eq!(device.take_asked(), [Asked::Read { at: 7 * 1024, len: 1024 }]);
    }

    #[test]
    fn threads_that_ask_together_read_once() {
        let (device, journal) = journal(64, CacheOptions::default());
        std::thread::scope(|scope| {
            for _ in 0..8 {
                scope.spawn(|| {
                    for nr in 0..64 {
                        let block = journal.cache().get(BlockNr(nr)).unwrap();
                        assert_eq!(block.read()[..], [nr as u8; SIZE]);
                    }
                });
            }
        });
        assert_eq!(device.take_asked().len(), 64);
    }

    #[test]
    fn a_new_block_is_zero_and_not_read() {
        let (device, journal) = journal(64, CacheOptions::default());
        assert_eq!(journal.cache().get_new(BlockNr(7)).unwrap().read()[..], [0; SIZE]);
        change(&journal, 8, 1);
        device.take_asked();
        assert_eq!(journal.cache().get_new(BlockNr(8)).unwrap().read()[..], [0; SIZE]);
        assert_eq!(device.take_asked(), []);
    }

    #[test]
    fn prefetch_reads_neighbours_at_once_and_keeps_changed_ones() {
        let (device, journal) = journal(64, CacheOptions::default());
        change(&journal, 10, 99);
        device.take_asked();
        journal.cache().prefetch(BlockNr(8), 1000).unwrap();
        assert_eq!(device.take_asked(), [Asked::Read { at: 8 * 1024, len: 56 * 1024 }]);
        for nr in 8..64 {
            let want = if nr == 10 { 99 } else { nr as u8 };
            assert_eq!(journal.cache().get(BlockNr(nr)).unwrap().read()[0], want);
        }
        assert_eq!(device.take_asked(), []);
    }

    #[test]
    fn a_block_beyond_the_device_is_an_error() {
        let (_, journal) = journal(64, CacheOptions::default());
        for nr in [64, 1 << 54, u64::MAX] {
            assert!(matches!(journal.cache().get(BlockNr(nr)), Err(Error::Device { .. })));
            assert!(matches!(journal.cache().get_new(BlockNr(nr)), Err(Error::Device { .. })));
            journal.cache().prefetch(BlockNr(nr), u32::MAX).unwrap();
        }
        assert_eq!(journal.cache().stats().cached_bytes, 0);
    }

    #[test]
    fn a_failed_read_leaves_nothing_behind() {
        let (device, journal) = journal(64, CacheOptions::default());
        device.fail_reads.store(true, Ordering::Relaxed);
        assert!(journal.cache().get(BlockNr(3)).is_err());
        assert!(journal.cache().prefetch(BlockNr(0), 8).is_err());
        device.fail_reads.store(false, Ordering::Relaxed);
        assert_eq!(journal.cache().get(BlockNr(3)).unwrap().read()[0], 3);
        assert_eq!(journal.cache().stats().cached_bytes, SIZE);
    }

    #[test]
    fn the_cache_stays_under_its_limit() {
        let options = CacheOptions { limit_bytes: 32 * SIZE, dirty_limit_bytes: 8 * SIZE };
        let (device, journal) = journal(4096, options);
        let held = journal.cache().get(BlockNr(0)).unwrap();
        for nr in 0..4096 {
            journal.cache().get(BlockNr(nr)).unwrap();
            assert!(journal.cache().stats().cached_bytes <= 33 * SIZE);
        }
        device.take_asked();
        journal.cache().get(BlockNr(0)).unwrap();
        assert_eq!(device.take_asked(), [], "a held block stays");
        drop(held);
    }

    #[test]
    fn a_block_asked_for_often_outlives_a_scan() {
        let options = CacheOptions { limit_bytes: 32 * SIZE, dirty_limit_bytes: 8 * SIZE };
        let (device, journal) = journal(4096, options);
        for nr in 1..4096 {
            journal.cache().get(BlockNr(0)).unwrap();
            journal.cache().get(BlockNr(nr)).unwrap();
        }
        let reads =
            device.take_asked().iter().filter(|a| matches!(a, Asked::Read { at: 0, .. })).count();
        assert!(reads < 8, "read {reads} times");
    }

    #[test]
    fn changed_blocks_survive_a_small_cache() {
        let options = CacheOptions { limit_bytes: 32 * SIZE, dirty_limit_bytes: 8 * SIZE };
        let (device, journal) = journal(512, options);
        for nr in 0..512 {
            change(&journal, nr, !(nr as u8));
            assert!(journal.cache().stats().dirty_bytes <= 9 * SIZE);
        }
        journal.sync().unwrap();
        assert_eq!(journal.cache().stats().dirty_bytes, 0);
        let want: Vec<u8> = (0..512 * SIZE).map(|at| !((at / SIZE) as u8)).collect();
        assert!(device.content() == want);
    }

    #[test]
    fn a_forgotten_block_is_never_written() {
        let (device, journal) = journal(64, CacheOptions::default());
        change(&journal, 5, 77);
        let handle = journal.start(Credits { blocks: 0, revokes: 1 }).unwrap();
        let old = journal.cache().get(BlockNr(5)).unwrap();
        handle.forget(BlockNr(5));
        old.write(&handle).unwrap().bytes_mut().fill(78);
        handle.stop().unwrap();
        journal.sync().unwrap();
        assert_eq!(journal.cache().stats().dirty_bytes, 0);
        assert_eq!(device.content()[5 * SIZE], 5);
        assert_eq!(journal.cache().get(BlockNr(5)).unwrap().read()[0], 5);
    }

    #[test]
    fn a_check_of_one_role_does_not_count_for_another() {
        let (_, journal) = journal(64, CacheOptions::default());
        let block = journal.cache().get(BlockNr(5)).unwrap();
        assert!(!block.is_verified());
        block.set_verified_as(0x1_0000_000c);
        assert!(block.is_verified_as(0x1_0000_000c) && !block.is_verified_as(0x2_0000_000c));
        let again = journal.cache().get_new(BlockNr(5)).unwrap();
        assert!(!again.is_verified_as(0x1_0000_000c));
    }

    #[test]
    fn blocks_freed_and_used_for_data_keep_the_data() {
        let options = CacheOptions { limit_bytes: 64 * SIZE, dirty_limit_bytes: 8 * SIZE };
        let (device, journal) = journal(256, options);
        std::thread::scope(|scope| {
            for thread in 0..4u64 {
                let (journal, device) = (&journal, &device);
                scope.spawn(move || {
                    // Each thread owns every fourth block; write-outs mix those of all.
                    for round in 0..60u64 {
                        for nr in (thread..256).step_by(4) {
                            change(journal, nr, 0xAA);
                            if (nr / 4 + round) % 3 == 0 {
                                journal.cache().forget(BlockNr(nr));
                                let data = [round as u8; SIZE];
                                device.write_at(ByteOffset(nr * SIZE as u64), &data).unwrap();
                            }
                        }
                    }
                });
            }
        });
        journal.sync().unwrap();
        let content = device.content();
        for (nr, block) in content.chunks(SIZE).enumerate() {
            let value = if (nr / 4 + 59) % 3 == 0 { 59 } else { 0xAA };
            assert!(block.iter().all(|byte| *byte == value), "block {nr}");
        }
    }

    #[test]
    #[should_panic(expected = "inside another")]
    fn a_handle_inside_a_handle_panics() {
        let (_, journal) = journal(64, CacheOptions::default());
        let _outer = journal.start(Credits::blocks(1)).unwrap();
        let _inner = journal.start(Credits::blocks(1));
    }

    #[test]
    fn many_threads_lose_no_change() {
        let options = CacheOptions { limit_bytes: 64 * SIZE, dirty_limit_bytes: 16 * SIZE };
        let (device, journal) = journal(256, options);
        let counter = |bytes: &[u8]| u32::from_le_bytes(bytes[..4].try_into().unwrap());
        {
            let handle = journal.start(Credits::blocks(256)).unwrap();
            for nr in 0..256 {
                let block = journal.cache().get_new(BlockNr(nr)).unwrap();
                block.write(&handle).unwrap().bytes_mut().fill(0);
            }
        }
        std::thread::scope(|scope| {
            for thread in 0..4u64 {
                let journal = &journal;
                scope.spawn(move || {
                    let mut random = 0x9E37_79B9 + thread;
                    for round in 0..4000 {
                        random ^= random << 13;
                        random ^= random >> 7;
                        random ^= random << 17;
                        let handle = journal.start(Credits::blocks(1)).unwrap();
                        let block = journal.cache().get(BlockNr(random % 256)).unwrap();
                        let change = block.write(&handle).unwrap();
                        let mut bytes = change.bytes_mut();
                        let next = counter(&bytes) + 1;
                        bytes[..4].copy_from_slice(&next.to_le_bytes());
                        bytes[SIZE - 4..].copy_from_slice(&next.to_le_bytes());
                        drop(bytes);
                        drop(handle);
                        if round % 500 == 0 {
                            journal.sync().unwrap();
                        }
                    }
                });
            }
        });
        journal.sync().unwrap();
        let content = device.content();
        let sum: u32 = content.chunks(SIZE).map(counter).sum();
        assert_eq!(sum, 16000);
        assert!(content.chunks(SIZE).all(|block| block[..4] == block[SIZE - 4..]));
    }
}
