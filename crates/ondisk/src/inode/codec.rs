//! Decoding and encoding an inode in its slot, and its checksum.
//!
//! ```text
//!   seed = crc32c(crc32c(filesystem seed, ino), generation)
//!   csum = crc32c(seed, slot with 07C..07E and, where it exists, 082..084 taken as zero)
//!          low half at 07C, high half at 082 if extra_isize >= 4
//! ```

use super::{FileKind, Inode, InodeFlags, InodeFormat, RawInode, RawInodeExtra};
use crate::checksum::{Checksums, inode_seed};
use crate::time::Timestamp;
use core::mem::offset_of;
use extant_base::narrow::{high_u32, low_u16, low_u32};
use extant_base::{BlockNr, Error, Ino, Site, What};
use extant_crc32c::{crc32c, seed_of};
use zerocopy::FromBytes;
use zerocopy::little_endian::U32;

// Whether the field of `RawInodeExtra` that ends at `end` exists.
fn reaches(extra_isize: u16, end: usize) -> bool {
    usize::from(extra_isize) >= end
}

macro_rules! fits {
    ($extra_isize:expr, $field:ident: $size:literal) => {
        reaches($extra_isize, offset_of!(RawInodeExtra, $field) + $size)
    };
}

impl Inode {
    /// Decodes an inode and checks only the checksum and that extra_isize fits, for scans of inode
    /// tables. A slot of zeros has no checksum.
    ///
    /// `bytes` is the slot: exactly `inode_size` long.
    ///
    /// # Errors
    /// `InodeExtraSize`, `InodeChecksum`.
    pub fn parse(bytes: &[u8], ino: Ino, format: &InodeFormat) -> Result<Inode, Error> {
        let inode = Inode::parse_unverified(bytes, ino, format)?;
        let zero_slot = || bytes.iter().all(|byte| *byte == 0);
        if !checksum_is_right(bytes, ino, &format.checksums) && !zero_slot() {
            return Err(Site::of_ino(ino).offset(0x7C).corrupt(What::InodeChecksum));
        }
        Ok(inode)
    }

    /// As [`Inode::parse`], but ignores the checksum, for tools that read damaged inodes.
    ///
    /// # Errors
    /// `InodeExtraSize`, also for a slot shorter than the volume's inodes.
    pub fn parse_unverified(bytes: &[u8], ino: Ino, format: &InodeFormat) -> Result<Inode, Error> {
        let bad_extra = || Site::of_ino(ino).offset(0x80).corrupt(What::InodeExtraSize);
        let (raw, rest) = match RawInode::ref_from_prefix(bytes) {
            Ok(parts) if bytes.len() == format.inode_size() => parts,
            _ => return Err(bad_extra()),
        };
        let extra = RawInodeExtra::ref_from_prefix(rest).ok().map(|(extra, _)| extra);
        let extra_isize = extra.map_or(0, |extra| extra.i_extra_isize.get());
        if usize::from(extra_isize) > rest.len() || !extra_isize.is_multiple_of(4) {
            return Err(bad_extra());
        }
        macro_rules! extra {
            ($field:ident) => {
                extra.filter(|_| fits!(extra_isize, $field: 4)).map(|extra| extra.$field.get())
            };
        }
        let kind = FileKind::from_mode(raw.i_mode.get());
        let flags = InodeFlags::from_bits_retain(raw.i_flags.get());
        let wide_size = match kind {
            Some(FileKind::Directory) => format.large_dir,
            _ => true,
        };
        let size_hi = if wide_size { raw.i_size_high.get() } else { 0 };
        let acl_hi = if format.is_64bit && !format.hurd { raw.i_file_acl_high.get() } else { 0 };
        let acl = u64::from(raw.i_file_acl_lo.get()) | u64::from(acl_hi) << 32;
        let mut blocks = u64::from(raw.i_blocks_lo.get());
        if format.huge_file {
            blocks |= u64::from(raw.i_blocks_high.get()) << 32;
            if flags.contains(InodeFlags::HUGE_FILE) {
                blocks <<= format.block_size.log2() - 9; // 48 bits + 7 fit
            }
        }
        Ok(Inode {
            mode: raw.i_mode.get(),
            uid: u32::from(raw.i_uid.get()) | u32::from(raw.i_uid_high.get()) << 16,
            gid: u32::from(raw.i_gid.get()) | u32::from(raw.i_gid_high.get()) << 16,
            size: u64::from(raw.i_size_lo.get()) | u64::from(size_hi) << 32,
            atime: Timestamp::decode(raw.i_atime.get(), extra!(i_atime_extra)),
            ctime: Timestamp::decode(raw.i_ctime.get(), extra!(i_ctime_extra)),
            mtime: Timestamp::decode(raw.i_mtime.get(), extra!(i_mtime_extra)),
            crtime: extra!(i_crtime).map(|base| Timestamp::decode(base, extra!(i_crtime_extra))),
            dtime: raw.i_dtime.get(),
            links: raw.i_links_count.get(),
            sectors: blocks,
            flags,
            version: match format.hurd {
                true => 0,
                false => {
                    u64::from(raw.i_version.get())
                        | u64::from(extra!(i_version_hi).unwrap_or(0)) << 32
                }
            },
            translator: match (format.hurd, raw.i_version.get()) {
                (false, _) | (_, 0) => None,
                (true, block) => Some(BlockNr(block.into())),
            },
            i_block: raw.i_block,
            generation: raw.i_generation.get(),
            file_acl: if acl == 0 { None } else { Some(BlockNr(acl)) },
            extra_isize,
            projid: if format.project { extra!(i_projid).unwrap_or(0) } else { 0 },
        })
    }

    /// Writes the inode into its slot and sets the checksum. Bytes that belong to no field of this
    /// type, or to none on this volume, keep their values. If extra_isize grows, the added bytes
    /// without fields become zero.
    ///
    /// Times out of range are clamped. HUGE_FILE is set if and only if the number of sectors needs
    /// it.
    ///
    /// # Errors
    /// `FileTooLarge` if the sectors do not fit; `Invalid` if extra_isize does not.
    ///
    /// # Panics
    /// If `bytes` is not exactly `inode_size` long.
    pub fn write(&self, bytes: &mut [u8], ino: Ino, format: &InodeFormat) -> Result<(), Error> {
        assert_eq!(bytes.len(), format.inode_size(), "an inode fills its slot");
        let mut flags = self.flags.difference(InodeFlags::HUGE_FILE);
        let mut blocks = self.sectors;
        if self.sectors > format.max_sectors() {
            return Err(Error::FileTooLarge);
        }
        if blocks >> 48 != 0 {
            flags.insert(InodeFlags::HUGE_FILE);
            blocks >>= format.block_size.log2() - 9;
        }
        let extra_isize = self.extra_isize;
        let (raw, rest) = RawInode::mut_from_prefix(bytes).expect("a slot has at least 128 bytes");
        if usize::from(extra_isize) > rest.len() || !extra_isize.is_multiple_of(4) {
            return Err(Error::Invalid("extra inode size does not fit the inode"));
        }
        let kind = FileKind::from_mode(self.mode);
        let acl = self.file_acl.map_or(0, |block| block.0);
        raw.i_mode = self.mode.into();
        raw.i_uid = low_u16(self.uid).into();
        raw.i_uid_high = ((self.uid >> 16) as u16).into();
        raw.i_gid = low_u16(self.gid).into();
        raw.i_gid_high = ((self.gid >> 16) as u16).into();
        raw.i_size_lo = low_u32(self.size).into();
        if kind != Some(FileKind::Directory) || format.large_dir {
            raw.i_size_high = ((self.size >> 32) as u32).into();
        }
        raw.i_dtime = self.dtime.into();
        raw.i_links_count = self.links.into();
        raw.i_blocks_lo = low_u32(blocks).into();
        if format.huge_file {
            raw.i_blocks_high = low_u16(high_u32(blocks)).into();
        }
        raw.i_flags = flags.bits().into();
        raw.i_version = match (format.hurd, self.translator) {
            (false, _) => low_u32(self.version).into(),
            (true, block) => block.map_or(0, |block| low_u32(block.0)).into(),
        };
        raw.i_block = self.i_block;
        raw.i_generation = self.generation.into();
        raw.i_file_acl_lo = low_u32(acl).into();
        if format.is_64bit && !format.hurd {
            raw.i_file_acl_high = low_u16(high_u32(acl)).into();
        }
        raw.i_atime = self.atime.encode(fits!(extra_isize, i_atime_extra: 4)).0.into();
        raw.i_ctime = self.ctime.encode(fits!(extra_isize, i_ctime_extra: 4)).0.into();
        raw.i_mtime = self.mtime.encode(fits!(extra_isize, i_mtime_extra: 4)).0.into();

        // A slot of more than 128 bytes has at least 256, so the fixed extra part fits in it.
        let old = rest.first_chunk().map_or(0, |size| u16::from_le_bytes(*size));
        if extra_isize > old {
            let grown = usize::from(old.max(2))..usize::from(extra_isize);
            rest.get_mut(grown).into_iter().for_each(|new| new.fill(0));
        }
        if let Ok((extra, _)) = RawInodeExtra::mut_from_prefix(rest) {
            extra.i_extra_isize = extra_isize.into();
            macro_rules! put {
                ($field:ident = $value:expr) => {
                    if fits!(extra_isize, $field: 4) {
                        extra.$field = U32::new($value);
                    }
                };
            }
            put!(i_ctime_extra = self.ctime.encode(true).1);
            put!(i_mtime_extra = self.mtime.encode(true).1);
            put!(i_atime_extra = self.atime.encode(true).1);
            if let Some(crtime) = self.crtime {
                put!(i_crtime = crtime.encode(fits!(extra_isize, i_crtime_extra: 4)).0);
                put!(i_crtime_extra = crtime.encode(true).1);
            }
            if !format.hurd {
                put!(i_version_hi = (self.version >> 32) as u32);
            }
            if format.project {
                put!(i_projid = self.projid);
            }
        }
        set_checksum(bytes, ino, &format.checksums);
        Ok(())
    }
}

/// Whether all bytes of a slot are zero: the slot was never used and has no checksum.
pub fn is_zero_slot(bytes: &[u8]) -> bool {
    bytes.iter().all(|byte| *byte == 0)
}

// The checksum's high half exists where the slot is large enough and extra_isize reaches it.
fn has_high_half(bytes: &[u8]) -> bool {
    match bytes.get(0x80..0x84) {
        Some(extra) => u16::from_le_bytes([extra[0], extra[1]]) >= 4,
        None => false,
    }
}

/// The checksum that the slot `bytes` must carry, or `None` without `metadata_csum` (or where the
/// slot is shorter than an inode). An inode without the high half stores only the low 16 bits.
pub fn compute_checksum(bytes: &[u8], ino: Ino, checksums: &Checksums) -> Option<u32> {
    let seed = checksums.seed()?;
    let generation = u32::from_le_bytes(*bytes.get(0x64..)?.first_chunk()?);
    let crc = crc32c(inode_seed(seed, ino, generation), bytes.get(..0x7C)?);
    // The checksum's own bytes count as zeros. Few long pieces are faster than many short ones.
    if has_high_half(bytes) {
        let mut middle: [u8; 8] = *bytes.get(0x7C..)?.first_chunk()?;
        middle[..2].fill(0);
        middle[6..].fill(0);
        Some(crc32c(crc32c(crc, &middle), bytes.get(0x84..)?))
    } else {
        Some(crc32c(crc32c(crc, &[0, 0]), bytes.get(0x7E..)?) & 0xFFFF)
    }
}

/// The number of the inode in a slot, computed from its checksum; `None` without `metadata_csum`,
/// for an inode that stores only half of the checksum, and if no inode has that number. Any other
/// content also gives some number, so it proves something only where it is the expected one.
pub fn number_from_checksum(bytes: &[u8], checksums: &Checksums) -> Option<Ino> {
    let seed = checksums.seed()?;
    if !has_high_half(bytes) {
        return None;
    }
    let half = |at: usize| u32::from(u16::from_le_bytes([bytes[at], bytes[at + 1]]));
    let stored = half(0x7C) | half(0x82) << 16;
    let mut middle: [u8; 8] = *bytes.get(0x7C..)?.first_chunk()?;
    middle[..2].fill(0);
    middle[6..].fill(0);
    let before = seed_of(seed_of(stored, bytes.get(0x84..)?), &middle);
    let inode_seed = seed_of(before, bytes.get(..0x7C)?);
    // The seed's last step of four bytes begins with the exclusive or of the number and the
    // filesystem seed.
    let with_number = seed_of(inode_seed, bytes.get(0x64..0x68)?);
    Ino::new(seed_of(with_number, &[0; 4]) ^ seed)
}

/// Whether the slot's checksum is right; always true without `metadata_csum`.
pub fn checksum_is_right(bytes: &[u8], ino: Ino, checksums: &Checksums) -> bool {
    let Some(computed) = compute_checksum(bytes, ino, checksums) else {
        return checksums.seed().is_none();
    };
    let half = |at: usize| u32::from(u16::from_le_bytes([bytes[at], bytes[at + 1]]));
    let stored = half(0x7C) | if has_high_half(bytes) { half(0x82) << 16 } else { 0 };
    stored == computed
}

/// Stores the right checksum; leaves the slot alone without `metadata_csum`.
pub fn set_checksum(bytes: &mut [u8], ino: Ino, checksums: &Checksums) {
    if let Some(computed) = compute_checksum(bytes, ino, checksums) {
        let [b0, b1, b2, b3] = computed.to_le_bytes();
        bytes[0x7C..0x7E].copy_from_slice(&[b0, b1]);
        if has_high_half(bytes) {
            bytes[0x82..0x84].copy_from_slice(&[b2, b3]);
        }
    }
}
