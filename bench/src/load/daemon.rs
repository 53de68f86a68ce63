//! A server of a database.
//!
//! ```text
//!   start ─► the process, until it answers ─► dropped: a signal ─► its end
//! ```

use std::fs::{self, File};
use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use anyhow::{Context, Result, bail};
use rustix::process::{Pid, Signal, kill_process};

/// A running server. Dropping it ends the server.
pub(crate) struct Daemon {
    name: &'static str,
    process: Child,
    ends_on: Signal,
}

impl Daemon {
    /// Starts a server that stays in the foreground and prints errors to standard error, which
    /// becomes the file `log`. Returns when `answers`.
    ///
    /// Errors: it ends at once; the error holds its message.
    pub(crate) fn start(
        command: &mut Command,
        (name, ends_on): (&'static str, Signal),
        log: &Path,
        answers: impl Fn() -> bool,
    ) -> Result<Daemon> {
        command.stdin(Stdio::null()).stdout(Stdio::null()).stderr(File::create(log)?);
        let process = command.spawn().with_context(|| format!("cannot start {name}"))?;
        let mut daemon = Daemon { name, process, ends_on };
        for _ in 0..3000 {
            if answers() {
                return Ok(daemon);
            }
            if let Some(status) = daemon.process.try_wait()? {
                let log = fs::read_to_string(log).unwrap_or_default();
                let is_error = |line: &&str| {
                    ["ERROR", "FATAL", "error"].iter().any(|word| line.contains(word))
                };
                let reason = log.lines().find(is_error).or(log.lines().last());
                bail!("{name} ended with {status}: {}", reason.unwrap_or_default());
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        bail!("{name} did not come up")
    }
}

impl Drop for Daemon {
    fn drop(&mut self) {
        if let Some(process) = Pid::from_raw(self.process.id().cast_signed()) {
            let _ = kill_process(process, self.ends_on);
        }
        for _ in 0..6000 {
            if !matches!(self.process.try_wait(), Ok(None)) {
                return;
            }
            std::thread::sleep(Duration::from_millis(10));
        }
        eprintln!("extant-bench: {} does not end", self.name);
        let _ = self.process.kill();
        let _ = self.process.wait();
    }
}
