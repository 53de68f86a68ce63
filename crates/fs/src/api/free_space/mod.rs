//! The free space of a volume: in which runs it is, and moving files so that it is in fewer.
//!
//! ```text
//!   walk ──► pieces of files, by group ──► from the last to the first: plan ──► move (the engine)
//!                                          the free runs of the group ─┘
//! ```
//!
//! A piece moves within its group, so it stays near its inode, and as a whole, so no file gets more
//! extents.

mod plan;

use crate::api::filesystem::Filesystem;
use crate::files::file::relocate::Piece;
use crate::space::free_extents::Span;
use extant_base::narrow::{fits_u32, fits_usize};
use extant_base::{BlockNr, Error, GroupNr, Ino, Result};
use extant_ondisk::bitmap;
use extant_ondisk::inode::FileKind;
use hashbrown::HashSet;
use plan::{GroupPiece, GroupPlan};
use std::ops::Range;

/// Most pieces that are considered, 24 bytes each.
const PIECES_MAX: usize = 8 << 20;
/// How often each group is planned at most. Each time, a piece moves at most once.
const ROUNDS: usize = 3;

/// The runs of free blocks of a volume. A run may reach from one group into the next.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FreeRuns {
    /// The number of runs.
    pub runs: u64,
    /// Free blocks in all of them.
    pub blocks: u64,
    /// Blocks of the shortest run; 0 without runs.
    pub shortest: u64,
    /// Blocks of the longest run.
    pub longest: u64,
    /// Entry `n` has the number of runs of `2^n` to `2^(n+1) - 1` blocks, and their blocks.
    pub by_length: Vec<(u64, u64)>,
}

impl FreeRuns {
    fn add(&mut self, len: u64) {
        if len == 0 {
            return;
        }
        let n = fits_usize(u64::from(len.ilog2()));
        if self.by_length.len() <= n {
            self.by_length.resize(n + 1, (0, 0));
        }
        self.by_length[n].0 += 1;
        self.by_length[n].1 += len;
        self.shortest = if self.runs == 0 { len } else { self.shortest.min(len) };
        self.longest = self.longest.max(len);
        self.runs += 1;
        self.blocks += len;
    }
}

/// What [`Filesystem::defragment_free_space`] did.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FreeSpaceDefragmented {
    /// The free runs before.
    pub before: FreeRuns,
    /// The free runs now.
    pub after: FreeRuns,
    /// The number of moves of a piece of a file.
    pub moves: u64,
    /// How many blocks were moved.
    pub moved_blocks: u64,
    /// Files that cannot move: swap files, files without extents, with journaled data, and others.
    pub files_left: u64,
}

impl Filesystem {
    /// The runs of free blocks. Commits first on a volume that is open for writing, so that blocks
    /// that were just freed count. With bigalloc, the blocks of free clusters.
    ///
    /// # Errors
    /// `Corrupt` for a damaged bitmap; `Device`; `Aborted`.
    pub fn free_runs(&self) -> Result<FreeRuns> {
        let volume = self.volume();
        if volume.context().check_writable().is_ok() {
            volume.space().reclaim_pending()?;
        }
        let geometry = volume.geometry();
        let ratio = u64::from(geometry.cluster_ratio());
        let mut found = FreeRuns::default();
        // The run that may go on in the next group.
        let mut open = 0..0;
        for group in geometry.groups() {
            let Some(blocks) = geometry.blocks_of_group(group) else { continue };
            for run in self.free_in(group)? {
                let start = blocks.start + u64::from(run.start) * ratio;
                if open.end != start {
                    found.add(open.end - open.start);
                    open.start = start;
                }
                open.end = (start + u64::from(run.len) * ratio).min(blocks.end);
            }
        }
        found.add(open.end - open.start);
        Ok(found)
    }

    /// Moves pieces of files within their groups so that the free space is in fewer and longer
    /// runs. No file gets more extents; content, times and holes stay as they are, also after a
    /// crash at any time. Each piece moves at most three times.
    ///
    /// Memory: 24 bytes for each piece of a file, at most 200 MiB.
    ///
    /// # Errors
    /// `ReadOnly`; `NotSupported` with bigalloc; `DataChecksum`, `Corrupt`, `Device`: some pieces
    /// may have moved by then.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// let fs = extant::OpenOptions::new().write(true).open("disk.img")?;
    /// let done = fs.defragment_free_space()?;
    /// println!("{} runs, now {}", done.before.runs, done.after.runs);
    /// fs.close()?;
    /// # Ok::<(), extant::Error>(())
    /// ```
    pub fn defragment_free_space(&self) -> Result<FreeSpaceDefragmented> {
        let volume = self.volume();
        volume.context().check_writable()?;
        if volume.geometry().cluster_ratio() > 1 {
            return Err(Error::NotSupported("files with clusters (bigalloc) do not move"));
        }
        volume.context().recording_errors(|| {
            let before = self.free_runs()?;
            let mut done = FreeSpaceDefragmented { before, ..FreeSpaceDefragmented::default() };
            for _ in 0..ROUNDS {
                let moves = done.moves;
                done.files_left = 0;
                self.round(&mut done)?;
                if done.moves == moves {
                    break;
                }
            }
            done.after = self.free_runs()?;
            Ok(done)
        })
    }

    /// Plans and moves each group once.
    fn round(&self, done: &mut FreeSpaceDefragmented) -> Result<()> {
        let mut pieces = self.pieces(done)?;
        let geometry = self.volume().geometry();
        pieces.sort_unstable_by_key(|(piece, _)| piece.at);
        let mut rest = &pieces[..];
        while let Some((first, _)) = rest.first() {
            let Some(group) = geometry.group_of_block(first.at) else { break };
            let Some(blocks) = geometry.blocks_of_group(group) else { break };
            let len = rest.partition_point(|(piece, _)| piece.at.0 < blocks.end);
            let (here, others) = rest.split_at(len);
            rest = others;
            let inside = |(piece, ino): &(Piece, Ino)| {
                let start = fits_u32(piece.at.0 - blocks.start);
                let is_inside = piece.at.0 + u64::from(piece.len) <= blocks.end;
                is_inside.then_some(GroupPiece {
                    span: Span { start, len: piece.len },
                    owner: (*ino, piece.logical),
                })
            };
            let here: Vec<GroupPiece> = here.iter().filter_map(inside).collect();
            self.group(group, blocks.start, &here, done)?;
        }
        Ok(())
    }

    /// Moves pieces of a group, whose first block is `base`.
    fn group(
        &self,
        group: GroupNr,
        base: u64,
        pieces: &[GroupPiece],
        done: &mut FreeSpaceDefragmented,
    ) -> Result<()> {
        let mut plan = GroupPlan::new(self.free_in(group)?);
        let block = |place: u32| BlockNr(base + u64::from(place));
        for GroupPiece { span, owner: (ino, logical) } in pieces.iter().rev() {
            if plan.is_done() {
                break;
            }
            let Some(to) = plan.place(*span) else { continue };
            let piece = Piece { logical: *logical, at: block(span.start), len: span.len };
            let moved = match self.node_of_handle(*ino) {
                Ok(node) => node.relocate(piece, block(to.start)),
                Err(error) => Err(error),
            };
            match moved {
                Ok(true) => {
                    done.moves += 1;
                    done.moved_blocks += u64::from(span.len);
                }
                // It was removed since the plan was made, or does not move.
                Ok(false) | Err(Error::NotFound | Error::NotSupported(_) | Error::NotPermitted) => {
                    plan.undo(*span, to);
                }
                Err(error) => return Err(error),
            }
        }
        Ok(())
    }

    /// The free runs of a group, in clusters.
    fn free_in(&self, group: GroupNr) -> Result<Vec<Span>> {
        let volume = self.volume();
        let clusters = volume.geometry().clusters_in_group(group).unwrap_or(0);
        let map = volume.space().groups().block_bitmap(group)?;
        let span = |run: Range<u32>| Span { start: run.start, len: run.end - run.start };
        Ok(map.with(|bytes| bitmap::zero_runs(bytes, 0..clusters).map(span).collect()))
    }

    /// The pieces of all files that can move.
    fn pieces(&self, done: &mut FreeSpaceDefragmented) -> Result<Vec<(Piece, Ino)>> {
        let mut pieces = Vec::new();
        let mut seen = HashSet::new();
        for entry in self.walk("/") {
            let entry = match entry {
                Err(Error::NotFound) => continue,
                entry => entry?,
            };
            if entry.file_type() != FileKind::Regular {
                continue;
            }
            let node = match self.node_of_handle(entry.ino()) {
                Err(Error::NotFound) => continue,
                node => node?,
            };
            let is_second = node.metadata().nlink() > 1 && !seen.insert(entry.ino());
            if is_second || pieces.len() >= PIECES_MAX {
                continue;
            }
            match node.movable_pieces() {
                Ok(own) => pieces.extend(own.into_iter().map(|piece| (piece, entry.ino()))),
                Err(Error::NotSupported(_) | Error::NotPermitted) => done.files_left += 1,
                Err(error) => return Err(error),
            }
        }
        Ok(pieces)
    }
}
