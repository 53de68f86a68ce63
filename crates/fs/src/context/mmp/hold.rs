//! A volume held against other hosts: a thread that beats until the volume is closed.
//!
//! ```text
//!   Hold::take ──► thread: wait interval, beat, wait, beat, … ──► Hold::release
//!                              └ lost ──► fence closed: nothing more is written, from anywhere
//! ```

use crate::context::environment::Environment;
use crate::context::mmp::claim::Claim;
use crate::context::superblock::{raw_superblock, read_superblock};
use extant_base::{Error, Result, Site};
use extant_blockdev::{BlockDevice, Fence, Fenced};
use extant_ondisk::features::Incompat;
use extant_ondisk::superblock::SUPERBLOCK_OFFSET;
use parking_lot::{Condvar, Mutex};
use std::sync::Arc;
use std::thread::JoinHandle;
use std::time::Duration;

/// A volume that nobody else may write. Released when it is dropped.
pub(crate) struct Hold {
    beating: Arc<Beating>,
    thread: Mutex<Option<JoinHandle<()>>>,
}

/// What the thread works on. Its locks are inside all others: they guard one block.
struct Beating {
    claim: Mutex<Claim>,
    /// Set when the thread has to end.
    ending: Mutex<bool>,
    wake: Condvar,
    fence: Fence,
}

impl Hold {
    /// Takes the volume on `device` for this host, which knows it as `name`; `None` when it is not
    /// protected, or not one that could be written. May wait as long as the volume's intervals say,
    /// 42 seconds and more, when the last holder did not give it back.
    ///
    /// Errors: `Held`; `MmpBlock`, `MmpChecksum`; `Device`.
    pub(crate) fn take(
        device: &Arc<dyn BlockDevice>,
        name: &[u8],
        environment: &Environment,
    ) -> Result<Option<Hold>> {
        // What is wrong with the superblock is told by whoever opens the volume. A cut can tear it
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
        let node = host_name();
        let who = (node.as_slice(), name);
        let mut claim = Claim::new(Arc::clone(device), &superblock, who, environment.clone())?;
        claim.take(&mut std::thread::sleep)?;
        Ok(Some(Hold::keep(claim)))
    }

    /// Beats from now on.
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
            // Nobody would beat: nothing may be written.
            beating.fence.close();
        }
        Hold { beating, thread: Mutex::new(thread) }
    }

    /// `device`, for as long as the volume is held.
    pub(crate) fn guard(&self, device: Arc<dyn BlockDevice>) -> Arc<dyn BlockDevice> {
        Arc::new(Fenced::new(device, &self.beating.fence))
    }

    /// Whether somebody else took the volume, or may have. Nothing is written any more then.
    pub(crate) fn is_lost(&self) -> bool {
        self.beating.fence.is_closed()
    }

    /// Gives the volume back, once. The caller writes nothing to it from now on.
    ///
    /// Errors: `Device`, `Corrupt`: the next holder has to wait.
    pub(crate) fn release(&self) -> Result<()> {
        *self.beating.ending.lock() = true;
        self.beating.wake.notify_one();
        let Some(thread) = self.thread.lock().take() else { return Ok(()) };
        // A panic there would have been a promise of ours broken; the block is still whole.
        let _ = thread.join();
        if self.is_lost() {
            return Ok(());
        }
        self.beating.claim.lock().release()
    }
}

impl Drop for Hold {
    fn drop(&mut self) {
        // Nobody is left to be told: the next holder waits.
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
                // The check interval is two beats: from the second one on another host may begin.
                Err(_) if missed == 0 => missed = 1,
                Ok(false) | Err(_) => {
                    self.fence.close();
                    return;
                }
            }
        }
    }
}

/// Ends the hold of whoever left it on the volume on `device`.
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

/// This machine's name on its networks; empty where the system does not tell.
fn host_name() -> Vec<u8> {
    let name = std::fs::read("/proc/sys/kernel/hostname").unwrap_or_default();
    name.trim_ascii_end().to_vec()
}
