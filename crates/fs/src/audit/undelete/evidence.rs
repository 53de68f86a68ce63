//! What the volume still has: the log's old copies, and the blocks as they are now.

use super::State;
use super::map::{Map, Run};
use crate::volume::Volume;
use extant_base::{BlockNr, GroupNr, Ino, Result, Tid, narrow};
use extant_journal::{Log, LogHistory, OldCopy};
use extant_ondisk::bitmap;
use rangemap::RangeSet;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};

/// The volume and its log.
pub(super) struct Evidence<'a> {
    pub(super) volume: &'a Volume,
    log: Option<Log>,
    pub(super) history: LogHistory,
    /// The first block of each inode table, ascending.
    tables: Vec<(u64, GroupNr)>,
    /// How many more nodes, runs and directory blocks may be examined before the volume is treated
    /// as forged: one that is not has each block in a few maps at most.
    budget: AtomicU64,
}

/// The largest budget: about 400 MiB of runs.
const BUDGET_MAX: u64 = 1 << 24;

impl<'a> Evidence<'a> {
    pub(super) fn read(volume: &'a Volume) -> Result<Evidence<'a>> {
        // The log of an external journal is not at hand.
        let internal = volume.at_open().has_journal() && volume.at_open().journal_inum != 0;
        let place = match internal {
            true => volume.journal_file().place(None)?,
            false => None,
        };
        let log = place.map(|place| Log::open(place.device, place.map)).transpose()?;
        let history = log.as_ref().map_or_else(|| Ok(LogHistory::default()), Log::history)?;
        let mut tables: Vec<_> = volume
            .geometry()
            .groups()
            .filter_map(|nr| Some((volume.space().groups().inode_table(nr).ok()?.0, nr)))
            .collect();
        tables.sort_unstable();
        let blocks = volume.geometry().blocks_count();
        let budget = blocks.saturating_mul(4).saturating_add(1 << 20).min(BUDGET_MAX);
        Ok(Evidence { volume, log, history, tables, budget: AtomicU64::new(budget) })
    }

    /// Takes one node, run or directory block from the budget. Returns false if it is used up.
    pub(super) fn spend(&self) -> bool {
        self.budget
            .fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| left.checked_sub(1))
            .is_ok()
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

    /// A number that no transaction of the log is after.
    pub(super) fn newest(&self) -> Tid {
        self.history.commits().last().map_or(Tid(0), |commit| commit.tid)
    }

    /// Reads an old copy. Returns false if it is damaged.
    pub(super) fn read_old(&self, copy: &OldCopy, block: &mut [u8]) -> Result<bool> {
        self.log.as_ref().map_or(Ok(false), |log| log.read_old(copy, block))
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

    /// What is left of the blocks of a map, and the runs of them: without those that are in use
    /// now, those that a later deleted file had (`later`), and those that were written as metadata
    /// after transaction `gone`.
    pub(super) fn state_of(
        &self,
        map: &Map,
        later: &RangeSet<u64>,
        gone: Option<Tid>,
    ) -> Result<(State, Vec<Run>)> {
        let mut left = Vec::new();
        for run in &map.runs {
            let mut written: RangeSet<u64> = later.overlapping(run.blocks()).cloned().collect();
            let was_later = |copy: &&OldCopy| gone.is_some_and(|gone| copy.tid.is_after(gone));
            for copy in self.copies_in(run).iter().filter(was_later) {
                written.insert(copy.block.0..copy.block.0 + 1);
            }
            for part in written.gaps(&run.blocks()) {
                self.add_free_parts(&run.part(&part), &mut left)?;
            }
        }
        let blocks = |runs: &[Run]| runs.iter().map(|run| u64::from(run.len)).sum::<u64>();
        let (all, free_blocks) = (blocks(&map.runs), blocks(&left));
        let state = match free_blocks {
            free if free == all && !map.damaged => State::Whole,
            0 => State::Gone,
            free_blocks => State::Partial {
                free_blocks,
                reused_blocks: all - free_blocks,
                map_damaged: map.damaged,
            },
        };
        Ok((state, left))
    }

    /// Adds the parts of `run` whose blocks are free now.
    fn add_free_parts(&self, run: &Run, free: &mut Vec<Run>) -> Result<()> {
        let geometry = self.volume.geometry();
        let ratio = geometry.log_cluster_ratio();
        let Range { start: mut at, end } = run.blocks();
        while at < end {
            let Some(group) = geometry.group_of_block(BlockNr(at)) else { break };
            let Some(blocks) = geometry.blocks_of_group(group) else { break };
            let upto = end.min(blocks.end);
            let bit = |block: u64| narrow::fits_u32((block - blocks.start) >> ratio);
            let map = self.volume.space().groups().block_bitmap(group)?;
            map.with(|bytes| {
                for bits in bitmap::zero_runs(bytes, bit(at)..bit(upto - 1) + 1) {
                    if !self.spend() {
                        break;
                    }
                    let block = |bit: u32| blocks.start + (u64::from(bit) << ratio);
                    let part = block(bits.start).max(at)..block(bits.end).min(upto);
                    free.push(run.part(&part));
                }
            });
            at = upto;
        }
        Ok(())
    }
}
