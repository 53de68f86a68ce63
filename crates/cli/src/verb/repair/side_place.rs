//! Where the side files of a volume are.
//!
//! ```text
//!   image file   IMG.repair, IMG.repair.1, …          a volume at an offset: IMG@OFFSET.repair
//!   layout       of its members, the first by name
//!   device       /var/lib/extant/NAME.repair, …       the same from every directory
//! ```

use crate::failure::{Failure, plain};
use crate::image::Image;
use crate::shown::Shown;
use extant_repair::SideFile;
use std::ffi::OsString;
use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt};
use std::path::{Path, PathBuf};

/// Where the side files of devices are.
const DEVICE_DIR: &str = "/var/lib/extant";
/// How many side files of one volume are kept.
const FILES_MAX: usize = 1000;

/// The names of a volume's side files.
pub(crate) struct SidePlace {
    first: PathBuf,
    /// The user named it: no other name is used.
    given: bool,
}

impl SidePlace {
    /// The place for an image; `given` is what the user named.
    pub(crate) fn of(image: &Image, given: Option<&Path>) -> Result<SidePlace, Failure> {
        if let Some(path) = given {
            return Ok(SidePlace { first: path.to_path_buf(), given: true });
        }
        // The members of a layout may be named in any order.
        let path = image.members.iter().fold(&image.path, std::cmp::min);
        let is_file = std::fs::metadata(path).is_ok_and(|file| file.is_file());
        let mut name: OsString = match is_file {
            true => path.into(),
            false => {
                let real = std::fs::canonicalize(path)
                    .map_err(|error| Failure::of_file("open", path, error))?;
                Path::new(DEVICE_DIR).join(real.file_name().unwrap_or(real.as_os_str())).into()
            }
        };
        if image.offset != 0 {
            name.push(format!("@{}", image.offset));
        }
        name.push(".repair");
        Ok(SidePlace { first: name.into(), given: false })
    }

    fn names(&self) -> impl Iterator<Item = PathBuf> + '_ {
        let count = if self.given { 1 } else { FILES_MAX };
        (0..count).map(|n| match n {
            0 => self.first.clone(),
            n => {
                let mut name = self.first.clone().into_os_string();
                name.push(format!(".{n}"));
                name.into()
            }
        })
    }

    /// The side files that are there.
    pub(super) fn existing(&self) -> impl Iterator<Item = PathBuf> + '_ {
        self.names().take_while(|path| path.symlink_metadata().is_ok())
    }

    /// Opens a side file; `None` if its writing was interrupted.
    ///
    /// A file that another user could have written is refused, because its content goes to the
    /// volume without a question.
    pub(super) fn open(&self, path: &Path) -> Result<Option<SideFile>, Failure> {
        let failed = |error| Failure::of_file("use the side file", path, error);
        let meta = path.symlink_metadata().map_err(failed)?;
        let own = rustix::process::geteuid().as_raw();
        if meta.is_file() && ((meta.uid() != own && meta.uid() != 0) || meta.mode() & 0o022 != 0) {
            return Err(Failure::new(format_args!(
                "{}: another user could have written this side file: move it away",
                Shown::path(path)
            )));
        }
        match SideFile::open(path) {
            Ok(side) => Ok(Some(side)),
            Err(error) if error.kind() == io::ErrorKind::UnexpectedEof => Ok(None),
            Err(error) => Err(failed(error)),
        }
    }

    /// A name for a new side file.
    pub(super) fn free(&self) -> Result<PathBuf, Failure> {
        if !self.given && self.first.starts_with(DEVICE_DIR) {
            let made = std::fs::DirBuilder::new().recursive(true).mode(0o700).create(DEVICE_DIR);
            made.map_err(|error| {
                Failure::new(format_args!(
                    "{DEVICE_DIR}: {}: name a side file with --side-file",
                    plain(&error)
                ))
            })?;
        }
        let free = self.names().find(|path| path.symlink_metadata().is_err());
        free.ok_or_else(|| {
            Failure::new(format_args!(
                "{}: the side file of an earlier repair: move it away, or name another with \
                 --side-file",
                Shown::path(&self.first)
            ))
        })
    }
}
