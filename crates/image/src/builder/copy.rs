//! Copying the files' bytes into the image: large writes in device order, from several threads.
//!
//! ```text
//!   device   ├─ file a ─┼─ b ─┼───── c ─────┼╳ tree node ╳┼──── c ────┼─ d ─┤
//!   chunks   └─── 256 KiB to 4 MiB ──┴─ … ──┘             └── one write each ──┘
//!
//!   thread   take a chunk ─► read its files' parts into one buffer ─► write it
//! ```
//!
//! Chunks follow from the placement alone, so the bytes written do not depend on the threads.

use crate::builder::error::BuildError;
use crate::content::ContentReader;
use crate::entry::NodeId;
use crate::tree::Tree;
use extant::{Phase, Progress};
use extant_base::narrow::fits_usize;
use extant_base::{BlockSize, ByteOffset};
use extant_blockdev::{AlignedBuf, BlockDevice};
use std::ops::Range;
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

/// The most and the fewest bytes of a full chunk.
const CHUNK: u64 = 4 << 20;
const CHUNK_MIN: u64 = 256 << 10;
/// The content is divided into at least this many chunks, so that each thread has some.
const CHUNKS: u64 = 16;

/// A part of a file and its place on the device.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Piece {
    pub(crate) node: NodeId,
    /// First block in the file.
    pub(crate) logical: u32,
    /// Length in blocks.
    pub(crate) len: u32,
    /// First block on the device.
    pub(crate) physical: u64,
}

/// Pieces that are neighbours on the device.
#[derive(Debug)]
struct Chunk {
    pieces: Range<usize>,
    /// Bytes of the first piece that belong to the previous chunk.
    skip: u64,
    start: u64,
    len: u64,
}

/// Splits `pieces`, sorted by their place, into chunks.
fn chunks(pieces: &[Piece], bs: BlockSize) -> Vec<Chunk> {
    let bytes = |blocks: u64| blocks << bs.log2();
    let all: u64 = pieces.iter().map(|piece| bytes(u64::from(piece.len))).sum();
    let most = (all / CHUNKS).next_power_of_two().clamp(CHUNK_MIN, CHUNK);
    let mut chunks: Vec<Chunk> = Vec::new();
    for (n, piece) in pieces.iter().enumerate() {
        let start = bytes(piece.physical);
        let len = bytes(u64::from(piece.len));
        let mut done = 0;
        if let Some(last) = chunks.last_mut()
            && last.start + last.len == start
        {
            done = len.min(most.saturating_sub(last.len));
            if done > 0 {
                last.len += done;
                last.pieces.end = n + 1;
            }
        }
        while done < len {
            let part = (len - done).min(most);
            chunks.push(Chunk { pieces: n..n + 1, skip: done, start: start + done, len: part });
            done += part;
        }
    }
    chunks
}

/// Copies every piece. `pieces` are sorted by their place on the device.
///
/// Errors: the first that any thread meets. With the tree's `keep_going`, unreadable files become
/// zeros and are recorded in the tree instead.
pub(crate) fn copy(
    tree: &Tree,
    device: &dyn BlockDevice,
    bs: BlockSize,
    pieces: &[Piece],
    threads: usize,
    progress: &dyn Progress,
    stop: &AtomicBool,
) -> Result<(), BuildError> {
    let chunks = chunks(pieces, bs);
    let largest = chunks.iter().map(|chunk| chunk.len).max().unwrap_or(0);
    let next = AtomicUsize::new(0);
    let failed: Mutex<Option<BuildError>> = Mutex::new(None);
    let fail = |error: BuildError| {
        let mut failed = failed.lock().unwrap_or_else(|poisoned| poisoned.into_inner());
        failed.get_or_insert(error);
    };
    let work = || {
        let mut reader = tree.reader();
        // Memory that is used for the first time costs as much as the copy.
        let mut buffer = AlignedBuf::zeroed(fits_usize(largest));
        loop {
            let n = next.fetch_add(1, Ordering::Relaxed);
            let Some(chunk) = chunks.get(n) else { break };
            let over = failed.lock().is_ok_and(|failed| failed.is_some());
            if over || stop.load(Ordering::Relaxed) {
                break;
            }
            let buffer = &mut buffer[..fits_usize(chunk.len)];
            let filled = fill(&mut reader, bs, pieces, chunk, buffer);
            let written = filled.and_then(|()| {
                device.write_at(ByteOffset(chunk.start), buffer).map_err(BuildError::Engine)
            });
            match written {
                Ok(()) => progress.advance(Phase::BuildCopy, chunk.len),
                Err(error) => {
                    fail(error);
                    break;
                }
            }
        }
    };
    std::thread::scope(|scope| {
        for _ in 1..threads.max(1) {
            scope.spawn(work);
        }
        work();
    });
    let failed = failed.into_inner().unwrap_or_else(|poisoned| poisoned.into_inner());
    failed.map_or(Ok(()), Err)
}

/// Reads the files of a chunk into `buffer`. The part of a last block that its file does not fill
/// is zero.
fn fill(
    reader: &mut ContentReader<'_>,
    bs: BlockSize,
    pieces: &[Piece],
    chunk: &Chunk,
    buffer: &mut [u8],
) -> Result<(), BuildError> {
    let mut skip = chunk.skip;
    let mut at = 0;
    for piece in &pieces[chunk.pieces.clone()] {
        let len = ((u64::from(piece.len) << bs.log2()) - skip).min((buffer.len() - at) as u64);
        let part = &mut buffer[at..at + fits_usize(len)];
        let offset = (u64::from(piece.logical) << bs.log2()) + skip;
        let read = reader.read_at(piece.node, offset, part)?;
        part[read..].fill(0);
        at += fits_usize(len);
        skip = 0;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn piece(logical: u32, len: u32, physical: u64) -> Piece {
        Piece { node: NodeId::ROOT, logical, len, physical }
    }

    #[test]
    fn neighbours_share_a_chunk_and_gaps_end_one() {
        let bs = BlockSize::from_bytes(4096).unwrap();
        let pieces = [piece(0, 3, 100), piece(0, 1, 103), piece(0, 2, 105)];
        let got: Vec<_> =
            chunks(&pieces, bs).iter().map(|c| (c.pieces.clone(), c.start, c.len)).collect();
        assert_eq!(got, [(0..2, 100 * 4096, 4 * 4096), (2..3, 105 * 4096, 2 * 4096)]);
    }

    #[test]
    fn a_long_piece_is_cut_and_its_rest_is_joined_by_the_next() {
        let bs = BlockSize::from_bytes(4096).unwrap();
        let blocks = (CHUNK_MIN / 4096) as u32;
        let pieces =
            [piece(0, 1, 10), piece(0, blocks + 5, 11), piece(0, 7, 16 + u64::from(blocks))];
        let got = chunks(&pieces, bs);
        assert_eq!(got.len(), 2);
        assert_eq!((got[0].pieces.clone(), got[0].skip, got[0].len), (0..2, 0, CHUNK_MIN));
        assert_eq!((got[1].pieces.clone(), got[1].skip), (1..3, CHUNK_MIN - 4096));
        assert_eq!(got[1].len, (1 + 5 + 7) * 4096);
    }
}
