//! Random sequences on every kind of volume; e2fsck and Linux recover some of the states, too.

use std::io::Write;

use extant_crash_tests::explorer::{Budget, Depth, Explorer, Tally};
use extant_crash_tests::group::{effort, explore_all, of_seeds, seed};
use extant_crash_tests::make::MAKES;
use extant_crash_tests::random::workload;
use extant_testkit::require;

const DEPTH: Depth = Depth { exhaustive: 2, samples: 6, torn: 1 };

#[test]
fn sequences_of_operations_are_a_prefix_after_recovery() {
    require!(E2fsprogs, Uml);
    let budget = Budget { depth: DEPTH, states: 150, cut_recoveries: (2, 4), e2fsck: 3, linux: 1 };
    let explorer = Explorer::new(seed(), budget.with_effort());
    let cases = of_seeds(MAKES.iter().copied(), (4, 1000), |seed| workload(seed, 50, 10));
    explore_all("random", &explorer, &cases);
}

#[test]
fn a_volume_that_crashed_is_used_and_crashes_again() {
    require!(E2fsprogs);
    let budget = Budget { depth: DEPTH, states: 60, cut_recoveries: (1, 4), e2fsck: 1, linux: 0 };
    let explorer = Explorer::new(seed(), budget.with_effort());
    let mut tally = Tally::default();
    for make in MAKES {
        let (first, second) = (workload(seed() + 501, 40, 6), workload(seed() + 502, 25, 6));
        let explored = explorer.explore_next(make, (&first, &second), 3 * effort());
        tally += explored.unwrap_or_else(|failure| panic!("{failure}"));
    }
    // Bypasses the capture of `cargo test`.
    let _ = writeln!(std::io::stderr(), "next: {tally}");
}

#[test]
fn a_small_log_that_wraps_loses_nothing() {
    require!(E2fsprogs);
    let budget = Budget { depth: DEPTH, states: 300, cut_recoveries: (3, 4), e2fsck: 4, linux: 0 };
    let explorer = Explorer::new(seed(), budget.with_effort());
    let seeds = (0..2 * effort() as u64).map(|n| seed().wrapping_mul(7777).wrapping_add(n));
    let small = MAKES.iter().copied().filter(|make| make.block_bytes() == 1024);
    let cases: Vec<_> = small
        .flat_map(|make| seeds.clone().map(move |seed| (make, workload(seed, 600, 2))))
        .collect();
    explore_all("wrap", &explorer, &cases);
}
