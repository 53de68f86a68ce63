//! Copies blocks of metadata to the output, rewritten where they hold content or names.

use super::inode_slots::Table;
use super::log::LogBlocks;
use super::scan::{Kind, Metadata, Piece};
use super::scramble::Scrambler;
use super::{Report, form};
use crate::audit::check::view::View;
use crate::progress::Phase;
use extant_base::narrow::{fits_usize, len_u32};
use extant_base::{BlockNr, ByteOffset, GroupNr, Result};
use extant_blockdev::{AlignedBuf, BlockDevice};
use extant_ondisk::superblock::SUPERBLOCK_OFFSET;

/// Bytes of one transfer.
const TRANSFER: usize = 256 << 10;

/// When a block is copied.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Condition {
    /// Whatever it holds: its place is fixed.
    Always,
    /// If it has the form of what it should hold.
    Form,
    /// If it can hold nothing else: a file has the block as content, too, or recovery frees it.
    Proof,
}

/// The condition under which a block of a kind is copied.
pub(super) type Conditions<'a> = &'a dyn Fn(Kind, u64) -> Condition;

/// A copy in progress.
pub(super) struct Copy<'c, 'v> {
    view: &'c View<'v>,
    output: &'c dyn BlockDevice,
    scrambler: Option<&'c Scrambler<'c>>,
    report: Report,
    buffer: AlignedBuf,
    /// The block of the primary superblock, which is written last.
    primary: Option<Vec<u8>>,
}

impl<'c, 'v> Copy<'c, 'v> {
    pub(super) fn new(
        view: &'c View<'v>,
        output: &'c dyn BlockDevice,
        size: u64,
        scrambler: Option<&'c Scrambler<'c>>,
    ) -> Copy<'c, 'v> {
        let block_bytes = len_u32(view.block_bytes());
        let report = Report { size, block_bytes, ..Report::default() };
        let buffer = AlignedBuf::zeroed(TRANSFER.max(view.block_bytes()));
        Copy { view, output, scrambler, report, buffer, primary: None }
    }

    fn primary_block(&self) -> u64 {
        SUPERBLOCK_OFFSET / self.view.block_bytes() as u64
    }

    /// Copies sorted pieces. Where they overlap, the first one is copied. Directories are left to
    /// [`Copy::directories`] if names are scrambled.
    pub(super) fn pieces(&mut self, pieces: &[Piece], when: Conditions<'_>) -> Result<()> {
        let most = (self.buffer.len() / self.view.block_bytes()) as u64;
        let mut done = 0;
        for piece in pieces {
            let end = piece.first + piece.len;
            let mut at = piece.first.max(done);
            while at < end {
                let len = most.min(end - at);
                self.part(Piece { first: at, len, kind: piece.kind }, when)?;
                at += len;
            }
            done = done.max(end);
        }
        Ok(())
    }

    /// Copies a part of a piece that fits the buffer.
    fn part(&mut self, part: Piece, when: Conditions<'_>) -> Result<()> {
        let mut buffer = std::mem::replace(&mut self.buffer, AlignedBuf::zeroed(0));
        let size = self.view.block_bytes();
        let bytes = &mut buffer[..fits_usize(part.len) * size];
        self.read(part.first, bytes);
        if let Kind::Table(group) = part.kind {
            self.rewrite_table(group, part.first, bytes);
        }
        let by_directory = part.kind == Kind::Directory && self.scrambler.is_some();
        for (nr, block) in (part.first..).zip(bytes.chunks_exact_mut(size)) {
            let is_wanted = self.meets(when(part.kind, nr), part.kind, block);
            if !is_wanted {
                self.report.left_out += 1;
            }
            if !is_wanted || by_directory {
                block.fill(0);
                continue;
            }
            self.report.blocks += 1;
            self.rewrite(part.kind, nr, block);
        }
        let written = self.write(part.first, bytes);
        self.buffer = buffer;
        self.view.progress.advance(Phase::Dump, part.len);
        written
    }

    /// Copies the blocks of all directories with other names; does nothing if names stay.
    pub(super) fn directories(&mut self, metadata: &Metadata, when: Conditions<'_>) -> Result<()> {
        let Some(scrambler) = self.scrambler else { return Ok(()) };
        let mut runs = &metadata.dir_runs[..];
        for dir in &metadata.dirs {
            let skipped = runs.partition_point(|run| run.ino < dir.ino);
            let count = runs[skipped..].partition_point(|run| run.ino == dir.ino);
            let own = &runs[skipped..skipped + count];
            runs = &runs[skipped + count..];
            let total: u64 = own.iter().map(|run| u64::from(run.len)).sum();
            if total.saturating_mul(self.view.block_bytes() as u64) > scrambler.largest_directory()
            {
                self.report.left_out += total;
                continue;
            }
            let mut blocks = Vec::new();
            for run in own {
                for n in 0..run.len {
                    let nr = run.first + u64::from(n);
                    let mut bytes = vec![0; self.view.block_bytes()];
                    self.read(nr, &mut bytes);
                    if self.meets(when(Kind::Directory, nr), Kind::Directory, &bytes) {
                        blocks.push((run.logical + n, nr, bytes));
                    }
                }
            }
            let counts = scrambler.directory(dir, &mut blocks);
            self.report.names += counts.replaced;
            self.report.names_kept += counts.kept;
            self.report.blocks += blocks.len() as u64;
            for (_, nr, bytes) in &mut blocks {
                self.write(*nr, bytes)?;
            }
        }
        Ok(())
    }

    /// Copies the blocks of the log.
    pub(super) fn log(&mut self, log: &LogBlocks) -> Result<()> {
        self.report.log_left_out = log.left_out;
        let mut joined: Vec<Piece> = Vec::new();
        for piece in &log.pieces {
            match joined.last_mut() {
                Some(last) if last.first + last.len == piece.first => last.len += 1,
                _ => joined.push(*piece),
            }
        }
        joined.sort_unstable();
        self.pieces(&joined, &|_, _| Condition::Always)
    }

    /// Writes the superblock, after everything else is durable.
    pub(super) fn finish(mut self) -> Result<Report> {
        self.output.flush()?;
        if let Some(block) = self.primary.take() {
            self.put(self.primary_block(), &block)?;
        }
        self.output.flush()?;
        Ok(self.report)
    }

    /// Reads blocks. What cannot be read is counted and zeroed.
    fn read(&mut self, first: u64, bytes: &mut [u8]) {
        let size = self.view.geometry.block_size();
        let read =
            |nr: u64, bytes: &mut [u8]| self.view.device.read_at(size.start_of(BlockNr(nr)), bytes);
        if read(first, bytes).is_ok() {
            return;
        }
        let mut unreadable = 0;
        for (nr, block) in (first..).zip(bytes.chunks_exact_mut(size.bytes())) {
            if read(nr, block).is_err() {
                block.fill(0);
                unreadable += 1;
            }
        }
        self.report.unreadable += unreadable;
    }

    fn meets(&self, condition: Condition, kind: Kind, block: &[u8]) -> bool {
        match condition {
            Condition::Always => true,
            Condition::Form => form::fits(self.view, kind, block),
            Condition::Proof => form::proves(self.view, kind, block),
        }
    }

    fn rewrite_table(&mut self, group: GroupNr, first: u64, bytes: &mut [u8]) {
        let table = Table { view: self.view, group, scrambler: self.scrambler };
        let counts = table.rewrite(first, bytes);
        self.report.inline_files += counts.inline_files;
        self.report.names += counts.names.replaced;
        self.report.names_kept += counts.names.kept;
    }

    fn rewrite(&self, kind: Kind, nr: u64, block: &mut [u8]) {
        let Some(scrambler) = self.scrambler else { return };
        match kind {
            Kind::Fixed => scrambler.fixed(nr, block),
            Kind::Symlink => scrambler.symlink(block),
            _ => {}
        }
    }

    /// Writes blocks, except for those that are all zeros, and the primary superblock, which is
    /// kept for later.
    fn write(&mut self, first: u64, bytes: &mut [u8]) -> Result<()> {
        let size = self.view.block_bytes();
        let primary = self.primary_block();
        if let Some(n) = primary.checked_sub(first).map(fits_usize)
            && let Some(block) = bytes.chunks_exact_mut(size).nth(n)
        {
            self.primary = Some(block.to_vec());
            block.fill(0);
        }
        let is_zero = |block: &[u8]| block.iter().all(|byte| *byte == 0);
        let blocks: Vec<&[u8]> = bytes.chunks_exact(size).collect();
        let mut n = 0;
        while n < blocks.len() {
            let zeros = is_zero(blocks[n]);
            let len = blocks[n..].iter().take_while(|block| is_zero(block) == zeros).count();
            if !zeros {
                self.put(first + n as u64, &bytes[n * size..(n + len) * size])?;
            }
            n += len;
        }
        Ok(())
    }

    /// Writes bytes, as far as they are in the output.
    fn put(&self, first: u64, bytes: &[u8]) -> Result<()> {
        let ByteOffset(start) = self.view.geometry.block_size().start_of(BlockNr(first));
        let left = self.report.size.saturating_sub(start);
        let len = bytes.len().min(usize::try_from(left).unwrap_or(usize::MAX));
        match len {
            0 => Ok(()),
            len => self.output.write_at(ByteOffset(start), &bytes[..len]),
        }
    }
}
