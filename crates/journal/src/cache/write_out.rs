//! Write-out: dirty blocks go home in device order, neighbours in one write.
//!
//! ```text
//!   without a log: dirty lists of all shards ──┐
//!   with a log: the oldest transactions' lists ┴─sort──►  5 6 7   40 41   900
//!                                                         └─┬─┘   └─┬─┘    │
//!                                                        one write  one   one
//! ```
//!
//! One thread writes at a time (`MetaCache::writer`, `Rank::JournalState`), so an older copy of a
//! block never overwrites a newer one. A byte lock is held only while its block is copied. Without
//! a log a round continues where the last one ended. With a log the oldest transactions come first,
//! because they keep the log's tail from moving.

use crate::cache::block::{Block, DIRTY, Seq};
use crate::cache::checkpoint_queue::CheckpointList;
use crate::cache::meta_cache::{MAX_RUN_BYTES, MetaCache};
use crate::cache::writer::Writer;
use extant_base::lock::MutexGuard;
use extant_base::{BlockNr, Result};
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// The committed transactions that go home.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Share {
    /// The oldest ones, until at most this many bytes are dirty.
    DirtyDownTo(usize),
    /// All up to this one.
    UpTo(Seq),
}

impl MetaCache {
    /// Writes dirty blocks home when more bytes are dirty than the limit.
    #[inline]
    pub(crate) fn limit_dirty(&self) -> Result<()> {
        if self.dirty_bytes() > self.dirty_limit_bytes() {
            self.write_back(self.dirty_limit_bytes() / 2)?;
        }
        Ok(())
    }

    /// Writes dirty blocks home until at most `down_to_bytes` are dirty; with 0, every block that
    /// was dirty at the call. Errors: `Device`; the journal is then aborted, and the cache keeps
    /// the content.
    pub(crate) fn write_back(&self, down_to_bytes: usize) -> Result<()> {
        if self.running.load(Ordering::Relaxed) > 0 {
            return self.write_home(Share::DirtyDownTo(down_to_bytes)).map(drop);
        }
        let mut writer = self.writer.lock();
        self.refuse_if_aborted()?;
        let enough = || down_to_bytes > 0 && self.dirty_bytes() <= down_to_bytes;
        if enough() {
            return Ok(());
        }
        let mut numbers = Vec::new();
        for shard in &self.shards {
            numbers.append(&mut shard.lock().dirty);
        }
        numbers.sort_unstable();
        numbers.dedup();
        let start = numbers.partition_point(|nr| *nr < writer.next);
        numbers.rotate_left(start);
        let find = |nr: &u64| self.shard(BlockNr(*nr)).lock().find(BlockNr(*nr)).cloned();
        let blocks: Vec<_> = numbers.iter().filter_map(find).collect();

        let (used, done) = self.write_sorted(&mut writer, &blocks, enough);
        for block in &blocks[used..] {
            self.note_dirty(block.nr);
        }
        done
    }

    /// Writes blocks of committed transactions home, oldest transactions first, unless a later
    /// transaction has changed them. Returns the oldest transaction that must stay in the log.
    ///
    /// Errors: `Device`; the journal is aborted then.
    pub(crate) fn write_home(&self, share: Share) -> Result<Seq> {
        let mut writer = self.writer.lock();
        self.refuse_if_aborted()?;
        let mut lists = self.take_lists(share);
        let dirty = lists.iter().flat_map(|list| &list.blocks).filter(|block| block.has(DIRTY));
        let mut blocks: Vec<_> = dirty.cloned().collect();
        blocks.sort_unstable_by_key(|block| block.nr);
        let (_, done) = self.write_sorted(&mut writer, &blocks, || false);
        lists.iter_mut().for_each(CheckpointList::drop_stale);
        let mut checkpoint_queue = self.checkpoint_queue.lock();
        while let Some(list) = lists.pop() {
            checkpoint_queue.put_back(list);
        }
        done.map(|()| checkpoint_queue.oldest_needed())
    }

    /// Takes out the lists of `share`, oldest first.
    fn take_lists(&self, share: Share) -> Vec<CheckpointList> {
        let mut lists = Vec::new();
        let mut checkpoint_queue = self.checkpoint_queue.lock();
        let mut dirty = self.dirty_bytes();
        while let Some(mut list) = checkpoint_queue.pop() {
            list.drop_stale();
            let enough = match share {
                Share::DirtyDownTo(bytes) => bytes > 0 && dirty <= bytes,
                Share::UpTo(seq) => list.seq > seq,
            };
            if enough {
                checkpoint_queue.put_back(list);
                break;
            }
            let count = list.blocks.iter().filter(|block| block.has(DIRTY)).count();
            dirty = dirty.saturating_sub(count * self.block_size.bytes());
            lists.push(list);
        }
        lists
    }

    /// Writes the blocks that are still dirty, neighbours in one write, until `enough` says so.
    /// Returns how many blocks it has handled, and the result; a failure has aborted the journal.
    fn write_sorted(
        &self,
        writer: &mut MutexGuard<'_, Writer>,
        blocks: &[Arc<Block>],
        enough: impl Fn() -> bool,
    ) -> (usize, Result<()>) {
        let mut at = 0;
        let mut done = Ok(());
        while at < blocks.len() && !enough() && done.is_ok() {
            at += self.gather(writer, &blocks[at..]);
            done = self.write_run(writer);
        }
        if done.is_err() {
            self.abort();
        }
        (at, done)
    }

    /// Copies the first run of neighbours that are still dirty. Returns how many blocks it has
    /// handled.
    fn gather(&self, writer: &mut Writer, blocks: &[Arc<Block>]) -> usize {
        writer.bytes.clear();
        writer.run.clear();
        let most = (MAX_RUN_BYTES >> self.block_size.log2()).max(1);
        let mut used = 0;
        for block in blocks {
            let apart = writer.run.last().is_some_and(|(last, _)| last.nr.0 + 1 != block.nr.0);
            if apart || writer.run.len() == most {
                break;
            }
            used += 1;
            let content = block.content.read();
            if block.take_for_writing() {
                writer.bytes.extend_from_slice(&content.bytes);
                let logged = block.logged();
                drop(content);
                self.sub_dirty_bytes();
                writer.run.push((Arc::clone(block), logged));
            }
        }
        used
    }

    fn write_run(&self, writer: &mut Writer) -> Result<()> {
        let (Some((first, _)), Some((last, _))) = (writer.run.first(), writer.run.last()) else {
            return Ok(());
        };
        writer.next = last.nr.0 + 1;
        let written = self.device.write_at(self.block_size.start_of(first.nr), &writer.bytes);
        for (block, logged) in writer.run.drain(..) {
            if written.is_ok() {
                block.set_written(logged);
            } else if block.set_unwritten() {
                // The cache has the only good copy.
                self.add_dirty_bytes();
                self.note_dirty(block.nr);
            }
        }
        if written.is_ok() {
            let blocks = writer.bytes.len() >> self.block_size.log2();
            self.blocks_written.fetch_add(blocks as u64, Ordering::Relaxed);
            self.writes.fetch_add(1, Ordering::Relaxed);
        }
        written
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{CacheOptions, Credits, Journal};
    use extant_base::{BlockSize, Error};
    use extant_blockdev::BlockDevice;
    use extant_testdev::{Request, TestDevice};

    fn journal() -> (Arc<TestDevice>, Journal) {
        let device = Arc::new(TestDevice::new(vec![0; 64 << 10]));
        let block_size = BlockSize::from_bytes(1024).unwrap();
        let shared = Arc::clone(&device) as Arc<dyn BlockDevice>;
        (device, Journal::off(shared, block_size, CacheOptions::default()))
    }

    fn change(journal: &Journal, numbers: &[u64], value: u8) {
        let handle = journal.start(Credits::blocks(numbers.len() as u32)).unwrap();
        for nr in numbers {
            let block = journal.cache().get_new(BlockNr(*nr)).unwrap();
            block.write(&handle).unwrap().bytes_mut().fill(value);
        }
    }

    #[test]
    fn neighbours_go_home_in_one_write_in_device_order() {
        let (device, journal) = journal();
        change(&journal, &[41, 5, 60, 7, 40, 6], 1);
        journal.sync().unwrap();
        let write = |nr: u64, count: usize| Request::Write { at: nr * 1024, len: count * 1024 };
        assert_eq!(
            device.take_requests(),
            [write(5, 3), write(40, 2), write(60, 1), Request::Flush]
        );
        journal.sync().unwrap();
        assert_eq!(device.take_requests(), [Request::Flush]);
    }

    #[test]
    fn writing_back_in_part_goes_on_where_it_ended() {
        let (device, journal) = journal();
        change(&journal, &[10, 20, 30], 1);
        journal.write_back(2 * 1024).unwrap();
        change(&journal, &[5, 10], 2);
        journal.write_back(2 * 1024).unwrap();
        let write = |nr: u64| Request::Write { at: nr * 1024, len: 1024 };
        assert_eq!(device.take_requests(), [write(10), write(20), write(30)]);
        journal.sync().unwrap();
        assert_eq!(device.take_requests(), [write(5), write(10), Request::Flush]);
    }

    #[test]
    fn a_failed_write_refuses_further_handles_and_keeps_the_content() {
        let (device, journal) = journal();
        change(&journal, &[3], 9);
        device.fail_writes.store(true, Ordering::Relaxed);
        assert!(matches!(journal.sync(), Err(Error::Device { .. })));
        device.fail_writes.store(false, Ordering::Relaxed);
        assert!(matches!(journal.start(Credits::blocks(1)), Err(Error::Aborted { .. })));
        assert!(matches!(journal.sync(), Err(Error::Aborted { .. })));
        assert_eq!(journal.cache().get(BlockNr(3)).unwrap().read()[0], 9);
        assert_eq!(journal.cache().stats().dirty_bytes, 1024);
    }

    #[test]
    fn a_failed_flush_refuses_further_handles() {
        let (device, journal) = journal();
        device.fail_flushes.store(true, Ordering::Relaxed);
        assert!(matches!(journal.sync(), Err(Error::Device { .. })));
        assert!(matches!(journal.start(Credits::blocks(1)), Err(Error::Aborted { .. })));
    }
}
