//! Reading data and verifying it with its checksums (rule S4).

use crate::inodes::data_csum::DataChecksums;
use extant_base::narrow::len_u32;
use extant_base::{BlockNr, ByteOffset, Ino, Result, Site, What};
use extant_ondisk::data_sums;

impl DataChecksums<'_> {
    /// Reads whole blocks of a covered file from `first` on. If a block does not match and the
    /// device has another copy of it, reads that copy and repairs the block.
    ///
    /// Errors: `DataChecksum` naming file and block; as [`DataChecksums::load_checksums`];
    /// `Device`. Locks: the caller holds the inode's, so that the blocks keep their place; takes
    /// `Leaf`.
    pub(crate) fn read_with_checksums(
        self,
        ino: Ino,
        first: BlockNr,
        buf: &mut [u8],
    ) -> Result<()> {
        let size = self.volume.block_size();
        let checksums = self.load_checksums(first, len_u32(buf.len() >> size.log2()))?;
        self.volume.device().read_at(size.start_of(first), buf)?;
        self.verify(ino, first, &checksums, buf)
    }

    /// Verifies whole blocks that were read from `first` on with `checksums`. Repairs a block that
    /// does not match from another copy if the device has one.
    ///
    /// Errors: `DataChecksum`, `Device`.
    pub(crate) fn verify(
        self,
        ino: Ino,
        first: BlockNr,
        checksums: &[u32],
        buf: &mut [u8],
    ) -> Result<()> {
        let size = self.volume.block_size();
        for (n, (bytes, checksum)) in (0..).zip(buf.chunks_exact_mut(size.bytes()).zip(checksums)) {
            if data_sums::sum_of(bytes) != *checksum {
                let nr = BlockNr(first.0 + n);
                let is_good = |bytes: &[u8]| data_sums::sum_of(bytes) == *checksum;
                if !self.volume.device().read_verified(size.start_of(nr), bytes, &is_good)? {
                    return Err(Site::of_ino(ino).block(nr).corrupt(What::DataChecksum));
                }
            }
        }
        Ok(())
    }

    /// As [`DataChecksums::read_with_checksums`] for any bytes, from `skip` bytes after the start
    /// of `first` on. Parts of blocks are read through a copy of the block.
    pub(crate) fn read_part_with_checksums(
        self,
        ino: Ino,
        first: BlockNr,
        skip: usize,
        buf: &mut [u8],
    ) -> Result<()> {
        let size = self.volume.block_size();
        let block = size.bytes();
        let at = |skip: usize| BlockNr(first.0 + (skip / block) as u64);
        let mut part = Vec::new();
        let mut done = 0;
        while done < buf.len() {
            let (from, left) = ((skip + done) % block, buf.len() - done);
            let nr = at(skip + done);
            let n = if from == 0 && left >= block {
                let n = left / block * block;
                self.read_with_checksums(ino, nr, &mut buf[done..done + n])?;
                n
            } else {
                part.resize(block, 0);
                self.read_with_checksums(ino, nr, &mut part)?;
                let n = (block - from).min(left);
                buf[done..done + n].copy_from_slice(&part[from..from + n]);
                n
            };
            done += n;
        }
        Ok(())
    }

    /// The byte of the device where block `nr` starts.
    pub(crate) fn start_of(self, nr: BlockNr) -> ByteOffset {
        self.volume.block_size().start_of(nr)
    }
}
