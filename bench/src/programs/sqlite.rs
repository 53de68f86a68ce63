//! SQLite: one row per transaction, each made durable, with both kinds of journal.

use std::fs;
use std::process::Command;

use anyhow::{Context, Result};

use super::{Plan, Samples};
use crate::mounted::Mounted;
use crate::rig;

pub(super) const CASES: [&str; 2] = ["sqlite_wal", "sqlite_delete"];

pub(super) const CONDITION: &str =
    "SQLite in python3's process, synchronous=FULL, an insert of 100 bytes a transaction";

/// Prints: transactions, seconds, the 99th percentile and the longest in microseconds.
const SCRIPT: &str = "
import sqlite3, sys, time
base = sqlite3.connect(sys.argv[1], isolation_level=None)
base.execute('PRAGMA journal_mode=' + sys.argv[2])
base.execute('PRAGMA synchronous=FULL')
base.execute('CREATE TABLE t(n INTEGER PRIMARY KEY, s TEXT)')
now, took, text = time.perf_counter, [], 'x' * 100
start = now()
end = start + float(sys.argv[3]) / 1000
while now() < end:
    begin = now()
    base.execute('INSERT INTO t(s) VALUES(?)', (text,))
    took.append(now() - begin)
seconds = now() - start
took.sort()
print(len(took), seconds, took[len(took) * 99 // 100] * 1e6, took[-1] * 1e6)
";

pub(super) fn run(plan: &Plan, on: &Mounted, samples: &mut Samples<'_>) -> Result<()> {
    for case in CASES.into_iter().filter(|case| plan.wants(case)) {
        let base = on.join(case);
        let mode = case.trim_start_matches("sqlite_");
        let mut python = Command::new("python3");
        python.args(["-c", SCRIPT]).arg(&base).arg(mode).arg(plan.millis.to_string());
        let output = rig::run(&mut python)?;
        let mut numbers = output.split_whitespace().map(str::parse::<f64>);
        let mut next = || numbers.next().context("the script says four numbers")?.context(case);
        let (count, seconds, p99_us, longest_us) = (next()?, next()?, next()?, next()?);
        samples.add(case, "ops_per_s", count / seconds);
        samples.add(case, "p99_us", p99_us);
        samples.add(case, "longest_us", longest_us);
        fs::remove_file(&base)?;
    }
    Ok(())
}
