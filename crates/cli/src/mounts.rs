//! The mounts that `extant mount` made, from the kernel's table.
//!
//! ```text
//!   36 25 7:3 / /mnt rw,nosuid shared:9 - fuseblk.extant /home/u/disk.img rw,user_id=0
//!         │      │   │                    │              └ source: the image, or its loop device
//!         │      │   └ options of the mount               type
//!         │      └ directory
//!         └ device: the loop device's number
//! ```

use crate::failure::Failure;
use rustix::io::Errno;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::{Path, PathBuf};

/// A mount made by extant.
pub(crate) struct Mounted {
    /// The directory on which it is mounted.
    pub(crate) dir: PathBuf,
    /// What is mounted, as `IMG?offset=BYTES`.
    pub(crate) image: PathBuf,
    /// Whether it is read-only.
    pub(crate) read_only: bool,
    /// Whether it shows the whole volume rather than one directory of it.
    pub(crate) is_whole: bool,
}

impl Mounted {
    /// All such mounts. Of several on one directory, the topmost is last.
    pub(crate) fn all() -> Result<Vec<Mounted>, Failure> {
        let path = Path::new("/proc/self/mountinfo");
        let table =
            std::fs::read(path).map_err(|error| Failure::of_file("read it", path, error))?;
        Ok(table.split(|&byte| byte == b'\n').filter_map(Mounted::parse).collect())
    }

    /// The topmost such mount on `dir`.
    pub(crate) fn on(dir: &Path) -> Result<Option<Mounted>, Failure> {
        Ok(Mounted::all()?.into_iter().rev().find(|mounted| mounted.dir == dir))
    }

    fn parse(line: &[u8]) -> Option<Mounted> {
        let mut fields = line.split(|&byte| byte == b' ');
        let device = String::from_utf8(fields.nth(2)?.to_vec()).ok()?;
        let is_whole = fields.next()? == b"/";
        let dir = path_of(fields.next()?);
        let read_only = fields.next()?.split(|&byte| byte == b',').any(|word| word == b"ro");
        let mut rest = fields.skip_while(|field| *field != b"-").skip(1);
        let (kind, source) = (rest.next()?, path_of(rest.next()?));
        let is_ours = kind == b"fuse.extant" || kind == b"fuseblk.extant";
        is_ours.then(|| Mounted { dir, image: image_of(&source, &device), read_only, is_whole })
    }

    /// Whether its server ended without unmounting it.
    pub(crate) fn is_dead(&self) -> bool {
        // Attributes of files may come from the kernel's cache; `statfs` reaches the server. If the
        // server is ending, the request is aborted.
        matches!(rustix::fs::statfs(&self.dir), Err(Errno::NOTCONN | Errno::CONNABORTED))
    }
}

/// The directory as an absolute path without links. Also works if a dead mount prevents access to
/// it.
pub(crate) fn place_of(dir: &Path) -> std::io::Result<PathBuf> {
    std::fs::canonicalize(dir).or_else(|error| {
        let whole = std::path::absolute(dir)?;
        match (whole.parent(), whole.file_name()) {
            (Some(parent), Some(name)) => Ok(std::fs::canonicalize(parent)?.join(name)),
            _ => Err(error),
        }
    })
}

/// The mounted image as `IMG?offset=BYTES`. `device` is the number of the mount's device,
/// `MAJOR:MINOR`.
fn image_of(source: &Path, device: &str) -> PathBuf {
    let place = Path::new("/sys/dev/block").join(device).join("loop");
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

/// A field of the table, with its escapes decoded: `\040` is a space.
fn path_of(field: &[u8]) -> PathBuf {
    let mut out = Vec::with_capacity(field.len());
    let mut rest = field;
    while let Some((&first, after)) = rest.split_first() {
        let octal = after.get(..3).filter(|_| first == b'\\');
        let byte = octal.and_then(|digits| {
            let digits = std::str::from_utf8(digits).ok()?;
            u8::from_str_radix(digits, 8).ok()
        });
        match byte {
            Some(byte) => {
                out.push(byte);
                rest = &after[3..];
            }
            None => {
                out.push(first);
                rest = after;
            }
        }
    }
    PathBuf::from(OsString::from_vec(out))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn escapes_of_the_mount_table_are_read() {
        assert_eq!(path_of(br"/mnt/a\040b\134c"), Path::new("/mnt/a b\\c"));
        assert_eq!(path_of(br"\04"), Path::new(r"\04"));
    }

    #[test]
    fn mounts_of_others_are_left_out() {
        let ours = b"36 25 0:77 / /mnt/a\\040b ro,nosuid shared:9 - fuse.extant /tmp/x.img ro";
        let mounted = Mounted::parse(ours).unwrap();
        assert_eq!(mounted.dir, Path::new("/mnt/a b"));
        assert_eq!((mounted.image.as_path(), mounted.read_only), (Path::new("/tmp/x.img"), true));
        assert!(Mounted::parse(b"36 25 0:77 / /mnt rw - fuse.sshfs host: rw").is_none());
        assert!(Mounted::parse(b"").is_none());
    }
}
