//! Where members differ.

use super::Mirror;
use super::read::write_around;
use crate::crew::on_all;
use extant_base::{ByteOffset, Error, IoOp, Result};
use extant_blockdev::BlockDevice;
use parking_lot::Mutex;
use std::io;
use std::ops::Range;
use std::sync::Arc;

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
        let targets = self.state.lock().targets();
        let mut found = Vec::new();
        let buffers: Vec<_> = targets.iter().map(|_| Mutex::new(vec![0; PIECE as usize])).collect();
        let mut at = 0;
        while at < self.len && progress(at, self.len) {
            let piece = at..self.len.min(at + PIECE);
            at = piece.end;
            let len = (piece.end - piece.start) as usize;
            self.alone(&piece, || {
                let read = on_all(&targets, self.together, |n, (_, slot)| {
                    slot.device.read_at(ByteOffset(piece.start), &mut buffers[n].lock()[..len])
                });
                let buffers: Vec<_> = buffers.iter().map(Mutex::lock).collect();
                let all_read = read.iter().all(Result::is_ok);
                if all_read
                    && piece.start > 0
                    && buffers.iter().all(|b| b[..len] == buffers[0][..len])
                {
                    return;
                }
                drop(buffers);
                self.compare_units(&piece, unit, &mut found);
            });
        }
        progress(at, self.len);
        Ok(found)
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

    /// Copies `range` from one member in use to all others, while nobody writes there.
    ///
    /// Errors: `Device` from the good one. A member that cannot be written is lost.
    pub fn copy_from(&self, place: usize, range: Range<u64>) -> Result<()> {
        if !self.write {
            return Err(Error::ReadOnly);
        }
        // Before `alone`, as writers do.
        let mut sector = (range.start < super::PRINTED.end).then(|| self.superblock.lock());
        self.intend(self.regions(&range), false)?;
        let targets = self.state.lock().targets();
        self.alone(&range, || {
            let mut bytes = vec![0; (range.end - range.start) as usize];
            self.read_of(place, range.start, &mut bytes)?;
            let mut failed = Vec::new();
            for (n, (slot_at, slot)) in targets.iter().enumerate() {
                if n != place && write_around(&*slot.device, range.start, &bytes).is_err() {
                    failed.push(*slot_at);
                }
            }
            if let Some(sector) = &mut sector
                && range.start <= super::PRINTED.start
                && range.end >= super::PRINTED.end
            {
                let from = (super::PRINTED.start - range.start) as usize;
                sector.copy_from_slice(&bytes[from..from + 512]);
            }
            let mut state = self.state.lock();
            state.stats.repaired += 1;
            let now = state.flushes;
            for region in self.regions(&range) {
                state.regions[region].last = now;
            }
            drop(state);
            if failed.is_empty() { Ok(()) } else { self.lose(&failed) }
        })
    }

    /// What the `place`-th member in use holds, as a device to read.
    pub fn view_of(self: &Arc<Mirror>, place: usize) -> Arc<dyn BlockDevice> {
        Arc::new(View { mirror: Arc::clone(self), place })
    }
}

fn no_member(at: u64) -> Error {
    let source = io::Error::from_raw_os_error(5);
    Error::Device { op: IoOp::Read, at: ByteOffset(at), len: 0, source }
}

struct View {
    mirror: Arc<Mirror>,
    place: usize,
}

impl BlockDevice for View {
    fn len(&self) -> u64 {
        self.mirror.len
    }

    fn read_at(&self, at: ByteOffset, buf: &mut [u8]) -> Result<()> {
        self.mirror.read_of(self.place, at.0, buf)
    }

    fn write_at(&self, _: ByteOffset, _: &[u8]) -> Result<()> {
        Err(Error::ReadOnly)
    }

    fn flush(&self) -> Result<()> {
        Err(Error::ReadOnly)
    }

    fn is_read_only(&self) -> bool {
        true
    }
}
