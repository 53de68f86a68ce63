//! A device's bytes as memory: stored without I/O, durable by lines of the CPU's cache.
//!
//! ```text
//!   store ──► cache of the CPU ──write_back──► on the way ──fence──► as safe as `persistence_domain` says
//!             a line goes by itself, or not at all: until the fence any of them may be lost,
//!             and of one line any words of 8 bytes; a word is never torn
//!
//!                          file with DAX (MAP_SYNC)     any other file, tmpfs      MemoryDevice
//!   DaxMode::Never         no window                    no window                  Power
//!   DaxMode::IfDurable     Power                        no window                  (it dies with
//!   DaxMode::Always        Power                        ProcessCrash               its process)
//! ```
//!
//! A window offered for a file that is not persistent memory is memory of the page cache: writing lines
//! back moves them to RAM, which outlives the process and not the power. Whoever needs more
//! there writes and flushes.
//!
//! # A file that shrinks under its window
//! Touching a page behind the end of its file kills the process (SIGBUS). The lock of
//! [`FileOptions`](crate::FileOptions) keeps everybody out who asks for it; before each store and load
//! the file's length is looked at, and one that was cut answers with an error; its space is reserved
//! when the window opens. What is left is a file cut between that look and the copy, by somebody who
//! ignored the lock, and memory that fails. A block device that goes away ends the same way.

mod cpu;
mod map;
mod views;

pub(crate) use map::map_file;
pub(crate) use views::{FaultyDax, FencedDax, MemoryDax, RecordedDax};

use crate::device::check_range;
use extant_base::{ByteOffset, IoOp, Result};
use std::fmt;

/// Bytes that a cache writes back as one.
pub const LINE_BYTES: u64 = 64;

/// A range of a device's bytes, reachable as memory. All offsets count from its start; a range that
/// does not lie wholly inside is an error and nothing moves.
///
/// Stores and loads of overlapping ranges from several threads may mix, by words of 8 bytes. Ranges that do not overlap
/// do not disturb each other, also where they share a word.
pub trait Dax: Send + Sync {
    /// The length in bytes.
    fn len(&self) -> u64;

    /// Whether the window holds no byte.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Puts `bytes` at `at`: seen by every reader of the device at once, durable after
    /// [`write_back`](Dax::write_back) and [`fence`](Dax::fence). A word of 8 bytes is never torn.
    ///
    /// Errors: `Device`, when the bytes are no longer there to be stored to.
    fn store(&self, at: u64, bytes: &[u8]) -> Result<()>;

    /// Fills `buf` with the bytes from `at` on.
    fn load(&self, at: u64, buf: &mut [u8]) -> Result<()>;

    /// Sends the cache lines of a range on their way.
    fn write_back(&self, at: u64, len: u64) -> Result<()>;

    /// Waits until everything sent on its way before is where [`persistence_domain`](Dax::persistence_domain) says.
    fn fence(&self) -> Result<()>;

    /// What bytes survive when they were stored, written back and fenced.
    fn persistence_domain(&self) -> PersistenceDomain;

    /// How lines are written back.
    fn way(&self) -> Way;
}

/// What survives. Ordered: the later one includes the earlier.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum PersistenceDomain {
    /// The end of the process, whatever ends it; not the loss of power, nor of the system.
    ProcessCrash,
    /// The loss of power.
    Power,
}

/// By what lines are written back.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Way {
    /// CLWB: the line may stay in the cache.
    Clwb,
    /// CLFLUSHOPT: the line leaves the cache.
    ClflushOpt,
    /// CLFLUSH: the line leaves the cache, one after the other.
    Clflush,
    /// Nothing needs to be written back: the device is memory of this process.
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

/// Whether a file's bytes may be reached as memory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum DaxMode {
    /// No.
    Never,
    /// Where that is durable against the loss of power: `MAP_SYNC`.
    #[default]
    IfDurable,
    /// Wherever the system can map the file; see [`Dax::persistence_domain`].
    Always,
}

/// Fails unless `len` bytes from `at` on lie within a window of `window_len` bytes.
fn check_window(op: IoOp, window_len: u64, at: u64, len: u64) -> Result<()> {
    check_range(op, window_len, ByteOffset(at), len)
}

/// The parts of a range that lie in one line each, as (start, length).
pub(crate) fn lines(at: u64, len: u64) -> impl Iterator<Item = (u64, u64)> {
    let end = at + len;
    let mut pos = at;
    std::iter::from_fn(move || {
        (pos < end).then(|| {
            let start = pos;
            pos = end.min((pos / LINE_BYTES + 1) * LINE_BYTES);
            (start, pos - start)
        })
    })
}

#[cfg(test)]
mod tests;
