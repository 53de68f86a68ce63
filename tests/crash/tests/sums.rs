//! Volumes whose files have checksums of data: wherever the power is cut, every block matches its
//! checksum, and everything else is as without.

use extant_crash_tests::buffered;
use extant_crash_tests::explorer::{Budget, Depth, Explorer};
use extant_crash_tests::group::{each_alone, explore_all, of_seeds, seed};
use extant_crash_tests::make::{SUMS, SUMS_CACHED};
use extant_crash_tests::{parse, random, workload::Workload};
use extant_testkit::require;

const BUDGET: Budget = Budget {
    depth: Depth { exhaustive: 3, samples: 8, torn: 1 },
    states: 60,
    cut_recoveries: (1, 4),
    e2fsck: 0,
    linux: 0,
};

#[test]
fn each_operation_is_whole_or_absent_and_all_data_matches() {
    require!(E2fsprogs);
    let budget = Budget { states: 40, ..BUDGET };
    let explorer = Explorer::new(seed(), budget.with_effort()).past_setup();
    let cases = each_alone(SUMS.iter().copied());
    explore_all("sums alone", &explorer, &cases);
}

#[test]
fn sequences_of_operations_are_a_prefix_whose_data_matches() {
    require!(E2fsprogs, Uml);
    let budget = Budget { states: 150, e2fsck: 3, linux: 1, ..BUDGET };
    let explorer = Explorer::new(seed(), budget.with_effort());
    let cases = of_seeds(SUMS.iter().copied(), (4, 6000), |seed| random::workload(seed, 50, 10));
    explore_all("sums random", &explorer, &cases);
}

#[test]
fn bytes_in_the_cache_are_there_when_synced_and_match() {
    require!(E2fsprogs, Uml);
    let budget = Budget { e2fsck: 2, linux: 1, ..BUDGET };
    let explorer = Explorer::new(seed(), budget.with_effort());
    let cases =
        of_seeds(SUMS_CACHED.iter().copied(), (4, 5000), |seed| buffered::workload(seed, 50));
    explore_all("sums cached", &explorer, &cases);
}

#[test]
fn what_is_written_to_a_range_that_changes_is_there_or_what_was_before() {
    require!(E2fsprogs);
    let budget = Budget { states: 100, e2fsck: 1, ..BUDGET };
    let explorer = Explorer::new(seed(), budget.with_effort());
    let makes = SUMS.iter().chain(SUMS_CACHED).copied();
    let cases = of_seeds(makes, (3, 3000), |seed| random::ranges(seed, 12));
    explore_all("sums ranges", &explorer, &cases);
}

/// Overwritten repeatedly in parts, with syncs in between: what was synced stays until the newer
/// data is there.
#[test]
fn overwritten_bytes_are_the_old_or_the_new_ones() {
    let budget = Budget { states: 250, cut_recoveries: (0, 0), ..BUDGET };
    let explorer = Explorer::new(seed(), budget.with_effort());
    let mut ops = "creat /b 0644 ; append /b 300000 ; fsync /b".to_owned();
    for n in 0..6 {
        ops += &format!(
            " ; write /b {} 20000 ; write /b {} 100 ; fsync /b ; truncate /b {} ; fsync /marker",
            n * 30_011,
            n * 7013,
            290_000 - n * 5001
        );
    }
    let workload =
        Workload { name: "over".to_owned(), ops: parse::ops(&ops).expect("it is right") };
    let cases: Vec<_> = SUMS_CACHED.iter().map(|make| (*make, workload.clone())).collect();
    explore_all("sums over", &explorer, &cases);
}
