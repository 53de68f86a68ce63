//! Memory that a caller lends for a transfer, modelled on the kernel's `iov_iter`.
//!
//! ```text
//!   ├──── taken ────┬──────────────── left ────────────────┤
//!                   │ copy_out, copy_in, lend  ──► move right by the bytes that they handled
//!      revert(n) ◄──┘                              a short copy stops where the memory faults
//!   fault_in(n)     makes the next bytes present: may sleep, may call the filesystem
//! ```
//!
//! A caller that holds a lock which a page fault could need copies with [`Faults::Off`]. After a
//! short copy it reverts the bytes that it took, releases the lock, faults the memory in and starts
//! again. Memory is used in two ways: by copies, which do not change afterwards, and by [`Span`]s,
//! which the device reads or fills in place.

mod owned;
mod shared;
mod slices;
#[allow(unsafe_code)]
mod span;
mod stream;

pub use owned::OwnedMemory;
pub use shared::{SharedCursor, SharedMemory};
pub use slices::{Source, Target};
pub use span::Span;

/// Whether a copy may wait for pages that are not present.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Faults {
    /// It may: the caller holds no lock that a page fault could need.
    Allowed,
    /// It stops before the first page that is not present.
    Off,
}

/// What the device does with memory.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Access {
    /// Reads it: a write to the device.
    Read,
    /// Fills it: a read from the device.
    Write,
}

/// Bytes of a caller, one after the other; see the picture at the top of this module.
///
/// `'m` is how long lent spans stay valid. A copy never fails: it returns how many bytes it copied.
/// Zero bytes with [`Faults::Allowed`] mean that the memory is not there (`EFAULT`).
pub trait CallerMemory<'m> {
    /// How many bytes are left from the current position on.
    fn left(&self) -> usize;

    /// Copies the next bytes to `to` and returns how many. The copy is short only at the end and
    /// where the memory faults.
    fn copy_out(&mut self, to: &mut [u8], faults: Faults) -> usize;

    /// Copies `from` over the next bytes and returns how many, as
    /// [`copy_out`](CallerMemory::copy_out).
    fn copy_in(&mut self, from: &[u8], faults: Faults) -> usize;

    /// Makes the next `len` bytes present for an `access` that follows. Returns how many of them
    /// are present now. The position does not move.
    fn fault_in(&mut self, len: usize, access: Access) -> usize {
        let _ = access;
        len.min(self.left())
    }

    /// Whether a copy is never short except at the end. A caller that copies a long transfer in
    /// pieces may then submit the first piece before it has copied the last.
    fn is_present(&self) -> bool {
        false
    }

    /// Moves the position back over the last `len` bytes: they are the next ones again.
    ///
    /// # Panics
    /// If fewer bytes were taken, or if a span of memory that is to be filled is still lent.
    fn revert(&mut self, len: usize);

    /// Lends the next bytes in place, at most `most`. `None` where there are none to lend: then the
    /// bytes are copied. The caller is responsible for other accesses to these bytes while they are
    /// lent, and for what they then hold.
    fn lend(&mut self, most: usize, access: Access) -> Option<Span<'m>>;
}

impl<'m, M: CallerMemory<'m> + ?Sized> CallerMemory<'m> for &mut M {
    fn left(&self) -> usize {
        (**self).left()
    }
    fn copy_out(&mut self, to: &mut [u8], faults: Faults) -> usize {
        (**self).copy_out(to, faults)
    }
    fn copy_in(&mut self, from: &[u8], faults: Faults) -> usize {
        (**self).copy_in(from, faults)
    }
    fn fault_in(&mut self, len: usize, access: Access) -> usize {
        (**self).fault_in(len, access)
    }
    fn is_present(&self) -> bool {
        (**self).is_present()
    }
    fn revert(&mut self, len: usize) {
        (**self).revert(len);
    }
    fn lend(&mut self, most: usize, access: Access) -> Option<Span<'m>> {
        (**self).lend(most, access)
    }
}

#[cfg(test)]
mod tests;
