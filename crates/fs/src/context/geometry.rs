//! The geometry of a volume that may grow while it is open.
//!
//! ```text
//!   latest ──► 0   as at open                  one load, and no other cost
//!              1   after the first growth
//!              2 ◄─ now                        earlier ones stay valid for threads that hold them
//! ```
//!
//! A larger geometry agrees with the earlier ones about every block that they have, except that the
//! last group gets more blocks and that the volume has more descriptor blocks. A thread that still
//! uses an earlier one sees a smaller volume, which exists. The geometry changes while the
//! lock of the last group is held, so a thread that holds that lock sees bits, counts and a number
//! of clusters that belong together.

use crate::context::lazy_table::LazyTable;
use extant_base::{Error, Result};
use extant_ondisk::geometry::Geometry;
use extant_ondisk::superblock::Superblock;
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

/// The geometry, as it is now.
pub(super) struct CurrentGeometry {
    at_open: Geometry,
    /// How often the volume has grown.
    latest: AtomicU32,
    grown: LazyTable<Geometry>,
    /// Blocks whose free ones can be used: fewer than the volume has, while it grows.
    usable_blocks: AtomicU64,
    /// Blocks of these that are reserved for root.
    reserved_blocks: AtomicU64,
    /// A thread makes the volume larger.
    growing: AtomicBool,
}

impl CurrentGeometry {
    /// Errors: those of [`Geometry::new`].
    pub(super) fn new(superblock: &Superblock) -> Result<CurrentGeometry> {
        Ok(CurrentGeometry {
            at_open: Geometry::new(superblock)?,
            latest: AtomicU32::new(0),
            grown: LazyTable::new(0),
            usable_blocks: AtomicU64::new(superblock.blocks_count),
            reserved_blocks: AtomicU64::new(superblock.reserved_blocks),
            growing: AtomicBool::new(false),
        })
    }

    pub(super) fn get(&self) -> &Geometry {
        match self.latest.load(Ordering::Acquire) {
            0 => &self.at_open,
            n => self.grown.cell(n - 1).get().unwrap_or(&self.at_open),
        }
    }

    /// Whether a thread makes the volume larger.
    pub(super) fn is_growing(&self) -> bool {
        self.growing.load(Ordering::Relaxed)
    }

    pub(super) fn usable_blocks(&self) -> u64 {
        self.usable_blocks.load(Ordering::Acquire)
    }

    pub(super) fn reserved_blocks(&self) -> u64 {
        self.reserved_blocks.load(Ordering::Acquire)
    }
}

/// The right to make the volume larger. One thread at a time has it, until it drops this.
pub(crate) struct Growing<'a> {
    current: &'a CurrentGeometry,
}

impl<'a> Growing<'a> {
    /// Errors: `Busy` if another thread has it.
    pub(super) fn begin(current: &'a CurrentGeometry) -> Result<Growing<'a>> {
        match current.growing.swap(true, Ordering::AcqRel) {
            true => Err(Error::Busy),
            false => Ok(Growing { current }),
        }
    }

    /// From now on the volume has `geometry`. The caller holds the lock of the group that is the
    /// last one until now.
    pub(crate) fn publish(&self, geometry: Geometry) {
        let n = self.current.latest.load(Ordering::Relaxed);
        debug_assert!(geometry.blocks_count() > self.current.get().blocks_count());
        // Only this thread publishes, so the cell is empty.
        let _ = self.current.grown.cell(n).set(geometry);
        self.current.latest.store(n + 1, Ordering::Release);
    }

    /// From now on all blocks can be used, and `reserved_blocks` of them are reserved for root. The
    /// counters include the new ones already.
    pub(crate) fn open(&self, reserved_blocks: u64) {
        self.current.usable_blocks.store(self.current.get().blocks_count(), Ordering::Release);
        self.current.reserved_blocks.store(reserved_blocks, Ordering::Release);
    }
}

impl Drop for Growing<'_> {
    fn drop(&mut self) {
        self.current.growing.store(false, Ordering::Release);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use extant_base::BlockSize;

    #[test]
    fn the_newest_geometry_is_current_and_earlier_ones_stay() {
        let mut sb = Superblock::new(BlockSize::from_bytes(4096).unwrap());
        (sb.blocks_per_group, sb.clusters_per_group) = (256, 256);
        (sb.inodes_per_group, sb.inodes_count, sb.inode_size) = (32, 32, 256);
        sb.blocks_count = 200;
        let current = CurrentGeometry::new(&sb).unwrap();
        let first = current.get();
        let growing = Growing::begin(&current).unwrap();
        assert!(matches!(Growing::begin(&current), Err(Error::Busy)));
        for blocks in 201..240 {
            sb.blocks_count = blocks;
            growing.publish(Geometry::new(&sb).unwrap());
            assert_eq!(current.get().blocks_count(), blocks);
        }
        assert_eq!((first.blocks_count(), current.usable_blocks()), (200, 200));
        growing.open(11);
        assert_eq!((current.usable_blocks(), current.reserved_blocks()), (239, 11));
        drop(growing);
        assert!(Growing::begin(&current).is_ok());
    }
}
