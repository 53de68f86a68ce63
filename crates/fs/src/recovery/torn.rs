//! A superblock that a power cut tore between its two sectors.
//!
//! ```text
//!   sector 0   features, counters, last orphan …     new         old
//!   sector 1   …, checksum                           old   or    new        sum is wrong either way
//! ```
//!
//! Recovery writes it at four moments. At the start and in the end, and where the errno of a writer that
//! gave up is taken over, only a flag changes, as when a volume is opened to write and closed: with the
//! flag turned back, the sum is right again, and that superblock is the one before or after the write. In
//! between the log holds it whole, and its replay writes it again. Anything else is damage.

use crate::context::superblock::{raw_superblock, read_superblock};
use crate::recovery::saved_errors::SavedErrors;
use crate::recovery::{Wish, limits, log_of};
use crate::volume::{Volume, VolumeOptions};
use extant_base::{ByteOffset, Result, Site, What};
use extant_ondisk::features::{Incompat, RoCompat};
use extant_ondisk::superblock::{RawSuperblock, SUPERBLOCK_OFFSET, Superblock, VolumeState};
use std::sync::Arc;
use zerocopy::IntoBytes;

/// Flags that are turned on or off by a write of their own.
const FLAGS: [(Incompat, RoCompat, VolumeState); 7] = [
    (Incompat::RECOVER, RoCompat::empty(), VolumeState::empty()),
    (Incompat::empty(), RoCompat::ORPHAN_PRESENT, VolumeState::empty()),
    (Incompat::RECOVER, RoCompat::ORPHAN_PRESENT, VolumeState::empty()),
    (Incompat::LIVE, RoCompat::empty(), VolumeState::empty()),
    (Incompat::LIVE, RoCompat::ORPHAN_PRESENT, VolumeState::empty()),
    (Incompat::empty(), RoCompat::empty(), VolumeState::VALID),
    (Incompat::empty(), RoCompat::empty(), VolumeState::ERROR),
];

/// Writes the superblock anew that a cut tore, or says that it is damaged.
///
/// Errors: `SuperblockChecksum` when it was not torn in a way recovery leaves; those of the log.
pub(crate) fn mend_superblock(wish: &Wish<'_>) -> Result<Superblock> {
    let home = &wish.home;
    let raw = raw_superblock(&**home, SUPERBLOCK_OFFSET)?;
    if let Some(whole) = FLAGS.iter().find_map(|flags| with_flags_turned(&raw, *flags)) {
        home.write_fua(ByteOffset(SUPERBLOCK_OFFSET), whole.as_bytes())?;
        return read_superblock(&**home, None);
    }
    let damaged = || Site::NOWHERE.offset(0x3FC).corrupt(What::SuperblockChecksum);
    let torn = raw.parse(Site::NOWHERE)?;
    if !torn.needs_recovery() || torn.check_fields(Site::NOWHERE).is_err() {
        return Err(damaged());
    }
    // Where the log lies does not change while it is replayed, and the log checks itself.
    let limits = limits(&torn);
    let options = VolumeOptions { read_only: true, ..wish.options.clone() };
    let volume = Volume::with_superblock(Arc::clone(home), torn, &options)?;
    let Ok(Some(log)) = log_of(&volume, wish) else { return Err(damaged()) };
    if !log.needs_recovery() {
        return Err(damaged());
    }
    let errors = SavedErrors::of(&**home)?;
    log.recover_amending(home, limits, &|raw| errors.put_into(raw))?;
    read_superblock(&**home, None)
}

/// The superblock with flags turned over, if that makes its checksum right.
fn with_flags_turned(
    raw: &RawSuperblock,
    (incompat, ro_compat, state): (Incompat, RoCompat, VolumeState),
) -> Option<RawSuperblock> {
    let mut turned = raw.clone();
    turned.s_feature_incompat = (raw.s_feature_incompat.get() ^ incompat.bits()).into();
    turned.s_feature_ro_compat = (raw.s_feature_ro_compat.get() ^ ro_compat.bits()).into();
    turned.s_state = (raw.s_state.get() ^ state.bits()).into();
    turned.checksum_is_right().then_some(turned)
}
