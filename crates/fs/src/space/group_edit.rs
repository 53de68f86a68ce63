//! Changing one group: both bitmaps, counters and checksums as one unit (rule D4).
//!
//! ```text
//!   fetch    descriptor block, bitmap block                              may wait, may read
//!   lock     ── Rank::Group ───────────────────────────────────────────────────────────────
//!   uninit   BLOCK_UNINIT: compute the real bitmap, count it, drop the flag
//!   change   bits → counters → bitmap checksum → descriptor checksum → group index
//!   unlock   ──────────────────────────────────────────────────────────────────────────────
//! ```

use crate::space::free_extents::{FreeExtents, Span};
use crate::space::free_space::FreeSpace;
use crate::space::group::{Bitmap, GroupState};
use crate::space::group_search::Pick;
use crate::space::preallocation::{Hold, Owner};
use crate::space::stripes::Stripes;
use extant_base::lock::MutexGuard;
use extant_base::{Error, GroupNr, Result, Site, Tid, What};
use extant_crc32c::{crc32c, flip_delta};
use extant_journal::{Handle, MetaBlock};
use extant_ondisk::bitmap;
use extant_ondisk::group_desc::{GroupDesc, GroupFlags};
use std::ops::Range;

/// Which of a group's two bitmaps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Map {
    Blocks,
    Inodes,
}

/// The blocks of one group that a change needs, fetched before the group is locked.
pub(crate) struct GroupBlocks {
    nr: GroupNr,
    descriptor: MetaBlock,
    place: Range<usize>,
    /// `None` while the group is UNINIT: then the block's content is not valid yet.
    bitmap: Option<MetaBlock>,
    /// The bitmap that an UNINIT group implies.
    computed: Option<Box<[u8]>>,
    map: Map,
}

impl GroupBlocks {
    /// Reads and checks the blocks that a change of `map` in group `nr` needs. A map that was found
    /// unusable is not read again: `Corrupt(BitmapCount)`.
    pub(crate) fn fetch(space: &FreeSpace, nr: GroupNr, map: Map) -> Result<GroupBlocks> {
        if space.groups().get(nr).is_bad(map) {
            return Err(Site::of_group(nr).corrupt(What::BitmapCount));
        }
        let (descriptor, place) = space.groups().descriptor_block(nr)?;
        let desc = space.groups().descriptor_in(nr, &descriptor, &place)?;
        GroupBlocks::with_descriptor(space, nr, map, (descriptor, place), &desc)
    }

    /// As [`GroupBlocks::fetch`], for a group with free inodes. `None`, without reading the bitmap,
    /// if the descriptor counts none or the inode bitmap is unusable.
    pub(crate) fn fetch_with_inodes(space: &FreeSpace, nr: GroupNr) -> Result<Option<GroupBlocks>> {
        if space.groups().get(nr).is_bad(Map::Inodes) {
            return Ok(None);
        }
        let (descriptor, place) = space.groups().descriptor_block(nr)?;
        let desc = space.groups().descriptor_in(nr, &descriptor, &place)?;
        if desc.free_inodes == 0 {
            return Ok(None);
        }
        GroupBlocks::with_descriptor(space, nr, Map::Inodes, (descriptor, place), &desc).map(Some)
    }

    fn with_descriptor(
        space: &FreeSpace,
        nr: GroupNr,
        map: Map,
        (descriptor, place): (MetaBlock, Range<usize>),
        desc: &GroupDesc,
    ) -> Result<GroupBlocks> {
        space.groups().check_places(nr, desc)?;
        let bitmap = match map {
            Map::Blocks => space.groups().block_bitmap_of(nr, desc)?,
            Map::Inodes => space.groups().inode_bitmap_of(nr, desc)?,
        };
        let (bitmap, computed) = match bitmap {
            Bitmap::Stored(block) => (Some(block), None),
            Bitmap::Computed(bytes) => (None, Some(bytes)),
        };
        Ok(GroupBlocks { nr, descriptor, place, bitmap, computed, map })
    }

    /// Whether `pick` finds nothing in a group that is UNINIT. Such a group stays UNINIT: a search
    /// may visit many of them, and should write none in vain. Locks: takes `Group`.
    pub(super) fn finds_nothing(
        &self,
        space: &FreeSpace,
        pick: Pick,
        stripes: Option<Stripes>,
    ) -> bool {
        let Some(map) = &self.computed else { return false };
        let clusters = space.context().geometry().clusters_in_group(self.nr).unwrap_or(0);
        if pick.scan(map, clusters, stripes).is_some() {
            return false;
        }
        let state = space.groups().get(self.nr).state.lock();
        if state.free.is_none() {
            let longest = bitmap::zero_runs(map, 0..clusters).map(|run| run.end - run.start).max();
            space.index().set(self.nr, longest.unwrap_or(0));
        }
        true
    }
}

/// A locked group whose descriptor changes. [`GroupEdit::finish`] writes it back.
pub(crate) struct GroupEdit<'a> {
    space: &'a FreeSpace,
    nr: GroupNr,
    map: Map,
    bitmap: MetaBlock,
    pub(crate) state: MutexGuard<'a, GroupState>,
    pub(crate) desc: GroupDesc,
}

impl<'a> GroupEdit<'a> {
    /// Locks the group and creates its bitmap if it was UNINIT.
    ///
    /// Errors: `Device`, `Aborted`.
    pub(crate) fn begin(
        space: &'a FreeSpace,
        blocks: &GroupBlocks,
        handle: &Handle<'_>,
    ) -> Result<GroupEdit<'a>> {
        let state = space.groups().get(blocks.nr).state.lock();
        let mut desc = GroupDesc::parse(&blocks.descriptor.read()[blocks.place.clone()]);
        let bitmap = match (&blocks.bitmap, blocks.map) {
            (Some(block), _) => block.clone(),
            (None, Map::Blocks) if !desc.block_uninit(space.context().checksums()) => {
                space.context().journal().cache().get(desc.block_bitmap)?
            }
            (None, Map::Inodes) if !desc.inode_uninit(space.context().checksums()) => {
                space.context().journal().cache().get(desc.inode_bitmap)?
            }
            (None, map) => fill_uninit(space, blocks.nr, &mut desc, map, handle)?,
        };
        Ok(GroupEdit { space, nr: blocks.nr, map: blocks.map, bitmap, state, desc })
    }

    /// The free clusters that `pick` finds. They are free in the bitmap, too.
    ///
    /// Errors: `Corrupt(BitmapCount)` when the bitmap disagrees with the descriptor or with the
    /// free extents.
    pub(super) fn pick(&mut self, pick: Pick, stripes: Option<Stripes>) -> Result<Option<Span>> {
        let found = match self.scan(pick, stripes) {
            Some(span) => Some(span),
            None => pick.from(self.free_extents()?, stripes),
        };
        if let Some(span) = found {
            self.check_free(span)?;
        }
        Ok(found)
    }

    /// Checks that `span` is free in the bitmap, too. Errors: `Corrupt(BitmapCount)`.
    pub(super) fn check_free(&self, span: Span) -> Result<()> {
        if self.all(span, false) { Ok(()) } else { Err(self.miscounted()) }
    }

    /// Holds the free clusters right after `span` for the owner, and releases the owner's older
    /// hold in this group. Returns whether the owner holds anything now.
    pub(super) fn hold_after(&mut self, span: Span, hold: Hold) -> bool {
        let GroupState { free: Some(free), held, .. } = &mut *self.state else { return false };
        if !held.may_hold(hold.owner) {
            return false;
        }
        let after = free.at(span.end(), hold.spare);
        let after = after.unwrap_or(Span { start: span.end(), len: 0 });
        if after.len > 0 {
            free.take(after);
        }
        if let Some(old) = held.put(hold.owner, after) {
            free.release(old);
            self.space.pending().count_release();
        }
        after.len > 0
    }

    /// What `pick` finds by reading the bitmap, if the short cuts are off. `None` if part of the
    /// result is pending or held.
    fn scan(&self, pick: Pick, stripes: Option<Stripes>) -> Option<Span> {
        if self.space.short_cuts() {
            return None;
        }
        let clusters = self.space.context().geometry().clusters_in_group(self.nr).unwrap_or(0);
        let span = pick.scan(&self.bitmap.read(), clusters, stripes)?;
        let is_separate = |other: Span| other.end() <= span.start || span.end() <= other.start;
        let kept = self.state.pending.spans().chain(self.state.held.spans());
        kept.into_iter().all(is_separate).then_some(span)
    }

    fn miscounted(&self) -> Error {
        Site::of_group(self.nr).corrupt(What::BitmapCount)
    }

    /// Reads the group's free extents from the bitmap, if they are not in memory.
    pub(super) fn read_free_extents(&mut self) -> Result<()> {
        self.free_extents().map(|_| ())
    }

    /// The group's free extents. The first call reads them from the bitmap.
    fn free_extents(&mut self) -> Result<&mut FreeExtents> {
        if self.space.groups().get(self.nr).is_bad(Map::Blocks) {
            return Err(self.miscounted());
        }
        if self.state.free.is_none() {
            let clusters = self.space.context().geometry().clusters_in_group(self.nr).unwrap_or(0);
            let mut free = FreeExtents::from_bitmap(&self.bitmap.read(), clusters);
            if free.free() != self.desc.free_clusters {
                return Err(self.miscounted());
            }
            for span in self.state.pending.spans().chain(self.state.held.spans()) {
                free.take_any(span);
            }
            self.space.loaded().note(self.nr, free.runs());
            self.state.free = Some(Box::new(free));
        }
        Ok(self.state.free.as_mut().expect("just built"))
    }

    /// Removes `span`, whose bits are set now, from the free extents.
    pub(crate) fn take(&mut self, span: Span) {
        if let Some(free) = self.state.free.as_mut() {
            free.take(span);
        }
    }

    /// Frees `span`, whose bits are clear now: at once without a log, otherwise when the handle's
    /// transaction is durable.
    pub(crate) fn release(&mut self, span: Span, handle: &Handle<'_>) {
        match self.space.frees_wait_for(handle) {
            Some(tid) => {
                self.space.pending().count_waiting(span.len);
                if self.state.pending.push(tid, span) {
                    self.space.pending().note(tid, self.nr);
                }
            }
            None => release(self.space, &mut self.state, span),
        }
    }

    /// Returns the group's preallocations, and freed clusters that no longer wait, to the free
    /// extents.
    pub(super) fn release_kept(&mut self) {
        let space = self.space;
        while let Some(span) = next_durable(space, self.nr, &mut self.state, |tid| {
            space.context().journal().is_durable(tid)
        }) {
            release(space, &mut self.state, span);
        }
        while let Some(span) = self.state.held.pop() {
            release(space, &mut self.state, span);
        }
    }

    /// Marks the map that is being changed as unusable. Its free items no longer count as free.
    pub(crate) fn set_bad(&mut self) {
        set_bad(self.space, self.nr, self.map, &mut self.state, &self.desc);
    }

    /// Counts clusters that were allocated.
    pub(crate) fn count_used(&mut self, clusters: u32) {
        self.desc.free_clusters = self.desc.free_clusters.saturating_sub(clusters);
        self.space.counters().add_clusters(-i64::from(clusters));
    }

    /// Counts clusters that became free. The count is limited to the group's clusters: a descriptor
    /// that disagreed with its bitmap could exceed it, and every reader rejects such a descriptor.
    pub(crate) fn count_free(&mut self, clusters: u32) {
        let all = self.space.context().geometry().clusters_in_group(self.nr).unwrap_or(0);
        self.desc.free_clusters = self.desc.free_clusters.saturating_add(clusters).min(all);
        self.space.counters().add_clusters(clusters.into());
    }

    /// Whether every bit of `span` has the value `used`.
    pub(crate) fn all(&self, span: Span, used: bool) -> bool {
        let bytes = self.bitmap.read();
        bitmap::count_set(&bytes, span.start..span.end()) == if used { span.len } else { 0 }
    }

    /// The first clear bit of the bitmap in `range`.
    pub(crate) fn next_clear(&self, range: Range<u32>) -> Option<u32> {
        bitmap::next_zero(&self.bitmap.read(), range)
    }

    /// Sets or clears every bit of `span`, all of which must change. Updates the bitmap's checksum
    /// in constant time.
    pub(crate) fn flip(&mut self, span: Span, used: bool, handle: &Handle<'_>) -> Result<()> {
        let flipped = self.change(span, used, handle)?;
        assert_eq!(flipped, span.len, "every bit of a flipped range changes");
        if !self.space.short_cuts() {
            self.recompute_checksum();
        } else if self.space.context().checksums().seed().is_some() {
            let bits = u64::from(self.covered_bits());
            let delta = flip_delta(bits, u64::from(span.start), u64::from(span.len));
            let checksum = self.checksum() ^ delta;
            debug_assert!(
                self.checksum_agrees(checksum),
                "a short-cut checksum equals the full one (group {})",
                self.nr
            );
            self.set_checksum(checksum);
        }
        Ok(())
    }

    /// Sets or clears the bits of `span`, whatever they were. Returns how many changed. For replay
    /// and repair: computes the whole checksum again.
    pub(crate) fn force(&mut self, span: Span, used: bool, handle: &Handle<'_>) -> Result<u32> {
        let flipped = self.change(span, used, handle)?;
        self.recompute_checksum();
        if self.map == Map::Blocks {
            self.state.free = None;
            self.state.held.clear();
        }
        Ok(flipped)
    }

    /// Sets or clears bits. Returns how many changed: counters follow that number (rule D5).
    fn change(&mut self, span: Span, used: bool, handle: &Handle<'_>) -> Result<u32> {
        let block = self.bitmap.write(handle)?;
        let mut bytes = block.bytes_mut();
        Ok(if used {
            bitmap::set_range(&mut bytes, span.start..span.end())
        } else {
            bitmap::clear_range(&mut bytes, span.start..span.end())
        })
    }

    fn covered_bits(&self) -> u32 {
        match self.map {
            Map::Blocks => self.space.context().geometry().clusters_per_group(),
            Map::Inodes => self.space.context().geometry().inodes_per_group(),
        }
    }

    fn full_checksum(&self) -> Option<u32> {
        let seed = self.space.context().checksums().seed()?;
        Some(crc32c(seed, &self.bitmap.read()[..self.covered_bits() as usize / 8]))
    }

    fn recompute_checksum(&mut self) {
        if let Some(checksum) = self.full_checksum() {
            self.set_checksum(checksum);
        }
    }

    fn checksum_agrees(&self, checksum: u32) -> bool {
        let mask = if self.space.context().geometry().desc_size() < 64 { 0xFFFF } else { u32::MAX };
        self.full_checksum().is_none_or(|full| (full ^ checksum) & mask == 0)
    }

    fn checksum(&self) -> u32 {
        match self.map {
            Map::Blocks => self.desc.block_bitmap_csum,
            Map::Inodes => self.desc.inode_bitmap_csum,
        }
    }

    fn set_checksum(&mut self, checksum: u32) {
        match self.map {
            Map::Blocks => self.desc.block_bitmap_csum = checksum,
            Map::Inodes => self.desc.inode_bitmap_csum = checksum,
        }
    }

    /// Updates the group's index entry and unlocks it, if nothing was taken from the bitmap.
    pub(super) fn leave(self, blocks: &GroupBlocks, handle: &Handle<'_>) -> Result<()> {
        if blocks.computed.is_some() {
            // The group was UNINIT before this edit began.
            return self.finish(blocks, handle);
        }
        enter(self.space, self.nr, &self.state, self.desc.free_clusters);
        Ok(())
    }

    /// Writes the descriptor with its checksum, updates the group's index entry and unlocks the
    /// group.
    pub(crate) fn finish(self, blocks: &GroupBlocks, handle: &Handle<'_>) -> Result<()> {
        {
            let block = blocks.descriptor.write(handle)?;
            let mut bytes = block.bytes_mut();
            self.desc.write(
                &mut bytes[blocks.place.clone()],
                self.nr,
                self.space.context().checksums(),
            );
        }
        if self.map == Map::Blocks {
            enter(self.space, self.nr, &self.state, self.desc.free_clusters);
        }
        Ok(())
    }
}

/// Updates a locked group's index entry: its longest run, or the most that its free count allows.
fn enter(space: &FreeSpace, nr: GroupNr, state: &GroupState, counted: u32) {
    let longest = match &state.free {
        _ if space.groups().get(nr).is_bad(Map::Blocks) => 0,
        Some(free) => free.longest_len(),
        None => counted,
    };
    space.index().set(nr, longest);
}

/// Marks a map of a locked group as unusable, once.
fn set_bad(space: &FreeSpace, nr: GroupNr, map: Map, state: &mut GroupState, desc: &GroupDesc) {
    if !space.groups().get(nr).set_bad(map) {
        return;
    }
    match map {
        Map::Blocks => {
            state.free = None;
            state.held.clear();
            space.counters().add_clusters(-i64::from(desc.free_clusters));
            space.index().set(nr, 0);
        }
        Map::Inodes => {
            space.counters().add_inodes(-i64::from(desc.free_inodes));
        }
    }
}

/// Returns the clusters of `nr` whose transactions are durable to the free extents. Locks: takes
/// `Group`.
pub(super) fn release_pending(space: &FreeSpace, nr: GroupNr, is_durable: impl Fn(Tid) -> bool) {
    give_back(space, nr, |state| next_durable(space, nr, state, &is_durable));
}

/// Releases the clusters that `owner` holds in `nr`. Locks: takes `Group`.
pub(super) fn release_preallocation(space: &FreeSpace, nr: GroupNr, owner: Owner) {
    give_back(space, nr, |state| state.held.remove(owner));
}

/// Releases `span` of `nr`, a held run or part of one whose data is not used. Returns whether it
/// was held. Locks: takes `Group`.
pub(super) fn release_run(space: &FreeSpace, nr: GroupNr, span: Span) -> bool {
    let (mut left, mut was_held) = (Some(span), false);
    give_back(space, nr, |state| {
        let span = left.take().filter(|span| state.held.cut(*span));
        was_held |= span.is_some();
        span
    });
    was_held
}

/// Returns the spans that `next` removes from a group's lists to its free extents.
fn give_back(
    space: &FreeSpace,
    nr: GroupNr,
    mut next: impl FnMut(&mut GroupState) -> Option<Span>,
) {
    let descriptor = space.groups().descriptor_block(nr);
    let mut state = space.groups().get(nr).state.lock();
    let counted =
        descriptor.map_or(0, |(block, place)| GroupDesc::parse(&block.read()[place]).free_clusters);
    while let Some(span) = next(&mut state) {
        release(space, &mut state, span);
    }
    enter(space, nr, &state, counted);
}

/// Removes and returns the next span of a locked group whose transaction is durable.
fn next_durable(
    space: &FreeSpace,
    nr: GroupNr,
    state: &mut GroupState,
    is_durable: impl Fn(Tid) -> bool,
) -> Option<Span> {
    let span = state.pending.pop_durable(is_durable)?;
    space.discard_freed(nr, span);
    space.pending().count_durable(span.len);
    Some(span)
}

/// Returns `span` to the free extents of a locked group.
fn release(space: &FreeSpace, state: &mut GroupState, span: Span) {
    if let Some(free) = state.free.as_mut() {
        free.release(span);
    }
    space.pending().count_release();
}

/// Marks the block bitmap of `nr` as unusable. Locks: takes `Group`.
pub(super) fn set_block_map_bad(space: &FreeSpace, nr: GroupNr) {
    let desc = space.groups().descriptor(nr).unwrap_or_default();
    let mut state = space.groups().get(nr).state.lock();
    set_bad(space, nr, Map::Blocks, &mut state, &desc);
}

/// Writes the bitmap that an UNINIT flag implies and drops the flag. The group is locked. The block
/// is new to the cache, so nothing here waits for a device.
fn fill_uninit(
    space: &FreeSpace,
    nr: GroupNr,
    desc: &mut GroupDesc,
    map: Map,
    handle: &Handle<'_>,
) -> Result<MetaBlock> {
    let place = match map {
        Map::Blocks => desc.block_bitmap,
        Map::Inodes => desc.inode_bitmap,
    };
    let block = space.context().journal().cache().get_new(place)?;
    let content = match map {
        Map::Blocks => space.groups().computed_block_bitmap(nr, desc),
        Map::Inodes => {
            let mut empty = vec![0; space.context().block_size().bytes()].into_boxed_slice();
            bitmap::init_inode_bitmap(&mut empty, space.context().geometry());
            empty
        }
    };
    block.write(handle)?.bytes_mut().copy_from_slice(&content);
    let covered = match map {
        Map::Blocks => space.context().geometry().clusters_per_group(),
        Map::Inodes => space.context().geometry().inodes_per_group(),
    };
    let checksum = space
        .context()
        .checksums()
        .seed()
        .map(|seed| crc32c(seed, &content[..covered as usize / 8]));
    match map {
        Map::Blocks => {
            desc.flags.remove(GroupFlags::BLOCK_UNINIT);
            let clusters = space.context().geometry().clusters_in_group(nr).unwrap_or(0);
            let free = bitmap::count_zeros(&content, 0..clusters);
            let before = i64::from(desc.free_clusters);
            space.counters().add_clusters(i64::from(free) - before);
            desc.free_clusters = free;
            desc.block_bitmap_csum = checksum.unwrap_or(0);
            block.set_verified_as(crate::context::role::Role::BlockBitmap(nr).kind());
        }
        Map::Inodes => {
            desc.flags.remove(GroupFlags::INODE_UNINIT);
            desc.itable_unused = space.context().geometry().inodes_per_group();
            desc.inode_bitmap_csum = checksum.unwrap_or(0);
            block.set_verified_as(crate::context::role::Role::InodeBitmap(nr).kind());
        }
    }
    Ok(block)
}
