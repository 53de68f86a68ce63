//! Errors of sources: one line each that says what is wrong, where, and what to do.

use std::io;
use std::path::PathBuf;

/// An error of reading the sources of an image.
///
/// Every message is one line. Names are escaped, so that a hostile name cannot forge a second
/// line or control a terminal.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum SourceError {
    /// A system call on a source failed.
    #[error("cannot {action} {}: {source}", Shown::path(path))]
    Io {
        /// The action, as in "open" or "read".
        action: &'static str,
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// A file has changed since the tree was listed.
    #[error(
        "{} {change} while the image was being built: build from a tree at rest, or with --keep-going",
        Shown::path(path)
    )]
    Changed {
        /// The file.
        path: PathBuf,
        /// "vanished", "shrank", "changed", …
        change: &'static str,
    },
    /// The source is of no kind that can be read.
    #[error("{}: {fault}", Shown::path(path))]
    Source {
        /// The source, as the caller named it.
        path: PathBuf,
        /// What is wrong and what to do.
        fault: String,
    },
    /// Bytes of an archive violate its format, or an entry violates a rule of this program.
    #[error("{}: {}at byte {offset}: {fault}", Shown::path(archive), Shown::entry(entry))]
    Archive {
        /// The archive, or the layer inside an image.
        archive: PathBuf,
        /// Bytes from the start of the (uncompressed) archive, at the entry's first header.
        offset: u64,
        /// The entry's name; empty when the header itself is damaged.
        entry: Vec<u8>,
        /// What is wrong.
        fault: String,
    },
    /// An archive unpacks to more than
    /// [`SourceOptions::max_unpacked`](crate::SourceOptions::max_unpacked).
    #[error(
        "{}: unpacks to more than {limit} bytes, the limit that was given: not taken",
        Shown::path(archive)
    )]
    TooLarge {
        /// The archive, or the layer inside an image.
        archive: PathBuf,
        /// The limit, in bytes.
        limit: u64,
    },
    /// A line of an ownership file or exclude list is invalid.
    #[error("{} line {line}: {fault}", Shown::path(path))]
    Line {
        /// The file of rules.
        path: PathBuf,
        /// Counted from 1.
        line: usize,
        /// What is wrong.
        fault: String,
    },
    /// An option's value is invalid.
    #[error("{option} {}: {fault}", Shown::bytes(value.as_bytes()))]
    Option {
        /// The option, as in "--mode".
        option: &'static str,
        /// Its value.
        value: String,
        /// What is wrong.
        fault: String,
    },
}

impl SourceError {
    pub(crate) fn io(action: &'static str, path: impl Into<PathBuf>, source: io::Error) -> Self {
        SourceError::Io { action, path: path.into(), source }
    }

    pub(crate) fn source(path: impl Into<PathBuf>, fault: impl Into<String>) -> Self {
        SourceError::Source { path: path.into(), fault: fault.into() }
    }

    /// The file or archive that the error is about, if any.
    pub fn path(&self) -> Option<&std::path::Path> {
        match self {
            SourceError::Io { path, .. }
            | SourceError::Changed { path, .. }
            | SourceError::Source { path, .. }
            | SourceError::Archive { archive: path, .. }
            | SourceError::TooLarge { archive: path, .. }
            | SourceError::Line { path, .. } => Some(path),
            SourceError::Option { .. } => None,
        }
    }
}

/// A name that is safe to print: control bytes, backslashes and bytes that are not UTF-8 are
/// escaped, and a very long name is shortened in the middle.
pub(crate) struct Shown;

impl Shown {
    pub(crate) fn path(path: &std::path::Path) -> String {
        use std::os::unix::ffi::OsStrExt;
        Shown::bytes(path.as_os_str().as_bytes())
    }

    pub(crate) fn entry(name: &[u8]) -> String {
        if name.is_empty() { String::new() } else { format!("entry {} ", Shown::bytes(name)) }
    }

    pub(crate) fn bytes(name: &[u8]) -> String {
        const LONGEST: usize = 300;
        if name.len() > LONGEST {
            let half = LONGEST / 2;
            let (head, tail) = (&name[..half], &name[name.len() - half..]);
            return format!("{}[...]{}", Shown::bytes(head), Shown::bytes(tail));
        }
        let mut shown = String::with_capacity(name.len());
        for chunk in name.utf8_chunks() {
            for c in chunk.valid().chars() {
                if c.is_control() || c == '\\' {
                    shown.extend(c.escape_default());
                } else {
                    shown.push(c);
                }
            }
            for b in chunk.invalid() {
                shown.push_str(&format!("\\x{b:02x}"));
            }
        }
        if shown.is_empty() { "''".into() } else { shown }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hostile_name_stays_on_one_line() {
        let error = SourceError::Archive {
            archive: "a.tar".into(),
            offset: 512,
            entry: b"x\n\x1b[2Jy\xff\\".to_vec(),
            fault: "bad".into(),
        };
        assert_eq!(error.to_string(), "a.tar: entry x\\n\\u{1b}[2Jy\\xff\\\\ at byte 512: bad");
        let long = SourceError::source("p".repeat(5000), "no");
        assert!(long.to_string().len() < 400);
    }
}
