//! A buffer that the transfer owns and returns.

use super::{Access, CallerMemory, Faults, Span};
use crate::aligned::AlignedBuf;
use std::any::Any;
use std::cell::UnsafeCell;
use std::sync::Arc;

/// An aligned buffer, lent to devices without a borrow: for transfers that no single function waits
/// for.
///
/// The owner has the bytes back when the last span is dropped; see [`OwnedMemory::into_buf`].
#[derive(Debug)]
pub struct OwnedMemory {
    shared: Arc<Shared>,
    len: usize,
    at: usize,
}

#[derive(Debug)]
struct Shared(UnsafeCell<AlignedBuf>);

#[allow(unsafe_code)]
mod raw {
    use super::{Access, AlignedBuf, Any, Arc, OwnedMemory, Shared, Span};

    // SAFETY: the buffer is accessed through spans, each part by one span, or by its owner while no
    // span is lent.
    unsafe impl Sync for Shared {}

    impl OwnedMemory {
        /// `n` bytes from `at` on, which the cursor has passed. They are lent once: `revert` panics
        /// while a span is lent.
        pub(super) fn part(&self, at: usize, n: usize, access: Access) -> Span<'static> {
            assert!(at <= self.len && n <= self.len - at, "a part of the buffer");
            let keep: Arc<dyn Any + Send + Sync> = self.shared.clone();
            // SAFETY: the buffer's memory does not move and lives as long as `keep`; the part lies
            // in it.
            unsafe {
                let buf: &AlignedBuf = &*self.shared.0.get();
                Span::exclusive(buf.start().add(at), n, access, Some(keep))
            }
        }
    }
}

impl OwnedMemory {
    /// All of a buffer.
    pub fn new(buf: AlignedBuf) -> OwnedMemory {
        let len = buf.len();
        OwnedMemory { shared: Arc::new(Shared(UnsafeCell::new(buf))), len, at: 0 }
    }

    /// Returns the buffer, or `None` while a device still has a part of it.
    pub fn into_buf(self) -> Option<AlignedBuf> {
        Arc::try_unwrap(self.shared).ok().map(|shared| shared.0.into_inner())
    }
}

impl CallerMemory<'static> for OwnedMemory {
    fn left(&self) -> usize {
        self.len - self.at
    }

    fn copy_out(&mut self, to: &mut [u8], _: Faults) -> usize {
        let n = to.len().min(self.left());
        self.part(self.at, n, Access::Read).load(&mut to[..n]);
        self.at += n;
        n
    }

    fn copy_in(&mut self, from: &[u8], _: Faults) -> usize {
        let n = from.len().min(self.left());
        self.part(self.at, n, Access::Write).store(&from[..n]);
        self.at += n;
        n
    }

    fn is_present(&self) -> bool {
        true
    }

    fn revert(&mut self, len: usize) {
        assert_eq!(Arc::strong_count(&self.shared), 1, "gives back what is lent");
        self.at = self.at.checked_sub(len).expect("gives back what was taken");
    }

    fn lend(&mut self, most: usize, access: Access) -> Option<Span<'static>> {
        let n = most.min(self.left());
        self.at += n;
        (n > 0).then(|| self.part(self.at - n, n, access))
    }
}
