//! Promises of space: what is free is not all for everybody.
//!
//! ```text
//!   free clusters   ├ reserved for delayed data ┤ pool │ r_blocks │ anybody's ┤
//!   trees, reserved data       may take all
//!   data, names, attributes    keep off what others reserved, and off the pool
//!   the same, unprivileged     and off r_blocks
//! ```
//!
//! The pool (a fiftieth, at most 4096 clusters) lets a full volume finish what is under way: trees
//! that grow, unwritten blocks that become written. Without a log nothing is kept back.

use crate::volume::Volume;
use extant_base::{Error, Result};
use extant_ondisk::features::Incompat;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

/// On what right clusters are asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Claim {
    /// For trees, or out of a [`Reservation`]: anything that is free.
    Metadata,
    /// For data, directories and attributes.
    Data,
    /// Out of a [`Reservation`], for data that is written before the blocks count as used: they are only held.
    Held,
}

/// Clusters promised and not yet allocated.
#[derive(Debug, Default)]
pub(crate) struct Reserved(AtomicI64);

impl Reserved {
    /// How many.
    pub(crate) fn clusters(&self) -> i64 {
        self.0.load(Ordering::Relaxed)
    }
}

/// A promise of clusters for data that is not written yet. Dropping it gives back what was not
/// used.
#[derive(Debug)]
pub(crate) struct Reservation {
    reserved: Arc<Reserved>,
    clusters: u64,
}

impl Reservation {
    /// Gives `clusters` of the promise back: they were allocated with [`Claim::Metadata`], or are not
    /// needed.
    pub(crate) fn give_back(&mut self, clusters: u64) {
        let less = clusters.min(self.clusters);
        self.clusters -= less;
        self.reserved.0.fetch_sub(less as i64, Ordering::Relaxed);
    }

    /// Takes `clusters` of the promise out, as one of its own.
    pub(crate) fn split(&mut self, clusters: u64) -> Reservation {
        let clusters = clusters.min(self.clusters);
        self.clusters -= clusters;
        Reservation { reserved: Arc::clone(&self.reserved), clusters }
    }

    /// Makes one promise of two.
    pub(crate) fn join(&mut self, mut other: Reservation) {
        self.clusters += std::mem::take(&mut other.clusters);
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        self.give_back(self.clusters);
    }
}

impl Volume {
    /// Clusters that data may have now.
    fn clusters_for_data(&self) -> i64 {
        let free = self.free_clusters.load(Ordering::Relaxed);
        free - self.reserved.0.load(Ordering::Relaxed) - self.kept_back()
    }

    /// How many of `want` clusters may be allocated on this claim: promised to the caller until it has them, so that
    /// nobody is promised the same meanwhile.
    pub(super) fn grant(&self, claim: Claim, want: u32) -> (u32, Option<Reservation>) {
        match claim {
            Claim::Metadata | Claim::Held => (want, None),
            Claim::Data => {
                self.reserved.0.fetch_add(i64::from(want), Ordering::Relaxed);
                let reserved = Arc::clone(&self.reserved);
                let mut own = Reservation { reserved, clusters: want.into() };
                let short = u64::try_from(-self.clusters_for_data()).unwrap_or(0);
                own.give_back(short);
                (own.clusters as u32, Some(own))
            }
        }
    }

    /// Promises `clusters` clusters to data that is written later.
    ///
    /// Errors: `NoSpace` when they are not there.
    pub(crate) fn reserve_clusters(&self, clusters: u64) -> Result<Reservation> {
        let wanted = i64::try_from(clusters).map_err(|_| Error::NoSpace)?;
        // Claimed first: of two who ask at once at most one too many is refused.
        self.reserved.0.fetch_add(wanted, Ordering::Relaxed);
        let reservation = Reservation { reserved: Arc::clone(&self.reserved), clusters };
        if self.clusters_for_data() < 0 { Err(Error::NoSpace) } else { Ok(reservation) }
    }

    /// Promises `clusters` clusters that were freed just now, or will be with the next commit: whoever else asks
    /// meanwhile does not get them.
    pub(crate) fn reserve_freed(&self, clusters: u64) -> Reservation {
        self.reserved.0.fetch_add(clusters as i64, Ordering::Relaxed);
        Reservation { reserved: Arc::clone(&self.reserved), clusters }
    }

    /// Counts clusters that are held and were free as promised.
    pub(super) fn promise_held(&self, clusters: u64) {
        self.reserved.0.fetch_add(clusters as i64, Ordering::Relaxed);
    }

    /// Those clusters are used, or free again.
    pub(super) fn forget_held(&self, clusters: u64) {
        self.reserved.0.fetch_sub(clusters as i64, Ordering::Relaxed);
    }

    /// Whether clusters are promised to anybody.
    pub(crate) fn has_promised(&self) -> bool {
        self.reserved.clusters() > 0
    }

    /// Whether clusters are kept back for what must not fail.
    pub(crate) fn has_pool(&self) -> bool {
        self.has_incompat(Incompat::EXTENTS) && !self.journal.is_off()
    }

    /// Clusters that ordinary data never gets: the pool, and root's share for the unprivileged.
    fn kept_back(&self) -> i64 {
        let pool = if self.has_pool() { (self.layout.clusters_count() / 50).min(4096) } else { 0 };
        let ratio = u64::from(self.layout.cluster_ratio());
        let root = if self.privileged { 0 } else { self.at_open.reserved_blocks.div_ceil(ratio) };
        i64::try_from(pool.saturating_add(root)).unwrap_or(i64::MAX)
    }
}
