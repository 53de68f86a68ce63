//! Block maps of files: read as far as they are legal, and written again.
//!
//! ```text
//!   read    extent tree or pointers ──► runs, nodes, what was lost     illegal parts are left out
//!   write   runs ──► extent tree or pointers, in the file's own nodes first, then in free blocks
//! ```

use crate::usage::Usage;
use crate::volume::Volume;
use extant_base::narrow::{fits_u32, fits_usize, len_u16, low_u16};
use extant_base::{BlockNr, Error, LogicalBlock, Result};
use extant_ondisk::block_map::{self, DIRECT, pointers, pointers_per_block, set_pointer};
use extant_ondisk::extent::{
    self, ENTRY_SIZE, EXTENT_MAGIC, Extent, ExtentIndex, ExtentNodeMut, ExtentState, RawExtent,
    RawExtentHeader, RawExtentIndex, capacity,
};
use extant_ondisk::features::Incompat;
use extant_ondisk::inode::{FileKind, Inode, InodeFlags};
use hashbrown::HashSet;
use std::ops::Range;
use zerocopy::FromBytes;

/// The deepest tree that is read; a legal one has five levels of nodes.
const DEPTH_MAX: u16 = 8;
/// How many blocks of fixed metadata a file gets copies of.
const OCCUPIED_MAX: usize = 4096;
/// How many lost ranges of a map are listed.
const LOST_MAX: usize = 4096;
/// The most entries of a root.
const ROOT_MAX: usize = 4;

/// Blocks that are adjacent in the file and on the volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Run {
    pub(crate) logical: u32,
    pub(crate) physical: u64,
    pub(crate) len: u32,
    pub(crate) written: bool,
}

impl Run {
    /// The logical block after the last one.
    pub(crate) fn end(&self) -> u32 {
        self.logical.saturating_add(self.len)
    }

    /// The blocks on the volume.
    pub(crate) fn blocks(&self) -> Range<u64> {
        self.physical..self.physical + u64::from(self.len)
    }
}

/// The map of a file.
#[derive(Clone, Debug, Default)]
pub(crate) struct Mapping {
    /// In logical order, without overlaps.
    pub(crate) runs: Vec<Run>,
    /// Blocks that hold parts of the map.
    pub(crate) nodes: Vec<u64>,
    /// The stored map is not legal.
    pub(crate) damaged: bool,
    /// Logical blocks that illegal parts mapped, as far as they are known.
    pub(crate) lost: Vec<Range<u32>>,
    /// The map has to be an extent tree.
    pub(crate) extents: bool,
    /// Checksums of nodes are wrong, though nothing else is.
    pub(crate) wrong_sums: bool,
    /// Logical blocks that fixed metadata occupies, and where: a file gets copies of them.
    pub(crate) occupied: Vec<(u32, u64)>,
}

impl Mapping {
    /// The block on the volume that `logical` maps to.
    pub(crate) fn locate(&self, logical: u32) -> Option<u64> {
        let after = self.runs.partition_point(|run| run.logical <= logical);
        let run = self.runs.get(after.checked_sub(1)?)?;
        (logical < run.end()).then(|| run.physical + u64::from(logical - run.logical))
    }

    /// One past the last mapped block.
    pub(crate) fn end(&self) -> u32 {
        self.runs.last().map_or(0, Run::end)
    }

    /// One past the last block with data.
    pub(crate) fn written_end(&self) -> u32 {
        self.runs.iter().rfind(|run| run.written).map_or(0, Run::end)
    }

    /// Blocks in all runs.
    pub(crate) fn blocks(&self) -> u64 {
        self.runs.iter().map(|run| u64::from(run.len)).sum()
    }

    /// Every mapped block: logical, physical.
    pub(crate) fn each(&self) -> impl Iterator<Item = (u32, u64)> + '_ {
        self.runs
            .iter()
            .flat_map(|run| (0..run.len).map(|n| (run.logical + n, run.physical + u64::from(n))))
    }

    /// Clusters of data, each counted once for each logical cluster.
    pub(crate) fn clusters(&self, log_ratio: u32) -> u64 {
        let mut count = 0;
        let mut last = None;
        for run in &self.runs {
            let first = run.logical >> log_ratio;
            let end = (run.end() - 1) >> log_ratio;
            count += u64::from(end - first) + 1;
            if last == Some(first) {
                count -= 1;
            }
            last = Some(end);
        }
        count
    }

    /// Notes logical blocks as lost.
    fn add_lost(&mut self, range: Range<u32>) {
        let is_full = self.lost.len() >= LOST_MAX;
        match self.lost.last_mut() {
            Some(last) if last.end == range.start => last.end = range.end,
            Some(_) if is_full => {}
            _ => self.lost.push(range),
        }
    }

    /// Gives logical blocks other places, or none. `changes` are in logical order.
    pub(crate) fn replace(&mut self, changes: &[(u32, Option<u64>)]) {
        let mut runs: Vec<Run> = Vec::with_capacity(self.runs.len() + changes.len());
        let mut next = 0;
        for run in &self.runs {
            let mut start = run.logical;
            while let Some((logical, _)) = changes.get(next).filter(|(at, _)| *at < run.end()) {
                if *logical > start {
                    runs.push(run.logicals(start..*logical));
                }
                start = start.max(logical.saturating_add(1));
                next += 1;
            }
            if start < run.end() {
                runs.push(run.logicals(start..run.end()));
            }
        }
        runs.extend(changes.iter().filter_map(|(logical, to)| {
            Some(Run { logical: *logical, physical: (*to)?, len: 1, written: true })
        }));
        runs.sort_by_key(|run| run.logical);
        self.runs.clear();
        runs.into_iter().for_each(|run| push(&mut self.runs, run));
    }

    /// Where blocks for this map may be: pointers have 32 bits.
    pub(crate) fn node_range(&self, volume: &Volume) -> Range<u64> {
        let mut within = volume.geometry.block_range();
        if !self.extents {
            within.end = within.end.min(1 << 32);
        }
        within
    }

    /// Maps one block, in place of what it maps now.
    pub(crate) fn set(&mut self, logical: u32, physical: u64) {
        self.unmap(logical..logical + 1);
        let at = self.runs.partition_point(|run| run.logical < logical);
        self.runs.insert(at, Run { logical, physical, len: 1, written: true });
    }

    /// Removes logical blocks.
    pub(crate) fn unmap(&mut self, gone: Range<u32>) {
        let mut kept = Vec::with_capacity(self.runs.len() + 1);
        for run in &self.runs {
            if run.end() <= gone.start || run.logical >= gone.end {
                kept.push(*run);
                continue;
            }
            if run.logical < gone.start {
                kept.push(Run { len: gone.start - run.logical, ..*run });
            }
            if run.end() > gone.end {
                let cut = gone.end - run.logical;
                kept.push(Run {
                    logical: gone.end,
                    physical: run.physical + u64::from(cut),
                    len: run.len - cut,
                    written: run.written,
                });
            }
        }
        self.runs = kept;
    }

    /// Brings runs into order, removes overlaps and parts that no file may use, joins neighbours.
    fn settle(&mut self, volume: &Volume, own: bool) {
        if self.runs.windows(2).any(|pair| pair[0].logical > pair[1].logical) {
            self.damaged = true;
            self.runs.sort_by_key(|run| run.logical);
        }
        let mut settled: Vec<Run> = Vec::with_capacity(self.runs.len());
        let mut end = 0;
        for run in std::mem::take(&mut self.runs) {
            let mut run = run;
            if run.logical < end {
                self.damaged = true;
                let cut = (end - run.logical).min(run.len);
                run.logical += cut;
                run.physical += u64::from(cut);
                run.len -= cut;
            }
            if run.len == 0 {
                continue;
            }
            end = run.end();
            if own || volume.are_usable(run.blocks()) {
                push(&mut settled, run);
                continue;
            }
            let parts = volume.usable(run.blocks());
            let mut next = run.physical;
            for part in parts {
                if part.start > next {
                    self.lose(run, next..part.start);
                }
                next = part.end;
                push(&mut settled, run.part(&part));
            }
            if next < run.blocks().end {
                self.lose(run, next..run.blocks().end);
            }
        }
        self.runs = settled;
    }

    fn lose(&mut self, run: Run, blocks: Range<u64>) {
        self.damaged = true;
        let part = run.part(&blocks);
        if part.written && self.occupied.len() < OCCUPIED_MAX {
            self.occupied.extend(
                (0..part.len)
                    .map(|n| (part.logical + n, part.physical + u64::from(n)))
                    .take(OCCUPIED_MAX),
            );
        }
        self.add_lost(part.logical..part.end());
    }
}

impl Run {
    /// The part of the run with these logical blocks.
    fn logicals(&self, part: Range<u32>) -> Run {
        Run {
            logical: part.start,
            physical: self.physical + u64::from(part.start - self.logical),
            len: part.end - part.start,
            written: self.written,
        }
    }

    /// The part of the run that lies in `blocks`.
    fn part(&self, blocks: &Range<u64>) -> Run {
        let skip = fits_u32(blocks.start - self.physical);
        Run {
            logical: self.logical + skip,
            physical: blocks.start,
            len: fits_u32(blocks.end - blocks.start),
            written: self.written,
        }
    }
}

/// Appends a run, joined with the last one where it continues that.
fn push(runs: &mut Vec<Run>, run: Run) {
    match runs.last_mut() {
        Some(last)
            if last.end() == run.logical
                && last.blocks().end == run.physical
                && last.written == run.written =>
        {
            last.len += run.len;
        }
        _ => runs.push(run),
    }
}

/// Limits how many nodes the scan reads for all maps together, and how many blocks they map, so
/// that a forged volume cannot make the walks endless. What the scan has read is read again without
/// a limit: it is known to be small enough.
pub(crate) struct Budget {
    nodes: u64,
    blocks: u64,
    scans: bool,
}

impl Budget {
    /// Enough for every map of a sound volume, many times over.
    pub(crate) fn of(volume: &Volume) -> Budget {
        let all = volume.geometry.blocks_count().saturating_mul(16);
        Budget {
            nodes: all.saturating_add(1 << 16),
            blocks: all.saturating_add(1 << 26),
            scans: true,
        }
    }

    /// Ends the scan.
    pub(crate) fn end_scan(&mut self) {
        self.scans = false;
    }

    fn take(&mut self) -> bool {
        if self.scans {
            self.nodes = self.nodes.saturating_sub(1);
        }
        self.nodes > 0 || !self.scans
    }

    fn take_blocks(&mut self, blocks: u64) -> bool {
        if self.scans {
            self.blocks = self.blocks.saturating_sub(blocks);
        }
        self.blocks > 0 || !self.scans
    }
}

/// Reads the map of an inode that has one. `own` maps, those of the resize inode, may use fixed
/// metadata.
pub(crate) fn read(
    volume: &Volume,
    ino: u32,
    inode: &Inode,
    budget: &mut Budget,
    own: bool,
) -> Result<Mapping> {
    let feature = volume.has_incompat(Incompat::EXTENTS);
    let looks = root_looks_right(&inode.i_block);
    let stored_as_extents =
        ino != 1 && !own && (inode.has_extents() && (feature || looks) || feature && looks);
    let mut reader = Reader {
        volume,
        budget,
        own,
        size: u32::try_from(volume.geometry.block_size().blocks_for(inode.size))
            .unwrap_or(u32::MAX),
        seed: volume.checksums.seed().map(|_| volume.seed(ino, inode)),
        seen: HashSet::new(),
        map: Mapping { extents: feature && stored_as_extents, ..Mapping::default() },
    };
    reader.map.damaged =
        stored_as_extents != inode.has_extents() || (stored_as_extents && !feature);
    // With clusters, every map is an extent tree.
    if feature && !stored_as_extents && volume.geometry.cluster_ratio() > 1 && ino != 1 && !own {
        reader.map.extents = true;
        reader.map.damaged = true;
    }
    if let Some(root) = stored_as_extents.then(|| header_restored(volume, inode)).flatten() {
        reader.map.damaged = true;
        reader.extents(&root, None, 0..extent::END, true)?;
    } else if stored_as_extents {
        reader.extents(&inode.i_block, None, 0..extent::END, true)?;
    } else {
        reader.pointers(&inode.i_block)?;
    }
    let mut map = reader.map;
    map.settle(volume, own);
    if !budget.take_blocks(map.blocks()) {
        map.damaged = true;
        map.add_lost(0..map.end());
        map.runs.clear();
    }
    Ok(map)
}

/// The runs of a map of up to four legal extents, which are all in the inode.
#[derive(Clone, Copy, Debug)]
pub(crate) struct ShortMap {
    runs: [Run; ROOT_MAX],
    len: usize,
}

impl ShortMap {
    /// The map of the file or directory in a slot; `None` for any other, which [`read`] reads. Most
    /// maps are short, and this takes no memory.
    pub(crate) fn of(volume: &Volume, slot: &[u8]) -> Option<ShortMap> {
        let flags = InodeFlags::from_bits_retain(word(slot, 0x20));
        let is_plain = matches!(
            FileKind::from_mode(low_u16(word(slot, 0))),
            Some(FileKind::Regular | FileKind::Directory)
        );
        if !is_plain
            || !volume.has_incompat(Incompat::EXTENTS)
            || !flags.contains(InodeFlags::EXTENTS)
            || flags.contains(InodeFlags::INLINE_DATA)
        {
            return None;
        }
        let root = slot.get(0x28..)?.get(..block_map::I_BLOCK_SIZE)?;
        let (header, rest) = RawExtentHeader::ref_from_prefix(root).ok()?;
        let len = usize::from(header.eh_entries.get());
        if !root_looks_right(root) || header.eh_depth.get() != 0 {
            return None;
        }
        let none = Run { logical: 0, physical: 0, len: 0, written: false };
        let mut map = ShortMap { runs: [none; ROOT_MAX], len };
        let mut end = 0;
        for (run, entry) in map.runs[..len].iter_mut().zip(rest.chunks_exact(ENTRY_SIZE)) {
            *run = stored_run(entry)?;
            let is_legal = run.len > 0
                && run.logical >= end
                && run.logical.checked_add(run.len).is_some()
                && volume.are_usable(run.blocks());
            if !is_legal {
                return None;
            }
            end = run.end();
        }
        Some(map)
    }

    pub(crate) fn runs(&self) -> &[Run] {
        &self.runs[..self.len]
    }
}

fn word(bytes: &[u8], at: usize) -> u32 {
    bytes.get(at..).and_then(<[u8]>::first_chunk).map_or(0, |word| u32::from_le_bytes(*word))
}

/// Whether `i_block` starts like the root of an extent tree.
fn root_looks_right(i_block: &[u8]) -> bool {
    let Ok((header, _)) = RawExtentHeader::ref_from_prefix(i_block) else { return false };
    header.eh_magic.get() == EXTENT_MAGIC
        && header.eh_max.get() == len_u16(ROOT_MAX)
        && header.eh_entries.get() <= header.eh_max.get()
        && header.eh_depth.get() <= DEPTH_MAX
}

/// The root of an extent tree whose header was zeroed, if its extents account for exactly the
/// blocks that the inode counts.
fn header_restored(volume: &Volume, inode: &Inode) -> Option<[u8; block_map::I_BLOCK_SIZE]> {
    if inode.i_block[..ENTRY_SIZE] != [0; ENTRY_SIZE] {
        return None;
    }
    let acl = if inode.file_acl.is_some() { volume.cluster_sectors() } else { 0 };
    let per_block = volume.block_bytes() as u64 / 512;
    let mut sectors = acl;
    let mut count = 0;
    for entry in inode.i_block[ENTRY_SIZE..].chunks_exact(ENTRY_SIZE) {
        let (raw, _) = RawExtent::ref_from_prefix(entry).ok()?;
        let len = u64::from(raw.ee_len.get());
        sectors += (if len > 0x8000 { len - 0x8000 } else { len }) * per_block;
        count += u16::from(len > 0);
    }
    if count == 0 || sectors != inode.sectors {
        return None;
    }
    let mut root = inode.i_block;
    root[..2].copy_from_slice(&EXTENT_MAGIC.to_le_bytes());
    root[2..4].copy_from_slice(&count.to_le_bytes());
    root[4..6].copy_from_slice(&len_u16(ROOT_MAX).to_le_bytes());
    Some(root)
}

/// Whether everything in a node's header but the magic is right.
fn only_magic_is_wrong(header: &RawExtentHeader, bytes: usize, depth: Option<u16>) -> bool {
    header.eh_max.get() == capacity(bytes)
        && (1..=header.eh_max.get()).contains(&header.eh_entries.get())
        && depth.is_none_or(|depth| depth == header.eh_depth.get())
        && header.eh_depth.get() <= extent::MAX_DEPTH
}

struct Reader<'r> {
    volume: &'r Volume,
    budget: &'r mut Budget,
    own: bool,
    /// Blocks that the inode's size covers.
    size: u32,
    seed: Option<u32>,
    seen: HashSet<u64>,
    map: Mapping,
}

impl Reader<'_> {
    /// Reads a node whose keys lie in `keys`, of a given depth unless it is the root.
    fn extents(
        &mut self,
        bytes: &[u8],
        depth: Option<u16>,
        keys: Range<u32>,
        is_root: bool,
    ) -> Result<()> {
        let Ok((header, rest)) = RawExtentHeader::ref_from_prefix(bytes) else { return Ok(()) };
        let most = usize::from(capacity(bytes.len()));
        let stored = usize::from(header.eh_entries.get());
        let max = usize::from(header.eh_max.get());
        let own_depth = header.eh_depth.get();
        let magic = header.eh_magic.get() == EXTENT_MAGIC;
        self.map.damaged |= !magic;
        let wrong = depth.is_some_and(|depth| depth != own_depth) || own_depth > DEPTH_MAX;
        if wrong || !magic && !only_magic_is_wrong(header, bytes.len(), depth) {
            self.map.damaged = true;
            self.map.add_lost(keys);
            return Ok(());
        }
        if !is_root
            && let Some(seed) = self.seed
            && !extent::checksum_is_right(bytes, seed)
        {
            self.map.wrong_sums = true;
        }
        // e2fsck allows two entries fewer than fit, for a tail.
        if stored > most || max > most || max + 2 < most || stored > max || own_depth > 5 {
            self.map.damaged = true;
        }
        let entries = rest.chunks_exact(ENTRY_SIZE).take(stored.min(most));
        match own_depth {
            0 => self.leaf(entries, &keys),
            _ => {
                let entries: Vec<&[u8]> = entries.collect();
                for (n, entry) in entries.iter().enumerate() {
                    let end = entries.get(n + 1).map_or(keys.end, |next| key(next).min(keys.end));
                    self.index(entry, own_depth, key(entry)..end.max(key(entry)), keys.start, n)?;
                }
                self.map.damaged |= stored == 0;
            }
        }
        Ok(())
    }

    /// Reads the extents of a leaf. One that overlaps the next is cut, or moved to where it fits
    /// exactly between its neighbours.
    fn leaf<'b>(&mut self, entries: impl Iterator<Item = &'b [u8]>, keys: &Range<u32>) {
        let mut runs: Vec<Run> = entries.filter_map(stored_run).collect();
        let mut end = keys.start;
        for n in 0..runs.len() {
            let run = runs[n];
            let fills = |from: u32, len: u32, to: u32| len > 0 && from.checked_add(len) == Some(to);
            let Some(next) = runs.get(n + 1).copied() else {
                if run.logical < end && fills(end, run.len, self.size) {
                    self.map.damaged = true;
                    runs[n].logical = end;
                }
                break;
            };
            let fits = run.logical >= end && run.end() <= next.logical;
            if !fits && fills(end, run.len, next.logical) {
                self.map.damaged = true;
                runs[n].logical = end;
            } else if !fits && run.logical >= end && run.logical < next.logical {
                let after = runs.get(n + 2).map(|after| after.logical);
                let next_moves = after.is_some_and(|after| fills(run.end(), next.len, after));
                if !next_moves && after.is_none_or(|after| next.end() <= after) {
                    self.map.damaged = true;
                    runs[n].len = next.logical - run.logical;
                }
            }
            end = end.max(runs[n].end());
        }
        for run in runs {
            self.extent(run, keys);
        }
    }

    fn extent(&mut self, run: Run, keys: &Range<u32>) {
        let Run { logical, physical, len, written } = run;
        let end = logical.checked_add(len);
        if len == 0 || end.is_none() || logical < keys.start {
            self.map.damaged = true;
            return;
        }
        if end.is_some_and(|end| end > keys.end) {
            self.map.damaged = true;
        }
        let all = self.volume.geometry.blocks_count();
        if physical >= all {
            self.map.damaged = true;
            self.map.add_lost(logical..logical + len);
            return;
        }
        // The length is wrong, not the start: no more than the size needs.
        let mut len = len;
        if physical + u64::from(len) > all {
            self.map.damaged = true;
            self.map.add_lost(logical..logical + len);
            len = len.min(self.size.saturating_sub(logical));
            if len == 0 {
                return;
            }
        }
        if self.is_full() {
            return;
        }
        self.map.runs.push(Run { logical, physical, len, written });
    }

    fn index(
        &mut self,
        entry: &[u8],
        depth: u16,
        keys: Range<u32>,
        from: u32,
        n: usize,
    ) -> Result<()> {
        let Ok((raw, _)) = RawExtentIndex::ref_from_prefix(entry) else { return Ok(()) };
        let child = u64::from(raw.ei_leaf_lo.get()) | u64::from(raw.ei_leaf_hi.get()) << 32;
        let Some(bytes) = self.node(child)? else {
            self.map.damaged = true;
            self.map.add_lost(keys);
            return Ok(());
        };
        let seed = self.seed;
        let bytes = self.volume.restored(child, bytes, |bytes| {
            bytes[..2] == EXTENT_MAGIC.to_le_bytes()
                && seed.is_none_or(|seed| extent::checksum_is_right(bytes, seed))
        })?;
        // The first key of a child equals its parent's entry; a difference alone loses nothing.
        let first = bytes.get(ENTRY_SIZE..).map_or(0, key);
        let is_empty = bytes[2..4] == [0, 0];
        if first != keys.start || keys.start < from || (n > 0 && keys.is_empty()) || is_empty {
            self.map.damaged = true;
        }
        self.map.nodes.push(child);
        let keys = match first < keys.start {
            true => first..keys.end,
            false => keys,
        };
        self.extents(&bytes, Some(depth - 1), keys.start..keys.end.max(keys.start), false)
    }

    /// Whether the map has more runs than the volume has blocks: it cannot be legal.
    fn is_full(&mut self) -> bool {
        let full = self.map.runs.len() as u64 >= self.volume.geometry.blocks_count();
        self.map.damaged |= full;
        full
    }

    /// The bytes of a block with a part of the map, if it may be one.
    fn node(&mut self, block: u64) -> Result<Option<Vec<u8>>> {
        let inside = self.volume.geometry.holds(BlockNr(block), 1);
        let may = inside && (self.own || self.volume.is_usable(block));
        if !may || !self.seen.insert(block) || !self.budget.take() {
            return Ok(None);
        }
        self.volume.disk.read(block).map(Some)
    }

    fn pointers(&mut self, i_block: &[u8]) -> Result<()> {
        let size = self.volume.geometry.block_size();
        let per_block = u64::from(pointers_per_block(size));
        let root: Vec<u32> = pointers(i_block).collect();
        for (n, pointer) in root.iter().take(DIRECT as usize).enumerate() {
            self.pointer(*pointer, n as u64, 0)?;
        }
        let mut start = u64::from(DIRECT);
        let mut span = per_block;
        for (level, pointer) in (1..).zip(&root[DIRECT as usize..]) {
            self.pointer(*pointer, start, level)?;
            start += span;
            span *= per_block;
        }
        Ok(())
    }

    /// Reads what a pointer leads to, `level` levels above the data.
    fn pointer(&mut self, pointer: u32, logical: u64, level: u32) -> Result<()> {
        let size = self.volume.geometry.block_size();
        let per_block = u64::from(pointers_per_block(size));
        let end = block_map::max_blocks(size);
        if pointer == 0 || logical >= end {
            return Ok(());
        }
        let span = per_block.pow(level);
        let lost = fits_u32(logical)..fits_u32((logical + span).min(end));
        if level == 0 {
            let physical = u64::from(pointer);
            let usable = self.own || self.volume.is_usable(physical);
            let inside = self.volume.geometry.holds(BlockNr(physical), 1);
            if !usable || !inside {
                self.map.damaged = true;
                if inside && self.map.occupied.len() < OCCUPIED_MAX {
                    self.map.occupied.push((fits_u32(logical), physical));
                }
                self.map.add_lost(lost);
                return Ok(());
            }
            if self.is_full() {
                return Ok(());
            }
            push(
                &mut self.map.runs,
                Run { logical: fits_u32(logical), physical, len: 1, written: true },
            );
            return Ok(());
        }
        let Some(bytes) = self.node(u64::from(pointer))? else {
            self.map.damaged = true;
            self.map.add_lost(lost);
            return Ok(());
        };
        self.map.nodes.push(u64::from(pointer));
        let below = span / per_block;
        for (n, pointer) in pointers(&bytes).enumerate() {
            self.pointer(pointer, logical + n as u64 * below, level - 1)?;
        }
        Ok(())
    }
}

/// An extent as stored.
fn stored_run(entry: &[u8]) -> Option<Run> {
    let (raw, _) = RawExtent::ref_from_prefix(entry).ok()?;
    let stored = u32::from(raw.ee_len.get());
    let (len, written) = match stored {
        0..=0x8000 => (stored, true),
        _ => (stored - 0x8000, false),
    };
    let physical = u64::from(raw.ee_start_lo.get()) | u64::from(raw.ee_start_hi.get()) << 32;
    Some(Run { logical: raw.ee_block.get(), physical, len, written })
}

fn key(entry: &[u8]) -> u32 {
    entry.first_chunk().map_or(0, |key| u32::from_le_bytes(*key))
}

/// Where a map's own blocks come from: those it has, then free ones.
pub(crate) struct Nodes<'n> {
    pub(crate) usage: &'n mut Usage,
    pub(crate) pool: Vec<u64>,
    pub(crate) used: Vec<u64>,
    pub(crate) within: Range<u64>,
    pub(crate) goal: u64,
}

impl Nodes<'_> {
    fn take(&mut self) -> Result<u64> {
        let block = match self.pool.pop() {
            Some(block) => block,
            None => self.usage.take(self.goal, &self.within).ok_or(Error::NoSpace)?,
        };
        self.used.push(block);
        Ok(block)
    }
}

/// Writes the map into the inode and its nodes. `map.nodes` are the nodes afterwards; blocks that
/// are not needed any more leave `usage`.
///
/// Errors: `NoSpace`, `Device`.
pub(crate) fn write(
    volume: &Volume,
    usage: &mut Usage,
    ino: u32,
    inode: &mut Inode,
    map: &mut Mapping,
) -> Result<()> {
    let mut pool = std::mem::take(&mut map.nodes);
    pool.sort_unstable_by(|a, b| b.cmp(a));
    let goal = map.runs.first().map_or(0, |run| run.physical);
    let within = map.node_range(volume);
    let mut nodes = Nodes { usage, pool, used: Vec::new(), within, goal };
    let written = match map.extents {
        true => {
            inode.flags.insert(InodeFlags::EXTENTS);
            write_extents(volume, &mut nodes, volume.seed(ino, inode), inode, &map.runs)
        }
        false => {
            inode.flags.remove(InodeFlags::EXTENTS);
            write_pointers(volume, &mut nodes, inode, map)
        }
    };
    let Nodes { pool, used, usage, .. } = nodes;
    for block in &pool {
        usage.remove(*block);
    }
    map.nodes = used;
    map.damaged = false;
    map.wrong_sums = false;
    written
}

/// How many blocks a map needs for itself.
pub(crate) fn nodes_needed(volume: &Volume, map: &Mapping) -> u64 {
    if map.extents {
        let per_node = u64::from(capacity(volume.block_bytes()));
        let mut count = map.runs.iter().flat_map(pieces).count() as u64;
        let mut needed = 0;
        while count > ROOT_MAX as u64 {
            count = count.div_ceil(per_node);
            needed += count;
        }
        return needed;
    }
    let per_block = u64::from(pointers_per_block(volume.geometry.block_size()));
    let mut needed = 0;
    let mut start = u64::from(DIRECT);
    let mut span = per_block;
    for _ in 1..=3 {
        needed += pointer_blocks_needed(map, per_block, start, span / per_block);
        start += span;
        span *= per_block;
    }
    needed
}

/// As [`write_pointer_block`], without writing.
fn pointer_blocks_needed(map: &Mapping, per_block: u64, start: u64, below: u64) -> u64 {
    if !any_in(map, start, start + per_block * below) {
        return 0;
    }
    let slots = if below == 1 { 0 } else { per_block };
    let child = |n| pointer_blocks_needed(map, per_block, start + n * below, below / per_block);
    1 + (0..slots).map(child).sum::<u64>()
}

fn write_extents(
    volume: &Volume,
    nodes: &mut Nodes<'_>,
    seed: u32,
    inode: &mut Inode,
    runs: &[Run],
) -> Result<()> {
    let extents: Vec<Extent> = runs.iter().flat_map(pieces).collect();
    let bytes = volume.block_bytes();
    let per_node = usize::from(capacity(bytes));
    let with_sums = volume.checksums.seed().is_some();
    let mut depth = 0;
    let mut above: Vec<ExtentIndex> = Vec::new();
    if extents.len() <= ROOT_MAX {
        let mut root = ExtentNodeMut::init(&mut inode.i_block, 0);
        extents.iter().enumerate().for_each(|(n, extent)| root.insert_extent(n, extent));
        return Ok(());
    }
    for part in extents.chunks(per_node) {
        let mut block = vec![0; bytes];
        let mut node = ExtentNodeMut::init(&mut block, 0);
        part.iter().enumerate().for_each(|(n, extent)| node.insert_extent(n, extent));
        above.push(put_node(volume, nodes, block, with_sums.then_some(seed), part[0].logical)?);
    }
    loop {
        depth += 1;
        if above.len() <= ROOT_MAX {
            let mut root = ExtentNodeMut::init(&mut inode.i_block, depth);
            above.iter().enumerate().for_each(|(n, index)| root.insert_index(n, index));
            return Ok(());
        }
        let below = std::mem::take(&mut above);
        for part in below.chunks(per_node) {
            let mut block = vec![0; bytes];
            let mut node = ExtentNodeMut::init(&mut block, depth);
            part.iter().enumerate().for_each(|(n, index)| node.insert_index(n, index));
            above.push(put_node(volume, nodes, block, with_sums.then_some(seed), part[0].logical)?);
        }
    }
}

fn put_node(
    volume: &Volume,
    nodes: &mut Nodes<'_>,
    mut block: Vec<u8>,
    seed: Option<u32>,
    logical: LogicalBlock,
) -> Result<ExtentIndex> {
    let at = nodes.take()?;
    if let Some(seed) = seed {
        extent::set_checksum(&mut block, seed);
    }
    volume.disk.put(at, &block)?;
    Ok(ExtentIndex { logical, child: BlockNr(at) })
}

/// The extents of a run, none longer than one can be.
fn pieces(run: &Run) -> impl Iterator<Item = Extent> + use<> {
    let run = *run;
    let (most, state) = match run.written {
        true => (0x8000, ExtentState::Written),
        false => (0x7FFF, ExtentState::Unwritten),
    };
    (0..run.len).step_by(most as usize).map(move |from| Extent {
        logical: LogicalBlock(run.logical + from),
        len: most.min(run.len - from),
        physical: BlockNr(run.physical + u64::from(from)),
        state,
    })
}

fn write_pointers(
    volume: &Volume,
    nodes: &mut Nodes<'_>,
    inode: &mut Inode,
    map: &Mapping,
) -> Result<()> {
    let per_block = u64::from(pointers_per_block(volume.geometry.block_size()));
    let mut root = [0; block_map::I_BLOCK_SIZE];
    for slot in 0..DIRECT {
        if let Some(block) = map.locate(slot) {
            set_pointer(&mut root, slot, Some(BlockNr(block)))?;
        }
    }
    let mut start = u64::from(DIRECT);
    let mut span = per_block;
    for level in 1..=3 {
        let slot = DIRECT + level - 1;
        if let Some(block) = write_pointer_block(volume, nodes, map, start, span / per_block)? {
            set_pointer(&mut root, slot, Some(BlockNr(block)))?;
        }
        start += span;
        span *= per_block;
    }
    inode.i_block = root;
    Ok(())
}

/// Writes the pointer block for the logical blocks from `start` on, of which each slot leads to
/// `below` blocks. `None` if they are all holes.
fn write_pointer_block(
    volume: &Volume,
    nodes: &mut Nodes<'_>,
    map: &Mapping,
    start: u64,
    below: u64,
) -> Result<Option<u64>> {
    let per_block = u64::from(pointers_per_block(volume.geometry.block_size()));
    if !any_in(map, start, start + per_block * below) {
        return Ok(None);
    }
    let at = nodes.take()?;
    let mut bytes = vec![0; volume.block_bytes()];
    for n in 0..per_block {
        let first = start + n * below;
        let block = match below {
            1 => u32::try_from(first).ok().and_then(|logical| map.locate(logical)),
            _ => write_pointer_block(volume, nodes, map, first, below / per_block)?,
        };
        set_pointer(&mut bytes, fits_u32(n), block.map(BlockNr))?;
    }
    volume.disk.put(at, &bytes)?;
    Ok(Some(at))
}

fn any_in(map: &Mapping, start: u64, end: u64) -> bool {
    let first = map.runs.partition_point(|run| u64::from(run.end()) <= start);
    map.runs.get(first).is_some_and(|run| u64::from(run.logical) < end)
}

/// Reads the content of a small file, `len` bytes; holes are zeros.
pub(crate) fn content(volume: &Volume, map: &Mapping, len: u64) -> Result<Vec<u8>> {
    let size = volume.block_bytes();
    let len = fits_usize(len.min(u64::from(map.end()) * size as u64));
    let mut bytes = vec![0; len.div_ceil(size) * size];
    for (n, part) in bytes.chunks_exact_mut(size).enumerate() {
        if let Some(block) = u32::try_from(n).ok().and_then(|logical| map.locate(logical)) {
            part.copy_from_slice(&volume.disk.read(block)?);
        }
    }
    bytes.truncate(len);
    Ok(bytes)
}
