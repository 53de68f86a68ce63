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
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};

/// The largest block size of a mount of a block device.
const BLOCK_MAX: u32 = 4096;

/// The source of a mount; a loop device is given back when it is dropped, and goes when the mount does.
pub(super) struct Source {
    /// What stands in the table of mounts.
    pub(super) name: PathBuf,
    /// The block size of the device, where it is one.
    pub(super) block_device: Option<u32>,
}

impl Source {
    /// The image by its name.
    pub(super) fn plain(image: &Image) -> Source {
        let name = std::path::absolute(&image.name).unwrap_or_else(|_| image.name.clone());
        Source { name, block_device: None }
    }

    /// A loop device of the image, where one is to be had.
    pub(super) fn device(image: &Image, block_bytes: u32) -> Option<Source> {
        let mut losetup = Command::new("losetup");
        losetup.args(["--find", "--show", "--offset", &image.offset.to_string()]);
        let out = losetup.arg("--").arg(&image.path).stdin(Stdio::null()).output().ok()?;
        let name = PathBuf::from(OsStr::from_bytes(out.stdout.trim_ascii_end()));
        let made = out.status.success() && name.is_absolute();
        made.then(|| Source { name, block_device: Some(block_bytes.clamp(512, BLOCK_MAX)) })
    }
}

impl Drop for Source {
    fn drop(&mut self) {
        if self.block_device.is_some() {
            // While it is mounted the kernel waits with it for the end of the mount.
            let mut losetup = Command::new("losetup");
            let _ = losetup.arg("--detach").arg(&self.name).stderr(Stdio::null()).status();
        }
    }
}

/// The image behind a source: its name as `IMG?offset=BYTES`.
pub(in crate::verb) fn image_of(source: &Path) -> PathBuf {
    let Some(name) = source.to_str().and_then(|source| source.strip_prefix("/dev/loop")) else {
        return source.to_owned();
    };
    let place = PathBuf::from(format!("/sys/block/loop{name}/loop"));
    let read = |what: &str| std::fs::read(place.join(what)).ok();
    let Some(file) = read("backing_file") else { return source.to_owned() };
    let mut image = file.trim_ascii_end().to_vec();
    let offset = read("offset").unwrap_or_default();
    if !matches!(offset.trim_ascii_end(), b"" | b"0") {
        image.extend_from_slice(b"?offset=");
        image.extend_from_slice(offset.trim_ascii_end());
    }
    PathBuf::from(OsStr::from_bytes(&image))
}
