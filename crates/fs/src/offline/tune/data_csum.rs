//! Adding data checksums to an existing volume.
//!
//! ```text
//!   1  the file's blocks, in memory: bitmaps, inode 5, its map
//!   2  checksums of all data, written at once to blocks that are free until step 3 is committed
//!   3  flush; the changes of 1 and the feature bit: one transaction of the log
//! ```
//!
//! After a power cut before 3, the volume is unchanged, except that some free blocks were written.
//!
//! Turning the feature off on a volume that is marked as damaged, or whose checksum file is
//! damaged, removes only the feature bit, in one sector ([`remove_feature_only`]).

use super::{Tune, files};
use crate::context::superblock::patch_superblock;
use crate::context::superblock::read_superblock;
use crate::inodes::data_csum::{CoveredRun, CoveredVisitor, open_checksum_file};
use crate::offline::mkfs::reserved;
use crate::open::exclusive::{Devices, Exclusive};
use crate::state::checksum_file::ChecksumFile;
use crate::state::inode::Body;
use crate::volume::{Volume, VolumeOptions};
use extant_base::{BlockNr, Error, Ino, Result, Site};
use extant_blockdev::BlockDevice;
use extant_ondisk::data_sums;
use extant_ondisk::features::{FeatureBit, RoCompat};
use extant_ondisk::inode::InodeFlags;
use extant_ondisk::superblock::VolumeState;
use std::collections::BTreeMap;
use std::sync::Arc;

/// How many bytes of data one read covers.
const PIECE: usize = 4 << 20;
/// How many bytes of the checksum file are collected before they are written.
const GATHERED: usize = 64 << 20;

/// Makes the checksum file of a volume without one, with the checksums of all data.
///
/// Errors: `NoSpace`; `NotSupported` for features that exclude it; `Corrupt` for anything that
/// cannot be read; `Device`.
pub(super) fn make(exclusive: &Exclusive, volume: &Volume) -> Result<()> {
    let size = volume.block_size();
    let blocks = data_sums::file_blocks(size, volume.geometry().blocks_count());
    if let Ok(body) = volume.read_inode(Ino::DATA_SUMS)
        && (body.disk.links > 0 || body.disk.mode != 0)
    {
        // The file may be left over from a removal of the feature bit alone.
        let is_checksum_file = body.disk.mode == 0o100_600 && body.size == blocks << size.log2();
        if !is_checksum_file {
            return Err(Error::NotSupported(
                "data_csum needs inode 5, the boot loader's, which is in use",
            ));
        }
        files::free_file(volume, Ino::DATA_SUMS.get())?;
    }
    let free = volume.space().free_clusters();
    if free < blocks.saturating_add(64) {
        return Err(Error::NoSpace);
    }
    let home = exclusive.staged.home();
    // The blocks are free on the volume and the log is empty, so they may be overwritten at once.
    reserved::make_checksum_file(volume, &mut |at, bytes| home.zero(at, bytes))?;
    let file = open_checksum_file(volume)?;
    let mut writer =
        ChecksumWriter { volume, home: &**home, file, blocks: BTreeMap::new(), bytes: Vec::new() };
    for nr in volume.geometry().groups() {
        volume.walk_covered(nr, &mut writer)?;
    }
    writer.write()?;
    home.flush()
}

/// Removes only the feature bit from a volume that is marked as damaged or whose checksum file is
/// damaged, if the caller requested nothing else. Returns whether it did so. The volume is then
/// marked as damaged, so that e2fsck, which refuses the feature, can repair it. The checksum file
/// stays in inode 5, and e2fsck counts its blocks as used.
///
/// Errors: `Unsupported` for other features that this engine does not support; `Corrupt`, `Device`.
pub(super) fn remove_feature_only(devices: &Devices, changes: &Tune) -> Result<bool> {
    let bit = FeatureBit::RoCompat(RoCompat::DATA_CSUM);
    let alone = Tune { features: vec![(bit, false)], ..Tune::default() };
    let sb = read_superblock(&*devices.volume, None)?;
    if *changes != alone || !sb.features.has(bit) || sb.needs_recovery() {
        return Ok(false);
    }
    if let Some(feature) = sb.features.all_unwritable().next() {
        return Err(Error::Unsupported { feature });
    }
    if !sb.has_errors() && is_usable(devices)? {
        return Ok(false);
    }
    patch_superblock(&*devices.volume, |sb| {
        sb.features.ro_compat.remove(RoCompat::DATA_CSUM);
        sb.state.insert(VolumeState::ERROR);
    })?;
    devices.volume.flush()?;
    Ok(true)
}

/// Whether the file in inode 5 is a valid checksum file that can be freed.
fn is_usable(devices: &Devices) -> Result<bool> {
    let mut volume = Volume::open_parts(devices.volume.clone(), &VolumeOptions::default())?;
    if let Some(place) = volume.journal_place(devices.journal.as_ref())? {
        volume.guard_log(&place.map);
    }
    match open_checksum_file(&volume) {
        Ok(_) => Ok(true),
        Err(Error::Corrupt { .. }) => Ok(false),
        Err(error) => Err(error),
    }
}

/// Stores the checksums of all data in the checksum file of a volume that has one.
///
/// Errors: as [`make`].
pub(crate) fn fill(device: &Arc<dyn BlockDevice>) -> Result<()> {
    let volume = Volume::open_parts(Arc::clone(device), &VolumeOptions::default())?;
    if !volume.has_data_csum() {
        return Ok(());
    }
    let file = open_checksum_file(&volume)?;
    let (home, blocks) = (&**device, BTreeMap::new());
    let mut writer = ChecksumWriter { volume: &volume, home, file, blocks, bytes: Vec::new() };
    for nr in volume.geometry().groups() {
        volume.walk_covered(nr, &mut writer)?;
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
    fn inode(&mut self, _: Ino, body: &Body) -> Result<()> {
        match body.disk.flags.contains(InodeFlags::JOURNAL_DATA) {
            true => Err(Error::NotSupported(
                "data_csum: a file or directory has its data in the journal (chattr -j)",
            )),
            false => Ok(()),
        }
    }

    fn run(&mut self, run: CoveredRun) -> Result<()> {
        let size = self.volume.block_size();
        let most = (PIECE >> size.log2()) as u32;
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
        let words = data_sums::words_per_block(size) as usize;
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
        let wrong = || Site::of_ino(Ino::DATA_SUMS).corrupt(extant_base::What::DataSumsFile);
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
