//! `extant-bench dontcache`: writes whose bytes must not stay in the cache, by policy.
//!
//! ```text
//!   a round, for each store and setting:
//!     each subject:  an empty volume ─► seq_write │ sync ─► opened again ─► rand_write │ sync
//!                                       └──── timed ────┘                 └──── timed ────┘
//!     reader_beside_writer: one writer, and one ordinary reader of another file, not in the cache
//! ```
//!
//! All subjects write to the same store with equal limits, and the time includes the sync.
//! Published figures are from other machines.

mod aims;
mod store;
mod subject;
mod work;

use std::path::PathBuf;

use anyhow::Result;
use clap::Args;
use serde_json::json;

use self::aims::conclude;
use self::store::{Simulated, Store};
use self::subject::{Limits, Peaks, Subject};
use self::work::{Job, Outcome};
use crate::report::{Key, Params, Report};
use crate::rig::{Scratch, is_root, load};

/// Where, how often and how much.
#[derive(Args, Clone, Debug)]
pub(crate) struct Plan {
    /// Directory for the store, on the disk to be measured
    #[arg(long, value_name = "DIR", default_value = ".")]
    scratch: PathBuf,
    /// Rounds, each with every setting and subject once
    #[arg(long, default_value_t = 3)]
    pub(crate) rounds: usize,
    /// MiB written in each run. An eighth of it, at least 64 MiB, may be dirty, and half of it is
    /// in the cache
    #[arg(long, default_value_t = 1024)]
    mib: u64,
    /// Only this store: file or simulated
    #[arg(long, value_name = "STORE")]
    store: Option<String>,
    /// Only settings with so many writers
    #[arg(long)]
    writers: Option<usize>,
    /// Only this: writes, plain_copy or reader_beside_writer
    #[arg(long, value_name = "CASE")]
    case: Option<String>,
    /// Fewer settings
    #[arg(skip)]
    few: bool,
}

impl Plan {
    /// A plan for `--quick`.
    pub(crate) fn quick(self) -> Plan {
        Plan { rounds: 1, mib: self.mib.min(160), few: true, ..self }
    }

    /// The plan of `extant-bench all`.
    pub(crate) fn standard() -> Plan {
        let scratch = ".".into();
        Plan { scratch, rounds: 3, mib: 1024, store: None, writers: None, case: None, few: false }
    }

    fn total(&self) -> u64 {
        self.mib << 20
    }

    fn limits(&self) -> Limits {
        // Small, or much of a run would end before any writer is throttled.
        let dirty = (self.total() / 8).max(64 << 20);
        Limits { cache: (self.total() / 2).max(dirty), dirty }
    }

    fn wants(&self, case: &str) -> bool {
        self.case.as_deref().is_none_or(|only| only == case)
    }

    fn jobs(&self) -> Vec<Job> {
        let mut jobs = Vec::new();
        if !self.wants("writes") {
            return jobs;
        }
        for writers in [1, 4, 32] {
            for call_bytes in [64 << 10, 1 << 20] {
                for shared_file in [false, true] {
                    let alone = writers == 1 && shared_file;
                    // One setting of each kind.
                    let left_out = self.few && (call_bytes == 1 << 20) != (writers != 32);
                    let other = self.writers.is_some_and(|only| only != writers);
                    if !(alone || left_out || other || self.few && writers == 32 && shared_file) {
                        let total = self.total();
                        jobs.push(Job { random: false, writers, call_bytes, shared_file, total });
                    }
                }
            }
        }
        jobs
    }
}

/// Subject, its megabytes per second, and its p99 and p99.9 in µs.
type Published = (&'static str, Option<f64>, Option<f64>, Option<f64>);
/// Writers, bytes per call, and the figures of the published series, in which each writer has its
/// own file.
const PUBLISHED: [(usize, usize, [Published; 3]); 3] = [
    (
        1,
        1 << 20,
        [
            ("kernel before", Some(298.0), Some(135_266.0), Some(8_925_479.0)),
            ("series v7", Some(897.0), Some(23_986.0), Some(28_443.0)),
            ("its buffered", None, None, None),
        ],
    ),
    (
        4,
        1 << 20,
        [
            ("kernel before", Some(2529.0), Some(8553.0), Some(109_314.0)),
            ("series v7", Some(4532.0), Some(1002.0), Some(1057.0)),
            ("its buffered", Some(4616.0), None, None),
        ],
    ),
    (
        32,
        64 << 10,
        [
            ("kernel before", Some(1548.0), Some(10_170.0), None),
            ("series v7", Some(3499.0), Some(602.0), None),
            ("its buffered", None, None, None),
        ],
    ),
];

const MIB: f64 = 1048576.0;

pub(crate) fn measure(plan: &Plan) -> Result<Report> {
    let scratch = Scratch::new(&plan.scratch, "dontcache")?;
    let mut report = Report::new("dontcache");
    conditions(plan, &mut report);
    let len = 9 * plan.total() / 4 + (128 << 20);
    let wanted = |name: &str| plan.store.as_deref().is_none_or(|only| only == name);
    let mut stores = Vec::new();
    if wanted("file") {
        stores.push(Store::file(scratch.join("store"), len)?);
    }
    if wanted("simulated") {
        stores.push(Store::simulated(len)?);
    }
    let mut bench = Bench { plan, scratch: &scratch, report, refused: Vec::new() };
    for _ in 0..plan.rounds {
        for store in &stores {
            for job in plan.jobs() {
                for subject in Subject::ALL {
                    bench.attempt(store, subject, |bench| bench.writes(store, subject, &job))?;
                }
            }
            let is_alone = plan.writers.is_none_or(|only| only == 1);
            if matches!(store, Store::File(_)) && is_alone && plan.wants("plain_copy") {
                for subject in [Subject::Buffered, Subject::PlainFile] {
                    bench.copies(store, subject)?;
                }
            }
            let calls = [64 << 10, 1 << 20].into_iter();
            for call_bytes in calls.filter(|_| plan.wants("reader_beside_writer")) {
                let total = plan.total();
                let job = Job { random: false, writers: 1, call_bytes, shared_file: false, total };
                for subject in Subject::ALL {
                    let skip = subject == Subject::Device || plan.few && call_bytes == 64 << 10;
                    if !skip {
                        bench
                            .attempt(store, subject, |bench| bench.beside(store, subject, &job))?;
                    }
                }
            }
        }
    }
    let mut report = bench.report;
    publish(&mut report);
    conclude(plan, &mut report);
    Ok(report)
}

fn conditions(plan: &Plan, report: &mut Report) {
    let limits = plan.limits();
    report.condition(format!(
        "{} MiB a run, synced inside the time of mb_per_s (10^6 bytes); page cache of {} MiB, dirty limit {} MiB, \
         don't-cache cap 64 MiB; {}",
        plan.mib,
        limits.cache >> 20,
        limits.dirty >> 20,
        load()
    ));
    report.condition(format!(
        "store=file: a file with all its blocks, opened with O_DIRECT; store=simulated: memory at {} MB/s and {} µs",
        Simulated::BANDWIDTH / 1_000_000,
        Simulated::LATENCY.as_micros()
    ));
    report.condition(
        "kernel: ext4 on a loop device with direct I/O on that file, its own max_bytes the same dirty limit (strict), \
         no limit to its cache; its peaks are of the whole machine; it cannot use the simulated store",
    );
    report.condition(
        "device: 4 threads of direct 1 MiB writes, whatever the setting; rand_write: each piece of a file that is \
         there, once; role=reader: 64 KiB reads; plain_copy: one whole file, written and synced, then read from the \
         device; plain-file: the same to the backing file by the kernel's cache",
    );
}

struct Bench<'a> {
    plan: &'a Plan,
    scratch: &'a Scratch,
    report: Report,
    refused: Vec<Subject>,
}

impl Bench<'_> {
    /// Runs `work` unless the subject cannot take part. A kernel without the feature is reported
    /// and skipped.
    fn attempt(
        &mut self,
        store: &Store,
        subject: Subject,
        work: impl FnOnce(&mut Self) -> Result<()>,
    ) -> Result<()> {
        if subject.is_kernel() {
            if matches!(store, Store::Simulated(_)) || self.refused.contains(&subject) {
                return Ok(());
            }
            let done = if is_root() { work(self) } else { Err(anyhow::anyhow!("not root")) };
            if let Err(error) = done {
                self.report.condition(format!("{} left out: {error:#}", subject.name()));
                self.refused.push(subject);
            }
            return Ok(());
        }
        work(self)
    }

    fn volume(&self, store: &Store, subject: Subject) -> Result<Box<dyn subject::Volume>> {
        subject.volume(store, self.plan.limits(), &self.scratch.join("mnt"))
    }

    /// `seq_write`, then `rand_write` over the same files.
    fn writes(&mut self, store: &Store, subject: Subject, job: &Job) -> Result<()> {
        store.format()?;
        for random in [false, true] {
            let job = Job { random, ..*job };
            let work = match subject {
                Subject::Device => {
                    Job { writers: 4, call_bytes: 1 << 20, shared_file: true, ..job }
                }
                _ => job,
            };
            let volume = self.volume(store, subject)?;
            let outcome = work::write(&*volume, &work)?;
            let peaks = volume.peaks();
            volume.close()?;
            let params = params(store, &job, None);
            let case = if random { "rand_write" } else { "seq_write" };
            let rate = job.total as f64 / outcome.seconds / 1e6;
            match subject {
                Subject::Device => {
                    let key = Key { case, subject: subject.name(), metric: "mb_per_s", params };
                    self.report.sample(&key, rate);
                }
                _ => self.samples(case, subject, params, rate, &outcome, peaks),
            }
        }
        Ok(())
    }

    /// Writes and syncs a file from start to end. Then a reader without cached data reads it.
    fn copies(&mut self, store: &Store, subject: Subject) -> Result<()> {
        let (total, call_bytes) = (self.plan.total(), 1 << 20);
        let job = Job { random: false, writers: 1, call_bytes, shared_file: false, total };
        store.format()?;
        let volume = self.volume(store, subject)?;
        let written = work::write(&*volume, &job)?.seconds;
        volume.close()?;
        let volume = self.volume(store, subject)?;
        let read = work::read(&*volume, &job)?;
        volume.close()?;
        for (direction, seconds) in [("write", written), ("read", read)] {
            let key = copy_key(subject, direction);
            self.report.sample(&key, total as f64 / seconds / 1e6);
        }
        Ok(())
    }

    fn beside(&mut self, store: &Store, subject: Subject, job: &Job) -> Result<()> {
        store.format()?;
        let volume = self.volume(store, Subject::Buffered)?;
        work::prepare_reader(&*volume, job.total)?;
        volume.close()?;
        let volume = self.volume(store, subject)?;
        let (written, read, bytes) = work::write_and_read(&*volume, job)?;
        let peaks = volume.peaks();
        volume.close()?;
        let case = "reader_beside_writer";
        let rate = job.total as f64 / written.seconds / 1e6;
        self.samples(case, subject, params(store, job, Some("writer")), rate, &written, peaks);
        let rate = bytes as f64 / read.seconds / 1e6;
        self.samples(case, subject, params(store, job, Some("reader")), rate, &read, None);
        Ok(())
    }

    fn samples(
        &mut self,
        case: &'static str,
        subject: Subject,
        params: Params,
        mb_per_s: f64,
        outcome: &Outcome,
        peaks: Option<Peaks>,
    ) {
        let mut figures = vec![
            ("mb_per_s", mb_per_s),
            ("p50_us", outcome.quantile(0.5) * 1e6),
            ("p99_us", outcome.quantile(0.99) * 1e6),
            ("p999_us", outcome.quantile(0.999) * 1e6),
        ];
        if let Some(peaks) = peaks {
            figures.push(("peak_dirty_mib", peaks.dirty as f64 / MIB));
            figures.push(("peak_cache_mib", peaks.cache as f64 / MIB));
        }
        for (metric, value) in figures {
            let key = Key { case, subject: subject.name(), metric, params: params.clone() };
            self.report.sample(&key, value);
        }
    }
}

fn copy_key(subject: Subject, direction: &'static str) -> Key {
    let params = Params::from([
        ("store", json!("file")),
        ("call_bytes", json!(1 << 20)),
        ("direction", json!(direction)),
    ]);
    Key { case: "plain_copy", subject: subject.name(), metric: "mb_per_s", params }
}

fn params(store: &Store, job: &Job, role: Option<&'static str>) -> Params {
    settings(store.name(), job.writers, job.call_bytes, job.shared_file, role)
}

fn settings(
    store: &str,
    writers: usize,
    call_bytes: usize,
    shared_file: bool,
    role: Option<&'static str>,
) -> Params {
    let mut params = Params::from([
        ("store", json!(store)),
        ("writers", json!(writers)),
        ("call_bytes", json!(call_bytes)),
        ("shared_file", json!(shared_file)),
    ]);
    if let Some(role) = role {
        params.insert("role", json!(role));
    }
    params
}

fn publish(report: &mut Report) {
    for (writers, call_bytes, subjects) in PUBLISHED {
        for (subject, rate, p99, p999) in subjects {
            for (metric, value) in [("mb_per_s", rate), ("p99_us", p99), ("p999_us", p999)] {
                if let Some(value) = value {
                    let params = settings("file", writers, call_bytes, false, None);
                    report.publish(Key { case: "seq_write", subject, metric, params }, value);
                }
            }
        }
    }
    for (subject, value) in [("kernel before", 1837.0), ("series v7", 213.0)] {
        let params = settings("file", 32, 64 << 10, false, None);
        let key = Key { case: "seq_write", subject, metric: "peak_dirty_mib", params };
        report.publish(key, value);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_tiny_run_gives_every_figure_of_extant() {
        let dir = tempfile::tempdir().unwrap();
        let plan = Plan {
            scratch: dir.path().into(),
            mib: 8,
            writers: Some(4),
            ..Plan::standard().quick()
        };
        let report = measure(&plan).unwrap();
        for job in plan.jobs() {
            for store in ["file", "simulated"] {
                let params = settings(store, job.writers, job.call_bytes, job.shared_file, None);
                let key = Key {
                    case: "rand_write",
                    subject: "extant-flusher",
                    metric: "p999_us",
                    params,
                };
                assert!(report.median(&key).is_some());
            }
        }
    }
}
