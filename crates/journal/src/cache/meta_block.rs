//! Shared access to a cached metadata block. Access for change is [`crate::meta_mut`]'s.
//!
//! ```text
//!   MetaBlock ──read()──► MetaRef      shared bytes
//! ```
//!
//! Byte locks are of `Rank::Leaf`: a thread that holds one can take no other block's bytes and no
//! block from the cache. Copy the bytes that you need first.

use crate::cache::block::{Block, Content};
use extant_base::BlockNr;
use extant_base::lock::ReadGuard;
use std::fmt;
use std::ops::Deref;
use std::sync::Arc;

/// One cached metadata block. A clone is a second reference to the same block; the block stays in
/// the cache while a reference exists.
#[derive(Clone)]
pub struct MetaBlock {
    block: Arc<Block>,
}

impl MetaBlock {
    pub(crate) fn new(block: Arc<Block>) -> MetaBlock {
        MetaBlock { block }
    }

    /// The block itself.
    pub(crate) fn block(&self) -> &Arc<Block> {
        &self.block
    }

    /// The block's number on the volume.
    pub fn nr(&self) -> BlockNr {
        self.block.nr
    }

    /// The bytes, shared with other readers. Locks: takes `Leaf`.
    #[track_caller]
    pub fn read(&self) -> MetaRef<'_> {
        MetaRef::of(&self.block)
    }

    /// Whether a reader has checked checksum and bounds of this content, without naming a kind.
    pub fn is_verified(&self) -> bool {
        self.is_verified_as(1)
    }

    /// Records that checksum and bounds of this content are right.
    pub fn set_verified(&self) {
        self.set_verified_as(1);
    }

    /// Whether a reader has checked this content as `kind`. A damaged volume can name one block in
    /// two roles. A `kind` made of the role and the owner (a directory block of inode 12) keeps the
    /// check of one role from counting for the other.
    pub fn is_verified_as(&self, kind: u64) -> bool {
        kind != 0 && self.block.verified_as() == kind
    }

    /// Whether the content is the device's: it was not changed since it was read.
    pub(crate) fn is_as_read(&self) -> bool {
        self.block.is_as_read()
    }

    /// Replaces the content if it was [not changed since it was read](Self::is_as_read). Returns
    /// whether it did.
    #[track_caller]
    pub(crate) fn exchange(&self, bytes: Box<[u8]>) -> bool {
        self.block.exchange(bytes)
    }

    /// Records that this content was checked as `kind`, which is not 0. It replaces an earlier
    /// kind.
    pub fn set_verified_as(&self, kind: u64) {
        debug_assert!(kind != 0, "0 means not checked");
        self.block.set_verified_as(kind);
    }
}

impl fmt::Debug for MetaBlock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "MetaBlock({})", self.block.nr)
    }
}

/// The bytes of a block, shared with other readers.
pub struct MetaRef<'a> {
    content: ReadGuard<'a, Content>,
}

impl std::fmt::Debug for MetaRef<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("MetaRef").finish_non_exhaustive()
    }
}

impl<'a> MetaRef<'a> {
    #[track_caller]
    pub(crate) fn of(block: &'a Block) -> MetaRef<'a> {
        MetaRef { content: block.content.read() }
    }
}

impl Deref for MetaRef<'_> {
    type Target = [u8];
    #[inline]
    fn deref(&self) -> &[u8] {
        &self.content.bytes
    }
}
