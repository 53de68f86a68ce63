//! What the layers around the cache pass to it: bytes, and how it uses them.

use extant_base::Result;
use std::ops::Range;

/// What the cache does with folios after their use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Use {
    /// The folios stay until reclaim needs their memory.
    #[default]
    Keep,
    /// The cache removes the folios once they are read or written back ("don't cache"), unless an
    /// ordinary reader or writer used them meanwhile.
    DropBehind,
}

/// How many bytes one call of [`Owner::write_back`](crate::Owner::write_back) writes. The number
/// may grow during the call: ending the call would leave the device idle until the next call has
/// found its first dirty bytes.
pub trait Demand: Sync {
    /// Total bytes that the call should write, given that `begun` of them are under write-back or
    /// written. `write_back` calls this first with `begun` = 0, then each time `begun` reaches the
    /// previous result. It holds no locks but the file's own.
    fn wanted(&self, begun: u64) -> u64;

    /// How many writes the call may have in flight now: at least 1. `most` is the engine's own
    /// maximum.
    fn writes_in_flight(&self, most: usize) -> usize {
        most
    }
}

impl Demand for u64 {
    fn wanted(&self, _: u64) -> u64 {
        *self
    }
}

/// The source of bytes that are not in the cache. The caller holds the inode lock, at least shared,
/// for as long as the cache may call this.
pub trait Fill {
    /// Fills `buf`, which is whole blocks, with the file's bytes from byte `offset` on. Holes,
    /// unwritten blocks and bytes past the end of file are zeros. Calls `backed` with the byte
    /// ranges in which blocks are allocated, whether written or unwritten.
    ///
    /// # Errors
    /// `Device` and `Corrupt` of the reads; the content of `buf` is then undefined.
    fn fill(&self, offset: u64, buf: &mut [u8], backed: &mut dyn FnMut(Range<u64>)) -> Result<()>;
}

/// The bytes of a write call.
pub trait Source {
    /// Bytes that remain to be copied.
    fn len(&self) -> usize;

    /// Whether no bytes remain.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Copies the next `to.len()` bytes, at most [`Source::len`]. Returns the number of bytes
    /// copied. A smaller number is a short copy (a fault in the caller's memory); the cache then
    /// does not call this again.
    fn copy_to(&mut self, to: &mut [u8]) -> usize;
}

impl Source for &[u8] {
    fn len(&self) -> usize {
        <[u8]>::len(self)
    }

    fn copy_to(&mut self, to: &mut [u8]) -> usize {
        let n = to.len().min(<[u8]>::len(self));
        let (now, later) = self.split_at(n);
        to[..n].copy_from_slice(now);
        *self = later;
        n
    }
}
