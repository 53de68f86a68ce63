//! Folios that leave because their bytes are no longer the file's.

use super::FileCache;
use crate::folio::Folio;
use crate::slots::Slot;
use extant_base::lock::WriteGuard;
use std::ops::Range;
use std::sync::atomic::Ordering::{AcqRel, Relaxed};

impl FileCache {
    /// Every block that touches `range` leaves, dirty or not, and with them their folios, but for
    /// those with dirty blocks elsewhere. The caller holds the inode alone and the file's
    /// write-back lock. A reader or writer that waits for a folio's lock then misses.
    pub fn discard(&self, range: Range<u64>) {
        for (number, start) in self.listed(range.start, range.end) {
            let Some(slot) = self.shared.slots.get(number) else { continue };
            let folio = slot.folio.write();
            if folio.holds(self.id, start) && folio.start() == start {
                self.discard_in(number, slot, folio, &range);
            }
        }
    }

    fn discard_in(
        &self,
        number: u32,
        slot: &Slot,
        mut folio: WriteGuard<'_, Folio>,
        range: &Range<u64>,
    ) {
        let start = folio.start();
        let from = (range.start.max(start) - start) as usize;
        let to = (range.end.min(folio.end()) - start) as usize;
        let gone = folio.touched(from, to);
        let rest = [0..gone.start, gone.end..folio.blocks()];
        if !rest.into_iter().any(|blocks| folio.is_busy(blocks)) {
            return self.shared.remove(number, slot, folio);
        }
        let (dirty, writing) = folio.discard(gone);
        let marked = slot.marked.load(Relaxed);
        let bytes = |blocks: u32| u64::from(blocks) << self.shared.block_log2;
        if dirty > 0 {
            self.shared.account.discarded(bytes(dirty), marked);
        }
        if writing > 0 {
            self.shared.account.written(bytes(writing), marked);
        }
        if folio.dirty_count() == 0 {
            self.changing.index.lock().dirty.remove(&folio.page());
        }
        let blocks = u64::from(writing) << 32 | u64::from(dirty);
        self.changing.blocks.fetch_sub(blocks, AcqRel);
    }

    /// Clean folios that touch `range` leave. `false`: some are dirty; write back and ask again.
    /// Locks as for [`FileCache::discard`].
    pub fn drop_clean(&self, range: Range<u64>) -> bool {
        let mut all = true;
        for (number, start) in self.listed(range.start, range.end) {
            let Some(slot) = self.shared.slots.get(number) else { continue };
            let folio = slot.folio.write();
            if !folio.holds(self.id, start) || folio.start() != start {
                continue;
            }
            if folio.is_busy(0..folio.blocks()) {
                all = false;
            } else {
                self.shared.remove(number, slot, folio);
            }
        }
        all
    }

    /// Clean blocks that touch `range` leave, and with them folios with no dirty block elsewhere: what they held is
    /// no longer so. `false`: some blocks of the range are dirty or on their way, and stay.
    ///
    /// The caller holds the inode, shared at least, or knows otherwise that what a filling reader finds on the device
    /// from now on is as good.
    pub fn invalidate(&self, range: Range<u64>) -> bool {
        let mut all = true;
        for (number, start) in self.listed(range.start, range.end) {
            let Some(slot) = self.shared.slots.get(number) else { continue };
            let folio = slot.folio.write();
            if !folio.holds(self.id, start) || folio.start() != start {
                continue;
            }
            let from = (range.start.max(start) - start) as usize;
            let to = (range.end.min(folio.end()) - start) as usize;
            if folio.is_busy(folio.touched(from, to)) {
                all = false;
            } else {
                self.discard_in(number, slot, folio, &range);
            }
        }
        all
    }

    /// The parts of `range`, in whole blocks, in which nothing is dirty or on its way to the device: a write that was to
    /// make it so failed. They are no longer backed, so that space may be taken from them. Who made a block of them
    /// dirty meanwhile, through the folios alone, was there before, and it is left out.
    ///
    /// The caller holds the inode alone: no folio comes meanwhile, and nothing is backed again.
    pub fn forget_clean(&self, range: Range<u64>) -> Vec<Range<u64>> {
        let block = self.block();
        let mut at = range.start / block * block;
        let end = range.end.checked_next_multiple_of(block).unwrap_or(range.end);
        let mut clean = Vec::new();
        for (number, start) in self.listed(at, end) {
            let Some(slot) = self.shared.slots.get(number) else { continue };
            let mut folio = slot.folio.write();
            if !folio.holds(self.id, start) || folio.start() != start {
                continue;
            }
            let from = (at.max(start) - start) as usize;
            let to = (end.min(folio.end()) - start) as usize;
            for n in folio.touched(from, to) {
                if !folio.is_busy(n..n + 1) {
                    folio.clear_backed(n..n + 1);
                    continue;
                }
                let busy = start + u64::from(n) * block;
                if at < busy {
                    clean.push(at..busy);
                }
                at = busy + block;
            }
        }
        if at < end {
            clean.push(at..end);
        }
        clean
    }

    /// Whether a block that touches `range` is dirty or on its way to the device.
    pub fn is_busy(&self, range: Range<u64>) -> bool {
        self.is_dirty()
            && self.listed(range.start, range.end).into_iter().any(|(number, start)| {
                let Some(slot) = self.shared.slots.get(number) else { return false };
                let folio = slot.folio.read();
                let from = (range.start.max(start) - start) as usize;
                folio.holds(self.id, start) && folio.start() == start && {
                    let to = (range.end.min(folio.end()) - start) as usize;
                    folio.is_busy(folio.touched(from, to))
                }
            })
    }

    /// The file is cut to `len` bytes: what is behind the block around it leaves as with
    /// [`FileCache::discard`], the rest of that block becomes zeros. The caller sets the length. Locks as for
    /// [`FileCache::discard`].
    pub fn truncate(&self, len: u64) {
        let block = 1 << self.shared.block_log2;
        let end = len.next_multiple_of(block);
        self.discard(end..u64::MAX);
        if len == end {
            return;
        }
        for (number, start) in self.listed(len, end) {
            let Some(slot) = self.shared.slots.get(number) else { continue };
            let mut folio = slot.folio.write();
            if folio.holds(self.id, start) && folio.start() == start {
                let (from, to) = ((len - start) as usize, (end - start) as usize);
                folio.bytes_mut()[from..to].fill(0);
            }
        }
    }
}
