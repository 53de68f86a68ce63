//! The progress of a bulk load: new blocks follow the last ones, whichever file they are for.

use extant_base::{BlockNr, GroupNr};
use std::sync::atomic::{AtomicBool, AtomicU32, AtomicU64, Ordering};

/// The state of a bulk load; off in ordinary use.
#[derive(Debug, Default)]
pub(crate) struct BulkCursor {
    on: AtomicBool,
    next: AtomicU64,
    inode_group: AtomicU32,
}

impl BulkCursor {
    /// Turns bulk loading on, from the volume's start.
    pub(crate) fn begin(&self) {
        self.next.store(0, Ordering::Relaxed);
        self.on.store(true, Ordering::Relaxed);
    }

    /// Returns to ordinary allocation.
    pub(crate) fn end(&self) {
        self.on.store(false, Ordering::Relaxed);
    }

    pub(crate) fn is_on(&self) -> bool {
        self.on.load(Ordering::Relaxed)
    }

    /// The place of the next blocks, if it is free.
    pub(crate) fn goal(&self) -> BlockNr {
        BlockNr(self.next.load(Ordering::Relaxed))
    }

    /// The first group that may have a free inode.
    pub(crate) fn inode_group(&self) -> GroupNr {
        GroupNr(self.inode_group.load(Ordering::Relaxed))
    }

    /// Notes that the groups before `group` have no free inode.
    pub(crate) fn advance_inodes(&self, group: GroupNr) {
        if self.is_on() {
            self.inode_group.store(group.0, Ordering::Relaxed);
        }
    }

    /// Notes that every block before `next` is in use.
    pub(crate) fn advance(&self, next: BlockNr) {
        self.next.store(next.0, Ordering::Relaxed);
    }
}
