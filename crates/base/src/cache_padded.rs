//! A value that shares its cache lines with no other value.
//!
//! ```text
//!   cache lines   │ counter … padding │ fields that every call reads │
//!                   └ all threads write it; on a shared line, each write would invalidate
//!                     the fields in every reader's cache (false sharing)
//! ```
//!
//! A cache line has 64 bytes. Some processors fetch lines in pairs, so the alignment is 128 bytes.

use core::ops::{Deref, DerefMut};

/// A value that is aligned and padded to 128 bytes, so that a write to it invalidates no other
/// value's cache line, and no write to another value invalidates its own.
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
    /// Wraps `value`.
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
