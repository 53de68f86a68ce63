//! Random workloads; the seed determines every operation.
//!
//! ```text
//!   seed ──► a few directories, a dozen names, so that operations meet each other
//! ```
//! Most operations can succeed when they run. The others fail with an errno, which is a case of its
//! own.

use crate::direct;
use crate::op::{Op, RenameHow, Special, draw_offset};
use crate::workload::Workload;
use extant_testkit::rng::Rng;

const DIRS: [&str; 5] = ["", "/A", "/A/C", "/B", "/D"];
const NAMES: [&str; 6] = ["foo", "bar", "baz", "link", "a_rather_long_name_for_one_file", "E"];
const SIZES: [u64; 8] = [1, 60, 512, 1024, 4000, 4096, 9000, 70_000];

/// The workload of a seed, with `len` operations. One in `sync_every` makes something durable.
pub fn workload(seed: u64, len: usize, sync_every: usize) -> Workload {
    let mut draw = Draw { rng: Rng::new(seed ^ 0xc4a5), files: Vec::new() };
    let mut ops: Vec<Op> =
        DIRS[1..].iter().map(|path| Op::Mkdir { path: (*path).to_owned(), mode: 0o755 }).collect();
    while ops.len() < len {
        let op = match draw.rng.below(sync_every) {
            0 => draw.sync(),
            _ => draw.op(),
        };
        draw.remember(&op);
        ops.push(op);
    }
    Workload { name: format!("random/{seed}"), ops }
}

/// `count` ranges of two files, each allocated or freed in any way and overwritten; few of them are
/// synced. For files whose blocks are not written in place.
pub fn ranges(seed: u64, count: usize) -> Workload {
    let mut draw = Draw { rng: Rng::new(seed ^ 0x3a9e), files: Vec::new() };
    let mut ops = Vec::new();
    for path in ["/a", "/b"] {
        ops.push(Op::Create { path: path.to_owned(), mode: 0o644 });
        ops.push(Op::Append { path: path.to_owned(), len: 200_000 });
    }
    for _ in 0..count {
        let path = ["/a", "/b"][draw.rng.below(2)].to_owned();
        let place = (draw.offset(), draw.size());
        if draw.rng.below(5) == 0 {
            ops.push(Op::Fsync { path: path.clone() });
        }
        ops.extend(Op::draw_range_written(&mut draw.rng, path, place));
    }
    Workload { name: format!("ranges/{seed}"), ops }
}

struct Draw {
    rng: Rng,
    /// Paths that are probably files.
    files: Vec<String>,
}

impl Draw {
    fn op(&mut self) -> Op {
        let path = self.file();
        match self.rng.below(96) {
            0..10 => Op::Create { path: self.name(), mode: 0o644 },
            10..13 => Op::Mkdir { path: self.name(), mode: 0o755 },
            13..16 => {
                let target = "t".repeat([5, 59, 60, 200][self.rng.below(4)]);
                Op::Symlink { target, path: self.name() }
            }
            16..18 => Op::Mknod { path: self.name(), kind: Special::ALL[self.rng.below(4)].0 },
            18..20 => Op::Tmpfile { dir: self.dir(), path: self.name(), len: self.size() },
            20..21 => Op::TmpfileDropped { dir: self.dir(), len: self.size() },
            21..25 => Op::Link { from: path, to: self.name() },
            25..31 => Op::Unlink { path },
            31..32 => Op::Rmdir { path: self.dir() },
            32..33 => Op::Remove { path: self.name() },
            33..42 => self.rename(path),
            42..56 => Op::Write { path, at: self.offset(), len: self.size() },
            56..62 => Op::Append { path, len: self.size() },
            62..66 => Op::Truncate { path, len: self.offset() },
            66..73 => self.fallocate(path),
            73..77 => {
                let len = [3, 40, 300, 900][self.rng.below(4)];
                Op::SetXattr { path, name: self.attribute(), len }
            }
            77..79 => Op::RemoveXattr { path, name: self.attribute() },
            79..81 => Op::Chmod { path, mode: 0o600 },
            81..82 => Op::Chown { path, uid: 7, gid: 8 },
            82..83 => Op::SetTimes { path },
            83..84 => Op::Chattr { path, flag: 'A', on: self.rng.below(2) == 0 },
            84..86 => Op::Hold { path },
            86..88 => Op::Release { path },
            _ => {
                let place = (self.offset(), self.size());
                direct::draw(&mut self.rng, path, place)
            }
        }
    }

    fn sync(&mut self) -> Op {
        match self.rng.below(8) {
            0 => Op::Sync,
            1 => Op::Fsync { path: self.dir() },
            2..4 => Op::Fdatasync { path: self.file() },
            _ => Op::Fsync { path: self.file() },
        }
    }

    fn rename(&mut self, path: String) -> Op {
        let (to, how) = match self.rng.below(8) {
            0 => (self.name(), RenameHow::NoReplace),
            1 => (self.file(), RenameHow::Exchange),
            2 => (self.name(), RenameHow::Whiteout),
            3 => (self.file(), RenameHow::Replace),
            _ => (self.name(), RenameHow::Replace),
        };
        let from = if self.rng.below(6) == 0 { self.dir() } else { path };
        Op::Rename { from, to, how }
    }

    /// An operation on the files that probably exist.
    fn remember(&mut self, op: &Op) {
        match op {
            Op::Create { path, .. } | Op::Tmpfile { path, .. } => self.files.push(path.clone()),
            Op::Link { to, .. } => self.files.push(to.clone()),
            Op::Unlink { path } => self.files.retain(|file| file != path),
            Op::Rename { from, to, how } if *how != RenameHow::Exchange => {
                self.files.retain(|file| file != from);
                self.files.push(to.clone());
            }
            _ => {}
        }
    }

    fn fallocate(&mut self, path: String) -> Op {
        let place = (self.offset(), self.size());
        Op::draw_fallocate(&mut self.rng, path, place)
    }

    fn dir(&mut self) -> String {
        let dir = DIRS[self.rng.below(DIRS.len())];
        if dir.is_empty() { "/".to_owned() } else { dir.to_owned() }
    }

    /// A path that is probably a file.
    fn file(&mut self) -> String {
        match self.files.is_empty() || self.rng.below(12) == 0 {
            true => self.name(),
            false => self.files[self.rng.below(self.files.len())].clone(),
        }
    }

    /// Any path.
    fn name(&mut self) -> String {
        format!("{}/{}", DIRS[self.rng.below(DIRS.len())], NAMES[self.rng.below(NAMES.len())])
    }

    fn size(&mut self) -> u64 {
        SIZES[self.rng.below(SIZES.len())]
    }

    fn offset(&mut self) -> u64 {
        draw_offset(&mut self.rng, &SIZES, 200_000, 4)
    }

    fn attribute(&mut self) -> String {
        ["user.a", "user.b", "trusted.c"][self.rng.below(3)].to_owned()
    }
}
