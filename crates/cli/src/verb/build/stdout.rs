//! `extant build -o -`: an image that is built in a temporary directory and sent when it is
//! complete.
//!
//! ```text
//!   TMP/extant-build-PID-N/image ──complete──► standard output, holes as zeros ──► removed
//! ```
//!
//! The builder writes in any order and reads what it wrote, so a pipe can only receive the result.

use crate::failure::{Failure, plain};
use crate::shown::Shown;
use std::fs::{self, DirBuilder, File};
use std::io::{self, Read, Write};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

const PIECE: usize = 1 << 20;

/// The temporary directory of an image for standard output. Dropping it removes it.
pub(super) struct StdoutImage {
    dir: PathBuf,
}

impl StdoutImage {
    /// Creates the directory in `dir`, accessible to this user only.
    pub(super) fn new(dir: &Path) -> Result<StdoutImage, Failure> {
        let process = std::process::id();
        let mut failed = io::Error::from(io::ErrorKind::AlreadyExists);
        for n in 0..1000 {
            let dir = dir.join(format!("extant-build-{process}-{n}"));
            match DirBuilder::new().mode(0o700).create(&dir) {
                Ok(()) => return Ok(StdoutImage { dir }),
                Err(error) if error.kind() == io::ErrorKind::AlreadyExists => {}
                Err(error) => {
                    failed = error;
                    break;
                }
            }
        }
        let (dir, failed) = (Shown::path(dir), plain(&failed));
        Err(Failure::new(format_args!(
            "{dir}: cannot create a directory for the image: {failed}: name another directory \
             with --spool-dir"
        )))
    }

    /// The path of the image to build.
    pub(super) fn path(&self) -> PathBuf {
        self.dir.join("image")
    }

    /// Sends the image, until `stop` is set.
    pub(super) fn send(self, stop: &AtomicBool) -> Result<(), Failure> {
        let path = self.path();
        let broken = |error| Failure::of_file("read", &path, error);
        let mut file = File::open(&path).map_err(broken)?;
        let mut out = io::stdout().lock();
        let mut piece = vec![0; PIECE];
        while !stop.load(Ordering::Relaxed) {
            match file.read(&mut piece).map_err(broken)? {
                0 => break,
                len => out.write_all(&piece[..len]).map_err(Failure::of_output)?,
            }
        }
        out.flush().map_err(Failure::of_output)
    }
}

impl Drop for StdoutImage {
    fn drop(&mut self) {
        // If removal fails, a temporary file remains.
        let _ = fs::remove_file(self.path());
        let _ = fs::remove_dir(&self.dir);
    }
}
