//! A block whose content is refused, read again from another copy (rule L6): a device of several mirrors has more than one.
//!
//! ```text
//!   cached block ──check──► right                          nothing else is done
//!        │ refused, and still as it was read
//!        ▼
//!   each copy of the device ──check──► right ──► into the cached block, and over the copies that were not
//!        └─ none ──► the first refusal stands
//!
//!   entries with a sum each ──► the best copy as a whole, as above; then each entry from where it is right
//! ```

use crate::cache::meta_block::MetaBlock;
use crate::cache::meta_cache::MetaCache;
use extant_base::Result;
use std::cell::RefCell;

/// What an entry of a block is worth beside another copy of it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Worth {
    /// Its sum does not match.
    Wrong,
    /// Zeros without a sum, where a copy with one is to be believed rather.
    Empty,
    /// Its sum matches, or nothing in it has a meaning.
    Right,
}

impl From<bool> for Worth {
    /// Of an entry that is right or not.
    fn from(is_right: bool) -> Worth {
        if is_right { Worth::Right } else { Worth::Wrong }
    }
}

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
    /// some are worth more than here, and none less; then single entries that are worth more elsewhere, which the device
    /// gets when the block is next written. Without that the entries that nobody asks for would go to all copies with
    /// one that changes.
    ///
    /// `kind` as in [`MetaBlock::set_verified_as`]. Locks: as [`MetaCache::checked`]; `worth` is called with none held.
    #[track_caller]
    pub fn take_best(
        &self,
        block: &MetaBlock,
        kind: u64,
        count: usize,
        worth: &dyn Fn(&[u8], usize) -> Worth,
    ) {
        if !self.has_copies || block.is_verified_as(kind) {
            return;
        }
        let worth_of = |bytes: &[u8]| (0..count).map(|n| worth(bytes, n)).collect::<Vec<_>>();
        let bytes: Box<[u8]> = Box::from(&block.read()[..]);
        let held = worth_of(&bytes);
        if held.iter().any(|worth| *worth < Worth::Right) {
            self.reread(block, &|copy| {
                let found = worth_of(copy);
                found != held && found.iter().zip(&held).all(|(found, held)| found >= held)
            });
            if count > 1 {
                self.merge(block, count, worth);
            }
        }
        block.set_verified_as(kind);
    }

    /// Takes from each copy of a block of `count` entries of one size those that are worth more there.
    #[cold]
    #[track_caller]
    fn merge(&self, block: &MetaBlock, count: usize, worth: &dyn Fn(&[u8], usize) -> Worth) {
        if !block.is_as_read() {
            return;
        }
        let bytes: Box<[u8]> = Box::from(&block.read()[..]);
        let held: Vec<_> = (0..count).map(|n| worth(&bytes, n)).collect();
        if held.iter().all(|worth| *worth == Worth::Right) {
            return;
        }
        let size = bytes.len() / count;
        let mut copy = vec![0; bytes.len()];
        let best = RefCell::new((bytes, held, false));
        let take = |copy: &[u8]| {
            let (bytes, held, changed) = &mut *best.borrow_mut();
            for (n, held) in held.iter_mut().enumerate() {
                let found = worth(copy, n);
                if found > *held {
                    bytes[n * size..][..size].copy_from_slice(&copy[n * size..][..size]);
                    (*held, *changed) = (found, true);
                }
            }
            false
        };
        let at = self.block_size.start_of(block.nr());
        // An error says no more than that there is no such copy.
        let _ = self.device.read_verified(at, &mut copy, &take);
        let (bytes, _, changed) = best.into_inner();
        if changed {
            block.exchange(bytes);
        }
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
