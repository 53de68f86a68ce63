//! Blocks handed out and taken back, against a plain model, by one thread and by several.
//!
//! ```text
//!   model    one flag a cluster: who is given a used cluster, or one twice, is wrong
//!   volume   every short-cut checksum is checked against the full one (debug builds); e2fsck at
//!            the end: bitmaps, counters and sums agree
//! ```

use super::{Bench, Random, features};
use crate::alloc::blocks::{BlockRun, Request, Search};
use crate::alloc::claims::Claim;
use crate::mkfs::MkfsOptions;
use crate::volume::Volume;
use extant_base::{BlockNr, BlockSize, Error, GroupNr, Result};
use extant_journal::Credits;
use std::sync::atomic::{AtomicBool, Ordering};

fn wish(goal: u64, want: u32) -> Request {
    let (search, claim, growth) = (Search::Near, Claim::Metadata, None);
    Request { goal: BlockNr(goal), want, below: u64::MAX, search, claim, growth }
}

fn small_groups(block_bytes: u32, wish: &str) -> MkfsOptions {
    features(wish).block_size(BlockSize::from_bytes(block_bytes).unwrap())
}

/// Who has which blocks, for any number of threads.
struct Model(Vec<AtomicBool>);

impl Model {
    fn of(volume: &Volume) -> Model {
        Model((0..volume.layout.blocks_count()).map(|_| AtomicBool::new(false)).collect())
    }

    fn take(&self, run: BlockRun) {
        for block in run.start.0..run.start.0 + u64::from(run.len) {
            assert!(!self.0[block as usize].swap(true, Ordering::SeqCst), "block {block} twice");
        }
    }

    fn give(&self, run: BlockRun) {
        for block in run.start.0..run.start.0 + u64::from(run.len) {
            assert!(self.0[block as usize].swap(false, Ordering::SeqCst));
        }
    }
}

/// Allocates and frees at random, and gives everything back in the end.
fn churn(volume: &Volume, model: &Model, seed: u64, steps: usize) -> Result<()> {
    let mut random = Random::new(seed);
    let mut held: Vec<BlockRun> = Vec::new();
    for step in 0..steps {
        let handle = volume.journal.start(Credits::blocks(64))?;
        if random.below(5) < 3 {
            let goal = random.next() % volume.layout.blocks_count();
            let want = 1 + random.below([1, 8, 300][step % 3]) as u32;
            match volume.allocate(&handle, wish(goal, want)) {
                Ok(run) => {
                    model.take(run);
                    held.push(run);
                }
                Err(Error::NoSpace) => {}
                Err(error) => return Err(error),
            }
        } else if !held.is_empty() {
            let run = held.swap_remove(random.below(held.len()));
            model.give(run);
            volume.free(&handle, run.start, run.len.into())?;
        }
        handle.stop()?;
    }
    for run in held {
        let handle = volume.journal.start(Credits::blocks(64))?;
        model.give(run);
        volume.free(&handle, run.start, run.len.into())?;
        handle.stop()?;
    }
    Ok(())
}

#[test]
fn no_cluster_is_handed_out_twice_and_all_come_back() {
    for (seed, (mib, options)) in [
        (12, small_groups(1024, "")),
        (40, small_groups(4096, "^64bit")),
        (20, small_groups(1024, "^metadata_csum,uninit_bg")),
        (64, small_groups(16384, "^flex_bg")),
        (96, features("bigalloc")),
        (64, small_groups(65536, "")),
    ]
    .into_iter()
    .enumerate()
    {
        let bench = Bench::made(mib, options);
        let volume = &bench.volume;
        let free = volume.free_clusters.load(Ordering::Relaxed);
        churn(volume, &Model::of(volume), seed as u64, 600).unwrap();
        assert_eq!(volume.free_clusters.load(Ordering::Relaxed), free);
        bench.judge();
    }
}

#[test]
fn searching_the_bitmap_hands_out_the_same_way() {
    let mut bench = Bench::made(12, small_groups(1024, ""));
    bench.volume.short_cuts = false;
    churn(&bench.volume, &Model::of(&bench.volume), 5, 500).unwrap();
    bench.judge();
}

#[test]
fn threads_in_the_same_groups_do_not_disturb_each_other() {
    let bench = Bench::made(24, small_groups(1024, ""));
    let volume = &bench.volume;
    let model = Model::of(volume);
    std::thread::scope(|scope| {
        for seed in 0..4 {
            let model = &model;
            scope.spawn(move || churn(volume, model, 100 + seed, 500).unwrap());
        }
    });
    bench.judge();
}

#[test]
fn every_cluster_can_be_had_before_space_runs_out() {
    let bench = Bench::made(9, small_groups(1024, ""));
    let volume = &bench.volume;
    let mut runs = Vec::new();
    let mut blocks = 0;
    loop {
        match bench.with(|volume, handle| volume.allocate(handle, wish(5000, 700))) {
            Ok(run) => {
                blocks += i64::from(run.len);
                runs.push(run);
            }
            Err(error) => {
                assert_eq!(error.to_string(), Error::NoSpace.to_string());
                break;
            }
        }
    }
    assert_eq!(volume.free_clusters.load(Ordering::Relaxed), 0);
    let asked = runs.first().unwrap();
    assert_eq!((asked.start, asked.len), (BlockNr(5000), 700), "the goal is free and is hit");
    assert!(runs.len() < blocks as usize / 300, "runs stay long to the end: {}", runs.len());
    for run in runs {
        bench.with(|volume, handle| volume.free(handle, run.start, run.len.into())).unwrap();
    }
    bench.judge();
}

#[test]
fn a_full_volume_is_not_walked() {
    let mut bench = Bench::made(400, small_groups(1024, ""));
    let free_in = |volume: &Volume, nr| volume.descriptor(GroupNr(nr)).unwrap().free_clusters;
    let groups = bench.volume.layout.groups_count();
    assert!(groups >= 50);
    let spare = groups - 3;
    let mut runs = Vec::new();
    for nr in (0..groups).filter(|nr| *nr != spare) {
        let goal = bench.volume.layout.first_block(GroupNr(nr)).unwrap().0;
        while free_in(&bench.volume, nr) > 0 {
            let run = bench.with(|volume, handle| volume.allocate(handle, wish(goal, 1))).unwrap();
            assert_eq!(bench.volume.layout.group_of_block(run.start), Some(GroupNr(nr)));
            let rest = free_in(&bench.volume, nr);
            runs.push(run);
            if rest > 0 {
                let run = bench
                    .with(|volume, handle| volume.allocate(handle, wish(run.start.0 + 1, rest)));
                runs.push(run.unwrap());
            }
        }
    }
    bench.reopen();
    let read_before = bench.volume.journal.cache().stats().blocks_read;
    let run = bench.with(|volume, handle| volume.allocate(handle, wish(0, 4))).unwrap();
    assert_eq!(bench.volume.layout.group_of_block(run.start), Some(GroupNr(spare)));
    let read = bench.volume.journal.cache().stats().blocks_read - read_before;
    assert!(read <= 2, "one bitmap is read, of {groups}: {read} blocks");
    for run in runs.into_iter().chain([run]) {
        bench.with(|volume, handle| volume.free(handle, run.start, run.len.into())).unwrap();
    }
    bench.judge();
}

#[test]
fn a_damaged_bitmap_is_noticed_once_and_passed_over() {
    let mut bench = Bench::made(24, small_groups(1024, ""));
    let nr = GroupNr(1);
    let goal = bench.volume.layout.first_block(nr).unwrap().0 + 4000;
    let damaged = bench.volume.descriptor(nr).unwrap().block_bitmap;
    let flip = |bench: &Bench| {
        bench
            .with(|volume, handle| {
                let block = volume.journal.cache().get(damaged)?;
                block.write(handle)?.bytes_mut()[1000] ^= 1;
                Ok(())
            })
            .unwrap();
    };
    flip(&bench);
    bench.reopen();
    let free = bench.volume.free_clusters.load(Ordering::Relaxed);
    let lost = i64::from(bench.volume.descriptor(nr).unwrap().free_clusters);
    for _ in 0..3 {
        let run = bench.with(|volume, handle| volume.allocate(handle, wish(goal, 5))).unwrap();
        assert_ne!(bench.volume.layout.group_of_block(run.start), Some(nr));
        bench.with(|volume, handle| volume.free(handle, run.start, run.len.into())).unwrap();
    }
    let now = bench.volume.free_clusters.load(Ordering::Relaxed);
    assert_eq!((now, bench.volume.errors_seen()), (free - lost, 1));
    bench.with(|volume, handle| volume.free(handle, BlockNr(goal), 1)).unwrap();
    flip(&bench);
    bench.volume.forget_errors();
    bench.reopen();
    bench.judge();
}

#[test]
fn freeing_what_is_free_changes_no_counter() {
    let bench = Bench::made(12, small_groups(1024, ""));
    let run = bench.with(|volume, handle| volume.allocate(handle, wish(6000, 8))).unwrap();
    let nr = bench.volume.layout.group_of_block(run.start).unwrap();
    let before = bench.volume.descriptor(nr).unwrap().free_clusters;
    let twice = bench.with(|volume, handle| volume.free(handle, run.start, 9));
    assert!(matches!(twice, Err(Error::Corrupt { .. })), "{twice:?}");
    let system = bench.volume.descriptor(nr).unwrap().block_bitmap;
    let metadata = bench.with(|volume, handle| volume.free(handle, system, 1));
    assert!(matches!(metadata, Err(Error::Corrupt { .. })), "{metadata:?}");
    assert_eq!(bench.volume.descriptor(nr).unwrap().free_clusters, before);
}
