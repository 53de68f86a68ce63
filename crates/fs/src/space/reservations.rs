//! Reservations of space: which free clusters a request may take.
//!
//! ```text
//!   free without a commit         ├ reserved: data ┤ its map ┤ … pool │ r_blocks │ available ┤
//!   Reserved                        may take all
//!   Metadata                        may not take reserved clusters
//!   Data                            nor those of the pool; an unprivileged volume, nor r_blocks
//! ```
//!
//! The pool (a fiftieth of the volume, at most 4096 clusters) lets a full volume finish the work in
//! progress. The blocks that map reserved data are reserved too ([`ReservedFor::Map`]). The pool
//! covers that reservation first: only the part that exceeds the pool reduces what data may take.
//!
//! Rule F8: the clusters that are free without a commit, see [`FreeSpace::clusters_free_now`], are
//! never fewer than the reserved ones. Code that reserves clusters, or takes clusters without a
//! reservation, counts only clusters that are free now; freed clusters that wait for a commit come
//! on top. So write-back finds the clusters that were reserved for it, and a writer that needs
//! pending clusters makes the commit itself (`Space::with_space_retry`). The exceptions are blocks
//! that return to the dirty data they were taken from (`Space::reserve_freed`): they are free after
//! one commit.

use crate::context::Context;
use crate::space::free_space::FreeSpace;
use extant_base::narrow::fits_u32;
use extant_base::{Error, Result};
use extant_ondisk::features::Incompat;
use std::sync::Arc;
use std::sync::atomic::{AtomicI64, Ordering};

/// Which free clusters a request may take.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Allowance {
    /// From a [`Reservation`]: any free cluster.
    Reserved,
    /// For a map block that has no reservation.
    Metadata,
    /// For data, directories and attributes.
    Data,
    /// For data that is written before its blocks count as used: the blocks are only held.
    /// Otherwise as `Reserved` or as `Metadata`.
    Held {
        /// From a [`Reservation`].
        reserved: bool,
    },
}

/// The purpose of a reservation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum ReservedFor {
    /// Data.
    Data,
    /// The map of data, in the worst case.
    Map,
}

/// Clusters that are reserved and not yet allocated.
#[derive(Debug, Default)]
struct Reserved {
    data: AtomicI64,
    map: AtomicI64,
}

impl Reserved {
    fn of(&self, what: ReservedFor) -> &AtomicI64 {
        match what {
            ReservedFor::Data => &self.data,
            ReservedFor::Map => &self.map,
        }
    }

    fn data(&self) -> i64 {
        self.data.load(Ordering::SeqCst)
    }

    fn map(&self) -> i64 {
        self.map.load(Ordering::SeqCst)
    }

    /// The number of reserved clusters.
    #[cfg(test)]
    fn clusters(&self) -> i64 {
        self.data() + self.map()
    }

    /// How many reserved clusters others see as used. A pool of `pool` clusters never counts as
    /// free.
    fn beyond(&self, pool: u64) -> i64 {
        let pool = i64::try_from(pool).unwrap_or(i64::MAX);
        self.data() + self.map().saturating_sub(pool).max(0)
    }
}

/// A reservation of clusters for data that is not written yet. Dropping it returns the unused rest.
#[derive(Debug)]
pub(crate) struct Reservation {
    reserved: Arc<Reserved>,
    what: ReservedFor,
    clusters: u64,
}

impl Reservation {
    /// The clusters that are left in the reservation.
    pub(crate) fn clusters(&self) -> u64 {
        self.clusters
    }

    /// Returns `clusters` of the reservation: they were allocated with [`Allowance::Reserved`], or
    /// are not needed.
    pub(crate) fn give_back(&mut self, clusters: u64) {
        let less = clusters.min(self.clusters);
        self.clusters -= less;
        self.reserved.of(self.what).fetch_sub(less.cast_signed(), Ordering::SeqCst);
    }

    /// Splits `clusters` off, as a reservation of its own.
    pub(crate) fn split(&mut self, clusters: u64) -> Reservation {
        let clusters = clusters.min(self.clusters);
        self.clusters -= clusters;
        Reservation { reserved: Arc::clone(&self.reserved), what: self.what, clusters }
    }

    /// Adds another reservation for the same purpose to this one.
    pub(crate) fn join(&mut self, mut other: Reservation) {
        debug_assert_eq!(self.what, other.what);
        self.clusters += std::mem::take(&mut other.clusters);
    }

    /// As [`Reservation::join`], for an `all` that may be empty.
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

/// The reservations of a volume.
pub(crate) struct Reservations {
    context: Arc<Context>,
    /// Data may take the blocks that are reserved for root.
    privileged: bool,
    reserved: Arc<Reserved>,
}

impl Reservations {
    pub(super) fn new(context: Arc<Context>, privileged: bool) -> Reservations {
        Reservations { context, privileged, reserved: Arc::default() }
    }

    /// The number of reserved clusters.
    #[cfg(test)]
    pub(super) fn clusters(&self) -> i64 {
        self.reserved.clusters()
    }

    /// How many reserved clusters others see as used.
    pub(super) fn beyond_pool(&self) -> i64 {
        self.reserved.beyond(self.pool())
    }

    /// Clusters that `allowance` may take now.
    fn clusters_for(&self, space: &FreeSpace, allowance: Allowance) -> i64 {
        // A growth adds free clusters first, and raises these two afterwards.
        let (pool, root) = (self.pool(), self.for_root());
        // Read in this order: an allocation from a reservation lowers the free count first and the
        // reservation afterwards. Read the other way round, its clusters would seem free to others
        // meanwhile.
        let (data, map) = (self.reserved.data(), self.reserved.map());
        let left = space.clusters_free_now() - data;
        match allowance {
            Allowance::Data => left - map.max(i64::try_from(pool).unwrap_or(i64::MAX)) - root,
            _ => left - map,
        }
    }

    /// Reserves `clusters` clusters, however many are free.
    pub(super) fn reservation(&self, what: ReservedFor, clusters: u64) -> Reservation {
        let wanted = i64::try_from(clusters).unwrap_or(i64::MAX >> 1);
        self.reserved.of(what).fetch_add(wanted, Ordering::SeqCst);
        Reservation { reserved: Arc::clone(&self.reserved), what, clusters }
    }

    /// How many of `want` clusters this allowance may allocate. They are reserved for the caller
    /// until it has them, so that no other thread reserves the same clusters meanwhile.
    pub(super) fn grant(
        &self,
        space: &FreeSpace,
        allowance: Allowance,
        want: u32,
    ) -> (u32, Option<Reservation>) {
        match allowance {
            Allowance::Reserved | Allowance::Held { reserved: true } => (want, None),
            // The counters may be out of date until something is written, if the volume was not
            // closed cleanly.
            Allowance::Metadata | Allowance::Held { .. } if !self.any() => (want, None),
            allowance => {
                let mut own = self.reservation(ReservedFor::Data, want.into());
                let short = u64::try_from(-self.clusters_for(space, allowance)).unwrap_or(0);
                own.give_back(short);
                (fits_u32(own.clusters), Some(own))
            }
        }
    }

    /// Reserves `data` clusters for data that is written later, and `map` clusters for its map in
    /// the worst case. A call with `data` = 0 may take from the pool and from root's blocks,
    /// because its data has its clusters already.
    ///
    /// Errors: `NoSpace` when fewer are free now; then nothing is reserved.
    pub(super) fn reserve(
        &self,
        space: &FreeSpace,
        data: u64,
        map: u64,
    ) -> Result<(Reservation, Reservation)> {
        if data.max(map) > 1 << 48 {
            return Err(Error::NoSpace);
        }
        // Reserve first, then count: of two callers at the same time, at most one too many is
        // refused.
        let both =
            (self.reservation(ReservedFor::Data, data), self.reservation(ReservedFor::Map, map));
        let left = match (data, map) {
            (0, 0) => 0,
            (0, _) => self.clusters_for(space, Allowance::Metadata),
            _ => self.clusters_for(space, Allowance::Data),
        };
        if left < 0 { Err(Error::NoSpace) } else { Ok(both) }
    }

    /// Counts held clusters, which were free, as reserved.
    pub(super) fn reserve_held(&self, clusters: u64) {
        self.reserved.data.fetch_add(clusters.cast_signed(), Ordering::SeqCst);
    }

    /// Ends that for clusters that are now used, or free again.
    pub(super) fn forget_held(&self, clusters: u64) {
        self.reserved.data.fetch_sub(clusters.cast_signed(), Ordering::SeqCst);
    }

    /// Whether any clusters are reserved.
    pub(crate) fn any(&self) -> bool {
        self.reserved.data() > 0 || self.reserved.map() > 0
    }

    /// Clusters that are kept for work that must not fail.
    pub(crate) fn pool(&self) -> u64 {
        if self.context.journal().is_off() { 0 } else { self.pool_in_use() }
    }

    /// The same for a volume in use: as many as Linux keeps, which also counts the blocks before
    /// the first data block.
    pub(crate) fn pool_in_use(&self) -> u64 {
        let clusters = self.context.usable_blocks() >> self.context.geometry().log_cluster_ratio();
        if self.context.has_incompat(Incompat::EXTENTS) { (clusters / 50).min(4096) } else { 0 }
    }

    /// Clusters that an unprivileged volume never takes.
    fn for_root(&self) -> i64 {
        let ratio = u64::from(self.context.geometry().cluster_ratio());
        let root = if self.privileged { 0 } else { self.context.reserved_blocks().div_ceil(ratio) };
        i64::try_from(root).unwrap_or(i64::MAX >> 1)
    }
}
