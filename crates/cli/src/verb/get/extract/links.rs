//! Files with several names: the first name becomes a copy, each other name a link to it.
//!
//! ```text
//!   first name ─► remember: path, device, inode ─► link, link, … ─► seal: flags against changes
//! ```

use super::{CopyError, DIRECTORY, Extractor, system};
use crate::walk::Visit;
use extant::{Ino, InodeFlags, Metadata};
use rustix::fd::OwnedFd;
use rustix::fs::{AtFlags, Mode, OFlags};
use rustix::io::Errno;

/// A file with several names that was written, and the location of its first name.
pub(super) struct Linked {
    /// Number of the directory in the trail, and the name in it. `None` for the start itself.
    place: Option<(u32, Box<[u8]>)>,
    device: u64,
    inode: u64,
    /// Flags that it gets when all its names exist.
    last: InodeFlags,
}

impl Extractor<'_> {
    /// Records the location of a file's first name.
    pub(super) fn remember(
        &mut self,
        visit: &Visit<'_>,
        meta: &Metadata,
        name: &[u8],
    ) -> Result<(), CopyError> {
        let stat = rustix::fs::statat(self.parent(), name, AtFlags::SYMLINK_NOFOLLOW);
        let stat = stat.map_err(system("read its attributes"))?;
        let (device, inode) = (stat.st_dev, stat.st_ino);
        let last = if meta.is_file() { self.flags.last(meta) } else { InodeFlags::empty() };
        let place = (visit.depth > 0).then(|| (self.trail.dir(visit.depth), name.into()));
        let linked = Linked { place, device, inode, last };
        // The earlier copy accepts no more links, so it has all its names.
        if let Some(full) = self.linked.insert(meta.ino(), linked) {
            self.seal(&full);
        }
        Ok(())
    }

    /// Links the name to the file's first copy, if that exists and is unchanged.
    pub(super) fn link(&mut self, ino: Ino, name: &[u8]) -> Result<bool, CopyError> {
        let Some(first) = self.linked.get(&ino) else { return Ok(false) };
        let (fd, first_name) = self.find(first)?;
        match rustix::fs::linkat(&fd, first_name, self.parent(), name, AtFlags::empty()) {
            Ok(()) => Ok(true),
            // The destination does not allow so many links, so the file is copied again.
            Err(Errno::MLINK) => Ok(false),
            Err(error) => Err(system("link to its other name")(error)),
        }
    }

    /// The directory and name of a file's first copy, if that is still the same file.
    fn find<'l>(&self, first: &'l Linked) -> Result<(OwnedFd, &'l [u8]), CopyError> {
        let wrong = system("link to its other name");
        let Some((dir, name)) = &first.place else { return Err(wrong(Errno::NOENT)) };
        let mut fd = rustix::fs::openat(&self.top, &self.start_name[..], DIRECTORY, Mode::empty())
            .map_err(&wrong)?;
        for part in self.trail.names(*dir) {
            fd = rustix::fs::openat(&fd, part, DIRECTORY, Mode::empty()).map_err(&wrong)?;
        }
        let name = &name[..];
        let stat = rustix::fs::statat(&fd, name, AtFlags::SYMLINK_NOFOLLOW).map_err(&wrong)?;
        match (stat.st_dev, stat.st_ino) == (first.device, first.inode) {
            true => Ok((fd, name)),
            false => {
                Err(CopyError::Message("its other name changed during the copy: copy it again"))
            }
        }
    }

    /// Sets the flags of a file that forbid changes.
    fn seal(&mut self, file: &Linked) {
        if file.last.is_empty() {
            return;
        }
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::NONBLOCK | OFlags::CLOEXEC;
        let opened = match file.place {
            None => rustix::fs::openat(&self.top, &self.start_name[..], flags, Mode::empty()).ok(),
            Some(_) => self
                .find(file)
                .ok()
                .and_then(|(dir, name)| rustix::fs::openat(&dir, name, flags, Mode::empty()).ok()),
        };
        let same = opened.filter(|opened| {
            let stat = rustix::fs::fstat(opened);
            stat.is_ok_and(|it| (it.st_dev, it.st_ino) == (file.device, file.inode))
        });
        match same {
            Some(opened) => self.flags.seal(&opened, file.last),
            None => self.flags.missed(),
        }
    }

    /// Sets these flags for all such files, since no more links are made.
    pub(super) fn seal_linked(&mut self) {
        for file in std::mem::take(&mut self.linked).into_values() {
            self.seal(&file);
        }
    }
}
