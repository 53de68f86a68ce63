//! The volume divided into parts, for a map of it.
//!
//! ```text
//!   few groups    group 0 ┃ 0 │ 1 │ 2 │ 3 ┃ group 1 ┃ …       a group is several cells
//!   many groups   groups 0..4 ┃ groups 4..8 ┃ …               a cell is several groups
//! ```

use extant_base::GroupNr;
use extant_base::narrow::{fits_u32, fits_usize};
use extant_ondisk::geometry::Geometry;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};

/// How many cells a group has at most.
const PARTS_MAX: u64 = 128;

/// Blocks by their content. Other used blocks contain attributes, unused parts of clusters, files
/// without names, or what could not be read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Parts {
    /// All blocks.
    pub blocks: u64,
    /// Free.
    pub free: u64,
    /// Superblocks, descriptors, bitmaps, inode tables, and internal files except the journal.
    pub metadata: u64,
    /// The journal.
    pub journal: u64,
    /// Directories, and the maps of their blocks.
    pub directories: u64,
    /// Files and symlinks, and the maps of their blocks.
    pub files: u64,
}

impl Parts {
    /// Blocks that are in use for something else, or whose content is unknown.
    pub fn other(&self) -> u64 {
        let known = [self.free, self.metadata, self.journal, self.directories, self.files];
        known.iter().fold(self.blocks, |left, part| left.saturating_sub(*part))
    }
}

/// The content of blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Content {
    Free,
    Metadata,
    Journal,
    Directory,
    File,
}

/// A part of the volume.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Cell {
    /// The first block.
    pub first_block: u64,
    /// The groups in this cell, or the group of which it is a part.
    pub groups: Range<u32>,
    /// The content.
    pub parts: Parts,
    /// Blocks of groups whose bitmap could not be read.
    pub unknown: u64,
    /// Runs of free blocks, cut at the ends of the cell.
    pub free_runs: u64,
    /// The length of the longest of these runs.
    pub longest_free: u64,
}

/// A cell that is being filled.
#[derive(Default)]
struct Filling {
    content: [AtomicU64; 5],
    unknown: AtomicU64,
    free_runs: AtomicU64,
    longest_free: AtomicU64,
}

/// All cells of a volume, filled by many threads.
pub(super) struct Cells {
    geometry: Geometry,
    groups_per_cell: u32,
    cells_per_group: u64,
    cells: Box<[Filling]>,
}

impl Cells {
    /// Makes at most `max` (at least 1) cells.
    pub(super) fn new(geometry: &Geometry, max: usize) -> Cells {
        let groups = geometry.groups_count().max(1);
        let max = max.max(1) as u64;
        let groups_per_cell = fits_u32(u64::from(groups).div_ceil(max));
        let mut cells_per_group = 1;
        let most = PARTS_MAX.min(u64::from(geometry.clusters_per_group()));
        while cells_per_group * 2 <= most && u64::from(groups) * cells_per_group * 2 <= max {
            cells_per_group *= 2;
        }
        let count = u64::from(groups.div_ceil(groups_per_cell)) * cells_per_group;
        let cells = (0..count).map(|_| Filling::default()).collect();
        Cells { geometry: *geometry, groups_per_cell, cells_per_group, cells }
    }

    /// The number of blocks in a cell that is a part of a group.
    fn piece(&self) -> u64 {
        let clusters = u64::from(self.geometry.clusters_per_group()).div_ceil(self.cells_per_group);
        clusters << self.geometry.log_cluster_ratio()
    }

    fn start_of(&self, cell: u64) -> u64 {
        let group = cell / self.cells_per_group * u64::from(self.groups_per_cell);
        let group = self.geometry.first_data_block().0
            + group * u64::from(self.geometry.blocks_per_group());
        let in_group = cell % self.cells_per_group * self.piece();
        (group + in_group.min(self.geometry.blocks_per_group().into()))
            .min(self.geometry.blocks_count())
    }

    /// The cell that contains `block`, and the end of that cell.
    fn cell_of(&self, block: u64) -> Option<(usize, u64)> {
        let at = block.checked_sub(self.geometry.first_data_block().0)?;
        let per_group = u64::from(self.geometry.blocks_per_group());
        let (group, in_group) = (at / per_group, at % per_group);
        let cell = group / u64::from(self.groups_per_cell) * self.cells_per_group
            + if self.cells_per_group > 1 { in_group / self.piece() } else { 0 };
        (cell < self.cells.len() as u64).then(|| (fits_usize(cell), self.start_of(cell + 1)))
    }

    /// Calls `f` with each cell that contains some of `blocks`, and how many it contains.
    fn each(&self, blocks: Range<u64>, mut f: impl FnMut(&Filling, u64)) {
        let end = blocks.end.min(self.geometry.blocks_count());
        let mut at = blocks.start.max(self.geometry.first_data_block().0);
        while at < end {
            let Some((cell, cell_end)) = self.cell_of(at) else { return };
            let upto = end.min(cell_end.max(at + 1));
            f(&self.cells[cell], upto - at);
            at = upto;
        }
    }

    /// Counts `blocks` with `content`.
    pub(super) fn add(&self, content: Content, blocks: Range<u64>) {
        self.each(blocks, |cell, count| {
            cell.content[content as usize].fetch_add(count, Relaxed);
        });
    }

    /// Counts a run of free blocks.
    pub(super) fn add_free_run(&self, blocks: Range<u64>) {
        self.each(blocks, |cell, count| {
            cell.content[Content::Free as usize].fetch_add(count, Relaxed);
            cell.free_runs.fetch_add(1, Relaxed);
            cell.longest_free.fetch_max(count, Relaxed);
        });
    }

    /// Counts a group whose free blocks are unknown.
    pub(super) fn add_unknown(&self, group: GroupNr) {
        let Some(blocks) = self.geometry.blocks_of_group(group) else { return };
        self.each(blocks, |cell, count| {
            cell.unknown.fetch_add(count, Relaxed);
        });
    }

    /// All cells, and the sum for the volume.
    pub(super) fn finish(self) -> (Vec<Cell>, Parts) {
        let mut all = Parts { blocks: self.geometry.blocks_count(), ..Parts::default() };
        // The block before group 0 contains the boot sector.
        all.metadata = self.geometry.first_data_block().0;
        let mut cells = Vec::with_capacity(self.cells.len());
        for (n, filling) in self.cells.iter().enumerate() {
            let (start, end) = (self.start_of(n as u64), self.start_of(n as u64 + 1));
            if start == end {
                continue;
            }
            let [free, metadata, journal, directories, files] =
                std::array::from_fn(|kind| filling.content[kind].load(Relaxed));
            let blocks = end - start;
            let parts = Parts { blocks, free, metadata, journal, directories, files };
            for (sum, part) in [
                (&mut all.free, free),
                (&mut all.metadata, metadata),
                (&mut all.journal, journal),
                (&mut all.directories, directories),
                (&mut all.files, files),
            ] {
                *sum += part;
            }
            let first = fits_u32(n as u64 / self.cells_per_group) * self.groups_per_cell;
            let last = first.saturating_add(self.groups_per_cell).min(self.geometry.groups_count());
            cells.push(Cell {
                first_block: start,
                groups: first..last,
                parts,
                unknown: filling.unknown.load(Relaxed),
                free_runs: filling.free_runs.load(Relaxed),
                longest_free: filling.longest_free.load(Relaxed),
            });
        }
        (cells, all)
    }
}
