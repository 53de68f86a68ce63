//! The transfers of one call: the caller prepares the next ones while the device works on those
//! before.
//!
//! ```text
//!   next() ─► in flight, up to AHEAD ─► landed()     in the caller's thread: copies, checksums
//!             io_uring, or one after the other
//! ```
//!
//! Rings are kept for the next call, because setting up a ring costs more than a short transfer. A
//! forked process does not have the memory of its parent's rings mapped, so it sets up its own.

use super::now::{transfer_checked, whole_for_kernel};
use super::ring::Ring;
use super::{Completion, Request};
use crate::device::BlockDevice;
use io_uring::IoUring;
use parking_lot::Mutex;

/// The most transfers of one call in flight.
const AHEAD: usize = 16;
/// The most rings that are kept for later calls.
const IDLE_MAX: usize = 8;

static IDLE: Mutex<Idle> = Mutex::new(Idle { process: 0, rings: Vec::new() });

struct Idle {
    process: u32,
    rings: Vec<IoUring>,
}

impl Idle {
    /// The rings of this process. Those of its parent are not dropped: dropping them would access
    /// their memory.
    fn rings(&mut self) -> &mut Vec<IoUring> {
        let process = std::process::id();
        if self.process != process {
            std::mem::take(&mut self.rings).into_iter().for_each(std::mem::forget);
            self.process = process;
        }
        &mut self.rings
    }
}

/// Runs the transfers that `next` returns, several at a time where the device has a descriptor.
/// Passes each to `landed` when it has ended, in any order, and returns when all have ended. After
/// a failure `next` is not called again.
pub fn transfer_all<'m>(
    device: &dyn BlockDevice,
    mut next: impl FnMut() -> Option<Request<'m>>,
    mut landed: impl FnMut(Completion<'m>),
) {
    let mut ring = device.descriptor().and_then(|_| ring());
    let mut well = true;
    let mut finish = |done: Completion<'m>, well: &mut bool| {
        *well &= done.result.is_ok();
        landed(done);
    };
    while well && let Some(mut request) = next() {
        if let Err(error) = request.check(device) {
            finish(Completion { request, result: Err(error) }, &mut well);
            continue;
        }
        let (Some(ring), Some(target)) = (&mut ring, whole_for_kernel(device, &request)) else {
            let result = transfer_checked(device, &mut request);
            finish(Completion { request, result }, &mut well);
            continue;
        };
        if ring.under_way() == AHEAD
            && let Some(done) = ring.wait(device)
        {
            finish(done, &mut well);
        }
        ring.submit(target, request);
        ring.kick();
    }
    let Some(mut ring) = ring else { return };
    while let Some(done) = ring.wait(device) {
        finish(done, &mut well);
    }
    let Some(mut idle) = IDLE.try_lock() else { return };
    let rings = idle.rings();
    if rings.len() < IDLE_MAX {
        rings.extend(ring.into_idle());
    }
}

fn ring<'m>() -> Option<Ring<'m>> {
    let idle = IDLE.try_lock().and_then(|mut idle| idle.rings().pop());
    match idle {
        Some(idle) => Some(Ring::around(idle, AHEAD)),
        None => Ring::new(AHEAD).ok(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_child_does_not_use_the_rings_of_its_parent() {
        let parent = std::process::id() + 1;
        let mut idle = Idle { process: parent, rings: IoUring::new(2).into_iter().collect() };
        assert!(idle.rings().is_empty());
        idle.rings().extend(IoUring::new(2));
        let kept = idle.rings.len();
        assert_eq!((idle.rings().len(), idle.process), (kept, std::process::id()));
    }
}
