//! The journal: who may change metadata, and when changes reach the device.
//!
//! ```text
//!   Journal::off    start → Handle → change blocks → stop        changes stay in the cache
//!                   start, get      dirty limit passed?          write-out of the older half
//!                   sync            everything dirty home, one flush
//! ```
//!
//! After the first write or flush that fails the journal refuses new handles: a lost write is
//! never retried past.

use crate::cache::{CacheOptions, MetaCache};
use crate::handle::{Credits, Handle};
use extant_base::{BlockSize, Result};
use extant_blockdev::BlockDevice;
use std::sync::Arc;

/// Owns the metadata cache, and the log when there is one.
pub struct Journal {
    cache: MetaCache,
}

impl Journal {
    /// A journal without a log: changes go home from the cache, in device order, with no promise
    /// about which arrive before a crash until [`Journal::sync`] returns.
    pub fn off(
        device: Arc<dyn BlockDevice>,
        block_size: BlockSize,
        options: CacheOptions,
    ) -> Journal {
        Journal { cache: MetaCache::new(device, block_size, options) }
    }

    /// The cache of metadata blocks.
    pub fn cache(&self) -> &MetaCache {
        &self.cache
    }

    /// Starts a change that may dirty `credits.blocks` metadata blocks and revoke
    /// `credits.revokes`.
    ///
    /// Can wait for room, so it comes before any lock above `Rank::Handle`. One thread has one
    /// handle at a time: a nested start is a bug and panics. Errors: `Aborted` after a failed
    /// write; `Device` when making room fails.
    #[track_caller]
    pub fn start(&self, credits: Credits) -> Result<Handle<'_>> {
        self.cache.refuse_if_aborted()?;
        self.cache.relieve()?;
        Ok(Handle::begin(self, credits))
    }

    /// Writes every dirty block home in device order and flushes the device: everything that was
    /// changed before the call is durable after it.
    ///
    /// Errors: `Device`; the journal is aborted then.
    pub fn sync(&self) -> Result<()> {
        self.cache.write_back(0)?;
        self.cache.flush()
    }

    /// Whether there is no log: what was changed is durable only after [`Journal::sync`].
    pub fn is_off(&self) -> bool {
        true
    }

    /// Makes everything durable at home.
    ///
    /// Errors: `Device`, `Aborted`.
    pub fn close(&self) -> Result<()> {
        self.sync()
    }

    /// Writes dirty blocks home, in device order, until at most `down_to_bytes` are left dirty.
    /// Nothing is flushed.
    pub fn write_back(&self, down_to_bytes: usize) -> Result<()> {
        self.cache.write_back(down_to_bytes)
    }
}
