//! Random work on a volume with fast commits, cut right after a sync of one file. After recovery,
//! the volume must show everything that it showed before.
//!
//! ```text
//!   work … fsync ──► cut ──► recover ──► the same tree? e2fsck finds nothing?
//!     ▲                └─── the volume continues as if nothing had happened ─┐
//!     └──────────────────────────────────────────────────────────────────────┘
//! ```
//!
//! Without a page cache nothing is delayed, so everything that was done before the sync must be
//! there. That includes changes of other files, because they are in the same transaction. With a
//! page cache, the names and attributes of all files and the content of synced files must be there.
//!
//! `EXTANT_SEED` selects other runs, `EXTANT_SOAK=N` makes them N times as long.

use crate::common::seen::{Tree, differences, tree};
use extant::dax::ByteLogMode;
use extant::environment::Clock;
use extant::{
    Environment, Error, FallocateMode, Filesystem, MemoryDevice, NewFile, OpenOptions, RenameFlags,
    SetAttributes, Timestamp, XattrMode,
};
use extant_testkit::require;
use extant_testkit::rng::{Rng, bytes};
use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

/// How many operations a run has.
const STEPS: usize = 500;
/// Directories that contain files.
const DIRS: [&str; 3] = ["/", "/a", "/a/b"];

struct Kind {
    name: &'static str,
    mke2fs: &'static str,
    cache_kib: u64,
    /// How many of a thousand operations no record can express.
    ineligible: usize,
}

const KINDS: &[Kind] = &[
    Kind { name: "4k", mke2fs: "-b 4096 -O fast_commit", cache_kib: 0, ineligible: 5 },
    Kind { name: "byte-log", mke2fs: "-b 4096 -O fast_commit", cache_kib: 0, ineligible: 5 },
    Kind { name: "byte-log-1k", mke2fs: "-b 1024 -O fast_commit", cache_kib: 512, ineligible: 20 },
    Kind { name: "1k", mke2fs: "-b 1024 -O fast_commit", cache_kib: 0, ineligible: 5 },
    Kind { name: "ineligible", mke2fs: "-b 4096 -O fast_commit", cache_kib: 0, ineligible: 150 },
    Kind { name: "cached", mke2fs: "-b 4096 -O fast_commit", cache_kib: 512, ineligible: 5 },
    Kind {
        name: "no-csum",
        mke2fs: "-b 1024 -I 128 -O fast_commit,^metadata_csum",
        cache_kib: 0,
        ineligible: 5,
    },
    Kind {
        name: "inline",
        mke2fs: "-b 4096 -O fast_commit,inline_data",
        cache_kib: 0,
        ineligible: 5,
    },
    Kind {
        name: "block-map",
        mke2fs: "-b 1024 -O fast_commit,^extent,^64bit",
        cache_kib: 0,
        ineligible: 5,
    },
];

/// Each reading of the clock is a second later than the last, so every change leaves another time.
struct Ticking(AtomicI64);

impl Clock for Ticking {
    fn now(&self) -> Timestamp {
        Timestamp { sec: 1_800_000_000 + self.0.fetch_add(1, Ordering::Relaxed), nsec: 0 }
    }
}

/// A run: the volume, and what of it must survive a cut.
struct Run {
    device: Arc<MemoryDevice>,
    fs: Filesystem,
    rng: Rng,
    /// Files whose content may be only in memory, by number.
    unsynced: BTreeSet<u32>,
    cached: bool,
    ineligible: usize,
    log: Vec<String>,
}

impl Run {
    fn new(kind: &Kind, seed: u64) -> Run {
        let device = Arc::new(crate::common::mke2fs(24, kind.mke2fs));
        let clock = Arc::new(Ticking(0.into()));
        let fs = OpenOptions::new()
            .write(true)
            .commit_interval(None)
            .environment(Environment { clock, ..Environment::default() })
            .page_cache_bytes(kind.cache_kib << 10)
            .byte_log(match kind.name.starts_with("byte-log") {
                true => ByteLogMode::Force,
                false => ByteLogMode::Off,
            })
            .open_device(device.clone())
            .unwrap();
        for dir in &DIRS[1..] {
            fs.create_dir(dir, &NewFile::directory()).unwrap();
        }
        let (unsynced, log) = Default::default();
        let (cached, ineligible) = (kind.cache_kib > 0, kind.ineligible);
        Run { device, fs, rng: Rng::new(seed), unsynced, cached, ineligible, log }
    }

    fn path(&mut self) -> PathBuf {
        let dir = DIRS[self.rng.below(DIRS.len())];
        // Names of all lengths, from a small set, so that names repeat.
        let n = self.rng.below(9);
        PathBuf::from(dir).join(format!("{n}-{}", "name".repeat(n * n / 2)))
    }

    fn file(&mut self) -> Option<PathBuf> {
        let files: Vec<PathBuf> = self
            .fs
            .walk("/")
            .sorted(true)
            .filter_map(Result::ok)
            .filter(|entry| entry.file_type() == extant::FileKind::Regular)
            .map(|entry| entry.path().to_path_buf())
            .collect();
        (!files.is_empty()).then(|| files[self.rng.below(files.len())].clone())
    }

    fn time(&mut self) -> Timestamp {
        Timestamp { sec: 1_700_000_000 + self.rng.below(1000) as i64, nsec: 0 }
    }

    /// One operation that records can express.
    fn eligible(&mut self) -> extant::Result<()> {
        let what = self.rng.below(100);
        if what < 12 {
            let path = self.path();
            self.log.push(format!("create {}", path.display()));
            return self.fs.create_file(&path, &NewFile::default()).map(drop);
        }
        let Some(path) = self.file() else { return Ok(()) };
        let shown = path.display().to_string();
        match what {
            12..20 => {
                let to = self.path();
                self.log.push(format!("link {shown} {}", to.display()));
                self.fs.hard_link(&path, &to)
            }
            20..27 => {
                self.log.push(format!("unlink {shown}"));
                self.fs.remove_file(&path)
            }
            27..37 => {
                let to = self.path();
                self.log.push(format!("rename {shown} {}", to.display()));
                self.fs.rename_with(&path, &to, RenameFlags::REPLACE)
            }
            37..45 => {
                self.log.push(format!("attributes {shown}"));
                let changes = SetAttributes {
                    mode: (what < 40).then(|| self.rng.below(0o1000) as u16),
                    uid: (what > 42).then(|| self.rng.below(9) as u32),
                    modified: what.is_multiple_of(2).then(|| self.time()),
                    ..SetAttributes::default()
                };
                self.fs.set_attributes(&path, &changes)
            }
            _ => self.content(&path, what),
        }
    }

    fn content(&mut self, path: &PathBuf, what: usize) -> extant::Result<()> {
        let file = self.fs.node(path)?.open()?;
        let size = file.metadata().len();
        self.unsynced.insert(file.ino().get());
        let (len, at) = (1 + self.rng.below(9000), self.rng.below(size as usize + 20_000) as u64);
        let fill = bytes(self.rng.next_u64(), len);
        self.log.push(format!("content {what} {} at {at}, {len} of {size}", path.display()));
        match what {
            45..60 if size < 400_000 => file.append(&fill).map(drop),
            60..75 => file.write_all_at(&fill, at),
            75..83 => file.set_len(at),
            83..86 => file.set_len(0),
            86..89 => file.allocate(FallocateMode::Allocate, at, len as u64 * 3),
            89..91 => file.allocate(FallocateMode::KeepSize, at, len as u64 * 3),
            91..95 => file.allocate(FallocateMode::PunchHole, at / 2, len as u64 * 4),
            95..97 => file.allocate(FallocateMode::ZeroRange, at / 2, len as u64 * 4),
            // A file in many pieces.
            _ => {
                (0..40u64).try_for_each(|n| file.write_all_at(&fill[..100.min(len)], at + n * 8192))
            }
        }
    }

    /// One operation that no record can express.
    fn ineligible(&mut self) -> extant::Result<()> {
        let (what, path) = (self.rng.below(8), self.path());
        let file = self.file();
        self.log.push(format!("ineligible {what} {} {file:?}", path.display()));
        match (what, file) {
            (0, _) => self.fs.create_dir(&path, &NewFile::directory()).map(drop),
            (1, _) => self.fs.remove_dir(&path),
            (2, _) => self.fs.symlink("somewhere", &path, &NewFile::default()).map(drop),
            (3, Some(file)) => {
                let value = bytes(1, 40 + self.rng.below(900));
                self.fs.set_xattr(&file, "user.x", &value, XattrMode::Any)
            }
            (4, Some(file)) => {
                let other = self.file().unwrap_or(file.clone());
                self.fs.rename_with(&file, &other, RenameFlags::EXCHANGE)
            }
            (5, Some(file)) => {
                let file = self.fs.node(&file)?.open()?;
                self.unsynced.insert(file.ino().get());
                file.allocate(FallocateMode::Insert, 4096, 8192)
            }
            (6, _) => {
                let changes = SetAttributes { mode: Some(0o711), ..SetAttributes::default() };
                self.fs.set_attributes("/a", &changes)
            }
            (_, Some(file)) => self.fs.rename(&file, &path),
            _ => Ok(()),
        }
    }

    fn step(&mut self) {
        let is_ineligible = self.rng.below(1000) < self.ineligible;
        match if is_ineligible { self.ineligible() } else { self.eligible() } {
            Ok(())
            | Err(
                Error::Exists
                | Error::NotFound
                | Error::NotADirectory
                | Error::IsADirectory
                | Error::NotEmpty
                | Error::NoSpace
                | Error::NotSupported(_)
                | Error::Invalid(_),
            ) => {}
            Err(error) => panic!("{error}: {:#?}", self.log),
        }
    }

    /// Syncs a file, cuts, and compares.
    fn sync_and_cut(&mut self, judged: bool) {
        let Some(path) = self.file() else { return };
        self.log.push(format!("fsync {}", path.display()));
        let file = self.fs.node(&path).unwrap().open().unwrap();
        // The sync of a file that is already durable would not record the others.
        file.append(b"synced").unwrap();
        match self.rng.below(4) {
            0 if self.cached => file.sync_data().unwrap(),
            _ => file.sync_all().unwrap(),
        }
        self.unsynced.remove(&file.ino().get());
        let cut = Arc::new(MemoryDevice::clone(&self.device));
        let mut want = tree(&self.fs).unwrap();
        let recovered = OpenOptions::new().write(true).open_device(cut.clone()).unwrap();
        let mut found = tree(&recovered).unwrap();
        if self.cached {
            self.ignore_unsynced(&mut want, &mut found);
        }
        let found_differences = differences(&want, &found);
        assert!(
            found_differences.is_empty(),
            "{found_differences:#?} after {:#?}",
            &self.log[self.log.len().saturating_sub(80)..]
        );
        recovered.close().unwrap();
        if judged {
            crate::common::judge(&*cut);
        }
    }

    /// Content, size and times of files that were written and not synced may be older, under each
    /// name.
    fn ignore_unsynced(&self, want: &mut Tree, found: &mut Tree) {
        for seen in want.values_mut().chain(found.values_mut()) {
            if self.unsynced.contains(&seen.ino) {
                (seen.size, seen.content, seen.times) = Default::default();
            }
        }
    }
}

fn number(name: &str, default: u64) -> u64 {
    std::env::var(name).ok().and_then(|text| text.parse().ok()).unwrap_or(default)
}

fn run(kind: &Kind) {
    let seed = number("EXTANT_SEED", 1);
    println!("EXTANT_SEED={seed} kind {}", kind.name);
    let number_of_kind = KINDS.iter().position(|other| other.name == kind.name);
    let mut run = Run::new(kind, seed * 100 + number_of_kind.unwrap_or(0) as u64);
    let mut syncs = 0;
    for _ in 0..STEPS * number("EXTANT_SOAK", 1) as usize {
        run.step();
        if run.rng.below(5) == 0 {
            syncs += 1;
            run.sync_and_cut(syncs % 4 == 0);
        }
    }
    let stats = run.fs.stats().journal.unwrap();
    println!("{}: {syncs} syncs, {stats:?}", kind.name);
    let is_off = ["inline", "block-map"].contains(&kind.name);
    let enough = stats.fast_commits * 2 > stats.commits || is_off;
    assert!(enough || kind.ineligible > 50, "few fast commits: {stats:?}");
    run.fs.close().unwrap();
    crate::common::judge(&*run.device);
}

#[test]
fn all_that_a_fast_commit_recorded_is_recovered() {
    require!(E2fsprogs);
    std::thread::scope(|scope| {
        for half in KINDS.chunks(KINDS.len().div_ceil(2)) {
            scope.spawn(|| half.iter().for_each(run));
        }
    });
}
