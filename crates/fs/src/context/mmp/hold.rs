//! Holding a volume against other hosts: a thread sends the heartbeat until the volume is closed.
//!
//! ```text
//!   Hold::take ──► thread: wait interval, beat, wait, beat, … ──► Hold::release
//!                              └ lost ──► fence closed: no write reaches the device any more
//! ```

use crate::context::environment::Environment;
use crate::context::mmp::claim::Claim;
use crate::context::superblock::{raw_superblock, read_superblock};
use extant_base::{Error, Result, Site};
use extant_blockdev::{BlockDevice, Fence, Fenced};
use extant_ondisk::features::Incompat;
use extant_ondisk::superblock::{SUPERBLOCK_OFFSET, Superblock};
use parking_lot::{Condvar, Mutex};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

/// Keeps every other host from writing the volume. Dropping it releases the volume.
pub(crate) struct Hold {
    beating: Arc<Beating>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

/// The state of the heartbeat thread. Its locks are inside all others; they guard one block.
struct Beating {
    claim: Mutex<Claim>,
    /// Set when the thread has to end.
    ending: Mutex<bool>,
    wake: Condvar,
    fence: Fence,
}

impl Hold {
    /// Takes the volume on `device` for this host, which knows it as `name`. `None` if the volume
    /// has no protection, or could not be opened for writing anyway. If the last holder did not
    /// release the volume, this waits as long as the volume's intervals demand: 42 seconds and
    /// more.
    ///
    /// Errors: `Held`; `MmpBlock`, `MmpChecksum`; `Device`.
    pub(crate) fn take(
        device: &Arc<dyn BlockDevice>,
        name: &[u8],
        environment: &Environment,
    ) -> Result<Option<Hold>> {
        // Opening the volume reports errors of the superblock. A power cut can tear the superblock
        // (see recovery), but not the fields that matter here.
        let Ok(raw) = raw_superblock(&**device, SUPERBLOCK_OFFSET) else { return Ok(None) };
        let Ok(superblock) = raw.parse(Site::NOWHERE) else { return Ok(None) };
        let features = superblock.features;
        let is_protected = features.incompat.contains(Incompat::MMP);
        let will_open =
            features.unreadable().is_none() && features.all_unwritable().next().is_none();
        if !is_protected || !will_open {
            return Ok(None);
        }
        Hold::take_block(device, &superblock, name, environment).map(Some)
    }

    /// Takes the block that `superblock` names, as [`Hold::take`].
    ///
    /// Errors: as [`Hold::take`].
    pub(crate) fn take_block(
        device: &Arc<dyn BlockDevice>,
        superblock: &Superblock,
        name: &[u8],
        environment: &Environment,
    ) -> Result<Hold> {
        let node = host_name();
        let holder = (node.as_slice(), name);
        let mut claim = Claim::new(Arc::clone(device), superblock, holder, environment.clone())?;
        claim.take(&mut std::thread::sleep)?;
        Ok(Hold::keep(claim))
    }

    /// Starts the heartbeat.
    pub(super) fn keep(claim: Claim) -> Hold {
        let interval = Duration::from_secs(claim.update_interval.into());
        let beating = Arc::new(Beating {
            claim: Mutex::new(claim),
            ending: Mutex::new(false),
            wake: Condvar::new(),
            fence: Fence::new(),
        });
        let its = Arc::clone(&beating);
        let thread = std::thread::Builder::new().name("extant-mmp".into());
        let thread = thread.spawn(move || its.run(interval)).ok();
        if thread.is_none() {
            // Without a heartbeat nothing may be written.
            beating.fence.close();
        }
        Hold { beating, thread: Mutex::new(thread) }
    }

    /// Wraps `device`: writes work only while this host holds the volume.
    pub(crate) fn guard(&self, device: Arc<dyn BlockDevice>) -> Arc<dyn BlockDevice> {
        Arc::new(Fenced::new(device, &self.beating.fence))
    }

    /// Whether another host took the volume, or may have taken it. Then every write is refused.
    pub(crate) fn is_lost(&self) -> bool {
        self.beating.fence.is_closed()
    }

    /// Releases the volume, once. The caller writes nothing to it afterwards.
    ///
    /// Errors: `Device`, `Corrupt`: then the next holder has to wait.
    pub(crate) fn release(&self) -> Result<()> {
        *self.beating.ending.lock() = true;
        self.beating.wake.notify_one();
        let Some(thread) = self.thread.lock().take() else { return Ok(()) };
        // The thread panics only on a bug of ours. The block is intact even then.
        let _ = thread.join();
        if self.is_lost() {
            return Ok(());
        }
        self.beating.claim.lock().release()
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        // No caller is left to get the error. After an error the next holder has to wait.
        let _ = self.release();
    }
}

impl Beating {
    fn run(&self, interval: Duration) {
        let mut missed = 0;
        loop {
            let mut ending = self.ending.lock();
            if !*ending {
                self.wake.wait_for(&mut ending, interval);
            }
            if *ending {
                return;
            }
            drop(ending);
            match self.claim.lock().beat() {
                Ok(true) => missed = 0,
                // The check interval is two heartbeats: after the second one another host may
                // start.
                Err(_) if missed == 0 => missed = 1,
                Ok(false) | Err(_) => {
                    self.fence.close();
                    return;
                }
            }
        }
    }
}

/// Clears a hold that a host left on the volume on `device`.
///
/// Errors: `Invalid` for a volume without multiple mount protection; `Corrupt`, `Device`.
pub(crate) fn clear(device: &Arc<dyn BlockDevice>, environment: &Environment) -> Result<()> {
    let superblock = read_superblock(&**device, None)?;
    if !superblock.features.incompat.contains(Incompat::MMP) {
        return Err(Error::Invalid("the volume has no multiple mount protection"));
    }
    let node = host_name();
    Claim::new(Arc::clone(device), &superblock, (&node, b""), environment.clone())?.clear()
}

/// This machine's host name; empty if the system does not give one.
fn host_name() -> Vec<u8> {
    let name = std::fs::read("/proc/sys/kernel/hostname").unwrap_or_default();
    name.trim_ascii_end().to_vec()
}
