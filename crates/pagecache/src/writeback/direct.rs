//! What a don't-cache write call writes back itself, by policy.

use super::DirtyFile;
use super::flusher::Writeback;
use crate::config::DontCachePolicy;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;

impl<F: DirtyFile> Writeback<F> {
    /// Applies the policy after a don't-cache write of `range`. A call that finished no page does
    /// nothing: the next call most likely continues in the same page.
    pub(super) fn dont_cache(&self, file: &Arc<F>, range: Range<u64>) {
        let finished_a_page = file.state().wrote(&range, self.settings.page);
        let was_listed = self.list_as_drop_behind(file);
        match self.settings.policy {
            // The first call of a file always kicks: the flusher then checks again until no writer
            // continues in the page.
            DontCachePolicy::Flusher if finished_a_page || !was_listed => self.kick.kick(),
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
            // The file's openers get the error; the bytes of this call are in the cache.
            let _ = self.write(&*owner, file, start..end, end - start);
        }
    }

    /// One call per file at a time writes back its own bytes and those of the calls that found it
    /// in flight. Clearing `in_flight` and reading `pending` follow the rule of [`super::flag`]:
    /// clear first.
    fn write_limited(&self, file: &Arc<F>, range: Range<u64>) {
        let state = file.state();
        state.pending.fetch_add(range.end - range.start, Ordering::Relaxed);
        if state.in_flight.swap(true, Ordering::Release) {
            return;
        }
        let pending = state.pending.swap(0, Ordering::Relaxed);
        if let Some(owner) = self.owner() {
            let _ = self.write(&*owner, file, 0..u64::MAX, pending);
        }
        state.in_flight.swap(false, Ordering::Acquire);
        // Calls that came meanwhile rely on this one. This call does not continue for them without
        // end: the flusher writes the rest.
        let left = state.pending.swap(0, Ordering::Relaxed);
        if left > 0 {
            self.handed_over.fetch_add(left, Ordering::Relaxed);
            self.kick.kick();
        }
    }
}
