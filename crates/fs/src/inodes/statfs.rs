//! How full the volume is, as `statfs` reports it.
//!
//! ```text
//!   blocks_count ─┬─ overhead      superblock copies, descriptors, bitmaps, tables, journal
//!                 └─ blocks ─┬─ used
//!                            └─ free ─┬─ reserved for root
//!                                     └─ available
//! ```
//!
//! Source: ext4 documentation, "The Super Block".

use crate::volume::Volume;
use extant_base::narrow::len_u32;
use extant_ondisk::features::RoCompat;

/// The numbers that statfs reports.
#[derive(Clone, Copy)]
pub(crate) struct Statistics<'a> {
    volume: &'a Volume,
}

impl Volume {
    /// What statfs reports of this volume.
    pub(crate) fn statistics(&self) -> Statistics<'_> {
        Statistics { volume: self }
    }
}

/// How full a volume is. Blocks are the volume's own.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SpaceInfo {
    /// Bytes of a block.
    pub block_bytes: u32,
    /// Blocks that can hold data and its maps.
    pub blocks: u64,
    /// Blocks that are free.
    pub free: u64,
    /// Blocks that are free and neither reserved for root nor in the engine's own pool.
    pub available: u64,
    /// Inodes.
    pub inodes: u32,
    /// Inodes that are free.
    pub free_inodes: u32,
}

impl Statistics<'_> {
    /// How full the volume is now.
    ///
    /// Until something is written, the counters are those of the superblock, so they can be out of
    /// date on a volume that was not unmounted. Counts the layout's metadata over all groups.
    pub(crate) fn space_info(self) -> SpaceInfo {
        let ratio_log2 = self.volume.geometry().log_cluster_ratio();
        let blocks = self.volume.geometry().blocks_count().saturating_sub(self.overhead_blocks());
        let free = self.volume.space().unreserved_clusters() << ratio_log2;
        let free = free.min(blocks);
        let pool = self.volume.space().reservations().pool_in_use() << ratio_log2;
        let kept = self.volume.context().reserved_blocks().saturating_add(pool);
        SpaceInfo {
            block_bytes: len_u32(self.volume.block_size().bytes()),
            blocks,
            free,
            available: free.saturating_sub(kept),
            inodes: self.volume.geometry().inodes_count(),
            free_inodes: self.volume.space().free_inodes(),
        }
    }

    /// Blocks that never hold data. Their number changes only when the volume grows, so the groups
    /// are not walked in each call. Locks: takes `Leaf`.
    fn overhead_blocks(self) -> u64 {
        let of = self.volume.geometry().blocks_count();
        if let Some((_, known)) = self.volume.overhead().lock().filter(|known| known.0 == of) {
            return known;
        }
        let (blocks, is_sure) = self.count_overhead();
        if is_sure {
            *self.volume.overhead().lock() = Some((of, blocks));
        }
        blocks
    }

    /// Counts them, and returns whether the count is final: a journal that cannot be found now
    /// counts as 0.
    fn count_overhead(self) -> (u64, bool) {
        let clusters = self.volume.context().superblock().read().overhead_clusters;
        let stored = u64::from(clusters) << self.volume.geometry().log_cluster_ratio();
        if self.volume.has_ro_compat(RoCompat::BIGALLOC)
            && stored != 0
            && stored <= self.volume.geometry().blocks_count()
        {
            return (stored, true);
        }
        let groups = u64::from(self.volume.geometry().groups_count());
        let bitmaps_and_tables = groups * (2 + u64::from(self.volume.geometry().itable_blocks()));
        let bases: u64 = self
            .volume
            .geometry()
            .groups()
            .filter_map(|group| self.volume.geometry().base_blocks(group))
            .map(|base| base.end - base.start)
            .sum();
        let (journal, is_sure) = match self.volume.journal_file().place(None) {
            Ok(Some(place)) => (u64::from(place.map.blocks()), true),
            Ok(None) => (0, true),
            Err(_) => (0, false),
        };
        (
            self.volume.geometry().first_data_block().0 + bitmaps_and_tables + bases + journal,
            is_sure,
        )
    }
}
