//! raid1: every member holds all bytes of the volume.
//!
//! ```text
//!   write ─► wait for a copy of this range ─► intent bits of its regions durable? ─no─► records
//!                                                       │ yes                          │
//!         acknowledge ◄── failed members on record ◄── write to all members ◄──────────┘
//!
//!   read ──► a member in sync there ── error, or `verify` refuses ──► another; repairs the first
//!   flush ─► all members; now and then it clears the bits of idle regions
//! ```
//!
//! A *region* is a fixed-size range of the volume with one *intent bit* in every member's record. A
//! member is *in sync* in a region when it holds the volume's bytes there. The *source* is the
//! first member that is in sync everywhere.
//!
//! These rules keep readers from seeing two contents of one place:
//! - Rule L1: a region whose intent bit is clear is identical on all active members. The bit is
//!   durable on all of them before the first write to the region, and it is cleared only after a
//!   flush of all of them.
//! - Rule L2: a member that missed a write has an older generation than the other members, durably,
//!   before that write, or any concurrent or later one, is acknowledged (`records.rs`).
//! - Rule L3: after a crash, regions whose bit is set are *out of sync* on all members but the
//!   source. Reads there use only the source until the regions are copied (`copy.rs`). Only a
//!   verified read for which the source has no valid bytes tries the other members (`read.rs`).
//!
//! Locks: `superblock` → `records` → `state`, and `copier` → `records`. `state` is never held
//! across I/O. None of them has a rank, like the locks of other devices.

mod compare;
mod copy;
mod members;
mod read;
mod records;
mod state;
mod write;

pub use compare::{Comparison, Differences};
pub use state::{MirrorStats, PlaceState};

use crate::opening::Opening;
use crate::part::Part;
use crate::stripes::check_range;
use extant_base::{ByteOffset, Error, IoOp, MemberError, MemberProblem, Result};
use extant_blockdev::BlockDevice;
use extant_ondisk::member::{Kind, MEMBER_OFFSET, MEMBER_SIZE, Member, print_of};
use parking_lot::{Condvar, Mutex};
use state::State;
use std::io::{IoSlice, IoSliceMut};
use std::ops::Range;
use std::sync::{Arc, OnceLock};
use write::Change;

/// The bytes of the member record, which are not part of the volume: reads return zeros, writes
/// skip them.
pub(crate) const RECORD: Range<u64> = MEMBER_OFFSET..MEMBER_OFFSET + MEMBER_SIZE as u64;
/// The first sector of the superblock. Its fingerprint reveals changes by other software.
pub(crate) const PRINTED: Range<u64> = 1024..1536;

/// A member's device, name and index.
pub(crate) struct Slot {
    pub(crate) device: Arc<dyn BlockDevice>,
    pub(crate) name: String,
    pub(crate) index: u16,
}

type ProblemHandler = dyn Fn(MemberError) + Send + Sync;

/// A mirrored device. See the module documentation.
pub struct Mirror {
    len: u64,
    region_log2: u8,
    uuid: [u8; 16],
    count: u16,
    /// Bit mask of the members that the freshest member's record counted as active at the opening.
    counted: u32,
    write: bool,
    together: bool,
    alignment: usize,
    left_out: Vec<MemberError>,
    state: Mutex<State>,
    /// Signalled when a copy ends, a range becomes writable, or a failure is decided.
    changed: Condvar,
    /// Held while records are written, and while a failed member is taken out.
    records: Mutex<()>,
    /// The first sector of the superblock as last written. Held while that sector is written.
    superblock: Mutex<[u8; 512]>,
    /// Held while a thread resyncs, or adds a member.
    copier: Mutex<()>,
    problem_handler: OnceLock<Box<ProblemHandler>>,
}

impl std::fmt::Debug for Mirror {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Mirror")
            .field("len", &self.len)
            .field("count", &self.count)
            .finish_non_exhaustive()
    }
}

impl Mirror {
    /// `taken` are the members to use, which agree; `freshest` is the record of one of them and is
    /// authoritative.
    ///
    /// # Errors
    /// `Device` when the freshest member's superblock cannot be read.
    pub(crate) fn new(
        taken: Vec<(Part, Member)>,
        freshest: Member,
        left_out: Vec<MemberError>,
        opening: Opening,
    ) -> Result<Mirror> {
        let Kind::Mirrored { region_log2 } = freshest.kind else {
            unreachable!("assembled by kind");
        };
        let mut sector = [0; 512];
        let (source, _) = taken
            .iter()
            .find(|(_, record)| record.index == freshest.index)
            .expect("the freshest member is among those taken");
        if freshest.volume_bytes >= PRINTED.end {
            source.device.read_fresh_at(ByteOffset(PRINTED.start), &mut sector)?;
        }
        let alignment = taken.iter().map(|(part, _)| part.device.alignment()).max().unwrap_or(1);
        let state = State::new(taken, &freshest, print_of(&sector), region_log2);
        Ok(Mirror {
            len: freshest.volume_bytes,
            region_log2,
            uuid: freshest.uuid,
            count: freshest.count,
            counted: freshest.active,
            write: opening.write,
            together: opening.together,
            alignment,
            left_out,
            state: Mutex::new(state),
            changed: Condvar::new(),
            records: Mutex::new(()),
            superblock: Mutex::new(sector),
            copier: Mutex::new(()),
            problem_handler: OnceLock::new(),
        })
    }

    /// Sets the handler for problems after the opening: a member that fails while the volume goes
    /// on without it, and a bad range that a read found and repaired ([`MemberProblem::Repaired`]).
    /// Only the first call has an effect.
    ///
    /// Any thread may call the handler, with any locks held: the handler must not use the mirror.
    pub fn on_problem(&self, handler: impl Fn(MemberError) + Send + Sync + 'static) {
        let _ = self.problem_handler.set(Box::new(handler));
    }

    /// Reports members that have just failed, each with its errno.
    fn report_failed(&self, failed: &[(usize, i32)]) {
        for (place, errno) in failed {
            self.report(*place, MemberProblem::Failed { errno: *errno });
        }
    }

    fn report(&self, place: usize, problem: MemberProblem) {
        let Some(handler) = self.problem_handler.get() else { return };
        let member = self.state.lock().places[place].slot.name.clone();
        handler(MemberError { member, problem });
    }

    /// Members that were named but are not used, with the reason.
    pub fn left_out(&self) -> &[MemberError] {
        &self.left_out
    }

    /// Number of members of the layout, present or not.
    pub fn count(&self) -> u16 {
        self.count
    }

    /// The layout's UUID.
    pub fn uuid(&self) -> [u8; 16] {
        self.uuid
    }

    /// Indexes of the members that are not in use, whether named or not.
    pub fn unused(&self) -> Vec<u16> {
        let state = self.state.lock();
        let is_used = |index: u16| state.places.iter().any(|p| p.active && p.slot.index == index);
        (0..self.count).filter(|index| !is_used(*index)).collect()
    }

    /// Index of a member that the volume counts on and that was neither named nor left out.
    pub fn missing(&self) -> Option<u16> {
        let state = self.state.lock();
        let is_there = |index: &u16| state.places.iter().any(|place| place.slot.index == *index);
        let mut counted = (0..self.count).filter(|index| self.counted & (1 << index) != 0);
        counted.find(|index| !is_there(index)).filter(|_| self.left_out.is_empty())
    }

    /// The source's number among the members in use, counted as in [`Mirror::read_of`]; `None` when
    /// no member is in sync everywhere.
    pub fn source(&self) -> Option<usize> {
        let state = self.state.lock();
        let source = state.source()?;
        state.targets().iter().position(|(place, _)| *place == source)
    }

    fn regions(&self, range: &Range<u64>) -> Range<usize> {
        if range.is_empty() {
            return 0..0;
        }
        let first = range.start >> self.region_log2;
        first as usize..((range.end - 1) >> self.region_log2) as usize + 1
    }

    fn region_bytes(&self, region: usize) -> Range<u64> {
        let start = (region as u64) << self.region_log2;
        start..self.len.min(start.saturating_add(1 << self.region_log2))
    }
}

impl BlockDevice for Mirror {
    fn len(&self) -> u64 {
        self.len
    }

    fn read_at(&self, at: ByteOffset, buf: &mut [u8]) -> Result<()> {
        self.read(at, buf, None, &|device, at, buf| device.read_at(at, buf)).map(|_| ())
    }

    fn read_fresh_at(&self, at: ByteOffset, buf: &mut [u8]) -> Result<()> {
        self.read(at, buf, None, &|device, at, buf| device.read_fresh_at(at, buf)).map(|_| ())
    }

    fn read_vectored_at(&self, at: ByteOffset, bufs: &mut [IoSliceMut<'_>]) -> Result<()> {
        let total = bufs.iter().map(|buf| buf.len() as u64).sum();
        check_range(IoOp::Read, self.len, at, total)?;
        let mut pos = at.0;
        for buf in bufs {
            self.read_at(ByteOffset(pos), buf)?;
            pos += buf.len() as u64;
        }
        Ok(())
    }

    fn read_verified(
        &self,
        at: ByteOffset,
        buf: &mut [u8],
        verify: &dyn Fn(&[u8]) -> bool,
    ) -> Result<bool> {
        self.read(at, buf, Some(verify), &|device, at, buf| device.read_at(at, buf))
    }

    fn write_at(&self, at: ByteOffset, buf: &[u8]) -> Result<()> {
        self.change(at, Change::Bytes(buf), &|device, at, bytes| device.write_at(at, bytes))
    }

    fn write_vectored_at(&self, at: ByteOffset, bufs: &[IoSlice<'_>]) -> Result<()> {
        if at.0 < PRINTED.end {
            let bytes = bufs.iter().map(|buf| &**buf).collect::<Vec<_>>().concat();
            return self.write_at(at, &bytes);
        }
        let total = bufs.iter().map(|buf| buf.len() as u64).sum();
        self.change(at, Change::Other(total), &|device, at, _| device.write_vectored_at(at, bufs))
    }

    fn flush(&self) -> Result<()> {
        self.flush_all()
    }

    fn write_fua(&self, at: ByteOffset, buf: &[u8]) -> Result<()> {
        self.change(at, Change::Bytes(buf), &|device, at, bytes| device.write_fua(at, bytes))
    }

    /// Skips the first bytes of the volume, which hold the records and the superblock's first
    /// sector.
    fn discard(&self, at: ByteOffset, len: u64) -> Result<()> {
        check_range(IoOp::Discard, self.len, at, len)?;
        let start = at.0.max(PRINTED.end);
        let len = (at.0 + len).saturating_sub(start);
        if len == 0 {
            return if self.write { Ok(()) } else { Err(Error::ReadOnly) };
        }
        self.change(ByteOffset(start), Change::Other(len), &|device, at, _| device.discard(at, len))
    }

    fn zero(&self, at: ByteOffset, len: u64) -> Result<()> {
        check_range(IoOp::Write, self.len, at, len)?;
        let head = PRINTED.end.saturating_sub(at.0).min(len);
        if head > 0 {
            self.write_at(at, &vec![0; head as usize])?;
        }
        let (at, len) = (ByteOffset(at.0 + head), len - head);
        if len == 0 {
            return Ok(());
        }
        self.change(at, Change::Other(len), &|device, at, _| device.zero(at, len))
    }

    fn is_read_only(&self) -> bool {
        !self.write
    }

    fn alignment(&self) -> usize {
        self.alignment
    }

    fn needs_stable_buffers(&self) -> bool {
        true
    }

    /// Writes records that show all members in sync, if that is so.
    fn set_idle(&self) {
        Mirror::set_idle(self);
    }
}

impl Drop for Mirror {
    /// Clears the records. If that fails, the next opening copies more than necessary.
    fn drop(&mut self) {
        self.set_idle();
    }
}
