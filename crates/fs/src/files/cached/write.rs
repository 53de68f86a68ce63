//! Writing through the page cache.
//!
//! A write leaves its bytes in folios and its space reservation in the inode. A write over cached
//! bytes, within the clock tick in which the last write stored its time, touches folios only (a
//! fast overwrite).

use super::fill::FromDevice;
use crate::files::FileIo;
use crate::files::data::DataPath;
use crate::files::file::write::{Place, TICK_NS, block_after, block_of};
use crate::state::inode::Body;
use crate::volume::Volume;
use extant_base::narrow::fits_usize;
use extant_base::{Error, Result};
use extant_ondisk::inode::InodeFlags;
use extant_ondisk::time::Timestamp;
use extant_pagecache::{Content, Use, WritePermit};
use std::sync::atomic::Ordering;

/// Most bytes that are written in one hold of the inode.
const STEP: u64 = 2 << 20;

impl FileIo<'_> {
    /// Writes over bytes in folios if that is all the write needs. Returns whether it did.
    pub(crate) fn write_over(self, place: Place, content: Content<'_>, how: Use) -> Result<bool> {
        let (Some(file_cache), Place::At(offset)) = (self.inode.file_cache.get(), place) else {
            return Ok(false);
        };
        let until = self.inode.fast_overwrite_until.load(Ordering::Acquire);
        if until == 0 {
            return Ok(false);
        }
        // The tick may be a little earlier than the write that set the time. If it is much earlier,
        // the clock was set back.
        let now = nanoseconds(self.volume.environment().last_tick());
        if now >= until || now + 4 * TICK_NS < until {
            return Ok(false);
        }
        let Some(cache) = self.volume.page_cache() else { return Ok(false) };
        let enabled = &self.inode.fast_overwrite_until;
        cache.overwrite(&file_cache.pages, offset, content, how, enabled)
    }
}

impl Volume {
    /// Called before the next part of a write of `len` bytes goes into folios. Don't-cache bytes
    /// wait here until they fit under their cap; at most
    /// [`Rank::Write`](extant_base::lock::Rank::Write) may be held.
    pub(crate) fn acquire_write_permit(
        &self,
        len: usize,
        how: Use,
    ) -> Result<Option<WritePermit<'_>>> {
        let cache = self.page_cache();
        cache.map(|cache| cache.acquire_permit(STEP.min(len as u64), how)).transpose()
    }
}

impl FileIo<'_> {
    /// After a write of `n` bytes at `offset` into folios: throttles the writer.
    pub(crate) fn wrote(self, offset: u64, n: usize, how: Use) -> Result<()> {
        match (self.volume.page_cache(), self.inode.file_cache.get()) {
            (Some(cache), Some(file_cache)) => {
                cache.wrote(&file_cache.pages, offset, n as u64, how)
            }
            _ => Ok(()),
        }
    }

    /// Writes the start of `content` into folios at byte `pos`. Returns how many bytes it wrote, at
    /// least one.
    ///
    /// Errors: `NoSpace`, `QuotaExceeded`; what reading the blocks at both ends gives.
    /// Locks: the caller holds the inode's; takes `Folio`.
    pub(crate) fn write_folios(
        self,
        body: &mut Body,
        pos: u64,
        content: Content<'_>,
        how: Use,
    ) -> Result<usize> {
        let file_cache =
            self.file_cache(body).ok_or(Error::Invalid("a file that is not cached"))?;
        body.file_cache.get_or_insert_with(|| file_cache.clone());
        let end = (pos + content.len() as u64).min((pos / STEP + 1) * STEP);
        let end = self.reserve_bytes(body, pos, end)?;
        let mut content = content.part(0, fits_usize(end - pos));
        let len = content.len();
        let written = self.volume.file_mut(body).zero_gap(DataPath::Device, pos).and_then(|()| {
            let fill = FromDevice { volume: self.volume, body };
            file_cache.pages.write(pos, &mut content, how, &fill)
        });
        if !matches!(written, Ok(n) if n == len) {
            let size = self.volume.block_size();
            self.volume
                .reservations(body)
                .forget_unused(block_of(size, pos)?..block_after(size, end)?);
        }
        let n = written?;
        if pos + n as u64 > body.size {
            body.size_on_disk.get_or_insert(body.disk.size);
            body.resize(pos + n as u64);
        }
        let now = self.volume.environment().now();
        body.content_changed(now);
        body.times_changed = true;
        Ok(n)
    }

    /// Enables fast overwrites of this inode until the clock's next tick.
    pub(crate) fn enable_fast_overwrite(self, body: &Body) {
        let fixed = InodeFlags::APPEND | InodeFlags::IMMUTABLE | InodeFlags::VERITY;
        // An overwrite of covered blocks has to reserve space first.
        let allowed = body.no_capability
            && !self.inode.transfers.any_writes()
            && !self.volume.file(body).has_data_checksums();
        if allowed && !body.flags.intersects(fixed) && self.volume.file(body).goes_through_cache() {
            let until = nanoseconds(body.mtime).saturating_add(TICK_NS);
            self.inode.fast_overwrite_until.store(until, Ordering::Release);
        }
    }

    /// Reserves space for bytes `pos..end`, or for as many from `pos` on as space allows. Returns
    /// the end of what is reserved.
    fn reserve_bytes(self, body: &Body, pos: u64, mut end: u64) -> Result<u64> {
        let size = self.volume.block_size();
        loop {
            let blocks = block_of(size, pos)?..block_after(size, end)?;
            let done = self
                .volume
                .space()
                .with_space_retry(|| self.volume.reservations(body).reserve_blocks(blocks.clone()));
            match done {
                Ok(()) => return Ok(end),
                Err(Error::NoSpace | Error::QuotaExceeded) if blocks.len() > 1 => {
                    let half = blocks.start.midpoint(blocks.end);
                    end = u64::from(half) << size.log2();
                }
                Err(error) => return Err(error),
            }
        }
    }
}

/// Nanoseconds since 1970; 0 for earlier times.
fn nanoseconds(time: Timestamp) -> u64 {
    let seconds = u64::try_from(time.sec).unwrap_or(0);
    seconds.saturating_mul(1_000_000_000).saturating_add(time.nsec.into())
}
