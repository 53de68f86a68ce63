//! Times of access: kept in memory as reads arrive, stored in the volume later.
//!
//! ```text
//!   READ, READDIR, READLINK ──► due? ──► kept in memory ──┬─► shown by `stat` at once
//!                                │no                      └─► stored when the kernel syncs the
//!                                └─► nothing                  mount, forgets the file, unmounts
//! ```
//!
//! The kernel reads bytes from its cache without a request, so such reads do not change the time
//! here unless [`AccessTimes::Strict`] disables that cache. A read costs two short locks and no
//! commit. A crash loses the times that are not stored yet, as with `lazytime` of Linux. After a
//! read, the kernel requests the attributes again before it shows a time of access. Source:
//! mount(8) (relatime, strictatime, lazytime), open(2) (`O_NOATIME`).

use super::attributes::now;
use super::context::Context;
use crate::operations::NodeId;
use extant::{InodeFlags, Node, Timestamp};

/// `O_NOATIME`.
pub(super) const NO_ACCESS_TIME: u32 = 0o1_000_000;
/// Age in seconds at which a read always updates the time of access.
const DAY: i64 = 86_400;

/// Which reads update the time of access.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AccessTimes {
    /// Reads that reach the server, if the time is not later than the last change, or is a day old.
    #[default]
    Relative,
    /// As `Relative`, but not for directories.
    NotOfDirectories,
    /// All reads: the kernel does not cache the content of files, so that each read arrives.
    Strict,
    /// None.
    Never,
}

impl Context {
    /// Handles the time of access for a read of `node` through an opening with these flags.
    pub(super) fn note_access(&self, id: NodeId, node: &Node, open_flags: u32) {
        if let Some(now) = self.due_access(id, node, open_flags) {
            self.nodes().with_reads(id, |reads| reads.accessed = Some(now));
        }
    }

    /// The time that a read of `node`, through an opening with these flags, makes the time of
    /// access. `None` if it changes nothing.
    pub(super) fn due_access(&self, id: NodeId, node: &Node, open_flags: u32) -> Option<Timestamp> {
        let mode = self.options().access_times;
        if mode == AccessTimes::Never
            || open_flags & NO_ACCESS_TIME != 0
            || self.fs().is_read_only()
        {
            return None;
        }
        let access = node.last_access();
        if access.flags.contains(InodeFlags::NOATIME)
            || access.is_dir && mode == AccessTimes::NotOfDirectories
        {
            return None;
        }
        let now = now();
        let is_due = |accessed: Timestamp| {
            let key = |time: Timestamp| (time.sec, time.nsec);
            mode == AccessTimes::Strict
                || key(accessed) <= key(access.modified).max(key(access.changed))
                || now.sec - accessed.sec >= DAY
        };
        let is_due = is_due(access.accessed)
            && self.nodes().with_reads(id, |reads| reads.accessed)?.is_none_or(is_due);
        is_due.then_some(now)
    }

    /// Stores the times that are only in memory.
    pub(super) fn store_access_times(&self) {
        for (node, time) in self.nodes().take_accesses() {
            store(&node, time);
        }
    }
}

/// Stores a time of access. Errors are ignored: the time is only a hint.
pub(super) fn store(node: &Node, time: Timestamp) {
    let _ = node.set_accessed(time);
}
