//! Beginning a direct transfer: makes the file's blocks ready and keeps them in place. This file
//! has writes, and what both directions need.
//!
//! ```text
//!   write  written or unwritten blocks, inside the size    inode shared ─► entry
//!          holes                  Write ─► inode ─► handle [ unwritten blocks ] ─► entry
//!          past the size          the same, and Write is kept to the end
//!   read   (begin_read.rs)                                 inode shared ─► entry
//!   all    dirty bytes in the way: release the lock, write them back, start again
//! ```

use super::DirectOptions;
use super::blocks::Blocks;
use super::step::{Run, Step};
use crate::files::data::DataPath;
use crate::files::direct::{DirectIo, DirectSteps};
use crate::files::file::pieces::Piece;
use crate::files::file::write::{check_writable_file, is_recent};
use crate::inodes::data_csum::NewChecksums;
use crate::state::inode::Body;
use crate::state::inode::transfers::Help;
use extant_base::lock::{MutexGuard, ReadGuard};
use extant_base::narrow::fits_usize;
use extant_base::{Error, Result};
use extant_ondisk::inode::InodeFlags;
use std::ops::Range;
use std::sync::Weak;

/// Most bytes of one step.
pub(crate) const STEP_MAX: usize = 16 << 20;
/// Most places on the device to which one step goes: 1 MiB if every 4 KiB block is in another
/// place.
pub(crate) const RUNS_MAX: usize = 256;

/// How the start of a transfer proceeds.
#[allow(clippy::large_enum_variant, reason = "it is taken apart at once")]
pub(crate) enum Begun<'a> {
    /// It is in flight. If the file grows, it stays closed to other writers meanwhile.
    Step(Step, Option<MutexGuard<'a, ()>>),
    /// This many bytes have to go through the cache.
    Buffered(usize),
}

impl<'a> DirectIo<'a> {
    /// Begins to write the start of `len` bytes at byte `pos`.
    ///
    /// Errors: as `File::write_direct`. Locks: takes `Write`, `WriteBack`, `Inode`, handles; keeps
    /// at most `Write`.
    pub(crate) fn begin_direct_write(
        self,
        pos: u64,
        len: usize,
        options: &DirectOptions,
        helper: Option<&Weak<dyn Help>>,
    ) -> Result<Begun<'a>> {
        let len = match self.volume.direct_steps().whole_units(pos, len) {
            Ok(len) => len,
            Err(len) => return Ok(Begun::Buffered(len)),
        };
        let mut touched = false;
        loop {
            let body = self.read_body(options)?;
            check_writable_file(&body)?;
            if body.flags.contains(InodeFlags::APPEND) {
                return Err(Error::NotPermitted);
            }
            let left = self.volume.file(&body).max_file_size().saturating_sub(pos);
            if left < len as u64 {
                return Ok(Begun::Buffered(len));
            }
            if !self.volume.file(&body).supports_direct() {
                return Ok(Begun::Buffered(len));
            }
            let end = pos + len as u64;
            let grows = end > body.size || body.size_on_disk.is_some_and(|size| end > size);
            if grows || !body.no_capability {
                drop(body);
                may_wait(options)?;
                return self.begin_changing_write(pos, len, helper);
            }
            let has_checksums = self.volume.file(&body).has_data_checksums();
            if has_checksums {
                may_wait(options)?;
            }
            let now = self.volume.environment().now();
            // For new blocks, the times are set when they are shown.
            if !touched && !has_checksums && !body.times_kept && !is_recent(&body, now) {
                drop(body);
                may_wait(options)?;
                self.volume.io(self.inode).touch(now)?;
                touched = true;
                continue;
            }
            let blocks = self.volume.file(&body).blocks_for(pos, end)?;
            let (pieces, len) = match blocks {
                Blocks::There(pieces, len) => (pieces, len),
                Blocks::Buffered(len) => return Ok(Begun::Buffered(len)),
                Blocks::Missing => {
                    drop(body);
                    may_wait(options)?;
                    return self.begin_changing_write(pos, len, helper);
                }
            };
            let range = pos..pos + len as u64;
            if !self.drop_from_cache(&range) {
                drop(body);
                may_wait(options)?;
                self.volume
                    .io(self.inode)
                    .write_back(self.volume.direct_steps().in_whole_blocks(range), &u64::MAX)?;
                continue;
            }
            let exclusive = has_checksums && pieces.iter().any(|piece| piece.fresh && !piece.moved);
            let entry = match exclusive {
                true => self.inode.transfers.begin_exclusive(range.clone(), helper.cloned()),
                false => self.inode.transfers.begin(range.clone(), true, helper.cloned()),
            };
            let Some(entry) = entry else {
                drop(body);
                may_wait(options)?;
                if exclusive {
                    self.wait_for_direct_writes(range);
                }
                self.inode.transfers.wait_open();
                continue;
            };
            return Ok(match self.held_step(&body, entry, (pos, len), pieces)? {
                Some(step) => Begun::Step(step, None),
                None => Begun::Buffered(len),
            });
        }
    }

    /// As [`DirectIo::begin_direct_write`], when the inode changes: holes get unwritten blocks, or
    /// the file grows.
    fn begin_changing_write(
        self,
        pos: u64,
        len: usize,
        helper: Option<&Weak<dyn Help>>,
    ) -> Result<Begun<'a>> {
        loop {
            let writing = self.inode.writing.lock();
            let mut body = self.inode.write();
            check_writable_file(&body)?;
            if body.flags.contains(InodeFlags::APPEND) {
                return Err(Error::NotPermitted);
            }
            if !self.volume.file(&body).supports_direct() {
                return Ok(Begun::Buffered(len));
            }
            self.volume.xattrs_mut(&mut body).drop_capability()?;
            let block = self.volume.block_size().bytes() as u64;
            if pos > body.size && pos / block == body.size / block {
                // The bytes between the file's end and the range are not content; the cache
                // supplies zeros for them.
                let rest = pos.next_multiple_of(block) - pos;
                return Ok(Begun::Buffered(len.min(fits_usize(rest))));
            }
            let end = pos + len as u64;
            let grows = end > body.size || body.size_on_disk.is_some();
            let range = self.volume.direct_steps().in_whole_blocks(pos..end);
            // Delayed data has to be written back first, so that the size on disk reaches the
            // file's end.
            let is_late = grows && body.size_on_disk.is_some();
            if is_late || !self.drop_from_cache(&range) {
                drop(body);
                let range = if is_late { 0..u64::MAX } else { range };
                self.volume.io(self.inode).write_back(range, &u64::MAX)?;
                continue;
            }
            let (pieces, len) = match self
                .volume
                .space()
                .with_space_retry(|| self.volume.file_mut(&mut body).blocks_made(pos, end))
            {
                Ok(Blocks::There(pieces, len)) => (pieces, len),
                Ok(Blocks::Buffered(len)) => return Ok(Begun::Buffered(len)),
                // A buffered write has more ways to find space.
                Ok(Blocks::Missing) | Err(Error::NoSpace) => return Ok(Begun::Buffered(len)),
                Err(error) => return Err(error),
            };
            let end = pos + len as u64;
            let grows = end > body.size;
            if grows {
                self.volume.file_mut(&mut body).zero_gap(DataPath::Device, pos)?;
            }
            let exclusive = self.volume.file(&body).has_data_checksums()
                && pieces.iter().any(|piece| piece.fresh && !piece.moved);
            let entry = match exclusive {
                true => self.inode.transfers.begin_exclusive(pos..end, helper.cloned()),
                false => self.inode.transfers.begin(pos..end, true, helper.cloned()),
            };
            let Some(entry) = entry else {
                drop(body);
                if exclusive {
                    // A write that grows the file keeps `Write`, but needs nothing more to end.
                    self.wait_for_direct_writes(pos..end);
                }
                drop(writing);
                self.inode.transfers.wait_open();
                continue;
            };
            let Some(mut step) = self.held_step(&body, entry, (pos, len), pieces)? else {
                return Ok(Begun::Buffered(len));
            };
            step.grows = grows;
            drop(body);
            return Ok(Begun::Step(step, grows.then_some(writing)));
        }
    }

    /// The step of a write that has its entry, with blocks held for what moves. `None` if there is
    /// no space for them: a buffered write has more ways to find it. With `None` and after an
    /// error, the entry has ended.
    fn held_step(
        self,
        body: &Body,
        entry: u64,
        (pos, len): (u64, usize),
        pieces: Vec<Piece>,
    ) -> Result<Option<Step>> {
        let pieces = match self.volume.file(body).hold_moved(pieces) {
            Ok(pieces) => pieces,
            Err(error) => {
                self.inode.transfers.end(entry);
                return if matches!(error, Error::NoSpace) { Ok(None) } else { Err(error) };
            }
        };
        let log2 = self.volume.block_size().log2();
        let mut runs: Vec<Run> = Vec::new();
        for piece in &pieces {
            let first = u64::from(piece.logical) << log2;
            let from = pos.max(first);
            let to = (pos + len as u64).min(first + (u64::from(piece.len) << log2));
            if from < to {
                let at = (piece.block.0 << log2) + (from - first);
                join_run(&mut runs, fits_usize(from - pos), fits_usize(to - from), Some(at));
            }
        }
        let mut step = Step::new(entry, pos, len, runs);
        step.pieces = pieces;
        step.stability = self.volume.file(body).stability();
        step.checksums = self.volume.file(body).has_data_checksums().then(NewChecksums::default);
        Ok(Some(step))
    }
}

impl DirectSteps<'_> {
    /// How many of `len` bytes at `pos` are whole units of the device; or, as `Err`, how many have
    /// to go through the cache first.
    pub(crate) fn whole_units(self, pos: u64, len: usize) -> std::result::Result<usize, usize> {
        let unit = fits_usize(self.direct_unit());
        let off = fits_usize(pos % unit as u64);
        if off != 0 {
            return Err(len.min(unit - off));
        }
        match len.min(STEP_MAX) / unit * unit {
            0 => Err(len),
            whole => Ok(whole),
        }
    }
}

impl<'a> DirectIo<'a> {
    pub(crate) fn read_body(self, options: &DirectOptions) -> Result<ReadGuard<'a, Body>> {
        match options.no_wait {
            true => self.inode.body.try_read().ok_or(Error::WouldBlock),
            false => Ok(self.inode.read()),
        }
    }

    /// Takes the bytes `range` out of the cache. While the caller holds the inode lock, no fast
    /// overwrite can make them dirty again. `false` if some are dirty.
    fn drop_from_cache(self, range: &Range<u64>) -> bool {
        self.inode.disable_fast_overwrite();
        match self.inode.file_cache.get() {
            Some(file_cache) => file_cache
                .pages
                .invalidate(self.volume.direct_steps().in_whole_blocks(range.clone())),
            None => true,
        }
    }
}

pub(crate) fn may_wait(options: &DirectOptions) -> Result<()> {
    if options.no_wait { Err(Error::WouldBlock) } else { Ok(()) }
}

/// Adds a run, or lengthens the last one if the new run continues it.
pub(crate) fn join_run(runs: &mut Vec<Run>, offset: usize, len: usize, at: Option<u64>) {
    if let Some(last) = runs.last_mut() {
        let follows = match (last.at, at) {
            (Some(before), Some(at)) => before + last.len as u64 == at,
            (None, None) => true,
            _ => false,
        };
        if follows {
            last.len += len;
            return;
        }
    }
    runs.push(Run { offset, len, at });
}
