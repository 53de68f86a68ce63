//! A view that passes reads on and refuses all changes.
//!
//! ```text
//!   read ──────────────► device
//!   write, zero, … ──► ReadOnly        flush ──► nothing to do
//! ```

use crate::device::BlockDevice;
use crate::forward;
use extant_base::{ByteOffset, Error, Result};
use std::io::IoSlice;

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
    forward!(self => self.inner;
        len, read_at, read_vectored_at, read_fresh_at, read_verified, alignment,
        needs_stable_buffers);

    fn write_at(&self, _: ByteOffset, _: &[u8]) -> Result<()> {
        Err(Error::ReadOnly)
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

    fn is_read_only(&self) -> bool {
        true
    }
}
