//! The second descriptor of a file, opened with `O_DIRECT`, for large transfers.
//!
//! ```text
//!   at                                                              at + len
//!   ├──────┬──────────────────────────────────────────────────────┬──────┤
//!   │ head │                 whole multiples of `align`           │ tail │
//!   └──────┴──────────────────────────────────────────────────────┴──────┘
//!    page     direct; when the caller's memory is not aligned,       page
//!    cache    1 MiB pieces through an aligned bounce buffer          cache
//! ```
//!
//! The kernel keeps the two ways coherent: before a direct transfer it writes back the dirty pages
//! of that range, and after a direct write it drops the cached ones. It does so by whole folios, so
//! it fails when a *neighbour* in the same folio is dirtied while the direct write runs. Two rules
//! prevent that. `align` is at least a page, so the two ways never share a page. The buffered
//! descriptor is set to random access, so that read-ahead does not create folios that extend beyond
//! the requested pages.

use crate::aligned::AlignedBuf;
use crate::pool::BufPool;
use rustix::fs::{AtFlags, OFlags, StatxFlags};
use std::fs::{File, OpenOptions};
use std::io::{self, IoSlice, IoSliceMut};
use std::ops::Range;
use std::os::fd::AsRawFd;
use std::os::unix::fs::{FileExt, OpenOptionsExt};

/// Bytes below which a transfer is cheaper through the page cache.
const SMALLEST: usize = 64 << 10;
/// Bounced transfers use pieces of this size, which is large enough for full speed.
const BOUNCE: usize = 1 << 20;

/// A file open for direct transfers.
pub(super) struct DirectFile {
    file: File,
    align: usize,
    bounce: BufPool,
}

/// The part of a transfer that may be direct, as a range in its buffer. `None` when that part would
/// be too short.
pub(super) fn direct_part(at: u64, len: usize, align: usize) -> Option<Range<usize>> {
    let head = at.checked_next_multiple_of(align as u64)? - at;
    let head = usize::try_from(head).ok().filter(|head| *head < len)?;
    let middle = (len - head) / align * align;
    (middle >= SMALLEST).then(|| head..head + middle)
}

impl DirectFile {
    /// Opens the file of `buffered` again for direct I/O. `None` when the filesystem that it lies
    /// in does not support that, or `/proc` is missing.
    pub(super) fn beside(buffered: &File, write: bool) -> Option<DirectFile> {
        let path = format!("/proc/self/fd/{}", buffered.as_raw_fd());
        let flags = OFlags::DIRECT.bits() as i32;
        let file =
            OpenOptions::new().read(true).write(write).custom_flags(flags).open(path).ok()?;
        let page = rustix::param::page_size();
        let align = match demanded(&file) {
            Some(0) => return None,
            Some(align) => align.max(page).max(AlignedBuf::ALIGN),
            None => page.max(AlignedBuf::ALIGN),
        };
        if !align.is_power_of_two() || align > SMALLEST {
            return None;
        }
        let advice = rustix::fs::Advice::Random;
        let _ = rustix::fs::fadvise(buffered, 0, None, advice);
        Some(DirectFile { file, align, bounce: BufPool::new(8 << 20) })
    }

    /// The alignment of offset, length and memory of a direct transfer, in bytes.
    pub(super) fn align(&self) -> usize {
        self.align
    }

    /// The descriptor.
    pub(super) fn file(&self) -> &File {
        &self.file
    }

    /// Fills `buf`, whose offset and length are aligned; its memory need not be.
    pub(super) fn read(&self, at: u64, buf: &mut [u8]) -> io::Result<()> {
        if self.is_aligned(buf) {
            return self.file.read_exact_at(buf, at);
        }
        let mut bounce = self.bounce.take(BOUNCE.min(buf.len()));
        let mut pos = at;
        for piece in buf.chunks_mut(BOUNCE) {
            let bounce = &mut bounce[..piece.len()];
            self.file.read_exact_at(bounce, pos)?;
            piece.copy_from_slice(bounce);
            pos += piece.len() as u64;
        }
        Ok(())
    }

    /// Writes all of `buf`, whose offset and length are aligned; its memory need not be.
    pub(super) fn write(&self, at: u64, buf: &[u8]) -> io::Result<()> {
        if self.is_aligned(buf) {
            return self.file.write_all_at(buf, at);
        }
        let mut bounce = self.bounce.take(BOUNCE.min(buf.len()));
        let mut pos = at;
        for piece in buf.chunks(BOUNCE) {
            let bounce = &mut bounce[..piece.len()];
            bounce.copy_from_slice(piece);
            self.file.write_all_at(bounce, pos)?;
            pos += piece.len() as u64;
        }
        Ok(())
    }

    /// Fills `bufs`, at most `IOV_MAX` of them, from `at` on: in one call when all are aligned,
    /// else through the bounce buffer, which `read_piece` fills from an offset on.
    pub(super) fn read_vectored(
        &self,
        at: u64,
        bufs: &mut [IoSliceMut<'_>],
        read_piece: impl Fn(u64, &mut [u8]) -> io::Result<()>,
    ) -> io::Result<()> {
        if self.takes(at, bufs.iter().map(|buf| &**buf)) {
            let got = rustix::io::retry_on_intr(|| rustix::io::preadv(&self.file, bufs, at));
            if got.is_ok_and(|got| got == bufs.iter().map(|buf| buf.len()).sum()) {
                return Ok(());
            }
        }
        let len = bufs.iter().map(|buf| buf.len()).sum::<usize>();
        let mut bounce = self.bounce.take(BOUNCE.min(len));
        let (mut at, mut left) = (at, len);
        let mut bufs = bufs.iter_mut().map(|buf| &mut **buf);
        let mut into: &mut [u8] = &mut [];
        while left > 0 {
            let piece = &mut bounce[..BOUNCE.min(left)];
            read_piece(at, piece)?;
            let mut from = &*piece;
            while !from.is_empty() {
                if into.is_empty() {
                    into = bufs.next().expect("`left` is the length of what `bufs` still gives");
                    continue;
                }
                let n = into.len().min(from.len());
                let (head, rest) = std::mem::take(&mut into).split_at_mut(n);
                head.copy_from_slice(&from[..n]);
                (into, from) = (rest, &from[n..]);
            }
            at += piece.len() as u64;
            left -= piece.len();
        }
        Ok(())
    }

    /// Writes `bufs` at `at`, in the same way as [`read_vectored`](DirectFile::read_vectored) fills
    /// them.
    pub(super) fn write_vectored(
        &self,
        at: u64,
        bufs: &[IoSlice<'_>],
        write_piece: impl Fn(u64, &[u8]) -> io::Result<()>,
    ) -> io::Result<()> {
        if self.takes(at, bufs.iter().map(|buf| &**buf)) {
            let put = rustix::io::retry_on_intr(|| rustix::io::pwritev(&self.file, bufs, at));
            if put.is_ok_and(|put| put == bufs.iter().map(|buf| buf.len()).sum()) {
                return Ok(());
            }
        }
        let len = bufs.iter().map(|buf| buf.len()).sum::<usize>();
        let mut bounce = self.bounce.take(BOUNCE.min(len));
        let (mut at, mut filled) = (at, 0);
        for mut from in bufs.iter().map(|buf| &**buf) {
            while !from.is_empty() {
                let n = from.len().min(bounce.len() - filled);
                bounce[filled..filled + n].copy_from_slice(&from[..n]);
                (from, filled) = (&from[n..], filled + n);
                if filled == bounce.len() {
                    write_piece(at, &bounce)?;
                    (at, filled) = (at + filled as u64, 0);
                }
            }
        }
        write_piece(at, &bounce[..filled])
    }

    /// Whether one direct system call can take these buffers unchanged.
    fn takes<'a>(&self, at: u64, mut bufs: impl Iterator<Item = &'a [u8]>) -> bool {
        at.is_multiple_of(self.align as u64)
            && bufs.all(|buf| self.is_aligned(buf) && buf.len().is_multiple_of(self.align))
    }

    fn is_aligned(&self, buf: &[u8]) -> bool {
        // Buffers of the pool are aligned to 4096, and a page may be larger; memory need not be
        // aligned to a page.
        (buf.as_ptr() as usize).is_multiple_of(AlignedBuf::ALIGN)
    }
}

/// The alignment in bytes that the kernel requires for direct transfers: zero when it refuses them,
/// `None` when it does not report one (before Linux 6.1).
fn demanded(file: &File) -> Option<usize> {
    let flags = StatxFlags::DIOALIGN;
    let stat = rustix::fs::statx(file, c"", AtFlags::EMPTY_PATH, flags).ok()?;
    if stat.stx_mask & flags.bits() == 0 {
        return None;
    }
    Some(stat.stx_dio_mem_align.max(stat.stx_dio_offset_align) as usize)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_whole_aligned_middles_go_directly() {
        let table = [
            (0, 65536, Some(0..65536)),
            (0, 65535, None),
            (4096, 70000, Some(0..69632)),
            (1, 65536, None),
            (1, 65536 + 4096, Some(4095..4095 + 65536)),
            (4095, 65537, Some(1..65537)),
            (u64::MAX - 100, 90, None),
            (8192, 0, None),
        ];
        for (at, len, want) in table {
            assert_eq!(direct_part(at, len, 4096), want, "{len} bytes at {at}");
        }
    }
}
