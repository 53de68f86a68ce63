//! Writing a whole new extent tree into free blocks.
//!
//! ```text
//!   extents, in order ──► full leaves ──► full nodes above ──► root in i_block (4 entries)
//! ```
//!
//! The old tree is unchanged until the inode points to the new one, so the step is as small for a
//! large tree as for a small one.

use super::shrink::Shrink;
use crate::inodes::map::extent::node::{self, Entry, ROOT_CAPACITY};
use crate::state::inode::Body;
use extant_base::{BlockNr, Result};
use extant_ondisk::extent::{self, Extent, ExtentNodeMut, capacity};

/// Joins adjacent extents that fit into one.
pub(super) fn joined(extents: Vec<Extent>) -> Vec<Extent> {
    let mut joined: Vec<Extent> = Vec::with_capacity(extents.len());
    for extent in extents {
        match joined.last_mut() {
            Some(last) if last.can_merge(&extent) => last.len += extent.len,
            _ => joined.push(extent),
        }
    }
    joined
}

impl Shrink<'_> {
    /// Writes the tree of `extents` and stores it in the body. Returns the blocks of its nodes.
    ///
    /// Errors: `NoSpace`, `Device`.
    pub(super) fn write_tree(
        &mut self,
        body: &mut Body,
        extents: &[Extent],
    ) -> Result<Vec<BlockNr>> {
        let bs = self.volume.block_size();
        let per_node = usize::from(capacity(bs.bytes()));
        let seed = body.seed(self.volume.context());
        let mut level: Vec<Entry> = extents.iter().map(|extent| Entry::leaf(*extent)).collect();
        let mut nodes = Vec::new();
        let mut depth = 0;
        while level.len() > ROOT_CAPACITY {
            let mut above = Vec::with_capacity(level.len() / per_node + 1);
            for entries in level.chunks(per_node) {
                let (block, _) = self.free.take(1)?;
                let mut bytes = vec![0; bs.bytes()];
                fill(&mut bytes, depth, entries);
                if let Some(seed) = seed {
                    extent::set_checksum(&mut bytes, seed);
                }
                self.exclusive.staged.write_free(bs.start_of(block), &bytes)?;
                nodes.push(block);
                above.push(Entry::index(node::key(&bytes, 0), block));
            }
            level = above;
            depth += 1;
        }
        fill(&mut body.disk.i_block, depth, &level);
        Ok(nodes)
    }
}

fn fill(bytes: &mut [u8], depth: u16, entries: &[Entry]) {
    let mut node = ExtentNodeMut::init(bytes, depth);
    for (n, entry) in entries.iter().enumerate() {
        match entry {
            Entry::Leaf(extent) => node.insert_extent(n, extent),
            Entry::Index(index) => node.insert_index(n, index),
        }
    }
}
