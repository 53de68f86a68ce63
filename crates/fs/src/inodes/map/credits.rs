//! Credits for changes of a map: the most blocks that each change may dirty.
//!
//! ```text
//!   insert one extent    path (depth) + new nodes (depth + 1), each with its bitmap and descriptor
//!   allocate one run     bitmap, descriptor
//!   free one extent      bitmap and descriptor of every group that it can reach into
//!   store                one block of the inode table
//! ```
//!
//! Every figure is the worst case of its step. A step that does not fit the running transaction
//! stops or restarts its handle, see `steps.rs`.

use crate::inodes::map::Run;
use crate::inodes::map::steps::{STEP_REVOKES, STEP_RUNS};
use crate::state::inode::Body;
use crate::volume::Volume;
use extant_base::{Error, Result};
use extant_journal::{Credits, Handle};
use extant_ondisk::block_map::pointers_per_block;
use extant_ondisk::extent::{MAX_DEPTH, MAX_LEN};

/// A bitmap block and the block of its descriptor.
const GROUP: u32 = 2;

impl Volume {
    /// Storing an inode whose owner stays the same: the block of the inode table, and the quota
    /// files.
    pub(crate) fn store_credits(&self) -> u32 {
        1 + self.quota_credits(1)
    }

    /// Bitmaps and descriptors of `runs` runs, wherever they lie.
    fn group_credits(&self, runs: u32) -> u32 {
        GROUP * runs.min(self.geometry().groups_count())
    }

    /// Most groups that one extent can reach into.
    fn groups_of_extent(&self) -> u32 {
        (MAX_LEN / self.blocks_per_group() + 2).min(self.geometry().groups_count())
    }

    fn blocks_per_group(&self) -> u32 {
        self.geometry().blocks_per_group().max(1)
    }

    /// One more entry in an extent tree: every node of the path, a new node beside each, and a new
    /// root level.
    fn extent_credits(&self, body: &Body) -> u32 {
        let depth = self.depth(body);
        depth + (depth + 1) + self.group_credits(depth + 1)
    }

    fn depth(&self, body: &Body) -> u32 {
        let depth = crate::inodes::map::extent::node::depth(&body.disk.i_block);
        u32::from(depth.min(MAX_DEPTH))
    }

    /// Allocating blocks for the start of a hole of `len` blocks and recording them in the map.
    pub(crate) fn fill_credits(&self, body: &Body, len: u32) -> Credits {
        let records = if body.disk.has_extents() {
            self.extent_credits(body)
        } else {
            // The run's pointer blocks, and one on each level above at either end.
            let blocks = len / pointers_per_block(self.block_size()) + 2 + 4;
            blocks + self.group_credits(blocks)
        };
        // One more run: a run may be freed again because another one is needed.
        Credits::blocks(records + self.group_credits(2))
    }

    /// Converting one run of blocks: one extent becomes three.
    pub(crate) fn convert_credits(&self, body: &Body) -> Credits {
        Credits { blocks: 2 * self.extent_credits(body), revokes: 1 + self.depth(body) }
    }

    /// Zeroing parts of two blocks, which may have to move to other blocks. None if blocks never
    /// move.
    pub(crate) fn zero_credits(&self, body: &Body) -> Credits {
        match self.has_data_csum() {
            true => {
                let one = self.checksum_step_credits(body).plus(self.hold_credits());
                one.plus(one)
            }
            false => Credits::default(),
        }
    }

    /// Holding blocks in a group that may never have been used before.
    pub(crate) fn hold_credits(&self) -> Credits {
        Credits::blocks(self.group_credits(1))
    }

    /// Mapping up to [`Volume::checksums_at_once`] new blocks with their checksums: by converting
    /// them, or in place of other blocks, which are freed.
    pub(crate) fn checksum_step_credits(&self, body: &Body) -> Credits {
        let for_checksums = self.checksum_credits(self.checksums_at_once());
        let groups = self.group_credits(1) + self.group_credits(self.groups_of_extent());
        self.convert_credits(body).plus(Credits::blocks(for_checksums + groups))
    }

    /// The inode and the first step of allocating blocks for `runs`.
    pub(crate) fn first_fill_credits(&self, body: &Body, runs: &[Run]) -> Credits {
        let longest = runs.iter().map(|run| run.len).max().unwrap_or(0);
        let (fill, convert) = (self.fill_credits(body, longest), self.convert_credits(body));
        Credits {
            blocks: self.store_credits() + fill.blocks.max(convert.blocks),
            revokes: convert.revokes,
        }
    }

    /// The inode, and the first conversion if there is one.
    pub(crate) fn first_convert_credits(&self, body: &Body, any: bool) -> Credits {
        let convert = match any {
            true if self.has_data_csum() => self.checksum_step_credits(body),
            true => self.convert_credits(body),
            false => Credits::default(),
        };
        Credits { blocks: self.store_credits() + convert.blocks, revokes: convert.revokes }
    }

    /// One step of removing blocks from a map and freeing them.
    pub(crate) fn unmap_credits(&self, body: &Body) -> Credits {
        let data = if self.content_is_metadata(body) { STEP_REVOKES } else { 0 };
        if body.disk.has_extents() {
            return Credits {
                blocks: 2 * self.extent_credits(body) + self.group_credits(self.groups_of_extent()),
                revokes: data + self.depth(body) + 1,
            };
        }
        // Each run may be as long as one pointer block maps, and may cross a border of groups.
        let spread = STEP_RUNS * pointers_per_block(self.block_size()) / self.blocks_per_group();
        Credits {
            blocks: STEP_RUNS + 3 + self.group_credits(3 * STEP_RUNS + spread + 2),
            revokes: data + STEP_RUNS,
        }
    }

    /// Moving the extents of one leaf: the leaf and the nodes above it.
    pub(crate) fn shift_credits(&self, body: &Body) -> Credits {
        Credits::blocks(self.depth(body))
    }

    /// Building a tree of `extents` extents beside `pointers` blocks of pointers, which are freed;
    /// or undoing that.
    pub(crate) fn migrate_credits(&self, extents: u32, pointers: u32) -> Credits {
        // A header and entries have 12 bytes each. There are fewer inner nodes than leaves.
        let in_node = (self.block_size().bytes() as u32 - 12) / 12;
        let nodes = 2 * extents.div_ceil(in_node) + MAX_DEPTH as u32;
        Credits {
            blocks: self.store_credits() + nodes + self.group_credits(nodes + pointers),
            revokes: nodes + pointers,
        }
    }

    /// Moving inline content into blocks: as many as an inode can hold, and the inode.
    pub(crate) fn inline_credits(&self) -> Credits {
        let blocks = self.block_size().blocks_for(self.geometry().inode_size() as u64) as u32;
        let nodes = 6 + self.group_credits(6) + self.checksum_credits(1);
        Credits::blocks(self.store_credits() + blocks * nodes)
    }

    /// Makes sure that `handle` has credits for one more step and for storing the inode.
    ///
    /// Errors: `NoSpace` when the transaction has no space for it: another handle must do the step.
    pub(crate) fn more_credits(&self, handle: &Handle<'_>, step: Credits) -> Result<()> {
        if handle.ensure(step.plus(Credits::blocks(self.store_credits())))? {
            Ok(())
        } else {
            Err(Error::NoSpace)
        }
    }
}
