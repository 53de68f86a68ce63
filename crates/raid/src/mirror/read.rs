//! Reads: one member answers, another where that fails.
//!
//! ```text
//!   goes on where a read ended ─► the same member        a stream stays on one disk
//!   else ─► the member with the fewest reads under way, the next one among equals
//!
//!   failed, or not what `verify` wants ─► the next member ─► mends the ones before
//!   nothing that `verify` wants        ─► members that a crash left behind there: what they hold was written, too
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

/// Mending writes whole multiples of this.
const MEND_ALIGN: u64 = 4096;

type Get<'a> = &'a dyn Fn(&dyn BlockDevice, ByteOffset, &mut [u8]) -> Result<()>;
pub(crate) type Verify<'a> = &'a dyn Fn(&[u8]) -> bool;

impl Mirror {
    /// Fills `buf`; whether `verify` was content with it.
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
            let behind = || verify.and_then(|_| self.pick_behind(&range, tried));
            self.pick(&range, tried).or_else(behind)
        };
        while let Some((n, slot)) = pick(tried) {
            tried |= 1 << n;
            let done = get(&*slot.device, at, buf);
            self.state.lock().places[n].reads -= 1;
            match done {
                Ok(()) => {
                    hide_record(&range, buf);
                    if is_good(buf) {
                        if !bad.is_empty() {
                            self.mend(&range, &bad, n, verify);
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
                hide_record(&range, buf);
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

    /// A member that is in line in `range` and not one of `tried`.
    fn pick(&self, range: &Range<u64>, tried: u64) -> Option<(usize, Arc<Slot>)> {
        let regions = self.regions(range);
        let mut state = self.state.lock();
        let can = |state: &State, n: usize| {
            let place = &state.places[n];
            let in_line = || !regions.clone().any(|region| place.behind.get(region));
            tried & (1 << n) == 0 && place.active && (place.behind.is_empty() || in_line())
        };
        let stream = state.streams.iter().position(|(next, _)| *next == range.start);
        let same = stream.map(|stream| state.streams[stream].1).filter(|n| can(&state, *n));
        let n = same.or_else(|| {
            let turn = state.next_stream;
            let count = state.places.len();
            let all = (0..count).map(|n| (n + turn) % count).filter(|n| can(&state, *n));
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

    /// A member that is behind in `range` since a crash, and not one of `tried`. One that is rebuilt holds anything there.
    fn pick_behind(&self, range: &Range<u64>, tried: u64) -> Option<(usize, Arc<Slot>)> {
        let regions = self.regions(range);
        let mut state = self.state.lock();
        let n = state.places.iter().enumerate().position(|(n, place)| {
            let is_behind = || regions.clone().any(|region| place.behind.get(region));
            tried & (1 << n) == 0 && place.active && !place.rebuilding && is_behind()
        })?;
        state.stats.reads_redirected += 1;
        state.places[n].reads += 1;
        Some((n, Arc::clone(&state.places[n].slot)))
    }

    /// Puts what member `good` holds in place of what the `bad` ones hold, and tells of it.
    fn mend(&self, range: &Range<u64>, bad: &[usize], good: usize, verify: Option<Verify<'_>>) {
        if !self.write || range.is_empty() {
            return;
        }
        let (at, len) = (range.start, range.end - range.start);
        for place in self.mended(range, bad, good, verify) {
            self.tell(place, MemberProblem::Mended { at, len });
        }
    }

    /// Those of the `bad` ones that hold the same now.
    fn mended(
        &self,
        range: &Range<u64>,
        bad: &[usize],
        good: usize,
        verify: Option<Verify<'_>>,
    ) -> Vec<usize> {
        let mut done = Vec::new();
        let start = range.start & !(MEND_ALIGN - 1);
        let around = start..range.end.next_multiple_of(MEND_ALIGN).min(self.len);
        let regions = self.regions(&around);
        // Before `alone`, as writers do.
        let mut sector = is_printed(range).then(|| self.superblock.lock());
        self.alone(&around, || {
            let slots: Vec<_> = {
                let state = self.state.lock();
                // Whoever is behind somewhere in the wider range is not asked, and gets it all later.
                let fit = |n: usize| {
                    let place = &state.places[n];
                    place.active && !regions.clone().any(|region| place.behind.get(region))
                };
                // One that is behind since a crash may give what was verified.
                let is_old = state.places[good].active && !state.places[good].rebuilding;
                if !fit(good) && !is_old {
                    return;
                }
                let all = [good].into_iter().chain(bad.iter().copied().filter(|n| fit(*n)));
                all.map(|n| (n, Arc::clone(&state.places[n].slot))).collect()
            };
            let mut bytes = vec![0; (around.end - around.start) as usize];
            let inner = (range.start - start) as usize..(range.end - start) as usize;
            let (source, rest) = slots.split_first().expect("the good one is there");
            if source.1.device.read_at(ByteOffset(start), &mut bytes).is_err() {
                return;
            }
            let mut asked = bytes[inner.clone()].to_vec();
            hide_record(range, &mut asked);
            if verify.is_some_and(|verify| !verify(&asked)) {
                return;
            }
            if let Some(sector) = &mut sector {
                let part = range.start.max(PRINTED.start)..range.end.min(PRINTED.end);
                let from = &bytes[(part.start - start) as usize..(part.end - start) as usize];
                let mut next = **sector;
                next[(part.start - PRINTED.start) as usize..][..from.len()].copy_from_slice(from);
                if next != **sector {
                    if self.expect_print(print_of(&**sector), print_of(&next)).is_err() {
                        return;
                    }
                    **sector = next;
                }
            }
            let mut mended = vec![0; bytes.len()];
            for (n, slot) in rest {
                // What is around was not asked for: there this member may be the one that is right.
                match slot.device.read_at(ByteOffset(start), &mut mended) {
                    Ok(()) => mended[inner.clone()].copy_from_slice(&bytes[inner.clone()]),
                    Err(_) => mended.copy_from_slice(&bytes),
                }
                match write_around(&*slot.device, start, &mended) {
                    Ok(()) => {
                        self.state.lock().stats.repaired += 1;
                        done.push(*n);
                    }
                    // It neither reads nor writes: the volume goes on without it, if it can.
                    // What is acknowledged next waits until that is on record.
                    Err(error) => drop(self.lose(&[(*n, error.errno())])),
                }
            }
        });
        done
    }

    /// Does `work` while nobody writes in `range`.
    pub(crate) fn alone<T>(&self, range: &Range<u64>, work: impl FnOnce() -> T) -> T {
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

/// The record is no part of the volume.
pub(crate) fn hide_record(range: &Range<u64>, buf: &mut [u8]) {
    if overlap(range, &RECORD) {
        let start = RECORD.start.saturating_sub(range.start) as usize;
        let end = (RECORD.end.min(range.end) - range.start) as usize;
        buf[start..end].fill(0);
    }
}

/// Writes `bytes` at `start`, but for the record.
pub(crate) fn write_around(device: &dyn BlockDevice, start: u64, bytes: &[u8]) -> Result<()> {
    let range = start..start + bytes.len() as u64;
    if !overlap(&range, &RECORD) {
        return device.write_at(ByteOffset(start), bytes);
    }
    let before = RECORD.start.saturating_sub(start) as usize;
    device.write_at(ByteOffset(start), &bytes[..before])?;
    let behind = (RECORD.end.min(range.end) - start) as usize;
    device.write_at(ByteOffset(start + behind as u64), &bytes[behind..])
}
