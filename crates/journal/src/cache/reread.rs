//! Rule L6: a block whose content is refused is read again from another copy. A device of several
//! mirrors has more than one.
//!
//! ```text
//!   cached block ──check──► right                          nothing else is done
//!        │ refused, and not changed since it was read
//!        ▼
//!   each copy of the device ──check──► right ──► into the cached block, and over the wrong copies
//!        └─ none ──► the first error is returned
//!
//!   entries with a checksum each ──► the best copy as a whole, as above; then each
//!                                    entry from a copy in which it is right
//! ```

use crate::cache::meta_block::MetaBlock;
use crate::cache::meta_cache::MetaCache;
use extant_base::Result;
use std::cell::RefCell;

/// How good one copy of an entry is, compared with another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Worth {
    /// Its checksum does not match.
    Wrong,
    /// Zeros without a checksum. A copy with a matching checksum is preferred.
    Empty,
    /// Its checksum matches, or nothing in it has a meaning.
    Right,
}

impl From<bool> for Worth {
    /// `Right` or `Wrong`.
    fn from(is_right: bool) -> Worth {
        if is_right { Worth::Right } else { Worth::Wrong }
    }
}

impl MetaCache {
    /// The result of `check` on the block's content. If `check` refuses content that was read from
    /// the device and accepts another copy, that copy becomes the content of the block and of the
    /// device.
    ///
    /// Locks: takes `Leaf`; reads with none held.
    ///
    /// # Errors
    /// Those of `check`.
    #[track_caller]
    pub fn checked<T>(&self, block: &MetaBlock, check: impl Fn(&[u8]) -> Result<T>) -> Result<T> {
        let checked = check(&block.read());
        if checked.is_ok() || !self.reread(block, &|bytes| check(bytes).is_ok()) {
            return checked;
        }
        check(&block.read())
    }

    /// Improves a block of `count` entries that have a checksum each, once for each time that the
    /// block is read. First it takes a copy in which some entries are better than in the cached
    /// block, and none is worse. Then it takes single entries that are better in other copies; the
    /// device receives those when the block is written next. Without this, a write of one changed
    /// entry would overwrite the right copies of all others.
    ///
    /// `kind` is that of [`MetaBlock::set_verified_as`]. Locks: as [`MetaCache::checked`]; `worth`
    /// is called with none held.
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

    /// Takes from each copy of a block, of `count` entries of one size, the entries that are better
    /// there.
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
        // After an error there is just no such copy.
        let _ = self.device.read_verified(at, &mut copy, &take);
        let (bytes, _, changed) = best.into_inner();
        if changed {
            block.exchange(bytes);
        }
    }

    /// Replaces the content by a copy that `is_good` accepts. Returns whether there was one.
    /// Content that was changed since it was read is kept.
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
        // After an error there is just no such copy.
        let found = self.device.read_verified(at, &mut bytes, is_good).unwrap_or(false);
        found && block.exchange(bytes)
    }
}
