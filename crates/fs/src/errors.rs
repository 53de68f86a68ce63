//! Damage met while the volume is open: noted, told, written down, and fenced off.
//!
//! ```text
//!   a public call ──► … ──► Corrupt ──► noting ──► note_error ─┬─► the caller's hook
//!   a part passed over ─────────────────────────────┘          ├─► errors=remount-ro: no more changes
//!                                                              └─► notes ──► superblock, under a
//!                                                                            handle: at the end of
//!                                                                            the call, sync, close
//! ```
//!
//! The superblock then says ERROR, how often, and of the first and last error since a checker ran:
//! when, which inode and block, and which check failed (in the field for the function's name).

use crate::superblock::SUPERBLOCK_CREDITS;
use crate::volume::Volume;
use extant_base::lock::{Mutex, Rank};
use extant_base::{Error, Result, Site, What};
use extant_journal::Credits;
use extant_ondisk::superblock::{ErrorPolicy, ErrorRecord, Superblock, VolumeState};
use std::fmt;
use std::sync::Arc;

/// The codes of an error record: a checksum that does not match, and other damage.
const BAD_CHECKSUM: u8 = 4;
const CORRUPTED: u8 = 5;

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
pub(crate) struct ErrorNotes {
    notes: Mutex<Notes>,
    hook: Option<ErrorHook>,
}

#[derive(Default)]
struct Notes {
    seen: u32,
    /// Not in the superblock yet.
    pending: u32,
    first: ErrorRecord,
    last: ErrorRecord,
}

impl ErrorNotes {
    pub(crate) fn new(hook: Option<ErrorHook>) -> ErrorNotes {
        ErrorNotes { notes: Mutex::new(Rank::Leaf, Notes::default()), hook }
    }

    fn is_pending(&self) -> bool {
        self.notes.lock().pending > 0
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

impl Volume {
    /// Notes that damage was met: the volume is marked as having errors when it is next written,
    /// and with `errors=remount-ro` changes no more. Other errors are no damage.
    ///
    /// Locks: takes `Leaf`.
    pub(crate) fn note_error(&self, error: &Error) {
        let Error::Corrupt { what, at } = error else { return };
        let record = record(*what, *at, self.environment.now().sec);
        {
            let mut notes = self.errors.notes.lock();
            if notes.pending == 0 {
                notes.first = record;
            }
            notes.seen = notes.seen.saturating_add(1);
            notes.pending = notes.pending.saturating_add(1);
            notes.last = record;
        }
        if self.at_open.errors != ErrorPolicy::CONTINUE {
            self.mode.fence();
        }
        if let Some(ErrorHook(tell)) = &self.errors.hook {
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

    /// Runs what a caller asked for. Damage that it answers with is noted and written down: every
    /// public call goes through here, or through one that does.
    ///
    /// Locks: none may be held.
    pub(crate) fn noting<T>(&self, ask: impl FnOnce() -> Result<T>) -> Result<T> {
        let done = ask();
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

    fn has_noted(&self) -> bool {
        self.errors.notes.lock().seen > 0
    }

    /// Writes notes that are not in the superblock yet.
    ///
    /// Errors: `Device`, `Aborted`. Locks: takes a handle, then `Superblock`.
    pub(crate) fn write_errors(&self) -> Result<()> {
        if !self.mode.is_open_to_write() || !self.errors.is_pending() {
            return Ok(());
        }
        let handle = self.journal.start(Credits::blocks(SUPERBLOCK_CREDITS))?;
        self.change_superblock(&handle, |sb| self.errors.put_into(sb))?;
        handle.stop()
    }

    /// How often damage was met since the volume was opened.
    #[cfg(test)]
    pub(crate) fn errors_seen(&self) -> u32 {
        self.errors.notes.lock().seen
    }

    /// Forgets what was noted, for a test whose damage is mended.
    #[cfg(test)]
    pub(crate) fn forget_errors(&self) {
        *self.errors.notes.lock() = Notes::default();
    }
}

fn record(what: What, at: Site, now: i64) -> ErrorRecord {
    let name = what.name();
    let mut func = [0; 32];
    // The last byte stays NUL.
    let len = name.len().min(func.len() - 1);
    func[..len].copy_from_slice(&name.as_bytes()[..len]);
    ErrorRecord {
        // 0 stands for no error.
        time: u64::try_from(now).unwrap_or(0).max(1),
        ino: at.ino.map_or(0, |ino| ino.get()),
        block: at.block.map_or(0, |block| block.0),
        func,
        line: 0,
        code: if name.ends_with("Checksum") { BAD_CHECKSUM } else { CORRUPTED },
    }
}
