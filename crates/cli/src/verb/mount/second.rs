//! A second mount of a volume that extant has already mounted is a bind mount of the first.
//!
//! ```text
//!   mount IMG A ──► server ──► A                 one server, one volume
//!   mount IMG B ──► is IMG mounted? ── A ──bind──► B
//! ```
//!
//! Linux does the same for a block device: its second mount shows the filesystem of the first. Two
//! servers would be two writers.

use super::options::Options;
use crate::failure::{Failure, print_message};
use crate::image::Image;
use crate::mounts::Mounted;
use crate::shown::Shown;
use std::path::Path;

/// The first directory where extant has mounted the volume of `image` and serves it.
pub(in crate::verb) fn mounted_at(image: &Image) -> Option<Mounted> {
    let mounts = mounts_of(image).ok()?;
    mounts.into_iter().find(|mounted| mounted.is_whole && !mounted.is_dead())
}

/// All mounts of `image` that extant made, also dead ones.
pub(in crate::verb) fn mounts_of(image: &Image) -> Result<Vec<Mounted>, Failure> {
    let Ok(path) = std::fs::canonicalize(&image.path) else { return Ok(Vec::new()) };
    let wanted = Some((path, image.offset));
    let mut mounts = Mounted::all()?;
    mounts.retain(|mounted| {
        let other = Image::parse(mounted.image.as_os_str()).ok();
        other.and_then(|it| Some((std::fs::canonicalize(&it.path).ok()?, it.offset))) == wanted
    });
    Ok(mounts)
}

/// Bind-mounts the mount on `first` on `dir`.
///
/// Errors: if the user is not root; if options are given that the first mount may not have; errors
/// of the kernel.
pub(super) fn bind(
    first: &Mounted,
    image: &Image,
    dir: &Path,
    options: &Options,
    foreground: bool,
) -> Result<u8, Failure> {
    let name = Shown::path(&image.name);
    let at = Shown::path(&first.dir);
    let refused = |why: &str| Failure::new(format!("{name}: already mounted on {at}{why}"));
    if !rustix::process::geteuid().is_root() {
        return Err(refused(": use that mount, or unmount it first"));
    }
    if foreground {
        return Err(refused(", by another server: unmount it first"));
    }
    let others = Options { read_only: None, ..options.clone() };
    if others != Options::default()
        || options.read_only.unwrap_or(first.read_only) != first.read_only
    {
        return Err(refused(
            ": a second mount has the options of the first: unmount that to change them",
        ));
    }
    rustix::mount::mount_bind(&first.dir, dir)
        .map_err(|errno| Failure::of_file("mount on it", dir, errno))?;
    print_message(format_args!(
        "{name}: already mounted on {at}: {} is a bind mount of it",
        Shown::path(dir)
    ));
    Ok(0)
}
