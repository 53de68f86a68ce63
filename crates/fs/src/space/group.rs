//! Block groups in memory: the table of groups, their descriptors and bitmaps.
//!
//! ```text
//!   GroupTable   chunks of 1024 groups, each made when one of its groups is first needed
//!   ┌────────┬────────┬────────┐
//!   │ ●      │        │ ●      │      a 64 TiB volume opens without touching its 524,288 groups
//!   └─┼──────┴────────┴─┼──────┘
//!     └ Group ┬ state   (Rank::Group)  free extents, freed clusters that wait for a commit
//!             └ flags   descriptor checked, places checked, maps found unusable, table parts
//!                       prefetched
//! ```
//!
//! A descriptor is checked (checksum, places, counts) when its group is first needed. A bad
//! descriptor makes only its own group unusable. Before a group is first changed, its places are
//! compared with the metadata around them: a bitmap or table that is not on disk yet (UNINIT) would
//! otherwise overwrite that metadata. Source: ext4 documentation, "Block Group Descriptors".

use crate::context::Context;
use crate::context::lazy_table::LazyTable;
use crate::context::role::Role;
use crate::space::free_extents::{FreeExtents, Span};
use crate::space::group_edit::Map;
use crate::space::pending::Pending;
use crate::space::preallocation::Held;
use extant_base::lock::{Mutex, Rank};
use extant_base::narrow::{fits_u32, len_u32};
use extant_base::{BlockNr, GroupNr, Ino, Result, Site, What};
use extant_journal::MetaBlock;
use extant_ondisk::bitmap;
use extant_ondisk::group_desc::{GroupDesc, bitmap_csum_agrees, checksum_is_right};
use rangemap::RangeSet;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};

const CHUNK: usize = 1024;

/// All groups of a space.
pub(crate) struct GroupTable {
    chunks: LazyTable<Box<[Group]>>,
}

impl GroupTable {
    /// A table for a volume that has `groups` groups now.
    pub(crate) fn new(groups: u32) -> GroupTable {
        GroupTable { chunks: LazyTable::new((groups as usize).div_ceil(CHUNK)) }
    }

    /// Groups that take memory.
    #[cfg(test)]
    pub(crate) fn in_memory(&self) -> usize {
        self.chunks.cells().filter(|chunk| chunk.get().is_some()).count() * CHUNK
    }

    /// The group `nr`, which the layout must have.
    pub(crate) fn get(&self, nr: GroupNr) -> &Group {
        let chunk = self.chunks.cell(nr.0 / len_u32(CHUNK));
        let groups = chunk.get_or_init(|| (0..CHUNK).map(|_| Group::new()).collect());
        &groups[nr.0 as usize % CHUNK]
    }
}

/// The state of one group beyond its descriptor. It has cache lines of its own: threads work in
/// neighbouring groups at the same time, each with the group's lock and free extents.
#[repr(align(128))]
pub(crate) struct Group {
    /// The allocation state. Its lock makes bits, counters and checksums one unit.
    pub(crate) state: Mutex<GroupState>,
    desc_checked: AtomicBool,
    /// Its bitmaps and table were compared with the metadata around them.
    places_checked: AtomicBool,
    /// The first block of the inode table; 0 until the descriptor was checked. It stays the same
    /// while the volume is open. With it, threads find inodes without all of them reading one
    /// descriptor block.
    inode_table: AtomicU64,
    /// The block bitmap was found unusable: nothing is allocated or freed here. Set under the lock.
    bad_block_map: AtomicBool,
    /// The inode bitmap was found unusable. Set under the lock.
    bad_inode_map: AtomicBool,
    /// Which 64ths of the inode table were prefetched.
    prefetched: AtomicU64,
    /// Runs of this group that hold metadata at fixed places, sorted.
    system: OnceLock<Box<[Range<u64>]>>,
}

/// The allocation state of a group. Guarded by `Rank::Group`.
#[derive(Debug, Default)]
pub(crate) struct GroupState {
    /// The free clusters as runs, from the first allocation on: the clusters that are clear in the
    /// bitmap, without the pending and the held ones. Boxed, because most groups are never
    /// allocated from.
    pub(crate) free: Option<Box<FreeExtents>>,
    /// Clear in the bitmap, but not to be allocated before a commit.
    pub(crate) pending: Pending,
    /// Clear in the bitmap, but held: preallocations, and held runs.
    pub(crate) held: Held,
    /// No inode below this slot is free.
    pub(crate) inode_hint: u32,
}

// A volume of 64 TiB has 524,288 groups. The locks of debug builds hold more data.
const _: () = assert!(cfg!(debug_assertions) || size_of::<Group>() == 128);

impl Group {
    fn new() -> Group {
        Group {
            state: Mutex::new(Rank::Group, GroupState::default()),
            desc_checked: AtomicBool::new(false),
            places_checked: AtomicBool::new(false),
            inode_table: AtomicU64::new(0),
            bad_block_map: AtomicBool::new(false),
            bad_inode_map: AtomicBool::new(false),
            prefetched: AtomicU64::new(0),
            system: OnceLock::new(),
        }
    }

    fn bad_flag(&self, map: Map) -> &AtomicBool {
        match map {
            Map::Blocks => &self.bad_block_map,
            Map::Inodes => &self.bad_inode_map,
        }
    }

    /// Whether a bitmap of the group was found unusable.
    pub(crate) fn is_bad(&self, map: Map) -> bool {
        self.bad_flag(map).load(Ordering::Relaxed)
    }

    /// Marks a bitmap as unusable. Returns whether that is new. The caller holds the lock.
    pub(crate) fn set_bad(&self, map: Map) -> bool {
        !self.bad_flag(map).swap(true, Ordering::Relaxed)
    }

    /// Whether this is the first use of part `part` (0..64) of the inode table.
    fn first_use_of_part(&self, part: u32) -> bool {
        let bit = 1 << part;
        self.prefetched.load(Ordering::Relaxed) & bit == 0
            && self.prefetched.fetch_or(bit, Ordering::Relaxed) & bit == 0
    }
}

/// A bitmap to read: the block on disk, or the computed bitmap of an UNINIT group.
pub(crate) enum Bitmap {
    /// As stored, checked.
    Stored(MetaBlock),
    /// One block of bytes, computed from the layout and the descriptor.
    Computed(Box<[u8]>),
}

impl Bitmap {
    /// Calls `visit` with the bitmap's bytes, one whole block. Locks: takes `Leaf` around it.
    pub(crate) fn with<T>(&self, visit: impl FnOnce(&[u8]) -> T) -> T {
        match self {
            Bitmap::Stored(block) => visit(&block.read()),
            Bitmap::Computed(bytes) => visit(bytes),
        }
    }
}

/// The groups of a volume: their state, their descriptors and bitmaps as read and checked, and the
/// places of their metadata.
pub(crate) struct Groups {
    context: Arc<Context>,
    table: GroupTable,
    /// The group whose descriptor copies are read instead of the primary ones.
    descriptors_from: Option<GroupNr>,
    /// The blocks of the volume's own log, if the log is a file of the volume.
    own_log: RangeSet<u64>,
}

impl Groups {
    /// The groups of the volume that `context` belongs to. With `descriptors_from`, the copies of
    /// the descriptors in that group are read.
    pub(crate) fn new(context: Arc<Context>, descriptors_from: Option<GroupNr>) -> Groups {
        let table = GroupTable::new(context.geometry().groups_count());
        Groups { context, table, descriptors_from, own_log: RangeSet::new() }
    }

    /// What the volume's components share.
    pub(crate) fn context(&self) -> &Context {
        &self.context
    }

    /// From now on the blocks of `runs` belong to the volume's own log.
    pub(crate) fn set_own_log(&mut self, runs: Vec<Range<u64>>) {
        // Runs of a damaged inode may overlap.
        self.own_log = runs.into_iter().collect();
    }

    /// Whether copies of the descriptors are read instead of the primary ones.
    pub(crate) fn reads_backup(&self) -> bool {
        self.descriptors_from.is_some()
    }

    /// Groups that take memory.
    #[cfg(test)]
    pub(crate) fn in_memory(&self) -> usize {
        self.table.in_memory()
    }

    /// The in-memory state of group `nr`, which the layout must have.
    pub(crate) fn get(&self, nr: GroupNr) -> &Group {
        self.table.get(nr)
    }

    /// The group of inode `ino`; the first group for a number that the volume does not have.
    pub(super) fn of_inode(&self, ino: Ino) -> GroupNr {
        self.context.geometry().inode_place(ino).map_or(GroupNr(0), |place| place.group)
    }

    /// The clusters that contain `len` blocks from `start` on, group by group.
    pub(super) fn spans(
        &self,
        start: BlockNr,
        len: u64,
    ) -> impl Iterator<Item = (GroupNr, Span)> + '_ {
        let mut left: Range<u64> = start.0..start.0 + len;
        std::iter::from_fn(move || {
            if left.is_empty() {
                return None;
            }
            let (nr, bit) = self.context.geometry().bit_of_block(BlockNr(left.start))?;
            let group = self.context.geometry().blocks_of_group(nr)?;
            let end = left.end.min(group.end);
            let (_, last) = self.context.geometry().bit_of_block(BlockNr(end - 1))?;
            left.start = end;
            Some((nr, Span { start: bit, len: last - bit + 1 }))
        })
    }

    /// The block that holds the descriptor of `nr` and the descriptor's bytes in it.
    ///
    /// Errors: `Device`; `DescriptorBlock` when the layout has no such group.
    pub(crate) fn descriptor_block(&self, nr: GroupNr) -> Result<(MetaBlock, Range<usize>)> {
        let none = || Site::of_group(nr).corrupt(What::DescriptorBlock);
        let (k, offset) = self.context.geometry().desc_place(nr).ok_or_else(none)?;
        let copy =
            self.descriptors_from.and_then(|from| self.context.geometry().desc_block_copy(k, from));
        let block = copy.or_else(|| self.context.geometry().desc_block(k)).ok_or_else(none)?;
        let block = self.context.journal().cache().get(block)?;
        let size = self.context.geometry().desc_size();
        let count = self.context.geometry().descs_per_block();
        let is_right = |bytes: &[u8], n: usize| {
            let group = GroupNr(k * count + len_u32(n));
            let desc = &bytes[n * size..][..size];
            let is_none = group.0 >= self.context.geometry().groups_count();
            (is_none || checksum_is_right(desc, group, self.context.checksums())).into()
        };
        let role = Role::Descriptors.kind();
        self.context.journal().cache().take_best(&block, role, count as usize, &is_right);
        Ok((block, offset..offset + size))
    }

    /// The descriptor of group `nr`, as it is now, checked.
    ///
    /// Errors: `Device`; `DescriptorChecksum`, `DescriptorBlock`, `DescriptorCount`. Locks: takes
    /// `Leaf`. To change it, hold the group's state and write it back with `GroupDesc::write`.
    pub(crate) fn descriptor(&self, nr: GroupNr) -> Result<GroupDesc> {
        let (block, place) = self.descriptor_block(nr)?;
        self.descriptor_in(nr, &block, &place)
    }

    /// As [`Groups::descriptor`], in the block from [`Groups::descriptor_block`].
    pub(crate) fn descriptor_in(
        &self,
        nr: GroupNr,
        block: &MetaBlock,
        place: &Range<usize>,
    ) -> Result<GroupDesc> {
        let group = self.get(nr);
        let bytes = block.read();
        if group.desc_checked.load(Ordering::Relaxed) {
            return Ok(GroupDesc::parse(&bytes[place.clone()]));
        }
        let desc = GroupDesc::check(
            &bytes[place.clone()],
            nr,
            self.context.geometry(),
            self.context.checksums(),
        )?;
        group.inode_table.store(desc.inode_table.0, Ordering::Relaxed);
        group.desc_checked.store(true, Ordering::Relaxed);
        Ok(desc)
    }

    /// Where the inode table of group `nr` starts.
    ///
    /// Errors: as [`Groups::descriptor`].
    pub(crate) fn inode_table(&self, nr: GroupNr) -> Result<BlockNr> {
        match self.get(nr).inode_table.load(Ordering::Relaxed) {
            0 => Ok(self.descriptor(nr)?.inode_table),
            start => Ok(BlockNr(start)),
        }
    }

    /// The block bitmap of `nr`. Its checksum and padding are verified once per cached block; so
    /// are the bits of the group's own metadata, if metadata cannot lie in other groups.
    ///
    /// Errors: `BitmapChecksum`, `BitmapPadding`, `BitmapMetadataFree` (also for blocks of the
    /// volume's own log), and the errors of the descriptor's check. Locks: takes `Leaf`.
    pub(crate) fn block_bitmap(&self, nr: GroupNr) -> Result<Bitmap> {
        self.block_bitmap_of(nr, &self.descriptor(nr)?)
    }

    /// As [`Groups::block_bitmap`], for a group whose descriptor was just read.
    pub(crate) fn block_bitmap_of(&self, nr: GroupNr, desc: &GroupDesc) -> Result<Bitmap> {
        if desc.block_uninit(self.context.checksums()) {
            let bytes = self.computed_block_bitmap(nr, desc);
            self.check_log_taken(nr, &bytes, Site::of_group(nr))?;
            return Ok(Bitmap::Computed(bytes));
        }
        let block = self.context.journal().cache().get(desc.block_bitmap)?;
        let kind = Role::BlockBitmap(nr).kind();
        self.verify_once(&block, kind, |bytes| self.check_block_bitmap(nr, desc, bytes))?;
        Ok(Bitmap::Stored(block))
    }

    /// The inode bitmap of `nr`. Its checksum and padding are verified once per cached block.
    ///
    /// Errors: `BitmapChecksum`, `BitmapPadding`, and the errors of the descriptor's check.
    pub(crate) fn inode_bitmap(&self, nr: GroupNr) -> Result<Bitmap> {
        self.inode_bitmap_of(nr, &self.descriptor(nr)?)
    }

    /// As [`Groups::inode_bitmap`], for a group whose descriptor was just read.
    pub(crate) fn inode_bitmap_of(&self, nr: GroupNr, desc: &GroupDesc) -> Result<Bitmap> {
        if desc.inode_uninit(self.context.checksums()) {
            let mut bytes = self.zeroed_block();
            bitmap::fill_padding(&mut bytes, self.context.geometry().inodes_per_group());
            return Ok(Bitmap::Computed(bytes));
        }
        let block = self.context.journal().cache().get(desc.inode_bitmap)?;
        let kind = Role::InodeBitmap(nr).kind();
        let at = Site::of_group(nr).block(desc.inode_bitmap);
        let bits = self.context.geometry().inodes_per_group();
        let covered = bits as usize / 8;
        let csum = desc.inode_bitmap_csum;
        self.verify_once(&block, kind, |bytes| self.check_bitmap(bytes, csum, covered, bits, at))?;
        Ok(Bitmap::Stored(block))
    }

    /// Checks a bitmap once per cached block. The caller holds no lock. So another thread may have
    /// verified the bitmap meanwhile and then changed it and the descriptor. Then the bitmap need
    /// not agree with the descriptor that the caller read before, and a failed check is no damage.
    ///
    /// Errors: those of `check`. Locks: takes `Leaf`.
    fn verify_once(
        &self,
        block: &MetaBlock,
        kind: u64,
        check: impl Fn(&[u8]) -> Result<()>,
    ) -> Result<()> {
        if block.is_verified_as(kind) {
            return Ok(());
        }
        match self.context.journal().cache().checked(block, check) {
            Err(_) if block.is_verified_as(kind) => Ok(()),
            checked => {
                checked?;
                block.set_verified_as(kind);
                Ok(())
            }
        }
    }

    fn check_block_bitmap(&self, nr: GroupNr, desc: &GroupDesc, bytes: &[u8]) -> Result<()> {
        let at = Site::of_group(nr).block(desc.block_bitmap);
        let bits = self.context.geometry().clusters_in_group(nr).unwrap_or(0);
        let covered = self.context.geometry().clusters_per_group() as usize / 8;
        self.check_bitmap(bytes, desc.block_bitmap_csum, covered, bits, at)?;
        if !self.context.geometry().metadata_roams() {
            self.own_metadata(nr, desc).try_for_each(|run| check_taken(bytes, run, at))?;
        }
        self.check_log_taken(nr, bytes, at)
    }

    /// Whether the log's blocks in group `nr` are marked as used.
    fn check_log_taken(&self, nr: GroupNr, bytes: &[u8], at: Site) -> Result<()> {
        let blocks = self.context.geometry().blocks_of_group(nr).unwrap_or(0..0);
        let log = self.own_log.overlapping(blocks).cloned();
        self.bits_of(nr, log).try_for_each(|run| check_taken(bytes, run, at))
    }

    fn check_bitmap(
        &self,
        bytes: &[u8],
        stored: u32,
        covered: usize,
        bits: u32,
        at: Site,
    ) -> Result<()> {
        if let Some(seed) = self.context.checksums().seed() {
            let computed = extant_crc32c::crc32c(seed, &bytes[..covered.min(bytes.len())]);
            if !bitmap_csum_agrees(stored, computed, self.context.geometry().desc_size()) {
                return Err(at.corrupt(What::BitmapChecksum));
            }
        }
        match bitmap::next_zero(bytes, bits..len_u32(bytes.len()) * 8) {
            Some(bit) => Err(at.offset(bit as usize / 8).corrupt(What::BitmapPadding)),
            None => Ok(()),
        }
    }

    /// The bits of `nr`'s block bitmap for its own bitmaps and inode table, as far as they lie in
    /// the group.
    fn own_metadata(&self, nr: GroupNr, desc: &GroupDesc) -> impl Iterator<Item = Range<u32>> {
        self.bits_of(nr, self.places(desc).into_iter())
    }

    /// The bits of `nr`'s block bitmap for `runs`, as far as they lie in the group.
    fn bits_of(
        &self,
        nr: GroupNr,
        runs: impl Iterator<Item = Range<u64>>,
    ) -> impl Iterator<Item = Range<u32>> {
        let blocks = self.context.geometry().blocks_of_group(nr).unwrap_or(0..0);
        let ratio = u64::from(self.context.geometry().cluster_ratio());
        runs.filter_map(move |run| {
            let (start, end) = (run.start.max(blocks.start), run.end.min(blocks.end));
            (start < end).then(|| {
                // Within the group, whose bitmap has at most 8 × 65536 bits.
                let bit = |block: u64| fits_u32((block - blocks.start) / ratio);
                bit(start)..bit(end - 1) + 1
            })
        })
    }

    /// The block bitmap that BLOCK_UNINIT implies: the group's own metadata and the padding are
    /// set, nothing else.
    pub(crate) fn computed_block_bitmap(&self, nr: GroupNr, desc: &GroupDesc) -> Box<[u8]> {
        let mut bytes = self.zeroed_block();
        let ratio = u64::from(self.context.geometry().cluster_ratio());
        let clusters = self.context.geometry().clusters_in_group(nr).unwrap_or(0);
        if let Some(base) = self.context.geometry().base_blocks(nr) {
            let taken = (base.end - base.start).div_ceil(ratio).min(clusters.into());
            bitmap::set_range(&mut bytes, 0..fits_u32(taken));
        }
        for run in self.own_metadata(nr, desc) {
            bitmap::set_range(&mut bytes, run);
        }
        bitmap::fill_padding(&mut bytes, clusters);
        bytes
    }

    /// Whether any of `len` blocks from `block` on is metadata at a fixed place (superblock copies,
    /// descriptors, bitmaps, inode tables) or a block of the volume's own log.
    ///
    /// Bitmaps and tables are searched in the descriptors of the block's own flex group, where
    /// every known mkfs puts them.
    pub(crate) fn is_system(&self, block: BlockNr, len: u64) -> bool {
        let end = block.0.saturating_add(len);
        let mut at = block.0;
        if at < end && self.own_log.overlaps(&(at..end)) {
            return true;
        }
        while at < end {
            let Some(nr) = self.context.geometry().group_of_block(BlockNr(at)) else { return true };
            let Some(blocks) = self.context.geometry().blocks_of_group(nr) else { return true };
            let upto = end.min(blocks.end);
            let system = self.get(nr).system.get_or_init(|| self.system_runs(nr));
            // The first run that ends after `at`.
            let n = system.partition_point(|run| run.end <= at);
            if system.get(n).is_some_and(|run| run.start < upto) {
                return true;
            }
            at = upto;
        }
        false
    }

    /// Checks, once per group, that the bitmaps and the inode table of `nr` overlap no other
    /// metadata: copies of superblock and descriptors, and the places that the descriptors of the
    /// surrounding flex groups name.
    ///
    /// Errors: `DescriptorOverlap`; `Device`. Locks: takes `Leaf`.
    pub(crate) fn check_places(&self, nr: GroupNr, desc: &GroupDesc) -> Result<()> {
        let group = self.get(nr);
        if group.places_checked.load(Ordering::Relaxed) {
            return Ok(());
        }
        for (run, offset) in self.places(desc).into_iter().zip([0x00, 0x04, 0x08]) {
            let overlaps = |other: &Range<u64>| run.start.max(other.start) < run.end.min(other.end);
            let groups = [run.start, run.end - 1]
                .map(|nr| self.context.geometry().group_of_block(BlockNr(nr)));
            let [Some(first), Some(last)] = groups else { continue };
            let bases =
                (first.0..=last.0).filter_map(|g| self.context.geometry().base_blocks(GroupNr(g)));
            let named = [first, last].into_iter().flat_map(|g| self.flex_groups(g));
            // A group with a bad descriptor names no places.
            let others = named.filter(|g| *g != nr).filter_map(|g| self.descriptor(g).ok());
            if bases.chain(others.flat_map(|desc| self.places(&desc))).any(|other| overlaps(&other))
            {
                return Err(Site::of_group(nr).offset(offset).corrupt(What::DescriptorOverlap));
            }
        }
        group.places_checked.store(true, Ordering::Relaxed);
        Ok(())
    }

    /// The blocks of a group's bitmaps and inode table, as its descriptor names them.
    fn places(&self, desc: &GroupDesc) -> [Range<u64>; 3] {
        let itable = u64::from(self.context.geometry().itable_blocks());
        [(desc.block_bitmap, 1), (desc.inode_bitmap, 1), (desc.inode_table, itable)]
            .map(|(first, len)| first.0..first.0.saturating_add(len))
    }

    /// The groups of the flex group that contains `nr`; the first 1024 of a larger one.
    fn flex_groups(&self, nr: GroupNr) -> impl Iterator<Item = GroupNr> + use<> {
        let flex = self.context.geometry().groups_per_flex();
        let first = nr.0 / flex * flex;
        let last = first.saturating_add(flex.min(1024)).min(self.context.geometry().groups_count());
        (first..last).map(GroupNr)
    }

    fn system_runs(&self, nr: GroupNr) -> Box<[Range<u64>]> {
        let Some(blocks) = self.context.geometry().blocks_of_group(nr) else {
            return Box::default();
        };
        let mut runs: Vec<Range<u64>> =
            self.context.geometry().base_blocks(nr).into_iter().collect();
        for g in self.flex_groups(nr) {
            // A group with a bad descriptor names no places.
            let Ok(desc) = self.descriptor(g) else { continue };
            let inside = |run: Range<u64>| run.start.max(blocks.start)..run.end.min(blocks.end);
            runs.extend(self.places(&desc).map(inside).into_iter().filter(|run| !run.is_empty()));
        }
        runs.sort_unstable_by_key(|run| run.start);
        // Overlapping runs are joined, so that a search by end finds the only candidate.
        let mut joined: Vec<Range<u64>> = Vec::with_capacity(runs.len());
        for run in runs.into_iter().filter(|run| run.start < run.end) {
            match joined.last_mut() {
                Some(last) if run.start <= last.end => last.end = last.end.max(run.end),
                _ => joined.push(run),
            }
        }
        joined.into_boxed_slice()
    }

    /// Reads the part of the inode table around `slot` into the cache, in one large read, when an
    /// inode there is first needed.
    pub(crate) fn prefetch_inodes(&self, nr: GroupNr, slot: u32, desc: &GroupDesc) {
        let per_block = self.context.geometry().inodes_per_block();
        let used =
            desc.used_slots(self.context.geometry(), self.context.checksums()).div_ceil(per_block);
        let table = self.context.geometry().itable_blocks().max(1);
        // Parts of at least 32 blocks, at most 64 parts.
        let part_len = table.div_ceil(64).max(32);
        let part = slot / per_block / part_len;
        let start = part * part_len;
        let end = (start + part_len).min(used);
        if end > start + 1 && self.get(nr).first_use_of_part(part) {
            let first = BlockNr(desc.inode_table.0 + u64::from(start));
            // This is only a hint. Reading the block itself returns the error again.
            let _ = self.context.journal().cache().prefetch(first, end - start);
        }
    }

    fn zeroed_block(&self) -> Box<[u8]> {
        vec![0; self.context.geometry().block_size().bytes()].into_boxed_slice()
    }
}

/// Whether all bits of `run` are set.
fn check_taken(bytes: &[u8], run: Range<u32>, at: Site) -> Result<()> {
    match bitmap::next_zero(bytes, run) {
        Some(bit) => Err(at.offset(bit as usize / 8).corrupt(What::BitmapMetadataFree)),
        None => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::Arc;

    #[test]
    fn a_bitmap_that_another_thread_verified_and_changed_is_no_damage() {
        let device = Arc::new(extant_blockdev::MemoryDevice::new(8 << 20));
        let options = crate::offline::mkfs::MkfsOptions::new();
        crate::offline::mkfs::format(device.clone(), &options, &Default::default()).unwrap();
        let fs = crate::OpenOptions::new().open_device(device).unwrap();
        let volume = fs.volume();
        let desc = volume.space().descriptor(GroupNr(0)).unwrap();
        let block = volume.journal().cache().get(desc.inode_bitmap).unwrap();
        let wrong = || Err(Site::of_group(GroupNr(0)).corrupt(What::BitmapChecksum));
        volume.space().groups().verify_once(&block, 77, |_| wrong()).unwrap_err();
        let meanwhile = |_: &[u8]| {
            block.set_verified_as(77);
            wrong()
        };
        volume.space().groups().verify_once(&block, 77, meanwhile).unwrap();
    }

    #[test]
    fn groups_are_made_when_first_used() {
        let table = GroupTable::new(u32::MAX);
        table.get(GroupNr(u32::MAX - 1));
        assert!(table.chunks.cells().last().is_some_and(|chunk| chunk.get().is_some()));
        assert!(table.chunks.cell(0).get().is_none());
    }
}
