//! Moving the journal itself, with the journal.
//!
//! ```text
//!   1  new location zeroed, an empty log's superblock in it        nothing refers to it yet
//!   2  the step (bitmaps, inode 8, superblock's copy of its map) committed to the new log
//!   3  inode 8's slot, one sector, points to the new location      ◄── before: old size, old log
//!   4  the step is checkpointed                                    ◄── after: the new log has it
//! ```
//!
//! The old log is empty all this time, so recovery with the old log replays nothing.

use super::shrink::Shrink;
use super::tree::joined;
use crate::inodes::map::used::Used;
use crate::state::inode::Body;
use extant_base::narrow::fits_usize;
use extant_base::{BlockNr, ByteOffset, Error, Ino, LogicalBlock, Result};
use extant_blockdev::BlockDevice;
use extant_journal::Log;
use extant_ondisk::extent::{Extent, ExtentState, MAX_LEN};
use extant_ondisk::jbd2::JournalSuperblock;

/// A device does not tear a sector.
const SECTOR: u64 = 512;

impl Shrink<'_> {
    /// Moves the journal if a part of it is beyond the new end.
    pub(super) fn move_journal(&mut self) -> Result<()> {
        let Some(ino) = Ino::new(self.volume.at_open().journal_inum) else { return Ok(()) };
        if self.exclusive.staged.log().is_none() {
            return Ok(());
        }
        let mut body = self.volume.inodes().read(ino)?;
        let (mut held, mut is_past_end) = (Vec::new(), false);
        self.volume.file(&body).each_block(&mut |used| {
            let (start, len) = match used {
                Used::Data { start, len, .. } => (start, u64::from(len)),
                Used::Node(block) => (block, 1),
            };
            is_past_end |= start.0 + len > self.end;
            held.push((start, len));
            Ok(())
        })?;
        if !is_past_end {
            return Ok(());
        }
        if !body.has_extents() {
            return Err(Error::NotSupported(
                "the journal lies where the volume is to end, and has no extents: remove it first",
            ));
        }
        self.commit_step()?;
        let blocks = u32::try_from(body.disk.size >> self.volume.block_size().log2())
            .map_err(|_| Error::FileTooLarge)?;
        let extents = self.place_log(blocks)?;
        let nodes = self.write_tree(&mut body, &joined(extents.clone()))?;
        let ratio = u64::from(self.volume.geometry().cluster_ratio());
        let clusters = u64::from(blocks).div_ceil(ratio) + nodes.len() as u64;
        body.disk.sectors = self.volume.context().sectors(clusters * ratio);
        for extent in &extents {
            self.mark_used(extent.physical, u64::from(extent.len))?;
        }
        for node in nodes {
            self.mark_used(node, 1)?;
        }
        for (start, len) in held {
            self.mark_free(start, len)?;
            self.done.moved_blocks += len;
        }
        self.store(&mut body)?;
        self.copy_map_to_superblock(&body);
        self.switch_log(&body)
    }

    /// Takes and zeroes free blocks for a log of `blocks` blocks, and writes the superblock of an
    /// empty log.
    fn place_log(&mut self, blocks: u32) -> Result<Vec<Extent>> {
        let bs = self.volume.block_size();
        let ratio = self.volume.geometry().cluster_ratio();
        let mut extents: Vec<Extent> = Vec::new();
        let mut at = 0;
        while at < blocks {
            let want = (blocks - at).min(MAX_LEN / ratio * ratio);
            let (physical, got) = self.free.take(want.div_ceil(ratio))?;
            let len = want.min(got.saturating_mul(ratio));
            extents.push(Extent {
                logical: LogicalBlock(at),
                len,
                physical,
                state: ExtentState::Written,
            });
            let zeros = vec![0; bs.bytes()];
            for n in 0..u64::from(len) {
                let block = BlockNr(physical.0 + n);
                self.exclusive.staged.write_free(bs.start_of(block), &zeros)?;
            }
            at += len;
        }
        let log = self.exclusive.staged.log().ok_or(Error::NotFound)?;
        let empty = JournalSuperblock {
            start: None,
            sequence: log.superblock().sequence,
            head: 0,
            errno: 0,
            ..log.superblock().clone()
        };
        let mut block = vec![0; bs.bytes()];
        self.exclusive.staged.home().read_at(self.log_start()?, &mut block)?;
        empty.write(&mut block);
        let first = extents.first().ok_or(Error::NoSpace)?.physical;
        self.exclusive.staged.write_free(bs.start_of(first), &block)?;
        Ok(extents)
    }

    fn log_start(&self) -> Result<ByteOffset> {
        let log = self.exclusive.staged.log().ok_or(Error::NotFound)?;
        log.map().locate(0).map(|(at, _)| at).ok_or(Error::NotFound)
    }

    fn copy_map_to_superblock(&self, body: &Body) {
        let mut sb = self.volume.context().superblock().write();
        if sb.jnl_backup_type != 1 {
            return;
        }
        crate::offline::mkfs::reserved::copy_map(&mut sb, body);
    }

    /// Commits the move into the log at its new location.
    fn switch_log(&mut self, body: &Body) -> Result<()> {
        self.prepare()?;
        let volume = &self.volume;
        let staged_log = volume.file(body).log_runs()?;
        let home = self.exclusive.staged.home().clone();
        let log = Log::open(home.clone(), staged_log)?;
        let recovery = log.recover(&*home, crate::open::exclusive::limits(volume.at_open()))?;
        let place = volume.geometry().inode_place(body.ino()).ok_or(Error::NotFound)?;
        let table = volume.space().descriptor(place.group)?.inode_table;
        let block = BlockNr(table.0 + u64::from(place.table_block));
        let at = volume.block_size().start_of(block).0 + place.offset as u64;
        let at = ByteOffset(at / SECTOR * SECTOR);
        let staged = self.exclusive.staged.device();
        let mut switch = || {
            let mut sector = [0; fits_usize(SECTOR)];
            staged.read_at(at, &mut sector)?;
            // A move changes only the map and its checksum, which are in the first 512 bytes of a
            // slot.
            home.write_fua(at, &sector)
        };
        let now = self.exclusive.now();
        let count = volume.geometry().blocks_count();
        self.exclusive.staged.commit_into(log, recovery, count, now, &mut switch)?;
        self.free.step_committed();
        Ok(())
    }
}
