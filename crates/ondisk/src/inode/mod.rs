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

mod codec;
mod device;
mod flags;
mod format;
mod raw;
mod value;

pub use codec::{
    checksum_is_right, compute_checksum, is_zero_slot, number_from_checksum, set_checksum,
};
pub use device::DeviceNumber;
pub use flags::{FileKind, InodeFlags};
pub use format::InodeFormat;
pub use raw::{RawInode, RawInodeExtra};

pub use crate::block_map::I_BLOCK_SIZE;
use crate::time::Timestamp;
use core::ops::Range;
use extant_base::{BlockNr, Error, Ino, Site, What};

/// Bytes of an inode that every volume has.
pub const INODE_SIZE_MIN: usize = 128;
/// Bytes after those for which this crate has fields; new inodes use them.
pub const EXTRA_ISIZE: u16 = 32;
/// The most links a file may have.
pub const LINK_MAX: u16 = 65000;

/// A decoded inode: low and high halves are joined, times are decoded.
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
    /// Birth time; `None` if the inode is too short for it.
    pub crtime: Option<Timestamp>,
    /// Deletion time in seconds, or, on the orphan list, the next orphan's number.
    pub dtime: u32,
    /// Links. 1 on a directory means "many", with the feature dir_nlink.
    pub links: u16,
    /// Space in 512-byte sectors: data, block map and attribute block.
    pub sectors: u64,
    /// Flags, unknown ones included. The write of the inode sets or clears HUGE_FILE.
    pub flags: InodeFlags,
    /// Version; the reference count, in an inode that holds an attribute's value. 0 on volumes of
    /// the Hurd, which have no such field.
    pub version: u64,
    /// On volumes of the Hurd, the block with the command line of the file's passive translator.
    pub translator: Option<BlockNr>,
    /// Block map, extent root, inline data, symlink target or device.
    pub i_block: [u8; I_BLOCK_SIZE],
    /// Generation, part of the seed of all this inode's checksums.
    pub generation: u32,
    /// Attribute block.
    pub file_acl: Option<BlockNr>,
    /// Bytes in use beyond 128: a multiple of 4.
    pub extra_isize: u16,
    /// Project ID; 0 if the volume has no projects or the inode is too short for it.
    pub projid: u32,
}

impl Default for Inode {
    /// All fields are zero, as in a slot that was never used.
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
            translator: None,
            i_block: [0; I_BLOCK_SIZE],
            generation: 0,
            file_acl: None,
            extra_isize: 0,
            projid: 0,
        }
    }
}

impl Inode {
    /// Decodes and checks an inode that is in use: [`Inode::parse`], then [`Inode::check_fields`].
    ///
    /// # Errors
    /// Those of both.
    pub fn check(bytes: &[u8], ino: Ino, format: &InodeFormat) -> Result<Inode, Error> {
        let inode = Inode::parse(bytes, ino, format)?;
        inode.check_fields(ino, format)?;
        Ok(inode)
    }

    /// Checks that the fields of an inode in use agree with each other and with the volume. Does
    /// not check the link count: it is zero in an orphan.
    ///
    /// # Errors
    /// `InodeMode`, `InodeFlags`, `InodeSize`, `InodeFileAcl`, `SymlinkTarget`.
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
            // mke2fs stores a file that is one hole inline, whatever its size: the bytes after
            // those that the inode holds read as zeros.
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
            let space =
                if self.is_fast_symlink(format) { I_BLOCK_SIZE } else { format.block_size.bytes() };
            if !inline && self.size >= space as u64 {
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

    /// The kind of file, or `None` for a mode without a known kind (for example, an unused slot).
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

    /// Whether an extent tree maps the file's blocks.
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
            // With ea_inode, `i_blocks` may also count attribute values, in other units.
            (1..I_BLOCK_SIZE as u64).contains(&self.size)
        } else {
            let acl =
                if self.file_acl.is_some() { 1 << (format.cluster_bytes_log2 - 9) } else { 0 };
            self.sectors == acl
        }
    }

    /// The target of a fast symlink.
    ///
    /// # Errors
    /// `SymlinkTarget` if it is empty, does not end in `i_block`, or holds a NUL.
    pub fn fast_symlink_target(&self, ino: Ino) -> Result<&[u8], Error> {
        let len = usize::try_from(self.size).unwrap_or(usize::MAX);
        match self.i_block.get(..len) {
            Some(target) if (1..I_BLOCK_SIZE).contains(&len) && !target.contains(&0) => Ok(target),
            _ => Err(Site::of_ino(ino).offset(0x28).corrupt(What::SymlinkTarget)),
        }
    }

    /// The device number of a device file; `None` for other kinds.
    pub fn device(&self) -> Option<DeviceNumber> {
        match self.kind() {
            Some(FileKind::CharDevice | FileKind::BlockDevice) => {
                Some(DeviceNumber::decode(&self.i_block))
            }
            _ => None,
        }
    }

    /// The range of the slot that may hold attributes: from 128 + extra_isize on. Empty in 128-byte
    /// inodes, and if extra_isize is 0.
    pub fn xattr_area(&self, format: &InodeFormat) -> Range<usize> {
        let end = format.inode_size();
        let start = INODE_SIZE_MIN + usize::from(self.extra_isize);
        if self.extra_isize == 0 || start > end { end..end } else { start..end }
    }

    /// The checksum seed of this inode and its blocks, or `None` without metadata_csum.
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::features::Features;
    use crate::features::{Compat, Incompat, RoCompat};
    use crate::superblock::Superblock;
    use alloc::vec;
    use extant_base::BlockSize;

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
            translator: None,
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
    fn a_checksum_tells_the_number() {
        let format = format(256);
        for ino in [Ino::ROOT, INO, Ino::new(u32::MAX).unwrap()] {
            let mut bytes = vec![0; 256];
            Inode { extra_isize: 32, ..file() }.write(&mut bytes, ino, &format).unwrap();
            assert_eq!(number_from_checksum(&bytes, format.checksums()), Some(ino));
            bytes[5] ^= 1;
            assert_ne!(number_from_checksum(&bytes, format.checksums()), Some(ino));
        }
        let mut bytes = vec![0; 128];
        let small = super::tests::format(128);
        Inode { extra_isize: 0, ..file() }.write(&mut bytes, INO, &small).unwrap();
        assert_eq!(number_from_checksum(&bytes, format.checksums()), None);
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
    fn a_growing_extra_isize_zeroes_the_new_bytes() {
        let format = format(256);
        let mut bytes = vec![0x77; 256];
        bytes[0x80..0x82].copy_from_slice(&4u16.to_le_bytes());
        Inode { extra_isize: 40, ..file() }.write(&mut bytes, INO, &format).unwrap();
        assert_eq!(&bytes[0xA0..0xA8], [0; 8]);
        assert_eq!(bytes[0xA8], 0x77);
    }

    #[test]
    fn a_zero_slot_is_unused_and_not_corrupt() {
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
