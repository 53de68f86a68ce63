//! The members' records while the mirror is open.
//!
//! ```text
//!   a member fails    ─┐                 ┌─► all active members say so ─► settled ─► acknowledged
//!   first change       ├─► generation+1 ─┼─ one fails, too: it is out, generation+1, again
//!   member added      ─┘                 └─ all fail: told as an error, again by who comes next
//!
//!   a region's bit set: same generation, durable on all before the write
//!
//!   in ──► failed, in doubt ──► out, untold ──────────────────────► out on record
//!          flushes and changes that are done wait, whoever they are of: a cut may show it as if it were in
//! ```
//!
//! A cut between two members' records leaves generations that differ by one, the newer not settled:
//! both are taken by the next opening, for nothing was written that one of them lacks. Once one
//! record of a generation is settled, all active members have that generation.

use super::members::Failure;
use super::state::State;
use super::{Mirror, PRINTED};
use extant_base::{ByteOffset, Error, IoOp, Result};
use extant_ondisk::member::{MEMBER_OFFSET, Prints, print_of};
use parking_lot::MutexGuard;
use std::io;
use std::ops::Range;

/// Flushes that a region rests before its bit is cleared.
const REST_FLUSHES: u64 = 16;

impl Mirror {
    /// Sees that the bits of `regions` and this opening's generation are on record; `anew` if
    /// something else has to be, too.
    pub(crate) fn intend(&self, regions: Range<usize>, anew: bool) -> Result<()> {
        let records = self.records.lock();
        {
            let mut state = self.state.lock();
            let is_told = !anew && !state.untold && state.started;
            if is_told && regions.clone().all(|n| state.durable.get(n)) {
                return Ok(());
            }
            if !state.started {
                state.generation += 1;
                state.settled = false;
            }
            regions.for_each(|region| state.intent.set(region, true));
        }
        self.record(&records)?;
        self.state.lock().started = true;
        Ok(())
    }

    /// Goes on without the members in `failed`, each with the errno of what failed. Their loss is untold
    /// then: see [`put_on_record`](Mirror::put_on_record).
    ///
    /// Errors: none is left that holds everything.
    pub(crate) fn lose(&self, failed: &[(usize, i32)]) -> Result<()> {
        // Who writes records now does not say this, and must not take it for told.
        let _records = self.records.lock();
        let news: Vec<(usize, i32)> = {
            let mut state = self.state.lock();
            let news = failed.iter().copied().filter(|(n, _)| state.places[*n].active).collect();
            if Vec::is_empty(&news) {
                return Ok(());
            }
            lose(&mut state, failed)?;
            news
        };
        self.tell_failed(&news);
        Ok(())
    }

    /// Rule L2: waits until the records say durably which members are out, of all that failed so far.
    /// Nothing is acknowledged before.
    ///
    /// Errors: `Device`, when no member takes a record. Who comes next tries again.
    pub(crate) fn put_on_record(&self) -> Result<()> {
        {
            let mut state = self.state.lock();
            while state.doubts > 0 {
                self.changed.wait(&mut state);
            }
            if !state.untold {
                return Ok(());
            }
        }
        let records = self.records.lock();
        let is_told = !self.state.lock().untold;
        if is_told { Ok(()) } else { self.record(&records) }
    }

    /// Writes the records of all active members durably, and settles their generation.
    pub(crate) fn record(&self, records: &MutexGuard<'_, ()>) -> Result<()> {
        loop {
            let done = self.record_once(records);
            let mut state = self.state.lock();
            if done.is_err() {
                state.untold = true;
                return done;
            }
            if std::mem::replace(&mut state.settled, true) {
                state.untold = false;
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
            let Err(Failure { doubt, error }) = done else {
                self.state.lock().durable = intent;
                return Ok(());
            };
            lose(&mut self.state.lock(), &doubt.failed).map_err(|_| error)?;
            self.tell_failed(&doubt.failed);
        }
    }

    /// Clears bits of regions that rest, lazily: the records are durable with a later flush.
    pub(crate) fn clear_rested(&self) {
        let Some(_records) = self.records.try_lock() else { return };
        let (targets, bytes) = {
            let mut state = self.state.lock();
            if !state.started
                || !state.flushed.is_multiple_of(REST_FLUSHES)
                || !state.rest(REST_FLUSHES)
            {
                return;
            }
            let targets = state.targets();
            let record = |n: usize| state.record(&state.places[n], self).to_bytes();
            let bytes: Vec<_> = targets.iter().map(|(n, _)| record(*n)).collect();
            (targets, bytes)
        };
        for ((_, slot), bytes) in targets.iter().zip(bytes) {
            // A bit that stays set costs a copy after a crash. A member that takes no record is
            // found out by the next one that matters.
            let _ = slot.device.write_at(ByteOffset(MEMBER_OFFSET), &bytes);
        }
    }

    /// Rule L4: sees that the superblock's next fingerprint is on record before that is written.
    pub(crate) fn expect_print(&self, old: u32, new: u32) -> Result<()> {
        {
            let mut state = self.state.lock();
            if state.started && !state.untold && state.prints.has(new) {
                return Ok(());
            }
            if state.prints.add(new) {
                drop(state);
                return self.intend(0..0, true);
            }
        }
        // No room: what was written before `old` is gone once `old` is durable.
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
        self.intend(0..0, true)
    }

    /// The end of a use: clears what no write under way needs. Writes may come all the same.
    pub(crate) fn settle(&self) {
        // Nobody writes the superblock between the flush and the record of its only fingerprint.
        let superblock = self.superblock.lock();
        let only = Prints::one(print_of(&*superblock));
        {
            let state = self.state.lock();
            let is_settled = state.intent.is_empty() && state.prints == only && !state.untold;
            if !self.write || !state.started || is_settled {
                return;
            }
        }
        if self.flush_all().is_err() {
            return;
        }
        let records = self.records.lock();
        {
            let mut state = self.state.lock();
            state.rest(1);
            if !state.print_unknown {
                state.prints = only;
            }
        }
        // Without it the next opening copies more than it had to.
        let _ = self.record(&records);
    }
}

/// Marks members as lost.
fn lose(state: &mut State, failed: &[(usize, i32)]) -> Result<()> {
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
    state.settled = false;
    state.untold = true;
    Ok(())
}
