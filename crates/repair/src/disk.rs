//! The volume as the repair sees it: the device below, never changed, and blocks changed in memory.
//!
//! ```text
//!   put(block, bytes) ──► equal to what is there? ── yes ──► nothing
//!                                                  └─ no ──► overlay      the plan is the overlay
//! ```

use extant_base::{BlockNr, BlockSize, ByteOffset, Result};
use extant_blockdev::{BlockDevice, Overlay};
use std::sync::Arc;

/// Reads and writes in blocks of the volume.
#[derive(Clone)]
pub(crate) struct Disk {
    overlay: Arc<Overlay<Arc<dyn BlockDevice>>>,
    block_size: BlockSize,
}

impl Disk {
    /// The volume on `overlay`, whose blocks have this size.
    pub(crate) fn new(overlay: Arc<Overlay<Arc<dyn BlockDevice>>>, block_size: BlockSize) -> Disk {
        Disk { overlay, block_size }
    }

    /// The device with all changes.
    pub(crate) fn device(&self) -> Arc<dyn BlockDevice> {
        Arc::clone(&self.overlay) as Arc<dyn BlockDevice>
    }

    /// Fills `buf` from `at` on.
    pub(crate) fn read_bytes(&self, at: ByteOffset, buf: &mut [u8]) -> Result<()> {
        self.overlay.read_at(at, buf)
    }

    /// Writes `bytes` at `at` if they differ from what is there.
    pub(crate) fn put_bytes(&self, at: ByteOffset, bytes: &[u8]) -> Result<()> {
        let mut now = vec![0; bytes.len()];
        self.overlay.read_at(at, &mut now)?;
        match now == bytes {
            true => Ok(()),
            false => self.overlay.write_at(at, bytes),
        }
    }

    /// One block.
    pub(crate) fn read(&self, block: u64) -> Result<Vec<u8>> {
        let mut bytes = vec![0; self.block_size.bytes()];
        self.overlay.read_at(self.block_size.start_of(BlockNr(block)), &mut bytes)?;
        Ok(bytes)
    }

    /// Writes one block if it differs from what is there.
    pub(crate) fn put(&self, block: u64, bytes: &[u8]) -> Result<()> {
        self.put_bytes(self.block_size.start_of(BlockNr(block)), bytes)
    }
}
