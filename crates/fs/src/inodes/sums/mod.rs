//! Checksums of file data: which files have them, where they are stored, how they are kept and
//! looked up.
//!
//! ```text
//!   read     map ──► run ──► its checksums, once per run ──► data ──► does each block match?
//!   write    data to blocks that no read uses ──► one handle [ map shows them, checksums stored ]
//!
//!   the checksum file, inode 5   index ──► run of its blocks ──► block of the volume (metadata)
//!   block n of the volume        word n mod E of block n / E
//! ```
//!
//! The checksum of a block is stored in the handle that makes the block readable, and never later,
//! because such a block is not written in place (rule S1): an overwrite gives the file another
//! block. So after each commit, mapping, checksums and data agree.

mod file;
mod verify;
mod walk;

pub(crate) use file::open_sums_file;
pub(crate) use walk::{CoveredRun, Passed};

use crate::state::inode::Body;
use crate::volume::Volume;
use extant_base::{BlockNr, Ino};
use extant_crc32c::crc32c;
use extant_ondisk::data_sums;
use extant_ondisk::features::RoCompat;
use extant_ondisk::inode::{FileKind, InodeFlags};

/// Most blocks of the checksum file that one step of a handle changes.
const BLOCKS_A_STEP: u64 = 16;

impl Volume {
    /// Whether files of this volume have data checksums.
    pub(crate) fn has_data_sums(&self) -> bool {
        self.has_ro_compat(RoCompat::DATA_CSUM)
    }

    /// Whether the written blocks of this file have checksums. They do in ordinary regular files
    /// that are mapped by extents and lack the flag `NOCOW`.
    pub(crate) fn covers(&self, ino: Ino, body: &Body) -> bool {
        self.has_data_sums() && self.would_cover(ino, body)
    }

    /// As [`Volume::covers`], on a volume that is about to get the feature.
    pub(crate) fn would_cover(&self, ino: Ino, body: &Body) -> bool {
        let without = InodeFlags::NOCOW | InodeFlags::EA_INODE | InodeFlags::INLINE_DATA;
        body.file_kind() == FileKind::Regular
            && body.disk.has_extents()
            && !body.disk.flags.intersects(without)
            && !self.is_hidden(ino)
    }

    /// How many blocks may become dirty when the checksums of `blocks` neighbouring blocks are
    /// stored.
    pub(crate) fn sums_credits(&self, blocks: u32) -> u32 {
        let words = data_sums::words_per_block(self.block_size());
        (u64::from(blocks) / words + 2) as u32
    }

    /// Most neighbouring blocks whose checksums are stored in one step of a handle.
    pub(crate) fn sums_at_once(&self) -> u32 {
        (BLOCKS_A_STEP * data_sums::words_per_block(self.block_size())) as u32
    }
}

/// Checksums of blocks that were written and cannot be read yet, by block number.
#[derive(Clone, Debug, Default)]
pub(crate) struct NewSums {
    runs: Vec<(BlockNr, Vec<u32>)>,
}

impl NewSums {
    /// Adds the checksum of block `nr`. Neighbouring blocks come in ascending order.
    pub(crate) fn push(&mut self, nr: BlockNr, sum: u32) {
        match self.runs.last_mut() {
            Some((first, sums)) if first.0 + sums.len() as u64 == nr.0 => sums.push(sum),
            _ => self.runs.push((nr, vec![sum])),
        }
    }

    /// Adds the checksums of the blocks from `nr` on.
    pub(crate) fn push_all(&mut self, nr: BlockNr, sums: Vec<u32>) {
        self.runs.push((nr, sums));
    }

    /// Adds what `other` holds.
    pub(crate) fn append(&mut self, mut other: NewSums) {
        self.runs.append(&mut other.runs);
    }

    /// The checksums of `len` blocks from `first` on, or `None` if one is missing. No block is in
    /// flight twice.
    pub(crate) fn of(&self, first: BlockNr, len: u32) -> Option<Vec<u32>> {
        let mut found = Vec::with_capacity(len as usize);
        while (found.len() as u64) < u64::from(len) {
            let at = first.0 + found.len() as u64;
            let (start, sums) = self
                .runs
                .iter()
                .rev()
                .find(|(start, sums)| (start.0..start.0 + sums.len() as u64).contains(&at))?;
            let skip = (at - start.0) as usize;
            let most = len as usize - found.len();
            found.extend(sums[skip..].iter().take(most));
        }
        Some(found)
    }
}

/// Computes the checksums of whole blocks from bytes that arrive in pieces.
pub(crate) struct Summer {
    nr: BlockNr,
    block: usize,
    left: usize,
    sum: u32,
}

impl Summer {
    /// The next byte is the first byte of block `nr`; blocks have `block` bytes.
    pub(crate) fn new(nr: BlockNr, block: usize) -> Summer {
        Summer { nr, block, left: block, sum: !0 }
    }

    /// Takes the next bytes. The checksum of each completed block goes to `sums`.
    pub(crate) fn add(&mut self, mut bytes: &[u8], sums: &mut NewSums) {
        while !bytes.is_empty() {
            let (part, rest) = bytes.split_at(self.left.min(bytes.len()));
            self.sum = crc32c(self.sum, part);
            self.left -= part.len();
            if self.left == 0 {
                sums.push(self.nr, self.sum);
                *self = Summer::new(BlockNr(self.nr.0 + 1), self.block);
            }
            bytes = rest;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pieces_of_any_length_give_the_sums_of_their_blocks() {
        let bytes: Vec<u8> = (0..4096u32).map(|n| ((n * 7) >> 3) as u8).collect();
        for cut in [0, 1, 1023, 1024, 1025, 4095] {
            let mut sums = NewSums::default();
            let mut summer = Summer::new(BlockNr(9), 1024);
            summer.add(&bytes[..cut], &mut sums);
            summer.add(&bytes[cut..], &mut sums);
            let want: Vec<u32> = bytes.chunks(1024).map(data_sums::sum_of).collect();
            assert_eq!(sums.of(BlockNr(9), 4).unwrap(), want);
        }
    }

    #[test]
    fn sums_are_found_by_place() {
        let mut sums = NewSums::default();
        (10..15).for_each(|n| sums.push(BlockNr(n), n as u32));
        (30..35).for_each(|n| sums.push(BlockNr(n), n as u32));
        sums.push_all(BlockNr(15), vec![15, 16]);
        assert_eq!(sums.runs.len(), 3);
        assert_eq!(sums.of(BlockNr(13), 4).unwrap(), [13, 14, 15, 16]);
        assert_eq!(sums.of(BlockNr(9), 2), None);
        assert_eq!(sums.of(BlockNr(16), 2), None);
    }
}
