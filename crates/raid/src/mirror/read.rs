//! Reads: one member serves a read; another one if that fails.
//!
//! ```text
//!   starts where a read ended ─► the same member        a sequential stream stays on one disk
//!   otherwise ─► the member with the fewest reads in flight, in rotation among equals
//!
//!   error, or `verify` refuses ─► the next member ─► repairs the failed ones before it
//!   `verify` refuses all        ─► members that are out of sync there since a crash: their bytes
//!                                  were written, too
//! ```

use super::state::{State, is_printed, overlap};
use super::{Mirror, PRINTED, RECORD, Slot};
use crate::stripes::check_range;
use extant_base::{ByteOffset, Error, IoOp, MemberProblem, Result};
use extant_blockdev::BlockDevice;
use extant_ondisk::member::print_of;
use std::io;
use std::ops::Range;
use std::sync::Arc;

/// Alignment of a repair, in bytes.
const REPAIR_ALIGN: u64 = 4096;

type Get<'a> = &'a dyn Fn(&dyn BlockDevice, ByteOffset, &mut [u8]) -> Result<()>;
pub(crate) type Verify<'a> = &'a dyn Fn(&[u8]) -> bool;

impl Mirror {
    /// Fills `buf`; returns whether `verify` accepts the bytes.
    pub(crate) fn read(
        &self,
        at: ByteOffset,
        buf: &mut [u8],
        verify: Option<Verify<'_>>,
        get: Get<'_>,
    ) -> Result<bool> {
        check_range(IoOp::Read, self.len, at, buf.len() as u64)?;
        let range = at.0..at.0 + buf.len() as u64;
        let is_good = |buf: &[u8]| verify.is_none_or(|verify| verify(buf));
        let (mut tried, mut bad) = (0u64, Vec::new());
        let (mut error, mut unwanted) = (None, None);
        let pick = |tried| {
            let out_of_sync = || verify.and_then(|_| self.pick_out_of_sync(&range, tried));
            self.pick(&range, tried).or_else(out_of_sync)
        };
        while let Some((n, slot)) = pick(tried) {
            tried |= 1 << n;
            let done = get(&*slot.device, at, buf);
            self.state.lock().places[n].reads -= 1;
            match done {
                Ok(()) => {
                    zero_record(&range, buf);
                    if is_good(buf) {
                        if !bad.is_empty() {
                            self.repair(&range, &bad, n, verify);
                        }
                        return Ok(true);
                    }
                    unwanted.get_or_insert(slot);
                }
                Err(failed) => {
                    error.get_or_insert(failed);
                }
            }
            bad.push(n);
        }
        match (unwanted, error) {
            (Some(slot), _) => {
                slot.device.read_at(at, buf)?;
                zero_record(&range, buf);
                Ok(is_good(buf))
            }
            (None, Some(error)) => Err(error),
            (None, None) => Err(Error::Device {
                op: IoOp::Read,
                at,
                len: buf.len(),
                source: io::Error::from_raw_os_error(5),
            }),
        }
    }

    /// A member that is in sync in `range` and not in `tried`.
    fn pick(&self, range: &Range<u64>, tried: u64) -> Option<(usize, Arc<Slot>)> {
        let regions = self.regions(range);
        let mut state = self.state.lock();
        let can = |state: &State, n: usize| {
            let place = &state.places[n];
            let in_sync = || !regions.clone().any(|region| place.out_of_sync.get(region));
            tried & (1 << n) == 0 && place.active && (place.out_of_sync.is_empty() || in_sync())
        };
        let stream = state.streams.iter().position(|(next, _)| *next == range.start);
        let same = stream.map(|stream| state.streams[stream].1).filter(|n| can(&state, *n));
        let n = same.or_else(|| {
            let first = state.next_stream;
            let count = state.places.len();
            let all = (0..count).map(|n| (n + first) % count).filter(|n| can(&state, *n));
            all.min_by_key(|n| state.places[*n].reads)
        })?;
        let stream = stream.unwrap_or_else(|| {
            let next = state.next_stream;
            state.next_stream = next.wrapping_add(1);
            next % state.streams.len()
        });
        state.streams[stream] = (range.end, n);
        if tried != 0 {
            state.stats.reads_redirected += 1;
        }
        state.places[n].reads += 1;
        Some((n, Arc::clone(&state.places[n].slot)))
    }

    /// A member that is out of sync in `range` since a crash and is not in `tried`. A member under
    /// rebuild does not qualify: its bytes there are arbitrary.
    fn pick_out_of_sync(&self, range: &Range<u64>, tried: u64) -> Option<(usize, Arc<Slot>)> {
        let regions = self.regions(range);
        let mut state = self.state.lock();
        let n = state.places.iter().enumerate().position(|(n, place)| {
            let is_out_of_sync = || regions.clone().any(|region| place.out_of_sync.get(region));
            tried & (1 << n) == 0 && place.active && !place.rebuilding && is_out_of_sync()
        })?;
        state.stats.reads_redirected += 1;
        state.places[n].reads += 1;
        Some((n, Arc::clone(&state.places[n].slot)))
    }

    /// Repairs the `bad` members with the bytes of member `good`, and reports it.
    fn repair(&self, range: &Range<u64>, bad: &[usize], good: usize, verify: Option<Verify<'_>>) {
        if !self.write || range.is_empty() {
            return;
        }
        let (at, len) = (range.start, range.end - range.start);
        for place in self.repaired(range, bad, good, verify) {
            self.report(place, MemberProblem::Repaired { at, len });
        }
    }

    /// Repairs the `bad` members; returns those that hold the good bytes now.
    fn repaired(
        &self,
        range: &Range<u64>,
        bad: &[usize],
        good: usize,
        verify: Option<Verify<'_>>,
    ) -> Vec<usize> {
        let mut done = Vec::new();
        let start = range.start & !(REPAIR_ALIGN - 1);
        let around = start..range.end.next_multiple_of(REPAIR_ALIGN).min(self.len);
        let regions = self.regions(&around);
        // Locked before `exclude_writers`, as writers do.
        let mut sector = is_printed(range).then(|| self.superblock.lock());
        self.exclude_writers(&around, || {
            let slots: Vec<_> = {
                let state = self.state.lock();
                // A member that is out of sync anywhere in the wider range is left out; resync
                // repairs it.
                let fit = |n: usize| {
                    let place = &state.places[n];
                    place.active && !regions.clone().any(|region| place.out_of_sync.get(region))
                };
                // A member that is out of sync since a crash may supply the verified bytes.
                let was_complete = state.places[good].active && !state.places[good].rebuilding;
                if !fit(good) && !was_complete {
                    return;
                }
                let all = [good].into_iter().chain(bad.iter().copied().filter(|n| fit(*n)));
                all.map(|n| (n, Arc::clone(&state.places[n].slot))).collect()
            };
            let mut bytes = vec![0; (around.end - around.start) as usize];
            let inner = (range.start - start) as usize..(range.end - start) as usize;
            let (source, others) = slots.split_first().expect("the good one is there");
            if source.1.device.read_at(ByteOffset(start), &mut bytes).is_err() {
                return;
            }
            let mut asked = bytes[inner.clone()].to_vec();
            zero_record(range, &mut asked);
            if verify.is_some_and(|verify| !verify(&asked)) {
                return;
            }
            if let Some(sector) = &mut sector {
                let part = range.start.max(PRINTED.start)..range.end.min(PRINTED.end);
                let from = &bytes[(part.start - start) as usize..(part.end - start) as usize];
                let mut next = **sector;
                next[(part.start - PRINTED.start) as usize..][..from.len()].copy_from_slice(from);
                if next != **sector {
                    if self.record_fingerprint(print_of(&**sector), print_of(&next)).is_err() {
                        return;
                    }
                    **sector = next;
                }
            }
            let mut repaired = vec![0; bytes.len()];
            for (n, slot) in others {
                // The bytes around were not read: there this member may be the correct one.
                match slot.device.read_at(ByteOffset(start), &mut repaired) {
                    Ok(()) => repaired[inner.clone()].copy_from_slice(&bytes[inner.clone()]),
                    Err(_) => repaired.copy_from_slice(&bytes),
                }
                match write_except_record(&*slot.device, start, &repaired) {
                    Ok(()) => {
                        self.state.lock().stats.repaired += 1;
                        done.push(*n);
                    }
                    // The member fails reads and writes: the volume goes on without it, if it can.
                    // The next acknowledgement waits until that is on record.
                    Err(error) => drop(self.take_out(&[(*n, error.errno())])),
                }
            }
        });
        done
    }

    /// Runs `work` while no write to `range` is in flight.
    pub(crate) fn exclude_writers<T>(&self, range: &Range<u64>, work: impl FnOnce() -> T) -> T {
        {
            let mut state = self.state.lock();
            while state.copying.iter().any(|other| overlap(other, range)) {
                self.changed.wait(&mut state);
            }
            state.copying.push(range.clone());
            while state.writing.iter().any(|other| overlap(other, range)) {
                self.changed.wait(&mut state);
            }
        }
        let done = work();
        let mut state = self.state.lock();
        let at = state.copying.iter().position(|other| other == range);
        state.copying.swap_remove(at.expect("it was put there above"));
        self.changed.notify_all();
        done
    }
}

/// Zeroes the bytes of the record, which is not part of the volume.
pub(crate) fn zero_record(range: &Range<u64>, buf: &mut [u8]) {
    if overlap(range, &RECORD) {
        let start = RECORD.start.saturating_sub(range.start) as usize;
        let end = (RECORD.end.min(range.end) - range.start) as usize;
        buf[start..end].fill(0);
    }
}

/// Writes `bytes` at `start`, without the bytes of the record.
pub(crate) fn write_except_record(
    device: &dyn BlockDevice,
    start: u64,
    bytes: &[u8],
) -> Result<()> {
    let range = start..start + bytes.len() as u64;
    if !overlap(&range, &RECORD) {
        return device.write_at(ByteOffset(start), bytes);
    }
    let before = RECORD.start.saturating_sub(start) as usize;
    device.write_at(ByteOffset(start), &bytes[..before])?;
    let after = (RECORD.end.min(range.end) - start) as usize;
    device.write_at(ByteOffset(start + after as u64), &bytes[after..])
}
