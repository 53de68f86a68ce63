//! The image that a verb works on: `IMG`, `IMG?partition=2`, `IMG?offset=1M`, `IMG?backup=1`.
//!
//! ```text
//!   disk.img?partition=2&backup=3         also: &journal=DEVICE, where the journal is a device
//!                                               &member=IMG2, for each other device of its layout
//!                                               &degraded, to change a mirror without the others
//!   │        │           └ superblock and descriptors from the copies in group 3
//!   │        └──────────── where the volume is: partition=, partuuid=, partlabel=, label=, uuid=,
//!   │                      or offset=, its first byte
//!   └───────────────────── a file or block device
//! ```
//!
//! A disk on which one partition only has a volume stands for that volume.

use crate::amount;
use crate::disk;
use crate::failure::{
    Failure, absence_message, explained, ignored_lock_message, is_no_volume, print_message,
    with_name,
};
use crate::shown::Shown;
use crate::signature;
use extant::disk::Selector;
use extant::{Error, Filesystem, OpenOptions};
use extant_base::{MemberError, MemberProblem};
use std::collections::HashSet;
use std::ffi::{OsStr, OsString};
use std::fs::Metadata;
use std::ops::Range;
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::os::unix::fs::{FileTypeExt, MetadataExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

/// An image, its options and its members.
#[derive(Clone, Debug)]
pub(crate) struct Image {
    /// The text that named it, for messages.
    pub(crate) name: PathBuf,
    /// The file or device.
    pub(crate) path: PathBuf,
    /// Where the volume starts, in bytes.
    pub(crate) offset: u64,
    /// The length in bytes of the partition that it is in; `None` if it is in no partition.
    pub(crate) len: Option<u64>,
    /// Whether the name says where the volume is. Otherwise the disk is searched for it.
    is_placed: bool,
    pub(crate) backup: Option<u32>,
    /// The device of an external journal.
    pub(crate) journal: Option<PathBuf>,
    /// The other devices of the volume.
    pub(crate) members: Vec<PathBuf>,
    /// Whether the volume may be changed while some of them are missing.
    pub(crate) degraded: bool,
    /// Messages about members that were already printed. Each is printed once, however often the
    /// volume is opened.
    reported: Arc<Mutex<HashSet<MemberError>>>,
    /// Processes about whose locks the user was warned.
    warned: Arc<Mutex<HashSet<u32>>>,
}

/// Options that may follow the name.
const OPTIONS: [&str; 10] = [
    "partition=",
    "partuuid=",
    "partlabel=",
    "label=",
    "uuid=",
    "offset=",
    "backup=",
    "journal=",
    "member=",
    "degraded",
];

impl Image {
    /// Parses what the user wrote, and finds the partition that the volume is in. If a file has a
    /// name with `?offset=` in it, the text is its name.
    pub(crate) fn parse(text: &OsStr) -> Result<Image, Failure> {
        let mut image = Image::parse_for_new(text)?;
        // A disk from which no partition follows is reported when it is opened.
        if !image.is_placed
            && let Ok(Some(part)) = disk::volume_part(&image.path, None)
        {
            image.place(part);
        }
        Ok(image)
    }

    /// As [`Image::parse`], for a new volume: no volume is searched for.
    pub(crate) fn parse_for_new(text: &OsStr) -> Result<Image, Failure> {
        let name = PathBuf::from(text);
        let mut image = Image {
            path: name.clone(),
            name,
            offset: 0,
            len: None,
            is_placed: false,
            backup: None,
            journal: None,
            members: Vec::new(),
            degraded: false,
            reported: Arc::default(),
            warned: Arc::default(),
        };
        let bytes = text.as_bytes();
        let Some(at) = bytes.iter().rposition(|&byte| byte == b'?') else { return Ok(image) };
        let Ok(options) = std::str::from_utf8(&bytes[at + 1..]) else { return Ok(image) };
        let path = PathBuf::from(OsString::from_vec(bytes[..at].to_vec()));
        let is_meant = OPTIONS.iter().any(|name| options.starts_with(name))
            || nearest(options).is_some()
            || path.exists();
        if !is_meant || image.path.exists() {
            return Ok(image);
        }
        image.path = path;
        let mut selector = None;
        for option in options.split('&') {
            let wrong = |why: String| Failure::usage(format!("{}: {why}", image.name.display()));
            if let Some(value) = option.strip_prefix("offset=") {
                image.offset = amount::bytes(value).map_err(wrong)?;
                image.is_placed = true;
            } else if let Some(found) = Selector::of_option(option) {
                if selector.replace(found.map_err(|why| wrong(why.into()))?).is_some() {
                    return Err(wrong("names a partition twice".into()));
                }
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
                let hint = nearest(option).map(|name| format!("; did you mean {name}?"));
                return Err(wrong(format!(
                    "'{option}' is not one of partition=NUMBER, partuuid=, partlabel=, label=, \
                     uuid=, offset=BYTES, backup=GROUP, journal=DEVICE, member=DEVICE, degraded{}",
                    hint.unwrap_or_default()
                )));
            }
        }
        if let Some(selector) = selector {
            if image.is_placed {
                let why = "offset= and a partition exclude each other";
                return Err(Failure::usage(format!("{}: {why}", image.name.display())));
            }
            image.is_placed = true;
            let part = disk::volume_part(&image.path, Some(&selector));
            let part = part.map_err(|error| Failure::of_image(&image.name, &error))?;
            part.into_iter().for_each(|part| image.place(part));
        }
        let mut named = vec![&image.path];
        for member in &image.members {
            if let Some(other) = named.iter().find(|other| is_same_file(other, member)) {
                let (member, other) = (Shown::path(member), Shown::path(other));
                return Err(Failure::new(format_args!(
                    "{member}: the same file as {other}: name each member once"
                )));
            }
            named.push(member);
        }
        Ok(image)
    }

    /// Whether the name says where on the file or device the volume is.
    pub(crate) fn names_a_place(&self) -> bool {
        self.is_placed
    }

    /// The same place as in `other`, for a name that says none.
    pub(crate) fn placed_as(self, other: &Image) -> Image {
        match self.is_placed {
            true => self,
            false => Image { offset: other.offset, len: other.len, is_placed: true, ..self },
        }
    }

    /// The error for a disk that is named without its partition, where all of it is not meant.
    pub(crate) fn refuse_disk(&self) -> Result<(), Failure> {
        let has_table = || !matches!(disk::table(&self.path), Ok(None) | Err(Error::Device { .. }));
        match self.is_placed || self.len.is_some() || !has_table() {
            true => Ok(()),
            false => Err(Failure::new(format_args!(
                "{}: a disk with partitions: name one as IMG?partition=NUMBER; `extant info IMG` \
                 lists them",
                Shown::path(&self.name)
            ))),
        }
    }

    /// Sets which bytes of the disk the volume is in.
    fn place(&mut self, part: Range<u64>) {
        self.offset = part.start;
        self.len = Some(part.end - part.start);
    }

    /// Options to open it for a command, which uses each byte once.
    pub(crate) fn options(&self) -> OpenOptions {
        let mut options = self.options_to_stay();
        options.page_cache_bytes(0);
        options
    }

    /// Options to open it for a longer time, with a page cache.
    pub(crate) fn options_to_stay(&self) -> OpenOptions {
        let mut options = OpenOptions::new();
        match self.len {
            // Where only the search said so, each member is searched for itself.
            Some(_) if !self.is_placed && !self.members.is_empty() => &mut options,
            Some(len) => options.range(self.offset..self.offset.saturating_add(len)),
            None if self.is_placed => options.offset(self.offset),
            None => &mut options,
        };
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
        let image = self.clone();
        options.on_error(Arc::new(move |error| match error {
            Error::Member(member) if !matches!(member.problem, MemberProblem::Repaired { .. }) => {
                image.report_member(member);
            }
            Error::Locked { pid } => image.warn_of_lock(*pid),
            _ => {}
        }));
        options
    }

    /// The same image, of which the volume is the whole device.
    pub(crate) fn whole_device(&self) -> Image {
        Image { offset: 0, len: None, is_placed: true, backup: None, ..self.clone() }
    }

    /// A copy of the volume, in the file `path`.
    pub(crate) fn copied_to(&self, path: &Path) -> Image {
        let (name, path) = (path.into(), path.into());
        Image { name, path, offset: 0, len: None, is_placed: true, ..self.clone() }
    }

    /// Prints that the volume is used without this member, if that was not printed before.
    pub(crate) fn report_member(&self, member: &MemberError) {
        if self.reported.lock().is_ok_and(|mut reported| reported.insert(member.clone())) {
            print_message(absence_message(&self.name, member));
        }
    }

    /// Prints that process `pid` holds a lock on the image that does not keep this program out, if
    /// that was not printed before.
    pub(crate) fn warn_of_lock(&self, pid: u32) {
        if self.warned.lock().is_ok_and(|mut warned| warned.insert(pid)) {
            print_message(ignored_lock_message(&self.name, pid));
        }
    }

    /// All of `members` if some of them may not have been reported yet, else none. Only their
    /// number is compared.
    pub(crate) fn unreported<'m>(&self, members: &'m [u16]) -> &'m [u16] {
        match self.reported.lock().is_ok_and(|reported| reported.len() >= members.len()) {
            true => &[],
            false => members,
        }
    }

    /// Opens the volume for reading. If it needs recovery, that is done in memory.
    pub(crate) fn open(&self) -> Result<Filesystem, Failure> {
        self.open_with(&self.options())
    }

    /// Opens the volume with these options.
    pub(crate) fn open_with(&self, options: &OpenOptions) -> Result<Filesystem, Failure> {
        options.open(&self.path).map_err(|error| Failure::of_image(&self.name, &error))
    }

    /// The error for a failure at `path` in the volume.
    pub(crate) fn failure(&self, path: &[u8], error: &extant::Error) -> Failure {
        Failure::of_path(&self.name, path, error)
    }
}

impl Failure {
    /// The volume could not be opened or used.
    pub(crate) fn of_image(image: &Path, error: &Error) -> Failure {
        Failure::Message(image_message(image, error))
    }
}

/// The message for an error of an image.
pub(crate) fn image_message(image: &Path, error: &Error) -> String {
    let instead = if is_no_volume(error) { instead_of_volume(image) } else { None };
    with_name(image, instead.unwrap_or_else(|| explained(error)))
}

/// A message about the other format that `image` contains, if it is a known one.
fn instead_of_volume(image: &Path) -> Option<String> {
    let named = Image::parse(image.as_os_str()).ok()?;
    let text = signature::instead_of_volume(&named.path, named.offset)?;
    Some(text.replace("IMG", &Shown::path(&named.path).to_string()))
}

/// The option that `text` probably means: one that differs in at most two letters.
fn nearest(text: &str) -> Option<&'static str> {
    let end = text.find('=').map_or(text.len(), |at| at + 1);
    let known =
        OPTIONS.into_iter().map(|name| (distance(name.as_bytes(), &text.as_bytes()[..end]), name));
    known.filter(|(letters, _)| *letters <= 2).min().map(|(_, name)| name)
}

/// Number of letters to insert, remove or change to turn `a` into `b`.
fn distance(a: &[u8], b: &[u8]) -> usize {
    let mut row: Vec<usize> = (0..=b.len()).collect();
    for (i, x) in a.iter().enumerate() {
        let mut corner = std::mem::replace(&mut row[0], i + 1);
        for (j, y) in b.iter().enumerate() {
            let changed = corner + usize::from(x != y);
            corner = row[j + 1];
            row[j + 1] = changed.min(corner + 1).min(row[j] + 1);
        }
    }
    row[b.len()]
}

/// Whether both names lead to the same file or block device.
pub(crate) fn is_same_file(a: &Path, b: &Path) -> bool {
    let (Ok(a), Ok(b)) = (std::fs::metadata(a), std::fs::metadata(b)) else { return false };
    let is_device = |file: &Metadata| file.file_type().is_block_device();
    let one_device = is_device(&a) && is_device(&b) && a.rdev() == b.rdev();
    one_device || (a.dev(), a.ino()) == (b.dev(), b.ino())
}

/// A path inside the volume, absolute, without empty parts, `.` and a trailing slash. The meaning
/// of `..` depends on symlinks, so `..` stays in the path for the volume to resolve.
///
/// Errors: an empty path, which can come from an unset variable.
pub(crate) fn inner_path(path: &OsStr) -> Result<Vec<u8>, Failure> {
    if path.is_empty() {
        return Err(Failure::usage("the path is empty: the volume's root is /"));
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

/// As [`inner_path`], but keeps a trailing slash, with which the path must lead to a directory.
pub(crate) fn lookup_path(path: &OsStr) -> Result<Vec<u8>, Failure> {
    let mut inner = inner_path(path)?;
    if path.as_bytes().ends_with(b"/") && !inner.ends_with(b"/") {
        inner.push(b'/');
    }
    Ok(inner)
}

/// The path in the type that the engine uses.
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
    fn an_unknown_option_is_reported_with_the_nearest_one() {
        for (text, hint) in [
            ("no-such?membr=b", "; did you mean member=?"),
            ("no-such?degarded", "; did you mean degraded?"),
            ("no-such?offset=1M&jurnal=x", "; did you mean journal=?"),
            ("/?unlike=1", "member=DEVICE, degraded"),
        ] {
            match Image::parse(text.as_ref()) {
                Err(Failure::Usage(text)) => assert!(text.ends_with(hint), "{text}"),
                other => panic!("{text}: {other:?}"),
            }
        }
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
        assert_eq!(lookup_path("/a//".as_ref()).unwrap(), b"/a/");
        assert_eq!(lookup_path("a/b".as_ref()).unwrap(), b"/a/b");
        assert_eq!(lookup_path("//".as_ref()).unwrap(), b"/");
    }
}
