//! Where the volume ends, for a replay: the log may know of more blocks than the superblock at
//! home.
//!
//! ```text
//!   superblock at home      blocks ................ │ end
//!   tags of the log            ▲  ▲         ▲             ▲    ▲              ▲
//!   superblock in the log   blocks ............................... │ end   │ in no group  │ device
//! ```
//!
//! Linux can enlarge a mounted volume. One handle writes the bitmaps of new groups, a later one
//! their descriptors and the superblock that includes them, and still later ones the copies of both
//! in the groups. The superblock goes home last of all. So a log may name blocks that the
//! superblock at home does not include; after a cut between the first two, no superblock includes
//! them. Linux writes all of them. This replay writes those that a superblock of the log includes.
//! It leaves the others out, because a group that no superblock includes is initialized again when
//! it is added.

use crate::log::open_log::Log;
use crate::recovery::scan::{Control, Scan};
use crate::recovery::superblock_last;
use extant_base::{Result, Site, What};
use extant_ondisk::jbd2::{Tag, TagFlags, Tags, header};

impl Log {
    /// The blocks of the volume according to the newest superblock that `scan` found; 0 if there is
    /// none, or if it is damaged.
    ///
    /// Errors: `Device`; `Corrupt(JournalDescriptor)`; `Corrupt(SuperblockBeyondDevice)` if they
    /// are more than `device_blocks`.
    pub(crate) fn blocks_by_log(&self, scan: &Scan, device_blocks: u64) -> Result<u64> {
        let Some(mut copy) = self.newest_superblock(scan)? else { return Ok(0) };
        let size = self.format().block_size;
        let raw = superblock_last::within(size, &mut copy);
        let superblock = raw.and_then(|raw| raw.check(Site::NOWHERE).ok());
        let superblock = superblock.filter(|superblock| superblock.block_size == size);
        let blocks = superblock.map_or(0, |superblock| superblock.blocks_count);
        match blocks <= device_blocks {
            true => Ok(blocks),
            false => {
                let site = Site::of_block(superblock_last::block_of(size)).offset(0x04);
                Err(site.corrupt(What::SuperblockBeyondDevice))
            }
        }
    }

    /// The newest copy of the block that holds the superblock; `None` also if its checksum is
    /// wrong.
    fn newest_superblock(&self, scan: &Scan) -> Result<Option<Vec<u8>>> {
        let format = self.format();
        let wanted = superblock_last::block_of(format.block_size);
        let mut bytes = vec![0; format.block_size.bytes()];
        for control in scan.controls.iter().rev() {
            let Control::Descriptor { block: at, tid } = *control else { continue };
            self.read_right(at, &mut bytes, &|bytes| Control::is_right(bytes, &format, tid))?;
            let mut newest: Option<(u32, Tag)> = None;
            for (step, tag) in (1..).zip(Tags::new(&bytes, format, self.site(at).tid(tid))) {
                newest = Some((step, tag?)).filter(|(_, tag)| tag.block == wanted).or(newest);
            }
            let Some((step, tag)) = newest else { continue };
            let is_right = |copy: &[u8]| tag.verify_copy(&format, tid, copy).is_ok();
            self.read_right(self.cycle().after(at, step), &mut bytes, &is_right)?;
            if !is_right(&bytes) {
                return Ok(None);
            }
            if tag.flags.contains(TagFlags::ESCAPE) {
                header::unescape(&mut bytes);
            }
            return Ok(Some(bytes));
        }
        Ok(None)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_log::{HOME, KINDS, OLD, SIZE, TestLog};
    use crate::{HomeLimits, Recovery};
    use extant_base::Error;
    use extant_ondisk::features::RoCompat;
    use extant_ondisk::jbd2::BlockSum;
    use extant_ondisk::superblock::{RawSuperblock, SUPERBLOCK_MAGIC};

    const V3: (BlockSum, bool) = (BlockSum::V3, true);
    /// The image's blocks.
    const DEVICE: u64 = HOME + 64;
    /// Blocks of the volume according to the superblock at home.
    const FEW: u64 = 100;

    /// The superblock of a volume of `blocks` blocks, in one group.
    fn superblock(blocks: u64) -> [u8; SIZE] {
        let mut bytes = [0; SIZE];
        let raw = RawSuperblock::from_prefix_mut(&mut bytes).unwrap();
        raw.s_magic = SUPERBLOCK_MAGIC.into();
        raw.s_blocks_count_lo = (blocks as u32).into();
        raw.s_first_data_block = 1.into();
        raw.s_blocks_per_group = 8192.into();
        raw.s_clusters_per_group = 8192.into();
        raw.s_inodes_per_group = 64.into();
        raw.s_inodes_count = 64.into();
        raw.s_inode_size = 128.into();
        raw.s_first_ino = 11.into();
        raw.s_rev_level = 1.into();
        raw.s_feature_ro_compat = RoCompat::METADATA_CSUM.bits().into();
        raw.s_checksum_type = 1;
        raw.set_checksum();
        assert_eq!(raw.check(Site::NOWHERE).unwrap().blocks_count, blocks);
        bytes
    }

    /// Recovers a copy of `log` as a volume of [`FEW`] blocks, its log on the same device.
    fn recover(log: &TestLog) -> (Result<Recovery>, Vec<u8>) {
        let device = log.device();
        let limits = HomeLimits { volume_blocks: FEW, ..log.limits() };
        let recovery = log.open(&device).and_then(|log| log.recover(&*device, limits));
        (recovery, device.content())
    }

    fn value(home: &[u8], nr: u64) -> u8 {
        home[nr as usize * SIZE]
    }

    #[track_caller]
    fn assert_refused(log: &TestLog, want: What) {
        let (recovery, home) = recover(log);
        assert!(
            matches!(recovery, Err(Error::Corrupt { what, .. }) if what == want),
            "{recovery:?}"
        );
        assert!(home == log.image, "nothing is written");
    }

    #[test]
    fn blocks_of_a_volume_that_was_being_made_larger_go_home() {
        for kind in KINDS {
            let mut log = TestLog::new(kind, 7, 1, 0);
            log.transaction(&[(3, 1), (FEW, 2), (120, 2)]);
            log.log_bytes(&[(1, superblock(110))]);
            log.commit(2000);
            log.log_bytes(&[(1, superblock(121)), (2, [4; SIZE])]);
            log.commit(2000);
            log.revoke(&[119]);
            log.transaction(&[(5, 5)]);
            let (recovery, home) = recover(&log);
            assert_eq!(recovery.unwrap().blocks_replayed, 6, "{kind:?}");
            assert_eq!([3, FEW, 120, 5].map(|nr| value(&home, nr)), [1, 2, 2, 5], "{kind:?}");
            assert!(home[SIZE..][..SIZE] == superblock(121), "{kind:?}");
        }
    }

    #[test]
    fn a_revoke_beyond_the_old_end_counts() {
        let mut log = TestLog::new(V3, 7, 1, 0);
        log.transaction(&[(120, 2)]);
        log.revoke(&[120]);
        log.log_bytes(&[(1, superblock(121))]);
        log.commit(2000);
        let (recovery, home) = recover(&log);
        assert_eq!((recovery.unwrap().copies_revoked, value(&home, 120)), (1, OLD));
    }

    #[test]
    fn blocks_that_no_superblock_includes_are_left_out() {
        let mut cut_before_the_superblock = TestLog::new(V3, 7, 1, 0);
        cut_before_the_superblock.transaction(&[(3, 1), (FEW, 2), (120, 2)]);
        let mut smaller = TestLog::new(V3, 7, 1, 0);
        smaller.transaction(&[(3, 1), (FEW, 2)]);
        smaller.log_bytes(&[(1, superblock(90))]);
        smaller.commit(2000);
        let mut not_committed = TestLog::new(V3, 7, 1, 0);
        not_committed.transaction(&[(3, 1), (FEW, 2)]);
        not_committed.log_bytes(&[(1, superblock(121))]);
        let mut wrong_sum = TestLog::new(V3, 7, 1, 0);
        wrong_sum.transaction(&[(3, 1), (FEW, 2)]);
        let mut bytes = superblock(121);
        bytes[0x3FC] ^= 1;
        wrong_sum.log_bytes(&[(1, bytes)]);
        wrong_sum.commit(2000);
        for log in [cut_before_the_superblock, smaller, not_committed, wrong_sum] {
            let (recovery, home) = recover(&log);
            recovery.unwrap();
            assert_eq!([3, FEW, 120].map(|nr| value(&home, nr)), [1, OLD, OLD]);
        }
    }

    #[test]
    fn blocks_beyond_the_device_are_refused_whatever_a_superblock_says() {
        for nr in [DEVICE, 1 << 31, u64::MAX] {
            let mut log = TestLog::new(V3, 7, 1, 0);
            log.transaction(&[(3, 1)]);
            log.log_bytes(&[(1, superblock(121)), (nr, [2; SIZE])]);
            log.commit(2000);
            assert_refused(&log, What::JournalTarget);
        }
        let mut log = TestLog::new(V3, 7, 1, 0);
        log.log_bytes(&[(1, superblock(DEVICE + 1)), (120, [2; SIZE])]);
        log.commit(2000);
        assert_refused(&log, What::SuperblockBeyondDevice);
    }

    #[test]
    fn blocks_of_the_log_itself_are_refused_whatever_a_superblock_says() {
        let mut log = TestLog::new(V3, 7, 1, 0);
        log.log_bytes(&[(1, superblock(DEVICE)), (HOME + 3, [2; SIZE])]);
        log.commit(2000);
        assert_refused(&log, What::JournalTarget);
    }
}
