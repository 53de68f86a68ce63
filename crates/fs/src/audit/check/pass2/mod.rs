//! Pass 2: every block of every directory, read once and in disk order.
//!
//! ```text
//!   directories in       ──► batches of up to 256 KiB ──► threads: read in few transfers, then
//!   disk order               (a larger directory alone,   each directory in logical order
//!                            window by window)
//! ```

mod entries;
mod htree;
mod names;

use super::pass1::{DirBlock, Tables};
use super::scatter::{TRANSFER, read_run, transfers};
use super::view::View;
use crate::parallel;
use crate::progress::Phase;
use entries::Directory;
use extant_base::narrow::{fits_usize, len_u32};
use extant_blockdev::AlignedBuf;
use std::ops::Range;

/// How many bytes of directory blocks each thread holds in memory: few enough to stay in its
/// processor's cache.
const WINDOW: usize = 256 << 10;

/// Runs the pass.
pub(super) fn run(view: &View<'_>, tables: &mut Tables) {
    let shared: &Tables = tables;
    let window = (WINDOW / view.block_bytes()).max(1);
    let mut order: Vec<u32> = (0..len_u32(shared.dirs.len())).collect();
    order.sort_unstable_by_key(|n| {
        let dir = &shared.dirs[*n as usize];
        shared.dir_blocks.get(dir.first).filter(|_| dir.count > 0).map_or(0, |block| block.physical)
    });
    let batches = batches(shared, &order, window);
    view.progress.begin(Phase::CheckDirectories, batches.len() as u64);
    let names = parallel::each(
        view.threads,
        batches.len(),
        || (0, Buffers::new(view, window)),
        |(names, buffers), n| {
            *names += check_batch(view, shared, &order[batches[n].clone()], window, buffers);
            view.progress.advance(Phase::CheckDirectories, 1);
        },
    );
    tables.stats.names = names.iter().map(|(names, _)| names).sum();
}

/// Runs of `order` whose directories together fit into one window, or a single larger directory.
fn batches(tables: &Tables, order: &[u32], window: usize) -> Vec<Range<usize>> {
    let mut batches: Vec<Range<usize>> = Vec::new();
    let mut blocks = 0;
    for (at, n) in order.iter().enumerate() {
        let count = tables.dirs[*n as usize].count.max(1);
        match batches.last_mut() {
            Some(batch) if blocks + count <= window => batch.end = at + 1,
            _ => {
                batches.push(at..at + 1);
                blocks = 0;
            }
        }
        blocks += count;
    }
    batches
}

struct Buffers {
    transfer: AlignedBuf,
    blocks: AlignedBuf,
}

impl Buffers {
    /// Buffers for up to `window` blocks.
    fn new(view: &View<'_>, window: usize) -> Buffers {
        let transfer = AlignedBuf::zeroed(TRANSFER.max(view.block_bytes()));
        Buffers { transfer, blocks: AlignedBuf::zeroed(window * view.block_bytes()) }
    }

    /// Reads up to `window` scattered blocks into `self.blocks`, in the order given.
    fn read(&mut self, view: &View<'_>, wanted: &[DirBlock]) {
        let block_bytes = view.block_bytes();
        let mut by_place: Vec<(u64, usize)> =
            wanted.iter().enumerate().map(|(n, block)| (block.physical, n)).collect();
        by_place.sort_unstable();
        for run in transfers(view, &by_place, |(place, _)| *place) {
            let items = &by_place[run];
            let (first, last) = (items[0].0, items[items.len() - 1].0);
            let start = items[0].1;
            let in_order =
                |(n, item): (usize, &(u64, usize))| *item == (first + n as u64, start + n);
            if items.iter().enumerate().all(in_order) {
                let place = start * block_bytes..(start + items.len()) * block_bytes;
                read_run(view, first, &mut self.blocks[place]);
                continue;
            }
            let bytes = &mut self.transfer[..fits_usize(last - first + 1) * block_bytes];
            read_run(view, first, bytes);
            for (place, n) in items {
                let from = fits_usize(place - first) * block_bytes;
                self.blocks[n * block_bytes..][..block_bytes]
                    .copy_from_slice(&bytes[from..from + block_bytes]);
            }
        }
    }
}

/// Checks a batch of directories. Returns the number of names in them.
fn check_batch(
    view: &View<'_>,
    tables: &Tables,
    batch: &[u32],
    window: usize,
    buffers: &mut Buffers,
) -> u64 {
    let block_bytes = view.block_bytes();
    let mut names = 0;
    if let [n] = batch {
        let mut directory = Directory::new(view, tables, *n as usize);
        let dir = &tables.dirs[*n as usize];
        for part in tables.dir_blocks[dir.first..dir.first + dir.count].chunks(window) {
            buffers.read(view, part);
            for (block, bytes) in part.iter().zip(buffers.blocks.chunks_exact(block_bytes)) {
                directory.block(block, bytes);
            }
        }
        return directory.finish();
    }
    let blocks: Vec<DirBlock> = batch
        .iter()
        .flat_map(|n| {
            let dir = &tables.dirs[*n as usize];
            &tables.dir_blocks[dir.first..dir.first + dir.count]
        })
        .copied()
        .collect();
    buffers.read(view, &blocks);
    let mut rest = blocks.iter().zip(buffers.blocks.chunks_exact(block_bytes));
    for n in batch {
        let mut directory = Directory::new(view, tables, *n as usize);
        for (block, bytes) in rest.by_ref().take(tables.dirs[*n as usize].count) {
            directory.block(block, bytes);
        }
        names += directory.finish();
    }
    names
}
