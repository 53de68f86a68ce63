//! The map of an inode, in the order of its content: runs of data, and the blocks of the map
//! itself, each before what it maps.
//!
//! ```text
//!   extents       Node 33, Run 0..14, Run 16..20, Node 34, Run 100..105, …
//!   block map     Run 0..12, Indirect(1) 45, Run 12..268, Indirect(2) 46, Indirect(1) 47, …
//! ```

use super::RawVolume;
use extant::{Result, What};
use extant_base::{BlockNr, Ino, Site};
use extant_ondisk::block_map::{self, DIRECT};
use extant_ondisk::extent::{ExtentNode, ExtentState, NodeRules};
use extant_ondisk::inode::Inode;
use std::collections::HashSet;

/// A part of a map.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::compat) enum Piece {
    /// Blocks of content.
    Run { logical: u64, block: u64, len: u64, written: bool },
    /// A node of an extent tree. Level 0 is below the root.
    Node { level: u8, block: u64 },
    /// A block of pointers: level 1 points to content, 2 and 3 to such blocks.
    Indirect { level: u8, block: u64 },
}

impl RawVolume {
    /// Calls `each` with the parts of an inode's map. The inode has one: it is no device, no short
    /// symlink, and its content is not inline.
    ///
    /// Errors: those of `each`; `Corrupt` for a damaged map, or one with a block twice; `Device`.
    pub(in crate::compat) fn walk_map(
        &self,
        ino: Ino,
        inode: &Inode,
        each: &mut dyn FnMut(Piece) -> Result<()>,
    ) -> Result<()> {
        let seen = HashSet::new();
        let mut walk = Walk { volume: self, ino, seed: inode.seed(ino, &self.format), seen, each };
        if !inode.has_extents() {
            return walk.pointers_of(inode);
        }
        let rules = NodeRules::root(&self.geometry);
        walk.node(&inode.i_block, &rules, 0)
    }
}

struct Walk<'a> {
    volume: &'a RawVolume,
    ino: Ino,
    seed: Option<u32>,
    /// Blocks of the map so far. None may be used twice, so that a forged map ends.
    seen: HashSet<u64>,
    each: &'a mut dyn FnMut(Piece) -> Result<()>,
}

impl Walk<'_> {
    fn site(&self) -> Site {
        Site::of_ino(self.ino)
    }

    /// A block of the map itself.
    fn block(&mut self, block: u64, wrong: What) -> Result<Vec<u8>> {
        if !self.seen.insert(block) {
            return Err(self.site().block(BlockNr(block)).corrupt(wrong));
        }
        self.volume.block(BlockNr(block))
    }

    fn node(&mut self, bytes: &[u8], rules: &NodeRules, level: u8) -> Result<()> {
        let node = ExtentNode::check(bytes, rules, self.site())?;
        if node.is_leaf() {
            for extent in node.extents() {
                (self.each)(Piece::Run {
                    logical: extent.logical.0.into(),
                    block: extent.physical.0,
                    len: extent.len.into(),
                    written: extent.state == ExtentState::Written,
                })?;
            }
            return Ok(());
        }
        for at in 0..node.len() {
            let index = node.index(at);
            let BlockNr(block) = index.child;
            (self.each)(Piece::Node { level, block })?;
            let child = self.block(block, What::ExtentRange)?;
            self.node(&child, &rules.child(&node, at, self.seed), level + 1)?;
        }
        Ok(())
    }

    fn pointers_of(&mut self, inode: &Inode) -> Result<()> {
        let slots: Vec<u32> = block_map::pointers(&inode.i_block).collect();
        let (direct, rest) = slots.split_at(DIRECT as usize);
        let per_block = u64::from(block_map::pointers_per_block(self.volume.sb.block_size));
        let mut logical = self.data(direct, 0)?;
        for (level, block) in (1u8..=3).zip(rest) {
            self.indirect(level, *block, logical)?;
            logical += per_block.pow(level.into());
        }
        Ok(())
    }

    fn indirect(&mut self, level: u8, block: u32, mut logical: u64) -> Result<()> {
        if block == 0 {
            return Ok(());
        }
        (self.each)(Piece::Indirect { level, block: block.into() })?;
        let bytes = self.block(block.into(), What::MapBlockRange)?;
        let slots: Vec<u32> = block_map::pointers(&bytes).collect();
        if level == 1 {
            self.data(&slots, logical)?;
            return Ok(());
        }
        for slot in &slots {
            self.indirect(level - 1, *slot, logical)?;
            logical += (slots.len() as u64).pow(u32::from(level) - 1);
        }
        Ok(())
    }

    /// Pointers to content from `logical` on. Returns the place after them.
    fn data(&mut self, slots: &[u32], mut logical: u64) -> Result<u64> {
        let mut run: Option<(u64, u64, u64)> = None;
        for slot in slots {
            let block = u64::from(*slot);
            match &mut run {
                Some((_, start, len)) if block != 0 && *start + *len == block => *len += 1,
                _ => {
                    self.run(run.take())?;
                    run = (block != 0).then_some((logical, block, 1));
                }
            }
            logical += 1;
        }
        self.run(run)?;
        Ok(logical)
    }

    fn run(&mut self, run: Option<(u64, u64, u64)>) -> Result<()> {
        match run {
            None => Ok(()),
            Some((logical, block, len)) => {
                (self.each)(Piece::Run { logical, block, len, written: true })
            }
        }
    }
}
