//! Numbers that the inode of an attribute's value keeps in fields of other inodes.
//!
//! ```text
//!     atime           crc32c(filesystem seed, value)
//!     ctime, version  high and low half of the number of attributes that refer to the inode
//!     mtime           in the old style, the number of the one inode that uses the value
//! ```
//!
//! Source: ext4 documentation, "Extended Attributes", value inodes.

use super::Inode;
use crate::time::Timestamp;
use extant_base::narrow::{high_u32, low_u32};

impl Inode {
    /// The CRC32C of the value.
    pub fn value_crc(&self) -> u32 {
        word_of(self.atime)
    }

    /// Sets the CRC32C of the value.
    pub fn set_value_crc(&mut self, crc: u32) {
        self.atime = time_of(crc);
    }

    /// How many attributes refer to the inode.
    pub fn value_references(&self) -> u64 {
        u64::from(word_of(self.ctime)) << 32 | u64::from(low_u32(self.version))
    }

    /// Sets how many attributes refer to the inode.
    pub fn set_value_references(&mut self, count: u64) {
        self.ctime = time_of(high_u32(count));
        self.version = low_u32(count).into();
    }

    /// In the old style, the number of the one inode that uses the value.
    pub fn value_owner(&self) -> u32 {
        word_of(self.mtime)
    }
}

/// The first word of a time. Its sign and the word after it do not matter.
fn word_of(time: Timestamp) -> u32 {
    low_u32(time.sec.cast_unsigned())
}

fn time_of(word: u32) -> Timestamp {
    Timestamp::decode(word, None)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_of_a_value_inode_come_back() {
        for word in [0, 1, 0x7FFF_FFFF, 0x8000_0000, u32::MAX] {
            let mut inode = Inode { mtime: time_of(word), ..Inode::default() };
            inode.set_value_crc(word);
            let count = u64::from(word) << 32 | u64::from(!word);
            inode.set_value_references(count);
            assert_eq!((inode.value_crc(), inode.value_owner()), (word, word));
            assert_eq!((inode.value_references(), inode.version), (count, u64::from(!word)));
            assert_eq!(inode.ctime.encode(true), (word, 0));
        }
    }
}
