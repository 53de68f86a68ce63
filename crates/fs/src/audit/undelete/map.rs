//! The blocks of a deleted file, from its map as it was.
//!
//! ```text
//!   map in the inode ──► node? ─┬─ copies up to the time of the inode, newest first
//!                               ├─ the block as it is now
//!                               ├─ later copies
//!                               └─ blocks of the log without a tag
//!                        extents: the first one that fits its parent, with the right checksum
//!                        pointers: the first one, if nothing in it lies outside the volume
//! ```

use super::Candidate;
use super::evidence::Evidence;
use crate::state::inode::Body;
use extant_base::{BlockNr, Result, Site, narrow};
use extant_journal::OldCopy;
use extant_ondisk::block_map::{DIRECT, pointers};
use extant_ondisk::extent::{
    self, EXTENT_MAGIC, ExtentNode, ExtentState, MAX_DEPTH, NodeRules, RawExtentHeader,
    RawExtentIndex,
};
use extant_ondisk::inode::I_BLOCK_SIZE;
use std::ops::Range;
use zerocopy::{FromBytes, IntoBytes};

/// Most runs of one file. A map with more is treated as damaged.
const RUNS_MAX: usize = 1 << 20;
/// Most nodes of one map.
const NODES_MAX: usize = 1 << 16;

/// Blocks that are adjacent in the file and on the volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Run {
    pub(super) logical: u32,
    pub(super) physical: u64,
    pub(super) len: u32,
    pub(super) written: bool,
}

impl Run {
    /// Its blocks on the volume.
    pub(super) fn blocks(&self) -> Range<u64> {
        self.physical..self.physical + u64::from(self.len)
    }

    /// The part of the run in these blocks, which are some of its own.
    pub(super) fn part(&self, blocks: &Range<u64>) -> Run {
        Run {
            logical: self.logical + narrow::fits_u32(blocks.start - self.physical),
            physical: blocks.start,
            len: narrow::fits_u32(blocks.end - blocks.start),
            written: self.written,
        }
    }

    /// Its blocks in the file.
    pub(super) fn in_file(&self) -> Range<u64> {
        u64::from(self.logical)..self.end()
    }

    /// The block in the file after the run.
    pub(super) fn end(&self) -> u64 {
        u64::from(self.logical) + u64::from(self.len)
    }
}

/// The blocks of a file.
#[derive(Clone, Default)]
pub(super) struct Map {
    /// In ascending order.
    pub(super) runs: Vec<Run>,
    /// Nodes are missing, or the map has more parts than any real file.
    pub(super) damaged: bool,
}

struct Walk<'a> {
    evidence: &'a Evidence<'a>,
    candidate: &'a Candidate,
    seed: Option<u32>,
    map: Map,
    nodes: usize,
}

/// The blocks of `candidate`.
pub(super) fn walk(evidence: &Evidence<'_>, candidate: &Candidate) -> Result<Map> {
    if let Some(map) = &candidate.recorded {
        return Ok(map.clone());
    }
    let volume = evidence.volume;
    let body = &candidate.body;
    let seed = body.disk.seed(body.ino(), volume.inode_format());
    let mut walk = Walk { evidence, candidate, seed, map: Map::default(), nodes: 0 };
    match body.disk.has_extents() {
        true => {
            let rules = NodeRules::root(volume.geometry());
            match ExtentNode::check(&body.disk.i_block, &rules, Site::of_ino(body.ino())) {
                Ok(root) => walk.extents(&root, &rules)?,
                Err(_) => walk.map.damaged = true,
            }
        }
        false => {
            let mut logical = 0;
            for (slot, pointer) in (0..).zip(pointers(&body.disk.i_block)) {
                let level = u32::saturating_sub(slot, DIRECT - 1);
                walk.pointer(pointer, level, &mut logical)?;
            }
        }
    }
    Ok(walk.map)
}

impl Walk<'_> {
    fn extents(&mut self, node: &ExtentNode<'_>, rules: &NodeRules) -> Result<()> {
        for extent in node.extents() {
            self.push(Run {
                logical: extent.logical.0,
                physical: extent.physical.0,
                len: extent.len,
                written: extent.state == ExtentState::Written,
            });
        }
        // The depth decreases with every level, so the recursion ends.
        for (n, index) in node.indexes().enumerate() {
            let rules = rules.child(node, n, self.seed);
            let site = Site::of_block(index.child);
            let fits = |bytes: &[u8]| ExtentNode::check(bytes, &rules, site).is_ok();
            let Some(bytes) = self.node(index.child, &fits)? else { continue };
            if let Ok(child) = ExtentNode::trusted(&bytes, site) {
                self.extents(&child, &rules)?;
            }
        }
        Ok(())
    }

    /// A pointer: to a data block at level 0, to a block of pointers above that.
    fn pointer(&mut self, pointer: u32, level: u32, logical: &mut u64) -> Result<()> {
        let geometry = self.evidence.volume.geometry();
        let here = *logical;
        *logical += 1u64 << ((geometry.block_size().log2() - 2) * level);
        if pointer == 0 {
            return Ok(());
        }
        let block = BlockNr(u64::from(pointer));
        let (true, Ok(first)) = (geometry.holds(block, 1), u32::try_from(here)) else {
            self.map.damaged = true;
            return Ok(());
        };
        if level == 0 {
            self.push(Run { logical: first, physical: block.0, len: 1, written: true });
            return Ok(());
        }
        let inside = |p: u32| p == 0 || geometry.holds(BlockNr(u64::from(p)), 1);
        let fits = |bytes: &[u8]| pointers(bytes).all(inside);
        let Some(bytes) = self.node(block, &fits)? else { return Ok(()) };
        let mut inner = here;
        for pointer in pointers(&bytes) {
            self.pointer(pointer, level - 1, &mut inner)?;
        }
        Ok(())
    }

    /// Adds a run, joined to the one before if they are adjacent.
    fn push(&mut self, run: Run) {
        let is_next = |last: &&mut Run| {
            last.end() == u64::from(run.logical)
                && last.physical + u64::from(last.len) == run.physical
                && last.written == run.written
        };
        let is_full = self.map.runs.len() >= RUNS_MAX || !self.evidence.spend();
        match self.map.runs.last_mut().filter(is_next) {
            Some(last) => last.len = last.len.saturating_add(run.len),
            None if is_full => self.map.damaged = true,
            None => self.map.runs.push(run),
        }
    }

    /// The content of a node as it was, the first one that `fits`; `None`, and the map is damaged,
    /// if there is none.
    fn node(&mut self, block: BlockNr, fits: &dyn Fn(&[u8]) -> bool) -> Result<Option<Vec<u8>>> {
        self.nodes += 1;
        if self.nodes > NODES_MAX || !self.evidence.spend() {
            self.map.damaged = true;
            return Ok(None);
        }
        let mut bytes = self.evidence.block_buffer();
        let copies = self.evidence.history.copies_of(block);
        let is_later =
            |copy: &&OldCopy| self.candidate.seen.is_some_and(|seen| copy.tid.is_after(seen));
        let (later, before) = copies.split_at(copies.iter().take_while(is_later).count());
        for copy in before {
            if self.evidence.read_old(copy, &mut bytes)? && fits(&bytes) {
                return Ok(Some(bytes));
            }
        }
        // A block of pointers has no checksum: what was written later is not the map.
        let is_proven = self.seed.is_some() && self.candidate.body.disk.has_extents();
        if (is_proven || later.is_empty())
            && self.evidence.read_now(block, &mut bytes)
            && fits(&bytes)
        {
            return Ok(Some(bytes));
        }
        if is_proven {
            for copy in later.iter().rev() {
                if self.evidence.read_old(copy, &mut bytes)? && fits(&bytes) {
                    return Ok(Some(bytes));
                }
            }
            for block in self.evidence.untagged.nodes_of(self.seed) {
                if !self.evidence.spend() {
                    break;
                }
                if self.evidence.read_untagged(block, &mut bytes)? && fits(&bytes) {
                    return Ok(Some(bytes));
                }
            }
        }
        self.map.damaged = true;
        Ok(None)
    }
}

/// Restores the root of an extent tree whose entries are only uncounted, as Linux leaves the root
/// of a deleted file with more than four extents: the children are taken if their checksums name
/// the inode. Returns whether there were any.
pub(super) fn restore_root(evidence: &Evidence<'_>, body: &mut Body) -> bool {
    let Some(seed) = body.disk.seed(body.ino(), evidence.volume.inode_format()) else {
        return false;
    };
    let root = &body.disk.i_block;
    let Ok((header, entries)) = RawExtentHeader::read_from_prefix(root) else { return false };
    if header.eh_magic.get() != EXTENT_MAGIC
        || header.eh_entries.get() != 0
        || header.eh_depth.get() != 0
    {
        return false;
    }
    let mut bytes = evidence.block_buffer();
    let mut depth = None;
    let mut count = 0;
    for entry in entries.chunks_exact(extent::ENTRY_SIZE) {
        let Ok(index) = RawExtentIndex::read_from_bytes(entry) else { break };
        let child =
            BlockNr(u64::from(index.ei_leaf_lo.get()) | u64::from(index.ei_leaf_hi.get()) << 32);
        let is_node =
            evidence.read_now(child, &mut bytes) && extent::checksum_is_right(&bytes, seed);
        let Some((child, _)) = RawExtentHeader::read_from_prefix(&bytes).ok().filter(|_| is_node)
        else {
            break;
        };
        let below = child.eh_depth.get();
        if child.eh_magic.get() != EXTENT_MAGIC
            || below >= MAX_DEPTH
            || depth.is_some_and(|depth| depth != below)
        {
            break;
        }
        depth = Some(below);
        count += 1;
    }
    let Some(depth) = depth else { return false };
    let mut header = header;
    header.eh_entries.set(count);
    header.eh_depth.set(depth + 1);
    let mut root: [u8; I_BLOCK_SIZE] = *root;
    root[..size_of::<RawExtentHeader>()].copy_from_slice(header.as_bytes());
    body.disk.i_block = root;
    true
}
