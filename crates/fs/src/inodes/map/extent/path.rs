//! The path from an inode's root to a leaf, for changing the tree.
//!
//! ```text
//!   i_block  ┌──────┬───┬───┬───┐          steps[0]  Root,  slot 1
//!            │header│ 0 │ 17│   │
//!            └──────┴───┴─┬─┴───┘
//!   block 8212 ┌──────┬───▼┬────┬────┐     steps[1]  Block, slot 2 (after the entry that is
//!              │header│ 17 │ 30 │ …  │               at or before the logical block)
//!              └──────┴────┴────┴────┘
//! ```
//!
//! In an inner node, a slot is the entry that was followed. In the leaf, it is the place where an
//! entry for the logical block would be inserted: 1 + the last entry at or before it. The leaf is
//! read once: the path also keeps its entries on both sides of the slot.

use crate::inodes::file::{FileMut, FileRef};
use crate::inodes::map::extent::node::{self, NodeMut};
use crate::inodes::map::{LOGICAL_END, Run, Target};
use crate::state::inode::Body;
use crate::volume::Volume;
use extant_base::{BlockNr, Ino, LogicalBlock, Result, Site};
use extant_journal::{Handle, MetaBlock};
use extant_ondisk::extent::{Extent, ExtentNode, NodeRules};

/// Where a node's bytes are.
#[derive(Clone, Debug)]
pub(crate) enum Place {
    /// In `i_block` of the inode.
    Root,
    /// In a block of its own.
    Block(MetaBlock),
}

/// One node of the path.
#[derive(Clone, Debug)]
pub(crate) struct Step {
    pub(crate) place: Place,
    pub(crate) slot: usize,
}

/// The nodes from the root to a leaf; never empty.
#[derive(Clone, Debug)]
pub(crate) struct Path {
    pub(crate) steps: Vec<Step>,
    /// The leaf's entries before the slot and at the slot, as they were when the path was made.
    pub(crate) left: Option<Extent>,
    pub(crate) right: Option<Extent>,
    /// The first key of the leaf to the right; [`LOGICAL_END`] for the last leaf.
    end: u32,
}

impl Path {
    /// The path to the leaf that holds `at` or would hold it.
    pub(crate) fn to(file: FileRef<'_>, at: LogicalBlock) -> Result<Path> {
        let mut steps = Vec::with_capacity(3);
        let mut rules = NodeRules::root(file.volume.geometry());
        ExtentNode::check(&file.body.disk.i_block, &rules, Site::of_ino(file.ino()))?;
        let mut place = Place::Root;
        // The depth falls with every step, so this ends.
        loop {
            let (mut left, mut right) = (None, None);
            let (slot, next) = with_bytes(&place, file.body, |bytes| {
                let node = node::view(bytes);
                let after = node.search(at).map_or(0, |n| n + 1);
                if node.is_leaf() {
                    left = after.checked_sub(1).map(|n| node.extent(n));
                    right = (after < node.len()).then(|| node.extent(after));
                    (after, None)
                } else {
                    // Blocks left of the first key belong to the first child.
                    let slot = after.saturating_sub(1);
                    (slot, Some((node.index(slot).child, rules.child(&node, slot, None))))
                }
            });
            steps.push(Step { place, slot });
            let Some((child, below)) = next else {
                return Ok(Path { steps, left, right, end: rules.end });
            };
            place = Place::Block(file.extent_node(child, &below)?);
            rules = below;
        }
    }

    /// The leaf's step.
    pub(crate) fn leaf(&self) -> &Step {
        self.steps.last().expect("a path holds at least the root")
    }

    /// The extent at or before the block that the path leads to, in its leaf.
    ///
    /// Errors: for an extent of the root, if it overlaps metadata or does not fit the clusters. The
    /// extents of other nodes were checked with their node.
    fn before(&self, volume: &Volume, ino: Ino) -> Result<Option<Extent>> {
        if let (Some(left), 0) = (self.left, self.depth()) {
            let site = Site::of_ino(ino);
            volume.check_extent_place(ino, left.logical, left.physical, left.len, site)?;
        }
        Ok(self.left)
    }

    /// The result of [`FileRef::map`] for `at`, to which the path leads.
    pub(crate) fn run(
        &self,
        volume: &Volume,
        ino: Ino,
        at: LogicalBlock,
        limit: u32,
    ) -> Result<Run> {
        if let Some(before) = self.before(volume, ino)?
            && let Some(block) = before.physical_of(at)
        {
            let len = (before.end() - at.0).min(limit);
            return Ok(Run { logical: at, len, target: Target::of(block, before.state) });
        }
        let end = self.right.map_or(self.end, |next| next.logical.0);
        Ok(Run { logical: at, len: end.saturating_sub(at.0).clamp(1, limit), target: Target::Hole })
    }

    /// The block right after that of the file's block before `at`, to which the path leads.
    pub(crate) fn block_after(
        &self,
        volume: &Volume,
        ino: Ino,
        at: LogicalBlock,
    ) -> Result<Option<BlockNr>> {
        let before = self.before(volume, ino)?.filter(|before| before.end() == at.0);
        Ok(before.map(|before| BlockNr(before.physical_end())))
    }

    /// The first key of the leaf to the right; `None` for the last leaf.
    pub(crate) fn next_key(&self) -> Option<LogicalBlock> {
        (self.end != LOGICAL_END).then_some(LogicalBlock(self.end))
    }

    /// Number of levels below the root.
    pub(crate) fn depth(&self) -> usize {
        self.steps.len() - 1
    }
}

/// Reads a node's bytes.
pub(crate) fn with_bytes<T>(place: &Place, body: &Body, read: impl FnOnce(&[u8]) -> T) -> T {
    match place {
        Place::Root => read(&body.disk.i_block),
        Place::Block(block) => read(&block.read()),
    }
}

/// Changes a node's bytes and updates its checksum, at a cost that depends on the change only. The
/// root's checksum is part of the inode's: the caller stores the inode in the end.
pub(crate) fn edit<T>(
    place: &Place,
    file: &mut FileMut<'_>,
    handle: &Handle<'_>,
    change: impl FnOnce(&mut NodeMut<'_>) -> T,
) -> Result<T> {
    match place {
        Place::Root => Ok(change(&mut NodeMut::without_checksum(&mut file.body.disk.i_block))),
        Place::Block(block) => {
            let seed = file.volume.checksums().inode_seed(file.ino(), file.body.disk.generation);
            let block = block.write(handle)?;
            let mut bytes = block.bytes_mut();
            let Some(seed) = seed else {
                return Ok(change(&mut NodeMut::without_checksum(&mut bytes)));
            };
            Ok(NodeMut::change_block(&mut bytes, seed, file.volume.space().short_cuts(), change))
        }
    }
}

/// Corrects the keys of the nodes above after the first entry of the leaf changed, as far up as the
/// changed node is the first in its parent.
pub(crate) fn fix_keys(steps: &[Step], file: &mut FileMut<'_>, handle: &Handle<'_>) -> Result<()> {
    let (leaf, above) = steps.split_last().expect("a path holds at least the root");
    let Some(first) = with_bytes(&leaf.place, file.body, |bytes| {
        (node::entries(bytes) > 0).then(|| node::key(bytes, 0))
    }) else {
        return Ok(());
    };
    for step in above.iter().rev() {
        let slot = step.slot;
        if with_bytes(&step.place, file.body, |bytes| node::key(bytes, slot)) == first {
            break;
        }
        edit(&step.place, file, handle, |bytes| node::set_key(bytes, slot, first))?;
        if slot > 0 {
            break;
        }
    }
    Ok(())
}
