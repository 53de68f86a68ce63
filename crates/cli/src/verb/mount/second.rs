//! A volume that extant has mounted already: the second mount is a bind mount of the first.
//!
//! ```text
//!   mount IMG A ──► server ──► A                 one server, one volume
//!   mount IMG B ──► is IMG mounted? ── A ──bind──► B
//! ```
//!
//! Linux does so for a block device, too: its second mount shows the filesystem of the first. Two servers would be two writers.

use super::options::Options;
use super::source::image_of;
use crate::failure::{Failure, tell};
use crate::image::Image;
use crate::shown::Shown;
use crate::verb::unmount::unescaped;
use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::{Path, PathBuf};

/// A mount of a volume by extant.
pub(in crate::verb) struct First {
    pub(in crate::verb) dir: PathBuf,
    read_only: bool,
}

/// The first directory where extant has mounted the volume of `image` and serves it.
pub(in crate::verb) fn mounted_at(image: &Image) -> Option<First> {
    let wanted = (std::fs::canonicalize(&image.path).ok()?, image.offset);
    let table = std::fs::read("/proc/self/mountinfo").ok()?;
    table.split(|byte| *byte == b'\n').find_map(|line| {
        // id parent major:minor ROOT DIR OPTIONS [tags…] - TYPE SOURCE options
        let mut fields = line.split(|byte| *byte == b' ').skip(3);
        let is_whole = fields.next()? == b"/";
        let dir = PathBuf::from(OsString::from_vec(unescaped(fields.next()?)));
        let read_only = fields.next()?.split(|byte| *byte == b',').any(|word| word == b"ro");
        let mut behind = fields.skip_while(|field| *field != b"-").skip(1);
        let kind = behind.next()?;
        if !is_whole || kind != b"fuse.extant" && kind != b"fuseblk.extant" {
            return None;
        }
        let source = PathBuf::from(OsString::from_vec(unescaped(behind.next()?)));
        let other = Image::parse(image_of(&source).as_os_str()).ok()?;
        let is_same = (std::fs::canonicalize(&other.path).ok()?, other.offset) == wanted;
        // A server that was killed leaves a directory that cannot be looked at.
        (is_same && std::fs::metadata(&dir).is_ok()).then_some(First { dir, read_only })
    })
}

/// Shows on `dir` what is mounted on `first`.
///
/// Errors: for other users than root; for options that the first mount may not have; of the kernel.
pub(super) fn bind(
    first: &First,
    image: &Image,
    dir: &Path,
    options: &Options,
    foreground: bool,
) -> Result<u8, Failure> {
    let name = Shown::path(&image.name);
    let at = Shown::path(&first.dir);
    let refused = |why: &str| Failure::new(format!("{name}: mounted on {at} already{why}"));
    if !rustix::process::geteuid().is_root() {
        return Err(refused(": use it there, or unmount it first"));
    }
    if foreground {
        return Err(refused(", by another server: unmount it first"));
    }
    let others = Options { read_only: None, ..options.clone() };
    if others != Options::default()
        || options.read_only.unwrap_or(first.read_only) != first.read_only
    {
        return Err(refused(
            ": a second mount has the options of the first; unmount it to change them",
        ));
    }
    rustix::mount::mount_bind(&first.dir, dir)
        .map_err(|errno| Failure::of_file("mount on it", dir, errno))?;
    tell(format_args!("{name}: mounted on {at} already: {} shows the same", Shown::path(dir)));
    Ok(0)
}
