//! A copy of a device that fails.
//!
//! ```text
//!   1 MiB ── read ──► written, unless it is all zeros
//!            └ fails ─► its blocks of 4 KiB, each alone ── fails ─► returned; zeros in the copy
//! ```

use extant::{BlockDevice, ByteOffset, Error, Phase, Progress, Result};
use extant_base::narrow::fits_usize;
use std::ops::Range;

/// Bytes that are read at once.
const PIECE: u64 = 1 << 20;
/// Bytes that are read alone where a longer read fails.
const BLOCK: u64 = 4096;

/// Copies what can be read of `from` to `to`, which has at least its length and reads as zeros.
/// Returns the byte ranges that cannot be read, in order; they stay zeros. Nothing is read again
/// after it failed alone. `to` is flushed at the end.
///
/// # Errors
/// `Device` for `to`. An error of `from` other than `Device`.
pub fn copy(
    from: &dyn BlockDevice,
    to: &dyn BlockDevice,
    progress: &dyn Progress,
) -> Result<Vec<Range<u64>>> {
    progress.begin(Phase::RepairCopy, from.len());
    let mut copy = Copy { from, to, unreadable: Vec::new() };
    let mut buf = vec![0; fits_usize(PIECE)];
    let mut at = 0;
    while at < from.len() {
        let end = (at + PIECE).min(from.len());
        if !copy.piece(at..end, &mut buf)? {
            for start in (at..end).step_by(fits_usize(BLOCK)) {
                let block = start..(start + BLOCK).min(end);
                if !copy.piece(block.clone(), &mut buf)? {
                    copy.add_unreadable(block);
                }
            }
        }
        progress.advance(Phase::RepairCopy, end - at);
        at = end;
    }
    to.flush()?;
    Ok(copy.unreadable)
}

struct Copy<'a> {
    from: &'a dyn BlockDevice,
    to: &'a dyn BlockDevice,
    unreadable: Vec<Range<u64>>,
}

impl Copy<'_> {
    /// Copies a range. Returns whether it can be read.
    fn piece(&self, range: Range<u64>, buf: &mut [u8]) -> Result<bool> {
        let buf = &mut buf[..fits_usize(range.end - range.start)];
        match self.from.read_at(ByteOffset(range.start), buf) {
            Ok(()) => {}
            Err(Error::Device { .. }) => return Ok(false),
            Err(error) => return Err(error),
        }
        if buf.iter().any(|byte| *byte != 0) {
            self.to.write_at(ByteOffset(range.start), buf)?;
        }
        Ok(true)
    }

    fn add_unreadable(&mut self, range: Range<u64>) {
        match self.unreadable.last_mut() {
            Some(last) if last.end == range.start => last.end = range.end,
            _ => self.unreadable.push(range),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use extant::MemoryDevice;
    use extant_base::IoOp;
    use extant_testdev::Faulty;

    #[test]
    fn what_can_be_read_is_copied_and_the_rest_is_returned() {
        let len = 3 * PIECE + 5 * BLOCK + 512;
        let bytes: Vec<u8> = (0..len).map(|at| (at / 512 % 251) as u8 + 1).collect();
        let source = MemoryDevice::new(len);
        source.write_at(ByteOffset(0), &bytes).unwrap();
        let source = Faulty::new(source);
        let bad = [PIECE + 3 * BLOCK + 100..PIECE + 5 * BLOCK, len - 1..len];
        bad.iter().for_each(|range| source.fail_range(IoOp::Read, range.clone()));

        let copied = MemoryDevice::new(len);
        let unreadable = copy(&source, &copied, &()).unwrap();
        let last = len - len % BLOCK..len;
        assert_eq!(unreadable, [PIECE + 3 * BLOCK..PIECE + 5 * BLOCK, last]);
        let mut want = bytes;
        unreadable.iter().for_each(|r| want[r.start as usize..r.end as usize].fill(0));
        let mut got = vec![0; len as usize];
        copied.read_at(ByteOffset(0), &mut got).unwrap();
        assert!(got == want);
    }

    #[test]
    fn an_error_of_the_copy_ends_it() {
        let source = MemoryDevice::new(PIECE);
        source.write_at(ByteOffset(0), &[1]).unwrap();
        let copied = Faulty::new(MemoryDevice::new(PIECE));
        copied.fail(IoOp::Write, 1);
        assert!(matches!(copy(&source, &copied, &()), Err(Error::Device { .. })));
    }
}
