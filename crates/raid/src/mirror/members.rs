//! One thing done on several members, and which of them failed.
//!
//! A device may tell of a failed flush once, to whichever of several callers: the others hear that all is well. So
//! a failure is in doubt from the moment a member tells of it until somebody has decided what that means, and
//! meanwhile nothing is acknowledged (`put_on_record`).

use super::{Mirror, Slot};
use crate::crew::on_all;
use extant_base::{Error, Result};
use std::sync::Arc;

/// Something failed on some of the members.
pub(crate) struct Failure<'m> {
    pub(crate) doubt: Doubt<'m>,
    /// What the first of them told.
    pub(crate) error: Error,
}

/// Who holds this decides whether the members in it are out, and lets go then.
pub(crate) struct Doubt<'m> {
    mirror: &'m Mirror,
    /// Their places, each with its errno.
    pub(crate) failed: Vec<(usize, i32)>,
}

impl Drop for Doubt<'_> {
    fn drop(&mut self) {
        self.mirror.state.lock().doubts -= self.failed.len();
        self.mirror.changed.notify_all();
    }
}

impl Mirror {
    /// Does `work` on each of `targets`, side by side if `together`.
    pub(crate) fn on_members(
        &self,
        targets: &[(usize, Arc<Slot>)],
        together: bool,
        work: impl Fn(usize, &Slot) -> Result<()> + Sync,
    ) -> std::result::Result<(), Failure<'_>> {
        let done = on_all(targets, together, |n, (_, slot)| {
            let done = work(n, slot);
            if done.is_err() {
                // At once, whatever the others still wait for.
                self.state.lock().doubts += 1;
            }
            done
        });
        let mut doubt = Doubt { mirror: self, failed: Vec::new() };
        let mut first = None;
        for ((n, _), done) in targets.iter().zip(done) {
            if let Err(error) = done {
                doubt.failed.push((*n, error.errno()));
                first.get_or_insert(error);
            }
        }
        match first {
            Some(error) => Err(Failure { doubt, error }),
            None => Ok(()),
        }
    }
}
