//! Files whose bytes go through the page cache.
//!
//! ```text
//!   read    hit: folios alone ───────────────────────────────────► caller
//!           miss: inode, shared ──► map, device ──► folios ──────► caller
//!   write   over cached bytes, within the same clock tick: folios alone (fast overwrite)
//!           else: `Write` lock ─► inode ─► reserve ─► folios, size, times ─► throttle
//!   write-back (flusher, sync, settle): one thread at a time for a file; it has several device
//!           writes in flight ([`stream`]):
//!           written blocks      data                                      no handle, no inode lock
//!           all is a few blocks [map written, data, size, times]           one handle
//!           more                [map unwritten] ─► data ─► [convert, size, times]
//!   settle  `Write` lock ─► write-back lock ─► inode ─► dirty? write back, again ─► folios leave
//! ```
//!
//! Rules:
//! - Every dirty block is allocated or reserved ([`delayed`]), and so are the blocks of its map
//!   ([`map_reservation`]).
//! - The size on disk never covers data that is not yet on the device (`Body::size_on_disk`).
//! - A block's place changes only under the write-back lock. So data is written without the inode
//!   lock.
//! - An operation that changes the map or the kind of storage settles the file first, and then
//!   works on the device.

mod borrow;
pub(crate) mod delayed;
mod fill;
mod map_reservation;
mod read;
pub(crate) mod rewrites;
mod settle;
mod stream;
mod write;
mod write_back;

use crate::state::file_cache::FileCacheState;
use crate::state::inode::{Body, Inode};
use crate::volume::Volume;
use extant_base::Ino;
use extant_ondisk::inode::{FileKind, InodeFlags};
use extant_pagecache::Use;
use std::sync::Arc;

impl Volume {
    /// Whether the data of this file goes through the page cache now.
    pub(crate) fn goes_through_cache(&self, body: &Body) -> bool {
        self.page_cache().is_some()
            && body.file_kind() == FileKind::Regular
            && !body.disk.has_inline_data()
            && !body.flags.contains(InodeFlags::ENCRYPT)
            && !self.journals_data(body)
    }

    /// How the cache treats data by default.
    pub(crate) fn cache_use(&self) -> Use {
        if self.drops_behind() { Use::DropBehind } else { Use::Keep }
    }

    /// The folios of a file, or `None` if its data is not cached.
    ///
    /// Locks: the caller holds the inode's, at least shared.
    pub(crate) fn file_cache<'a>(
        &self,
        inode: &'a Inode,
        body: &Body,
    ) -> Option<&'a Arc<FileCacheState>> {
        let cache = self.page_cache().filter(|_| self.goes_through_cache(body))?;
        Some(inode.file_cache.get_or_init(|| {
            let pages = cache.file(inode.ino);
            pages.set_len(body.size);
            FileCacheState::new(pages)
        }))
    }

    /// The folios of a file that outlived its inode in memory. The inode was read from its table
    /// again, and an operation that truncates or releases it finds the folios here.
    pub(crate) fn file_cache_before(&self, ino: Ino) -> Option<Arc<FileCacheState>> {
        let pages = self.page_cache()?.find(ino)?;
        Some(FileCacheState::new(pages))
    }
}
