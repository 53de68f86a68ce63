//! raid1: every member holds all bytes.
//!
//! ```text
//!   write ─► wait for a copy of this range ─► its regions' intent bits durable on all? ─no─► records
//!                                                             │ yes                            │
//!            acknowledged ◄── who is out is on record ◄── on all members ◄─────────────────────┘
//!
//!   read ──► one member that is in line there ── fails, or `verify` says no ──► another, which mends it
//!   flush ─► on all; now and then bits of regions that rest are cleared
//! ```
//!
//! What keeps two contents from being seen:
//! - Rule L1: a region whose bit is clear is the same on all members (the bit is durable before the first
//!   write, and cleared after a flush on all).
//! - Rule L3: after a crash regions with a bit are *behind* on all members but the source, which alone is
//!   read there until they are copied (`copy.rs`).
//! - Rule L2: a member that missed a write is of an older generation than the others, durably, before that
//!   write, or any that comes meanwhile, is acknowledged (`records.rs`).
//!
//! Locks: `superblock` → `records` → `state`; `state` is never held across I/O. None has a rank, as
//! those of other devices.

mod compare;
mod copy;
mod members;
mod read;
mod records;
mod state;
mod write;

pub use compare::{Comparison, Differences};
pub use state::{MirrorStats, PlaceState};

use crate::assemble::Opening;
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

/// The member records, which are no bytes of the volume: they read as zeros, writes pass over them.
pub(crate) const RECORD: Range<u64> = MEMBER_OFFSET..MEMBER_OFFSET + MEMBER_SIZE as u64;
/// The first sector of the superblock, by which a change from outside is noticed.
pub(crate) const PRINTED: Range<u64> = 1024..1536;

/// A device and what it is called.
pub(crate) struct Slot {
    pub(crate) device: Arc<dyn BlockDevice>,
    pub(crate) name: String,
    pub(crate) index: u16,
}

type Hear = dyn Fn(MemberError) + Send + Sync;

/// A mirrored device. See the module's picture.
pub struct Mirror {
    len: u64,
    region_log2: u8,
    uuid: [u8; 16],
    count: u16,
    /// The members that the leader counted as active when it was opened, by bit.
    counted: u32,
    write: bool,
    together: bool,
    alignment: usize,
    left_out: Vec<MemberError>,
    state: Mutex<State>,
    /// A copy is done, a range is free again, or it is decided who is out.
    changed: Condvar,
    /// Held while records are written.
    records: Mutex<()>,
    /// The first sector of the superblock, as it was written last; held while that is written.
    superblock: Mutex<[u8; 512]>,
    /// Held by who copies.
    copier: Mutex<()>,
    heard: OnceLock<Box<Hear>>,
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
    /// `taken` fit together and `leader`, the record of one of them, says what holds.
    pub(crate) fn new(
        taken: Vec<(Part, Member)>,
        leader: Member,
        left_out: Vec<MemberError>,
        opening: Opening,
    ) -> Result<Mirror> {
        let Kind::Mirrored { region_log2 } = leader.kind else {
            unreachable!("assembled by kind");
        };
        let mut sector = [0; 512];
        let (source, _) = taken
            .iter()
            .find(|(_, record)| record.index == leader.index)
            .expect("the leader is among those taken");
        if leader.volume_bytes >= PRINTED.end {
            source.device.read_fresh_at(ByteOffset(PRINTED.start), &mut sector)?;
        }
        let alignment = taken.iter().map(|(part, _)| part.device.alignment()).max().unwrap_or(1);
        let state = State::new(taken, &leader, print_of(&sector), region_log2);
        Ok(Mirror {
            len: leader.volume_bytes,
            region_log2,
            uuid: leader.uuid,
            count: leader.count,
            counted: leader.active,
            write: opening.write,
            together: opening.together,
            alignment,
            left_out,
            state: Mutex::new(state),
            changed: Condvar::new(),
            records: Mutex::new(()),
            superblock: Mutex::new(sector),
            copier: Mutex::new(()),
            heard: OnceLock::new(),
        })
    }

    /// Has `heard` told of each member that fails from here on, while the volume goes on without it, and of each place that
    /// a read found bad on a member and mended ([`MemberProblem::Mended`]). The first caller's stays.
    ///
    /// It is called from any thread, whatever the reader holds: it must not use the mirror.
    pub fn on_problem(&self, heard: impl Fn(MemberError) + Send + Sync + 'static) {
        let _ = self.heard.set(Box::new(heard));
    }

    /// Tells of these places, which failed just now, each with its errno.
    fn tell_failed(&self, failed: &[(usize, i32)]) {
        for (place, errno) in failed {
            self.tell(*place, MemberProblem::Failed { errno: *errno });
        }
    }

    fn tell(&self, place: usize, problem: MemberProblem) {
        let Some(heard) = self.heard.get() else { return };
        let member = self.state.lock().places[place].slot.name.clone();
        heard(MemberError { member, problem });
    }

    /// Members that were named and are not used, with the reason.
    pub fn left_out(&self) -> &[MemberError] {
        &self.left_out
    }

    /// How many members the layout has, present or not.
    pub fn count(&self) -> u16 {
        self.count
    }

    /// The layout's identity.
    pub fn uuid(&self) -> [u8; 16] {
        self.uuid
    }

    /// Members of the layout, named or not, that are not in use.
    pub fn unused(&self) -> Vec<u16> {
        let state = self.state.lock();
        let is_used = |index: u16| state.places.iter().any(|p| p.active && p.slot.index == index);
        (0..self.count).filter(|index| !is_used(*index)).collect()
    }

    /// A member that the volume counts on, and that was neither named nor left out.
    pub fn missing(&self) -> Option<u16> {
        let state = self.state.lock();
        let is_there = |index: &u16| state.places.iter().any(|place| place.slot.index == *index);
        let mut counted = (0..self.count).filter(|index| self.counted & (1 << index) != 0);
        counted.find(|index| !is_there(index)).filter(|_| self.left_out.is_empty())
    }

    /// Which of the members in use, counted as [`Mirror::read_of`] does, the others follow where they are behind; `None`
    /// when none is whole.
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

    /// Passes over the volume's first bytes, which hold the records.
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

    /// Leaves records that say that all is in line, where that is so.
    fn settle(&self) {
        Mirror::settle(self);
    }
}

impl Drop for Mirror {
    /// Leaves records that say that all is in line, if that is so. Otherwise the next opening copies
    /// a little more than it had to.
    fn drop(&mut self) {
        self.settle();
    }
}
