//! One transfer, run immediately: by a positional system call where the device has a descriptor,
//! else by the device.
//!
//! ```text
//!   aligned: offset, length, memory ─► preadv, pwritev on the descriptor ─ short ─┐
//!   everything else ──────────────────────────────────────────────────────────────┴─► device
//! ```

use super::{Memory, Request};
use crate::caller::Access;
use crate::device::BlockDevice;
use crate::pool::BufPool;
use crate::range::failed;
use extant_base::Result;
use std::io::{self, IoSlice, IoSliceMut};
use std::os::fd::{AsRawFd, RawFd};
use std::sync::LazyLock;

/// The first bounce buffer of a read into shared memory has at most this size.
const PIECE: usize = 256 << 10;
/// The most pieces that one system call takes (`IOV_MAX`).
const MAX_PIECES: usize = 1024;

/// Bounce buffers: a device needs a slice, and none may be made of shared memory.
static STABLE: LazyLock<BufPool> = LazyLock::new(|| BufPool::new(1 << 20));

/// Runs one transfer and returns when it has ended.
///
/// # Errors
/// As [`BlockDevice::read_at`] and [`BlockDevice::write_at`].
pub fn transfer(device: &dyn BlockDevice, request: &mut Request<'_>) -> Result<()> {
    request.check(device)?;
    transfer_checked(device, request)
}

pub(super) fn transfer_checked(device: &dyn BlockDevice, request: &mut Request<'_>) -> Result<()> {
    let Some(target) = whole_for_kernel(device, request) else {
        return by_device(device, request);
    };
    let moved = positional(target, request);
    if request.access == Access::Read {
        device.wrote_past();
    }
    match moved {
        Ok(done) if done == request.memory.len() => Ok(()),
        // An alignment rule that the system did not report, or a short transfer: the device repeats
        // it all.
        Ok(_) => by_device(device, request),
        Err(error) if error.raw_os_error() == Some(libc::EINVAL) => by_device(device, request),
        Err(error) => Err(failed(request.op(), request.at, request.memory.len() as u64, error)),
    }
}

/// The file and offset of a request that goes to the kernel unchanged.
#[derive(Clone, Copy)]
pub(super) struct Target {
    pub file: RawFd,
    pub at: u64,
}

/// Returns `None` for a request that needs the device's own methods.
pub(super) fn whole_for_kernel(device: &dyn BlockDevice, request: &Request<'_>) -> Option<Target> {
    let descriptor = device.descriptor()?;
    let align = descriptor.align;
    let at = descriptor.start.checked_add(request.at.0)?;
    let fits = at.is_multiple_of(align as u64)
        && match &request.memory {
            Memory::Owned(buf) => buf.len().is_multiple_of(align),
            Memory::Lent(spans) => {
                spans.len() <= MAX_PIECES
                    && spans
                        .iter()
                        .all(|span| span.is_aligned_to(align) && span.len().is_multiple_of(align))
            }
        };
    fits.then_some(Target { file: descriptor.file.as_raw_fd(), at })
}

/// Makes one system call, repeated when a signal interrupts it. Returns the number of bytes moved.
fn positional(target: Target, request: &Request<'_>) -> io::Result<usize> {
    let vectors = request.memory.vectors();
    let count = i32::try_from(vectors.len()).unwrap_or(i32::MAX);
    loop {
        let at = target.at as i64;
        // SAFETY: the vectors describe memory that the request holds. It is readable, and `check`
        // found it writable where it is to be filled. The descriptor belongs to the device, which
        // is borrowed.
        let done = unsafe {
            match request.access {
                Access::Read => libc::pwritev(target.file, vectors.as_ptr(), count, at),
                Access::Write => libc::preadv(target.file, vectors.as_ptr(), count, at),
            }
        };
        match usize::try_from(done) {
            Ok(done) => return Ok(done),
            Err(_) => {
                let error = io::Error::last_os_error();
                if error.kind() != io::ErrorKind::Interrupted {
                    return Err(error);
                }
            }
        }
    }
}

/// Runs a transfer by the device's own methods. Shared memory goes through a bounce buffer.
pub(super) fn by_device(device: &dyn BlockDevice, request: &mut Request<'_>) -> Result<()> {
    let at = request.at;
    match (&mut request.memory, request.access) {
        (Memory::Owned(buf), Access::Read) => device.write_at(at, buf),
        (Memory::Owned(buf), Access::Write) => device.read_at(at, buf),
        (Memory::Lent(spans), Access::Read) => {
            let slices: Option<Vec<&[u8]>> =
                spans.iter().map(|span| span.exclusive_bytes()).collect();
            match slices.as_deref() {
                Some([]) => Ok(()),
                Some([one]) => device.write_at(at, one),
                Some(all) => {
                    let all: Vec<IoSlice<'_>> =
                        all.iter().map(|bytes| IoSlice::new(bytes)).collect();
                    device.write_vectored_at(at, &all)
                }
                None => {
                    let len = spans.iter().map(|span| span.len()).sum();
                    let mut copy = STABLE.take(len);
                    let mut done = 0;
                    for span in spans {
                        span.load(&mut copy[done..done + span.len()]);
                        done += span.len();
                    }
                    device.write_at(at, &copy)
                }
            }
        }
        (Memory::Lent(spans), Access::Write) => {
            if let [one] = spans.as_mut_slice()
                && let Some(bytes) = one.exclusive_bytes_mut()
            {
                return device.read_at(at, bytes);
            }
            let slices: Option<Vec<IoSliceMut<'_>>> = spans
                .iter_mut()
                .map(|span| span.exclusive_bytes_mut().map(IoSliceMut::new))
                .collect();
            if let Some(mut slices) = slices {
                return device.read_vectored_at(at, &mut slices);
            }
            let len: usize = spans.iter().map(|span| span.len()).sum();
            let mut copy = STABLE.take(len.min(PIECE));
            let mut pos = at.0;
            for span in spans {
                copy = if copy.len() < span.len() { STABLE.take(span.len()) } else { copy };
                let part = &mut copy[..span.len()];
                device.read_at(extant_base::ByteOffset(pos), part)?;
                span.store(part);
                pos += span.len() as u64;
            }
            Ok(())
        }
    }
}
