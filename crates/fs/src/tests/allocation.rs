//! Allocating and freeing blocks, compared with a simple model, by one thread and by several.
//!
//! ```text
//!   model    one flag per cluster: allocating a used cluster, or one twice, is an error
//!   volume   every short-cut checksum is compared with the full one (debug builds); e2fsck at
//!            the end: bitmaps, counters and checksums agree
//! ```

use super::{Bench, Random, features};
use crate::api::filesystem::Filesystem;
use crate::context::environment::Environment;
use crate::offline::mkfs::MkfsOptions;
use crate::open::OpenOptions;
use crate::space::blocks::{BlockRun, Request, Search};
use crate::space::preallocation::Growth;
use crate::space::reservations::Allowance;
use crate::state::inode::Body;
use crate::tree::names::NewFile;
use crate::volume::Volume;
use extant_base::{BlockNr, BlockSize, Error, GroupNr, Ino, Result, Tid};
use extant_blockdev::FileDevice;
use extant_journal::{Credits, Handle};
use extant_ondisk::extent::ExtentState;
use extant_testkit::e2fsprogs;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

fn request(goal: u64, want: u32) -> Request {
    let (search, allowance, growth) = (Search::Near, Allowance::Reserved, None);
    Request { goal: BlockNr(goal), want, below: u64::MAX, search, allowance, growth }
}

fn small_groups(block_bytes: u32, names: &str) -> MkfsOptions {
    features(names).block_size(BlockSize::from_bytes(block_bytes).unwrap())
}

/// The state of each block, for any number of threads: 0 never used, 1 in use, else 2^32 plus the
/// transaction that freed it.
struct Model(Vec<AtomicU64>);

impl Model {
    fn of(volume: &Volume) -> Model {
        Model((0..volume.geometry().blocks_count()).map(|_| AtomicU64::new(0)).collect())
    }

    fn swap(&self, run: BlockRun, value: u64, visit: impl Fn(u64, u64)) {
        for block in run.start.0..run.start.0 + u64::from(run.len) {
            visit(block, self.0[block as usize].swap(value, Ordering::SeqCst));
        }
    }

    fn take(&self, volume: &Volume, run: BlockRun) {
        self.swap(run, 1, |block, before| {
            assert_ne!(before, 1, "block {block} twice");
            let freed = (before != 0).then_some(Tid(before as u32));
            assert!(
                freed.is_none_or(|tid| volume.journal().is_durable(tid)),
                "block {block} is allocated before the transaction that freed it is durable"
            );
        });
    }

    fn free(&self, handle: &Handle<'_>, run: BlockRun) {
        self.swap(run, 1 << 32 | u64::from(handle.tid().0), |_, before| assert_eq!(before, 1));
    }
}

/// Allocates and frees at random, and frees everything at the end.
fn churn(volume: &Volume, model: &Model, seed: u64, steps: usize) -> Result<()> {
    let mut random = Random::new(seed);
    let mut held: Vec<BlockRun> = Vec::new();
    for step in 0..steps {
        let handle = volume.journal().start(Credits::blocks(16))?;
        if random.below(5) < 3 {
            let goal = random.next() % volume.geometry().blocks_count();
            let want = 1 + random.below([1, 8, 300][step % 3]) as u32;
            match volume.space().allocate(&handle, request(goal, want)) {
                Ok(run) => {
                    model.take(volume, run);
                    held.push(run);
                }
                Err(Error::NoSpace) => {}
                Err(error) => return Err(error),
            }
        } else if !held.is_empty() {
            let run = held.swap_remove(random.below(held.len()));
            model.free(&handle, run);
            volume.space().free(&handle, run.start, run.len.into())?;
        }
        handle.stop()?;
    }
    for run in held {
        let handle = volume.journal().start(Credits::blocks(16))?;
        model.free(&handle, run);
        volume.space().free(&handle, run.start, run.len.into())?;
        handle.stop()?;
    }
    Ok(())
}

#[test]
fn no_cluster_is_allocated_twice_and_all_are_freed() {
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
        let free = volume.space().free_clusters();
        churn(volume, &Model::of(volume), seed as u64, 600).unwrap();
        assert_eq!(volume.space().free_clusters(), free);
        bench.judge();
    }
}

#[test]
fn searching_the_bitmap_allocates_the_same_clusters() {
    let mut bench = Bench::made(12, small_groups(1024, ""));
    bench.volume.space_mut().set_short_cuts(false);
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
fn every_cluster_is_allocated_before_space_runs_out() {
    let bench = Bench::made(9, small_groups(1024, ""));
    let volume = &bench.volume;
    let mut runs = Vec::new();
    let mut blocks = 0;
    loop {
        match bench.with(|volume, handle| volume.space().allocate(handle, request(5000, 700))) {
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
    assert_eq!(volume.space().free_clusters(), 0);
    let first = runs.first().unwrap();
    assert_eq!((first.start, first.len), (BlockNr(5000), 700), "the goal is free and is hit");
    assert!(runs.len() < blocks as usize / 300, "runs stay long to the end: {}", runs.len());
    for run in runs {
        bench
            .with(|volume, handle| volume.space().free(handle, run.start, run.len.into()))
            .unwrap();
    }
    bench.judge();
}

#[test]
fn a_full_volume_is_not_walked() {
    let mut bench = Bench::made(400, small_groups(1024, ""));
    let free_in =
        |volume: &Volume, nr| volume.space().descriptor(GroupNr(nr)).unwrap().free_clusters;
    let groups = bench.volume.geometry().groups_count();
    assert!(groups >= 50);
    let spare = groups - 3;
    let mut runs = Vec::new();
    for nr in (0..groups).filter(|nr| *nr != spare) {
        let goal = bench.volume.geometry().first_block(GroupNr(nr)).unwrap().0;
        while free_in(&bench.volume, nr) > 0 {
            let run = bench
                .with(|volume, handle| volume.space().allocate(handle, request(goal, 1)))
                .unwrap();
            assert_eq!(bench.volume.geometry().group_of_block(run.start), Some(GroupNr(nr)));
            let rest = free_in(&bench.volume, nr);
            runs.push(run);
            if rest > 0 {
                let run = bench.with(|volume, handle| {
                    volume.space().allocate(handle, request(run.start.0 + 1, rest))
                });
                runs.push(run.unwrap());
            }
        }
    }
    bench.reopen();
    let read_before = bench.volume.journal().cache().stats().blocks_read;
    let run = bench.with(|volume, handle| volume.space().allocate(handle, request(0, 4))).unwrap();
    assert_eq!(bench.volume.geometry().group_of_block(run.start), Some(GroupNr(spare)));
    let read = bench.volume.journal().cache().stats().blocks_read - read_before;
    assert!(read <= 2, "one bitmap is read, of {groups}: {read} blocks");
    for run in runs.into_iter().chain([run]) {
        bench
            .with(|volume, handle| volume.space().free(handle, run.start, run.len.into()))
            .unwrap();
    }
    bench.judge();
}

#[test]
fn a_damaged_bitmap_is_reported_once_and_skipped() {
    let mut bench = Bench::made(24, small_groups(1024, ""));
    let nr = GroupNr(1);
    let goal = bench.volume.geometry().first_block(nr).unwrap().0 + 4000;
    let damaged = bench.volume.space().descriptor(nr).unwrap().block_bitmap;
    let flip = |bench: &Bench| {
        bench
            .with(|volume, handle| {
                let block = volume.journal().cache().get(damaged)?;
                block.write(handle)?.bytes_mut()[1000] ^= 1;
                Ok(())
            })
            .unwrap();
    };
    flip(&bench);
    bench.reopen();
    let free = bench.volume.space().free_clusters();
    let lost = u64::from(bench.volume.space().descriptor(nr).unwrap().free_clusters);
    for _ in 0..3 {
        let run =
            bench.with(|volume, handle| volume.space().allocate(handle, request(goal, 5))).unwrap();
        assert_ne!(bench.volume.geometry().group_of_block(run.start), Some(nr));
        bench
            .with(|volume, handle| volume.space().free(handle, run.start, run.len.into()))
            .unwrap();
    }
    let now = bench.volume.space().free_clusters();
    assert_eq!((now, bench.volume.context().errors_seen()), (free - lost, 1));
    bench.with(|volume, handle| volume.space().free(handle, BlockNr(goal), 1)).unwrap();
    flip(&bench);
    bench.volume.context().forget_errors();
    bench.reopen();
    bench.judge();
}

#[test]
fn freeing_what_is_free_changes_no_counter() {
    let bench = Bench::made(12, small_groups(1024, ""));
    let run =
        bench.with(|volume, handle| volume.space().allocate(handle, request(6000, 8))).unwrap();
    let nr = bench.volume.geometry().group_of_block(run.start).unwrap();
    let before = bench.volume.space().descriptor(nr).unwrap().free_clusters;
    bench.with(|volume, handle| volume.space().free(handle, run.start, 9)).unwrap();
    assert_eq!(bench.volume.context().errors_seen(), 1);
    let system = bench.volume.space().descriptor(nr).unwrap().block_bitmap;
    let metadata = bench.with(|volume, handle| volume.space().free(handle, system, 1));
    assert!(matches!(metadata, Err(Error::Corrupt { .. })), "{metadata:?}");
    assert_eq!(bench.volume.space().descriptor(nr).unwrap().free_clusters, before);
}

/// Appends blocks to each of some files in turns. Returns how many extents each file has at the
/// end.
fn grow_alternately(bench: &Bench, blocks: u32, step: u32) -> Vec<usize> {
    let inos: Vec<Ino> = (0..4).map(|_| bench.file(Ino::ROOT, 1)).collect();
    let mut bodies: Vec<_> =
        inos.iter().map(|ino| bench.volume.inodes().read(*ino).unwrap()).collect();
    for at in (0..blocks).step_by(step as usize) {
        for (_, body) in inos.iter().zip(&mut bodies) {
            bench
                .with(|volume, handle| {
                    let state = ExtentState::Written;
                    volume.file_mut(body).fill(handle, at..at + step, state, &mut |_| Ok(()))?;
                    body.disk.size = u64::from(at + step) << volume.block_size().log2();
                    body.store(volume, handle)
                })
                .unwrap();
        }
    }
    let extents = inos.iter().zip(&bodies).map(|(_, body)| {
        let mut physical = None;
        let runs = bench.volume.file(body).runs(0..blocks).map(|run| run.unwrap());
        runs.filter(|run| {
            let start = run.target.block().unwrap();
            let joined = physical == Some(start.0);
            physical = Some(start.0 + u64::from(run.len));
            !joined
        })
        .count()
    });
    let extents = extents.collect();
    for (_, body) in inos.iter().zip(&mut bodies) {
        bench.with(|volume, handle| volume.file_mut(body).release_inode(handle)).unwrap();
    }
    extents
}

#[test]
fn files_that_grow_alternately_stay_in_few_pieces() {
    let bench = Bench::made(64, small_groups(4096, ""));
    let free = bench.volume.space().free_clusters();
    let extents = grow_alternately(&bench, 1024, 1);
    assert!(extents.iter().all(|count| *count <= 10), "{extents:?} pieces");
    assert_eq!(bench.volume.space().free_clusters(), free);
    // Nothing is kept for files that are gone.
    for (nr, n) in bench.volume.geometry().groups().zip(0..) {
        let state = bench.volume.space().groups().get(nr).state.lock();
        let streams = state.held.spans().count();
        assert!(streams <= 1, "group {n} still holds {streams} runs");
    }
    bench.judge();
}

#[test]
fn files_that_grow_large_hold_up_to_a_quarter_of_a_group() {
    let bench = Bench::made(64, small_groups(1024, ""));
    let extents = grow_alternately(&bench, 8192, 64);
    assert!(extents.iter().all(|count| *count <= 12), "{extents:?} pieces");
    bench.judge();
}

#[test]
fn held_clusters_are_released_before_space_runs_out() {
    let bench = Bench::made(9, small_groups(1024, ""));
    let volume = &bench.volume;
    let ino = bench.file(Ino::ROOT, 1);
    let mut body = volume.inodes().read(ino).unwrap();
    let state = ExtentState::Written;
    let fill = |volume: &Volume, body: &mut Body, blocks: Range<u32>| {
        let handle = volume.journal().start(Credits::blocks(64)).unwrap();
        let done = volume.file_mut(body).fill(&handle, blocks, state, &mut |_| Ok(()));
        body.store(volume, &handle).unwrap();
        handle.stop().unwrap();
        done
    };
    fill(volume, &mut body, 0..40).unwrap();
    let held: u32 = volume
        .space()
        .groups()
        .get(GroupNr(0))
        .state
        .lock()
        .held
        .spans()
        .map(|span| span.len)
        .sum();
    assert!(held > 0);
    let mut at = 100;
    while fill(volume, &mut body, at..at + 37).is_ok() {
        at += 100;
    }
    assert_eq!(volume.space().free_clusters(), 0);
    bench.with(|volume, handle| volume.file_mut(&mut body).release_inode(handle)).unwrap();
    bench.judge();
}

#[test]
fn reserved_clusters_are_not_allocated_to_others() {
    let bench = Bench::made(9, small_groups(1024, ""));
    let volume = &bench.volume;
    let free = volume.space().free_clusters();
    let mut first = volume.space().reserve_clusters(free - 10).unwrap();
    assert!(volume.space().reserve_clusters(11).is_err());
    let data = |want| Request { allowance: Allowance::Data, ..request(0, want) };
    let run = bench.with(|volume, handle| volume.space().allocate(handle, data(100))).unwrap();
    assert_eq!(run.len, 10, "what is left for others");
    let none = bench.with(|volume, handle| volume.space().allocate(handle, data(1)));
    assert!(matches!(none, Err(Error::NoSpace)));
    let own =
        bench.with(|volume, handle| volume.space().allocate(handle, request(0, 100))).unwrap();
    first.give_back(own.len.into());
    drop(first);
    let more = bench.with(|volume, handle| volume.space().allocate(handle, data(5))).unwrap();
    for run in [run, own, more] {
        bench
            .with(|volume, handle| volume.space().free(handle, run.start, run.len.into()))
            .unwrap();
    }
    bench.judge();
}

/// A volume of its own with a log that commits only on request.
fn logged(mib: u64, options: MkfsOptions) -> (Arc<FileDevice>, Filesystem, tempfile::TempDir) {
    let dir = tempfile::tempdir().unwrap();
    let device = Arc::new(FileDevice::create(dir.path().join("img"), mib << 20).unwrap());
    let environment = Environment::fixed(super::NOW, 7);
    crate::offline::mkfs::format(device.clone(), &options.zeroed(true), &environment).unwrap();
    let mut open = OpenOptions::new();
    open.write(true).commit_interval(Duration::from_secs(3600));
    let fs = open.open_device(device.clone()).unwrap();
    assert!(!fs.volume().journal().is_off());
    (device, fs, dir)
}

#[track_caller]
fn judge_closed(fs: Filesystem, dir: &tempfile::TempDir) {
    fs.close().unwrap();
    e2fsprogs::e2fsck(&dir.path().join("img"), None).expect_clean().unwrap();
}

#[test]
fn freed_clusters_wait_for_their_commit() {
    let (_device, fs, dir) = logged(24, small_groups(1024, ""));
    let volume = fs.volume();
    let allocate = |goal, want| {
        let handle = volume.journal().start(Credits::blocks(16)).unwrap();
        volume.space().allocate(&handle, request(goal, want))
    };
    let free = |run: BlockRun| {
        let handle = volume.journal().start(Credits::blocks(16)).unwrap();
        volume.space().free(&handle, run.start, run.len.into()).unwrap();
        handle.tid()
    };
    let run = allocate(12_000, 8).unwrap();
    assert_eq!((run.start, run.len), (BlockNr(12_000), 8));
    volume.journal().sync().unwrap();
    let tid = free(run);
    let other = allocate(12_000, 8).unwrap();
    assert!(other.start.0 >= run.start.0 + 8 || other.start.0 + 8 <= run.start.0, "{other:?}");
    volume.journal().commit(tid).unwrap();
    let again = allocate(12_000, 8).unwrap();
    assert_eq!(again.start, run.start);
    free(other);
    free(again);
    judge_closed(fs, &dir);
}

#[test]
fn a_retry_gets_the_space_that_waits_for_a_commit() {
    let (_device, fs, dir) = logged(12, small_groups(1024, ""));
    let volume = fs.volume();
    let allocate = |want| {
        let handle = volume.journal().start(Credits::blocks(16))?;
        volume.space().allocate(&handle, request(0, want))
    };
    let mut runs: Vec<BlockRun> = std::iter::from_fn(|| allocate(3000).ok()).collect();
    assert_eq!(volume.space().free_clusters(), 0);
    let last = runs.pop().unwrap();
    {
        let handle = volume.journal().start(Credits::blocks(16)).unwrap();
        volume.space().free(&handle, last.start, last.len.into()).unwrap();
    }
    assert!(matches!(allocate(1), Err(Error::NoSpace)), "free, but not yet");
    runs.push(volume.space().with_space_retry(|| allocate(last.len)).unwrap());
    assert_eq!(runs.last().unwrap().start, last.start);
    for run in runs {
        let handle = volume.journal().start(Credits::blocks(16)).unwrap();
        volume.space().free(&handle, run.start, run.len.into()).unwrap();
    }
    judge_closed(fs, &dir);
}

#[test]
fn threads_allocate_while_others_commit() {
    let (_device, fs, dir) = logged(40, small_groups(1024, ""));
    let volume = fs.volume();
    let model = Model::of(volume);
    let done = AtomicBool::new(false);
    std::thread::scope(|scope| {
        let committer = scope.spawn(|| {
            while !done.load(Ordering::Relaxed) {
                volume.journal().sync().unwrap();
            }
        });
        let workers: Vec<_> = (0..4)
            .map(|seed| {
                scope.spawn({
                    let model = &model;
                    move || churn(volume, model, 200 + seed, 300).unwrap()
                })
            })
            .collect();
        workers.into_iter().for_each(|worker| worker.join().unwrap());
        done.store(true, Ordering::Relaxed);
        committer.join().unwrap();
    });
    judge_closed(fs, &dir);
}

/// Allocates all of the volume that ordinary data may take, except about `left` clusters. All is
/// durable.
fn take_all_but(volume: &Volume, left: u64) {
    let take = |want: u32| {
        let handle = volume.journal().start(Credits::blocks(16)).unwrap();
        volume.space().allocate(&handle, Request { allowance: Allowance::Data, ..request(0, want) })
    };
    let mut last = None;
    while let Ok(run) = take(1000) {
        last = Some(run);
    }
    let mut freed = 0;
    while freed < left {
        let run = last.take().or_else(|| take(1).ok()).expect("a run was taken");
        let len = u64::from(run.len).min(left - freed);
        let handle = volume.journal().start(Credits::blocks(16)).unwrap();
        volume.space().free(&handle, run.start, len).unwrap();
        freed += len;
    }
    volume.journal().sync().unwrap();
    volume.space().release_durable(usize::MAX);
}

#[test]
fn space_that_waits_for_a_commit_is_not_reserved_before_it() {
    let (_device, fs, dir) = logged(12, small_groups(1024, ""));
    let volume = fs.volume();
    take_all_but(volume, 40);
    let some = volume.space().reserve_clusters(30).unwrap();
    let run = {
        let handle = volume.journal().start(Credits::blocks(16)).unwrap();
        volume.space().allocate(&handle, request(0, 30)).unwrap()
    };
    drop(some);
    {
        let handle = volume.journal().start(Credits::blocks(16)).unwrap();
        volume.space().free(&handle, run.start, run.len.into()).unwrap();
    }
    assert!(volume.space().reserve_clusters(20).is_err(), "10 are free now, the others wait");
    assert!(volume.space().reserve_clusters(10).is_ok());
    let reservation =
        volume.space().with_space_retry(|| volume.space().reserve_clusters(20)).unwrap();
    // The allocation finds space without another commit.
    let mut got = 0;
    let handle = volume.journal().start(Credits::blocks(64)).unwrap();
    while got < 20 {
        got += volume.space().allocate(&handle, request(0, 20 - got)).unwrap().len;
    }
    handle.stop().unwrap();
    drop(reservation);
    drop(fs);
    drop(dir);
}

#[test]
fn map_blocks_come_from_the_pool_and_not_from_reserved_space() {
    let bench = Bench::made(9, small_groups(1024, ""));
    let volume = &bench.volume;
    let free = volume.space().free_clusters();
    let reservation =
        volume.space().reserve_clusters(free - volume.space().reservations().pool() - 5).unwrap();
    let of = |allowance, want| Request { allowance, ..request(0, want) };
    let allocate = |request| bench.with(|volume, handle| volume.space().allocate(handle, request));
    let map = volume.space().reserve_with_map(0, 3).unwrap();
    let mut runs = Vec::new();
    let left = volume.space().free_clusters() - reservation.clusters() - 3;
    let mut got = 0;
    while let Ok(run) = allocate(of(Allowance::Metadata, 4)) {
        got += u64::from(run.len);
        runs.push(run);
    }
    assert_eq!(got, left, "all but what is reserved");
    assert!(matches!(allocate(of(Allowance::Data, 1)), Err(Error::NoSpace)));
    assert!(matches!(allocate(of(Allowance::Held { reserved: false }, 1)), Err(Error::NoSpace)));
    drop(map);
    runs.push(allocate(of(Allowance::Metadata, 3)).unwrap());
    runs.push(allocate(of(Allowance::Reserved, 1)).unwrap());
    drop(reservation);
    for run in runs {
        bench
            .with(|volume, handle| volume.space().free(handle, run.start, run.len.into()))
            .unwrap();
    }
    bench.judge();
}

/// Reserves, allocates and frees at random. An allocation from a reservation must always succeed
/// without a commit.
fn allocate_reserved(volume: &Volume, seed: u64, steps: usize) -> Result<usize> {
    let (mut random, mut kept) = (Random::new(seed), 0);
    for _ in 0..steps {
        let want = 1 + random.below(12) as u64;
        let reservation = volume.space().with_space_retry(|| volume.space().reserve_clusters(want));
        let mut reservation = match reservation {
            Err(Error::NoSpace) => continue,
            reservation => reservation?,
        };
        let handle = volume.journal().start(Credits::blocks(64))?;
        let mut runs = Vec::new();
        while reservation.clusters() > 0 {
            let goal = random.next() % volume.geometry().blocks_count();
            let run =
                volume.space().allocate(&handle, request(goal, reservation.clusters() as u32))?;
            reservation.give_back(run.len.into());
            runs.push(run);
        }
        handle.stop()?;
        kept += 1;
        let handle = volume.journal().start(Credits::blocks(64))?;
        for run in runs {
            volume.space().free(&handle, run.start, run.len.into())?;
        }
        handle.stop()?;
    }
    Ok(kept)
}

/// Files that grow, keep preallocated space, and are removed.
fn grow_and_truncate(volume: &Volume, seed: u64, done: &AtomicBool) -> Result<()> {
    let mut random = Random::new(seed);
    let ino = Ino::new(1000 + seed as u32).unwrap();
    while !done.load(Ordering::Relaxed) {
        let growth = Some(Growth { ino, end: 64, is_first: random.below(3) == 0 });
        let goal = random.next() % volume.geometry().blocks_count();
        let want = 1 + random.below(6) as u32;
        let request = Request { allowance: Allowance::Data, growth, ..request(goal, want) };
        let handle = volume.journal().start(Credits::blocks(32))?;
        let got = match volume.space().allocate(&handle, request) {
            Err(Error::NoSpace) => None,
            run => Some(run?),
        };
        handle.stop()?;
        if random.below(4) == 0 {
            volume.space().discard_preallocation(ino);
        }
        if let Some(run) = got {
            let handle = volume.journal().start(Credits::blocks(32))?;
            volume.space().free(&handle, run.start, run.len.into())?;
            handle.stop()?;
        } else {
            volume.space().reclaim_pending()?;
        }
    }
    Ok(())
}

#[test]
fn reserved_space_is_found_while_other_threads_hold_free_and_commit() {
    let (_device, fs, dir) = logged(40, small_groups(1024, ""));
    let volume = fs.volume();
    take_all_but(volume, 60);
    let done = AtomicBool::new(false);
    let kept: usize = std::thread::scope(|scope| {
        let done = &done;
        let growers: Vec<_> = (0..3)
            .map(|seed| scope.spawn(move || grow_and_truncate(volume, 300 + seed, done).unwrap()))
            .collect();
        let keepers: Vec<_> = (0..3)
            .map(|seed| scope.spawn(move || allocate_reserved(volume, 400 + seed, 400).unwrap()))
            .collect();
        let kept = keepers.into_iter().map(|keeper| keeper.join()).collect::<Vec<_>>();
        done.store(true, Ordering::Relaxed);
        growers.into_iter().for_each(|grower| grower.join().unwrap());
        kept.into_iter().map(|kept| kept.unwrap()).sum()
    });
    assert!(kept > 300, "{kept}");
    assert_eq!(volume.space().reserved_clusters(), 0);
    drop(fs);
    drop(dir);
}

/// The first block of each extent of five files of `mib` MiB, written alternately in pieces.
fn starts_of_files(options: MkfsOptions, stripe: Option<u32>, mib: u64) -> Vec<u64> {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("img");
    let device = Arc::new(FileDevice::create(&path, 256 << 20).unwrap());
    crate::offline::mkfs::format(device, &options, &Environment::default()).unwrap();
    let mut opening = OpenOptions::new();
    opening.write(true);
    if let Some(blocks) = stripe {
        opening.stripe(blocks);
    }
    let fs = opening.open(&path).unwrap();
    // First a file whose length is not a multiple of any stripe.
    let new = |name: &str| fs.create_file(name, &NewFile::default()).unwrap().open().unwrap();
    new("odd").write_all_at(&[1; 5000], 0).unwrap();
    fs.sync().unwrap();
    let files: Vec<_> = (0..5).map(|n| new(&format!("file{n}"))).collect();
    for at in (0..mib << 20).step_by(64 << 10) {
        for file in &files {
            file.write_all_at(&[2; 64 << 10], at).unwrap();
        }
    }
    fs.sync().unwrap();
    let extents = files.iter().flat_map(|file| file.extents().unwrap());
    let starts = extents.map(|extent| extent.block.0).collect();
    drop(files);
    fs.close().unwrap();
    e2fsprogs::e2fsck(&path, None).expect_clean().unwrap();
    starts
}

#[test]
fn large_files_begin_at_stripes() {
    let aligned = |starts: &[u64], stripe| starts.iter().all(|at| at.is_multiple_of(stripe));
    // 1 KiB blocks: groups do not start at stripes of 96 blocks. Without hints, files start
    // anywhere.
    for (block_bytes, stripe) in [(4096, 48), (4096, 128), (1024, 96)] {
        let plain = starts_of_files(small_groups(block_bytes, ""), None, 3);
        assert!(!aligned(&plain, stripe), "{plain:?}");
        // The stored stripe, and an option at open that overrides it; the stride if there is no
        // width.
        let width = small_groups(block_bytes, "").stripe(16, stripe as u32);
        let stride = small_groups(block_bytes, "").stripe(stripe as u16, 0);
        let other = small_groups(block_bytes, "").stripe(16, 20);
        let given = Some(stripe as u32);
        for (options, given) in [(width, None), (stride, None), (other, given)] {
            let starts = starts_of_files(options, given, 3);
            assert!(aligned(&starts, stripe), "{block_bytes}, {stripe}: {starts:?}");
        }
    }
    // Clusters of 16 KiB: only stripes of whole clusters are used.
    let clusters = || small_groups(4096, "bigalloc").cluster_bytes(16 << 10);
    assert!(aligned(&starts_of_files(clusters().stripe(0, 64), None, 3), 64));
    starts_of_files(clusters().stripe(0, 66), None, 1);
    // Longer than a group: no stripe is used.
    starts_of_files(small_groups(4096, ""), Some(u32::MAX), 1);
}

#[test]
fn a_trim_of_long_runs_takes_them_whole_and_no_shorter_one() {
    const BLOCK: u64 = 4096;
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("img");
    let device = Arc::new(FileDevice::create(&path, 512 << 20).unwrap());
    crate::offline::mkfs::format(device, &features(""), &Environment::default()).unwrap();
    let fs = OpenOptions::new().write(true).open(&path).unwrap();
    let volume = fs.volume();
    assert_eq!(volume.block_size().bytes() as u64, BLOCK);
    let all = fs.trim(0..u64::MAX, 0).unwrap();
    let mut runs = Vec::new();
    for nr in (0..volume.geometry().groups_count()).map(GroupNr) {
        let (state, mut at) = (volume.space().groups().get(nr).state.lock(), 0);
        while let Some(run) = state.free.as_ref().unwrap().next_from(at, u32::MAX) {
            runs.push(u64::from(run.len));
            at = run.end();
        }
    }
    assert_eq!(runs.iter().sum::<u64>() * BLOCK, all);
    runs.sort_unstable();
    for min in [1, runs[0] + 1, runs[runs.len() - 1], runs[runs.len() - 1] + 1] {
        let long: u64 = runs.iter().filter(|len| **len >= min).sum();
        assert_eq!(fs.trim(0..u64::MAX, min * BLOCK).unwrap(), long * BLOCK, "{min} of {runs:?}");
    }
    fs.close().unwrap();
}
