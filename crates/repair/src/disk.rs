//! The volume as the repair sees it: the device below, never changed, and blocks changed in memory.
//!
//! ```text
//!   read ──► lines of 16 KiB that were read lately ──► overlay ──► device
//!   put(block, bytes) ──► equal to the block? ── yes ──► nothing is written
//!                                            └─ no ──► overlay         the plan is the overlay
//! ```
//!
//! Most short reads are of one slot of an inode table, and the next one is of a slot near it.
//! Without the lines, each was a call of the system. Long reads are of blocks that lie apart.

use extant_base::narrow::fits_usize;
use extant_base::{BlockNr, BlockSize, ByteOffset, Error, Result};
use extant_blockdev::{BlockDevice, Overlay};
use std::cell::RefCell;
use std::sync::Arc;

/// The most memory that changes may take: a volume can claim that all its blocks are shared, and
/// each copy is a change.
const CHANGES_MAX: u64 = 1 << 30;
/// Bytes of a line; a power of two.
const LINE: u64 = 16 << 10;
/// How many lines are kept: 1 MiB.
const LINES: usize = 64;
/// Reads of so many bytes or more do not go through a line.
const LONG: usize = 4096;

/// Reads and writes in blocks of the volume.
pub(crate) struct Disk {
    overlay: Arc<Overlay<Arc<dyn BlockDevice>>>,
    block_size: BlockSize,
    /// Each line has one place, which its number gives.
    lines: RefCell<Vec<Option<Line>>>,
}

/// Bytes of the volume in memory.
struct Line {
    start: u64,
    bytes: Vec<u8>,
}

impl Disk {
    /// The volume on `overlay`, whose blocks have this size.
    pub(crate) fn new(overlay: Arc<Overlay<Arc<dyn BlockDevice>>>, block_size: BlockSize) -> Disk {
        let lines = RefCell::new((0..LINES).map(|_| None).collect());
        Disk { overlay, block_size, lines }
    }

    /// The device with all changes.
    pub(crate) fn device(&self) -> Arc<dyn BlockDevice> {
        Arc::clone(&self.overlay) as Arc<dyn BlockDevice>
    }

    /// Fills `buf` from `at` on.
    pub(crate) fn read_bytes(&self, at: ByteOffset, buf: &mut [u8]) -> Result<()> {
        let end = at.0.checked_add(buf.len() as u64);
        if buf.len() >= LONG || end.is_none_or(|end| end > self.overlay.len()) {
            return self.overlay.read_at(at, buf);
        }
        let mut at = at.0;
        let mut rest = buf;
        while !rest.is_empty() {
            let within = fits_usize(at % LINE);
            let (part, more) = rest.split_at_mut(rest.len().min(fits_usize(LINE) - within));
            self.read_in_line(at, part)?;
            at += part.len() as u64;
            rest = more;
        }
        Ok(())
    }

    /// Fills `part`, which lies in one line.
    fn read_in_line(&self, at: u64, part: &mut [u8]) -> Result<()> {
        let start = at - at % LINE;
        let mut lines = self.lines.borrow_mut();
        let line = &mut lines[place_of(start)];
        if line.as_ref().is_none_or(|line| line.start != start) {
            let mut bytes = line.take().map_or_else(Vec::new, |line| line.bytes);
            bytes.resize(fits_usize(LINE.min(self.overlay.len() - start)), 0);
            if self.overlay.read_at(ByteOffset(start), &mut bytes).is_err() {
                // A sector of the line cannot be read; it need not be one that is wanted.
                return self.overlay.read_at(ByteOffset(at), part);
            }
            *line = Some(Line { start, bytes });
        }
        let within = fits_usize(at - start);
        let bytes = line.as_ref().and_then(|line| line.bytes.get(within..within + part.len()));
        match bytes {
            Some(bytes) => {
                part.copy_from_slice(bytes);
                Ok(())
            }
            None => self.overlay.read_at(ByteOffset(at), part),
        }
    }

    /// Writes `bytes` at `at`, unless the volume already has them at that place.
    pub(crate) fn put_bytes(&self, at: ByteOffset, bytes: &[u8]) -> Result<()> {
        self.replace(at, bytes).map(drop)
    }

    /// As [`Disk::put_bytes`]. Returns whether the volume had other bytes.
    pub(crate) fn replace(&self, at: ByteOffset, bytes: &[u8]) -> Result<bool> {
        let mut now = vec![0; bytes.len()];
        self.read_bytes(at, &mut now)?;
        if now == bytes {
            return Ok(false);
        }
        if self.overlay.held_bytes() > CHANGES_MAX {
            return Err(Error::NoMemory);
        }
        let mut lines = self.lines.borrow_mut();
        let mut start = at.0 - at.0 % LINE;
        while start < at.0 + bytes.len() as u64 {
            lines[place_of(start)].take_if(|line| line.start == start);
            start += LINE;
        }
        self.overlay.write_at(at, bytes).map(|()| true)
    }

    /// Whether anything differs from the device.
    pub(crate) fn is_changed(&self) -> bool {
        self.overlay.held_bytes() > 0
    }

    /// One block.
    pub(crate) fn read(&self, block: u64) -> Result<Vec<u8>> {
        let mut bytes = vec![0; self.block_size.bytes()];
        self.read_bytes(self.block_size.start_of(BlockNr(block)), &mut bytes)?;
        Ok(bytes)
    }

    /// Writes one block, unless the volume already has these bytes in it.
    pub(crate) fn put(&self, block: u64, bytes: &[u8]) -> Result<()> {
        self.put_bytes(self.block_size.start_of(BlockNr(block)), bytes)
    }
}

/// Where the line that starts at `start` is kept.
fn place_of(start: u64) -> usize {
    fits_usize(start / LINE % LINES as u64)
}
