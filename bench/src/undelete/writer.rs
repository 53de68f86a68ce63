//! What writes the volume: Linux, a mount by extant, or a program with the library.

use std::fs::{self, File};
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Result;
use extant::{Filesystem, NewFile, OpenOptions};

use crate::build::extant_program;
use crate::rig::{Mount, sync_filesystem};
use crate::serve::Server;

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Writer {
    Linux,
    Extant,
    Library,
}

/// A volume in use.
pub(crate) enum Session {
    Mounted { dir: PathBuf, _held: Held },
    Open(Filesystem),
}

/// Keeps a mount alive.
#[expect(dead_code, reason = "held until it is dropped")]
pub(crate) enum Held {
    Kernel(Mount),
    Server(Server),
}

impl Writer {
    pub(crate) const ALL: [Writer; 3] = [Writer::Linux, Writer::Extant, Writer::Library];

    pub(crate) fn name(self) -> &'static str {
        match self {
            Writer::Linux => "linux",
            Writer::Extant => "extant",
            Writer::Library => "library",
        }
    }

    pub(crate) fn needs_root(self) -> bool {
        self == Writer::Linux
    }

    /// Opens the volume, or mounts it on `dir`.
    pub(crate) fn session(self, image: &Path, dir: &Path) -> Result<Session> {
        fs::create_dir_all(dir)?;
        let held = match self {
            Writer::Linux => {
                Held::Kernel(Mount::image_with(image, dir, "ext4", false, "defaults")?)
            }
            Writer::Extant => {
                let mut command = Command::new(extant_program()?);
                command.args(["mount", "--foreground"]).arg(image).arg(dir);
                Held::Server(Server::start(&mut command, dir)?)
            }
            Writer::Library => {
                return Ok(Session::Open(OpenOptions::new().write(true).open(image)?));
            }
        };
        Ok(Session::Mounted { dir: dir.into(), _held: held })
    }
}

impl Session {
    /// Writes a file, and makes its directories.
    pub(crate) fn write(&self, path: &str, content: &[u8]) -> Result<()> {
        let parent = path.rsplit_once('/').map(|(parent, _)| parent);
        match self {
            Session::Mounted { dir, .. } => {
                if let Some(parent) = parent {
                    fs::create_dir_all(dir.join(parent))?;
                }
                fs::write(dir.join(path), content)?;
            }
            Session::Open(fs) => {
                if let Some(parent) = parent {
                    fs.create_dir_all(format!("/{parent}"), &NewFile::directory())?;
                }
                fs.write(format!("/{path}"), content)?;
            }
        }
        Ok(())
    }

    pub(crate) fn sync_file(&self, path: &str) -> Result<()> {
        match self {
            Session::Mounted { dir, .. } => File::open(dir.join(path))?.sync_all()?,
            Session::Open(fs) => fs.open_file(format!("/{path}"))?.sync_all()?,
        }
        Ok(())
    }

    pub(crate) fn remove_file(&self, path: &str) -> Result<()> {
        match self {
            Session::Mounted { dir, .. } => fs::remove_file(dir.join(path))?,
            Session::Open(fs) => fs.remove_file(format!("/{path}"))?,
        }
        Ok(())
    }

    /// `rm -r`.
    pub(crate) fn remove_tree(&self, path: &str) -> Result<()> {
        match self {
            Session::Mounted { dir, .. } => fs::remove_dir_all(dir.join(path))?,
            Session::Open(fs) => fs.remove_dir_all(format!("/{path}"))?,
        }
        Ok(())
    }

    /// Makes everything durable; the session goes on.
    pub(crate) fn sync(&self) -> Result<()> {
        match self {
            Session::Mounted { dir, .. } => sync_filesystem(dir),
            Session::Open(fs) => Ok(fs.sync()?),
        }
    }

    /// Unmounts or closes the volume.
    pub(crate) fn end(self) -> Result<()> {
        match self {
            Session::Mounted { .. } => Ok(()),
            Session::Open(fs) => Ok(fs.close()?),
        }
    }
}
