//! Times of access: noted in memory as reads arrive, stored in the volume later.
//!
//! ```text
//!   READ, READDIR, READLINK ──► due? ──► noted beside the node ──┬─► shown by `stat` at once
//!                                │no                             └─► stored when the kernel syncs the
//!                                └─► nothing                         mount, forgets the file, unmounts
//! ```
//!
//! Bytes that the kernel has in its cache are read without a request, so they leave no trace here unless
//! [`AccessTimes::Strict`] switches that cache off. A read costs two looks at locks, and no commit. A crash loses times
//! that are not stored yet, as with `lazytime` of Linux. After a read the kernel requests the attributes again before it
//! shows a time of access. Source: mount(8) (relatime, strictatime, lazytime), open(2) (`O_NOATIME`).

use super::Volume;
use super::attributes::now;
use crate::operations::NodeId;
use extant::{InodeFlags, Node, Timestamp};

/// `O_NOATIME`.
pub(super) const NO_ACCESS_TIME: u32 = 0o1_000_000;
/// Age in seconds at which a time of access is renewed in any case.
const DAY: i64 = 86_400;

/// Which reads change the time of access of what they read.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum AccessTimes {
    /// Those that arrive, where the time is not later than the last change, or is a day old.
    #[default]
    Relative,
    /// As `Relative`, but of directories none.
    NotOfDirectories,
    /// All: the kernel keeps no content of files, so that each read arrives.
    Strict,
    /// None.
    Never,
}

impl Volume {
    /// A read of `node` arrived, through an opening with these flags.
    pub(super) fn note_access(&self, id: NodeId, node: &Node, open_flags: u32) {
        let mode = self.options.access_times;
        if mode == AccessTimes::Never || open_flags & NO_ACCESS_TIME != 0 || self.fs.is_read_only()
        {
            return;
        }
        let access = node.last_access();
        if access.flags.contains(InodeFlags::NOATIME)
            || access.is_dir && mode == AccessTimes::NotOfDirectories
        {
            return;
        }
        let now = now();
        let is_due = |accessed: Timestamp| {
            let key = |time: Timestamp| (time.sec, time.nsec);
            mode == AccessTimes::Strict
                || key(accessed) <= key(access.modified).max(key(access.changed))
                || now.sec - accessed.sec >= DAY
        };
        if is_due(access.accessed) {
            self.nodes.note_access(id, now, is_due);
        }
    }

    /// Stores the times that are noted in memory alone.
    pub(super) fn store_access_times(&self) {
        for (node, time) in self.nodes.take_accesses() {
            store(&node, time);
        }
    }
}

/// Stores a time of access. It is worth no error: what reads note is a hint.
pub(super) fn store(node: &Node, time: Timestamp) {
    let _ = node.set_accessed(time);
}
