//! Hashes of entries and blocks. Linux uses them to find an equal block that inodes can share.
//!
//! ```text
//!   entry   h = 0;  per byte of the name  h = rol(h, 5) ^ byte
//!                   per word of the value h = rol(h, 16) ^ word      (zero-padded, little-endian)
//!                   or, for a value inode, once with crc32c(filesystem seed, value)
//!   block   h = 0;  per entry in order    h = rol(h, 16) ^ entry     0 if any entry's is 0
//! ```

#[derive(Clone, Copy)]
pub(super) enum HashedValue<'a> {
    Bytes(&'a [u8]),
    Crc(u32),
}

impl HashedValue<'_> {
    pub(super) fn mix(self, hash: u32) -> u32 {
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

pub(super) fn name_hash(name: &[u8]) -> u32 {
    name.iter().fold(0_u32, |hash, &byte| hash.rotate_left(5) ^ u32::from(byte))
}

pub(super) fn name_hash_signed(name: &[u8]) -> u32 {
    name.iter().fold(0_u32, |hash, &byte| {
        hash.rotate_left(5) ^ i32::from(byte.cast_signed()).cast_unsigned()
    })
}

/// The hash of an entry in a block, with the value in the same block.
pub fn entry_hash(name: &[u8], value: &[u8]) -> u32 {
    HashedValue::Bytes(value).mix(name_hash(name))
}

/// The hash of an entry, in a block or in an inode, whose value is in an inode of its own.
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
