//! Damage met while the volume is open: noted, told, written down, and fenced off.
//!
//! ```text
//!   a public call ──► … ──► Corrupt ──► noting ──► note_error ─┬─► the caller's hook
//!   a part passed over ─────────────────────────────┘          ├─► errors=remount-ro: no more changes
//!                                                              └─► notes ──► superblock, under a
//!                                                                            handle: at the end of
//!                                                                            the call, sync, close
//!   journal gave up ──► abort_noted ──► superblock, directly and once: there is no handle any more
//! ```
//!
//! The superblock then says ERROR, how often, and of the first and last error since a checker ran:
//! when, which inode and block, and which check failed (in the field for the function's name).

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

/// What damage of a volume does that is met while it is open to write: the option `errors=` of Linux' ext4.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DamagePolicy {
    /// What the volume's superblock says.
    #[default]
    AsStored,
    /// Changes go on elsewhere in the volume.
    Continue,
    /// The volume takes no more changes.
    ReadOnly,
}

/// What an embedder wants to be told of: called for each damage that is met, from whatever thread
/// met it, and while locks are held. It must not call the volume.
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
    /// That the journal was aborted is on disk, or a write of that was tried.
    abort_noted: AtomicBool,
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
        Damage { notes, hook, abort_noted: AtomicBool::new(false), policy }
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

    /// Puts what is not there yet into the superblock.
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
    /// Notes that damage was met: the volume is marked as having errors when it is next written,
    /// and with `errors=remount-ro` changes no more. Other errors are no damage.
    ///
    /// Locks: takes `Leaf`.
    pub(crate) fn note_error(&self, error: &Error) {
        let Error::Corrupt { what, at } = error else { return };
        // Data or sums of it that went bad say nothing against the structures that a checker mends.
        if !matches!(what, What::DataChecksum | What::DataSumsChecksum) {
            self.damage.add(record(*what, *at, self.environment.now().sec));
            let goes_on = match self.damage.policy {
                DamagePolicy::AsStored => self.at_open.errors == ErrorPolicy::CONTINUE,
                DamagePolicy::Continue => true,
                DamagePolicy::ReadOnly => false,
            };
            if !goes_on {
                self.fence();
            }
        }
        self.tell(error);
    }

    fn tell(&self, error: &Error) {
        if let Some(ErrorHook(tell)) = &self.damage.hook {
            tell(error);
        }
    }

    /// Notes the damage that stopped a step which can be left half done; other errors are passed on.
    ///
    /// Locks: takes `Leaf`.
    pub(crate) fn pass_over(&self, done: Result<()>) -> Result<()> {
        match done {
            Err(error @ Error::Corrupt { .. }) => {
                self.note_error(&error);
                Ok(())
            }
            done => done,
        }
    }

    /// Runs what a caller asked for. Damage that it answers with is noted and written down, and of a write that the
    /// device refused is told: every public call goes through here, or through one that does.
    ///
    /// Locks: none may be held.
    pub(crate) fn noting<T>(&self, ask: impl FnOnce() -> Result<T>) -> Result<T> {
        let done = self.noting_abort(ask());
        if let Err(error @ Error::Device { op: IoOp::Write | IoOp::Flush, .. }) = &done {
            self.tell(error);
        }
        if let Err(error @ Error::Corrupt { .. }) = &done {
            let is_first = !self.has_noted();
            self.note_error(error);
            if is_first {
                // Whoever asked is told of the damage; a failure to write shows at the next sync.
                let _ = self.write_errors();
            }
        }
        done
    }

    /// Passes on what came of something that a failed write may have ended: that the journal gave up
    /// is written down.
    ///
    /// The primary superblock on the device gets the error state and the record, directly, as Linux
    /// does it; the log's superblock has its errno. Once, and nobody is told if the device fails
    /// that too. Rule D13: a sector at a time, each under a right checksum. Locks: takes `Mount`, then `Superblock`; none may be held.
    pub(crate) fn noting_abort<T>(&self, done: Result<T>) -> Result<T> {
        // Before the volume was announced nothing of it was changed.
        if done.is_ok() || !self.journal.is_aborted() || !self.is_announced() {
            return done;
        }
        if self.damage.abort_noted.swap(true, Ordering::Relaxed) || self.is_hold_lost() {
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
        // Of the rest the device may have an older state, which belongs to what the log replays.
        let _ = patch_errors(&*self.device, |sb| {
            sb.state.insert(VolumeState::ERROR);
            sb.error_count = now.error_count;
            (sb.first_error, sb.last_error) = (now.first_error, now.last_error);
        });
        done
    }

    fn has_noted(&self) -> bool {
        self.damage.notes.lock().seen > 0
    }

    /// Writes notes that are not in the superblock yet.
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

    /// Forgets what was noted, for a test whose damage is mended.
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
    // The last byte stays NUL.
    let len = name.len().min(func.len() - 1);
    func[..len].copy_from_slice(&name.as_bytes()[..len]);
    // 0 stands for no error.
    let time = u64::try_from(now).unwrap_or(0).max(1);
    ErrorRecord { time, func, ..ErrorRecord::default() }
}
