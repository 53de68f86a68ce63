//! `extant-bench fsync`: the cost of making a small change durable.
//!
//! ```text
//!   a round, for each store, number of threads and subject: an empty volume
//!     create_unlink_fsyncN      create a file, remove it, repeat; every N-th is synced in between
//!     randwrite_f…sync16        4 KiB anywhere in an existing file; every 16th is synced
//!     sqlite_txn                a rollback journal created, written and synced, its directory
//!                               synced; two pages overwritten and synced; the journal removed
//!     chmod_fsync               the mode of a file, synced: the smallest possible change
//! ```
//!
//! Stores are in memory, so that the figures show the subject and not a disk: a file in a tmpfs,
//! which the kernel uses through a loop device; and the same file with the simulated cost of a
//! virtual disk, which is not possible for the kernel.

mod aims;
mod store;
mod subject;
mod work;

use std::path::PathBuf;

use anyhow::{Result, bail};
use clap::Args;
use serde_json::json;

use self::store::Price;
use self::subject::{Subject, Volume, open};
use self::work::{Case, Outcome};
use crate::report::{Key, Params, Report};
use crate::rig::{Scratch, chosen, is_root, load};

/// What is done, where, and how long.
#[derive(Args, Clone, Debug)]
pub(crate) struct Plan {
    /// Directory in memory (a tmpfs) for the volumes
    #[arg(long, value_name = "DIR", default_value = "/dev/shm")]
    scratch: PathBuf,
    /// Rounds, each with every setting and subject once
    #[arg(long, default_value_t = 3)]
    pub(crate) rounds: usize,
    /// Milliseconds for each figure
    #[arg(long, default_value_t = 700)]
    millis: u64,
    /// Only this store: tmpfs or simulated
    #[arg(long, value_name = "STORE")]
    store: Option<String>,
    /// Only settings with so many threads; may be repeated
    #[arg(long)]
    threads: Vec<usize>,
    /// Only these cases, by name; may be repeated
    #[arg(long)]
    case: Vec<String>,
    /// Only these subjects, by name; may be repeated
    #[arg(long)]
    only: Vec<String>,
}

impl Plan {
    /// A plan for `--quick`.
    pub(crate) fn quick(self) -> Plan {
        Plan { rounds: 1, millis: self.millis.min(60), ..self }
    }

    /// The plan of `extant-bench all`.
    pub(crate) fn standard() -> Plan {
        let (threads, case, only) = Default::default();
        Plan {
            scratch: "/dev/shm".into(),
            rounds: 3,
            millis: 700,
            store: None,
            threads,
            case,
            only,
        }
    }

    fn wants_threads(&self, threads: usize) -> bool {
        self.threads.is_empty() || self.threads.contains(&threads)
    }

    fn wants(&self, case: Case) -> bool {
        self.case.is_empty() || self.case.iter().any(|name| name == case.name())
    }

    fn subjects(&self) -> Result<Vec<Subject>> {
        chosen(&self.only, &Subject::ALL, Subject::name)
    }

    fn prices(&self) -> Result<Vec<Price>> {
        match self.store.as_deref() {
            None => Ok(vec![Price::None, Price::Disk]),
            Some("tmpfs") => Ok(vec![Price::None]),
            Some("simulated") => Ok(vec![Price::Disk]),
            Some(other) => bail!("--store takes tmpfs or simulated, not {other}"),
        }
    }
}

/// Threads of the settings.
const THREADS: [usize; 3] = [1, 4, 16];

pub(crate) fn measure(plan: &Plan) -> Result<Report> {
    let scratch = Scratch::new(&plan.scratch, "fsync")?;
    let mut report = Report::new("fsync");
    report.condition(format!(
        "volumes of 512 MiB in {}, 4 KiB blocks; {} ms a figure; {}",
        plan.scratch.display(),
        plan.millis,
        load()
    ));
    report.condition(
        "store=tmpfs: a file there, the kernel's by a loop device on it; store=simulated: such a file at 1 GB/s and 20 us a \
         flush, the byte log's ring mapped and written back by cache line at no other price; ops: a create and an unlink \
         together, a 4 KiB write, a transaction, a chmod; bytes and flushes of the device, for each sync",
    );
    let mut left_out = Vec::new();
    for _ in 0..plan.rounds {
        for price in plan.prices()? {
            for threads in THREADS.into_iter().filter(|n| plan.wants_threads(*n)) {
                for subject in plan.subjects()? {
                    let able = !subject.is_kernel() || (is_root() && price == Price::None);
                    if !able || left_out.contains(&subject) {
                        continue;
                    }
                    match open(subject, &scratch, price) {
                        Ok(volume) => run(plan, &*volume, subject, price, threads, &mut report)?,
                        Err(error) => {
                            eprintln!("extant-bench: {} left out: {error:#}", subject.name());
                            left_out.push(subject);
                        }
                    }
                }
            }
        }
    }
    aims::publish(&mut report);
    aims::conclude(plan, &mut report);
    Ok(report)
}

/// Runs all cases on one volume, one after the other.
fn run(
    plan: &Plan,
    volume: &dyn Volume,
    subject: Subject,
    price: Price,
    threads: usize,
    report: &mut Report,
) -> Result<()> {
    for case in Case::all().filter(|case| plan.wants(*case)) {
        let outcome = work::run(volume, case, threads, plan.millis)?;
        let mut sample = |metric, value: Option<f64>| {
            if let Some(value) = value {
                report.sample(&key(case, subject, metric, price, threads), value);
            }
        };
        let Outcome { ops_per_s, p50_us, p99_us, bytes_per_fsync, flushes_per_fsync } = outcome;
        sample("ops_per_s", Some(ops_per_s));
        sample("p50_us", Some(p50_us));
        sample("p99_us", Some(p99_us));
        sample("bytes_per_fsync", bytes_per_fsync);
        sample("flushes_per_fsync", flushes_per_fsync);
    }
    Ok(())
}

fn key(case: Case, subject: Subject, metric: &'static str, price: Price, threads: usize) -> Key {
    let params = Params::from([("store", json!(price.name())), ("threads", json!(threads))]);
    Key { case: case.name(), subject: subject.name(), metric, params }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_figure_of_the_subjects_without_a_kernel_is_there() {
        let names = |names: &[&str]| names.iter().map(|name| (*name).to_string()).collect();
        let plan = Plan {
            rounds: 1,
            millis: 20,
            threads: vec![1],
            case: names(&[
                "create_unlink_fsync2",
                "randwrite_fsync16",
                "sqlite_txn",
                "chmod_fsync",
            ]),
            only: names(&["extant-full-commit", "extant-fast-commit", "extant-byte-log"]),
            ..Plan::standard()
        };
        let report = measure(&plan).unwrap();
        for case in Case::all().filter(|case| plan.wants(*case)) {
            for subject in plan.subjects().unwrap() {
                for price in plan.prices().unwrap() {
                    for metric in ["ops_per_s", "p50_us", "p99_us", "bytes_per_fsync"] {
                        let figure = report.median(&key(case, subject, metric, price, 1));
                        assert!(
                            figure.is_some_and(|figure| figure > 0.0),
                            "{case:?} {subject:?} {metric}"
                        );
                    }
                }
            }
        }
        let flushes = |subject| {
            report.median(&key(Case::Chmod, subject, "flushes_per_fsync", Price::None, 1)).unwrap()
        };
        assert!(flushes(Subject::ByteLog) < 0.5 && flushes(Subject::FullCommit) > 1.5);
    }
}
