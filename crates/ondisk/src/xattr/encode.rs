//! Writing a set of attributes: entries from the start, values from the end.

use super::area::{ENTRY_LEN, INODE_HEADER_LEN, RawXattrEntry, TERMINATOR_LEN, entry_len, padded};
use super::hash::{block_hash, entry_hash, entry_hash_of_inode_value};
use super::header::{BLOCK_HEADER_LEN, MAGIC, RawXattrHeader};
use super::name::NameIndex;
use alloc::vec;
use alloc::vec::Vec;
use extant_base::narrow::{len_u8, len_u32};
use extant_base::{Error, Ino, Result};
use zerocopy::IntoBytes;
use zerocopy::little_endian::{U16, U32};

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
    /// In the same area as the entry.
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
    /// Bytes of this attribute in a block or an inode: entry, name, padded value.
    pub fn stored_len(&self) -> usize {
        entry_len(self.name.len())
            + match self.value {
                NewValue::Here(value) => padded(value.len()),
                NewValue::InInode { .. } => 0,
            }
    }
}

/// Bytes that a block with these attributes needs, which may be more than the block size.
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

/// Lays out an attribute block: sorted, hashed, refcount 1, the checksum still 0 (see
/// [`BlockHeader::set_checksum`](super::BlockHeader::set_checksum), which needs the block's place).
///
/// # Errors
/// `NoSpace` if they do not fit `block_size` bytes; `Invalid` for an illegal name.
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
/// # Errors
/// `NoSpace` if they do not fit; `Invalid` for an illegal name. On an error `tail` is unchanged.
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

/// Writes entries from `first` and values from the end of `bytes`, which is large enough.
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
                (offs, 0, len_u32(value.len()), if hashed { entry_hash(name, value) } else { 0 })
            }
            NewValue::InInode { ino, size, crc } => {
                (0, ino.get(), size, entry_hash_of_inode_value(name, crc))
            }
        };
        hashes.push(hash);
        let raw = RawXattrEntry {
            e_name_len: len_u8(name.len()),
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
