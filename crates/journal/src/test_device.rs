//! A device for tests: memory, a list of requests, and failures on demand.

use extant_base::lock::{Mutex, Rank};
use extant_base::{ByteOffset, Error, IoOp, Result};
use extant_blockdev::BlockDevice;
use std::sync::atomic::{AtomicBool, Ordering};

/// A request. The device lists them in order.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Request {
    Read { at: u64, len: usize },
    Write { at: u64, len: usize },
    Fua { at: u64, len: usize },
    Flush,
}

/// Memory that lists its requests and can fail.
pub(crate) struct TestDevice {
    bytes: Mutex<Vec<u8>>,
    requests: Mutex<Vec<Request>>,
    pub(crate) fail_reads: AtomicBool,
    pub(crate) fail_writes: AtomicBool,
    pub(crate) fail_flushes: AtomicBool,
}

impl TestDevice {
    pub(crate) fn new(bytes: Vec<u8>) -> TestDevice {
        TestDevice {
            bytes: Mutex::new(Rank::Leaf, bytes),
            requests: Mutex::new(Rank::Leaf, Vec::new()),
            fail_reads: AtomicBool::new(false),
            fail_writes: AtomicBool::new(false),
            fail_flushes: AtomicBool::new(false),
        }
    }

    pub(crate) fn content(&self) -> Vec<u8> {
        self.bytes.lock().clone()
    }

    /// The requests since the last call.
    pub(crate) fn take_requests(&self) -> Vec<Request> {
        std::mem::take(&mut self.requests.lock())
    }

    fn note(&self, requests: Request) {
        self.requests.lock().push(requests);
    }

    fn range(&self, op: IoOp, at: ByteOffset, len: usize) -> Result<std::ops::Range<usize>> {
        let start = usize::try_from(at.0).unwrap_or(usize::MAX);
        match start.checked_add(len) {
            Some(end) if end <= self.len() as usize => Ok(start..end),
            _ => Err(broken(op, at, len)),
        }
    }
}

fn broken(op: IoOp, at: ByteOffset, len: usize) -> Error {
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
            return Err(broken(IoOp::Read, at, buf.len()));
        }
        buf.copy_from_slice(&self.bytes.lock()[range]);
        Ok(())
    }

    fn write_at(&self, at: ByteOffset, buf: &[u8]) -> Result<()> {
        self.note(Request::Write { at: at.0, len: buf.len() });
        let range = self.range(IoOp::Write, at, buf.len())?;
        if self.fail_writes.load(Ordering::Relaxed) {
            return Err(broken(IoOp::Write, at, buf.len()));
        }
        self.bytes.lock()[range].copy_from_slice(buf);
        Ok(())
    }

    fn flush(&self) -> Result<()> {
        self.note(Request::Flush);
        if self.fail_flushes.load(Ordering::Relaxed) {
            return Err(broken(IoOp::Flush, ByteOffset(0), 0));
        }
        Ok(())
    }

    fn write_fua(&self, at: ByteOffset, buf: &[u8]) -> Result<()> {
        self.note(Request::Fua { at: at.0, len: buf.len() });
        let range = self.range(IoOp::Write, at, buf.len())?;
        if self.fail_writes.load(Ordering::Relaxed) {
            return Err(broken(IoOp::Write, at, buf.len()));
        }
        self.bytes.lock()[range].copy_from_slice(buf);
        Ok(())
    }
}
