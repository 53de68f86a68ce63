//! pgbench on PostgreSQL: a server with its own socket and data directory, not a service of the
//! system.
//!
//! ```text
//!   Template::new   initdb, pgbench -i: once
//!   Template::run   copied to the mount, synced ─► postgres there ─► pgbench ─► SIGINT
//! ```
//!
//! The server refuses to run as root. All its programs run as the user `postgres`.

use std::fs;
use std::os::unix::process::CommandExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result};
use rustix::process::Signal;

use super::daemon::Daemon;
use super::sysbench::field;
use crate::mounted::Mounted;
use crate::rig::{self, Scratch, run};

/// What a bench says about it.
pub(crate) const CONDITION: &str =
    "pgbench's own transactions at scale 5, 4 clients, each commit flushed";

/// A data directory that contains the tables.
pub(crate) struct Template {
    /// Where PostgreSQL's programs are.
    programs: PathBuf,
    /// The user and its group.
    user: (u32, u32),
    /// For sockets and data.
    dir: PathBuf,
}

impl Template {
    /// Errors: PostgreSQL or its user is missing, or cannot reach `scratch`.
    pub(crate) fn new(scratch: &Scratch) -> Result<Template> {
        let dir = scratch.join("postgres");
        let template = Template { programs: programs()?, user: user("postgres")?, dir };
        fs::create_dir(&template.dir)?;
        let (user, group) = template.user;
        std::os::unix::fs::chown(&template.dir, Some(user), Some(group))?;
        let data = template.data();
        let mut initdb = template.program("initdb");
        initdb.args(["--no-sync", "--auth=trust", "--username=postgres", "--encoding=UTF8"]);
        run(initdb.arg("--pgdata").arg(&data))?;
        let _server = template.start(&data)?;
        run(template.pgbench().args(["--initialize", "--scale=5", "--quiet"]))?;
        Ok(template)
    }

    /// Transactions per second on a mount.
    pub(crate) fn run(&self, on: &Mounted, seconds: u64) -> Result<f64> {
        let data = on.join("postgres");
        run(Command::new("cp").arg("-a").arg(self.data()).arg(&data))?;
        rig::sync_filesystem(&data)?;
        let server = self.start(&data)?;
        let mut pgbench = self.pgbench();
        pgbench.args(["--client=4", "--jobs=2", "--no-vacuum"]);
        let output = run(pgbench.arg(format!("--time={seconds}")))?;
        drop(server);
        fs::remove_dir_all(&data)?;
        let words = field(&output, "tps =").with_context(|| format!("pgbench said: {output}"))?;
        Ok(words.parse()?)
    }

    fn data(&self) -> PathBuf {
        self.dir.join("data")
    }

    /// A program of PostgreSQL, as its user.
    fn program(&self, name: &str) -> Command {
        let mut command = Command::new(self.programs.join(name));
        command.uid(self.user.0).gid(self.user.1).current_dir(&self.dir);
        command
    }

    fn pgbench(&self) -> Command {
        let mut pgbench = self.program("pgbench");
        pgbench.arg("--host").arg(&self.dir).args(["--username=postgres", "postgres"]);
        pgbench
    }

    fn start(&self, data: &Path) -> Result<Daemon> {
        let mut server = self.program("postgres");
        server.arg("-D").arg(data).arg("-k").arg(&self.dir);
        server.args(["-c", "listen_addresses="]);
        let answers = || {
            let mut ready = self.program("pg_isready");
            run(ready.arg("--host").arg(&self.dir)).is_ok()
        };
        Daemon::start(&mut server, ("postgres", Signal::INT), &self.dir.join("log"), answers)
    }
}

/// The directory of PostgreSQL's programs: Debian's of the newest version, or that of `PATH`.
fn programs() -> Result<PathBuf> {
    let versions = fs::read_dir("/usr/lib/postgresql").into_iter().flatten().flatten();
    let mut found: Vec<(u32, PathBuf)> = versions
        .filter_map(|entry| Some((entry.file_name().to_str()?.parse().ok()?, entry.path())))
        .map(|(version, path)| (version, path.join("bin")))
        .filter(|(_, path)| path.join("postgres").exists())
        .collect();
    found.sort();
    if let Some((_, path)) = found.pop() {
        return Ok(path);
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut paths = std::env::split_paths(&path);
    paths.find(|path| path.join("postgres").exists()).context("PostgreSQL is missing")
}

/// Numbers of a user and its group.
fn user(name: &str) -> Result<(u32, u32)> {
    let users = fs::read_to_string("/etc/passwd")?;
    let numbers = users.lines().find_map(|line| {
        let mut fields = line.split(':');
        (fields.next() == Some(name)).then_some(())?;
        let mut number = |n| fields.nth(n)?.parse().ok();
        Some((number(1)?, number(0)?))
    });
    numbers.with_context(|| format!("there is no user {name}"))
}
