//! Until which commit point closed files have changed.
//!
//! ```text
//!   close or write-back of a closed file: map, size at point P     last = P
//!   write_back_closed_files                                        due  = last
//!   a sync of any file                                             commits up to due as well
//! ```
//!
//! A sync that no `write_back_closed_files` precedes makes only its own file durable.

use extant_base::lock::{Mutex, Rank};
use extant_journal::CommitPoint;

/// See the module.
pub(crate) struct ClosedFiles {
    points: Mutex<Points>,
}

#[derive(Default)]
struct Points {
    /// The last point that includes the map or size of a closed file.
    last: Option<CommitPoint>,
    /// The point up to which the next sync commits.
    due: Option<CommitPoint>,
}

impl Default for ClosedFiles {
    fn default() -> ClosedFiles {
        ClosedFiles { points: Mutex::new(Rank::Leaf, Points::default()) }
    }
}

impl ClosedFiles {
    /// A closed file is on the device, and its map and size are in the handle of `point`.
    pub(crate) fn note(&self, point: CommitPoint) {
        let last = &mut self.points.lock().last;
        *last = Some(last.map_or(point, |last| last.later(point)));
    }

    /// From now on, a sync of any file commits all points that were noted.
    pub(crate) fn make_due(&self) {
        let mut points = self.points.lock();
        points.due = points.last;
    }

    /// The point up to which a sync of any file commits.
    pub(crate) fn due(&self) -> Option<CommitPoint> {
        self.points.lock().due
    }
}
