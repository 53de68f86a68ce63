//! Standard output: text for people, JSON Lines for programs, colour on a terminal only.

use crate::failure::Failure;
use crate::shown::Whole;
use extant::FileKind;
use serde::Serialize;
use std::fmt;
use std::io::{self, BufWriter, IsTerminal, StdoutLock, Write};

/// Standard output. A reader who has left ends the program without a word, unless its exit status says more.
pub(crate) struct Out {
    to: BufWriter<StdoutLock<'static>>,
    terminal: bool,
    colour: bool,
    /// What is printed tells of what was done or found; the exit status is for those who do not read it.
    is_report: bool,
}

impl Out {
    pub(crate) fn new() -> Out {
        let stdout = io::stdout().lock();
        let terminal = stdout.is_terminal();
        let colour = terminal && std::env::var_os("NO_COLOR").is_none_or(|value| value.is_empty());
        Out { to: BufWriter::with_capacity(64 << 10, stdout), terminal, colour, is_report: false }
    }

    /// For a verb whose work is done, or whose exit status is a judgement: a reader who has left changes nothing of
    /// that.
    pub(crate) fn of_report() -> Out {
        Out { is_report: true, ..Out::new() }
    }

    fn taken(&self, wrote: io::Result<()>) -> Result<(), Failure> {
        match wrote {
            Err(error) if self.is_report && error.kind() == io::ErrorKind::BrokenPipe => Ok(()),
            wrote => wrote.map_err(Failure::of_output),
        }
    }

    /// Writes text as it is.
    pub(crate) fn text(&mut self, text: fmt::Arguments<'_>) -> Result<(), Failure> {
        let wrote = self.to.write_fmt(text);
        self.taken(wrote)
    }

    /// Writes bytes as they are.
    pub(crate) fn bytes(&mut self, bytes: &[u8]) -> Result<(), Failure> {
        let wrote = self.to.write_all(bytes);
        self.taken(wrote)
    }

    /// Writes a name: escaped and coloured on a terminal, its bytes elsewhere.
    pub(crate) fn name(&mut self, name: &[u8], style: &str) -> Result<(), Failure> {
        match (self.terminal, self.colour && !style.is_empty()) {
            (false, _) => self.bytes(name),
            (true, false) => self.text(format_args!("{}", Whole(name))),
            (true, true) => self.text(format_args!("\x1b[{style}m{}\x1b[0m", Whole(name))),
        }
    }

    /// Writes text, in this style where there is colour.
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

    /// Sees that everything was taken.
    pub(crate) fn finish(mut self) -> Result<(), Failure> {
        let wrote = self.to.flush();
        self.taken(wrote)
    }
}

/// How the name of such a file is coloured, as `ls` does.
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
