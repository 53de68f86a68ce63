//! Moving a file's blocks to fewer runs, while its content stays readable at every moment.
//!
//! ```text
//!   extents of a segment    │aaa│   │bb│  │cccc│  │d│          at most 256 MiB at a time
//!   free blocks are held              ┌──────────┐             fewer runs than now? else no change
//!   the data is copied                │aaabbccccd│             no map points there yet
//!   one handle for each extent        bits, map, checksums, old blocks freed
//!   at the end                        the tree is built again, with as few nodes as it needs
//! ```
//!
//! After a crash each extent is at its old place or at the new one, with the same bytes: rule F1
//! makes the copy durable before the map that points to it, and rule D8 keeps the old blocks unused
//! until then. Times do not change. Holes stay holes, and unwritten blocks stay unwritten: they are
//! moved without being read.

use crate::files::FileIo;
use crate::inodes::data_csum::NewChecksums;
use crate::inodes::file::{FileMut, FileRef};
use crate::inodes::map::{LOGICAL_END, Target};
use crate::space::blocks::BlockRun;
use extant_base::narrow::{fits_usize, len_u32};
use extant_base::{BlockNr, Error, LogicalBlock, Result, Site, What};
use extant_blockdev::AlignedBuf;
use extant_journal::{Credits, Ineligible};
use extant_ondisk::data_sums;
use extant_ondisk::extent::{Extent, ExtentState, MAX_LEN};
use extant_ondisk::inode::FileKind;

/// Most bytes of a segment.
const SEGMENT: u64 = 256 << 20;
/// Most bytes that are copied at a time.
const COPY: usize = 1 << 20;
/// Where the signature of a swap file ends: at the end of a page.
const PAGES: [u64; 3] = [4 << 10, 16 << 10, 64 << 10];
/// The signatures of swap files, and of those that hold a hibernated system.
const SWAP: [&[u8; 10]; 4] = [b"SWAPSPACE2", b"SWAP-SPACE", b"S1SUSPEND\0", b"LINHIB0001"];

/// What a defragmentation did to one file.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Defragmented {
    /// The number of extents before.
    pub before: u64,
    /// The number of extents now.
    pub after: u64,
    /// How many blocks were moved.
    pub moved_blocks: u64,
}

/// A part of a file: its extents in order.
pub(super) struct Segment {
    pub(super) extents: Vec<Extent>,
    /// The logical block after the part.
    pub(super) end: u32,
}

impl Segment {
    pub(super) fn blocks(&self) -> u32 {
        self.extents.iter().map(|extent| extent.len).sum()
    }

    /// How many runs of adjacent blocks it is in.
    fn runs(&self) -> usize {
        let follows = |two: &&[Extent]| two[0].physical_end() == two[1].physical.0;
        self.extents.len() - self.extents.windows(2).filter(follows).count()
    }
}

impl FileIo<'_> {
    /// See [`File::defragment`](crate::File::defragment). Locks: takes `Write`, `WriteBack`,
    /// `Inode`, then handles.
    pub(crate) fn defragment(self) -> Result<Defragmented> {
        self.volume.context().check_writable()?;
        let mut done = Defragmented::default();
        let mut at = 0;
        loop {
            // Readers and writers get their turn between two segments.
            let mut body = self.settle(0..u64::MAX)?;
            let mut file = self.volume.file_mut(&mut body);
            if at == 0 {
                file.as_ref().check_movable()?;
                done.before = file.as_ref().count_extents()?;
            }
            let segment = file.as_ref().segment(at)?;
            if segment.extents.is_empty() {
                if done.moved_blocks > 0 {
                    file.repack()?;
                }
                done.after = file.as_ref().count_extents()?;
                return Ok(done);
            }
            done.moved_blocks += file.move_segment(&segment)?;
            at = segment.end;
        }
    }
}

impl FileRef<'_> {
    /// Whether the blocks of this file may move.
    ///
    /// Errors: `NotSupported`, which says why not; `NotPermitted` for an internal file.
    pub(super) fn check_movable(self) -> Result<()> {
        let refused = |why| Err(Error::NotSupported(why));
        if self.body.file_kind() != FileKind::Regular || self.volume.inodes().is_hidden(self.ino())
        {
            return Err(Error::NotPermitted);
        }
        if self.body.disk.has_inline_data() {
            return Ok(());
        }
        if !self.body.disk.has_extents() {
            return refused("a file that is mapped by pointers: chattr +e gives it extents");
        }
        if self.volume.geometry().cluster_ratio() > 1 {
            return refused("files with clusters (bigalloc) do not move");
        }
        if self.journals_data() {
            return refused("a file with journaled data does not move");
        }
        match self.is_swap_file()? {
            true => refused("a swap file stays: boot options may name its place"),
            false => Ok(()),
        }
    }

    fn is_swap_file(self) -> Result<bool> {
        for page in PAGES.into_iter().filter(|page| *page <= self.body.disk.size) {
            let mut bytes = [0; 10];
            self.read_raw(page - 10, &mut bytes)?;
            if SWAP.contains(&&bytes) {
                return Ok(true);
            }
        }
        Ok(false)
    }

    /// The number of extents, where neighbours that continue each other are one.
    pub(super) fn count_extents(self) -> Result<u64> {
        let (mut count, mut at, mut mapped) = (0, 0, 0);
        let mut last: Option<Extent> = None;
        loop {
            let segment = self.segment(at)?;
            if segment.extents.is_empty() {
                return Ok(count);
            }
            // A crafted map can name the same blocks again and again.
            mapped += u64::from(segment.blocks());
            if mapped > self.volume.geometry().blocks_count() {
                return Err(Site::of_ino(self.ino()).corrupt(What::InodeBlocks));
            }
            for extent in segment.extents {
                let continues = last.is_some_and(|last| {
                    last.state == extent.state
                        && last.end() == extent.logical.0
                        && last.physical_end() == extent.physical.0
                });
                count += u64::from(!continues);
                last = Some(extent);
            }
            at = segment.end;
        }
    }

    /// The next extents from logical block `at` on.
    pub(super) fn segment(self, at: u32) -> Result<Segment> {
        let mut segment = Segment { extents: Vec::new(), end: at };
        if self.body.disk.has_inline_data() {
            return Ok(segment);
        }
        let mut left = len_u32(fits_usize(SEGMENT >> self.volume.block_size().log2()));
        while segment.end < LOGICAL_END && left > 0 {
            let at = LogicalBlock(segment.end);
            let run = self.map(at, LOGICAL_END - at.0)?;
            let len = match run.target {
                Target::Hole => run.len,
                _ => run.len.min(left).min(MAX_LEN - 1),
            };
            segment.end = at.0 + len;
            let (physical, state) = match run.target {
                Target::Hole => continue,
                Target::Written(block) => (block, ExtentState::Written),
                Target::Unwritten(block) => (block, ExtentState::Unwritten),
            };
            left -= len;
            segment.extents.push(Extent { logical: at, len, physical, state });
        }
        Ok(segment)
    }
}

impl FileMut<'_> {
    /// Moves a segment if there are free blocks in fewer runs. Returns how many blocks moved.
    fn move_segment(&mut self, segment: &Segment) -> Result<u64> {
        let runs = segment.runs();
        if runs <= 1 {
            return Ok(0);
        }
        let held = self.volume.space().with_space_retry(|| self.hold_fewer(segment, runs));
        let mut held = match held {
            Ok(held) => held,
            // No place that is better.
            Err(Error::NoSpace) => return Ok(0),
            Err(error) => return Err(error),
        };
        if held.is_empty() {
            return Ok(0);
        }
        let parts = parts_of(&segment.extents, &held);
        let moved = self.copy(&parts).and_then(|checksums| {
            self.volume.space().discard_preallocation(self.ino());
            self.map_parts(&parts, &mut held, &checksums)
        });
        for run in &held {
            self.volume.space().release_held(run.start, run.len);
        }
        moved.map(|()| segment.blocks().into())
    }

    /// Holds blocks for a segment in fewer than `runs` runs. Returns none if there are no such
    /// blocks.
    fn hold_fewer(&self, segment: &Segment, runs: usize) -> Result<Vec<BlockRun>> {
        let volume = self.volume;
        let (mut held, mut left): (Vec<BlockRun>, _) = (Vec::new(), segment.blocks());
        let (mut count, mut goal) = (0, segment.extents[0].physical);
        let mut failed = Ok(());
        while left > 0 && count < runs {
            let taken = volume.journal().start(volume.credits().hold()).and_then(|handle| {
                let run = volume.space().hold_run(&handle, goal, left, false);
                handle.stop()?;
                run
            });
            let run = match taken {
                Ok(run) => run,
                Err(error) => {
                    failed = Err(error);
                    break;
                }
            };
            count += usize::from(held.is_empty() || run.start != goal);
            goal = BlockNr(run.start.0 + u64::from(run.len));
            left -= run.len;
            held.push(run);
        }
        if left == 0 && count < runs && failed.is_ok() {
            return Ok(held);
        }
        held.iter().for_each(|run| volume.space().release_held(run.start, run.len));
        failed.map(|()| Vec::new())
    }

    /// Copies the written blocks of all parts. Returns their checksums, if the file has any.
    pub(super) fn copy(&self, parts: &[Part]) -> Result<NewChecksums> {
        let (volume, size) = (self.volume, self.volume.block_size());
        let mut checksums = NewChecksums::default();
        let mut buffer = AlignedBuf::zeroed(COPY.max(size.bytes()));
        let most = len_u32(buffer.len() / size.bytes());
        for part in parts.iter().filter(|part| part.old.state == ExtentState::Written) {
            let mut done = 0;
            while done < part.old.len {
                let len = most.min(part.old.len - done);
                let bytes = &mut buffer[..len as usize * size.bytes()];
                let from = BlockNr(part.old.physical.0 + u64::from(done));
                let to = BlockNr(part.to.0 + u64::from(done));
                self.as_ref().read_data(from, 0, bytes)?;
                volume.device().write_at(size.start_of(to), bytes)?;
                if self.as_ref().has_data_checksums() {
                    let sums = bytes.chunks_exact(size.bytes()).map(data_sums::sum_of);
                    checksums.push_all(to, sums.collect());
                }
                done += len;
            }
        }
        Ok(checksums)
    }

    /// Maps all parts to their copies. What is mapped leaves `held`.
    pub(super) fn map_parts(
        &mut self,
        parts: &[Part],
        held: &mut Vec<BlockRun>,
        checksums: &NewChecksums,
    ) -> Result<()> {
        let volume = self.volume;
        let has_checksums = self.as_ref().has_data_checksums();
        let most =
            if has_checksums { volume.data_checksums().checksums_at_once() } else { u32::MAX };
        for part in parts.iter().flat_map(|part| part.pieces(most)) {
            let credits = volume.credits_of(self.body).checksum_step();
            let store = Credits::blocks(volume.credits().store());
            let handle =
                volume.journal().start(credits.plus(volume.credits().hold()).plus(store))?;
            volume.context().require_full_commit(&handle, Ineligible::Migrate);
            let new = Extent { physical: part.to, ..part.old };
            if has_checksums && new.state == ExtentState::Written {
                let words = checksums.of(new.physical, new.len);
                let words = words.ok_or(Site::of_ino(self.ino()).corrupt(What::ExtentOrder))?;
                volume.data_checksums().store_checksums(&handle, new.physical, &words)?;
            }
            volume.space().use_held(&handle, new.physical, new.len)?;
            take(held, new.physical, new.len);
            let swapped = self.swap_blocks(&handle, new);
            if swapped.is_err() {
                // Their bits are set, so they are no longer held.
                volume.space().free(&handle, new.physical, new.len.into())?;
            }
            self.body.store(volume, &handle)?;
            handle.stop()?;
            swapped?;
        }
        Ok(())
    }
}

/// A part of an extent, and the blocks to which it moves.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct Part {
    pub(super) old: Extent,
    pub(super) to: BlockNr,
}

impl Part {
    /// The part in pieces of at most `most` blocks.
    fn pieces(self, most: u32) -> impl Iterator<Item = Part> {
        let mut done = 0;
        std::iter::from_fn(move || {
            let len = most.min(self.old.len - done);
            let skip = u64::from(done);
            let old = Extent {
                logical: LogicalBlock(self.old.logical.0 + done),
                len,
                physical: BlockNr(self.old.physical.0 + skip),
                state: self.old.state,
            };
            done += len;
            (len > 0).then_some(Part { old, to: BlockNr(self.to.0 + skip) })
        })
    }
}

/// Divides `extents` among `held`, which has as many blocks, in order.
fn parts_of(extents: &[Extent], held: &[BlockRun]) -> Vec<Part> {
    let mut parts = Vec::new();
    let mut runs = held.iter().copied();
    let mut run = BlockRun { start: BlockNr(0), len: 0 };
    for extent in extents {
        let mut done = 0;
        while done < extent.len {
            if run.len == 0 {
                match runs.next() {
                    Some(next) => run = next,
                    None => return parts,
                }
            }
            let len = run.len.min(extent.len - done);
            let old = Extent {
                logical: LogicalBlock(extent.logical.0 + done),
                len,
                physical: BlockNr(extent.physical.0 + u64::from(done)),
                state: extent.state,
            };
            parts.push(Part { old, to: run.start });
            run = BlockRun { start: BlockNr(run.start.0 + u64::from(len)), len: run.len - len };
            done += len;
        }
    }
    parts
}

/// Removes blocks from `held`. They are at the start of one of its runs.
fn take(held: &mut Vec<BlockRun>, start: BlockNr, len: u32) {
    if let Some(run) = held.iter_mut().find(|run| run.start == start) {
        run.start = BlockNr(run.start.0 + u64::from(len));
        run.len = run.len.saturating_sub(len);
    }
    held.retain(|run| run.len > 0);
}

#[cfg(test)]
mod tests {
    use super::{BlockRun, Part, parts_of, take};
    use extant_base::{BlockNr, LogicalBlock};
    use extant_ondisk::extent::{Extent, ExtentState};

    fn extent(logical: u32, len: u32, physical: u64) -> Extent {
        let state = ExtentState::Written;
        Extent { logical: LogicalBlock(logical), len, physical: BlockNr(physical), state }
    }

    #[test]
    fn extents_are_divided_among_runs_in_order() {
        let run = |start, len| BlockRun { start: BlockNr(start), len };
        let extents = [extent(0, 5, 100), extent(8, 3, 300)];
        let mut held = vec![run(500, 2), run(600, 6)];
        let parts = parts_of(&extents, &held);
        let part = |old, to| Part { old, to: BlockNr(to) };
        assert_eq!(
            parts,
            [
                part(extent(0, 2, 100), 500),
                part(extent(2, 3, 102), 600),
                part(extent(8, 3, 300), 603)
            ]
        );
        let pieces: Vec<Part> = parts[1].pieces(2).collect();
        assert_eq!(pieces, [part(extent(2, 2, 102), 600), part(extent(4, 1, 104), 602)]);
        take(&mut held, BlockNr(500), 2);
        take(&mut held, BlockNr(600), 4);
        assert_eq!(held, [run(604, 2)]);
    }
}
