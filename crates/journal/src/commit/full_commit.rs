//! A full commit: the running transaction becomes durable.
//!
//! ```text
//!   leader          one thread commits, others wait; threads that come later share the next one
//!
//!   close_running   no handle joins, the running ones stop, the next transaction opens
//!   mark_not_empty  superblock: the log is not empty, features that it needs;
//!                   fast commits of an earlier session are removed               first time only
//!   log_revokes     │revoke│
//!   log_copies      │revoke│descriptor│copies …│            one write if it fits
//!   seal            flush ─► │commit block│ flush                durable
//!   complete        blocks may go home, waiters continue
//! ```
//!
//! Rule J1: before a commit block is written, every block that it completes is durable. Any failure
//! aborts the journal, because a later commit block would make this transaction's blocks look
//! complete.

use crate::cache::block::{Block, Seq};
use crate::cache::checkpoint_queue::CheckpointList;
use crate::cache::write_out::Share;
use crate::commit::running::Running;
use crate::commit::transactions::Transactions;
use crate::log::space::Placed;
use crate::log::stream::LogStream;
use crate::log::watched::is_same_device;
use extant_base::{BlockNr, Error, Result, Tid};
use extant_ondisk::jbd2::commit::TransactionCrc;
use extant_ondisk::jbd2::{Commit, DescriptorWriter, RevokeWriter, header};
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// A closed transaction that is being written to the log.
struct Closing {
    seq: Seq,
    tid: Tid,
    /// The blocks to copy, in device order.
    blocks: Vec<Arc<Block>>,
    /// Freed blocks, ascending, without those that the transaction uses again.
    revoked: Vec<BlockNr>,
    /// Freed blocks whose older copies are not needed once this transaction is durable.
    forgotten: Vec<Arc<Block>>,
}

impl Closing {
    fn of(running: Running, tid: Tid) -> Closing {
        let Running { seq, mut blocks, mut revoked, forgotten, .. } = running;
        blocks.retain(|block| !block.was_forgotten_in(seq));
        blocks.sort_unstable_by_key(|block| block.nr);
        revoked.sort_unstable();
        revoked.dedup();
        // Rule J7: a revoke would also hide this transaction's own copy. So a block that was freed
        // and then used again is not revoked.
        revoked.retain(|nr| blocks.binary_search_by_key(nr, |block| block.nr).is_err());
        Closing { seq, tid, blocks, revoked, forgotten }
    }
}

impl Transactions {
    /// Commits the running transaction in full. The caller is the leader. Returns whether the
    /// transaction had changes.
    pub(super) fn full_commit(&self) -> Result<bool> {
        let Some(running) = self.close_running() else { return Ok(false) };
        let tid = self.tid_of(running.seq);
        let closing = Closing::of(running, tid);
        let (start, len) = self.write_transaction(&closing)?;
        self.complete(closing, start, len);
        self.counts.commits.fetch_add(1, Ordering::Relaxed);
        self.end_epoch()?;
        Ok(true)
    }

    /// Writes `closing` to the log and makes it durable. Returns its first log block and its
    /// length.
    fn write_transaction(&self, closing: &Closing) -> Result<(u32, u32)> {
        self.cache.refuse_if_aborted()?;
        let needed = self.area.needed(closing.blocks.len() as u64, closing.revoked.len() as u64);
        self.find_space(needed)?;
        let start = self.state.lock().space.head;
        self.log.lock().mark_not_empty(start, closing.tid, !closing.revoked.is_empty())?;
        self.begin_epochs()?;
        let mut buffer = self.buffer.lock();
        let mut stream = LogStream::new(&self.area, &mut buffer, start);
        self.log_revokes(closing, &mut stream)?;
        self.log_copies(closing, &mut stream)?;
        let at = stream.write_out()?;
        let len = stream.blocks + 1;
        self.seal(closing.tid, at)?;
        Ok((start, len))
    }

    /// Handles that changed more than they reserved may need more log space than was reserved.
    fn find_space(&self, needed: u64) -> Result<()> {
        if needed <= self.state.lock().space.free() {
            return Ok(());
        }
        self.checkpoint(Share::UpTo(Seq::MAX))?;
        let limit = self.state.lock().space.free();
        if needed > limit { Err(Error::TransactionTooLarge { needed, limit }) } else { Ok(()) }
    }

    /// Revokes go before the commit block: replay trusts only blocks that a commit block completes.
    fn log_revokes(&self, closing: &Closing, stream: &mut LogStream<'_>) -> Result<()> {
        let format = self.area.format;
        for revoked in closing.revoked.chunks(format.revokes_per_block()) {
            let mut writer = RevokeWriter::new(stream.take(1)?, format, closing.tid);
            for nr in revoked {
                let fits = writer.push(*nr);
                assert!(fits, "a revoke block holds as many records as its format says");
            }
            writer.finish();
        }
        Ok(())
    }

    fn log_copies(&self, closing: &Closing, stream: &mut LogStream<'_>) -> Result<()> {
        let format = self.area.format;
        let size = format.block_size.bytes();
        for blocks in closing.blocks.chunks(self.area.copies_per_descriptor()) {
            let (descriptor, copies) = stream.take(1 + blocks.len())?.split_at_mut(size);
            let mut writer = DescriptorWriter::new(descriptor, format, closing.tid);
            for (block, copy) in blocks.iter().zip(copies.chunks_exact_mut(size)) {
                block.copy_for_log(closing.seq, copy);
                let escape = header::needs_escape(copy);
                if escape {
                    header::escape(copy);
                }
                let sum = if format.has_tail() { format.copy_sum(closing.tid, copy) } else { 0 };
                let fits = writer.push(block.nr, escape, sum);
                assert!(fits, "a descriptor holds as many tags as its format says");
            }
            writer.finish();
        }
        Ok(())
    }

    /// Makes everything before it durable, then writes the commit block, durable on return.
    fn seal(&self, tid: Tid, at: u32) -> Result<()> {
        // File data was written to the volume's device, the copies to the log's.
        if !is_same_device(self.cache.device(), self.area.device()) {
            self.cache.device().flush()?;
        }
        self.area.device().flush()?;
        let mut block = extant_blockdev::AlignedBuf::zeroed(self.area.format.block_size.bytes());
        let now = (self.clock)();
        Commit::write(&mut block, &self.area.format, tid, now, TransactionCrc::default());
        self.area.write_fua(at, &block)
    }

    /// Lets the blocks of a durable transaction go home, and its waiters continue.
    fn complete(&self, closing: Closing, start: u32, len: u32) {
        for block in &closing.blocks {
            if block.set_logged(closing.seq) {
                self.cache.add_dirty_bytes();
            }
        }
        for block in &closing.forgotten {
            block.release_logged();
        }
        let list = CheckpointList { seq: closing.seq, blocks: closing.blocks };
        let mut state = self.state.lock();
        let head = self.area.cycle.after(start, len);
        state.space.place(Placed { seq: closing.seq, start, len }, head);
        // The list is pushed after `place`: before that, no checkpoint may count the log space as
        // free. It is pushed before waiters continue: a thread that closes the journal writes all
        // listed blocks home.
        self.cache.checkpoint_queue.lock().push(list);
        self.durable.store(closing.seq, Ordering::Release);
        let short = state.space.unreserved() < u64::from(self.area.cycle.len()) / 2;
        drop(state);
        if short || self.cache.is_half_dirty() {
            self.signal.request_checkpoint();
        }
    }
}
