//! Every block of an inode's map: data, and the nodes that lead to it.
//!
//! ```text
//!   i_block ──► node 8212 ──► 0..8 at 9000, 8..40 at 12000      Node(8212), Data, Data
//! ```
//!
//! For callers that count or mark blocks. A crafted map may name blocks again and again. The walk
//! ends with an error when the map has named more blocks than the volume has.

use crate::inodes::file::FileRef;
use crate::state::inode::Body;
use crate::volume::Volume;
use extant_base::narrow::len_u32;
use extant_base::{BlockNr, Ino, LogicalBlock, Result, Site, What};
use extant_ondisk::block_map::{DIRECT, ROOT_SLOTS, check_pointer, pointers_per_block};
use extant_ondisk::extent::{ExtentNode, NodeRules};

/// Blocks of a map.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Used {
    /// Content, written or not, from this block of the file on.
    Data { logical: LogicalBlock, start: BlockNr, len: u32 },
    /// A node of an extent tree, or a block of pointers.
    Node(BlockNr),
}

struct Walk<'a> {
    volume: &'a Volume,
    ino: Ino,
    body: &'a Body,
    left: u64,
    found: &'a mut dyn FnMut(Used) -> Result<()>,
}

impl FileRef<'_> {
    /// Calls `found` for every block of an inode's map, data in logical order.
    ///
    /// Only for inodes that have a map. Errors: those of the map; `InodeBlocks` when it holds more
    /// blocks than the volume. Locks: the caller holds the inode's; takes `Leaf`.
    pub(crate) fn each_block(self, found: &mut dyn FnMut(Used) -> Result<()>) -> Result<()> {
        let left = self.volume.geometry().blocks_count();
        let mut walk = Walk { volume: self.volume, ino: self.ino(), body: self.body, left, found };
        if self.body.has_extents() {
            let rules = NodeRules::root(self.volume.geometry());
            let root =
                ExtentNode::check(&self.body.disk.i_block, &rules, Site::of_ino(self.ino()))?;
            return walk.node(&root, &rules);
        }
        let mut first = 0;
        for slot in 0..len_u32(ROOT_SLOTS) {
            let levels = (slot + 1).saturating_sub(DIRECT);
            walk.slot(&self.body.disk.i_block, slot, levels, first, Site::of_ino(self.ino()))?;
            first += walk.reach(levels);
        }
        Ok(())
    }

    /// 512-byte sectors of all blocks of an inode, its attribute block and the Hurd's translator
    /// included; with bigalloc, of whole clusters.
    ///
    /// Errors: as [`FileRef::each_block`].
    pub(crate) fn count_sectors(self) -> Result<u64> {
        let ratio = self.volume.geometry().cluster_ratio();
        let own = [self.body.disk.file_acl, self.body.disk.translator];
        let mut clusters = own.iter().flatten().count() as u64;
        if self.has_map() {
            // One past the last cluster of the file that was counted.
            let mut counted = 0;
            self.each_block(&mut |used| {
                match used {
                    Used::Node(_) => clusters += 1,
                    Used::Data { logical, len, .. } => {
                        let end = (u64::from(logical.0) + u64::from(len)).div_ceil(ratio.into());
                        clusters += end.saturating_sub(counted.max(u64::from(logical.0 / ratio)));
                        counted = end;
                    }
                }
                Ok(())
            })?;
        }
        Ok(self.volume.context().sectors(clusters * u64::from(ratio)))
    }
}

impl Walk<'_> {
    fn found(&mut self, used: Used) -> Result<()> {
        let len = match used {
            Used::Data { len, .. } => u64::from(len),
            Used::Node(_) => 1,
        };
        let site = Site::of_ino(self.ino);
        self.left = self.left.checked_sub(len).ok_or(site.corrupt(What::InodeBlocks))?;
        (self.found)(used)
    }

    fn node(&mut self, node: &ExtentNode<'_>, rules: &NodeRules) -> Result<()> {
        if node.is_leaf() {
            for extent in node.extents() {
                let (logical, start) = (extent.logical, extent.physical);
                self.found(Used::Data { logical, start, len: extent.len })?;
            }
            return Ok(());
        }
        // The depth falls with every level, so this ends.
        for n in 0..node.len() {
            let child = node.index(n).child;
            self.found(Used::Node(child))?;
            let below = rules.child(node, n, None);
            // Copied, because `found` may use the cache.
            let bytes = self.volume.file(self.body).extent_node(child, &below)?.read().to_vec();
            let child = ExtentNode::trusted(&bytes, Site::of_ino(self.ino).block(child))?;
            self.node(&child, &below)?;
        }
        Ok(())
    }

    /// Blocks that a pointer reaches through `levels` levels of pointer blocks.
    fn reach(&self, levels: u32) -> u64 {
        u64::from(pointers_per_block(self.volume.block_size())).pow(levels)
    }

    /// Visits the target of a pointer. Its first block in the file is `first`.
    fn slot(&mut self, bytes: &[u8], slot: u32, levels: u32, first: u64, at: Site) -> Result<()> {
        let volume = self.volume;
        let block = check_pointer(bytes, slot, &volume.geometry().block_range(), at)?;
        let (Some(block), Ok(logical)) = (block, u32::try_from(first)) else { return Ok(()) };
        if volume.context().guards_system(self.ino) && volume.space().is_system(block, 1) {
            return Err(at.block(block).corrupt(What::MapBlockRange));
        }
        if levels == 0 {
            let logical = LogicalBlock(logical);
            return self.found(Used::Data { logical, start: block, len: 1 });
        }
        self.found(Used::Node(block))?;
        let pointers = volume.journal().cache().get(block)?.read().to_vec();
        for n in 0..pointers_per_block(volume.block_size()) {
            let first = first + u64::from(n) * self.reach(levels - 1);
            self.slot(&pointers, n, levels - 1, first, at.block(block))?;
        }
        Ok(())
    }
}
