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
pub(crate) mod fill;
mod verify;
mod walk;

use crate::inodes::file::FileRef;
use crate::inodes::map::credits::VolumeCredits;
pub(crate) use file::open_checksum_file;
pub(crate) use walk::{CoveredRun, CoveredVisitor};

use crate::volume::Volume;
use extant_base::BlockNr;
use extant_base::narrow::{fits_u32, fits_usize};
use extant_crc32c::crc32c;
use extant_ondisk::data_sums;
use extant_ondisk::features::RoCompat;
use extant_ondisk::inode::{FileKind, InodeFlags};

/// The checksums of data: the file that holds them, and verification by them.
#[derive(Clone, Copy)]
pub(crate) struct DataChecksums<'a> {
    volume: &'a Volume,
}

impl Volume {
    /// The checksums of data.
    pub(crate) fn data_checksums(&self) -> DataChecksums<'_> {
        DataChecksums { volume: self }
    }
}

/// Most blocks of the checksum file that one step of a handle changes.
const BLOCKS_A_STEP: u64 = 16;

impl DataChecksums<'_> {
    /// Whether files of this volume have data checksums.
    pub(crate) fn has_data_csum(self) -> bool {
        self.volume.has_ro_compat(RoCompat::DATA_CSUM)
    }
}

impl FileRef<'_> {
    /// Whether the written blocks of this file have checksums. They do in ordinary regular files
    /// that are mapped by extents and lack the flag `NOCOW`.
    pub(crate) fn has_data_checksums(self) -> bool {
        self.volume.data_checksums().has_data_csum() && self.would_have_checksums()
    }

    /// As [`FileRef::has_data_checksums`], on a volume that is about to get the feature.
    pub(crate) fn would_have_checksums(self) -> bool {
        let without = InodeFlags::NOCOW | InodeFlags::EA_INODE | InodeFlags::INLINE_DATA;
        self.body.file_kind() == FileKind::Regular
            && self.body.disk.has_extents()
            && !self.body.disk.flags.intersects(without)
            && !self.volume.inodes().is_hidden(self.ino())
    }
}

impl VolumeCredits<'_> {
    /// How many blocks may become dirty when the checksums of `blocks` neighbouring blocks are
    /// stored.
    pub(crate) fn checksums(self, blocks: u32) -> u32 {
        let words = data_sums::words_per_block(self.volume.block_size());
        fits_u32(u64::from(blocks) / words + 2)
    }
}

impl DataChecksums<'_> {
    /// Most neighbouring blocks whose checksums are stored in one step of a handle.
    pub(crate) fn checksums_at_once(self) -> u32 {
        fits_u32(BLOCKS_A_STEP * data_sums::words_per_block(self.volume.block_size()))
    }
}

/// Checksums of blocks that were written and cannot be read yet, by block number.
#[derive(Clone, Debug, Default)]
pub(crate) struct NewChecksums {
    runs: Vec<(BlockNr, Vec<u32>)>,
}

impl NewChecksums {
    /// Adds the checksum of block `nr`. Neighbouring blocks come in ascending order.
    pub(crate) fn push(&mut self, nr: BlockNr, checksum: u32) {
        match self.runs.last_mut() {
            Some((first, checksums)) if first.0 + checksums.len() as u64 == nr.0 => {
                checksums.push(checksum)
            }
            _ => self.runs.push((nr, vec![checksum])),
        }
    }

    /// Adds the checksums of the blocks from `nr` on.
    pub(crate) fn push_all(&mut self, nr: BlockNr, checksums: Vec<u32>) {
        self.runs.push((nr, checksums));
    }

    /// Adds what `other` holds.
    pub(crate) fn append(&mut self, mut other: NewChecksums) {
        self.runs.append(&mut other.runs);
    }

    /// The checksums of `len` blocks from `first` on, or `None` if one is missing. No block is in
    /// flight twice.
    pub(crate) fn of(&self, first: BlockNr, len: u32) -> Option<Vec<u32>> {
        let mut found = Vec::with_capacity(len as usize);
        while (found.len() as u64) < u64::from(len) {
            let at = first.0 + found.len() as u64;
            let (start, checksums) = self.runs.iter().rev().find(|(start, checksums)| {
                (start.0..start.0 + checksums.len() as u64).contains(&at)
            })?;
            let skip = fits_usize(at - start.0);
            let most = len as usize - found.len();
            found.extend(checksums[skip..].iter().take(most));
        }
        Some(found)
    }
}

/// Computes the checksums of whole blocks from bytes that arrive in pieces.
pub(crate) struct ChecksumStream {
    nr: BlockNr,
    block: usize,
    left: usize,
    checksum: u32,
}

impl ChecksumStream {
    /// The next byte is the first byte of block `nr`; blocks have `block` bytes.
    pub(crate) fn new(nr: BlockNr, block: usize) -> ChecksumStream {
        ChecksumStream { nr, block, left: block, checksum: !0 }
    }

    /// Takes the next bytes. The checksum of each completed block goes to `checksums`.
    pub(crate) fn add(&mut self, mut bytes: &[u8], checksums: &mut NewChecksums) {
        while !bytes.is_empty() {
            let (part, rest) = bytes.split_at(self.left.min(bytes.len()));
            self.checksum = crc32c(self.checksum, part);
            self.left -= part.len();
            if self.left == 0 {
                checksums.push(self.nr, self.checksum);
                *self = ChecksumStream::new(BlockNr(self.nr.0 + 1), self.block);
            }
            bytes = rest;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn parts_of_any_length_give_the_checksums_of_their_blocks() {
        let bytes: Vec<u8> = (0..4096u32).map(|n| ((n * 7) >> 3) as u8).collect();
        for cut in [0, 1, 1023, 1024, 1025, 4095] {
            let mut checksums = NewChecksums::default();
            let mut stream = ChecksumStream::new(BlockNr(9), 1024);
            stream.add(&bytes[..cut], &mut checksums);
            stream.add(&bytes[cut..], &mut checksums);
            let want: Vec<u32> = bytes.chunks(1024).map(data_sums::sum_of).collect();
            assert_eq!(checksums.of(BlockNr(9), 4).unwrap(), want);
        }
    }

    #[test]
    fn checksums_are_found_by_block() {
        let mut checksums = NewChecksums::default();
        (10..15).for_each(|n| checksums.push(BlockNr(n), n as u32));
        (30..35).for_each(|n| checksums.push(BlockNr(n), n as u32));
        checksums.push_all(BlockNr(15), vec![15, 16]);
        assert_eq!(checksums.runs.len(), 3);
        assert_eq!(checksums.of(BlockNr(13), 4).unwrap(), [13, 14, 15, 16]);
        assert_eq!(checksums.of(BlockNr(9), 2), None);
        assert_eq!(checksums.of(BlockNr(16), 2), None);
    }
}
