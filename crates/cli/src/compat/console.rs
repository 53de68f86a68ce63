//! What a tool prints: results on standard output, the rest on standard error, in the order of the
//! calls.

use super::{EDITION, VERSION};
use crate::failure::Failure;
use crate::out::Out;
use std::fmt;
use std::io::{self, Write};

/// Standard output and standard error of a tool.
pub(super) struct Console {
    /// The name of the program in its errors.
    name: String,
    out: Out,
}

impl Console {
    pub(super) fn new(name: &str) -> Console {
        Console { name: name.to_owned(), out: Out::of_report() }
    }

    /// Errors begin with this name from now on. Some originals use a fixed one.
    pub(super) fn set_name(&mut self, name: &str) {
        name.clone_into(&mut self.name);
    }

    /// The name of the program in its errors.
    pub(super) fn name(&self) -> &str {
        &self.name
    }

    /// Writes to standard output.
    pub(super) fn print(&mut self, text: fmt::Arguments<'_>) -> Result<(), Failure> {
        self.out.text(text)
    }

    /// Writes bytes to standard output.
    pub(super) fn bytes(&mut self, bytes: &[u8]) -> Result<(), Failure> {
        self.out.bytes(bytes)
    }

    /// Shows what was written so far.
    pub(super) fn flush(&mut self) -> Result<(), Failure> {
        self.out.flush()
    }

    /// Writes to standard error. An error of that is ignored.
    pub(super) fn error(&mut self, text: fmt::Arguments<'_>) {
        let _ = self.out.flush();
        let _ = io::stderr().lock().write_fmt(text);
    }

    /// Writes an error of the program to standard error: `NAME: TEXT`.
    pub(super) fn complain(&mut self, text: &str) {
        let name = std::mem::take(&mut self.name);
        self.error(format_args!("{name}: {text}\n"));
        self.name = name;
    }

    /// The first line that a tool prints, with its version.
    pub(super) fn banner(tool: &str) -> String {
        format!("{tool} {VERSION} ({EDITION})\n")
    }

    /// The answer to `-V`.
    pub(super) fn version(&mut self, tool: &str) -> u8 {
        let banner = Console::banner(tool);
        self.error(format_args!("{banner}\tUsing EXT2FS Library version {VERSION}\n"));
        0
    }

    /// Flushes standard output.
    pub(super) fn finish(&mut self) -> Result<(), Failure> {
        self.out.flush()
    }
}
