//! Where members differ.

use super::Mirror;
use crate::crew::on_all;
use extant_base::{ByteOffset, Error, IoOp, Result};
use extant_blockdev::BlockDevice;
use parking_lot::Mutex;
use std::io;
use std::ops::Range;

const PIECE: u64 = 1 << 20;

/// A range in which the members are not the same.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Comparison {
    /// First byte and the one past the last.
    pub range: Range<u64>,
    /// For each member in use: what it holds is the same for members of one number; `None` where it
    /// could not be read.
    pub contents: Vec<Option<usize>>,
}

impl Mirror {
    /// Compares all members in units of `unit` bytes, a power of two from 1024 to 1 MiB. Members that
    /// are behind are compared, too: bring them in line first.
    ///
    /// Tells `progress` how far it is; that returns false to stop, and what was found by then comes back.
    pub fn compare(
        &self,
        unit: u64,
        progress: &mut dyn FnMut(u64, u64) -> bool,
    ) -> Result<Vec<Comparison>> {
        assert!(unit.is_power_of_two() && (1024..=PIECE).contains(&unit), "{unit} is no unit");
        let mut found = Vec::new();
        let mut at = 0;
        while at < self.len && progress(at, self.len) {
            let piece = at..self.len.min(at + PIECE);
            at = piece.end;
            self.compare_piece(&piece, unit, &mut found);
        }
        progress(at, self.len);
        Ok(found)
    }

    /// As [`compare`](Mirror::compare), where some member is behind after a crash, of the members that were whole
    /// before it: others are never the ones to be right.
    pub fn compare_behind(&self, unit: u64) -> Vec<Comparison> {
        let (regions, fresh) = {
            let state = self.state.lock();
            let places = state.places.iter().filter(|place| place.active);
            let old = places.clone().filter(|place| !place.rebuilding);
            let is_behind = |region: &usize| old.clone().any(|place| place.behind.get(*region));
            let regions: Vec<_> = (0..state.regions.len()).filter(is_behind).collect();
            (regions, places.map(|place| place.rebuilding).collect::<Vec<_>>())
        };
        let mut found = Vec::new();
        for region in regions {
            let bytes = self.region_bytes(region);
            for at in bytes.clone().step_by(PIECE as usize) {
                self.compare_piece(&(at..bytes.end.min(at + PIECE)), unit, &mut found);
            }
        }
        for block in &mut found {
            let contents = block.contents.iter_mut().zip(&fresh);
            contents.filter(|(_, fresh)| **fresh).for_each(|(content, _)| *content = None);
        }
        let differs = |block: &Comparison| {
            let mut old = block.contents.iter().zip(&fresh).filter(|(_, fresh)| !**fresh);
            let first = old.next().and_then(|(content, _)| *content);
            first.is_none() || old.any(|(content, _)| *content != first)
        };
        found.retain(differs);
        found
    }

    fn compare_piece(&self, piece: &Range<u64>, unit: u64, found: &mut Vec<Comparison>) {
        let targets = self.state.lock().targets();
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
                self.compare_units(piece, unit, found);
            }
        });
    }

    fn compare_units(&self, piece: &Range<u64>, unit: u64, found: &mut Vec<Comparison>) {
        let count = self.state.lock().targets().len();
        let mut at = piece.start;
        while at < piece.end {
            let range = at..piece.end.min(at + unit);
            at = range.end;
            let mut known: Vec<Vec<u8>> = Vec::new();
            let mut contents = Vec::new();
            for place in 0..count {
                let mut bytes = vec![0; (range.end - range.start) as usize];
                contents.push(match self.read_of(place, range.start, &mut bytes) {
                    Err(_) => None,
                    Ok(()) => {
                        Some(known.iter().position(|held| *held == bytes).unwrap_or_else(|| {
                            known.push(bytes);
                            known.len() - 1
                        }))
                    }
                });
            }
            if contents.iter().any(|content| *content != Some(0)) {
                found.push(Comparison { range, contents });
            }
        }
    }

    /// Reads what the `place`-th member in use holds; the record as zeros.
    ///
    /// Errors: `Device`.
    pub fn read_of(&self, place: usize, at: u64, buf: &mut [u8]) -> Result<()> {
        let targets = self.state.lock().targets();
        let (_, slot) = targets.get(place).ok_or_else(|| no_member(at))?;
        slot.device.read_at(ByteOffset(at), buf)?;
        super::read::hide_record(&(at..at + buf.len() as u64), buf);
        Ok(())
    }
}

fn no_member(at: u64) -> Error {
    let source = io::Error::from_raw_os_error(5);
    Error::Device { op: IoOp::Read, at: ByteOffset(at), len: 0, source }
}
