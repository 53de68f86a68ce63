//! Writes kept in memory on top of a device that stays unchanged.
//!
//! ```text
//!   write ──► page 1   page 4                 in memory, 4 KiB each
//!             ┌────┐   ┌────┐
//!   read  ──► │    │   │    │                 pages first, then the device below
//!        ┌────┴────┴───┴────┴────┬────┐
//!        │  0    1    2   3  4   │ …  │       device: only read
//!        └───────────────────────┴────┘
//! ```

use crate::device::BlockDevice;
use crate::forward;
use crate::range::check_range;
use extant_base::{ByteOffset, IoOp, Result};
use parking_lot::RwLock;
use std::collections::HashMap;
use std::fmt;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering};

const PAGE: u64 = 4096;
const SHARDS: usize = 64;

type Shard = RwLock<HashMap<u64, Box<[u8]>>>;

/// A device whose changes are kept in memory and are lost with it. Recovery of a volume that is
/// opened read-only uses one. It needs about as much memory as was written; only the writer limits
/// that.
pub struct Overlay<D> {
    inner: D,
    shards: Box<[Shard]>,
    held: AtomicU64,
}

impl<D: BlockDevice> Overlay<D> {
    /// An overlay over `inner`, which must not change as long as the overlay uses it.
    pub fn new(inner: D) -> Overlay<D> {
        let shards = (0..SHARDS).map(|_| Shard::default()).collect();
        Overlay { inner, shards, held: AtomicU64::new(0) }
    }

    /// Bytes of changed pages kept in memory.
    pub fn held_bytes(&self) -> u64 {
        self.held.load(Ordering::Relaxed)
    }

    /// Where changes lie, as byte ranges in ascending order: whole pages of 4 KiB, neighbours
    /// joined. Bytes of such a page that were not written are those of the device below.
    pub fn changed_ranges(&self) -> Vec<Range<u64>> {
        let mut pages: Vec<u64> = Vec::new();
        for shard in &self.shards {
            pages.extend(shard.read().keys());
        }
        pages.sort_unstable();
        let mut ranges: Vec<Range<u64>> = Vec::new();
        for page in pages {
            let (start, len) = self.extent_of(page);
            let end = start + len as u64;
            match ranges.last_mut() {
                Some(last) if last.end == start => last.end = end,
                _ => ranges.push(start..end),
            }
        }
        ranges
    }

    /// Drops all changes: everything reads as the device below again. The caller makes sure that no
    /// thread writes meanwhile.
    pub fn forget_changes(&self) {
        for shard in &self.shards {
            shard.write().clear();
        }
        self.held.store(0, Ordering::Relaxed);
    }

    /// Writes to the device below, and to those pages of the range that are kept in memory.
    ///
    /// # Errors
    /// Those of the write to the device below; then the pages in memory are unchanged.
    pub fn write_through(&self, at: ByteOffset, buf: &[u8]) -> Result<()> {
        self.inner.write_at(at, buf)?;
        let end = at.0 + buf.len() as u64;
        for page in at.0 / PAGE..end.div_ceil(PAGE) {
            if let Some(bytes) = self.shard(page).write().get_mut(&page) {
                let start = page * PAGE;
                let (from, to) = (start.max(at.0), (start + PAGE).min(end));
                let within = (from - start) as usize..(to - start) as usize;
                bytes[within].copy_from_slice(&buf[(from - at.0) as usize..(to - at.0) as usize]);
            }
        }
        Ok(())
    }

    /// The device below, without the changes.
    pub fn inner(&self) -> &D {
        &self.inner
    }

    /// Drops the changes and returns the device below.
    pub fn into_inner(self) -> D {
        self.inner
    }

    fn shard(&self, page: u64) -> &Shard {
        &self.shards[page as usize % SHARDS]
    }

    /// The start of `page` and its length. The last page ends at the end of the device.
    fn extent_of(&self, page: u64) -> (u64, usize) {
        let start = page * PAGE;
        (start, PAGE.min(self.inner.len() - start) as usize)
    }
}

impl<D: BlockDevice> BlockDevice for Overlay<D> {
    forward!(self => self.inner; len, alignment, needs_stable_buffers);

    fn read_at(&self, at: ByteOffset, buf: &mut [u8]) -> Result<()> {
        check_range(IoOp::Read, self.len(), at, buf.len() as u64)?;
        if self.held_bytes() == 0 {
            return self.inner.read_at(at, buf);
        }
        let end = at.0 + buf.len() as u64;
        if at.0 / PAGE == end.saturating_sub(1) / PAGE {
            let shard = self.shard(at.0 / PAGE).read();
            if let Some(page) = shard.get(&(at.0 / PAGE)) {
                let within = (at.0 % PAGE) as usize;
                buf.copy_from_slice(&page[within..within + buf.len()]);
                return Ok(());
            }
        }
        self.inner.read_at(at, buf)?;
        for page in at.0 / PAGE..end.div_ceil(PAGE) {
            if let Some(bytes) = self.shard(page).read().get(&page) {
                let start = page * PAGE;
                let (from, to) = (start.max(at.0), (start + PAGE).min(end));
                let within = (from - start) as usize..(to - start) as usize;
                buf[(from - at.0) as usize..(to - at.0) as usize].copy_from_slice(&bytes[within]);
            }
        }
        Ok(())
    }

    fn write_at(&self, at: ByteOffset, buf: &[u8]) -> Result<()> {
        check_range(IoOp::Write, self.len(), at, buf.len() as u64)?;
        let end = at.0 + buf.len() as u64;
        let mut pos = at.0;
        while pos < end {
            let page = pos / PAGE;
            let (start, len) = self.extent_of(page);
            let to = (start + PAGE).min(end);
            let from = &buf[(pos - at.0) as usize..(to - at.0) as usize];
            let mut shard = self.shard(page).write();
            if let Some(bytes) = shard.get_mut(&page) {
                bytes[(pos - start) as usize..(to - start) as usize].copy_from_slice(from);
            } else {
                let mut bytes = vec![0; len].into_boxed_slice();
                if from.len() < len {
                    self.inner.read_at(ByteOffset(start), &mut bytes)?;
                }
                bytes[(pos - start) as usize..(to - start) as usize].copy_from_slice(from);
                shard.insert(page, bytes);
                self.held.fetch_add(len as u64, Ordering::Relaxed);
            }
            pos = to;
        }
        Ok(())
    }

    /// Does nothing: the changes are never durable.
    fn flush(&self) -> Result<()> {
        Ok(())
    }

    /// A range without changed pages is verified by the device below. Any other range has one copy.
    fn read_verified(
        &self,
        at: ByteOffset,
        buf: &mut [u8],
        verify: &dyn Fn(&[u8]) -> bool,
    ) -> Result<bool> {
        let mut pages = at.0 / PAGE..(at.0 + buf.len() as u64).div_ceil(PAGE);
        if self.held_bytes() == 0 || !pages.any(|page| self.shard(page).read().contains_key(&page))
        {
            return self.inner.read_verified(at, buf, verify);
        }
        self.read_at(at, buf)?;
        Ok(verify(buf))
    }
}

impl<D> fmt::Debug for Overlay<D> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let held = self.held.load(Ordering::Relaxed);
        f.debug_struct("Overlay").field("held_bytes", &held).finish_non_exhaustive()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{MemoryDevice, ReadOnly};

    #[test]
    fn the_device_below_stays_as_it_was() {
        let base = MemoryDevice::from_bytes(&[b'a'; 10_000]);
        let overlay = Overlay::new(ReadOnly::new(&base));
        assert_eq!(overlay.held_bytes(), 0);
        overlay.write_at(ByteOffset(4000), &[b'b'; 200]).unwrap();
        overlay.write_at(ByteOffset(9_999), b"c").unwrap();
        overlay.write_at(ByteOffset(4000), b"d").unwrap();
        // Two whole pages, and the last one of 10,000 - 8192 bytes.
        assert_eq!(overlay.held_bytes(), 4096 + 4096 + 1808);

        let mut all = vec![0; 10_000];
        overlay.read_at(ByteOffset(0), &mut all).unwrap();
        let mut want = vec![b'a'; 10_000];
        want[4000..4200].fill(b'b');
        want[4000] = b'd';
        want[9_999] = b'c';
        assert!(all == want);
        let mut one = [0; 3];
        overlay.read_at(ByteOffset(4198), &mut one).unwrap();
        assert_eq!(&one, b"bba");
        assert!(overlay.changed_ranges().iter().eq([&(0..10_000)]));
        overlay.forget_changes();
        assert!(overlay.held_bytes() == 0 && overlay.changed_ranges().is_empty());
        overlay.read_at(ByteOffset(4198), &mut one).unwrap();
        assert_eq!(&one, b"aaa");

        base.read_at(ByteOffset(0), &mut all).unwrap();
        assert!(all == [b'a'; 10_000]);
    }
}
