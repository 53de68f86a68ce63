//! The jobs of fio.

use anyhow::Result;

use super::{Plan, Samples};
use crate::load::fio::{Job, SEQ_READ, SEQ_WRITE, write_file};
use crate::mounted::Mounted;

pub(super) const CONDITION: &str = "fio on a file of 256 MiB that was written before; \
     randwrite_4k_fdatasync by pwrite through the kernel's cache, with a sync after each; d64: io_uring, direct, \
     64 requests on their way, a sync after each 16th; randread_4k and the 1 MiB streams direct, one request at a time";

/// Size of the file in bytes.
const FILE_BYTES: u64 = 256 << 20;

pub(super) const DEEP_FSYNC: Job = Job::pieces(
    "randwrite_4k_d64_fsync16",
    &[
        "--rw=randwrite",
        "--bs=4k",
        "--fsync=16",
        "--direct=1",
        "--ioengine=io_uring",
        "--iodepth=64",
    ],
);

/// The job that shows the cost of syncs best.
pub(super) const DEEP_FDATASYNC: Job = Job::pieces(
    "randwrite_4k_d64_fdatasync16",
    &[
        "--rw=randwrite",
        "--bs=4k",
        "--fdatasync=16",
        "--direct=1",
        "--ioengine=io_uring",
        "--iodepth=64",
    ],
);

pub(super) const JOBS: [Job; 6] = [
    Job::pieces("randwrite_4k_fdatasync", &["--rw=randwrite", "--bs=4k", "--fdatasync=1"]),
    DEEP_FSYNC,
    DEEP_FDATASYNC,
    Job::pieces("randread_4k", &["--rw=randread", "--bs=4k", "--direct=1"]),
    SEQ_WRITE,
    SEQ_READ,
];

pub(super) fn run(plan: &Plan, on: &Mounted, samples: &mut Samples<'_>) -> Result<()> {
    if !JOBS.iter().any(|job| plan.wants(job.case)) {
        return Ok(());
    }
    let path = on.join("fio");
    write_file(&path, FILE_BYTES)?;
    for job in JOBS.into_iter().filter(|job| plan.wants(job.case)) {
        for (metric, value) in job.run(&path, FILE_BYTES, plan.millis)? {
            samples.add(job.case, metric, value);
        }
    }
    Ok(())
}
