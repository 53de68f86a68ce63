//! The `extant` command: a thin door on the engine and the image builder.
//!
//! ```text
//!   arguments ──► cli ──► verb::{mkfs, build, ls, tree, cat, stat, get, check, info, replay}
//!                            │ asks extant, extant-image
//!                            ▼
//!              out (standard output, text or JSON)      failure (standard error, one line)
//! ```

#![forbid(unsafe_code)]
// Docstrings of options are their help texts, where [MODE] is no link.
#![allow(rustdoc::broken_intra_doc_links)]

mod amount;
mod bar;
mod cli;
mod failure;
mod image;
mod journal;
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
