//! Runs a rival as a process: wall time until its result is durable, and peak memory.

use std::fs::File;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::Instant;

use anyhow::{Context, Result, bail};

/// The cost of one run.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Cost {
    /// Seconds from the start until the process has ended and its output is durable.
    pub wall_s: f64,
    /// Largest resident memory, MiB.
    pub peak_mib: f64,
}

/// Runs `command` to its end, then makes `output` durable. The time includes both.
///
/// Errors: it cannot be started, or exits with a status that `fine` refuses.
pub(crate) fn run(
    command: &mut Command,
    output: Option<&Path>,
    fine: impl Fn(i32) -> bool,
) -> Result<Cost> {
    let name = command.get_program().to_string_lossy().into_owned();
    let start = Instant::now();
    let mut child = command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .with_context(|| format!("cannot start {name}"))?;
    let mut stderr = child.stderr.take();
    let text = std::thread::spawn(move || {
        let mut text = String::new();
        if let Some(stderr) = &mut stderr {
            let _ = std::io::Read::read_to_string(stderr, &mut text);
        }
        text
    });
    let (status, peak_kib) = wait(&mut child)?;
    if let Some(output) = output {
        File::open(output)?.sync_all().with_context(|| format!("flushing {name}'s output"))?;
    }
    let wall_s = start.elapsed().as_secs_f64();
    let text = text.join().unwrap_or_default();
    if !fine(status) {
        bail!("{name} ended with status {status}: {}", text.lines().last().unwrap_or_default());
    }
    Ok(Cost { wall_s, peak_mib: peak_kib as f64 / 1024.0 })
}

/// The peak resident memory of a process (a number, or `self`), in KiB.
pub(crate) fn peak_kib(process: &str) -> Option<u64> {
    let text = std::fs::read_to_string(format!("/proc/{process}/status")).ok()?;
    let line = text.lines().find_map(|line| line.strip_prefix("VmHWM:"))?;
    line.split_whitespace().next()?.parse().ok()
}

/// Waits for the child. Returns its exit status (-1 for a signal) and its peak memory in KiB.
///
/// The memory is read from the kernel's peak value while the process runs, so that this program
/// needs no unsafe call.
fn wait(child: &mut std::process::Child) -> Result<(i32, u64)> {
    let mut peak = 0;
    let mut nap = std::time::Duration::from_millis(1);
    loop {
        peak = peak.max(peak_kib(&child.id().to_string()).unwrap_or(0));
        if let Some(status) = child.try_wait()? {
            return Ok((status.code().unwrap_or(-1), peak));
        }
        std::thread::sleep(nap);
        nap = (nap * 2).min(std::time::Duration::from_millis(10));
    }
}
