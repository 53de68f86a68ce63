//! Extended attributes: a list of entries that grows down, values that grow up.
//!
//! ```text
//!   block:    header 32 │ entry │ entry │ … │ 0 0 0 0 │  free  │ … value │ value │
//!   in inode: magic   4 │ entry │ entry │ … │ 0 0 0 0 │  free  │ … value │ value │
//!                       ▲ value offsets count from here in an inode, from 0 in a block
//!
//!   header   0 magic EA020000 │ 4 refcount │ 8 blocks = 1 │ C hash │ 10 checksum │ 14 zero
//!   entry    0 name_len │ 1 name_index │ 2 value_offs u16 │ 4 value_inum │ 8 value_size │ C hash
//!            10 name, padded with zeros to a multiple of 4
//!
//!   checksum = crc32c(filesystem seed; block number u64; the block with the checksum as zero)
//! ```
//!
//! Rules: a block's entries are sorted by index, name length, name, and it may be shared by up to
//! 1024 inodes; in an inode entries stand in the order they came, their hash is 0. A value is
//! padded with zeros to a multiple of 4, or lives in an inode of its own (feature `ea_inode`).
//! Source: ext4 documentation, "Extended Attributes".

use alloc::vec;
use alloc::vec::Vec;
use core::cmp::Ordering;
use core::mem::offset_of;
use extant_base::{BlockNr, Error, Ino, Result, Site, What};
use zerocopy::little_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// What both homes start with.
pub const MAGIC: u32 = 0xEA02_0000;
/// Bytes of a block's header.
pub const BLOCK_HEADER_LEN: usize = 32;
/// Bytes of the header in an inode: the magic alone.
pub const INODE_HEADER_LEN: usize = 4;
/// Bytes of an entry before its name.
pub const ENTRY_LEN: usize = 16;
/// Bytes of the zeros that end the list.
pub const TERMINATOR_LEN: usize = 4;
/// The most inodes that share one block.
pub const REFCOUNT_MAX: u32 = 1024;
/// The largest value in bytes that a reader accepts.
pub const VALUE_MAX: u32 = 1 << 24;

/// The header of an attribute block as stored.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct RawXattrHeader {
    /// EA020000.
    pub h_magic: U32,
    /// Inodes that use the block.
    pub h_refcount: U32,
    /// 1.
    pub h_blocks: U32,
    /// Hash of all entries' hashes.
    pub h_hash: U32,
    /// crc32c, see the module.
    pub h_checksum: U32,
    /// 0.
    pub h_reserved: [U32; 3],
}
const _: () = assert!(
    size_of::<RawXattrHeader>() == BLOCK_HEADER_LEN && offset_of!(RawXattrHeader, h_checksum) == 16
);

/// The fixed part of an entry as stored.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct RawXattrEntry {
    /// Bytes of the name, prefix not counted.
    pub e_name_len: u8,
    /// The prefix.
    pub e_name_index: u8,
    /// Where the value starts.
    pub e_value_offs: U16,
    /// The value's inode, or 0.
    pub e_value_inum: U32,
    /// Bytes of the value.
    pub e_value_size: U32,
    /// Hash of name and value.
    pub e_hash: U32,
}
const _: () =
    assert!(size_of::<RawXattrEntry>() == ENTRY_LEN && offset_of!(RawXattrEntry, e_hash) == 12);

/// The prefix of an attribute's name; on disk a number. Numbers nobody has named are kept.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NameIndex(pub u8);

impl NameIndex {
    /// `user.`
    pub const USER: NameIndex = NameIndex(1);
    /// `system.posix_acl_access`, the whole name.
    pub const ACL_ACCESS: NameIndex = NameIndex(2);
    /// `system.posix_acl_default`, the whole name.
    pub const ACL_DEFAULT: NameIndex = NameIndex(3);
    /// `trusted.`
    pub const TRUSTED: NameIndex = NameIndex(4);
    /// Lustre; unused.
    pub const LUSTRE: NameIndex = NameIndex(5);
    /// `security.`
    pub const SECURITY: NameIndex = NameIndex(6);
    /// `system.`: "data" is inline data.
    pub const SYSTEM: NameIndex = NameIndex(7);
    /// `system.richacl`, the whole name; unused.
    pub const RICHACL: NameIndex = NameIndex(8);
    /// The encryption context, name "c"; never listed.
    pub const ENCRYPTION: NameIndex = NameIndex(9);
    /// `gnu.`
    pub const HURD: NameIndex = NameIndex(10);

    /// Index and prefix; where the last is true the prefix is the whole name.
    const TABLE: [(NameIndex, &'static str, bool); 8] = [
        (NameIndex::USER, "user.", false),
        (NameIndex::ACL_ACCESS, "system.posix_acl_access", true),
        (NameIndex::ACL_DEFAULT, "system.posix_acl_default", true),
        (NameIndex::TRUSTED, "trusted.", false),
        (NameIndex::SECURITY, "security.", false),
        (NameIndex::RICHACL, "system.richacl", true),
        (NameIndex::SYSTEM, "system.", false),
        (NameIndex::HURD, "gnu.", false),
    ];

    /// The prefix that callers see, or `None` for an attribute that has no name outside.
    pub fn prefix(self) -> Option<&'static str> {
        Self::TABLE.iter().find(|row| row.0 == self).map(|row| row.1)
    }

    /// Splits a caller's full name into index and stored name, or `None` for an unknown prefix.
    ///
    /// The stored name is empty only for the names that an index covers whole (`system.posix_acl_…`).
    pub fn split(full: &[u8]) -> Option<(NameIndex, &[u8])> {
        Self::TABLE.iter().find_map(|&(index, prefix, whole)| {
            let rest = full.strip_prefix(prefix.as_bytes())?;
            (rest.is_empty() == whole).then_some((index, rest))
        })
    }
}

/// Where an attribute's value is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ValueRef<'a> {
    /// Beside the entry.
    Here(&'a [u8]),
    /// The first `size` bytes of an inode of its own.
    InInode {
        /// The value inode, not checked against the volume's counts.
        ino: Ino,
        /// Bytes of the value, 1..=[`VALUE_MAX`].
        size: u32,
    },
}

/// One attribute, checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct XattrEntry<'a> {
    /// Bytes of the entry from the start of the block, or from the first entry in an inode.
    pub offset: usize,
    /// The prefix.
    pub index: NameIndex,
    /// The name without its prefix, no NUL.
    pub name: &'a [u8],
    /// The value.
    pub value: ValueRef<'a>,
    /// The hash as stored.
    pub hash: u32,
}

impl XattrEntry<'_> {
    /// Bytes of the value.
    pub fn value_len(&self) -> usize {
        match self.value {
            ValueRef::Here(value) => value.len(),
            ValueRef::InInode { size, .. } => size as usize,
        }
    }

    /// The order of a block's entries.
    pub fn cmp_name(&self, index: NameIndex, name: &[u8]) -> Ordering {
        (self.index, self.name.len(), self.name).cmp(&(index, name.len(), name))
    }

    /// Whether the stored hash is that of name and value, with names hashed as unsigned bytes or,
    /// as old writers did, as signed ones. Right for entries of a block, and for those of an
    /// inode whose value lives elsewhere; `value_crc` is crc32c(filesystem seed, value), asked only
    /// for a value in an inode of its own.
    pub fn hash_matches(&self, value_crc: impl FnOnce() -> u32) -> bool {
        let unsigned = name_hash(self.name);
        let signed = name_hash_signed(self.name);
        let value = match self.value {
            ValueRef::Here(value) => HashedValue::Bytes(value),
            ValueRef::InInode { .. } => HashedValue::Crc(value_crc()),
        };
        self.hash == value.mix(unsigned) || self.hash == value.mix(signed)
    }
}

#[derive(Clone, Copy)]
enum HashedValue<'a> {
    Bytes(&'a [u8]),
    Crc(u32),
}

impl HashedValue<'_> {
    fn mix(self, hash: u32) -> u32 {
        match self {
            HashedValue::Bytes(bytes) => bytes.chunks(4).fold(hash, |hash, chunk| {
                let mut word = [0; 4];
                word[..chunk.len()].copy_from_slice(chunk);
                hash.rotate_left(16) ^ u32::from_le_bytes(word)
            }),
            HashedValue::Crc(crc) => hash.rotate_left(16) ^ crc,
        }
    }
}

fn name_hash(name: &[u8]) -> u32 {
    name.iter().fold(0_u32, |hash, &byte| hash.rotate_left(5) ^ u32::from(byte))
}

fn name_hash_signed(name: &[u8]) -> u32 {
    name.iter().fold(0_u32, |hash, &byte| hash.rotate_left(5) ^ byte as i8 as u32)
}

/// The hash of an entry in a block, value beside it.
pub fn entry_hash(name: &[u8], value: &[u8]) -> u32 {
    HashedValue::Bytes(value).mix(name_hash(name))
}

/// The hash of an entry, in either home, whose value lives in an inode of its own.
/// `value_crc` is crc32c(filesystem seed, value).
pub fn entry_hash_of_inode_value(name: &[u8], value_crc: u32) -> u32 {
    HashedValue::Crc(value_crc).mix(name_hash(name))
}

/// The hash of a block from its entries' hashes in order; 0 when any of them is 0, and such a
/// block is never shared.
pub fn block_hash(entry_hashes: impl IntoIterator<Item = u32>) -> u32 {
    let mut sum = 0_u32;
    for hash in entry_hashes {
        if hash == 0 {
            return 0;
        }
        sum = sum.rotate_left(16) ^ hash;
    }
    sum
}

/// The checksum of an attribute block. `fs_seed` is the filesystem's, since the block is shared.
pub fn block_checksum(fs_seed: u32, nr: BlockNr, block: &[u8]) -> u32 {
    const AT: usize = offset_of!(RawXattrHeader, h_checksum);
    let sum = extant_crc32c::crc32c(fs_seed, &nr.0.to_le_bytes());
    let sum = extant_crc32c::crc32c(sum, &block[..AT]);
    let sum = extant_crc32c::crc32c(sum, &[0; 4]);
    extant_crc32c::crc32c(sum, &block[AT + 4..])
}

/// The header of an attribute block, checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct BlockHeader {
    /// Inodes that use the block, 1..=1024.
    pub refcount: u32,
    /// Hash of the content, 0 when the block is not to be shared.
    pub hash: u32,
    /// As stored; see [`block_checksum`].
    pub checksum: u32,
}

impl BlockHeader {
    /// The header of `block`.
    ///
    /// Errors: `Corrupt` with `XattrMagic` or `XattrHeader`.
    pub fn read(block: &[u8], at: Site) -> Result<BlockHeader> {
        let (raw, _) = RawXattrHeader::ref_from_prefix(block)
            .map_err(|_| at.offset(0).corrupt(What::XattrHeader))?;
        if raw.h_magic.get() != MAGIC {
            return Err(at.offset(0).corrupt(What::XattrMagic));
        }
        if raw.h_blocks.get() != 1 || !(1..=REFCOUNT_MAX).contains(&raw.h_refcount.get()) {
            return Err(at.offset(4).corrupt(What::XattrHeader));
        }
        Ok(BlockHeader {
            refcount: raw.h_refcount.get(),
            hash: raw.h_hash.get(),
            checksum: raw.h_checksum.get(),
        })
    }

    /// Checks a block's checksum against its content and number.
    ///
    /// Errors: `Corrupt` with `XattrChecksum`.
    pub fn verify_checksum(block: &[u8], fs_seed: u32, nr: BlockNr, at: Site) -> Result<()> {
        const AT: usize = offset_of!(RawXattrHeader, h_checksum);
        let header = BlockHeader::read(block, at)?;
        if header.checksum != block_checksum(fs_seed, nr, block) {
            return Err(at.offset(AT).corrupt(What::XattrChecksum));
        }
        Ok(())
    }

    /// Writes the count of sharing inodes; the checksum is then stale.
    pub fn set_refcount(block: &mut [u8], refcount: u32) {
        assert!(
            (1..=REFCOUNT_MAX).contains(&refcount),
            "a refcount of {refcount} would be written"
        );
        block[4..8].copy_from_slice(&refcount.to_le_bytes());
    }

    /// Writes the checksum for the block's place `nr`.
    pub fn set_checksum(block: &mut [u8], fs_seed: u32, nr: BlockNr) {
        const AT: usize = offset_of!(RawXattrHeader, h_checksum);
        let sum = block_checksum(fs_seed, nr, block);
        block[AT..AT + 4].copy_from_slice(&sum.to_le_bytes());
    }
}

/// The attributes of one home, every entry checked.
#[derive(Clone, Copy, Debug)]
pub struct XattrArea<'a> {
    /// What value offsets count in.
    bytes: &'a [u8],
    first: usize,
    /// Where the terminator starts.
    names_end: usize,
}

impl<'a> XattrArea<'a> {
    /// The attributes of a block. The checksum is not looked at.
    ///
    /// `ea_inode` is the volume's feature. Errors: `Corrupt` with `XattrMagic`, `XattrHeader`,
    /// `XattrEntry`, `XattrValue` or `XattrInode`.
    pub fn in_block(
        block: &'a [u8],
        ea_inode: bool,
        at: Site,
    ) -> Result<(BlockHeader, XattrArea<'a>)> {
        let header = BlockHeader::read(block, at)?;
        Ok((header, XattrArea::check(block, BLOCK_HEADER_LEN, ea_inode, at)?))
    }

    /// The attributes in an inode's tail, or `None` where there are none: `tail` is everything
    /// behind the fixed part (`inode[128 + i_extra_isize ..]`); without the magic it is free room.
    ///
    /// Errors: `Corrupt` with `XattrEntry`, `XattrValue` or `XattrInode`, offsets counted from
    /// the first entry.
    pub fn in_inode(tail: &'a [u8], ea_inode: bool, at: Site) -> Result<Option<XattrArea<'a>>> {
        let Some((magic, area)) = tail.split_at_checked(INODE_HEADER_LEN) else { return Ok(None) };
        if magic != MAGIC.to_le_bytes() {
            return Ok(None);
        }
        XattrArea::check(area, 0, ea_inode, at).map(Some)
    }

    fn check(bytes: &'a [u8], first: usize, ea_inode: bool, at: Site) -> Result<XattrArea<'a>> {
        // The names come first: only their end says where values may start.
        let mut offset = first;
        loop {
            let at = at.offset(offset);
            let rest = bytes.get(offset..).unwrap_or_default();
            match rest.first_chunk::<4>() {
                Some([0, 0, 0, 0]) => break,
                Some(_) => (),
                None => return Err(at.corrupt(What::XattrEntry)),
            }
            let (raw, rest) =
                RawXattrEntry::ref_from_prefix(rest).map_err(|_| at.corrupt(What::XattrEntry))?;
            match rest.get(..raw.e_name_len as usize) {
                Some(name) if !name.contains(&0) => (),
                _ => return Err(at.corrupt(What::XattrEntry)),
            }
            offset += entry_len(raw.e_name_len as usize);
        }
        let area = XattrArea { bytes, first, names_end: offset };
        let values_from = offset + TERMINATOR_LEN;
        for (offset, raw, _) in area.raw_entries() {
            let at = at.offset(offset);
            let size = raw.e_value_size.get();
            if size > VALUE_MAX {
                return Err(at.corrupt(What::XattrValue));
            }
            if raw.e_value_inum.get() != 0 {
                if !ea_inode || raw.e_value_inum.get() == Ino::ROOT.get() || size == 0 {
                    return Err(at.corrupt(What::XattrInode));
                }
            } else if size != 0 {
                let start = usize::from(raw.e_value_offs.get());
                let end = start + padded(size as usize);
                if start < values_from || end > bytes.len() {
                    return Err(at.corrupt(What::XattrValue));
                }
            }
        }
        Ok(area)
    }

    fn raw_entries(&self) -> impl Iterator<Item = (usize, &'a RawXattrEntry, &'a [u8])> + use<'a> {
        let (bytes, end) = (self.bytes, self.names_end);
        let mut offset = self.first;
        core::iter::from_fn(move || {
            let (raw, rest) = RawXattrEntry::ref_from_prefix(&bytes[offset..end]).ok()?;
            let name = rest.get(..raw.e_name_len as usize)?;
            let at = offset;
            offset += entry_len(name.len());
            Some((at, raw, name))
        })
    }

    /// Every attribute, in stored order.
    pub fn entries(&self) -> impl Iterator<Item = XattrEntry<'a>> + use<'a> {
        let bytes = self.bytes;
        self.raw_entries().map(move |(offset, raw, name)| {
            let size = raw.e_value_size.get();
            let value = match Ino::new(raw.e_value_inum.get()) {
                Some(ino) => ValueRef::InInode { ino, size },
                None if size == 0 => ValueRef::Here(&[]),
                None => {
                    let start = usize::from(raw.e_value_offs.get());
                    ValueRef::Here(&bytes[start..start + size as usize])
                }
            };
            let index = NameIndex(raw.e_name_index);
            XattrEntry { offset, index, name, value, hash: raw.e_hash.get() }
        })
    }

    /// The attribute with this name. Looks at every entry, so a badly sorted block is no obstacle.
    pub fn find(&self, index: NameIndex, name: &[u8]) -> Option<XattrEntry<'a>> {
        self.entries().find(|entry| entry.index == index && entry.name == name)
    }

    /// Bytes between the names' terminator and the lowest value.
    pub fn free_len(&self) -> usize {
        let lowest = self
            .raw_entries()
            .filter(|(_, raw, _)| raw.e_value_inum.get() == 0 && raw.e_value_size.get() != 0)
            .map(|(_, raw, _)| usize::from(raw.e_value_offs.get()))
            .min()
            .unwrap_or(self.bytes.len());
        lowest.saturating_sub(self.names_end + TERMINATOR_LEN)
    }

    /// The hash that a block with these entries has, from their stored hashes.
    pub fn block_hash(&self) -> u32 {
        block_hash(self.raw_entries().map(|(_, raw, _)| raw.e_hash.get()))
    }

    /// Checks what reading does not need: no two values overlap, no name stands twice and, in a
    /// block, entries are sorted.
    ///
    /// Errors: `Corrupt` with `XattrValue`, `XattrEntry` (a name twice) or `XattrOrder`.
    pub fn check_layout(&self, at: Site) -> Result<()> {
        let mut values: Vec<(usize, usize)> = self
            .raw_entries()
            .filter(|(_, raw, _)| raw.e_value_inum.get() == 0 && raw.e_value_size.get() != 0)
            .map(|(_, raw, _)| {
                let start = usize::from(raw.e_value_offs.get());
                (start, start + padded(raw.e_value_size.get() as usize))
            })
            .collect();
        values.sort_unstable();
        if let Some(pair) = values.windows(2).find(|pair| pair[0].1 > pair[1].0) {
            return Err(at.offset(pair[1].0).corrupt(What::XattrValue));
        }
        let mut entries: Vec<XattrEntry<'_>> = self.entries().collect();
        let order = |a: &XattrEntry<'_>, b: &XattrEntry<'_>| a.cmp_name(b.index, b.name);
        if self.first == BLOCK_HEADER_LEN
            && let Some(pair) = entries.windows(2).find(|pair| order(&pair[0], &pair[1]).is_gt())
        {
            return Err(at.offset(pair[1].offset).corrupt(What::XattrOrder));
        }
        entries.sort_by(order);
        match entries.windows(2).find(|pair| order(&pair[0], &pair[1]).is_eq()) {
            Some(pair) => Err(at.offset(pair[1].offset).corrupt(What::XattrEntry)),
            None => Ok(()),
        }
    }
}

const fn padded(len: usize) -> usize {
    (len + 3) & !3
}

/// Bytes of an entry with a name of `name_len` bytes, its value not counted.
pub const fn entry_len(name_len: usize) -> usize {
    padded(ENTRY_LEN + name_len)
}

/// An attribute to write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NewXattr<'a> {
    /// The prefix.
    pub index: NameIndex,
    /// The name without it, at most 255 bytes, no NUL.
    pub name: &'a [u8],
    /// The value.
    pub value: NewValue<'a>,
}

/// The value of an attribute to write.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NewValue<'a> {
    /// Beside the entry.
    Here(&'a [u8]),
    /// In an inode of its own, already written.
    InInode {
        /// The value inode.
        ino: Ino,
        /// Bytes of the value.
        size: u32,
        /// crc32c(filesystem seed, value).
        crc: u32,
    },
}

impl NewXattr<'_> {
    /// Bytes this attribute takes in either home: entry, name, padded value.
    pub fn stored_len(&self) -> usize {
        entry_len(self.name.len())
            + match self.value {
                NewValue::Here(value) => padded(value.len()),
                NewValue::InInode { .. } => 0,
            }
    }
}

/// Bytes that a block with these attributes needs; compare with the block size.
pub fn block_len(attributes: &[NewXattr<'_>]) -> usize {
    BLOCK_HEADER_LEN + TERMINATOR_LEN + attributes.iter().map(NewXattr::stored_len).sum::<usize>()
}

/// Bytes that an inode tail with these attributes needs; 0 for none.
pub fn in_inode_len(attributes: &[NewXattr<'_>]) -> usize {
    if attributes.is_empty() {
        return 0;
    }
    INODE_HEADER_LEN + TERMINATOR_LEN + attributes.iter().map(NewXattr::stored_len).sum::<usize>()
}

/// Lays out an attribute block: sorted, hashed, refcount 1, the checksum still 0
/// (see [`BlockHeader::set_checksum`], which needs the block's place).
///
/// Errors: `NoSpace` when they do not fit `block_size` bytes; `Invalid` for an illegal name.
pub fn encode_block(attributes: &[NewXattr<'_>], block_size: usize) -> Result<Vec<u8>> {
    if block_len(attributes) > block_size {
        return Err(Error::NoSpace);
    }
    let mut sorted = attributes.to_vec();
    sorted.sort_by_key(|attribute| (attribute.index, attribute.name.len(), attribute.name));
    let mut block = vec![0; block_size];
    let hashes = lay_out(&mut block, BLOCK_HEADER_LEN, &sorted, true)?;
    let header = RawXattrHeader {
        h_magic: U32::new(MAGIC),
        h_refcount: U32::new(1),
        h_blocks: U32::new(1),
        h_hash: U32::new(block_hash(hashes)),
        h_checksum: U32::ZERO,
        h_reserved: [U32::ZERO; 3],
    };
    block[..BLOCK_HEADER_LEN].copy_from_slice(header.as_bytes());
    Ok(block)
}

/// Lays out attributes in an inode's tail (`inode[128 + i_extra_isize ..]`), in the order given.
/// Every byte of `tail` is written; without attributes all become zero.
///
/// Errors: `NoSpace` when they do not fit; `Invalid` for an illegal name; then `tail` is untouched.
pub fn encode_in_inode(attributes: &[NewXattr<'_>], tail: &mut [u8]) -> Result<()> {
    if in_inode_len(attributes) > tail.len() {
        return Err(Error::NoSpace);
    }
    check_names(attributes)?;
    tail.fill(0);
    if !attributes.is_empty() {
        let (magic, area) = tail.split_at_mut(INODE_HEADER_LEN);
        magic.copy_from_slice(&MAGIC.to_le_bytes());
        lay_out(area, 0, attributes, false)?;
    }
    Ok(())
}

fn check_names(attributes: &[NewXattr<'_>]) -> Result<()> {
    for attribute in attributes {
        if attribute.name.len() > 255 || attribute.name.contains(&0) {
            return Err(Error::Invalid("an attribute name is too long or holds NUL"));
        }
        if attribute.index == NameIndex(0) && attribute.name.is_empty() {
            return Err(Error::Invalid("an attribute without a name"));
        }
    }
    Ok(())
}

/// Writes entries from `first` and values from the end of `bytes`, which has room for them.
fn lay_out(
    bytes: &mut [u8],
    first: usize,
    attributes: &[NewXattr<'_>],
    hashed: bool,
) -> Result<Vec<u32>> {
    check_names(attributes)?;
    let (mut entry_at, mut value_at) = (first, bytes.len() & !3);
    let mut hashes = Vec::with_capacity(attributes.len());
    for NewXattr { index, name, value } in attributes {
        let (offs, inum, size, hash) = match *value {
            NewValue::Here(value) => {
                let mut offs = 0;
                if !value.is_empty() {
                    value_at -= padded(value.len());
                    bytes[value_at..value_at + value.len()].copy_from_slice(value);
                    offs = value_at;
                }
                (offs, 0, value.len() as u32, if hashed { entry_hash(name, value) } else { 0 })
            }
            NewValue::InInode { ino, size, crc } => {
                (0, ino.get(), size, entry_hash_of_inode_value(name, crc))
            }
        };
        hashes.push(hash);
        let raw = RawXattrEntry {
            e_name_len: name.len() as u8,
            e_name_index: index.0,
            e_value_offs: U16::new(u16::try_from(offs).expect("a value starts below 65536")),
            e_value_inum: U32::new(inum),
            e_value_size: U32::new(size),
            e_hash: U32::new(hash),
        };
        bytes[entry_at..entry_at + ENTRY_LEN].copy_from_slice(raw.as_bytes());
        let name_at = entry_at + ENTRY_LEN;
        bytes[name_at..name_at + name.len()].copy_from_slice(name);
        entry_at += entry_len(name.len());
    }
    Ok(hashes)
}
