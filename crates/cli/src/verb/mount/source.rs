//! What the kernel takes for the device of the mount.
//!
//! ```text
//!   root, loop devices       fuseblk over a loop device of the image: `sync` reaches the volume, and
//!                            `umount` returns when it is clean. No byte goes through the loop device.
//!   else, or -o plain        fuse, the image by name: the kernel tells of neither
//! ```

use crate::image::Image;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};

/// The largest block size of a mount of a block device.
const BLOCK_MAX: u32 = 4096;

/// The source of a mount; a loop device is given back when it is dropped, and goes when the mount does.
pub(super) struct Source {
    /// The device, or the image as the table of mounts shows it.
    pub(super) name: PathBuf,
    /// The block size of the device, where it is one.
    pub(super) block_device: Option<u32>,
    /// The image file in the device, which the table of mounts then names.
    pub(super) shown_as: Option<PathBuf>,
}

impl Source {
    /// The image by its name.
    pub(super) fn plain(image: &Image) -> Source {
        let name = std::path::absolute(&image.name).unwrap_or_else(|_| image.name.clone());
        Source { name, block_device: None, shown_as: None }
    }

    /// A loop device of the image, where one is to be had.
    pub(super) fn device(image: &Image, block_bytes: u32, read_only: bool) -> Option<Source> {
        let mut losetup = losetup();
        losetup.args(read_only.then_some("--read-only"));
        losetup.args(["--find", "--show", "--offset", &image.offset.to_string()]);
        let out = losetup.arg("--").arg(&image.path).stdin(Stdio::null()).output().ok()?;
        let name = PathBuf::from(OsStr::from_bytes(out.stdout.trim_ascii_end()));
        let made = out.status.success() && name.is_absolute();
        let shown_as = std::fs::canonicalize(&image.path).ok().filter(|path| path.is_file());
        let block_device = Some(block_bytes.clamp(512, BLOCK_MAX));
        made.then_some(Source { name, block_device, shown_as })
    }
}

impl Drop for Source {
    fn drop(&mut self) {
        if self.block_device.is_some() {
            // While it is mounted the kernel waits with it for the end of the mount.
            let _ = losetup().arg("--detach").arg(&self.name).stderr(Stdio::null()).status();
        }
    }
}

/// `losetup`, also where `PATH` leads to no programs of root, as under mount(8) and `su`.
fn losetup() -> Command {
    let mut path = std::env::var_os("PATH").unwrap_or_else(|| "/usr/bin:/bin".into());
    path.push(":/usr/sbin:/sbin");
    let mut command = Command::new("losetup");
    command.env("PATH", path);
    command
}
