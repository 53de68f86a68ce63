//! A value alone on its cache lines.
//!
//! ```text
//!   line     │ counter … padding │ fields that every call reads │
//!              └ written by all threads: each write would fetch the reader's line from it
//! ```
//!
//! Processors fetch lines of 64 bytes, some in pairs.

use core::ops::{Deref, DerefMut};

/// A value whose neighbours in memory are not disturbed when it changes, nor it by them.
///
/// # Examples
///
/// ```
/// use extant_base::CachePadded;
/// use std::sync::atomic::{AtomicU64, Ordering};
/// let counter = CachePadded::new(AtomicU64::new(1));
/// counter.fetch_add(1, Ordering::Relaxed);
/// assert_eq!((counter.load(Ordering::Relaxed), align_of_val(&counter)), (2, 128));
/// ```
#[derive(Debug, Default)]
#[repr(align(128))]
pub struct CachePadded<T>(T);

impl<T> CachePadded<T> {
    /// `value`, apart.
    pub const fn new(value: T) -> CachePadded<T> {
        CachePadded(value)
    }
}

impl<T> Deref for CachePadded<T> {
    type Target = T;
    #[inline]
    fn deref(&self) -> &T {
        &self.0
    }
}

impl<T> DerefMut for CachePadded<T> {
    #[inline]
    fn deref_mut(&mut self) -> &mut T {
        &mut self.0
    }
}
