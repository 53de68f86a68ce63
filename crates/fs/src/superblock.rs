//! The superblock while the volume is open: settling its counters and writing it back.
//!
//! ```text
//!   counters of groups ─┐
//!   features come up    ├─► Superblock (Rank::Mount) ─► bytes 1024.. of the device, summed
//!   errors met          ┘
//! ```
//!
//! Free counters are only hints while the volume is open; they are settled when it is written.

use crate::volume::Volume;
use extant_base::Result;
use extant_journal::Credits;
use extant_ondisk::features::{Compat, RoCompat};
use extant_ondisk::superblock::{RawSuperblock, VolumeState};
use std::sync::atomic::Ordering;

impl Volume {
    /// Brings counters, late features and the error state into the superblock and writes it.
    ///
    /// Errors: `Device`, `Aborted`. Locks: takes `Mount`, then a handle.
    pub(crate) fn settle_superblock(&self) -> Result<()> {
        let mut sb = self.superblock.write();
        let free = self.free_clusters.load(Ordering::Relaxed).max(0) as u64;
        sb.free_blocks = free << self.layout.log_cluster_ratio();
        sb.free_inodes = self.free_inodes.load(Ordering::Relaxed).max(0) as u32;
        sb.features.compat |= Compat::from_bits_retain(self.late_compat.load(Ordering::Relaxed));
        sb.features.ro_compat |=
            RoCompat::from_bits_retain(self.late_ro_compat.load(Ordering::Relaxed));
        if self.errors_seen.load(Ordering::Relaxed) > 0 {
            sb.state.insert(VolumeState::ERROR);
        }
        let handle = self.journal.start(Credits::blocks(1))?;
        let (block, at) = self.superblock_block()?;
        {
            let block = block.write(&handle)?;
            let mut bytes = block.bytes_mut();
            if let Some(raw) = RawSuperblock::from_prefix_mut(&mut bytes[at..]) {
                sb.update_raw(raw);
            }
        }
        handle.stop()
    }
}
