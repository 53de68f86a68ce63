//! Computing the checksums of all data of a volume, written past the journal: for a volume that was
//! just loaded, or that gets the feature.

use crate::inodes::data_csum::{CoveredRun, CoveredVisitor, open_checksum_file};
use crate::state::checksum_file::ChecksumFile;
use crate::state::inode::Body;
use crate::volume::{Volume, VolumeOptions};
use extant_base::narrow::{fits_usize, len_u32};
use extant_base::{BlockNr, Error, Ino, Result, Site};
use extant_blockdev::BlockDevice;
use extant_ondisk::data_sums;
use extant_ondisk::inode::InodeFlags;
use std::collections::BTreeMap;
use std::sync::Arc;

/// How many bytes of data one read covers.
const PIECE: usize = 4 << 20;
/// How many bytes of the checksum file are collected before they are written.
const GATHERED: usize = 64 << 20;

/// Stores the checksums of all data in the checksum file of a volume that has one.
///
/// Errors: `NotSupported` for files that the feature does not allow; `Corrupt` for anything that
/// cannot be read; `Device`.
pub(crate) fn fill(device: &Arc<dyn BlockDevice>) -> Result<()> {
    let volume = Volume::open_parts(Arc::clone(device), &VolumeOptions::default())?;
    if !volume.data_checksums().has_data_csum() {
        return Ok(());
    }
    let file = open_checksum_file(&volume)?;
    store_all(&volume, &**device, file)
}

/// Stores the checksums of all data of a volume in its checksum file `file`, on the device `home`.
///
/// Errors: as [`fill`].
pub(crate) fn store_all(volume: &Volume, home: &dyn BlockDevice, file: ChecksumFile) -> Result<()> {
    let mut writer =
        ChecksumWriter { volume, home, file, blocks: BTreeMap::new(), bytes: Vec::new() };
    for nr in volume.geometry().groups() {
        volume.data_checksums().walk_covered(nr, &mut writer)?;
    }
    writer.write()
}

struct ChecksumWriter<'a> {
    volume: &'a Volume,
    home: &'a dyn BlockDevice,
    file: ChecksumFile,
    /// Changed blocks of the file, by index.
    blocks: BTreeMap<u64, Box<[u8]>>,
    bytes: Vec<u8>,
}

impl CoveredVisitor for ChecksumWriter<'_> {
    fn inode(&mut self, body: &Body) -> Result<()> {
        match body.disk.flags.contains(InodeFlags::JOURNAL_DATA) {
            true => Err(Error::NotSupported(
                "data_csum: a file or directory has its data in the journal (chattr -j)",
            )),
            false => Ok(()),
        }
    }

    fn run(&mut self, run: CoveredRun) -> Result<()> {
        let size = self.volume.block_size();
        let most = len_u32(PIECE >> size.log2());
        let mut done = 0;
        while done < run.len {
            let len = most.min(run.len - done);
            let first = BlockNr(run.block.0 + u64::from(done));
            let mut bytes = std::mem::take(&mut self.bytes);
            bytes.resize(len as usize * size.bytes(), 0);
            self.home.read_at(size.start_of(first), &mut bytes)?;
            let checksums: Vec<u32> = bytes.chunks(size.bytes()).map(data_sums::sum_of).collect();
            self.bytes = bytes;
            self.store(first, &checksums)?;
            done += len;
        }
        Ok(())
    }

    fn damage(&mut self, error: Error) -> Result<()> {
        Err(error)
    }
}

impl ChecksumWriter<'_> {
    fn store(&mut self, first: BlockNr, checksums: &[u32]) -> Result<()> {
        let size = self.volume.block_size();
        let words = fits_usize(data_sums::words_per_block(size));
        let mut done = 0;
        while done < checksums.len() {
            let (index, slot) = data_sums::place_of(size, BlockNr(first.0 + done as u64));
            let n = (words - slot).min(checksums.len() - done);
            if self.blocks.len() << size.log2() >= GATHERED && !self.blocks.contains_key(&index) {
                self.write()?;
            }
            if !self.blocks.contains_key(&index) {
                let mut bytes = vec![0; size.bytes()].into_boxed_slice();
                self.home.read_at(size.start_of(self.place(index)?), &mut bytes)?;
                self.blocks.insert(index, bytes);
            }
            if let Some(bytes) = self.blocks.get_mut(&index) {
                let checksums = &checksums[done..done + n];
                data_sums::store(bytes, index, self.volume.checksum_seed(), slot, checksums);
            }
            done += n;
        }
        Ok(())
    }

    fn place(&self, index: u64) -> Result<BlockNr> {
        let wrong = || Site::of_ino(Ino::CHECKSUM_FILE).corrupt(extant_base::What::DataSumsFile);
        self.file.place(index).map(|(nr, _)| nr).ok_or_else(wrong)
    }

    fn write(&mut self) -> Result<()> {
        for (index, bytes) in std::mem::take(&mut self.blocks) {
            let at = self.volume.block_size().start_of(self.place(index)?);
            self.home.write_at(at, &bytes)?;
        }
        Ok(())
    }
}
