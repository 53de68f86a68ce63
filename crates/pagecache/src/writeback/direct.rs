//! What a don't-cache write call does for its bytes, by policy.

use super::DirtyFile;
use super::flusher::Writeback;
use crate::config::DontCachePolicy;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;

impl<F: DirtyFile> Writeback<F> {
    /// A don't-cache write of `range` has returned. A call that finished no page does nothing more:
    /// the next one most likely goes on in the same page.
    pub(super) fn dont_cache(&self, file: &Arc<F>, range: Range<u64>) {
        let finished_a_page = file.state().wrote(&range, self.settings.page);
        let known = self.know(file);
        match self.settings.policy {
            // A file's first call is told of in any case: the flusher then looks again until
            // nobody goes on in the page.
            DontCachePolicy::Flusher if finished_a_page || !known => self.kick.kick(),
            DontCachePolicy::Inline if finished_a_page => self.write_inline(file, range),
            DontCachePolicy::RateLimited if finished_a_page => self.write_limited(file, range),
            _ => {}
        }
    }

    fn write_inline(&self, file: &Arc<F>, range: Range<u64>) {
        let page = self.settings.page;
        let start = range.start / page * page;
        let end = range.end / page * page;
        if let Some(owner) = self.owner() {
            // The file's openers hear of an error; this call's bytes are in the cache.
            let _ = self.write(&*owner, file, start..end, end - start);
        }
    }

    /// One call per file at a time writes back what it and the calls that it kept away have
    /// written. Clearing `in_flight` and reading `owed` follow the rule of [`super::flag`]: clear first.
    fn write_limited(&self, file: &Arc<F>, range: Range<u64>) {
        let state = file.state();
        state.owed.fetch_add(range.end - range.start, Ordering::Relaxed);
        if state.in_flight.swap(true, Ordering::Release) {
            return;
        }
        let owed = state.owed.swap(0, Ordering::Relaxed);
        if let Some(owner) = self.owner() {
            let _ = self.write(&*owner, file, 0..u64::MAX, owed);
        }
        state.in_flight.swap(false, Ordering::Acquire);
        // Calls that came meanwhile count on this one. It does not go on for ever for others: the
        // flusher does.
        let left = state.owed.swap(0, Ordering::Relaxed);
        if left > 0 {
            self.handed_over.fetch_add(left, Ordering::Relaxed);
            self.kick.kick();
        }
    }
}
