//! The `extant` command: a thin door on the engine and the image builder.
//!
//! ```text
//!   arguments ──► cli ──► verb::{mkfs, build, ls, cat, get, put, rm, chmod, resize, check, …}
//!                            │ asks extant, extant-image
//!                            ▼
//!              out (standard output, text or JSON)      failure (standard error, one line)
//! ```

// `verb::get::project` is the exception.
#![deny(unsafe_code)]
// Docstrings of options are their help texts, where [MODE] is no link.
#![allow(rustdoc::broken_intra_doc_links)]

mod amount;
mod apply;
mod bar;
mod change;
mod cli;
mod failure;
mod image;
mod journal;
mod members;
mod moment;
mod out;
mod record;
mod shown;
mod stop;
mod verb;
mod walk;

use clap::Parser;
use std::process::ExitCode;

fn main() -> ExitCode {
    let cli = cli::Cli::parse();
    match cli.run() {
        Ok(code) => ExitCode::from(code),
        Err(failure) => failure.exit(),
    }
}
