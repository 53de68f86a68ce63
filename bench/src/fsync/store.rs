//! The store that extant writes to: a file in memory with counters and, on request, the cost of a
//! disk.
//!
//! ```text
//!   write    bytes ─► counted ─► 1 GB/s, one channel ─► the file
//!   flush    one   ─► counted ─► 20 us                ─► the file
//!   ring     lines written back, counted              ─► the file's own memory, at its real cost
//! ```

use std::io::IoSlice;
use std::path::Path;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use anyhow::Result;
use extant::dax::DaxMode;
use extant::{BlockDevice, FileOptions};
use extant_base::ByteOffset;
use extant_blockdev::{Dax, PersistenceDomain, Way};

/// Cost of a write and a flush in addition to that of the file.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) enum Price {
    None,
    /// The cost on a virtual disk.
    Disk,
}

impl Price {
    /// The name in the column `store`.
    pub(crate) fn name(self) -> &'static str {
        match self {
            Price::None => "tmpfs",
            Price::Disk => "simulated",
        }
    }
}

/// Totals that have reached a device.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Counts {
    pub bytes: u64,
    pub flushes: u64,
}

/// The store of the picture above.
pub(crate) struct Store {
    file: Arc<dyn BlockDevice>,
    price: Price,
    /// When the channel is free again.
    lane: Mutex<Option<Instant>>,
    bytes: Arc<AtomicU64>,
    flushes: AtomicU64,
}

impl Store {
    /// Nanoseconds for each byte.
    const BYTE_NANOS: u64 = 1;
    /// Duration of a flush.
    const FLUSH: Duration = Duration::from_micros(20);

    /// Opens the file, which can be mapped as memory.
    pub(crate) fn open(path: &Path, price: Price) -> Result<Arc<Store>> {
        let file = Arc::new(FileOptions::new().write(true).dax(DaxMode::Always).open(path)?);
        let lane = Mutex::new(None);
        let (bytes, flushes) = Default::default();
        Ok(Arc::new(Store { file, price, lane, bytes, flushes }))
    }

    /// Totals that have reached it.
    pub(crate) fn counts(&self) -> Counts {
        Counts {
            bytes: self.bytes.load(Ordering::Relaxed),
            flushes: self.flushes.load(Ordering::Relaxed),
        }
    }

    fn wrote(&self, bytes: usize) {
        self.bytes.fetch_add(bytes as u64, Ordering::Relaxed);
        if self.price == Price::Disk {
            self.pass(Duration::from_nanos(bytes as u64 * Store::BYTE_NANOS));
        }
    }

    fn flushed(&self) {
        self.flushes.fetch_add(1, Ordering::Relaxed);
        if self.price == Price::Disk {
            self.pass(Store::FLUSH);
        }
    }

    /// Occupies the channel for `time`. Sleeping for so short a time takes several times as long,
    /// so short waits spin and yield the processor.
    fn pass(&self, time: Duration) {
        let until = {
            let mut lane = self.lane.lock().expect("nobody panics with the lane in hand");
            let now = Instant::now();
            let until = lane.unwrap_or(now).max(now) + time;
            *lane = Some(until);
            until
        };
        loop {
            let left = until.saturating_duration_since(Instant::now());
            if left.is_zero() {
                return;
            }
            match left > Duration::from_millis(1) {
                true => std::thread::sleep(left - Duration::from_micros(500)),
                false => std::thread::yield_now(),
            }
        }
    }
}

impl BlockDevice for Store {
    fn len(&self) -> u64 {
        self.file.len()
    }

    fn read_at(&self, at: ByteOffset, buf: &mut [u8]) -> extant::Result<()> {
        self.file.read_at(at, buf)
    }

    fn write_at(&self, at: ByteOffset, buf: &[u8]) -> extant::Result<()> {
        self.file.write_at(at, buf)?;
        self.wrote(buf.len());
        Ok(())
    }

    fn write_vectored_at(&self, at: ByteOffset, bufs: &[IoSlice<'_>]) -> extant::Result<()> {
        self.file.write_vectored_at(at, bufs)?;
        self.wrote(bufs.iter().map(|buf| buf.len()).sum());
        Ok(())
    }

    fn flush(&self) -> extant::Result<()> {
        self.file.flush()?;
        self.flushed();
        Ok(())
    }

    fn dax(&self, at: ByteOffset, len: u64) -> Option<Arc<dyn Dax>> {
        let window = self.file.dax(at, len)?;
        Some(Arc::new(Counted { window, bytes: Arc::clone(&self.bytes) }))
    }
}

/// A mapped window that counts lines when they are written back.
struct Counted {
    window: Arc<dyn Dax>,
    bytes: Arc<AtomicU64>,
}

impl Dax for Counted {
    fn len(&self) -> u64 {
        self.window.len()
    }

    fn store(&self, at: u64, bytes: &[u8]) -> extant::Result<()> {
        self.window.store(at, bytes)
    }

    fn load(&self, at: u64, buf: &mut [u8]) -> extant::Result<()> {
        self.window.load(at, buf)
    }

    fn write_back(&self, at: u64, len: u64) -> extant::Result<()> {
        self.bytes.fetch_add(len, Ordering::Relaxed);
        self.window.write_back(at, len)
    }

    fn fence(&self) -> extant::Result<()> {
        self.window.fence()
    }

    fn persistence_domain(&self) -> PersistenceDomain {
        self.window.persistence_domain()
    }

    fn way(&self) -> Way {
        self.window.way()
    }
}
