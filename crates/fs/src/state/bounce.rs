//! Chunks: memory of the engine through which a transfer is copied when the caller's memory cannot
//! be used in place.
//!
//! ```text
//!   write    caller ──one copy, checksums computed on the way──► chunk ──► device
//!   read     device ──► chunk ──one copy, after it was verified──► caller
//!
//!   want 1 MiB   pool has it? ─no─► 512 KiB? ─no─► … ─no─► one page? ─no─► NoMemory
//! ```
//!
//! The checksum is computed of the copy, piece by piece while the piece is in the first-level
//! cache. So checksum and stored bytes agree, even if another thread changes the caller's memory
//! meanwhile.

use extant_base::{Error, Result};
use extant_blockdev::{BufPool, CallerMemory, Faults, PooledBuf};
use extant_crc32c::crc32c;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering::Relaxed};

/// The longest chunk, in bytes.
pub(crate) const CHUNK_MAX: usize = 1 << 20;
/// The shortest.
const CHUNK_MIN: usize = 4096;
/// Bytes that are copied and then checksummed while they are in the first-level cache.
const PIECE: usize = 8192;

/// Statistics of direct transfers since the volume was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DirectStats {
    /// Bytes copied between callers' memory and chunks.
    pub copied_bytes: u64,
    /// Bytes that the device read from or wrote to callers' memory itself.
    pub lent_bytes: u64,
    /// Bytes that went through the page cache, or that the device moved in its own buffered way.
    pub buffered_bytes: u64,
    /// Chunks used.
    pub chunks: u64,
    /// How often memory was faulted in and a transfer begun again.
    pub faults: u64,
    /// How often the cache held dirty bytes of a range that had just been written directly.
    pub conflicts: u64,
}

/// The chunks of a volume.
pub(crate) struct Chunks {
    pool: BufPool,
    /// Bytes that may be in use at a time; bytes that are.
    most: AtomicUsize,
    used: Arc<AtomicUsize>,
    pub(crate) stats: Stats,
}

#[derive(Default)]
pub(crate) struct Stats {
    pub(crate) copied: AtomicU64,
    pub(crate) lent: AtomicU64,
    pub(crate) buffered: AtomicU64,
    pub(crate) chunks: AtomicU64,
    pub(crate) faults: AtomicU64,
    pub(crate) conflicts: AtomicU64,
}

/// Counts a chunk as used until it is dropped.
pub(crate) struct Charge {
    used: Arc<AtomicUsize>,
    bytes: usize,
}

impl Drop for Charge {
    fn drop(&mut self) {
        self.used.fetch_sub(self.bytes, Relaxed);
    }
}

/// Where a copy is kept until the device takes it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum CopyTo {
    /// In the processor's caches: for a small copy that the device takes next.
    Near,
    /// In memory, bypassing the caches.
    Past,
}

/// A chunk with the bytes that were copied to it.
pub(crate) struct Chunk {
    pub(crate) buf: PooledBuf,
    /// One checksum for each block, in the form that the volume stores; empty unless requested.
    pub(crate) checksums: Vec<u32>,
    pub(crate) charge: Charge,
}

impl Chunks {
    /// Chunks of up to `most` bytes in all. They are reused: fresh memory costs more than the copy.
    pub(crate) fn new(most: usize) -> Chunks {
        Chunks {
            pool: BufPool::new(most),
            most: AtomicUsize::new(most),
            used: Arc::default(),
            stats: Stats::default(),
        }
    }

    pub(crate) fn stats(&self) -> DirectStats {
        let Stats { copied, lent, buffered, chunks, faults, conflicts } = &self.stats;
        DirectStats {
            copied_bytes: copied.load(Relaxed),
            lent_bytes: lent.load(Relaxed),
            buffered_bytes: buffered.load(Relaxed),
            chunks: chunks.load(Relaxed),
            faults: faults.load(Relaxed),
            conflicts: conflicts.load(Relaxed),
        }
    }

    /// Sets how many bytes of chunks may be in use at a time.
    pub(crate) fn limit(&self, most: usize) {
        self.most.store(most, Relaxed);
    }

    /// Memory for the start of `want` bytes: for all of them, up to [`CHUNK_MAX`]; or for the
    /// largest half, quarter, … that is a multiple of `unit` and available.
    ///
    /// Errors: `NoMemory` when not even a page is available, or a unit if that is larger.
    pub(crate) fn take(&self, want: usize, unit: usize) -> Result<Chunk> {
        let least = CHUNK_MIN.max(unit);
        let mut len = want.min(CHUNK_MAX);
        loop {
            if let Some((buf, charge)) = self.try_take(len) {
                self.stats.chunks.fetch_add(1, Relaxed);
                return Ok(Chunk { buf, checksums: Vec::new(), charge });
            }
            if len <= least {
                return Err(Error::NoMemory);
            }
            // Powers of two fit the pool's size classes.
            let half = (len - 1).checked_next_power_of_two().map_or(CHUNK_MAX, |len| len / 2);
            len = half.max(least) / unit * unit;
        }
    }

    fn try_take(&self, len: usize) -> Option<(PooledBuf, Charge)> {
        let before = self.used.fetch_add(len, Relaxed);
        let charge = Charge { used: Arc::clone(&self.used), bytes: len };
        if before.saturating_add(len) > self.most.load(Relaxed) {
            return None;
        }
        Some((self.pool.try_take(len)?, charge))
    }

    /// Fills a chunk from the caller's memory. Returns how many bytes it copied. With `block`,
    /// computes the checksum of each block of this many bytes during the copy, which then goes to
    /// the processor's caches.
    pub(crate) fn fill<'m>(
        &self,
        chunk: &mut Chunk,
        memory: &mut (impl CallerMemory<'m> + ?Sized),
        faults: Faults,
        block: Option<usize>,
        to: CopyTo,
    ) -> usize {
        let mut done = 0;
        chunk.checksums.clear();
        'blocks: for bytes in chunk.buf.chunks_mut(block.unwrap_or(usize::MAX)) {
            let mut crc = !0;
            let is_near = block.is_some() || to == CopyTo::Near;
            let piece = if is_near { PIECE } else { usize::MAX };
            for piece in bytes.chunks_mut(piece) {
                let n = memory.copy_out(piece, faults);
                done += n;
                if n < piece.len() {
                    break 'blocks;
                }
                if block.is_some() {
                    crc = crc32c(crc, piece);
                }
            }
            chunk.checksums.extend(block.map(|_| crc));
        }
        self.stats.copied.fetch_add(done as u64, Relaxed);
        done
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use extant_blockdev::{SharedCursor, SharedMemory, Source};

    #[test]
    fn a_chunk_halves_down_to_a_page_when_memory_is_short() {
        let chunks = Chunks::new(1 << 20);
        let whole = chunks.take(3 << 20, 4096).unwrap();
        assert_eq!(whole.buf.len(), CHUNK_MAX);
        assert!(matches!(chunks.take(CHUNK_MAX, 4096), Err(Error::NoMemory)));
        drop(whole);
        for (left, want, got) in
            [(700 << 10, 1 << 20, 512 << 10), (5000, 1 << 20, 4096), (100_000, 90_000, 90_000)]
        {
            chunks.limit(left);
            assert_eq!(chunks.take(want, 512).unwrap().buf.len(), got, "{want} of {left}");
        }
        chunks.limit(4095);
        assert!(matches!(chunks.take(4096, 512), Err(Error::NoMemory)));
        chunks.limit(65_535);
        assert!(matches!(chunks.take(1 << 20, 65_536), Err(Error::NoMemory)));
        chunks.limit(usize::MAX);
        let used = chunks.used.load(Relaxed);
        assert_eq!(used, 0, "what is dropped is given back");
    }

    #[test]
    fn a_checksum_matches_its_block_while_the_callers_memory_changes() {
        let chunks = Chunks::new(1 << 20);
        let memory = Arc::new(SharedMemory::zeroed(65_536));
        let ends = AtomicUsize::new(0);
        std::thread::scope(|scope| {
            scope.spawn(|| {
                let mut n = 0;
                while ends.load(Relaxed) == 0 {
                    memory.store(n % 65_536, n as u64);
                    n += 8;
                }
            });
            for _ in 0..200 {
                let mut chunk = chunks.take(65_536, 512).unwrap();
                let mut cursor = SharedCursor::new(Arc::clone(&memory), 0, 65_536);
                assert_eq!(
                    chunks.fill(&mut chunk, &mut cursor, Faults::Off, Some(4096), CopyTo::Past),
                    65_536
                );
                let want: Vec<u32> =
                    chunk.buf.chunks(4096).map(|block| crc32c(!0, block)).collect();
                assert_eq!(chunk.checksums, want);
            }
            ends.store(1, Relaxed);
        });
    }

    #[test]
    fn blocks_are_checksummed_during_the_only_copy() {
        let chunks = Chunks::new(1 << 20);
        let bytes: Vec<u8> = (0..65_536u32).map(|n| (n * 31) as u8).collect();
        for block in [1024, 4096, 65_536] {
            let before = chunks.stats().copied_bytes;
            let mut chunk = chunks.take(65_536, 512).unwrap();
            let mut source = Source::new(&bytes);
            let n = chunks.fill(&mut chunk, &mut source, Faults::Off, Some(block), CopyTo::Past);
            assert_eq!((n, &chunk.buf[..]), (65_536, &bytes[..]));
            let want: Vec<u32> = bytes.chunks(block).map(|block| crc32c(!0, block)).collect();
            assert_eq!(chunk.checksums, want);
            assert_eq!(chunks.stats().copied_bytes - before, 65_536);
        }
    }
}
