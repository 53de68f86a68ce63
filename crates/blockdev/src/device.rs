//! The one trait that everything which holds a volume's bytes answers to.
//!
//! ```text
//!   0                                 at        at + len                  len()
//!   ├─────────────────────────────────┼────────────┼───────────────────────┤
//!                                     └── a range ─┘   whole inside, or an error and nothing moved
//!
//!   write ──► cache of the device ──flush──► durable          write_fua ──► durable
//!             may be lost, kept, reordered or torn at 512 bytes by a power cut
//! ```
//!
//! Devices take no ranked lock: the locks inside them are the innermost of all, so a device may be
//! called while holding any [`Rank`](extant_base::lock::Rank).

use crate::dax::Dax;
use extant_base::{ByteOffset, Error, IoOp, Result};
use std::io::{self, ErrorKind, IoSlice, IoSliceMut};
use std::os::fd::BorrowedFd;
use std::sync::Arc;

/// Zeros are written from here when a device has no better way.
static ZEROS: [u8; 64 << 10] = [0; 64 << 10];

/// A range of bytes that keeps what was written to it.
///
/// Every transfer moves exactly the bytes asked for or fails. A range that does not lie wholly
/// below [`len`](BlockDevice::len) is an [`Error::Device`] of kind `UnexpectedEof` that names the
/// range; nothing is moved then. Transfers of overlapping ranges from several threads may mix.
pub trait BlockDevice: Send + Sync {
    /// The length in bytes.
    fn len(&self) -> u64;

    /// Whether the device holds no byte at all.
    fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Fills `buf` with the bytes from `at` on.
    fn read_at(&self, at: ByteOffset, buf: &mut [u8]) -> Result<()>;

    /// Puts `buf` at `at`. Durable after the next [`flush`](BlockDevice::flush).
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

    /// Fills `buf` like [`read_at`](BlockDevice::read_at), with what the medium holds now: past
    /// what this machine keeps in memory of it, where the device can, because other machines may
    /// have written there.
    fn read_fresh_at(&self, at: ByteOffset, buf: &mut [u8]) -> Result<()> {
        self.read_at(at, buf)
    }

    /// Puts `bufs` one after the other at `at`.
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
    /// After an error nothing is known about those writes, and a later success does not bring
    /// them back: the caller must not retry its way past it.
    fn flush(&self) -> Result<()>;

    /// Writes like [`write_at`](BlockDevice::write_at) and returns when these bytes are durable.
    /// Promises nothing about earlier writes.
    fn write_fua(&self, at: ByteOffset, buf: &[u8]) -> Result<()> {
        self.write_at(at, buf)?;
        self.flush()
    }

    /// Says that nobody needs `len` bytes from `at` on. What they read as afterwards is open: the
    /// old bytes or zeros.
    fn discard(&self, at: ByteOffset, len: u64) -> Result<()> {
        check_range(IoOp::Discard, self.len(), at, len)
    }

    /// Makes `len` bytes from `at` on read as zeros, without moving them where the device can.
    fn zero(&self, at: ByteOffset, len: u64) -> Result<()> {
        check_range(IoOp::Write, self.len(), at, len)?;
        write_zeros(self, at, len)
    }

    /// Whether writes are answered with [`Error::ReadOnly`].
    fn is_read_only(&self) -> bool {
        false
    }

    /// What offset, length and memory address of a transfer should be a multiple of to go the
    /// fastest way: 1 when it makes no difference. A power of two. Never a demand: any range works.
    fn alignment(&self) -> usize {
        1
    }

    /// The system's own descriptor behind the device, for transfers that are handed to the kernel as they
    /// are (see [`Queue`](crate::Queue)); `None` where somebody has to see each of them.
    fn descriptor(&self) -> Option<Descriptor<'_>> {
        None
    }

    /// Whether the bytes of a write must not change before it returns. A device that keeps several
    /// copies reads the caller's memory once for each: memory that changes meanwhile makes copies
    /// that differ. Who writes from memory of others asks first, and copies.
    fn needs_stable_buffers(&self) -> bool {
        false
    }

    /// Fills `buf` like [`read_at`](BlockDevice::read_at) with bytes for which `verify` says yes, if
    /// some copy of them does; whether one did. A device with several copies puts the good one in
    /// place of the bad ones. On `false`, `buf` holds bytes for which `verify` says no.
    ///
    /// Errors: `Device` when no copy could be read.
    fn read_verified(
        &self,
        at: ByteOffset,
        buf: &mut [u8],
        verify: &dyn Fn(&[u8]) -> bool,
    ) -> Result<bool> {
        self.read_at(at, buf)?;
        Ok(verify(buf))
    }

    /// Bytes were written through the [`descriptor`](BlockDevice::descriptor), or may have been: as after a write of
    /// the device's own, a flush is owed.
    fn wrote_past(&self) {}

    /// The user is done for now. A device that keeps notes on the medium of what may be under way puts them in
    /// order; the next write begins them anew. Without it nothing is lost.
    fn settle(&self) {}

    /// A window onto `len` bytes from `at` on, for stores without I/O; `None` where there is none.
    /// What is stored there is seen by reads of the device, and the other way round; a flush of the
    /// device says nothing about it.
    fn dax(&self, at: ByteOffset, len: u64) -> Option<Arc<dyn Dax>> {
        let _ = (at, len);
        None
    }
}

/// A device as the kernel knows it.
#[derive(Clone, Copy, Debug)]
pub struct Descriptor<'a> {
    /// What is read and written.
    pub file: BorrowedFd<'a>,
    /// Where the device's first byte is in it.
    pub start: u64,
    /// What places, lengths and addresses of memory have to be multiples of; others take the device's own calls.
    pub align: usize,
}

/// Writes zeros piece by piece. The range is checked already.
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

/// The sum of some lengths, which lie in memory together and so cannot be near 2^64.
pub(crate) fn total_len(lens: impl Iterator<Item = usize>) -> u64 {
    lens.fold(0u64, |sum, len| sum.saturating_add(len as u64))
}

/// Fails unless `len` bytes from `at` on lie within a device of `device_len` bytes.
pub(crate) fn check_range(op: IoOp, device_len: u64, at: ByteOffset, len: u64) -> Result<()> {
    match at.0.checked_add(len) {
        Some(end) if end <= device_len => Ok(()),
        _ => Err(failed(op, at, len, io::Error::new(ErrorKind::UnexpectedEof, PAST_END))),
    }
}

const PAST_END: &str = "past the end of the device";

/// An [`Error::Device`] for a range of `len` bytes at `at`.
pub(crate) fn failed(op: IoOp, at: ByteOffset, len: u64, source: io::Error) -> Error {
    Error::Device { op, at, len: usize::try_from(len).unwrap_or(usize::MAX), source }
}

macro_rules! forward {
    ($($pointer:ty),*) => {$(
        impl<D: BlockDevice + ?Sized> BlockDevice for $pointer {
            fn len(&self) -> u64 {
                (**self).len()
            }
            fn is_empty(&self) -> bool {
                (**self).is_empty()
            }
            fn read_at(&self, at: ByteOffset, buf: &mut [u8]) -> Result<()> {
                (**self).read_at(at, buf)
            }
            fn write_at(&self, at: ByteOffset, buf: &[u8]) -> Result<()> {
                (**self).write_at(at, buf)
            }
            fn read_fresh_at(&self, at: ByteOffset, buf: &mut [u8]) -> Result<()> {
                (**self).read_fresh_at(at, buf)
            }
            fn read_vectored_at(&self, at: ByteOffset, bufs: &mut [IoSliceMut<'_>]) -> Result<()> {
                (**self).read_vectored_at(at, bufs)
            }
            fn write_vectored_at(&self, at: ByteOffset, bufs: &[IoSlice<'_>]) -> Result<()> {
                (**self).write_vectored_at(at, bufs)
            }
            fn flush(&self) -> Result<()> {
                (**self).flush()
            }
            fn write_fua(&self, at: ByteOffset, buf: &[u8]) -> Result<()> {
                (**self).write_fua(at, buf)
            }
            fn discard(&self, at: ByteOffset, len: u64) -> Result<()> {
                (**self).discard(at, len)
            }
            fn zero(&self, at: ByteOffset, len: u64) -> Result<()> {
                (**self).zero(at, len)
            }
            fn is_read_only(&self) -> bool {
                (**self).is_read_only()
            }
            fn alignment(&self) -> usize {
                (**self).alignment()
            }
            fn descriptor(&self) -> Option<Descriptor<'_>> {
                (**self).descriptor()
            }
            fn needs_stable_buffers(&self) -> bool {
                (**self).needs_stable_buffers()
            }
            fn read_verified(
                &self,
                at: ByteOffset,
                buf: &mut [u8],
                verify: &dyn Fn(&[u8]) -> bool,
            ) -> Result<bool> {
                (**self).read_verified(at, buf, verify)
            }
            fn wrote_past(&self) {
                (**self).wrote_past();
            }
            fn settle(&self) {
                (**self).settle();
            }
            fn dax(&self, at: ByteOffset, len: u64) -> Option<Arc<dyn Dax>> {
                (**self).dax(at, len)
            }
        }
    )*};
}

forward!(&D, Arc<D>, Box<D>);
