//! Memory that lists its requests, reads included, and fails by kind of request.

use extant_base::{ByteOffset, Error, IoOp, Result};
use extant_blockdev::BlockDevice;
use parking_lot::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};

/// A request. The device lists them in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Request {
    /// A read.
    Read {
        /// Position on the device.
        at: u64,
        /// Length in bytes.
        len: usize,
    },
    /// A write that the next flush makes durable.
    Write {
        /// Position on the device.
        at: u64,
        /// Length in bytes.
        len: usize,
    },
    /// A forced write.
    Fua {
        /// Position on the device.
        at: u64,
        /// Length in bytes.
        len: usize,
    },
    /// A flush.
    Flush,
}

/// Memory that lists its requests and can fail.
#[derive(Debug)]
pub struct TestDevice {
    bytes: Mutex<Vec<u8>>,
    requests: Mutex<Vec<Request>>,
    /// Whether reads fail.
    pub fail_reads: AtomicBool,
    /// Whether writes, forced ones included, fail.
    pub fail_writes: AtomicBool,
    /// Whether flushes fail.
    pub fail_flushes: AtomicBool,
}

impl TestDevice {
    /// A device that holds `bytes`.
    pub fn new(bytes: Vec<u8>) -> TestDevice {
        TestDevice {
            bytes: Mutex::new(bytes),
            requests: Mutex::default(),
            fail_reads: AtomicBool::new(false),
            fail_writes: AtomicBool::new(false),
            fail_flushes: AtomicBool::new(false),
        }
    }

    /// All bytes.
    pub fn content(&self) -> Vec<u8> {
        self.bytes.lock().clone()
    }

    /// The requests since the last call.
    pub fn take_requests(&self) -> Vec<Request> {
        std::mem::take(&mut self.requests.lock())
    }

    fn note(&self, request: Request) {
        self.requests.lock().push(request);
    }

    fn range(&self, op: IoOp, at: ByteOffset, len: usize) -> Result<std::ops::Range<usize>> {
        let start = usize::try_from(at.0).unwrap_or(usize::MAX);
        match start.checked_add(len) {
            Some(end) if end <= self.len() as usize => Ok(start..end),
            _ => Err(failed(op, at, len)),
        }
    }
}

fn failed(op: IoOp, at: ByteOffset, len: usize) -> Error {
    Error::Device { op, at, len, source: std::io::Error::from_raw_os_error(5) }
}

impl BlockDevice for TestDevice {
    fn len(&self) -> u64 {
        self.bytes.lock().len() as u64
    }

    fn read_at(&self, at: ByteOffset, buf: &mut [u8]) -> Result<()> {
        self.note(Request::Read { at: at.0, len: buf.len() });
        let range = self.range(IoOp::Read, at, buf.len())?;
        if self.fail_reads.load(Ordering::Relaxed) {
            return Err(failed(IoOp::Read, at, buf.len()));
        }
        buf.copy_from_slice(&self.bytes.lock()[range]);
        Ok(())
    }

    fn write_at(&self, at: ByteOffset, buf: &[u8]) -> Result<()> {
        self.note(Request::Write { at: at.0, len: buf.len() });
        let range = self.range(IoOp::Write, at, buf.len())?;
        if self.fail_writes.load(Ordering::Relaxed) {
            return Err(failed(IoOp::Write, at, buf.len()));
        }
        self.bytes.lock()[range].copy_from_slice(buf);
        Ok(())
    }

    fn flush(&self) -> Result<()> {
        self.note(Request::Flush);
        if self.fail_flushes.load(Ordering::Relaxed) {
            return Err(failed(IoOp::Flush, ByteOffset(0), 0));
        }
        Ok(())
    }

    fn write_fua(&self, at: ByteOffset, buf: &[u8]) -> Result<()> {
        self.note(Request::Fua { at: at.0, len: buf.len() });
        let range = self.range(IoOp::Write, at, buf.len())?;
        if self.fail_writes.load(Ordering::Relaxed) {
            return Err(failed(IoOp::Write, at, buf.len()));
        }
        self.bytes.lock()[range].copy_from_slice(buf);
        Ok(())
    }
}
