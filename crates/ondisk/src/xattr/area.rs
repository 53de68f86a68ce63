//! Reading the attributes of one area (a block, or an inode's tail): names first, because values
//! may start only after the names' end.
//!
//! ```text
//!   first            names_end                         len
//!   │ entry │ entry │ … │0000│  free  │ … value │ value │
//! ```

use super::hash::{HashedValue, block_hash, name_hash, name_hash_signed};
use super::header::{BLOCK_HEADER_LEN, BlockHeader, MAGIC};
use super::name::NameIndex;
use alloc::vec::Vec;
use core::cmp::Ordering;
use core::mem::offset_of;
use extant_base::{Ino, Result, Site, What};
use zerocopy::little_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Bytes of the header in an inode: the magic alone.
pub const INODE_HEADER_LEN: usize = 4;
/// Bytes of an entry before its name.
pub const ENTRY_LEN: usize = 16;
/// Bytes of the zeros that end the list.
pub const TERMINATOR_LEN: usize = 4;
/// The largest value in bytes that a reader accepts.
pub const VALUE_MAX: u32 = 1 << 24;

/// The fixed part of an entry as stored.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct RawXattrEntry {
    /// Bytes of the name, prefix not counted.
    pub e_name_len: u8,
    /// The prefix.
    pub e_name_index: u8,
    /// Offset of the value.
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

/// The place of an attribute's value.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ValueRef<'a> {
    /// In the same area as the entry.
    Here(&'a [u8]),
    /// The first `size` bytes of an inode that holds only this value.
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

    /// Whether the stored hash is that of name and value. Names are hashed as unsigned bytes; the
    /// hash that old writers computed from signed bytes is accepted, too.
    ///
    /// For entries of a block, and for entries in an inode whose value is in an inode of its own.
    /// `value_crc` returns crc32c(filesystem seed, value); it is called only for a value in an
    /// inode of its own.
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

/// The attributes of one area. Every entry is checked.
#[derive(Clone, Copy, Debug)]
pub struct XattrArea<'a> {
    /// The bytes that value offsets refer to.
    bytes: &'a [u8],
    first: usize,
    /// Where the terminator starts.
    names_end: usize,
}

impl<'a> XattrArea<'a> {
    /// The attributes of a block. Does not check the checksum. `ea_inode` is the volume's feature.
    ///
    /// # Errors
    /// `Corrupt` with `XattrMagic`, `XattrHeader`, `XattrEntry`, `XattrValue` or `XattrInode`.
    pub fn in_block(
        block: &'a [u8],
        ea_inode: bool,
        at: Site,
    ) -> Result<(BlockHeader, XattrArea<'a>)> {
        let header = BlockHeader::read(block, at)?;
        Ok((header, XattrArea::check(block, BLOCK_HEADER_LEN, ea_inode, at)?))
    }

    /// The attributes in an inode's tail, or `None` if it has none: `tail` is everything after the
    /// fixed part (`inode[128 + i_extra_isize ..]`); without the magic it is free space.
    ///
    /// # Errors
    /// `Corrupt` with `XattrEntry`, `XattrValue` or `XattrInode`, offsets counted from the first
    /// entry.
    pub fn in_inode(tail: &'a [u8], ea_inode: bool, at: Site) -> Result<Option<XattrArea<'a>>> {
        let Some((magic, area)) = tail.split_at_checked(INODE_HEADER_LEN) else { return Ok(None) };
        if magic != MAGIC.to_le_bytes() {
            return Ok(None);
        }
        XattrArea::check(area, 0, ea_inode, at).map(Some)
    }

    fn check(bytes: &'a [u8], first: usize, ea_inode: bool, at: Site) -> Result<XattrArea<'a>> {
        // Names first: values may start only after the names' end.
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

    /// The attribute with this name. Searches every entry, so it also works in a block that is not
    /// sorted.
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

    /// The hash of a block with these entries, from their stored hashes.
    pub fn block_hash(&self) -> u32 {
        block_hash(self.raw_entries().map(|(_, raw, _)| raw.e_hash.get()))
    }

    /// Checks properties that reading does not need: no two values overlap, no name occurs twice
    /// and, in a block, entries are sorted.
    ///
    /// # Errors
    /// `Corrupt` with `XattrValue`, `XattrEntry` (a name twice) or `XattrOrder`.
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

pub(super) const fn padded(len: usize) -> usize {
    (len + 3) & !3
}

/// Bytes of an entry with a name of `name_len` bytes, its value not counted.
pub const fn entry_len(name_len: usize) -> usize {
    padded(ENTRY_LEN + name_len)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::xattr::{NewValue, NewXattr, encode_block, encode_in_inode, in_inode_len};
    use extant_base::Error;

    fn user<'a>(name: &'a [u8], value: &'a [u8]) -> NewXattr<'a> {
        NewXattr { index: NameIndex::USER, name, value: NewValue::Here(value) }
    }

    fn what<T>(result: Result<T>) -> Option<What> {
        match result {
            Err(Error::Corrupt { what, .. }) => Some(what),
            _ => None,
        }
    }

    #[test]
    fn an_inode_tail_is_laid_out_byte_by_byte() {
        let mut tail = [0xEE; 64];
        encode_in_inode(&[user(b"ab", b"12345"), user(b"c", b"")], &mut tail).unwrap();
        let want = [
            &[0, 0, 2, 0xEA][..],
            &[2, 1, 52, 0, 0, 0, 0, 0, 5, 0, 0, 0, 0, 0, 0, 0, b'a', b'b', 0, 0],
            &[1, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, b'c', 0, 0, 0],
            &[0; 12],
            b"12345\0\0\0",
        ]
        .concat();
        assert_eq!(tail[..], want);
        let area = XattrArea::in_inode(&tail, false, Site::NOWHERE).unwrap().unwrap();
        assert_eq!(area.find(NameIndex::USER, b"ab").unwrap().value, ValueRef::Here(b"12345"));
        assert_eq!(area.find(NameIndex::USER, b"c").unwrap().value_len(), 0);
        assert_eq!(area.find(NameIndex::TRUSTED, b"c"), None);
        assert_eq!(area.free_len(), 8);
        encode_in_inode(&[], &mut tail).unwrap();
        assert_eq!(tail, [0; 64]);
        assert!(XattrArea::in_inode(&tail, false, Site::NOWHERE).unwrap().is_none());
        assert!(XattrArea::in_inode(&[0, 0, 2], false, Site::NOWHERE).unwrap().is_none());
    }

    #[test]
    fn a_tail_holds_what_its_length_says_and_no_byte_more() {
        let all = [user(b"name", &[7; 10]), user(b"n", &[8; 4])];
        let len = in_inode_len(&all);
        assert_eq!(len, 4 + 20 + 12 + 20 + 4 + 4);
        let mut tail = alloc::vec![0; len];
        encode_in_inode(&all, &mut tail).unwrap();
        let area = XattrArea::in_inode(&tail, false, Site::NOWHERE).unwrap().unwrap();
        assert_eq!((area.entries().count(), area.free_len()), (2, 0));
        assert!(matches!(encode_in_inode(&all, &mut tail[..len - 4]), Err(Error::NoSpace)));
    }

    #[test]
    fn a_block_is_sorted_and_hashed() {
        let trusted = NewXattr { index: NameIndex::TRUSTED, ..user(b"a", b"x") };
        let ino = Ino::new(77).unwrap();
        let value = NewValue::InInode { ino, size: 9000, crc: 0x1234_5678 };
        let far = NewXattr { index: NameIndex::USER, name: b"far", value };
        let all = [trusted, user(b"bb", b"2"), far, user(b"z", b"1")];
        let block = encode_block(&all, 1024).unwrap();
        let (header, area) = XattrArea::in_block(&block, true, Site::NOWHERE).unwrap();
        area.check_layout(Site::NOWHERE).unwrap();
        let names: Vec<_> = area.entries().map(|entry| (entry.index.0, entry.name)).collect();
        assert_eq!(names, [(1, &b"z"[..]), (1, b"bb"), (1, b"far"), (4, b"a")]);
        assert_eq!((header.refcount, header.hash), (1, area.block_hash()));
        assert!(area.entries().all(|entry| entry.hash_matches(|| 0x1234_5678)));
        let far = area.find(NameIndex::USER, b"far").unwrap();
        assert_eq!(far.value, ValueRef::InInode { ino, size: 9000 });
        assert!(!far.hash_matches(|| 0x1234_5679));
        let refused = XattrArea::in_block(&block, false, Site::NOWHERE);
        assert_eq!(what(refused), Some(What::XattrInode));
    }

    #[test]
    fn each_malformed_attribute_is_named() {
        let all = [user(b"ab", b"12345"), user(b"abc", b"67")];
        let good = encode_block(&all, 1024).unwrap();
        let read = |block: &[u8]| XattrArea::in_block(block, true, Site::NOWHERE).map(|_| ());
        assert!(read(&good).is_ok());
        // Entry 0 is at 32, its value at 1016; entry 1 at 52, its value at 1012.
        for (offset, bytes, want) in [
            (0, &[1][..], What::XattrMagic),
            (4, &[0][..], What::XattrHeader),
            (4, &[1, 4][..], What::XattrHeader),
            (8, &[2][..], What::XattrHeader),
            (32, &[255; 1][..], What::XattrEntry),
            (48, &[0][..], What::XattrEntry),
            (34, &[72, 0][..], What::XattrValue),
            (34, &[0xFD, 3][..], What::XattrValue),
            (34, &[0xFF, 0xFF][..], What::XattrValue),
            (40, &[9][..], What::XattrValue),
            (40, &[0xFF; 4][..], What::XattrValue),
            (36, &[2][..], What::XattrInode),
        ] {
            let mut block = good.clone();
            if want == What::XattrEntry && offset == 32 {
                // A name that reaches the block's end leaves no space for the terminator.
                block[1024 - 40..].fill(1);
                block[52..1024].fill(1);
            }
            block[offset..offset + bytes.len()].copy_from_slice(bytes);
            assert_eq!(what(read(&block)), Some(want), "{offset} {bytes:?}");
        }
        let geometry = |offset: usize, byte: u8| {
            let mut block = good.clone();
            block[offset] = byte;
            let (_, area) = XattrArea::in_block(&block, true, Site::NOWHERE).unwrap();
            what(area.check_layout(Site::NOWHERE))
        };
        assert_eq!(geometry(54, 0xF8), Some(What::XattrValue), "two values overlap");
        assert_eq!(geometry(33, 4), Some(What::XattrOrder), "unsorted");
        assert_eq!(geometry(33, 1), None);
        let twice = encode_block(&[user(b"ab", b"1"), user(b"ab", b"2")], 1024).unwrap();
        let (_, area) = XattrArea::in_block(&twice, true, Site::NOWHERE).unwrap();
        assert_eq!(what(area.check_layout(Site::NOWHERE)), Some(What::XattrEntry));
    }

    #[test]
    fn names_hashed_as_signed_bytes_are_accepted() {
        let mut block = encode_block(&[user("é".as_bytes(), b"v")], 1024).unwrap();
        let signed = HashedValue::Bytes(b"v").mix(name_hash_signed("é".as_bytes()));
        let matches = |block: &[u8]| {
            let (_, area) = XattrArea::in_block(block, false, Site::NOWHERE).unwrap();
            area.entries().next().unwrap().hash_matches(|| 0)
        };
        assert!(matches(&block));
        block[44..48].copy_from_slice(&signed.to_le_bytes());
        assert!(matches(&block));
        block[44] ^= 1;
        assert!(!matches(&block));
    }
}
