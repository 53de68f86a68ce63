//! One cached metadata block, and the three ways to hold it.
//!
//! ```text
//!              load done            bytes_mut            write-out copied       written
//!   Loading ─────────────► clean ─────────────► DIRTY ─────────────────► WRITING ──────► clean
//!      │ failed                                   ▲        bytes_mut         │
//!      ▼                                          └──────────────────────────┘
//!   FAILED (out of the table)        any ──forget──► FORGOTTEN (out of the table, never written)
//! ```
//!
//! DIRTY is set with the byte lock held exclusively and cleared with it held shared, so a change
//! falls either into the copy that is being written or makes the block dirty again. Byte locks are
//! of `Rank::Leaf`: while one is held, no other block's bytes, and no block from the cache, can be
//! had. Copy what is needed out first.

use crate::cache::MetaCache;
use crate::handle::Handle;
use extant_base::lock::{Rank, ReadGuard, RwLock, WriteGuard};
use extant_base::{BlockNr, Result};
use std::fmt;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// The content is there.
pub(crate) const LOADED: u32 = 1;
/// Reading the content failed; the block is out of the table.
pub(crate) const FAILED: u32 = 2;
/// The content differs from the device's, and is on its shard's dirty list or about to be.
pub(crate) const DIRTY: u32 = 4;
/// A copy of the content is being written home.
pub(crate) const WRITING: u32 = 8;
/// The block was freed; it is out of the table and is never written.
pub(crate) const FORGOTTEN: u32 = 16;
/// Somebody asked for the block since the clock hand last passed.
pub(crate) const REFERENCED: u32 = 32;

/// The block itself, shared by the table and everyone who holds it.
pub(crate) struct Block {
    pub(crate) nr: BlockNr,
    pub(crate) flags: AtomicU32,
    /// What the content was checked as; 0 = not checked.
    verified_as: AtomicU64,
    pub(crate) bytes: RwLock<Box<[u8]>>,
}

impl Block {
    pub(crate) fn new(nr: BlockNr, flags: u32, bytes: Box<[u8]>) -> Arc<Block> {
        Arc::new(Block {
            nr,
            flags: AtomicU32::new(flags),
            verified_as: AtomicU64::new(0),
            bytes: RwLock::new(Rank::Leaf, bytes),
        })
    }

    pub(crate) fn has(&self, flag: u32) -> bool {
        self.flags.load(Ordering::Acquire) & flag != 0
    }

    /// Lets the clock hand pass this block once more.
    #[inline]
    pub(crate) fn touch(&self) {
        if self.flags.load(Ordering::Relaxed) & REFERENCED == 0 {
            self.flags.fetch_or(REFERENCED, Ordering::Relaxed);
        }
    }

    /// Clears or sets what the content was checked as.
    pub(crate) fn set_verified_as(&self, kind: u64) {
        self.verified_as.store(kind, Ordering::Release);
    }

    /// Marks the block dirty; true when it was not. The caller holds the byte lock exclusively.
    fn mark_dirty(&self) -> bool {
        if self.flags.load(Ordering::Relaxed) & (DIRTY | FORGOTTEN) != 0 {
            return false;
        }
        self.flags
            .fetch_update(Ordering::AcqRel, Ordering::Relaxed, |flags| {
                (flags & (DIRTY | FORGOTTEN) == 0).then_some(flags | DIRTY)
            })
            .is_ok()
    }
}

/// One cached metadata block. A clone is a second reference to the same block; while any lives the
/// block stays in the cache.
#[derive(Clone)]
pub struct MetaBlock {
    block: Arc<Block>,
}

impl MetaBlock {
    pub(crate) fn new(block: Arc<Block>) -> MetaBlock {
        MetaBlock { block }
    }

    /// Where the block lives.
    pub fn nr(&self) -> BlockNr {
        self.block.nr
    }

    /// The bytes, shared with other readers. Locks: takes `Leaf`.
    #[track_caller]
    pub fn read(&self) -> MetaRef<'_> {
        MetaRef { bytes: self.block.bytes.read() }
    }

    /// Permission to change the block under `handle`, which cannot stop while it lives.
    ///
    /// May wait for a commit that still needs the old content, so take it before a `Group` lock.
    /// Spends one of the handle's credits the first time. Errors: `Aborted`.
    pub fn write<'m>(&'m self, handle: &'m Handle<'_>) -> Result<MetaMut<'m>> {
        let cache = handle.journal().cache();
        cache.refuse_if_aborted()?;
        Ok(MetaMut { block: &self.block, cache })
    }

    /// Whether a reader has checked checksum and bounds of this content, and did not say as what.
    pub fn is_verified(&self) -> bool {
        self.is_verified_as(1)
    }

    /// Notes that checksum and bounds of this content are right.
    pub fn set_verified(&self) {
        self.set_verified_as(1);
    }

    /// Whether a reader has checked this content as `kind`. A damaged volume can name one block in
    /// two roles: a `kind` made of the role and the owner (a directory block of inode 12) keeps
    /// the check of one role from counting for the other.
    pub fn is_verified_as(&self, kind: u64) -> bool {
        kind != 0 && self.block.verified_as.load(Ordering::Acquire) == kind
    }

    /// Notes that this content was checked as `kind` (not 0). The last note counts.
    pub fn set_verified_as(&self, kind: u64) {
        debug_assert!(kind != 0, "0 stands for not checked");
        self.block.set_verified_as(kind);
    }
}

impl fmt::Debug for MetaBlock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "MetaBlock({})", self.block.nr)
    }
}

/// Reads a block's bytes.
pub struct MetaRef<'a> {
    bytes: ReadGuard<'a, Box<[u8]>>,
}

impl Deref for MetaRef<'_> {
    type Target = [u8];
    #[inline]
    fn deref(&self) -> &[u8] {
        &self.bytes
    }
}

/// Permission to change a block, under a handle.
pub struct MetaMut<'m> {
    block: &'m Arc<Block>,
    cache: &'m MetaCache,
}

impl<'m> MetaMut<'m> {
    /// Where the block lives.
    pub fn nr(&self) -> BlockNr {
        self.block.nr
    }

    /// The bytes, shared with readers. Locks: takes `Leaf`.
    #[track_caller]
    pub fn bytes(&self) -> MetaRef<'_> {
        MetaRef { bytes: self.block.bytes.read() }
    }

    /// The bytes, for change: the block is dirty from now on. Locks: takes `Leaf`, exclusively.
    #[track_caller]
    pub fn bytes_mut(&self) -> MetaBytesMut<'_> {
        let bytes = self.block.bytes.write();
        let note = self.block.mark_dirty().then(|| DirtyNote::new(self.cache, self.block.nr));
        MetaBytesMut { bytes, _note: note }
    }
}

/// Changes a block's bytes.
pub struct MetaBytesMut<'a> {
    // Order matters: the byte lock goes before the note takes the shard's.
    bytes: WriteGuard<'a, Box<[u8]>>,
    _note: Option<DirtyNote<'a>>,
}

impl Deref for MetaBytesMut<'_> {
    type Target = [u8];
    #[inline]
    fn deref(&self) -> &[u8] {
        &self.bytes
    }
}

impl DerefMut for MetaBytesMut<'_> {
    #[inline]
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.bytes
    }
}

/// Puts a newly dirty block on its shard's list, once its byte lock is released.
struct DirtyNote<'a> {
    cache: &'a MetaCache,
    nr: BlockNr,
}

impl<'a> DirtyNote<'a> {
    fn new(cache: &'a MetaCache, nr: BlockNr) -> DirtyNote<'a> {
        cache.add_dirty_bytes();
        DirtyNote { cache, nr }
    }
}

impl Drop for DirtyNote<'_> {
    fn drop(&mut self) {
        self.cache.note_dirty(self.nr);
    }
}
