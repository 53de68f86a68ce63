//! Memory that a caller lends for a transfer, in the shape of the kernel's iterator.
//!
//! ```text
//!   ├──── taken ────┬──────────────── left ────────────────┤
//!                   │ copy_out, copy_in, lend  ──► moves right, by what they did
//!      revert(n) ◄──┘                                       a short copy stops where the memory faults
//!   fault_in(n)     makes the next bytes present: may sleep, may call the filesystem
//! ```
//!
//! Who holds a lock that a fault could ask for copies with [`Faults::Off`]; after a short copy it gives back
//! what it took, lets go of the lock, faults the bytes in and starts again. Two ways lead through a memory:
//! copies, which are stable from then on, and [`Span`]s, which the device reads or fills in place.

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
    /// It may: no lock is held that bringing them in could ask for.
    Allowed,
    /// It stops short of them.
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

/// Bytes of a caller, one after the other; see the module's picture.
///
/// `'m` is how long lent spans stay good. A copy never fails: it says how many bytes it did, and 0 with
/// [`Faults::Allowed`] means that the memory is not there (`EFAULT`).
pub trait CallerMemory<'m> {
    /// How many bytes are left from here on.
    fn left(&self) -> usize;

    /// Copies the next bytes to `to`: how many, fewer only at the end and where the memory faults.
    fn copy_out(&mut self, to: &mut [u8], faults: Faults) -> usize;

    /// Copies `from` over the next bytes: how many, as [`copy_out`](CallerMemory::copy_out).
    fn copy_in(&mut self, from: &[u8], faults: Faults) -> usize;

    /// Brings the next `len` bytes in, for who will do `access` to them: how many of them are there now.
    /// Moves nothing.
    fn fault_in(&mut self, len: usize, access: Access) -> usize {
        let _ = access;
        len.min(self.left())
    }

    /// Whether no copy of it comes short but at its end: who copies a long transfer in pieces may then send off the
    /// first before it has the last.
    fn is_present(&self) -> bool {
        false
    }

    /// Gives the last `len` bytes back: they are the next ones again.
    ///
    /// # Panics
    /// If so many were never taken, or a span of memory that is to be filled is still lent.
    fn revert(&mut self, len: usize);

    /// Lends the next bytes, at most `most`, in place; `None` where there are none to lend: then they are
    /// copied. Whoever looks at or fills them meanwhile, and what they hold then, is the caller's affair.
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
