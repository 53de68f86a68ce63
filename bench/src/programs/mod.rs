//! `extant-bench programs`: speed of databases and fio on a mount, by how its fsync becomes
//! durable.
//!
//! ```text
//!   a round, for each store and subject: an empty volume, mounted alone
//!     sqlite               one row per transaction, each made durable           python3's sqlite3
//!     oltp_…               sysbench on MariaDB, its data directory on the mount mariadbd, sysbench
//!     4 KiB, 1 MiB         reads, writes, writes that are synced                 fio
//!
//!   store    memory: the image in a tmpfs, where the byte log's ring is mapped
//!            disk: the image in a file on the disk
//! ```
//!
//! If this machine lacks a program, a finding reports that, and its cases are skipped.

mod conclude;
mod fio;
mod mariadb;
mod sqlite;
mod subject;

use std::path::PathBuf;

use anyhow::{Context, Result};
use clap::Args;
use serde_json::json;

use self::mariadb::Template;
use self::subject::{Kind, Store};
use crate::load;
use crate::mounted::Mounted;
use crate::report::{Key, Params, Report};
use crate::rig::{self, Scratch, chosen, is_root};

/// What is done, where, and how long.
#[derive(Args, Clone, Debug)]
pub(crate) struct Plan {
    /// Directory in memory (a tmpfs) for the volumes of the store `memory`
    #[arg(long, value_name = "DIR", default_value = "/dev/shm")]
    memory: PathBuf,
    /// Directory on the disk to be measured for the volumes of the store `disk`
    #[arg(long, value_name = "DIR", default_value = ".")]
    scratch: PathBuf,
    /// Rounds, each with every store and subject once
    #[arg(long, default_value_t = 1)]
    pub(crate) rounds: usize,
    /// Milliseconds for each figure of fio and SQLite
    #[arg(long, default_value_t = 3000)]
    millis: u64,
    /// Seconds for each figure of sysbench
    #[arg(long, default_value_t = 15)]
    sysbench_seconds: u64,
    /// Only this store
    #[arg(long, value_name = "STORE", value_enum)]
    store: Option<Store>,
    /// Only these subjects, by name; may be repeated
    #[arg(long, value_name = "SUBJECT")]
    only: Vec<String>,
    /// Only these cases, by name; may be repeated
    #[arg(long, value_name = "CASE")]
    case: Vec<String>,
}

impl Plan {
    /// A plan for `--quick`.
    pub(crate) fn quick(self) -> Plan {
        let mut case = self.case;
        if case.is_empty() {
            let few = ["sqlite_wal", "oltp_write_only", fio::DEEP_FDATASYNC.case];
            case = few.map(String::from).to_vec();
        }
        let store = self.store.or(Some(Store::Memory));
        let (millis, sysbench_seconds) = (self.millis.min(200), self.sysbench_seconds.min(1));
        Plan { rounds: 1, millis, sysbench_seconds, store, case, ..self }
    }

    /// The plan of `extant-bench all`.
    pub(crate) fn standard() -> Plan {
        Plan {
            memory: "/dev/shm".into(),
            scratch: ".".into(),
            rounds: 1,
            millis: 3000,
            sysbench_seconds: 15,
            store: None,
            only: Vec::new(),
            case: Vec::new(),
        }
    }

    fn wants(&self, case: &str) -> bool {
        self.case.is_empty() || self.case.iter().any(|wanted| wanted == case)
    }

    fn stores(&self) -> Vec<Store> {
        self.store.map_or_else(|| Store::ALL.to_vec(), |store| vec![store])
    }

    fn subjects(&self) -> Result<Vec<Kind>> {
        chosen(&self.only, &Kind::ALL, Kind::name)
    }
}

/// Receives the figures of one subject in one store.
struct Samples<'a> {
    report: &'a mut Report,
    subject: &'static str,
    store: Store,
}

impl Samples<'_> {
    fn add(&mut self, case: &'static str, metric: &'static str, value: f64) {
        self.report.sample(&key(case, self.subject, metric, self.store), value);
    }
}

fn key(case: &'static str, subject: &'static str, metric: &'static str, store: Store) -> Key {
    let params = Params::from([("store", json!(store.name()))]);
    Key { case, subject, metric, params }
}

/// The available programs, with what they need.
struct Programs {
    sqlite: bool,
    fio: bool,
    mariadb: Option<Template>,
}

impl Programs {
    fn find(plan: &Plan, scratch: &Scratch, report: &mut Report) -> Programs {
        let mut answers = |wanted: bool, name: &str, arguments: &[&str]| {
            let here = wanted && load::answers(name, arguments);
            if wanted && !here {
                report.left_out(format!("{name} is missing: its cases are left out"));
            }
            here
        };
        let wants = |cases: &[&'static str]| cases.iter().any(|case| plan.wants(case));
        let sqlite = wants(&sqlite::CASES);
        let sqlite = answers(sqlite, "python3", &["-c", "import sqlite3"]);
        let fio = fio::JOBS.iter().any(|job| plan.wants(job.case));
        let fio = answers(fio, "fio", &["--version"]);
        let oltp = wants(&mariadb::CASES);
        let mut mariadb = None;
        // Both are tried, so that each missing one is reported.
        if answers(oltp, "mariadbd", &["--version"]) & answers(oltp, "sysbench", &["--version"]) {
            match Template::new(scratch) {
                Ok(template) => mariadb = Some(template),
                Err(error) => report.left_out(format!("MariaDB is left out: {error:#}")),
            }
        }
        Programs { sqlite, fio, mariadb }
    }
}

pub(crate) fn measure(plan: &Plan) -> Result<Report> {
    let mut report = Report::new("programs");
    report.condition(format!(
        "volumes of {} MiB with a journal, 4 KiB blocks, mounted one at a time, in a file that has all its blocks; \
         store=memory: in {}; store=disk: in {}; {} ms a figure, sysbench {} s; {}",
        subject::VOLUME_BYTES >> 20,
        plan.memory.display(),
        plan.scratch.display(),
        plan.millis,
        plan.sysbench_seconds,
        rig::load()
    ));
    report.condition(format!(
        "the kernel's by a loop device on that file; extant and fuse2fs by /dev/fuse; fuse2fs keeps no journal; {}; {}; {}",
        sqlite::CONDITION,
        mariadb::CONDITION,
        fio::CONDITION
    ));
    if !is_root() {
        report.finding("not root: no mounts, nothing was measured");
        return Ok(report);
    }
    let memory = Scratch::new(&plan.memory, "programs")?;
    let disk = Scratch::new(&plan.scratch, "programs-disk")?;
    let programs = Programs::find(plan, &memory, &mut report);
    let mut left_out: Vec<(Kind, Store)> = Vec::new();
    for _ in 0..plan.rounds {
        for store in plan.stores() {
            let scratch = if store == Store::Memory { &memory } else { &disk };
            for kind in plan.subjects()? {
                if !kind.can_be_in(store) || left_out.contains(&(kind, store)) {
                    continue;
                }
                let samples = Samples { report: &mut report, subject: kind.name(), store };
                let done = subject::mount(kind, scratch)
                    .and_then(|subject| run(plan, &programs, &subject, samples));
                if let Err(error) = done {
                    let place = format!("{} in {}", kind.name(), store.name());
                    report.left_out(format!("{place} left out: {error:#}"));
                    left_out.push((kind, store));
                }
            }
        }
    }
    conclude::publish(&mut report);
    conclude::conclude(&mut report);
    Ok(report)
}

/// Runs all cases on one mount, one after the other. A failure does not prevent the other cases.
fn run(plan: &Plan, programs: &Programs, on: &Mounted, mut samples: Samples<'_>) -> Result<()> {
    let samples = &mut samples;
    let sqlite = match programs.sqlite {
        true => sqlite::run(plan, on, samples).context("SQLite"),
        false => Ok(()),
    };
    let mariadb = match &programs.mariadb {
        Some(template) => template.run(plan, on, samples).context("MariaDB"),
        None => Ok(()),
    };
    let fio = match programs.fio {
        true => fio::run(plan, on, samples).context("fio"),
        false => Ok(()),
    };
    sqlite.and(mariadb).and(fio)
}
