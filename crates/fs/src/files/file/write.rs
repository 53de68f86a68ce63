//! Writing a file's bytes: into which blocks, in which order, under which handle.
//!
//! ```text
//!   all written already   data ─► [size, times]                    data needs no handle
//!   a few new blocks      [map written, data, size, times]         one handle
//!   many new blocks       [map unwritten] ─► data ─► [convert, size, times]
//!   through the journal   [map written, data as metadata, size, times]
//!                         [ … ] is one handle
//! ```
//!
//! Rule F1, rule F2, rule F3: data is sent to the device before the handle stops that makes it
//! reachable, and the flush of that handle's commit makes both durable. The size never covers bytes
//! that are not there. A block that is new to the file is written whole, with zeros around the
//! caller's bytes, so its former content is never visible.

use crate::files::FileIo;
use crate::files::data::DataPath;
use crate::files::file::fresh::Plan;
use crate::files::file::pieces::Piece;
use crate::inodes::file::{FileMut, FileRef};
use crate::inodes::map::{LOGICAL_END, Run, Target};
use crate::state::inode::Body;
use extant_base::narrow::fits_usize;
use extant_base::{Error, Result};
use extant_journal::{Credits, Handle};
use extant_ondisk::extent::ExtentState;
use extant_ondisk::inode::{FileKind, InodeFlags};
use extant_ondisk::time::Timestamp;
use extant_pagecache::{Content, Use};

/// Most bytes that are written to the device while a handle is open.
pub(crate) const UNDER_HANDLE: u64 = 256 << 10;
/// Most bytes between the two handles of a large write.
const BETWEEN_HANDLES: u64 = 64 << 20;
/// Most blocks that go through the journal under one handle.
const JOURNALED_BLOCKS: u64 = 64;
/// Most runs that are new to the file in one step.
const FRESH_RUNS: usize = 16;
/// Writes in place within this many nanoseconds of each other share one change time. This is a tick
/// of the clock that Linux uses for it.
pub(crate) const TICK_NS: u64 = 4_000_000;

/// Where bytes are written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// At this many bytes from the file's start.
    At(u64),
    /// After the last byte, wherever that is when the write runs.
    End,
}

impl FileIo<'_> {
    /// Writes `content`. Returns how many bytes: fewer than all only if space, the largest possible
    /// file or the device ends after some of them.
    ///
    /// Errors: `ReadOnly`, `NotPermitted`, `Encrypted`, `FileTooLarge`, `NoSpace`, `Corrupt`,
    /// `Device`.
    /// Locks: takes `Write`, `Inode`, then `Folio` or a handle; for an overwrite perhaps
    /// `Folio` or `Inode` (shared) alone.
    pub(crate) fn write_file(self, place: Place, content: Content<'_>, how: Use) -> Result<usize> {
        self.volume.context().check_writable()?;
        if content.is_empty() {
            return Ok(0);
        }
        if self.write_over(place, content, how)? {
            return Ok(content.len());
        }
        if self.volume.page_cache().is_none()
            && let Place::At(offset) = place
            && self.overwrite(offset, content)?
        {
            return Ok(content.len());
        }
        // Other writers wait here, so that this call is atomic for them; write-back does not wait.
        let _writing = self.inode.writing.lock();
        let mut start = None;
        let mut has_flushed = false;
        let (mut done, mut len) = (0, content.len());
        while done < len {
            let permit = match self.volume.acquire_write_permit(len - done, how) {
                Ok(permit) => permit,
                Err(_) if done > 0 => break,
                Err(error) => return Err(error),
            };
            let from = match place {
                Place::At(offset) => offset.saturating_add(done as u64),
                Place::End => 0,
            };
            let to = if place == Place::End {
                u64::MAX
            } else {
                from.saturating_add((len - done) as u64)
            };
            let mut body = self.volume.direct(self.inode).write_after_transfers(from..to);
            if start.is_none() {
                let (first, most) = self.volume.file_mut(&mut body).begin_write(place)?;
                start = Some(first);
                len = usize::try_from(most).unwrap_or(usize::MAX).min(len);
            }
            let pos = start.unwrap_or_default() + done as u64;
            let written = self.write_some(&mut body, pos, content.part(done, len), how);
            drop(body);
            drop(permit);
            let n = match written {
                Ok(n) => n,
                Err(Error::NoSpace) if !has_flushed && self.volume.space().reservations().any() => {
                    // More space is reserved than dirty data needs. Write-back allocates what it
                    // needs and returns the rest.
                    has_flushed = true;
                    let _ = self.volume.mount_state().write_back_all();
                    continue;
                }
                // Report the bytes written so far; the caller's next call returns the error.
                Err(_) if done > 0 => break,
                Err(error) => return Err(error),
            };
            done += n;
            match self.wrote(pos, n, how) {
                Ok(()) => {}
                // Too much dirty data waits for a failing device: the caller must see the error
                // before it adds more.
                Err(error) if done == n => return Err(error),
                Err(_) => break,
            }
        }
        Ok(done)
    }
}

impl FileMut<'_> {
    /// Prepares a write at `place`. Returns where it starts, and how many bytes at most.
    fn begin_write(&mut self, place: Place) -> Result<(u64, u64)> {
        let range = self.as_ref().check_write(place)?;
        self.volume.xattrs_mut(self.body).drop_capability()?;
        Ok(range)
    }
}

impl FileRef<'_> {
    /// Checks whether bytes may be written at `place`. Returns where they start, and how many at
    /// most.
    pub(crate) fn check_write(self, place: Place) -> Result<(u64, u64)> {
        self.volume.context().check_writable()?;
        check_writable_file(self.body)?;
        if self.body.flags.contains(InodeFlags::APPEND) && place != Place::End {
            return Err(Error::NotPermitted);
        }
        let start = match place {
            Place::At(offset) => offset,
            Place::End => self.body.size,
        };
        match self.max_file_size().saturating_sub(start) {
            0 => Err(Error::FileTooLarge),
            max => Ok((start, max)),
        }
    }
}

impl FileIo<'_> {
    /// Writes the start of `content` at byte `pos`. Returns how many bytes, at least one: all of
    /// them if they go directly to the device.
    fn write_some(
        self,
        body: &mut Body,
        pos: u64,
        content: Content<'_>,
        how: Use,
    ) -> Result<usize> {
        let mut done = 0;
        while done < content.len() {
            let (pos, part) = (pos + done as u64, content.part(done, content.len()));
            let inline = self
                .volume
                .space()
                .with_space_retry(|| self.volume.file_mut(body).write_inline(pos, part));
            let written = match inline {
                Ok(None) if self.volume.file(body).goes_through_cache() => {
                    let n = self.write_folios(body, pos, part, how)?;
                    self.enable_fast_overwrite(body);
                    return Ok(done + n);
                }
                Ok(None) => self
                    .volume
                    .space()
                    .with_space_retry(|| self.volume.file_mut(body).write_step(pos, part)),
                Ok(Some(n)) => Ok(n),
                Err(error) => Err(error),
            };
            match written {
                Ok(n) => done += n,
                Err(_) if done > 0 => break,
                Err(error) => return Err(error),
            }
        }
        Ok(done)
    }

    /// Overwrites bytes that the file has on disk, sharing the inode with other overwrites. Returns
    /// `false`, with nothing written, if the write needs more than that.
    fn overwrite(self, offset: u64, content: Content<'_>) -> Result<bool> {
        let Some(end) = offset.checked_add(content.len() as u64) else { return Ok(false) };
        let now = self.volume.environment().now();
        {
            let body = self.inode.read();
            check_writable_file(&body)?;
            let plain = body.file_kind() == FileKind::Regular
                && !body.disk.has_inline_data()
                && !body.flags.contains(InodeFlags::APPEND)
                && body.no_capability
                && !self.volume.file(&body).has_data_checksums()
                && !self.volume.file(&body).journals_data();
            if !plain || end > body.size {
                return Ok(false);
            }
            if body.times_kept || is_recent(&body, now) {
                return self.volume.file(&body).overwrite_pieces(offset, content);
            }
            if self.volume.file(&body).pieces_in_place(offset, end)?.is_none() {
                return Ok(false);
            }
        }
        // The change time first: a crash may keep it without the data, as on Linux.
        self.touch(now)?;
        let body = self.inode.read();
        if end > body.size || body.disk.has_inline_data() || self.volume.file(&body).journals_data()
        {
            return Ok(false);
        }
        self.volume.file(&body).overwrite_pieces(offset, content)
    }
}

impl FileRef<'_> {
    fn overwrite_pieces(self, offset: u64, content: Content<'_>) -> Result<bool> {
        let end = offset + content.len() as u64;
        let Some(pieces) = self.pieces_in_place(offset, end)? else { return Ok(false) };
        self.volume.data_io().write_pieces(
            DataPath::Device,
            &pieces,
            u64::MAX,
            offset,
            content,
            None,
        )?;
        Ok(true)
    }

    /// The blocks of `offset..end`, if all of them are written and they form few runs.
    pub(crate) fn pieces_in_place(self, offset: u64, end: u64) -> Result<Option<Vec<Piece>>> {
        let size = self.volume.block_size();
        let mut pieces = Vec::new();
        if self.has_data_checksums() {
            return Ok(None);
        }
        for run in self.runs(block_of(size, offset)?..block_after(size, end)?) {
            match run? {
                Run { logical, len, target: Target::Written(block) } if pieces.len() < 64 => {
                    let logical = logical.0;
                    pieces.push(Piece { logical, len, block, fresh: false, moved: false });
                }
                _ => return Ok(None),
            }
        }
        Ok(Some(pieces))
    }
}

impl FileIo<'_> {
    /// Sets change and modification time.
    pub(crate) fn touch(self, now: Timestamp) -> Result<()> {
        let mut body = self.inode.write();
        let handle = self.volume.journal().start(Credits::blocks(self.volume.credits().store()))?;
        body.content_changed(now);
        body.store(self.volume, &handle)?;
        handle.stop()
    }
}

impl FileMut<'_> {
    /// Writes the start of `content` at byte `pos`. Returns how many bytes, at least one.
    fn write_step(&mut self, pos: u64, content: Content<'_>) -> Result<usize> {
        if self.as_ref().has_data_checksums() {
            return self.write_covered(pos, content);
        }
        let size = self.volume.block_size();
        let journaled = self.as_ref().journals_data();
        let log2 = size.log2();
        let most = match (journaled, self.body.disk.has_extents()) {
            (true, _) => JOURNALED_BLOCKS << log2,
            (false, true) => BETWEEN_HANDLES,
            (false, false) => UNDER_HANDLE.max(1 << log2),
        };
        let mut end = pos + content.len() as u64;
        if end - pos > most {
            end = (pos + most) >> log2 << log2;
        }
        let runs = self.as_ref().runs_to_write(pos, end)?;
        let last = runs.last().map_or(0, |run| run.end().0);
        end = end.min(u64::from(last) << log2);

        let is_fresh = runs.iter().any(|run| !matches!(run.target, Target::Written(_)));
        let content = content.part(0, fits_usize(end - pos));
        let plan = Plan { pos, content, runs: &runs };
        let small = end - pos <= UNDER_HANDLE || !self.body.disk.has_extents();
        if journaled || (is_fresh && small) {
            self.write_small(&plan)
        } else {
            self.write_large(&plan, is_fresh)
        }
    }
}

impl FileRef<'_> {
    /// The runs that hold bytes `pos..end`; the list ends before too many runs that are new to the
    /// file.
    pub(crate) fn runs_to_write(self, pos: u64, end: u64) -> Result<Vec<Run>> {
        let size = self.volume.block_size();
        let mut fresh = 0;
        let mut runs = Vec::new();
        for run in self.runs(block_of(size, pos)?..block_after(size, end)?) {
            let run = run?;
            if !matches!(run.target, Target::Written(_)) {
                if fresh == FRESH_RUNS {
                    break;
                }
                fresh += 1;
            }
            runs.push(run);
        }
        Ok(runs)
    }
}

impl FileMut<'_> {
    /// One handle for blocks, data and size. With data journaling, the data is part of it.
    fn write_small(&mut self, plan: &Plan<'_>) -> Result<usize> {
        let mut credits = self.volume.credits_of(self.body).first_fill(plan.runs);
        if self.as_ref().journals_data() {
            let blocks: u32 = plan.runs.iter().map(|run| run.len).sum();
            credits.blocks += blocks + 1; // and the block around the old end
            self.body.synced.map_changed = true;
        }
        let handle = self.volume.journal().start(credits)?;
        let path = self.as_ref().data_path(&handle);
        self.zero_gap(path, plan.pos)?;
        let (pieces, error) = self.place(&handle, plan, ExtentState::Written);
        let written = match plan.covered(self.volume, &pieces) {
            Some(n) => {
                let content = plan.content.part(0, n);
                self.volume
                    .data_io()
                    .write_pieces(path, &pieces, self.body.size, plan.pos, content, None)
                    .map(|()| n)
            }
            None => Err(error.unwrap_or(Error::NoSpace)),
        };
        match &written {
            Ok(n) => self.grow(&handle, plan.pos + *n as u64)?,
            Err(_) => self.hide(&handle, &pieces),
        }
        self.body.store(self.volume, &handle)?;
        handle.stop()?;
        written
    }

    /// Two handles: one for blocks that still read as zeros, and one that shows the data.
    fn write_large(&mut self, plan: &Plan<'_>, is_fresh: bool) -> Result<usize> {
        let mut error = None;
        let mut pieces = Vec::new();
        if is_fresh {
            let handle = self
                .volume
                .journal()
                .start(self.volume.credits_of(self.body).first_fill(plan.runs))?;
            (pieces, error) = self.place(&handle, plan, ExtentState::Unwritten);
            self.body.store(self.volume, &handle)?;
            handle.stop()?;
        } else {
            pieces.extend(plan.runs.iter().filter_map(Piece::of));
        }
        let Some(n) = plan.covered(self.volume, &pieces) else {
            return Err(error.unwrap_or(Error::NoSpace));
        };
        self.zero_gap(DataPath::Device, plan.pos)?;
        let content = plan.content.part(0, n);
        self.volume.data_io().write_pieces(
            DataPath::Device,
            &pieces,
            self.body.size,
            plan.pos,
            content,
            None,
        )?;

        let handle = self
            .volume
            .journal()
            .start(self.volume.credits_of(self.body).first_convert(is_fresh))?;
        let (shown, error) = self.show(&handle, &mut pieces, None);
        let n = plan.reached(self.volume, shown).map(|m| m.min(n));
        if let Some(n) = n {
            self.grow(&handle, plan.pos + n as u64)?;
        }
        self.body.store(self.volume, &handle)?;
        handle.stop()?;
        n.ok_or_else(|| error.unwrap_or(Error::NoSpace))
    }

    /// Zeroes the bytes from the file's end to byte `pos` after it in the last block, if the write
    /// itself does not touch that block.
    pub(crate) fn zero_gap(&mut self, path: DataPath<'_, '_>, pos: u64) -> Result<()> {
        let log2 = self.volume.block_size().log2();
        if pos <= self.body.size || pos >> log2 == self.body.size >> log2 {
            return Ok(());
        }
        self.zero_after(path, self.body.size)
    }

    /// Updates size and times for a write that ended at byte `end`.
    pub(crate) fn grow(&mut self, handle: &Handle<'_>, end: u64) -> Result<()> {
        if end > self.body.size {
            self.set_size_field(handle, end)?;
        }
        let now = self.volume.environment().now();
        self.body.content_changed(now);
        Ok(())
    }
}

pub(crate) fn block_of(size: extant_base::BlockSize, offset: u64) -> Result<u32> {
    let block = u32::try_from(offset >> size.log2()).ok().filter(|n| *n < LOGICAL_END);
    block.ok_or(Error::FileTooLarge)
}

pub(crate) fn block_after(size: extant_base::BlockSize, end: u64) -> Result<u32> {
    u32::try_from(size.blocks_for(end)).map_err(|_| Error::FileTooLarge)
}

/// Whether the change time is already now, within one clock tick.
pub(crate) fn is_recent(body: &Body, now: Timestamp) -> bool {
    let ns = |time: Timestamp| i128::from(time.sec) * 1_000_000_000 + i128::from(time.nsec);
    let age = ns(now) - ns(body.mtime.min(body.ctime));
    (0..i128::from(TICK_NS)).contains(&age)
}

/// Whether the content of this file may be changed at all.
///
/// Errors: `IsADirectory`, `Invalid` for other kinds; `NotPermitted`; `Encrypted`.
pub(crate) fn check_writable_file(body: &Body) -> Result<()> {
    match body.file_kind() {
        FileKind::Regular => {}
        FileKind::Directory => return Err(Error::IsADirectory),
        _ => return Err(Error::Invalid("not a regular file")),
    }
    if body.flags.contains(InodeFlags::IMMUTABLE) {
        return Err(Error::NotPermitted);
    }
    if body.flags.contains(InodeFlags::VERITY) {
        return Err(Error::NotPermitted);
    }
    if body.flags.contains(InodeFlags::ENCRYPT) {
        return Err(Error::Encrypted);
    }
    Ok(())
}
