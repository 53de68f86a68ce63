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
use crate::context::superblock::{patch_superblock, read_superblock};
use crate::inodes::data_csum::fill::store_all;
use crate::inodes::data_csum::open_checksum_file;
use crate::offline::mkfs::reserved;
use crate::open::exclusive::{Devices, Exclusive};
use crate::volume::{Volume, VolumeOptions};
use extant_base::{Error, Ino, Result};
use extant_ondisk::data_sums;
use extant_ondisk::features::{FeatureBit, RoCompat};
use extant_ondisk::superblock::VolumeState;

/// Makes the checksum file of a volume without one, with the checksums of all data.
///
/// Errors: `NoSpace`; `NotSupported` for features that exclude it; `Corrupt` for anything that
/// cannot be read; `Device`.
pub(super) fn make(exclusive: &Exclusive, volume: &Volume) -> Result<()> {
    let size = volume.block_size();
    let blocks = data_sums::file_blocks(size, volume.geometry().blocks_count());
    if let Ok(body) = volume.inodes().read(Ino::CHECKSUM_FILE)
        && (body.disk.links > 0 || body.disk.mode != 0)
    {
        // The file may be left over from a removal of the feature bit alone.
        let is_checksum_file = body.disk.mode == 0o100_600 && body.size >= blocks << size.log2();
        if !is_checksum_file {
            return Err(Error::NotSupported(
                "data_csum needs inode 5, the boot loader's, which is in use",
            ));
        }
        files::free_file(volume, Ino::CHECKSUM_FILE.get())?;
    }
    let free = volume.space().free_clusters();
    if free < blocks.saturating_add(64) {
        return Err(Error::NoSpace);
    }
    let home = exclusive.staged.home();
    // The blocks are free on the volume and the log is empty, so they may be overwritten at once.
    reserved::make_checksum_file(volume, &mut |at, bytes| home.zero(at, bytes))?;
    let file = open_checksum_file(volume)?;
    store_all(volume, &**home, file)?;
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
    if let Some(place) = volume.journal_file().place(devices.journal.as_ref())? {
        volume.guard_log(&place.map);
    }
    match open_checksum_file(&volume) {
        Ok(_) => Ok(true),
        Err(Error::Corrupt { .. }) => Ok(false),
        Err(error) => Err(error),
    }
}
