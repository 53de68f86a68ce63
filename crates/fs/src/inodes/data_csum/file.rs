//! The checksum file: where its blocks are, and its contents.

use crate::context::role::Role;
use crate::inodes::data_csum::DataChecksums;
use crate::inodes::map::Target;
use crate::state::checksum_file::ChecksumFile;
use crate::volume::Volume;
use extant_base::narrow::fits_usize;
use extant_base::{BlockNr, Error, Ino, Result, Site, What};
use extant_journal::{Credits, Handle, Ineligible, MetaBlock};
use extant_ondisk::data_sums;
use extant_ondisk::inode::FileKind;
use rangemap::RangeSet;

/// Reads the map of the file and checks it: the file has at least the required length and no holes,
/// and its blocks have no other use. It is longer while the volume grows, and after a growth that a
/// power cut interrupted.
///
/// Errors: `DataSumsFile`, naming the first block that has one; what the map gives.
pub(crate) fn open_checksum_file(volume: &Volume) -> Result<ChecksumFile> {
    let ino = Ino::CHECKSUM_FILE;
    let at = Site::of_ino(ino);
    let wrong = || at.corrupt(What::DataSumsFile);
    let body = volume.inodes().read(ino)?;
    let size = volume.block_size();
    let wanted = data_sums::file_blocks(size, volume.geometry().blocks_count());
    let blocks = body.disk.size >> size.log2();
    let is_whole = blocks >= wanted && body.disk.size == blocks << size.log2();
    if body.file_kind() != FileKind::Regular || !body.disk.has_extents() || !is_whole {
        return Err(wrong());
    }
    let mut taken = RangeSet::new();
    let mut runs: Vec<(u64, BlockNr, u64)> = Vec::new();
    // A volume has up to 2^48 blocks. Its file has fewer than 2^32, except with the smallest
    // block size.
    for run in volume.file(&body).runs(0..u32::try_from(blocks).map_err(|_| wrong())?) {
        let run = run?;
        let Target::Written(block) = run.target else { return Err(wrong()) };
        let blocks = block.0..block.0 + u64::from(run.len);
        if volume.space().is_system(block, run.len.into()) || taken.overlaps(&blocks) {
            return Err(at.block(block).corrupt(What::DataSumsFile));
        }
        taken.insert(blocks);
        match runs.last_mut() {
            Some((_, start, len)) if start.0 + *len == block.0 => *len += u64::from(run.len),
            _ => runs.push((run.logical.0.into(), block, run.len.into())),
        }
    }
    Ok(ChecksumFile::new(runs))
}

impl<'a> DataChecksums<'a> {
    /// Makes the checksum file long enough for a volume of `volume_blocks` blocks, before the
    /// volume grows to that size, but by at most `most` blocks. Returns for how many blocks of the
    /// volume it is long enough: fewer than requested also if space ran out. The new blocks may
    /// take the pool.
    ///
    /// Errors: as [`DataChecksums::checksum_block`]; `Aborted`. Locks: takes a handle, then
    /// `Group`.
    pub(crate) fn lengthen_checksum_file(self, volume_blocks: u64, most: u32) -> Result<u64> {
        self.checksum_file()?;
        let (volume, size) = (self.volume, self.volume.block_size());
        let wanted = data_sums::file_blocks(size, volume_blocks);
        let wanted = u32::try_from(wanted).map_err(|_| Error::FileTooLarge)?;
        let mut body = volume.inodes().read(Ino::CHECKSUM_FILE)?;
        let mut have = u32::try_from(body.disk.size >> size.log2()).unwrap_or(u32::MAX);
        let had = have;
        let wanted = wanted.min(have.saturating_add(most));
        while have < wanted {
            let credits = volume.credits_of(&body).fill(wanted - have);
            let credits = credits.plus(Credits::blocks(volume.credits().store()));
            let handle = volume.journal().start(credits)?;
            let run = match volume.file_mut(&mut body).append_from_pool(&handle, have..wanted) {
                Err(Error::NoSpace) => break,
                run => run?,
            };
            let first = run.target.block().ok_or(Error::NoSpace)?;
            // The commit flushes the zeros before the map can refer to them.
            volume.device().zero(size.start_of(first), u64::from(run.len) << size.log2())?;
            have = run.end().0;
            body.disk.size = u64::from(have) << size.log2();
            body.store(volume, &handle)?;
            handle.stop()?;
        }
        if have > had {
            volume.checksum_file_cell().replace(open_checksum_file(volume)?);
        }
        Ok(u64::from(have) * data_sums::words_per_block(size))
    }

    /// The checksum file. Its map is read once.
    pub(crate) fn checksum_file(self) -> Result<&'a ChecksumFile> {
        if let Some(file) = self.volume.checksum_file_cell().get() {
            return Ok(file);
        }
        let file = open_checksum_file(self.volume)?;
        Ok(self.volume.checksum_file_cell().get_or_put(file))
    }

    /// Block `index` of the checksum file, checked.
    ///
    /// Errors: `DataSumsFile`, `DataSumsChecksum`, `Device`. Locks: takes `Leaf`.
    pub(crate) fn checksum_block(self, index: u64) -> Result<MetaBlock> {
        let (nr, _) = self.place_of_checksums(index)?;
        let block = self.volume.journal().cache().get(nr)?;
        let role = Role::DataSums(index).kind();
        if !block.is_verified_as(role) {
            let at = Site::of_ino(Ino::CHECKSUM_FILE).block(nr);
            let check =
                |bytes: &[u8]| data_sums::check(bytes, index, self.volume.checksum_seed(), at);
            let is_empty = |bytes: &[u8]| bytes.iter().all(|byte| *byte == 0);
            // All zeros: no checksum was stored yet, or they are lost. Another copy tells which.
            if is_empty(&block.read()) {
                let is_good = |bytes: &[u8]| !is_empty(bytes) && check(bytes).is_ok();
                self.volume.journal().cache().reread(&block, &is_good);
            }
            self.volume.journal().cache().checked(&block, check)?;
            block.set_verified_as(role);
        }
        Ok(block)
    }

    /// Where block `index` of the checksum file is, and how many blocks from there on are
    /// neighbours.
    pub(crate) fn place_of_checksums(self, index: u64) -> Result<(BlockNr, u64)> {
        let wrong = || Site::of_ino(Ino::CHECKSUM_FILE).corrupt(What::DataSumsFile);
        self.checksum_file()?.place(index).ok_or_else(wrong)
    }

    /// The stored checksums of `len` blocks from `first` on.
    ///
    /// Errors: as [`DataChecksums::checksum_block`]. Locks: takes `Leaf`.
    pub(crate) fn load_checksums(self, first: BlockNr, len: u32) -> Result<Vec<u32>> {
        let size = self.volume.block_size();
        let mut checksums = Vec::with_capacity(len as usize);
        let last = data_sums::place_of(size, BlockNr(first.0 + u64::from(len.max(1)) - 1)).0;
        let start = data_sums::place_of(size, first).0;
        if last > start {
            let (nr, together) = self.place_of_checksums(start)?;
            let count = together.min(last - start + 1);
            self.volume.journal().cache().prefetch(nr, u32::try_from(count).unwrap_or(u32::MAX))?;
        }
        while checksums.len() < len as usize {
            let at = BlockNr(first.0 + checksums.len() as u64);
            let (index, slot) = data_sums::place_of(size, at);
            let block = self.checksum_block(index)?;
            let most = len as usize - checksums.len();
            checksums.extend(data_sums::words(&block.read(), slot, most));
        }
        Ok(checksums)
    }

    /// Stores the checksums of blocks from `first` on. Spends at most
    /// [`VolumeCredits::checksums`](crate::inodes::map::credits::VolumeCredits::checksums) credits.
    ///
    /// Errors: as [`DataChecksums::checksum_block`]; `Aborted`. Locks: takes `Leaf`.
    pub(crate) fn store_checksums(
        self,
        handle: &Handle<'_>,
        first: BlockNr,
        checksums: &[u32],
    ) -> Result<()> {
        let size = self.volume.block_size();
        let words = fits_usize(data_sums::words_per_block(size));
        self.volume.context().require_full_commit(handle, Ineligible::DataChecksums);
        let mut done = 0;
        while done < checksums.len() {
            let (index, slot) = data_sums::place_of(size, BlockNr(first.0 + done as u64));
            let n = (words - slot).min(checksums.len() - done);
            let block = self.checksum_block(index)?;
            let block = block.write(handle)?;
            data_sums::store(
                &mut block.bytes_mut(),
                index,
                self.volume.checksum_seed(),
                slot,
                &checksums[done..done + n],
            );
            done += n;
        }
        Ok(())
    }
}
