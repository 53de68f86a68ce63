//! `extant-bench fuse`: the same work of programs on mounts of equal volumes.
//!
//! ```text
//!   extant, extant-uring   the engine over /dev/fuse, over io_uring
//!   extant-fast-commit     the engine on a volume with fast commits; only what syncs
//!   null-fuse              files in memory over the same transport: the limit
//!   fuse2fs                the engine of e2fsprogs over libfuse
//!   kernel-ext4            a loop mount
//!                   each in a process of its own, one mounted at a time, images in one directory
//! ```
//!
//! Names are created, looked up, listed and removed; the kernel's caches of them are dropped
//! between the steps. Content is 1 MiB streams, and 4 KiB at random offsets, direct and through the
//! kernel's cache, which is dropped before reads. `run` lists the cases, and those that sync within
//! the measured time.

mod inputs;
mod mail;
mod programs;
mod run;
mod source;
mod subject;
mod work;

use std::path::PathBuf;

use anyhow::{Result, bail};
use clap::Args;

use crate::load::{postgres, sysbench};
use crate::report::{Key, Report, digits, is_speed, params_text, speed_ratio};
use crate::rig::{self, Scratch};
use crate::serve::Idle;
use inputs::Inputs;
use run::{GROUPS, Run};
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
    /// Archive (tar) of a C program's source, to be unpacked, built and cloned [default: one of
    /// FILES/200 modules, made here]
    #[arg(long, value_name = "TAR")]
    source: Option<PathBuf>,
    /// Size of the streamed file, MiB
    #[arg(long, default_value_t = 1024)]
    mib: u64,
    /// Transactions of SQLite
    #[arg(long, default_value_t = 2000)]
    commits: usize,
    /// Mail messages at the start, and transactions on them
    #[arg(long, default_value_t = 10_000)]
    messages: u64,
    /// Milliseconds for each figure of fio
    #[arg(long, default_value_t = 3000)]
    millis: u64,
    /// Seconds for each figure of sysbench and pgbench
    #[arg(long, default_value_t = 10)]
    seconds: u64,
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
    /// A plan for `--quick`: less work, and without the slow cases unless they are named.
    pub(crate) fn quick(self) -> Plan {
        let mut case = self.case;
        if case.is_empty() {
            case =
                run::cases().filter(|case| !run::SLOW.contains(case)).map(String::from).collect();
        }
        Plan {
            rounds: 1,
            files: 3000,
            mib: 128,
            commits: 100,
            messages: 200,
            millis: 100,
            seconds: 1,
            case,
            ..self
        }
    }

    /// The plan of `extant-bench all`.
    pub(crate) fn standard() -> Plan {
        Plan {
            scratch: ".".into(),
            rounds: 3,
            files: 100_000,
            source: None,
            mib: 1024,
            commits: 2000,
            messages: 10_000,
            millis: 3000,
            seconds: 10,
            idle: Idle::Auto,
            only: Vec::new(),
            case: Vec::new(),
        }
    }

    fn wants(&self, case: &str) -> bool {
        self.case.is_empty() || self.case.iter().any(|wanted| wanted == case)
    }
}

pub(crate) fn measure(plan: &Plan) -> Result<Report> {
    let mut report = Report::new("fuse");
    report.condition(format!(
        "volumes with a journal in files of one directory; {} files, {} MiB streams; fuse2fs keeps no journal, and \
         null-fuse nothing at all; synced inside the time only: {}; nothing synced in the others; {}",
        plan.files,
        plan.mib,
        run::SYNCED.join(", "),
        rig::load()
    ));
    report.condition(format!("{}; {}", sysbench::CONDITION, postgres::CONDITION));
    if !rig::is_root() {
        report.finding("not root: no mounts, nothing was measured");
        return Ok(report);
    }
    let cases: Vec<&str> = run::cases().collect();
    if let Some(unknown) = plan.case.iter().find(|case| !cases.contains(&case.as_str())) {
        bail!("there is no case {unknown}; --case takes one of {}", cases.join(", "));
    }
    let scratch = Scratch::new(&plan.scratch, "fuse")?;
    let inputs = Inputs::new(plan, &scratch, &mut report)?;
    let subjects = rig::chosen(&plan.only, &Kind::ALL, Kind::name)?;
    let mut left_out = LeftOut::default();
    for _ in 0..plan.rounds {
        for kind in subjects.iter().copied() {
            if left_out.has(kind, None) {
                continue;
            }
            match subject::mount(kind, &scratch, plan) {
                Ok(on) => {
                    let run = Run { on: &on, kind, plan, inputs: &inputs, report: &mut report };
                    run_groups(run, &mut left_out);
                }
                Err(error) => left_out.add(kind, None, &error, &mut report),
            }
        }
    }
    conclude(&mut report);
    Ok(report)
}

fn run_groups(mut run: Run<'_>, left_out: &mut LeftOut) {
    for group in &GROUPS {
        let first = group.cases.first().copied();
        if !left_out.has(run.kind, first)
            && let Err(error) = run.group(group)
        {
            left_out.add(run.kind, first, &error, run.report);
        }
    }
}

/// Subjects that failed, with the first case of the group in which they did, or `None` if that was
/// their mount.
#[derive(Default)]
struct LeftOut(Vec<(Kind, Option<&'static str>)>);

impl LeftOut {
    fn has(&self, kind: Kind, group: Option<&'static str>) -> bool {
        self.0.contains(&(kind, group))
    }

    fn add(
        &mut self,
        kind: Kind,
        group: Option<&'static str>,
        error: &anyhow::Error,
        report: &mut Report,
    ) {
        let of = group.map(|case| format!(", {case} and what follows it")).unwrap_or_default();
        report.left_out(format!("{}{of}, left out: {error:#}", kind.name()));
        self.0.push((kind, group));
    }
}

/// Reports how many times as fast extant is as the rivals and the limit, one line for each figure.
fn conclude(report: &mut Report) {
    let speeds = report.keys().into_iter().filter(|key| is_speed(key.metric));
    for key in
        speeds.filter(|key| [Kind::Extant, Kind::FastCommit].map(Kind::name).contains(&key.subject))
    {
        let Some(own) = report.median(&key) else { continue };
        let mut parts = Vec::new();
        for subject in [Kind::Fuse2fs, Kind::Null, Kind::Kernel].map(Kind::name) {
            if let Some(theirs) = report.median(&Key { subject, ..key.clone() }) {
                let ratio = speed_ratio(key.metric, own, theirs);
                parts.push(format!("{} of {subject}", digits(ratio)));
            }
        }
        if !parts.is_empty() {
            let of: Vec<String> = [key.case.to_string(), params_text(&key.params)]
                .into_iter()
                .filter(|text| !text.is_empty())
                .collect();
            report.finding(format!(
                "{}: speed of {}: {}",
                of.join(", "),
                key.subject,
                parts.join(", ")
            ));
        }
    }
}
