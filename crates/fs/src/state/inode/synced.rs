//! The commit point for which a sync of a file waits.
//!
//! ```text
//!   stored at point P: times only          all = P
//!   stored at point P: size, map, content  all = content = P
//!   read from the inode table              neither is known
//! ```

use extant_journal::CommitPoint;
use std::ops::Range;

/// The commit points of the last changes of an inode; `None` when unknown.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Synced {
    /// Of any change.
    pub(crate) all: Option<CommitPoint>,
    /// Of the last change that is needed to read the content back.
    pub(crate) content: Option<CommitPoint>,
    /// The map has changed since the inode was last stored.
    pub(crate) map_changed: bool,
}

impl Synced {
    /// The slot is stored at `point`, and changes from `before` to `after`.
    pub(crate) fn note(&mut self, point: CommitPoint, before: &[u8], after: &[u8]) {
        // Times, owner, links and checksums are not needed to read a file.
        const CONTENT: [Range<usize>; 4] = [0x04..0x08, 0x1C..0x24, 0x28..0x64, 0x68..0x78];
        let differs = |range: Range<usize>| before.get(range.clone()) != after.get(range);
        let tail = 0xA0.min(after.len())..after.len();
        if self.map_changed || CONTENT.into_iter().chain([tail]).any(differs) {
            self.content = Some(point);
        }
        (self.all, self.map_changed) = (Some(point), false);
    }
}
