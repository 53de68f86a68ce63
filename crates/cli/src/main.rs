//! The `extant` command: a thin front end for the engine and the image builder.
//!
//! ```text
//!   named e2fsck, tune2fs, … ──► compat        otherwise:
//!   arguments ──► cli ──► verb::{mkfs, build, ls, cat, get, put, rm, chmod, resize, check, …}
//!                            │ calls extant, extant-image
//!                            ▼
//!              out (standard output, text or JSON)      failure (standard error, one line)
//! ```

// Only `verb::get::project` and `compat::clock` permit it.
#![deny(unsafe_code)]
// Docstrings of options are their help texts, in which [MODE] is not a link.
#![allow(rustdoc::broken_intra_doc_links)]

mod accounts;
mod amount;
mod apply;
mod bar;
mod change;
mod cli;
mod compat;
mod disk;
mod elsewhere;
mod failure;
mod helper;
mod image;
mod journal;
mod members;
mod moment;
mod mounts;
mod new_file;
mod out;
mod record;
mod repaired;
mod shown;
mod signature;
mod stop;
mod verb;
mod walk;

use clap::Parser;
use failure::Failure;
use std::ffi::OsString;
use std::os::unix::process::CommandExt;
use std::process::{Command, ExitCode};

fn main() -> ExitCode {
    let arguments: Vec<_> = std::env::args_os().collect();
    if let Some(code) = compat::run(&arguments) {
        return code;
    }
    if let Some(meant) = helper::translated(&arguments, cli::Cli::has_verb) {
        return match meant.is_empty() {
            true => ExitCode::SUCCESS,
            false => start_again(&meant),
        };
    }
    let cli = match cli::Cli::try_parse_from(&arguments) {
        Ok(cli) => cli,
        Err(error) => {
            let _ = error.print();
            return cli::status_of_wrong_usage(&arguments, &error);
        }
    };
    match cli.run() {
        Ok(code) => ExitCode::from(code),
        Err(failure) => failure.exit(),
    }
}

/// Executes this program again with other arguments, so that the rest of the code sees one form.
fn start_again(arguments: &[OsString]) -> ExitCode {
    let failed = |error| Failure::new(format!("cannot execute extant again: {error}")).exit();
    match std::env::current_exe() {
        Ok(program) => failed(Command::new(program).arg0("extant").args(arguments).exec()),
        Err(error) => failed(error),
    }
}
