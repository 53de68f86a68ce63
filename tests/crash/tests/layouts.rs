//! Volumes on several members, which lose power at different points. Assembled and recovered, they
//! keep what was synced, mirrors are equal again, and each mirror is a volume by itself, also to
//! Linux.

use extant_crash_tests::alone::workloads;
use extant_crash_tests::explorer::{Budget, Depth, Explorer};
use extant_crash_tests::group::{effort, explore_all, seed};
use extant_crash_tests::make::{LAYOUTS, LAYOUTS_CACHED};
use extant_crash_tests::{buffered, random};
use extant_testkit::require;

const BUDGET: Budget = Budget {
    depth: Depth { exhaustive: 2, samples: 8, torn: 1 },
    states: 40,
    cut_recoveries: (1, 4),
    e2fsck: 1,
    linux: 0,
};

#[test]
fn each_operation_is_whole_or_absent_on_all_members() {
    require!(E2fsprogs);
    let budget = Budget { states: 8, e2fsck: 0, ..BUDGET };
    let explorer = Explorer::new(seed(), budget.with_effort()).past_setup();
    let on = |(n, make)| {
        // Each operation on some of them.
        let some = workloads().into_iter().skip(n).step_by(4 * LAYOUTS.len());
        some.map(move |workload| (make, workload))
    };
    let cases: Vec<_> = LAYOUTS.iter().copied().enumerate().flat_map(on).collect();
    explore_all("layouts alone", &explorer, &cases);
}

#[test]
fn sequences_of_operations_are_a_prefix_and_members_agree() {
    require!(E2fsprogs, Uml);
    let explorer = Explorer::new(seed(), Budget { linux: 1, ..BUDGET }.with_effort());
    let seeds = (0..2 * effort() as u64).map(|n| seed().wrapping_mul(7000).wrapping_add(n));
    let on = |make| seeds.clone().map(move |seed| (make, random::workload(seed, 40, 8)));
    let cases: Vec<_> = LAYOUTS.iter().copied().flat_map(on).collect();
    explore_all("layouts random", &explorer, &cases);
}

#[test]
fn bytes_in_the_cache_are_there_when_synced_and_members_agree() {
    require!(E2fsprogs, Uml);
    let explorer = Explorer::new(seed(), Budget { linux: 1, ..BUDGET }.with_effort());
    let seeds = (0..effort() as u64).map(|n| seed().wrapping_mul(4000).wrapping_add(n));
    let on = |make| seeds.clone().map(move |seed| (make, buffered::workload(seed, 40)));
    let cases: Vec<_> = LAYOUTS_CACHED.iter().copied().flat_map(on).collect();
    explore_all("layouts cached", &explorer, &cases);
}
