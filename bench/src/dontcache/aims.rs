//! Goals of the flusher, and how far the figures of a run reach them.

use extant::cache::DontCachePolicy;

use super::subject::Subject;
use super::work::Job;
use super::{Plan, copy_key, settings};
use crate::report::{Key, Report, digits};

/// One goal: a ratio of a figure of the flusher to another's figure, or a bound.
struct Aim {
    text: &'static str,
    metric: &'static str,
    against: Option<&'static str>,
    bound: f64,
    /// Whether a larger figure is better.
    more: bool,
}

const AIMS: [Aim; 6] = [
    Aim {
        text: "throughput to buffered's",
        metric: "mb_per_s",
        against: Some("extant-buffered"),
        bound: 0.95,
        more: true,
    },
    Aim {
        text: "throughput to the device's",
        metric: "mb_per_s",
        against: Some("device"),
        bound: 0.95,
        more: true,
    },
    Aim {
        text: "p50 to buffered's",
        metric: "p50_us",
        against: Some("extant-buffered"),
        bound: 1.0,
        more: false,
    },
    Aim {
        text: "p99.9 to buffered's",
        metric: "p999_us",
        against: Some("extant-buffered"),
        bound: 1.0,
        more: false,
    },
    Aim {
        text: "peak dirty MiB",
        metric: "peak_dirty_mib",
        against: None,
        bound: 64.0,
        more: false,
    },
    Aim {
        text: "peak cache MiB",
        metric: "peak_cache_mib",
        against: None,
        bound: 128.0,
        more: false,
    },
];

/// Reports how far every goal is met.
pub(super) fn conclude(plan: &Plan, report: &mut Report) {
    let own = Subject::Policy(DontCachePolicy::Flusher).name();
    let mut findings = Vec::new();
    for direction in ["write", "read"] {
        let of = |subject| report.median(&copy_key(subject, direction));
        if let (Some(own), Some(plain)) = (of(Subject::Buffered), of(Subject::PlainFile)) {
            findings.push(format!(
                "buffered {direction} of a whole file at {:.2} times the rate of the backing file itself",
                own / plain
            ));
        }
    }
    let jobs = plan.jobs();
    for store in ["file", "simulated"] {
        for case in ["seq_write", "rand_write"] {
            for aim in &AIMS {
                let found: Vec<(f64, &Job)> = jobs
                    .iter()
                    .filter_map(|job| {
                        let params =
                            settings(store, job.writers, job.call_bytes, job.shared_file, None);
                        let of = |subject| {
                            let (metric, params) = (aim.metric, params.clone());
                            report.median(&Key { case, subject, metric, params })
                        };
                        let base = aim.against.map_or(Some(1.0), of)?;
                        Some((of(own)? / base, job))
                    })
                    .collect();
                findings.extend(verdict(store, case, aim, &found));
            }
        }
        for call_bytes in [64 << 10, 1 << 20] {
            let of = |subject| {
                let params = settings(store, 1, call_bytes, false, Some("reader"));
                let (case, metric) = ("reader_beside_writer", "mb_per_s");
                report.median(&Key { case, subject, metric, params })
            };
            for (own, base) in [(own, "extant-buffered"), ("kernel-dontcache", "kernel-buffered")] {
                if let (Some(own_rate), Some(rate)) = (of(own), of(base)) {
                    findings.push(format!(
                        "{store}: a reader beside a writer of {} KiB by {own} has {:.2} times what it has beside {base}",
                        call_bytes >> 10,
                        own_rate / rate
                    ));
                }
            }
        }
    }
    for finding in findings {
        report.finding(finding);
    }
}

/// In how many settings a goal is met, and the worst of them.
fn verdict(store: &str, case: &str, aim: &Aim, found: &[(f64, &Job)]) -> Option<String> {
    let worse = |a: f64, b: f64| if aim.more { a < b } else { a > b };
    let mut worst = found.first()?;
    for one in found {
        if worse(one.0, worst.0) {
            worst = one;
        }
    }
    let holds = found.iter().filter(|(value, _)| !worse(*value, aim.bound)).count();
    let Job { writers, call_bytes, shared_file, .. } = worst.1;
    Some(format!(
        "{store}, {case}: flusher's {} at {} {} in {holds} of {} settings; worst {} with {writers} writers, {} KiB{}",
        aim.text,
        if aim.more { "least" } else { "most" },
        digits(aim.bound),
        found.len(),
        digits(worst.0),
        call_bytes >> 10,
        if *shared_file { ", one file" } else { "" },
    ))
}
