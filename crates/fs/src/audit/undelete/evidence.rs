//! What the volume still has: the log's old copies, and the blocks as they are now.

use super::map::Run;
use super::untagged::{self, Untagged};
use crate::state::inode::Body;
use crate::volume::Volume;
use extant_base::{BlockNr, GroupNr, Ino, Result, Tid};
use extant_journal::{FastCommitLog, Log, LogHistory, OldCopy, UntaggedBlock};
use extant_ondisk::features::Compat;
use extant_ondisk::inode::Inode as DiskInode;
use std::sync::atomic::{AtomicU64, Ordering};

/// The volume and its log.
pub(super) struct Evidence<'a> {
    pub(super) volume: &'a Volume,
    log: Option<Log>,
    pub(super) history: LogHistory,
    /// Blocks of the log whose home is not known.
    pub(super) untagged: Untagged,
    /// What fast commits recorded, the oldest first.
    pub(super) fast_commits: Vec<FastCommitLog>,
    /// The first block of each inode table, ascending.
    tables: Vec<(u64, GroupNr)>,
    /// How many more nodes, runs and directory blocks may be examined before the volume is treated
    /// as forged: one that is not has each block in a few maps at most.
    budget: AtomicU64,
}

/// The largest budget: about 400 MiB of runs.
const BUDGET_MAX: u64 = 1 << 24;

/// How a block's content at an earlier time is known.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Source {
    /// From the log's newest copy at that time.
    Log,
    /// From the block itself: the log has no later change of it.
    Home,
    /// From the log's first copy after that time: it may have changed in between.
    Later,
}

impl<'a> Evidence<'a> {
    pub(super) fn read(volume: &'a Volume) -> Result<Evidence<'a>> {
        // The log of an external journal is not at hand.
        let internal = volume.at_open().has_journal() && volume.at_open().journal_inum != 0;
        let place = match internal {
            true => volume.journal_file().place(None)?,
            false => None,
        };
        let mut log = place.map(|place| Log::open(place.device, place.map)).transpose()?;
        let mut fast_commits = Vec::new();
        if volume.has_compat(Compat::FAST_COMMIT) {
            log = log.map(Log::with_fast_commit_area);
            if let Some(log) = &log {
                fast_commits = log.old_fast_commits(volume.geometry().inode_size())?;
            }
        }
        let history = log.as_ref().map_or_else(|| Ok(LogHistory::default()), Log::history)?;
        fast_commits.sort_by_key(|commit| history.place(commit.tid()));
        let mut tables: Vec<_> = volume
            .geometry()
            .groups()
            .filter_map(|nr| Some((volume.space().groups().inode_table(nr).ok()?.0, nr)))
            .collect();
        tables.sort_unstable();
        let blocks = volume.geometry().blocks_count();
        let budget = blocks.saturating_mul(4).saturating_add(1 << 20).min(BUDGET_MAX);
        let budget = AtomicU64::new(budget);
        let untagged = Untagged::default();
        let mut evidence =
            Evidence { volume, log, history, untagged, fast_commits, tables, budget };
        untagged::find(&mut evidence)?;
        Ok(evidence)
    }

    /// Takes one node, run or directory block from the budget. Returns false if it is used up.
    pub(super) fn spend(&self) -> bool {
        self.budget
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1))
            .is_ok()
    }

    /// Takes what a path of this length needs from the budget. Returns false if it is used up.
    pub(super) fn spend_path(&self, bytes: usize) -> bool {
        (0..=bytes / 64).all(|_| self.spend())
    }

    /// The number of the first inode in `block`, if it is a block of an inode table.
    pub(super) fn first_inode_in(&self, block: BlockNr) -> Option<Ino> {
        let geometry = self.volume.geometry();
        let at = self.tables.partition_point(|(first, _)| *first <= block.0).checked_sub(1)?;
        let (first, group) = self.tables[at];
        let within = block.0 - first;
        (within < u64::from(geometry.itable_blocks())).then_some(())?;
        let slot = within * u64::from(geometry.inodes_per_block());
        geometry.ino_of_slot(group, u32::try_from(slot).ok()?)
    }

    /// Where the slot of an inode is: its block, and the bytes before it in the block.
    pub(super) fn slot_of(&self, ino: Ino) -> Option<(BlockNr, usize)> {
        let place = self.volume.geometry().inode_place(ino)?;
        let table = self.volume.space().groups().inode_table(place.group).ok()?;
        Some((BlockNr(table.0 + u64::from(place.table_block)), place.offset))
    }

    /// An inode as its slot is now, in use or not; `None` if the slot is damaged.
    pub(super) fn inode_now(&self, ino: Ino) -> Option<Body> {
        let (block, offset) = self.slot_of(ino)?;
        let mut bytes = self.block_buffer();
        self.read_now(block, &mut bytes).then_some(())?;
        self.inode_in(ino, bytes.get(offset..)?)
    }

    /// The inode in the slot at the start of `bytes`, if its checksum is right.
    pub(super) fn inode_in(&self, ino: Ino, bytes: &[u8]) -> Option<Body> {
        let slot = bytes.get(..self.volume.geometry().inode_size())?;
        let inode = DiskInode::parse(slot, ino, self.volume.inode_format()).ok()?;
        Some(Body::read_from(ino, inode, slot.into()))
    }

    /// A number that no transaction of the log is after.
    pub(super) fn newest(&self) -> Tid {
        self.history.commits().last().map_or(Tid(0), |commit| commit.tid)
    }

    /// Reads an old copy. Returns false if it is damaged.
    pub(super) fn read_old(&self, copy: &OldCopy, block: &mut [u8]) -> Result<bool> {
        self.log.as_ref().map_or(Ok(false), |log| log.read_old(copy, block))
    }

    /// Reads a block of the log that has no tag. Returns false if there is no log.
    pub(super) fn read_untagged(&self, of: &UntaggedBlock, block: &mut [u8]) -> Result<bool> {
        let Some(log) = &self.log else { return Ok(false) };
        log.read_untagged(of, block).map(|()| true)
    }

    /// Reads blocks as they are now. Returns false if they are outside the volume or cannot be
    /// read.
    pub(super) fn read_now(&self, first: BlockNr, bytes: &mut [u8]) -> bool {
        let size = self.volume.block_size();
        let count = (bytes.len() >> size.log2()) as u64;
        let inside = self.volume.geometry().holds(first, count);
        inside && self.volume.device().read_at(size.start_of(first), bytes).is_ok()
    }

    /// A buffer for one block.
    pub(super) fn block_buffer(&self) -> Vec<u8> {
        vec![0; self.volume.block_size().bytes()]
    }

    /// The log's copies of the blocks of a run.
    pub(super) fn copies_in(&self, run: &Run) -> &[OldCopy] {
        let copies = self.history.copies();
        let blocks = run.blocks();
        let start = copies.partition_point(|copy| copy.block.0 < blocks.start);
        let len = copies[start..].partition_point(|copy| copy.block.0 < blocks.end);
        &copies[start..start + len]
    }

    /// Reads a metadata block as it was after transaction `tid`, which is in the complete part of
    /// the log; `None` if its content is not known. From [`Source::Home`], the block may have got
    /// another use without a trace in the log, as file content.
    pub(super) fn read_as_of(
        &self,
        block: BlockNr,
        tid: Tid,
        bytes: &mut [u8],
    ) -> Result<Option<Source>> {
        let copies = self.history.copies_of(block).iter();
        let committed = copies.filter(|copy| self.history.committed_at(copy.tid).is_some());
        let (later, before): (Vec<&OldCopy>, Vec<&OldCopy>) =
            committed.partition(|copy| copy.tid.is_after(tid));
        let since = self.history.complete_since().map_or(tid, |commit| commit.tid);
        if let Some(copy) = before.first().filter(|copy| !since.is_after(copy.tid))
            && self.read_old(copy, bytes)?
        {
            return Ok(Some(Source::Log));
        }
        if later.is_empty() {
            return Ok(self.read_now(block, bytes).then_some(Source::Home));
        }
        for copy in later.iter().rev() {
            if self.read_old(copy, bytes)? {
                return Ok(Some(Source::Later));
            }
        }
        Ok(None)
    }
}
