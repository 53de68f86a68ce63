//! Writing covered blocks: the data goes to blocks that no read uses, which are then shown together
//! with their checksums.
//!
//! ```text
//!   written blocks     run held ─► data ─► handle [ bits, mapping, checksums, old blocks freed ]
//!   new blocks         unwritten ─► data ──► handle [ state changed, checksums ]
//!   part of a block    read, verified, completed: only whole blocks are written
//! ```
//!
//! Rule S3: a checksum is computed from the very memory that goes to the device, which no other
//! thread changes.

use crate::files::data::DataPath;
use crate::files::file::content::Content;
use crate::files::file::fresh::Plan;
use crate::files::file::pieces::Piece;
use crate::files::file::write::{block_after, block_of};
use crate::inodes::data_csum::NewChecksums;
use crate::inodes::map::Target;
use crate::inodes::map::change::max_len;
use crate::state::inode::Body;
use crate::volume::Volume;
use extant_base::{BlockNr, Error, Ino, LogicalBlock, Result, Site, What};
use extant_journal::{Credits, Handle, Ineligible};
use extant_ondisk::data_sums;
use extant_ondisk::extent::{Extent, ExtentState};
use std::io::IoSlice;
use std::ops::Range;

/// Most bytes of one step of a write that does not go through the cache.
const STEP: u64 = 16 << 20;

impl Volume {
    /// Rule S2: makes a piece readable, its checksums first. The shown part leaves `piece`.
    pub(crate) fn show_with_checksums(
        &self,
        body: &mut Body,
        handle: &Handle<'_>,
        ino: Ino,
        piece: &mut Piece,
        checksums: &NewChecksums,
    ) -> Result<()> {
        while piece.len > 0 {
            let mut part = *piece;
            if piece.moved {
                let run = self.map(ino, body, LogicalBlock(piece.logical), piece.len)?;
                if !matches!(run.target, Target::Written(_)) {
                    return Err(Site::of_ino(ino).block(piece.block).corrupt(What::ExtentOrder));
                }
                part.len = run.len;
            }
            self.more_credits(handle, self.checksum_step_credits(body))?;
            let words = checksums
                .of(part.block, part.len)
                .ok_or(Error::Invalid("data was written without its checksums"))?;
            self.store_checksums(handle, part.block, &words)?;
            let range = part.logical..part.logical + part.len;
            match piece.moved {
                true => self.map_moved(body, handle, ino, piece, part)?,
                false => self.convert(ino, body, handle, range, ExtentState::Written)?,
            }
            (piece.logical, piece.len) = (piece.logical + part.len, piece.len - part.len);
            piece.block = BlockNr(piece.block.0 + u64::from(part.len));
        }
        Ok(())
    }

    /// Maps `part`, the start of `piece`, in place of the blocks that the map has.
    fn map_moved(
        &self,
        body: &mut Body,
        handle: &Handle<'_>,
        ino: Ino,
        piece: &mut Piece,
        part: Piece,
    ) -> Result<()> {
        self.space().use_held(handle, part.block, part.len)?;
        let new = Extent {
            logical: LogicalBlock(part.logical),
            len: part.len,
            physical: part.block,
            state: ExtentState::Written,
        };
        let done = self.swap_blocks(ino, body, handle, new);
        if let Err(error) = done {
            // The bitmap bits are set, so these blocks are no longer held: free them as usual, and
            // release the rest.
            let rest = piece.len - part.len;
            self.space().release_held(BlockNr(piece.block.0 + u64::from(part.len)), rest);
            piece.block = BlockNr(0);
            self.space().free(handle, part.block, part.len.into())?;
            return Err(error);
        }
        Ok(())
    }

    /// Writes the start of `content` at byte `pos` of a covered file, not through the cache.
    /// Returns how many bytes, at least one.
    pub(crate) fn write_covered(
        &self,
        ino: Ino,
        body: &mut Body,
        pos: u64,
        content: Content<'_>,
    ) -> Result<usize> {
        let log2 = self.block_size().log2();
        let mut end = pos + content.len() as u64;
        if end - pos > STEP {
            end = (pos + STEP) >> log2 << log2;
        }
        let runs = self.runs_to_write(ino, body, pos, end)?;
        let last = runs.last().map_or(0, |run| run.end().0);
        end = end.min(u64::from(last) << log2);
        let content = content.part(0, (end - pos) as usize);

        let whole = self.in_whole_blocks(pos..end);
        let lead = self.bytes_there(ino, body, whole.start..pos)?;
        let trail = self.bytes_there(ino, body, end..whole.end)?;
        let mut slices = vec![IoSlice::new(&lead)];
        slices.extend(content.slices().map(IoSlice::new));
        slices.push(IoSlice::new(&trail));
        let content = Content::new(&slices);
        self.zero_gap(DataPath::Device, ino, body, pos)?;
        let size = self.block_size();
        let blocks = block_of(size, whole.start)?..block_after(size, whole.end)?;
        let runs = self.runs(ino, body, blocks).collect::<Result<Vec<_>>>()?;
        let plan = Plan { ino, pos: whole.start, content, runs: &runs };

        let handle = self.journal().start(self.first_fill_credits(body, &runs))?;
        let (mut pieces, error) = self.place(body, &handle, &plan, ExtentState::Unwritten);
        body.store(self, &handle)?;
        handle.stop()?;
        let Some(n) = plan.covered(self, &pieces) else {
            return Err(error.unwrap_or(Error::NoSpace));
        };
        let mut checksums = NewChecksums::default();
        let path = DataPath::Device;
        let content = plan.content.part(0, n);
        let written = self.write_pieces(path, &pieces, 0, plan.pos, content, Some(&mut checksums));
        let shown = written.and_then(|()| self.show_all(ino, body, &mut pieces, &checksums, end));
        self.release_pieces(&pieces);
        let reached = shown?.min(end);
        match reached.checked_sub(pos).filter(|n| *n > 0) {
            Some(n) => Ok(n as usize),
            None => Err(error.unwrap_or(Error::NoSpace)),
        }
    }

    /// Shows pieces whose data is on the device, in as many handles as that takes. The size
    /// follows, up to byte `end`. Returns the byte after the last one shown.
    fn show_all(
        &self,
        ino: Ino,
        body: &mut Body,
        pieces: &mut Vec<Piece>,
        checksums: &NewChecksums,
        end: u64,
    ) -> Result<u64> {
        let mut shown = 0;
        while !pieces.is_empty() {
            let credits = self.first_convert_credits(body, true);
            let handle = self.journal().start(credits)?;
            let (reached, error) = self.show(body, &handle, ino, pieces, Some(checksums));
            if reached > 0 {
                shown = u64::from(reached) << self.block_size().log2();
                self.grow(body, &handle, shown.min(end))?;
            }
            body.store(self, &handle)?;
            handle.stop()?;
            if reached == 0 {
                return match shown {
                    0 => Err(error.unwrap_or(Error::NoSpace)),
                    shown => Ok(shown),
                };
            }
        }
        Ok(shown)
    }

    /// Replaces the written blocks of `range` of a covered file by other, unwritten blocks. They
    /// must be others: an unwritten block is written in place, and until this change is durable the
    /// old blocks must match their checksums. `keep` is as in [`Volume::unmap_in_steps`].
    ///
    /// The caller stores the inode, after an error too. Errors: `NoSpace`, before any change, if
    /// there are not enough blocks for the whole range; `Corrupt`, `Device`. Locks: the caller
    /// holds the inode's; takes `Group`.
    pub(crate) fn unwrite_covered(
        &self,
        ino: Ino,
        body: &mut Body,
        handle: &mut Handle<'_>,
        range: Range<u32>,
        keep: Credits,
    ) -> Result<()> {
        let mut written = 0;
        for run in self.runs(ino, body, range.clone()) {
            let run = run?;
            written += if let Target::Written(_) = run.target { u64::from(run.len) } else { 0 };
        }
        let mut reservation = self.space().reserve_clusters(written)?;
        let mut at = range.start;
        while at < range.end {
            let run = self.map(ino, body, LogicalBlock(at), range.end - at)?;
            let Target::Written(old) = run.target else {
                at = run.end().0;
                continue;
            };
            let step = self.checksum_step_credits(body).plus(self.hold_credits());
            self.next_step(ino, body, handle, step, keep, &mut |_, _| Ok(()))?;
            // A fast commit would record other blocks than those that the file has.
            self.context().require_full_commit(handle, Ineligible::DataChecksums);
            let most = run.len.min(max_len(ExtentState::Unwritten));
            let got = self.hold_run_of(body, handle, old, most, true)?;
            reservation.give_back(got.len.into());
            if let Err(error) = self.space().use_held(handle, got.start, got.len) {
                self.space().release_held(got.start, got.len);
                return Err(error);
            }
            let (logical, state) = (LogicalBlock(at), ExtentState::Unwritten);
            let new = Extent { logical, len: got.len, physical: got.start, state };
            if let Err(error) = self.swap_blocks(ino, body, handle, new) {
                self.space().free(handle, got.start, got.len.into())?;
                return Err(error);
            }
            at += got.len;
        }
        Ok(())
    }

    /// Releases the blocks that are held for pieces that were not shown.
    pub(crate) fn release_pieces(&self, pieces: &[Piece]) {
        for piece in pieces.iter().filter(|piece| piece.moved) {
            self.space().release_held(piece.block, piece.len);
        }
    }

    /// Bytes of one block as a read returns them now: zeros past the file's end.
    fn bytes_there(&self, ino: Ino, body: &Body, range: Range<u64>) -> Result<Vec<u8>> {
        let mut bytes = vec![0; (range.end - range.start) as usize];
        if !bytes.is_empty() {
            self.read_raw(ino, body, range.start, &mut bytes)?;
        }
        Ok(bytes)
    }

    /// Zeroes `range` within the written block `at` of a covered file, by giving the file another
    /// block. Does nothing if the bytes are zero.
    ///
    /// The caller stores the inode; without a `handle`, this call stores it under a handle of its
    /// own.
    /// Errors: `NoSpace`; `DataChecksum`; `Corrupt`, `Device`. Locks: the caller holds the inode's;
    /// takes `Group`.
    pub(crate) fn zero_covered(
        &self,
        handle: Option<&Handle<'_>>,
        ino: Ino,
        body: &mut Body,
        (at, block): (LogicalBlock, BlockNr),
        range: Range<usize>,
    ) -> Result<()> {
        let size = self.block_size();
        let mut bytes = vec![0; size.bytes()];
        self.read_with_checksums(ino, block, &mut bytes)?;
        if bytes[range.clone()].iter().all(|byte| *byte == 0) {
            return Ok(());
        }
        bytes[range].fill(0);
        let credits = self.checksum_step_credits(body).plus(self.hold_credits());
        let own = match handle {
            Some(handle) => {
                self.more_credits(handle, credits)?;
                None
            }
            None => {
                let credits = credits.plus(Credits::blocks(self.store_credits()));
                Some(self.journal().start(credits)?)
            }
        };
        let under = handle.or(own.as_ref()).expect("one of both is there");
        let done = self.hold_run_of(body, under, block, 1, false).and_then(|run| {
            let (logical, len, block) = (at.0, 1, run.start);
            let mut piece = Piece { logical, len, block, fresh: true, moved: true };
            let mut checksums = NewChecksums::default();
            checksums.push(run.start, data_sums::sum_of(&bytes));
            let done = self
                .device()
                .write_at(self.start_of(run.start), &bytes)
                .and_then(|()| self.show_with_checksums(body, under, ino, &mut piece, &checksums));
            if piece.len > 0 {
                self.space().release_held(piece.block, piece.len);
            }
            done
        });
        if let Some(handle) = own {
            body.store(self, &handle)?;
            handle.stop()?;
        }
        done
    }
}
