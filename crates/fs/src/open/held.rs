//! A volume held against other hosts while a program writes it past the engine.
//!
//! ```text
//!   HeldDevice::take ──► device(): writes work while this host holds the volume ──► release
//! ```

use crate::context::environment::Environment;
use crate::context::mmp::Hold;
use extant_base::Result;
use extant_blockdev::BlockDevice;
use extant_journal::Watched;
use extant_ondisk::features::Incompat;
use extant_ondisk::superblock::Superblock;
use std::fmt;
use std::sync::Arc;

/// A device whose volume this host holds by multiple mount protection, for a program that writes
/// the device itself. A thread keeps the hold alive. Dropping it releases the volume.
pub struct HeldDevice {
    hold: Hold,
    device: Arc<dyn BlockDevice>,
}

impl HeldDevice {
    /// Takes the volume on `device` that `superblock` describes, for this host. `None` if the
    /// volume has no multiple mount protection. If the last holder did not release the volume, this
    /// waits as long as the volume's intervals demand: 42 seconds and more.
    ///
    /// # Errors
    /// `Held` if another host has the volume; `Corrupt` if the block of the protection is damaged;
    /// `Device`.
    pub fn take(
        device: &Arc<dyn BlockDevice>,
        superblock: &Superblock,
        environment: &Environment,
    ) -> Result<Option<HeldDevice>> {
        if !superblock.features.incompat.contains(Incompat::MMP) {
            return Ok(None);
        }
        let watched = Watched::new(Arc::clone(device)) as Arc<dyn BlockDevice>;
        let hold = Hold::take_block(&watched, superblock, b"", environment)?;
        let device = hold.guard(watched);
        Ok(Some(HeldDevice { hold, device }))
    }

    /// The device. Writes to it fail once another host has, or may have, the volume.
    pub fn device(&self) -> &Arc<dyn BlockDevice> {
        &self.device
    }

    /// Releases the volume. The caller writes nothing to it afterwards.
    ///
    /// # Errors
    /// `Corrupt`, `Device`: the next holder has to wait then.
    pub fn release(self) -> Result<()> {
        self.hold.release()
    }
}

impl fmt::Debug for HeldDevice {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("HeldDevice").field("is_lost", &self.hold.is_lost()).finish_non_exhaustive()
    }
}
