//! Every operation alone, on every kind of volume, with a cut at every point.

use extant_crash_tests::alone::{SECOND_LEVEL_BEGINS, third_level, workloads, workloads_on};
use extant_crash_tests::explorer::{Budget, Depth, Explorer};
use extant_crash_tests::group::{each_alone, explore_all, seed};
use extant_crash_tests::make::{DEEP, MAKES, Make};
use extant_crash_tests::op::Op;
use extant_crash_tests::record::record;
use extant_crash_tests::view::View;
use extant_testkit::require;

/// Every subset of up to 3 unflushed writes, 8 samples of more, each with a torn variant.
const DEPTH: Depth = Depth { exhaustive: 3, samples: 8, torn: 1 };

#[test]
fn each_operation_is_whole_or_absent() {
    require!(E2fsprogs);
    let budget = Budget { depth: DEPTH, states: 60, cut_recoveries: (1, 4), e2fsck: 0, linux: 0 };
    let explorer = Explorer::new(seed(), budget.with_effort()).past_setup();
    let cases = each_alone(MAKES.iter().copied());
    explore_all("alone", &explorer, &cases);
}

#[test]
fn the_names_that_need_a_second_level_of_the_tree_get_it() {
    for make in MAKES.iter().filter(|make| make.block_bytes() == 1024) {
        for workload in workloads_on(make).iter().filter(|w| w.name.contains("second_level")) {
            let history = record(make, workload).expect("it runs");
            let blocks = |view: &View| view.node("/d").map_or(0, |d| d.attributes.size / 1024);
            let (setup, end) = (&history.views[3], history.views.last().expect("the last"));
            // A root of at most 124 entries, then one node more.
            assert!(blocks(setup) < 120, "{}: {SECOND_LEVEL_BEGINS}: {}", make.name, blocks(setup));
            assert!(blocks(end) > 126, "{}: {}", make.name, blocks(end));
            assert!(history.steps.iter().all(|step| step.refused.is_none()), "{}", make.name);
        }
    }
}

#[test]
fn a_map_changes_its_kind_where_that_is_cut() {
    let make = MAKES.iter().find(|make| make.block_bytes() == 4096).expect("a kind of volume");
    for workload in workloads().iter().filter(|w| w.name.contains("map_becomes")) {
        let history = record(make, workload).expect("it runs");
        assert!(history.steps.iter().all(|step| step.refused.is_none()), "{}", workload.name);
    }
}

#[test]
fn without_the_key_names_go_and_attributes_change_and_all_else_is_refused() {
    let make = Make::named("encrypt").expect("a kind of volume");
    for workload in workloads_on(&make).iter().filter(|w| w.name.contains("vault")) {
        let history = record(&make, workload).expect("it runs");
        let setup = history.steps.iter().position(|step| step.op == Op::Sync).expect("a sync");
        let refuses = workload.name.ends_with("vault_refuses");
        for step in &history.steps[setup + 1..] {
            let refused = step.refused.is_some();
            assert_eq!(refused, refuses && step.op != Op::Sync, "{}: {}", workload.name, step.op);
        }
    }
}

/// Each state contains 21,527 names, so few are examined.
#[test]
fn an_index_that_gets_its_third_level_is_whole_or_as_it_was() {
    require!(E2fsprogs);
    let depth = Depth { exhaustive: 2, samples: 3, torn: 1 };
    let budget = Budget { depth, states: 25, cut_recoveries: (1, 2), e2fsck: 1, linux: 0 };
    let explorer = Explorer::new(seed(), budget.with_effort()).past_setup();
    explore_all("third level", &explorer, &[(DEEP, third_level())]);
    let history = record(&DEEP, &third_level()).expect("it runs");
    assert!(history.steps.iter().all(|step| step.refused.is_none()));
    let sizes: Vec<u64> = history
        .views
        .iter()
        .filter_map(|view| Some(view.node("/d")?.attributes.size / 1024))
        .collect();
    // A leaf, a node and the root's old entries.
    assert_eq!(sizes[2] - sizes[1], 3, "{sizes:?}");
}
