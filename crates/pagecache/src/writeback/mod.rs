//! Write-back: which files are written back when, by which thread, and how writers are limited.
//!
//! ```text
//!   a write call                          the flusher's threads
//!     │ Writeback::acquire_permit: Gate
//!     │ folios: Account, file_dirtied       next: 1   "write everything"   4 older than `expire`
//!     │ returned: Writeback::wrote                  2 drop-behind bytes    3 too much is dirty
//!     │    policy: one flag (Kick) ─────►    │
//!     │    pauses: Throttle       ◄─┐        ▼
//!     ▼                             │     DirtyList: which file, which part
//!   the caller                      │        ▼
//!                      Account::written ◄─ Owner::write_back: one file, some MiB in order
//! ```
//! A *visit* is one call of [`Owner::write_back`](crate::Owner::write_back) for one file.
//!
//! ## Guarantees
//!
//! - *Don't cache* is a hint. A marked folio leaves the cache after write-back, unless an ordinary
//!   reader or writer used it before. Nothing reports when it leaves. `fsync` waits for it as for
//!   any other data, and only `fsync` makes it durable.
//! - A kick does not flush the file that was written. The flusher writes as many bytes as are dirty
//!   and marked, from the oldest files, so it may write ordinary dirty data of other files first.
//!   Every other visit goes to a file that has marked bytes, so that marked bytes never wait for
//!   gigabytes of others.
//! - A visit is bounded, so every dirty file is reached. While no other file waits and bytes must
//!   be written, the visit continues past its bound: otherwise the device would be idle until the
//!   next visit has found its first bytes.
//! - While a thread reads from the device, the flusher has one write in flight, not sixteen
//!   (`readers`): the reader waits for its bytes, and a writer does not.
//! - The flusher continues while marked bytes are dirty, so none of them waits for a timer. The one
//!   exception is one page per file: the page that the last write call left unfinished. The flusher
//!   spares it for 50 ms after the last call that wrote to it (`dirty_list`).
//! - Marked bytes that are dirty or under write-back never exceed the cap, for writers that acquire
//!   a permit before the write (`gate`). All don't-cache writers are paused after the write from
//!   half of the cap on and wait at three quarters (`throttle`), so that the gate seldom blocks;
//!   pausing earlier would only make calls slower. Without the gate, `n` concurrent writers stay
//!   within the cap with calls of up to `cap / 4 / n` bytes.
//! - Ordinary data: from half of the dirty limit on, the flusher writes and writers are paused; at
//!   the limit writers wait. Data that has been dirty for `expire` is written in any case.
//! - A file that cannot be written stays dirty. The flusher retries after 100 ms and doubles the
//!   delay each time, up to 5 s. Each failed try calls [`DirtyFile::note_error`]. While every dirty
//!   file fails, a writer above a limit gets the error instead of waiting.
//!
//! ## Locks
//!
//! All locks here have rank `Leaf`. The locks of the list, the throttles, the gate and the event
//! count may be taken under any lock. Code that holds one of them takes at most these locks, and
//! code that holds those takes none.
//!
//! - under the list: the flusher's `write_all_since` and `failure`;
//! - under a throttle: `failure`;
//! - under the gate: `failure` and the event count.
//!
//! The cache holds no lock when it calls [`Owner::write_back`](crate::Owner::write_back).

mod account;
mod direct;
mod dirty_list;
mod flag;
mod flusher;
mod gate;
mod readers;
#[cfg(test)]
mod tests;
mod throttle;

pub(crate) use account::Account;
pub(crate) use dirty_list::FileState;
pub(crate) use flusher::Writeback;
pub use gate::WritePermit;

use crate::interface::Demand;
use extant_base::{Error, Result};
use std::ops::Range;
use std::sync::{Arc, OnceLock};
use std::time::{Duration, Instant};

/// The interface of a file towards write-back.
pub(crate) trait DirtyFile: Send + Sync + 'static {
    /// Whether the file has bytes that are dirty or under write-back. Takes no lock.
    fn is_dirty(&self) -> bool;
    /// Dirty bytes that are not under write-back. Takes no lock.
    fn dirty_bytes(&self) -> u64;
    /// Records an error for the file's openers.
    fn note_error(&self, error: &Error);
    /// The file's write-back state.
    fn state(&self) -> &Arc<FileState>;
}

/// Writes files of type `F`: an [`Owner`](crate::Owner), or a test's device.
pub(crate) trait WriteBack<F>: Send + Sync {
    /// See [`Owner::write_back`](crate::Owner::write_back).
    fn write_back(&self, file: &Arc<F>, range: Range<u64>, demand: &dyn Demand) -> Result<u64>;
}

/// `time` as a number: nanoseconds since write-back was first used in this process.
fn nanos(time: Instant) -> u64 {
    static BORN: OnceLock<Instant> = OnceLock::new();
    let born = *BORN.get_or_init(|| time);
    nanos_of(time.saturating_duration_since(born))
}

/// `time` in nanoseconds; a time of more than 500 years is the longest one.
fn nanos_of(time: Duration) -> u64 {
    u64::try_from(time.as_nanos()).unwrap_or(u64::MAX)
}

/// The integer part of `n`, which is not negative.
#[allow(clippy::cast_possible_truncation, clippy::cast_sign_loss)] // The cast saturates.
fn whole(n: f64) -> u64 {
    n as u64
}
