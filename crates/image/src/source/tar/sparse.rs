//! Sparse files in tars: which ranges of the file the stored bytes belong to.
//!
//! ```text
//!   stored   ┌─ A ─┬─ B ─┐
//!            └──┬──┴──┬──┘
//!   file     ┌──▼──┬··▼··┬─────┬·······┐      ranges (0, A) (x, B), real size
//!
//!   old GNU   in the header and the blocks after it, type S
//!   0.0, 0.1  in extended records: GNU.sparse.offset and .numbytes alternating, or GNU.sparse.map
//!   1.0       decimal lines at the start of the data, padded to a block
//! ```

use super::Fault;
use super::input::{BLOCK, Short, TarInput};
use crate::entry::DataRange;

/// Checks a map and converts it to the form of the tree: adjacent ranges joined, empty ones
/// dropped.
///
/// Errors: ranges that overlap or go backwards, or end after `real_size`; a total length that
/// differs from the `stored` bytes of the archive.
pub(crate) fn check(
    ranges: &[(u64, u64)],
    real_size: u64,
    stored: u64,
) -> Result<Vec<DataRange>, Fault> {
    let mut checked: Vec<DataRange> = Vec::new();
    let (mut end, mut sum) = (0u64, 0u64);
    for &(offset, len) in ranges {
        let after = offset.checked_add(len).filter(|after| *after <= real_size);
        let Some(after) = after.filter(|_| offset >= end) else {
            return Err(format!(
                "sparse map is not in order or leaves the file: {len} bytes at {offset} of {real_size}"
            ));
        };
        if len > 0 {
            match checked.last_mut() {
                Some(last) if last.offset + last.len == offset => last.len += len,
                _ => checked.push(DataRange { offset, len, stored: sum }),
            }
        }
        end = after;
        // Each sum is at most `after`, so it cannot overflow.
        sum += len;
    }
    if sum != stored {
        return Err(format!("sparse map has {sum} bytes of data, the archive {stored}"));
    }
    Ok(checked)
}

/// Offsets and lengths, and the number of bytes in the archive that described them.
pub(crate) type Map = (Vec<(u64, u64)>, u64);

/// Reads the map at the start of the data of a 1.0 sparse file of `stored` bytes. Returns the
/// ranges and the length of the map in bytes.
pub(crate) fn read_map(input: &mut TarInput<'_>, stored: u64) -> Result<Result<Map, Fault>, Short> {
    let mut lines = Lines { input, left: stored, used: 0, block: [0; BLOCK], at: BLOCK };
    let count = match lines.number()? {
        Ok(count) => count,
        Err(fault) => return Ok(Err(fault)),
    };
    // Each pair takes at least four bytes, so the length of the data limits the count.
    if count > stored / 4 {
        return Ok(Err(format!("sparse map claims {count} ranges in {stored} bytes")));
    }
    let mut ranges = Vec::new();
    for _ in 0..count {
        match (lines.number()?, lines.number()?) {
            (Ok(offset), Ok(len)) => ranges.push((offset, len)),
            (Err(fault), _) | (_, Err(fault)) => return Ok(Err(fault)),
        }
    }
    let used = lines.used;
    Ok(Ok((ranges, used)))
}

struct Lines<'i, 'a> {
    input: &'i mut TarInput<'a>,
    left: u64,
    used: u64,
    block: [u8; BLOCK],
    at: usize,
}

impl Lines<'_, '_> {
    fn number(&mut self) -> Result<Result<u64, Fault>, Short> {
        let fault = || Ok(Err(Fault::from("sparse map holds what is no number")));
        let mut digits = Vec::new();
        loop {
            if self.at == BLOCK {
                if self.left < BLOCK as u64 {
                    return fault();
                }
                self.input.read(&mut self.block)?;
                self.left -= BLOCK as u64;
                self.used += BLOCK as u64;
                self.at = 0;
            }
            let byte = self.block[self.at];
            self.at += 1;
            match byte {
                b'\n' => break,
                b'0'..=b'9' if digits.len() < 20 => digits.push(byte),
                _ => return fault(),
            }
        }
        match super::pax::decimal(&digits) {
            Some(number) => Ok(Ok(number)),
            None => fault(),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn maps_that_overlap_or_leave_the_file_are_refused() {
        let good = check(&[(0, 10), (10, 5), (100, 1), (200, 0)], 200, 16).unwrap();
        assert_eq!(
            good,
            [
                DataRange { offset: 0, len: 15, stored: 0 },
                DataRange { offset: 100, len: 1, stored: 15 }
            ]
        );
        for (ranges, size, stored) in [
            (&[(0, 10), (5, 10)][..], 100, 20),
            (&[(50, 10), (0, 10)], 100, 20),
            (&[(95, 10)], 100, 10),
            (&[(u64::MAX, 10)], u64::MAX, 10),
            (&[(0, 10)], 100, 11),
        ] {
            assert!(check(ranges, size, stored).is_err(), "{ranges:?}");
        }
    }
}
