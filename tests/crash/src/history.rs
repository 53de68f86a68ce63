//! What happened in a run: each operation, its position in the device's log, and the volume as it
//! was after it.
//!
//! ```text
//!   views    v0      v1      v2      v3        v0 is the volume before the first operation
//!   steps       op0     op1     op2
//!   log      ───┬───────┬───────┬────────►   each step's first and one-past-last device operation
//!               begin   end
//! ```

use crate::buffered::Contents;
use crate::direct::DirectHow;
use crate::op::Op;
use crate::view::View;
use extant_blockdev::MemoryDevice;
use extant_testdev::Op as DeviceOp;
use std::sync::Arc;

/// One operation that returned.
#[derive(Clone, Debug)]
pub struct Step {
    /// The operation.
    pub op: Op,
    /// The number of device operations when it began.
    pub begin: usize,
    /// The number when it had returned.
    pub end: usize,
    /// The errno with which it failed; the view after it is then equal to the one before.
    pub refused: Option<i32>,
}

/// What must survive a cut.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct Floor {
    /// The oldest view that names and attributes may show.
    pub view: usize,
    /// The oldest view that the bytes of every file may show.
    pub all_data: usize,
    /// The same for single files, by inode.
    pub data: Vec<(u32, usize)>,
}

impl Floor {
    /// The oldest view that the bytes of this inode may show.
    pub fn data_of(&self, ino: u32) -> usize {
        let own = self.data.iter().filter(|(of, _)| *of == ino).map(|(_, view)| *view);
        own.chain([self.all_data]).max().unwrap_or(0)
    }
}

/// A recorded run.
#[derive(Debug)]
pub struct History {
    /// The device before the run.
    pub base: MemoryDevice,
    /// All requests to it.
    pub log: Arc<[DeviceOp]>,
    /// The operations in order; the last may be the closing of the volume.
    pub steps: Vec<Step>,
    /// One more than there are steps; empty if `contents` is set.
    pub views: Vec<Arc<View>>,
    /// The directory that this run is confined to; `/` for the whole volume.
    pub root: String,
    /// Bytes of a block of the volume.
    pub block_bytes: u64,
    /// The bytes of files are those of the view that the names show.
    pub whole_writes: bool,
    /// Nothing commits until a call requires it.
    pub one_transaction: bool,
    /// The content of files, if it went through the page cache.
    pub contents: Option<Contents>,
}

impl History {
    /// What must be there if the power is cut after `completed` device operations.
    pub fn floor(&self, completed: usize) -> Floor {
        let mut floor = Floor::default();
        for (n, step) in self.steps.iter().enumerate() {
            if step.end > completed || step.refused.is_some() {
                continue;
            }
            let view = n + 1;
            match &step.op {
                Op::Sync => {
                    floor.view = view;
                    floor.all_data = view;
                }
                Op::Fsync { path }
                | Op::Fdatasync { path }
                | Op::DirectWrite { path, how: DirectHow::Synced, .. } => {
                    let Some(ino) = self.views[view].names.get(path) else { continue };
                    let only_data = !matches!(step.op, Op::Fsync { .. });
                    floor.view = floor.view.max(self.last_change(*ino, view, only_data));
                    floor.data.push((*ino, view));
                }
                _ => {}
            }
        }
        floor
    }

    /// The newest view that can be on a device that received `cut` operations.
    pub fn newest(&self, cut: usize) -> usize {
        self.steps.iter().take_while(|step| step.begin < cut).count()
    }

    /// The view up to `until` in which this inode changed last. With `only_data`, a change of
    /// times, owner or the like does not count: fdatasync need not keep it.
    fn last_change(&self, ino: u32, until: usize, only_data: bool) -> usize {
        let node = |view: usize| self.views[view].inodes.get(&ino);
        let changed = |view: &usize| match (node(view - 1), node(*view)) {
            (Some(before), Some(after)) if only_data => {
                before.attributes.size != after.attributes.size || before.extents != after.extents
            }
            (before, after) => before != after,
        };
        (1..=until).rev().find(changed).unwrap_or(0)
    }
}
