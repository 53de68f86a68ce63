//! Bitmaps: which clusters and which inodes of a group are in use.
//!
//! ```text
//!   bit      7 6 5 4 3 2 1 0   15 … 8        n-1 │ n …                    8 × block size
//!           ┌─────────────────┬────── ─ ─ ─ ─────┼─────────────────────────┐
//!           │ byte 0          │ byte 1 …         │ padding, all ones       │    1 is in use
//!           └─────────────────┴────── ─ ─ ─ ─────┴─────────────────────────┘
//!           └── the checksum covers per_group / 8 bytes, also in a short last group ──┘
//! ```
//!
//! The functions process 64 bits at a time, at any alignment of the bytes. A bit past the end of
//! the bytes makes them panic, as an index past the end of a slice does.
//! Source: ext4 documentation, "Block and Inode Bitmaps".

use crate::checksum::Checksums;
use crate::geometry::Geometry;
use crate::group_desc::{GroupDesc, bitmap_csum_agrees};
use core::ops::Range;
use extant_base::narrow::{fits_u32, len_u32};
use extant_base::{Error, GroupNr, Site, What};
use extant_crc32c::crc32c;

/// Whether `bit` is set.
pub fn test(map: &[u8], bit: u32) -> bool {
    map[bit as usize / 8] & 1 << (bit % 8) != 0
}

/// Sets `bit`. Returns whether it was clear.
pub fn set(map: &mut [u8], bit: u32) -> bool {
    let was_clear = !test(map, bit);
    map[bit as usize / 8] |= 1 << (bit % 8);
    was_clear
}

/// Clears `bit`. Returns whether it was set.
pub fn clear(map: &mut [u8], bit: u32) -> bool {
    let was_set = test(map, bit);
    map[bit as usize / 8] &= !(1 << (bit % 8));
    was_set
}

// The bytes of a range of bits: a partial first byte, whole bytes, a partial last byte. A range
// within one byte is in `first` only.
struct Parts {
    first: Option<(usize, u8)>,
    whole: Range<usize>,
    last: Option<(usize, u8)>,
}

fn parts(bits: &Range<u32>) -> Parts {
    let (start, end) = (bits.start as usize, bits.end as usize);
    let none = Parts { first: None, whole: 0..0, last: None };
    if start >= end {
        return none;
    }
    let low = 0xFFu8 << (start % 8);
    let high = !(0xFFu8 << (end % 8)); // bits below `end`; none where `end` starts a byte
    if start / 8 == end / 8 {
        return Parts { first: Some((start / 8, low & high)), ..none };
    }
    Parts {
        first: (!start.is_multiple_of(8)).then_some((start / 8, low)),
        whole: start.div_ceil(8)..end / 8,
        last: (!end.is_multiple_of(8)).then_some((end / 8, high)),
    }
}

fn count_ones(bytes: &[u8]) -> u32 {
    let (words, rest) = bytes.as_chunks::<8>();
    words.iter().map(|word| u64::from_le_bytes(*word).count_ones()).sum::<u32>()
        + rest.iter().map(|byte| byte.count_ones()).sum::<u32>()
}

/// Sets `bits`. Returns how many of them were clear.
pub fn set_range(map: &mut [u8], bits: Range<u32>) -> u32 {
    let parts = parts(&bits);
    let mut flipped = 0;
    for (at, mask) in [parts.first, parts.last].into_iter().flatten() {
        flipped += (!map[at] & mask).count_ones();
        map[at] |= mask;
    }
    let whole = &mut map[parts.whole];
    flipped += len_u32(whole.len() * 8) - count_ones(whole);
    whole.fill(0xFF);
    flipped
}

/// Clears `bits`. Returns how many of them were set.
pub fn clear_range(map: &mut [u8], bits: Range<u32>) -> u32 {
    let parts = parts(&bits);
    let mut flipped = 0;
    for (at, mask) in [parts.first, parts.last].into_iter().flatten() {
        flipped += (map[at] & mask).count_ones();
        map[at] &= !mask;
    }
    let whole = &mut map[parts.whole];
    flipped += count_ones(whole);
    whole.fill(0);
    flipped
}

/// How many of `bits` are set.
pub fn count_set(map: &[u8], bits: Range<u32>) -> u32 {
    let parts = parts(&bits);
    let edges: u32 = [parts.first, parts.last]
        .into_iter()
        .flatten()
        .map(|(at, mask)| (map[at] & mask).count_ones())
        .sum();
    edges + count_ones(&map[parts.whole])
}

/// How many of `bits` are clear.
pub fn count_zeros(map: &[u8], bits: Range<u32>) -> u32 {
    bits.end.saturating_sub(bits.start) - count_set(map, bits)
}

// The first bit of `bits` that is set in `map ^ flip`.
fn find(map: &[u8], bits: Range<u32>, flip: u64) -> Option<u32> {
    assert!(bits.end as usize <= map.len() * 8, "bits {bits:?} of {} bytes", map.len());
    let mut bit = bits.start;
    while bit < bits.end {
        let at = bit as usize / 8;
        let word = match map[at..].first_chunk::<8>() {
            Some(word) => u64::from_le_bytes(*word),
            None => {
                let mut word = [0; 8];
                word[..map.len() - at].copy_from_slice(&map[at..]);
                u64::from_le_bytes(word)
            }
        };
        let found = (word ^ flip) >> (bit % 8);
        if found != 0 {
            let hit = bit.checked_add(found.trailing_zeros())?;
            return (hit < bits.end).then_some(hit);
        }
        bit = (len_u32(at) + 8).checked_mul(8)?;
    }
    None
}

/// The first clear bit of `bits`.
pub fn next_zero(map: &[u8], bits: Range<u32>) -> Option<u32> {
    find(map, bits, !0)
}

/// The first set bit of `bits`.
pub fn next_set(map: &[u8], bits: Range<u32>) -> Option<u32> {
    find(map, bits, 0)
}

/// The first run of clear bits in `bits`, cut off at the end of `bits`.
pub fn next_zero_run(map: &[u8], bits: Range<u32>) -> Option<Range<u32>> {
    let start = next_zero(map, bits.clone())?;
    let end = next_set(map, start..bits.end).unwrap_or(bits.end);
    Some(start..end)
}

/// All runs of clear bits in `bits`, in order.
pub fn zero_runs(map: &[u8], bits: Range<u32>) -> impl Iterator<Item = Range<u32>> + '_ {
    let mut from = bits.start;
    core::iter::from_fn(move || {
        let run = next_zero_run(map, from..bits.end)?;
        from = run.end;
        Some(run)
    })
}

/// All runs of set bits in `bits`, in order.
pub fn set_runs(map: &[u8], bits: Range<u32>) -> impl Iterator<Item = Range<u32>> + '_ {
    let mut from = bits.start;
    core::iter::from_fn(move || {
        let start = next_set(map, from..bits.end)?;
        from = next_zero(map, start..bits.end).unwrap_or(bits.end);
        Some(start..from)
    })
}

/// Sets all bits from `used` on: the padding after a group's last cluster or inode.
pub fn fill_padding(map: &mut [u8], used: u32) {
    let end = len_u32(map.len() * 8);
    set_range(map, used..end);
}

/// Whether all bits from `used` on are set.
pub fn padding_is_set(map: &[u8], used: u32) -> bool {
    next_zero(map, used..len_u32(map.len() * 8)).is_none()
}

/// Which of a group's two bitmaps.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Kind {
    /// Clusters in use.
    Block,
    /// Inodes in use.
    Inode,
}

impl Kind {
    /// Bits that the checksum covers: clusters or inodes of a full group.
    pub fn covered_bits(self, geometry: &Geometry) -> u32 {
        match self {
            Kind::Block => geometry.clusters_per_group(),
            Kind::Inode => geometry.inodes_per_group(),
        }
    }

    /// Number of bits that stand for clusters or inodes of `group`; the rest is padding.
    pub fn used_bits(self, geometry: &Geometry, group: GroupNr) -> u32 {
        match self {
            Kind::Block => geometry.clusters_in_group(group).unwrap_or(0),
            Kind::Inode => geometry.inodes_per_group(),
        }
    }
}

/// The checksum of a bitmap, or `None` without `metadata_csum`. It does not depend on the group's
/// number, and covers no checksum field.
pub fn compute_checksum(
    map: &[u8],
    kind: Kind,
    geometry: &Geometry,
    checksums: &Checksums,
) -> Option<u32> {
    let seed = checksums.seed()?;
    let covered = kind.covered_bits(geometry) as usize / 8;
    Some(crc32c(seed, map.get(..covered)?))
}

/// Stores a bitmap's checksum in its group's descriptor, cut to the bits that the descriptor holds.
/// The write of the descriptor sets its own checksum.
pub fn set_checksum(
    desc: &mut GroupDesc,
    map: &[u8],
    kind: Kind,
    geometry: &Geometry,
    checksums: &Checksums,
) {
    if let Some(computed) = compute_checksum(map, kind, geometry, checksums) {
        let field = match kind {
            Kind::Block => &mut desc.block_bitmap_csum,
            Kind::Inode => &mut desc.inode_bitmap_csum,
        };
        *field = if bitmap_csum_agrees(1 << 16, 0, geometry.desc_size()) {
            computed & 0xFFFF
        } else {
            computed
        };
    }
}

/// Checks a bitmap read from the disk: length, checksum, padding, and that the group's own
/// metadata, as far as it lies in the group, is marked as used.
///
/// The caller does not call this for a group that is UNINIT, whose bitmap holds garbage: see
/// [`init_block_bitmap`] and [`init_inode_bitmap`].
///
/// # Errors
/// `BitmapChecksum`, `BitmapPadding`, `BitmapMetadataFree`, naming the group.
pub fn check(
    map: &[u8],
    kind: Kind,
    group: GroupNr,
    desc: &GroupDesc,
    geometry: &Geometry,
    checksums: &Checksums,
) -> Result<(), Error> {
    let (stored, block) = match kind {
        Kind::Block => (desc.block_bitmap_csum, desc.block_bitmap),
        Kind::Inode => (desc.inode_bitmap_csum, desc.inode_bitmap),
    };
    let at = Site::of_group(group).block(block);
    if map.len() != geometry.block_size().bytes() {
        return Err(at.corrupt(What::BitmapPadding));
    }
    if let Some(computed) = compute_checksum(map, kind, geometry, checksums)
        && !bitmap_csum_agrees(stored, computed, geometry.desc_size())
    {
        return Err(at.corrupt(What::BitmapChecksum));
    }
    if !padding_is_set(map, kind.used_bits(geometry, group)) {
        return Err(at.corrupt(What::BitmapPadding));
    }
    if kind == Kind::Block
        && own_metadata(group, desc, geometry).any(|bits| next_zero(map, bits).is_some())
    {
        return Err(at.corrupt(What::BitmapMetadataFree));
    }
    Ok(())
}

/// The clusters of `group` that its own metadata takes, as far as it lies in the group: superblock
/// copy, descriptors, reserved descriptor blocks, the two bitmaps and the inode table. Two ranges
/// may share a cluster.
pub fn own_metadata(
    group: GroupNr,
    desc: &GroupDesc,
    geometry: &Geometry,
) -> impl Iterator<Item = Range<u32>> + use<> {
    let all = geometry.blocks_of_group(group).unwrap_or(0..0);
    let base = geometry.base_blocks(group).unwrap_or(0..0);
    let itable = u64::from(geometry.itable_blocks());
    let run = |start: u64, len: u64| start..start.saturating_add(len);
    let log_ratio = geometry.log_cluster_ratio();
    [
        base,
        run(desc.block_bitmap.0, 1),
        run(desc.inode_bitmap.0, 1),
        run(desc.inode_table.0, itable),
    ]
    .into_iter()
    .filter_map(move |blocks| {
        let start = blocks.start.max(all.start);
        let end = blocks.end.min(all.end);
        // Both ends lie in the group, so the differences fit 32 bits.
        (start < end).then(|| {
            let first = (start - all.start) >> log_ratio;
            let last = (end - 1 - all.start) >> log_ratio;
            fits_u32(first)..fits_u32(last) + 1
        })
    })
}

/// Computes the block bitmap of a group marked BLOCK_UNINIT: its own metadata and the padding.
/// Returns the number of free clusters, which the descriptor's count must equal.
///
/// # Panics
/// If `map` is not one block long.
pub fn init_block_bitmap(
    map: &mut [u8],
    group: GroupNr,
    desc: &GroupDesc,
    geometry: &Geometry,
) -> u32 {
    assert_eq!(map.len(), geometry.block_size().bytes(), "a bitmap is one block");
    map.fill(0);
    let used = Kind::Block.used_bits(geometry, group);
    let taken: u32 = own_metadata(group, desc, geometry).map(|bits| set_range(map, bits)).sum();
    fill_padding(map, used);
    used.saturating_sub(taken)
}

/// Computes the inode bitmap of a group marked INODE_UNINIT: all free, padding set.
///
/// # Panics
/// If `map` is not one block long.
pub fn init_inode_bitmap(map: &mut [u8], geometry: &Geometry) {
    assert_eq!(map.len(), geometry.block_size().bytes(), "a bitmap is one block");
    map.fill(0);
    fill_padding(map, geometry.inodes_per_group());
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;
    use alloc::vec::Vec;

    // A small generator with a fixed seed: the same run each time.
    fn random(state: &mut u64) -> u64 {
        *state ^= *state << 13;
        *state ^= *state >> 7;
        *state ^= *state << 17;
        *state
    }

    fn naive(map: &[u8]) -> Vec<bool> {
        (0..map.len() * 8).map(|bit| map[bit / 8] >> (bit % 8) & 1 != 0).collect()
    }

    #[test]
    fn ranges_agree_with_single_bits() {
        let mut state = 0x5eed;
        for round in 0..if cfg!(miri) { 12 } else { 3000 } {
            let len = 1 + random(&mut state) as usize % 40;
            let mut map: Vec<u8> = (0..len).map(|_| random(&mut state) as u8).collect();
            if round % 3 == 0 {
                map.fill(if round % 2 == 0 { 0 } else { 0xFF });
            }
            let bits = len as u32 * 8;
            let a = random(&mut state) as u32 % (bits + 1);
            let b = random(&mut state) as u32 % (bits + 1);
            let range = a.min(b)..a.max(b);
            let plain = naive(&map);
            let slice = &plain[range.start as usize..range.end as usize];
            let ones = slice.iter().filter(|bit| **bit).count() as u32;
            let at = |n: usize| range.start + n as u32;
            assert_eq!(count_set(&map, range.clone()), ones);
            assert_eq!(count_zeros(&map, range.clone()), slice.len() as u32 - ones);
            assert_eq!(next_zero(&map, range.clone()), slice.iter().position(|b| !b).map(at));
            assert_eq!(next_set(&map, range.clone()), slice.iter().position(|b| *b).map(at));
            let zeros: u32 = zero_runs(&map, range.clone()).map(|run| run.end - run.start).sum();
            let sets: u32 = set_runs(&map, range.clone()).map(|run| run.end - run.start).sum();
            assert_eq!((zeros, sets), (slice.len() as u32 - ones, ones));

            let (mut filled, mut emptied) = (map.clone(), map.clone());
            assert_eq!(set_range(&mut filled, range.clone()), slice.len() as u32 - ones);
            assert_eq!(clear_range(&mut emptied, range.clone()), ones);
            for bit in 0..bits {
                let inside = range.contains(&bit);
                assert_eq!(test(&filled, bit), inside || test(&map, bit));
                assert_eq!(test(&emptied, bit), !inside && test(&map, bit));
            }
        }
    }

    #[test]
    fn set_and_clear_return_whether_the_bit_changed() {
        let mut map = [0u8; 4];
        assert!(set(&mut map, 17));
        assert!(!set(&mut map, 17));
        assert_eq!(map, [0, 0, 2, 0]);
        assert!(clear(&mut map, 17));
        assert!(!clear(&mut map, 17));
    }

    #[test]
    fn padding_is_every_bit_after_the_last() {
        let mut map = vec![0u8; 1024];
        fill_padding(&mut map, 13);
        assert_eq!(map[..3], [0, 0xE0, 0xFF]);
        assert!(padding_is_set(&map, 13));
        assert!(!padding_is_set(&map, 12));
        assert!(padding_is_set(&[0; 4], 32), "a full bitmap has none");
    }
}
