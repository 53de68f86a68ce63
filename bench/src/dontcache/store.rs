//! The stores that all subjects write to.
//!
//! ```text
//!   file        a file on disk, opened with O_DIRECT; the kernel: a loop device that does so
//!   simulated   memory behind one channel of fixed bandwidth, then a fixed latency
//!
//!        free at ─────┬── bytes / bandwidth ──┬── latency ──►  done
//!                     └ the next transfer begins here
//! ```

use std::io::IoSlice;
use std::path::PathBuf;
use std::sync::{Arc, Mutex};
use std::time::{Duration, Instant};

use anyhow::Result;
use extant::mkfs::{MkfsOptions, format};
use extant::{BlockDevice, Environment, MemoryDevice};
use extant_base::ByteOffset;

use crate::backing::{self, Kept};

/// The storage of a run.
pub(crate) enum Store {
    File(PathBuf),
    Simulated(Arc<Simulated>),
}

impl Store {
    /// A file of `len` bytes with all its blocks allocated, so that no measurement includes that.
    pub(crate) fn file(path: PathBuf, len: u64) -> Result<Store> {
        backing::file(&path, len)?;
        Ok(Store::File(path))
    }

    /// A simulated device of `len` bytes.
    pub(crate) fn simulated(len: u64) -> Result<Store> {
        let device = Simulated { memory: MemoryDevice::new(len), free_at: Mutex::new(None) };
        backing::fill(&device.memory, len)?;
        Ok(Store::Simulated(Arc::new(device)))
    }

    /// The name in the column `store`.
    pub(crate) fn name(&self) -> &'static str {
        match self {
            Store::File(_) => "file",
            Store::Simulated(_) => "simulated",
        }
    }

    /// Opens it past the kernel's cache.
    pub(crate) fn device(&self) -> Result<Arc<dyn BlockDevice>> {
        Ok(match self {
            Store::File(path) => backing::direct(path)?,
            Store::Simulated(device) => Arc::clone(device) as Arc<dyn BlockDevice>,
        })
    }

    /// Makes an empty volume.
    pub(crate) fn format(&self) -> Result<()> {
        let device = Arc::new(Kept(self.device()?));
        format(device, &MkfsOptions::new(), &Environment::default())?;
        Ok(())
    }
}

/// The simulated device of the picture above.
pub(crate) struct Simulated {
    memory: MemoryDevice,
    free_at: Mutex<Option<Instant>>,
}

impl Simulated {
    /// Bytes per second.
    pub(crate) const BANDWIDTH: u64 = 500_000_000;
    /// Time from the last byte to the completion.
    pub(crate) const LATENCY: Duration = Duration::from_micros(100);

    /// Waits as long as the transfer of `bytes` takes.
    fn transfer(&self, bytes: usize) {
        let wide = Duration::from_nanos(bytes as u64 * 1_000_000_000 / Self::BANDWIDTH);
        let now = Instant::now();
        let done = {
            let mut free_at = self.free_at.lock().expect("nobody panics with the lane in hand");
            let begin = free_at.unwrap_or(now).max(now);
            *free_at = Some(begin + wide);
            begin + wide + Self::LATENCY
        };
        std::thread::sleep(done.saturating_duration_since(Instant::now()));
    }
}

impl BlockDevice for Simulated {
    fn len(&self) -> u64 {
        self.memory.len()
    }

    fn read_at(&self, at: ByteOffset, buf: &mut [u8]) -> extant::Result<()> {
        self.memory.read_at(at, buf)?;
        self.transfer(buf.len());
        Ok(())
    }

    fn write_at(&self, at: ByteOffset, buf: &[u8]) -> extant::Result<()> {
        self.memory.write_at(at, buf)?;
        self.transfer(buf.len());
        Ok(())
    }

    fn write_vectored_at(&self, at: ByteOffset, bufs: &[IoSlice<'_>]) -> extant::Result<()> {
        self.memory.write_vectored_at(at, bufs)?;
        self.transfer(bufs.iter().map(|buf| buf.len()).sum());
        Ok(())
    }

    fn flush(&self) -> extant::Result<()> {
        self.transfer(0);
        Ok(())
    }
}
