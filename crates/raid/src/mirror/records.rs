//! The members' records while the mirror is open.
//!
//! ```text
//!   a member fails    ─┐                 ┌─► on all active members ─► confirmed ─► acknowledge
//!   first change       ├─► generation+1 ─┼─ one fails, too: it is out, generation+1, repeat
//!   member added      ─┘                 └─ all fail: an error; the next caller tries again
//!
//!   an intent bit set: same generation, durable on all before the write
//!
//!   in ──► failed, undecided ──► out, unrecorded ──────────────────► out on record
//!          all completed flushes and changes wait here: after a crash the member may seem to be in
//! ```
//!
//! A crash between the record writes of two members leaves generations that differ by one, the
//! newer unconfirmed. The next opening uses both members, because no write was made that one of
//! them lacks. Once one record of a generation is confirmed, all active members have that
//! generation.

use super::members::Failure;
use super::state::State;
use super::{Mirror, PRINTED};
use extant_base::{ByteOffset, Error, IoOp, Result};
use extant_ondisk::member::{MEMBER_OFFSET, Prints, print_of};
use parking_lot::MutexGuard;
use std::io;
use std::ops::Range;

/// Number of flushes without a write to a region before its intent bit is cleared.
const IDLE_FLUSHES: u64 = 16;

impl Mirror {
    /// Makes the intent bits of `regions` and this opening's generation durable in the records.
    /// `force` writes the records even so, for other changes.
    pub(crate) fn record_intent(&self, regions: Range<usize>, force: bool) -> Result<()> {
        let records = self.records.lock();
        {
            let mut state = self.state.lock();
            let is_recorded = !force && !state.unrecorded && state.started;
            if is_recorded && regions.clone().all(|n| state.durable.get(n)) {
                return Ok(());
            }
            if !state.started {
                state.generation += 1;
                state.confirmed = false;
            }
            regions.for_each(|region| state.intent.set(region, true));
        }
        self.record(&records)?;
        self.state.lock().started = true;
        Ok(())
    }

    /// Takes the members in `failed` out, each with the errno of its failure. The loss is
    /// unrecorded until [`record_losses`](Mirror::record_losses).
    ///
    /// Errors: `Device` when no member that is in sync everywhere would be left.
    pub(crate) fn take_out(&self, failed: &[(usize, i32)]) -> Result<()> {
        // A record write under way lacks this loss, and must not clear `unrecorded` for it.
        let _records = self.records.lock();
        let newly_failed: Vec<(usize, i32)> = {
            let mut state = self.state.lock();
            let newly_failed =
                failed.iter().copied().filter(|(n, _)| state.places[*n].active).collect();
            if Vec::is_empty(&newly_failed) {
                return Ok(());
            }
            take_out(&mut state, failed)?;
            newly_failed
        };
        self.report_failed(&newly_failed);
        Ok(())
    }

    /// Rule L2: waits until the records say durably which of the members that failed so far are
    /// out. No write or flush is acknowledged before.
    ///
    /// Errors: `Device` when no member accepts a record. The next caller tries again.
    pub(crate) fn record_losses(&self) -> Result<()> {
        {
            let mut state = self.state.lock();
            while state.undecided > 0 {
                self.changed.wait(&mut state);
            }
            if !state.unrecorded {
                return Ok(());
            }
        }
        let records = self.records.lock();
        let is_recorded = !self.state.lock().unrecorded;
        if is_recorded { Ok(()) } else { self.record(&records) }
    }

    /// Writes the records of all active members durably, and confirms their generation.
    pub(crate) fn record(&self, records: &MutexGuard<'_, ()>) -> Result<()> {
        loop {
            let done = self.record_once(records);
            let mut state = self.state.lock();
            if done.is_err() {
                state.unrecorded = true;
                return done;
            }
            if std::mem::replace(&mut state.confirmed, true) {
                state.unrecorded = false;
                return Ok(());
            }
        }
    }

    fn record_once(&self, _: &MutexGuard<'_, ()>) -> Result<()> {
        loop {
            let (targets, bytes, intent) = {
                let mut state = self.state.lock();
                state.stats.record_writes += 1;
                let targets = state.targets();
                let record = |n: usize| state.record(&state.places[n], self).to_bytes();
                let bytes: Vec<_> = targets.iter().map(|(n, _)| record(*n)).collect();
                (targets, bytes, state.intent.clone())
            };
            let done = self.on_members(&targets, self.together, |n, slot| {
                slot.device.write_fua(ByteOffset(MEMBER_OFFSET), &bytes[n])
            });
            let Err(Failure { undecided, error }) = done else {
                self.state.lock().durable = intent;
                return Ok(());
            };
            take_out(&mut self.state.lock(), &undecided.failed).map_err(|_| error)?;
            self.report_failed(&undecided.failed);
        }
    }

    /// Clears the intent bits of idle regions without waiting: the records become durable with a
    /// later flush.
    pub(crate) fn clear_idle_bits(&self) {
        let Some(_records) = self.records.try_lock() else { return };
        let (targets, bytes) = {
            let mut state = self.state.lock();
            if !state.started
                || !state.flushed.is_multiple_of(IDLE_FLUSHES)
                || !state.clear_idle(IDLE_FLUSHES)
            {
                return;
            }
            let targets = state.targets();
            let record = |n: usize| state.record(&state.places[n], self).to_bytes();
            let bytes: Vec<_> = targets.iter().map(|(n, _)| record(*n)).collect();
            (targets, bytes)
        };
        for ((_, slot), bytes) in targets.iter().zip(bytes) {
            // A bit that stays set costs a copy after a crash. The next record write that matters
            // detects a member that accepts no record.
            let _ = slot.device.write_at(ByteOffset(MEMBER_OFFSET), &bytes);
        }
    }

    /// Rule L4: makes the fingerprint of the superblock's next content durable in the records
    /// before that content is written.
    pub(crate) fn record_fingerprint(&self, old: u32, new: u32) -> Result<()> {
        {
            let mut state = self.state.lock();
            if state.started && !state.unrecorded && state.prints.has(new) {
                return Ok(());
            }
            if state.prints.add(new) {
                drop(state);
                return self.record_intent(0..0, true);
            }
        }
        // No free entry. Contents written before `old` are gone once `old` is durable.
        self.flush_all()?;
        {
            let mut state = self.state.lock();
            if state.print_unknown {
                return Err(Error::Device {
                    op: IoOp::Write,
                    at: ByteOffset(PRINTED.start),
                    len: 512,
                    source: io::Error::from_raw_os_error(5),
                });
            }
            state.prints = Prints::one(old);
            state.prints.add(new);
        }
        self.record_intent(0..0, true)
    }

    /// Ends a use: clears the state that no write in flight needs. Writes may follow.
    pub(crate) fn set_idle(&self) {
        // The superblock is not written between the flush and the record of its only fingerprint.
        let superblock = self.superblock.lock();
        let only = Prints::one(print_of(&*superblock));
        {
            let state = self.state.lock();
            let is_clean = state.intent.is_empty() && state.prints == only && !state.unrecorded;
            if !self.write || !state.started || is_clean {
                return;
            }
        }
        if self.flush_all().is_err() {
            return;
        }
        let records = self.records.lock();
        {
            let mut state = self.state.lock();
            state.clear_idle(1);
            if !state.print_unknown {
                state.prints = only;
            }
        }
        // If this fails, the next opening copies more than necessary.
        let _ = self.record(&records);
    }
}

/// Marks members as out.
fn take_out(state: &mut State, failed: &[(usize, i32)]) -> Result<()> {
    let failed: Vec<usize> = failed.iter().map(|(n, _)| *n).collect();
    if !state.can_lose(&failed) {
        return Err(Error::Device {
            op: IoOp::Write,
            at: ByteOffset(0),
            len: 0,
            source: io::Error::from_raw_os_error(5),
        });
    }
    for n in failed {
        if std::mem::replace(&mut state.places[n].active, false) {
            state.stats.failed_members += 1;
        }
    }
    state.generation += 1;
    state.confirmed = false;
    state.unrecorded = true;
    Ok(())
}
