//! Files written past the page cache, mixed with buffered work: what was synced is there, of what was not each sector is
//! old, new or zero, and no block shows what it held before it came to the file.

use extant_crash_tests::buffered::direct_workload;
use extant_crash_tests::explorer::{Budget, Depth, Explorer};
use extant_crash_tests::group::{effort, explore_all, seed};
use extant_crash_tests::make::CACHED;
use extant_testkit::require;

const DEPTH: Depth = Depth { exhaustive: 2, samples: 6, torn: 1 };

#[test]
fn what_was_written_directly_and_synced_is_there_and_nothing_stale_is() {
    require!(E2fsprogs, Uml);
    let budget = Budget { depth: DEPTH, states: 60, cut_recoveries: (1, 4), e2fsck: 2, linux: 1 };
    let explorer = Explorer::new(seed(), budget.with_effort());
    let seeds = (0..2 * effort() as u64).map(|n| seed().wrapping_mul(2000).wrapping_add(n));
    let on = |make| seeds.clone().map(move |seed| (make, direct_workload(seed, 50)));
    let cases: Vec<_> = CACHED.iter().copied().flat_map(on).collect();
    explore_all("direct", &explorer, &cases);
}
