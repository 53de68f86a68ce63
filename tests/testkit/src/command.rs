//! Runs a program with a time limit and captures its output.
//!
//! The program runs in its own process group, so that a time-out also ends its children:
//!
//! ```text
//!   spawn ──► wait (thread) ──► status ──► Finished
//!     └── time-out ──► kill the group ──► Finished { timed_out }
//! ```

use std::fmt;
use std::io::Read;
use std::os::unix::process::{CommandExt, ExitStatusExt};
use std::path::Path;
use std::process::{Command, ExitStatus, Stdio};
use std::sync::mpsc;
use std::time::Duration;

/// How a program ended, and its output.
#[derive(Debug)]
pub struct Finished {
    /// The program and its arguments, for messages.
    pub line: String,
    /// How it ended.
    pub status: ExitStatus,
    /// Everything it wrote to standard output.
    pub stdout: Vec<u8>,
    /// Everything it wrote to standard error.
    pub stderr: Vec<u8>,
    /// It was killed at the time limit.
    pub timed_out: bool,
}

impl Finished {
    /// The exit status; `None` when a signal ended it.
    pub fn code(&self) -> Option<i32> {
        self.status.code()
    }

    /// The signal that ended it, if one did.
    pub fn signal(&self) -> Option<i32> {
        self.status.signal()
    }

    /// Exit status 0.
    pub fn ok(&self) -> bool {
        self.status.success()
    }

    /// Standard output as text, bad bytes replaced.
    pub fn out(&self) -> String {
        String::from_utf8_lossy(&self.stdout).into_owned()
    }

    /// Standard error as text, bad bytes replaced.
    pub fn err(&self) -> String {
        String::from_utf8_lossy(&self.stderr).into_owned()
    }

    /// How it ended, in a few words: `exit 4`, `signal 11`, `time out`.
    pub fn ending(&self) -> String {
        match (self.timed_out, self.code(), self.signal()) {
            (true, ..) => "time out".into(),
            (_, Some(code), _) => format!("exit {code}"),
            (_, _, Some(signal)) => format!("signal {signal}"),
            _ => "unknown end".into(),
        }
    }

    /// `Ok` when it ended with 0, else a message with the ends of both outputs.
    pub fn success(self) -> Result<Self, String> {
        if self.ok() { Ok(self) } else { Err(self.to_string()) }
    }
}

impl fmt::Display for Finished {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}: {}", self.line, self.ending())?;
        for (name, text) in [("stdout", self.out()), ("stderr", self.err())] {
            let lines: Vec<&str> = text.trim().lines().collect();
            let from = lines.len().saturating_sub(12);
            if !lines.is_empty() {
                write!(f, "\n  {name}: {}", lines[from..].join("\n          "))?;
            }
        }
        Ok(())
    }
}

/// Runs `command` for at most `limit`. `Err` only when it could not be started.
pub fn run(command: &mut Command, limit: Duration) -> Result<Finished, String> {
    let line = std::iter::once(command.get_program())
        .chain(command.get_args())
        .map(|word| word.to_string_lossy().into_owned())
        .collect::<Vec<_>>()
        .join(" ");
    command.stdin(Stdio::null()).stdout(Stdio::piped()).stderr(Stdio::piped()).process_group(0);
    let mut child = command.spawn().map_err(|error| format!("{line}: {error}"))?;
    let group = rustix::process::Pid::from_child(&child);
    let stdout = read_all(child.stdout.take());
    let stderr = read_all(child.stderr.take());
    let (done, ended) = mpsc::channel();
    let waiter = std::thread::spawn(move || {
        let status = child.wait();
        // The receiver is gone only when the caller panicked.
        let _ = done.send(());
        status
    });
    let timed_out = ended.recv_timeout(limit).is_err();
    if timed_out {
        // An error means that the group has just ended by itself.
        let _ = rustix::process::kill_process_group(group, rustix::process::Signal::KILL);
    }
    let status = waiter.join().expect("the waiter does not panic").map_err(|e| e.to_string())?;
    let stdout = stdout.join().expect("the reader does not panic");
    let stderr = stderr.join().expect("the reader does not panic");
    Ok(Finished { line, status, stdout, stderr, timed_out })
}

/// Runs `program` with `args` for at most two minutes.
pub fn run_args(program: &str, args: &[&str]) -> Result<Finished, String> {
    run(Command::new(program).args(args), Duration::from_secs(120))
}

/// Runs a script of `sh -e` in the directory `dir` for at most `limit`.
pub fn run_in(dir: &Path, script: &str, limit: Duration) -> Result<Finished, String> {
    run(Command::new("sh").args(["-ec", script]).current_dir(dir), limit)
}

fn read_all<R: Read + Send + 'static>(from: Option<R>) -> std::thread::JoinHandle<Vec<u8>> {
    std::thread::spawn(move || {
        let mut bytes = Vec::new();
        if let Some(mut from) = from {
            // Output that was read before an error is still worth printing.
            let _ = from.read_to_end(&mut bytes);
        }
        bytes
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_program_that_takes_too_long_is_ended_with_its_children() {
        let mut sleep = Command::new("sh");
        sleep.args(["-c", "echo begun; sleep 60 & sleep 60"]);
        let done = run(&mut sleep, Duration::from_millis(300)).unwrap();
        assert!(done.timed_out);
        assert_eq!(done.out(), "begun\n");
        assert_eq!(done.ending(), "time out");
    }

    #[test]
    fn a_script_runs_in_its_directory_and_ends_at_the_first_failure() {
        let done = run_in(Path::new("/usr"), "pwd; false; pwd", Duration::from_secs(10)).unwrap();
        assert_eq!((done.code(), done.out()), (Some(1), "/usr\n".into()));
    }

    #[test]
    fn the_exit_status_and_both_outputs_come_back() {
        let done = run_args("sh", &["-c", "echo a; echo b >&2; exit 3"]).unwrap();
        assert_eq!((done.code(), done.out(), done.err()), (Some(3), "a\n".into(), "b\n".into()));
        assert!(done.success().unwrap_err().contains("exit 3"));
    }
}
