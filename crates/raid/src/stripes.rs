//! raid0: stripes are distributed over the members in rotation.
//!
//! ```text
//!   byte of the volume:   row       │ member              │ within the stripe
//!                         ÷ (n·s)   │ ÷ s, modulo n       │ modulo s
//!   on the member:        1 MiB + row · s + within
//! ```
//!
//! A range that spans several stripes is one transfer per member and row. Long ranges are
//! transferred on all members in parallel. Each opening writes the records once, before its first
//! change: first all records with a new generation, unconfirmed, then all confirmed. So assembly
//! notices when an old copy of one member was put back.

use crate::parallel::on_all;
use crate::part::Part;
use extant_base::{ByteOffset, Error, IoOp, Result};
use extant_blockdev::BlockDevice;
use extant_ondisk::member::{Kind, MEMBER_OFFSET, Member, STRIPED_DATA_OFFSET};
use parking_lot::Mutex;
use std::io::{self, ErrorKind};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// Ranges of at least this many bytes are transferred on all members in parallel.
const TOGETHER_BYTES: usize = 256 << 10;

/// A striped device.
pub struct Stripes {
    devices: Vec<Arc<dyn BlockDevice>>,
    records: Mutex<Vec<Member>>,
    started: AtomicBool,
    stripe: u64,
    len: u64,
    write: bool,
    together: bool,
}

impl std::fmt::Debug for Stripes {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Stripes")
            .field("len", &self.len)
            .field("stripe", &self.stripe)
            .finish_non_exhaustive()
    }
}

/// A part of a transfer: the member, the byte offset on it, and the bytes of the caller's buffer.
#[derive(Clone, Copy)]
struct Piece {
    member: usize,
    at: u64,
    from: usize,
    len: usize,
}

impl Stripes {
    /// `parts` are the members with their records, sorted by index. The records agree.
    pub(crate) fn new(parts: Vec<(Part, Member)>, write: bool, together: bool) -> Stripes {
        let first = &parts[0].1;
        let Kind::Striped { stripe_bytes } = first.kind else {
            unreachable!("assembled by kind");
        };
        let (stripe, len) = (u64::from(stripe_bytes), first.volume_bytes);
        let (devices, records) =
            parts.into_iter().map(|(part, record)| (part.device, record)).unzip();
        let (records, started) = (Mutex::new(records), AtomicBool::new(false));
        Stripes { devices, records, started, stripe, len, write, together }
    }

    /// The members' records.
    pub fn records(&self) -> Vec<Member> {
        self.records.lock().clone()
    }

    /// The parts of the volume's bytes `at..at + len`: member, byte offset on it, length. The range
    /// lies within the device.
    fn pieces(&self, at: u64, len: u64) -> impl Iterator<Item = (usize, u64, u64)> + '_ {
        let (mut pos, end) = (at, at + len);
        std::iter::from_fn(move || {
            if pos >= end {
                return None;
            }
            let (number, within) = (pos / self.stripe, pos % self.stripe);
            let n = (self.stripe - within).min(end - pos);
            let member = (number % self.devices.len() as u64) as usize;
            let row = number / self.devices.len() as u64;
            pos += n;
            Some((member, STRIPED_DATA_OFFSET + row * self.stripe + within, n))
        })
    }

    fn check(&self, op: IoOp, at: ByteOffset, len: u64) -> Result<()> {
        check_range(op, self.len, at, len)
    }

    /// The parts as ranges of a buffer, grouped by member.
    fn split(&self, at: u64, len: usize) -> Vec<Vec<Piece>> {
        let mut lists = vec![Vec::new(); self.devices.len()];
        let mut from = 0;
        for (member, at, n) in self.pieces(at, len as u64) {
            lists[member].push(Piece { member, at, from, len: n as usize });
            from += n as usize;
        }
        lists.retain(|list| !list.is_empty());
        lists
    }

    /// Writes the records of this opening, unless they are written already. Called before each
    /// change.
    fn start(&self) -> Result<()> {
        if !self.write {
            return Err(Error::ReadOnly);
        }
        if self.started.load(Ordering::Acquire) {
            return Ok(());
        }
        let mut records = self.records.lock();
        if self.started.load(Ordering::Acquire) {
            return Ok(());
        }
        let next = records.iter().map(|record| record.generation).max().unwrap_or(0) + 1;
        for confirmed in [false, true] {
            for record in records.iter_mut() {
                (record.generation, record.confirmed) = (next, confirmed);
            }
            self.each(|n, device| {
                device.write_fua(ByteOffset(MEMBER_OFFSET), &records[n].to_bytes())
            })?;
        }
        self.started.store(true, Ordering::Release);
        Ok(())
    }

    fn each(&self, work: impl Fn(usize, &dyn BlockDevice) -> Result<()> + Sync) -> Result<()> {
        let done = on_all(&self.devices, self.together, |n, device| work(n, &**device));
        done.into_iter().collect()
    }

    /// Writes `buf` with `put`, on all members in parallel if it is long.
    fn put(
        &self,
        at: ByteOffset,
        buf: &[u8],
        put: impl Fn(&dyn BlockDevice, ByteOffset, &[u8]) -> Result<()> + Sync,
    ) -> Result<()> {
        self.check(IoOp::Write, at, buf.len() as u64)?;
        self.start()?;
        let lists = self.split(at.0, buf.len());
        let together = self.together && buf.len() >= TOGETHER_BYTES;
        let done = on_all(&lists, together, |_, list| {
            list.iter().try_for_each(|piece| {
                let device = &*self.devices[piece.member];
                put(device, ByteOffset(piece.at), &buf[piece.from..piece.from + piece.len])
            })
        });
        done.into_iter().collect()
    }

    fn get(
        &self,
        at: ByteOffset,
        buf: &mut [u8],
        get: impl Fn(&dyn BlockDevice, ByteOffset, &mut [u8]) -> Result<()> + Sync,
    ) -> Result<()> {
        self.check(IoOp::Read, at, buf.len() as u64)?;
        let mut rest = buf;
        let mut lists: Vec<Vec<(u64, &mut [u8])>> = Vec::new();
        lists.resize_with(self.devices.len(), Vec::new);
        let total = rest.len();
        for (member, at, n) in self.pieces(at.0, total as u64) {
            let (part, after) = rest.split_at_mut(n as usize);
            lists[member].push((at, part));
            rest = after;
        }
        let lists: Vec<_> = lists.into_iter().map(Mutex::new).collect();
        let together = self.together && total >= TOGETHER_BYTES;
        let done = on_all(&lists, together, |member, list| {
            list.lock()
                .iter_mut()
                .try_for_each(|(at, part)| get(&*self.devices[member], ByteOffset(*at), part))
        });
        done.into_iter().collect()
    }
}

impl BlockDevice for Stripes {
    fn len(&self) -> u64 {
        self.len
    }

    fn read_at(&self, at: ByteOffset, buf: &mut [u8]) -> Result<()> {
        self.get(at, buf, |device, at, part| device.read_at(at, part))
    }

    fn read_fresh_at(&self, at: ByteOffset, buf: &mut [u8]) -> Result<()> {
        self.get(at, buf, |device, at, part| device.read_fresh_at(at, part))
    }

    fn write_at(&self, at: ByteOffset, buf: &[u8]) -> Result<()> {
        self.put(at, buf, |device, at, part| device.write_at(at, part))
    }

    fn write_fua(&self, at: ByteOffset, buf: &[u8]) -> Result<()> {
        self.put(at, buf, |device, at, part| device.write_fua(at, part))
    }

    fn flush(&self) -> Result<()> {
        if !self.write {
            return Err(Error::ReadOnly);
        }
        self.each(|_, device| device.flush())
    }

    fn discard(&self, at: ByteOffset, len: u64) -> Result<()> {
        self.check(IoOp::Discard, at, len)?;
        self.start()?;
        self.pieces(at.0, len)
            .try_for_each(|(member, at, n)| self.devices[member].discard(ByteOffset(at), n))
    }

    fn zero(&self, at: ByteOffset, len: u64) -> Result<()> {
        self.check(IoOp::Write, at, len)?;
        self.start()?;
        self.pieces(at.0, len)
            .try_for_each(|(member, at, n)| self.devices[member].zero(ByteOffset(at), n))
    }

    fn is_read_only(&self) -> bool {
        !self.write
    }

    fn alignment(&self) -> usize {
        self.devices.iter().map(|device| device.alignment()).max().unwrap_or(1)
    }
}

/// Checks that `len` bytes from `at` on lie within a device of `device_len` bytes.
pub(crate) fn check_range(op: IoOp, device_len: u64, at: ByteOffset, len: u64) -> Result<()> {
    match at.0.checked_add(len) {
        Some(end) if end <= device_len => Ok(()),
        _ => Err(Error::Device {
            op,
            at,
            len: usize::try_from(len).unwrap_or(usize::MAX),
            source: io::Error::new(ErrorKind::UnexpectedEof, "past the end of the device"),
        }),
    }
}
