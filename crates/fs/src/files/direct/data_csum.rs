//! Direct transfers of files with data checksums.
//!
//! ```text
//!   write   blocks held ─► data copied and checksummed ─► device ─► handle [ moved in, checksums ]
//!   read    checksums, under the inode lock ─► device ─► caller's memory: do they match?
//!              └ no: read again, to the engine's own memory, while the inode is held
//! ```
//!
//! A read verifies its data with the checksums of the blocks that it found in the map. An overwrite
//! gives the file another block; so whatever the old block holds later does not match, and a read
//! does not take it for the file's data.

use super::step::Step;
use crate::files::direct::{DirectIo, DirectSteps};
use crate::files::file::pieces::Piece;
use crate::inodes::file::FileRef;
use crate::state::bounce::CHUNK_MAX;
use extant_base::narrow::{fits_usize, len_u32};
use extant_base::{BlockNr, Error, Result};
use extant_blockdev::{CallerMemory, Faults, Memory};
use extant_crc32c::crc32c;
use std::sync::atomic::Ordering::Relaxed;

/// The checksums of a read's blocks, from its start on.
pub(crate) struct Expected {
    words: Vec<u32>,
    block: usize,
    missed: bool,
}

impl Expected {
    /// Verifies what was read from `offset` on.
    pub(crate) fn verify(&mut self, offset: usize, memory: &Memory<'_>) {
        let mut words = self.words[offset / self.block..].iter();
        let (mut checksum, mut left) = (!0, self.block);
        let mut missed = false;
        let mut add = |mut bytes: &[u8]| {
            while !bytes.is_empty() {
                let (part, rest) = bytes.split_at(left.min(bytes.len()));
                checksum = crc32c(checksum, part);
                left -= part.len();
                if left == 0 {
                    missed |= words.next() != Some(&checksum);
                    (checksum, left) = (!0, self.block);
                }
                bytes = rest;
            }
        };
        match memory {
            Memory::Lent(spans) => spans.iter().for_each(|span| span.look(&mut add)),
            Memory::Owned(bytes) => add(bytes),
        }
        self.missed |= missed;
    }

    /// Whether something did not match.
    pub(crate) fn is_missed(&self) -> bool {
        self.missed
    }
}

impl DirectSteps<'_> {
    /// The checksums for the bytes of a read that was begun. Locks: the caller holds the inode's.
    pub(crate) fn expected_of(self, step: &Step) -> Result<Expected> {
        let size = self.volume.block_size();
        let mut words = vec![0; step.len >> size.log2()];
        for run in &step.runs {
            let Some(at) = run.at else { continue };
            let (first, len) = (run.offset >> size.log2(), run.len >> size.log2());
            let checksums = self
                .volume
                .data_checksums()
                .load_checksums(BlockNr(at >> size.log2()), len_u32(len))?;
            words[first..first + len].copy_from_slice(&checksums);
        }
        Ok(Expected { words, block: size.bytes(), missed: false })
    }

    /// How many of `want` bytes at `pos` are whole blocks, if they have to be; or, as `Err`, how
    /// many go through the cache.
    pub(crate) fn whole_blocks_of(
        self,
        has_checksums: bool,
        pos: u64,
        want: usize,
    ) -> std::result::Result<usize, usize> {
        let block = self.volume.block_size().bytes();
        let skip = fits_usize(pos % block as u64);
        match want / block * block {
            _ if !has_checksums => Ok(want),
            _ if skip > 0 => Err(want.min(block - skip)),
            0 => Err(want),
            whole => Ok(whole),
        }
    }
}

impl FileRef<'_> {
    /// Holds blocks for pieces that will move. Each piece names the block that it has now.
    ///
    /// Errors: `NoSpace`, and nothing is held. Locks: the caller holds the inode's; takes `Handle`,
    /// `Group`.
    pub(crate) fn hold_moved(self, pieces: Vec<Piece>) -> Result<Vec<Piece>> {
        let blocks =
            pieces.iter().filter(|piece| piece.moved).map(|piece| u64::from(piece.len)).sum();
        if blocks == 0 {
            return Ok(pieces);
        }
        let _reservation = self.volume.space().reserve_clusters(blocks)?;
        let handle = self.volume.journal().start(self.volume.credits().hold())?;
        let mut held = Vec::with_capacity(pieces.len());
        let done = pieces.into_iter().try_for_each(|mut piece| {
            while piece.moved && piece.len > 0 {
                if !handle.ensure(self.volume.credits().hold())? {
                    return Err(Error::NoSpace);
                }
                let want = piece.len.min(self.volume.data_checksums().checksums_at_once());
                let run = self.hold_run_of(&handle, piece.block, want, true)?;
                held.push(Piece { len: run.len, block: run.start, ..piece });
                (piece.logical, piece.len) = (piece.logical + run.len, piece.len - run.len);
            }
            held.extend((piece.len > 0).then_some(piece));
            Ok(())
        });
        if let Err(error) = done.and_then(|()| handle.stop()) {
            self.volume.data_io().release_pieces(&held);
            return Err(error);
        }
        Ok(held)
    }
}

impl DirectIo<'_> {
    /// Reads `len` bytes at `pos` again, into memory that no other thread changes, while the file's
    /// blocks keep their place. Returns how many.
    ///
    /// Errors, when that is none: `DataChecksum` naming file and block; as `File::read_at`;
    /// `Fault`.
    pub(crate) fn read_again<'m>(
        self,
        pos: u64,
        len: usize,
        memory: &mut (impl CallerMemory<'m> + ?Sized),
    ) -> Result<usize> {
        let mut done = 0;
        while done < len {
            match self.read_stable(pos + done as u64, len - done, memory) {
                Ok(0) => break,
                Ok(n) => done += n,
                Err(_) if done > 0 => break,
                Err(error) => return Err(error),
            }
        }
        Ok(done)
    }

    fn read_stable<'m>(
        self,
        pos: u64,
        len: usize,
        memory: &mut (impl CallerMemory<'m> + ?Sized),
    ) -> Result<usize> {
        let mut chunk = self
            .volume
            .bounce_chunks()
            .take(len.min(CHUNK_MAX), self.volume.block_size().bytes())?;
        let len = len.min(chunk.buf.len());
        let n = self.volume.file(&self.inode.read()).read_file(pos, &mut chunk.buf[..len])?;
        let done = memory.copy_in(&chunk.buf[..n], Faults::Allowed);
        self.volume.bounce_chunks().stats.copied.fetch_add(done as u64, Relaxed);
        match done {
            0 if n > 0 => Err(Error::Fault),
            done => Ok(done),
        }
    }
}
