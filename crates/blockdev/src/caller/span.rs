//! A range of a caller's memory that only a device uses.
//!
//! ```text
//!   exclusive  no other code touches the bytes while the span lives; may be a slice
//!   shared     others may change the bytes at any time: they are only copied, by atomic 8-byte
//!              words, or handed to the kernel
//! ```
//!
//! Shared memory has one rule: every access of this process to it is an atomic access of an aligned
//! 8-byte word ([`AtomicU64`]). The first and the last word of a span are accessed as a whole, even
//! where the span contains only a part of them. Other processes and the kernel are outside of
//! Rust's memory model: whatever they store, and in whatever size, a load here returns either old
//! or new bytes, and loads each aligned word once.

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
    /// Keeps the memory alive as long as the span.
    _keep: Option<Arc<dyn Any + Send + Sync>>,
    _memory: PhantomData<&'m [u8]>,
}

// SAFETY: a span is an address that its creator guarantees, valid from any thread; `keep` is `Send
// + Sync`.
unsafe impl Send for Span<'_> {}
// SAFETY: a shared reference to a span gives out its address, its length, and bytes that do not
// change or are read as atomic words.
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

    /// Memory that others may use at the same time, such as a guest's.
    ///
    /// # Safety
    /// For `'m`, and as long as `keep` lives:
    /// - `len` bytes from `start` on, and the rest of the aligned 8-byte words in which the first
    ///   and the last byte lie, belong to one allocation or mapping that `start` may access. They
    ///   are initialised and readable, and for [`Access::Write`] writable.
    /// - Code of this process accesses these words only as [`AtomicU64`] at multiples of 8, as
    ///   [`SharedMemory`](super::SharedMemory) does: not by atomics of another size and, while a
    ///   thread may store to them, not by plain loads and stores. No `&[u8]` and no `&mut` to them
    ///   exists.
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

    /// Exclusive memory: no other code uses it while the span lives, not even its owner.
    ///
    /// # Safety
    /// As [`Span::shared`]. In addition, while the span lives no other code changes the bytes and,
    /// for [`Access::Write`], no other code reads them.
    pub(crate) unsafe fn exclusive(
        start: *mut u8,
        len: usize,
        access: Access,
        keep: Option<Arc<dyn Any + Send + Sync>>,
    ) -> Span<'m> {
        Span { start, len, access, is_shared: false, _keep: keep, _memory: PhantomData }
    }

    /// The length in bytes.
    pub fn len(&self) -> usize {
        self.len
    }

    /// Whether it holds no byte.
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// What the device may do with the bytes.
    pub fn access(&self) -> Access {
        self.access
    }

    /// Whether the address is a multiple of `align`, a power of two.
    pub fn is_aligned_to(&self, align: usize) -> bool {
        (self.start as usize).is_multiple_of(align)
    }

    /// Passes the bytes to `look`, in order: in place, or, where others may change them, as copies
    /// of at most 4 KiB.
    pub fn look(&self, look: &mut dyn FnMut(&[u8])) {
        if let Some(bytes) = self.exclusive_bytes() {
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

    /// The address of the first byte.
    pub(crate) fn start(&self) -> *mut u8 {
        self.start
    }

    /// The bytes, where no other code changes them; `None` for a shared span.
    pub(crate) fn exclusive_bytes(&self) -> Option<&[u8]> {
        if self.is_shared {
            return None;
        }
        // SAFETY: the creator of an exclusive span guarantees the range as long as the span lives,
        // and that no other code changes it; `exclusive_bytes_mut` takes the span exclusively.
        Some(unsafe { std::slice::from_raw_parts(self.start, self.len) })
    }

    /// The bytes to fill, where no other code uses them; `None` for a shared span or one that is
    /// only read.
    pub(crate) fn exclusive_bytes_mut(&mut self) -> Option<&mut [u8]> {
        if self.is_shared || self.access != Access::Write {
            return None;
        }
        // SAFETY: as above, for writing too; the span is held exclusively and is not `Clone`.
        Some(unsafe { std::slice::from_raw_parts_mut(self.start, self.len) })
    }

    /// Copies the whole span to `to`, which has the same length. Changes that others make meanwhile
    /// may or may not be in it.
    pub(crate) fn load(&self, to: &mut [u8]) {
        assert_eq!(to.len(), self.len, "a copy of a whole span");
        match self.exclusive_bytes() {
            Some(bytes) => super::stream::copy(to, bytes),
            None => {
                let (words, first) = self.words();
                shared_words::load(words, first, to);
            }
        }
    }

    /// Copies `from`, which has the same length, over the whole span.
    pub(crate) fn store(&mut self, from: &[u8]) {
        assert_eq!(from.len(), self.len, "a copy of a whole span");
        assert_eq!(self.access, Access::Write, "a span that is to be filled");
        match self.exclusive_bytes_mut() {
            Some(bytes) => bytes.copy_from_slice(from),
            None => {
                let (words, first) = self.words();
                shared_words::store(words, first, from);
            }
        }
    }

    /// The words of a shared span, and the index of the span's first byte in the first word.
    fn words(&self) -> (&[AtomicU64], usize) {
        assert!(self.is_shared, "a slice is not accessed by atomics");
        if self.len == 0 {
            return (&[], 0);
        }
        let first = self.start.addr() % WORD;
        let count = (first + self.len).div_ceil(WORD);
        // SAFETY: the creator of a shared span guarantees all bytes of these words for their
        // lifetime, and that every other access to them is atomic and of this size. Stores need a
        // span with `Access::Write`.
        let words = unsafe { std::slice::from_raw_parts(self.start.sub(first).cast(), count) };
        (words, first)
    }
}

impl fmt::Debug for Span<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "Span({:p}, {} bytes, {:?})", self.start, self.len, self.access)
    }
}
