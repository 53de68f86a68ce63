//! Extended attributes: entries judged one by one, and written again without those that are broken.
//!
//! ```text
//!   inode tail, block ──► entries ──► legal ones ──► the same bytes, or encoded again
//!                                        └─► value inodes, charged sectors
//! ```

use crate::report::Class;
use crate::volume::Volume;
use extant_base::{BlockNr, Ino, Result, Site};
use extant_ondisk::features::Incompat;
use extant_ondisk::inode::Inode;
use extant_ondisk::xattr::{
    BLOCK_HEADER_LEN, BlockHeader, MAGIC, NameIndex, NewValue, NewXattr, RawXattrEntry,
    TERMINATOR_LEN, VALUE_MAX, ValueRef, XattrArea, block_len, encode_block, encode_in_inode,
    entry_hash, entry_hash_of_inode_value, entry_len, in_inode_len,
};
use std::ops::Range;
use zerocopy::FromBytes;

/// The value of an attribute.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) enum Value {
    /// Next to the name.
    Here(Vec<u8>),
    /// In an inode of its own.
    InInode { ino: Ino, size: u32, crc: u32 },
}

/// One attribute.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Attribute {
    pub(crate) index: NameIndex,
    pub(crate) name: Vec<u8>,
    pub(crate) value: Value,
}

impl Attribute {
    /// Whether it holds the rest of inline data.
    pub(crate) fn is_inline(&self) -> bool {
        self.index == NameIndex::SYSTEM && self.name == b"data"
    }
}

/// The attribute that holds the rest of inline data.
pub(crate) fn inline_attribute(value: Vec<u8>) -> Attribute {
    Attribute { index: NameIndex::SYSTEM, name: b"data".to_vec(), value: Value::Here(value) }
}

/// The attributes of one place.
#[derive(Clone, Debug, Default)]
pub(crate) struct Area {
    pub(crate) attributes: Vec<Attribute>,
    /// The stored bytes break no rule.
    pub(crate) sound: bool,
    /// An entry is lost.
    pub(crate) lossy: bool,
}

impl Area {
    /// The value of the attribute that holds the rest of inline data.
    pub(crate) fn inline_value(&self) -> Option<&[u8]> {
        self.attributes.iter().find_map(|one| match &one.value {
            Value::Here(value) if one.is_inline() => Some(&value[..]),
            _ => None,
        })
    }

    /// Whether the inode's encryption context is here.
    pub(crate) fn has_context(&self) -> bool {
        self.attributes.iter().any(|one| {
            one.index == NameIndex::ENCRYPTION
                && one.name == b"c"
                && matches!(&one.value, Value::Here(value)
                    if matches!((value.first(), value.len()), (Some(1), 28) | (Some(2), 40)))
        })
    }

    /// Sectors and inodes of values in inodes of their own.
    pub(crate) fn charge(&self, volume: &Volume) -> (u64, u64) {
        let cluster = volume.cluster_sectors() << 9;
        self.attributes.iter().fold((0, 0), |(sectors, inodes), one| match one.value {
            Value::InInode { size, .. } => {
                let clusters = u64::from(size).div_ceil(cluster);
                (sectors + clusters * volume.cluster_sectors(), inodes + 1)
            }
            Value::Here(_) => (sectors, inodes),
        })
    }

    fn encoded(&self) -> Vec<NewXattr<'_>> {
        self.attributes
            .iter()
            .map(|one| NewXattr {
                index: one.index,
                name: &one.name,
                value: match &one.value {
                    Value::Here(value) => NewValue::Here(value),
                    Value::InInode { ino, size, crc } => {
                        NewValue::InInode { ino: *ino, size: *size, crc: *crc }
                    }
                },
            })
            .collect()
    }

    /// Writes the attributes into an inode's tail; those that do not fit are left out. Returns
    /// whether all fit.
    pub(crate) fn put_in_inode(&mut self, tail: &mut [u8]) -> bool {
        let mut all = true;
        while in_inode_len(&self.encoded()) > tail.len() {
            all = false;
            self.attributes.pop();
        }
        encode_in_inode(&self.encoded(), tail).is_ok() && all
    }

    /// The attributes as a block, without those that do not fit; `None` if there are none.
    pub(crate) fn fitted_block(&mut self, volume: &Volume) -> Option<Vec<u8>> {
        let size = volume.block_bytes();
        while block_len(&self.encoded()) > size {
            self.attributes.pop();
        }
        if self.attributes.is_empty() {
            return None;
        }
        encode_block(&self.encoded(), size).ok()
    }
}

/// Reads the attributes in the tail of a slot. `suspect`: the inode's checksum is wrong, so the
/// magic may be, too.
pub(crate) fn in_inode(volume: &Volume, inode: &Inode, slot: &[u8], suspect: bool) -> Area {
    let ea_inode = volume.has_incompat(Incompat::EA_INODE);
    let tail = slot.get(inode.xattr_area(&volume.format)).unwrap_or_default();
    let Some((magic, area)) = tail.split_at_checked(4) else {
        return Area { sound: true, ..Area::default() };
    };
    if magic != MAGIC.to_le_bytes() {
        let found = lenient(area, 0, ea_inode, false);
        return match suspect && !found.lossy && !found.attributes.is_empty() {
            true => found,
            false => Area { sound: true, ..Area::default() },
        };
    }
    let mut found = lenient(area, 0, ea_inode, false);
    found.sound = XattrArea::in_inode(tail, ea_inode, Site::NOWHERE)
        .is_ok_and(|area| area.is_none_or(|area| is_sound(&area, false)));
    found.lossy &= !found.sound;
    found
}

/// Reads an attribute block; `None` if it is none.
pub(crate) fn in_block(volume: &Volume, nr: u64) -> Result<Option<Area>> {
    let bytes = volume.restored(nr, volume.disk.read(nr)?, |bytes| {
        bytes[..4] == MAGIC.to_le_bytes()
            && volume.checksums.seed().is_none_or(|seed| {
                BlockHeader::verify_checksum(bytes, seed, BlockNr(nr), Site::NOWHERE).is_ok()
            })
    })?;
    let ea_inode = volume.has_incompat(Incompat::EA_INODE);
    let right = match volume.checksums.seed() {
        Some(seed) => {
            BlockHeader::verify_checksum(&bytes, seed, BlockNr(nr), Site::NOWHERE).is_ok()
        }
        None => true,
    };
    let magic = bytes[..4] == MAGIC.to_le_bytes();
    let mut found = lenient(&bytes, BLOCK_HEADER_LEN, ea_inode, true);
    if !magic && (found.lossy || found.attributes.is_empty()) {
        return Ok(None);
    }
    found.sound = right
        && XattrArea::in_block(&bytes, ea_inode, Site::NOWHERE)
            .is_ok_and(|(_, area)| is_sound(&area, true));
    found.lossy &= !found.sound;
    Ok(Some(found))
}

fn is_sound(area: &XattrArea<'_>, is_block: bool) -> bool {
    let order = area.check_layout(Site::NOWHERE).err();
    let order = order.is_none_or(|error| {
        matches!(error, extant_base::Error::Corrupt { what: extant_base::What::XattrOrder, .. })
    });
    order
        && area.entries().all(|entry| {
            let hash = match entry.value {
                ValueRef::InInode { .. } => true,
                ValueRef::Here(_) => (!is_block && entry.hash == 0) || entry.hash_matches(|| 0),
            };
            hash && has_name(entry.index, entry.name)
        })
}

fn has_name(index: NameIndex, name: &[u8]) -> bool {
    let whole = [NameIndex::ACL_ACCESS, NameIndex::ACL_DEFAULT, NameIndex::RICHACL];
    index != NameIndex(0) && (!name.is_empty() || whole.contains(&index))
}

/// Every legal entry of an area that starts at `first`.
fn lenient(bytes: &[u8], first: usize, ea_inode: bool, is_block: bool) -> Area {
    let mut area = Area::default();
    let mut taken: Vec<Range<usize>> = Vec::new();
    let mut offset = first;
    loop {
        let rest = bytes.get(offset..).unwrap_or_default();
        if rest.first_chunk::<4>().is_none_or(|head| *head == [0; 4]) {
            area.lossy |= rest.len() < TERMINATOR_LEN;
            break;
        }
        let Ok((raw, tail)) = RawXattrEntry::ref_from_prefix(rest) else {
            area.lossy = true;
            break;
        };
        let Some(name) = tail.get(..usize::from(raw.e_name_len)).filter(|name| !name.contains(&0))
        else {
            area.lossy = true;
            break;
        };
        offset += entry_len(name.len());
        match value(bytes, raw, name, ea_inode, is_block, offset, &taken) {
            Some((value, range)) => {
                let index = NameIndex(raw.e_name_index);
                let twice =
                    area.attributes.iter().any(|one| (one.index, &one.name[..]) == (index, name));
                if twice || !has_name(index, name) {
                    area.lossy = true;
                    continue;
                }
                taken.push(range);
                area.attributes.push(Attribute { index, name: name.to_vec(), value });
            }
            None => area.lossy = true,
        }
    }
    area
}

fn value(
    bytes: &[u8],
    raw: &RawXattrEntry,
    name: &[u8],
    ea_inode: bool,
    is_block: bool,
    names_end: usize,
    taken: &[Range<usize>],
) -> Option<(Value, Range<usize>)> {
    let (size, hash) = (raw.e_value_size.get(), raw.e_hash.get());
    if size > VALUE_MAX {
        return None;
    }
    if let Some(ino) = Ino::new(raw.e_value_inum.get()) {
        let crc = hash ^ entry_hash_of_inode_value(name, 0);
        let legal = ea_inode && ino != Ino::ROOT && size > 0;
        return legal.then_some((Value::InInode { ino, size, crc }, 0..0));
    }
    let start = usize::from(raw.e_value_offs.get());
    let len = size as usize;
    let range = if len == 0 { 0..0 } else { start..start + len.next_multiple_of(4) };
    let fits = len == 0
        || (range.start >= names_end && range.end <= bytes.len())
            && taken.iter().all(|one| range.end <= one.start || range.start >= one.end);
    let value = if fits { bytes.get(range.start..range.start + len)? } else { return None };
    let right = (!is_block && hash == 0) || hash == entry_hash(name, value) || {
        // Old writers took the bytes of names as signed.
        let signed = name.iter().fold(0u32, |hash, byte| {
            hash.rotate_left(5) ^ i32::from(byte.cast_signed()).cast_unsigned()
        });
        let mixed = entry_hash(name, value) ^ entry_hash(name, &[]).rotate_left(rotation(len));
        hash == mixed ^ signed.rotate_left(rotation(len))
    };
    right.then(|| (Value::Here(value.to_vec()), range))
}

/// By how many bits the hash of the name is rotated when the value is mixed in.
fn rotation(value_len: usize) -> u32 {
    if value_len.div_ceil(4).is_multiple_of(2) { 0 } else { 16 }
}

/// Writes an attribute block again, with the number of inodes that use it.
pub(crate) fn put_block(volume: &Volume, nr: u64, mut bytes: Vec<u8>, users: u32) -> Result<()> {
    BlockHeader::set_refcount(&mut bytes, users.clamp(1, 1024));
    if let Some(seed) = volume.checksums.seed() {
        BlockHeader::set_checksum(&mut bytes, seed, BlockNr(nr));
    }
    volume.disk.put(nr, &bytes)
}

/// Reports what happened to attributes.
pub(crate) fn report(volume: &mut Volume, ino: u32, area: &Area) {
    let class = if area.lossy { Class::AttributesLost } else { Class::AttributesRebuilt };
    volume.report.add_file(class, ino);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entries_after_a_broken_one_are_kept() {
        let all = [
            NewXattr { index: NameIndex::USER, name: b"one", value: NewValue::Here(b"1111") },
            NewXattr { index: NameIndex::USER, name: b"two", value: NewValue::Here(b"22") },
        ];
        let mut bytes = encode_block(&all, 1024).unwrap();
        let area = lenient(&bytes, BLOCK_HEADER_LEN, false, true);
        assert!(area.attributes.len() == 2 && !area.lossy);
        // The first entry's value lies outside.
        bytes[BLOCK_HEADER_LEN + 2..BLOCK_HEADER_LEN + 4].copy_from_slice(&[0xFF, 0xFF]);
        let area = lenient(&bytes, BLOCK_HEADER_LEN, false, true);
        assert!(area.lossy);
        assert_eq!(area.attributes.len(), 1);
        assert_eq!(area.attributes[0].name, b"two");
    }
}
