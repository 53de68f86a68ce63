//! Promises of space: what is free is not all for everybody.
//!
//! ```text
//!   free clusters   ├ reserved for delayed data ┤ pool │ r_blocks │ anybody's ┤
//!   metadata, reserved data    may take all
//!   data                       keeps off what others reserved, and off the pool
//!   data, unprivileged         and off r_blocks
//! ```
//!
//! The pool (a fiftieth, at most 4096 clusters) lets a full volume finish what is under way: trees
//! that grow, unwritten blocks that become written. Without a log nothing is kept back.

use crate::volume::Volume;
use extant_base::{Error, Result};
use extant_ondisk::features::Incompat;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, AtomicU64, Ordering};

/// On what right clusters are asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Claim {
    /// For trees and directories' own blocks, or out of a [`Reservation`]: anything that is free.
    Metadata,
    /// For data.
    Data,
}

/// Clusters promised and not yet allocated.
#[derive(Debug, Default)]
pub(crate) struct Reserved(AtomicI64);

/// A promise of clusters for data that is not written yet. Dropping it gives back what was not
/// used.
#[derive(Debug)]
#[allow(dead_code, reason = "delayed allocation will hold it")]
pub(crate) struct Reservation {
    reserved: Arc<Reserved>,
    clusters: AtomicU64,
}

#[allow(dead_code, reason = "delayed allocation will hold it")]
impl Reservation {
    /// Clusters still promised.
    pub(crate) fn clusters(&self) -> u64 {
        self.clusters.load(Ordering::Relaxed)
    }

    /// Counts `clusters` of the promise as kept: they were allocated with [`Claim::Metadata`].
    pub(crate) fn keep(&self, clusters: u64) {
        let before = self.clusters.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |left| {
            Some(left.saturating_sub(clusters))
        });
        let used = before.unwrap_or_default().min(clusters);
        self.reserved.0.fetch_sub(used as i64, Ordering::Relaxed);
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        let left = *self.clusters.get_mut();
        self.reserved.0.fetch_sub(left as i64, Ordering::Relaxed);
    }
}

impl Volume {
    /// Clusters that data may have now.
    fn clusters_for_data(&self) -> i64 {
        let free = self.free_clusters.load(Ordering::Relaxed);
        free - self.reserved.0.load(Ordering::Relaxed) - self.kept_back()
    }

    /// How many of `want` clusters may be allocated on this claim.
    pub(super) fn grant(&self, claim: Claim, want: u32) -> u32 {
        match claim {
            Claim::Metadata => want,
            Claim::Data => {
                want.min(u32::try_from(self.clusters_for_data().max(0)).unwrap_or(u32::MAX))
            }
        }
    }

    /// Promises `clusters` clusters to data that is written later.
    ///
    /// Errors: `NoSpace` when they are not there.
    #[allow(dead_code, reason = "delayed allocation will call it")]
    pub(crate) fn reserve_clusters(&self, clusters: u64) -> Result<Reservation> {
        let wanted = i64::try_from(clusters).map_err(|_| Error::NoSpace)?;
        // Claimed first: of two who ask at once at most one too many is refused.
        self.reserved.0.fetch_add(wanted, Ordering::Relaxed);
        let reservation = Reservation {
            reserved: Arc::clone(&self.reserved),
            clusters: AtomicU64::new(clusters),
        };
        if self.clusters_for_data() < 0 { Err(Error::NoSpace) } else { Ok(reservation) }
    }

    /// Clusters that ordinary data never gets: the pool, and root's share for the unprivileged.
    fn kept_back(&self) -> i64 {
        let has_pool = self.has_incompat(Incompat::EXTENTS) && !self.journal.is_off();
        let pool = if has_pool { (self.layout.clusters_count() / 50).min(4096) } else { 0 };
        let ratio = u64::from(self.layout.cluster_ratio());
        let root = if self.privileged { 0 } else { self.at_open.reserved_blocks.div_ceil(ratio) };
        i64::try_from(pool.saturating_add(root)).unwrap_or(i64::MAX)
    }
}
