//! What is left of the blocks of a file.
//!
//! ```text
//!   runs of the map ─┬─ written later: by a later file, or as metadata ──► lost
//!                    ├─ in use: by the file itself ──► left
//!                    │          by another one ──────► lost
//!                    └─ free ────────────────────────► left
//! ```

use super::State;
use super::evidence::Evidence;
use super::map::{Map, Run};
use extant_base::{BlockNr, Result, Tid, narrow};
use extant_journal::OldCopy;
use extant_ondisk::bitmap;
use rangemap::RangeSet;
use std::ops::Range;

/// What happened to blocks after a file had them.
pub(super) struct Since<'a> {
    /// Blocks that other files had later.
    pub(super) later: &'a RangeSet<u64>,
    /// Blocks that the file still has.
    pub(super) own: &'a RangeSet<u64>,
    /// A copy in the log after this transaction shows that a block was written as metadata.
    pub(super) gone: Option<Tid>,
}

/// What is left of a file's blocks.
pub(super) struct Left {
    pub(super) state: State,
    /// Runs whose blocks can be read, ascending in the file.
    pub(super) runs: Vec<Run>,
    /// Blocks of the file that are lost.
    pub(super) lost: RangeSet<u64>,
}

impl Left {
    pub(super) fn of(evidence: &Evidence<'_>, map: &Map, since: &Since<'_>) -> Result<Left> {
        let mut runs = Vec::new();
        for run in &map.runs {
            let blocks = run.blocks();
            let mut written: RangeSet<u64> = since.later.overlapping(&blocks).cloned().collect();
            let was_later = |copy: &&OldCopy| since.gone.is_some_and(|tid| copy.tid.is_after(tid));
            for copy in evidence.copies_in(run).iter().filter(was_later) {
                written.insert(copy.block.0..copy.block.0 + 1);
            }
            for part in written.gaps(&blocks) {
                add_kept(evidence, &run.part(&part), since.own, &mut runs)?;
            }
        }
        let count = |runs: &[Run]| runs.iter().map(|run| u64::from(run.len)).sum::<u64>();
        let (all, free_blocks) = (count(&map.runs), count(&runs));
        let state = match free_blocks {
            free if free == all && !map.damaged => State::Whole,
            0 => State::Gone,
            free_blocks => State::Partial {
                free_blocks,
                reused_blocks: all - free_blocks,
                map_damaged: map.damaged,
            },
        };
        let left: RangeSet<u64> = runs.iter().map(Run::in_file).collect();
        let mut lost = RangeSet::new();
        for run in map.runs.iter().map(Run::in_file) {
            lost.extend(left.gaps(&run));
        }
        Ok(Left { state, runs, lost })
    }
}

/// Adds the parts of `run` that the file still has, and those that are free now.
fn add_kept(
    evidence: &Evidence<'_>,
    run: &Run,
    own: &RangeSet<u64>,
    kept: &mut Vec<Run>,
) -> Result<()> {
    let blocks = run.blocks();
    let mut at = blocks.start;
    while at < blocks.end {
        let (end, is_own) = match own.get(&at) {
            Some(part) => (part.end.min(blocks.end), true),
            None => {
                let next = own.overlapping(at..blocks.end).next();
                (next.map_or(blocks.end, |next| next.start.min(blocks.end)), false)
            }
        };
        match is_own {
            true => kept.push(run.part(&(at..end))),
            false => add_free(evidence, &run.part(&(at..end)), kept)?,
        }
        at = end;
    }
    Ok(())
}

/// Adds the parts of `run` whose blocks are free now.
pub(super) fn add_free(evidence: &Evidence<'_>, run: &Run, free: &mut Vec<Run>) -> Result<()> {
    let geometry = evidence.volume.geometry();
    let ratio = geometry.log_cluster_ratio();
    let Range { start: mut at, end } = run.blocks();
    while at < end {
        let Some(group) = geometry.group_of_block(BlockNr(at)) else { break };
        let Some(blocks) = geometry.blocks_of_group(group) else { break };
        let upto = end.min(blocks.end);
        let bit = |block: u64| narrow::fits_u32((block - blocks.start) >> ratio);
        let map = evidence.volume.space().groups().block_bitmap(group)?;
        map.with(|bytes| {
            for bits in bitmap::zero_runs(bytes, bit(at)..bit(upto - 1) + 1) {
                if !evidence.spend() {
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
