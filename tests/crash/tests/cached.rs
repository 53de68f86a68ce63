//! Files through the page cache: what was synced is there; otherwise each sector is old, new or
//! zero, and no size covers bytes that were not written back.

use extant_crash_tests::buffered::workload;
use extant_crash_tests::explorer::{Budget, Depth, Explorer};
use extant_crash_tests::group::{explore_all, of_seeds, seed};
use extant_crash_tests::make::CACHED;
use extant_crash_tests::parse;
use extant_crash_tests::workload::Workload;
use extant_testkit::require;

const DEPTH: Depth = Depth { exhaustive: 2, samples: 6, torn: 1 };

#[test]
fn bytes_that_were_synced_are_there_and_none_are_stale() {
    require!(E2fsprogs, Uml);
    let budget = Budget { depth: DEPTH, states: 60, cut_recoveries: (1, 4), e2fsck: 2, linux: 1 };
    let explorer = Explorer::new(seed(), budget.with_effort());
    let cases = of_seeds(CACHED.iter().copied(), (2, 1000), |seed| workload(seed, 50));
    explore_all("cached", &explorer, &cases);
}

/// Blocks beyond the size on disk are damage to e2fsck.
#[test]
fn what_is_written_back_out_of_order_is_not_beyond_the_size_on_disk() {
    let budget = Budget { depth: DEPTH, states: 200, cut_recoveries: (0, 0), e2fsck: 0, linux: 0 };
    let explorer = Explorer::new(seed(), budget);
    let ops = "creat /b 0644 ; append /b 100 ; write /b 200000 4096 ; writeback /b 200704 4096 ; \
               fsync /marker ; append /b 100 ; write /b 900000 600000 ; append /b 300000 ; \
               writeback /b 1000000 2000000 ; fsync /marker";
    let workload =
        Workload { name: "out of order".to_owned(), ops: parse::ops(ops).expect("it is right") };
    let cases: Vec<_> = CACHED.iter().map(|make| (*make, workload.clone())).collect();
    explore_all("out of order", &explorer, &cases);
}
