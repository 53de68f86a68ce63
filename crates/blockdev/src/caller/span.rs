//! Bytes of somebody else's memory, for the device alone: nobody reads them through this.
//!
//! ```text
//!   quiet     nobody else touches them while the span lives: a slice may be made of them
//!   shared    others may change them at any time: only copied byte by byte, or handed to the kernel
//! ```

use super::Access;
use std::any::Any;
use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;
use std::sync::atomic::Ordering::Relaxed;
use std::sync::atomic::{AtomicU8, AtomicU64};

/// A piece of memory on loan to a device.
pub struct Span<'m> {
    start: *mut u8,
    len: usize,
    access: Access,
    is_shared: bool,
    /// What has to live as long as the span.
    _keep: Option<Arc<dyn Any + Send + Sync>>,
    _memory: PhantomData<&'m [u8]>,
}

// SAFETY: a span is an address that the maker vouched for, valid from any thread, and `keep` is `Send + Sync`.
unsafe impl Send for Span<'_> {}
// SAFETY: a shared span gives out nothing but its address and length.
unsafe impl Sync for Span<'_> {}

impl<'m> Span<'m> {
    /// Bytes that a device reads.
    pub fn of(bytes: &'m [u8]) -> Span<'m> {
        let (start, len) = (bytes.as_ptr().cast_mut(), bytes.len());
        Span {
            start,
            len,
            access: Access::Read,
            is_shared: false,
            _keep: None,
            _memory: PhantomData,
        }
    }

    /// Bytes that a device fills.
    pub fn of_mut(bytes: &'m mut [u8]) -> Span<'m> {
        let (start, len) = (bytes.as_mut_ptr(), bytes.len());
        Span {
            start,
            len,
            access: Access::Write,
            is_shared: false,
            _keep: None,
            _memory: PhantomData,
        }
    }

    /// Memory that others may use at the same time, as a guest's.
    ///
    /// # Safety
    /// For `'m`, and as long as `keep` lives, `len` bytes from `start` on are mapped, readable, and for
    /// [`Access::Write`] writable; no reference to them exists whose promises a change from outside breaks.
    pub unsafe fn shared(
        start: *mut u8,
        len: usize,
        access: Access,
        keep: Option<Arc<dyn Any + Send + Sync>>,
    ) -> Span<'m> {
        Span { start, len, access, is_shared: true, _keep: keep, _memory: PhantomData }
    }

    /// Memory that nobody else uses meanwhile, whoever owns it.
    ///
    /// # Safety
    /// As [`Span::shared`]; and while the span lives nobody else changes the bytes, or for [`Access::Write`]
    /// looks at them.
    pub(crate) unsafe fn quiet(
        start: *mut u8,
        len: usize,
        access: Access,
        keep: Option<Arc<dyn Any + Send + Sync>>,
    ) -> Span<'m> {
        Span { start, len, access, is_shared: false, _keep: keep, _memory: PhantomData }
    }

    /// How many bytes.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether it has none.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// What the device may do with them.
    pub fn access(&self) -> Access {
        self.access
    }

    /// Whether the address is a multiple of `align`, a power of two.
    pub fn is_aligned_to(&self, align: usize) -> bool {
        (self.start as usize).is_multiple_of(align)
    }

    /// Shows the bytes, in order: in place, or, where others may change them, a copy of a few at a time.
    pub fn look(&self, look: &mut dyn FnMut(&[u8])) {
        if let Some(bytes) = self.quiet_bytes() {
            return look(bytes);
        }
        let mut copy = [0; 4096];
        let mut done = 0;
        while done < self.len {
            let part = &mut copy[..(self.len - done).min(4096)];
            // SAFETY: the maker of a shared span vouched for `len` bytes from `start` on, and that they may be read
            // while others change them; `done + part.len()` is not beyond `len`.
            unsafe { load_racing(self.start.add(done), part) };
            look(part);
            done += part.len();
        }
    }

    /// Where it is.
    pub(crate) fn start(&self) -> *mut u8 {
        self.start
    }

    /// The bytes, where nobody changes them.
    pub(crate) fn quiet_bytes(&self) -> Option<&[u8]> {
        if self.is_shared {
            return None;
        }
        // SAFETY: the maker of a quiet span vouched for the range as long as the span lives, and that nobody
        // changes it; `quiet_bytes_mut` takes the span exclusively.
        Some(unsafe { std::slice::from_raw_parts(self.start, self.len) })
    }

    /// The bytes to fill, where nobody else uses them.
    pub(crate) fn quiet_bytes_mut(&mut self) -> Option<&mut [u8]> {
        if self.is_shared || self.access != Access::Write {
            return None;
        }
        // SAFETY: as above, for writing too; the span is held exclusively and is not `Clone`.
        Some(unsafe { std::slice::from_raw_parts_mut(self.start, self.len) })
    }

    /// Copies all of them to `to`, which is as long; what others change meanwhile is there or not.
    pub(crate) fn load(&self, to: &mut [u8]) {
        assert_eq!(to.len(), self.len, "a copy of a whole span");
        match self.quiet_bytes() {
            Some(bytes) => super::stream::copy(to, bytes),
            // SAFETY: the maker vouched for the range.
            None => unsafe { load_racing(self.start, to) },
        }
    }

    /// Copies `from`, which is as long, over all of them.
    pub(crate) fn store(&mut self, from: &[u8]) {
        assert_eq!(from.len(), self.len, "a copy of a whole span");
        assert_eq!(self.access, Access::Write, "a span that is to be filled");
        match self.quiet_bytes_mut() {
            Some(bytes) => bytes.copy_from_slice(from),
            // SAFETY: the maker vouched for the range, for writing too.
            None => unsafe { store_racing(self.start, from) },
        }
    }
}

impl fmt::Debug for Span<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Span({:p}, {} bytes, {:?})", self.start, self.len, self.access)
    }
}

/// Bytes before `start` is a multiple of 8.
fn head_of(start: *const u8, len: usize) -> usize {
    start.align_offset(8).min(len)
}

/// Copies memory that others may change: each aligned word is read once, as a whole.
///
/// # Safety
/// `to.len()` bytes from `start` on are readable.
pub(super) unsafe fn load_racing(start: *mut u8, to: &mut [u8]) {
    let head = head_of(start, to.len());
    let words = (to.len() - head) / 8;
    for (n, byte) in to.iter_mut().enumerate().take(head) {
        // SAFETY: `n` is in the range; a byte is always aligned.
        *byte = unsafe { AtomicU8::from_ptr(start.add(n)) }.load(Relaxed);
    }
    for (n, word) in to[head..].as_chunks_mut::<8>().0.iter_mut().enumerate() {
        // SAFETY: `head + 8 n + 8` is at most the length, and the address a multiple of 8.
        let value = unsafe { AtomicU64::from_ptr(start.add(head + 8 * n).cast()) }.load(Relaxed);
        *word = value.to_ne_bytes();
    }
    for (n, byte) in to.iter_mut().enumerate().skip(head + 8 * words) {
        // SAFETY: `n` is in the range.
        *byte = unsafe { AtomicU8::from_ptr(start.add(n)) }.load(Relaxed);
    }
}

/// Copies over memory that others may use: each aligned word is written once, as a whole.
///
/// # Safety
/// `from.len()` bytes from `start` on are writable.
pub(super) unsafe fn store_racing(start: *mut u8, from: &[u8]) {
    let head = head_of(start, from.len());
    let words = (from.len() - head) / 8;
    for (n, byte) in from.iter().enumerate().take(head) {
        // SAFETY: `n` is in the range; a byte is always aligned.
        unsafe { AtomicU8::from_ptr(start.add(n)) }.store(*byte, Relaxed);
    }
    for (n, word) in from[head..].as_chunks::<8>().0.iter().enumerate() {
        let value = u64::from_ne_bytes(*word);
        // SAFETY: `head + 8 n + 8` is at most the length, and the address a multiple of 8.
        unsafe { AtomicU64::from_ptr(start.add(head + 8 * n).cast()) }.store(value, Relaxed);
    }
    for (n, byte) in from.iter().enumerate().skip(head + 8 * words) {
        // SAFETY: `n` is in the range.
        unsafe { AtomicU8::from_ptr(start.add(n)) }.store(*byte, Relaxed);
    }
}
