//! The cases, in groups, on one mount.
//!
//! ```text
//!   mount ─► group: its cases ─► the mount synced ─► next group ─► … ─► unmounted
//!              └── an error is reported; this group is left out on this subject from then on
//! ```

use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::sync::Barrier;
use std::time::Instant;

use anyhow::Result;
use serde_json::json;

use super::inputs::Inputs;
use super::subject::Kind;
use super::{Plan, mail, programs, source, work};
use crate::mounted::Mounted;
use crate::report::{Key, Params, Report};
use crate::rig;

/// Cases that run together.
pub(super) struct Group {
    /// Their names.
    pub(super) cases: &'static [&'static str],
    work: fn(&mut Run<'_>) -> Result<()>,
}

/// All of them, in order.
pub(super) const GROUPS: [Group; 10] = [
    Group { cases: &["create", "stat", "readdir", "unlink"], work: work::names },
    Group { cases: &TREE_CASES, work: work::tree },
    Group { cases: &source::CASES, work: source::source },
    Group { cases: &["stream_write", "stream_read"], work: work::streams },
    Group { cases: &["rand_read_4k", "rand_write_4k"], work: work::pages },
    Group { cases: &programs::FIO_CASES, work: programs::fio },
    Group { cases: &mail::CASES, work: mail::mail },
    Group { cases: &["sqlite_commits"], work: work::sqlite },
    Group { cases: &[programs::SYSBENCH_CASE], work: programs::sysbench_files },
    Group { cases: &[programs::PGBENCH_CASE], work: programs::pgbench },
];

/// Cases on the archive of small files.
pub(super) const TREE_CASES: [&str; 3] = ["untar", "git_status", "rm_r"];

/// All cases, in order.
pub(super) fn cases() -> impl Iterator<Item = &'static str> {
    GROUPS.iter().flat_map(|group| group.cases).copied()
}

/// Cases that a quick run leaves out.
pub(super) const SLOW: [&str; 3] =
    ["build_source", programs::SYSBENCH_CASE, programs::PGBENCH_CASE];

/// Cases that sync inside their time.
pub(super) const SYNCED: [&str; 5] = [
    programs::FIO_SYNCED.case,
    mail::CASES[1],
    "sqlite_commits",
    programs::SYSBENCH_CASE,
    programs::PGBENCH_CASE,
];

/// One subject at work.
pub(super) struct Run<'a> {
    /// Its mount.
    pub(super) on: &'a Mounted,
    pub(super) kind: Kind,
    pub(super) plan: &'a Plan,
    pub(super) inputs: &'a Inputs,
    pub(super) report: &'a mut Report,
}

impl Run<'_> {
    /// Whether a case is to be measured on this subject.
    pub(super) fn wants(&self, case: &str) -> bool {
        let applies = !self.kind.syncs_only() || SYNCED.contains(&case);
        applies && self.plan.wants(case) && self.inputs.has(case)
    }

    /// Adds a figure.
    pub(super) fn add(
        &mut self,
        case: &'static str,
        metric: &'static str,
        params: Params,
        value: f64,
    ) {
        let key = Key { case, subject: self.kind.name(), metric, params };
        self.report.sample(&key, value);
    }

    /// A path on the mount.
    pub(super) fn join(&self, name: &str) -> PathBuf {
        self.on.join(name)
    }

    /// Runs the wanted cases of a group. At its end nothing that they wrote is waiting in the
    /// kernel.
    pub(super) fn group(&mut self, group: &Group) -> Result<()> {
        if group.cases.iter().any(|case| self.wants(case)) {
            (group.work)(self)?;
            rig::sync_filesystem(&self.join("."))?;
        }
        Ok(())
    }
}

pub(super) fn threads(threads: usize) -> Params {
    Params::from([("threads", json!(threads))])
}

/// Seconds that a command takes.
pub(super) fn timed(command: &mut Command) -> Result<f64> {
    let start = Instant::now();
    rig::run(command.stdin(Stdio::null()))?;
    Ok(start.elapsed().as_secs_f64())
}

/// Unpacks an archive into an existing directory.
pub(super) fn unpack(archive: &Path, dir: &Path) -> Command {
    let mut tar = Command::new("tar");
    tar.arg("-xf").arg(archive).arg("-C").arg(dir);
    tar
}

/// Runs `work` in one thread for each part. Returns the seconds from the first start to the last
/// end.
pub(super) fn in_threads<T: Sync>(
    parts: &[T],
    work: impl Fn(&T) -> Result<()> + Sync,
) -> Result<f64> {
    let barrier = Barrier::new(parts.len());
    std::thread::scope(|scope| {
        let (barrier, work) = (&barrier, &work);
        let run = |part| {
            move || -> Result<(Instant, Instant)> {
                barrier.wait();
                let start = Instant::now();
                work(part)?;
                Ok((start, Instant::now()))
            }
        };
        let all: Vec<_> = parts.iter().map(|part| scope.spawn(run(part))).collect();
        let mut span: Option<(Instant, Instant)> = None;
        for thread in all {
            let (start, end) = thread.join().expect("a bench thread panicked")?;
            let so_far = span.unwrap_or((start, end));
            span = Some((so_far.0.min(start), so_far.1.max(end)));
        }
        Ok(span.map_or(0.0, |(start, end)| (end - start).as_secs_f64()))
    })
}
