//! Programs that measure by themselves.
//!
//! ```text
//!   randread_4k_d16, randwrite_4k_d16   fio, io_uring, direct, 16 requests in flight
//!   read_1m, write_1m                   fio, direct, one after another
//!   randwrite_4k_fsync                  fio, through the kernel's cache, fsync after each write
//!   sysbench_fileio                     random reads and writes of several files, and syncs of all
//!   pgbench                             PostgreSQL with its data directory on the mount
//! ```

use std::fs;

use anyhow::Result;

use super::run::Run;
use crate::load::fio::{Job, SEQ_READ, SEQ_WRITE, write_file};
use crate::load::sysbench;
use crate::report::Params;

/// The job of fio that syncs.
pub(super) const FIO_SYNCED: Job =
    Job::pieces("randwrite_4k_fsync", &["--rw=randwrite", "--bs=4k", "--fsync=1"]);

const FIO: [Job; 5] = [
    Job::pieces(
        "randread_4k_d16",
        &["--rw=randread", "--bs=4k", "--direct=1", "--ioengine=io_uring", "--iodepth=16"],
    ),
    Job::pieces(
        "randwrite_4k_d16",
        &["--rw=randwrite", "--bs=4k", "--direct=1", "--ioengine=io_uring", "--iodepth=16"],
    ),
    SEQ_READ,
    SEQ_WRITE,
    FIO_SYNCED,
];

pub(super) const FIO_CASES: [&str; 5] =
    [FIO[0].case, FIO[1].case, FIO[2].case, FIO[3].case, FIO[4].case];

pub(super) fn fio(run: &mut Run<'_>) -> Result<()> {
    let path = run.join("fio");
    let bytes = (run.plan.mib / 4).max(4) << 20;
    write_file(&path, bytes)?;
    for job in FIO {
        if run.wants(job.case) {
            for (metric, value) in job.run(&path, bytes, run.plan.millis)? {
                run.add(job.case, metric, Params::new(), value);
            }
        }
    }
    Ok(fs::remove_file(&path)?)
}

pub(super) const SYSBENCH_CASE: &str = "sysbench_fileio";

pub(super) fn sysbench_files(run: &mut Run<'_>) -> Result<()> {
    for (metric, value) in sysbench::files(run.on, run.plan.seconds)? {
        run.add(SYSBENCH_CASE, metric, Params::new(), value);
    }
    Ok(())
}

pub(super) const PGBENCH_CASE: &str = "pgbench";

pub(super) fn pgbench(run: &mut Run<'_>) -> Result<()> {
    let Some(postgres) = &run.inputs.postgres else { return Ok(()) };
    let per_s = postgres.run(run.on, run.plan.seconds)?;
    run.add(PGBENCH_CASE, "ops_per_s", Params::new(), per_s);
    Ok(())
}
