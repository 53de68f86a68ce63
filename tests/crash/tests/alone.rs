//! Every operation alone, on every kind of volume, cut everywhere.

use extant_crash_tests::alone::workloads;
use extant_crash_tests::explorer::{Budget, Depth, Explorer};
use extant_crash_tests::group::{explore_all, seed};
use extant_crash_tests::make::MAKES;
use extant_testkit::require;

/// Every subset of up to 3 unflushed writes, 8 of more, each with a torn variant.
const DEPTH: Depth = Depth { exhaustive: 3, samples: 8, torn: 1 };

#[test]
fn each_operation_is_whole_or_absent() {
    require!(E2fsprogs);
    let budget = Budget { depth: DEPTH, states: 60, cut_recoveries: (1, 4), e2fsck: 0, linux: 0 };
    let explorer = Explorer::new(seed(), budget.with_effort()).past_setup();
    let each = |make| workloads().into_iter().map(move |workload| (make, workload));
    let cases: Vec<_> = MAKES.iter().copied().flat_map(each).collect();
    explore_all("alone", &explorer, &cases);
}
