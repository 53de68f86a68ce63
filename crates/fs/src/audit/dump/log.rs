//! The blocks of the log that show no content of files.
//!
//! ```text
//!   log   │ superblock │ descriptor │ copy of a bitmap │ copy of data │ commit │ fast commits │
//!           kept         kept         kept               left out       kept     kept
//! ```
//!
//! With `data=journal` the log has data, too, and a log that was not zeroed has anything. So a
//! block is kept if it starts with the header of the journal, if it has records of fast commits, or
//! if it is the copy of a block that holds metadata now.

use super::scan::{Kind, Piece};
use crate::audit::check::map::Gather;
use crate::audit::check::pass1::own;
use crate::audit::check::scatter::read_run;
use crate::audit::check::view::View;
use extant_base::narrow::len_u32;
use extant_base::{BlockNr, Ino, Site, Tid};
use extant_journal::{Log, LogMap, LogRun};
use extant_ondisk::fast_commit::Records;
use extant_ondisk::jbd2::Header;
use hashbrown::HashMap;
use std::ops::Range;
use std::sync::Arc;

/// The longest log of which copies are kept, in blocks: the most that mke2fs makes.
const LOG_BLOCKS_MAX: u32 = 10_240_000;

/// How many blocks are read at a time.
const BATCH: u32 = 64;

/// The log of a volume.
pub(super) struct LogBlocks {
    pub(super) pieces: Vec<Piece>,
    /// Blocks that are not zero and not kept.
    pub(super) left_out: u64,
    /// One of those is a copy that a replay needs.
    pub(super) lacks_needed: bool,
}

/// The blocks of the internal log that are kept. With `only_superblock`, only the first. A block is
/// metadata if `is_metadata` says so.
pub(super) fn find(
    view: &View<'_>,
    only_superblock: bool,
    is_metadata: &dyn Fn(BlockNr) -> bool,
) -> LogBlocks {
    let mut found = LogBlocks { pieces: Vec::new(), left_out: 0, lacks_needed: false };
    if !view.sb.has_journal() {
        return found;
    }
    let Some((inode, runs)) = Ino::new(view.sb.journal_inum).and_then(|ino| own::open(view, ino))
    else {
        return found;
    };
    let blocks = u32::try_from(inode.size >> view.geometry.block_size().log2()).unwrap_or(0);
    let places = Places::of(view, &runs, blocks);
    let mut bytes = vec![0; BATCH as usize * view.block_bytes()];
    for run in &runs.runs {
        let mut at = run.logical;
        let end = run.logical.saturating_add(run.len).min(blocks);
        while at < end {
            let count = BATCH.min(end - at);
            let bytes = &mut bytes[..count as usize * view.block_bytes()];
            let first = run.physical + u64::from(at - run.logical);
            read_run(view, first, bytes);
            for (n, block) in bytes.chunks_exact(view.block_bytes()).enumerate() {
                let logical = at + len_u32(n);
                let is_kept = match only_superblock {
                    true => logical == 0,
                    false => logical == 0 || places.is_kept(view, logical, block, is_metadata),
                };
                match is_kept {
                    true => found.pieces.push(Piece {
                        first: first + n as u64,
                        len: 1,
                        kind: Kind::Log,
                    }),
                    false => {
                        found.left_out += u64::from(block.iter().any(|byte| *byte != 0));
                        found.lacks_needed |= places.is_needed(logical);
                    }
                }
            }
            at += count;
        }
    }
    found
}

/// What the blocks of a log are.
#[derive(Default)]
struct Places {
    /// The newest copy at each place in the log: its home, its transaction, and whether a replay
    /// needs it.
    homes: HashMap<u32, (BlockNr, Tid, bool)>,
    fast_commits: Range<u32>,
}

impl Places {
    /// Reads the log. A log that cannot be read has no copies.
    fn of(view: &View<'_>, runs: &Gather, blocks: u32) -> Places {
        let none = Places { homes: HashMap::new(), fast_commits: 0..0 };
        if !runs.has_no_hole(blocks) || blocks > LOG_BLOCKS_MAX {
            return none;
        }
        let size = view.geometry.block_size();
        let log_runs = runs.runs.iter().filter(|run| run.logical < blocks).map(|run| LogRun {
            first: run.logical,
            count: run.len.min(blocks - run.logical),
            at: size.start_of(BlockNr(run.physical)),
        });
        let opened = LogMap::new(size, log_runs.collect())
            .and_then(|map| Log::open(Arc::clone(&view.device), map));
        let Ok(log) = opened else { return none };
        let Ok(history) = log.history() else { return none };
        let superblock = log.superblock();
        let is_needed = |tid| superblock.start.is_some() && !superblock.sequence.is_after(tid);
        let mut homes: HashMap<u32, (BlockNr, Tid, bool)> = HashMap::new();
        for copy in history.copies() {
            let one = (copy.block, copy.tid, is_needed(copy.tid));
            let newest = homes.entry(copy.place()).or_insert(one);
            if copy.tid.is_after(newest.1) {
                *newest = one;
            }
        }
        Places { homes, fast_commits: log.superblock().fast_commit_area() }
    }

    fn is_needed(&self, logical: u32) -> bool {
        self.homes.get(&logical).is_some_and(|(.., is_needed)| *is_needed)
    }

    fn is_kept(
        &self,
        view: &View<'_>,
        logical: u32,
        block: &[u8],
        is_metadata: &dyn Fn(BlockNr) -> bool,
    ) -> bool {
        if Header::read(block).is_some() {
            return true;
        }
        if self.fast_commits.contains(&logical) {
            let mut records = Records::new(block, view.geometry.inode_size(), Site::NOWHERE);
            let mut count = 0;
            return records.all(|record| {
                count += 1;
                record.is_ok()
            }) && count > 0;
        }
        self.homes.get(&logical).is_some_and(|(home, ..)| is_metadata(*home))
    }
}
