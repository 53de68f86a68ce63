//! Counts the blocks whose state an operation reads or changes, so that tests bound the cost of
//! write preparation by a number and not by a time. Debug builds and the feature `count-visits`
//! count; other builds do nothing.

use std::ops::Range;

#[cfg(any(debug_assertions, feature = "count-visits"))]
mod counter {
    use std::cell::Cell;

    thread_local! {
        pub static VISITS: Cell<u64> = const { Cell::new(0) };
    }
}

/// Adds the blocks of `range` to the count.
#[inline]
pub(crate) fn count(range: &Range<u32>) {
    #[cfg(any(debug_assertions, feature = "count-visits"))]
    counter::VISITS.set(counter::VISITS.get() + u64::from(range.end.saturating_sub(range.start)));
    #[cfg(not(any(debug_assertions, feature = "count-visits")))]
    let _ = range;
}

/// Blocks that this thread's operations have visited since the last call, or `None` when this build
/// does not count.
pub fn take() -> Option<u64> {
    #[cfg(any(debug_assertions, feature = "count-visits"))]
    return Some(counter::VISITS.take());
    #[cfg(not(any(debug_assertions, feature = "count-visits")))]
    None
}
