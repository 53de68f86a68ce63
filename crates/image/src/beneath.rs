//! Opening a path below a directory, never through a symbolic link.
//!
//! ```text
//!   root fd ── "usr/share/doc" ──► openat2(BENEATH | NO_SYMLINKS), one call
//!                                  or, if that is refused, one openat(O_NOFOLLOW) for each name
//! ```
//!
//! Paths may have any length: they are opened in pieces that the kernel accepts.

use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::{Mode, OFlags, ResolveFlags, openat, openat2};
use rustix::io::Errno;
use std::sync::atomic::{AtomicBool, Ordering::Relaxed};

/// The most bytes of a path in one system call; `PATH_MAX` is 4096.
const PIECE: usize = 3800;

static NO_OPENAT2: AtomicBool = AtomicBool::new(false);

/// Opens `path` (components joined by `/`; empty for the root itself) for reading.
pub(crate) fn open_beneath(root: impl AsFd, path: &[u8], flags: OFlags) -> Result<OwnedFd, Errno> {
    let directory = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    let flags = flags | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    let mut at: Option<OwnedFd> = None;
    let mut rest = path;
    while rest.len() > PIECE {
        let cut = rest[..PIECE].iter().rposition(|&b| b == b'/').ok_or(Errno::NAMETOOLONG)?;
        let next = match &at {
            Some(fd) => open_piece(fd.as_fd(), &rest[..cut], directory)?,
            None => open_piece(root.as_fd(), &rest[..cut], directory)?,
        };
        at = Some(next);
        rest = &rest[cut + 1..];
    }
    match &at {
        Some(fd) => open_piece(fd.as_fd(), rest, flags),
        None => open_piece(root.as_fd(), rest, flags),
    }
}

fn open_piece(
    root: rustix::fd::BorrowedFd<'_>,
    path: &[u8],
    flags: OFlags,
) -> Result<OwnedFd, Errno> {
    let path = if path.is_empty() { b".".as_slice() } else { path };
    if !NO_OPENAT2.load(Relaxed) {
        let resolve = ResolveFlags::BENEATH | ResolveFlags::NO_SYMLINKS;
        match openat2(root, path, flags, Mode::empty(), resolve) {
            // An old kernel, or a container that forbids calls that it does not know.
            Err(Errno::NOSYS | Errno::PERM) => NO_OPENAT2.store(true, Relaxed),
            // A concurrent rename or mount disturbed the call. The walk by names always ends.
            Err(Errno::AGAIN) => {}
            other => return other,
        }
    }
    let directory = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC | OFlags::NOFOLLOW;
    let mut at: Option<OwnedFd> = None;
    let mut names = path.split(|&b| b == b'/').filter(|n| !n.is_empty()).peekable();
    while let Some(name) = names.next() {
        let flags = if names.peek().is_some() { directory } else { flags };
        let next = match &at {
            Some(fd) => openat(fd, name, flags, Mode::empty())?,
            None => openat(root, name, flags, Mode::empty())?,
        };
        at = Some(next);
    }
    at.ok_or(Errno::NOENT)
}

#[cfg(test)]
mod tests {
    use super::*;
    use rustix::fs::{CWD, mkdirat, symlinkat};

    fn open_root(path: &std::path::Path) -> OwnedFd {
        openat(CWD, path, OFlags::RDONLY | OFlags::DIRECTORY, Mode::empty()).unwrap()
    }

    #[test]
    fn a_path_longer_than_the_kernel_takes_is_opened_in_pieces() {
        let dir = tempfile::tempdir().unwrap();
        let root = open_root(dir.path());
        let mut path = Vec::new();
        let mut at = root.try_clone().unwrap();
        for _ in 0..60 {
            let name = [b'd'; 100];
            mkdirat(&at, name.as_slice(), Mode::RWXU).unwrap();
            at = openat(&at, name.as_slice(), OFlags::RDONLY, Mode::empty()).unwrap();
            if !path.is_empty() {
                path.push(b'/');
            }
            path.extend_from_slice(&name);
        }
        let flags = OFlags::RDONLY | OFlags::DIRECTORY;
        open_beneath(&root, &path, flags).unwrap();
        NO_OPENAT2.store(true, Relaxed);
        open_beneath(&root, &path, flags).unwrap();
        open_beneath(&root, b"", flags).unwrap();
        NO_OPENAT2.store(false, Relaxed);
    }

    #[test]
    fn a_symbolic_link_on_the_way_is_not_followed() {
        let dir = tempfile::tempdir().unwrap();
        let root = open_root(dir.path());
        mkdirat(&root, "real", Mode::RWXU).unwrap();
        symlinkat("real", &root, "link").unwrap();
        let flags = OFlags::RDONLY;
        assert!(open_beneath(&root, b"real", flags).is_ok());
        assert!(open_beneath(&root, b"link", flags).is_err());
        assert!(open_beneath(&root, b"link/.", flags).is_err());
    }
}
