//! Volumes whose fsyncs go to the byte log: what was synced is there, whole, whichever cache lines
//! a cut loses.

use extant_crash_tests::explorer::{Budget, Depth, Explorer};
use extant_crash_tests::group::{each_alone, explore_all, of_seeds, seed};
use extant_crash_tests::make::{BYTE_LOG, Make};
use extant_crash_tests::{buffered, random};
use extant_testkit::require;

/// Only extant can recover such a volume; e2fsck checks extant's results in other suites.
const BUDGET: Budget = Budget {
    depth: Depth { exhaustive: 3, samples: 8, torn: 1 },
    states: 80,
    cut_recoveries: (1, 4),
    e2fsck: 0,
    linux: 0,
};

fn kinds(cached: bool) -> impl Iterator<Item = Make> {
    BYTE_LOG.iter().copied().filter(move |make| make.is_cached() == cached)
}

#[test]
fn each_operation_is_there_after_the_fsync_that_stored_it() {
    require!(E2fsprogs);
    let explorer = Explorer::new(seed(), BUDGET.with_effort()).past_setup();
    let cases = each_alone(kinds(false));
    explore_all("byte log alone", &explorer, &cases);
}

#[test]
fn sequences_in_the_byte_log_are_a_prefix_after_recovery() {
    require!(E2fsprogs);
    let explorer = Explorer::new(seed(), Budget { states: 200, ..BUDGET }.with_effort());
    let cases = of_seeds(kinds(false), (6, 4000), |seed| random::workload(seed, 60, 3));
    explore_all("byte log random", &explorer, &cases);
}

#[test]
fn bytes_in_the_cache_are_there_when_the_byte_log_records_them() {
    require!(E2fsprogs);
    let explorer = Explorer::new(seed(), BUDGET.with_effort());
    let cases = of_seeds(kinds(true), (4, 5000), |seed| buffered::workload(seed, 50));
    explore_all("byte log cached", &explorer, &cases);
}
