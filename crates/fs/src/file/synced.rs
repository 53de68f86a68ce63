//! Which step a sync of a file waits for.
//!
//! ```text
//!   store in step S: times only          all = S
//!   store in step S: size, map, content  all = content = S
//!   read from its table                  neither is known
//! ```

use extant_journal::CommitPoint;
use std::ops::Range;

/// Which steps hold the last changes of an inode; `None` where nobody knows.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Synced {
    /// Of anything.
    pub(crate) all: Option<CommitPoint>,
    /// Of what is needed to read the content back.
    pub(crate) content: Option<CommitPoint>,
    /// The map was changed since the inode was last stored.
    pub(crate) map_changed: bool,
}

impl Synced {
    /// The slot is stored in `step`: what it was, what it becomes.
    pub(crate) fn note(&mut self, step: CommitPoint, before: &[u8], after: &[u8]) {
        // Times, owner, links and sums are not needed to read a file.
        const CONTENT: [Range<usize>; 4] = [0x04..0x08, 0x1C..0x24, 0x28..0x64, 0x68..0x78];
        let differs = |range: Range<usize>| before.get(range.clone()) != after.get(range);
        let tail = 0xA0.min(after.len())..after.len();
        if self.map_changed || CONTENT.into_iter().chain([tail]).any(differs) {
            self.content = Some(step);
        }
        (self.all, self.map_changed) = (Some(step), false);
    }
}
