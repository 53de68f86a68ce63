//! The trait of everything that holds a volume's bytes.
//!
//! ```text
//!   0                                 at        at + len                  len()
//!   ├─────────────────────────────────┼────────────┼───────────────────────┤
//!                                     └── a range ─┘   all inside, or an error and nothing moved
//!
//!   write ──► cache of the device ──flush──► durable          write_fua ──► durable
//!             may be lost, kept, reordered or torn at 512 bytes by a power cut
//! ```
//!
//! Devices take no ranked lock. The locks inside them are the innermost of all, so a caller may
//! hold any [`Rank`](extant_base::lock::Rank) when it calls a device.

use crate::dax::Dax;
use crate::forward;
use crate::range::{check_range, total_len};
use extant_base::{ByteOffset, Error, IoOp, Result};
use std::io::{IoSlice, IoSliceMut};
use std::os::fd::BorrowedFd;
use std::sync::Arc;

/// What [`BlockDevice::lengthen`] returns for a device that stays too short.
pub(crate) const TOO_SHORT: Error =
    Error::NotSupported("the device is smaller than that: make the device larger first");

/// The zeros that are written when a device has no better way.
static ZEROS: [u8; 64 << 10] = [0; 64 << 10];

/// A range of bytes that keeps what was written to it.
///
/// Every transfer moves exactly the requested bytes or fails. A range that does not lie wholly
/// below [`len`](BlockDevice::len) is an `Error::Device` of kind `UnexpectedEof` that names the
/// range, and nothing is moved. Concurrent transfers of overlapping ranges may mix.
///
/// # Errors
/// Methods that return a `Result` fail with `Device`. Changes of a read-only device fail with
/// `ReadOnly`, and `discard` where space cannot be freed with `NotSupported`.
pub trait BlockDevice: Send + Sync {
    /// The length in bytes.
    fn len(&self) -> u64;

    /// Whether the device holds no byte at all.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Fills `buf` with the bytes from `at` on.
    fn read_at(&self, at: ByteOffset, buf: &mut [u8]) -> Result<()>;

    /// Writes `buf` at `at`. The bytes are durable after the next [`flush`](BlockDevice::flush).
    fn write_at(&self, at: ByteOffset, buf: &[u8]) -> Result<()>;

    /// Fills `bufs` one after the other with the bytes from `at` on.
    fn read_vectored_at(&self, at: ByteOffset, bufs: &mut [IoSliceMut<'_>]) -> Result<()> {
        let total = total_len(bufs.iter().map(|buf| buf.len()));
        check_range(IoOp::Read, self.len(), at, total)?;
        let mut pos = at.0;
        for buf in bufs {
            self.read_at(ByteOffset(pos), buf)?;
            pos += buf.len() as u64;
        }
        Ok(())
    }

    /// Fills `buf` like [`read_at`](BlockDevice::read_at), but with what the medium holds now.
    /// Where the device can, the read bypasses what this machine has cached of it, because other
    /// machines may have written there.
    fn read_fresh_at(&self, at: ByteOffset, buf: &mut [u8]) -> Result<()> {
        self.read_at(at, buf)
    }

    /// Writes `bufs` one after the other at `at`.
    fn write_vectored_at(&self, at: ByteOffset, bufs: &[IoSlice<'_>]) -> Result<()> {
        let total = total_len(bufs.iter().map(|buf| buf.len()));
        check_range(IoOp::Write, self.len(), at, total)?;
        let mut pos = at.0;
        for buf in bufs {
            self.write_at(ByteOffset(pos), buf)?;
            pos += buf.len() as u64;
        }
        Ok(())
    }

    /// Makes every write that returned before this call durable.
    ///
    /// After an error the state of those writes is unknown, and a later success does not make them
    /// durable: the caller must not retry the flush and go on.
    fn flush(&self) -> Result<()>;

    /// Writes like [`write_at`](BlockDevice::write_at) and returns when these bytes are durable (a
    /// forced write). Guarantees nothing about earlier writes.
    fn write_fua(&self, at: ByteOffset, buf: &[u8]) -> Result<()> {
        self.write_at(at, buf)?;
        self.flush()
    }

    /// Declares that `len` bytes from `at` on are no longer needed. Afterwards they read as the old
    /// bytes or as zeros.
    fn discard(&self, at: ByteOffset, len: u64) -> Result<()> {
        check_range(IoOp::Discard, self.len(), at, len)
    }

    /// Makes `len` bytes from `at` on read as zeros, without a transfer of zeros where the device
    /// can.
    fn zero(&self, at: ByteOffset, len: u64) -> Result<()> {
        check_range(IoOp::Write, self.len(), at, len)?;
        write_zeros(self, at, len)
    }

    /// Makes sure that the device is at least `len` bytes long: a file is extended by zeros that
    /// take no space. A file or block device that became longer since it was opened gets its new
    /// length. No device becomes shorter. `NotSupported` if the device stays shorter than `len`.
    fn lengthen(&self, len: u64) -> Result<()> {
        if len <= self.len() { Ok(()) } else { Err(TOO_SHORT) }
    }

    /// Whether writes fail with `Error::ReadOnly`.
    fn is_read_only(&self) -> bool {
        false
    }

    /// The alignment in bytes, a power of two, of offset, length and memory address with which a
    /// transfer is fastest; 1 when it makes no difference. It is never required: any range works.
    fn alignment(&self) -> usize {
        1
    }

    /// The system's descriptor of the device, for transfers that go to the kernel without a call of
    /// the device (see [`Queue`](crate::Queue)). `None` where the device has to see each transfer.
    fn descriptor(&self) -> Option<Descriptor<'_>> {
        None
    }

    /// Whether the bytes of a write must not change before it returns. A device that keeps several
    /// copies reads the caller's memory once for each copy, so memory that changes meanwhile makes
    /// the copies differ. A caller whose memory others may change checks this first, and writes
    /// from a copy.
    fn needs_stable_buffers(&self) -> bool {
        false
    }

    /// Fills `buf` like [`read_at`](BlockDevice::read_at) with bytes for which `verify` returns
    /// true, if a copy holds such bytes. Returns whether one does. A device with several copies
    /// then overwrites the bad copies with the good one. After `false`, `buf` holds bytes for which
    /// `verify` returns false.
    ///
    /// # Errors
    /// `Device` when no copy could be read.
    fn read_verified(
        &self,
        at: ByteOffset,
        buf: &mut [u8],
        verify: &dyn Fn(&[u8]) -> bool,
    ) -> Result<bool> {
        self.read_at(at, buf)?;
        Ok(verify(buf))
    }

    /// Reports that bytes were, or may have been, written through the
    /// [`descriptor`](BlockDevice::descriptor): as after a write by the device itself, a flush is
    /// needed to make them durable.
    fn wrote_past(&self) {}

    /// Reports that no writes are expected for now. A device that records on the medium where
    /// writes may be in flight cleans these records; the next write sets them again. Without this
    /// call nothing is lost.
    fn set_idle(&self) {}

    /// A window onto `len` bytes from `at` on, for stores without I/O; `None` where the device
    /// offers none. Reads of the device see what is stored in the window, and loads see what is
    /// written to the device. A flush of the device does not make stores durable.
    fn dax(&self, at: ByteOffset, len: u64) -> Option<Arc<dyn Dax>> {
        let _ = (at, len);
        None
    }
}

/// The kernel's file for a device.
#[derive(Clone, Copy, Debug)]
pub struct Descriptor<'a> {
    /// The file to read and write.
    pub file: BorrowedFd<'a>,
    /// Offset in `file` of the device's first byte.
    pub start: u64,
    /// The alignment in bytes that offsets, lengths and memory addresses must have; other transfers
    /// use the device's own methods.
    pub align: usize,
}

/// Writes zeros in pieces. The caller has checked the range.
pub(crate) fn write_zeros<D: BlockDevice + ?Sized>(
    device: &D,
    at: ByteOffset,
    len: u64,
) -> Result<()> {
    let mut done = 0;
    while done < len {
        let n = (len - done).min(ZEROS.len() as u64);
        device.write_at(ByteOffset(at.0 + done), &ZEROS[..n as usize])?;
        done += n;
    }
    Ok(())
}

macro_rules! pointers {
    ($($pointer:ty),*) => {$(
        impl<D: BlockDevice + ?Sized> BlockDevice for $pointer {
            forward!(self => **self;
                len, is_empty, read_at, read_vectored_at, read_fresh_at, read_verified, write_at,
                write_vectored_at, write_fua, flush, discard, zero, lengthen, is_read_only, alignment,
                descriptor, needs_stable_buffers, wrote_past, set_idle, dax);
        }
    )*};
}

pointers!(&D, Arc<D>, Box<D>);
