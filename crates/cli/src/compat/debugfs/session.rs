//! The open volume of a run, and the directory in which names are looked up.
//!
//! ```text
//!   a request that reads      structures as they are on disk, the journal is not replayed
//!   a request that changes    the engine, which replays the journal first; it is closed, with all
//!                             changes on the volume, before the next request that reads
//! ```

use crate::compat::console::Console;
use crate::compat::volume::{Copy, RawVolume};
use crate::compat::words;
use crate::failure::Failure;
use crate::image::Image;
use extant::environment::FixedClock;
use extant::tune::{Tune, tune_with};
use extant::{Environment, Error, Filesystem, Node, Timestamp, What};
use extant_base::Ino;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::Path;
use std::sync::Arc;

/// Why a request failed.
pub(super) enum Wrong {
    /// A line for standard error.
    Line(String),
    /// Standard output cannot be written.
    Output(Failure),
}

impl From<Failure> for Wrong {
    fn from(failure: Failure) -> Wrong {
        Wrong::Output(failure)
    }
}

/// The result of a request.
pub(super) type Done<T = ()> = Result<T, Wrong>;

/// An error of the library about `subject`, as com_err(3) prints it without a text.
pub(super) fn about(subject: &OsStr, error: &Error) -> Wrong {
    Wrong::Line(format!("{}: {} ", subject.to_string_lossy(), words::of(error).text))
}

/// A run on one volume.
pub(super) struct Session {
    image: Image,
    may_write: bool,
    copy: Copy,
    raw: RawVolume,
    reader: Option<Filesystem>,
    writer: Option<Filesystem>,
    /// The time of changes, if it is not the system's.
    now: Option<Timestamp>,
    /// The working directory, absolute.
    pub(super) at: Vec<u8>,
}

impl Session {
    pub(super) fn open(image: Image, copy: Copy, may_write: bool) -> Result<Session, Error> {
        let raw = RawVolume::open(&image, copy)?;
        let at = b"/".to_vec();
        Ok(Session { image, may_write, copy, raw, reader: None, writer: None, now: None, at })
    }

    /// The structures on disk.
    pub(super) fn raw(&self) -> &RawVolume {
        &self.raw
    }

    /// Puts all changes on the volume. Requests that read call it first.
    pub(super) fn settle(&mut self, request: &str) -> Done {
        let Some(writer) = self.writer.take() else { return Ok(()) };
        let failed = |error: Error| Wrong::Line(format!("{request}: {} ", words::of(&error).text));
        writer.close().map_err(failed)?;
        self.raw = RawVolume::open(&self.image, self.copy).map_err(failed)?;
        Ok(())
    }

    /// The engine for a request that reads.
    pub(super) fn reader(&mut self, request: &str) -> Done<&Filesystem> {
        self.settle(request)?;
        if self.reader.is_none() {
            let mut options = self.image.options();
            options.recover(false).lock(false);
            let opened = options.open(&self.image.path);
            let failed =
                |error: Error| Wrong::Line(format!("{request}: {} ", words::of(&error).text));
            self.reader = Some(opened.map_err(failed)?);
        }
        Ok(self.reader.as_ref().expect("it was opened"))
    }

    /// Refuses a request that changes if the volume was opened to be read only.
    pub(super) fn check_write(&self, request: &str) -> Done {
        match self.may_write {
            true => Ok(()),
            false => {
                let text = words::of(&Error::ReadOnly).text;
                Err(Wrong::Line(format!("{request}: {text}")))
            }
        }
    }

    /// The engine for a request that changes.
    pub(super) fn writer(&mut self, request: &str) -> Done<&Filesystem> {
        self.check_write(request)?;
        self.reader = None;
        if self.writer.is_none() {
            let mut options = self.image.options();
            options.write(true).environment(self.environment());
            let opened = options.open(&self.image.path);
            let failed =
                |error: Error| Wrong::Line(format!("{request}: {} ", words::of(&error).text));
            self.writer = Some(opened.map_err(failed)?);
        }
        Ok(self.writer.as_ref().expect("it was opened"))
    }

    fn environment(&self) -> Environment {
        let mut environment = Environment::default();
        if let Some(now) = self.now {
            environment.clock = Arc::new(FixedClock(now));
        }
        environment
    }

    /// Gives later changes this time.
    pub(super) fn set_now(&mut self, request: &str, now: Timestamp) -> Done {
        self.settle(request)?;
        self.now = Some(now);
        Ok(())
    }

    /// Changes settings of the volume.
    pub(super) fn tune(&mut self, request: &str, changes: &Tune) -> Done {
        self.settle(request)?;
        self.reader = None;
        let failed = |error: Error| Wrong::Line(format!("{request}: {} ", words::of(&error).text));
        let mut options = self.image.options();
        options.environment(self.environment());
        tune_with(&options, &self.image.path, changes).map_err(failed)?;
        self.raw = RawVolume::open(&self.image, self.copy).map_err(failed)?;
        Ok(())
    }

    /// A name as a path of the volume.
    pub(super) fn path(&self, name: &OsStr) -> Vec<u8> {
        let name = name.as_bytes();
        if name.starts_with(b"/") {
            return name.to_vec();
        }
        crate::image::join(&self.at, name)
    }

    /// The inode that `<NUMBER>` or a path names, for a request that reads.
    pub(super) fn ino(&mut self, name: &OsStr, request: &str) -> Done<Ino> {
        let missing = || about(name, &Error::NotFound);
        if let Some(number) = number_of(name) {
            self.settle(request)?;
            let known = Ino::new(number).filter(|ino| ino.get() <= self.raw.sb.inodes_count);
            return known.ok_or_else(missing);
        }
        Ok(self.node(name, request)?.ino())
    }

    /// The file that `<NUMBER>` or a path names, for a request that reads.
    pub(super) fn node(&mut self, name: &OsStr, request: &str) -> Done<Node> {
        let path = self.path(name);
        let number = number_of(name);
        let fs = self.reader(request)?;
        found(fs, &path, number).map_err(|error| about(name, &error))
    }

    /// The same for a request that changes.
    pub(super) fn node_to_change(&mut self, name: &OsStr, request: &str) -> Done<Node> {
        let path = self.path(name);
        let number = number_of(name);
        let fs = self.writer(request)?;
        found(fs, &path, number).map_err(|error| about(name, &error))
    }

    /// Puts the changes on the volume at the end of the run.
    pub(super) fn close(mut self, console: &mut Console) -> bool {
        match self.settle("debugfs") {
            Ok(()) => true,
            Err(Wrong::Line(line)) => {
                console.error(format_args!("{line}\n"));
                false
            }
            Err(Wrong::Output(_)) => false,
        }
    }
}

fn found(fs: &Filesystem, path: &[u8], number: Option<u32>) -> Result<Node, Error> {
    let Some(number) = number else { return fs.node_nofollow(Path::new(OsStr::from_bytes(path))) };
    let known = Ino::new(number).filter(|ino| ino.get() <= fs.superblock().inodes_count);
    fs.node_of_ino(known.ok_or(Error::NotFound)?).map_err(|error| match error {
        // The engine does not open the volume's own files.
        Error::Corrupt { what: What::DirentInode, .. } => {
            Error::NotSupported("this inode is reserved or not in use")
        }
        error => error,
    })
}

/// The number in `<NUMBER>`.
pub(super) fn number_of(name: &OsStr) -> Option<u32> {
    let text = name.to_str()?.strip_prefix('<')?.strip_suffix('>')?;
    u32::try_from(crate::compat::getopt::number(text)?).ok()
}
