//! Permission to change a cached metadata block, under a handle.
//!
//! ```text
//!   MetaBlock ──write(&handle)──► MetaMut ──bytes_mut()──► MetaBytesMut      exclusive bytes
//!                                 permission               joins the running transaction
//! ```

use crate::cache::block::{Block, Content};
use crate::cache::meta_block::{MetaBlock, MetaRef};
use crate::cache::meta_cache::MetaCache;
use crate::handle::Handle;
use extant_base::lock::WriteGuard;
use extant_base::{BlockNr, Result};
use std::ops::{Deref, DerefMut};
use std::sync::Arc;

impl MetaBlock {
    /// Permission to change the block under `handle`, which cannot stop before it is dropped.
    ///
    /// Never waits: if a commit still needs the current content, the first change keeps a copy of
    /// it. The first change of a block spends one of the handle's credits.
    ///
    /// # Errors
    /// `Aborted`; `ReadOnly` after a restart that found the journal closed.
    pub fn write<'m>(&'m self, handle: &'m Handle<'_>) -> Result<MetaMut<'m>> {
        handle.journal().cache().refuse_if_aborted()?;
        handle.refuse_if_stopped()?;
        Ok(MetaMut { block: self.block(), handle })
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
    /// The block's number on the volume.
    pub fn nr(&self) -> BlockNr {
        self.block.nr
    }

    /// The bytes, shared with readers. Locks: takes `Leaf`.
    #[track_caller]
    pub fn bytes(&self) -> MetaRef<'_> {
        MetaRef::of(self.block)
    }

    /// The bytes, for change. From now on the block is part of the handle's transaction, or dirty
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

/// The bytes of a block, for change.
pub struct MetaBytesMut<'a> {
    // Order of drops: the byte lock is released before the note takes the shard's lock.
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
