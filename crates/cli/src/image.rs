//! The image a verb works on: `IMG`, `IMG?offset=1M`, `IMG?backup=1`.
//!
//! ```text
//!   disk.img?offset=1048576&backup=3      also: &journal=DEVICE, where the journal is a device
//!                                               &member=IMG2, for each other device of its layout
//!                                               &degraded, to change a mirror without the others
//!   │        │              └ superblock and descriptors from the copies in group 3
//!   │        └─────────────── where the volume starts, in bytes
//!   └──────────────────────── a file or block device
//! ```

use crate::amount;
use crate::failure::{Failure, said_of_image, tell};
use crate::shown::Shown;
use extant::{Filesystem, OpenOptions};
use std::ffi::{OsStr, OsString};
use std::fs::Metadata;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::Arc;

/// An image by name.
#[derive(Clone, Debug)]
pub(crate) struct Image {
    /// As it was named, for messages.
    pub(crate) name: PathBuf,
    /// The file or device.
    pub(crate) path: PathBuf,
    /// Where the volume starts, in bytes.
    pub(crate) offset: u64,
    backup: Option<u32>,
    /// The device of an external journal.
    pub(crate) journal: Option<PathBuf>,
    /// The other devices that the volume lies on.
    pub(crate) members: Vec<PathBuf>,
    degraded: bool,
}

impl Image {
    /// Reads what the user wrote. A file whose name holds `?offset=` is named as it is.
    pub(crate) fn parse(text: &OsStr) -> Result<Image, Failure> {
        let name = PathBuf::from(text);
        let mut image = Image {
            path: name.clone(),
            name,
            offset: 0,
            backup: None,
            journal: None,
            members: Vec::new(),
            degraded: false,
        };
        let bytes = text.as_bytes();
        let Some(at) = bytes.iter().rposition(|&byte| byte == b'?') else { return Ok(image) };
        let Ok(options) = std::str::from_utf8(&bytes[at + 1..]) else { return Ok(image) };
        let known = ["offset=", "backup=", "journal=", "member=", "degraded"];
        if !known.iter().any(|name| options.starts_with(name)) || image.path.exists() {
            return Ok(image);
        }
        image.path = PathBuf::from(OsString::from_vec(bytes[..at].to_vec()));
        for option in options.split('&') {
            let wrong = |why: String| Failure::usage(format!("{}: {why}", image.name.display()));
            if let Some(value) = option.strip_prefix("offset=") {
                image.offset = amount::bytes(value).map_err(wrong)?;
            } else if let Some(value) = option.strip_prefix("backup=") {
                let group = value.parse();
                let why = || "backup= takes the number of a block group".to_owned();
                image.backup = Some(group.map_err(|_| wrong(why()))?);
            } else if let Some(value) = option.strip_prefix("journal=") {
                image.journal = Some(value.into());
            } else if let Some(value) = option.strip_prefix("member=") {
                image.members.push(value.into());
            } else if option == "degraded" {
                image.degraded = true;
            } else {
                return Err(wrong(format!(
                    "'{option}' is none of offset=BYTES, backup=GROUP, journal=DEVICE, \
                     member=DEVICE, degraded"
                )));
            }
        }
        let mut named = vec![&image.path];
        for member in &image.members {
            if let Some(other) = named.iter().find(|other| is_same_file(other, member)) {
                let (member, other) = (Shown::path(member), Shown::path(other));
                return Err(Failure::new(format_args!(
                    "{member}: is {other}, which is named already: name each member once"
                )));
            }
            named.push(member);
        }
        Ok(image)
    }

    /// How a command opens it, which uses each byte once.
    pub(crate) fn options(&self) -> OpenOptions {
        let mut options = self.options_to_stay();
        options.page_cache_bytes(0);
        options
    }

    /// How to open it for longer, with a page cache.
    pub(crate) fn options_to_stay(&self) -> OpenOptions {
        let mut options = OpenOptions::new();
        options.offset(self.offset);
        if let Some(group) = self.backup {
            options.backup_superblock(group);
        }
        if let Some(journal) = &self.journal {
            options.journal_device(journal);
        }
        options.degraded(self.degraded);
        for member in &self.members {
            options.member(member);
        }
        let name = self.name.clone();
        options.on_error(Arc::new(move |error| {
            if let extant::Error::Member(_) = error {
                tell(format_args!("{}", said_of_image(&name, error)));
            }
        }));
        options
    }

    /// Opens the volume to read, recovered in memory where it needs that.
    pub(crate) fn open(&self) -> Result<Filesystem, Failure> {
        self.open_with(&self.options())
    }

    /// Opens the volume with these options.
    pub(crate) fn open_with(&self, options: &OpenOptions) -> Result<Filesystem, Failure> {
        options.open(&self.path).map_err(|error| Failure::of_image(&self.name, &error))
    }

    /// What failed at `path` in the volume.
    pub(crate) fn failure(&self, path: &[u8], error: &extant::Error) -> Failure {
        Failure::of_path(&self.name, path, error)
    }
}

/// Whether both names lead to one file, or one block device.
pub(crate) fn is_same_file(a: &Path, b: &Path) -> bool {
    let (Ok(a), Ok(b)) = (std::fs::metadata(a), std::fs::metadata(b)) else { return false };
    let is_device = |file: &Metadata| file.file_type().is_block_device();
    let one_device = is_device(&a) && is_device(&b) && a.rdev() == b.rdev();
    one_device || (a.dev(), a.ino()) == (b.dev(), b.ino())
}

/// A path inside the volume, absolute, without empty parts, `.` and a trailing slash. What `..`
/// means depends on symlinks, so such a path is left to the volume.
///
/// Errors: an empty path, which a variable that is not set may leave behind.
pub(crate) fn inner_path(path: &OsStr) -> Result<Vec<u8>, Failure> {
    if path.is_empty() {
        return Err(Failure::usage("an empty path names nothing: the volume's root is /"));
    }
    let mut out = Vec::new();
    for part in path.as_bytes().split(|&byte| byte == b'/') {
        if !part.is_empty() && part != b"." {
            out.push(b'/');
            out.extend_from_slice(part);
        }
    }
    Ok(if out.is_empty() { b"/".to_vec() } else { out })
}

/// The path as the engine takes it.
pub(crate) fn as_path(path: &[u8]) -> &Path {
    Path::new(OsStr::from_bytes(path))
}

/// `dir` and a name in it.
pub(crate) fn join(dir: &[u8], name: &[u8]) -> Vec<u8> {
    let mut path = Vec::with_capacity(dir.len() + 1 + name.len());
    path.extend_from_slice(dir);
    if !dir.ends_with(b"/") {
        path.push(b'/');
    }
    path.extend_from_slice(name);
    path
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_offset_is_taken_off_the_name() {
        let image = Image::parse("no-such?offset=1M&backup=3".as_ref()).unwrap();
        assert_eq!((image.path, image.offset), (PathBuf::from("no-such"), 1 << 20));
        assert_eq!(image.backup, Some(3));
        let plain = Image::parse("what?now".as_ref()).unwrap();
        assert_eq!((plain.path, plain.offset), (PathBuf::from("what?now"), 0));
        assert!(Image::parse("no-such?offset=x".as_ref()).is_err());
        assert!(Image::parse("no-such?offset=1&size=2".as_ref()).is_err());
    }

    #[test]
    fn paths_are_absolute_and_plain() {
        let known = [
            (".", "/"),
            ("/", "/"),
            ("etc/", "/etc"),
            ("//a/./b//", "/a/b"),
            ("a/../b", "/a/../b"),
        ];
        for (text, path) in known {
            assert_eq!(inner_path(text.as_ref()).unwrap(), path.as_bytes());
        }
        assert!(inner_path("".as_ref()).is_err());
    }
}
