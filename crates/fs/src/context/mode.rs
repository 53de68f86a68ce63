//! Whether the volume may be changed, and which state the superblock on disk shows.
//!
//! ```text
//!              with a journal                                without a journal
//!   open       RECOVER on, durable                           VALID off, durable
//!   close      counters into the log ─► log empty, flush     counters home, flush
//!              RECOVER off, durable                          VALID as before, durable
//! ```
//!
//! If the whole mount is one transaction, nothing changes at open: the first sync takes that step.
//!
//! Rule B5: if fsyncs go to the byte log, DAX_FC_BYTELOG is set and cleared together with RECOVER.
//!
//! Rule: a write that sets or clears RECOVER or VALID changes nothing else, apart from rule B5. A
//! power cut can tear such a write between two sectors; recovery can then recognise and repair it
//! (`recovery/torn.rs`). RECOVER is set before the log says that there is something to replay. It
//! is cleared after the log says that there is nothing to replay.

use crate::context::Context;
use crate::context::mmp::Hold;
use crate::context::superblock::patch_superblock;
use extant_base::lock::{Mutex, Rank};
use extant_base::{Error, Result};
use extant_ondisk::features::Incompat;
use extant_ondisk::superblock::{Superblock, VolumeState};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU8, Ordering};

const READ_ONLY: u8 = 0;
const WRITABLE: u8 = 1;
/// Was writable until the engine met an error, with `errors=remount-ro`.
const STOPPED: u8 = 2;
/// Was writable until it was closed.
const CLOSED: u8 = 3;

/// Whether a volume may be changed now, and whether its superblock says that it is in use.
pub(super) struct WriteState {
    mode: AtomicU8,
    /// The superblock on disk says that the volume is being written.
    announced: Mutex<bool>,
    /// Keeps other hosts away, if the volume has multiple mount protection and is open for writing.
    hold: OnceLock<Hold>,
    read_only: bool,
}

impl WriteState {
    pub(super) fn new(read_only: bool) -> WriteState {
        WriteState {
            mode: AtomicU8::new(if read_only { READ_ONLY } else { WRITABLE }),
            announced: Mutex::new(Rank::Mount, false),
            hold: OnceLock::new(),
            read_only,
        }
    }

    fn is_writable(&self) -> bool {
        self.mode.load(Ordering::Acquire) == WRITABLE
    }

    fn is_hold_lost(&self) -> bool {
        self.hold.get().is_some_and(Hold::is_lost)
    }
}

impl Context {
    /// From now on `hold` keeps other hosts away from the volume. Called once at most.
    pub(crate) fn set_hold(&self, hold: Hold) {
        let set = self.write_state.hold.set(hold);
        assert!(set.is_ok(), "multiple mount protection is held once");
    }

    /// Whether the volume was opened read-only.
    pub(crate) fn is_opened_read_only(&self) -> bool {
        self.write_state.read_only
    }

    /// `ReadOnly` unless the volume may be changed.
    pub(crate) fn check_writable(&self) -> Result<()> {
        let state = &self.write_state;
        if state.is_writable() && !state.is_hold_lost() { Ok(()) } else { Err(Error::ReadOnly) }
    }

    /// Whether the volume was opened for writing and is not closed. True after an error fenced it,
    /// too.
    pub(crate) fn is_open_to_write(&self) -> bool {
        matches!(self.write_state.mode.load(Ordering::Acquire), WRITABLE | STOPPED)
    }

    /// Refuses every change from now on, because the engine met an error.
    pub(crate) fn stop_changes(&self) {
        let mode = &self.write_state.mode;
        let _ = mode.compare_exchange(WRITABLE, STOPPED, Ordering::AcqRel, Ordering::Relaxed);
    }

    /// Refuses every change from now on. Returns whether this call closed the volume.
    pub(crate) fn close_to_writes(&self) -> bool {
        matches!(self.write_state.mode.swap(CLOSED, Ordering::AcqRel), WRITABLE | STOPPED)
    }

    /// Releases the volume, so that other hosts may use it.
    ///
    /// # Errors
    /// `Device`.
    pub(crate) fn release_hold(&self) -> Result<()> {
        self.write_state.hold.get().map_or(Ok(()), Hold::release)
    }

    /// Whether another host took the volume over.
    pub(super) fn is_hold_lost(&self) -> bool {
        self.write_state.is_hold_lost()
    }

    /// Whether the superblock on disk says that the volume is being written. Locks: takes `Mount`.
    pub(super) fn is_announced(&self) -> bool {
        *self.write_state.announced.lock()
    }

    /// Marks the superblock on disk as in use for writing, once. Locks: takes `Mount`.
    ///
    /// # Errors
    /// `Device`.
    pub(crate) fn announce(&self) -> Result<()> {
        let mut announced = self.write_state.announced.lock();
        if !*announced {
            patch_superblock(&*self.device, |sb| self.mark_written(sb))?;
            *announced = true;
        }
        Ok(())
    }

    /// Marks the superblock in memory as in use for writing. So a superblock that goes through the
    /// journal says the same as the one that [`Context::announce`] writes. Locks: takes
    /// `Superblock`.
    pub(crate) fn mark_in_use(&self) {
        self.mark_written(&mut self.superblock.fields().write());
    }

    fn mark_written(&self, sb: &mut Superblock) {
        match self.journal.is_off() {
            true => sb.state.remove(VolumeState::VALID),
            false if self.journal.byte_log().is_some() => {
                sb.features.incompat.insert(Incompat::LIVE);
            }
            false => sb.features.incompat.insert(Incompat::RECOVER),
        }
    }
}
