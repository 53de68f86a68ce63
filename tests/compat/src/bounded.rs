//! A device in memory that limits how many transfers one step may request.

use extant::{BlockDevice, MemoryDevice, Result};
use extant_base::ByteOffset;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// The most transfers that a whole script may make on a volume of a few MiB.
const TRANSFERS_MAX: u64 = 3_000_000;

/// A device in memory that counts transfers.
#[derive(Debug)]
pub struct Bounded {
    inner: MemoryDevice,
    transfers: AtomicU64,
}

impl Bounded {
    /// A device with the content `bytes`.
    pub fn new(bytes: &[u8]) -> Arc<Bounded> {
        Bounded::over(MemoryDevice::from_bytes(bytes))
    }

    /// A device with the content of `inner`.
    pub fn over(inner: MemoryDevice) -> Arc<Bounded> {
        Arc::new(Bounded { inner, transfers: AtomicU64::new(0) })
    }

    /// All its bytes.
    pub fn bytes(&self) -> Vec<u8> {
        let mut bytes = vec![0; self.inner.len() as usize];
        self.inner.read_at(ByteOffset(0), &mut bytes).expect("memory");
        bytes
    }

    fn count(&self) {
        let transfers = self.transfers.fetch_add(1, Ordering::Relaxed);
        assert!(transfers < TRANSFERS_MAX, "{transfers} transfers: something runs in circles");
    }
}

impl BlockDevice for Bounded {
    fn len(&self) -> u64 {
        self.inner.len()
    }
    fn read_at(&self, at: ByteOffset, buf: &mut [u8]) -> Result<()> {
        self.count();
        self.inner.read_at(at, buf)
    }
    fn write_at(&self, at: ByteOffset, buf: &[u8]) -> Result<()> {
        self.count();
        self.inner.write_at(at, buf)
    }
    fn flush(&self) -> Result<()> {
        Ok(())
    }
}
