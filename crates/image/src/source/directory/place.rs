//! The place of a source directory: its name and its parent, and at some levels an open descriptor.
//!
//! ```text
//!   root fd ◄── usr ◄── share ◄── … ◄── level 64, fd ◄── … ◄── level 130
//!                                            └─ opened from here: 66 names, not 130
//! ```
//!
//! With a full path for each directory, a deep tree would need memory, and lookups by the kernel,
//! that grow with the square of its depth.

use crate::beneath::open_beneath;
use rustix::fd::{AsFd, OwnedFd};
use rustix::fs::OFlags;
use rustix::io::Errno;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};

/// The number of levels from one that is held open to the next.
const EVERY: u32 = 64;
/// The most directories held open at one time. Below this many times [`EVERY`] levels, opening
/// takes longer.
const HELD_MAX: usize = 256;

/// A directory of a source. It keeps the directories above it alive.
pub(super) struct Place {
    above: Option<Arc<Place>>,
    name: Box<[u8]>,
    depth: u32,
    /// Length in bytes of its path below the root.
    pub(super) path_len: usize,
    held: OnceLock<Held>,
}

/// A directory held open, and the number of all such directories.
struct Held {
    fd: OwnedFd,
    count: Arc<AtomicUsize>,
}

impl Drop for Held {
    fn drop(&mut self) {
        self.count.fetch_sub(1, Relaxed);
    }
}

/// Drops a chain of places in a loop, because nested drops of a deep chain overflow the stack.
impl Drop for Place {
    fn drop(&mut self) {
        let mut above = self.above.take();
        while let Some(mut place) = above.and_then(Arc::into_inner) {
            above = place.above.take();
        }
    }
}

impl Place {
    /// The source's root.
    pub(super) fn root() -> Arc<Place> {
        let (above, name, held) = (None, Box::default(), OnceLock::new());
        Arc::new(Place { above, name, depth: 0, path_len: 0, held })
    }

    /// The directory `name` in this one.
    pub(super) fn below(self: &Arc<Place>, name: &[u8]) -> Arc<Place> {
        let path_len = self.path_len + usize::from(self.path_len > 0) + name.len();
        Arc::new(Place {
            above: Some(Arc::clone(self)),
            name: name.into(),
            depth: self.depth.saturating_add(1),
            path_len,
            held: OnceLock::new(),
        })
    }

    /// The directory above it; for the root, the root itself.
    pub(super) fn above(self: &Arc<Place>) -> &Arc<Place> {
        self.above.as_ref().unwrap_or(self)
    }

    /// The path below the root.
    pub(super) fn path(&self) -> Vec<u8> {
        self.names(|_| false).0
    }

    /// The names from the nearest place above for which `ends` is true down to this one, and that
    /// place.
    fn names(&self, ends: impl Fn(&Place) -> bool) -> (Vec<u8>, Option<&Place>) {
        let (mut names, mut at) = (Vec::new(), Some(self));
        while let Some(place) = at.filter(|place| !ends(place)) {
            names.push(&place.name[..]);
            at = place.above.as_deref();
        }
        if at.is_none() {
            // The root has no name.
            names.pop();
        }
        names.reverse();
        (names.join(&b'/'), at)
    }

    /// Opens the directory, starting at the nearest one that is held open, or else at `root`.
    pub(super) fn open(&self, root: &OwnedFd, flags: OFlags) -> Result<OwnedFd, Errno> {
        let (path, from) = self.names(|place| place.held.get().is_some());
        let held = from.and_then(|place| place.held.get());
        let fd = held.map_or(root.as_fd(), |held| held.fd.as_fd());
        open_beneath(fd, &path, flags)
    }

    /// Keeps `fd`, which is this directory, open for those below it, if this level is one that is
    /// held open.
    pub(super) fn hold(&self, fd: OwnedFd, count: &Arc<AtomicUsize>) {
        if self.depth == 0 || !self.depth.is_multiple_of(EVERY) {
            return;
        }
        let free = |held: usize| (held < HELD_MAX).then_some(held + 1);
        if count.fetch_update(Relaxed, Relaxed, free).is_ok() {
            // A directory is listed once, so none is held here yet.
            let _ = self.held.set(Held { fd, count: Arc::clone(count) });
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_place_far_below_the_last_held_one_has_its_path_and_ends_without_recursion() {
        let mut place = Place::root();
        assert_eq!(place.path(), b"");
        for _ in 0..300_000 {
            place = place.below(b"d");
        }
        assert_eq!(place.path_len, 2 * 300_000 - 1);
        assert_eq!(place.path().len(), place.path_len);
        drop(place);
    }

    #[test]
    fn opening_looks_up_few_names_however_deep_it_is() {
        let dir = tempfile::tempdir().unwrap();
        let flags = OFlags::RDONLY | OFlags::DIRECTORY;
        let root = rustix::fs::open(dir.path(), flags, rustix::fs::Mode::empty()).unwrap();
        let count = Arc::new(AtomicUsize::new(0));
        let (mut place, mut most) = (Place::root(), 0);
        for _ in 0..1000 {
            let fd = place.open(&root, flags).unwrap();
            rustix::fs::mkdirat(&fd, "d", rustix::fs::Mode::RWXU).unwrap();
            let (way, _) = place.names(|place| place.held.get().is_some());
            most = most.max(way.split(|&byte| byte == b'/').count());
            place.hold(fd, &count);
            place = place.below(b"d");
        }
        assert_eq!(most, EVERY as usize);
        assert_eq!(count.load(Relaxed), 15);
        drop(place);
        assert_eq!(count.load(Relaxed), 0);
    }
}
