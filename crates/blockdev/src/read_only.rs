//! A view that passes reads on and refuses all changes.
//!
//! ```text
//!   read ──────────────► device
//!   write, zero, … ──► ReadOnly        flush ──► nothing to do
//! ```

use crate::device::BlockDevice;
use extant_base::{ByteOffset, Error, Result};
use std::io::{IoSlice, IoSliceMut};

/// A device that cannot be changed through this view: every write fails with [`Error::ReadOnly`].
#[derive(Clone, Debug)]
pub struct ReadOnly<D> {
    inner: D,
}

impl<D: BlockDevice> ReadOnly<D> {
    /// A view of `inner`.
    pub fn new(inner: D) -> ReadOnly<D> {
        ReadOnly { inner }
    }

    /// The device below the view.
    pub fn into_inner(self) -> D {
        self.inner
    }
}

impl<D: BlockDevice> BlockDevice for ReadOnly<D> {
    fn len(&self) -> u64 {
        self.inner.len()
    }

    fn read_at(&self, at: ByteOffset, buf: &mut [u8]) -> Result<()> {
        self.inner.read_at(at, buf)
    }

    fn write_at(&self, _: ByteOffset, _: &[u8]) -> Result<()> {
        Err(Error::ReadOnly)
    }

    fn read_fresh_at(&self, at: ByteOffset, buf: &mut [u8]) -> Result<()> {
        self.inner.read_fresh_at(at, buf)
    }

    fn read_vectored_at(&self, at: ByteOffset, bufs: &mut [IoSliceMut<'_>]) -> Result<()> {
        self.inner.read_vectored_at(at, bufs)
    }

    fn write_vectored_at(&self, _: ByteOffset, _: &[IoSlice<'_>]) -> Result<()> {
        Err(Error::ReadOnly)
    }

    fn flush(&self) -> Result<()> {
        Ok(())
    }

    fn write_fua(&self, _: ByteOffset, _: &[u8]) -> Result<()> {
        Err(Error::ReadOnly)
    }

    fn discard(&self, _: ByteOffset, _: u64) -> Result<()> {
        Err(Error::ReadOnly)
    }

    fn zero(&self, _: ByteOffset, _: u64) -> Result<()> {
        Err(Error::ReadOnly)
    }

    fn needs_stable_buffers(&self) -> bool {
        self.inner.needs_stable_buffers()
    }

    fn read_verified(
        &self,
        at: ByteOffset,
        buf: &mut [u8],
        verify: &dyn Fn(&[u8]) -> bool,
    ) -> Result<bool> {
        self.inner.read_verified(at, buf, verify)
    }

    fn is_read_only(&self) -> bool {
        true
    }

    fn alignment(&self) -> usize {
        self.inner.alignment()
    }
}
