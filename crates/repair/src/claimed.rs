//! Clusters that maps claim, and those that several claim.
//!
//! ```text
//!   fixed metadata ─┐
//!   maps, nodes ────┴──► usage ── in it already? ──► shared
//! ```

use crate::map::Run;
use crate::usage::Usage;
use crate::volume::Volume;

/// What is in use.
pub(crate) struct Claimed {
    pub(crate) usage: Usage,
    /// What several claim.
    pub(crate) shared: Usage,
}

impl Claimed {
    /// The fixed metadata alone.
    pub(crate) fn of_fixed(volume: &Volume) -> Claimed {
        let mut usage = Usage::new(&volume.geometry);
        let first = volume.geometry.first_data_block().0;
        for run in volume.fixed() {
            usage.add_blocks(run.start.max(first)..run.end.max(first));
        }
        Claimed { usage, shared: Usage::new(&volume.geometry) }
    }

    /// Claims what a map leads to, and its own blocks.
    pub(crate) fn add(&mut self, volume: &Volume, runs: &[Run], nodes: &[u64]) {
        each_cluster(volume, runs, &mut |cluster, _, _| self.add_cluster(cluster));
        nodes.iter().for_each(|node| self.add_block(*node));
    }

    /// Claims the cluster of `block`.
    pub(crate) fn add_block(&mut self, block: u64) {
        self.add_cluster(self.usage.cluster(block));
    }

    fn add_cluster(&mut self, cluster: u64) {
        if !self.usage.add_cluster(cluster) {
            self.shared.add_cluster(cluster);
        }
    }
}

/// Calls `each` with every cluster of data, once for each logical cluster that it holds, with that,
/// and with the run.
pub(crate) fn each_cluster(volume: &Volume, runs: &[Run], each: &mut dyn FnMut(u64, u32, &Run)) {
    let (start, log) = (volume.geometry.first_data_block().0, volume.geometry.log_cluster_ratio());
    let mut last = None;
    for run in runs {
        let mut n = 0;
        while n < run.len {
            let place = (run.physical + u64::from(n)).saturating_sub(start);
            let this = (place >> log, (run.logical + n) >> log);
            if last != Some(this) {
                each(this.0, this.1, run);
            }
            last = Some(this);
            // To the start of the next cluster on the volume.
            let left = (((place >> log) + 1) << log) - place;
            n = n.saturating_add(u32::try_from(left).unwrap_or(u32::MAX));
        }
    }
}
