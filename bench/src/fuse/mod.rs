//! `extant-bench fuse`: the same work of programs on mounts of equal volumes.
//!
//! ```text
//!   extant, extant-uring   the engine over /dev/fuse, over io_uring
//!   extant-fast-commit     the engine on a volume with fast commits; sqlite_commits only
//!   null-fuse              files in memory over the same transport: the limit
//!   fuse2fs                the engine of e2fsprogs over libfuse
//!   kernel-ext4            a loop mount
//!                   each in a process of its own, one mounted at a time, images in one directory
//! ```
//!
//! Names are created, looked up, listed and removed; the kernel's caches of them are dropped
//! between the steps. Content is 1 MiB streams, and 4 KiB at random offsets, direct and through the
//! kernel's cache, which is dropped before reads. Only `sqlite_commits` syncs within the measured
//! time.

mod subject;
mod work;

use std::path::PathBuf;

use anyhow::Result;
use clap::Args;

use crate::report::{Key, Params, Report, params_text};
use crate::rig::{self, Scratch};
use crate::serve::Idle;
use subject::Kind;

/// What is done, where, and how often.
#[derive(Args, Clone, Debug)]
pub(crate) struct Plan {
    /// Directory for the volumes, on the disk to be measured
    #[arg(long, value_name = "DIR", default_value = ".")]
    scratch: PathBuf,
    /// Rounds, each with every subject once
    #[arg(long, default_value_t = 3)]
    pub(crate) rounds: usize,
    /// Files made in one directory, and in the archive that is unpacked
    #[arg(long, default_value_t = 100_000)]
    files: usize,
    /// Size of the streamed file, MiB
    #[arg(long, default_value_t = 1024)]
    mib: u64,
    /// Transactions of SQLite
    #[arg(long, default_value_t = 2000)]
    commits: usize,
    /// What processors do between requests to the mounts that this bench serves
    #[arg(long, value_enum, default_value_t = Idle::Auto)]
    idle: Idle,
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
        Plan { rounds: 1, files: 3000, mib: 128, commits: 100, ..self }
    }

    /// The plan of `extant-bench all`.
    pub(crate) fn standard() -> Plan {
        Plan {
            scratch: ".".into(),
            rounds: 3,
            files: 100_000,
            mib: 1024,
            commits: 2000,
            idle: Idle::Auto,
            only: Vec::new(),
            case: Vec::new(),
        }
    }

    fn wants(&self, case: &str) -> bool {
        self.case.is_empty() || self.case.iter().any(|wanted| wanted == case)
    }
}

/// Receives the figures of one subject.
struct Samples<'a> {
    report: &'a mut Report,
    subject: &'static str,
}

impl Samples<'_> {
    fn add(&mut self, case: &'static str, metric: &'static str, params: Params, value: f64) {
        self.report.sample(&Key { case, subject: self.subject, metric, params }, value);
    }
}

pub(crate) fn measure(plan: &Plan) -> Result<Report> {
    let mut report = Report::new("fuse");
    report.condition(format!(
        "volumes with a journal in files of one directory; {} files, {} MiB streams; nothing synced inside the \
         time but by SQLite; {}",
        plan.files,
        plan.mib,
        rig::load()
    ));
    if !rig::is_root() {
        report.finding("not root: no mounts, nothing was measured");
        return Ok(report);
    }
    let scratch = Scratch::new(&plan.scratch, "fuse")?;
    let archive = scratch.join("tree.tar");
    work::make_archive(&archive, plan.files)?;
    let mut left_out: Vec<Kind> = Vec::new();
    for _ in 0..plan.rounds {
        for kind in Kind::ALL {
            if left_out.contains(&kind)
                || !plan.only.is_empty() && !plan.only.iter().any(|name| name == kind.name())
            {
                continue;
            }
            let samples = Samples { report: &mut report, subject: kind.name() };
            let done = subject::mount(kind, &scratch, plan)
                .and_then(|subject| work::run(kind, &subject, plan, &archive, samples));
            if let Err(error) = done {
                eprintln!("extant-bench: {} left out: {error:#}", kind.name());
                left_out.push(kind);
            }
        }
    }
    conclude(&mut report);
    Ok(report)
}

/// Reports ratios to the rivals and to the limit, one line for each figure.
fn conclude(report: &mut Report) {
    let rows = report.keys();
    for key in rows.into_iter().filter(|key| key.subject == "extant") {
        let Some(own) = report.median(&key) else { continue };
        let mut parts = Vec::new();
        for subject in ["fuse2fs", "null-fuse", "kernel-ext4"] {
            if let Some(theirs) = report.median(&Key { subject, ..key.clone() }) {
                parts.push(format!("{:.2} of {subject}", own / theirs));
            }
        }
        if !parts.is_empty() {
            let params = params_text(&key.params);
            report.finding(format!("{}, {params}: {}", key.case, parts.join(", ")));
        }
    }
}
