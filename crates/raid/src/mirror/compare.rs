//! Where members differ.

use super::Mirror;
use super::state::Place;
use crate::crew::on_all;
use extant_base::{ByteOffset, Error, IoOp, Result};
use extant_blockdev::BlockDevice;
use extant_ondisk::member::REGION_LOG2_MIN;
use parking_lot::Mutex;
use std::io;
use std::ops::Range;
use std::sync::Arc;

const PIECE: u64 = 1 << 20;
/// No region is smaller.
const UNIT_MAX: u64 = 1 << REGION_LOG2_MIN;

/// A range in which the members are not the same.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Comparison {
    /// First byte and the one past the last.
    pub range: Range<u64>,
    /// For each member in use: what it holds is the same for members of one number, in each unit of the
    /// range; `None` where it could not be read, or is behind.
    pub contents: Arc<[Option<usize>]>,
}

/// Where members differ.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Differences {
    /// Ascending. Neighbours in which other members are the same are ranges of their own.
    pub ranges: Vec<Comparison>,
    /// Units in them.
    pub units: usize,
    /// There are more than was asked for: nothing behind the last range was compared.
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

/// How to compare.
#[derive(Clone, Copy)]
struct Rule {
    unit: u64,
    units_max: usize,
}

impl Mirror {
    /// Compares in units of `unit` bytes, a power of two from 1024 to 64 KiB, and stops when more than
    /// `units_max` of them differ. A member that is behind in a region is not compared there.
    ///
    /// Tells `progress` how far it is; that returns false to stop, and what was found by then comes back.
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

    /// As [`compare`](Mirror::compare), where some member is behind after a crash, of the members that were whole
    /// before it: others are never the ones to be right.
    pub fn compare_behind(&self, unit: u64, units_max: usize) -> Differences {
        let rule = Rule::new(unit, units_max);
        let (regions, asked) = {
            let state = self.state.lock();
            let places = state.places.iter().filter(|place| place.active);
            let old = places.clone().filter(|place| !place.rebuilding);
            let is_behind = |region: &usize| old.clone().any(|place| place.behind.get(*region));
            let regions: Vec<_> = (0..state.regions.len()).filter(is_behind).collect();
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

    /// What is compared at once from `at` on, and for each member in use whether it is in line there.
    fn piece_from(&self, at: u64) -> (Range<u64>, Vec<bool>) {
        let state = self.state.lock();
        let in_line = |region: usize| {
            let places = state.places.iter().filter(|place| place.active);
            places.map(|place| !place.behind.get(region)).collect::<Vec<_>>()
        };
        let regions = self.regions(&(at..self.len.min(at + PIECE)));
        let first = in_line(regions.start);
        let same = regions.take_while(|region| in_line(*region) == first);
        let end = same.last().map_or(at, |region| self.region_bytes(region).end);
        (at..end.min(at + PIECE), first)
    }

    /// Compares the members in use that are `asked`.
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
        self.alone(piece, || {
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

    /// Reads what the `place`-th member in use holds; the record as zeros.
    ///
    /// Errors: `Device`; also where a member that is being rebuilt has nothing of the volume yet.
    pub fn read_of(&self, place: usize, at: u64, buf: &mut [u8]) -> Result<()> {
        let regions = self.regions(&(at..at + buf.len() as u64));
        let slot = {
            let state = self.state.lock();
            let place = state.places.iter().filter(|place| place.active).nth(place);
            let has = |place: &&Place| {
                !place.rebuilding || !regions.clone().any(|region| place.behind.get(region))
            };
            place.filter(has).map(|place| Arc::clone(&place.slot)).ok_or_else(|| no_member(at))?
        };
        slot.device.read_at(ByteOffset(at), buf)?;
        super::read::hide_record(&(at..at + buf.len() as u64), buf);
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
