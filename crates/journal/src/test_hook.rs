//! A device for tests that runs an action in the middle of a write.

use crate::test_device::TestDevice;
use extant_base::lock::{Mutex, Rank};
use extant_base::{ByteOffset, Result};
use extant_blockdev::BlockDevice;
use std::sync::Arc;

type Action = Box<dyn FnOnce() + Send>;

/// Runs an action, in a thread of its own, before a forced-unit-access write.
pub(crate) struct Hook {
    inner: Arc<TestDevice>,
    action: Mutex<Option<Action>>,
}

impl Hook {
    pub(crate) fn new(inner: Arc<TestDevice>) -> Hook {
        Hook { inner, action: Mutex::new(Rank::Leaf, None) }
    }

    pub(crate) fn on_next_fua(&self, action: impl FnOnce() + Send + 'static) {
        *self.action.lock() = Some(Box::new(action));
    }

    pub(crate) fn inner(&self) -> &Arc<TestDevice> {
        &self.inner
    }
}

impl BlockDevice for Hook {
    fn len(&self) -> u64 {
        self.inner.len()
    }

    fn read_at(&self, at: ByteOffset, buf: &mut [u8]) -> Result<()> {
        self.inner.read_at(at, buf)
    }

    fn write_at(&self, at: ByteOffset, buf: &[u8]) -> Result<()> {
        self.inner.write_at(at, buf)
    }

    fn flush(&self) -> Result<()> {
        self.inner.flush()
    }

    fn write_fua(&self, at: ByteOffset, buf: &[u8]) -> Result<()> {
        let action = self.action.lock().take();
        if let Some(action) = action {
            std::thread::spawn(action).join().expect("the test's action succeeds");
        }
        self.inner.write_fua(at, buf)
    }
}
