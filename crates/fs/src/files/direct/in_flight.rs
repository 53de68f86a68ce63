//! Waiting for direct writes that are in flight.

use crate::files::direct::{DirectIo, DirectSteps};
use crate::state::inode::Body;
use extant_base::lock::WriteGuard;
use std::ops::Range;

impl<'a> DirectIo<'a> {
    /// Returns when no direct write overlaps a block of the bytes `range`. Locks: the caller holds
    /// none above `Write`.
    pub(crate) fn wait_for_direct_writes(self, range: Range<u64>) {
        self.inode.transfers.wait(&self.volume.direct_steps().in_whole_blocks(range), true);
    }

    /// Holds an inode exclusively while no direct write overlaps a block of the bytes `range`.
    /// Locks: takes `Inode`.
    pub(crate) fn write_after_transfers(self, range: Range<u64>) -> WriteGuard<'a, Body> {
        loop {
            let body = self.inode.write();
            if !self
                .inode
                .transfers
                .writes_overlap(&self.volume.direct_steps().in_whole_blocks(range.clone()))
            {
                return body;
            }
            drop(body);
            self.wait_for_direct_writes(range.clone());
        }
    }
}

impl DirectSteps<'_> {
    /// The blocks that `range` touches, in bytes.
    pub(crate) fn in_whole_blocks(self, range: Range<u64>) -> Range<u64> {
        let block = self.volume.block_size().bytes() as u64;
        let end = range.end.checked_next_multiple_of(block).unwrap_or(u64::MAX);
        range.start / block * block..end
    }
}
