//! A device in a regular file, or on a block device of the system.
//!
//! ```text
//!                    ┌── large and aligned ──► O_DIRECT descriptor ──────────────┐
//!   read / write ────┤                              (optional)                   ├──► disk
//!                    └── the rest ───────────► descriptor ──► page cache ────────┘
//!                                                                  ▲
//!   flush = fdatasync: waits for both ways, then flushes the disk's cache
//!
//!   open      FileOptions        lock           the locks of an opening
//!   direct    the O_DIRECT way   loop_device    the files below a loop device
//! ```

mod direct;
#[allow(unsafe_code)]
mod lock;
#[allow(unsafe_code)]
mod loop_device;
mod open;

pub use open::FileOptions;

use crate::dax::{Dax, DaxMode, map_file};
use crate::device::{BlockDevice, Descriptor, TOO_SHORT, write_zeros};
use crate::range::{check_range, failed, total_len};
use direct::{DirectFile, direct_part};
use extant_base::{ByteOffset, Error, IoOp, Result};
use rustix::fs::{Advice, FallocateFlags};
use rustix::io::{Errno, ReadWriteFlags};
use std::fs::File;
use std::io::{self, IoSlice, IoSliceMut, Seek, SeekFrom};
use std::num::NonZeroU64;
use std::os::fd::AsFd;
use std::os::unix::fs::FileExt;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};

/// The most buffers that one system call takes (`IOV_MAX`).
const MAX_BUFS: usize = 1024;
/// Ranges to punch out or zero in the file are reduced to multiples of this many bytes.
const FREE_ALIGN: u64 = 4096;

/// A regular file or block device. Opened with [`FileOptions`].
///
/// With the option `direct`, the aligned part of a transfer bypasses the page cache when it is 64
/// KiB or longer; everything else goes through the page cache. Reads see all completed writes,
/// either way.
pub struct FileDevice {
    file: File,
    direct: Option<DirectFile>,
    len: AtomicU64,
    read_only: bool,
    is_block_device: bool,
    keeps_space: AtomicBool,
    dax: DaxMode,
    /// The locked files in which a loop device stores its blocks.
    _backing: Vec<File>,
    passed_locks: Vec<u32>,
}

impl std::fmt::Debug for FileDevice {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("FileDevice")
            .field("len", &self.len.load(Ordering::Relaxed))
            .field("read_only", &self.read_only)
            .finish_non_exhaustive()
    }
}

impl FileDevice {
    fn new(
        file: File,
        direct: Option<DirectFile>,
        len: u64,
        read_only: bool,
        is_block_device: bool,
        dax: DaxMode,
    ) -> FileDevice {
        let (len, keeps_space) = (AtomicU64::new(len), AtomicBool::new(false));
        FileDevice {
            file,
            direct,
            len,
            read_only,
            is_block_device,
            keeps_space,
            dax,
            _backing: Vec::new(),
            passed_locks: Vec::new(),
        }
    }

    /// The same device, which keeps `backing` open and locked as long as it exists.
    fn with_backing(self, backing: Vec<File>) -> FileDevice {
        FileDevice { _backing: backing, ..self }
    }

    /// The same device, opened although these processes hold locks on it.
    fn with_passed_locks(self, passed_locks: Vec<u32>) -> FileDevice {
        FileDevice { passed_locks, ..self }
    }

    /// The process numbers of those that held a lock when the device was opened. They have it open
    /// for reading only, so their locks were ignored. What they read may change when this device is
    /// written.
    pub fn passed_locks(&self) -> &[u32] {
        &self.passed_locks
    }

    /// Whether large transfers bypass the page cache.
    pub fn is_direct(&self) -> bool {
        self.direct.is_some()
    }

    /// Whether this is a block device rather than a file.
    pub fn is_block_device(&self) -> bool {
        self.is_block_device
    }

    /// Reserves space for the first `len` bytes, so that writing them cannot fail for lack of
    /// space. The length does not change. From now on [`zero`](BlockDevice::zero) keeps the space.
    ///
    /// # Errors
    /// [`Error::Device`] with `ENOSPC`, or with `EOPNOTSUPP` where files cannot reserve space.
    pub fn allocate(&self, len: u64) -> Result<()> {
        self.check_writable()?;
        check_range(IoOp::Resize, self.len(), ByteOffset(0), len)?;
        if !self.is_block_device && len > 0 {
            self.fallocate(FallocateFlags::KEEP_SIZE, 0, len)
                .map_err(|error| failed(IoOp::Resize, ByteOffset(0), len, error.into()))?;
            self.keeps_space.store(true, Ordering::Relaxed);
        }
        Ok(())
    }

    /// Makes the file `len` bytes long: cuts it off, or extends it by zeros that take no space.
    /// Concurrent transfers see one length or the other.
    ///
    /// # Errors
    /// [`Error::Invalid`] for a block device.
    pub fn set_len(&self, len: u64) -> Result<()> {
        self.check_writable()?;
        if self.is_block_device {
            return Err(Error::Invalid("the length of a block device cannot change"));
        }
        let resized = self.file.set_len(len);
        resized.map_err(|error| failed(IoOp::Resize, ByteOffset(len), 0, error))?;
        self.len.store(len, Ordering::Release);
        Ok(())
    }

    /// The length of the file or block device now.
    fn measure(&self) -> Result<u64> {
        let mut file = &self.file;
        file.seek(SeekFrom::End(0)).map_err(|error| failed(IoOp::Resize, ByteOffset(0), 0, error))
    }

    fn check_writable(&self) -> Result<()> {
        if self.read_only { Err(Error::ReadOnly) } else { Ok(()) }
    }

    /// The part of a transfer that bypasses the page cache.
    fn direct_way(&self, at: u64, len: usize) -> Option<(&DirectFile, std::ops::Range<usize>)> {
        let direct = self.direct.as_ref()?;
        Some((direct, direct_part(at, len, direct.align())?))
    }

    fn read(&self, at: u64, buf: &mut [u8]) -> io::Result<()> {
        let Some((direct, part)) = self.direct_way(at, buf.len()) else {
            return self.file.read_exact_at(buf, at);
        };
        let (head, rest) = buf.split_at_mut(part.start);
        let (middle, tail) = rest.split_at_mut(part.len());
        self.file.read_exact_at(head, at)?;
        match direct.read(at + part.start as u64, middle) {
            // An alignment rule that the system did not report; the page cache has none.
            Err(error) if error.raw_os_error() == Some(libc::EINVAL) => {
                self.file.read_exact_at(middle, at + part.start as u64)?;
            }
            done => done?,
        }
        self.file.read_exact_at(tail, at + part.end as u64)
    }

    fn write(&self, at: u64, buf: &[u8]) -> io::Result<()> {
        let Some((direct, part)) = self.direct_way(at, buf.len()) else {
            return self.file.write_all_at(buf, at);
        };
        self.file.write_all_at(&buf[..part.start], at)?;
        match direct.write(at + part.start as u64, &buf[part.clone()]) {
            Err(error) if error.raw_os_error() == Some(libc::EINVAL) => {
                self.file.write_all_at(&buf[part.clone()], at + part.start as u64)?;
            }
            done => done?,
        }
        self.file.write_all_at(&buf[part.end..], at + part.end as u64)
    }

    /// Reads up to `IOV_MAX` buffers through the page cache.
    fn read_some(&self, at: u64, bufs: &mut [IoSliceMut<'_>]) -> io::Result<()> {
        let mut got = rustix::io::retry_on_intr(|| rustix::io::preadv(&self.file, bufs, at))?;
        let mut pos = at;
        for buf in bufs {
            // What a short read left, buffer by buffer.
            let done = got.min(buf.len());
            self.file.read_exact_at(&mut buf[done..], pos + done as u64)?;
            got -= done;
            pos += buf.len() as u64;
        }
        Ok(())
    }

    /// Writes up to `IOV_MAX` buffers through the page cache.
    fn write_some(&self, at: u64, bufs: &[IoSlice<'_>]) -> io::Result<()> {
        let mut put = rustix::io::retry_on_intr(|| rustix::io::pwritev(&self.file, bufs, at))?;
        let mut pos = at;
        for buf in bufs {
            let done = put.min(buf.len());
            self.file.write_all_at(&buf[done..], pos + done as u64)?;
            put -= done;
            pos += buf.len() as u64;
        }
        Ok(())
    }

    fn fallocate(&self, flags: FallocateFlags, at: u64, len: u64) -> rustix::io::Result<()> {
        rustix::io::retry_on_intr(|| rustix::fs::fallocate(&self.file, flags, at, len))
    }

    /// Frees or zeroes the whole pages of a range, which then read as zeros. Returns the range
    /// done; `None` when the range contains no whole page or the system cannot do it.
    fn free(&self, at: u64, len: u64, keep_space: bool) -> Option<std::ops::Range<u64>> {
        let end = at + len;
        let start = at.checked_next_multiple_of(FREE_ALIGN)?;
        // The last page of a file may be cut short by its end.
        let whole_end = if end == self.len() { end } else { end / FREE_ALIGN * FREE_ALIGN };
        if start >= whole_end {
            return None;
        }
        let punch = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        let zero = FallocateFlags::ZERO_RANGE | FallocateFlags::KEEP_SIZE;
        let ways = if keep_space { [zero, zero] } else { [punch, zero] };
        let worked =
            |flags: &FallocateFlags| self.fallocate(*flags, start, whole_end - start).is_ok();
        ways.iter().any(worked).then_some(start..whole_end)
    }
}

impl BlockDevice for FileDevice {
    fn len(&self) -> u64 {
        self.len.load(Ordering::Acquire)
    }

    fn lengthen(&self, len: u64) -> Result<()> {
        self.len.fetch_max(self.measure()?, Ordering::AcqRel);
        match (len <= self.len(), self.is_block_device) {
            (true, _) => Ok(()),
            (false, true) => Err(TOO_SHORT),
            (false, false) => self.set_len(len),
        }
    }

    fn read_at(&self, at: ByteOffset, buf: &mut [u8]) -> Result<()> {
        check_range(IoOp::Read, self.len(), at, buf.len() as u64)?;
        let len = buf.len() as u64;
        self.read(at.0, buf).map_err(|error| failed(IoOp::Read, at, len, error))
    }

    fn write_at(&self, at: ByteOffset, buf: &[u8]) -> Result<()> {
        self.check_writable()?;
        check_range(IoOp::Write, self.len(), at, buf.len() as u64)?;
        self.write(at.0, buf).map_err(|error| failed(IoOp::Write, at, buf.len() as u64, error))
    }

    /// Drops the clean pages of the range from the page cache before the read. Dirty pages stay.
    fn read_fresh_at(&self, at: ByteOffset, buf: &mut [u8]) -> Result<()> {
        if let Some(len) = NonZeroU64::new(buf.len() as u64) {
            // Advice only: where the system has no such call, the page cache supplies the bytes.
            let _ = rustix::fs::fadvise(&self.file, at.0, Some(len), Advice::DontNeed);
        }
        self.read_at(at, buf)
    }

    fn read_vectored_at(&self, at: ByteOffset, bufs: &mut [IoSliceMut<'_>]) -> Result<()> {
        let total = total_len(bufs.iter().map(|buf| buf.len()));
        check_range(IoOp::Read, self.len(), at, total)?;
        let mut pos = at.0;
        for some in bufs.chunks_mut(MAX_BUFS) {
            let len = some.iter().map(|buf| buf.len()).sum::<usize>();
            let done = match self.direct_way(pos, len) {
                Some((direct, _)) => direct.read_vectored(pos, some, |at, buf| self.read(at, buf)),
                None => self.read_some(pos, some),
            };
            done.map_err(|error| failed(IoOp::Read, ByteOffset(pos), len as u64, error))?;
            pos += len as u64;
        }
        Ok(())
    }

    fn write_vectored_at(&self, at: ByteOffset, bufs: &[IoSlice<'_>]) -> Result<()> {
        self.check_writable()?;
        let total = total_len(bufs.iter().map(|buf| buf.len()));
        check_range(IoOp::Write, self.len(), at, total)?;
        let mut pos = at.0;
        for some in bufs.chunks(MAX_BUFS) {
            let len = some.iter().map(|buf| buf.len()).sum::<usize>();
            let done = match self.direct_way(pos, len) {
                Some((direct, _)) => {
                    direct.write_vectored(pos, some, |at, buf| self.write(at, buf))
                }
                None => self.write_some(pos, some),
            };
            done.map_err(|error| failed(IoOp::Write, ByteOffset(pos), len as u64, error))?;
            pos += len as u64;
        }
        Ok(())
    }

    fn flush(&self) -> Result<()> {
        if self.read_only {
            return Ok(());
        }
        let len = self.len();
        self.file.sync_data().map_err(|error| failed(IoOp::Flush, ByteOffset(0), len, error))
    }

    /// One call with `RWF_DSYNC`, which on a disk with forced unit access needs no flush.
    fn write_fua(&self, at: ByteOffset, buf: &[u8]) -> Result<()> {
        self.check_writable()?;
        check_range(IoOp::Write, self.len(), at, buf.len() as u64)?;
        let mut done = 0;
        while done < buf.len() {
            let rest = [IoSlice::new(&buf[done..])];
            let pos = at.0 + done as u64;
            match rustix::io::pwritev2(&self.file, &rest, pos, ReadWriteFlags::DSYNC) {
                Ok(0) => {
                    let error = io::ErrorKind::WriteZero.into();
                    return Err(failed(IoOp::Write, ByteOffset(pos), rest[0].len() as u64, error));
                }
                Ok(n) => done += n,
                Err(Errno::INTR) => {}
                Err(Errno::OPNOTSUPP | Errno::NOSYS | Errno::INVAL) => {
                    self.write_at(ByteOffset(pos), &rest[0])?;
                    return self.flush();
                }
                Err(error) => {
                    return Err(failed(
                        IoOp::Write,
                        ByteOffset(pos),
                        rest[0].len() as u64,
                        error.into(),
                    ));
                }
            }
        }
        Ok(())
    }

    /// Punches the whole pages out of the file, which then takes less space; a block device unmaps
    /// them.
    ///
    /// # Errors
    /// `NotSupported` where the filesystem or the block device cannot free space; `Device`.
    fn discard(&self, at: ByteOffset, len: u64) -> Result<()> {
        self.check_writable()?;
        check_range(IoOp::Discard, self.len(), at, len)?;
        let end = at.0 + len;
        let whole_end = if end == self.len() { end } else { end / FREE_ALIGN * FREE_ALIGN };
        let Some(start) = at.0.checked_next_multiple_of(FREE_ALIGN).filter(|at| *at < whole_end)
        else {
            return Ok(());
        };
        let punch = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
        self.fallocate(punch, start, whole_end - start).map_err(|errno| match errno {
            rustix::io::Errno::OPNOTSUPP => {
                Error::NotSupported("the device or the filesystem of the image cannot free space")
            }
            errno => failed(IoOp::Discard, at, len, errno.into()),
        })
    }

    /// Punches a hole, or keeps the space after a call of [`allocate`](FileDevice::allocate).
    /// Writes zeros only at the edges, or where the system can do neither.
    fn zero(&self, at: ByteOffset, len: u64) -> Result<()> {
        self.check_writable()?;
        check_range(IoOp::Write, self.len(), at, len)?;
        match self.free(at.0, len, self.keeps_space.load(Ordering::Relaxed)) {
            Some(done) => {
                write_zeros(self, at, done.start - at.0)?;
                write_zeros(self, ByteOffset(done.end), at.0 + len - done.end)
            }
            None => write_zeros(self, at, len),
        }
    }

    fn is_read_only(&self) -> bool {
        self.read_only
    }

    /// A mapping of the file, as the option `dax` allows. Its space is reserved, so that a store
    /// cannot fail for lack of space; where the system cannot reserve it there is no window.
    fn dax(&self, at: ByteOffset, len: u64) -> Option<Arc<dyn Dax>> {
        check_range(IoOp::Open, self.len(), at, len).ok()?;
        if self.read_only || self.dax == DaxMode::Never || len == 0 {
            return None;
        }
        if !self.is_block_device {
            self.fallocate(FallocateFlags::KEEP_SIZE, at.0, len).ok()?;
        }
        map_file(&self.file, (at.0, len), self.dax, self.is_block_device)
    }

    /// The direct descriptor where there is one. That of the page cache needs no alignment.
    fn descriptor(&self) -> Option<Descriptor<'_>> {
        let (file, align) = match &self.direct {
            Some(direct) => (direct.file(), direct.align()),
            None => (&self.file, 1),
        };
        Some(Descriptor { file: file.as_fd(), start: 0, align })
    }

    fn alignment(&self) -> usize {
        self.direct.as_ref().map_or(1, DirectFile::align)
    }
}
