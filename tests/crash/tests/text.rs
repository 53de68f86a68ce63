//! The generated workloads outside the repository: every sequence of one core operation with its
//! prerequisites and a persistence call.

use extant_crash_tests::explorer::{Budget, Depth, Explorer};
use extant_crash_tests::group::{explore_all, seed};
use extant_crash_tests::make::{MAKES, Make};
use extant_crash_tests::parse;
use extant_crash_tests::workload::Workload;
use extant_testkit::damaged::shared_dir;
use extant_testkit::require;

fn workloads(name: &str) -> Option<Vec<Workload>> {
    let path = shared_dir().join("data/crash-workloads").join(format!("{name}.txt"));
    let Ok(text) = std::fs::read_to_string(&path) else {
        println!("crash workloads: not present ({}): N/A", path.display());
        return None;
    };
    Some(parse::workloads(name, &text).unwrap_or_else(|e| panic!("{}: {e}", path.display())))
}

fn explore(name: &str, count: usize, makes: impl Fn(usize) -> Make) {
    require!(E2fsprogs);
    let Some(all) = workloads(name) else { return };
    assert_eq!(all.len(), count, "{name} has another number of workloads");
    let depth = Depth { exhaustive: 2, samples: 4, torn: 1 };
    let budget = Budget { depth, states: 24, cut_recoveries: (1, 1), e2fsck: 0, linux: 0 };
    let explorer = Explorer::new(seed(), budget.with_effort());
    let cases: Vec<_> = all.into_iter().enumerate().map(|(n, w)| (makes(n), w)).collect();
    explore_all(name, &explorer, &cases);
}

#[test]
fn one_operation_and_a_persistence_call() {
    explore("seq1", 435, |_| MAKES[0]);
}

#[test]
fn the_same_over_nested_directories() {
    explore("seq1-nested", 587, |n| MAKES[n % MAKES.len()]);
}
