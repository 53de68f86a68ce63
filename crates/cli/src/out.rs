//! Standard output: text for people, JSON Lines for programs, colour only on a terminal.

use crate::failure::Failure;
use crate::shown::Whole;
use extant::FileKind;
use serde::Serialize;
use std::fmt;
use std::io::{self, BufWriter, IsTerminal, StdoutLock, Write};

/// Standard output. If the reader closed it, the program ends without a message.
pub(crate) struct Out {
    to: BufWriter<StdoutLock<'static>>,
    terminal: bool,
    colour: bool,
    /// The output only reports on finished work, and the exit status holds the result. A closed
    /// pipe is then not an error.
    is_report: bool,
}

impl Out {
    pub(crate) fn new() -> Out {
        let stdout = io::stdout().lock();
        let terminal = stdout.is_terminal();
        let colour = terminal && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
        Out { to: BufWriter::with_capacity(64 << 10, stdout), terminal, colour, is_report: false }
    }

    /// For a verb whose work is finished or whose exit status is the result: a closed pipe changes
    /// neither.
    pub(crate) fn of_report() -> Out {
        Out { is_report: true, ..Out::new() }
    }

    fn taken(&self, wrote: io::Result<()>) -> Result<(), Failure> {
        match wrote {
            Err(error) if self.is_report && error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
            wrote => wrote.map_err(Failure::of_output),
        }
    }

    /// Writes text unchanged.
    pub(crate) fn text(&mut self, text: fmt::Arguments<'_>) -> Result<(), Failure> {
        let wrote = self.to.write_fmt(text);
        self.taken(wrote)
    }

    /// Writes bytes unchanged.
    pub(crate) fn bytes(&mut self, bytes: &[u8]) -> Result<(), Failure> {
        let wrote = self.to.write_all(bytes);
        self.taken(wrote)
    }

    /// Writes a name: escaped and coloured on a terminal, otherwise its bytes.
    pub(crate) fn name(&mut self, name: &[u8], style: &str) -> Result<(), Failure> {
        match (self.terminal, self.colour && !style.is_empty()) {
            (false, _) => self.bytes(name),
            (true, false) => self.text(format_args!("{}", Whole(name))),
            (true, true) => self.text(format_args!("\x1b[{style}m{}\x1b[0m", Whole(name))),
        }
    }

    /// Writes text, in this style if colour is enabled.
    pub(crate) fn styled(&mut self, text: &str, style: &str) -> Result<(), Failure> {
        match self.colour {
            true => self.text(format_args!("\x1b[{style}m{text}\x1b[0m")),
            false => self.text(format_args!("{text}")),
        }
    }

    /// Writes one line of JSON.
    pub(crate) fn json(&mut self, value: &impl Serialize) -> Result<(), Failure> {
        let wrote = serde_json::to_writer(&mut self.to, value).map_err(io::Error::from);
        let wrote = wrote.and_then(|()| self.to.write_all(b"\n"));
        self.taken(wrote)
    }

    /// Shows what was written so far, before a question.
    pub(crate) fn flush(&mut self) -> Result<(), Failure> {
        let wrote = self.to.flush();
        self.taken(wrote)
    }

    /// Flushes the output and reports an error of that.
    pub(crate) fn finish(mut self) -> Result<(), Failure> {
        let wrote = self.to.flush();
        self.taken(wrote)
    }
}

/// The style of a file's name, as in `ls`.
pub(crate) fn style(kind: Option<FileKind>, mode: u32) -> &'static str {
    match kind {
        Some(FileKind::Directory) => "1;34",
        Some(FileKind::Symlink) => "1;36",
        Some(FileKind::Fifo) => "33",
        Some(FileKind::Socket) => "1;35",
        Some(FileKind::CharDevice | FileKind::BlockDevice) => "1;33",
        Some(FileKind::Regular) if mode & 0o111 != 0 => "1;32",
        Some(FileKind::Regular) => "",
        None => "31",
    }
}
