//! Parallel threads on one volume, each in its own directory: for each of them, the recovered
//! volume shows a prefix of what it did.

use std::io::Write;

use extant_crash_tests::explorer::{Budget, Depth, Explorer, Tally};
use extant_crash_tests::group::{effort, seed};
use extant_crash_tests::make::{FAST, MAKES};
use extant_crash_tests::random::workload;
use extant_crash_tests::record::record_parallel;
use extant_crash_tests::workload::Workload;

const THREADS: u64 = 3;

/// A random workload below `/tN`.
fn below(thread: u64, seed: u64) -> Workload {
    let mut workload = workload(seed, 40, 8);
    for op in &mut workload.ops {
        op.move_below(&format!("/t{thread}"));
    }
    workload
}

#[test]
fn every_thread_finds_a_prefix_of_its_own_work() {
    let depth = Depth { exhaustive: 2, samples: 6, torn: 1 };
    let budget = Budget { depth, states: 200, cut_recoveries: (1, 4), e2fsck: 1, linux: 0 };
    // e2fsck cannot judge a log with fast commits: if it takes one for stale, it loses the
    // transactions before it.
    let makes = MAKES.iter().map(|make| (make, budget));
    let fast = FAST.iter().map(|make| (make, Budget { e2fsck: 0, ..budget }));
    let mut tally = Tally::default();
    for (make, budget) in makes.chain(fast).filter(|(make, _)| !make.one_transaction) {
        let explorer = Explorer::new(seed(), budget.with_effort());
        for round in 0..effort() as u64 {
            let of_thread = |n| below(n, seed().wrapping_mul(31) + round * THREADS + n);
            let workloads: Vec<_> = (0..THREADS).map(of_thread).collect();
            let name = format!("parallel, round {round} of seed {}", seed());
            let histories = record_parallel(make, &workloads);
            let histories = histories.unwrap_or_else(|e| panic!("{name} on {}: {e}", make.name));
            let shown = Workload { name, ops: Vec::new() };
            let explored = explorer.explore_histories(make, &shown, &histories);
            tally += explored.unwrap_or_else(|failure| panic!("{failure}"));
        }
    }
    // Bypasses the capture of `cargo test`.
    let _ = writeln!(std::io::stderr(), "parallel: {tally}");
}
