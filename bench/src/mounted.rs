//! A volume that the programs of a bench use through a mount.

use std::fs;
use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::Result;

use crate::rig::Mount;
use crate::serve::{Serve, Server};

/// A mounted volume. Dropping it unmounts and ends the server.
pub(crate) struct Mounted {
    dir: PathBuf,
    _held: Held,
}

/// Keeps the mount alive.
#[expect(dead_code, reason = "held until it is dropped")]
enum Held {
    Kernel(Mount),
    Server(Server),
}

impl Mounted {
    /// The kernel's ext4 mounted on `dir`, which is created if it does not exist, as by the other
    /// functions.
    pub(crate) fn kernel(image: &Path, dir: &Path) -> Result<Mounted> {
        fs::create_dir_all(dir)?;
        let held = Held::Kernel(Mount::image(image, dir, "ext4", false)?);
        Ok(Mounted { dir: dir.into(), _held: held })
    }

    /// fuse2fs.
    pub(crate) fn fuse2fs(image: &Path, dir: &Path) -> Result<Mounted> {
        fs::create_dir_all(dir)?;
        let mut command = Command::new("fuse2fs");
        // The servers of databases run as other users.
        command.args(["-f", "-o", "rw,allow_other"]).arg(image).arg(dir);
        let held = Held::Server(Server::start(&mut command, dir)?);
        Ok(Mounted { dir: dir.into(), _held: held })
    }

    /// A server of this program.
    pub(crate) fn own(serve: &Serve) -> Result<Mounted> {
        fs::create_dir_all(serve.dir())?;
        let held = Held::Server(Server::own(serve)?);
        Ok(Mounted { dir: serve.dir().into(), _held: held })
    }

    /// A path on the mount.
    pub(crate) fn join(&self, name: &str) -> PathBuf {
        self.dir.join(name)
    }
}
