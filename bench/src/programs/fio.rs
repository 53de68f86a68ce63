//! fio: reads and writes of an existing file, with and without syncs.

use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};
use serde_json::Value;

use super::{Plan, Samples};
use crate::mounted::Mounted;
use crate::rig::run as run_command;

pub(super) const CONDITION: &str = "fio on a file of 256 MiB that was written before; \
     randwrite_4k_fdatasync by pwrite through the kernel's cache, with a sync after each; d64: io_uring, direct, \
     64 requests on their way, a sync after each 16th; randread_4k and the 1 MiB streams direct, one request at a time";

/// Size of the file in bytes.
const FILE_BYTES: usize = 256 << 20;

/// The job of fio.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Job {
    RandWriteFdatasync,
    DeepFsync,
    DeepFdatasync,
    RandRead,
    SeqWrite,
    SeqRead,
}

impl Job {
    pub(super) const ALL: [Job; 6] = [
        Job::RandWriteFdatasync,
        Job::DeepFsync,
        Job::DeepFdatasync,
        Job::RandRead,
        Job::SeqWrite,
        Job::SeqRead,
    ];

    /// The job that shows the cost of syncs best.
    pub(super) const SYNCED: Job = Job::DeepFdatasync;

    pub(super) const fn name(self) -> &'static str {
        match self {
            Job::RandWriteFdatasync => "randwrite_4k_fdatasync",
            Job::DeepFsync => "randwrite_4k_d64_fsync16",
            Job::DeepFdatasync => "randwrite_4k_d64_fdatasync16",
            Job::RandRead => "randread_4k",
            Job::SeqWrite => "write_1m",
            Job::SeqRead => "read_1m",
        }
    }

    fn arguments(self) -> &'static [&'static str] {
        match self {
            Job::RandWriteFdatasync => &["--rw=randwrite", "--bs=4k", "--fdatasync=1"],
            Job::DeepFsync => &[
                "--rw=randwrite",
                "--bs=4k",
                "--fsync=16",
                "--direct=1",
                "--ioengine=io_uring",
                "--iodepth=64",
            ],
            Job::DeepFdatasync => &[
                "--rw=randwrite",
                "--bs=4k",
                "--fdatasync=16",
                "--direct=1",
                "--ioengine=io_uring",
                "--iodepth=64",
            ],
            Job::RandRead => &["--rw=randread", "--bs=4k", "--direct=1"],
            Job::SeqWrite => &["--rw=write", "--bs=1M", "--direct=1"],
            Job::SeqRead => &["--rw=read", "--bs=1M", "--direct=1"],
        }
    }

    fn side(self) -> &'static str {
        match self {
            Job::RandRead | Job::SeqRead => "read",
            _ => "write",
        }
    }

    fn streams(self) -> bool {
        matches!(self, Job::SeqWrite | Job::SeqRead)
    }
}

pub(super) fn run(plan: &Plan, on: &Mounted, samples: &mut Samples<'_>) -> Result<()> {
    if !Job::ALL.iter().any(|job| plan.wants(job.name())) {
        return Ok(());
    }
    let path = on.join("fio");
    write(&path)?;
    for job in Job::ALL.into_iter().filter(|job| plan.wants(job.name())) {
        let mut fio = Command::new("fio");
        // The last `ioengine` counts: a job may name another one.
        fio.args(["--name=job", "--output-format=json", "--ioengine=psync", "--time_based"]);
        fio.arg(format!("--filename={}", path.display())).arg(format!("--size={FILE_BYTES}"));
        fio.arg(format!("--runtime={}ms", plan.millis)).args(job.arguments());
        let output = run_command(&mut fio).with_context(|| job.name())?;
        let figures = figures(&output, job.side()).context("fio's answer")?;
        if job.streams() {
            samples.add(job.name(), "mb_per_s", figures.bytes_per_s / 1e6);
        } else {
            samples.add(job.name(), "ops_per_s", figures.per_s);
        }
        samples.add(job.name(), "p99_us", figures.p99_us);
        if let Some(value) = figures.sync_p99_us {
            samples.add(job.name(), "sync_p99_us", value);
        }
    }
    Ok(())
}

fn write(path: &Path) -> Result<()> {
    let mut file = File::create(path)?;
    let bytes = vec![0x5a; 1 << 20];
    for _ in 0..FILE_BYTES / bytes.len() {
        file.write_all(&bytes)?;
    }
    Ok(file.sync_all()?)
}

/// fio's figures for a job.
#[derive(Debug, PartialEq)]
struct Figures {
    per_s: f64,
    bytes_per_s: f64,
    /// For reads or writes, without the following sync.
    p99_us: f64,
    /// For the syncs, if there are any.
    sync_p99_us: Option<f64>,
}

fn figures(output: &str, side: &str) -> Result<Figures> {
    // Notes may precede the JSON.
    let start = output.find('{').context("no JSON")?;
    let output: Value = serde_json::from_str(&output[start..])?;
    let job = &output["jobs"][0];
    let number = |value: &Value| value.as_f64().context("a number is missing");
    let p99 = |times: &Value| times["percentile"]["99.000000"].as_f64().map(|ns| ns / 1000.0);
    Ok(Figures {
        per_s: number(&job[side]["iops"])?,
        bytes_per_s: number(&job[side]["bw_bytes"])?,
        p99_us: p99(&job[side]["clat_ns"]).context("no percentile")?,
        sync_p99_us: p99(&job["sync"]["lat_ns"]),
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_figures_of_fio_are_found() {
        let output = "fio: a note\n{\"jobs\": [{\"write\": {\"iops\": 250.5, \"bw_bytes\": 1026048, \"clat_ns\": \
                    {\"percentile\": {\"99.000000\": 8500}}}, \"sync\": {\"lat_ns\": {\"percentile\": {\"99.000000\": \
                    93000}}}}]}";
        let want = Figures {
            per_s: 250.5,
            bytes_per_s: 1_026_048.0,
            p99_us: 8.5,
            sync_p99_us: Some(93.0),
        };
        assert_eq!(figures(output, "write").unwrap(), want);
        assert!(figures(output, "read").is_err() && figures("fio: failed", "write").is_err());
    }
}
