//! A device that can be closed for writes.
//!
//! ```text
//!                    Fence::close()
//!   write ──► device      │      write ──► ReadOnly
//!   read  ──► device      │      read  ──► device        flush ──► ReadOnly
//! ```
//!
//! A closed fence makes a flush fail as well: a caller that waits for a flush must not believe that
//! other users will find its writes unchanged.

use crate::dax::Dax;
use crate::device::BlockDevice;
use crate::forward;
use extant_base::{ByteOffset, Error, Result};
use std::io::IoSlice;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

/// A fence in front of one or several devices. Clones are the same fence; it closes once and stays
/// closed.
#[derive(Clone, Debug, Default)]
pub struct Fence(Arc<AtomicBool>);

impl Fence {
    /// An open fence.
    pub fn new() -> Fence {
        Fence::default()
    }

    /// Refuses every later change of the devices. A write that began before may still be in flight
    /// when this returns.
    pub fn close(&self) {
        self.0.store(true, Ordering::Release);
    }

    /// Whether the fence is closed.
    pub fn is_closed(&self) -> bool {
        self.0.load(Ordering::Acquire)
    }
}

/// A device that refuses changes once its [`Fence`] is closed.
#[derive(Debug)]
pub struct Fenced<D> {
    inner: D,
    fence: Fence,
}

impl<D: BlockDevice> Fenced<D> {
    /// A device that passes operations to `inner` as long as `fence` is open; reads always.
    pub fn new(inner: D, fence: &Fence) -> Fenced<D> {
        Fenced { inner, fence: fence.clone() }
    }

    /// The wrapped device.
    pub fn inner(&self) -> &D {
        &self.inner
    }

    fn pass(&self) -> Result<()> {
        if self.fence.is_closed() { Err(Error::ReadOnly) } else { Ok(()) }
    }
}

impl<D: BlockDevice> BlockDevice for Fenced<D> {
    forward!(self => self.inner;
        len, read_at, read_vectored_at, read_fresh_at, read_verified, alignment,
        needs_stable_buffers);

    fn write_at(&self, at: ByteOffset, buf: &[u8]) -> Result<()> {
        self.pass()?;
        self.inner.write_at(at, buf)
    }

    fn write_vectored_at(&self, at: ByteOffset, bufs: &[IoSlice<'_>]) -> Result<()> {
        self.pass()?;
        self.inner.write_vectored_at(at, bufs)
    }

    fn flush(&self) -> Result<()> {
        self.pass()?;
        self.inner.flush()
    }

    fn write_fua(&self, at: ByteOffset, buf: &[u8]) -> Result<()> {
        self.pass()?;
        self.inner.write_fua(at, buf)
    }

    fn discard(&self, at: ByteOffset, len: u64) -> Result<()> {
        self.pass()?;
        self.inner.discard(at, len)
    }

    fn lengthen(&self, len: u64) -> Result<()> {
        self.pass()?;
        self.inner.lengthen(len)
    }

    fn zero(&self, at: ByteOffset, len: u64) -> Result<()> {
        self.pass()?;
        self.inner.zero(at, len)
    }

    fn set_idle(&self) {
        if self.pass().is_ok() {
            self.inner.set_idle();
        }
    }

    fn is_read_only(&self) -> bool {
        self.fence.is_closed() || self.inner.is_read_only()
    }

    fn dax(&self, at: ByteOffset, len: u64) -> Option<Arc<dyn Dax>> {
        let inner = self.inner.dax(at, len)?;
        Some(Arc::new(FencedDax { inner, fence: self.fence.clone() }))
    }
}

/// A window that a [`Fence`] can close.
struct FencedDax {
    inner: Arc<dyn Dax>,
    fence: Fence,
}

impl FencedDax {
    fn pass(&self) -> Result<()> {
        if self.fence.is_closed() { Err(Error::ReadOnly) } else { Ok(()) }
    }
}

impl Dax for FencedDax {
    forward!(self => self.inner; len, load, persistence_domain, way);

    fn store(&self, at: u64, bytes: &[u8]) -> Result<()> {
        self.pass()?;
        self.inner.store(at, bytes)
    }

    fn write_back(&self, at: u64, len: u64) -> Result<()> {
        self.pass()?;
        self.inner.write_back(at, len)
    }

    fn fence(&self) -> Result<()> {
        self.pass()?;
        self.inner.fence()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::MemoryDevice;

    #[test]
    fn nothing_changes_behind_a_closed_fence() {
        let fence = Fence::new();
        let device = Fenced::new(MemoryDevice::new(4096), &fence);
        let here = ByteOffset(0);
        device.write_at(here, b"before").unwrap();
        let window = device.dax(here, 4096).unwrap();
        fence.close();
        assert!(matches!(window.store(0, b"x"), Err(Error::ReadOnly)));
        for refused in [
            device.write_at(here, b"x"),
            device.write_fua(here, b"x"),
            device.write_vectored_at(here, &[IoSlice::new(b"x")]),
            device.zero(here, 1),
            device.discard(here, 1),
            device.flush(),
        ] {
            assert!(matches!(refused, Err(Error::ReadOnly)));
        }
        let mut bytes = [0; 6];
        device.read_fresh_at(here, &mut bytes).unwrap();
        assert_eq!((&bytes, device.is_read_only()), (b"before", true));
    }
}
