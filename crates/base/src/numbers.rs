//! Number types: one type for each kind of number, so that different kinds cannot be mixed up.
//! Conversions between them are here.

use core::fmt;
use core::num::NonZeroU32;

macro_rules! number {
    ($(#[$doc:meta])* $name:ident($inner:ty)) => {
        $(#[$doc])*
        #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
        #[repr(transparent)]
        pub struct $name(pub $inner);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(&self.0, f)
            }
        }
    };
}

number!(
    /// A block of the filesystem, counted from the device's start in filesystem blocks.
    BlockNr(u64)
);
number!(
    /// A block of one file, counted from the file's start in filesystem blocks.
    LogicalBlock(u32)
);
number!(
    /// A block group.
    GroupNr(u32)
);
number!(
    /// Bytes from the device's start.
    ByteOffset(u64)
);
number!(
    /// The number of a journal transaction. Transaction numbers wrap at 2^32: compare them with
    /// [`Tid::is_after`], never with `<`.
    Tid(u32)
);

impl BlockNr {
    /// The block `blocks` after this one; `None` on overflow.
    pub fn checked_add(self, blocks: u64) -> Option<Self> {
        self.0.checked_add(blocks).map(Self)
    }
}

impl Tid {
    /// Whether `self` comes later than `other`, modulo 2^32.
    pub fn is_after(self, other: Tid) -> bool {
        (self.0.wrapping_sub(other.0) as i32) > 0
    }

    /// The transaction after this one.
    pub fn next(self) -> Tid {
        Tid(self.0.wrapping_add(1))
    }
}

/// An inode number: never zero, because zero marks an unused directory entry.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[repr(transparent)]
pub struct Ino(NonZeroU32);

impl Ino {
    /// The list of bad blocks.
    pub const BAD_BLOCKS: Ino = Ino::reserved(1);
    /// The root directory.
    pub const ROOT: Ino = Ino::reserved(2);
    /// User quota, when the volume has the `quota` feature.
    pub const USER_QUOTA: Ino = Ino::reserved(3);
    /// Group quota, when the volume has the `quota` feature.
    pub const GROUP_QUOTA: Ino = Ino::reserved(4);
    /// The boot loader inode. With the `data_csum` feature it holds the file of data checksums:
    /// Linux and e2fsck accept blocks in this inode although no directory names it.
    pub const CHECKSUM_FILE: Ino = Ino::reserved(5);
    /// The reserved descriptor blocks that let a volume grow.
    pub const RESIZE: Ino = Ino::reserved(7);
    /// The journal.
    pub const JOURNAL: Ino = Ino::reserved(8);

    const fn reserved(number: u32) -> Ino {
        match NonZeroU32::new(number) {
            Some(number) => Ino(number),
            None => panic!("inode number is zero"),
        }
    }

    /// The inode with this number; `None` for zero.
    pub const fn new(number: u32) -> Option<Ino> {
        match NonZeroU32::new(number) {
            Some(number) => Some(Ino(number)),
            None => None,
        }
    }

    /// The number as stored on disk.
    pub const fn get(self) -> u32 {
        self.0.get()
    }
}

impl fmt::Display for Ino {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

/// The size of a filesystem block: 1 KiB to 64 KiB, a power of two.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct BlockSize {
    log2: u8,
}

impl BlockSize {
    /// The seven block sizes that ext4 allows, smallest first.
    pub const ALL: [BlockSize; 7] = [
        BlockSize { log2: 10 },
        BlockSize { log2: 11 },
        BlockSize { log2: 12 },
        BlockSize { log2: 13 },
        BlockSize { log2: 14 },
        BlockSize { log2: 15 },
        BlockSize { log2: 16 },
    ];

    /// The block size of `bytes` bytes; `None` unless that is a power of two from 1024 to 65536.
    pub const fn from_bytes(bytes: u32) -> Option<BlockSize> {
        if bytes.is_power_of_two() && bytes >= 1024 && bytes <= 65536 {
            Some(BlockSize { log2: bytes.trailing_zeros() as u8 })
        } else {
            None
        }
    }

    /// The block size for `s_log_block_size` of a superblock: 1024 << `n`; `None` unless `n` is in
    /// 0..=6.
    pub const fn from_superblock_log(n: u32) -> Option<BlockSize> {
        if n <= 6 { Some(BlockSize { log2: 10 + n as u8 }) } else { None }
    }

    /// Base-2 logarithm of the size in bytes, 10..=16.
    pub const fn log2(self) -> u32 {
        self.log2 as u32
    }

    /// The size in bytes.
    pub const fn bytes(self) -> usize {
        1 << self.log2
    }

    /// The first byte of `block` on the device. Saturates at 2^64 - 1.
    pub const fn start_of(self, block: BlockNr) -> ByteOffset {
        ByteOffset(if block.0 > u64::MAX >> self.log2 { u64::MAX } else { block.0 << self.log2 })
    }

    /// The block that holds the byte at `offset`.
    pub const fn block_at(self, offset: ByteOffset) -> BlockNr {
        BlockNr(offset.0 >> self.log2)
    }

    /// The number of blocks that hold `bytes` bytes, rounded up.
    pub const fn blocks_for(self, bytes: u64) -> u64 {
        (bytes >> self.log2) + (bytes & (self.bytes() as u64 - 1) != 0) as u64
    }
}

impl fmt::Display for BlockSize {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.bytes(), f)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn transaction_order_survives_the_wrap() {
        assert!(Tid(1).is_after(Tid(u32::MAX)));
        assert!(!Tid(u32::MAX).is_after(Tid(1)));
        assert!(!Tid(7).is_after(Tid(7)));
    }

    #[test]
    fn only_powers_of_two_from_1_to_64_kib_are_block_sizes() {
        for bytes in [0, 1, 512, 1000, 3072, 131_072] {
            assert_eq!(BlockSize::from_bytes(bytes), None, "{bytes}");
        }
        for (n, size) in BlockSize::ALL.iter().enumerate() {
            assert_eq!(BlockSize::from_superblock_log(n as u32), Some(*size));
            assert_eq!(BlockSize::from_bytes(1024 << n), Some(*size));
        }
        assert_eq!(BlockSize::from_superblock_log(7), None);
    }

    #[test]
    fn a_partial_block_counts_as_one() {
        let size = BlockSize::from_bytes(4096).unwrap();
        assert_eq!(size.blocks_for(0), 0);
        assert_eq!(size.blocks_for(1), 1);
        assert_eq!(size.blocks_for(4096), 1);
        assert_eq!(size.blocks_for(4097), 2);
        assert_eq!(size.blocks_for(u64::MAX), (u64::MAX >> 12) + 1);
    }
}
