//! The superblock while the volume is open.
//!
//! ```text
//!   change under a handle ──► Superblock (Rank::Superblock) ──► cached block ──► journal ──► home
//!   counters of groups, late features, errors met ──update────┘
//! ```
//!
//! While the volume is open, the free counters are only hints; closing the volume writes them.
//! Every other change goes into the cached block at once, under the handle of its operation.

use crate::context::Context;
use crate::context::role::Role;
use extant_base::lock::{Rank, RwLock};
use extant_base::narrow::fits_usize;
use extant_base::{BlockNr, BlockSize, ByteOffset, Error, GroupNr, Result, Site, What};
use extant_blockdev::BlockDevice;
use extant_journal::{Credits, Handle, Ineligible, MetaBlock};
use extant_ondisk::features::{Compat, RoCompat};
use extant_ondisk::superblock::{RawSuperblock, SUPERBLOCK_OFFSET, SUPERBLOCK_SIZE, Superblock};
use std::sync::atomic::{AtomicU32, Ordering};
use zerocopy::{FromBytes, IntoBytes};

/// Bytes that a device never tears.
const SECTOR: usize = 512;

/// Blocks that a change of the superblock dirties.
pub(crate) const SUPERBLOCK_CREDITS: u32 = 1;

/// The fields of the superblock as they will be written.
pub(super) struct SuperblockState {
    fields: RwLock<Superblock>,
    /// Compatible feature bits added since open; the next write of the superblock includes them.
    pending_compat: AtomicU32,
    /// Read-only compatible feature bits added since open.
    pending_ro_compat: AtomicU32,
}

impl SuperblockState {
    pub(super) fn new(at_open: Superblock) -> SuperblockState {
        SuperblockState {
            fields: RwLock::new(Rank::Superblock, at_open),
            pending_compat: AtomicU32::new(0),
            pending_ro_compat: AtomicU32::new(0),
        }
    }

    pub(super) fn fields(&self) -> &RwLock<Superblock> {
        &self.fields
    }
}

impl Context {
    /// The superblock as it will be written; [`Context::change_superblock`] changes it.
    pub(crate) fn superblock(&self) -> &RwLock<Superblock> {
        self.superblock.fields()
    }

    /// Changes fields of the superblock under `handle`, checksum included.
    ///
    /// Spends [`SUPERBLOCK_CREDITS`]. Errors: `Device`, `Aborted`. Locks: takes `Superblock`.
    pub(crate) fn change_superblock(
        &self,
        handle: &Handle<'_>,
        change: impl FnOnce(&mut Superblock),
    ) -> Result<()> {
        let (block, at) = self.superblock_block()?;
        self.require_full_commit(handle, Ineligible::Superblock);
        let block = block.write(handle)?;
        let mut sb = self.superblock.fields.write();
        change(&mut sb);
        let mut bytes = block.bytes_mut();
        if let Some(raw) = RawSuperblock::from_prefix_mut(&mut bytes[at..]) {
            sb.update_raw(raw);
        }
        Ok(())
    }

    /// Turns on a compatible feature, together with the change that first needs it.
    ///
    /// Spends [`SUPERBLOCK_CREDITS`] the first time. Locks: takes `Superblock`.
    pub(crate) fn add_compat(&self, handle: &Handle<'_>, feature: Compat) -> Result<()> {
        if self.has_compat(feature) {
            return Ok(());
        }
        let before = self.superblock.pending_compat.fetch_or(feature.bits(), Ordering::Relaxed);
        if Compat::from_bits_retain(before).contains(feature) {
            return Ok(());
        }
        self.change_superblock(handle, |sb| sb.features.compat.insert(feature))
    }

    /// Turns on a read-only compatible feature, together with the change that first needs it.
    ///
    /// Spends [`SUPERBLOCK_CREDITS`] the first time. Locks: takes `Superblock`.
    pub(crate) fn add_ro_compat(&self, handle: &Handle<'_>, feature: RoCompat) -> Result<()> {
        if self.has_ro_compat(feature) {
            return Ok(());
        }
        let before = self.superblock.pending_ro_compat.fetch_or(feature.bits(), Ordering::Relaxed);
        if RoCompat::from_bits_retain(before).contains(feature) {
            return Ok(());
        }
        self.change_superblock(handle, |sb| sb.features.ro_compat.insert(feature))
    }

    /// Turns on a read-only compatible feature when the superblock is next updated.
    pub(crate) fn add_ro_compat_later(&self, feature: RoCompat) {
        self.superblock.pending_ro_compat.fetch_or(feature.bits(), Ordering::Relaxed);
    }

    /// Read-only compatible features added since open.
    pub(crate) fn pending_ro_compat(&self) -> RoCompat {
        RoCompat::from_bits_retain(self.superblock.pending_ro_compat.load(Ordering::Relaxed))
    }

    /// Writes late features, the error state and the effect of `change` into the superblock.
    ///
    /// Errors: `Device`, `Aborted`. Locks: takes a handle, then `Superblock`.
    pub(crate) fn update_superblock(&self, change: impl FnOnce(&mut Superblock)) -> Result<()> {
        let handle = self.journal.start(Credits::blocks(SUPERBLOCK_CREDITS))?;
        self.change_superblock(&handle, |sb| {
            let pending_compat = self.superblock.pending_compat.load(Ordering::Relaxed);
            sb.features.compat |= Compat::from_bits_retain(pending_compat);
            sb.features.ro_compat |= self.pending_ro_compat();
            self.damage.put_into(sb);
            change(sb);
        })?;
        handle.stop()
    }

    /// The block that holds the primary superblock, and the byte where it starts there.
    pub(crate) fn superblock_block(&self) -> Result<(MetaBlock, usize)> {
        let block = self.block_size().block_at(ByteOffset(SUPERBLOCK_OFFSET));
        let start = self.block_size().start_of(block);
        let block = self.journal.cache().get(block)?;
        let at = fits_usize(SUPERBLOCK_OFFSET - start.0);
        let is_right = |bytes: &[u8], _: usize| {
            let raw = RawSuperblock::from_prefix(&bytes[at..]);
            raw.is_some_and(|raw| raw.check(Site::NOWHERE).is_ok()).into()
        };
        self.journal.cache().take_best(&block, Role::Superblock.kind(), 1, &is_right);
        Ok((block, at))
    }
}

/// Changes a flag of the primary superblock on `home`, durably. A power cut can tear the write:
/// `recovery/torn.rs` knows which flags can be affected.
pub(crate) fn patch_superblock(
    home: &dyn BlockDevice,
    change: impl FnOnce(&mut Superblock),
) -> Result<()> {
    let before = raw_superblock(home, SUPERBLOCK_OFFSET)?;
    // Opening the volume checks the fields that do not change here.
    let mut superblock = before.parse(Site::NOWHERE)?;
    change(&mut superblock);
    let mut after = before.clone();
    superblock.update_raw(&mut after);
    if after.as_bytes() == before.as_bytes() {
        return Ok(());
    }
    home.write_fua(ByteOffset(SUPERBLOCK_OFFSET), after.as_bytes())
}

/// As [`patch_superblock`], for a change of the error state and the error records, of which only
/// the last record is new.
///
/// Rule D13: no power cut leaves a superblock with a wrong checksum.
///
/// ```text
///   first sector     state, error records, 4 bytes that keep the old checksum right  written alone
///   second sector    codes of the errors, the new checksum                           written after
/// ```
/// A name of the last error that extant recorded leaves the 4 bytes free. One write of both sectors
/// is made if there is no checksum, or if the checksum was wrong before.
pub(crate) fn patch_errors(
    home: &dyn BlockDevice,
    change: impl FnOnce(&mut Superblock),
) -> Result<()> {
    let before = raw_superblock(home, SUPERBLOCK_OFFSET)?;
    let mut superblock = before.parse(Site::NOWHERE)?;
    change(&mut superblock);
    let mut after = before.clone();
    superblock.update_raw(&mut after);
    let mut first = after.clone();
    first.as_mut_bytes()[SECTOR..].copy_from_slice(&before.as_bytes()[SECTOR..]);
    let has_checksums = superblock.features.ro_compat.contains(RoCompat::METADATA_CSUM);
    if !has_checksums || !before.checksum_is_right() || !first.fit_checksum() {
        return home.write_fua(ByteOffset(SUPERBLOCK_OFFSET), after.as_bytes());
    }
    home.write_fua(ByteOffset(SUPERBLOCK_OFFSET), &first.as_bytes()[..SECTOR])?;
    after.as_mut_bytes()[..SECTOR].copy_from_slice(&first.as_bytes()[..SECTOR]);
    after.set_checksum();
    home.write_fua(ByteOffset(SUPERBLOCK_OFFSET + SECTOR as u64), &after.as_bytes()[SECTOR..])
}

/// Reads and checks the superblock: the primary, or the copy in group `backup`.
///
/// Errors: `Device` (a device too short included); `SuperblockMagic` and the other checks.
pub(crate) fn read_superblock(
    device: &dyn BlockDevice,
    backup: Option<GroupNr>,
) -> Result<Superblock> {
    let superblock = match backup {
        None => check_superblock(device, SUPERBLOCK_OFFSET)?,
        Some(group) => backup_superblock(device, group)?,
    };
    superblock.check_device(device.len(), Site::NOWHERE)?;
    Ok(superblock)
}

/// The superblock's bytes at `at` of the device, unchecked.
pub(crate) fn raw_superblock(device: &dyn BlockDevice, at: u64) -> Result<RawSuperblock> {
    let mut bytes = [0; SUPERBLOCK_SIZE];
    if at.checked_add(bytes.len() as u64).is_none_or(|end| end > device.len()) {
        // So short a device holds no volume.
        return Err(Site::NOWHERE.corrupt(What::SuperblockMagic));
    }
    let is_right = |bytes: &[u8]| {
        RawSuperblock::from_prefix(bytes).is_some_and(|raw| raw.check(Site::NOWHERE).is_ok())
    };
    // On a mirror, this takes a copy that is right. If all copies are wrong, the caller finds the
    // error.
    device.read_verified(ByteOffset(at), &mut bytes, &is_right)?;
    RawSuperblock::read_from_bytes(&bytes).map_err(|_| Site::NOWHERE.corrupt(What::SuperblockMagic))
}

fn check_superblock(device: &dyn BlockDevice, at: u64) -> Result<Superblock> {
    raw_superblock(device, at)?.check(Site::NOWHERE)
}

/// The copy in `group`. Its place depends on the block size and the group size, which a damaged
/// primary superblock may not give. So this tries the fields of the primary first, then every block
/// size with its usual group size.
fn backup_superblock(device: &dyn BlockDevice, group: GroupNr) -> Result<Superblock> {
    let mut places = Vec::new();
    if let Ok(primary) = raw_superblock(device, SUPERBLOCK_OFFSET)
        && let Ok(primary) = primary.parse(Site::NOWHERE)
    {
        let first = u64::from(primary.first_data_block);
        places.push((primary.block_size, first, u64::from(primary.blocks_per_group)));
    }
    for size in BlockSize::ALL {
        let first = u64::from(size.bytes() == 1024);
        places.push((size, first, (size.bytes() as u64 * 8).min(65528)));
    }
    let mut found = Err(Site::of_group(group).corrupt(What::SuperblockMagic));
    for (size, first, per_group) in places {
        let block = u64::from(group.0).saturating_mul(per_group).saturating_add(first);
        let at = match group.0 {
            0 => SUPERBLOCK_OFFSET,
            _ => size.start_of(BlockNr(block)).0,
        };
        match raw_superblock(device, at).and_then(|raw| raw.check(Site::of_group(group))) {
            Ok(superblock) if superblock.block_group == group => return Ok(superblock),
            // The error of a damaged copy says more than that of a missing one.
            Err(error) if !matches!(error, Error::Corrupt { what: What::SuperblockMagic, .. }) => {
                found = Err(error);
            }
            _ => {}
        }
    }
    found
}
