//! Reading blocks from anywhere on the volume with few large transfers.
//!
//! ```text
//!   wanted, sorted   ▪▪ ▪   ▪▪▪▪            ▪ ▪▪
//!   transfers        └───┘  └──┘            └──┘     gaps up to 16 KiB are read and dropped
//! ```

use super::view::View;
use crate::parallel;
use extant_base::narrow::fits_usize;
use extant_base::{BlockNr, Site};
use extant_blockdev::AlignedBuf;
use std::ops::Range;

/// Bytes of one transfer.
pub(super) const TRANSFER: usize = 256 << 10;
/// Two blocks with at most this many bytes between them go into one transfer.
const GAP: usize = 16 << 10;

/// Divides blocks, sorted by `place`, into runs for one transfer each.
pub(super) fn transfers<T>(
    view: &View<'_>,
    wanted: &[T],
    place: impl Fn(&T) -> u64,
) -> Vec<Range<usize>> {
    let shift = view.geometry.block_size().log2();
    let (most, gap) = ((TRANSFER >> shift) as u64, ((GAP >> shift) as u64).max(1));
    let mut runs: Vec<Range<usize>> = Vec::new();
    for (n, item) in wanted.iter().enumerate() {
        let here = place(item);
        match runs.last_mut() {
            Some(run)
                if here - place(&wanted[run.start]) < most
                    && here - place(&wanted[run.end - 1]) <= gap =>
            {
                run.end = n + 1;
            }
            _ => runs.push(n..n + 1),
        }
    }
    runs
}

/// Reads every block in `wanted` (sorted by `place`, all on the volume) and passes it to `visit`,
/// on all threads. Each thread has a state of its own; all states are returned.
pub(super) fn each_block<T: Sync, S: Send>(
    view: &View<'_>,
    wanted: &[T],
    place: impl Fn(&T) -> u64 + Sync,
    make: impl Fn() -> S + Sync,
    visit: impl Fn(&mut S, &T, &[u8]) + Sync,
) -> Vec<S> {
    let runs = transfers(view, wanted, &place);
    let block_bytes = view.block_bytes();
    let states = parallel::each(
        view.threads,
        runs.len(),
        || (make(), AlignedBuf::zeroed(TRANSFER.max(block_bytes))),
        |(state, buf), n| {
            let items = &wanted[runs[n].clone()];
            let first = place(&items[0]);
            let last = place(&items[items.len() - 1]);
            let bytes = &mut buf[..fits_usize(last - first + 1) * block_bytes];
            read_run(view, first, bytes);
            for item in items {
                let start = fits_usize(place(item) - first) * block_bytes;
                visit(state, item, &bytes[start..start + block_bytes]);
            }
        },
    );
    states.into_iter().map(|(state, _)| state).collect()
}

/// Reads a run of blocks. If that fails, it reads each block alone, so that one bad block affects
/// only itself.
pub(in crate::audit) fn read_run(view: &View<'_>, first: u64, bytes: &mut [u8]) {
    let start = view.geometry.block_size().start_of(BlockNr(first));
    if view.device.read_at(start, bytes).is_ok() {
        return;
    }
    for (n, block) in bytes.chunks_mut(view.block_bytes()).enumerate() {
        let nr = BlockNr(first + n as u64);
        if view.geometry.holds(nr, 1) {
            view.read_blocks(nr, block, Site::NOWHERE);
        } else {
            block.fill(0);
        }
    }
}
