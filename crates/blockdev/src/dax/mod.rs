//! A device's bytes as memory (DAX): stores need no I/O, and become durable by cache-line
//! write-back.
//!
//! ```text
//!   store ──► cache of the CPU ──write_back──► started ──fence──► in its `persistence_domain`
//!             the CPU may evict a line at any time. Until the fence any line may be lost, and of
//!             one line any of its 8-byte words; a word is never torn
//!
//!                          file with DAX (MAP_SYNC)     any other file, tmpfs      MemoryDevice
//!   DaxMode::Never         no window                    no window                  Power
//!   DaxMode::IfDurable     Power                        no window                  (lost with
//!   DaxMode::Always        Power                        ProcessCrash               its process)
//! ```
//!
//! A window onto a file that is not in persistent memory is memory of the page cache. Writing lines
//! back moves them to RAM, which survives the end of the process but not a power cut. A caller that
//! needs more writes to the device and flushes it.
//!
//! # A file that shrinks under its window
//! An access to a page past the end of the file kills the process (SIGBUS). Three measures prevent
//! it: the lock of [`FileOptions`](crate::FileOptions) keeps out every program that uses locks;
//! each store and load first checks the file's length, and fails if the file was cut; the file's
//! space is reserved when the window opens. Two cases remain: a program that ignores the lock cuts
//! the file between the check and the copy, and memory that fails. A block device that is removed
//! ends the process, too.

mod cpu;
mod map;

pub(crate) use map::map_file;

use crate::range::check_range;
use extant_base::{ByteOffset, IoOp, Result};
use std::fmt;

/// Bytes that a CPU cache writes back as one line.
pub const LINE_BYTES: u64 = 64;

/// A range of a device's bytes, accessible as memory. All offsets count from its start. A range
/// that does not lie wholly inside is an error, and nothing is moved.
///
/// Concurrent stores and loads of overlapping ranges may mix, in units of 8-byte words. Ranges that
/// do not overlap do not affect each other, even where they share a word.
pub trait Dax: Send + Sync {
    /// The length in bytes.
    fn len(&self) -> u64;

    /// Whether the window holds no byte.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Stores `bytes` at `at`. Every reader of the device sees them at once. They are durable after
    /// [`write_back`](Dax::write_back) and [`fence`](Dax::fence). An 8-byte word is never torn.
    ///
    /// # Errors
    /// `Device` when the bytes can no longer be accessed, for example because the file was cut.
    fn store(&self, at: u64, bytes: &[u8]) -> Result<()>;

    /// Fills `buf` with the bytes from `at` on.
    fn load(&self, at: u64, buf: &mut [u8]) -> Result<()>;

    /// Starts the write-back of the cache lines of a range.
    fn write_back(&self, at: u64, len: u64) -> Result<()>;

    /// Waits until every write-back started before has reached
    /// [`persistence_domain`](Dax::persistence_domain).
    fn fence(&self) -> Result<()>;

    /// What bytes survive after they were stored, written back and fenced.
    fn persistence_domain(&self) -> PersistenceDomain;

    /// The instruction by which lines are written back.
    fn way(&self) -> Way;
}

/// What stored bytes survive. Ordered: a later value includes the earlier one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum PersistenceDomain {
    /// The end of the process for whatever reason, but neither a crash of the system nor a power
    /// cut.
    ProcessCrash,
    /// A power cut.
    Power,
}

/// How lines are written back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Way {
    /// CLWB: the line may stay in the cache.
    Clwb,
    /// CLFLUSHOPT: the line leaves the cache.
    ClflushOpt,
    /// CLFLUSH: the line leaves the cache; lines are written back one after the other.
    Clflush,
    /// No write-back is needed: the device is memory of this process.
    Memory,
}

impl fmt::Display for Way {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Way::Clwb => "clwb",
            Way::ClflushOpt => "clflushopt",
            Way::Clflush => "clflush",
            Way::Memory => "memory",
        })
    }
}

/// Whether a file's bytes may be accessed as memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum DaxMode {
    /// No.
    Never,
    /// Where a fence makes stores survive a power cut (`MAP_SYNC`).
    #[default]
    IfDurable,
    /// Wherever the system can map the file; see [`Dax::persistence_domain`].
    Always,
}

/// Fails unless `len` bytes from `at` on lie within a window of `window_len` bytes.
pub(crate) fn check_window(op: IoOp, window_len: u64, at: u64, len: u64) -> Result<()> {
    check_range(op, window_len, ByteOffset(at), len)
}

#[cfg(test)]
mod tests;
