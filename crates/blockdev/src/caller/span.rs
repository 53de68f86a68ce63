//! Bytes of somebody else's memory, for the device alone: nobody reads them through this.
//!
//! ```text
//!   quiet     no other code touches them while the span lives: a slice may be made of them
//!   shared    others may change them at any time: only copied by atomic words of 8 bytes, or handed to the kernel
//! ```
//!
//! Shared memory has one rule: every access of this process to it is an atomic access of an aligned word of 8 bytes
//! ([`AtomicU64`]). The first and the last word of a span are accessed as a whole, also where the span has a part of
//! them only. Other processes and the kernel are outside of Rust's memory model: whatever they store, and by whatever
//! size, a load here returns some bytes, old or new ones, and each aligned word is loaded once.

use super::Access;
use crate::shared_words::{self, WORD};
use std::any::Any;
use std::fmt;
use std::marker::PhantomData;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

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
    /// For `'m`, and as long as `keep` lives:
    /// - `len` bytes from `start` on, and the rest of the aligned words of 8 bytes that the first and the last of them
    ///   lie in, belong to one allocation or mapping that `start` may reach; they are initialised, readable, and
    ///   for [`Access::Write`] writable.
    /// - Code of this process accesses these words by [`AtomicU64`] at multiples of 8 only, as
    ///   [`SharedMemory`](super::SharedMemory) does: neither by atomics of another size nor, while a thread may store
    ///   to them, by plain loads and stores. No `&[u8]` and no `&mut` to them exists.
    /// - Other processes, a guest and the kernel may change them at any time and in any way.
    ///
    /// # Panics
    /// If `len` is not 0 and `start` is null.
    pub unsafe fn shared(
        start: *mut u8,
        len: usize,
        access: Access,
        keep: Option<Arc<dyn Any + Send + Sync>>,
    ) -> Span<'m> {
        assert!(len == 0 || !start.is_null(), "shared memory has an address");
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
        let (words, first) = self.words();
        let mut copy = [0; 4096];
        let mut done = 0;
        while done < self.len {
            let part = &mut copy[..(self.len - done).min(4096)];
            shared_words::load(words, first + done, part);
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
            None => {
                let (words, first) = self.words();
                shared_words::load(words, first, to);
            }
        }
    }

    /// Copies `from`, which is as long, over all of them.
    pub(crate) fn store(&mut self, from: &[u8]) {
        assert_eq!(from.len(), self.len, "a copy of a whole span");
        assert_eq!(self.access, Access::Write, "a span that is to be filled");
        match self.quiet_bytes_mut() {
            Some(bytes) => bytes.copy_from_slice(from),
            None => {
                let (words, first) = self.words();
                shared_words::store(words, first, from);
            }
        }
    }

    /// The words of a shared span, and which byte of them is its first.
    fn words(&self) -> (&[AtomicU64], usize) {
        assert!(self.is_shared, "a slice is not accessed by atomics");
        if self.len == 0 {
            return (&[], 0);
        }
        let first = self.start.addr() % WORD;
        let count = (first + self.len).div_ceil(WORD);
        // SAFETY: the maker of a shared span vouched for all bytes of these words, for their lifetime, and that every
        // other access to them is atomic and of this size; stores go here only with `Access::Write`.
        let words = unsafe { std::slice::from_raw_parts(self.start.sub(first).cast(), count) };
        (words, first)
    }
}

impl fmt::Debug for Span<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Span({:p}, {} bytes, {:?})", self.start, self.len, self.access)
    }
}
