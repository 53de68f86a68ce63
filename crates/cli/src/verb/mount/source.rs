//! The source of the mount, as the kernel sees it.
//!
//! ```text
//!   root, loop devices       fuseblk over a loop device of the image: `sync` reaches the volume,
//!                            and `umount` returns when it is clean. No data passes through the
//!                            loop device.
//!   else, or -o plain        fuse, the image by name: the kernel does neither
//! ```

use crate::image::Image;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::process::{Command, Stdio};

/// The largest block size of a mount of a block device.
const BLOCK_MAX: u32 = 4096;

/// The source of a mount. Dropping it detaches its loop device, which the kernel then removes when
/// the mount ends.
pub(super) struct Source {
    /// The device, or the name of the image for the table of mounts.
    pub(super) name: PathBuf,
    /// The block size, if the source is a block device.
    pub(super) block_device: Option<u32>,
    /// The image file in the device, which the table of mounts then shows.
    pub(super) shown_as: Option<PathBuf>,
}

impl Source {
    /// The image by its name.
    pub(super) fn plain(image: &Image) -> Source {
        let name = std::path::absolute(&image.name).unwrap_or_else(|_| image.name.clone());
        Source { name, block_device: None, shown_as: None }
    }

    /// A loop device of the image, or `None` if that is not possible.
    pub(super) fn device(image: &Image, block_bytes: u32, read_only: bool) -> Option<Source> {
        let mut losetup = losetup();
        losetup.args(read_only.then_some("--read-only"));
        losetup.args(["--find", "--show", "--offset", &image.offset.to_string()]);
        losetup.args(image.len.map(|len| format!("--sizelimit={len}")));
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
            // While it is mounted, the kernel delays this until the end of the mount.
            let _ = losetup().arg("--detach").arg(&self.name).stderr(Stdio::null()).status();
        }
    }
}

/// `losetup`, also if `PATH` lacks the directories of root's programs, as under mount(8) and `su`.
fn losetup() -> Command {
    let mut path = std::env::var_os("PATH").unwrap_or_else(|| "/usr/bin:/bin".into());
    path.push(":/usr/sbin:/sbin");
    let mut command = Command::new("losetup");
    command.env("PATH", path);
    command
}
