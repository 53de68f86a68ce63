//! Changes go to all members.

use super::members::Failure;
use super::state::{State, is_printed, overlap};
use super::{Mirror, PRINTED, RECORD, Slot};
use crate::stripes::check_range;
use extant_base::{ByteOffset, Error, IoOp, Result};
use extant_blockdev::BlockDevice;
use extant_ondisk::member::print_of;
use std::ops::Range;
use std::sync::Arc;

/// Changes from here on are made on all members side by side.
const TOGETHER_BYTES: u64 = 64 << 10;

/// What is changed.
#[derive(Clone, Copy)]
pub(crate) enum Change<'a> {
    /// These bytes are written.
    Bytes(&'a [u8]),
    /// So many bytes behind the superblock's first sector are changed in a way of their own.
    Other(u64),
}

/// Does the change on one member, as far as these bytes go.
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
                self.expect_print(old, print_of(&next))?;
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
        self.put_on_record()
    }

    fn put_all(&self, range: Range<u64>, bytes: &[u8], put: Put<'_>) -> Result<()> {
        let targets = self.begin(&range)?;
        let together = self.together && range.end - range.start >= TOGETHER_BYTES;
        let done = self.on_members(&targets, together, |_, slot| {
            put_around(&*slot.device, &range, bytes, put)
        });
        let outcome = self.judge(done, |state| state.fall_behind(self.regions(&range)));
        self.end(&range);
        outcome
    }

    /// Waits until nobody copies there, and sees that a crash would be noticed there.
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
        match self.intend(regions, false) {
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

    /// What comes of it when members failed: where all did that count, nobody knows what is there now, on
    /// each, and `unsure` says where that is.
    fn judge(
        &self,
        done: std::result::Result<(), Failure<'_>>,
        unsure: impl FnOnce(&mut State),
    ) -> Result<()> {
        let Err(Failure { doubt, error }) = done else { return Ok(()) };
        if self.lose(&doubt.failed).is_ok() {
            return Ok(());
        }
        unsure(&mut self.state.lock());
        Err(error)
    }

    /// Makes everything durable on all members.
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
        self.judge(done, |state| {
            // Any of the writes since the last flush.
            let unsure = (0..state.regions.len()).filter(|region| state.intent.get(*region));
            let unsure: Vec<_> = unsure.collect();
            unsure.into_iter().for_each(|region| state.fall_behind(region..region + 1));
        })?;
        self.put_on_record()?;
        {
            let mut state = self.state.lock();
            state.flushed = state.flushed.max(number);
        }
        self.clear_rested();
        Ok(())
    }
}

/// Does a change, leaving out the bytes of the record.
fn put_around(
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
