//! Errors of building an image.

use crate::error::SourceError;
use std::io;
use std::path::{Path, PathBuf};

/// An error of [`ImageBuilder::build`](crate::ImageBuilder::build): one line that says what failed,
/// where, and what to do.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum BuildError {
    /// A source could not be read.
    #[error(transparent)]
    Source(#[from] SourceError),
    /// The volume could not be made or filled.
    #[error("{0}")]
    Engine(extant::Error),
    /// An entry cannot be stored on the volume.
    #[error("{}: {error}", path.display())]
    Entry {
        /// Its path in the image.
        path: PathBuf,
        /// The reason.
        error: extant::Error,
    },
    /// The requested size is too small.
    #[error("the image needs {need} bytes and was given {given}: use --size {need} or --size auto")]
    TooSmall {
        /// Bytes of the smallest image that holds the sources.
        need: u64,
        /// Requested bytes.
        given: u64,
    },
    /// The block device to write is smaller than the image.
    #[error("{}: the device has {len} bytes and the image needs {need}", path.display())]
    DeviceTooSmall {
        /// The device.
        path: PathBuf,
        /// Bytes of the image.
        need: u64,
        /// Bytes of the device.
        len: u64,
    },
    /// A system call on the output failed.
    #[error("cannot {action} {}: {source}", path.display())]
    Output {
        /// The action, as in "open".
        action: &'static str,
        /// The file.
        path: PathBuf,
        /// The system's error.
        source: io::Error,
    },
    /// An option has no valid meaning.
    #[error("{0}")]
    Option(String),
    /// The caller requested a stop.
    #[error("stopped: no image was made")]
    Stopped,
}

impl BuildError {
    pub(crate) fn io(action: &'static str, path: impl Into<PathBuf>, source: io::Error) -> Self {
        BuildError::Output { action, path: path.into(), source }
    }

    /// Converts an error of opening the output.
    pub(crate) fn output(path: &Path, error: extant::Error) -> Self {
        match error {
            extant::Error::Device { source, .. } => BuildError::io("create", path, source),
            other => BuildError::Engine(other),
        }
    }
}
