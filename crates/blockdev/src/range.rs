//! Ranges of a device, and the errors that name them.

use extant_base::{ByteOffset, Error, IoOp, Result};
use std::io::{self, ErrorKind};

/// The sum of the lengths of buffers that are in memory together, and so is far below 2^64.
pub(crate) fn total_len(lens: impl Iterator<Item = usize>) -> u64 {
    lens.fold(0u64, |sum, len| sum.saturating_add(len as u64))
}

/// Fails unless `len` bytes from `at` on lie within a device of `device_len` bytes.
pub(crate) fn check_range(op: IoOp, device_len: u64, at: ByteOffset, len: u64) -> Result<()> {
    match at.0.checked_add(len) {
        Some(end) if end <= device_len => Ok(()),
        _ => Err(failed(op, at, len, io::Error::new(ErrorKind::UnexpectedEof, PAST_END))),
    }
}

const PAST_END: &str = "past the end of the device";

/// An [`Error::Device`] for a range of `len` bytes at `at`.
pub(crate) fn failed(op: IoOp, at: ByteOffset, len: u64, source: io::Error) -> Error {
    Error::Device { op, at, len: usize::try_from(len).unwrap_or(usize::MAX), source }
}
