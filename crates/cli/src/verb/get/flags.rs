//! Inode flags and projects (`lsattr -p`) of copied files.
//!
//! ```text
//!   content ─► owner ─► mode ─► attributes ─► times ─► project ─► flags ─► … all links
//!                                                              ─► immutable, append-only
//! ```
//!
//! Flags that forbid changes come last: with them, no link to the file and no name in the directory
//! can be created any more.

use super::project::set_project;
use extant::{InodeFlags, Metadata};
use rustix::fs::IFlags;
use std::os::fd::AsFd;

/// Flags that any owner may set.
const ORDINARY: InodeFlags = InodeFlags::SYNC
    .union(InodeFlags::NODUMP)
    .union(InodeFlags::NOATIME)
    .union(InodeFlags::DIRSYNC)
    .union(InodeFlags::TOPDIR)
    .union(InodeFlags::PROJINHERIT);
/// Flags that forbid changes.
const LAST: InodeFlags = InodeFlags::IMMUTABLE.union(InodeFlags::APPEND);

/// Counts files whose flags and projects were not kept.
pub(super) struct Flags {
    wanted: bool,
    /// Projects are set together with owners: only root gives files to other owners.
    owners: bool,
    skipped: u64,
    projects: u64,
}

impl Flags {
    pub(super) fn new(wanted: bool, owners: bool) -> Flags {
        Flags { wanted, owners, skipped: 0, projects: 0 }
    }

    /// Sets the project and all flags except the last ones.
    pub(super) fn give(&mut self, file: impl AsFd, meta: &Metadata) {
        let project = meta.project();
        let given = project == 0 || (self.owners && set_project(&file, project).is_ok());
        self.projects += u64::from(!given);
        if !self.wanted {
            return;
        }
        let (has, fd) = (meta.flags(), file.as_fd());
        let ordinary = add(fd, has & ORDINARY);
        // This user or this filesystem may refuse any of the other flags.
        let journal = add(fd, has & InodeFlags::JOURNAL_DATA);
        self.skipped += u64::from(!(ordinary && journal));
    }

    /// The flags to set at the end.
    pub(super) fn last(&self, meta: &Metadata) -> InodeFlags {
        if self.wanted { meta.flags() & LAST } else { InodeFlags::empty() }
    }

    /// Sets the last flags.
    pub(super) fn seal(&mut self, file: impl AsFd, last: InodeFlags) {
        self.skipped += u64::from(!add(file, last));
    }

    /// Counts a file that was removed before its last flags could be set.
    pub(super) fn missed(&mut self) {
        self.skipped += 1;
    }

    /// Counts a file that cannot be opened and therefore gets no flags.
    pub(super) fn pass(&mut self, meta: &Metadata) {
        self.projects += u64::from(meta.project() != 0);
        if self.wanted {
            self.skipped += u64::from(meta.flags().intersects(ORDINARY | LAST));
        }
    }

    /// Messages about what was not kept.
    pub(super) fn messages(&self) -> impl Iterator<Item = String> {
        let flags = match self.skipped {
            0 => None,
            count => Some(format!(
                "skipped inode flags (files: {count}): this user cannot set them or the \
                 destination does not support them"
            )),
        };
        let projects = match self.projects {
            0 => None,
            count => Some(format!(
                "skipped project ids (files: {count}): this user cannot set them or the \
                 destination does not support them"
            )),
        };
        flags.into_iter().chain(projects)
    }
}

/// Adds flags to the file's own. Returns whether the file has them now.
fn add(file: impl AsFd, flags: InodeFlags) -> bool {
    if flags.is_empty() {
        return true;
    }
    let Ok(has) = rustix::fs::ioctl_getflags(&file) else { return false };
    let flags = has | IFlags::from_bits_retain(flags.bits());
    has == flags || rustix::fs::ioctl_setflags(&file, flags).is_ok()
}
