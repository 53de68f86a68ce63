//! sysbench on MariaDB: a server with its own socket and data directory, not a service of the
//! system.
//!
//! ```text
//!   Template::new   mariadb-install-db, sysbench prepare: once, in memory
//!   Template::run   copied to the mount, synced ─► mariadbd there ─► sysbench run for each case ─►
//!                   SIGTERM
//! ```

use std::fs::{self, File};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};
use rustix::process::Signal;

use super::{Plan, Samples};
use crate::load::daemon::Daemon;
use crate::load::sysbench::Transactions;
use crate::mounted::Mounted;
use crate::rig::{Scratch, run};

pub(super) const CASES: [&str; 2] = ["oltp_write_only", "oltp_read_write"];

pub(super) const CONDITION: &str = "sysbench with 4 threads on 2 tables of 20,000 rows, InnoDB with its log \
     flushed at each commit and 128 MiB of buffers, no binary log";

/// A data directory that contains the tables.
pub(super) struct Template {
    data: PathBuf,
    socket: PathBuf,
    log: PathBuf,
}

impl Template {
    pub(super) fn new(scratch: &Scratch) -> Result<Template> {
        let template = Template {
            data: scratch.join("data"),
            socket: scratch.join("sql"),
            log: scratch.join("mariadbd.log"),
        };
        let mut install = Command::new("mariadb-install-db");
        install.args(["--no-defaults", "--user=root", "--skip-test-db", LOG_BYTES]);
        run(install
            .arg("--auth-root-authentication-method=normal")
            .arg(option("datadir", &template.data)))?;
        fs::create_dir_all(template.data.join("sbtest"))?;
        let _server = template.start(&template.data)?;
        run(template.sysbench("oltp_write_only").arg("prepare"))?;
        Ok(template)
    }

    /// Runs both cases on one mount.
    pub(super) fn run(&self, plan: &Plan, on: &Mounted, samples: &mut Samples<'_>) -> Result<()> {
        let data = on.join("data");
        copy(&self.data, &data)?;
        let server = self.start(&data)?;
        for case in CASES.into_iter().filter(|case| plan.wants(case)) {
            let mut sysbench = self.sysbench(case);
            sysbench.arg("--percentile=99");
            sysbench.arg(format!("--time={}", plan.sysbench_seconds)).arg("run");
            let output = run(&mut sysbench)?;
            let Transactions { per_s, p99_ms, longest_ms } =
                Transactions::find(&output).with_context(|| format!("sysbench said: {output}"))?;
            samples.add(case, "ops_per_s", per_s);
            samples.add(case, "p99_us", p99_ms * 1000.0);
            samples.add(case, "longest_us", longest_ms * 1000.0);
        }
        drop(server);
        Ok(fs::remove_dir_all(&data)?)
    }

    fn start(&self, data: &Path) -> Result<Daemon> {
        let _ = fs::remove_file(&self.socket);
        let mut command = Command::new("mariadbd");
        command.args(["--no-defaults", "--user=root", "--skip-networking", "--skip-grant-tables"]);
        command.args([LOG_BYTES, "--innodb-buffer-pool-size=128M", "--skip-log-bin"]);
        command.arg("--innodb-flush-log-at-trx-commit=1");
        command.arg(option("datadir", data)).arg(option("socket", &self.socket));
        command.arg(option("pid-file", &self.socket.with_extension("pid")));
        let answers = || UnixStream::connect(&self.socket).is_ok();
        Daemon::start(&mut command, ("mariadbd", Signal::TERM), &self.log, answers)
    }

    fn sysbench(&self, script: &str) -> Command {
        let mut command = Command::new("sysbench");
        command.args([script, "--db-driver=mysql", "--mysql-user=root", "--mysql-db=sbtest"]);
        command.args(["--tables=2", "--table-size=20000", "--threads=4"]);
        command.arg(option("mysql-socket", &self.socket));
        command
    }
}

const LOG_BYTES: &str = "--innodb-log-file-size=64M";

fn option(name: &str, value: &Path) -> String {
    format!("--{name}={}", value.display())
}

/// Copies a tree and makes each file durable.
fn copy(from: &Path, to: &Path) -> Result<()> {
    fs::create_dir_all(to)?;
    for entry in fs::read_dir(from)? {
        let entry = entry?;
        let (from, to) = (entry.path(), to.join(entry.file_name()));
        if entry.file_type()?.is_dir() {
            copy(&from, &to)?;
        } else if entry.file_type()?.is_file() {
            fs::copy(&from, &to)?;
            File::open(&to)?.sync_all()?;
        }
    }
    Ok(())
}
