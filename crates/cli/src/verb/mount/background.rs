//! Runs the server of a mount in the background.

use crate::failure::Failure;
use std::io::Read;
use std::process::{Command, Stdio};

/// The message that the server sends when the mount can be used.
pub(super) const READY: &[u8] = b"ready\n";

/// Starts this program again as the server. Waits until it serves or has failed.
pub(super) fn start() -> Result<u8, Failure> {
    let failed = |error| Failure::new(format!("cannot start the server: {error}"));
    let program = std::env::current_exe().map_err(failed)?;
    let mut server = Command::new(program)
        .args(std::env::args_os().skip(1))
        .arg("--in-background")
        .stdin(Stdio::null())
        .stdout(Stdio::piped())
        .spawn()
        .map_err(failed)?;
    let mut output = Vec::new();
    if let Some(mut stdout) = server.stdout.take() {
        let _ = stdout.read_to_end(&mut output);
    }
    if output == READY {
        return Ok(0);
    }
    // The server printed the reason on our standard error.
    let status = server.wait().map_err(failed)?;
    match status.code() {
        Some(code) if code != 0 => Ok(u8::try_from(code).unwrap_or(1)),
        _ => Err(Failure::new(format!("the server ended before the mount was ready: {status}"))),
    }
}

/// Sends the message to the starter and closes the streams inherited from it.
pub(super) fn detach() -> std::io::Result<()> {
    use std::io::Write;
    let null = std::fs::OpenOptions::new().read(true).write(true).open("/dev/null")?;
    let mut out = std::io::stdout().lock();
    out.write_all(READY)?;
    out.flush()?;
    rustix::stdio::dup2_stdin(&null)?;
    rustix::stdio::dup2_stdout(&null)?;
    rustix::stdio::dup2_stderr(&null)?;
    Ok(())
}
