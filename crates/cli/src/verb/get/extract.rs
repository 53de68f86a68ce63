//! Copies files out of a volume into a directory, and never writes outside it.
//!
//! ```text
//!   DEST ── fd ── fd ── fd        one descriptor for each level, opened in the one before with
//!           /usr  /usr/share      O_NOFOLLOW, so that renames and links by other processes cannot
//!                                 redirect it; in a deep tree at most the innermost 64: an outer
//!                                 one is opened again as ".." of the one below it, and must be the
//!                    │            same
//!                    ├─ file      O_EXCL, content, attributes, owner, mode, times
//!                    └─ done      the directory's own metadata and flags, after its files
//! ```

mod links;

use super::flags::Flags;
use super::{Job, refused};
use crate::failure::{Failure, explained, plain, print_message};
use crate::shown::Shown;
use crate::walk::{Trail, Visit, Visitor, walk};
use extant::{DeviceNumber, File, FileKind, Ino, Metadata, Timestamp};
use links::Linked;
use rustix::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use rustix::fs::{AtFlags, FileType, Gid, Mode, OFlags, Timespec, Timestamps, Uid, XattrFlags};
use rustix::io::Errno;
use std::collections::{BTreeMap, HashMap};
use std::ffi::{OsStr, OsString};
use std::io;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

const PIECE: usize = 1 << 20;
const NEW_FILE: OFlags = OFlags::WRONLY
    .union(OFlags::CREATE)
    .union(OFlags::EXCL)
    .union(OFlags::NOFOLLOW)
    .union(OFlags::CLOEXEC);
const DIRECTORY: OFlags =
    OFlags::RDONLY.union(OFlags::DIRECTORY).union(OFlags::NOFOLLOW).union(OFlags::CLOEXEC);
/// Largest number of levels that keep a descriptor.
const HELD_MAX: usize = 64;
/// Number of skipped items of one kind that are listed by name.
const NAMED: usize = 20;

/// Copies the file at `path`, with everything below it, to `name` in `dir`.
pub(super) fn run(job: Job<'_>, path: &[u8], dir: &Path, name: &[u8]) -> Result<u8, Failure> {
    // The user chose this directory, so symlinks on the way to it are followed.
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let top = rustix::fs::open(dir, flags, Mode::empty())
        .map_err(|error| Failure::of_file("open", dir, error))?;
    let dest = match name {
        b"." => dir.to_path_buf(),
        name => dir.join(OsStr::from_bytes(name)),
    };
    let is_root = rustix::process::geteuid().is_root();
    let owners = is_root && !job.args.no_owner;
    let flags = Flags::new(!job.args.no_flags, owners);
    let mut extractor = Extractor {
        job,
        dest,
        start_name: name.to_vec(),
        top,
        dirs: Vec::new(),
        held: held_levels(),
        path: Vec::new(),
        trail: Trail::default(),
        linked: HashMap::new(),
        owners,
        flags,
        skipped: BTreeMap::new(),
        buffer: vec![0; PIECE],
    };
    let (image, fs) = (extractor.job.image, extractor.job.fs);
    let walked = walk(image, fs, path, usize::MAX, &mut extractor);
    extractor.job.bar.finish_and_clear();
    walked?;
    extractor.seal_linked();
    extractor.report_skipped();
    Ok(u8::from(extractor.job.failed))
}

/// Number of levels that keep a descriptor: a quarter of the process's limit, because the volume
/// and its files need the others.
fn held_levels() -> usize {
    let limit = rustix::process::getrlimit(rustix::process::Resource::Nofile).current;
    let quarter = limit.and_then(|limit| usize::try_from(limit / 4).ok());
    quarter.unwrap_or(HELD_MAX).clamp(1, HELD_MAX)
}

/// A directory that is being filled.
struct Open {
    /// `None` while as many levels below it are open as may keep a descriptor.
    fd: Option<OwnedFd>,
    device: u64,
    inode: u64,
    /// Length of its path in the volume in bytes.
    path_len: usize,
    metadata: Metadata,
}

struct Extractor<'a> {
    job: Job<'a>,
    /// Path of the copy of the start, for messages.
    dest: PathBuf,
    start_name: Vec<u8>,
    top: OwnedFd,
    dirs: Vec<Open>,
    /// How many of `dirs` have a descriptor, at least 1.
    held: usize,
    /// Path in the volume of the innermost of `dirs`.
    path: Vec<u8>,
    trail: Trail,
    linked: HashMap<Ino, Linked>,
    owners: bool,
    flags: Flags,
    /// Skipped items, by reason.
    skipped: BTreeMap<&'static str, (usize, Vec<String>)>,
    buffer: Vec<u8>,
}

/// Why one entry could not be copied.
enum CopyError {
    /// The volume is the cause.
    Volume(extant::Error),
    /// This system is the cause.
    System(&'static str, io::Error),
    Message(&'static str),
}

impl From<extant::Error> for CopyError {
    fn from(error: extant::Error) -> CopyError {
        CopyError::Volume(error)
    }
}

fn system(action: &'static str) -> impl Fn(Errno) -> CopyError {
    move |error| CopyError::System(action, error.into())
}

impl Visitor for Extractor<'_> {
    fn visit(&mut self, visit: Visit<'_>) -> Result<bool, Failure> {
        if let Some(error) = visit.error() {
            self.job.report_error(visit.path, error);
        }
        let Some(metadata) = visit.metadata.clone() else { return Ok(false) };
        let copied = self.copy(&visit, &metadata);
        if let Err(trouble) = &copied {
            match trouble {
                CopyError::Volume(error) => self.job.report_error(visit.path, explained(error)),
                CopyError::Message(text) => self.job.report_error(visit.path, text),
                CopyError::System(action, error) => {
                    self.job.failed = true;
                    let place = self.place(visit.path);
                    let error_kind = error.kind();
                    let hint = match error_kind {
                        io::ErrorKind::AlreadyExists => ": use --force to replace it",
                        _ => "",
                    };
                    let (place, error) = (Shown::path(&place), plain(error));
                    self.job.print_message(format_args!("{place}: cannot {action}: {error}{hint}"));
                    // Every other file would fail in the same way.
                    let is_full = matches!(
                        error_kind,
                        io::ErrorKind::StorageFull
                            | io::ErrorKind::QuotaExceeded
                            | io::ErrorKind::ReadOnlyFilesystem
                    );
                    if visit.depth == 0 || is_full {
                        return Err(Failure::Reported);
                    }
                }
            }
        }
        Ok(copied.is_ok())
    }

    fn done(&mut self, depth: usize) -> Result<(), Failure> {
        if self.dirs.len() <= depth {
            return Ok(());
        }
        let Some(dir) = self.dirs.pop() else { return Ok(()) };
        let mut path = std::mem::take(&mut self.path);
        path.truncate(dir.path_len);
        let Some(fd) = &dir.fd else { unreachable!("the innermost directory is open") };
        // Before its own mode can forbid the lookup of "..".
        self.reopen_parent(fd.as_fd(), &path)?;
        let (fd, last) = (fd.as_fd(), self.flags.last(&dir.metadata));
        let result = self.set_metadata(fd, &path, &dir.metadata);
        self.flags.seal(fd, last);
        if let Err(error) = result {
            self.job.failed = true;
            let place = self.place(&path);
            self.job.print_message(format_args!(
                "{}: cannot keep metadata: {}",
                Shown::path(&place),
                plain(&error)
            ));
        }
        if let Some(above) = self.dirs.last() {
            path.truncate(above.path_len);
            self.path = path;
        }
        Ok(())
    }
}

impl Extractor<'_> {
    /// The path of the copy of `path`.
    fn place(&self, path: &[u8]) -> PathBuf {
        match self.job.below(path) {
            [] => self.dest.clone(),
            below => self.dest.join(OsStr::from_bytes(below)),
        }
    }

    fn parent(&self) -> BorrowedFd<'_> {
        let innermost = self.dirs.last().and_then(|dir| dir.fd.as_ref());
        innermost.map_or(self.top.as_fd(), |fd| fd.as_fd())
    }

    /// Opens the innermost directory again, if it was closed. `below` was the directory below it.
    fn reopen_parent(&mut self, below: BorrowedFd<'_>, path: &[u8]) -> Result<(), Failure> {
        let Some(dir) = self.dirs.last_mut().filter(|dir| dir.fd.is_none()) else { return Ok(()) };
        let opened = rustix::fs::openat(below, "..", DIRECTORY, Mode::empty())
            .and_then(|fd| rustix::fs::fstat(&fd).map(|stat| (fd, stat)));
        let why = match opened {
            Ok((fd, stat)) if (stat.st_dev, stat.st_ino) == (dir.device, dir.inode) => {
                dir.fd = Some(fd);
                return Ok(());
            }
            Ok(_) => "it was moved during the copy".into(),
            Err(error) => plain(&error.into()),
        };
        let place = self.place(path);
        let place = Shown::path(&place);
        Err(Failure::new(format!("{place}: cannot return to the parent directory: {why}")))
    }

    fn copy(&mut self, visit: &Visit<'_>, meta: &Metadata) -> Result<(), CopyError> {
        let name = match visit.depth {
            0 => self.start_name.clone(),
            _ => visit.name.to_vec(),
        };
        if let Some(why) = refused(visit) {
            return Err(CopyError::Message(why));
        }
        if meta.is_dir() {
            return self.directory(visit, meta, &name);
        }
        if self.job.args.force {
            match rustix::fs::unlinkat(self.parent(), &name[..], AtFlags::empty()) {
                Ok(()) | Err(Errno::NOENT) => {}
                Err(error) => return Err(system("replace it")(error)),
            }
        }
        if meta.nlink() > 1 && self.link(meta.ino(), &name)? {
            return Ok(());
        }
        match meta.file_type() {
            FileKind::Regular => self.file(visit, meta, &name)?,
            FileKind::Symlink => {
                let target =
                    self.job.fs.node_of_ino(meta.ino()).and_then(|node| node.read_link())?;
                rustix::fs::symlinkat(&target, self.parent(), &name[..])
                    .map_err(system("create the symbolic link"))?;
            }
            FileKind::Directory => {}
            kind => {
                if !self.node(visit, meta, kind, &name)? {
                    return Ok(());
                }
            }
        }
        if !meta.is_file() {
            self.set_metadata_by_name(&name, visit, meta)
                .map_err(|error| CopyError::System("keep metadata", error))?;
        }
        if meta.nlink() > 1 {
            self.remember(visit, meta, &name)?;
        }
        Ok(())
    }

    fn directory(
        &mut self,
        visit: &Visit<'_>,
        meta: &Metadata,
        name: &[u8],
    ) -> Result<(), CopyError> {
        let parent = self.parent();
        // Other users have no access until its metadata is set.
        match rustix::fs::mkdirat(parent, name, Mode::RWXU) {
            Ok(()) | Err(Errno::EXIST) => {}
            Err(error) => return Err(system("create the directory")(error)),
        }
        let fd = rustix::fs::openat(parent, name, DIRECTORY, Mode::empty());
        let fd = fd.map_err(system("open the directory"))?;
        let stat =
            rustix::fs::fstat(&fd).map_err(system("read the attributes of the directory"))?;
        let (device, inode, path_len) = (stat.st_dev, stat.st_ino, visit.path.len());
        let fd = Some(fd);
        self.dirs.push(Open { fd, device, inode, path_len, metadata: meta.clone() });
        if let Some(outer) = self.dirs.len().checked_sub(self.held + 1) {
            self.dirs[outer].fd = None;
        }
        self.path.clear();
        self.path.extend_from_slice(visit.path);
        if visit.depth > 0 {
            self.trail.enter(visit.depth, visit.name);
        }
        Ok(())
    }

    fn file(&mut self, visit: &Visit<'_>, meta: &Metadata, name: &[u8]) -> Result<(), CopyError> {
        let from = self.job.fs.node_of_ino(meta.ino()).and_then(|node| node.open())?;
        let fd = rustix::fs::openat(self.parent(), name, NEW_FILE, Mode::RUSR | Mode::WUSR)
            .map_err(system("create the file"))?;
        let to = std::fs::File::from(fd);
        let copied = self.content(&from, meta.len(), &to).and_then(|()| {
            self.set_metadata(to.as_fd(), visit.path, meta)
                .map_err(|error| CopyError::System("keep metadata", error))
        });
        if copied.is_ok() && meta.nlink() == 1 {
            self.flags.seal(&to, self.flags.last(meta));
        }
        if copied.is_err() {
            // An incomplete file would look like a complete one.
            let _ = rustix::fs::unlinkat(self.parent(), name, AtFlags::empty());
        }
        copied
    }

    fn content(&mut self, from: &File, size: u64, to: &std::fs::File) -> Result<(), CopyError> {
        let write = |error| CopyError::System("write", error);
        to.set_len(size).map_err(write)?;
        let mut at = 0;
        while let Some(data) = from.seek_data(at)? {
            let end = from.seek_hole(data)?.unwrap_or(size).min(size);
            at = data;
            while at < end {
                let want = (end - at).min(PIECE as u64) as usize;
                let n = from.read_at(&mut self.buffer[..want], at)?;
                if n == 0 {
                    return Ok(());
                }
                to.write_all_at(&self.buffer[..n], at).map_err(write)?;
                at += n as u64;
                self.job.bar.inc(n as u64);
            }
            if at >= size {
                break;
            }
        }
        Ok(())
    }

    /// Creates a pipe, socket or device. `false` if that is not permitted.
    fn node(
        &mut self,
        visit: &Visit<'_>,
        meta: &Metadata,
        kind: FileKind,
        name: &[u8],
    ) -> Result<bool, CopyError> {
        let (file_type, device) = match kind {
            FileKind::Fifo => (FileType::Fifo, 0),
            FileKind::Socket => (FileType::Socket, 0),
            FileKind::CharDevice => (FileType::CharacterDevice, number(meta.device())),
            _ => (FileType::BlockDevice, number(meta.device())),
        };
        let mode = Mode::RUSR | Mode::WUSR;
        match rustix::fs::mknodat(self.parent(), name, file_type, mode, device) {
            Ok(()) => Ok(true),
            Err(Errno::PERM) if meta.device().is_some() => {
                self.skip("device nodes, which only root can create", visit.path);
                Ok(false)
            }
            Err(error) => Err(system("create the node")(error)),
        }
    }

    /// Sets owner, mode, attributes and times of a file or directory, in an order in which no step
    /// undoes an earlier one.
    fn set_metadata(&mut self, fd: BorrowedFd<'_>, path: &[u8], meta: &Metadata) -> io::Result<()> {
        let mut mode = u32::from(meta.permissions());
        match self.owners {
            true => {
                let (uid, gid) = (Uid::from_raw(meta.uid()), Gid::from_raw(meta.gid()));
                rustix::fs::fchown(fd, Some(uid), Some(gid))?;
            }
            // Set-user-ID with an owner other than the intended one would be a security hole.
            false => mode &= !0o6000,
        }
        rustix::fs::fchmod(fd, Mode::from_raw_mode(mode))?;
        for (name, value) in self.attributes(path, meta)? {
            let set = rustix::fs::fsetxattr(fd, &name, &value, XattrFlags::empty());
            self.attribute_was_set(set, name.as_bytes(), path)?;
        }
        rustix::fs::futimens(fd, &times(meta))?;
        self.flags.give(fd, meta);
        Ok(())
    }

    /// As [`Extractor::set_metadata`], for files that must not be opened.
    fn set_metadata_by_name(
        &mut self,
        name: &[u8],
        visit: &Visit<'_>,
        meta: &Metadata,
    ) -> io::Result<()> {
        let mut mode = u32::from(meta.permissions());
        match self.owners {
            true => {
                let (uid, gid) = (Uid::from_raw(meta.uid()), Gid::from_raw(meta.gid()));
                let flags = AtFlags::SYMLINK_NOFOLLOW;
                rustix::fs::chownat(self.parent(), name, Some(uid), Some(gid), flags)?;
            }
            false => mode &= !0o6000,
        }
        if meta.file_type() != FileKind::Symlink {
            // Must not go through a symlink that replaced the file, so it uses a descriptor of the
            // name.
            let flags = OFlags::PATH | OFlags::NOFOLLOW | OFlags::CLOEXEC;
            let node = rustix::fs::openat(self.parent(), name, flags, Mode::empty())?;
            let found = rustix::fs::fstat(&node)?;
            if FileType::from_raw_mode(found.st_mode) == FileType::Symlink {
                return Err(io::Error::other("it was replaced during the copy"));
            }
            let link = format!("/proc/self/fd/{}", node.as_raw_fd());
            rustix::fs::chmod(&link, Mode::from_raw_mode(mode))?;
        }
        for (attribute, value) in self.attributes(visit.path, meta)? {
            // The last part is the name itself, so lsetxattr does not follow a symlink there.
            let mut place = format!("/proc/self/fd/{}/", self.parent().as_raw_fd()).into_bytes();
            place.extend_from_slice(name);
            let set = rustix::fs::lsetxattr(&place[..], &attribute, &value, XattrFlags::empty());
            self.attribute_was_set(set, attribute.as_bytes(), visit.path)?;
        }
        let flags = AtFlags::SYMLINK_NOFOLLOW;
        rustix::fs::utimensat(self.parent(), name, &times(meta), flags)?;
        self.flags.pass(meta);
        Ok(())
    }

    fn attributes(&mut self, path: &[u8], meta: &Metadata) -> io::Result<Vec<(OsString, Vec<u8>)>> {
        if self.job.args.no_xattrs {
            return Ok(Vec::new());
        }
        match self.job.fs.node_of_ino(meta.ino()).and_then(|node| node.xattr_values()) {
            Ok(all) => Ok(all),
            Err(error) => {
                self.job.report_error(path, explained(&error));
                Ok(Vec::new())
            }
        }
    }

    fn attribute_was_set(
        &mut self,
        set: Result<(), Errno>,
        name: &[u8],
        path: &[u8],
    ) -> io::Result<()> {
        match set {
            Ok(()) => Ok(()),
            Err(Errno::PERM | Errno::OPNOTSUPP | Errno::ACCESS | Errno::NOSPC | Errno::TOOBIG) => {
                let reason = match name.starts_with(b"user.") {
                    true => "user attributes, for which the destination has no space",
                    false => {
                        "attributes that this user cannot set or the destination does not \
                              support"
                    }
                };
                let line = [path, b" ", name].concat();
                self.skip(reason, &line);
                Ok(())
            }
            Err(error) => Err(error.into()),
        }
    }

    fn skip(&mut self, reason: &'static str, what: &[u8]) {
        let (count, named) = self.skipped.entry(reason).or_default();
        *count += 1;
        if named.len() < NAMED {
            named.push(Shown(what).to_string());
        }
    }

    fn report_skipped(&self) {
        for (reason, (count, named)) in &self.skipped {
            for name in named {
                print_message(format_args!(
                    "{}: {name}: skipped",
                    Shown::path(&self.job.image.name)
                ));
            }
            let more = match count - named.len() {
                0 => String::new(),
                more => format!(" ({more} of them not named here)"),
            };
            print_message(format_args!(
                "skipped {count} {reason}{more}: run as root, or use --tar"
            ));
        }
        self.flags.messages().for_each(print_message);
    }
}

pub(crate) fn times(meta: &Metadata) -> Timestamps {
    let timespec = |time: Timestamp| Timespec { tv_sec: time.sec, tv_nsec: time.nsec.into() };
    Timestamps {
        last_access: timespec(meta.accessed()),
        last_modification: timespec(meta.modified()),
    }
}

fn number(device: Option<DeviceNumber>) -> u64 {
    device.map_or(0, |device| rustix::fs::makedev(device.major, device.minor))
}
