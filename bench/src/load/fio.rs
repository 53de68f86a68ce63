//! fio: reads and writes of an existing file, with and without syncs.

use std::fs::File;
use std::io::Write;
use std::path::Path;
use std::process::Command;

use anyhow::{Context, Result};
use serde_json::Value;

use super::Figure;
use crate::rig::run;

/// A job of fio.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Job {
    /// Its case in the figures.
    pub(crate) case: &'static str,
    /// `ops_per_s` or `mb_per_s`.
    metric: &'static str,
    arguments: &'static [&'static str],
}

/// Reads and writes in pieces of 1 MiB, one at a time.
pub(crate) const SEQ_READ: Job = stream("read_1m", &["--rw=read", "--bs=1M", "--direct=1"]);
pub(crate) const SEQ_WRITE: Job = stream("write_1m", &["--rw=write", "--bs=1M", "--direct=1"]);

impl Job {
    /// A job that is measured in operations.
    pub(crate) const fn pieces(case: &'static str, arguments: &'static [&'static str]) -> Job {
        Job { case, metric: "ops_per_s", arguments }
    }

    /// Runs it for `millis` on the first `bytes` of a file. It reads or writes, not both.
    pub(crate) fn run(&self, path: &Path, bytes: u64, millis: u64) -> Result<Vec<Figure>> {
        let mut fio = Command::new("fio");
        // The last `ioengine` counts: a job may name another one.
        fio.args(["--name=job", "--output-format=json", "--ioengine=psync", "--time_based"]);
        fio.arg(format!("--filename={}", path.display())).arg(format!("--size={bytes}"));
        fio.arg(format!("--runtime={millis}ms")).args(self.arguments);
        let output = run(&mut fio).with_context(|| self.case)?;
        let side = if self.arguments[0].ends_with("read") { "read" } else { "write" };
        let found = figures(&output, side).context("fio's answer")?;
        let speed = match self.metric {
            "mb_per_s" => found.bytes_per_s / 1e6,
            _ => found.per_s,
        };
        let sync = found.sync_p99_us.map(|value| ("sync_p99_us", value));
        let always = [(self.metric, speed), ("p99_us", found.p99_us)];
        Ok(always.into_iter().chain(sync).collect())
    }
}

const fn stream(case: &'static str, arguments: &'static [&'static str]) -> Job {
    Job { case, metric: "mb_per_s", arguments }
}

/// Makes a file of `bytes`, a multiple of 1 MiB, durable.
pub(crate) fn write_file(path: &Path, bytes: u64) -> Result<()> {
    let mut file = File::create(path)?;
    let piece = vec![0x5a; 1 << 20];
    for _ in 0..bytes >> 20 {
        file.write_all(&piece)?;
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
