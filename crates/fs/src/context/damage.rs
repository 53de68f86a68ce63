//! Damage met while the volume is open: it is noted, reported, written to the superblock, and can
//! stop all further changes.
//!
//! ```text
//!   a public call ──► … ──► Corrupt ──► recording_errors ──► note_error ─┬─► the caller's hook
//!   a damaged part that is skipped ──► skip_damage ──────────┘           ├─► errors=remount-ro:
//!                                                                        │   no changes
//!                                                                        └─► notes
//!   notes ──► superblock, under a handle: at the end of the call, sync, close
//!   journal aborted ──► abort_recorded ──► superblock, directly and once, without a handle
//! ```
//!
//! The superblock then has the ERROR state, the number of errors, and the first and last error
//! since a checker ran: time, inode, block, and the check that failed (in the field for the
//! function's name).

use crate::context::Context;
use crate::context::superblock::{SUPERBLOCK_CREDITS, patch_errors};
use extant_base::lock::{Mutex, Rank};
use extant_base::{Error, IoOp, Result, Site, What};
use extant_journal::Credits;
use extant_ondisk::superblock::{ErrorPolicy, ErrorRecord, Superblock, VolumeState};
use std::fmt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// The codes of an error record: a failed write, a checksum that does not match, other damage.
const FAILED_WRITE: u8 = 2;
const BAD_CHECKSUM: u8 = 4;
const CORRUPTED: u8 = 5;

/// How a volume that is open for writing reacts to damage: the option `errors=` of Linux' ext4.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DamagePolicy {
    /// As the volume's superblock says.
    #[default]
    AsStored,
    /// Changes elsewhere in the volume continue.
    Continue,
    /// The volume takes no more changes.
    ReadOnly,
}

/// The embedder's callback for damage. The thread that meets the damage calls it, and may hold
/// locks during the call. It must not call the volume.
#[derive(Clone)]
pub(crate) struct ErrorHook(pub(crate) Arc<dyn Fn(&Error) + Send + Sync>);

impl fmt::Debug for ErrorHook {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ErrorHook")
    }
}

/// Damage met since the volume was opened.
pub(crate) struct Damage {
    notes: Mutex<Notes>,
    hook: Option<ErrorHook>,
    /// The abort of the journal is recorded on disk, or a write of it was tried.
    abort_recorded: AtomicBool,
    policy: DamagePolicy,
}

#[derive(Default)]
struct Notes {
    seen: u32,
    /// Not in the superblock yet.
    pending: u32,
    first: ErrorRecord,
    last: ErrorRecord,
}

impl Damage {
    pub(super) fn new(hook: Option<ErrorHook>, policy: DamagePolicy) -> Damage {
        let notes = Mutex::new(Rank::Leaf, Notes::default());
        Damage { notes, hook, abort_recorded: AtomicBool::new(false), policy }
    }

    fn is_pending(&self) -> bool {
        self.notes.lock().pending > 0
    }

    fn add(&self, record: ErrorRecord) {
        let mut notes = self.notes.lock();
        if notes.pending == 0 {
            notes.first = record;
        }
        notes.seen = notes.seen.saturating_add(1);
        notes.pending = notes.pending.saturating_add(1);
        notes.last = record;
    }

    /// Puts the pending notes into the superblock.
    pub(crate) fn put_into(&self, sb: &mut Superblock) {
        let mut notes = self.notes.lock();
        if notes.pending == 0 {
            return;
        }
        sb.state.insert(VolumeState::ERROR);
        sb.error_count = sb.error_count.saturating_add(std::mem::take(&mut notes.pending));
        if sb.first_error.time == 0 {
            sb.first_error = notes.first;
        }
        sb.last_error = notes.last;
    }
}

impl Context {
    /// Notes damage. The volume is marked as having errors when the superblock is next written;
    /// with `errors=remount-ro` it accepts no more changes. Errors other than `Corrupt` are
    /// ignored.
    ///
    /// Locks: takes `Leaf`.
    pub(crate) fn note_error(&self, error: &Error) {
        let Error::Corrupt { what, at } = error else { return };
        // Bad data, or a bad checksum of data, says nothing about the structures that a checker
        // repairs.
        if !matches!(what, What::DataChecksum | What::DataSumsChecksum) {
            self.damage.add(record(*what, *at, self.environment.now().sec));
            let continues = match self.damage.policy {
                DamagePolicy::AsStored => self.at_open.errors == ErrorPolicy::CONTINUE,
                DamagePolicy::Continue => true,
                DamagePolicy::ReadOnly => false,
            };
            if !continues {
                self.stop_changes();
            }
        }
        self.report(error);
    }

    fn report(&self, error: &Error) {
        if let Some(ErrorHook(report)) = &self.damage.hook {
            report(error);
        }
    }

    /// Notes the damage that stopped a step, if the step may be left half done. Returns other
    /// errors.
    ///
    /// Locks: takes `Leaf`.
    pub(crate) fn skip_damage(&self, done: Result<()>) -> Result<()> {
        match done {
            Err(error @ Error::Corrupt { .. }) => {
                self.note_error(&error);
                Ok(())
            }
            done => done,
        }
    }

    /// Runs the operation of a caller. If it returns damage, the damage is noted and written to the
    /// superblock. If the device refused a write or flush, the hook is called. Every public call
    /// goes through this function, or through one that does.
    ///
    /// Locks: none may be held.
    pub(crate) fn recording_errors<T>(&self, operation: impl FnOnce() -> Result<T>) -> Result<T> {
        let done = self.recording_abort(operation());
        if let Err(error @ Error::Device { op: IoOp::Write | IoOp::Flush, .. }) = &done {
            self.report(error);
        }
        if let Err(error @ Error::Corrupt { .. }) = &done {
            let is_first = !self.has_errors_recorded();
            self.note_error(error);
            if is_first {
                // The caller gets the damage. A failed write of the note shows at the next sync.
                let _ = self.write_errors();
            }
        }
        done
    }

    /// Returns `done`. If a failed write aborted the journal, records the abort in the superblock
    /// first.
    ///
    /// The primary superblock on the device gets the error state and the record, directly, as in
    /// Linux. The log's superblock has the errno. This happens once; an error of this write is not
    /// reported. Rule D13: one sector at a time, each time with a right checksum. Locks: takes
    /// `Mount`, then `Superblock`; none may be held.
    pub(crate) fn recording_abort<T>(&self, done: Result<T>) -> Result<T> {
        // Nothing on the volume was changed before the volume was announced.
        if done.is_ok() || !self.journal.is_aborted() || !self.is_announced() {
            return done;
        }
        if self.damage.abort_recorded.swap(true, Ordering::Relaxed) || self.is_hold_lost() {
            return done;
        }
        self.damage.add(ErrorRecord {
            code: FAILED_WRITE,
            ..named_record("JournalAborted", self.environment.now().sec)
        });
        let now = {
            let mut sb = self.superblock.fields().write();
            self.damage.put_into(&mut sb);
            sb.clone()
        };
        // The other fields on the device may be older. They belong to the state that the log
        // replays.
        let _ = patch_errors(&*self.device, |sb| {
            sb.state.insert(VolumeState::ERROR);
            sb.error_count = now.error_count;
            (sb.first_error, sb.last_error) = (now.first_error, now.last_error);
        });
        done
    }

    fn has_errors_recorded(&self) -> bool {
        self.damage.notes.lock().seen > 0
    }

    /// Writes the pending notes to the superblock.
    ///
    /// Errors: `Device`, `Aborted`. Locks: takes a handle, then `Superblock`.
    pub(crate) fn write_errors(&self) -> Result<()> {
        if !self.is_open_to_write() || !self.damage.is_pending() {
            return Ok(());
        }
        let handle = self.journal.start(Credits::blocks(SUPERBLOCK_CREDITS))?;
        self.change_superblock(&handle, |sb| self.damage.put_into(sb))?;
        handle.stop()
    }

    /// How often damage was met since the volume was opened.
    #[cfg(test)]
    pub(crate) fn errors_seen(&self) -> u32 {
        self.damage.notes.lock().seen
    }

    /// Drops all notes, for a test that repaired its damage.
    #[cfg(test)]
    pub(crate) fn forget_errors(&self) {
        *self.damage.notes.lock() = Notes::default();
    }
}

fn record(what: What, at: Site, now: i64) -> ErrorRecord {
    let name = what.name();
    ErrorRecord {
        ino: at.ino.map_or(0, |ino| ino.get()),
        block: at.block.map_or(0, |block| block.0),
        code: if name.ends_with("Checksum") { BAD_CHECKSUM } else { CORRUPTED },
        ..named_record(name, now)
    }
}

fn named_record(name: &str, now: i64) -> ErrorRecord {
    let mut func = [0; 32];
    // Rule D13 needs the NUL and four bytes after it: `RawSuperblock::fit_checksum`.
    let len = name.len().min(func.len() - 5);
    func[..len].copy_from_slice(&name.as_bytes()[..len]);
    // A time of 0 means that there is no error.
    let time = u64::try_from(now).unwrap_or(0).max(1);
    ErrorRecord { time, func, ..ErrorRecord::default() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use extant_ondisk::superblock::RawSuperblock;

    #[test]
    fn a_recorded_name_leaves_the_bytes_that_keep_the_checksum_right() {
        for name in ["", "JournalAborted", "ANameOfTwentyEightCharacters", &"x".repeat(100)] {
            let mut raw = RawSuperblock::default();
            raw.set_checksum();
            raw.s_last_error_func = named_record(name, 1).func;
            assert!(raw.fit_checksum() && raw.checksum_is_right(), "{name}");
        }
    }
}
