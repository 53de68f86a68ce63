//! How operations land on a device: reordered, or in part.
//!
//! ```text
//!   issued:   a a a a          landed:   a a b b      in order
//!                 b b b b                a a a a      reordered
//!                                        a . . a      torn: some sectors only
//! ```
//!
//! A store through a window tears between 8-byte words, every other operation between sectors.

use super::Step;
use crate::op::Op;
use extant_base::{ByteOffset, Result};
use extant_blockdev::{BlockDevice, MemoryDevice};
use std::ops::Range;

/// Bytes that a device writes completely or not at all.
const SECTOR: u64 = 512;
/// Bytes that a store writes completely or not at all.
const WORD: u64 = 8;
/// Ranges with more sectors than this tear at one place only.
const MASK_SECTORS: u64 = 4096;

/// Another order for operations of which some overlap, or `None` when none do. No operation moves
/// across a forced write, which had landed when it returned.
pub(super) fn reorder(log: &[Op], steps: &[Step], random: &mut Random) -> Option<Vec<Step>> {
    let mut steps = steps.to_vec();
    let mut changed = false;
    for run in steps.split_mut(|step| log[step.op].is_fua()) {
        let before: Vec<_> = run.iter().map(|step| step.op).collect();
        for n in (1..run.len()).rev() {
            run.swap(n, random.below(n as u64 + 1) as usize);
        }
        let place = |op: usize| run.iter().position(|step| step.op == op);
        let swapped = |n: usize, m: usize| {
            overlap(log[before[n]].range(), log[before[m]].range())
                && place(before[n]) > place(before[m])
        };
        let mut pairs = (0..before.len()).flat_map(|m| (0..m).map(move |n| (n, m)));
        if pairs.clone().any(|(n, m)| swapped(n, m)) {
            changed = true;
        } else if let Some((n, m)) =
            pairs.find(|(n, m)| overlap(log[before[*n]].range(), log[before[*m]].range()))
        {
            // The random order changed no overlap: exchange one overlapping pair.
            let (n, m) = (place(before[n])?, place(before[m])?);
            run.swap(n, m);
            changed = true;
        }
    }
    changed.then_some(steps)
}

fn overlap((a, a_len): (ByteOffset, u64), (b, b_len): (ByteOffset, u64)) -> bool {
    a.0 < b.0.saturating_add(b_len) && b.0 < a.0.saturating_add(a_len)
}

/// The unit that `op` writes completely or not at all, in bytes.
fn unit(op: &Op) -> u64 {
    if matches!(op, Op::Store { .. }) { WORD } else { SECTOR }
}

/// How many sectors, or words for a store, an operation touches.
pub(super) fn parts_of(op: &Op) -> u64 {
    let ((at, len), unit) = (op.range(), unit(op));
    if len == 0 { 0 } else { (at.0 + len).div_ceil(unit) - at.0 / unit }
}

/// Some of the sectors of an operation, neither none nor all: the first ones, the last ones, or
/// any.
pub(super) fn tear(op: &Op, random: &mut Random) -> Vec<Range<u64>> {
    let (range, unit) = (op.range(), unit(op));
    let (start, end) = (range.0.0, range.0.0 + range.1);
    let count = parts_of(op);
    let first = start / unit;
    let bytes =
        |from: u64, to: u64| ((first + from) * unit).max(start)..((first + to) * unit).min(end);
    let split = 1 + random.below(count - 1);
    match random.below(if count > MASK_SECTORS { 2 } else { 3 }) {
        0 => vec![bytes(0, split)],
        1 => vec![bytes(split, count)],
        _ => {
            let (kept, gone) = (random.below(count), random.below(count - 1));
            let gone = if gone >= kept { gone + 1 } else { gone };
            let keep = |n: &u64| *n == kept || (*n != gone && random.below(2) == 0);
            (0..count).filter(keep).map(|n| bytes(n, n + 1)).collect()
        }
    }
}

/// Applies an operation to `image`, completely or only its `parts` (byte ranges of the device).
pub(super) fn apply(image: &MemoryDevice, op: &Op, parts: Option<&[Range<u64>]>) {
    let (at, len) = op.range();
    let all = at.0..at.0 + len;
    for part in parts.unwrap_or(std::slice::from_ref(&all)) {
        let done: Result<()> = match op {
            Op::Write { data, .. } | Op::Store { data, .. } => {
                let within = (part.start - at.0) as usize..(part.end - at.0) as usize;
                image.write_at(ByteOffset(part.start), &data[within])
            }
            Op::Zero { .. } | Op::Discard { .. } => {
                image.zero(ByteOffset(part.start), part.end - part.start)
            }
            Op::Flush | Op::FlushRange { .. } | Op::WriteBack { .. } | Op::Fence => Ok(()),
        };
        done.expect("the operation succeeded on a device as long as the base image");
    }
}

/// A small pseudo-random generator (splitmix64): one seed gives one sequence.
pub(super) struct Random(u64);

impl Random {
    pub(super) fn new(seed: u64, stream: u64) -> Random {
        let mut random = Random(seed);
        Random(random.next() ^ stream.wrapping_mul(0x9e37_79b9_7f4a_7c15))
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number below `n`, which is not zero.
    pub(super) fn below(&mut self, n: u64) -> u64 {
        ((u128::from(self.next()) * u128::from(n)) >> 64) as u64
    }
}
