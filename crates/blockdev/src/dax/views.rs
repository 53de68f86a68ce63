//! Windows of devices that are not files.
//!
//! ```text
//!   MemoryDax     the chunks of a MemoryDevice
//!   FencedDax     ─► a window, until the fence closes
//!   FaultyDax     ─► a window, failing on demand
//!   RecordedDax   ─► a window, each line a Store in the log
//! ```

use super::{Dax, PersistenceDomain, Way, check_window, lines};
use crate::device::BlockDevice;
use crate::fenced::Fence;
use crate::memory::MemoryDevice;
use crate::recorder::Op;
use extant_base::{ByteOffset, Error, IoOp, Result};
use parking_lot::Mutex;
use std::sync::Arc;

/// A part of a [`MemoryDevice`].
pub(crate) struct MemoryDax {
    pub(crate) device: MemoryDevice,
    pub(crate) at: u64,
    pub(crate) len: u64,
}

impl Dax for MemoryDax {
    fn len(&self) -> u64 {
        self.len
    }

    fn store(&self, at: u64, bytes: &[u8]) -> Result<()> {
        check_window(IoOp::Write, self.len, at, bytes.len() as u64)?;
        self.device.write_at(ByteOffset(self.at + at), bytes)
    }

    fn load(&self, at: u64, buf: &mut [u8]) -> Result<()> {
        check_window(IoOp::Read, self.len, at, buf.len() as u64)?;
        self.device.read_at(ByteOffset(self.at + at), buf)
    }

    fn write_back(&self, at: u64, len: u64) -> Result<()> {
        check_window(IoOp::Flush, self.len, at, len)
    }

    fn fence(&self) -> Result<()> {
        Ok(())
    }

    fn persistence_domain(&self) -> PersistenceDomain {
        PersistenceDomain::Power
    }

    fn way(&self) -> Way {
        Way::Memory
    }
}

/// A window that a [`Fence`] can close.
pub(crate) struct FencedDax {
    pub(crate) inner: Arc<dyn Dax>,
    pub(crate) fence: Fence,
}

impl FencedDax {
    fn pass(&self) -> Result<()> {
        if self.fence.is_closed() { Err(Error::ReadOnly) } else { Ok(()) }
    }
}

impl Dax for FencedDax {
    fn len(&self) -> u64 {
        self.inner.len()
    }

    fn store(&self, at: u64, bytes: &[u8]) -> Result<()> {
        self.pass()?;
        self.inner.store(at, bytes)
    }

    fn load(&self, at: u64, buf: &mut [u8]) -> Result<()> {
        self.inner.load(at, buf)
    }

    fn write_back(&self, at: u64, len: u64) -> Result<()> {
        self.pass()?;
        self.inner.write_back(at, len)
    }

    fn fence(&self) -> Result<()> {
        self.pass()?;
        self.inner.fence()
    }

    fn persistence_domain(&self) -> PersistenceDomain {
        self.inner.persistence_domain()
    }

    fn way(&self) -> Way {
        self.inner.way()
    }
}

/// Counts one operation of a kind on a range, and fails it when a rule says so.
pub(crate) type Judge = dyn Fn(IoOp, ByteOffset, u64) -> Result<()> + Send + Sync;

/// A window whose stores count as writes, and whose fences as flushes.
pub(crate) struct FaultyDax {
    pub(crate) inner: Arc<dyn Dax>,
    pub(crate) at: u64,
    pub(crate) judge: Box<Judge>,
}

impl Dax for FaultyDax {
    fn len(&self) -> u64 {
        self.inner.len()
    }

    fn store(&self, at: u64, bytes: &[u8]) -> Result<()> {
        (self.judge)(IoOp::Write, ByteOffset(self.at.saturating_add(at)), bytes.len() as u64)?;
        self.inner.store(at, bytes)
    }

    fn load(&self, at: u64, buf: &mut [u8]) -> Result<()> {
        (self.judge)(IoOp::Read, ByteOffset(self.at.saturating_add(at)), buf.len() as u64)?;
        self.inner.load(at, buf)
    }

    fn write_back(&self, at: u64, len: u64) -> Result<()> {
        self.inner.write_back(at, len)
    }

    fn fence(&self) -> Result<()> {
        (self.judge)(IoOp::Flush, ByteOffset(self.at), self.inner.len())?;
        self.inner.fence()
    }

    fn persistence_domain(&self) -> PersistenceDomain {
        self.inner.persistence_domain()
    }

    fn way(&self) -> Way {
        self.inner.way()
    }
}

/// A window that records its operations, line by line.
pub(crate) struct RecordedDax {
    pub(crate) inner: Arc<dyn Dax>,
    /// Where the window starts on the recorded device.
    pub(crate) at: u64,
    pub(crate) log: Arc<Mutex<Vec<Op>>>,
}

impl Dax for RecordedDax {
    fn len(&self) -> u64 {
        self.inner.len()
    }

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

    fn load(&self, at: u64, buf: &mut [u8]) -> Result<()> {
        self.inner.load(at, buf)
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

    fn persistence_domain(&self) -> PersistenceDomain {
        self.inner.persistence_domain()
    }

    fn way(&self) -> Way {
        self.inner.way()
    }
}
