//! `extant-bench direct`: reads and writes past the page cache with and without copies, and through
//! it.
//!
//! ```text
//!   for each subject a backing file, all blocks allocated, opened with O_DIRECT ─► an empty volume
//!     ─► one file, written
//!   for each setting, rounds: every subject for some time, each round another one first
//!     writes replace existing bytes, and the time includes a sync
//! ```
//!
//! The caller uses its memory as programs do: before a write it changes one byte in each cache
//! line, and after a read it reads one. Otherwise a device that is emulated on another processor
//! would find the bytes of the last transfer in its own caches.

mod aims;
mod lane;
mod subject;
mod work;

use std::path::PathBuf;
use std::time::Duration;

use anyhow::Result;
use clap::Args;
use serde_json::json;

use self::subject::Subject;
use self::work::{Case, Outcome, Setting};
use crate::backing;
use crate::report::{Key, Params, Report};
use crate::rig::{Scratch, chosen, is_root, load, sync_filesystem};

/// What is done, where, and how long.
#[derive(Args, Clone, Debug)]
pub(crate) struct Plan {
    /// Directory for the backing file, on the disk to be measured
    #[arg(long, value_name = "DIR", default_value = ".")]
    scratch: PathBuf,
    /// Rounds, each with every setting and subject once
    #[arg(long, default_value_t = 3)]
    pub(crate) rounds: usize,
    /// Milliseconds for each figure
    #[arg(long, default_value_t = 400)]
    millis: u64,
    /// MiB of the file that is read and written
    #[arg(long, default_value_t = 256)]
    mib: u64,
    /// Do not touch the memory between transfers: write the same bytes again, and do not inspect
    /// data that was read
    #[arg(long)]
    untouched: bool,
    /// Only transfers of so many bytes; may be repeated
    #[arg(long)]
    call_bytes: Vec<usize>,
    /// Only so many transfers at a time; may be repeated
    #[arg(long)]
    depth: Vec<usize>,
    /// Only these cases, by name; may be repeated
    #[arg(long)]
    case: Vec<String>,
    /// Only these subjects, by name; may be repeated
    #[arg(long)]
    only: Vec<String>,
}

/// Size of a transfer in bytes.
const SIZES: [usize; 3] = [4 << 10, 64 << 10, 1 << 20];
/// Time until a disk has recovered from many writes.
const SETTLE: Duration = Duration::from_secs(2);
/// Transfers in flight.
const DEPTHS: [usize; 2] = [1, 64];

impl Plan {
    /// A plan for `--quick`.
    pub(crate) fn quick(self) -> Plan {
        Plan { rounds: 1, millis: self.millis.min(40), mib: self.mib.min(128), ..self }
    }

    /// The plan of `extant-bench all`.
    pub(crate) fn standard() -> Plan {
        let (call_bytes, depth, case, only) = Default::default();
        Plan {
            scratch: ".".into(),
            rounds: 3,
            millis: 400,
            mib: 256,
            untouched: false,
            call_bytes,
            depth,
            case,
            only,
        }
    }

    /// The settings of a run.
    fn settings(&self) -> Vec<Setting> {
        fn wants<T: PartialEq>(only: &[T], one: &T) -> bool {
            only.is_empty() || only.contains(one)
        }
        let mut settings = Vec::new();
        for case in Case::ALL.into_iter().filter(|case| wants(&self.case, &case.name().into())) {
            for call_bytes in SIZES.into_iter().filter(|bytes| wants(&self.call_bytes, bytes)) {
                for depth in DEPTHS.into_iter().filter(|depth| wants(&self.depth, depth)) {
                    settings.push(Setting { case, call_bytes, depth, touched: !self.untouched });
                }
            }
        }
        settings
    }

    fn subjects(&self) -> Result<Vec<Subject>> {
        chosen(&self.only, &Subject::ALL, Subject::name)
    }
}

pub(crate) fn measure(plan: &Plan) -> Result<Report> {
    let scratch = Scratch::new(&plan.scratch, "direct")?;
    let mut report = Report::new("direct");
    report.condition(format!(
        "a file of {} MiB on a volume of three times that and 256 MiB, each subject's on a file in {}, all blocks there, \
         opened with O_DIRECT; {} ms a figure, every subject in turn; {}",
        plan.mib,
        plan.scratch.display(),
        plan.millis,
        load()
    ));
    report.condition(
        "writes are of bytes that are there, and one sync at the end is inside the time; the kernel's volumes: a loop device \
         with direct I/O on that file, their file opened with O_DIRECT; depth 1: one blocking call after the other; depth \
         64: io_uring; extant-buffered: through the page cache and from there to the device before the next call, reads \
         leaving nothing in it",
    );
    report.condition(match plan.untouched {
        true => {
            "the same bytes are written again and again, and nobody looks at those that were read"
        }
        false => "a word in each 64 bytes is changed before a write, and looked at after a read",
    });
    let mut open = Vec::new();
    for subject in plan.subjects()?.into_iter().filter(|subject| is_root() || !subject.is_kernel())
    {
        let store = scratch.join(subject.name());
        backing::file(&store, 3 * (plan.mib << 20) + (256 << 20))?;
        match subject.open(&store, plan.mib << 20) {
            Ok(volume) => open.push((subject, volume)),
            Err(error) => eprintln!("extant-bench: {} left out: {error:#}", subject.name()),
        }
    }
    // Data of the backing files is still being written to the disk; mounted volumes were synced
    // separately.
    sync_filesystem(&scratch.join(""))?;
    std::thread::sleep(SETTLE);
    for setting in plan.settings() {
        let mut reached = vec![0; open.len()];
        for round in 0..plan.rounds {
            for nth in 0..open.len() {
                let n = (round + nth) % open.len();
                let (subject, volume) = &open[n];
                let span = plan.mib << 20;
                let outcome =
                    work::run(volume.lane(setting)?, setting, span, reached[n], plan.millis)?;
                reached[n] = outcome.reached;
                sample(&mut report, *subject, setting, outcome);
            }
        }
    }
    aims::publish(&mut report);
    aims::conclude(plan, &mut report);
    Ok(report)
}

fn sample(report: &mut Report, subject: Subject, setting: Setting, outcome: Outcome) {
    report.sample(&key(setting, subject.name(), "mb_per_s"), outcome.mb_per_s);
    report.sample(&key(setting, subject.name(), "iops"), outcome.iops);
}

fn key(setting: Setting, subject: &'static str, metric: &'static str) -> Key {
    let Setting { case, call_bytes, depth, .. } = setting;
    let params = Params::from([("call_bytes", json!(call_bytes)), ("depth", json!(depth))]);
    Key { case: case.name(), subject, metric, params }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_figure_of_the_subjects_without_a_kernel_is_there() {
        let dir = tempfile::tempdir().unwrap();
        let own = Subject::ALL.into_iter().filter(|subject| !subject.is_kernel());
        let plan = Plan {
            scratch: dir.path().into(),
            rounds: 1,
            millis: 10,
            mib: 16,
            only: own.clone().map(|subject| subject.name().to_string()).collect(),
            ..Plan::standard()
        };
        let report = measure(&plan).unwrap();
        for setting in plan.settings() {
            for subject in own.clone() {
                for metric in ["mb_per_s", "iops"] {
                    let figure = report.median(&key(setting, subject.name(), metric));
                    let found = figure.is_some_and(|figure| figure > 0.0);
                    assert!(found, "{setting:?} {subject:?} {metric}");
                }
            }
        }
    }
}
