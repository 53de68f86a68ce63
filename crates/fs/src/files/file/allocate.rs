//! Allocating and freeing blocks of a file, as `fallocate` does.
//!
//! ```text
//!                 before  │AAAA│AAAA│    │uuuu│AA..       bytes, a hole, unwritten, the end
//!   Allocate              │AAAA│AAAA│uuuu│uuuu│AA..       holes get blocks; the size follows
//!   ZeroRange  2..10      │AA00│uuuu│uu  │uuuu│AA..       reads as zeros, keeps its blocks
//!   PunchHole  2..10      │AA00│    │0   │uuuu│AA..       reads as zeros, blocks are freed
//!   Collapse   0..4       │AAAA│    │uuuu│AA..            what follows moves to the left
//!   Insert     4..8       │AAAA│    │AAAA│    │uuuu│AA..  what follows moves to the right
//! ```
//!
//! Works block by block on the map; partial blocks at the ends of a range are zeroed by writing.
//! Source: fallocate(2).

use crate::context::superblock::SUPERBLOCK_CREDITS;
use crate::files::file::write::check_writable_file;
use crate::inodes::map::{LOGICAL_END, Run, Target};
use crate::state::inode::{Body, Inode};
use crate::volume::Volume;
use extant_base::{Error, Ino, LogicalBlock, Result};
use extant_journal::{Credits, Handle};
use extant_ondisk::extent::ExtentState;
use extant_ondisk::features::Incompat;
use extant_ondisk::inode::InodeFlags;
use std::ops::Range;

/// What [`File::allocate`](crate::File::allocate) does with a range of bytes.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FallocateMode {
    /// Allocates blocks for holes; they read as zeros. A shorter file grows to the end of the
    /// range.
    Allocate,
    /// As `Allocate`, but the file's size stays.
    KeepSize,
    /// Makes the range read as zeros without freeing blocks. A shorter file grows to the end of the
    /// range.
    ZeroRange,
    /// As `ZeroRange`, but the file's size stays.
    ZeroRangeKeepSize,
    /// Makes the range read as zeros and frees its whole blocks. The size stays.
    PunchHole,
    /// Removes the range from the file: what follows moves towards the start. Whole blocks
    /// (clusters) that end before the file's end.
    Collapse,
    /// Inserts a hole before the byte at `offset`: what follows moves towards the end. Whole blocks
    /// (clusters), inside the file.
    Insert,
}

impl FallocateMode {
    fn keeps_size(self) -> bool {
        matches!(
            self,
            FallocateMode::KeepSize | FallocateMode::ZeroRangeKeepSize | FallocateMode::PunchHole
        )
    }

    fn only_adds(self) -> bool {
        matches!(self, FallocateMode::Allocate | FallocateMode::KeepSize)
    }
}

impl Volume {
    /// See `File::check_allocate`. Returns where the range ends.
    pub(crate) fn check_range(
        &self,
        body: &Body,
        mode: FallocateMode,
        offset: u64,
        len: u64,
    ) -> Result<u64> {
        self.context().check_writable()?;
        let end = offset.checked_add(len).filter(|end| *end <= i64::MAX as u64);
        if len == 0 {
            return Err(Error::Invalid("a range of no bytes"));
        }
        let end = end.ok_or(Error::FileTooLarge)?;
        check_writable_file(body)?;
        if body.flags.contains(InodeFlags::APPEND) && !mode.only_adds() {
            return Err(Error::NotPermitted);
        }
        let insert = mode == FallocateMode::Insert;
        let reach = if insert { body.size.saturating_add(len).max(end) } else { end };
        match reach > self.max_file_size(body) {
            true => Err(Error::FileTooLarge),
            false => Ok(end),
        }
    }

    /// See `File::allocate`. Locks: takes `Write`, `WriteBack`, `Inode`, then handles.
    pub(crate) fn fallocate(
        &self,
        inode: &Inode,
        mode: FallocateMode,
        offset: u64,
        len: u64,
    ) -> Result<()> {
        self.context().check_writable()?;
        let moves = matches!(mode, FallocateMode::Collapse | FallocateMode::Insert);
        let touched = if moves { u64::MAX } else { offset.saturating_add(len) };
        let mut body = match mode.only_adds() {
            true => self.quiesce(inode),
            false => self.settle(inode, offset..touched)?,
        };
        let body = &mut *body;
        let end = self.check_range(body, mode, offset, len)?;
        // A file that leaves inline storage gets the map of a new file.
        let extents = match body.disk.has_inline_data() {
            true => self.has_incompat(Incompat::EXTENTS),
            false => body.disk.has_extents(),
        };
        if !extents && mode != FallocateMode::PunchHole {
            return Err(Error::NotSupported("a file that is mapped by pointers"));
        }
        self.drop_capability(inode.ino, body)?;
        self.leave_inline(inode.ino, body)?;
        self.space().with_space_retry(|| match mode {
            FallocateMode::Allocate | FallocateMode::KeepSize => {
                self.allocate_range(inode.ino, body, mode, offset..end)
            }
            FallocateMode::ZeroRange | FallocateMode::ZeroRangeKeepSize => {
                self.zero(inode.ino, body, mode, offset..end)
            }
            FallocateMode::PunchHole => self.punch(inode.ino, body, offset..end),
            FallocateMode::Collapse => self.collapse(inode.ino, body, offset..end),
            FallocateMode::Insert => self.insert_range(inode.ino, body, offset..end),
        })
    }

    /// Allocate, KeepSize.
    fn allocate_range(
        &self,
        ino: Ino,
        body: &mut Body,
        mode: FallocateMode,
        bytes: Range<u64>,
    ) -> Result<()> {
        let blocks = self.blocks_around(&bytes);
        let first = self.zero_credits(body);
        self.changing(ino, body, first, |body, handle| {
            if !mode.keeps_size() && bytes.end > body.size {
                let path = self.data_path(body, handle);
                self.zero_after(path, ino, body, body.size)?;
            }
            self.allocate_blocks(
                ino,
                body,
                handle,
                blocks,
                (!mode.keeps_size()).then_some(bytes.end),
            )
        })
    }

    /// Allocates unwritten blocks for the holes of `blocks`, from the left. With `size`, the file's
    /// size follows what was allocated.
    fn allocate_blocks(
        &self,
        ino: Ino,
        body: &mut Body,
        handle: &mut Handle<'_>,
        blocks: Range<u32>,
        size: Option<u64>,
    ) -> Result<()> {
        let log2 = self.block_size().log2();
        let follow = |body: &mut Body, handle: &Handle<'_>, at: u32| -> Result<()> {
            let reached = size.map(|size| size.min(u64::from(at) << log2));
            match reached.filter(|reached| *reached > body.size) {
                Some(reached) => self.set_size_field(body, handle, reached),
                None => Ok(()),
            }
        };
        let mut at = blocks.start;
        while at < blocks.end {
            let (run, way) = self.map_with_way(ino, body, LogicalBlock(at), blocks.end - at)?;
            at = run.end().0;
            if run.target == Target::Hole {
                let step = self.fill_credits(body, run.len);
                let ready = &mut |_: &Handle<'_>, _: &mut Body| Ok(());
                self.next_step(ino, body, handle, step, self.rest_credits(), ready)?;
                let goal = self.space().group_start(ino);
                let state = ExtentState::Unwritten;
                at = self.fill_hole(goal, ino, body, handle, run, way, state)?.end().0;
            }
            follow(body, handle, at)?;
        }
        Ok(())
    }

    /// ZeroRange.
    fn zero(
        &self,
        ino: Ino,
        body: &mut Body,
        mode: FallocateMode,
        bytes: Range<u64>,
    ) -> Result<()> {
        let (around, inside) = (self.blocks_around(&bytes), self.blocks_inside(&bytes));
        let first = self.zero_credits(body).plus(Credits::blocks(3));
        self.changing(ino, body, first, |body, handle| {
            if !mode.keeps_size() && bytes.end > body.size {
                let path = self.data_path(body, handle);
                self.zero_after(path, ino, body, body.size)?;
            }
            self.zero_edges(ino, body, handle, &bytes)?;
            // Allocate first, because that can run out of space: until it is done, no byte reads
            // differently.
            self.allocate_blocks(ino, body, handle, around, None)?;
            if self.has_data_checksums(ino, body) {
                self.unwrite_covered(ino, body, handle, inside.clone(), self.rest_credits())?;
            }
            if self.journals_data(body) {
                self.forget_written(ino, body, handle, inside.clone())?;
            }
            let ready = &mut |_: &Handle<'_>, _: &mut Body| Ok(());
            let state = ExtentState::Unwritten;
            self.convert_in_steps(ino, body, handle, inside, state, self.rest_credits(), ready)?;
            if !mode.keeps_size() && bytes.end > body.size {
                self.set_size_field(body, handle, bytes.end)?;
            }
            Ok(())
        })
    }

    /// PunchHole.
    fn punch(&self, ino: Ino, body: &mut Body, bytes: Range<u64>) -> Result<()> {
        // Nothing reads differently past the file's end.
        let last = body.size.next_multiple_of(self.block_size().bytes() as u64);
        let bytes = bytes.start..bytes.end.min(last);
        if bytes.start >= body.size {
            return Ok(());
        }
        let inside = self.blocks_inside(&bytes);
        let first = self.zero_credits(body).plus(Credits::blocks(2));
        self.changing(ino, body, first, |body, handle| {
            self.zero_edges(ino, body, handle, &bytes)?;
            let ready = &mut |_: &Handle<'_>, _: &mut Body| Ok(());
            self.unmap_in_steps(ino, body, handle, inside, self.rest_credits(), ready)
        })
    }

    /// Zeroes the partial blocks at both ends of a range, if they are written.
    fn zero_edges(
        &self,
        ino: Ino,
        body: &mut Body,
        handle: &Handle<'_>,
        bytes: &Range<u64>,
    ) -> Result<()> {
        let size = self.block_size().bytes() as u64;
        let path = self.data_path(body, handle);
        let first = bytes.start.next_multiple_of(size).min(bytes.end);
        let last = bytes.end / size * size;
        self.zero_range(path, ino, body, bytes.start..first)?;
        if last >= first {
            self.zero_range(path, ino, body, last..bytes.end)?;
        }
        Ok(())
    }

    /// Runs `change` under a handle with credits for the inode and `first`, sets the times, and
    /// stores the inode even after an error, because a part of the change may be done.
    pub(super) fn changing(
        &self,
        _ino: Ino,
        body: &mut Body,
        first: Credits,
        change: impl FnOnce(&mut Body, &mut Handle<'_>) -> Result<()>,
    ) -> Result<()> {
        let credits =
            Credits { blocks: first.blocks + self.rest_credits().blocks, revokes: first.revokes };
        let mut handle = self.journal().start(credits)?;
        let now = self.environment().now();
        let done = change(body, &mut handle);
        body.content_changed(now);
        body.synced.map_changed = true;
        body.store(self, &handle)?;
        handle.stop()?;
        done
    }

    /// Credits of a file change besides its steps: the inode and the features.
    pub(super) fn rest_credits(&self) -> Credits {
        Credits::blocks(self.store_credits() + SUPERBLOCK_CREDITS)
    }

    /// The blocks that hold any of these bytes.
    fn blocks_around(&self, bytes: &Range<u64>) -> Range<u32> {
        let size = self.block_size();
        // The range lies within the largest possible file.
        (bytes.start >> size.log2()) as u32..size.blocks_for(bytes.end) as u32
    }

    /// The blocks that hold only these bytes.
    fn blocks_inside(&self, bytes: &Range<u64>) -> Range<u32> {
        let size = self.block_size();
        let start = u32::try_from(size.blocks_for(bytes.start)).unwrap_or(LOGICAL_END);
        start..((bytes.end >> size.log2()) as u32).max(start)
    }

    /// Drops the journal's copies of the written blocks of a range.
    fn forget_written(
        &self,
        ino: Ino,
        body: &mut Body,
        handle: &mut Handle<'_>,
        blocks: Range<u32>,
    ) -> Result<()> {
        let mut at = blocks.start;
        while at < blocks.end {
            let limit = (blocks.end - at).min(64);
            let run: Run = self.map(ino, body, LogicalBlock(at), limit)?;
            if let Target::Written(block) = run.target {
                let step = Credits { blocks: 0, revokes: run.len };
                self.next_step(ino, body, handle, step, self.rest_credits(), &mut |_, _| Ok(()))?;
                (0..u64::from(run.len))
                    .for_each(|n| handle.forget(extant_base::BlockNr(block.0 + n)));
            }
            at = run.end().0;
        }
        Ok(())
    }
}
