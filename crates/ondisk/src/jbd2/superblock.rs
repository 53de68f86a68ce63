//! The journal superblock.
//!
//! ```text
//!   0   header (type 4, or 3 = v1: nothing past 24)      44  dynsuper 0
//!   C   blocksize        1C  start (0 = log empty)       48  max_transaction, max_trans_data
//!   10  maxlen           20  errno                       50  checksum_type u8 = 4
//!   14  first            24  compat, incompat, ro_compat 54  num_fc_blks (0 = 256)
//!   18  sequence         30  uuid[16]    40 nr_users     58  head   FC checksum   100 users[48×16]
//! ```
//!
//! Rules:
//! - With csum v2 or v3, checksum = crc32c(~0, 1024 bytes with the field as zero).
//! - crc32c(~0, uuid) is the seed of the checksums of all other blocks.
//! - The log is cyclic, in blocks first .. maxlen - fc.
//! - With fast commits, block maxlen - fc is unused, and the fast-commit area follows it.
//!
//! Source: ext4 documentation, "Journal (jbd2)", Super Block.

use super::features::{JournalCompat, JournalFeatures, JournalIncompat, JournalRoCompat};
use super::header::{self, BlockType, Header, RawHeader};
use super::log_format::{BlockSum, LogFormat};
use core::mem::offset_of;
use extant_base::narrow::len_u32;
use extant_base::{BlockSize, Result, Site, Tid, What};
use zerocopy::big_endian::U32;
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Bytes of the superblock.
pub const SUPERBLOCK_LEN: usize = 1024;
/// Fast-commit blocks if the field is 0.
pub const FAST_COMMIT_BLOCKS_DEFAULT: u32 = 256;
/// The fewest blocks of the log, without the fast-commit area, that Linux accepts.
pub const LOG_BLOCKS_MIN: u32 = 1024;
/// Filesystems that an external journal can name.
pub const USERS_MAX: u32 = 48;
const CHECKSUM_CRC32C: u8 = 4;

/// The superblock as stored.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
#[expect(missing_docs, reason = "the module's picture describes the fields")]
pub struct RawJournalSuperblock {
    pub s_header: RawHeader,
    pub s_blocksize: U32,
    pub s_maxlen: U32,
    pub s_first: U32,
    pub s_sequence: U32,
    pub s_start: U32,
    pub s_errno: U32,
    pub s_feature_compat: U32,
    pub s_feature_incompat: U32,
    pub s_feature_ro_compat: U32,
    pub s_uuid: [u8; 16],
    pub s_nr_users: U32,
    pub s_dynsuper: U32,
    pub s_max_transaction: U32,
    pub s_max_trans_data: U32,
    pub s_checksum_type: u8,
    pub s_padding2: [u8; 3],
    pub s_num_fc_blks: U32,
    pub s_head: U32,
    pub s_padding: [U32; 40],
    pub s_checksum: U32,
    pub s_users: [[u8; 16]; 48],
}
const _: () = assert!(
    size_of::<RawJournalSuperblock>() == SUPERBLOCK_LEN
        && offset_of!(RawJournalSuperblock, s_uuid) == 0x30
        && offset_of!(RawJournalSuperblock, s_checksum_type) == 0x50
        && offset_of!(RawJournalSuperblock, s_head) == 0x58
        && offset_of!(RawJournalSuperblock, s_checksum) == 0xFC
        && offset_of!(RawJournalSuperblock, s_users) == 0x100
);

/// A checked journal superblock. A write keeps the bytes that belong to no field of this type.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct JournalSuperblock {
    /// Block size in bytes.
    pub block_size: BlockSize,
    /// Blocks in the journal, this one counted.
    pub maxlen: u32,
    /// First block of the log.
    pub first: u32,
    /// First transaction expected in the log.
    pub sequence: Tid,
    /// Log block where that transaction starts; `None` if the log is empty.
    pub start: Option<u32>,
    /// The errno of an aborted journal, negative; 0 if the journal has not aborted.
    pub errno: i32,
    /// Feature words; all empty in a v1 superblock.
    pub features: JournalFeatures,
    /// The journal's uuid.
    pub uuid: [u8; 16],
    /// Fast-commit blocks, with the default in place of 0; valid only with feature `fast_commit`.
    pub fast_commit_blocks: u32,
    /// Log block for the next transaction if the log is empty; 0 if not recorded.
    pub head: u32,
    /// Whether it is a v1 superblock, which has no features and no checksum.
    pub is_v1: bool,
    /// Filesystems named by an external journal, 0..=48.
    pub nr_users: u32,
}

impl JournalSuperblock {
    /// Reads and checks the first 1024 bytes of log block 0.
    ///
    /// `journal_blocks` is the number of blocks of the journal's inode or device, `fs_block_size`
    /// the volume's block size.
    ///
    /// # Errors
    /// `Corrupt` with `JournalMagic`, `JournalSuperblock` or `JournalChecksum`; `Unsupported` for
    /// unknown features.
    pub fn read(
        block: &[u8],
        fs_block_size: BlockSize,
        journal_blocks: u64,
        at: Site,
    ) -> Result<JournalSuperblock> {
        let bad = |offset: usize| at.offset(offset).corrupt(What::JournalSuperblock);
        let (raw, _) = RawJournalSuperblock::ref_from_prefix(block).map_err(|_| bad(0))?;
        let header = Header::read(block).ok_or(at.offset(0).corrupt(What::JournalMagic))?;
        let is_v1 = match header.block_type {
            BlockType::SuperblockV1 => true,
            BlockType::SuperblockV2 => false,
            _ => return Err(at.offset(4).corrupt(What::JournalMagic)),
        };
        let features = match is_v1 {
            true => JournalFeatures::NONE,
            false => JournalFeatures {
                compat: JournalCompat::from_bits_retain(raw.s_feature_compat.get()),
                incompat: JournalIncompat::from_bits_retain(raw.s_feature_incompat.get()),
                ro_compat: JournalRoCompat::from_bits_retain(raw.s_feature_ro_compat.get()),
            },
        };
        features.check(at)?;
        if matches!(features.block_sum(), BlockSum::V2 | BlockSum::V3) {
            if raw.s_checksum_type != CHECKSUM_CRC32C {
                return Err(bad(offset_of!(RawJournalSuperblock, s_checksum_type)));
            }
            if raw.s_checksum.get() != checksum(&block[..SUPERBLOCK_LEN]) {
                return Err(at.offset(CHECKSUM_AT).corrupt(What::JournalChecksum));
            }
        }
        let block_size = BlockSize::from_bytes(raw.s_blocksize.get())
            .filter(|&size| size == fs_block_size)
            .ok_or(bad(offset_of!(RawJournalSuperblock, s_blocksize)))?;
        let fast_commit_blocks = match raw.s_num_fc_blks.get() {
            0 => FAST_COMMIT_BLOCKS_DEFAULT,
            blocks => blocks,
        };
        let (start, first) = (raw.s_start.get(), raw.s_first.get());
        let superblock = JournalSuperblock {
            block_size,
            maxlen: raw.s_maxlen.get(),
            first,
            sequence: Tid(raw.s_sequence.get()),
            start: (start != 0).then_some(start),
            errno: raw.s_errno.get().cast_signed(),
            features,
            uuid: if is_v1 { [0; 16] } else { raw.s_uuid },
            fast_commit_blocks,
            head: if is_v1 { 0 } else { raw.s_head.get() },
            is_v1,
            nr_users: if is_v1 { 0 } else { raw.s_nr_users.get() },
        };
        if u64::from(superblock.maxlen) > journal_blocks {
            return Err(bad(offset_of!(RawJournalSuperblock, s_maxlen)));
        }
        let last = superblock.log_end().ok_or(bad(offset_of!(RawJournalSuperblock, s_maxlen)))?;
        if first == 0 || first >= last {
            return Err(bad(offset_of!(RawJournalSuperblock, s_first)));
        }
        if start != 0 && !(first..last).contains(&start) {
            return Err(bad(offset_of!(RawJournalSuperblock, s_start)));
        }
        if superblock.nr_users > USERS_MAX {
            return Err(bad(offset_of!(RawJournalSuperblock, s_nr_users)));
        }
        Ok(superblock)
    }

    /// One past the last block of the log. `None` if a log with fast commits has fewer than
    /// [`LOG_BLOCKS_MIN`] blocks; without fast commits a shorter log is legal.
    pub fn log_end(&self) -> Option<u32> {
        if !self.features.incompat.contains(JournalIncompat::FAST_COMMIT) {
            return Some(self.maxlen);
        }
        let end = self.maxlen.checked_sub(self.fast_commit_blocks)?;
        (end >= LOG_BLOCKS_MIN).then_some(end)
    }

    /// The log blocks that hold fast commits; empty without the feature.
    pub fn fast_commit_area(&self) -> core::ops::Range<u32> {
        match (self.features.incompat.contains(JournalIncompat::FAST_COMMIT), self.log_end()) {
            (true, Some(end)) => end.saturating_add(1)..self.maxlen.max(end.saturating_add(1)),
            _ => 0..0,
        }
    }

    /// The format of the other blocks of the log.
    pub fn log_format(&self) -> LogFormat {
        LogFormat {
            block_size: self.block_size,
            wide: self.features.incompat.contains(JournalIncompat::BIT64),
            sum: self.features.block_sum(),
            seed: extant_crc32c::crc32c(!0, &self.uuid),
        }
    }

    /// Writes the fields of this superblock and the checksum into `block`. Other bytes stay.
    ///
    /// A v1 superblock that has got features, or a head, is written as v2.
    pub fn write(&self, block: &mut [u8]) {
        let (raw, _) = RawJournalSuperblock::mut_from_prefix(block)
            .expect("the first block of a journal holds 1024 bytes");
        let v1 = self.is_v1 && self.features == JournalFeatures::NONE;
        let block_type = if v1 { BlockType::SuperblockV1 } else { BlockType::SuperblockV2 };
        raw.s_header.h_magic = U32::new(header::MAGIC);
        raw.s_header.h_blocktype = U32::new(block_type.code());
        raw.s_blocksize = U32::new(len_u32(self.block_size.bytes()));
        raw.s_maxlen = U32::new(self.maxlen);
        raw.s_first = U32::new(self.first);
        raw.s_sequence = U32::new(self.sequence.0);
        raw.s_start = U32::new(self.start.unwrap_or(0));
        raw.s_errno = U32::new(self.errno.cast_unsigned());
        if v1 {
            return;
        }
        raw.s_feature_compat = U32::new(self.features.compat.bits());
        raw.s_feature_incompat = U32::new(self.features.incompat.bits());
        raw.s_feature_ro_compat = U32::new(self.features.ro_compat.bits());
        raw.s_uuid = self.uuid;
        raw.s_nr_users = U32::new(self.nr_users);
        raw.s_head = U32::new(self.head);
        // 0 on disk means the default: keep it, so that a read and a write change no byte.
        let unset = raw.s_num_fc_blks.get() == 0;
        if !(unset && self.fast_commit_blocks == FAST_COMMIT_BLOCKS_DEFAULT) {
            raw.s_num_fc_blks = U32::new(self.fast_commit_blocks);
        }
        let summed = matches!(self.features.block_sum(), BlockSum::V2 | BlockSum::V3);
        raw.s_checksum_type = if summed { CHECKSUM_CRC32C } else { 0 };
        raw.s_checksum = U32::ZERO;
        if summed {
            let sum = checksum(&block[..SUPERBLOCK_LEN]);
            block[CHECKSUM_AT..CHECKSUM_AT + 4].copy_from_slice(&sum.to_be_bytes());
        }
    }

    /// The uuids of the filesystems that an external journal serves.
    pub fn users(block: &[u8]) -> impl Iterator<Item = [u8; 16]> + '_ {
        let raw = RawJournalSuperblock::ref_from_prefix(block).ok().map(|(raw, _)| raw);
        raw.into_iter().flat_map(|raw| {
            raw.s_users.iter().copied().take(raw.s_nr_users.get().min(USERS_MAX) as usize)
        })
    }

    /// Stores the uuid of one filesystem in an external journal's superblock. The caller calls this
    /// before [`Self::write`], which sets the checksum.
    pub fn put_user(block: &mut [u8], slot: usize, uuid: [u8; 16]) {
        let (raw, _) = RawJournalSuperblock::mut_from_prefix(block)
            .expect("the first block of a journal holds 1024 bytes");
        raw.s_users[slot] = uuid;
    }
}

const CHECKSUM_AT: usize = offset_of!(RawJournalSuperblock, s_checksum);

fn checksum(superblock: &[u8]) -> u32 {
    header::checksum_without(!0, superblock, CHECKSUM_AT)
}

#[cfg(test)]
mod tests {
    use super::*;
    use extant_base::{Error, FeatureSet};

    fn features(compat: u32, incompat: u32) -> JournalFeatures {
        JournalFeatures {
            compat: JournalCompat::from_bits_retain(compat),
            incompat: JournalIncompat::from_bits_retain(incompat),
            ro_compat: JournalRoCompat::empty(),
        }
    }

    fn sample() -> JournalSuperblock {
        JournalSuperblock {
            block_size: BlockSize::from_bytes(4096).unwrap(),
            maxlen: 8192,
            first: 1,
            sequence: Tid(7),
            start: Some(100),
            errno: -5,
            features: features(0, 0x33),
            uuid: *b"journal uuid 16b",
            fast_commit_blocks: 128,
            head: 0,
            is_v1: false,
            nr_users: 1,
        }
    }

    fn read(block: &[u8]) -> Result<JournalSuperblock> {
        let size = BlockSize::from_bytes(4096).unwrap();
        JournalSuperblock::read(block, size, 8192, Site::NOWHERE)
    }

    fn written(superblock: &JournalSuperblock) -> [u8; 1024] {
        let mut block = [0; 1024];
        superblock.write(&mut block);
        block
    }

    #[test]
    fn a_superblock_reads_back() {
        let block = written(&sample());
        assert_eq!(block[0x1C..0x24], [0, 0, 0, 100, 0xFF, 0xFF, 0xFF, 0xFB]);
        assert_eq!(block[0x50], 4);
        assert_eq!(read(&block).unwrap(), sample());
        assert_eq!(sample().log_end(), Some(8064));
        assert_eq!(sample().fast_commit_area(), 8065..8192);
        let mut v1 = JournalSuperblock { is_v1: true, features: JournalFeatures::NONE, ..sample() };
        (v1.uuid, v1.nr_users, v1.fast_commit_blocks) = ([0; 16], 0, 256);
        assert_eq!(read(&written(&v1)).unwrap(), v1);
        assert_eq!(v1.fast_commit_area(), 0..0);
    }

    #[test]
    fn unknown_bytes_survive_a_write() {
        let mut block = written(&sample());
        block[0x44] = 9;
        block[0x200] = 8;
        let unset = JournalSuperblock { features: features(0, 1), ..sample() };
        unset.write(&mut block);
        assert_eq!((block[0x44], block[0x200]), (9, 8));
        assert_eq!(read(&block).unwrap(), unset);
    }

    #[test]
    fn each_bad_superblock_is_refused() {
        use What::{JournalChecksum as Sum, JournalMagic as Magic, JournalSuperblock as Field};
        let plain = JournalSuperblock { features: features(0, 0x20), ..sample() };
        for (offset, bytes, want) in [
            (0, &[0][..], Magic),
            (7, &[5], Magic),
            (0x0E, &[0x20, 0], Field),
            (0x0F, &[1], Field),
            (0x10, &[0xFF], Field),
            (0x12, &[0x20, 1], Field),
            (0x12, &[0, 1], Field),
            (0x16, &[0xFF, 0xFF], Field),
            (0x17, &[0], Field),
            (0x1D, &[1], Field),
            (0x27, &[1], Field),
            (0x2B, &[0x18], Field),
            (0x43, &[49], Field),
            (0x54, &[0xFF], Field),
        ] {
            let mut block = written(&plain);
            if want == Field && offset == 0x27 {
                block[0x2B] = 0x10;
            }
            block[offset..offset + bytes.len()].copy_from_slice(bytes);
            match read(&block) {
                Err(Error::Corrupt { what, .. }) => assert_eq!(what, want, "{offset:x}"),
                other => panic!("{offset:x} {bytes:x?}: {other:?}"),
            }
        }
        let mut block = written(&sample());
        block[0x1F] ^= 1;
        assert!(matches!(read(&block), Err(Error::Corrupt { what: Sum, .. })));
        let mut block = written(&plain);
        block[0x2A] = 1;
        let Err(Error::Unsupported { feature }) = read(&block) else { panic!("took bit 8") };
        assert_eq!((feature.set, feature.bits), (FeatureSet::Journal, 0x100));
        assert!(read(&block[..1023]).is_err());
    }

    #[test]
    fn the_log_format_follows_the_features() {
        let format = |compat, incompat| {
            JournalSuperblock { features: features(compat, incompat), ..sample() }.log_format()
        };
        // compat, incompat, tag bytes, blocks per descriptor, revokes per block
        for (compat, incompat, tag, blocks, revokes) in [
            (0, 0, 8, 506, 1020),
            (0, 2, 12, 337, 510),
            (1, 0, 8, 506, 1020),
            (0, 8, 10, 404, 1019),
            (0, 10, 14, 289, 509),
            (0, 0x10, 16, 253, 1019),
            (0, 0x12, 16, 253, 509),
        ] {
            let format = format(compat, incompat);
            let got =
                (format.tag_len(), format.blocks_per_descriptor(), format.revokes_per_block());
            assert_eq!(got, (tag, blocks, revokes), "{compat:x} {incompat:x}");
        }
    }
}
