//! One operation on several members, and the members on which it failed.
//!
//! A device may report a failed flush to one caller only; concurrent callers then see success. So a
//! failure counts as *undecided* from the moment a member reports it until a thread decides whether
//! the member is out. Meanwhile no write or flush is acknowledged (`record_losses`).

use super::{Mirror, Slot};
use crate::parallel::on_all;
use extant_base::{Error, Result};
use std::sync::Arc;

/// An operation failed on some members.
pub(crate) struct Failure<'m> {
    pub(crate) undecided: UndecidedFailures<'m>,
    /// The first member's error.
    pub(crate) error: Error,
}

/// Undecided failures. The thread that holds this decides whether the members are out, then drops
/// it.
pub(crate) struct UndecidedFailures<'m> {
    mirror: &'m Mirror,
    /// Numbers of the failed members, each with its errno.
    pub(crate) failed: Vec<(usize, i32)>,
}

impl Drop for UndecidedFailures<'_> {
    fn drop(&mut self) {
        self.mirror.state.lock().undecided -= self.failed.len();
        self.mirror.changed.notify_all();
    }
}

impl Mirror {
    /// Runs `work` on each of `targets`, in parallel if `together`.
    pub(crate) fn on_members(
        &self,
        targets: &[(usize, Arc<Slot>)],
        together: bool,
        work: impl Fn(usize, &Slot) -> Result<()> + Sync,
    ) -> std::result::Result<(), Failure<'_>> {
        let done = on_all(targets, together, |n, (_, slot)| {
            let done = work(n, slot);
            if done.is_err() {
                // Count it at once, while other members may still be busy.
                self.state.lock().undecided += 1;
            }
            done
        });
        let mut undecided = UndecidedFailures { mirror: self, failed: Vec::new() };
        let mut first = None;
        for ((n, _), done) in targets.iter().zip(done) {
            if let Err(error) = done {
                undecided.failed.push((*n, error.errno()));
                first.get_or_insert(error);
            }
        }
        match first {
            Some(error) => Err(Failure { undecided, error }),
            None => Ok(()),
        }
    }
}
