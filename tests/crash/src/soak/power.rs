//! A device that loses its power. What was flushed remains, and any part of the rest.
//!
//! ```text
//!   write ──► seen, a file that serves reads
//!        └──► pending, in memory ──flush──► durable, a file: what the medium holds
//!   cut:      some of pending, in order, some torn between sectors ──► durable
//! ```
//!
//! Unlike a recorder it keeps no copy of what is durable, so a run may last for hours. After the
//! cut every request still succeeds, but reaches `seen` alone.

use extant::{BlockDevice, Result};
use extant_base::ByteOffset;
use extant_blockdev::{Dax, FileDevice, FileOptions, LINE_BYTES, PersistenceDomain, Way};
use extant_testkit::rng::Rng;
use std::path::Path;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

/// The most bytes that wait for a flush; then the device makes the older half durable by itself.
pub const PENDING_BYTES: u64 = 8 << 20;
const SECTOR: usize = 512;
const WORD: usize = 8;

/// The power supply that all members of a volume share.
#[derive(Debug)]
pub struct Power {
    off: AtomicBool,
    /// Requests until it fails.
    left: AtomicI64,
}

impl Power {
    /// A power supply that lasts for this many requests.
    pub fn lasting(requests: i64) -> Arc<Power> {
        Arc::new(Power { off: AtomicBool::new(false), left: AtomicI64::new(requests) })
    }

    /// Whether it failed.
    pub fn is_off(&self) -> bool {
        self.off.load(Ordering::SeqCst)
    }

    /// Makes it fail now.
    pub fn cut(&self) {
        self.off.store(true, Ordering::SeqCst);
    }

    fn spend(&self) {
        if self.left.fetch_sub(1, Ordering::SeqCst) == 1 {
            self.cut();
        }
    }
}

#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Until {
    /// Durable by a flush.
    Request,
    /// A cache line that was stored. Nothing has made it durable yet.
    Stored,
    /// A cache line that is being written back. A fence makes it durable.
    OnItsWay,
}

/// A change that is not durable.
#[derive(Debug)]
struct Pending {
    at: u64,
    len: u64,
    /// `None`: zeros.
    bytes: Option<Box<[u8]>>,
    until: Until,
}

impl Pending {
    /// The memory that it takes.
    fn weight(&self) -> u64 {
        self.bytes.as_ref().map_or(64, |bytes| 64 + bytes.len() as u64)
    }

    fn meets(&self, at: u64, len: u64) -> bool {
        self.at < at + len && at < self.at + self.len
    }

    fn apply(&self, to: &FileDevice) -> Result<()> {
        match &self.bytes {
            Some(bytes) => to.write_at(ByteOffset(self.at), bytes),
            None => to.zero(ByteOffset(self.at), self.len),
        }
    }

    /// Applies some of its sectors, or words if it is a cache line.
    fn apply_torn(&self, to: &FileDevice, rng: &mut Rng) -> Result<()> {
        let Some(bytes) = &self.bytes else { return Ok(()) };
        let unit = if self.until == Until::Request { SECTOR } else { WORD };
        let mut at = 0;
        while at < bytes.len() {
            // Units of the medium, not of the write.
            let end = (at + unit - (self.at as usize + at) % unit).min(bytes.len());
            if rng.below(2) == 0 {
                to.write_at(ByteOffset(self.at + at as u64), &bytes[at..end])?;
            }
            at = end;
        }
        Ok(())
    }
}

/// See the picture at the top of the module.
pub struct PowerCut(Arc<Inner>);

struct Inner {
    power: Arc<Power>,
    seen: FileDevice,
    durable: FileDevice,
    pending: Mutex<Waiting>,
}

#[derive(Debug, Default)]
struct Waiting {
    list: Vec<Pending>,
    bytes: u64,
}

impl PowerCut {
    /// A device on the content of the file `durable`; `seen` becomes a copy of it.
    pub fn new(
        power: &Arc<Power>,
        durable: &Path,
        seen: &Path,
    ) -> std::result::Result<Self, String> {
        extant_testkit::scratch::copy_sparse(durable, seen)?;
        let open = |path: &Path| {
            let opened = FileOptions::new().write(true).lock(false).open(path);
            opened.map_err(|e| format!("{}: {e}", path.display()))
        };
        let (seen, durable) = (open(seen)?, open(durable)?);
        let power = Arc::clone(power);
        Ok(PowerCut(Arc::new(Inner { power, seen, durable, pending: Mutex::default() })))
    }

    /// Chooses what of the rest the medium holds after the cut, and writes that.
    pub fn lose(&self, rng: &mut Rng) -> Result<()> {
        assert!(self.0.power.is_off(), "the power is on");
        // From nothing to all.
        let share = rng.below(5);
        for pending in std::mem::take(&mut *self.0.pending()).list {
            match rng.below(4) {
                _ if rng.below(40) == 0 => pending.apply_torn(&self.0.durable, rng)?,
                n if n < share => pending.apply(&self.0.durable)?,
                _ => {}
            }
        }
        self.0.durable.flush()
    }
}

impl Inner {
    fn pending(&self) -> MutexGuard<'_, Waiting> {
        self.pending.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn change(&self, at: u64, len: u64, bytes: Option<&[u8]>, until: Until) -> Result<()> {
        let mut waiting = self.pending();
        let pending = Pending { at, len, bytes: bytes.map(Into::into), until };
        pending.apply(&self.seen)?;
        if self.power.is_off() {
            return Ok(());
        }
        waiting.bytes += pending.weight();
        waiting.list.push(pending);
        if waiting.bytes > PENDING_BYTES {
            let half = waiting.list.len().div_ceil(2);
            for pending in waiting.list.drain(..half).collect::<Vec<_>>() {
                pending.apply(&self.durable)?;
                waiting.bytes -= pending.weight();
            }
        }
        self.power.spend();
        Ok(())
    }

    /// Makes the changes durable for which `is_meant` is true, in order.
    fn make_durable(&self, is_meant: impl Fn(&Pending) -> bool) -> Result<()> {
        let mut waiting = self.pending();
        if self.power.is_off() {
            return Ok(());
        }
        let all = std::mem::take(&mut waiting.list);
        let (now, later): (Vec<_>, Vec<_>) = all.into_iter().partition(is_meant);
        waiting.bytes = later.iter().map(Pending::weight).sum();
        waiting.list = later;
        now.iter().try_for_each(|pending| pending.apply(&self.durable))?;
        self.power.spend();
        Ok(())
    }
}

impl BlockDevice for PowerCut {
    fn len(&self) -> u64 {
        self.0.seen.len()
    }

    fn read_at(&self, at: ByteOffset, buf: &mut [u8]) -> Result<()> {
        self.0.seen.read_at(at, buf)
    }

    fn write_at(&self, at: ByteOffset, buf: &[u8]) -> Result<()> {
        self.0.change(at.0, buf.len() as u64, Some(buf), Until::Request)
    }

    fn flush(&self) -> Result<()> {
        self.0.make_durable(|pending| pending.until == Until::Request)
    }

    fn write_fua(&self, at: ByteOffset, buf: &[u8]) -> Result<()> {
        self.write_at(at, buf)?;
        // Together with the changes that overwrote these bytes.
        let len = buf.len() as u64;
        self.0.make_durable(|pending| pending.until == Until::Request && pending.meets(at.0, len))
    }

    fn discard(&self, at: ByteOffset, len: u64) -> Result<()> {
        self.zero(at, len)
    }

    fn zero(&self, at: ByteOffset, len: u64) -> Result<()> {
        self.0.change(at.0, len, None, Until::Request)
    }

    fn dax(&self, at: ByteOffset, len: u64) -> Option<Arc<dyn Dax>> {
        Some(Arc::new(Window { device: Arc::clone(&self.0), at: at.0, len }))
    }
}

/// A part of the device as persistent memory.
struct Window {
    device: Arc<Inner>,
    at: u64,
    len: u64,
}

impl Dax for Window {
    fn len(&self) -> u64 {
        self.len
    }

    fn store(&self, at: u64, bytes: &[u8]) -> Result<()> {
        let (mut from, mut rest) = (self.at + at, bytes);
        while !rest.is_empty() {
            let (line, after) =
                rest.split_at(rest.len().min((LINE_BYTES - from % LINE_BYTES) as usize));
            self.device.change(from, line.len() as u64, Some(line), Until::Stored)?;
            (from, rest) = (from + line.len() as u64, after);
        }
        Ok(())
    }

    fn load(&self, at: u64, buf: &mut [u8]) -> Result<()> {
        self.device.seen.read_at(ByteOffset(self.at + at), buf)
    }

    fn write_back(&self, at: u64, len: u64) -> Result<()> {
        let mut waiting = self.device.pending();
        let stored = waiting.list.iter_mut().filter(|pending| pending.until == Until::Stored);
        stored
            .filter(|pending| pending.meets(self.at + at, len))
            .for_each(|p| p.until = Until::OnItsWay);
        Ok(())
    }

    fn fence(&self) -> Result<()> {
        self.device.make_durable(|pending| pending.until == Until::OnItsWay)
    }

    fn persistence_domain(&self) -> PersistenceDomain {
        PersistenceDomain::Power
    }

    fn way(&self) -> Way {
        Way::Memory
    }
}
