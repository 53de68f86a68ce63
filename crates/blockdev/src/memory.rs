//! A device in memory that stores only what was written.
//!
//! ```text
//!   0        64 KiB    128 KiB                                     64 TiB
//!   ├──────────┼──────────┼──────────┼─ … ──┼──────────┼─ … ─────────┤
//!   │  chunk   │   hole   │  chunk   │      │  chunk   │    holes    │   holes read as zeros
//!   └──────────┴──────────┴──────────┴─ … ──┴──────────┴─ … ─────────┘
//!   chunk n lies in shard n mod 64, each with a readers-writer lock
//! ```
//!
//! Chunks are shared until written: a clone is a snapshot that costs one pointer a chunk.

use crate::dax::{Dax, PersistenceDomain, Way, check_window};
use crate::device::BlockDevice;
use crate::range::check_range;
use extant_base::{ByteOffset, IoOp, Result};
use parking_lot::RwLock;
use std::collections::HashMap;
use std::fmt;
use std::ops::Range;
use std::sync::Arc;

const CHUNK_LOG2: u32 = 16;
const CHUNK: usize = 1 << CHUNK_LOG2;
const SHARDS: usize = 64;

type Shard = RwLock<HashMap<u64, Arc<Vec<u8>>>>;

/// A sparse device in memory. Threads run in parallel where they use different chunks.
pub struct MemoryDevice {
    len: u64,
    shards: Arc<[Shard]>,
}

impl MemoryDevice {
    /// A device of `len` bytes, all zero. Bytes that were never written take no memory.
    pub fn new(len: u64) -> MemoryDevice {
        MemoryDevice { len, shards: (0..SHARDS).map(|_| Shard::default()).collect() }
    }

    /// A device that holds `bytes`.
    pub fn from_bytes(bytes: &[u8]) -> MemoryDevice {
        let device = MemoryDevice::new(bytes.len() as u64);
        for (chunk, bytes) in bytes.chunks(CHUNK).enumerate() {
            device.put_chunk(chunk as u64, bytes);
        }
        device
    }

    /// A copy of all that `source` holds; its zeros take no memory.
    ///
    /// # Errors
    /// Those of reading `source`.
    pub fn copy_of<D: BlockDevice + ?Sized>(source: &D) -> Result<MemoryDevice> {
        let device = MemoryDevice::new(source.len());
        let mut buf = vec![0; CHUNK];
        for piece in pieces(0, device.len) {
            let buf = &mut buf[..piece.within.len()];
            source.read_at(ByteOffset(piece.chunk << CHUNK_LOG2), buf)?;
            device.put_chunk(piece.chunk, buf);
        }
        Ok(device)
    }

    /// Memory that chunks use, in bytes. A chunk that clones share counts in each of them.
    pub fn held_bytes(&self) -> u64 {
        self.shards.iter().map(|shard| (shard.read().len() * CHUNK) as u64).sum()
    }

    /// Places `bytes` at the start of a chunk that is not allocated yet.
    fn put_chunk(&self, chunk: u64, bytes: &[u8]) {
        if bytes.iter().any(|byte| *byte != 0) {
            let mut whole = bytes.to_vec();
            whole.resize(CHUNK, 0);
            self.shard(chunk).write().insert(chunk, Arc::new(whole));
        }
    }

    fn shard(&self, chunk: u64) -> &Shard {
        &self.shards[chunk as usize % SHARDS]
    }
}

impl BlockDevice for MemoryDevice {
    fn len(&self) -> u64 {
        self.len
    }

    fn read_at(&self, at: ByteOffset, buf: &mut [u8]) -> Result<()> {
        check_range(IoOp::Read, self.len, at, buf.len() as u64)?;
        let mut rest = buf;
        for piece in pieces(at.0, rest.len() as u64) {
            let (into, after) = rest.split_at_mut(piece.within.len());
            match self.shard(piece.chunk).read().get(&piece.chunk) {
                Some(chunk) => into.copy_from_slice(&chunk[piece.within]),
                None => into.fill(0),
            }
            rest = after;
        }
        Ok(())
    }

    fn write_at(&self, at: ByteOffset, buf: &[u8]) -> Result<()> {
        check_range(IoOp::Write, self.len, at, buf.len() as u64)?;
        let mut rest = buf;
        for piece in pieces(at.0, rest.len() as u64) {
            let (from, after) = rest.split_at(piece.within.len());
            let mut shard = self.shard(piece.chunk).write();
            let chunk = shard.entry(piece.chunk).or_insert_with(|| Arc::new(vec![0; CHUNK]));
            Arc::make_mut(chunk)[piece.within].copy_from_slice(from);
            rest = after;
        }
        Ok(())
    }

    fn flush(&self) -> Result<()> {
        Ok(())
    }

    /// Frees the memory of whole chunks. The range reads as zeros.
    fn discard(&self, at: ByteOffset, len: u64) -> Result<()> {
        check_range(IoOp::Discard, self.len, at, len)?;
        self.zero(at, len)
    }

    /// Frees the memory of whole chunks.
    fn zero(&self, at: ByteOffset, len: u64) -> Result<()> {
        check_range(IoOp::Write, self.len, at, len)?;
        // For a range of terabytes, walking the existing chunks takes less time than walking the
        // range.
        if len >> CHUNK_LOG2 > 1024 {
            let end = at.0 + len;
            let whole = at.0.div_ceil(CHUNK as u64)..end >> CHUNK_LOG2;
            for shard in self.shards.iter() {
                shard.write().retain(|chunk, _| !whole.contains(chunk));
            }
            self.zero_chunks(at.0, (whole.start << CHUNK_LOG2) - at.0);
            self.zero_chunks(whole.end << CHUNK_LOG2, end - (whole.end << CHUNK_LOG2));
        } else {
            self.zero_chunks(at.0, len);
        }
        Ok(())
    }

    /// Any range of the device.
    fn dax(&self, at: ByteOffset, len: u64) -> Option<Arc<dyn Dax>> {
        check_range(IoOp::Open, self.len, at, len).ok()?;
        let device = MemoryDevice { len: self.len, shards: Arc::clone(&self.shards) };
        Some(Arc::new(MemoryDax { device, at: at.0, len }))
    }
}

impl MemoryDevice {
    fn zero_chunks(&self, at: u64, len: u64) {
        for piece in pieces(at, len) {
            let mut shard = self.shard(piece.chunk).write();
            if piece.within.len() == CHUNK {
                shard.remove(&piece.chunk);
            } else if let Some(chunk) = shard.get_mut(&piece.chunk) {
                Arc::make_mut(chunk)[piece.within].fill(0);
            }
        }
    }
}

/// A snapshot: later writes to the device or to the clone are not visible in the other. Concurrent
/// writes may or may not be in the snapshot.
impl Clone for MemoryDevice {
    fn clone(&self) -> MemoryDevice {
        let shards = self.shards.iter().map(|shard| RwLock::new(shard.read().clone()));
        MemoryDevice { len: self.len, shards: shards.collect() }
    }
}

impl fmt::Debug for MemoryDevice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("MemoryDevice")
            .field("len", &self.len)
            .field("held_bytes", &self.held_bytes())
            .finish()
    }
}

/// The part of a range that lies in one chunk.
struct Piece {
    chunk: u64,
    within: Range<usize>,
}

/// Cuts `len` bytes from `at` on at the chunk borders. The range must not pass 2^64.
fn pieces(at: u64, len: u64) -> impl Iterator<Item = Piece> {
    let end = at + len;
    let mut pos = at;
    std::iter::from_fn(move || {
        if pos >= end {
            return None;
        }
        let start = pos as usize & (CHUNK - 1);
        let n = ((CHUNK - start) as u64).min(end - pos);
        let piece = Piece { chunk: pos >> CHUNK_LOG2, within: start..start + n as usize };
        pos += n;
        Some(piece)
    })
}

/// A part of a [`MemoryDevice`].
struct MemoryDax {
    device: MemoryDevice,
    at: u64,
    len: u64,
}

impl Dax for MemoryDax {
    fn len(&self) -> u64 {
        self.len
    }

    fn store(&self, at: u64, bytes: &[u8]) -> Result<()> {
        check_window(IoOp::Write, self.len, at, bytes.len() as u64)?;
        self.device.write_at(ByteOffset(self.at + at), bytes)
    }

    fn load(&self, at: u64, buf: &mut [u8]) -> Result<()> {
        check_window(IoOp::Read, self.len, at, buf.len() as u64)?;
        self.device.read_at(ByteOffset(self.at + at), buf)
    }

    fn write_back(&self, at: u64, len: u64) -> Result<()> {
        check_window(IoOp::Flush, self.len, at, len)
    }

    fn fence(&self) -> Result<()> {
        Ok(())
    }

    fn persistence_domain(&self) -> PersistenceDomain {
        PersistenceDomain::Power
    }

    fn way(&self) -> Way {
        Way::Memory
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_huge_device_holds_only_what_was_written() {
        let device = MemoryDevice::new(64 << 40);
        let end = (64 << 40) - 3;
        device.write_at(ByteOffset(end), b"end").unwrap();
        device.write_at(ByteOffset(CHUNK as u64 - 1), b"ab").unwrap();
        assert_eq!(device.held_bytes(), 3 * CHUNK as u64);
        let mut buf = [0; 3];
        device.read_at(ByteOffset(end), &mut buf).unwrap();
        assert_eq!(&buf, b"end");
        device.zero(ByteOffset(1), (64 << 40) - 1).unwrap();
        device.read_at(ByteOffset(end), &mut buf).unwrap();
        assert_eq!(buf, [0; 3]);
        assert!(device.held_bytes() <= 2 * CHUNK as u64);
    }

    #[test]
    fn a_clone_does_not_see_later_writes() {
        let device = MemoryDevice::from_bytes(b"before");
        let snapshot = device.clone();
        device.write_at(ByteOffset(0), b"behind").unwrap();
        let mut buf = [0; 6];
        snapshot.read_at(ByteOffset(0), &mut buf).unwrap();
        assert_eq!(&buf, b"before");
    }

    #[test]
    fn threads_write_side_by_side() {
        let device = MemoryDevice::new(8 << 20);
        std::thread::scope(|scope| {
            for thread in 0..8u8 {
                let device = &device;
                scope.spawn(move || {
                    for block in (u64::from(thread)..2048).step_by(8) {
                        device.write_at(ByteOffset(block * 4096), &[thread; 4096]).unwrap();
                    }
                });
            }
        });
        let mut buf = [0; 4096];
        for block in 0..2048 {
            device.read_at(ByteOffset(block * 4096), &mut buf).unwrap();
            assert_eq!(buf, [(block % 8) as u8; 4096]);
        }
    }

    #[test]
    fn a_copy_is_the_same_and_as_sparse() {
        let device = MemoryDevice::new(1 << 20);
        device.write_at(ByteOffset(700_000), b"here").unwrap();
        let copy = MemoryDevice::copy_of(&device).unwrap();
        let mut buf = [0; 4];
        copy.read_at(ByteOffset(700_000), &mut buf).unwrap();
        assert_eq!((&buf, copy.held_bytes()), (b"here", CHUNK as u64));
    }
}
