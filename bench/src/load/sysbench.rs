//! sysbench: figures of a run, and its test of files.

use std::fs;
use std::process::Command;

use anyhow::{Context, Result};

use super::Figure;
use crate::mounted::Mounted;
use crate::rig;

/// What a bench says about [`files`].
pub(crate) const CONDITION: &str = "sysbench fileio on 16 files of 128 MiB in all, 16 KiB at random offsets through the \
     kernel's cache, 3 reads for 2 writes, all files synced after 100 requests";

/// Random reads and writes of files on a mount, for `seconds`.
pub(crate) fn files(on: &Mounted, seconds: u64) -> Result<Vec<Figure>> {
    let dir = on.join("sysbench");
    fs::create_dir(&dir)?;
    let sysbench = || {
        let mut command = Command::new("sysbench");
        command.current_dir(&dir).args(["fileio", "--file-num=16", "--file-total-size=128M"]);
        command.args(["--file-test-mode=rndrw", "--percentile=99"]);
        command.arg(format!("--time={seconds}"));
        command
    };
    rig::run(sysbench().arg("prepare"))?;
    rig::sync_filesystem(&dir)?;
    let output = rig::run(sysbench().arg("run"))?;
    let context = || format!("sysbench said: {output}");
    let found = files_figures(&output).with_context(context)?;
    fs::remove_dir_all(&dir)?;
    Ok(found)
}

fn files_figures(output: &str) -> Option<Vec<Figure>> {
    let number = |head| field(output, head)?.parse::<f64>().ok();
    let per_s = number("reads/s:")? + number("writes/s:")?;
    Some(vec![("ops_per_s", per_s), ("p99_us", number(P99)? * 1000.0)])
}

const P99: &str = "99th percentile:";

/// The word after `head` at the start of a line.
pub(super) fn field<'a>(output: &'a str, head: &str) -> Option<&'a str> {
    let rest = output.lines().find_map(|line| line.trim().strip_prefix(head))?;
    rest.split_whitespace().next()
}

/// Figures of a run on a database.
#[derive(Debug, PartialEq)]
pub(crate) struct Transactions {
    pub(crate) per_s: f64,
    pub(crate) p99_ms: f64,
    pub(crate) longest_ms: f64,
}

impl Transactions {
    /// Finds them in what sysbench prints with `--percentile=99`.
    pub(crate) fn find(output: &str) -> Option<Transactions> {
        let after = |head: &str| output.lines().find_map(|line| line.trim().strip_prefix(head));
        let (_, per_s) = after("transactions:")?.split_once('(')?;
        Some(Transactions {
            per_s: per_s.split_whitespace().next()?.parse().ok()?,
            p99_ms: field(output, P99)?.parse().ok()?,
            longest_ms: field(output, "max:")?.parse().ok()?,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_figures_of_sysbench_are_found() {
        let output = "SQL statistics:\n    queries performed:\n        total:      8094\n    transactions:      \
                    1349   (134.71 per sec.)\n    queries:  8094   (808.26 per sec.)\n\nLatency (ms):\n         min:      \
                    0.91\n         max:                     269.50\n         99th percentile:          \
                    12.30\n         sum: 9989.12\n";
        let want = Transactions { per_s: 134.71, p99_ms: 12.3, longest_ms: 269.5 };
        assert_eq!(Transactions::find(output), Some(want));
        assert_eq!(Transactions::find("FATAL: no connection"), None);
    }

    #[test]
    fn the_figures_of_files_are_found() {
        let output = "File operations:\n    reads/s:      300.50\n    writes/s:     200.25\n    fsyncs/s:   \
                    3122.06\n\nLatency (ms):\n         max:   77.63\n         99th percentile:     0.20\n";
        let want = vec![("ops_per_s", 500.75), ("p99_us", 200.0)];
        assert_eq!(files_figures(output), Some(want));
        assert_eq!(files_figures("FATAL: no files"), None);
    }
}
