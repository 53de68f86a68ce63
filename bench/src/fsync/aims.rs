//! Goals of the byte log, how far the figures of a run reach them, and figures that others
//! published.

use super::store::Price;
use super::subject::Subject;
use super::work::Case;
use super::{Plan, THREADS, key};
use crate::report::{Key, Report, digits};

/// One goal: a ratio of a figure of the byte log to another subject's.
struct Aim {
    metric: &'static str,
    against: Subject,
    price: Price,
    threads: fn(usize) -> bool,
    case: fn(Case) -> bool,
    bound: f64,
}

const fn creates(case: Case) -> bool {
    matches!(case, Case::CreateUnlink(_))
}

const AIMS: [Aim; 9] = [
    Aim {
        metric: "p99_us",
        against: Subject::FastCommit,
        price: Price::Disk,
        threads: |_| true,
        case: |case| matches!(case, Case::CreateUnlink(32)),
        bound: 0.15,
    },
    Aim {
        metric: "p99_us",
        against: Subject::FastCommit,
        price: Price::Disk,
        threads: |_| true,
        case: creates,
        bound: 0.5,
    },
    Aim {
        metric: "ops_per_s",
        against: Subject::FastCommit,
        price: Price::Disk,
        threads: |_| true,
        case: |_| true,
        bound: 1.0,
    },
    Aim {
        metric: "ops_per_s",
        against: Subject::FastCommit,
        price: Price::Disk,
        threads: |_| true,
        case: |case| case == Case::RandWrite { data_only: true },
        bound: 1.3,
    },
    Aim {
        metric: "p99_us",
        against: Subject::FastCommit,
        price: Price::None,
        threads: |_| true,
        case: creates,
        bound: 0.7,
    },
    Aim {
        metric: "ops_per_s",
        against: Subject::FastCommit,
        price: Price::None,
        threads: |_| true,
        case: |_| true,
        bound: 1.0,
    },
    Aim {
        metric: "ops_per_s",
        against: Subject::KernelFastCommit,
        price: Price::None,
        threads: |threads| threads == 1,
        case: creates,
        bound: 5.0,
    },
    Aim {
        metric: "ops_per_s",
        against: Subject::KernelFastCommit,
        price: Price::None,
        threads: |threads| threads == 16,
        case: creates,
        bound: 3.0,
    },
    Aim {
        metric: "p99_us",
        against: Subject::KernelFastCommit,
        price: Price::None,
        threads: |_| true,
        case: creates,
        bound: 0.2,
    },
];

/// Reports how many figures reach each goal, and the worst one.
pub(crate) fn conclude(plan: &Plan, report: &mut Report) {
    for aim in &AIMS {
        let more = aim.metric == "ops_per_s";
        let mut ratios: Vec<(f64, String)> = Vec::new();
        for case in Case::all().filter(|case| plan.wants(*case) && (aim.case)(*case)) {
            for threads in THREADS.into_iter().filter(|threads| (aim.threads)(*threads)) {
                let own = key(case, Subject::ByteLog, aim.metric, aim.price, threads);
                let other = key(case, aim.against, aim.metric, aim.price, threads);
                if let (Some(own), Some(other)) = (report.median(&own), report.median(&other)) {
                    ratios.push((own / other, format!("{}, {threads} threads", case.name())));
                }
            }
        }
        let reaches = |ratio: f64| if more { ratio >= aim.bound } else { ratio <= aim.bound };
        let reached = ratios.iter().filter(|(ratio, _)| reaches(*ratio)).count();
        let order = |a: &&(f64, String), b: &&(f64, String)| a.0.total_cmp(&b.0);
        let worst = if more { ratios.iter().min_by(order) } else { ratios.iter().max_by(order) };
        if let Some((ratio, at)) = worst {
            report.finding(format!(
                "{}: byte log's {} to {}'s at {} {} in {reached} of {}; worst {} ({at})",
                aim.price.name(),
                aim.metric,
                aim.against.name(),
                if more { "least" } else { "most" },
                digits(aim.bound),
                ratios.len(),
                digits(*ratio),
            ));
        }
    }
}

/// Adds the published figures: 15 workers on a virtual machine's persistent memory.
pub(crate) fn publish(report: &mut Report) {
    // Case, operations per second before and after, p99 in µs before and after.
    let published: [(usize, [f64; 4]); 5] = [
        (2, [11_000.0, 10_900.0, 1876.0, 963.0]),
        (4, [14_600.0, 14_600.0, 2933.0, 1548.0]),
        (8, [21_400.0, 21_600.0, 3654.0, 1679.0]),
        (16, [34_100.0, 35_500.0, 4178.0, 1516.0]),
        (32, [52_800.0, 56_300.0, 12_648.0, 1860.0]),
    ];
    for (each, [ops, ops_after, p99, p99_after]) in published {
        let case = Case::CreateUnlink(each);
        let mut add = |subject, metric, value| {
            let own = key(case, Subject::ByteLog, metric, Price::Disk, 16);
            report.publish(Key { subject, ..own }, value);
        };
        add("fast commit, 15 workers", "ops_per_s", ops);
        add("byte log, 15 workers", "ops_per_s", ops_after);
        add("fast commit, 15 workers", "p99_us", p99);
        add("byte log, 15 workers", "p99_us", p99_after);
    }
}
