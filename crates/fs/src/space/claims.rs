//! Promises of space: what is free is not all for everybody.
//!
//! ```text
//!   free, no commit to wait for   ├ promised data ┤ maps of it ┤ … pool │ r_blocks │ anybody's ┤
//!   Promised                        may take all
//!   Metadata                        keeps off what is promised
//!   Data                            keeps off it, and off the pool; unprivileged, off r_blocks too
//! ```
//!
//! The pool (a fiftieth, at most 4096 clusters) lets a full volume finish what is under way. What maps promised data is
//! promised, too ([`For::Map`]): the pool stands behind that first, and what goes beyond it keeps others off as data does.
//!
//! Rule F8: clusters that are free without a commit, [`Space::clusters_at_hand`], are never fewer than those promised.
//! Who promises or takes anything unpromised counts what is at hand; frees that wait for a commit come on top. So what
//! was promised is found at write-back, and a writer who needs what waits has the commit made
//! ([`Space::with_space_retry`]). The exceptions, blocks that go back to the dirty data they were taken from
//! ([`Space::reserve_freed`]), are there after one commit.

use crate::space::Space;
use extant_base::{Error, Result};
use extant_ondisk::features::Incompat;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

/// On what right clusters are asked for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Claim {
    /// Out of a [`Reservation`]: anything that is free.
    Promised,
    /// For what maps data and was not promised.
    Metadata,
    /// For data, directories and attributes.
    Data,
    /// For data that is written before the blocks count as used: they are only held. As `Promised`, or as `Metadata`.
    Held {
        /// Out of a [`Reservation`].
        promised: bool,
    },
}

/// What a promise is for.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum For {
    /// Data.
    Data,
    /// What maps it, at worst.
    Map,
}

/// Clusters promised and not yet allocated.
#[derive(Debug, Default)]
pub(crate) struct Reserved {
    data: AtomicI64,
    map: AtomicI64,
}

impl Reserved {
    fn of(&self, what: For) -> &AtomicI64 {
        match what {
            For::Data => &self.data,
            For::Map => &self.map,
        }
    }

    fn data(&self) -> i64 {
        self.data.load(Ordering::SeqCst)
    }

    fn map(&self) -> i64 {
        self.map.load(Ordering::SeqCst)
    }

    /// How many.
    #[cfg(test)]
    pub(crate) fn clusters(&self) -> i64 {
        self.data() + self.map()
    }

    /// How many others see as used, where a pool of `pool` clusters is never seen as free.
    pub(crate) fn beyond(&self, pool: u64) -> i64 {
        let pool = i64::try_from(pool).unwrap_or(i64::MAX);
        self.data() + self.map().saturating_sub(pool).max(0)
    }
}

/// A promise of clusters for data that is not written yet. Dropping it gives back what was not
/// used.
#[derive(Debug)]
pub(crate) struct Reservation {
    reserved: Arc<Reserved>,
    what: For,
    clusters: u64,
}

impl Reservation {
    /// How many are left of it.
    pub(crate) fn clusters(&self) -> u64 {
        self.clusters
    }

    /// Gives `clusters` of the promise back: they were allocated with [`Claim::Promised`], or are not
    /// needed.
    pub(crate) fn give_back(&mut self, clusters: u64) {
        let less = clusters.min(self.clusters);
        self.clusters -= less;
        self.reserved.of(self.what).fetch_sub(less as i64, Ordering::SeqCst);
    }

    /// Takes `clusters` of the promise out, as one of its own.
    pub(crate) fn split(&mut self, clusters: u64) -> Reservation {
        let clusters = clusters.min(self.clusters);
        self.clusters -= clusters;
        Reservation { reserved: Arc::clone(&self.reserved), what: self.what, clusters }
    }

    /// Makes one promise of two, for the same.
    pub(crate) fn join(&mut self, mut other: Reservation) {
        debug_assert_eq!(self.what, other.what);
        self.clusters += std::mem::take(&mut other.clusters);
    }

    /// As [`Reservation::join`], where there may be none yet.
    pub(crate) fn join_to(self, all: &mut Option<Reservation>) {
        match all {
            Some(all) => all.join(self),
            none => *none = Some(self),
        }
    }
}

impl Drop for Reservation {
    fn drop(&mut self) {
        self.give_back(self.clusters);
    }
}

impl Space {
    /// Clusters that are free and wait for no commit. What is kept for files that grow is among them.
    fn clusters_at_hand(&self) -> i64 {
        // In this order: what is freed waits before it is free.
        self.free_clusters.load(Ordering::SeqCst) - self.pending_groups.clusters()
    }

    /// Clusters that may be had on `claim` now.
    fn clusters_for(&self, claim: Claim) -> i64 {
        // In this order: what is taken out of a promise is not free any more before it is not promised any more. Seen the
        // other way round it would be there for others in between.
        let (data, map) = (self.reserved.data(), self.reserved.map());
        let left = self.clusters_at_hand() - data;
        match claim {
            Claim::Data => {
                left - map.max(i64::try_from(self.pool()).unwrap_or(i64::MAX)) - self.for_root()
            }
            _ => left - map,
        }
    }

    fn promised(&self, what: For, clusters: u64) -> Reservation {
        let wanted = i64::try_from(clusters).unwrap_or(i64::MAX >> 1);
        self.reserved.of(what).fetch_add(wanted, Ordering::SeqCst);
        Reservation { reserved: Arc::clone(&self.reserved), what, clusters }
    }

    /// How many of `want` clusters may be allocated on this claim: promised to the caller until it has them, so that
    /// nobody is promised the same meanwhile.
    pub(super) fn grant(&self, claim: Claim, want: u32) -> (u32, Option<Reservation>) {
        match claim {
            Claim::Promised | Claim::Held { promised: true } => (want, None),
            // Counters may be those of a volume that was not closed, until something is written.
            Claim::Metadata | Claim::Held { .. } if !self.has_promised() => (want, None),
            claim => {
                let mut own = self.promised(For::Data, want.into());
                let short = u64::try_from(-self.clusters_for(claim)).unwrap_or(0);
                own.give_back(short);
                (own.clusters as u32, Some(own))
            }
        }
    }

    /// Promises `clusters` clusters to data that is written later.
    ///
    /// Errors: `NoSpace` when they are not at hand.
    pub(crate) fn reserve_clusters(&self, clusters: u64) -> Result<Reservation> {
        self.reserve_with_map(clusters, 0).map(|(data, _)| data)
    }

    /// Promises `data` clusters to data that is written later, and `map` for what maps it at worst: that alone may take from
    /// the pool and what is root's, as its data has room.
    ///
    /// Errors: `NoSpace` when they are not at hand; nothing is promised then.
    pub(crate) fn reserve_with_map(
        &self,
        data: u64,
        map: u64,
    ) -> Result<(Reservation, Reservation)> {
        if data.max(map) > 1 << 48 {
            return Err(Error::NoSpace);
        }
        // Claimed first: of two who ask at once at most one too many is refused.
        let both = (self.promised(For::Data, data), self.promised(For::Map, map));
        let left = match (data, map) {
            (0, 0) => 0,
            (0, _) => self.clusters_for(Claim::Metadata),
            _ => self.clusters_for(Claim::Data),
        };
        if left < 0 { Err(Error::NoSpace) } else { Ok(both) }
    }

    /// Promises `clusters` clusters that are about to be freed, by this caller: whoever else asks meanwhile does not get
    /// them.
    pub(crate) fn reserve_freed(&self, what: For, clusters: u64) -> Reservation {
        self.promised(what, clusters)
    }

    /// Counts clusters that are held and were free as promised.
    pub(super) fn promise_held(&self, clusters: u64) {
        self.reserved.data.fetch_add(clusters as i64, Ordering::SeqCst);
    }

    /// Those clusters are used, or free again.
    pub(super) fn forget_held(&self, clusters: u64) {
        self.reserved.data.fetch_sub(clusters as i64, Ordering::SeqCst);
    }

    /// Whether clusters are promised to anybody.
    pub(crate) fn has_promised(&self) -> bool {
        self.reserved.data() > 0 || self.reserved.map() > 0
    }

    /// Clusters that are kept back for what must not fail.
    pub(crate) fn pool(&self) -> u64 {
        if self.context.journal().is_off() { 0 } else { self.pool_in_use() }
    }

    /// The same, of a volume in use: as many as Linux keeps, which counts what lies before the first data block, too.
    pub(crate) fn pool_in_use(&self) -> u64 {
        let clusters =
            self.context.geometry().blocks_count() >> self.context.geometry().log_cluster_ratio();
        if self.context.has_incompat(Incompat::EXTENTS) { (clusters / 50).min(4096) } else { 0 }
    }

    /// Clusters that the unprivileged never get.
    fn for_root(&self) -> i64 {
        let ratio = u64::from(self.context.geometry().cluster_ratio());
        let root = if self.options.privileged {
            0
        } else {
            self.context.at_open().reserved_blocks.div_ceil(ratio)
        };
        i64::try_from(root).unwrap_or(i64::MAX >> 1)
    }
}
