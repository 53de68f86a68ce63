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
use extant_base::narrow::{fits_u32, len_u32};
use extant_base::{Error, Result};
use extant_journal::{Credits, Handle};
use extant_ondisk::block_map::pointers_per_block;
use extant_ondisk::extent::{MAX_DEPTH, MAX_LEN};

/// The journal credits that a step of a change of one inode needs.
#[derive(Clone, Copy)]
pub(crate) struct FileCredits<'a> {
    /// The volume.
    pub(crate) volume: &'a Volume,
    /// The inode's content. The caller holds the inode's lock.
    pub(crate) body: &'a Body,
}

impl Volume {
    /// The credits for changes of this inode.
    pub(crate) fn credits_of<'a>(&'a self, body: &'a Body) -> FileCredits<'a> {
        FileCredits { volume: self, body }
    }
}

/// The journal credits of changes that do not depend on one inode.
#[derive(Clone, Copy)]
pub(crate) struct VolumeCredits<'a> {
    /// The volume.
    pub(crate) volume: &'a Volume,
}

impl Volume {
    /// The credits for changes of any inode.
    pub(crate) fn credits(&self) -> VolumeCredits<'_> {
        VolumeCredits { volume: self }
    }
}

/// A bitmap block and the block of its descriptor.
const GROUP: u32 = 2;

impl VolumeCredits<'_> {
    /// Storing an inode whose owner stays the same: the block of the inode table, and the quota
    /// files.
    pub(crate) fn store(self) -> u32 {
        1 + self.volume.quota_accounting().credits(1)
    }

    /// Bitmaps and descriptors of `runs` runs, wherever they lie.
    fn groups(self, runs: u32) -> u32 {
        GROUP * runs.min(self.volume.context().groups_to_reach())
    }

    /// Most groups that one extent can reach into.
    fn groups_of_extent(self) -> u32 {
        (MAX_LEN / self.blocks_per_group() + 2).min(self.volume.context().groups_to_reach())
    }

    fn blocks_per_group(self) -> u32 {
        self.volume.geometry().blocks_per_group().max(1)
    }
}

impl FileCredits<'_> {
    /// One more entry in an extent tree: every node of the path, a new node beside each, and a new
    /// root level.
    fn extent(self) -> u32 {
        let depth = self.depth();
        depth + (depth + 1) + self.volume.credits().groups(depth + 1)
    }

    fn depth(self) -> u32 {
        let depth = crate::inodes::map::extent::node::depth(&self.body.disk.i_block);
        u32::from(depth.min(MAX_DEPTH))
    }

    /// Allocating blocks for the start of a hole of `len` blocks and recording them in the map.
    pub(crate) fn fill(self, len: u32) -> Credits {
        let records = if self.body.disk.has_extents() {
            self.extent()
        } else {
            // The run's pointer blocks, and one on each level above at either end.
            let blocks = len / pointers_per_block(self.volume.block_size()) + 2 + 4;
            blocks + self.volume.credits().groups(blocks)
        };
        // One more run: a run may be freed again because another one is needed.
        Credits::blocks(records + self.volume.credits().groups(2))
    }

    /// Converting one run of blocks: one extent becomes three.
    pub(crate) fn convert(self) -> Credits {
        Credits { blocks: 2 * self.extent(), revokes: 1 + self.depth() }
    }

    /// Zeroing parts of two blocks, which may have to move to other blocks. None if blocks never
    /// move.
    pub(crate) fn zero(self) -> Credits {
        match self.volume.data_checksums().has_data_csum() {
            true => {
                let one = self.checksum_step().plus(self.volume.credits().hold());
                one.plus(one)
            }
            false => Credits::default(),
        }
    }
}

impl VolumeCredits<'_> {
    /// Holding blocks in a group that may never have been used before.
    pub(crate) fn hold(self) -> Credits {
        Credits::blocks(self.groups(1))
    }
}

impl FileCredits<'_> {
    /// Mapping up to
    /// `DataChecksums::checksums_at_once`
    /// new blocks with their checksums: by converting them, or in place of other blocks, which are
    /// freed.
    pub(crate) fn checksum_step(self) -> Credits {
        let for_checksums =
            self.volume.credits().checksums(self.volume.data_checksums().checksums_at_once());
        let groups = self.volume.credits().groups(1)
            + self.volume.credits().groups(self.volume.credits().groups_of_extent());
        self.convert().plus(Credits::blocks(for_checksums + groups))
    }

    /// The inode and the first step of allocating blocks for `runs`.
    pub(crate) fn first_fill(self, runs: &[Run]) -> Credits {
        let longest = runs.iter().map(|run| run.len).max().unwrap_or(0);
        let (fill, convert) = (self.fill(longest), self.convert());
        Credits {
            blocks: self.volume.credits().store() + fill.blocks.max(convert.blocks),
            revokes: convert.revokes,
        }
    }

    /// The inode, and the first conversion if there is one.
    pub(crate) fn first_convert(self, any: bool) -> Credits {
        let convert = match any {
            true if self.volume.data_checksums().has_data_csum() => self.checksum_step(),
            true => self.convert(),
            false => Credits::default(),
        };
        Credits { blocks: self.volume.credits().store() + convert.blocks, revokes: convert.revokes }
    }

    /// One step of removing blocks from a map and freeing them.
    pub(crate) fn unmap(self) -> Credits {
        let data = if self.volume.file(self.body).content_is_metadata() { STEP_REVOKES } else { 0 };
        if self.body.disk.has_extents() {
            return Credits {
                blocks: 2 * self.extent()
                    + self.volume.credits().groups(self.volume.credits().groups_of_extent()),
                revokes: data + self.depth() + 1,
            };
        }
        // Each run may be as long as one pointer block maps, and may cross a border of groups.
        let spread = STEP_RUNS * pointers_per_block(self.volume.block_size())
            / self.volume.credits().blocks_per_group();
        Credits {
            blocks: STEP_RUNS + 3 + self.volume.credits().groups(3 * STEP_RUNS + spread + 2),
            revokes: data + STEP_RUNS,
        }
    }

    /// Moving the extents of one leaf: the leaf and the nodes above it.
    pub(crate) fn shift(self) -> Credits {
        Credits::blocks(self.depth())
    }
}

impl VolumeCredits<'_> {
    /// Building a tree of `extents` extents beside `pointers` blocks of pointers, which are freed;
    /// or undoing that.
    pub(crate) fn migrate(self, extents: u32, pointers: u32) -> Credits {
        // A header and entries have 12 bytes each. There are fewer inner nodes than leaves.
        let in_node = (len_u32(self.volume.block_size().bytes()) - 12) / 12;
        let nodes = 2 * extents.div_ceil(in_node) + MAX_DEPTH as u32;
        Credits {
            blocks: self.store() + nodes + self.groups(nodes + pointers),
            revokes: nodes + pointers,
        }
    }

    /// Moving inline content into blocks: as many as an inode can hold, and the inode.
    pub(crate) fn inline(self) -> Credits {
        let inode = self.volume.geometry().inode_size() as u64;
        let blocks = fits_u32(self.volume.block_size().blocks_for(inode));
        let nodes = 6 + self.groups(6) + self.checksums(1);
        Credits::blocks(self.store() + blocks * nodes)
    }

    /// Makes sure that `handle` has credits for one more step and for storing the inode.
    ///
    /// Errors: `NoSpace` when the transaction has no space for it: another handle must do the step.
    pub(crate) fn more(self, handle: &Handle<'_>, step: Credits) -> Result<()> {
        if handle.ensure(step.plus(Credits::blocks(self.store())))? {
            Ok(())
        } else {
            Err(Error::NoSpace)
        }
    }
}
