//! Comparison of the members.

use super::Mirror;
use super::state::Place;
use crate::parallel::on_all;
use extant_base::{ByteOffset, Error, IoOp, Result};
use extant_blockdev::BlockDevice;
use extant_ondisk::member::REGION_LOG2_MIN;
use parking_lot::Mutex;
use std::io;
use std::ops::Range;
use std::sync::Arc;

const PIECE: u64 = 1 << 20;
/// The smallest region size.
const UNIT_MAX: u64 = 1 << REGION_LOG2_MIN;

/// A range in which the members differ.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Comparison {
    /// Byte range of the volume.
    pub range: Range<u64>,
    /// For each member in use: members with the same number hold the same bytes, in each unit of
    /// the range. `None` for a member that could not be read, or is out of sync.
    pub contents: Arc<[Option<usize>]>,
}

/// The ranges in which members differ.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Differences {
    /// In ascending order. Adjacent units whose `contents` differ are ranges of their own.
    pub ranges: Vec<Comparison>,
    /// Number of units in them.
    pub units: usize,
    /// There are more than requested: nothing after the last range was compared.
    pub more: bool,
}

impl Differences {
    fn add(&mut self, range: Range<u64>, contents: &[Option<usize>], units_max: usize) {
        if self.units == units_max {
            self.more = true;
            return;
        }
        self.units += 1;
        match self.ranges.last_mut() {
            Some(last) if last.range.end == range.start && *last.contents == *contents => {
                last.range.end = range.end;
            }
            _ => self.ranges.push(Comparison { range, contents: contents.into() }),
        }
    }
}

/// The parameters of a comparison.
#[derive(Clone, Copy)]
struct Rule {
    unit: u64,
    units_max: usize,
}

impl Mirror {
    /// Compares the members in units of `unit` bytes, a power of two from 1024 to 64 KiB, and stops
    /// when more than `units_max` units differ. A member is not compared in regions where it is out
    /// of sync.
    ///
    /// Calls `progress` with the bytes done and the total; `false` stops the comparison, which then
    /// returns what it has found.
    ///
    /// # Errors
    /// None: a member that cannot be read counts as `None` in [`Comparison::contents`].
    pub fn compare(
        &self,
        unit: u64,
        units_max: usize,
        progress: &mut dyn FnMut(u64, u64) -> bool,
    ) -> Result<Differences> {
        let rule = Rule::new(unit, units_max);
        let mut found = Differences::default();
        let mut at = 0;
        while at < self.len {
            if found.more || !progress(at, self.len) {
                return Ok(found);
            }
            let (piece, asked) = self.piece_from(at);
            self.compare_piece(&piece, &asked, rule, &mut found);
            at = piece.end;
        }
        progress(self.len, self.len);
        Ok(found)
    }

    /// As [`compare`](Mirror::compare), in regions where a member is out of sync after a crash.
    /// Compares only the members that are not under rebuild: the others never have the correct
    /// bytes.
    pub fn compare_behind(&self, unit: u64, units_max: usize) -> Differences {
        let rule = Rule::new(unit, units_max);
        let (regions, asked) = {
            let state = self.state.lock();
            let places = state.places.iter().filter(|place| place.active);
            let old = places.clone().filter(|place| !place.rebuilding);
            let is_out_of_sync =
                |region: &usize| old.clone().any(|place| place.out_of_sync.get(*region));
            let regions: Vec<_> = (0..state.regions.len()).filter(is_out_of_sync).collect();
            (regions, places.map(|place| !place.rebuilding).collect::<Vec<_>>())
        };
        let mut found = Differences::default();
        for region in regions {
            let bytes = self.region_bytes(region);
            for at in bytes.clone().step_by(PIECE as usize) {
                if found.more {
                    return found;
                }
                self.compare_piece(&(at..bytes.end.min(at + PIECE)), &asked, rule, &mut found);
            }
        }
        found
    }

    /// The range to compare at once from `at` on, and for each member in use whether it is in sync
    /// there.
    fn piece_from(&self, at: u64) -> (Range<u64>, Vec<bool>) {
        let state = self.state.lock();
        let in_sync = |region: usize| {
            let places = state.places.iter().filter(|place| place.active);
            places.map(|place| !place.out_of_sync.get(region)).collect::<Vec<_>>()
        };
        let regions = self.regions(&(at..self.len.min(at + PIECE)));
        let first = in_sync(regions.start);
        let same = regions.take_while(|region| in_sync(*region) == first);
        let end = same.last().map_or(at, |region| self.region_bytes(region).end);
        (at..end.min(at + PIECE), first)
    }

    /// Compares the members in use that `asked` selects.
    fn compare_piece(
        &self,
        piece: &Range<u64>,
        asked: &[bool],
        rule: Rule,
        found: &mut Differences,
    ) {
        let targets = self.state.lock().targets();
        let targets = targets.into_iter().zip(asked).filter(|(_, asked)| **asked);
        let targets: Vec<_> = targets.map(|(target, _)| target).collect();
        let len = (piece.end - piece.start) as usize;
        let buffers: Vec<_> = targets.iter().map(|_| Mutex::new(vec![0; len])).collect();
        self.exclude_writers(piece, || {
            let read = on_all(&targets, self.together, |n, (_, slot)| {
                slot.device.read_at(ByteOffset(piece.start), &mut buffers[n].lock()[..])
            });
            let all_read = read.iter().all(Result::is_ok);
            let buffers: Vec<_> = buffers.iter().map(Mutex::lock).collect();
            let is_same = buffers.iter().all(|held| **held == *buffers[0]);
            if !all_read || piece.start == 0 || !is_same {
                drop(buffers);
                self.compare_units(piece, asked, rule, found);
            }
        });
    }

    fn compare_units(
        &self,
        piece: &Range<u64>,
        asked: &[bool],
        rule: Rule,
        found: &mut Differences,
    ) {
        let mut at = piece.start;
        while at < piece.end && !found.more {
            let range = at..piece.end.min(at + rule.unit);
            at = range.end;
            let mut known: Vec<Vec<u8>> = Vec::new();
            let mut content = |place: usize| {
                let mut bytes = vec![0; (range.end - range.start) as usize];
                self.read_of(place, range.start, &mut bytes).ok()?;
                let held = known.iter().position(|held| *held == bytes);
                Some(held.unwrap_or_else(|| {
                    known.push(bytes);
                    known.len() - 1
                }))
            };
            let asked_of = |(place, asked): (usize, &bool)| match asked {
                true => content(place),
                false => None,
            };
            let contents: Vec<_> = asked.iter().enumerate().map(asked_of).collect();
            let mut compared = contents.iter().zip(asked).filter(|(_, asked)| **asked);
            if compared.any(|(content, _)| *content != Some(0)) {
                found.add(range, &contents, rule.units_max);
            }
        }
    }

    /// Reads the bytes of the `place`-th member in use; the record reads as zeros.
    ///
    /// # Errors
    /// `Device`; also when a member under rebuild does not have these bytes yet.
    pub fn read_of(&self, place: usize, at: u64, buf: &mut [u8]) -> Result<()> {
        let regions = self.regions(&(at..at + buf.len() as u64));
        let slot = {
            let state = self.state.lock();
            let place = state.places.iter().filter(|place| place.active).nth(place);
            let has = |place: &&Place| {
                !place.rebuilding || !regions.clone().any(|region| place.out_of_sync.get(region))
            };
            place.filter(has).map(|place| Arc::clone(&place.slot)).ok_or_else(|| no_member(at))?
        };
        slot.device.read_at(ByteOffset(at), buf)?;
        super::read::zero_record(&(at..at + buf.len() as u64), buf);
        Ok(())
    }
}

impl Rule {
    fn new(unit: u64, units_max: usize) -> Rule {
        assert!(unit.is_power_of_two() && (1024..=UNIT_MAX).contains(&unit), "{unit} is no unit");
        Rule { unit, units_max }
    }
}

fn no_member(at: u64) -> Error {
    let source = io::Error::from_raw_os_error(5);
    Error::Device { op: IoOp::Read, at: ByteOffset(at), len: 0, source }
}
