//! From a tree to a volume whose layout and size are given.

use super::{BuildError, ImageBuilder, copy, load};
use crate::tree::Tree;
use extant::{Environment, Phase, Progress};
use extant_blockdev::BlockDevice;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

impl ImageBuilder {
    /// Makes a volume on `device` and loads `tree` into it. The volume is durable when the call
    /// returns.
    ///
    /// Of this builder, only the options for making volumes and the number of threads count. The
    /// volume has exactly the size and the number of inodes that these options say, and takes UUID,
    /// hash seed and times from them and from `environment`. If the call fails, the device contains
    /// an incomplete volume, or none.
    ///
    /// # Errors
    /// `Engine(NoSpace)` if the volume has too few blocks or inodes; `Stopped`, if another thread
    /// set `stop`; see [`BuildError`].
    pub fn fill(
        &self,
        tree: &Tree,
        device: &Arc<dyn BlockDevice>,
        environment: &Environment,
        progress: &dyn Progress,
        stop: &AtomicBool,
    ) -> Result<(), BuildError> {
        let job =
            load::Job { tree, environment, latest: None, compat: self.compat, progress, stop };
        let loaded = job.load(Arc::clone(device), &job.suit(self.mkfs.clone()))?;
        let size = loaded.block_size;
        progress.begin(Phase::BuildCopy, loaded.piece_bytes(size));
        copy::copy(tree, &**device, size, &loaded.pieces, self.thread_count(), progress, stop)?;
        if stop.load(Ordering::Relaxed) {
            return Err(BuildError::Stopped);
        }
        extant::bulk::checksum_data(device).map_err(BuildError::Engine)?;
        progress.begin(Phase::BuildFlush, 0);
        device.flush().map_err(BuildError::Engine)
    }
}
