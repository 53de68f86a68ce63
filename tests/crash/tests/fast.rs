//! Volumes whose fsyncs are fast commits: what was synced is there, whole, wherever the power is
//! cut.

use extant_crash_tests::explorer::{Budget, Depth, Explorer};
use extant_crash_tests::group::{each_alone, explore_all, of_seeds, seed};
use extant_crash_tests::make::{FAST, FAST_CACHED};
use extant_crash_tests::{buffered, random, recorded};
use extant_testkit::require;

/// e2fsck's own recovery loses what fast commits recorded, so it does not take part.
const BUDGET: Budget = Budget {
    depth: Depth { exhaustive: 3, samples: 8, torn: 1 },
    states: 60,
    cut_recoveries: (1, 4),
    e2fsck: 0,
    linux: 0,
};

#[test]
fn each_operation_is_there_after_the_fsync_that_recorded_it() {
    require!(E2fsprogs);
    let budget = Budget { states: 40, ..BUDGET };
    let explorer = Explorer::new(seed(), budget.with_effort()).past_setup();
    let cases = each_alone(FAST.iter().copied());
    let tally = explore_all("fast alone", &explorer, &cases);
    assert!(tally.fast > 100, "few fast commits: {tally}");
}

#[test]
fn a_chain_of_fast_commits_is_cut_between_two_of_them() {
    require!(E2fsprogs, Uml);
    let budget = Budget { states: 250, cut_recoveries: (2, 4), linux: 2, ..BUDGET };
    let explorer = Explorer::new(seed(), budget.with_effort()).past_setup();
    let cases = of_seeds(FAST.iter().copied(), (6, 4000), |seed| recorded::workload(seed, 60));
    let tally = explore_all("fast chains", &explorer, &cases);
    assert!(tally.fast * 2 > tally.distinct, "few fast commits: {tally}");
}

#[test]
fn sequences_with_fast_commits_in_them_are_a_prefix_after_recovery() {
    require!(E2fsprogs, Uml);
    let budget = Budget { states: 120, linux: 1, ..BUDGET };
    let explorer = Explorer::new(seed(), budget.with_effort());
    let cases = of_seeds(FAST.iter().copied(), (4, 2000), |seed| random::workload(seed, 60, 3));
    let tally = explore_all("fast random", &explorer, &cases);
    assert!(tally.fast > 0, "no fast commits: {tally}");
}

#[test]
fn bytes_in_the_cache_are_there_when_a_fast_commit_records_them() {
    require!(E2fsprogs, Uml);
    let budget = Budget { linux: 1, ..BUDGET };
    let explorer = Explorer::new(seed(), budget.with_effort());
    let cases =
        of_seeds(FAST_CACHED.iter().copied(), (4, 3000), |seed| buffered::workload(seed, 50));
    let tally = explore_all("fast cached", &explorer, &cases);
    assert!(tally.fast > 0, "no fast commits: {tally}");
}
