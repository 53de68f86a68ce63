//! Walking the blocks of one inode, for both kinds of map, as far as the map is valid.
//!
//! ```text
//!   i_block ─┬─ extent tree ─► node? ─► checked whole ─► runs ─► Sink::data
//!            │                  └ bad: Sink::wrong, nothing below it is walked
//!            └─ block map ───► pointer block? ─► pointers, joined to runs
//! ```
//!
//! Each node is read once for each inode that points to it, if the sink permits it. The sink
//! refuses blocks that are already claimed, so a forged map cannot make the walk endless.

use super::view::View;
use extant_base::narrow::len_u32;
use extant_base::{BlockNr, Error, Ino, Site, What};
use extant_ondisk::block_map::{DIRECT, pointers};
use extant_ondisk::extent::{ExtentNode, ExtentState, NodeRules, capacity};
use extant_ondisk::inode::I_BLOCK_SIZE;

/// Blocks that are adjacent in the file and on the volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::audit) struct Run {
    pub(in crate::audit) logical: u32,
    pub(in crate::audit) physical: u64,
    pub(in crate::audit) len: u32,
    pub(in crate::audit) written: bool,
}

/// Receives what a walk finds.
pub(in crate::audit) trait Sink {
    /// A run of data, in logical order. Returning false ends the walk.
    fn data(&mut self, run: Run) -> bool;
    /// A block with more of the map, `level` levels above the data. If this returns false, it is
    /// not walked.
    fn node(&mut self, block: u64, level: u32) -> bool;
    /// Damage; the walk continues with the next part. Returning false ends the walk.
    fn wrong(&mut self, error: Error) -> bool;
}

/// Buffers for nodes, one per level, reused by later walks.
#[derive(Default)]
pub(in crate::audit) struct Buffers(Vec<Vec<u8>>);

impl Buffers {
    fn take(&mut self, len: usize) -> Vec<u8> {
        let mut buf = self.0.pop().unwrap_or_default();
        buf.resize(len, 0);
        buf
    }
}

/// An inode's map as stored in its slot.
pub(in crate::audit) struct Map<'a> {
    pub(in crate::audit) ino: Ino,
    pub(in crate::audit) extents: bool,
    pub(in crate::audit) i_block: &'a [u8; I_BLOCK_SIZE],
    /// The inode's seed; `None` without `metadata_csum`.
    pub(in crate::audit) seed: Option<u32>,
}

/// Walks all of a map.
pub(in crate::audit) fn walk(
    view: &View<'_>,
    map: &Map<'_>,
    buffers: &mut Buffers,
    sink: &mut dyn Sink,
) {
    let mut walk = Walk { view, map, buffers, sink };
    if map.extents {
        let rules = NodeRules::root(&view.geometry);
        walk.extents(map.i_block, &rules, Site::of_ino(map.ino));
    } else {
        walk.block_map();
    }
}

struct Walk<'w, 'v> {
    view: &'w View<'v>,
    map: &'w Map<'w>,
    buffers: &'w mut Buffers,
    sink: &'w mut dyn Sink,
}

impl Walk<'_, '_> {
    fn extents(&mut self, bytes: &[u8], rules: &NodeRules, at: Site) -> bool {
        let node = match ExtentNode::check(bytes, rules, at) {
            Ok(node) => node,
            Err(error) => return self.sink.wrong(error),
        };
        // No writer stores less, except two entries for the checksum; e2fsck clears such a node.
        if node.max() + 2 < usize::from(capacity(bytes.len())) {
            self.view.error(What::ExtentHeader, at);
        }
        for extent in node.extents() {
            let run = Run {
                logical: extent.logical.0,
                physical: extent.physical.0,
                len: extent.len,
                written: extent.state == ExtentState::Written,
            };
            if !self.sink.data(run) {
                return false;
            }
        }
        // The depth decreases with every level, so the recursion ends.
        for (n, index) in node.indexes().enumerate() {
            if !self.sink.node(index.child.0, u32::from(node.depth())) {
                continue;
            }
            let mut child = self.buffers.take(self.view.block_bytes());
            let at = Site::of_ino(self.map.ino).block(index.child);
            let mut continues = true;
            if self.view.read_blocks(index.child, &mut child, at) {
                let rules = rules.child(&node, n, self.map.seed);
                continues = self.extents(&child, &rules, at);
            }
            self.buffers.0.push(child);
            if !continues {
                return false;
            }
        }
        true
    }

    fn block_map(&mut self) -> bool {
        let mut run = None;
        let at = Site::of_ino(self.map.ino);
        let mut logical = 0u64;
        for (slot, pointer) in pointers(self.map.i_block).enumerate() {
            let level = len_u32(slot).saturating_sub(DIRECT - 1);
            if !self.pointer(pointer, level, &mut logical, &mut run, at.offset(0x28 + slot * 4)) {
                return false;
            }
        }
        match run {
            Some(run) => self.sink.data(run),
            None => true,
        }
    }

    /// One pointer: to a data block at level 0, to a block of pointers above that.
    fn pointer(
        &mut self,
        pointer: u32,
        level: u32,
        logical: &mut u64,
        run: &mut Option<Run>,
        at: Site,
    ) -> bool {
        let here = *logical;
        let below = 1u64 << ((self.view.geometry.block_size().log2() - 2) * level);
        *logical = here.saturating_add(below);
        if pointer == 0 {
            return true;
        }
        let block = BlockNr(u64::from(pointer));
        let first = u32::try_from(here).ok().filter(|first| *first != u32::MAX);
        let (true, Some(first)) = (self.view.geometry.holds(block, 1), first) else {
            let detail = at.corrupt(What::MapBlockRange);
            return self.sink.wrong(detail);
        };
        if level == 0 {
            match run {
                Some(run)
                    if run.logical.checked_add(run.len) == Some(first)
                        && run.physical + u64::from(run.len) == block.0 =>
                {
                    run.len += 1;
                }
                _ => {
                    let next = Run { logical: first, physical: block.0, len: 1, written: true };
                    if let Some(done) = run.replace(next) {
                        return self.sink.data(done);
                    }
                }
            }
            return true;
        }
        if !self.sink.node(block.0, level) {
            return true;
        }
        let mut bytes = self.buffers.take(self.view.block_bytes());
        let at = Site::of_ino(self.map.ino).block(block);
        let mut continues = true;
        if self.view.read_blocks(block, &mut bytes, at) {
            let mut inner = here;
            for (slot, pointer) in pointers(&bytes).enumerate() {
                if !self.pointer(pointer, level - 1, &mut inner, run, at.offset(slot * 4)) {
                    continues = false;
                    break;
                }
            }
        }
        self.buffers.0.push(bytes);
        continues
    }
}

/// Collects the runs of a map, for a file that the check itself reads: the journal, a quota file.
pub(in crate::audit) struct Gather {
    pub(in crate::audit) runs: Vec<Run>,
    pub(in crate::audit) whole: bool,
    limit: usize,
    nodes: hashbrown::HashSet<u64>,
}

impl Gather {
    /// Collects at most `limit` runs.
    pub(in crate::audit) fn new(limit: usize) -> Gather {
        Gather { runs: Vec::new(), whole: true, limit, nodes: hashbrown::HashSet::new() }
    }

    /// The block of logical block `block`, if it is written.
    pub(in crate::audit) fn locate(&self, block: u32) -> Option<BlockNr> {
        let n = self.runs.partition_point(|run| run.logical <= block).checked_sub(1)?;
        let run = self.runs[n];
        let within = block - run.logical;
        (within < run.len && run.written).then(|| BlockNr(run.physical + u64::from(within)))
    }

    /// Whether the blocks `0..blocks` all exist and are written.
    pub(in crate::audit) fn has_no_hole(&self, blocks: u32) -> bool {
        let mut next = 0u32;
        for run in &self.runs {
            if next >= blocks {
                break;
            }
            if run.logical != next || !run.written {
                return false;
            }
            next = next.saturating_add(run.len);
        }
        next >= blocks
    }
}

impl Sink for Gather {
    fn data(&mut self, run: Run) -> bool {
        if self.runs.len() >= self.limit {
            self.whole = false;
            return false;
        }
        self.runs.push(run);
        true
    }

    fn node(&mut self, block: u64, _level: u32) -> bool {
        self.nodes.insert(block) && self.nodes.len() <= self.limit
    }

    fn wrong(&mut self, _error: Error) -> bool {
        self.whole = false;
        true
    }
}
