//! The volume's free counters, computed from those of its groups when it is opened for writing.
//!
//! ```text
//!   │ 64 │ 64 │ 64 │ … descriptor blocks, many a read ──► free clusters, free inodes, directories
//!                                                          nothing of the groups stays in memory
//! ```
//!
//! The counters of the superblock can be out of date. A volume of 64 TiB has 524,288 groups.
//! Opening reads all their descriptors once, as Linux does. A group's other state is created when
//! the group is first used.

use crate::space::group::Groups;
use extant_base::narrow::len_u32;
use extant_base::{BlockNr, CachePadded, Error, GroupNr, Result};
use extant_ondisk::geometry::Geometry;
use extant_ondisk::group_desc::GroupDesc;
use extant_ondisk::superblock::Superblock;
use std::sync::atomic::{AtomicI64, Ordering};

/// Most descriptor blocks that one request reads; they are neighbours.
const AHEAD: u32 = 256;

/// Free clusters and inodes of all groups together, and their directories.
pub(super) struct FreeCounters {
    clusters: CachePadded<AtomicI64>,
    inodes: CachePadded<AtomicI64>,
    dirs: CachePadded<AtomicI64>,
}

impl FreeCounters {
    /// The superblock's counts, and no directories, until [`FreeCounters::set`].
    pub(super) fn new(superblock: &Superblock, geometry: &Geometry) -> FreeCounters {
        let clusters = superblock.free_blocks >> geometry.log_cluster_ratio();
        let clusters = i64::try_from(clusters).unwrap_or(i64::MAX);
        FreeCounters {
            clusters: CachePadded::new(AtomicI64::new(clusters)),
            inodes: CachePadded::new(AtomicI64::new(superblock.free_inodes.into())),
            dirs: CachePadded::default(),
        }
    }

    pub(super) fn set(&self, counts: &Counts) {
        self.clusters.store(counts.clusters, Ordering::Relaxed);
        self.inodes.store(counts.inodes, Ordering::Relaxed);
        self.dirs.store(counts.dirs, Ordering::Relaxed);
    }

    /// Free clusters, those reserved or pending included. Below 0 if the counts on disk are wrong.
    pub(super) fn clusters(&self) -> i64 {
        self.clusters.load(Ordering::SeqCst)
    }

    /// Free inodes. Below 0 if the counts on disk are wrong.
    pub(super) fn inodes(&self) -> i64 {
        self.inodes.load(Ordering::Relaxed)
    }

    pub(super) fn dirs(&self) -> i64 {
        self.dirs.load(Ordering::Relaxed)
    }

    /// Adds `change` free clusters. Reservations compare this count with others, so all of them
    /// agree on the order of changes.
    pub(super) fn add_clusters(&self, change: i64) {
        self.clusters.fetch_add(change, Ordering::SeqCst);
    }

    pub(super) fn add_inodes(&self, change: i64) {
        self.inodes.fetch_add(change, Ordering::Relaxed);
    }

    pub(super) fn add_dirs(&self, change: i64) {
        self.dirs.fetch_add(change, Ordering::Relaxed);
    }
}

/// The sums of the groups' counts.
#[derive(Default)]
pub(super) struct Counts {
    clusters: i64,
    inodes: i64,
    dirs: i64,
}

impl Groups {
    /// Adds the counts of all groups.
    ///
    /// Reads every descriptor block. A group with a bad descriptor is noted and counts as 0.
    /// Errors: `Device`.
    pub(super) fn count(&self) -> Result<Counts> {
        let mut counts = Counts::default();
        let per_block = self.context().geometry().descs_per_block();
        for k in 0..self.context().geometry().desc_blocks() {
            if k.is_multiple_of(AHEAD) {
                self.prefetch_descriptors(k);
            }
            for error in self.count_block(k * per_block, per_block, &mut counts) {
                match error {
                    Error::Corrupt { .. } => self.context().note_error(&error),
                    error => return Err(error),
                }
            }
        }
        Ok(counts)
    }

    /// Adds the counts of one descriptor block, from group `first` on. Returns its errors, so that
    /// the caller can note them after the block's bytes are released.
    fn count_block(&self, first: u32, per_block: u32, counts: &mut Counts) -> Vec<Error> {
        let (block, place) = match self.descriptor_block(GroupNr(first)) {
            Ok(found) => found,
            Err(error) => return vec![error],
        };
        let bytes = block.read();
        let groups = (first..self.context().geometry().groups_count()).take(per_block as usize);
        let each =
            groups.zip(bytes[place.start..].chunks_exact(self.context().geometry().desc_size()));
        let mut bad = Vec::new();
        for (nr, bytes) in each {
            match GroupDesc::check(
                bytes,
                GroupNr(nr),
                self.context().geometry(),
                self.context().checksums(),
            ) {
                Ok(desc) => {
                    counts.clusters += i64::from(desc.free_clusters);
                    counts.inodes += i64::from(desc.free_inodes);
                    counts.dirs += i64::from(desc.used_dirs);
                }
                Err(error) => bad.push(error),
            }
        }
        bad
    }

    /// Reads ahead the descriptor blocks from the `k`th on that follow each other.
    fn prefetch_descriptors(&self, k: u32) {
        let Some(BlockNr(first)) = self.context().geometry().desc_block(k) else { return };
        let end = self.context().geometry().desc_blocks().min(k + AHEAD);
        let follows = |n: &u32| {
            self.context().geometry().desc_block(*n) == Some(BlockNr(first + u64::from(n - k)))
        };
        let count = 1 + len_u32((k + 1..end).take_while(follows).count());
        if count > 1 {
            // A later read of the block returns the error.
            let _ = self.context().journal().cache().prefetch(BlockNr(first), count);
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::context::environment::Environment;
    use crate::offline::mkfs::{MkfsOptions, format};
    use crate::volume::{Volume, VolumeOptions};
    use extant_blockdev::MemoryDevice;
    use std::sync::Arc;

    #[test]
    fn groups_take_memory_when_they_are_first_changed() {
        let device = Arc::new(MemoryDevice::new(1 << 40));
        let options = MkfsOptions::new().zeroed(true);
        format(device.clone(), &options, &Environment::default()).unwrap();
        let options = VolumeOptions { read_only: false, ..VolumeOptions::default() };
        let volume = Volume::open_parts(device, &options).unwrap();
        volume.space().recount_free().unwrap();
        assert_eq!(volume.geometry().groups_count(), 8192);
        assert_eq!(volume.space().groups().in_memory(), 0);
        let free = volume.space().free_clusters();
        assert_eq!(free, volume.at_open().free_blocks >> volume.geometry().log_cluster_ratio());
        assert_eq!(volume.space().free_inodes(), volume.at_open().free_inodes);
        assert_eq!(volume.space().free_space.counters().dirs(), 2, "/ and /lost+found");
        let info = volume.statistics().space_info();
        assert!(volume.overhead().lock().is_some_and(|(_, blocks)| blocks > 0));
        assert_eq!(volume.statistics().space_info(), info, "counted once, then remembered");
        assert_eq!(volume.space().groups().in_memory(), 1024, "that of the journal's inode");
    }
}
