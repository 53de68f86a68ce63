//! A superblock that a power cut tore between its two sectors.
//!
//! ```text
//!   sector 0   features, counters, last orphan …     new         old
//!   sector 1   …, checksum                           old   or    new     checksum wrong either way
//! ```
//!
//! Recovery writes the superblock at four moments. At three of them only a flag changes: at the
//! start, at the end, and when it takes over the errno of a writer whose journal aborted. The same
//! holds when a volume is opened for writing and when it is closed. With the flag turned back, the
//! checksum is right again, and the result is the superblock before or after the write. At the
//! fourth moment, the log contains the whole superblock, and replaying the log writes it again.
//! Anything else is damage.

use crate::context::superblock::{raw_superblock, read_superblock};
use crate::recovery::saved_errors::SavedErrors;
use crate::recovery::{Request, limits, log_of};
use crate::volume::{Volume, VolumeOptions};
use extant_base::{ByteOffset, Result, Site, What};
use extant_ondisk::features::{Incompat, RoCompat};
use extant_ondisk::superblock::{RawSuperblock, SUPERBLOCK_OFFSET, Superblock, VolumeState};
use std::sync::Arc;
use zerocopy::IntoBytes;

/// Flags that a write of their own sets or clears.
const FLAGS: [(Incompat, RoCompat, VolumeState); 7] = [
    (Incompat::RECOVER, RoCompat::empty(), VolumeState::empty()),
    (Incompat::empty(), RoCompat::ORPHAN_PRESENT, VolumeState::empty()),
    (Incompat::RECOVER, RoCompat::ORPHAN_PRESENT, VolumeState::empty()),
    (Incompat::LIVE, RoCompat::empty(), VolumeState::empty()),
    (Incompat::LIVE, RoCompat::ORPHAN_PRESENT, VolumeState::empty()),
    (Incompat::empty(), RoCompat::empty(), VolumeState::VALID),
    (Incompat::empty(), RoCompat::empty(), VolumeState::ERROR),
];

/// Rewrites a superblock that a power cut tore, or reports that it is damaged.
///
/// Errors: `SuperblockChecksum` when it was not torn in one of these ways; those of the log.
pub(crate) fn repair_superblock(request: &Request<'_>) -> Result<Superblock> {
    let home = &request.home;
    let raw = raw_superblock(&**home, SUPERBLOCK_OFFSET)?;
    if let Some(whole) = FLAGS.iter().find_map(|flags| with_flags_flipped(&raw, *flags)) {
        home.write_fua(ByteOffset(SUPERBLOCK_OFFSET), whole.as_bytes())?;
        return read_superblock(&**home, None);
    }
    let damaged = || Site::NOWHERE.offset(0x3FC).corrupt(What::SuperblockChecksum);
    let torn = raw.parse(Site::NOWHERE)?;
    if !torn.needs_recovery() || torn.check_fields(Site::NOWHERE).is_err() {
        return Err(damaged());
    }
    // The place of the log does not change during its replay, and the log has its own checksums.
    let limits = limits(&torn);
    let options = VolumeOptions { read_only: true, ..request.options.clone() };
    let volume = Volume::with_superblock(Arc::clone(home), torn, &options)?;
    let Ok(Some(log)) = log_of(&volume, request) else { return Err(damaged()) };
    if !log.needs_recovery() {
        return Err(damaged());
    }
    let errors = SavedErrors::of(&**home)?;
    log.recover_amending(home, limits, &|raw| errors.put_into(raw))?;
    read_superblock(&**home, None)
}

/// The superblock with these flags inverted, if that makes its checksum right.
fn with_flags_flipped(
    raw: &RawSuperblock,
    (incompat, ro_compat, state): (Incompat, RoCompat, VolumeState),
) -> Option<RawSuperblock> {
    let mut flipped = raw.clone();
    flipped.s_feature_incompat = (raw.s_feature_incompat.get() ^ incompat.bits()).into();
    flipped.s_feature_ro_compat = (raw.s_feature_ro_compat.get() ^ ro_compat.bits()).into();
    flipped.s_state = (raw.s_state.get() ^ state.bits()).into();
    flipped.checksum_is_right().then_some(flipped)
}
