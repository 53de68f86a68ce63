//! Resync: copies regions to members that are out of sync, after a crash and for new members.
//!
//! ```text
//!   region ─► its intent bit on record ─► piece by piece, with writers excluded:
//!                                    source ──read──► same as on the other? ──no──► write
//!          ─► in sync; its bit is cleared after the next flush
//!
//!   a new member:  every 64 MiB  flush it ─► record: rebuilt so far        crash: continues there
//!                  at the end    flush it ─► record: a member like the others
//! ```
//!
//! Rule L5: a member under rebuild never leads, and it is flushed before its record says how far
//! the rebuild is. Concurrent writes go to all members, so a copied piece stays in sync.

use super::read::write_except_record;
use super::{Mirror, MirrorStats, PlaceState, Slot};
use crate::origin::is_changed_outside;
use crate::part::Part;
use extant_base::{ByteOffset, Error, IoOp, MemberProblem, Result};
use extant_blockdev::BlockDevice;
use extant_ondisk::member::{Intent, Member};
use parking_lot::MutexGuard;
use std::cmp::Ordering;
use std::io;
use std::ops::Range;
use std::sync::{Arc, Weak};

/// Size of a copy step in bytes; writers to it wait.
const PIECE: u64 = 1 << 20;
/// Smallest run of zeros in bytes that is left as a hole; shorter ones are written.
const HOLE: usize = 64 << 10;
/// Bytes copied between two records of a rebuild's progress.
const RECORD_EVERY: u64 = 64 << 20;

/// Called with the bytes done and the total; returns false to stop.
pub type Progress<'a> = &'a mut dyn FnMut(u64, u64) -> bool;

impl Mirror {
    /// The members that are in use, or were until they failed.
    pub fn places(&self) -> Vec<PlaceState> {
        let state = self.state.lock();
        let out_of_sync = |out_of_sync: &Intent| -> u64 {
            let regions = (0..state.regions.len()).filter(|region| out_of_sync.get(*region));
            regions
                .map(|region| self.region_bytes(region))
                .map(|range| range.end - range.start)
                .sum()
        };
        let places = state.places.iter().map(|place| PlaceState {
            name: place.slot.name.clone(),
            index: place.slot.index,
            active: place.active,
            rebuilding: place.rebuilding,
            out_of_sync_bytes: if place.active { out_of_sync(&place.out_of_sync) } else { 0 },
        });
        places.collect()
    }

    /// The counters since the opening.
    pub fn stats(&self) -> MirrorStats {
        self.state.lock().stats
    }

    /// The generation, and a bit mask of the members that take writes.
    pub fn generation(&self) -> (u64, u32) {
        let state = self.state.lock();
        (state.generation, state.active_mask())
    }

    /// Bytes in regions in which a member is out of sync.
    pub fn out_of_sync_bytes(&self) -> u64 {
        let state = self.state.lock();
        let any = |region: usize| {
            state.places.iter().any(|place| place.active && place.out_of_sync.get(region))
        };
        let regions = (0..state.regions.len()).filter(|region| any(*region));
        regions.map(|region| self.region_bytes(region)).map(|range| range.end - range.start).sum()
    }

    /// Adds `part` as a member in place of a missing one, and returns its index. It is complete
    /// after [`resync`](Mirror::resync). After a crash before that, the next opening that names it
    /// continues the rebuild.
    ///
    /// # Errors
    /// `Invalid` when no member is missing; `Member` when the part is too short, or is a member of
    /// this volume that may have changes which this mirror lacks; `Device`; `ReadOnly`.
    pub fn add(&self, part: Part) -> Result<u16> {
        self.add_part(part, false)
    }

    /// As [`add`](Mirror::add), without the check of the part's own record: the part may have
    /// changes that this mirror lacks, and they are lost. A copy of a member in use is written
    /// over, too.
    ///
    /// # Errors
    /// As for `add`, except for the problems that the check finds. `Member` when the part is a
    /// device that this mirror uses already.
    pub fn add_over(&self, part: Part) -> Result<u16> {
        self.add_part(part, true)
    }

    fn add_part(&self, part: Part, over: bool) -> Result<u16> {
        if !self.write {
            return Err(Error::ReadOnly);
        }
        let needed = self.len.max(4096);
        if part.device.len() < needed {
            return Err(part.refuse(MemberProblem::TooShort { needed }));
        }
        let _copier = self.copier.lock();
        let own = part.record().ok().flatten().filter(|record| record.uuid == self.uuid);
        if let Some(own) = own.as_ref().filter(|_| !over) {
            self.check_outdated(&part, own)?;
        }
        self.record_intent(0..0, false)?;
        let records = self.records.lock();
        if over && let Some(index) = self.member_on(&part, &records)? {
            return Err(part.refuse(MemberProblem::Duplicate { index }));
        }
        let (index, first) = {
            let mut state = self.state.lock();
            let is_free = |index: &u16| state.active_mask() & (1 << index) == 0;
            let preferred = own.map(|record| record.index).filter(|index| *index < self.count);
            let index = preferred.filter(is_free).or_else(|| (0..self.count).find(is_free));
            let index = index.ok_or(Error::Invalid("the volume has all its members already"))?;
            let mut out_of_sync = Intent::none();
            (0..state.regions.len()).for_each(|region| out_of_sync.set(region, true));
            state.generation += 1;
            state.confirmed = false;
            state.out_of_sync_events += 1;
            let device = Arc::clone(&part.device);
            state.places.push(super::state::Place {
                slot: Arc::new(Slot { device, name: part.name.clone(), index }),
                active: true,
                rebuilding: true,
                rebuilt_bytes: 0,
                out_of_sync,
                reads: 0,
            });
            let place = state.places.last().expect("it was pushed just now");
            (index, state.record(place, self))
        };
        // Write the new member's record first: it shows that the member cannot lead before the
        // others count on it.
        let done = part
            .device
            .write_fua(ByteOffset(extant_ondisk::member::MEMBER_OFFSET), &first.to_bytes());
        if let Err(error) = done {
            let mut state = self.state.lock();
            let at = state.places.len() - 1;
            state.places[at].active = false;
            drop(state);
            self.record(&records)?;
            return Err(error);
        }
        self.record(&records)?;
        Ok(index)
    }

    /// The active member whose device `part` is, however it was opened: a record that all active
    /// members get now appears on it. A copy of a member keeps its older record.
    ///
    /// Errors: `Device`. A part without a valid record is no member.
    fn member_on(&self, part: &Part, records: &MutexGuard<'_, ()>) -> Result<Option<u16>> {
        let generation = {
            let mut state = self.state.lock();
            state.generation += 1;
            state.confirmed = false;
            state.generation
        };
        self.record(records)?;
        match part.record() {
            Ok(Some(now)) if now.uuid == self.uuid && now.generation == generation => {
                Ok(Some(now.index))
            }
            Err(error @ Error::Device { .. }) => Err(error),
            _ => Ok(None),
        }
    }

    /// Refuses a part with record `own` that may have changes which this mirror lacks.
    ///
    /// ```text
    ///   rebuilding ───────────────────────────────────► has no changes of its own: accept
    ///   older, counts all complete members here ──────► its changes are all here: accept
    ///   same generation, each counts the other ───────► accept
    ///   newer, and counted on here ───────────────────► Newer: the copy would go the wrong way
    ///   else ─────────────────────────────────────────► Diverged
    /// ```
    fn check_outdated(&self, part: &Part, own: &Member) -> Result<()> {
        if own.rebuilding {
            return Ok(());
        }
        let (source, active, whole, counted) = {
            let state = self.state.lock();
            let whole = state.places.iter().filter(|place| place.active && !place.rebuilding);
            let whole = whole.fold(0, |mask, place| mask | 1 << place.slot.index);
            let active = state.active_mask();
            (state.generation, active, whole, if state.started { active } else { self.counted })
        };
        let has = |mask: u32| mask & (1 << own.index) != 0;
        if has(active) {
            return Err(part.refuse(MemberProblem::Duplicate { index: own.index }));
        }
        let generation = own.generation;
        let counts_us = whole & !own.active == 0;
        let is_known = match generation.cmp(&source) {
            Ordering::Less => counts_us,
            Ordering::Equal => counts_us && has(counted),
            Ordering::Greater if has(counted) => {
                return Err(part.refuse(MemberProblem::Newer { generation, source }));
            }
            Ordering::Greater => false,
        };
        if !is_known {
            return Err(part.refuse(MemberProblem::Diverged { generation, source }));
        }
        match is_changed_outside(part, own)? {
            true => Err(part.refuse(MemberProblem::ChangedOutside)),
            false => Ok(()),
        }
    }

    /// Brings all members in sync; returns false if `progress` stopped it. May run while the mirror
    /// is in use, and again after it was stopped.
    ///
    /// # Errors
    /// `Device` when the source cannot be read; `ReadOnly`. A member that cannot be written is
    /// taken out.
    pub fn resync(&self, progress: Progress<'_>) -> Result<bool> {
        if !self.write {
            return Err(Error::ReadOnly);
        }
        let _copier = self.copier.lock();
        let total = self.out_of_sync_bytes();
        let (mut done, mut recorded) = (0, 0);
        if !progress(0, total) {
            return Ok(false);
        }
        let mut from = 0;
        while let Some(region) = self.next_out_of_sync(from) {
            self.resync_region(region)?;
            let range = self.region_bytes(region);
            done += range.end - range.start;
            if done - recorded >= RECORD_EVERY {
                recorded = done;
                self.record_rebuilt()?;
            }
            if !progress(done.min(total), total) {
                return Ok(false);
            }
            // A region that became out of sync again meanwhile comes last.
            from = region + 1;
        }
        self.record_rebuilt()?;
        Ok(true)
    }

    /// Brings members in sync in a background thread, until that is done or `mirror` is dropped.
    ///
    /// # Errors
    /// `Device` when the system gives no thread.
    pub fn resync_in_background(mirror: &Arc<Mirror>) -> Result<()> {
        let mirror: Weak<Mirror> = Arc::downgrade(mirror);
        let work = move || {
            let mut from = 0;
            let mut since = 0;
            while let Some(mirror) = mirror.upgrade() {
                let _copier = mirror.copier.lock();
                let Some(region) = mirror.next_out_of_sync(from) else {
                    let _ = mirror.record_rebuilt();
                    return;
                };
                if mirror.resync_region(region).is_err() {
                    return;
                }
                from = region + 1;
                since += 1u64 << mirror.region_log2;
                if since >= RECORD_EVERY {
                    since = 0;
                    let _ = mirror.record_rebuilt();
                }
            }
        };
        let spawned = std::thread::Builder::new().name("extant-resync".into()).spawn(work);
        spawned.map(|_| ()).map_err(|source| Error::Device {
            op: IoOp::Open,
            at: ByteOffset(0),
            len: 0,
            source,
        })
    }

    /// The next region in which a member is out of sync: from `from` on, then from the start.
    fn next_out_of_sync(&self, from: usize) -> Option<usize> {
        let state = self.state.lock();
        let any = |region: &usize| {
            state.places.iter().any(|place| place.active && place.out_of_sync.get(*region))
        };
        let all = state.regions.len();
        (from..all).find(any).or_else(|| (0..from.min(all)).find(any))
    }

    fn resync_region(&self, region: usize) -> Result<()> {
        loop {
            let (mut targets, out_of_sync_events) = {
                let state = self.state.lock();
                let out_of_sync = state.places.iter().enumerate();
                let out_of_sync =
                    out_of_sync.filter(|(_, place)| place.active && place.out_of_sync.get(region));
                let targets: Vec<_> = out_of_sync
                    .map(|(n, place)| (n, Arc::clone(&place.slot), place.rebuilding))
                    .collect();
                (targets, state.out_of_sync_events)
            };
            if targets.is_empty() {
                return Ok(());
            }
            self.record_intent(region..region + 1, false)?;
            let bytes = self.region_bytes(region);
            let mut at = bytes.start;
            while at < bytes.end {
                let piece = at..bytes.end.min(at + PIECE);
                self.exclude_writers(&piece, || self.copy(&piece, &mut targets))?;
                at = piece.end;
            }
            let mut state = self.state.lock();
            let now = state.flushes;
            state.regions[region].last = now;
            if state.out_of_sync_events == out_of_sync_events {
                for (n, _, _) in &targets {
                    state.places[*n].out_of_sync.set(region, false);
                }
                return Ok(());
            }
        }
    }

    /// Copies `piece` from a member that is in sync there to `targets`. Members that fail are taken
    /// out and removed from `targets`.
    fn copy(&self, piece: &Range<u64>, targets: &mut Vec<(usize, Arc<Slot>, bool)>) -> Result<()> {
        let mut bytes = vec![0; (piece.end - piece.start) as usize];
        self.read_source(piece, &mut bytes)?;
        let mut held = vec![0; bytes.len()];
        let mut failed = Vec::new();
        let mut copied = 0;
        for (n, slot, new) in targets.iter() {
            let is_read =
                |held: &mut [u8]| slot.device.read_at(ByteOffset(piece.start), held).is_ok();
            if !new && is_read(&mut held) && held == bytes {
                continue;
            }
            copied += bytes.len() as u64;
            // A new member may be a sparse file: a range that reads as zeros on it already stays a
            // hole.
            let put = match *new && bytes.chunks(HOLE).any(is_zero) && is_read(&mut held) {
                true => write_except_holes(&*slot.device, piece.start, &bytes, &held),
                false => write_except_record(&*slot.device, piece.start, &bytes),
            };
            if let Err(error) = put {
                failed.push((*n, error.errno()));
            }
        }
        self.state.lock().stats.copied_bytes += copied;
        if !failed.is_empty() {
            self.take_out(&failed)?;
            self.record_losses()?;
            targets.retain(|(n, _, _)| !failed.iter().any(|(failed, _)| failed == n));
        }
        Ok(())
    }

    fn read_source(&self, piece: &Range<u64>, bytes: &mut [u8]) -> Result<()> {
        let regions = self.regions(piece);
        let sources: Vec<_> = {
            let state = self.state.lock();
            let in_sync = state.places.iter().filter(|place| {
                place.active && !regions.clone().any(|region| place.out_of_sync.get(region))
            });
            in_sync.map(|place| Arc::clone(&place.slot)).collect()
        };
        let mut error = Error::Device {
            op: IoOp::Read,
            at: ByteOffset(piece.start),
            len: bytes.len(),
            source: io::Error::from_raw_os_error(5),
        };
        for slot in sources {
            match slot.device.read_at(ByteOffset(piece.start), bytes) {
                Ok(()) => return Ok(()),
                Err(failed) => error = failed,
            }
        }
        Err(error)
    }

    /// Records durably how far rebuilds are. A member that is complete becomes a member like the
    /// others.
    fn record_rebuilt(&self) -> Result<()> {
        let rebuilding: Vec<_> = {
            let state = self.state.lock();
            let out_of_sync = |out_of_sync: &Intent| {
                (0..state.regions.len()).find(|region| out_of_sync.get(*region))
            };
            let new = state.places.iter().enumerate();
            new.filter(|(_, place)| place.active && place.rebuilding)
                .map(|(n, place)| (n, Arc::clone(&place.slot), out_of_sync(&place.out_of_sync)))
                .collect()
        };
        if rebuilding.is_empty() {
            return Ok(());
        }
        for (n, slot, first_out_of_sync) in rebuilding {
            let flushed = self.on_members(&[(n, slot)], false, |_, slot| slot.device.flush());
            if let Err(failure) = flushed {
                self.take_out(&failure.undecided.failed)?;
                drop(failure);
                self.record_losses()?;
                continue;
            }
            let records = self.records.lock();
            {
                let mut state = self.state.lock();
                let place = &mut state.places[n];
                place.rebuilt_bytes = match first_out_of_sync {
                    Some(region) => self.region_bytes(region).start,
                    None => self.len,
                };
                place.rebuilding = first_out_of_sync.is_some() || !place.out_of_sync.is_empty();
            }
            self.record(&records)?;
        }
        Ok(())
    }
}

fn is_zero(bytes: &[u8]) -> bool {
    bytes.iter().all(|byte| *byte == 0)
}

/// Writes `bytes` at `start`, without the record and without ranges that are zeros in both `bytes`
/// and `held`, the member's present bytes.
fn write_except_holes(
    device: &dyn BlockDevice,
    start: u64,
    bytes: &[u8],
    held: &[u8],
) -> Result<()> {
    let is_hole = |at: usize| {
        let end = bytes.len().min(at + HOLE);
        is_zero(&bytes[at..end]) && is_zero(&held[at..end])
    };
    let mut from = 0;
    for at in (0..bytes.len()).step_by(HOLE) {
        if is_hole(at) {
            if from < at {
                write_except_record(device, start + from as u64, &bytes[from..at])?;
            }
            from = bytes.len().min(at + HOLE);
        }
    }
    match from < bytes.len() {
        true => write_except_record(device, start + from as u64, &bytes[from..]),
        false => Ok(()),
    }
}
