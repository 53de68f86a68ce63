//! `extant build -o -`: an image that is built in a directory of its own and sent when it is whole.
//!
//! ```text
//!   TMP/extant-build-PID-N/image ──whole──► standard output, holes as zeros ──► taken away
//! ```
//!
//! The builder writes in any order and reads what it wrote: a pipe can take the result alone.

use crate::failure::{Failure, plain};
use crate::shown::Shown;
use std::fs::{self, DirBuilder, File};
use std::io::{self, Read, Write};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicBool, Ordering};

const PIECE: usize = 1 << 20;

/// The directory of an image for standard output. It is removed at the end.
pub(super) struct StdoutImage {
    dir: PathBuf,
}

impl StdoutImage {
    /// Makes the directory in `dir`, for this user alone.
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
            "{dir}: cannot make a directory for the image: {failed}: name another one by --spool-dir"
        )))
    }

    /// Where to build the image.
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
        // What cannot be removed is a temporary file like others.
        let _ = fs::remove_file(self.path());
        let _ = fs::remove_dir(&self.dir);
    }
}
