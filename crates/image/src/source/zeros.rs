//! Makes holes of runs of zeros in the data of files of 64 KiB and more.
//!
//! ```text
//!   data   ┌────────┬────────┬────────┬───┐       block: all zeros, or kept
//!          │ x 0 0 x│ 0 0 0 0│ 0 0 0 0│ y │
//!   ranges └─ kept ─┴───── a hole ────┴─┬─┘ kept
//! ```
//!
//! The builder lays out the files of an image before it reads them, so this reads the data of these
//! files an additional time. Smaller files are not read: most files of a tree are small, blocks of
//! zeros in them are rare, and to open each of them twice takes longer than anything else in a
//! build. Threads take files in any order; the ranges go into the tree in the order of its nodes.

use crate::content::ContentReader;
use crate::entry::{Content, DataRange, Kind, MapId, NodeId};
use crate::error::SourceError;
use crate::tree::Tree;
use extant_base::narrow::fits_usize;
use parking_lot::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering::Relaxed};

/// The most bytes of one read; a multiple of every block size.
const PIECE: usize = 1 << 20;

/// Files shorter than this keep their zeros.
const LEAST: u64 = 64 << 10;

/// A file and the ranges of its data that are kept.
type Kept = (NodeId, Vec<DataRange>);

/// Removes blocks of `block` bytes, a power of two, that contain only zeros from the data of files
/// of at least [`LEAST`] bytes.
pub(crate) fn leave_out(tree: &mut Tree, block: usize, threads: usize) -> Result<(), SourceError> {
    let is_examined = |id: NodeId| match tree.node(id).kind {
        Kind::File { size, .. } => size >= LEAST && tree.data_map(id).ranges().next().is_some(),
        _ => false,
    };
    let files: Vec<NodeId> = tree.iter().map(|(id, _)| id).filter(|id| is_examined(*id)).collect();
    let (next, over) = (AtomicUsize::new(0), AtomicBool::new(false));
    let found: Mutex<Result<Vec<Kept>, SourceError>> = Mutex::new(Ok(Vec::new()));
    let shared: &Tree = tree;
    let work = || {
        let mut reader = shared.reader();
        let mut buffer = vec![0; PIECE];
        while let Some(&id) = files.get(next.fetch_add(1, Relaxed)).filter(|_| !over.load(Relaxed))
        {
            let kept = kept(&mut reader, shared, id, block, &mut buffer);
            let mut found = found.lock();
            match (kept, &mut *found) {
                (Ok(Some(ranges)), Ok(all)) => all.push((id, ranges)),
                (Err(error), Ok(_)) => {
                    *found = Err(error);
                    over.store(true, Relaxed);
                }
                _ => {}
            }
        }
    };
    std::thread::scope(|scope| {
        for _ in 1..threads.min(files.len()) {
            scope.spawn(work);
        }
        work();
    });
    let mut found = found.into_inner()?;
    found.sort_unstable_by_key(|(id, _)| id.index());
    for (id, ranges) in found {
        let new = match ranges.is_empty() {
            true => (Content::Empty, MapId::DENSE),
            false => (content_of(tree, id), tree.add_map(&ranges)?),
        };
        if let Kind::File { content, map, .. } = &mut tree.nodes[id.index()].kind {
            (*content, *map) = new;
        }
    }
    Ok(())
}

fn content_of(tree: &Tree, id: NodeId) -> Content {
    match tree.node(id).kind {
        Kind::File { content, .. } => content,
        _ => Content::Empty,
    }
}

fn is_zero(bytes: &[u8]) -> bool {
    const ZEROS: [u8; 1024] = [0; 1024];
    bytes.chunks(ZEROS.len()).all(|chunk| chunk == &ZEROS[..chunk.len()])
}

/// The ranges of a file's data without its zero blocks; `None` if it has no zero block.
fn kept(
    reader: &mut ContentReader<'_>,
    tree: &Tree,
    id: NodeId,
    block: usize,
    buffer: &mut [u8],
) -> Result<Option<Vec<DataRange>>, SourceError> {
    let Kind::File { size, map, .. } = tree.node(id).kind else { return Ok(None) };
    let whole = [DataRange { offset: 0, len: size, stored: 0 }];
    let ranges = if map == MapId::DENSE { &whole[..] } else { tree.map_ranges(map) };
    let mut kept: Vec<DataRange> = Vec::new();
    let mut any = false;
    for range in ranges {
        let (mut at, end) = (range.offset, range.offset + range.len);
        while at < end {
            let want = fits_usize((end - at).min(PIECE as u64 - at % PIECE as u64));
            let piece = &mut buffer[..want];
            reader.read_at(id, at, piece)?;
            let mut done = 0;
            while done < want {
                let here = at + done as u64;
                let len = (block - fits_usize(here % block as u64)).min(want - done);
                let zero = is_zero(&piece[done..done + len]);
                done += len;
                any |= zero;
                if zero {
                    continue;
                }
                match kept.last_mut() {
                    Some(last) if last.offset + last.len == here && here > range.offset => {
                        last.len += len as u64;
                    }
                    _ => kept.push(DataRange {
                        offset: here,
                        len: len as u64,
                        stored: range.stored + (here - range.offset),
                    }),
                }
            }
            at += want as u64;
        }
    }
    Ok(any.then_some(kept))
}
