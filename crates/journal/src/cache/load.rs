//! How blocks enter the cache and leave it.
//!
//! ```text
//!   get       in the table? else an empty block enters it ──read──► LOADED, or FAILED and out
//!   forget    out of the table, never written home
//!   reclaim   too many blocks: the clock evicts clean ones, write-out writes dirty ones home
//! ```
//!
//! The thread that adds a block to the table reads it; threads that want the same block wait for
//! that read.

use crate::cache::block::{Block, DIRTY, FAILED, LOADED, REFERENCED, Seq, WRITING};
use crate::cache::meta_block::MetaBlock;
use crate::cache::meta_cache::{MAX_RUN_BYTES, MetaCache};
use extant_base::{BlockNr, Error, IoOp, Result};
use std::sync::Arc;
use std::sync::atomic::Ordering;

impl MetaCache {
    /// The block `nr`, read from the device when it is not cached. Several threads that request one
    /// block read it once.
    ///
    /// Locks: takes `Leaf`, and `JournalState` when dirty blocks must be written to free memory;
    /// waits for I/O with none held.
    ///
    /// # Errors
    /// `Device`, also for a block beyond the device's end.
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
            // The thread that read it failed. Read it again, for an error of our own.
        }
    }

    /// The block `nr`, all zero, without reading it: for a newly allocated block. The caller fills
    /// all of it under a handle before it drops its reference.
    ///
    /// # Errors
    /// `Device` for a block beyond the device's end.
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
                let _ = self.reclaim();
            }
            return Ok(MetaBlock::new(block));
        }
    }

    /// Reads `count` blocks from `first` on into the cache, in few large reads. Skips blocks that
    /// are cached and blocks beyond the device's end.
    ///
    /// # Errors
    /// `Device`. This is a hint, so the caller may ignore it: [`MetaCache::get`] reports the same
    /// error.
    pub fn prefetch(&self, first: BlockNr, count: u32) -> Result<()> {
        let device_blocks = self.device.len() >> self.block_size.log2();
        // A prefetch of more than a quarter of the cache would evict its own blocks.
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

    /// Drops the block `nr`: its content is not written home any more. Waits for a write of the
    /// block that is in flight, so that the block can be used for file data at once.
    pub fn forget(&self, nr: BlockNr) {
        self.remove_freed(nr, 0);
    }

    /// [`MetaCache::forget`] in transaction `seq`. Returns the block, if it was cached.
    pub(crate) fn remove_freed(&self, nr: BlockNr, seq: Seq) -> Option<Arc<Block>> {
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

    fn zeroed(&self) -> Box<[u8]> {
        vec![0; self.block_size.bytes()].into_boxed_slice()
    }

    /// The block in the table; or a new empty one in it, and `true`: the caller must load it.
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
        // If write-out failed, the journal is aborted. Reads still work.
        let _ = self.reclaim();
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

    /// Removes a block whose read failed, unless it was forgotten meanwhile.
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
        // A waiter checks the flag under this lock, so it either sees the flag or is woken.
        drop(self.loading.lock());
        self.loaded.notify_all();
    }

    /// Waits until another thread has read `block`. Returns `false` if that read failed.
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
        let _ = self.reclaim();
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

    /// Evicts clean blocks when the cache holds too many, and writes dirty ones home when too many
    /// are dirty.
    fn reclaim(&self) -> Result<()> {
        self.limit_dirty()?;
        if self.cached.load(Ordering::Relaxed) <= self.sweep_above.load(Ordering::Relaxed) {
            return Ok(());
        }
        let limit = self.options.limit_bytes;
        let size = self.block_size.bytes();
        let mut out = Vec::new();
        // Two rounds, because the first one only clears REFERENCED.
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
        // If all blocks are held or dirty, a sweep for each new block would cost time and free
        // nothing.
        let cached = self.cached.load(Ordering::Relaxed);
        let above = if cached > limit { cached + limit / 64 } else { limit };
        self.sweep_above.store(above, Ordering::Relaxed);
        Ok(())
    }
}
