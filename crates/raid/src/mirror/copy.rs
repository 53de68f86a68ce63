//! Bringing members in line: after a crash, and a new member from nothing.
//!
//! ```text
//!   region ─► its bit on record ─► piece by piece, while nobody writes there:
//!                                    source ──read──► same as on the other? ──no──► write
//!          ─► no longer behind; its bit goes after the next flush
//!
//!   a new member:  every 64 MiB  flush it ─► record: rebuilt so far        cut: goes on from there
//!                  at the end    flush it ─► record: a member like the others
//! ```
//!
//! Rule L5: a new member never leads, and is flushed before its record says how far it is.
//! Writes that come meanwhile go to all members, so a piece that was copied stays in line.

use super::read::write_around;
use super::{Mirror, MirrorStats, PlaceState, Slot};
use crate::assemble::is_changed_outside;
use crate::part::Part;
use extant_base::{ByteOffset, Error, IoOp, MemberProblem, Result};
use extant_blockdev::BlockDevice;
use extant_ondisk::member::{Intent, Member};
use std::cmp::Ordering;
use std::io;
use std::ops::Range;
use std::sync::{Arc, Weak};

/// Bytes that writers may have to wait for.
const PIECE: u64 = 1 << 20;
/// Bytes of zeros that are worth to be left out: less is written with what is around.
const HOLE: usize = 64 << 10;
/// Bytes between two notes of how far a new member is.
const NOTE_EVERY: u64 = 64 << 20;

/// Hears how many bytes are done, and of how many; false to stop.
pub type Progress<'a> = &'a mut dyn FnMut(u64, u64) -> bool;

impl Mirror {
    /// The members that are in use, or were until they failed.
    pub fn places(&self) -> Vec<PlaceState> {
        let state = self.state.lock();
        let behind = |behind: &Intent| -> u64 {
            let regions = (0..state.regions.len()).filter(|region| behind.get(*region));
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
            behind_bytes: if place.active { behind(&place.behind) } else { 0 },
        });
        places.collect()
    }

    /// What was counted since the opening.
    pub fn stats(&self) -> MirrorStats {
        self.state.lock().stats
    }

    /// The generation, and the members that take writes, by bit.
    pub fn generation(&self) -> (u64, u32) {
        let state = self.state.lock();
        (state.generation, state.active_mask())
    }

    /// Bytes in regions that some member is behind in.
    pub fn behind_bytes(&self) -> u64 {
        let state = self.state.lock();
        let any = |region: usize| {
            state.places.iter().any(|place| place.active && place.behind.get(region))
        };
        let regions = (0..state.regions.len()).filter(|region| any(*region));
        regions.map(|region| self.region_bytes(region)).map(|range| range.end - range.start).sum()
    }

    /// Takes `part` as a member in place of one that is missing, and returns its index. It has
    /// everything after [`resync`](Mirror::resync); cut before, the next opening that names it goes on.
    ///
    /// Errors: `Invalid` when no member is missing; `Member` when it is too short, or a member of this
    /// volume that may have changes which this mirror lacks; `Device`.
    pub fn add(&self, part: Part) -> Result<u16> {
        self.add_part(part, false)
    }

    /// As [`add`](Mirror::add), whatever the part holds.
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
        self.intend(0..0, false)?;
        let records = self.records.lock();
        let (index, first) = {
            let mut state = self.state.lock();
            let is_free = |index: &u16| state.active_mask() & (1 << index) == 0;
            let wish = own.map(|record| record.index).filter(|index| *index < self.count);
            let index = wish.filter(is_free).or_else(|| (0..self.count).find(is_free));
            let index = index.ok_or(Error::Invalid("the volume has all its members already"))?;
            let mut behind = Intent::none();
            (0..state.regions.len()).for_each(|region| behind.set(region, true));
            state.generation += 1;
            state.settled = false;
            state.setbacks += 1;
            let device = Arc::clone(&part.device);
            state.places.push(super::state::Place {
                slot: Arc::new(Slot { device, name: part.name.clone(), index }),
                active: true,
                rebuilding: true,
                rebuilt_bytes: 0,
                behind,
                reads: 0,
            });
            let place = state.places.last().expect("it was pushed just now");
            (index, state.record(place, self))
        };
        // The new member's record first: before the others count on it, it is known to be no leader.
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

    /// Refuses a part, of which `own` is the record, that may have changes which this mirror lacks.
    ///
    /// ```text
    ///   rebuilding ─────────────────────────────► nothing of its own: taken
    ///   older, counts all whole members here ───► its changes are all here: taken
    ///   same generation, each counts the other ─► taken
    ///   newer, and counted on here ─────────────► Newer: copied the wrong way round
    ///   else ───────────────────────────────────► Diverged
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

    /// Brings all members in line; whether it came to the end. May be called while the mirror is in
    /// use, and again after it was stopped.
    ///
    /// Errors: `Device` when the source cannot be read. A member that cannot be written is lost.
    pub fn resync(&self, progress: Progress<'_>) -> Result<bool> {
        if !self.write {
            return Err(Error::ReadOnly);
        }
        let _copier = self.copier.lock();
        let total = self.behind_bytes();
        let (mut done, mut noted) = (0, 0);
        if !progress(0, total) {
            return Ok(false);
        }
        let mut from = 0;
        while let Some(region) = self.next_behind(from) {
            self.bring_in_line(region)?;
            let range = self.region_bytes(region);
            done += range.end - range.start;
            if done - noted >= NOTE_EVERY {
                noted = done;
                self.note_rebuilt()?;
            }
            if !progress(done.min(total), total) {
                return Ok(false);
            }
            // One that a write threw back meanwhile comes last.
            from = region + 1;
        }
        self.note_rebuilt()?;
        Ok(true)
    }

    /// Brings members in line by a thread of its own, until that is done or `mirror` is dropped.
    pub fn resync_in_background(mirror: &Arc<Mirror>) -> Result<()> {
        let mirror: Weak<Mirror> = Arc::downgrade(mirror);
        let work = move || {
            let mut from = 0;
            let mut since = 0;
            while let Some(mirror) = mirror.upgrade() {
                let _copier = mirror.copier.lock();
                let Some(region) = mirror.next_behind(from) else {
                    let _ = mirror.note_rebuilt();
                    return;
                };
                if mirror.bring_in_line(region).is_err() {
                    return;
                }
                from = region + 1;
                since += 1u64 << mirror.region_log2;
                if since >= NOTE_EVERY {
                    since = 0;
                    let _ = mirror.note_rebuilt();
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

    /// The next region that some member is behind in: from `from` on, then from the first on.
    fn next_behind(&self, from: usize) -> Option<usize> {
        let state = self.state.lock();
        let any = |region: &usize| {
            state.places.iter().any(|place| place.active && place.behind.get(*region))
        };
        let all = state.regions.len();
        (from..all).find(any).or_else(|| (0..from.min(all)).find(any))
    }

    fn bring_in_line(&self, region: usize) -> Result<()> {
        loop {
            let (mut targets, setbacks) = {
                let state = self.state.lock();
                let behind = state.places.iter().enumerate();
                let behind = behind.filter(|(_, place)| place.active && place.behind.get(region));
                let targets: Vec<_> = behind
                    .map(|(n, place)| (n, Arc::clone(&place.slot), place.rebuilding))
                    .collect();
                (targets, state.setbacks)
            };
            if targets.is_empty() {
                return Ok(());
            }
            self.intend(region..region + 1, false)?;
            let bytes = self.region_bytes(region);
            let mut at = bytes.start;
            while at < bytes.end {
                let piece = at..bytes.end.min(at + PIECE);
                self.alone(&piece, || self.copy(&piece, &mut targets))?;
                at = piece.end;
            }
            let mut state = self.state.lock();
            let now = state.flushes;
            state.regions[region].last = now;
            if state.setbacks == setbacks {
                for (n, _, _) in &targets {
                    state.places[*n].behind.set(region, false);
                }
                return Ok(());
            }
        }
    }

    /// Copies `piece` from a member that is in line there to `targets`; those that fail leave.
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
            // A new member may be a sparse file: what reads as zeros there already stays a hole.
            let put = match *new && bytes.chunks(HOLE).any(is_zero) && is_read(&mut held) {
                true => write_but_holes(&*slot.device, piece.start, &bytes, &held),
                false => write_around(&*slot.device, piece.start, &bytes),
            };
            if let Err(error) = put {
                failed.push((*n, error.errno()));
            }
        }
        self.state.lock().stats.copied_bytes += copied;
        if !failed.is_empty() {
            self.lose(&failed)?;
            self.put_on_record()?;
            targets.retain(|(n, _, _)| !failed.iter().any(|(failed, _)| failed == n));
        }
        Ok(())
    }

    fn read_source(&self, piece: &Range<u64>, bytes: &mut [u8]) -> Result<()> {
        let regions = self.regions(piece);
        let sources: Vec<_> = {
            let state = self.state.lock();
            let in_line = state.places.iter().filter(|place| {
                place.active && !regions.clone().any(|region| place.behind.get(region))
            });
            in_line.map(|place| Arc::clone(&place.slot)).collect()
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

    /// Notes how far new members are, durably; one that has everything is a member as others.
    fn note_rebuilt(&self) -> Result<()> {
        let news: Vec<_> = {
            let state = self.state.lock();
            let behind =
                |behind: &Intent| (0..state.regions.len()).find(|region| behind.get(*region));
            let new = state.places.iter().enumerate();
            new.filter(|(_, place)| place.active && place.rebuilding)
                .map(|(n, place)| (n, Arc::clone(&place.slot), behind(&place.behind)))
                .collect()
        };
        if news.is_empty() {
            return Ok(());
        }
        for (n, slot, first_behind) in news {
            let flushed = self.on_members(&[(n, slot)], false, |_, slot| slot.device.flush());
            if let Err(failure) = flushed {
                self.lose(&failure.doubt.failed)?;
                drop(failure);
                self.put_on_record()?;
                continue;
            }
            let records = self.records.lock();
            {
                let mut state = self.state.lock();
                let place = &mut state.places[n];
                place.rebuilt_bytes = match first_behind {
                    Some(region) => self.region_bytes(region).start,
                    None => self.len,
                };
                place.rebuilding = first_behind.is_some() || !place.behind.is_empty();
            }
            self.record(&records)?;
        }
        Ok(())
    }
}

fn is_zero(bytes: &[u8]) -> bool {
    bytes.iter().all(|byte| *byte == 0)
}

/// Writes `bytes` at `start`, but for the record and what is zeros in both `bytes` and `held`, which is there already.
fn write_but_holes(device: &dyn BlockDevice, start: u64, bytes: &[u8], held: &[u8]) -> Result<()> {
    let is_hole = |at: usize| {
        let end = bytes.len().min(at + HOLE);
        is_zero(&bytes[at..end]) && is_zero(&held[at..end])
    };
    let mut from = 0;
    for at in (0..bytes.len()).step_by(HOLE) {
        if is_hole(at) {
            if from < at {
                write_around(device, start + from as u64, &bytes[from..at])?;
            }
            from = bytes.len().min(at + HOLE);
        }
    }
    match from < bytes.len() {
        true => write_around(device, start + from as u64, &bytes[from..]),
        false => Ok(()),
    }
}
