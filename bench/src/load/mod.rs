//! Programs that benches run on a mount, and the figures that they print.
//!
//! ```text
//!   fio        one job on one file
//!   sysbench   files; the figures of a run on a database
//!   postgres   a server of the bench's own, and pgbench
//!   daemon     the process of such a server
//! ```
//!
//! Each is used where this machine has it. A bench reports which ones are missing.

pub(crate) mod daemon;
pub(crate) mod fio;
pub(crate) mod postgres;
pub(crate) mod sysbench;

use std::process::{Command, Stdio};

/// A figure of a program: its metric and value.
pub(crate) type Figure = (&'static str, f64);

/// Whether a program can be started and succeeds with these arguments.
pub(crate) fn answers(name: &str, arguments: &[&str]) -> bool {
    let mut command = Command::new(name);
    command.args(arguments).stdin(Stdio::null()).stdout(Stdio::null()).stderr(Stdio::null());
    command.status().is_ok_and(|status| status.success())
}
