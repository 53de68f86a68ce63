//! Copies deleted files into a directory, and never writes outside it.
//!
//! ```text
//!   DIR ── fd ── fd ── fd      made and opened one in the other, with O_NOFOLLOW
//!                       ├─ .extant-undelete, O_EXCL: content and attributes
//!                       │  └─ renamed when it is complete; where the name exists: name#inode
//!                       └─ further names: hard links
//!   at the end: attributes of directories, the innermost first
//! ```

use crate::failure::{Failure, plain};
use crate::shown::Shown;
use crate::verb::get::{is_name, times};
use extant::FileKind;
use extant::undelete::{PastFile, PastFiles};
use rustix::fs::{AtFlags, FileType, Gid, Mode, OFlags, RenameFlags, Uid, XattrFlags};
use rustix::io::Errno;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::path::Path;

/// Bytes that are copied at a time.
const PIECE: usize = 1 << 20;
/// The name of a copy that is not complete.
const UNFINISHED: &[u8] = b".extant-undelete";

/// A copy in progress.
pub(super) struct Copy<'a> {
    top: OwnedFd,
    owners: bool,
    /// Directories whose attributes are set at the end: their parts and attributes.
    dirs: Vec<(Vec<Vec<u8>>, &'a PastFile)>,
    buffer: Vec<u8>,
}

impl<'a> Copy<'a> {
    /// Makes the directory if it does not exist. `owners`: whether owners are kept, as root.
    pub(super) fn into(dir: &Path, owners: bool) -> Result<Copy<'a>, Failure> {
        std::fs::create_dir_all(dir).map_err(|error| Failure::of_file("make it", dir, error))?;
        // The user chose this directory, so symlinks on the way to it are followed.
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
        let top = rustix::fs::open(dir, flags, Mode::empty())
            .map_err(|error| Failure::of_file("open", dir, error))?;
        let owners = owners && rustix::process::geteuid().is_root();
        Ok(Copy { top, owners, dirs: Vec::new(), buffer: vec![0; PIECE] })
    }

    /// Copies one file to each of its names. Returns the paths of the copies below the directory.
    pub(super) fn file(
        &mut self,
        files: &PastFiles,
        file: &'a PastFile,
        names: &[Vec<u8>],
    ) -> Result<Vec<Vec<u8>>, String> {
        let mut copied = Vec::new();
        for name in names {
            let parts = parts_of(name)?;
            if file.metadata().is_dir() {
                self.open(&parts).map_err(|error| plain(&error))?;
                self.dirs.push((parts.clone(), file));
                copied.push(parts.join(&b'/'));
                continue;
            }
            let made = match copied.first() {
                None => self.first(files, file, parts),
                Some(first) => self.link(first, parts, file),
            };
            match made {
                Ok(parts) => copied.push(parts.join(&b'/')),
                Err(Problem::System(error)) => return Err(plain(&error)),
                Err(Problem::Volume(error)) => return Err(error.to_string()),
            }
        }
        Ok(copied)
    }

    /// Makes the copy. Returns its name, which differs from the wanted one if that exists.
    fn first(
        &mut self,
        files: &PastFiles,
        file: &PastFile,
        parts: Vec<Vec<u8>>,
    ) -> Result<Vec<Vec<u8>>, Problem> {
        let dir = self.open(&parts[..parts.len() - 1])?;
        // What an interrupted copy left.
        match rustix::fs::unlinkat(&dir, UNFINISHED, AtFlags::empty()) {
            Ok(()) | Err(Errno::NOENT) => {}
            Err(error) => return Err(error.into()),
        }
        let made = self.make(&dir, files, file);
        let named = made.and_then(|()| {
            free_name(parts, file, |name| rename(&dir, name)).map_err(Problem::System)
        });
        if named.is_err() {
            // Half a file must not stay.
            let _ = rustix::fs::unlinkat(&dir, UNFINISHED, AtFlags::empty());
        }
        named
    }

    /// Makes a further name of the copy at `first`.
    fn link(
        &self,
        first: &[u8],
        parts: Vec<Vec<u8>>,
        file: &PastFile,
    ) -> Result<Vec<Vec<u8>>, Problem> {
        let first: Vec<Vec<u8>> = first.split(|byte| *byte == b'/').map(<[u8]>::to_vec).collect();
        let (old, above) = first.split_last().expect("a copy has a name");
        let (from, to) = (self.open(above)?, self.open(&parts[..parts.len() - 1])?);
        let link = |name: &[u8]| rustix::fs::linkat(&from, &old[..], &to, name, AtFlags::empty());
        Ok(free_name(parts, file, link)?)
    }

    /// Sets the attributes of directories. Returns false if one could not be set; the error was
    /// printed.
    pub(super) fn finish(mut self) -> bool {
        let mut dirs = std::mem::take(&mut self.dirs);
        dirs.sort_by(|(a, _), (b, _)| b.cmp(a));
        let mut is_right = true;
        for (parts, file) in dirs {
            let set = self.open(&parts).and_then(|dir| self.set_attributes(&dir, file));
            if let Err(error) = set {
                is_right = false;
                crate::failure::print_message(format_args!(
                    "{}: {}",
                    Shown(&parts.join(&b'/')),
                    plain(&error)
                ));
            }
        }
        is_right
    }

    /// Opens a directory below the first one; what does not exist is made.
    fn open(&self, parts: &[Vec<u8>]) -> io::Result<OwnedFd> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let mut dir = rustix::io::fcntl_dupfd_cloexec(&self.top, 0)?;
        for part in parts {
            match rustix::fs::mkdirat(&dir, &part[..], Mode::from_raw_mode(0o700)) {
                Ok(()) | Err(Errno::EXIST) => {}
                Err(error) => return Err(error.into()),
            }
            dir = rustix::fs::openat(&dir, &part[..], flags, Mode::empty())?;
        }
        Ok(dir)
    }

    /// Makes the copy under the name of unfinished ones.
    fn make(&mut self, dir: &OwnedFd, files: &PastFiles, file: &PastFile) -> Result<(), Problem> {
        let name = UNFINISHED;
        let metadata = file.metadata();
        let private = Mode::from_raw_mode(0o600);
        match metadata.file_type() {
            FileKind::Regular => {
                let flags = OFlags::CREATE
                    | OFlags::EXCL
                    | OFlags::WRONLY
                    | OFlags::NOFOLLOW
                    | OFlags::CLOEXEC;
                let fd = rustix::fs::openat(dir, name, flags, private)?;
                self.content(&File::from(fd), files, file)
            }
            FileKind::Symlink => {
                let target = files.read_link(file)?;
                Ok(rustix::fs::symlinkat(&target[..], dir, name)?)
            }
            FileKind::Fifo => Ok(rustix::fs::mknodat(dir, name, FileType::Fifo, private, 0)?),
            _ => Err(io::Error::other("skipped: devices and sockets are not copied").into()),
        }
    }

    fn content(&mut self, to: &File, files: &PastFiles, file: &PastFile) -> Result<(), Problem> {
        to.set_len(file.metadata().len())?;
        for (offset, len) in files.data_ranges(file) {
            let mut done = 0;
            while done < len {
                let piece = usize::try_from(len - done).unwrap_or(PIECE).min(PIECE);
                let read = files.read_at(file, &mut self.buffer[..piece], offset + done)?;
                if read == 0 {
                    break;
                }
                to.write_all_at(&self.buffer[..read], offset + done)?;
                done += read as u64;
            }
        }
        Ok(self.set_attributes(to, file)?)
    }

    fn set_attributes(&self, fd: impl AsFd, file: &PastFile) -> io::Result<()> {
        let metadata = file.metadata();
        let mut mode = u32::from(metadata.permissions());
        match self.owners {
            true => {
                let (uid, gid) = (Uid::from_raw(metadata.uid()), Gid::from_raw(metadata.gid()));
                rustix::fs::fchown(&fd, Some(uid), Some(gid))?;
            }
            // Set-user-ID with an owner other than the intended one would be a security hole.
            false => mode &= !0o6000,
        }
        rustix::fs::fchmod(&fd, Mode::from_raw_mode(mode))?;
        for (name, value) in file.xattrs() {
            match rustix::fs::fsetxattr(&fd, name, value, XattrFlags::empty()) {
                // This user may not, or the destination has no place for it.
                Ok(()) | Err(Errno::PERM | Errno::OPNOTSUPP | Errno::NOSPC | Errno::TOOBIG) => {}
                Err(error) => return Err(error.into()),
            }
        }
        rustix::fs::futimens(&fd, &times(metadata))?;
        Ok(())
    }
}

/// The parts of a path, if each is the name of a file.
fn parts_of(path: &[u8]) -> Result<Vec<Vec<u8>>, String> {
    let parts = path.split(|byte| *byte == b'/').filter(|part| !part.is_empty());
    let parts: Vec<Vec<u8>> = parts.map(<[u8]>::to_vec).collect();
    match !parts.is_empty() && parts.iter().all(|part| is_name(part)) {
        true => Ok(parts),
        false => Err("skipped: the name would lead out of its directory".into()),
    }
}

/// Calls `put` with the last of `parts`; if that name exists, with the inode's number added to it.
/// Returns the parts of the name that was free.
fn free_name(
    mut parts: Vec<Vec<u8>>,
    file: &PastFile,
    put: impl Fn(&[u8]) -> Result<(), Errno>,
) -> io::Result<Vec<Vec<u8>>> {
    let metadata = file.metadata();
    let (ino, generation) = (metadata.ino().get(), metadata.generation());
    let name = parts.pop().expect("a path has a name");
    // Files that had the same name one after the other.
    for suffix in [String::new(), format!("#{ino}"), format!("#{ino}.{generation}")] {
        let name = [&name[..], suffix.as_bytes()].concat();
        match put(&name) {
            Ok(()) => {
                parts.push(name);
                return Ok(parts);
            }
            Err(Errno::EXIST) => {}
            Err(error) => return Err(error.into()),
        }
    }
    Err(Errno::EXIST.into())
}

/// Gives the unfinished copy in `dir` its name, which must not exist.
fn rename(dir: &OwnedFd, name: &[u8]) -> Result<(), Errno> {
    match rustix::fs::renameat_with(dir, UNFINISHED, dir, name, RenameFlags::NOREPLACE) {
        // This filesystem renames only over what exists.
        Err(Errno::INVAL | Errno::NOSYS) => {
            rustix::fs::linkat(dir, UNFINISHED, dir, name, AtFlags::empty())?;
            rustix::fs::unlinkat(dir, UNFINISHED, AtFlags::empty())
        }
        done => done,
    }
}

/// Why a file could not be copied.
enum Problem {
    Volume(extant::Error),
    System(io::Error),
}

impl From<extant::Error> for Problem {
    fn from(error: extant::Error) -> Problem {
        Problem::Volume(error)
    }
}

impl From<io::Error> for Problem {
    fn from(error: io::Error) -> Problem {
        Problem::System(error)
    }
}

impl From<Errno> for Problem {
    fn from(error: Errno) -> Problem {
        Problem::System(error.into())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_lead_out_of_the_directory_are_refused() {
        let parts = |path: &str| parts_of(path.as_bytes());
        assert_eq!(parts("/a//b c"), Ok(vec![b"a".to_vec(), b"b c".to_vec()]));
        assert_eq!(parts("#12"), Ok(vec![b"#12".to_vec()]));
        for path in ["", "/", "..", "/../a", "/a/../b", "/a/.", "/a/\0", "./a"] {
            assert!(parts(path).is_err(), "{path}");
        }
    }
}
