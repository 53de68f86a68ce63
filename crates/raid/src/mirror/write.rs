//! Writes and flushes go to all members.

use super::members::Failure;
use super::state::{State, is_printed, overlap};
use super::{Mirror, PRINTED, RECORD, Slot};
use crate::stripes::check_range;
use extant_base::{ByteOffset, Error, IoOp, Result};
use extant_blockdev::BlockDevice;
use extant_ondisk::member::print_of;
use std::ops::Range;
use std::sync::Arc;

/// Changes of at least this many bytes go to all members in parallel.
const TOGETHER_BYTES: u64 = 64 << 10;

/// The content of a change.
#[derive(Clone, Copy)]
pub(crate) enum Change<'a> {
    /// Writes these bytes.
    Bytes(&'a [u8]),
    /// Another change of this many bytes, which lie after the superblock's first sector.
    Other(u64),
}

/// Makes the change on one member, for the given bytes.
pub(crate) type Put<'a> = &'a (dyn Fn(&dyn BlockDevice, ByteOffset, &[u8]) -> Result<()> + Sync);

impl Mirror {
    pub(crate) fn change(&self, at: ByteOffset, change: Change<'_>, put: Put<'_>) -> Result<()> {
        let len = match change {
            Change::Bytes(bytes) => bytes.len() as u64,
            Change::Other(len) => len,
        };
        check_range(IoOp::Write, self.len, at, len)?;
        if !self.write {
            return Err(Error::ReadOnly);
        }
        let range = at.0..at.0 + len;
        if len == 0 {
            return Ok(());
        }
        match change {
            Change::Bytes(bytes) if is_printed(&range) => {
                let mut sector = self.superblock.lock();
                let old = print_of(&*sector);
                let start = range.start.max(PRINTED.start);
                let part = start..range.end.min(PRINTED.end);
                let from = &bytes[(part.start - at.0) as usize..(part.end - at.0) as usize];
                let mut next = *sector;
                let place = (part.start - PRINTED.start) as usize;
                next[place..place + from.len()].copy_from_slice(from);
                self.record_fingerprint(old, print_of(&next))?;
                *sector = next;
                let done = self.put_all(range, bytes, put);
                if done.is_err() {
                    self.state.lock().print_unknown = true;
                }
                done
            }
            Change::Bytes(bytes) => self.put_all(range, bytes, put),
            Change::Other(_) => self.put_all(range, &[], put),
        }?;
        self.record_losses()
    }

    fn put_all(&self, range: Range<u64>, bytes: &[u8], put: Put<'_>) -> Result<()> {
        let targets = self.begin(&range)?;
        let together = self.together && range.end - range.start >= TOGETHER_BYTES;
        let done = self.on_members(&targets, together, |_, slot| {
            put_except_record(&*slot.device, &range, bytes, put)
        });
        let outcome = self.decide(done, |state| state.mark_out_of_sync(self.regions(&range)));
        self.end(&range);
        outcome
    }

    /// Waits until no copy of `range` runs, and makes the intent bits of its regions durable.
    fn begin(&self, range: &Range<u64>) -> Result<Vec<(usize, Arc<Slot>)>> {
        let regions = self.regions(range);
        {
            let mut state = self.state.lock();
            while state.copying.iter().any(|other| overlap(other, range)) {
                self.changed.wait(&mut state);
            }
            state.writing.push(range.clone());
            for region in &mut state.regions[regions.clone()] {
                region.writes += 1;
            }
            if state.started && regions.clone().all(|region| state.durable.get(region)) {
                return Ok(state.targets());
            }
        }
        match self.record_intent(regions, false) {
            Ok(()) => Ok(self.state.lock().targets()),
            Err(error) => {
                self.end(range);
                Err(error)
            }
        }
    }

    fn end(&self, range: &Range<u64>) {
        let mut state = self.state.lock();
        let at = state.writing.iter().position(|other| other == range);
        state.writing.swap_remove(at.expect("it was put there by `begin`"));
        let now = state.flushes;
        let regions = self.regions(range);
        for region in &mut state.regions[regions] {
            region.writes -= 1;
            region.last = now;
        }
        if !state.copying.is_empty() {
            self.changed.notify_all();
        }
    }

    /// Decides about failed members. While a member that is in sync everywhere is left, the failed
    /// ones are out and the operation succeeds. Otherwise the content is unknown on each member:
    /// `mark_unknown` marks where, and the error is returned.
    fn decide(
        &self,
        done: std::result::Result<(), Failure<'_>>,
        mark_unknown: impl FnOnce(&mut State),
    ) -> Result<()> {
        let Err(Failure { undecided, error }) = done else { return Ok(()) };
        if self.take_out(&undecided.failed).is_ok() {
            return Ok(());
        }
        mark_unknown(&mut self.state.lock());
        Err(error)
    }

    /// Makes all completed writes durable on all members.
    pub(crate) fn flush_all(&self) -> Result<()> {
        if !self.write {
            return Err(Error::ReadOnly);
        }
        let (number, targets) = {
            let mut state = self.state.lock();
            state.flushes += 1;
            (state.flushes, state.targets())
        };
        let done = self.on_members(&targets, self.together, |_, slot| slot.device.flush());
        self.decide(done, |state| {
            // It may concern any write since the last flush.
            let unknown = (0..state.regions.len()).filter(|region| state.intent.get(*region));
            let unknown: Vec<_> = unknown.collect();
            unknown.into_iter().for_each(|region| state.mark_out_of_sync(region..region + 1));
        })?;
        self.record_losses()?;
        {
            let mut state = self.state.lock();
            state.flushed = state.flushed.max(number);
        }
        self.clear_idle_bits();
        Ok(())
    }
}

/// Makes a change on one member, without the bytes of the record.
fn put_except_record(
    device: &dyn BlockDevice,
    range: &Range<u64>,
    bytes: &[u8],
    put: Put<'_>,
) -> Result<()> {
    if !overlap(range, &RECORD) {
        return put(device, ByteOffset(range.start), bytes);
    }
    let before = RECORD.start.saturating_sub(range.start) as usize;
    if before > 0 {
        put(device, ByteOffset(range.start), &bytes[..before])?;
    }
    if range.end > RECORD.end {
        let from = (RECORD.end - range.start) as usize;
        put(device, ByteOffset(RECORD.end), &bytes[from..])?;
    }
    Ok(())
}
