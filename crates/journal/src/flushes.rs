//! What a flush is owed for: which writes to the volume's device no flush has followed.
//!
//! ```text
//!   write ──returns──► written + 1          mark() = written
//!   flush: before = written ──done──► flushed = before          a mark ≤ flushed is durable
//! ```
//!
//! So a sync with nothing written since the last flush sends none. Forced-unit-access writes are
//! durable by themselves and not counted.

use crate::checkpoint::is_same_device;
use crate::log::Log;
use extant_base::{Apart, ByteOffset, Result};
use extant_blockdev::{BlockDevice, Dax, Descriptor};
use std::io::{IoSlice, IoSliceMut};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// A device that counts its writes and flushes.
pub(crate) struct Watched {
    inner: Arc<dyn BlockDevice>,
    written: Apart<AtomicU64>,
    flushed: AtomicU64,
}

impl Watched {
    pub(crate) fn new(inner: Arc<dyn BlockDevice>) -> Arc<Watched> {
        let written = Apart::new(AtomicU64::new(1));
        Arc::new(Watched { inner, written, flushed: AtomicU64::new(0) })
    }

    /// Lets the log on the same device go this way, too.
    pub(crate) fn put_under(self: &Arc<Watched>, log: &mut Log) {
        if is_same_device(log.device(), &self.inner) {
            log.set_device(Arc::clone(self) as Arc<dyn BlockDevice>);
        }
    }

    /// All writes that have returned.
    pub(crate) fn mark(&self) -> u64 {
        self.written.load(Ordering::Acquire)
    }

    /// Whether a flush came after the writes of `mark`.
    pub(crate) fn is_flushed(&self, mark: u64) -> bool {
        self.flushed.load(Ordering::Acquire) >= mark
    }

    /// Counts a write, also one that failed: some of it may be there.
    fn wrote<T>(&self, done: Result<T>) -> Result<T> {
        self.written.fetch_add(1, Ordering::AcqRel);
        done
    }
}

impl BlockDevice for Watched {
    fn len(&self) -> u64 {
        self.inner.len()
    }

    fn read_at(&self, at: ByteOffset, buf: &mut [u8]) -> Result<()> {
        self.inner.read_at(at, buf)
    }

    fn write_at(&self, at: ByteOffset, buf: &[u8]) -> Result<()> {
        self.wrote(self.inner.write_at(at, buf))
    }

    fn read_vectored_at(&self, at: ByteOffset, bufs: &mut [IoSliceMut<'_>]) -> Result<()> {
        self.inner.read_vectored_at(at, bufs)
    }

    fn read_fresh_at(&self, at: ByteOffset, buf: &mut [u8]) -> Result<()> {
        self.inner.read_fresh_at(at, buf)
    }

    fn write_vectored_at(&self, at: ByteOffset, bufs: &[IoSlice<'_>]) -> Result<()> {
        self.wrote(self.inner.write_vectored_at(at, bufs))
    }

    fn flush(&self) -> Result<()> {
        let mark = self.mark();
        self.inner.flush()?;
        self.flushed.fetch_max(mark, Ordering::AcqRel);
        Ok(())
    }

    fn write_fua(&self, at: ByteOffset, buf: &[u8]) -> Result<()> {
        self.inner.write_fua(at, buf)
    }

    fn discard(&self, at: ByteOffset, len: u64) -> Result<()> {
        self.wrote(self.inner.discard(at, len))
    }

    fn zero(&self, at: ByteOffset, len: u64) -> Result<()> {
        self.wrote(self.inner.zero(at, len))
    }

    fn is_read_only(&self) -> bool {
        self.inner.is_read_only()
    }

    fn alignment(&self) -> usize {
        self.inner.alignment()
    }

    fn descriptor(&self) -> Option<Descriptor<'_>> {
        self.inner.descriptor()
    }

    fn needs_stable_buffers(&self) -> bool {
        self.inner.needs_stable_buffers()
    }

    /// A copy that is put right holds the bytes of another one: no flush is owed for it.
    fn read_verified(
        &self,
        at: ByteOffset,
        buf: &mut [u8],
        verify: &dyn Fn(&[u8]) -> bool,
    ) -> Result<bool> {
        self.inner.read_verified(at, buf, verify)
    }

    fn wrote_past(&self) {
        self.inner.wrote_past();
        self.written.fetch_add(1, Ordering::AcqRel);
    }

    fn settle(&self) {
        self.inner.settle();
    }

    fn dax(&self, at: ByteOffset, len: u64) -> Option<Arc<dyn Dax>> {
        self.inner.dax(at, len)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_device::TestDevice;

    #[test]
    fn a_mark_is_flushed_by_a_flush_that_began_after_it() {
        let device = Watched::new(Arc::new(TestDevice::new(vec![0; 4096])));
        assert!(!device.is_flushed(device.mark()), "nobody knows what came before");
        device.flush().unwrap();
        assert!(device.is_flushed(device.mark()));
        device.write_fua(ByteOffset(0), &[1; 512]).unwrap();
        assert!(device.is_flushed(device.mark()), "durable by itself");
        device.write_at(ByteOffset(0), &[2; 512]).unwrap();
        let mark = device.mark();
        assert!(!device.is_flushed(mark));
        device.flush().unwrap();
        device.write_vectored_at(ByteOffset(0), &[IoSlice::new(&[3; 512])]).unwrap();
        assert!(device.is_flushed(mark) && !device.is_flushed(device.mark()));
        device.flush().unwrap();
        device.wrote_past();
        assert!(device.is_flushed(mark) && !device.is_flushed(device.mark()));
    }

    #[test]
    fn what_failed_is_owed_a_flush() {
        let inner = Arc::new(TestDevice::new(vec![0; 4096]));
        let device = Watched::new(Arc::clone(&inner) as Arc<dyn BlockDevice>);
        device.flush().unwrap();
        inner.fail_writes.store(true, Ordering::Relaxed);
        assert!(device.write_at(ByteOffset(0), &[1; 512]).is_err());
        assert!(!device.is_flushed(device.mark()));
        inner.fail_flushes.store(true, Ordering::Relaxed);
        assert!(device.flush().is_err() && !device.is_flushed(device.mark()));
    }
}
