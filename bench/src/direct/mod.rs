//! `extant-bench direct`: reads and writes past the page cache, with copies, without, and through it.
//!
//! ```text
//!   one backing file, all its blocks there, opened with O_DIRECT; a round, for each subject:
//!     an empty volume on it ─► one file, written once ─► each case, size and depth for some time
//!     writes are of bytes that are there, and are synced inside the time
//! ```

mod aims;
mod lane;
mod subject;
mod work;

use std::path::PathBuf;

use anyhow::{Result, bail};
use clap::Args;
use serde_json::json;

use self::subject::Subject;
use self::work::{Case, Outcome, Setting};
use crate::backing;
use crate::report::{Key, Params, Report};
use crate::rig::{Scratch, is_root, load};

/// What is done, where, and how long.
#[derive(Args, Clone, Debug)]
pub(crate) struct Plan {
    /// Directory for the backing file, on the disk to be measured
    #[arg(long, value_name = "DIR", default_value = ".")]
    scratch: PathBuf,
    /// Rounds, each with every setting and subject once
    #[arg(long, default_value_t = 3)]
    rounds: usize,
    /// Milliseconds for each figure
    #[arg(long, default_value_t = 400)]
    millis: u64,
    /// MiB of the file that is read and written
    #[arg(long, default_value_t = 256)]
    mib: u64,
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

/// Bytes of a transfer.
const SIZES: [usize; 3] = [4 << 10, 64 << 10, 1 << 20];
/// Transfers at a time.
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
                    settings.push(Setting { case, call_bytes, depth });
                }
            }
        }
        settings
    }

    fn subjects(&self) -> Result<Vec<Subject>> {
        if self.only.is_empty() {
            return Ok(Subject::ALL.to_vec());
        }
        let find = |name: &String| Subject::ALL.into_iter().find(|s| s.name() == name);
        match self.only.iter().map(find).collect() {
            Some(subjects) => Ok(subjects),
            None => bail!("--only takes one of {}", Subject::ALL.map(Subject::name).join(", ")),
        }
    }
}

pub(crate) fn measure(plan: &Plan) -> Result<Report> {
    let scratch = Scratch::new(&plan.scratch, "direct")?;
    let mut report = Report::new("direct");
    report.condition(format!(
        "a file of {} MiB on a volume of four times that and 512 MiB, on one file in {}, all blocks there, opened with \
         O_DIRECT; {} ms a figure; {}",
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
    let store = scratch.join("store");
    backing::file(&store, (plan.mib << 22) + (512 << 20))?;
    let mut left_out = Vec::new();
    for _ in 0..plan.rounds {
        for subject in plan.subjects()? {
            if left_out.contains(&subject) || subject.is_kernel() && !is_root() {
                continue;
            }
            match subject.open(&store, &scratch, plan.mib << 20) {
                Ok(volume) => {
                    for setting in plan.settings() {
                        let lane = volume.lane(setting)?;
                        let outcome = work::run(lane, setting, plan.mib << 20, plan.millis)?;
                        sample(&mut report, subject, setting, outcome);
                    }
                }
                Err(error) => {
                    eprintln!("extant-bench: {} left out: {error:#}", subject.name());
                    left_out.push(subject);
                }
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
    let Setting { case, call_bytes, depth } = setting;
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
