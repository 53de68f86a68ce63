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

use crate::files::DataIo;
use crate::files::data::DataPath;
use crate::files::file::fresh::Plan;
use crate::files::file::pieces::Piece;
use crate::files::file::write::{block_after, block_of};
use crate::inodes::data_csum::NewChecksums;
use crate::inodes::file::{FileMut, FileRef};
use crate::inodes::map::Target;
use crate::inodes::map::change::max_len;
use extant_base::narrow::fits_usize;
use extant_base::{BlockNr, Error, LogicalBlock, Result, Site, What};
use extant_journal::{Credits, Handle, Ineligible};
use extant_ondisk::data_sums;
use extant_ondisk::extent::{Extent, ExtentState};
use extant_pagecache::Content;
use std::io::IoSlice;
use std::ops::Range;

/// Most bytes of one step of a write that does not go through the cache.
const STEP: u64 = 16 << 20;

impl FileMut<'_> {
    /// Rule S2: makes a piece readable, its checksums first. The shown part leaves `piece`.
    pub(crate) fn show_with_checksums(
        &mut self,
        handle: &Handle<'_>,
        piece: &mut Piece,
        checksums: &NewChecksums,
    ) -> Result<()> {
        while piece.len > 0 {
            let mut part = *piece;
            if piece.moved {
                let run = self.as_ref().map(LogicalBlock(piece.logical), piece.len)?;
                if !matches!(run.target, Target::Written(_)) {
                    return Err(Site::of_ino(self.ino())
                        .block(piece.block)
                        .corrupt(What::ExtentOrder));
                }
                part.len = run.len;
            }
            self.volume
                .credits()
                .more(handle, self.volume.credits_of(self.body).checksum_step())?;
            let words = checksums
                .of(part.block, part.len)
                .ok_or(Error::Invalid("data was written without its checksums"))?;
            self.volume.data_checksums().store_checksums(handle, part.block, &words)?;
            let range = part.logical..part.logical + part.len;
            match piece.moved {
                true => self.map_moved(handle, piece, part)?,
                false => self.convert(handle, range, ExtentState::Written)?,
            }
            (piece.logical, piece.len) = (piece.logical + part.len, piece.len - part.len);
            piece.block = BlockNr(piece.block.0 + u64::from(part.len));
        }
        Ok(())
    }

    /// Maps `part`, the start of `piece`, in place of the blocks that the map has.
    fn map_moved(&mut self, handle: &Handle<'_>, piece: &mut Piece, part: Piece) -> Result<()> {
        self.volume.space().use_held(handle, part.block, part.len)?;
        let new = Extent {
            logical: LogicalBlock(part.logical),
            len: part.len,
            physical: part.block,
            state: ExtentState::Written,
        };
        let done = self.swap_blocks(handle, new);
        if let Err(error) = done {
            // The bitmap bits are set, so these blocks are no longer held: free them as usual, and
            // release the rest.
            let rest = piece.len - part.len;
            self.volume.space().release_held(BlockNr(piece.block.0 + u64::from(part.len)), rest);
            piece.block = BlockNr(0);
            self.volume.space().free(handle, part.block, part.len.into())?;
            return Err(error);
        }
        Ok(())
    }

    /// Writes the start of `content` at byte `pos` of a covered file, not through the cache.
    /// Returns how many bytes, at least one.
    pub(crate) fn write_covered(&mut self, pos: u64, content: Content<'_>) -> Result<usize> {
        let log2 = self.volume.block_size().log2();
        let mut end = pos + content.len() as u64;
        if end - pos > STEP {
            end = (pos + STEP) >> log2 << log2;
        }
        let runs = self.as_ref().runs_to_write(pos, end)?;
        let last = runs.last().map_or(0, |run| run.end().0);
        end = end.min(u64::from(last) << log2);
        let content = content.part(0, fits_usize(end - pos));

        let whole = self.volume.direct_steps().in_whole_blocks(pos..end);
        let lead = self.as_ref().bytes_there(whole.start..pos)?;
        let trail = self.as_ref().bytes_there(end..whole.end)?;
        let mut slices = vec![IoSlice::new(&lead)];
        slices.extend(content.slices().map(IoSlice::new));
        slices.push(IoSlice::new(&trail));
        let content = Content::new(&slices);
        self.zero_gap(DataPath::Device, pos)?;
        let size = self.volume.block_size();
        let blocks = block_of(size, whole.start)?..block_after(size, whole.end)?;
        let runs = self.as_ref().runs(blocks).collect::<Result<Vec<_>>>()?;
        let plan = Plan { pos: whole.start, content, runs: &runs };

        let handle =
            self.volume.journal().start(self.volume.credits_of(self.body).first_fill(&runs))?;
        let (mut pieces, error) = self.place(&handle, &plan, ExtentState::Unwritten);
        self.body.store(self.volume, &handle)?;
        handle.stop()?;
        let Some(n) = plan.covered(self.volume, &pieces) else {
            return Err(error.unwrap_or(Error::NoSpace));
        };
        let mut checksums = NewChecksums::default();
        let path = DataPath::Device;
        let content = plan.content.part(0, n);
        let written = self.volume.data_io().write_pieces(
            path,
            &pieces,
            0,
            plan.pos,
            content,
            Some(&mut checksums),
        );
        let shown = written.and_then(|()| self.show_all(&mut pieces, &checksums, end));
        self.volume.data_io().release_pieces(&pieces);
        let reached = shown?.min(end);
        match reached.checked_sub(pos).filter(|n| *n > 0) {
            Some(n) => Ok(fits_usize(n)),
            None => Err(error.unwrap_or(Error::NoSpace)),
        }
    }

    /// Shows pieces whose data is on the device, in as many handles as that takes. The size
    /// follows, up to byte `end`. Returns the byte after the last one shown.
    fn show_all(
        &mut self,
        pieces: &mut Vec<Piece>,
        checksums: &NewChecksums,
        end: u64,
    ) -> Result<u64> {
        let mut shown = 0;
        while !pieces.is_empty() {
            let credits = self.volume.credits_of(self.body).first_convert(true);
            let handle = self.volume.journal().start(credits)?;
            let (reached, error) = self.show(&handle, pieces, Some(checksums));
            if reached > 0 {
                shown = u64::from(reached) << self.volume.block_size().log2();
                self.grow(&handle, shown.min(end))?;
            }
            self.body.store(self.volume, &handle)?;
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
    /// old blocks must match their checksums. `keep` is as in [`FileMut::unmap_in_steps`].
    ///
    /// The caller stores the inode, after an error too. Errors: `NoSpace`, before any change, if
    /// there are not enough blocks for the whole range; `Corrupt`, `Device`. Locks: the caller
    /// holds the inode's; takes `Group`.
    pub(crate) fn unwrite_covered(
        &mut self,
        handle: &mut Handle<'_>,
        range: Range<u32>,
        keep: Credits,
    ) -> Result<()> {
        let mut written = 0;
        for run in self.as_ref().runs(range.clone()) {
            let run = run?;
            written += if let Target::Written(_) = run.target { u64::from(run.len) } else { 0 };
        }
        let mut reservation = self.volume.space().reserve_clusters(written)?;
        let mut at = range.start;
        while at < range.end {
            let run = self.as_ref().map(LogicalBlock(at), range.end - at)?;
            let Target::Written(old) = run.target else {
                at = run.end().0;
                continue;
            };
            let step = self
                .volume
                .credits_of(self.body)
                .checksum_step()
                .plus(self.volume.credits().hold());
            self.next_step(handle, step, keep, &mut |_, _| Ok(()))?;
            // A fast commit would record other blocks than those that the file has.
            self.volume.context().require_full_commit(handle, Ineligible::DataChecksums);
            let most = run.len.min(max_len(ExtentState::Unwritten));
            let got = self.as_ref().hold_run_of(handle, old, most, true)?;
            reservation.give_back(got.len.into());
            if let Err(error) = self.volume.space().use_held(handle, got.start, got.len) {
                self.volume.space().release_held(got.start, got.len);
                return Err(error);
            }
            let (logical, state) = (LogicalBlock(at), ExtentState::Unwritten);
            let new = Extent { logical, len: got.len, physical: got.start, state };
            if let Err(error) = self.swap_blocks(handle, new) {
                self.volume.space().free(handle, got.start, got.len.into())?;
                return Err(error);
            }
            at += got.len;
        }
        Ok(())
    }
}

impl DataIo<'_> {
    /// Releases the blocks that are held for pieces that were not shown.
    pub(crate) fn release_pieces(self, pieces: &[Piece]) {
        for piece in pieces.iter().filter(|piece| piece.moved) {
            self.volume.space().release_held(piece.block, piece.len);
        }
    }
}

impl FileRef<'_> {
    /// Bytes of one block as a read returns them now: zeros past the file's end.
    fn bytes_there(self, range: Range<u64>) -> Result<Vec<u8>> {
        let mut bytes = vec![0; fits_usize(range.end - range.start)];
        if !bytes.is_empty() {
            self.read_raw(range.start, &mut bytes)?;
        }
        Ok(bytes)
    }
}

impl FileMut<'_> {
    /// Zeroes `range` within the written block `at` of a covered file, by giving the file another
    /// block. Does nothing if the bytes are zero.
    ///
    /// The caller stores the inode; without a `handle`, this call stores it under a handle of its
    /// own.
    /// Errors: `NoSpace`; `DataChecksum`; `Corrupt`, `Device`. Locks: the caller holds the inode's;
    /// takes `Group`.
    pub(crate) fn zero_covered(
        &mut self,
        handle: Option<&Handle<'_>>,
        (at, block): (LogicalBlock, BlockNr),
        range: Range<usize>,
    ) -> Result<()> {
        let size = self.volume.block_size();
        let mut bytes = vec![0; size.bytes()];
        self.volume.data_checksums().read_with_checksums(self.ino(), block, &mut bytes)?;
        if bytes[range.clone()].iter().all(|byte| *byte == 0) {
            return Ok(());
        }
        bytes[range].fill(0);
        let credits =
            self.volume.credits_of(self.body).checksum_step().plus(self.volume.credits().hold());
        let own = match handle {
            Some(handle) => {
                self.volume.credits().more(handle, credits)?;
                None
            }
            None => {
                let credits = credits.plus(Credits::blocks(self.volume.credits().store()));
                Some(self.volume.journal().start(credits)?)
            }
        };
        let under = handle.or(own.as_ref()).expect("one of both is there");
        let done = self.as_ref().hold_run_of(under, block, 1, false).and_then(|run| {
            let (logical, len, block) = (at.0, 1, run.start);
            let mut piece = Piece { logical, len, block, fresh: true, moved: true };
            let mut checksums = NewChecksums::default();
            checksums.push(run.start, data_sums::sum_of(&bytes));
            let done = self
                .volume
                .device()
                .write_at(self.volume.data_checksums().start_of(run.start), &bytes)
                .and_then(|()| self.show_with_checksums(under, &mut piece, &checksums));
            if piece.len > 0 {
                self.volume.space().release_held(piece.block, piece.len);
            }
            done
        });
        if let Some(handle) = own {
            self.body.store(self.volume, &handle)?;
            handle.stop()?;
        }
        done
    }
}
