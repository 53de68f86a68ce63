//! Files written past the page cache, alone and beside it. What was synced is there; otherwise each
//! sector is old, new or zero. An unwritten block never shows its old content, and no size covers
//! bytes that were not written.

use extant_crash_tests::buffered;
use extant_crash_tests::explorer::{Budget, Depth, Explorer};
use extant_crash_tests::group::{effort, explore_all, seed};
use extant_crash_tests::make::{DIRECT, DIRECT_CACHED, Make};
use extant_crash_tests::op::Op;
use extant_crash_tests::workload::Workload;
use extant_crash_tests::{direct, parse, random};
use extant_testkit::require;
use extant_testkit::rng::Rng;

const BUDGET: Budget = Budget {
    depth: Depth { exhaustive: 3, samples: 8, torn: 1 },
    states: 60,
    cut_recoveries: (1, 4),
    e2fsck: 2,
    linux: 0,
};

/// What a direct write can encounter: written, unwritten and no blocks, the end and beyond, in each
/// order, in each way; and operations that free the blocks afterwards.
const CASES: &[(&str, &str)] = &[
    ("overwrite", "append /f 65536 ; fsync /f ; {} /f 8192 40960"),
    ("overwrite_twice", "append /f 65536 ; fsync /f ; {} /f 8192 40960 ; {} /f 16384 16384"),
    ("append", "{} /f 0 40960 ; {} /f 40960 40960 ; {} /f 81920 8192"),
    ("append_behind_dirty", "append /f 10000 ; {} /f 12288 40960"),
    ("behind_the_end", "append /f 5000 ; fsync /f ; {} /f 65536 40960"),
    ("hole", "truncate /f 200000 ; {} /f 65536 40960"),
    ("hole_and_written", "truncate /f 200000 ; write /f 65536 8192 ; fsync /f ; {} /f 32768 65536"),
    ("unwritten", "falloc /f 0 0 131072 ; fsync /f ; {} /f 32768 40960"),
    ("unwritten_beside", "falloc /f 0 0 131072 ; {} /f 32768 8192 ; {} /f 49152 8192 ; fsync /f"),
    ("unwritten_behind", "falloc /f FALLOC_FL_KEEP_SIZE 0 131072 ; fsync /f ; {} /f 0 40960"),
    (
        "zeroed",
        "append /f 131072 ; fsync /f ; falloc /f FALLOC_FL_ZERO_RANGE 0 65536 ; {} /f 0 98304",
    ),
    ("dirty", "append /f 131072 ; write /f 30000 9000 ; {} /f 28672 16384 ; write /f 30000 9000"),
    ("cut_after", "{} /f 0 98304 ; truncate /f 20000 ; {} /f 40960 8192"),
    (
        "punched_after",
        "{} /f 0 98304 ; falloc /f FALLOC_FL_PUNCH_HOLE|FALLOC_FL_KEEP_SIZE 8192 40960",
    ),
    ("small_parts", "append /f 20000 ; fsync /f ; {} /f 700 9000 ; {} /f 19000 3000"),
];

#[test]
fn each_direct_write_fits_the_range_that_it_meets() {
    require!(E2fsprogs);
    let budget = Budget { states: 50, e2fsck: 1, ..BUDGET };
    let explorer = Explorer::new(seed(), budget.with_effort());
    let on = |make: &Make| {
        let make = *make;
        let case = move |(n, (name, text)): (usize, &(&str, &str))| {
            let how = direct::DirectHow::ALL[n % 3].1;
            let all = format!("creat /f 0644 ; sync ; {} ; fsync /f", text.replace("{}", how));
            let ops = parse::ops(&all).expect("it is right");
            (make, Workload { name: format!("direct/{name}"), ops })
        };
        CASES.iter().enumerate().map(case).collect::<Vec<_>>()
    };
    let cases: Vec<_> = DIRECT.iter().chain(DIRECT_CACHED).flat_map(on).collect();
    explore_all("direct", &explorer, &cases);
}

/// A workload with this many direct writes among its operations.
fn with_direct(mut workload: Workload, seed: u64, paths: &[&str], count: usize) -> Workload {
    let mut rng = Rng::new(seed ^ 0xd1ec);
    for _ in 0..count {
        let path = paths[rng.below(paths.len())].to_owned();
        let place = (rng.below(60) as u64 * 4096, [512, 4096, 12_288, 70_000][rng.below(4)]);
        let op = direct::draw(&mut rng, path, place);
        let at = 4 + rng.below(workload.ops.len() - 4);
        workload.ops.insert(at, op);
    }
    workload.name = format!("direct {}", workload.name);
    workload
}

#[test]
fn direct_writes_beside_all_else_are_a_prefix() {
    require!(E2fsprogs, Uml);
    let explorer = Explorer::new(seed(), Budget { linux: 1, ..BUDGET }.with_effort());
    let seeds = (0..2 * effort() as u64).map(|n| seed().wrapping_mul(8000).wrapping_add(n));
    let on = |make: &Make| {
        let make = *make;
        let names = ["/A/foo", "/foo", "/B/bar", "/bar", "/D/baz"];
        seeds.clone().map(move |seed| {
            let mut workload = random::workload(seed, 40, 8);
            let create = |path: &&str| Op::Create { path: (*path).to_owned(), mode: 0o644 };
            workload.ops.splice(4..4, names.iter().map(create));
            (make, with_direct(workload, seed, &names, 15))
        })
    };
    let cases: Vec<_> = DIRECT.iter().flat_map(on).collect();
    explore_all("direct random", &explorer, &cases);
}

#[test]
fn direct_writes_beside_bytes_in_the_cache_are_there_when_synced() {
    require!(E2fsprogs, Uml);
    let explorer = Explorer::new(seed(), Budget { linux: 1, ..BUDGET }.with_effort());
    let seeds = (0..2 * effort() as u64).map(|n| seed().wrapping_mul(9000).wrapping_add(n));
    let on = |make: &Make| {
        let make = *make;
        seeds.clone().map(move |seed| {
            let workload = buffered::workload(seed, 40);
            (make, with_direct(workload, seed, &["/a", "/b", "/c"], 15))
        })
    };
    let cases: Vec<_> = DIRECT_CACHED.iter().flat_map(on).collect();
    explore_all("direct cached", &explorer, &cases);
}
