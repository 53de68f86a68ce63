//! A part of a device as a device: a partition, or a volume at an offset in an image.
//!
//! ```text
//!   device   ├──────────────┬──────────────────────────────┬─────────┤
//!                           0            slice            len
//!                         start
//! ```

use crate::dax::Dax;
use crate::device::{BlockDevice, Descriptor};
use crate::forward;
use crate::range::{check_range, total_len};
use extant_base::{ByteOffset, Error, IoOp, Result};
use std::io::{IoSlice, IoSliceMut};
use std::sync::Arc;

/// The bytes `start..start + len` of a device.
///
/// Errors of the slice itself name offsets within it. Errors of the device name offsets of the
/// device.
#[derive(Clone, Debug)]
pub struct Slice<D> {
    inner: D,
    start: u64,
    len: u64,
}

impl<D: BlockDevice> Slice<D> {
    /// The `len` bytes of `inner` from `start` on.
    ///
    /// # Errors
    /// [`Error::Invalid`] when the range does not lie wholly in `inner`.
    pub fn new(inner: D, start: ByteOffset, len: u64) -> Result<Slice<D>> {
        match start.0.checked_add(len) {
            Some(end) if end <= inner.len() => Ok(Slice { inner, start: start.0, len }),
            _ => Err(Error::Invalid(
                "the place of the volume lies beyond the end of the file or device",
            )),
        }
    }

    /// All of `inner` from `start` on.
    ///
    /// # Errors
    /// [`Error::Invalid`] when `inner` ends before `start`.
    pub fn from_offset(inner: D, start: ByteOffset) -> Result<Slice<D>> {
        let len = inner.len().saturating_sub(start.0);
        Slice::new(inner, start, len)
    }

    /// The device of which this is a part.
    pub fn into_inner(self) -> D {
        self.inner
    }

    /// Where a range of the slice lies on the device.
    fn place(&self, op: IoOp, at: ByteOffset, len: u64) -> Result<ByteOffset> {
        check_range(op, self.len, at, len)?;
        Ok(ByteOffset(self.start + at.0))
    }
}

impl<D: BlockDevice> BlockDevice for Slice<D> {
    forward!(self => self.inner;
        flush, is_read_only, needs_stable_buffers, wrote_past, set_idle);

    fn len(&self) -> u64 {
        self.len
    }

    fn read_at(&self, at: ByteOffset, buf: &mut [u8]) -> Result<()> {
        let at = self.place(IoOp::Read, at, buf.len() as u64)?;
        self.inner.read_at(at, buf)
    }

    fn write_at(&self, at: ByteOffset, buf: &[u8]) -> Result<()> {
        let at = self.place(IoOp::Write, at, buf.len() as u64)?;
        self.inner.write_at(at, buf)
    }

    fn read_fresh_at(&self, at: ByteOffset, buf: &mut [u8]) -> Result<()> {
        let at = self.place(IoOp::Read, at, buf.len() as u64)?;
        self.inner.read_fresh_at(at, buf)
    }

    fn read_vectored_at(&self, at: ByteOffset, bufs: &mut [IoSliceMut<'_>]) -> Result<()> {
        let total = total_len(bufs.iter().map(|buf| buf.len()));
        let at = self.place(IoOp::Read, at, total)?;
        self.inner.read_vectored_at(at, bufs)
    }

    fn write_vectored_at(&self, at: ByteOffset, bufs: &[IoSlice<'_>]) -> Result<()> {
        let total = total_len(bufs.iter().map(|buf| buf.len()));
        let at = self.place(IoOp::Write, at, total)?;
        self.inner.write_vectored_at(at, bufs)
    }

    fn write_fua(&self, at: ByteOffset, buf: &[u8]) -> Result<()> {
        let at = self.place(IoOp::Write, at, buf.len() as u64)?;
        self.inner.write_fua(at, buf)
    }

    fn discard(&self, at: ByteOffset, len: u64) -> Result<()> {
        let at = self.place(IoOp::Discard, at, len)?;
        self.inner.discard(at, len)
    }

    fn zero(&self, at: ByteOffset, len: u64) -> Result<()> {
        let at = self.place(IoOp::Write, at, len)?;
        self.inner.zero(at, len)
    }

    fn read_verified(
        &self,
        at: ByteOffset,
        buf: &mut [u8],
        verify: &dyn Fn(&[u8]) -> bool,
    ) -> Result<bool> {
        self.inner.read_verified(self.place(IoOp::Read, at, buf.len() as u64)?, buf, verify)
    }

    fn descriptor(&self) -> Option<Descriptor<'_>> {
        let inner = self.inner.descriptor()?;
        let start = inner.start.checked_add(self.start)?;
        start.is_multiple_of(inner.align as u64).then_some(Descriptor { start, ..inner })
    }

    /// The device's window, if the start of the slice is suitably aligned.
    fn dax(&self, at: ByteOffset, len: u64) -> Option<Arc<dyn Dax>> {
        self.inner.dax(self.place(IoOp::Open, at, len).ok()?, len)
    }

    fn alignment(&self) -> usize {
        let log2 = self.inner.alignment().trailing_zeros().min(self.start.trailing_zeros());
        1 << log2
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::MemoryDevice;

    #[test]
    fn a_slice_stays_within_its_device() {
        let device = MemoryDevice::new(4096);
        for (start, len, fits) in
            [(0, 4096, true), (4096, 0, true), (1, 4096, false), (u64::MAX, 2, false)]
        {
            assert_eq!(Slice::new(&device, ByteOffset(start), len).is_ok(), fits, "{start} {len}");
        }
        assert!(Slice::from_offset(&device, ByteOffset(4097)).is_err());
        let slice = Slice::from_offset(&device, ByteOffset(96)).unwrap();
        assert_eq!(slice.len(), 4000);
        slice.write_at(ByteOffset(0), b"first").unwrap();
        let mut buf = [0; 5];
        device.read_at(ByteOffset(96), &mut buf).unwrap();
        assert_eq!(&buf, b"first");
    }
}
