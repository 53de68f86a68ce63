//! The file in which an image is built: it gets its name only when it is complete.
//!
//! ```text
//!   OUT.partial   created, filled, flushed ──► renamed to OUT
//!        └── dropped before that: removed
//! ```
//!
//! A block device is written in place: it has no name that could be withheld. It must be large
//! enough for the image before anything is written to it. Only an automatic size that turns out to
//! be too small can grow past the device's end after a smaller volume was written.

use crate::builder::error::BuildError;
use extant::Error;
use extant_blockdev::{BlockDevice, FileDevice, FileOptions};
use std::ffi::OsString;
use std::fs;
use std::os::unix::fs::FileTypeExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// An image in progress.
pub(crate) struct Output {
    device: Arc<FileDevice>,
    path: PathBuf,
    /// The name of the incomplete file; `None` for a block device.
    partial: Option<PathBuf>,
}

impl Output {
    /// Opens the output for an image of `bytes`: a new file beside `path`, or the block device
    /// itself.
    ///
    /// Errors: `Output`; `DeviceTooSmall`; `Engine` when the block device or the image is in use.
    pub(crate) fn create(path: &Path, bytes: u64) -> Result<Output, BuildError> {
        let is_device = fs::metadata(path).is_ok_and(|meta| meta.file_type().is_block_device());
        if is_device {
            let mut options = FileOptions::new();
            let device = options.write(true).direct(true).open(path).map_err(BuildError::Engine)?;
            let output = Output { device: Arc::new(device), path: path.into(), partial: None };
            output.expect_space(bytes)?;
            return Ok(output);
        }
        refuse_in_use(path)?;
        let mut name: OsString = path.file_name().unwrap_or_default().into();
        name.push(".partial");
        let partial = path.with_file_name(name);
        // Remove what a killed earlier build left.
        match fs::remove_file(&partial) {
            Err(error) if error.kind() != std::io::ErrorKind::NotFound => {
                return Err(BuildError::io("replace", partial, error));
            }
            _ => {}
        }
        let device = FileOptions::new()
            .direct(true)
            .create(&partial, bytes)
            .map_err(|error| BuildError::output(&partial, error))?;
        Ok(Output { device: Arc::new(device), path: path.into(), partial: Some(partial) })
    }

    pub(crate) fn device(&self) -> Arc<FileDevice> {
        Arc::clone(&self.device)
    }

    fn expect_space(&self, need: u64) -> Result<(), BuildError> {
        match self.device.len() {
            len if len < need => {
                Err(BuildError::DeviceTooSmall { path: self.path.clone(), need, len })
            }
            _ => Ok(()),
        }
    }

    /// Starts again with a file of `bytes` that reads as zeros, or checks that the block device has
    /// as many.
    pub(crate) fn restart(&self, bytes: u64) -> Result<(), BuildError> {
        if self.partial.is_none() {
            self.expect_space(bytes)?;
        }
        if self.partial.is_some() {
            self.device.set_len(0).map_err(BuildError::Engine)?;
            self.device.set_len(bytes).map_err(BuildError::Engine)?;
        }
        Ok(())
    }

    /// Shortens the file to `bytes`. Nothing was written past that.
    pub(crate) fn cut(&self, bytes: u64) -> Result<(), BuildError> {
        if self.partial.is_some() && bytes < self.device.len() {
            self.device.set_len(bytes).map_err(BuildError::Engine)?;
        }
        Ok(())
    }

    /// Whether the output reads as zeros before it is written.
    pub(crate) fn is_fresh(&self) -> bool {
        self.partial.is_some()
    }

    /// Makes everything durable and gives the image its name.
    pub(crate) fn finish(mut self) -> Result<(), BuildError> {
        self.device.flush().map_err(BuildError::Engine)?;
        if self.partial.is_some() {
            refuse_in_use(&self.path)?;
        }
        if let Some(partial) = self.partial.take() {
            if let Err(error) = fs::rename(&partial, &self.path) {
                let _ = fs::remove_file(&partial);
                return Err(BuildError::io("rename", partial, error));
            }
            let dir = match self.path.parent() {
                Some(dir) if !dir.as_os_str().is_empty() => dir,
                _ => Path::new("."),
            };
            // The new name is durable once its directory is.
            let synced = fs::File::open(dir).and_then(|dir| dir.sync_all());
            synced.map_err(|error| BuildError::io("flush", dir.to_path_buf(), error))?;
        }
        Ok(())
    }
}

/// Refuses to replace an image that another program has open for writing: its changes would be
/// lost.
fn refuse_in_use(path: &Path) -> Result<(), BuildError> {
    match FileOptions::new().open(path) {
        Err(error @ Error::Busy) => Err(BuildError::Engine(error)),
        _ => Ok(()),
    }
}

impl Drop for Output {
    fn drop(&mut self) {
        if let Some(partial) = &self.partial {
            // Nothing that looks complete may remain. If this fails, only the partial name does.
            let _ = fs::remove_file(partial);
        }
    }
}
