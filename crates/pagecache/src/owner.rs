//! What the cache asks of the layers around it.

use crate::file::FileCache;
use extant_base::Result;
use std::ops::Range;
use std::sync::Arc;

/// What becomes of folios after their use.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Use {
    /// They stay until the room is needed.
    #[default]
    Keep,
    /// They leave once they are read or written back ("don't cache"), unless somebody else used
    /// them meanwhile.
    DropBehind,
}

/// How many bytes one call of [`Owner::write_back`] is to write. A number, or more as it goes on: a
/// call that ended would leave the device idle until the next one has found its first bytes.
pub trait Demand: Sync {
    /// How many bytes are wanted in all, now that `begun` of them are on their way or written. Asked
    /// with `begun` 0 first, then each time when it reaches the answer, under no lock but the file's
    /// own.
    fn wanted(&self, begun: u64) -> u64;

    /// How many transfers of the call may be under way at a time, now, of the `most` that the engine
    /// would have: one at least.
    fn flights(&self, most: usize) -> usize {
        most
    }
}

impl Demand for u64 {
    fn wanted(&self, _: u64) -> u64 {
        *self
    }
}

/// The engine, as the cache's own threads see it. Called with no lock held.
pub trait Owner: Send + Sync {
    /// Writes dirty bytes of `range` of `file` back, in order, about as many as `demand` says, and
    /// waits for them. How many bytes were written.
    fn write_back(
        &self,
        file: &Arc<FileCache>,
        range: Range<u64>,
        demand: &dyn Demand,
    ) -> Result<u64>;

    /// Reads `range` into the cache ahead of its reader ([`FileCache::populate`]). Errors are
    /// swallowed: the reader meets them.
    fn read_ahead(&self, file: &Arc<FileCache>, range: Range<u64>, how: Use);
}

/// Where bytes that are not in the cache come from. The caller holds the inode's lock, shared at
/// least, for as long as the cache may call.
pub trait Fill {
    /// Fills `buf`, whole blocks from byte `offset` on; holes, unwritten blocks and bytes past the
    /// file's end are zeros. Calls `backed` with the byte ranges in which blocks are allocated,
    /// written or not.
    fn fill(&self, offset: u64, buf: &mut [u8], backed: &mut dyn FnMut(Range<u64>)) -> Result<()>;
}

/// Bytes that a caller writes.
pub trait Source {
    /// Bytes that are left to copy.
    fn len(&self) -> usize;

    /// Whether nothing is left.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Copies the next `to.len()` bytes, which are no more than [`Source::len`]. Fewer is a short
    /// copy (a fault in the caller's memory): nothing after it is asked for.
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
