//! A device that records all changes made to it, in order.
//!
//! ```text
//!   log:   write 0   write 1   flush 2   write 3 (fua)   discard 4      position() == 5
//!                                 │
//!          durable here ◄─────────┘
//! ```
//!
//! Changes run one at a time, so the order of the log is the order in which they happened: a write
//! that returned before a flush began comes before that flush.

use crate::crash::CrashPlan;
use crate::op::Op;
use extant_base::{ByteOffset, Result};
use extant_blockdev::{BlockDevice, Dax, LINE_BYTES, MemoryDevice, forward};
use parking_lot::Mutex;
use std::io::IoSlice;
use std::sync::Arc;

/// Counts of some operations.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OpCounts {
    /// Writes, including forced writes and zeroing; a vectored write is one.
    pub writes: u64,
    /// Bytes in those writes, without zeroing.
    pub written_bytes: u64,
    /// Forced writes among them.
    pub fua_writes: u64,
    /// Flushes.
    pub flushes: u64,
    /// Discards.
    pub discards: u64,
    /// Bytes stored through windows.
    pub stored_bytes: u64,
    /// Cache lines whose write-back was started.
    pub written_back_lines: u64,
    /// Fences.
    pub fences: u64,
}

/// A device that logs every change. Reads are not logged.
#[derive(Debug)]
pub struct Recorder<D> {
    inner: D,
    log: Arc<Mutex<Vec<Op>>>,
}

impl<D: BlockDevice> Recorder<D> {
    /// Records the changes that are made to `inner` from now on.
    pub fn new(inner: D) -> Recorder<D> {
        Recorder { inner, log: Arc::default() }
    }

    /// All changes so far. The log's data is shared, not copied.
    pub fn log(&self) -> Vec<Op> {
        self.log.lock().clone()
    }

    /// The number of operations in the log: a mark between those done so far and later ones.
    pub fn position(&self) -> usize {
        self.log.lock().len()
    }

    /// Counts of the operations from `position` on.
    pub fn counts_since(&self, position: usize) -> OpCounts {
        let mut sum = OpCounts::default();
        for op in self.log.lock().iter().skip(position) {
            match op {
                Op::Write { data, fua, .. } => {
                    sum.writes += 1;
                    sum.written_bytes += data.len() as u64;
                    sum.fua_writes += u64::from(*fua);
                }
                Op::Zero { .. } => sum.writes += 1,
                Op::Discard { .. } => sum.discards += 1,
                Op::Flush | Op::FlushRange { .. } => sum.flushes += 1,
                Op::Store { data, .. } => sum.stored_bytes += data.len() as u64,
                Op::WriteBack { at, len } => {
                    sum.written_back_lines += lines(at.0, *len).count() as u64;
                }
                Op::Fence => sum.fences += 1,
            }
        }
        sum
    }

    /// The states that a power cut could leave. `base` is the device's content before the
    /// recording.
    pub fn crash_plan(&self, base: &MemoryDevice) -> CrashPlan {
        CrashPlan::new(base.clone(), self.log())
    }

    /// Flushes a part that represents a device of its own. Writes outside of it stay undecided.
    ///
    /// # Errors
    /// As [`BlockDevice::flush`].
    pub fn flush_range(&self, at: ByteOffset, len: u64) -> Result<()> {
        self.record(|| Op::FlushRange { at, len }, || self.inner.flush())
    }

    /// The wrapped device.
    pub fn inner(&self) -> &D {
        &self.inner
    }

    /// Ends the recording and returns the device.
    pub fn into_inner(self) -> D {
        self.inner
    }

    /// Makes a change and logs it if it succeeded. No other change comes between.
    fn record(&self, op: impl FnOnce() -> Op, change: impl FnOnce() -> Result<()>) -> Result<()> {
        let mut log = self.log.lock();
        change()?;
        log.push(op());
        Ok(())
    }
}

impl<D: BlockDevice> BlockDevice for Recorder<D> {
    forward!(self => self.inner;
        len, read_at, read_vectored_at, read_fresh_at, read_verified, is_read_only, alignment,
        needs_stable_buffers);

    fn write_at(&self, at: ByteOffset, buf: &[u8]) -> Result<()> {
        let op = || Op::Write { at, data: buf.into(), fua: false };
        self.record(op, || self.inner.write_at(at, buf))
    }

    fn write_vectored_at(&self, at: ByteOffset, bufs: &[IoSlice<'_>]) -> Result<()> {
        let data = || bufs.iter().map(|buf| &**buf).collect::<Vec<_>>().concat().into();
        let op = || Op::Write { at, data: data(), fua: false };
        self.record(op, || self.inner.write_vectored_at(at, bufs))
    }

    fn flush(&self) -> Result<()> {
        self.record(|| Op::Flush, || self.inner.flush())
    }

    fn write_fua(&self, at: ByteOffset, buf: &[u8]) -> Result<()> {
        let op = || Op::Write { at, data: buf.into(), fua: true };
        self.record(op, || self.inner.write_fua(at, buf))
    }

    fn discard(&self, at: ByteOffset, len: u64) -> Result<()> {
        self.record(|| Op::Discard { at, len }, || self.inner.discard(at, len))
    }

    fn zero(&self, at: ByteOffset, len: u64) -> Result<()> {
        self.record(|| Op::Zero { at, len }, || self.inner.zero(at, len))
    }

    fn dax(&self, at: ByteOffset, len: u64) -> Option<Arc<dyn Dax>> {
        let inner = self.inner.dax(at, len)?;
        Some(Arc::new(RecordedDax { inner, at: at.0, log: Arc::clone(&self.log) }))
    }
}

/// A window that records its operations, line by line.
struct RecordedDax {
    inner: Arc<dyn Dax>,
    /// Where the window starts on the recorded device.
    at: u64,
    log: Arc<Mutex<Vec<Op>>>,
}

impl Dax for RecordedDax {
    forward!(self => self.inner; len, load, persistence_domain, way);

    fn store(&self, at: u64, bytes: &[u8]) -> Result<()> {
        let mut log = self.log.lock();
        self.inner.store(at, bytes)?;
        let start = self.at + at;
        log.extend(lines(start, bytes.len() as u64).map(|(pos, len)| {
            let within = (pos - start) as usize;
            Op::Store { at: ByteOffset(pos), data: bytes[within..within + len as usize].into() }
        }));
        Ok(())
    }

    fn write_back(&self, at: u64, len: u64) -> Result<()> {
        let mut log = self.log.lock();
        self.inner.write_back(at, len)?;
        log.push(Op::WriteBack { at: ByteOffset(self.at + at), len });
        Ok(())
    }

    fn fence(&self) -> Result<()> {
        let mut log = self.log.lock();
        self.inner.fence()?;
        log.push(Op::Fence);
        Ok(())
    }
}

/// Splits a range at line borders: the parts as (start, length).
fn lines(at: u64, len: u64) -> impl Iterator<Item = (u64, u64)> {
    let end = at + len;
    let mut pos = at;
    std::iter::from_fn(move || {
        (pos < end).then(|| {
            let start = pos;
            pos = end.min((pos / LINE_BYTES + 1) * LINE_BYTES);
            (start, pos - start)
        })
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Faulty;
    use extant_base::IoOp;

    #[test]
    fn the_log_holds_what_succeeded_in_order() {
        let device = Recorder::new(Faulty::new(MemoryDevice::new(8192)));
        device.write_at(ByteOffset(1), b"ab").unwrap();
        device.flush().unwrap();
        let mark = device.position();
        device.inner().fail(IoOp::Write, 1);
        assert!(device.write_at(ByteOffset(0), b"lost").is_err());
        device.write_fua(ByteOffset(512), b"c").unwrap();
        device.zero(ByteOffset(0), 4).unwrap();
        device.discard(ByteOffset(4096), 4096).unwrap();
        device.write_vectored_at(ByteOffset(7), &[IoSlice::new(b"d"), IoSlice::new(b"e")]).unwrap();
        let write = |at, data: &[u8], fua| Op::Write { at: ByteOffset(at), data: data.into(), fua };
        let want = [
            write(1, b"ab", false),
            Op::Flush,
            write(512, b"c", true),
            Op::Zero { at: ByteOffset(0), len: 4 },
            Op::Discard { at: ByteOffset(4096), len: 4096 },
            write(7, b"de", false),
        ];
        assert_eq!(device.log(), want);
        let counts = device.counts_since(mark);
        assert_eq!((counts.writes, counts.written_bytes, counts.flushes), (3, 3, 0));
        assert_eq!((counts.fua_writes, counts.discards), (1, 1));
    }
}
