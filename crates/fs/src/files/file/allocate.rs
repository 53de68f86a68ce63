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
use crate::files::{DataIo, FileIo};
use crate::inodes::file::{FileMut, FileRef};
use crate::inodes::map::credits::VolumeCredits;
use crate::inodes::map::{LOGICAL_END, Run, Target};
use crate::state::inode::Body;
use extant_base::narrow::fits_u32;
use extant_base::{Error, LogicalBlock, Result};
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

impl FileRef<'_> {
    /// See `File::check_allocate`. Returns where the range ends.
    pub(crate) fn check_range(self, mode: FallocateMode, offset: u64, len: u64) -> Result<u64> {
        self.volume.context().check_writable()?;
        let end = offset.checked_add(len).filter(|end| *end <= i64::MAX as u64);
        if len == 0 {
            return Err(Error::Invalid("a range of no bytes"));
        }
        let end = end.ok_or(Error::FileTooLarge)?;
        check_writable_file(self.body)?;
        if self.body.flags.contains(InodeFlags::APPEND) && !mode.only_adds() {
            return Err(Error::NotPermitted);
        }
        let insert = mode == FallocateMode::Insert;
        let reach = if insert { self.body.size.saturating_add(len).max(end) } else { end };
        match reach > self.max_file_size() {
            true => Err(Error::FileTooLarge),
            false => Ok(end),
        }
    }
}

impl FileIo<'_> {
    /// See `File::allocate`. Locks: takes `Write`, `WriteBack`, `Inode`, then handles.
    pub(crate) fn fallocate(self, mode: FallocateMode, offset: u64, len: u64) -> Result<()> {
        self.volume.context().check_writable()?;
        let moves = matches!(mode, FallocateMode::Collapse | FallocateMode::Insert);
        let touched = if moves { u64::MAX } else { offset.saturating_add(len) };
        let mut body = match mode.only_adds() {
            true => self.quiesce(),
            false => self.settle(offset..touched)?,
        };
        let body = &mut *body;
        let end = self.volume.file(body).check_range(mode, offset, len)?;
        // A file that leaves inline storage gets the map of a new file.
        let extents = match body.disk.has_inline_data() {
            true => self.volume.has_incompat(Incompat::EXTENTS),
            false => body.disk.has_extents(),
        };
        if !extents && mode != FallocateMode::PunchHole {
            return Err(Error::NotSupported("a file that is mapped by pointers"));
        }
        self.volume.xattrs_mut(body).drop_capability()?;
        self.volume.file_mut(body).leave_inline()?;
        self.volume.space().with_space_retry(|| match mode {
            FallocateMode::Allocate | FallocateMode::KeepSize => {
                self.volume.file_mut(body).allocate_range(mode, offset..end)
            }
            FallocateMode::ZeroRange | FallocateMode::ZeroRangeKeepSize => {
                self.volume.file_mut(body).zero(mode, offset..end)
            }
            FallocateMode::PunchHole => self.volume.file_mut(body).punch(offset..end),
            FallocateMode::Collapse => self.volume.file_mut(body).collapse(offset..end),
            FallocateMode::Insert => self.volume.file_mut(body).insert_range(offset..end),
        })
    }
}

impl FileMut<'_> {
    /// Allocate, KeepSize.
    fn allocate_range(&mut self, mode: FallocateMode, bytes: Range<u64>) -> Result<()> {
        let blocks = self.volume.data_io().blocks_around(&bytes);
        let first = self.volume.credits_of(self.body).zero();
        self.changing(first, |file, handle| {
            if !mode.keeps_size() && bytes.end > file.body.size {
                let path = file.as_ref().data_path(handle);
                file.zero_after(path, file.body.size)?;
            }
            file.allocate_blocks(handle, blocks, (!mode.keeps_size()).then_some(bytes.end))
        })
    }

    /// Allocates unwritten blocks for the holes of `blocks`, from the left. With `size`, the file's
    /// size follows what was allocated.
    fn allocate_blocks(
        &mut self,
        handle: &mut Handle<'_>,
        blocks: Range<u32>,
        size: Option<u64>,
    ) -> Result<()> {
        let log2 = self.volume.block_size().log2();
        let volume = self.volume;
        let follow = |body: &mut Body, handle: &Handle<'_>, at: u32| -> Result<()> {
            let reached = size.map(|size| size.min(u64::from(at) << log2));
            match reached.filter(|reached| *reached > body.size) {
                Some(reached) => volume.file_mut(body).set_size_field(handle, reached),
                None => Ok(()),
            }
        };
        let mut at = blocks.start;
        while at < blocks.end {
            let (run, way) = self.as_ref().map_with_way(LogicalBlock(at), blocks.end - at)?;
            at = run.end().0;
            if run.target == Target::Hole {
                let step = self.volume.credits_of(self.body).fill(run.len);
                let ready = &mut |_: &Handle<'_>, _: &mut Body| Ok(());
                self.next_step(handle, step, self.volume.credits().rest(), ready)?;
                let goal = self.volume.space().group_start(self.ino());
                let state = ExtentState::Unwritten;
                at = self.fill_hole(goal, handle, run, way, state)?.end().0;
            }
            follow(self.body, handle, at)?;
        }
        Ok(())
    }

    /// ZeroRange.
    fn zero(&mut self, mode: FallocateMode, bytes: Range<u64>) -> Result<()> {
        let (around, inside) = (
            self.volume.data_io().blocks_around(&bytes),
            self.volume.data_io().blocks_inside(&bytes),
        );
        let first = self.volume.credits_of(self.body).zero().plus(Credits::blocks(3));
        self.changing(first, |file, handle| {
            if !mode.keeps_size() && bytes.end > file.body.size {
                let path = file.as_ref().data_path(handle);
                file.zero_after(path, file.body.size)?;
            }
            file.zero_edges(handle, &bytes)?;
            // Allocate first, because that can run out of space: until it is done, no byte reads
            // differently.
            file.allocate_blocks(handle, around, None)?;
            if file.as_ref().has_data_checksums() {
                file.unwrite_covered(handle, inside.clone(), file.volume.credits().rest())?;
            }
            if file.as_ref().journals_data() {
                file.forget_written(handle, inside.clone())?;
            }
            let ready = &mut |_: &Handle<'_>, _: &mut Body| Ok(());
            let state = ExtentState::Unwritten;
            file.convert_in_steps(handle, inside, state, file.volume.credits().rest(), ready)?;
            if !mode.keeps_size() && bytes.end > file.body.size {
                file.set_size_field(handle, bytes.end)?;
            }
            Ok(())
        })
    }

    /// PunchHole.
    fn punch(&mut self, bytes: Range<u64>) -> Result<()> {
        // Nothing reads differently past the file's end.
        let last = self.body.size.next_multiple_of(self.volume.block_size().bytes() as u64);
        let bytes = bytes.start..bytes.end.min(last);
        if bytes.start >= self.body.size {
            return Ok(());
        }
        let inside = self.volume.data_io().blocks_inside(&bytes);
        let first = self.volume.credits_of(self.body).zero().plus(Credits::blocks(2));
        self.changing(first, |file, handle| {
            file.zero_edges(handle, &bytes)?;
            let ready = &mut |_: &Handle<'_>, _: &mut Body| Ok(());
            file.unmap_in_steps(handle, inside, file.volume.credits().rest(), ready)
        })
    }

    /// Zeroes the partial blocks at both ends of a range, if they are written.
    fn zero_edges(&mut self, handle: &Handle<'_>, bytes: &Range<u64>) -> Result<()> {
        let size = self.volume.block_size().bytes() as u64;
        let path = self.as_ref().data_path(handle);
        let first = bytes.start.next_multiple_of(size).min(bytes.end);
        let last = bytes.end / size * size;
        self.zero_range(path, bytes.start..first)?;
        if last >= first {
            self.zero_range(path, last..bytes.end)?;
        }
        Ok(())
    }

    /// Runs `change` under a handle with credits for the inode and `first`, sets the times, and
    /// stores the inode even after an error, because a part of the change may be done.
    pub(super) fn changing(
        &mut self,
        first: Credits,
        change: impl FnOnce(&mut FileMut<'_>, &mut Handle<'_>) -> Result<()>,
    ) -> Result<()> {
        let credits = Credits {
            blocks: first.blocks + self.volume.credits().rest().blocks,
            revokes: first.revokes,
        };
        let mut handle = self.volume.journal().start(credits)?;
        let now = self.volume.environment().now();
        let done = change(self, &mut handle);
        self.body.content_changed(now);
        self.body.synced.map_changed = true;
        self.body.store(self.volume, &handle)?;
        handle.stop()?;
        done
    }
}

impl VolumeCredits<'_> {
    /// Credits of a file change besides its steps: the inode and the features.
    pub(super) fn rest(self) -> Credits {
        Credits::blocks(self.store() + SUPERBLOCK_CREDITS)
    }
}

impl DataIo<'_> {
    /// The blocks that hold any of these bytes.
    fn blocks_around(self, bytes: &Range<u64>) -> Range<u32> {
        let size = self.volume.block_size();
        // The range lies within the largest possible file.
        fits_u32(bytes.start >> size.log2())..fits_u32(size.blocks_for(bytes.end))
    }

    /// The blocks that hold only these bytes.
    fn blocks_inside(self, bytes: &Range<u64>) -> Range<u32> {
        let size = self.volume.block_size();
        let start = u32::try_from(size.blocks_for(bytes.start)).unwrap_or(LOGICAL_END);
        start..fits_u32(bytes.end >> size.log2()).max(start)
    }
}

impl FileMut<'_> {
    /// Drops the journal's copies of the written blocks of a range.
    fn forget_written(&mut self, handle: &mut Handle<'_>, blocks: Range<u32>) -> Result<()> {
        let mut at = blocks.start;
        while at < blocks.end {
            let limit = (blocks.end - at).min(64);
            let run: Run = self.as_ref().map(LogicalBlock(at), limit)?;
            if let Target::Written(block) = run.target {
                let step = Credits { blocks: 0, revokes: run.len };
                self.next_step(handle, step, self.volume.credits().rest(), &mut |_, _| Ok(()))?;
                (0..u64::from(run.len))
                    .for_each(|n| handle.forget(extant_base::BlockNr(block.0 + n)));
            }
            at = run.end().0;
        }
        Ok(())
    }
}
