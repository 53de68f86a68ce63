//! Removal of folios whose bytes are no longer the file's.

use super::{FileCache, Folio, Slot};
use extant_base::lock::WriteGuard;
use extant_base::narrow::fits_usize;
use std::ops::Range;
use std::sync::atomic::Ordering::{AcqRel, Relaxed};

impl FileCache {
    /// Discards every block that overlaps `range`, dirty or not. Removes the folios too, except
    /// those with dirty or writing blocks outside the range. The caller holds the inode lock
    /// exclusively and the file's write-back lock. A reader or writer that waits for a folio's lock
    /// finds it gone and misses.
    pub fn discard(&self, range: Range<u64>) {
        for (number, start) in self.folios_in(range.start, range.end) {
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
        let from = fits_usize(range.start.max(start) - start);
        let to = fits_usize(range.end.min(folio.end()) - start);
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

    /// Removes clean folios that overlap `range`. Returns `false` if some are dirty or under
    /// write-back; the caller then writes them back and calls again. Locks as for
    /// [`FileCache::discard`].
    pub fn drop_clean(&self, range: Range<u64>) -> bool {
        let mut all = true;
        for (number, start) in self.folios_in(range.start, range.end) {
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

    /// Discards the clean blocks that overlap `range`, because they no longer match the device.
    /// Removes the folios too, except those with dirty or writing blocks outside the range. Returns
    /// `false` if some blocks of the range are dirty or under write-back; these stay.
    ///
    /// The caller holds the inode lock, at least shared, or otherwise ensures that the bytes a
    /// reader finds on the device from now on are valid.
    pub fn invalidate(&self, range: Range<u64>) -> bool {
        let mut all = true;
        for (number, start) in self.folios_in(range.start, range.end) {
            let Some(slot) = self.shared.slots.get(number) else { continue };
            let folio = slot.folio.write();
            if !folio.holds(self.id, start) || folio.start() != start {
                continue;
            }
            let from = fits_usize(range.start.max(start) - start);
            let to = fits_usize(range.end.min(folio.end()) - start);
            if folio.is_busy(folio.touched(from, to)) {
                all = false;
            } else {
                self.discard_in(number, slot, folio, &range);
            }
        }
        all
    }

    /// After a failed write: the parts of `range`, in whole blocks, in which no block is dirty or
    /// under write-back. These blocks are no longer backed, so the caller may free their space. A
    /// block that an overwrite through the folios made dirty meanwhile was allocated before the
    /// failed write, so it is excluded.
    ///
    /// The caller holds the inode lock exclusively, so no folio is added and no block becomes
    /// backed meanwhile.
    pub fn forget_clean(&self, range: Range<u64>) -> Vec<Range<u64>> {
        let block = self.block();
        let mut at = range.start / block * block;
        let end = range.end.checked_next_multiple_of(block).unwrap_or(range.end);
        let mut clean = Vec::new();
        for (number, start) in self.folios_in(at, end) {
            let Some(slot) = self.shared.slots.get(number) else { continue };
            let mut folio = slot.folio.write();
            if !folio.holds(self.id, start) || folio.start() != start {
                continue;
            }
            let from = fits_usize(at.max(start) - start);
            let to = fits_usize(end.min(folio.end()) - start);
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

    /// Whether a block that overlaps `range` is dirty or under write-back.
    pub fn is_busy(&self, range: Range<u64>) -> bool {
        self.is_dirty()
            && self.folios_in(range.start, range.end).into_iter().any(|(number, start)| {
                let Some(slot) = self.shared.slots.get(number) else { return false };
                let folio = slot.folio.read();
                let from = fits_usize(range.start.max(start) - start);
                folio.holds(self.id, start) && folio.start() == start && {
                    let to = fits_usize(range.end.min(folio.end()) - start);
                    folio.is_busy(folio.touched(from, to))
                }
            })
    }

    /// Discards the blocks past the block that contains byte `len`, as [`FileCache::discard`] does,
    /// and zeroes the rest of that block. The caller has set the length. Locks as for
    /// [`FileCache::discard`].
    pub fn truncate(&self, len: u64) {
        let block = 1 << self.shared.block_log2;
        let end = len.next_multiple_of(block);
        self.discard(end..u64::MAX);
        if len == end {
            return;
        }
        for (number, start) in self.folios_in(len, end) {
            let Some(slot) = self.shared.slots.get(number) else { continue };
            let mut folio = slot.folio.write();
            if folio.holds(self.id, start) && folio.start() == start {
                let (from, to) = (fits_usize(len - start), fits_usize(end - start));
                folio.bytes_mut()[from..to].fill(0);
            }
        }
    }
}
