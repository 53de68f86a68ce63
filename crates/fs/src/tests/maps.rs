//! Maps of files compared with a simple model: filled, unmapped and converted at random.
//!
//! ```text
//!   model   logical block → (block on disk, state)      equal after every step
//!   volume  e2fsck and the library's own check at the end: no block lost, none used twice
//! ```

use super::{Bench, NOW, Random, features};
use crate::audit::check::check_device;
use crate::inodes::create::NewInode;
use crate::inodes::map::Target;
use crate::offline::mkfs::MkfsOptions;
use crate::space::inodes::InodeGoal;
use crate::state::inode::Body;
use crate::volume::Volume;
use extant_base::{BlockSize, Error, Ino, Result};
use extant_journal::Handle;
use extant_ondisk::dirent::EntryKind;
use extant_ondisk::extent::ExtentState::{self, Unwritten, Written};
use std::collections::BTreeMap;
use std::ops::Range;

/// One file and the expected content of its map.
struct Modelled {
    body: Body,
    model: BTreeMap<u32, (u64, ExtentState)>,
}

/// What a step does.
#[derive(Clone, Copy, Debug)]
enum Step {
    Fill(ExtentState),
    Unmap,
    Convert(ExtentState),
}

impl Modelled {
    fn new(bench: &Bench, name: &str, blocks: u32) -> Modelled {
        let body = bench
            .with(|volume, handle| {
                let goal = InodeGoal::Other { parent: Ino::ROOT };
                let (ino, mut body) =
                    volume.inodes().allocate(handle, NewInode::at(goal, 0o100_644, NOW))?;
                body.disk.size = u64::from(blocks) << volume.block_size().log2();
                body.store(volume, handle)?;
                let mut root = volume.inodes().read(Ino::ROOT)?;
                let kind = EntryKind::Regular;
                volume.dir_mut(&mut root).insert(handle, name.as_bytes(), ino, kind)?;
                root.store(volume, handle)?;
                Ok(body)
            })
            .unwrap();
        Modelled { body, model: BTreeMap::new() }
    }

    /// The engine's map of the blocks of `range`.
    fn read(&self, volume: &Volume, range: Range<u32>) -> BTreeMap<u32, (u64, ExtentState)> {
        let mut found = BTreeMap::new();
        for run in volume.file(&self.body).runs(range) {
            let run = run.unwrap();
            let (first, state) = match run.target {
                Target::Hole => continue,
                Target::Written(first) => (first, Written),
                Target::Unwritten(first) => (first, Unwritten),
            };
            found
                .extend((0..run.len).map(|n| (run.logical.0 + n, (first.0 + u64::from(n), state))));
        }
        found
    }

    /// Applies a step to the file and the model. A step that runs out of space may be applied in
    /// part, but must not change mapped blocks outside its range.
    fn take(&mut self, bench: &Bench, step: Step, range: Range<u32>) -> Result<()> {
        let before = self.model.clone();
        let body = &mut self.body;
        let done = bench.with(|volume: &Volume, handle: &Handle<'_>| {
            let done = match step {
                Step::Fill(state) => {
                    volume.file_mut(body).fill(handle, range.clone(), state, &mut |_| Ok(()))
                }
                Step::Unmap => volume.file_mut(body).unmap(handle, range.clone()),
                Step::Convert(state) => volume.file_mut(body).convert(handle, range.clone(), state),
            };
            body.store(volume, handle)?;
            Ok(done)
        });
        let done = done.unwrap();
        let now = self.read(&bench.volume, range.clone());
        let whole = done.is_ok();
        for n in range.clone() {
            let (old, new) = (before.get(&n), now.get(&n));
            let fits = match (step, old, new) {
                (Step::Fill(_), Some(old), new) => new == Some(old),
                (Step::Fill(state), None, Some(new)) => new.1 == state,
                (Step::Fill(_), None, None) => !whole,
                (Step::Unmap, old, new) => new.is_none() || !whole && new == old,
                (Step::Convert(_), None, new) => new.is_none(),
                (Step::Convert(state), Some(old), new) => new.is_some_and(|new| {
                    new.0 == old.0 && (new.1 == state || !whole && new.1 == old.1)
                }),
            };
            assert!(fits, "{step:?} {range:?} gave {done:?}: block {n} was {old:?}, is {new:?}");
        }
        self.model.retain(|n, _| !range.contains(n));
        self.model.extend(now);
        done
    }
}

/// Random steps on three files of `blocks` blocks in turn; `extents` selects the kind of map.
fn run(bench: &Bench, seed: u64, blocks: u32, steps: usize, extents: bool) {
    let mut random = Random::new(seed);
    let names = ["one", "two", "three"];
    let mut files: Vec<_> = names.iter().map(|name| Modelled::new(bench, name, blocks)).collect();
    let mut full = 0;
    for n in 0..steps {
        let file = &mut files[random.below(names.len())];
        // Mostly single blocks, so that maps become fragmented.
        let longest = [1, 1, 1, 4, 40, 700][random.below(6)];
        let start = random.below(blocks as usize) as u32;
        let len = 1 + random.below(longest) as u32;
        let range = start..(start + len).min(blocks);
        let step = match random.below(10) {
            0..5 => Step::Fill(if extents && random.below(2) == 0 { Unwritten } else { Written }),
            5..8 if extents => {
                Step::Convert(if random.below(2) == 0 { Unwritten } else { Written })
            }
            _ => Step::Unmap,
        };
        match file.take(bench, step, range) {
            Ok(()) => {}
            Err(Error::NoSpace) => full += 1,
            Err(error) => panic!("step {n}: {error}"),
        }
        if n % 500 == 499 {
            for file in &files {
                assert_eq!(file.read(&bench.volume, 0..blocks), file.model, "step {n}");
            }
        }
    }
    judge(bench);
    // Empty the files again: every block must become free.
    for file in &mut files {
        file.take(bench, Step::Unmap, 0..blocks).unwrap();
        assert_eq!(file.body.disk.sectors, 0, "{full} steps found no space");
    }
    judge(bench);
}

/// Runs e2fsck and the library's own check.
fn judge(bench: &Bench) {
    bench.judge();
    let device = bench.volume.device().clone();
    let report = check_device(device, &Default::default(), &()).unwrap();
    assert!(report.findings.is_empty(), "{:?}", report.findings);
}

fn volume(block: u32, names: &str) -> MkfsOptions {
    let options = if names.is_empty() { MkfsOptions::new() } else { features(names) };
    options.block_size(BlockSize::from_bytes(block).unwrap())
}

#[test]
fn extent_trees_follow_the_model() {
    for seed in 1..4 {
        run(&Bench::made(24, volume(1024, "")), seed, 6_000, 5_000, true);
    }
}

#[test]
fn extent_trees_follow_the_model_on_a_full_volume() {
    for seed in 1..4 {
        run(&Bench::made(4, volume(1024, "^has_journal")), seed, 6_000, 5_000, true);
    }
}

#[test]
fn extent_trees_with_clusters_follow_the_model() {
    for seed in 1..4 {
        let options = volume(1024, "bigalloc").cluster_bytes(8192);
        run(&Bench::made(32, options), seed, 6_000, 4_000, true);
    }
}

#[test]
fn extent_trees_with_clusters_follow_the_model_on_a_full_volume() {
    for seed in 1..4 {
        let options = volume(1024, "bigalloc,^has_journal").cluster_bytes(4096);
        run(&Bench::made(5, options), seed, 6_000, 4_000, true);
    }
}

#[test]
fn block_maps_follow_the_model() {
    for (seed, mib) in [(1, 24), (2, 24), (3, 4), (4, 4)] {
        let options = volume(1024, "^extents,^64bit,^has_journal");
        // Blocks from 65,804 on are below the third tree.
        run(&Bench::made(mib, options), seed, 70_000, 4_000, false);
    }
}
