//! Goals of direct I/O, how far the figures of a run reach them, and figures that others published.

use super::subject::Subject;
use super::work::{Case, Setting};
use super::{Plan, key};
use crate::report::{Report, digits};

/// One goal: a ratio of one subject to another.
struct Aim {
    own: Subject,
    against: Subject,
    setting: fn(Setting) -> bool,
    bound: f64,
    what: &'static str,
}

const AIMS: [Aim; 6] = [
    Aim {
        own: Subject::Bounce,
        against: Subject::ZeroCopy,
        setting: |setting| setting.call_bytes >= 64 << 10,
        bound: 0.97,
        what: "64 KiB and 1 MiB",
    },
    Aim {
        own: Subject::Bounce,
        against: Subject::ZeroCopy,
        setting: |setting| setting.call_bytes == 4 << 10,
        bound: 0.95,
        what: "4 KiB",
    },
    Aim {
        own: Subject::Bounce,
        against: Subject::Buffered,
        setting: |setting| setting.case.writes(),
        bound: 2.0,
        what: "writes",
    },
    Aim {
        own: Subject::ZeroCopy,
        against: Subject::Device,
        setting: |_| true,
        bound: 0.9,
        what: "all",
    },
    Aim {
        own: Subject::Checksummed,
        against: Subject::KernelBtrfsCsum,
        setting: |setting| setting.case == Case::RandWrite,
        bound: 3.0,
        what: "randwrite",
    },
    Aim {
        own: Subject::Checksummed,
        against: Subject::ZeroCopy,
        setting: |setting| !setting.case.writes(),
        bound: 0.9,
        what: "reads",
    },
];

/// Reports how many figures reach each goal, and the worst one.
pub(crate) fn conclude(plan: &Plan, report: &mut Report) {
    for aim in &AIMS {
        let mut ratios: Vec<(f64, Setting)> = Vec::new();
        for setting in plan.settings().into_iter().filter(|setting| (aim.setting)(*setting)) {
            let figure =
                |subject: Subject| report.median(&key(setting, subject.name(), "mb_per_s"));
            if let (Some(own), Some(other)) = (figure(aim.own), figure(aim.against)) {
                ratios.push((own / other, setting));
            }
        }
        let reached = ratios.iter().filter(|(ratio, _)| *ratio >= aim.bound).count();
        if let Some((ratio, at)) = ratios.iter().min_by(|a, b| a.0.total_cmp(&b.0)) {
            report.finding(format!(
                "{}: {} to {}'s mb_per_s at least {} in {reached} of {}; worst {} ({} of {} bytes, depth {})",
                aim.what,
                aim.own.name(),
                aim.against.name(),
                digits(aim.bound),
                ratios.len(),
                digits(*ratio),
                at.case.name(),
                at.call_bytes,
                at.depth,
            ));
        }
    }
}

/// Adds the published figures: btrfs, random writes, depth 64, MiB/s converted to 10^6 bytes.
pub(crate) fn publish(report: &mut Report) {
    for (call_bytes, [zero_copy, buffered, bounce]) in
        [(4 << 10, [35.1, 17.1, 33.8]), (64 << 10, [522.0, 251.0, 492.0])]
    {
        let setting = Setting { case: Case::RandWrite, call_bytes, depth: 64, touched: true };
        let mut add = |subject, mib: f64| {
            report.publish(key(setting, subject, "mb_per_s"), mib * 1.048576);
        };
        add("btrfs, zero copy", zero_copy);
        add("btrfs, buffered", buffered);
        add("btrfs, bounce", bounce);
    }
}
