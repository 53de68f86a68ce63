//! Group descriptors, judged one by one: where bitmaps and inode tables lie.
//!
//! ```text
//!   primary ── checksum and places right ──────────────────────────────► used
//!           └─ else: places of copies, of flex_bg arithmetic, of mkfs ─► the table in which most
//!                                                                        inodes verify
//! ```
//!
//! Counts and checksums of descriptors are not used: the repair computes them again. Only flags and
//! `itable_unused` of a sound descriptor limit what is read of a table.

use super::Volume;
use crate::report::Class;
use extant_base::narrow::fits_u32;
use extant_base::{BlockNr, ByteOffset, GroupNr, Ino, Result};
use extant_ondisk::bitmap::{self, Kind};
use extant_ondisk::group_desc::{GroupDesc, GroupFlags, checksum_is_right};
use extant_ondisk::inode::{
    FileKind, Inode, checksum_is_right as inode_checksum_is_right, is_zero_slot,
};
use std::collections::BTreeMap;

/// How many copies of a descriptor are compared.
const COPIES_MAX: usize = 6;
/// What the root directory at its place is worth.
const ROOT_SCORE: i64 = 1 << 40;
/// How many blocks of a group are searched for its table.
const SEARCH_BLOCKS: u64 = 65_536;
/// How many bits of a bitmap that must be set may be damaged, if there are enough of them.
const WRONG_BITS_MAX: u32 = 8;
/// How many bits that must be set are enough for that.
const PROVING_BITS: u32 = 128;
/// How many blocks of a table are read to judge its place.
const PROBE_BLOCKS: u64 = 16;

/// A group's descriptor.
#[derive(Clone, Debug)]
pub(crate) struct Group {
    pub(crate) desc: GroupDesc,
    /// Flags and `itable_unused` can be trusted.
    pub(crate) trusted: bool,
    /// The block bitmap needs another place.
    pub(crate) block_bitmap_lost: bool,
    /// The inode bitmap needs another place.
    pub(crate) inode_bitmap_lost: bool,
    /// The inode table needs another place, and its inodes are lost.
    pub(crate) table_lost: bool,
}

/// Which fixed structure lies somewhere, to find overlaps.
struct Taken(BTreeMap<u64, u64>);

impl Taken {
    fn overlaps(&self, start: u64, len: u64) -> bool {
        let before = self.0.range(..start + len).next_back();
        before.is_some_and(|(_, end)| *end > start)
    }

    fn add(&mut self, start: u64, len: u64) {
        if len > 0 {
            self.0.insert(start, start + len);
        }
    }
}

/// Reads and judges all descriptors.
pub(super) fn load(volume: &mut Volume) -> Result<Vec<Group>> {
    let geometry = volume.geometry;
    let mut taken = Taken(BTreeMap::new());
    for group in geometry.groups() {
        if let Some(base) = geometry.base_blocks(group) {
            taken.add(base.start, base.end - base.start);
        }
    }
    let mut groups: Vec<Option<Group>> = Vec::new();
    let mut doubtful = Vec::new();
    for nr in geometry.groups() {
        let (desc, mut sound) = primary(volume, nr)?;
        if sound && !volume.checksums.groups_may_be_uninit() {
            // No checksum proves the places: the inodes have to.
            sound = verified(volume, nr, desc.inode_table.0)? >= 0
                && is_bitmap(volume, nr, desc.block_bitmap.0, Kind::Block)?
                && is_bitmap(volume, nr, desc.inode_bitmap.0, Kind::Inode)?
                && (nr.0 != 0 || has_root(volume, desc.inode_table.0)?);
        }
        let free =
            sound && places(volume, &desc).iter().all(|(at, len)| !taken.overlaps(*at, *len));
        match free {
            true => {
                places(volume, &desc).iter().for_each(|(at, len)| taken.add(*at, *len));
                groups.push(Some(Group {
                    desc,
                    trusted: true,
                    block_bitmap_lost: false,
                    inode_bitmap_lost: false,
                    table_lost: false,
                }));
            }
            false => {
                doubtful.push((nr, desc));
                groups.push(None);
            }
        }
    }
    for (nr, desc) in doubtful {
        let group = resolve(volume, nr, desc, &groups, &mut taken)?;
        volume.report.add(Class::Descriptor);
        if group.table_lost {
            volume.report.add(Class::TableLost);
        }
        groups[nr.0 as usize] = Some(group);
    }
    Ok(groups.into_iter().flatten().collect())
}

/// The primary descriptor of a group, and whether it is sound.
fn primary(volume: &Volume, nr: GroupNr) -> Result<(GroupDesc, bool)> {
    let geometry = &volume.geometry;
    let Some((k, offset)) = geometry.desc_place(nr) else {
        return Ok((GroupDesc::default(), false));
    };
    let Some(block) = geometry.desc_block(k) else { return Ok((GroupDesc::default(), false)) };
    let mut bytes = vec![0; geometry.desc_size()];
    let at = geometry.block_size().start_of(block);
    volume.disk.read_bytes(ByteOffset(at.0 + offset as u64), &mut bytes)?;
    let bytes = &bytes[..];
    let desc = GroupDesc::parse(bytes);
    let right = checksum_is_right(bytes, nr, &volume.checksums);
    // Counts are computed again, so only places and the marks of unused inodes matter.
    let marks = desc.itable_unused <= geometry.inodes_per_group();
    let fields = GroupDesc { free_clusters: 0, free_inodes: 0, used_dirs: 0, ..desc };
    let fields = GroupDesc { itable_unused: 0, ..fields };
    let places = fields.check_fields(nr, geometry, &volume.checksums).is_ok();
    Ok((desc, right && places && marks))
}

fn places(volume: &Volume, desc: &GroupDesc) -> [(u64, u64); 3] {
    let table = u64::from(volume.geometry.itable_blocks());
    [(desc.block_bitmap.0, 1), (desc.inode_bitmap.0, 1), (desc.inode_table.0, table)]
}

/// Finds the places of a group whose descriptor is not sound.
fn resolve(
    volume: &Volume,
    nr: GroupNr,
    own: GroupDesc,
    groups: &[Option<Group>],
    taken: &mut Taken,
) -> Result<Group> {
    let copies = copies(volume, nr)?;
    let mut guesses = guesses(volume, nr, groups);
    // The search reads a whole group, so it has to be needed.
    if !is_proven(volume, nr, &own, &copies)? {
        guesses.extend(searched(volume, nr)?);
    }
    let candidates: Vec<&GroupDesc> =
        std::iter::once(&own).chain(&copies).chain(&guesses).collect();
    let table_blocks = u64::from(volume.geometry.itable_blocks());
    let mut best: Option<(i64, u64)> = None;
    let mut tried = Vec::new();
    for (n, desc) in candidates.iter().enumerate() {
        let at = desc.inode_table.0;
        if tried.contains(&at) || !fits(volume, nr, at, table_blocks, taken) {
            continue;
        }
        tried.push(at);
        // Of equal places, the earlier candidate is better evidence.
        let root = nr.0 == 0 && has_root(volume, at)?;
        let score = verified(volume, nr, at)? * 8 - i64::try_from(n.min(7)).unwrap_or(7)
            + if root { ROOT_SCORE } else { 0 };
        // Without checksums, blocks in the middle of a table look like a table.
        let keeps_own = best.is_some_and(|(most, _)| {
            tried.len() > 1 && most >= 0 && score < ROOT_SCORE && volume.checksums.seed().is_none()
        });
        if !keeps_own && best.is_none_or(|(most, _)| score > most) {
            best = Some((score, at));
        }
    }
    let mut desc = own;
    let table_lost = best.is_none();
    if let Some((_, at)) = best {
        desc.inode_table = BlockNr(at);
        taken.add(at, table_blocks);
    }
    // A bitmap has no checksum of its own place. A block that is none may be a file's, so only the
    // places of copies are used without a look at the block.
    let mut place = |kind: Kind, of: fn(&GroupDesc) -> u64| -> Result<Option<u64>> {
        for (n, desc) in candidates.iter().enumerate() {
            let at = of(desc);
            let from_copy = (1..=copies.len()).contains(&n);
            if fits(volume, nr, at, 1, taken) && (from_copy || is_bitmap(volume, nr, at, kind)?) {
                taken.add(at, 1);
                return Ok(Some(at));
            }
        }
        Ok(None)
    };
    let block_bitmap = place(Kind::Block, |desc| desc.block_bitmap.0)?;
    let inode_bitmap = place(Kind::Inode, |desc| desc.inode_bitmap.0)?;
    desc.block_bitmap = BlockNr(block_bitmap.unwrap_or(0));
    desc.inode_bitmap = BlockNr(inode_bitmap.unwrap_or(0));
    desc.flags.remove(GroupFlags::INODE_UNINIT | GroupFlags::BLOCK_UNINIT);
    desc.flags &= GroupFlags::INODE_ZEROED;
    desc.itable_unused = 0;
    Ok(Group {
        desc,
        trusted: false,
        block_bitmap_lost: block_bitmap.is_none(),
        inode_bitmap_lost: inode_bitmap.is_none(),
        table_lost,
    })
}

/// Whether the table of a descriptor or of one of its copies verifies.
fn is_proven(volume: &Volume, nr: GroupNr, own: &GroupDesc, copies: &[GroupDesc]) -> Result<bool> {
    let table = u64::from(volume.geometry.itable_blocks());
    for desc in std::iter::once(own).chain(copies) {
        let at = desc.inode_table.0;
        let inside = at > 0 && volume.geometry.holds(desc.inode_table, table);
        let verifies = inside
            && match volume.checksums.seed() {
                Some(_) => verified(volume, nr, at)? > 0,
                None => nr.0 != 0 || has_root(volume, at)?,
            };
        if verifies {
            return Ok(true);
        }
    }
    Ok(false)
}

/// Whether a block looks like a bitmap of a group: the padding is set, and so are the bits of what
/// is always in use, all but a few of many. A group that has neither shows nothing.
fn is_bitmap(volume: &Volume, nr: GroupNr, at: u64, kind: Kind) -> Result<bool> {
    let geometry = &volume.geometry;
    if !geometry.holds(BlockNr(at), 1) {
        return Ok(false);
    }
    let bytes = volume.disk.read(at)?;
    let in_use = match kind {
        Kind::Block => geometry.base_blocks(nr).map_or(0, |base| base.end - base.start),
        Kind::Inode if nr.0 == 0 => 10,
        Kind::Inode => 0,
    };
    let bits = kind.used_bits(geometry, nr);
    let used = fits_u32(in_use).div_ceil(geometry.cluster_ratio());
    if used > bits {
        return Ok(false);
    }
    let all = extant_base::narrow::len_u32(bytes.len()) * 8;
    let wrong = bitmap::count_zeros(&bytes, 0..used) + bitmap::count_zeros(&bytes, bits..all);
    Ok(wrong == 0 || wrong <= WRONG_BITS_MAX && used + (all - bits) >= PROVING_BITS)
}

/// Whether metadata of a group may lie there.
fn fits(volume: &Volume, nr: GroupNr, start: u64, len: u64, taken: &Taken) -> bool {
    let geometry = &volume.geometry;
    let own = match geometry.blocks_of_group(nr) {
        Some(blocks) if !geometry.metadata_roams() => blocks,
        _ => geometry.block_range(),
    };
    let inside = start >= own.start.max(1) && start.checked_add(len).is_some_and(|e| e <= own.end);
    inside && !taken.overlaps(start, len)
}

/// Sound copies of a descriptor.
fn copies(volume: &Volume, nr: GroupNr) -> Result<Vec<GroupDesc>> {
    let geometry = &volume.geometry;
    let mut found = Vec::new();
    let Some((k, offset)) = geometry.desc_place(nr) else { return Ok(found) };
    for (_, block) in geometry.desc_block_backups(k).take(COPIES_MAX) {
        let bytes = volume.disk.read(block.0)?;
        let bytes = &bytes[offset..offset + geometry.desc_size()];
        if checksum_is_right(bytes, nr, &volume.checksums) {
            found.push(GroupDesc::parse(bytes));
        }
    }
    Ok(found)
}

/// Places by arithmetic: next to those of neighbours, as flex_bg packs them, and at the start of
/// the group, as mkfs does without flex_bg.
fn guesses(volume: &Volume, nr: GroupNr, groups: &[Option<Group>]) -> Vec<GroupDesc> {
    let geometry = &volume.geometry;
    let table = u64::from(geometry.itable_blocks());
    let mut found = Vec::new();
    let near = |n: u32| groups.get(n as usize).and_then(Option::as_ref).map(|group| group.desc);
    let flex = geometry.groups_per_flex();
    if flex > 1 {
        let first = nr.0 - nr.0 % flex;
        for other in first..(first + flex).min(geometry.groups_count()) {
            let Some(desc) = near(other) else { continue };
            let shift = |block: u64, step: u64| {
                let moved = match nr.0 >= other {
                    true => block.checked_add(u64::from(nr.0 - other) * step),
                    false => block.checked_sub(u64::from(other - nr.0) * step),
                };
                BlockNr(moved.unwrap_or(0))
            };
            found.push(GroupDesc {
                block_bitmap: shift(desc.block_bitmap.0, 1),
                inode_bitmap: shift(desc.inode_bitmap.0, 1),
                inode_table: shift(desc.inode_table.0, table),
                ..GroupDesc::default()
            });
            if found.len() >= 4 {
                break;
            }
        }
    }
    if let Some(base) = geometry.base_blocks(nr) {
        found.push(GroupDesc {
            block_bitmap: BlockNr(base.end),
            inode_bitmap: BlockNr(base.end + 1),
            inode_table: BlockNr(base.end + 2),
            ..GroupDesc::default()
        });
    }
    found
}

/// Tables that a search of the group finds: by checksums, or, in the first group, by the root.
fn searched(volume: &Volume, nr: GroupNr) -> Result<Vec<GroupDesc>> {
    let geometry = &volume.geometry;
    let mut found = Vec::new();
    let Some(blocks) = geometry.blocks_of_group(nr) else { return Ok(found) };
    let table = u64::from(geometry.itable_blocks());
    let with_sums = volume.checksums.seed().is_some();
    if !with_sums && nr.0 != 0 {
        return Ok(found);
    }
    for at in blocks.start..blocks.end.min(blocks.start + SEARCH_BLOCKS) {
        if at + table > geometry.blocks_count() {
            break;
        }
        let fits = match with_sums {
            true => first_block_verifies(volume, nr, at)?,
            false => has_root(volume, at)?,
        };
        if fits {
            found.push(GroupDesc { inode_table: BlockNr(at), ..GroupDesc::default() });
        }
        if found.len() >= 4 {
            break;
        }
    }
    Ok(found)
}

/// Whether a block holds an inode whose checksum is right at the start of the group's table.
fn first_block_verifies(volume: &Volume, nr: GroupNr, at: u64) -> Result<bool> {
    let bytes = volume.disk.read(at)?;
    let slots = bytes.chunks_exact(volume.geometry.inode_size());
    Ok((0..).zip(slots).any(|(slot, one)| {
        let ino = volume.geometry.ino_of_slot(nr, slot);
        !is_zero_slot(one)
            && ino.is_some_and(|ino| inode_checksum_is_right(one, ino, &volume.checksums))
    }))
}

/// Whether a table at `at` has the root directory in its second slot.
fn has_root(volume: &Volume, at: u64) -> Result<bool> {
    let size = volume.geometry.inode_size();
    let start = volume.geometry.block_size().start_of(BlockNr(at)).0 + size as u64;
    let mut slot = vec![0; size];
    if volume.disk.read_bytes(extant_base::ByteOffset(start), &mut slot).is_err() {
        return Ok(false);
    }
    let Ok(inode) = Inode::parse_unverified(&slot, Ino::ROOT, &volume.format) else {
        return Ok(false);
    };
    if !inode.is_dir() || inode.links < 2 {
        return Ok(false);
    }
    let word = |at: usize| {
        inode.i_block[at..].first_chunk().map_or(0, |word| u64::from(u32::from_le_bytes(*word)))
    };
    if inode.has_inline_data() {
        return Ok(word(0) == u64::from(Ino::ROOT.get()));
    }
    // The low half of the first extent, or the first pointer.
    let block = match (inode.has_extents(), inode.i_block[6]) {
        (true, 0) => word(20),
        (true, _) => return Ok(inode.i_block[..2] == [0x0A, 0xF3]),
        (false, _) => word(0),
    };
    if !volume.geometry.holds(BlockNr(block), 1) {
        return Ok(false);
    }
    let bytes = volume.disk.read(block)?;
    let root = Ino::ROOT.get().to_le_bytes();
    Ok(bytes[..4] == root && bytes[8] == b'.' && bytes[12..16] == root && bytes[20..22] == *b"..")
}

/// How well the inodes at `at` fit the numbers of a group: those that verify less those that do
/// not.
fn verified(volume: &Volume, nr: GroupNr, at: u64) -> Result<i64> {
    let geometry = &volume.geometry;
    let size = geometry.inode_size();
    let mut score = 0;
    let mut slot = 0;
    for block in at..at + u64::from(geometry.itable_blocks()).min(PROBE_BLOCKS) {
        let bytes = volume.disk.read(block)?;
        for one in bytes.chunks_exact(size) {
            let ino = geometry.ino_of_slot(nr, slot);
            slot += 1;
            if let Some(ino) = ino
                && !is_zero_slot(one)
            {
                let mode = u16::from_le_bytes([one[0], one[1]]);
                let good = match volume.checksums.seed() {
                    Some(_) => inode_checksum_is_right(one, ino, &volume.checksums),
                    None => FileKind::from_mode(mode).is_some() || mode == 0,
                };
                score += if good { 1 } else { -1 };
            }
        }
    }
    Ok(score)
}
