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
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail};

use super::{Plan, Samples};
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
        let _server = Server::start(&template, &template.data)?;
        run(template.sysbench("oltp_write_only").arg("prepare"))?;
        Ok(template)
    }

    /// Runs both cases on one mount.
    pub(super) fn run(&self, plan: &Plan, on: &Mounted, samples: &mut Samples<'_>) -> Result<()> {
        let data = on.join("data");
        copy(&self.data, &data)?;
        let server = Server::start(self, &data)?;
        for case in CASES.into_iter().filter(|case| plan.wants(case)) {
            let mut sysbench = self.sysbench(case);
            sysbench.arg("--percentile=99");
            sysbench.arg(format!("--time={}", plan.sysbench_seconds)).arg("run");
            let output = run(&mut sysbench)?;
            let Figures { per_s, p99_ms, longest_ms } =
                figures(&output).with_context(|| format!("sysbench said: {output}"))?;
            samples.add(case, "ops_per_s", per_s);
            samples.add(case, "p99_us", p99_ms * 1000.0);
            samples.add(case, "longest_us", longest_ms * 1000.0);
        }
        drop(server);
        Ok(fs::remove_dir_all(&data)?)
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

/// A running server. Dropping it ends the server.
struct Server(Child);

impl Server {
    fn start(template: &Template, data: &Path) -> Result<Server> {
        let _ = fs::remove_file(&template.socket);
        let mut command = Command::new("mariadbd");
        command.args(["--no-defaults", "--user=root", "--skip-networking", "--skip-grant-tables"]);
        command.args([LOG_BYTES, "--innodb-buffer-pool-size=128M", "--skip-log-bin"]);
        command.arg("--innodb-flush-log-at-trx-commit=1");
        command.arg(option("datadir", data)).arg(option("socket", &template.socket));
        command.arg(option("pid-file", &template.socket.with_extension("pid")));
        command.arg(option("log-error", &template.log));
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
        let mut server = Server(command.spawn().context("cannot start mariadbd")?);
        for _ in 0..3000 {
            if UnixStream::connect(&template.socket).is_ok() {
                return Ok(server);
            }
            if let Some(status) = server.0.try_wait()? {
                let log = fs::read_to_string(&template.log).unwrap_or_default();
                let error = log.lines().find(|line| line.contains("[ERROR]")).unwrap_or_default();
                bail!("mariadbd ended with {status}: {error}");
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        bail!("mariadbd did not come up")
    }
}

impl Drop for Server {
    fn drop(&mut self) {
        let _ = run(Command::new("kill").arg(self.0.id().to_string()));
        for _ in 0..6000 {
            if !matches!(self.0.try_wait(), Ok(None)) {
                return;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        eprintln!("extant-bench: mariadbd does not end");
        let _ = self.0.kill();
        let _ = self.0.wait();
    }
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

/// sysbench's figures for a run.
#[derive(Debug, PartialEq)]
struct Figures {
    per_s: f64,
    p99_ms: f64,
    longest_ms: f64,
}

fn figures(output: &str) -> Option<Figures> {
    let after = |head: &str| output.lines().find_map(|line| line.trim().strip_prefix(head));
    let (_, per_s) = after("transactions:")?.split_once('(')?;
    Some(Figures {
        per_s: per_s.split_whitespace().next()?.parse().ok()?,
        p99_ms: after("99th percentile:")?.trim().parse().ok()?,
        longest_ms: after("max:")?.trim().parse().ok()?,
    })
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
        let want = Figures { per_s: 134.71, p99_ms: 12.3, longest_ms: 269.5 };
        assert_eq!(figures(output), Some(want));
        assert_eq!(figures("FATAL: no connection"), None);
    }
}
