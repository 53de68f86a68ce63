//! A commit: the running transaction becomes durable.
//!
//! ```text
//!   who asks:   one leads, the others wait for it; those who come during it share the next one
//!
//!   close_running   no handle joins, the last one stops, the next transaction opens
//!   announce        superblock: the log is not empty, features it needs; no fast commits
//!                   of an older life behind it                                   first time only
//!   log_revokes     │revoke│
//!   log_copies      │revoke│descriptor│copies …│            one write where it fits
//!   seal            flush ─► │commit block│ flush                durable
//!   settle          blocks may go home, waiters go on
//! ```
//!
//! Rule J1: every block that a commit block closes is durable before it. A failure anywhere
//! aborts: a later commit must not make this one's blocks look whole.

use crate::cache::block::{Block, Seq};
use crate::cache::homeward::HomeList;
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

/// A closed transaction on its way into the log.
struct Closing {
    seq: Seq,
    tid: Tid,
    /// To be copied, in device order.
    blocks: Vec<Arc<Block>>,
    /// Ascending, without those that were taken into use again.
    revoked: Vec<BlockNr>,
    /// Freed blocks whose older copies nobody needs once this is durable.
    forgotten: Vec<Arc<Block>>,
}

impl Closing {
    fn of(running: Running, tid: Tid) -> Closing {
        let Running { seq, mut blocks, mut revoked, forgotten, .. } = running;
        blocks.retain(|block| !block.was_forgotten_in(seq));
        blocks.sort_unstable_by_key(|block| block.nr);
        revoked.sort_unstable();
        revoked.dedup();
        // Rule J7: a revoke hides this transaction's own copy too: freed and used again is not revoked.
        revoked.retain(|nr| blocks.binary_search_by_key(nr, |block| block.nr).is_err());
        Closing { seq, tid, blocks, revoked, forgotten }
    }
}

impl Transactions {
    /// Commits the running transaction in full, as the only thread that commits; whether it had changes.
    pub(super) fn full_commit(&self) -> Result<bool> {
        let Some(running) = self.close_running() else { return Ok(false) };
        let tid = self.tid_of(running.seq);
        let closing = Closing::of(running, tid);
        let (start, len) = self.write_transaction(&closing)?;
        self.settle(closing, start, len);
        self.counts.commits.fetch_add(1, Ordering::Relaxed);
        self.end_epoch()?;
        Ok(true)
    }

    /// Writes `closing` to the log and makes it durable; its first block and how many it has.
    fn write_transaction(&self, closing: &Closing) -> Result<(u32, u32)> {
        self.cache.refuse_if_aborted()?;
        let needed = self.area.needed(closing.blocks.len() as u64, closing.revoked.len() as u64);
        self.find_space(needed)?;
        let start = self.state.lock().space.head;
        self.log.lock().announce(start, closing.tid, !closing.revoked.is_empty())?;
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

    /// What changed more than it promised may need more of the log than was kept for it.
    fn find_space(&self, needed: u64) -> Result<()> {
        if needed <= self.state.lock().space.free() {
            return Ok(());
        }
        self.checkpoint(Share::UpTo(Seq::MAX))?;
        let limit = self.state.lock().space.free();
        if needed > limit { Err(Error::TransactionTooLarge { needed, limit }) } else { Ok(()) }
    }

    /// Revokes go before the commit block: replay trusts only what a commit block closes.
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

    /// Makes everything before it durable, then the commit block.
    fn seal(&self, tid: Tid, at: u32) -> Result<()> {
        // File data went to the volume's device, the copies to the log's.
        if !is_same_device(self.cache.device(), self.area.device()) {
            self.cache.device().flush()?;
        }
        self.area.device().flush()?;
        let mut block = extant_blockdev::AlignedBuf::zeroed(self.area.format.block_size.bytes());
        let now = (self.clock)();
        Commit::write(&mut block, &self.area.format, tid, now, TransactionCrc::default());
        self.area.write_fua(at, &block)
    }

    /// Lets the blocks of a durable transaction go home, and its waiters go on.
    fn settle(&self, closing: Closing, start: u32, len: u32) {
        for block in &closing.blocks {
            if block.set_logged(closing.seq) {
                self.cache.add_dirty_bytes();
            }
        }
        for block in &closing.forgotten {
            block.release_logged();
        }
        let list = HomeList { seq: closing.seq, blocks: closing.blocks };
        let mut state = self.state.lock();
        let head = self.area.cycle.after(start, len);
        state.space.place(Placed { seq: closing.seq, start, len }, head);
        // After the place in the log is noted: until then nobody may count it as given back. Before
        // waiters go on: who closes the journal brings home what is listed.
        self.cache.homeward.lock().push(list);
        self.durable.store(closing.seq, Ordering::Release);
        let short = state.space.unreserved() < u64::from(self.area.cycle.len()) / 2;
        drop(state);
        if short || self.cache.is_half_dirty() {
            self.signal.ask_for_checkpoint();
        }
    }
}
