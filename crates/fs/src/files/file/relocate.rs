//! Moving one piece of a file to given free blocks.
//!
//! ```text
//!   piece     logical 40..60 at 9000..9020, in one extent or in several that follow each other
//!   hold      exactly these free blocks         7100..7120
//!   copy, map as a defragmentation does: after a crash, each extent is at its old or its new place
//! ```

use super::defragment::Part;
use crate::files::FileIo;
use crate::inodes::file::FileRef;
use crate::inodes::map::Target;
use crate::space::blocks::BlockRun;
use extant_base::{BlockNr, Error, LogicalBlock, Result, Site, What};
use extant_ondisk::extent::{Extent, ExtentState, MAX_LEN};

/// Blocks that are adjacent in a file and on the volume.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Piece {
    pub(crate) logical: LogicalBlock,
    pub(crate) at: BlockNr,
    pub(crate) len: u32,
}

impl FileIo<'_> {
    /// The number of extents, and how many holes and unwritten blocks require. Dirty data is
    /// written back first.
    ///
    /// Errors: as [`FileIo::defragment`].
    pub(crate) fn count_extents(self) -> Result<(u64, u64)> {
        self.write_back_file()?;
        let body = self.inode.read();
        let file = self.volume.file(&body);
        file.check_movable()?;
        let (mut at, mut needed) = (0, 0);
        let mut last: Option<Extent> = None;
        // Checks that no block is mapped again and again.
        let count = file.count_extents()?;
        loop {
            let segment = file.segment(at)?;
            if segment.extents.is_empty() {
                return Ok((count, needed));
            }
            for extent in segment.extents {
                let follows = last.is_some_and(|last| {
                    last.state == extent.state && last.end() == extent.logical.0
                });
                needed += u64::from(!follows);
                last = Some(extent);
            }
            at = segment.end;
        }
    }

    /// The pieces of the file, if they can move. Dirty data is written back first.
    ///
    /// Errors: `NotSupported`, which says why they cannot; `NotPermitted` for an internal file.
    pub(crate) fn movable_pieces(self) -> Result<Vec<Piece>> {
        self.write_back_file()?;
        self.volume.file(&self.inode.read()).movable_pieces()
    }

    /// Moves `piece` to the blocks from `to` on. Returns false, and nothing has changed, if the
    /// file no longer has the piece, or if these blocks are not all free.
    ///
    /// Errors: as [`FileIo::defragment`]. Locks: takes `Write`, `WriteBack`, `Inode`, then handles.
    pub(crate) fn relocate(self, piece: Piece, to: BlockNr) -> Result<bool> {
        self.volume.context().check_writable()?;
        let mut body = self.settle(0..u64::MAX)?;
        let mut file = self.volume.file_mut(&mut body);
        file.as_ref().check_movable()?;
        let Some(extents) = file.as_ref().extents_of(piece)? else { return Ok(false) };
        let (space, ino) = (self.volume.space(), file.ino());
        let held = space.with_space_retry(|| {
            let handle = self.volume.journal().start(self.volume.credits().hold())?;
            let held = space.hold_exactly(&handle, to, piece.len);
            handle.stop()?;
            // What waits for a commit is free after it.
            if held? { Ok(()) } else { Err(Error::NoSpace) }
        });
        match held {
            Ok(()) => {}
            Err(Error::NoSpace) => return Ok(false),
            Err(error) => return Err(error),
        }
        let part =
            |old: &Extent| Part { old: *old, to: BlockNr(to.0 + (old.physical.0 - piece.at.0)) };
        let parts: Vec<Part> = extents.iter().map(part).collect();
        let mut held = vec![BlockRun { start: to, len: piece.len }];
        let moved = file.copy(&parts).and_then(|checksums| {
            space.discard_preallocation(ino);
            file.map_parts(&parts, &mut held, &checksums)
        });
        held.iter().for_each(|run| space.release_held(run.start, run.len));
        moved.map(|()| true)
    }
}

impl FileRef<'_> {
    fn movable_pieces(self) -> Result<Vec<Piece>> {
        self.check_movable()?;
        let mut pieces: Vec<Piece> = Vec::new();
        let (mut at, mut mapped) = (0, 0);
        loop {
            let segment = self.segment(at)?;
            if segment.extents.is_empty() {
                return Ok(pieces);
            }
            // A crafted map can name the same blocks again and again.
            mapped += u64::from(segment.blocks());
            if mapped > self.volume.geometry().blocks_count() {
                return Err(Site::of_ino(self.ino()).corrupt(What::InodeBlocks));
            }
            for Extent { logical, physical, len, .. } in segment.extents {
                match pieces.last_mut() {
                    Some(last)
                        if last.logical.0 + last.len == logical.0
                            && last.at.0 + u64::from(last.len) == physical.0 =>
                    {
                        last.len += len;
                    }
                    _ => pieces.push(Piece { logical, at: physical, len }),
                }
            }
            at = segment.end;
        }
    }

    /// The extents of a piece; `None` if the file does not have it.
    fn extents_of(self, piece: Piece) -> Result<Option<Vec<Extent>>> {
        let mut extents = Vec::new();
        let mut done = 0;
        if self.body.disk.has_inline_data() {
            return Ok(None);
        }
        while done < piece.len {
            let logical = LogicalBlock(piece.logical.0 + done);
            let run = self.map(logical, piece.len - done)?;
            let (physical, state) = match run.target {
                Target::Hole => return Ok(None),
                Target::Written(block) => (block, ExtentState::Written),
                Target::Unwritten(block) => (block, ExtentState::Unwritten),
            };
            if physical.0 != piece.at.0 + u64::from(done) {
                return Ok(None);
            }
            let len = run.len.min(MAX_LEN - 1);
            extents.push(Extent { logical, len, physical, state });
            done += len;
        }
        Ok(Some(extents))
    }
}
