//! Files compared with plain bytes in memory: written, truncated, allocated, punched, collapsed and
//! inserted at random, over block sizes and kinds of map. e2fsck and the library's check verify the
//! volume.
//!
//! ```text
//!   model   Vec<u8>                   equal after every step
//!   volume  reopened in between       clean at the end
//! ```

use super::Random;
use crate::api::file::File;
use crate::api::filesystem::Filesystem;
use crate::audit::check::check_device;
use crate::context::environment::Environment;
use crate::files::file::FallocateMode;
use crate::open::OpenOptions;
use crate::volume::DataMode;
use extant_base::Error;
use extant_pagecache::DontCachePolicy;
use extant_testkit::e2fsprogs;
use std::path::{Path, PathBuf};

/// A volume with some empty files, open for writing.
struct Rig {
    fs: Filesystem,
    kind: Kind,
    path: PathBuf,
    _dir: tempfile::TempDir,
}

const NAMES: [&str; 3] = ["one", "two", "three"];

impl Rig {
    fn mke2fs(mib: u64, options: &str, kind: Kind) -> Rig {
        let dir = tempfile::tempdir().unwrap();
        let (path, root) = (dir.path().join("img"), dir.path().join("root"));
        std::fs::create_dir(&root).unwrap();
        for name in NAMES {
            std::fs::write(root.join(name), b"").unwrap();
        }
        e2fsprogs::mke2fs(&path, mib << 20, options, Some(&root)).unwrap();
        Rig { fs: open(&path, kind), kind, path, _dir: dir }
    }

    /// Closes the volume and opens it again.
    fn reopen(&mut self) {
        self.fs.volume().mount_state().close().unwrap();
        self.fs = open(&self.path, self.kind);
    }

    /// Runs e2fsck and the library's own check, and opens the volume again.
    #[track_caller]
    fn judge(&mut self) {
        self.fs.volume().mount_state().close().unwrap();
        if let Err(report) = e2fsprogs::e2fsck(&self.path, None).expect_clean() {
            if let Some(keep) = std::env::var_os("EXTANT_KEEP") {
                std::fs::copy(&self.path, keep).unwrap();
            }
            panic!("{report}");
        }
        let device = self.fs.volume().device().clone();
        let report = check_device(device, &Default::default(), &()).unwrap();
        assert!(report.findings.is_empty(), "{:?}", report.findings);
        self.fs = open(&self.path, self.kind);
    }
}

fn open(path: &Path, kind: Kind) -> Filesystem {
    // The volume may be closed while a test's files still hold it.
    let mut options = OpenOptions::new();
    options.write(true).lock(false).environment(Environment::fixed(super::NOW, 9));
    options.data_mode(kind.mode).page_cache_bytes(kind.cache).dont_cache_policy(kind.policy);
    options.dont_cache_cap_bytes(kind.cache / 4).open(path).unwrap()
}

/// What a step does.
#[derive(Clone, Debug)]
enum Step {
    Write(u64, Vec<u8>),
    Append(Vec<u8>),
    SetLen(u64),
    Allocate(FallocateMode, u64, u64),
}

/// What a file is like.
#[derive(Clone, Copy)]
struct Kind {
    /// The largest size of a file in bytes.
    reach: u64,
    /// Bytes of a cluster.
    unit: u64,
    extents: bool,
    mode: DataMode,
    /// Bytes of the page cache.
    cache: u64,
    /// One of this many opened files is a don't-cache file; 0: none.
    dropped: usize,
    policy: DontCachePolicy,
}

impl Default for Kind {
    fn default() -> Kind {
        Kind {
            reach: 1_500_000,
            unit: 1024,
            extents: true,
            mode: DataMode::Ordered,
            cache: 64 << 20,
            dropped: 0,
            policy: DontCachePolicy::Flusher,
        }
    }
}

/// Another seed for every run: EXTANT_SEED.
fn shifted(seed: u64) -> u64 {
    let shift = std::env::var("EXTANT_SEED").ok().and_then(|seed| seed.parse::<u64>().ok());
    seed.wrapping_add(shift.unwrap_or(0).wrapping_mul(0x9E37_79B9))
}

const MODES: [FallocateMode; 7] = [
    FallocateMode::Allocate,
    FallocateMode::KeepSize,
    FallocateMode::ZeroRange,
    FallocateMode::ZeroRangeKeepSize,
    FallocateMode::PunchHole,
    FallocateMode::Collapse,
    FallocateMode::Insert,
];

fn any_step(random: &mut Random, kind: Kind, size: u64) -> Step {
    let longest = [1, 100, 5_000, 70_000, 400_000][random.below(5)];
    let mut offset = random.below(kind.reach as usize) as u64;
    if random.below(3) == 0 {
        offset = random.below(size as usize + 1) as u64;
    }
    let mut len = 1 + random.below(longest) as u64;
    let bytes = |random: &mut Random, len: u64| {
        let start = random.next() as u8;
        (0..len).map(|n| (start as u64 + n * 7 + n / 251) as u8 | 1).collect()
    };
    match random.below(10) {
        0..4 => Step::Write(offset, bytes(random, len)),
        4 => Step::Append(bytes(random, len.min(9_000))),
        5 => Step::SetLen(if random.below(4) == 0 { 0 } else { offset }),
        _ => {
            let mode = MODES[random.below(MODES.len())];
            let whole = matches!(mode, FallocateMode::Collapse | FallocateMode::Insert);
            if whole && random.below(20) != 0 {
                offset = offset / kind.unit * kind.unit;
                len = len.next_multiple_of(kind.unit);
            }
            Step::Allocate(mode, offset, len)
        }
    }
}

/// Applies the step to the bytes. Returns the errno with which the step must fail.
fn apply(model: &mut Vec<u8>, step: &Step, kind: Kind) -> Result<(), i32> {
    let size = model.len() as u64;
    match step {
        Step::Write(offset, bytes) => {
            let end = *offset as usize + bytes.len();
            model.resize(model.len().max(end), 0);
            model[*offset as usize..end].copy_from_slice(bytes);
        }
        Step::Append(bytes) => model.extend(bytes),
        Step::SetLen(to) => model.resize(*to as usize, 0),
        Step::Allocate(mode, offset, len) => {
            let (from, to) = (*offset, offset + len);
            if !kind.extents && *mode != FallocateMode::PunchHole {
                return Err(95);
            }
            let whole = from % kind.unit == 0 && to % kind.unit == 0;
            let inside = |at: u64| at.min(size) as usize;
            match mode {
                FallocateMode::KeepSize => {}
                FallocateMode::Allocate => model.resize(size.max(to) as usize, 0),
                FallocateMode::ZeroRange => {
                    model[inside(from)..inside(to)].fill(0);
                    model.resize(size.max(to) as usize, 0);
                }
                FallocateMode::ZeroRangeKeepSize | FallocateMode::PunchHole => {
                    model[inside(from)..inside(to)].fill(0);
                }
                FallocateMode::Collapse if whole && to < size => {
                    model.drain(from as usize..to as usize);
                }
                FallocateMode::Insert if whole && from < size => {
                    let rest = model.split_off(from as usize);
                    model.resize(to as usize, 0);
                    model.extend(rest);
                }
                _ => return Err(22),
            }
        }
    }
    Ok(())
}

fn take(file: &File, step: &Step) -> Result<(), Error> {
    match step {
        Step::Write(offset, bytes) => file.write_all_at(bytes, *offset),
        Step::Append(bytes) => {
            let n = file.append(bytes)?;
            if n < bytes.len() { Err(Error::NoSpace) } else { Ok(()) }
        }
        Step::SetLen(size) => file.set_len(*size),
        Step::Allocate(mode, offset, len) => file.allocate(*mode, *offset, *len),
    }
}

fn content(file: &File) -> Vec<u8> {
    let mut bytes = vec![0xEE; file.metadata().len() as usize];
    let n = file.read_at(&mut bytes, 0).unwrap();
    bytes.truncate(n);
    bytes
}

/// Random steps, with a comparison after each.
fn run(mib: u64, options: &str, seed: u64, steps: usize, kind: Kind) {
    let mut rig = Rig::mke2fs(mib, options, kind);
    let mut random = Random::new(shifted(seed));
    let mut models = vec![Vec::new(); NAMES.len()];
    let mut full = 0;
    for n in 0..steps {
        let which = random.below(NAMES.len());
        let file = rig.fs.open_file(NAMES[which]).unwrap();
        file.set_dont_cache(kind.dropped > 0 && random.below(kind.dropped) == 0);
        let model = &mut models[which];
        let step = any_step(&mut random, kind, model.len() as u64);
        let mut wanted = model.clone();
        let expected = apply(&mut wanted, &step, kind);
        let said = match &step {
            Step::Write(at, bytes) => format!("write {} at {at}", bytes.len()),
            Step::Append(bytes) => format!("append {}", bytes.len()),
            step => format!("{step:?}"),
        };
        match (take(&file, &step), expected) {
            (Err(Error::NoSpace), _) => {
                full += 1;
                check_partial(model, &wanted, &content(&file), &format!("{said} (step {n})"));
                wanted = content(&file);
            }
            (Ok(()), Ok(())) => {}
            (Err(error), Err(errno)) if error.errno() == errno => {}
            (got, expected) => panic!("step {n}: {said}: {got:?}, expected {expected:?}"),
        }
        *model = wanted;
        assert_eq!(file.metadata().len(), model.len() as u64, "step {n}: {said}, size");
        let now = content(&file);
        if now != *model {
            let at = now.iter().zip(&*model).position(|(a, b)| a != b);
            panic!("step {n}: {said} of a file of {} bytes: differs at {at:?}", model.len());
        }
        if n % 50 == 49 {
            drop(file);
            match n % 250 {
                249 => rig.judge(),
                _ => rig.reopen(),
            }
        }
    }
    rig.judge();
    for name in NAMES {
        rig.fs.open_file(name).unwrap().set_len(0).unwrap();
        let left = rig.fs.metadata(name).unwrap().sectors();
        assert_eq!(left, 0, "{name} holds blocks after all, {full} steps found no space");
    }
    rig.judge();
}

/// After a step that ran out of space, every byte is as before or as the step makes it.
fn check_partial(before: &[u8], after: &[u8], now: &[u8], said: &str) {
    let byte = |bytes: &[u8], n: usize| bytes.get(n).copied().unwrap_or(0);
    let ends = before.len().min(after.len())..=before.len().max(after.len());
    assert!(ends.contains(&now.len()), "{said}: size {}", now.len());
    for n in 0..now.len() {
        let now = now[n];
        assert!(now == byte(before, n) || now == byte(after, n), "{said}: byte {n}");
    }
}

#[test]
fn files_with_extents_follow_the_model() {
    for (block, mib) in [(1024, 32), (4096, 32), (65536, 64)] {
        let kind = Kind { unit: block, ..Kind::default() };
        run(mib, &format!("-b {block}"), block, 600, kind);
    }
}

#[test]
fn files_mapped_by_pointers_follow_the_model() {
    for (block, mib) in [(1024, 32), (4096, 32)] {
        let kind = Kind { unit: block, extents: false, ..Kind::default() };
        run(mib, &format!("-b {block} -O ^extents,^64bit"), block, 500, kind);
    }
}

#[test]
fn files_with_clusters_follow_the_model() {
    for (block, cluster, mib) in [(1024, 8192, 64), (4096, 65536, 64)] {
        let kind = Kind { unit: cluster, ..Kind::default() };
        run(mib, &format!("-b {block} -O bigalloc -C {cluster}"), block, 500, kind);
    }
}

#[test]
fn files_in_their_inodes_follow_the_model() {
    for inode in [256, 1024] {
        let kind = Kind { reach: 900, ..Kind::default() };
        let options = format!("-b 1024 -O inline_data -I {inode}");
        run(16, &options, inode, 500, kind);
    }
}

#[test]
fn files_follow_the_model_on_a_full_volume() {
    for (seed, options, extents) in [
        (1, "-b 1024 -O ^has_journal", true),
        (2, "-b 4096 -O ^has_journal", true),
        (3, "-b 1024 -O ^extents,^64bit,^has_journal", false),
    ] {
        let unit = if seed == 2 { 4096 } else { 1024 };
        run(2, options, seed, 500, Kind { unit, extents, ..Kind::default() });
    }
}

#[test]
fn files_follow_the_model_with_a_small_journal() {
    run(24, "-b 1024 -J size=1", 11, 400, Kind::default());
    let options = "-b 1024 -J size=1 -O ^extents,^64bit";
    run(24, options, 12, 300, Kind { extents: false, ..Kind::default() });
}

#[test]
fn files_whose_bytes_go_through_the_journal_follow_the_model() {
    let mode = DataMode::Journal;
    run(24, "-b 1024 -J size=1", 21, 250, Kind { mode, ..Kind::default() });
    run(48, "-b 4096", 22, 250, Kind { mode, unit: 4096, ..Kind::default() });
    let options = "-b 1024 -O ^extents,^64bit";
    run(24, options, 23, 250, Kind { mode, extents: false, ..Kind::default() });
}

#[test]
fn files_follow_the_model_without_a_page_cache() {
    for (options, extents) in [("-b 1024", true), ("-b 1024 -O ^extents,^64bit", false)] {
        run(32, options, 31, 300, Kind { cache: 0, extents, ..Kind::default() });
    }
    let unit = 65536;
    let options = "-b 4096 -O bigalloc -C 65536";
    run(64, options, 32, 300, Kind { cache: 0, unit, ..Kind::default() });
}

#[test]
fn files_follow_the_model_while_folios_come_and_go() {
    let policies =
        [DontCachePolicy::Flusher, DontCachePolicy::RateLimited, DontCachePolicy::Inline];
    for (n, policy) in policies.into_iter().enumerate() {
        // No file, every other file, all files.
        let of = |block: u64| Kind {
            unit: block,
            cache: 96 * block,
            dropped: (3 - n) % 3,
            policy,
            ..Kind::default()
        };
        run(32, "-b 1024", 41 + n as u64, 200, Kind { cache: 256 << 10, ..of(1024) });
        run(32, "-b 4096", 51 + n as u64, 200, of(4096));
        let options = "-b 1024 -O ^extents,^64bit";
        run(32, options, 61 + n as u64, 200, Kind { extents: false, ..of(1024) });
        let kind = Kind { unit: 8192, ..of(1024) };
        run(64, "-b 1024 -O bigalloc -C 8192", 71 + n as u64, 200, kind);
    }
    let kind = Kind { unit: 65536, cache: 1 << 20, dropped: 2, ..Kind::default() };
    run(64, "-b 65536", 81, 200, kind);
}

#[test]
fn files_follow_the_model_on_a_full_volume_with_little_memory() {
    for (seed, options, extents) in [
        (1, "-b 1024 -O ^has_journal", true),
        (3, "-b 1024 -O ^extents,^64bit,^has_journal", false),
    ] {
        run(
            2,
            options,
            seed,
            400,
            Kind { cache: 256 << 10, dropped: 2, extents, ..Kind::default() },
        );
    }
}
