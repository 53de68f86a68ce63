//! A block whose content is refused, read again from another copy: a device of several mirrors has more than one.
//!
//! ```text
//!   cached block ──check──► right                          nothing else is done
//!        │ refused, and still as it was read
//!        ▼
//!   each copy of the device ──check──► right ──► into the cached block, and over the copies that were not
//!        └─ none ──► the first refusal stands
//! ```

use crate::cache::MetaCache;
use crate::meta_block::MetaBlock;
use extant_base::Result;

impl MetaCache {
    /// What `check` makes of the block. Where it refuses what was read from the device, and another copy there is one that
    /// it takes, that is the block's content from then on, and the device's.
    ///
    /// Errors: those of `check`. Locks: takes `Leaf`; reads with none held.
    #[track_caller]
    pub fn checked<T>(&self, block: &MetaBlock, check: impl Fn(&[u8]) -> Result<T>) -> Result<T> {
        let checked = check(&block.read());
        if checked.is_ok() || !self.reread(block, &|bytes| check(bytes).is_ok()) {
            return checked;
        }
        check(&block.read())
    }

    /// Of a block of `count` entries with a sum each: takes, once for each time that the block is read, a copy in which
    /// some are right that are not here, and none is wrong that is right here. Without that the entries that nobody asks
    /// for would go to all copies with one that changes.
    ///
    /// `kind` as in [`MetaBlock::set_verified_as`]. Locks: as [`MetaCache::checked`].
    #[track_caller]
    pub fn take_best(
        &self,
        block: &MetaBlock,
        kind: u64,
        count: usize,
        is_right: &dyn Fn(&[u8], usize) -> bool,
    ) {
        if !self.has_copies || block.is_verified_as(kind) {
            return;
        }
        let wrong: Vec<usize> = {
            let held = block.read();
            (0..count).filter(|n| !is_right(&held, *n)).collect()
        };
        if !wrong.is_empty() {
            self.reread(block, &|copy| {
                let better = wrong.iter().any(|n| is_right(copy, *n));
                better && (0..count).all(|n| wrong.contains(&n) || is_right(copy, n))
            });
        }
        block.set_verified_as(kind);
    }

    /// Puts a copy into the block for which `is_good` says yes; whether there was one. What others changed since it was
    /// read stays.
    ///
    /// Locks: as [`MetaCache::checked`].
    #[cold]
    #[track_caller]
    pub fn reread(&self, block: &MetaBlock, is_good: &dyn Fn(&[u8]) -> bool) -> bool {
        if !self.has_copies || !block.is_as_read() {
            return false;
        }
        let mut bytes = vec![0; self.block_size.bytes()].into_boxed_slice();
        let at = self.block_size.start_of(block.nr());
        // An error says no more than that there is no such copy.
        let found = self.device.read_verified(at, &mut bytes, is_good).unwrap_or(false);
        found && block.exchange(bytes)
    }
}
