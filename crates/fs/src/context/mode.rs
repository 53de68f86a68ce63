//! Whether the volume may be changed, and what it says of that on disk.
//!
//! ```text
//!              with a journal                                without one
//!   open       nothing                                       VALID off, flush
//!   first log  RECOVER on, flush                             -
//!   close      counters into the log ─► log empty, flush     counters home, flush
//!              RECOVER off, flush                            VALID on, flush
//! ```
//!
//! Rule B5: where fsyncs go to the byte log, DAX_FC_BYTELOG is set and cleared together with RECOVER.
//!
//! Rule: a write that sets or clears RECOVER or VALID changes nothing else. A power cut that tears
//! such a write between two sectors can therefore be recognised and mended (`recovery/torn.rs`).
//! RECOVER is set before the log says that there is something to replay, and cleared after the log
//! says that there is not.

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
/// Was writable until an error was met, with `errors=remount-ro`.
const FENCED: u8 = 2;
/// Was writable until it was closed.
const CLOSED: u8 = 3;

/// Whether a volume may be changed now, and whether its superblock says that it is in use.
pub(super) struct WriteState {
    mode: AtomicU8,
    /// The superblock on disk says that the volume is being written.
    announced: Mutex<bool>,
    /// Keeps other hosts away, where the volume asks for that and is open to write.
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
    /// Other hosts are kept away from the volume by `hold`, from now on and once for all.
    pub(crate) fn set_hold(&self, hold: Hold) {
        let set = self.write_state.hold.set(hold);
        assert!(set.is_ok(), "a volume is held once");
    }

    /// Whether the volume was opened to be read only.
    pub(crate) fn is_opened_read_only(&self) -> bool {
        self.write_state.read_only
    }

    /// `ReadOnly` unless the volume may be changed.
    pub(crate) fn check_writable(&self) -> Result<()> {
        let state = &self.write_state;
        if state.is_writable() && !state.is_hold_lost() { Ok(()) } else { Err(Error::ReadOnly) }
    }

    /// Whether the volume was opened to write and not closed since.
    pub(crate) fn is_open_to_write(&self) -> bool {
        matches!(self.write_state.mode.load(Ordering::Acquire), WRITABLE | FENCED)
    }

    /// No change from now on: an error was met.
    pub(crate) fn fence(&self) {
        let mode = &self.write_state.mode;
        let _ = mode.compare_exchange(WRITABLE, FENCED, Ordering::AcqRel, Ordering::Relaxed);
    }

    /// No change from now on; whether this call closed the volume.
    pub(crate) fn close_to_writes(&self) -> bool {
        matches!(self.write_state.mode.swap(CLOSED, Ordering::AcqRel), WRITABLE | FENCED)
    }

    /// Lets other hosts have the volume again.
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

    /// Says on disk that the volume is being written, once. Locks: takes `Mount`.
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

    /// Marks the superblock in memory as being written, so that what goes through the journal says
    /// the same as what [`Context::announce`] writes. Locks: takes `Superblock`.
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
