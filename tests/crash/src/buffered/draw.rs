//! Random workloads on the bytes of a few files; the seed determines every operation.

use super::run::MARKER;
use crate::direct;
use crate::op::{Op, RenameHow, draw_offset};
use crate::workload::Workload;
use extant_testkit::rng::Rng;

const NAMES: [&str; 5] = ["/a", "/b", "/c", "/d", "/e"];
const SIZES: [u64; 9] = [1, 100, 512, 1000, 4096, 5000, 16_384, 70_000, 200_000];
/// More than one handle takes.
const LARGE: u64 = 1_300_000;

/// The workload of a seed, with about `len` operations.
pub fn workload(seed: u64, len: usize) -> Workload {
    let mut draw = Draw { rng: Rng::new(seed ^ 0xb0ff), sync_every: 5 };
    draw.sync_every = [4, 9, 20][draw.rng.below(3)];
    let mut ops = Vec::new();
    for path in &NAMES[..3] {
        ops.push(Op::Create { path: (*path).to_owned(), mode: 0o644 });
    }
    while ops.len() < len {
        match draw.rng.below(draw.sync_every) {
            0 => ops.push(draw.sync()),
            _ => draw.some(&mut ops),
        }
    }
    Workload { name: format!("buffered/{seed}"), ops }
}

/// What the timer does: it commits calls, and data that is on the device; it writes nothing back
/// for that.
fn commit() -> Op {
    Op::Fsync { path: MARKER.to_owned() }
}

struct Draw {
    rng: Rng,
    sync_every: usize,
}

impl Draw {
    fn some(&mut self, ops: &mut Vec<Op>) {
        let path = self.path();
        let (at, len) = (self.offset(), self.size());
        match self.rng.below(72) {
            0..2 => ops.push(Op::Write { path, at, len: LARGE }),
            2..18 => ops.push(Op::Write { path, at, len }),
            18..29 => ops.push(Op::Append { path, len }),
            29..34 => ops.push(Op::Truncate { path, len: at }),
            34..41 => ops.push(self.fallocate(path)),
            41..44 => ops.push(Op::Read { path, at, len }),
            44..47 => ops.push(Op::WriteBack { path, at: at / 2, len: 2 * len }),
            47..49 => ops.push(Op::DontCache { path, on: self.rng.below(2) == 0 }),
            49..51 => ops.push(Op::Close { path }),
            51..52 => ops.push(Op::Create { path, mode: 0o644 }),
            52..53 => ops.push(Op::Unlink { path }),
            53..57 => self.replace(path, ops),
            57..60 => self.rewrite(path, ops),
            60..64 => ops.extend(Op::draw_range_written(&mut self.rng, path, (at, len))),
            _ => ops.push(direct::draw(&mut self.rng, path, (at, len))),
        }
    }

    /// A new file replaces the name of an old one.
    fn replace(&mut self, to: String, ops: &mut Vec<Op>) {
        let from = "/new".to_owned();
        ops.push(Op::Create { path: from.clone(), mode: 0o644 });
        for _ in 0..self.rng.below(3) {
            ops.push(Op::Append { path: from.clone(), len: self.size() });
        }
        ops.push(Op::Rename { from, to, how: RenameHow::Replace });
        ops.extend((self.rng.below(2) == 0).then(commit));
    }

    /// A file is truncated to nothing, written and closed.
    fn rewrite(&mut self, path: String, ops: &mut Vec<Op>) {
        ops.push(Op::Truncate { path: path.clone(), len: 0 });
        ops.push(Op::Write { path: path.clone(), at: 0, len: self.size() });
        ops.push(Op::Close { path });
        ops.extend((self.rng.below(2) == 0).then(commit));
    }

    fn fallocate(&mut self, path: String) -> Op {
        let place = (self.offset(), self.size());
        Op::draw_fallocate(&mut self.rng, path, place)
    }

    fn sync(&mut self) -> Op {
        match self.rng.below(8) {
            0 => Op::Sync,
            1..3 => commit(),
            3..5 => Op::Fdatasync { path: self.path() },
            _ => Op::Fsync { path: self.path() },
        }
    }

    fn path(&mut self) -> String {
        let most = [2, NAMES.len()][self.rng.below(2)];
        NAMES[self.rng.below(most)].to_owned()
    }

    fn size(&mut self) -> u64 {
        SIZES[self.rng.below(SIZES.len())]
    }

    fn offset(&mut self) -> u64 {
        draw_offset(&mut self.rng, &SIZES, 300_000, 3)
    }
}
