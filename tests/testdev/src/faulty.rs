//! A device that fails when a test requests it.
//!
//! ```text
//!   write  write  write  write  write
//!     1      2      3✗     4      5          fail(Write, 3)
//!     1      2      3✗     4✗     5✗         fail_from(Write, 3)
//! ```

use extant_base::{ByteOffset, Error, IoOp, Result};
use extant_blockdev::{BlockDevice, Dax, forward};
use parking_lot::Mutex;
use std::io::{self, IoSlice, IoSliceMut};
use std::ops::Range;
use std::sync::Arc;

/// A device that fails chosen operations with `EIO`; a failed operation changes nothing.
///
/// A vectored transfer counts as one operation. Forced writes, zeroing and stores through a window
/// ([`Dax`]) count as writes; the fences of a window count as flushes.
#[derive(Debug)]
pub struct Faulty<D> {
    inner: D,
    state: Arc<Mutex<State>>,
}

#[derive(Debug, Default)]
struct State {
    /// Operations so far: reads, writes, flushes, discards.
    counts: [u64; 4],
    rules: Vec<Rule>,
}

#[derive(Debug)]
struct Rule {
    op: IoOp,
    /// The operations of that kind that fail, by number; the first one is 1.
    numbers: Range<u64>,
    /// The byte range that fails; a flush touches no bytes and always matches.
    bytes: Range<u64>,
}

impl<D: BlockDevice> Faulty<D> {
    /// A device without any failure yet.
    pub fn new(inner: D) -> Faulty<D> {
        Faulty { inner, state: Arc::default() }
    }

    /// Fails the `nth` operation of kind `op` from now on; 1 is the next one.
    pub fn fail(&self, op: IoOp, nth: u64) {
        let number = self.count(op).saturating_add(nth);
        self.add(op, number..number.saturating_add(1), 0..u64::MAX);
    }

    /// Fails the `nth` operation of kind `op` from now on, and all after it.
    pub fn fail_from(&self, op: IoOp, nth: u64) {
        self.add(op, self.count(op).saturating_add(nth)..u64::MAX, 0..u64::MAX);
    }

    /// Fails every operation of kind `op` that touches one of `bytes`.
    pub fn fail_range(&self, op: IoOp, bytes: Range<u64>) {
        self.add(op, 0..u64::MAX, bytes);
    }

    /// Removes all failures.
    pub fn heal(&self) {
        self.state.lock().rules.clear();
    }

    /// How many operations of kind `op` there were, failed ones included.
    pub fn count(&self, op: IoOp) -> u64 {
        slot(op).map_or(0, |slot| self.state.lock().counts[slot])
    }

    /// The wrapped device.
    pub fn inner(&self) -> &D {
        &self.inner
    }

    fn add(&self, op: IoOp, numbers: Range<u64>, bytes: Range<u64>) {
        self.state.lock().rules.push(Rule { op, numbers, bytes });
    }

    /// Counts one operation, and fails it when a rule matches.
    fn pass(&self, op: IoOp, at: ByteOffset, len: u64) -> Result<()> {
        self.state.lock().pass(op, at, len)
    }
}

impl State {
    fn pass(&mut self, op: IoOp, at: ByteOffset, len: u64) -> Result<()> {
        let Some(slot) = slot(op) else { return Ok(()) };
        self.counts[slot] += 1;
        let number = self.counts[slot];
        let end = at.0.saturating_add(len);
        let hit = self.rules.iter().any(|rule| {
            rule.op == op
                && rule.numbers.contains(&number)
                && (op == IoOp::Flush || (rule.bytes.start < end && at.0 < rule.bytes.end))
        });
        if !hit {
            return Ok(());
        }
        let len = usize::try_from(len).unwrap_or(usize::MAX);
        Err(Error::Device { op, at, len, source: io::Error::from_raw_os_error(libc::EIO) })
    }
}

fn slot(op: IoOp) -> Option<usize> {
    match op {
        IoOp::Read => Some(0),
        IoOp::Write => Some(1),
        IoOp::Flush => Some(2),
        IoOp::Discard => Some(3),
        IoOp::Open | IoOp::Resize => None,
    }
}

impl<D: BlockDevice> BlockDevice for Faulty<D> {
    forward!(self => self.inner; len, is_read_only, alignment, needs_stable_buffers);

    fn read_at(&self, at: ByteOffset, buf: &mut [u8]) -> Result<()> {
        self.pass(IoOp::Read, at, buf.len() as u64)?;
        self.inner.read_at(at, buf)
    }

    fn write_at(&self, at: ByteOffset, buf: &[u8]) -> Result<()> {
        self.pass(IoOp::Write, at, buf.len() as u64)?;
        self.inner.write_at(at, buf)
    }

    fn read_fresh_at(&self, at: ByteOffset, buf: &mut [u8]) -> Result<()> {
        self.pass(IoOp::Read, at, buf.len() as u64)?;
        self.inner.read_fresh_at(at, buf)
    }

    fn read_vectored_at(&self, at: ByteOffset, bufs: &mut [IoSliceMut<'_>]) -> Result<()> {
        self.pass(IoOp::Read, at, bufs.iter().map(|buf| buf.len() as u64).sum())?;
        self.inner.read_vectored_at(at, bufs)
    }

    fn write_vectored_at(&self, at: ByteOffset, bufs: &[IoSlice<'_>]) -> Result<()> {
        self.pass(IoOp::Write, at, bufs.iter().map(|buf| buf.len() as u64).sum())?;
        self.inner.write_vectored_at(at, bufs)
    }

    fn flush(&self) -> Result<()> {
        self.pass(IoOp::Flush, ByteOffset(0), self.len())?;
        self.inner.flush()
    }

    fn write_fua(&self, at: ByteOffset, buf: &[u8]) -> Result<()> {
        self.pass(IoOp::Write, at, buf.len() as u64)?;
        self.inner.write_fua(at, buf)
    }

    fn discard(&self, at: ByteOffset, len: u64) -> Result<()> {
        self.pass(IoOp::Discard, at, len)?;
        self.inner.discard(at, len)
    }

    fn zero(&self, at: ByteOffset, len: u64) -> Result<()> {
        self.pass(IoOp::Write, at, len)?;
        self.inner.zero(at, len)
    }

    fn read_verified(
        &self,
        at: ByteOffset,
        buf: &mut [u8],
        verify: &dyn Fn(&[u8]) -> bool,
    ) -> Result<bool> {
        self.pass(IoOp::Read, at, buf.len() as u64)?;
        self.inner.read_verified(at, buf, verify)
    }

    fn dax(&self, at: ByteOffset, len: u64) -> Option<Arc<dyn Dax>> {
        let inner = self.inner.dax(at, len)?;
        Some(Arc::new(FaultyDax { inner, at: at.0, state: Arc::clone(&self.state) }))
    }
}

/// A window whose stores count as writes, and whose fences as flushes.
struct FaultyDax {
    inner: Arc<dyn Dax>,
    at: u64,
    state: Arc<Mutex<State>>,
}

impl FaultyDax {
    fn pass(&self, op: IoOp, at: u64, len: u64) -> Result<()> {
        self.state.lock().pass(op, ByteOffset(self.at.saturating_add(at)), len)
    }
}

impl Dax for FaultyDax {
    forward!(self => self.inner; len, write_back, persistence_domain, way);

    fn store(&self, at: u64, bytes: &[u8]) -> Result<()> {
        self.pass(IoOp::Write, at, bytes.len() as u64)?;
        self.inner.store(at, bytes)
    }

    fn load(&self, at: u64, buf: &mut [u8]) -> Result<()> {
        self.pass(IoOp::Read, at, buf.len() as u64)?;
        self.inner.load(at, buf)
    }

    fn fence(&self) -> Result<()> {
        self.pass(IoOp::Flush, 0, self.inner.len())?;
        self.inner.fence()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use extant_blockdev::MemoryDevice;

    #[test]
    fn only_the_chosen_operation_fails() {
        let device = Faulty::new(MemoryDevice::new(4096));
        let write = || device.write_at(ByteOffset(0), b"x").is_ok();
        assert!(write());
        device.fail(IoOp::Write, 2);
        assert_eq!([write(), write(), write()], [true, false, true]);
        device.fail_from(IoOp::Flush, 1);
        assert!(device.flush().is_err() && device.flush().is_err() && write());
        device.heal();
        assert!(device.flush().is_ok());
        assert_eq!((device.count(IoOp::Write), device.count(IoOp::Flush)), (5, 3));
    }

    #[test]
    fn a_bad_range_fails_every_access_to_it() {
        let device = Faulty::new(MemoryDevice::new(4096));
        device.fail_range(IoOp::Read, 512..1024);
        let read = |at| device.read_at(ByteOffset(at), &mut [0; 512]);
        assert!(read(0).is_ok() && read(1024).is_ok());
        assert_eq!(read(1).unwrap_err().errno(), 5);
        assert!(read(1023).is_err());
    }

    #[test]
    fn stores_and_fences_fail_on_demand() {
        let device = Faulty::new(MemoryDevice::new(8192));
        let dax = device.dax(ByteOffset(4096), 4096).unwrap();
        device.fail_range(IoOp::Write, 4096 + 64..4096 + 128);
        assert!(dax.store(0, &[1; 64]).is_ok() && dax.store(63, &[1; 2]).is_err());
        device.fail(IoOp::Flush, 1);
        assert!(dax.fence().is_err() && dax.fence().is_ok());
        device.fail(IoOp::Read, 1);
        assert!(dax.load(0, &mut [0]).is_err());
    }
}
