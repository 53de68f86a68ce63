//! Extent trees: how ext4 finds the blocks of a file.
//!
//! ```text
//!   0          12         24                        12 + 12 × max
//!   ┌──────────┬──────────┬──────────┬─── ─ ─ ──────┬──────┐  root: i_block, 60 bytes, no checksum
//!   │ header   │ entry 0  │ entry 1  │ … entry max-1│ csum │  node: a block
//!   └──────────┴──────────┴──────────┴─── ─ ─ ──────┴──────┘
//!   header  F30A u16 │ entries u16 │ max u16 │ depth u16 │ generation u32
//!   leaf    ee_block u32 │ ee_len u16 │ start_hi u16 │ start_lo u32       depth 0
//!   index   ei_block u32 │ leaf_lo u32 │ leaf_hi u16 │ unused u16         depth 1 … 5
//! ```
//!
//! Rules:
//! - The keys of a node ascend, and its extents do not overlap.
//! - The first key of a node equals the node's key in its parent.
//! - The checksum covers the whole entry area, used or not.
//!
//! Source: ext4 documentation, "Extent Tree".

mod edit;
mod entry;
mod node;

pub use edit::{ChecksumChange, ExtentNodeMut};
pub use entry::{Extent, ExtentIndex, ExtentState, RawExtent, RawExtentIndex};
pub use node::{ExtentNode, NodeRules};

use core::mem::size_of;
use extant_crc32c::{crc32c, seed_of};
use zerocopy::little_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// `eh_magic`.
pub const EXTENT_MAGIC: u16 = 0xF30A;
/// The deepest tree; a root of this depth has leaves five levels down.
pub const MAX_DEPTH: u16 = 5;
/// The longest written extent, blocks. An unwritten one is at most one shorter.
pub const MAX_LEN: u32 = 0x8000;
/// Bytes of a header, and of any entry.
pub const ENTRY_SIZE: usize = 12;
/// Entries in a root.
pub const ROOT_MAX: u16 = 4;
/// One past the last logical block: no block has this number.
pub const END: u32 = u32::MAX;

/// The header of a node; any bit pattern.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, Immutable, KnownLayout, Unaligned)]
#[repr(C)]
pub struct RawExtentHeader {
    /// F30A.
    pub eh_magic: U16,
    /// Entries in use.
    pub eh_entries: U16,
    /// Entries that fit.
    pub eh_max: U16,
    /// Levels below this node.
    pub eh_depth: U16,
    /// Zero; kept.
    pub eh_generation: U32,
}

const _: () = assert!(size_of::<RawExtentHeader>() == ENTRY_SIZE);

/// Entries that fit in a node of `bytes` bytes. In a block of any legal size at least 4 bytes
/// remain for the checksum; a root has no checksum.
pub fn capacity(bytes: usize) -> u16 {
    u16::try_from(bytes.saturating_sub(ENTRY_SIZE) / ENTRY_SIZE).unwrap_or(u16::MAX)
}

const fn entry_offset(n: usize) -> usize {
    ENTRY_SIZE + n * ENTRY_SIZE
}

fn tail_offset(max: u16) -> usize {
    entry_offset(usize::from(max))
}

fn stored_checksum(bytes: &[u8], max: u16) -> Option<u32> {
    Some(u32::from_le_bytes(*bytes.get(tail_offset(max)..)?.first_chunk()?))
}

/// The offset of the checksum in a non-root node, which is also the number of bytes that it covers.
/// It depends on the stored `eh_max`. `None` if the node has no header or no space for a checksum.
pub fn checksum_offset(bytes: &[u8]) -> Option<usize> {
    let (header, _) = RawExtentHeader::ref_from_prefix(bytes).ok()?;
    let offset = tail_offset(header.eh_max.get());
    (offset + 4 <= bytes.len()).then_some(offset)
}

/// Stores the right checksum in a non-root node; `seed` is the inode's.
///
/// # Panics
/// If the node is malformed: it must be checked, or made by [`ExtentNodeMut::init`].
pub fn set_checksum(bytes: &mut [u8], seed: u32) {
    let tail = checksum_offset(bytes).expect("a node block has space for its checksum");
    let crc = crc32c(seed, &bytes[..tail]);
    bytes[tail..tail + 4].copy_from_slice(&crc.to_le_bytes());
}

/// Whether a non-root node stores its right checksum.
pub fn checksum_is_right(bytes: &[u8], seed: u32) -> bool {
    checksum_offset(bytes)
        .is_some_and(|tail| bytes[tail..tail + 4] == crc32c(seed, &bytes[..tail]).to_le_bytes())
}

/// The inode's seed with which the checksum of a non-root node is right; `None` if the node has no
/// header or no space for a checksum.
pub fn seed_from_checksum(bytes: &[u8]) -> Option<u32> {
    let tail = checksum_offset(bytes)?;
    let stored = u32::from_le_bytes(*bytes.get(tail..)?.first_chunk()?);
    Some(seed_of(stored, &bytes[..tail]))
}

/// Updates the checksum of a non-root node after changes to its entries.
///
/// With [`ChecksumChange::Delta`] a checksum that was wrong before stays wrong. Otherwise this
/// computes the checksum from all bytes.
///
/// # Panics
/// As [`set_checksum`].
pub fn update_checksum(bytes: &mut [u8], seed: u32, change: ChecksumChange) {
    let ChecksumChange::Delta(delta) = change else { return set_checksum(bytes, seed) };
    let tail = checksum_offset(bytes).expect("a node block has space for its checksum");
    let stored = &mut bytes[tail..tail + 4];
    let old = u32::from_le_bytes([stored[0], stored[1], stored[2], stored[3]]);
    stored.copy_from_slice(&(old ^ delta).to_le_bytes());
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;
    use alloc::vec::Vec;
    use extant_base::{BlockNr, Error, LogicalBlock, Site, What};

    fn extent(logical: u32, len: u32, physical: u64, state: ExtentState) -> Extent {
        Extent { logical: LogicalBlock(logical), len, physical: BlockNr(physical), state }
    }

    fn rules() -> NodeRules {
        NodeRules { blocks: 1..1 << 40, depth: None, first_key: None, end: END, seed: None }
    }

    fn what(result: Result<ExtentNode<'_>, Error>) -> What {
        match result {
            Err(Error::Corrupt { what, .. }) => what,
            Err(other) => panic!("{other}"),
            Ok(_) => panic!("nothing found"),
        }
    }

    const W: ExtentState = ExtentState::Written;
    const U: ExtentState = ExtentState::Unwritten;

    #[test]
    fn the_length_distinguishes_written_from_unwritten() {
        let table = [(1, W, 1), (0x8000, W, 0x8000), (1, U, 0x8001), (0x7FFF, U, 0xFFFF)];
        for (len, state, stored) in table {
            let extent = extent(7, len, 0x1234_5678_9ABC, state);
            let raw = extent.to_raw();
            assert_eq!(raw.ee_len.get(), stored);
            assert_eq!(raw.as_bytes()[6..], [0x34, 0x12, 0xBC, 0x9A, 0x78, 0x56]);
            assert_eq!(raw.check(Site::NOWHERE).unwrap(), extent);
        }
        let empty = RawExtent { ee_len: 0.into(), ..extent(0, 1, 1, W).to_raw() };
        assert!(empty.check(Site::NOWHERE).is_err());
    }

    #[test]
    fn the_last_block_number_is_no_block() {
        assert!(extent(u32::MAX - 1, 1, 5, W).to_raw().check(Site::NOWHERE).is_ok());
        assert!(extent(u32::MAX, 1, 5, W).to_raw().check(Site::NOWHERE).is_err());
    }

    #[test]
    fn entries_go_in_and_out_in_order() {
        let mut bytes = [0xAA; 60];
        let mut node = ExtentNodeMut::init(&mut bytes, 0);
        node.insert_extent(0, &extent(10, 5, 100, W));
        node.insert_extent(0, &extent(0, 5, 200, U));
        node.insert_extent(2, &extent(20, 5, 300, W));
        node.set_extent(1, &extent(11, 4, 101, W));
        node.remove(0..1);
        assert_eq!((node.len(), node.max(), node.is_full()), (2, 4, false));
        let node = ExtentNode::check(&bytes, &rules(), Site::NOWHERE).unwrap();
        let all: Vec<_> = node.extents().collect();
        assert_eq!(all, [extent(11, 4, 101, W), extent(20, 5, 300, W)]);
        assert_eq!(bytes[36..], [0; 24], "unused entries are zero");
    }

    #[test]
    fn a_search_finds_the_last_key_at_or_before() {
        let mut bytes = vec![0; 1024];
        let mut node = ExtentNodeMut::init(&mut bytes, 0);
        assert_eq!(node.max(), 84);
        for n in 0..84 {
            node.insert_extent(n, &extent(n as u32 * 10 + 5, 5, 1000, W));
        }
        assert!(node.is_full());
        let node = ExtentNode::check(&bytes, &rules(), Site::NOWHERE).unwrap();
        assert_eq!(node.search(LogicalBlock(4)), None);
        for block in 5..900 {
            let expected = ((block as usize - 5) / 10).min(83);
            assert_eq!(node.search(LogicalBlock(block)), Some(expected));
        }
    }

    #[test]
    fn a_block_holds_as_many_entries_as_the_format_says() {
        for (bytes, max) in [(60, 4), (1024, 84), (2048, 169), (4096, 340), (65536, 5460)] {
            assert_eq!(capacity(bytes), max);
        }
    }

    #[test]
    fn every_flipped_bit_of_a_node_breaks_its_checksum() {
        let mut bytes = vec![0; 1024];
        let mut node = ExtentNodeMut::init(&mut bytes, 1);
        let index = ExtentIndex { logical: LogicalBlock(3), child: BlockNr(0x1_0000_0005) };
        node.insert_index(0, &index);
        set_checksum(&mut bytes, 99);
        let mut rules = rules();
        rules.seed = Some(99);
        rules.depth = Some(1);
        rules.first_key = Some(LogicalBlock(3));
        let node = ExtentNode::check(&bytes, &rules, Site::NOWHERE).unwrap();
        assert_eq!(node.indexes().collect::<Vec<_>>(), [index]);
        for bit in 0..bytes.len() * 8 {
            bytes[bit / 8] ^= 1 << (bit % 8);
            let found = ExtentNode::check(&bytes, &rules, Site::NOWHERE);
            assert!(found.is_err(), "bit {bit}");
            bytes[bit / 8] ^= 1 << (bit % 8);
        }
        assert_eq!(checksum_offset(&bytes), Some(12 + 84 * 12));
        rules.seed = Some(98);
        assert_eq!(what(ExtentNode::check(&bytes, &rules, Site::NOWHERE)), What::ExtentChecksum);
    }

    #[test]
    fn each_rule_has_its_finding() {
        type Spoil = fn(&mut [u8], &mut NodeRules);
        let table: [(Spoil, What); 14] = [
            (|b, _| b[0] = 0, What::ExtentMagic),
            (|b, _| b[2] = 5, What::ExtentHeader),
            (|b, _| b[4] = 0, What::ExtentHeader),
            (|b, _| b[4] = 5, What::ExtentHeader),
            (|b, _| b[6] = 6, What::ExtentDepth),
            (|_, r| r.depth = Some(1), What::ExtentDepth),
            (|b, _| (b[2], b[6]) = (0, 1), What::ExtentHeader),
            (|b, _| (b[16], b[17]) = (0, 0), What::ExtentEmpty),
            (|b, _| b[24] = 9, What::ExtentOrder),
            (|_, r| r.end = 22, What::ExtentOrder),
            (|_, r| r.first_key = Some(LogicalBlock(4)), What::ExtentKey),
            (|_, r| r.blocks = 101..1000, What::ExtentRange),
            (|_, r| r.blocks = 1..304, What::ExtentRange),
            (|b, _| b[6] = 1, What::ExtentRange),
        ];
        for (n, (spoil, expected)) in table.into_iter().enumerate() {
            let mut bytes = [0; 60];
            let mut node = ExtentNodeMut::init(&mut bytes, 0);
            node.insert_extent(0, &extent(5, 5, 100, W));
            node.insert_extent(1, &extent(20, 5, 300, W));
            let mut rules = rules();
            assert!(ExtentNode::check(&bytes, &rules, Site::NOWHERE).is_ok());
            if n == 13 {
                rules.blocks = 1..5;
            }
            spoil(&mut bytes, &mut rules);
            assert_eq!(what(ExtentNode::check(&bytes, &rules, Site::NOWHERE)), expected, "row {n}");
        }
    }

    #[test]
    fn neighbours_merge_only_within_the_length_of_their_state() {
        let a = extent(0, 100, 1000, W);
        assert!(a.can_merge(&extent(100, 32668, 1100, W)));
        assert!(!a.can_merge(&extent(100, 32669, 1100, W)));
        assert!(!a.can_merge(&extent(100, 1, 1101, W)));
        assert!(!a.can_merge(&extent(101, 1, 1100, W)));
        assert!(!a.can_merge(&extent(100, 1, 1100, U)));
        let u = extent(0, 100, 1000, U);
        assert!(u.can_merge(&extent(100, 32667, 1100, U)));
        assert!(!u.can_merge(&extent(100, 32668, 1100, U)));
    }

    #[test]
    fn an_incremental_checksum_equals_a_full_one() {
        let mut bytes = vec![0; 4096];
        ExtentNodeMut::init(&mut bytes, 0);
        set_checksum(&mut bytes, 7);
        let mut seed = 0x5eed_u64;
        for _ in 0..3000 {
            seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let mut node = ExtentNodeMut::tracking(&mut bytes, ChecksumChange::Delta(0));
            let (len, pick) = (node.len(), (seed >> 33) as usize);
            let new =
                extent(seed as u32 >> 8, 1 + pick as u32 % 9, seed >> 30, ExtentState::Written);
            match seed >> 60 {
                0..8 if len < node.max() => node.insert_extent(pick % (len + 1), &new),
                8..11 if len > 0 => node.set_extent(pick % len, &new),
                11..13 if len > 0 => node.set_key(pick % len, new.logical),
                _ if len > 0 => {
                    let n = pick % len;
                    node.remove(n..n + 1 + (pick >> 20) % (len - n).min(20));
                }
                _ => {}
            }
            let change = node.checksum_change();
            update_checksum(&mut bytes, 7, change);
            assert!(checksum_is_right(&bytes, 7), "{change:?} with {len} entries");
        }
    }
}
