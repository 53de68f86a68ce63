//! The volume's counters from those of its groups, when it is opened to be written.
//!
//! ```text
//!   │ 64 │ 64 │ 64 │ … descriptor blocks, many to a read ──► free clusters, free inodes, directories
//!                                                            nothing is kept of the groups themselves
//! ```
//!
//! The superblock's own counters are as old as they like. 64 TiB have 524,288 groups, all of whose descriptors are read
//! here, once, as Linux does; what else there is of a group comes when somebody works in it.

use crate::space::Space;
use extant_base::{BlockNr, Error, GroupNr, Result};
use extant_ondisk::group_desc::GroupDesc;
use std::sync::atomic::Ordering;

/// Descriptor blocks that one request reads, where they lie beside each other.
const AHEAD: u32 = 256;

#[derive(Default)]
struct Counts {
    clusters: i64,
    inodes: i64,
    dirs: i64,
}

impl Space {
    /// Sums the free counters from all descriptors: what they are before anything is allocated.
    ///
    /// Reads every descriptor block. A group whose descriptor is bad is noted and counts nothing. Errors: `Device`.
    pub(crate) fn recount_free(&self) -> Result<()> {
        let mut counts = Counts::default();
        let per_block = self.context.geometry().descs_per_block();
        for k in 0..self.context.geometry().desc_blocks() {
            if k.is_multiple_of(AHEAD) {
                self.prefetch_descriptors(k);
            }
            for error in self.count_block(k * per_block, per_block, &mut counts) {
                match error {
                    Error::Corrupt { .. } => self.context.note_error(&error),
                    error => return Err(error),
                }
            }
        }
        self.free_clusters.store(counts.clusters, Ordering::Relaxed);
        self.free_inodes.store(counts.inodes, Ordering::Relaxed);
        self.used_dirs.store(counts.dirs, Ordering::Relaxed);
        Ok(())
    }

    /// Adds what one descriptor block says, from group `first` on. Gives what is wrong with it: to be noted without
    /// its bytes held.
    fn count_block(&self, first: u32, per_block: u32, counts: &mut Counts) -> Vec<Error> {
        let (block, place) = match self.descriptor_block(GroupNr(first)) {
            Ok(found) => found,
            Err(error) => return vec![error],
        };
        let bytes = block.read();
        let groups = (first..self.context.geometry().groups_count()).take(per_block as usize);
        let each =
            groups.zip(bytes[place.start..].chunks_exact(self.context.geometry().desc_size()));
        let mut bad = Vec::new();
        for (nr, bytes) in each {
            match GroupDesc::check(
                bytes,
                GroupNr(nr),
                self.context.geometry(),
                self.context.checksums(),
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

    /// Asks for the descriptor blocks from the `k`th on that lie behind each other.
    fn prefetch_descriptors(&self, k: u32) {
        let Some(BlockNr(first)) = self.context.geometry().desc_block(k) else { return };
        let end = self.context.geometry().desc_blocks().min(k + AHEAD);
        let follows = |n: &u32| {
            self.context.geometry().desc_block(*n) == Some(BlockNr(first + u64::from(n - k)))
        };
        let count = 1 + (k + 1..end).take_while(follows).count() as u32;
        if count > 1 {
            // What cannot be read is found by who reads it.
            let _ = self.context.journal().cache().prefetch(BlockNr(first), count);
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::context::environment::Environment;
    use crate::mkfs::{MkfsOptions, format};
    use crate::volume::{Volume, VolumeOptions};
    use extant_blockdev::MemoryDevice;
    use std::sync::Arc;
    use std::sync::atomic::Ordering;

    #[test]
    fn groups_take_memory_when_somebody_works_in_them() {
        let device = Arc::new(MemoryDevice::new(1 << 40));
        let options = MkfsOptions::new().zeroed(true);
        format(device.clone(), &options, &Environment::default()).unwrap();
        let options = VolumeOptions { read_only: false, ..VolumeOptions::default() };
        let volume = Volume::open_parts(device, &options).unwrap();
        volume.space().recount_free().unwrap();
        assert_eq!(volume.geometry().groups_count(), 8192);
        assert_eq!(volume.space().groups.in_memory(), 0);
        let free = volume.space().free_clusters();
        assert_eq!(free, volume.at_open().free_blocks >> volume.geometry().log_cluster_ratio());
        assert_eq!(volume.space().free_inodes(), volume.at_open().free_inodes);
        assert_eq!(volume.space().used_dirs.load(Ordering::Relaxed), 2, "/ and /lost+found");
        let info = volume.space_info();
        assert!(volume.overhead().get().is_some_and(|blocks| *blocks > 0));
        assert_eq!(volume.space_info(), info, "counted once, then remembered");
        assert_eq!(volume.space().groups.in_memory(), 1024, "that of the journal's inode");
    }
}
