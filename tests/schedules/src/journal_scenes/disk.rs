//! A disk in memory: other threads run in the middle of each request, and a power cut loses any
//! part of what is not durable.

use crate::model::{below, point};
use extant_base::{ByteOffset, Error, IoOp, Result};
use extant_blockdev::BlockDevice;
use std::sync::Mutex;

pub(crate) struct Disk {
    /// Never held at a point where another thread may run.
    state: Mutex<State>,
}

struct State {
    /// What reads return.
    bytes: Vec<u8>,
    /// What is certain to be there after a power cut.
    durable: Vec<u8>,
    /// Later writes, which may be lost: number, place, bytes.
    pending: Vec<(u64, usize, Vec<u8>)>,
    writes: u64,
    /// Requests until one fails; none does at `u64::MAX`.
    fails_in: u64,
    /// Flushes until one loses what it covers; none does at `u64::MAX`.
    loses_in: u64,
}

impl Disk {
    pub(crate) fn new(bytes: Vec<u8>) -> Disk {
        let durable = bytes.clone();
        let (fails_in, loses_in) = (u64::MAX, u64::MAX);
        let state = State { bytes, durable, pending: Vec::new(), writes: 0, fails_in, loses_in };
        Disk { state: Mutex::new(state) }
    }

    /// Request `n` from now on fails, and all after it.
    pub(crate) fn fail_in(&self, n: u64) {
        self.state.lock().unwrap().fails_in = n;
    }

    /// Flush `n` from now on loses what was written before it, and only its caller gets the error.
    pub(crate) fn lose_in(&self, n: u64) {
        self.state.lock().unwrap().loses_in = n;
    }

    /// What a power cut leaves: everything that was flushed, and any part of the rest.
    pub(crate) fn cut(&self) -> Vec<u8> {
        // No pending write survives, all do, or some.
        let mode = below(4);
        let state = self.state.lock().unwrap();
        let (mut left, pending) = (state.durable.clone(), state.pending.clone());
        drop(state);
        for (_, at, bytes) in pending {
            if mode == 1 || (mode > 1 && below(2) == 0) {
                left[at..at + bytes.len()].copy_from_slice(&bytes);
            }
        }
        left
    }

    fn ask(&self, op: IoOp, at: ByteOffset, len: usize) -> Result<()> {
        point();
        let mut state = self.state.lock().unwrap();
        if state.fails_in == u64::MAX {
            return Ok(());
        }
        state.fails_in = state.fails_in.saturating_sub(1);
        if state.fails_in == 0 { Err(broken(op, at, len)) } else { Ok(()) }
    }

    /// Whether this flush is the one that loses writes; they are then lost up to number `last`.
    fn loses(&self, last: u64) -> bool {
        let mut state = self.state.lock().unwrap();
        if state.loses_in == u64::MAX {
            return false;
        }
        state.loses_in -= 1;
        if state.loses_in > 0 {
            return false;
        }
        state.loses_in = u64::MAX;
        state.pending.retain(|(nr, ..)| *nr > last);
        true
    }
}

fn broken(op: IoOp, at: ByteOffset, len: usize) -> Error {
    Error::Device { op, at, len, source: std::io::Error::from_raw_os_error(5) }
}

impl BlockDevice for Disk {
    fn len(&self) -> u64 {
        self.state.lock().unwrap().bytes.len() as u64
    }

    fn read_at(&self, at: ByteOffset, buf: &mut [u8]) -> Result<()> {
        self.ask(IoOp::Read, at, buf.len())?;
        buf.copy_from_slice(&self.state.lock().unwrap().bytes[at.0 as usize..][..buf.len()]);
        Ok(())
    }

    fn write_at(&self, at: ByteOffset, buf: &[u8]) -> Result<()> {
        self.ask(IoOp::Write, at, buf.len())?;
        let mut state = self.state.lock().unwrap();
        let at = at.0 as usize;
        state.bytes[at..at + buf.len()].copy_from_slice(buf);
        state.writes += 1;
        let nr = state.writes;
        state.pending.push((nr, at, buf.to_vec()));
        drop(state);
        point();
        Ok(())
    }

    fn flush(&self) -> Result<()> {
        self.ask(IoOp::Flush, ByteOffset(0), 0)?;
        // A flush covers what was written before it began.
        let last = self.state.lock().unwrap().writes;
        point();
        if self.loses(last) {
            // Other threads run before any thread gets the result.
            point();
            return Err(broken(IoOp::Flush, ByteOffset(0), 0));
        }
        let state = &mut *self.state.lock().unwrap();
        for (_, at, bytes) in state.pending.extract_if(.., |(nr, ..)| *nr <= last) {
            state.durable[at..at + bytes.len()].copy_from_slice(&bytes);
        }
        Ok(())
    }

    fn write_fua(&self, at: ByteOffset, buf: &[u8]) -> Result<()> {
        self.ask(IoOp::Write, at, buf.len())?;
        point();
        point();
        let mut state = self.state.lock().unwrap();
        let at = at.0 as usize;
        state.bytes[at..at + buf.len()].copy_from_slice(buf);
        state.durable[at..at + buf.len()].copy_from_slice(buf);
        // Older bytes that were not flushed do not come back over it.
        state.pending.retain(|(_, was, bytes)| *was < at || was + bytes.len() > at + buf.len());
        drop(state);
        point();
        Ok(())
    }
}
