//! Inodes: one file's mode, owner, times, and the root of its block map.
//!
//! ```text
//!   00    02   04   08                 14    18   1A    1C     20    24   28          64   68
//!   ┌─────┬────┬────┬─────┬─────┬─────┬─────┬────┬─────┬──────┬─────┬────┬───────────┬────┬─────┐
//!   │mode │uid │size│atime│ctime│mtime│dtime│gid │links│blocks│flags│vers│ i_block   │gen │acl …│
//!   └─────┴────┴────┴─────┴─────┴─────┴─────┴────┴─────┴──────┴─────┴────┴───────────┴────┴─────┘
//!   80          82    84                  90     94          98      9C      128+extra  inode_size
//!   ┌───────────┬─────┬───────────────────┬──────┬───────────┬───────┬───────┬──────────┬────────┐
//!   │extra_isize│csum │c, m, atime extra  │crtime│crtime xtra│vers hi│projid │ unknown  │ xattrs │
//!   └───────────┴─────┴───────────────────┴──────┴───────────┴───────┴───────┴──────────┴────────┘
//! ```
//!
//! A field past byte 128 exists only if it ends at or before 128 + extra_isize.
//! Source: ext4 documentation, "Index Nodes".

use crate::checksum::{Checksums, inode_seed};
use crate::features::{Compat, Incompat, RoCompat};
use crate::superblock::Superblock;
use crate::time::Timestamp;
use core::mem::{offset_of, size_of};
use core::ops::Range;
use extant_base::{BlockNr, BlockSize, Error, Ino, Site, What};
use extant_crc32c::crc32c;
use zerocopy::little_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Bytes of an inode that every volume has.
pub const INODE_SIZE_MIN: usize = 128;
/// Bytes beyond them that this crate has fields for; what new inodes want.
pub const EXTRA_ISIZE: u16 = 32;
/// Bytes of `i_block`.
pub const I_BLOCK_SIZE: usize = 60;
/// The most links a file may have.
pub const LINK_MAX: u16 = 65000;

/// The first 128 bytes of an inode; any bit pattern.
#[derive(Clone, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct RawInode {
    /// File type and permissions.
    pub i_mode: U16,
    /// Owner, low half.
    pub i_uid: U16,
    /// Size in bytes, low half.
    pub i_size_lo: U32,
    /// Access time.
    pub i_atime: U32,
    /// Change time.
    pub i_ctime: U32,
    /// Modification time.
    pub i_mtime: U32,
    /// Deletion time, or the next orphan.
    pub i_dtime: U32,
    /// Group, low half.
    pub i_gid: U16,
    /// Links.
    pub i_links_count: U16,
    /// Space, low half.
    pub i_blocks_lo: U32,
    /// See `InodeFlags`.
    pub i_flags: U32,
    /// Version, low half.
    pub i_version: U32,
    /// Block map, extent root, inline data, symlink target or device.
    pub i_block: [u8; I_BLOCK_SIZE],
    /// Generation.
    pub i_generation: U32,
    /// Attribute block, low half.
    pub i_file_acl_lo: U32,
    /// Size in bytes, high half.
    pub i_size_high: U32,
    /// Historic.
    pub i_obso_faddr: U32,
    /// Space, high half.
    pub i_blocks_high: U16,
    /// Attribute block, high half.
    pub i_file_acl_high: U16,
    /// Owner, high half.
    pub i_uid_high: U16,
    /// Group, high half.
    pub i_gid_high: U16,
    /// Checksum, low half.
    pub i_checksum_lo: U16,
    /// Unused.
    pub i_reserved: U16,
}

/// Bytes 128 to 159 of an inode; any bit pattern.
#[derive(Clone, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct RawInodeExtra {
    /// Bytes in use beyond 128.
    pub i_extra_isize: U16,
    /// Checksum, high half.
    pub i_checksum_hi: U16,
    /// Change time, epoch and nanoseconds.
    pub i_ctime_extra: U32,
    /// Modification time, epoch and nanoseconds.
    pub i_mtime_extra: U32,
    /// Access time, epoch and nanoseconds.
    pub i_atime_extra: U32,
    /// Birth time.
    pub i_crtime: U32,
    /// Birth time, epoch and nanoseconds.
    pub i_crtime_extra: U32,
    /// Version, high half.
    pub i_version_hi: U32,
    /// Project.
    pub i_projid: U32,
}

const _: () = assert!(
    size_of::<RawInode>() == 128
        && size_of::<RawInodeExtra>() == 32
        && offset_of!(RawInode, i_block) == 0x28
        && offset_of!(RawInode, i_generation) == 0x64
        && offset_of!(RawInode, i_checksum_lo) == 0x7C
        && offset_of!(RawInodeExtra, i_crtime) == 0x10
        && offset_of!(RawInodeExtra, i_projid) == 0x1C
);

bitflags::bitflags! {
    /// `i_flags`. Unknown bits are carried.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct InodeFlags: u32 {
        /// Overwrite on deletion (never done).
        const SECRM = 0x1;
        /// Keep for undeletion (never done).
        const UNRM = 0x2;
        /// Compress (never done).
        const COMPR = 0x4;
        /// Write synchronously.
        const SYNC = 0x8;
        /// May not be changed.
        const IMMUTABLE = 0x10;
        /// May only grow.
        const APPEND = 0x20;
        /// Not for backups.
        const NODUMP = 0x40;
        /// Access time is not kept.
        const NOATIME = 0x80;
        /// Historic.
        const DIRTY = 0x100;
        /// Historic.
        const COMPRBLK = 0x200;
        /// Historic.
        const NOCOMPR = 0x400;
        /// Content and names are encrypted.
        const ENCRYPT = 0x800;
        /// Directory with an htree index.
        const INDEX = 0x1000;
        /// Historic.
        const IMAGIC = 0x2000;
        /// Data goes through the journal.
        const JOURNAL_DATA = 0x4000;
        /// Historic.
        const NOTAIL = 0x8000;
        /// Directory changes are synchronous.
        const DIRSYNC = 0x1_0000;
        /// Subdirectories are to be spread over the volume.
        const TOPDIR = 0x2_0000;
        /// `i_blocks` counts filesystem blocks.
        const HUGE_FILE = 0x4_0000;
        /// Mapped by extents.
        const EXTENTS = 0x8_0000;
        /// Protected by a Merkle tree.
        const VERITY = 0x10_0000;
        /// Holds the value of a large attribute.
        const EA_INODE = 0x20_0000;
        /// Historic.
        const EOFBLOCKS = 0x40_0000;
        /// Another filesystem's.
        const NOCOW = 0x80_0000;
        /// Accessed directly on persistent memory.
        const DAX = 0x200_0000;
        /// Content lies in the inode.
        const INLINE_DATA = 0x1000_0000;
        /// New files take the directory's project.
        const PROJINHERIT = 0x2000_0000;
        /// Directory whose names ignore case.
        const CASEFOLD = 0x4000_0000;
        const _ = !0;
    }
}

impl InodeFlags {
    /// What a new inode takes over from its parent directory, before masking by kind.
    pub const INHERITED: InodeFlags = InodeFlags::SECRM
        .union(InodeFlags::UNRM)
        .union(InodeFlags::COMPR)
        .union(InodeFlags::SYNC)
        .union(InodeFlags::NODUMP)
        .union(InodeFlags::NOATIME)
        .union(InodeFlags::NOCOMPR)
        .union(InodeFlags::JOURNAL_DATA)
        .union(InodeFlags::NOTAIL)
        .union(InodeFlags::DIRSYNC)
        .union(InodeFlags::PROJINHERIT)
        .union(InodeFlags::CASEFOLD)
        .union(InodeFlags::DAX);

    /// What a new inode of `kind` takes over from a parent with these flags.
    pub fn inherited_by(self, kind: FileKind) -> InodeFlags {
        let flags = self & InodeFlags::INHERITED;
        match kind {
            FileKind::Directory => flags,
            FileKind::Regular => flags.difference(
                InodeFlags::DIRSYNC
                    | InodeFlags::TOPDIR
                    | InodeFlags::CASEFOLD
                    | InodeFlags::PROJINHERIT,
            ),
            _ => flags & (InodeFlags::NODUMP | InodeFlags::NOATIME),
        }
    }
}

/// The kind of a file, from bits 12 to 15 of its mode.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FileKind {
    /// Named pipe.
    Fifo,
    /// Character device.
    CharDevice,
    /// Directory.
    Directory,
    /// Block device.
    BlockDevice,
    /// Regular file.
    Regular,
    /// Symbolic link.
    Symlink,
    /// Socket.
    Socket,
}

impl FileKind {
    /// The kind that `mode` names, or `None` for a type nobody defined.
    pub const fn from_mode(mode: u16) -> Option<FileKind> {
        Some(match mode & 0xF000 {
            0x1000 => FileKind::Fifo,
            0x2000 => FileKind::CharDevice,
            0x4000 => FileKind::Directory,
            0x6000 => FileKind::BlockDevice,
            0x8000 => FileKind::Regular,
            0xA000 => FileKind::Symlink,
            0xC000 => FileKind::Socket,
            _ => return None,
        })
    }

    /// The kind as bits 12 to 15 of a mode.
    pub const fn mode_bits(self) -> u16 {
        match self {
            FileKind::Fifo => 0x1000,
            FileKind::CharDevice => 0x2000,
            FileKind::Directory => 0x4000,
            FileKind::BlockDevice => 0x6000,
            FileKind::Regular => 0x8000,
            FileKind::Symlink => 0xA000,
            FileKind::Socket => 0xC000,
        }
    }
}

/// A device number as Linux splits it: 12 bits of major, 20 bits of minor.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct DeviceNumber {
    /// Driver, 0..=4095.
    pub major: u32,
    /// Device of that driver, 0..=1048575.
    pub minor: u32,
}

impl DeviceNumber {
    /// Reads the number from `i_block`. The old form stands in the first word, the new one in the
    /// second, behind a zero.
    pub fn decode(i_block: &[u8; I_BLOCK_SIZE]) -> DeviceNumber {
        let word = |n: usize| {
            let bytes = [i_block[n], i_block[n + 1], i_block[n + 2], i_block[n + 3]];
            u32::from_le_bytes(bytes)
        };
        match word(0) {
            0 => {
                let new = word(4);
                DeviceNumber {
                    major: (new >> 8) & 0xFFF,
                    minor: new & 0xFF | (new >> 12) & 0xFFF00,
                }
            }
            old => DeviceNumber { major: (old >> 8) & 0xFF, minor: old & 0xFF },
        }
    }

    /// The `i_block` of a device, or `None` if the number does not fit.
    pub fn encode(self) -> Option<[u8; I_BLOCK_SIZE]> {
        if self.major > 0xFFF || self.minor > 0xF_FFFF {
            return None;
        }
        let mut i_block = [0; I_BLOCK_SIZE];
        if self.major < 256 && self.minor < 256 {
            i_block[..4].copy_from_slice(&(self.major << 8 | self.minor).to_le_bytes());
        } else {
            let new = self.minor & 0xFF | self.major << 8 | (self.minor & !0xFF) << 12;
            i_block[4..8].copy_from_slice(&new.to_le_bytes());
        }
        Some(i_block)
    }
}

/// What one must know of the volume to read or write its inodes. Small, and free to copy.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct InodeFormat {
    inode_size: u16,
    block_size: BlockSize,
    cluster_bytes_log2: u32,
    blocks_count: u64,
    first_data_block: u64,
    checksums: Checksums,
    is_64bit: bool,
    huge_file: bool,
    large_dir: bool,
    dir_index: bool,
    ea_inode: bool,
    casefold: bool,
    inline_data: bool,
    project: bool,
    want_extra_isize: u16,
}

impl InodeFormat {
    /// The format that a superblock describes.
    pub fn new(sb: &Superblock) -> InodeFormat {
        let incompat = |bit| sb.features.incompat.contains(bit);
        let ro_compat = |bit| sb.features.ro_compat.contains(bit);
        InodeFormat {
            inode_size: sb.inode_size,
            block_size: sb.block_size,
            cluster_bytes_log2: sb.block_size.log2() + sb.log_cluster_ratio,
            blocks_count: sb.blocks_count,
            first_data_block: u64::from(sb.first_data_block),
            checksums: sb.checksums(),
            is_64bit: incompat(Incompat::IS_64BIT),
            huge_file: ro_compat(RoCompat::HUGE_FILE),
            large_dir: incompat(Incompat::LARGEDIR),
            dir_index: sb.features.compat.contains(Compat::DIR_INDEX),
            ea_inode: incompat(Incompat::EA_INODE),
            casefold: incompat(Incompat::CASEFOLD),
            inline_data: incompat(Incompat::INLINE_DATA),
            project: ro_compat(RoCompat::PROJECT),
            want_extra_isize: match sb.inode_size {
                0..=128 => 0,
                // A multiple of 4 that reaches all our fields, where there is room for them.
                size => sb.want_extra_isize.max(EXTRA_ISIZE).min(size - 128) & !3,
            },
        }
    }

    /// Bytes of an inode.
    pub fn inode_size(&self) -> usize {
        usize::from(self.inode_size)
    }

    /// Size of a block.
    pub fn block_size(&self) -> BlockSize {
        self.block_size
    }

    /// How the volume checks its metadata.
    pub fn checksums(&self) -> &Checksums {
        &self.checksums
    }

    /// Bytes beyond 128 that a new inode uses; 0 with 128-byte inodes.
    pub fn want_extra_isize(&self) -> u16 {
        self.want_extra_isize
    }

    /// Whether files may count more than 2^32 sectors.
    pub fn has_huge_file(&self) -> bool {
        self.huge_file
    }

    /// The most 512-byte sectors that a file may occupy.
    pub fn max_sectors(&self) -> u64 {
        if self.huge_file {
            ((1 << 48) - 1) << (self.block_size.log2() - 9)
        } else {
            u64::from(u32::MAX)
        }
    }
}

/// An inode in meaning: halves joined, times decoded.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Inode {
    /// File type and permissions. See [`Inode::kind`].
    pub mode: u16,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Size in bytes.
    pub size: u64,
    /// Access time.
    pub atime: Timestamp,
    /// Change time.
    pub ctime: Timestamp,
    /// Modification time.
    pub mtime: Timestamp,
    /// Birth time, where the inode has room for it.
    pub crtime: Option<Timestamp>,
    /// Deletion time in seconds, or, on the orphan list, the next orphan's number.
    pub dtime: u32,
    /// Links. 1 on a directory means "many", with the feature dir_nlink.
    pub links: u16,
    /// Space in 512-byte sectors: data, block map and attribute block.
    pub sectors: u64,
    /// Flags, unknown ones included. HUGE_FILE is settled when the inode is written.
    pub flags: InodeFlags,
    /// Version; the reference count on an attribute's value inode.
    pub version: u64,
    /// Block map, extent root, inline data, symlink target or device.
    pub i_block: [u8; I_BLOCK_SIZE],
    /// Generation, part of the seed of all this inode's checksums.
    pub generation: u32,
    /// Attribute block.
    pub file_acl: Option<BlockNr>,
    /// Bytes in use beyond 128: a multiple of 4.
    pub extra_isize: u16,
    /// Project, where the volume has them and the inode has room.
    pub projid: u32,
}

impl Default for Inode {
    /// All zero, as a slot that was never used.
    fn default() -> Self {
        Inode {
            mode: 0,
            uid: 0,
            gid: 0,
            size: 0,
            atime: Timestamp::default(),
            ctime: Timestamp::default(),
            mtime: Timestamp::default(),
            crtime: None,
            dtime: 0,
            links: 0,
            sectors: 0,
            flags: InodeFlags::empty(),
            version: 0,
            i_block: [0; I_BLOCK_SIZE],
            generation: 0,
            file_acl: None,
            extra_isize: 0,
            projid: 0,
        }
    }
}

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
    /// Reads an inode without judging its content: the checksum is verified (a slot that is zero
    /// all over has none), extra_isize must fit, and nothing else is doubted. For scans of tables.
    ///
    /// `bytes` is the slot: exactly `inode_size` long.
    /// Errors: `InodeExtraSize`, `InodeChecksum`.
    pub fn parse(bytes: &[u8], ino: Ino, format: &InodeFormat) -> Result<Inode, Error> {
        let inode = Inode::parse_unverified(bytes, ino, format)?;
        let zero_slot = || bytes.iter().all(|byte| *byte == 0);
        if !checksum_is_right(bytes, ino, &format.checksums) && !zero_slot() {
            return Err(Site::of_ino(ino).offset(0x7C).corrupt(What::InodeChecksum));
        }
        Ok(inode)
    }

    /// As [`Inode::parse`], checksum unseen: for tools that look at damaged inodes.
    ///
    /// Errors: `InodeExtraSize`, also for a slot shorter than the volume's inodes.
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
        let acl_hi = if format.is_64bit { raw.i_file_acl_high.get() } else { 0 };
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
            version: u64::from(raw.i_version.get())
                | u64::from(extra!(i_version_hi).unwrap_or(0)) << 32,
            i_block: raw.i_block,
            generation: raw.i_generation.get(),
            file_acl: if acl == 0 { None } else { Some(BlockNr(acl)) },
            extra_isize,
            projid: if format.project { extra!(i_projid).unwrap_or(0) } else { 0 },
        })
    }

    /// Reads an inode that is in use and must make sense: [`Inode::parse`], then
    /// [`Inode::check_fields`].
    pub fn check(bytes: &[u8], ino: Ino, format: &InodeFormat) -> Result<Inode, Error> {
        let inode = Inode::parse(bytes, ino, format)?;
        inode.check_fields(ino, format)?;
        Ok(inode)
    }

    /// Whether the fields of an inode in use agree with each other and with the volume. Links are
    /// not looked at: zero is right for an orphan.
    ///
    /// Errors: `InodeMode`, `InodeFlags`, `InodeSize`, `InodeFileAcl`, `SymlinkTarget`.
    pub fn check_fields(&self, ino: Ino, format: &InodeFormat) -> Result<(), Error> {
        let at = Site::of_ino(ino);
        let has = |flag| self.flags.contains(flag);
        let kind = self.kind().ok_or_else(|| at.offset(0x00).corrupt(What::InodeMode))?;
        let link_locked = kind == FileKind::Symlink
            && self.flags.intersects(InodeFlags::IMMUTABLE | InodeFlags::APPEND);
        let inline = has(InodeFlags::INLINE_DATA);
        let flags_are_wrong = (inline && (has(InodeFlags::EXTENTS) || !format.inline_data))
            || (has(InodeFlags::CASEFOLD) && (!format.casefold || kind != FileKind::Directory))
            || (has(InodeFlags::INDEX)
                && kind == FileKind::Directory
                && !format.dir_index
                && format.checksums.seed().is_some())
            || link_locked
            || (has(InodeFlags::EA_INODE) && !format.ea_inode);
        if flags_are_wrong {
            return Err(at.offset(0x20).corrupt(What::InodeFlags));
        }
        let size_is_wrong = match kind {
            // mke2fs leaves a file that is one hole inline, whatever its size; behind what the inode
            // holds it reads as zeros.
            FileKind::Regular if inline => self.size > self.max_size(format),
            _ if inline => self.size > u64::from(format.inode_size) + I_BLOCK_SIZE as u64,
            FileKind::Directory => !self.size.is_multiple_of(format.block_size.bytes() as u64),
            FileKind::Regular => self.size > self.max_size(format),
            _ => false,
        };
        if size_is_wrong {
            return Err(at.offset(0x04).corrupt(What::InodeSize));
        }
        if kind == FileKind::Symlink && !has(InodeFlags::ENCRYPT) {
            let room =
                if self.is_fast_symlink(format) { I_BLOCK_SIZE } else { format.block_size.bytes() };
            if !inline && self.size >= room as u64 {
                return Err(at.offset(0x04).corrupt(What::SymlinkTarget));
            }
        }
        match self.file_acl {
            Some(block) if block.0 <= format.first_data_block || block.0 >= format.blocks_count => {
                Err(at.offset(0x68).corrupt(What::InodeFileAcl))
            }
            _ => Ok(()),
        }
    }

    /// Writes the inode into its slot and sets the checksum. Bytes that have no field here, or none
    /// on this volume, stay; where extra_isize grows, the new part without fields becomes zero.
    ///
    /// Times out of range are clamped. HUGE_FILE is set exactly where the sectors need it.
    /// Errors: `FileTooLarge` if the sectors do not fit; `Invalid` if extra_isize does not.
    ///
    /// # Panics
    /// If `bytes` is not exactly `inode_size` long: slots are cut by the layout.
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
        raw.i_uid = (self.uid as u16).into();
        raw.i_uid_high = ((self.uid >> 16) as u16).into();
        raw.i_gid = (self.gid as u16).into();
        raw.i_gid_high = ((self.gid >> 16) as u16).into();
        raw.i_size_lo = (self.size as u32).into();
        if kind != Some(FileKind::Directory) || format.large_dir {
            raw.i_size_high = ((self.size >> 32) as u32).into();
        }
        raw.i_dtime = self.dtime.into();
        raw.i_links_count = self.links.into();
        raw.i_blocks_lo = (blocks as u32).into();
        if format.huge_file {
            raw.i_blocks_high = ((blocks >> 32) as u16).into();
        }
        raw.i_flags = flags.bits().into();
        raw.i_version = (self.version as u32).into();
        raw.i_block = self.i_block;
        raw.i_generation = self.generation.into();
        raw.i_file_acl_lo = (acl as u32).into();
        if format.is_64bit {
            raw.i_file_acl_high = ((acl >> 32) as u16).into();
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
            put!(i_version_hi = (self.version >> 32) as u32);
            if format.project {
                put!(i_projid = self.projid);
            }
        }
        set_checksum(bytes, ino, &format.checksums);
        Ok(())
    }

    /// The kind of file, or `None` for a mode without one (an unused slot, say).
    pub fn kind(&self) -> Option<FileKind> {
        FileKind::from_mode(self.mode)
    }

    /// Whether this is a directory.
    pub fn is_dir(&self) -> bool {
        self.kind() == Some(FileKind::Directory)
    }

    /// Whether this is a regular file.
    pub fn is_file(&self) -> bool {
        self.kind() == Some(FileKind::Regular)
    }

    /// Whether this is a symbolic link.
    pub fn is_symlink(&self) -> bool {
        self.kind() == Some(FileKind::Symlink)
    }

    /// Whether blocks are found through an extent tree.
    pub fn has_extents(&self) -> bool {
        self.flags.contains(InodeFlags::EXTENTS)
    }

    /// Whether the content lies in the inode.
    pub fn has_inline_data(&self) -> bool {
        self.flags.contains(InodeFlags::INLINE_DATA)
    }

    /// Whether a symlink's target lies in `i_block` (and not in a block, nor as inline data).
    pub fn is_fast_symlink(&self, format: &InodeFormat) -> bool {
        if !self.is_symlink() || self.has_inline_data() {
            return false;
        }
        if format.ea_inode {
            // The attribute values of such a volume may be charged to the inode in other units.
            (1..I_BLOCK_SIZE as u64).contains(&self.size)
        } else {
            let acl =
                if self.file_acl.is_some() { 1 << (format.cluster_bytes_log2 - 9) } else { 0 };
            self.sectors == acl
        }
    }

    /// The target of a fast symlink.
    ///
    /// Errors: `SymlinkTarget` if it is empty, does not end in `i_block`, or holds a NUL.
    pub fn fast_symlink_target(&self, ino: Ino) -> Result<&[u8], Error> {
        let len = usize::try_from(self.size).unwrap_or(usize::MAX);
        match self.i_block.get(..len) {
            Some(target) if (1..I_BLOCK_SIZE).contains(&len) && !target.contains(&0) => Ok(target),
            _ => Err(Site::of_ino(ino).offset(0x28).corrupt(What::SymlinkTarget)),
        }
    }

    /// The device that a device file stands for; `None` for other kinds.
    pub fn device(&self) -> Option<DeviceNumber> {
        match self.kind() {
            Some(FileKind::CharDevice | FileKind::BlockDevice) => {
                Some(DeviceNumber::decode(&self.i_block))
            }
            _ => None,
        }
    }

    /// The slot's bytes that may hold attributes: from 128 + extra_isize on. Empty in 128-byte
    /// inodes, and while extra_isize is 0.
    pub fn xattr_area(&self, format: &InodeFormat) -> Range<usize> {
        let end = format.inode_size();
        let start = INODE_SIZE_MIN + usize::from(self.extra_isize);
        if self.extra_isize == 0 || start > end { end..end } else { start..end }
    }

    /// The seed of everything that belongs to this inode, or `None` without metadata_csum.
    pub fn seed(&self, ino: Ino, format: &InodeFormat) -> Option<u32> {
        format.checksums.inode_seed(ino, self.generation)
    }

    /// The largest size in bytes that this inode's kind of map can hold.
    pub fn max_size(&self, format: &InodeFormat) -> u64 {
        if self.has_extents() {
            u64::from(u32::MAX) << format.block_size.log2()
        } else {
            crate::block_map::max_blocks(format.block_size) << format.block_size.log2()
        }
    }
}

/// Whether a slot is zero all over: never used, and without a checksum.
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
/// slot is shorter than an inode). Only the low 16 bits are stored where there is no room for more.
pub fn compute_checksum(bytes: &[u8], ino: Ino, checksums: &Checksums) -> Option<u32> {
    let seed = checksums.seed()?;
    let generation = u32::from_le_bytes(*bytes.get(0x64..)?.first_chunk()?);
    let mut crc = inode_seed(seed, ino, generation);
    crc = crc32c(crc, bytes.get(..0x7C)?);
    crc = crc32c(crc, &[0, 0]);
    if has_high_half(bytes) {
        crc = crc32c(crc, bytes.get(0x7E..0x82)?);
        crc = crc32c(crc, &[0, 0]);
        crc = crc32c(crc, bytes.get(0x84..)?);
        Some(crc)
    } else {
        crc = crc32c(crc, bytes.get(0x7E..)?);
        Some(crc & 0xFFFF)
    }
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::features::Features;
    use alloc::vec;

    fn format(inode_size: u16) -> InodeFormat {
        let mut sb = Superblock::new(BlockSize::from_bytes(4096).unwrap());
        sb.inode_size = inode_size;
        sb.blocks_count = 1 << 40;
        sb.uuid = [3; 16];
        sb.features = Features {
            compat: Compat::DIR_INDEX,
            incompat: Incompat::EXTENTS | Incompat::IS_64BIT,
            ro_compat: RoCompat::METADATA_CSUM | RoCompat::HUGE_FILE | RoCompat::PROJECT,
        };
        InodeFormat::new(&sb)
    }

    fn file() -> Inode {
        Inode {
            mode: 0x81A4,
            uid: 0x1_0002,
            gid: 0x3_0004,
            size: 0x5_0000_0006,
            atime: Timestamp { sec: -7, nsec: 8 },
            ctime: Timestamp { sec: 1 << 33, nsec: 9 },
            mtime: Timestamp { sec: 10, nsec: 999_999_999 },
            crtime: Some(Timestamp { sec: 11, nsec: 12 }),
            dtime: 13,
            links: 14,
            sectors: 0x1F_0000_0010,
            flags: InodeFlags::EXTENTS | InodeFlags::from_bits_retain(0x8000_0000),
            version: 0x17_0000_0018,
            i_block: [0x19; 60],
            generation: 0x1A,
            file_acl: Some(BlockNr(0x1B_0000_001C)),
            extra_isize: 32,
            projid: 0x1D,
        }
    }

    const INO: Ino = Ino::ROOT;

    #[test]
    fn a_written_inode_reads_back_the_same() {
        for size in [256, 512, 4096] {
            let format = format(size);
            let mut bytes = vec![0; size.into()];
            file().write(&mut bytes, INO, &format).unwrap();
            assert_eq!(Inode::check(&bytes, INO, &format).unwrap(), file());
        }
    }

    #[test]
    fn a_small_inode_keeps_whole_seconds_until_2038() {
        let format = format(128);
        let mut bytes = vec![0; 128];
        let inode = Inode { extra_isize: 0, ..file() };
        inode.write(&mut bytes, INO, &format).unwrap();
        let back = Inode::check(&bytes, INO, &format).unwrap();
        assert_eq!(back.crtime, None);
        assert_eq!(back.ctime, Timestamp::MAX_WITHOUT_EXTRA);
        assert_eq!(back.atime, Timestamp::from_secs(-7));
        assert_eq!((back.projid, back.version), (0, 0x18));
        assert!(back.xattr_area(&format).is_empty());
    }

    #[test]
    fn every_flipped_bit_breaks_the_checksum() {
        for size in [128u16, 256] {
            let format = format(size);
            let mut bytes = vec![0; size.into()];
            Inode { extra_isize: if size > 128 { 32 } else { 0 }, ..file() }
                .write(&mut bytes, INO, &format)
                .unwrap();
            for bit in 0..bytes.len() * 8 {
                bytes[bit / 8] ^= 1 << (bit % 8);
                assert!(Inode::parse(&bytes, INO, &format).is_err(), "size {size}, bit {bit}");
                bytes[bit / 8] ^= 1 << (bit % 8);
            }
            assert!(Inode::parse(&bytes, Ino::JOURNAL, &format).is_err(), "another number");
        }
    }

    #[test]
    fn a_rewrite_keeps_bytes_that_have_no_meaning_here() {
        let format = format(256);
        let mut bytes = vec![0x77; 256];
        bytes[0x80..0x82].copy_from_slice(&64u16.to_le_bytes());
        Inode { extra_isize: 64, ..file() }.write(&mut bytes, INO, &format).unwrap();
        assert!(bytes[0xA0..].iter().all(|byte| *byte == 0x77));
        assert_eq!(&bytes[0x7E..0x80], [0x77; 2], "reserved");
        assert_eq!(&bytes[0x70..0x74], [0x77; 4], "historic");
    }

    #[test]
    fn growing_extra_room_starts_out_zero() {
        let format = format(256);
        let mut bytes = vec![0x77; 256];
        bytes[0x80..0x82].copy_from_slice(&4u16.to_le_bytes());
        Inode { extra_isize: 40, ..file() }.write(&mut bytes, INO, &format).unwrap();
        assert_eq!(&bytes[0xA0..0xA8], [0; 8]);
        assert_eq!(bytes[0xA8], 0x77);
    }

    #[test]
    fn a_zero_slot_is_no_inode_but_no_damage_either() {
        let format = format(256);
        let inode = Inode::parse(&[0; 256], INO, &format).unwrap();
        assert_eq!(inode.kind(), None);
        assert!(Inode::check(&[0; 256], INO, &format).is_err());
    }

    #[test]
    fn sectors_beyond_48_bits_are_counted_in_blocks() {
        let format = format(256);
        let mut bytes = vec![0; 256];
        for sectors in [0, 1, u64::from(u32::MAX) + 1, (1 << 48) - 1, 1 << 48, 7 << 48] {
            Inode { sectors, ..file() }.write(&mut bytes, INO, &format).unwrap();
            let back = Inode::parse(&bytes, INO, &format).unwrap();
            assert_eq!(back.sectors, sectors);
            assert_eq!(back.flags.contains(InodeFlags::HUGE_FILE), sectors >> 48 != 0);
        }
        let too_many = Inode { sectors: 1 << 51, ..file() }.write(&mut bytes, INO, &format);
        assert!(matches!(too_many, Err(Error::FileTooLarge)));
    }

    #[test]
    fn device_numbers_take_the_old_form_where_they_fit() {
        let table = [
            (1, 3, 0x0103, 0),
            (259, 70000, 0, 0x1111_0370),
            (300, 5, 0, 0x0001_2C05),
            (255, 255, 0xFFFF, 0),
            (4095, 0xF_FFFF, 0, 0xFFFF_FFFF),
        ];
        for (major, minor, first, second) in table {
            let device = DeviceNumber { major, minor };
            let i_block = device.encode().unwrap();
            assert_eq!(i_block[..4], u32::to_le_bytes(first));
            assert_eq!(i_block[4..8], u32::to_le_bytes(second));
            assert_eq!(DeviceNumber::decode(&i_block), device);
        }
        assert_eq!(DeviceNumber { major: 4096, minor: 0 }.encode(), None);
        assert_eq!(DeviceNumber { major: 0, minor: 1 << 20 }.encode(), None);
    }

    #[test]
    fn contradictions_are_found() {
        type Spoil = fn(&mut Inode);
        let table: [(Spoil, What); 9] = [
            (|i| i.mode = 0x01A4, What::InodeMode),
            (|i| i.flags |= InodeFlags::INLINE_DATA, What::InodeFlags),
            (|i| i.flags |= InodeFlags::CASEFOLD, What::InodeFlags),
            (|i| i.flags |= InodeFlags::EA_INODE, What::InodeFlags),
            (|i| (i.mode, i.flags) = (0xA1FF, InodeFlags::APPEND), What::InodeFlags),
            (|i| i.size = 1 << 44, What::InodeSize),
            (|i| (i.mode, i.size) = (0x41ED, 4097), What::InodeSize),
            (|i| (i.mode, i.size) = (0xA1FF, 4096), What::SymlinkTarget),
            (|i| i.file_acl = Some(BlockNr(1 << 40)), What::InodeFileAcl),
        ];
        for (n, (spoil, expected)) in table.into_iter().enumerate() {
            let mut inode = file();
            spoil(&mut inode);
            match inode.check_fields(INO, &format(256)) {
                Err(Error::Corrupt { what, .. }) => assert_eq!(what, expected, "row {n}"),
                other => panic!("row {n}: {other:?}"),
            }
        }
    }

    #[test]
    fn a_symlink_without_blocks_holds_its_target() {
        let format = format(256);
        let mut link = Inode { mode: 0xA1FF, size: 4, sectors: 8, ..file() };
        link.i_block = [0; 60];
        link.i_block[..4].copy_from_slice(b"a/b/");
        assert!(link.is_fast_symlink(&format), "the attribute block does not count");
        assert_eq!(link.fast_symlink_target(INO).unwrap(), b"a/b/");
        link.size = 5;
        assert!(link.fast_symlink_target(INO).is_err(), "a NUL inside");
        link.sectors = 16;
        assert!(!link.is_fast_symlink(&format));
    }
}
