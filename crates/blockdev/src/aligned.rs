//! Memory that direct transfers accept: it starts at a multiple of 4096 bytes.
//!
//! ```text
//!   ptr % 4096 == 0
//!   ├──────────────── len ────────────────┤
//!   │ all initialised, zero when new      │ …  up to the next multiple of 4096
//! ```

use std::alloc::{Layout, alloc_zeroed, dealloc, handle_alloc_error};
use std::fmt;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;

/// A buffer on the heap whose address is a multiple of [`AlignedBuf::ALIGN`].
pub struct AlignedBuf {
    start: NonNull<u8>,
    len: usize,
}

impl AlignedBuf {
    /// The address is a multiple of this number of bytes: enough for direct transfers wherever
    /// pages are 4 KiB.
    pub const ALIGN: usize = 4096;

    /// `len` zero bytes. Aborts, like any allocation, when there is no memory.
    ///
    /// # Panics
    /// If `len` is within a page of `isize::MAX`. Lengths that were checked are smaller.
    pub fn zeroed(len: usize) -> AlignedBuf {
        let layout = layout_of(len);
        // SAFETY: `layout_of` never gives a size of zero.
        let start = unsafe { alloc_zeroed(layout) };
        let Some(start) = NonNull::new(start) else { handle_alloc_error(layout) };
        AlignedBuf { start, len }
    }

    /// As [`AlignedBuf::zeroed`]; `None` when there is no memory.
    pub fn try_zeroed(len: usize) -> Option<AlignedBuf> {
        let layout = layout_of(len);
        // SAFETY: `layout_of` never gives a size of zero.
        let start = unsafe { alloc_zeroed(layout) };
        Some(AlignedBuf { start: NonNull::new(start)?, len })
    }

    /// The address of the bytes, without a reference to them.
    pub(crate) fn start(&self) -> *mut u8 {
        self.start.as_ptr()
    }

    /// A copy of `bytes`.
    pub fn copy_of(bytes: &[u8]) -> AlignedBuf {
        let mut buf = AlignedBuf::zeroed(bytes.len());
        buf.copy_from_slice(bytes);
        buf
    }
}

/// The memory layout for `len` bytes: whole pages, at least one.
fn layout_of(len: usize) -> Layout {
    let size = len.max(1).checked_next_multiple_of(AlignedBuf::ALIGN);
    size.and_then(|size| Layout::from_size_align(size, AlignedBuf::ALIGN).ok())
        .expect("a buffer's length is checked by its caller and far below isize::MAX")
}

impl Deref for AlignedBuf {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        // SAFETY: `start` points at `len` or more bytes that `zeroed` allocated and initialised.
        // They live as long as `self`, and no thread writes while `&self` is borrowed.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.len) }
    }
}

impl DerefMut for AlignedBuf {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `deref`; `&mut self` makes this the only view.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.len) }
    }
}

impl Drop for AlignedBuf {
    fn drop(&mut self) {
        // SAFETY: `start` came from `alloc_zeroed` with this very layout: `len` never changes.
        unsafe { dealloc(self.start.as_ptr(), layout_of(self.len)) }
    }
}

// SAFETY: the buffer owns its memory alone, as a `Box<[u8]>` does.
unsafe impl Send for AlignedBuf {}
// SAFETY: shared access only reads.
unsafe impl Sync for AlignedBuf {}

impl Clone for AlignedBuf {
    fn clone(&self) -> AlignedBuf {
        AlignedBuf::copy_of(self)
    }
}

impl fmt::Debug for AlignedBuf {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "AlignedBuf({} bytes)", self.len)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_length_is_zero_and_aligned() {
        for len in [0, 1, 511, 4096, 4097, 9000] {
            let mut buf = AlignedBuf::zeroed(len);
            assert_eq!(buf.len(), len);
            assert_eq!(buf.as_ptr() as usize % AlignedBuf::ALIGN, 0);
            assert_eq!(*buf, vec![0; len]);
            buf.fill(7);
            assert_eq!(*buf.clone(), vec![7; len]);
        }
    }

    #[test]
    fn a_buffer_moves_between_threads() {
        let mut buf = AlignedBuf::copy_of(b"abc");
        let buf = std::thread::spawn(move || {
            buf[0] = b'x';
            buf
        });
        assert_eq!(&*buf.join().unwrap(), b"xbc");
    }
}
