//! `extant-bench direct`: reads and writes past the caches, at depth 1 and 64.
//!
//! ```text
//!   device              a file on the disk, by io_uring          ┐
//!   extant-zero-copy    a file in a volume, memory lent          │ one disk, one ring of one depth,
//!   extant-bounce       the same, copied to chunks               │ the same places in the same order
//!   extant-buffered     the same, through the cache and out      │
//!   kernel-ext4, btrfs  a file on a loop mount of an image       ┘
//! ```
//!
//! All blocks are there and written before: no subject allocates but btrfs, which does so for every write. Nothing is
//! flushed inside the time; all is at the device when a call returns.

mod subject;
mod work;

use std::path::PathBuf;

use anyhow::Result;
use clap::Args;
use serde_json::json;

use crate::report::{Key, Params, Report};
use crate::rig::{self, Scratch};
use subject::{SUBJECTS, Store};
use work::{CASES, Work};

/// Where, how often and how much.
#[derive(Args, Clone, Debug)]
pub(crate) struct Plan {
    /// Directory for the images, on the disk to be measured
    #[arg(long, value_name = "DIR", default_value = ".")]
    scratch: PathBuf,
    /// Rounds, each with every subject once
    #[arg(long, default_value_t = 5)]
    rounds: usize,
    /// MiB of the file
    #[arg(long, default_value_t = 512)]
    file_mib: u64,
    /// MiB of a sample, at most
    #[arg(long, default_value_t = 128)]
    sample_mib: u64,
    /// Calls of a sample, at most
    #[arg(long, default_value_t = 16_384)]
    calls: u64,
    /// Only this subject, beside the device
    #[arg(long)]
    only: Option<String>,
}

impl Plan {
    /// A plan for `--quick`.
    pub(crate) fn quick(self) -> Plan {
        Plan { rounds: 1, file_mib: 64, sample_mib: 8, calls: 512, ..self }
    }

    /// The plan of `extant-bench all`.
    pub(crate) fn standard() -> Plan {
        let scratch = ".".into();
        Plan { scratch, rounds: 5, file_mib: 512, sample_mib: 128, calls: 16_384, only: None }
    }

    fn wants(&self, subject: &str) -> bool {
        subject == "device" || self.only.as_deref().is_none_or(|only| only == subject)
    }
}

const SIZES: [usize; 3] = [4 << 10, 64 << 10, 1 << 20];
const DEPTHS: [usize; 2] = [1, 64];

/// MiB/s of btrfs with 4 GiB of random writes, libaio, depth 64, 60 s: bytes of a call, unsafe zero copy, buffered
/// fallback, bounce.
const PUBLISHED: [(usize, f64, f64, f64); 2] =
    [(4 << 10, 35.1, 17.1, 33.8), (64 << 10, 522.0, 251.0, 492.0)];

pub(crate) fn measure(plan: &Plan) -> Result<Report> {
    let scratch = Scratch::new(&plan.scratch, "direct")?;
    let mut report = Report::new("direct");
    report.condition(rig::load());
    report.condition(format!(
        "a file of {} MiB, written before; up to {} MiB or {} calls a sample; nothing flushed inside the time",
        plan.file_mib, plan.sample_mib, plan.calls
    ));
    let mut stores = Vec::new();
    for subject in SUBJECTS.into_iter().filter(|subject| plan.wants(subject.name())) {
        match Store::prepare(&scratch, subject, plan.file_mib << 20) {
            Ok(store) => stores.push(store),
            Err(error) => report.condition(format!("{} left out: {error:#}", subject.name())),
        }
    }
    for round in 0..plan.rounds {
        for case in CASES {
            for call_bytes in SIZES {
                for depth in DEPTHS {
                    let calls = ((plan.sample_mib << 20) / call_bytes as u64).clamp(16, plan.calls);
                    let work = Work {
                        case,
                        call_bytes,
                        depth,
                        calls: calls as usize,
                        file_bytes: plan.file_mib << 20,
                        seed: round as u64,
                    };
                    for store in &stores {
                        let seconds = store.run(&work)?;
                        let bytes = (work.calls * call_bytes) as f64;
                        let key = |metric| key(&work, store.name(), metric);
                        report.sample(&key("mb_per_s"), bytes / seconds / 1e6);
                        report.sample(&key("iops"), work.calls as f64 / seconds);
                    }
                }
            }
        }
    }
    for store in stores {
        store.conclude(&mut report)?;
    }
    publish(&mut report);
    conclude(&mut report);
    Ok(report)
}

fn params(call_bytes: usize, depth: usize) -> Params {
    Params::from([("call_bytes", json!(call_bytes)), ("depth", json!(depth))])
}

fn key(work: &Work, subject: &'static str, metric: &'static str) -> Key {
    let params = params(work.call_bytes, work.depth);
    Key { case: work.case.name(), subject, metric, params }
}

fn publish(report: &mut Report) {
    for (call_bytes, zero_copy, buffered, bounce) in PUBLISHED {
        for (subject, figure) in
            [("btrfs zero copy", zero_copy), ("btrfs bounce", bounce), ("btrfs buffered", buffered)]
        {
            let params = params(call_bytes, 64);
            let key = Key { case: "randwrite", subject, metric: "mb_per_s", params };
            report.publish(key, figure * 1.048_576);
        }
    }
}

/// The ratios that were asked for.
fn conclude(report: &mut Report) {
    let mut findings = Vec::new();
    for case in CASES {
        for call_bytes in SIZES {
            for depth in DEPTHS {
                let median = |subject| {
                    let params = params(call_bytes, depth);
                    report.median(&Key { case: case.name(), subject, metric: "mb_per_s", params })
                };
                let mut ratio = |of: &'static str, to: &'static str| {
                    if let (Some(of_it), Some(to_it)) = (median(of), median(to)) {
                        let kib = call_bytes >> 10;
                        findings.push(format!(
                            "{} {kib} KiB depth {depth}: {of} is {:.2} of {to}",
                            case.name(),
                            of_it / to_it
                        ));
                    }
                };
                ratio("extant-zero-copy", "device");
                ratio("extant-bounce", "extant-zero-copy");
                ratio("extant-bounce", "extant-buffered");
            }
        }
    }
    findings.into_iter().for_each(|finding| report.finding(finding));
}
