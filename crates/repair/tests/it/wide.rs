//! Damage that does not follow structures: blocks zeroed or exchanged anywhere, a volume cut short,
//! and structures of a volume that is almost full.
//!
//! `EXTANT_REPAIR_CASES=N` runs N cases of each kind instead of 16, `EXTANT_REPAIR_SEED=S` starts
//! at seed S, `EXTANT_REPAIR_KEEP=DIR` keeps the volumes, damaged and repaired.

use crate::random::{Totals, VOLUMES, Volume, judged, seeds};
use extant_compat_tests::damage::damage;
use extant_testkit::command::run_args;
use extant_testkit::report::{expect_none, try_cases};
use extant_testkit::require;
use extant_testkit::rng::Rng;
use extant_testkit::scratch::Scratch;
use std::sync::Mutex;

/// Blocks that are zeroed or exchanged in one case.
const RUN: usize = 64;

/// A volume that is being damaged.
struct Case<'v> {
    volume: &'v Volume,
    all: &'v [Volume],
    bytes: Vec<u8>,
    rng: Rng,
}

impl Case<'_> {
    /// A block of the volume, but not the one of the superblock.
    fn block(&mut self) -> usize {
        let size = self.volume.rich.block;
        let first = 1 + 1024 / size;
        first + self.rng.below(self.bytes.len() / size - first)
    }

    /// A block with a structure: most blocks of a small volume are free.
    fn structure(&mut self) -> usize {
        let places = &self.volume.rich.places[1..];
        places[self.rng.below(places.len())].at / self.volume.rich.block
    }
}

/// Damages a volume and returns what was done.
type Damage = fn(&mut Case<'_>) -> String;

fn zeroed(case: &mut Case<'_>) -> String {
    let size = case.volume.rich.block;
    let blocks: Vec<usize> = (0..1 + case.rng.below(RUN)).map(|_| case.block()).collect();
    blocks.iter().for_each(|block| case.bytes[block * size..][..size].fill(0));
    format!("blocks {blocks:?} zeroed")
}

fn zeroed_run(case: &mut Case<'_>) -> String {
    let size = case.volume.rich.block;
    let first = case.block();
    let end = (first + RUN).min(case.bytes.len() / size);
    case.bytes[first * size..end * size].fill(0);
    format!("blocks {first}..{end} zeroed")
}

fn exchanged(case: &mut Case<'_>) -> String {
    let size = case.volume.rich.block;
    let mut pairs = Vec::new();
    for _ in 0..1 + case.rng.below(4) {
        let one = case.structure();
        let other = if case.rng.below(2) == 0 { case.structure() } else { case.block() };
        for n in 0..size {
            case.bytes.swap(one * size + n, other * size + n);
        }
        pairs.push((one, other));
    }
    format!("blocks {pairs:?} exchanged")
}

fn foreign(case: &mut Case<'_>) -> String {
    let size = case.volume.rich.block;
    let other = &case.all[case.rng.below(case.all.len())];
    let blocks: Vec<usize> = (0..1 + case.rng.below(RUN))
        .map(|_| if case.rng.below(4) == 0 { case.structure() } else { case.block() })
        .collect();
    for block in &blocks {
        let range = block * size..(block + 1) * size;
        case.bytes[range.clone()].copy_from_slice(&other.rich.bytes[range]);
    }
    format!("blocks {blocks:?} as in {}", other.rich.name)
}

fn cut(case: &mut Case<'_>) -> String {
    let size = case.volume.rich.block;
    let blocks = case.bytes.len() / size;
    let gone = match case.rng.below(3) {
        0 => 1 + case.rng.below(8),
        1 => 1 + case.rng.below(blocks / 2),
        _ => 1 + case.rng.below(blocks - 64),
    };
    case.bytes.truncate((blocks - gone) * size);
    format!("{gone} of {blocks} blocks cut off")
}

fn structures(case: &mut Case<'_>) -> String {
    damage(&case.volume.rich, &mut case.bytes, &mut case.rng)
}

/// Fills a volume but for a few blocks.
fn fill(volume: &mut Volume, left: usize) {
    let scratch = Scratch::new();
    let (img, filler) = (scratch.file("full.img"), scratch.file("filler"));
    let raw = &volume.rich.bytes[1024..];
    let free = u32::from_le_bytes(raw[12..16].try_into().unwrap()) as usize;
    std::fs::write(&img, &volume.rich.bytes).unwrap();
    // The map of the file takes less than one block of a hundred.
    let blocks = (free - free / 100).saturating_sub(left);
    std::fs::write(&filler, vec![0x5A; blocks * volume.rich.block]).unwrap();
    let request = format!("write {} filler", filler.display());
    run_args("debugfs", &["-w", "-R", &request, img.to_str().unwrap()]).unwrap();
    run_args("e2fsck", &["-fy", img.to_str().unwrap()]).expect("e2fsck");
    volume.rich.bytes = std::fs::read(&img).unwrap();
    volume.files = crate::files::all(&img);
}

/// Runs the cases of one kind. Seeds that `once_failed` run besides the others.
fn run(group: &str, kind: Damage, volumes: &[Volume], once_failed: &[u64]) {
    let mut seeds = seeds(16);
    if seeds[0] == 1 {
        seeds.extend(once_failed);
    }
    let totals = Mutex::new(Totals::default());
    let failures = try_cases(
        group,
        &seeds,
        |seed| format!("seed {seed}"),
        |seed| {
            let mut rng = Rng::new(*seed);
            let volume = &volumes[rng.below(volumes.len())];
            let mut case = Case { volume, all: volumes, bytes: volume.rich.bytes.clone(), rng };
            let done = kind(&mut case);
            judged(volume, &case.bytes, &done, &format!("{group}-{seed}"), &totals)
        },
    );
    totals.into_inner().unwrap().print(group);
    expect_none(group, &failures);
}

fn volumes() -> Vec<Volume> {
    VOLUMES.iter().map(Volume::make).collect()
}

#[test]
fn zeroed_blocks_cost_no_more_than_with_e2fsck() {
    require!(E2fsprogs);
    run("repair_zeroed", zeroed, &volumes(), &[]);
}

#[test]
fn a_zeroed_run_costs_no_more_than_with_e2fsck() {
    require!(E2fsprogs);
    run("repair_zeroed_run", zeroed_run, &volumes(), &[206]);
}

#[test]
fn exchanged_blocks_cost_no_more_than_with_e2fsck() {
    require!(E2fsprogs);
    run(
        "repair_exchanged",
        exchanged,
        &volumes(),
        &[18, 78, 110, 114, 240, 307, 588, 1009, 1024, 1132, 40301, 42818],
    );
}

#[test]
fn blocks_of_another_volume_cost_no_more_than_with_e2fsck() {
    require!(E2fsprogs);
    run("repair_foreign", foreign, &volumes(), &[69, 40220]);
}

#[test]
fn a_cut_volume_costs_no_more_than_with_e2fsck() {
    require!(E2fsprogs);
    run("repair_cut", cut, &volumes(), &[]);
}

#[test]
fn damage_of_a_full_volume_costs_no_more_than_with_e2fsck() {
    require!(E2fsprogs);
    let mut volumes = volumes();
    for (n, volume) in volumes.iter_mut().enumerate() {
        fill(volume, n % 4);
    }
    run("repair_full", structures, &volumes, &[]);
}
