//! The three ways to hold a cached metadata block.
//!
//! ```text
//!   MetaBlock ──read()──► MetaRef                                       shared bytes
//!       └──write(&handle)──► MetaMut ──bytes_mut()──► MetaBytesMut      exclusive bytes
//!                             permission                 joins the running transaction
//! ```
//!
//! Byte locks are of `Rank::Leaf`: while one is held, no other block's bytes, and no block from the
//! cache, can be had. Copy what is needed out first.

use crate::block::{Block, Content};
use crate::cache::MetaCache;
use crate::handle::Handle;
use extant_base::lock::{ReadGuard, WriteGuard};
use extant_base::{BlockNr, Result};
use std::fmt;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;

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
        MetaRef { content: self.block.content.read() }
    }

    /// Permission to change the block under `handle`, which cannot stop while it lives.
    ///
    /// Never waits: content that a commit still needs is copied aside when it changes. The first
    /// change spends one of the handle's credits. Errors: `Aborted`.
    pub fn write<'m>(&'m self, handle: &'m Handle<'_>) -> Result<MetaMut<'m>> {
        handle.journal().cache().refuse_if_aborted()?;
        handle.refuse_if_stopped()?;
        Ok(MetaMut { block: &self.block, handle })
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
        kind != 0 && self.block.verified_as() == kind
    }

    /// Whether the content is the device's: read, and not changed since.
    pub(crate) fn is_as_read(&self) -> bool {
        self.block.is_as_read()
    }

    /// Puts another copy in place of content that [is as it was read](Self::is_as_read); whether it still was.
    #[track_caller]
    pub(crate) fn exchange(&self, bytes: Box<[u8]>) -> bool {
        self.block.exchange(bytes)
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
    content: ReadGuard<'a, Content>,
}

impl std::fmt::Debug for MetaRef<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("MetaRef").finish_non_exhaustive()
    }
}

impl Deref for MetaRef<'_> {
    type Target = [u8];
    #[inline]
    fn deref(&self) -> &[u8] {
        &self.content.bytes
    }
}

/// Permission to change a block, under a handle.
pub struct MetaMut<'m> {
    block: &'m Arc<Block>,
    handle: &'m Handle<'m>,
}

impl std::fmt::Debug for MetaMut<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("MetaMut").field("nr", &self.nr()).finish_non_exhaustive()
    }
}

impl<'m> MetaMut<'m> {
    /// Where the block lives.
    pub fn nr(&self) -> BlockNr {
        self.block.nr
    }

    /// The bytes, shared with readers. Locks: takes `Leaf`.
    #[track_caller]
    pub fn bytes(&self) -> MetaRef<'_> {
        MetaRef { content: self.block.content.read() }
    }

    /// The bytes, for change: the block is part of the handle's transaction from now on, or dirty
    /// without a log. Locks: takes `Leaf`, exclusively.
    #[track_caller]
    pub fn bytes_mut(&self) -> MetaBytesMut<'_> {
        let mut content = self.block.content.write();
        let newly_dirty = match self.handle.has_log() {
            true => {
                self.handle.join(self.block, &mut content);
                false
            }
            false => self.block.mark_dirty(),
        };
        let cache = self.handle.journal().cache();
        let note = newly_dirty.then(|| DirtyNote::new(cache, self.block.nr));
        MetaBytesMut { content, _note: note }
    }
}

/// Changes a block's bytes.
pub struct MetaBytesMut<'a> {
    // Order matters: the byte lock goes before the note takes the shard's.
    content: WriteGuard<'a, Content>,
    _note: Option<DirtyNote<'a>>,
}

impl std::fmt::Debug for MetaBytesMut<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("MetaBytesMut").finish_non_exhaustive()
    }
}

impl Deref for MetaBytesMut<'_> {
    type Target = [u8];
    #[inline]
    fn deref(&self) -> &[u8] {
        &self.content.bytes
    }
}

impl DerefMut for MetaBytesMut<'_> {
    #[inline]
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.content.bytes
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
