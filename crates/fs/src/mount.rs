//! A volume that is open to write: what it says of itself on disk, and how it is closed.
//!
//! ```text
//!              with a journal                                without one
//!   open       nothing                                       VALID off, flush
//!   first log  RECOVER on, flush                             -
//!   close      counters into the log ─► log empty, flush     counters home, flush
//!              RECOVER off, flush                            VALID on, flush
//! ```
//!
//! Rule B5: RECOVER stands for DAX_FC_BYTELOG, too, where fsyncs go to the byte log: on and off with it.
//!
//! Rule: the writes that turn RECOVER or VALID change nothing else, so that one that a power cut tears
//! between two sectors can be told and mended (`recovery/torn.rs`). RECOVER goes on before the log
//! says that there is something to replay, and off after it says that there is not.

use crate::mmp::Hold;
use crate::superblock::patch_superblock;
use crate::volume::Volume;
use extant_base::{Error, Result};
use extant_ondisk::features::{Incompat, RoCompat};
use extant_ondisk::superblock::{Superblock, VolumeState};
use std::sync::atomic::{AtomicU8, Ordering};

/// Whether a volume may be changed, now.
#[derive(Debug)]
pub(crate) struct Mode(AtomicU8);

const READ_ONLY: u8 = 0;
const WRITABLE: u8 = 1;
/// Was writable until an error was met, with `errors=remount-ro`.
const FENCED: u8 = 2;
/// Was writable until it was closed.
const CLOSED: u8 = 3;

impl Mode {
    pub(crate) fn new(read_only: bool) -> Mode {
        Mode(AtomicU8::new(if read_only { READ_ONLY } else { WRITABLE }))
    }

    pub(crate) fn is_writable(&self) -> bool {
        self.0.load(Ordering::Acquire) == WRITABLE
    }

    /// No change from now on: an error was met.
    pub(crate) fn fence(&self) {
        let _ = self.0.compare_exchange(WRITABLE, FENCED, Ordering::AcqRel, Ordering::Relaxed);
    }

    pub(crate) fn is_open_to_write(&self) -> bool {
        matches!(self.0.load(Ordering::Acquire), WRITABLE | FENCED)
    }

    /// No change from now on; whether this call closed it.
    fn close(&self) -> bool {
        matches!(self.0.swap(CLOSED, Ordering::AcqRel), WRITABLE | FENCED)
    }
}

impl Volume {
    /// `ReadOnly` unless the volume may be changed.
    pub(crate) fn check_writable(&self) -> Result<()> {
        let is_lost = self.hold.as_ref().is_some_and(Hold::is_lost);
        if self.mode.is_writable() && !is_lost { Ok(()) } else { Err(Error::ReadOnly) }
    }

    /// Everything that was changed before the call is durable after it.
    ///
    /// Errors: `Device`, `Aborted`. Locks: takes `Mount`; none may be held.
    pub(crate) fn sync(&self) -> Result<()> {
        self.noting(|| self.sync_all())
    }

    /// The names in all directories, as before the call, are durable after it: in full, unless a fast commit
    /// told them and nothing was changed since. A directory's times are then those that recovery gives it.
    ///
    /// Errors and locks as [`Volume::sync`].
    pub(crate) fn sync_names(&self) -> Result<()> {
        match self.fast_commits && self.journal.is_all_told() {
            true => Ok(()),
            false => self.sync(),
        }
    }

    fn sync_all(&self) -> Result<()> {
        if self.mode.is_open_to_write() {
            self.announce()?;
            self.write_errors()?;
        }
        self.write_back_and_commit(true)
    }

    /// Writes back what is dirty, and commits where that was asked for or did not work for every file: what one of them
    /// meets does not cost the others their changes. One transaction is all or nothing.
    fn write_back_and_commit(&self, commit: bool) -> Result<()> {
        let written = self.write_back_all();
        match written.is_err() {
            true if self.journal.is_one_transaction() => written,
            false if !commit => written,
            _ => written.and(self.journal.sync()),
        }
    }

    /// The volume was just opened to write. With `one_transaction` nothing is said on disk before
    /// the first [`Volume::sync`].
    ///
    /// Errors: `Device`. Locks: takes `Mount`.
    pub(crate) fn begin_writing(&self, one_transaction: bool) -> Result<()> {
        self.recount_free()?;
        // What goes through the journal says the same as what is announced.
        self.mark_written(&mut self.superblock.write());
        if one_transaction {
            return Ok(());
        }
        self.announce()
    }

    /// Says on disk that the volume is being written, once.
    pub(crate) fn announce(&self) -> Result<()> {
        let mut announced = self.announced.lock();
        if !*announced {
            patch_superblock(&*self.device, |sb| self.mark_written(sb))?;
            *announced = true;
        }
        Ok(())
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

    /// Makes everything durable and the volume one that needs no recovery. No change is possible
    /// afterwards; closing again does nothing.
    ///
    /// Errors: `Device`, `Aborted`: then the volume needs recovery. Locks: takes `Mount`; none may
    /// be held.
    pub(crate) fn close(&self) -> Result<()> {
        if !self.mode.is_open_to_write() {
            return Ok(());
        }
        let done = self.noting_abort(self.make_whole());
        self.stop_cache();
        done?;
        self.hold.as_ref().map_or(Ok(()), Hold::release)?;
        self.device.settle();
        Ok(())
    }

    /// Ends the threads that write back and read ahead. What is dirty stays in memory.
    pub(crate) fn stop_cache(&self) {
        if let Some(cache) = &self.page_cache {
            cache.stop();
        }
    }

    fn make_whole(&self) -> Result<()> {
        self.announce()?;
        self.write_back_and_commit(false)?;
        if !self.mode.close() {
            return Ok(());
        }
        // What was under way when the door was shut.
        self.write_back_all()?;
        self.quota_sweep()?;
        let now = u64::try_from(self.environment.now().sec).unwrap_or(0);
        let no_orphans = self.orphans.file_is_empty();
        self.settle_superblock_with(|sb| {
            sb.wtime = now;
            if no_orphans {
                sb.features.ro_compat.remove(RoCompat::ORPHAN_PRESENT);
            }
        })?;
        let was_valid = self.at_open.state.contains(VolumeState::VALID);
        if self.journal.is_off() {
            self.journal.sync()?;
            return patch_superblock(&*self.device, |sb| {
                sb.state.set(VolumeState::VALID, was_valid)
            });
        }
        self.journal.close()?;
        // Rule D3: the log is empty now, and that is durable.
        patch_superblock(&*self.device, |sb| sb.features.incompat.remove(Incompat::LIVE))
    }
}
