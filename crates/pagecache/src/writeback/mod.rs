//! Write-back: how many bytes are in which state, and who writes them when.
//!
//! ```text
//!   a write call                          the flusher's threads
//!     │ Flusher::make_room: Gate
//!     │ folios: Account, file_dirtied       look: 1 "write everything"   4 older than `expire`
//!     │ returned: Flusher::wrote                  2 drop-behind bytes owed   3 too much is dirty
//!     │    policy: one flag (Kick) ─────►    │
//!     │    brakes: Line           ◄─┐        ▼
//!     ▼                             │     DirtyList: whose turn, which part
//!   the caller                      │        ▼
//!                      Account::written ◄─ Owner::write_back: one file, some MiB in order
//! ```
//!
//! ## What is promised
//!
//! - *Don't cache* is a hint. A marked folio leaves when it was written back, unless an ordinary
//!   reader or writer found it before. When that is, nobody is told; `fsync` waits for it as for
//!   any other data, and only `fsync` makes it durable.
//! - A kick does not flush the file that was written. As many bytes are written as are dirty and
//!   marked, from the files that are oldest: ordinary dirty data of other files may be written
//!   first. Every other visit goes to a file that has marked bytes, so that they cannot stand
//!   behind gigabytes of others.
//! - A visit has an end, so that each file has its turn; while no other file waits and bytes are owed
//!   it goes on where it would end, for the device has nothing to do until a next visit has found its
//!   first bytes.
//! - While somebody reads from the device the flusher has one transfer under way, not sixteen
//!   (`readers`): who reads waits for his bytes, and a writer's are in memory.
//! - The flusher goes on while marked bytes are dirty, so none is left to a timer. One page per file
//!   is the exception, the one that a write call has left unfinished: it is spared for 50 ms after
//!   the last call that touched it (`dirty_list`).
//! - Marked bytes that are dirty or on their way stay within the cap, exactly, for writers that ask
//!   for room before a write (`gate`). All are braked after it, from half of the cap on, and wait at
//!   three quarters (`throttle`), so the gate seldom has to; brakes that begin earlier only make
//!   calls slower. Without the gate `n` writers at a time stay within the cap with calls of up to
//!   `cap / 4 / n` bytes.
//! - Ordinary data: the flusher begins at half of the dirty limit, and writers are braked; at the
//!   limit they wait. What has been dirty for `expire` is written in any case.
//! - A file that cannot be written stays dirty. It is tried again after 100 ms, and after twice as
//!   long each time, up to 5 s; [`FileCache::note_error`] is told of each try. While nothing but such
//!   files is dirty, writers above a limit get the error instead of waiting.
//!
//! ## Locks
//!
//! The list, the lines and the bell are innermost: nothing is locked inside them, so they may be
//! taken under any lock. [`Owner::write_back`] is called with none held.

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
pub use gate::Room;

use crate::file::FileCache;
use crate::owner::{Demand, Owner};
use extant_base::{Error, Result};
use std::ops::Range;
use std::sync::{Arc, OnceLock};
use std::time::Instant;

/// Write-back of a cache's files.
pub(crate) type Flusher = flusher::Writeback<FileCache>;

/// What write-back needs of a file.
pub(crate) trait DirtyFile: Send + Sync + 'static {
    /// Whether it has dirty bytes that are not on their way. Takes no lock.
    fn is_dirty(&self) -> bool;
    /// How many they are. Takes no lock.
    fn dirty_bytes(&self) -> u64;
    /// Keeps an error for the file's openers.
    fn note_error(&self, error: &Error);
    /// Write-back's own part of the file.
    fn state(&self) -> &Arc<FileState>;
}

impl DirtyFile for FileCache {
    fn is_dirty(&self) -> bool {
        FileCache::is_dirty(self)
    }

    fn dirty_bytes(&self) -> u64 {
        FileCache::dirty_bytes(self)
    }

    fn note_error(&self, error: &Error) {
        FileCache::note_error(self, error);
    }

    fn state(&self) -> &Arc<FileState> {
        &self.writeback
    }
}

/// Who writes files of kind `F`; an [`Owner`], or a test's device.
pub(crate) trait WriteBack<F>: Send + Sync {
    /// See [`Owner::write_back`].
    fn write_back(&self, file: &Arc<F>, range: Range<u64>, demand: &dyn Demand) -> Result<u64>;
}

impl WriteBack<FileCache> for Arc<dyn Owner> {
    fn write_back(
        &self,
        file: &Arc<FileCache>,
        range: Range<u64>,
        demand: &dyn Demand,
    ) -> Result<u64> {
        Owner::write_back(self.as_ref(), file, range, demand)
    }
}

/// `time` as a number: nanoseconds since write-back was first used in this process.
fn nanos(time: Instant) -> u64 {
    static BORN: OnceLock<Instant> = OnceLock::new();
    let born = *BORN.get_or_init(|| time);
    time.saturating_duration_since(born).as_nanos() as u64
}
