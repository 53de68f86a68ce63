//! The superblock while the volume is open.
//!
//! ```text
//!   change under a handle ──► Superblock (Rank::Superblock) ──► cached block ──► journal ──► home
//!   counters of groups, late features, errors met ──settle────┘
//! ```
//!
//! Free counters are only hints while the volume is open; they are settled when it is closed.
//! Everything else goes into the cached block at once, under the handle of the change that wants it.

use crate::volume::{Volume, raw_superblock};
use extant_base::{ByteOffset, Error, Result, Site};
use extant_blockdev::BlockDevice;
use extant_journal::{Credits, Handle, Ineligible};
use extant_ondisk::features::{Compat, RoCompat};
use extant_ondisk::superblock::{RawSuperblock, SUPERBLOCK_OFFSET, Superblock};
use std::sync::atomic::Ordering;
use zerocopy::IntoBytes;

/// Sectors are not torn.
const SECTOR: usize = 512;

/// Blocks that a change of the superblock dirties.
pub(crate) const SUPERBLOCK_CREDITS: u32 = 1;

impl Volume {
    /// Changes fields of the superblock under `handle`, checksum included.
    ///
    /// Spends [`SUPERBLOCK_CREDITS`]. Errors: `Device`, `Aborted`. Locks: takes `Superblock`.
    pub(crate) fn change_superblock(
        &self,
        handle: &Handle<'_>,
        change: impl FnOnce(&mut Superblock),
    ) -> Result<()> {
        let (block, at) = self.superblock_block()?;
        self.note_untold(handle, Ineligible::Superblock);
        let block = block.write(handle)?;
        let mut sb = self.superblock.write();
        change(&mut sb);
        let mut bytes = block.bytes_mut();
        if let Some(raw) = RawSuperblock::from_prefix_mut(&mut bytes[at..]) {
            sb.update_raw(raw);
        }
        Ok(())
    }

    /// See [`Filesystem::set_label`](crate::Filesystem::set_label).
    pub(crate) fn set_label(&self, label: &[u8]) -> Result<()> {
        self.check_writable()?;
        let mut name = [0; 16];
        let Some(place) = name.get_mut(..label.len()) else {
            return Err(Error::Invalid("a label has at most 16 bytes"));
        };
        place.copy_from_slice(label);
        let handle = self.journal.start(Credits::blocks(SUPERBLOCK_CREDITS))?;
        self.change_superblock(&handle, |sb| sb.volume_name = name)?;
        handle.stop()?;
        self.sync()
    }

    /// Turns a compatible feature on with the change that first needs it.
    ///
    /// Spends [`SUPERBLOCK_CREDITS`] the first time. Locks: takes `Superblock`.
    pub(crate) fn add_compat(&self, handle: &Handle<'_>, feature: Compat) -> Result<()> {
        if self.has_compat(feature) {
            return Ok(());
        }
        let before = self.late_compat.fetch_or(feature.bits(), Ordering::Relaxed);
        if Compat::from_bits_retain(before).contains(feature) {
            return Ok(());
        }
        self.change_superblock(handle, |sb| sb.features.compat.insert(feature))
    }

    /// Turns a read-only compatible feature on with the change that first needs it.
    ///
    /// Spends [`SUPERBLOCK_CREDITS`] the first time. Locks: takes `Superblock`.
    pub(crate) fn add_ro_compat(&self, handle: &Handle<'_>, feature: RoCompat) -> Result<()> {
        if self.has_ro_compat(feature) {
            return Ok(());
        }
        let before = self.late_ro_compat.fetch_or(feature.bits(), Ordering::Relaxed);
        if RoCompat::from_bits_retain(before).contains(feature) {
            return Ok(());
        }
        self.change_superblock(handle, |sb| sb.features.ro_compat.insert(feature))
    }

    /// Brings counters and the error state into the superblock.
    ///
    /// Errors: `Device`, `Aborted`. Locks: takes a handle, then `Superblock`.
    pub(crate) fn settle_superblock(&self) -> Result<()> {
        self.settle_superblock_with(|_| {})
    }

    /// As [`Volume::settle_superblock`], with one more change in the same step.
    pub(crate) fn settle_superblock_with(
        &self,
        change: impl FnOnce(&mut Superblock),
    ) -> Result<()> {
        let handle = self.journal.start(Credits::blocks(SUPERBLOCK_CREDITS))?;
        self.change_superblock(&handle, |sb| {
            let free = self.free_clusters.load(Ordering::Relaxed).max(0) as u64;
            sb.free_blocks = free << self.geometry.log_cluster_ratio();
            sb.free_inodes = self.free_inodes.load(Ordering::Relaxed).max(0) as u32;
            sb.features.compat |=
                Compat::from_bits_retain(self.late_compat.load(Ordering::Relaxed));
            sb.features.ro_compat |=
                RoCompat::from_bits_retain(self.late_ro_compat.load(Ordering::Relaxed));
            self.errors.put_into(sb);
            change(sb);
        })?;
        handle.stop()
    }
}

/// Changes a flag of the primary superblock on `home`, durably. A cut may tear it: `recovery/torn.rs` knows which flags.
pub(crate) fn patch_superblock(
    home: &dyn BlockDevice,
    change: impl FnOnce(&mut Superblock),
) -> Result<()> {
    let before = raw_superblock(home, SUPERBLOCK_OFFSET)?;
    // Other fields than the changed ones are checked when the volume is opened.
    let mut superblock = before.parse(Site::NOWHERE)?;
    change(&mut superblock);
    let mut after = before.clone();
    superblock.update_raw(&mut after);
    if after.as_bytes() == before.as_bytes() {
        return Ok(());
    }
    home.write_fua(ByteOffset(SUPERBLOCK_OFFSET), after.as_bytes())
}

/// As [`patch_superblock`], for a change of what it says of errors, of which the last one is new.
///
/// Rule D13: no cut leaves a superblock with a wrong checksum.
///
/// ```text
///   first sector     state, error records, four bytes that keep the old checksum right     written alone
///   second sector    codes of the errors, the new checksum                                 behind it, alone
/// ```
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
    let is_summed = superblock.features.ro_compat.contains(RoCompat::METADATA_CSUM);
    if !is_summed || !before.checksum_is_right() || !first.fit_checksum() {
        return home.write_fua(ByteOffset(SUPERBLOCK_OFFSET), after.as_bytes());
    }
    home.write_fua(ByteOffset(SUPERBLOCK_OFFSET), &first.as_bytes()[..SECTOR])?;
    after.as_mut_bytes()[..SECTOR].copy_from_slice(&first.as_bytes()[..SECTOR]);
    after.set_checksum();
    home.write_fua(ByteOffset(SUPERBLOCK_OFFSET + SECTOR as u64), &after.as_bytes()[SECTOR..])
}
