//! A device that runs an action before a forced write.

use crate::requests::TestDevice;
use extant_base::{ByteOffset, Result};
use extant_blockdev::{BlockDevice, forward};
use parking_lot::Mutex;
use std::fmt;
use std::sync::Arc;

type Action = Box<dyn FnOnce() + Send>;

/// Runs an action, in a thread of its own, before a forced-unit-access write.
pub struct Hook {
    inner: Arc<TestDevice>,
    action: Mutex<Option<Action>>,
}

impl fmt::Debug for Hook {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Hook").finish_non_exhaustive()
    }
}

impl Hook {
    /// A device that passes operations on to `inner`.
    pub fn new(inner: Arc<TestDevice>) -> Hook {
        Hook { inner, action: Mutex::new(None) }
    }

    /// Runs `action` before the next forced write, which waits for it.
    pub fn on_next_fua(&self, action: impl FnOnce() + Send + 'static) {
        *self.action.lock() = Some(Box::new(action));
    }

    /// The wrapped device.
    pub fn inner(&self) -> &Arc<TestDevice> {
        &self.inner
    }
}

impl BlockDevice for Hook {
    forward!(self => self.inner; len, read_at, write_at, flush);

    fn write_fua(&self, at: ByteOffset, buf: &[u8]) -> Result<()> {
        let action = self.action.lock().take();
        if let Some(action) = action {
            std::thread::spawn(action).join().expect("the test's action succeeds");
        }
        self.inner.write_fua(at, buf)
    }
}
