//! Copies deleted files into a directory, and never writes outside it.
//!
//! ```text
//!   DIR ── fd ── fd ── fd      made and opened one in the other, with O_NOFOLLOW
//!                       └─ file, O_EXCL; where there is one: name#inode
//!   at the end: attributes of directories, the innermost first
//! ```

use crate::failure::{Failure, plain};
use crate::shown::Shown;
use crate::verb::get::{is_name, times};
use extant::FileKind;
use extant::undelete::{DeletedFile, DeletedFiles};
use rustix::fs::{AtFlags, FileType, Gid, Mode, OFlags, Uid, XattrFlags};
use rustix::io::Errno;
use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::fs::FileExt;
use std::path::Path;

/// Bytes that are copied at a time.
const PIECE: usize = 1 << 20;

/// A copy in progress.
pub(super) struct Copy<'a> {
    top: OwnedFd,
    owners: bool,
    /// Directories whose attributes are set at the end: their parts and attributes.
    dirs: Vec<(Vec<Vec<u8>>, &'a DeletedFile)>,
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

    /// Copies one file. Returns its path below the directory.
    pub(super) fn file(
        &mut self,
        deleted: &DeletedFiles,
        file: &'a DeletedFile,
    ) -> Result<Vec<u8>, String> {
        let mut parts: Vec<Vec<u8>> = super::name_of(file)
            .split(|byte| *byte == b'/')
            .filter(|part| !part.is_empty())
            .map(<[u8]>::to_vec)
            .collect();
        if parts.is_empty() || !parts.iter().all(|part| is_name(part)) {
            return Err("skipped: the name would lead out of its directory".into());
        }
        let metadata = file.metadata();
        if metadata.is_dir() {
            self.open(&parts).map_err(|error| plain(&error))?;
            self.dirs.push((parts.clone(), file));
            return Ok(parts.join(&b'/'));
        }
        let (name, above) = parts.split_last_mut().expect("a path has a name");
        let dir = self.open(above).map_err(|error| plain(&error))?;
        let (ino, generation) = (metadata.ino().get(), metadata.generation());
        let plain_name = name.clone();
        // Files that had the same name one after the other.
        let mut others = [format!("#{ino}"), format!("#{ino}.{generation}")].into_iter();
        let mut made = self.make(&dir, name, deleted, file);
        while let Err(Problem::System(error)) = &made
            && error.kind() == io::ErrorKind::AlreadyExists
            && let Some(suffix) = others.next()
        {
            *name = [&plain_name[..], suffix.as_bytes()].concat();
            made = self.make(&dir, name, deleted, file);
        }
        match made {
            Ok(()) => Ok(parts.join(&b'/')),
            Err(Problem::System(error)) => Err(plain(&error)),
            Err(Problem::Volume(error)) => Err(error.to_string()),
        }
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

    fn make(
        &mut self,
        dir: &OwnedFd,
        name: &[u8],
        deleted: &DeletedFiles,
        file: &DeletedFile,
    ) -> Result<(), Problem> {
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
                let made = self.content(&File::from(fd), deleted, file);
                if made.is_err() {
                    // Half a file must not look like a whole one.
                    let _ = rustix::fs::unlinkat(dir, name, AtFlags::empty());
                }
                made
            }
            FileKind::Symlink => {
                let target = deleted.read_link(file)?;
                Ok(rustix::fs::symlinkat(&target[..], dir, name)?)
            }
            FileKind::Fifo => Ok(rustix::fs::mknodat(dir, name, FileType::Fifo, private, 0)?),
            _ => Err(io::Error::other("skipped: devices and sockets are not copied").into()),
        }
    }

    fn content(
        &mut self,
        to: &File,
        deleted: &DeletedFiles,
        file: &DeletedFile,
    ) -> Result<(), Problem> {
        to.set_len(file.metadata().len())?;
        for (offset, len) in deleted.data_ranges(file) {
            let mut done = 0;
            while done < len {
                let piece = usize::try_from(len - done).unwrap_or(PIECE).min(PIECE);
                let read = deleted.read_at(file, &mut self.buffer[..piece], offset + done)?;
                if read == 0 {
                    break;
                }
                to.write_all_at(&self.buffer[..read], offset + done)?;
                done += read as u64;
            }
        }
        Ok(self.set_attributes(to, file)?)
    }

    fn set_attributes(&self, fd: impl AsFd, file: &DeletedFile) -> io::Result<()> {
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
