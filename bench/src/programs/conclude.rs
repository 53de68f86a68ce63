//! The effect of the byte log on programs, and the published figures for it.

use super::fio::{DEEP_FDATASYNC, DEEP_FSYNC};
use super::key;
use super::subject::{Kind, Store};
use crate::report::{Key, Report, digits};

/// Adds the published figures: persistent memory of a virtual machine, both subjects by the kernel.
pub(super) fn publish(report: &mut Report) {
    let mut add = |case, metric, [before, after]: [f64; 2]| {
        let own = key(case, Kind::ByteLog.name(), metric, Store::Memory);
        report.publish(Key { subject: "fast commit", ..own.clone() }, before);
        report.publish(Key { subject: "byte log", ..own }, after);
    };
    // 15 workers; p99 of a write.
    add(DEEP_FSYNC.case, "ops_per_s", [2_441_000.0, 2_460_000.0]);
    add(DEEP_FSYNC.case, "p99_us", [9110.0, 7963.0]);
    add(DEEP_FDATASYNC.case, "ops_per_s", [201_600.0, 264_500.0]);
    add(DEEP_FDATASYNC.case, "p99_us", [137_400.0, 137_400.0]);
}

/// Published figures for databases, which are only ratios.
const PUBLISHED: &str = "published, byte log to fast commits of the kernel: MariaDB 1.0245 of the transactions, 0.70 of the \
     longest (269 to 189 ms); sysbench 1.0088, p99 1.018; SQLite 0.9914";

/// Ratios of the byte log to the others in memory, and of fast commits to the others on the disk,
/// one line for each figure.
pub(super) fn conclude(report: &mut Report) {
    for (store, own, others) in [
        (
            Store::Memory,
            Kind::ByteLog,
            &[Kind::FullCommit, Kind::FastCommit, Kind::KernelFastCommit, Kind::Fuse2fs][..],
        ),
        (Store::Disk, Kind::FastCommit, &[Kind::FullCommit, Kind::KernelFastCommit, Kind::Fuse2fs]),
    ] {
        for row in report.keys() {
            if row != key(row.case, own.name(), row.metric, store) {
                continue;
            }
            let Some(figure) = report.median(&row) else { continue };
            let ratio = |other: &Kind| {
                let theirs = report.median(&Key { subject: other.name(), ..row.clone() })?;
                Some(format!("{} of {}", digits(figure / theirs), other.name()))
            };
            let parts: Vec<String> = others.iter().filter_map(ratio).collect();
            if !parts.is_empty() {
                let (case, metric, parts) = (row.case, row.metric, parts.join(", "));
                let (store, own) = (store.name(), own.name());
                report.finding(format!("{store}: {own}'s {metric}, {case}: {parts}"));
            }
        }
    }
    report.finding(PUBLISHED);
}
