//! Files whose bytes go through the page cache.
//!
//! ```text
//!   read    hit: folios alone ───────────────────────────────────► caller
//!           miss: inode, shared ──► map, device ──► folios ──────► caller
//!   write   over bytes that are there, within the tick of the clock: folios alone
//!           else: turn ─► inode ─► reserve ─► folios, size, times ─► throttle
//!   write-back (flusher, sync, settle), one at a time for a file, several parts of it on their way ([`stream`]):
//!           written blocks      data                                       no handle, no inode lock
//!           all is a few blocks [map written, data, size, times]           one handle
//!           more                [map unwritten] ─► data ─► [convert, size, times]
//!   settle  turn ─► write-back lock ─► inode ─► dirty? write back, again ─► folios leave
//! ```
//!
//! Rules: every dirty block is allocated or promised ([`delayed`]), and so is what maps it ([`map_share`]). The size on disk never passes data that is
//! not there (`Body::size_on_disk`). Blocks change their place only under the write-back lock, so data is
//! written to them without the inode's. What changes map or kind of storage settles the file first and then
//! works on the device.

mod borrow;
pub(crate) mod delayed;
mod fill;
mod map_share;
mod read;
pub(crate) mod rewrites;
mod settle;
mod stream;
mod write;
mod write_back;

use crate::cached::delayed::Delayed;
use crate::cached::map_share::MapShare;
use crate::cached::rewrites::Rewrites;
use crate::inode::{Body, Inode};
use crate::volume::Volume;
use extant_base::Ino;
use extant_base::lock::{Mutex, Rank};
use extant_ondisk::inode::{FileKind, InodeFlags};
use extant_pagecache::{FileCache, Use};
use std::fmt;
use std::sync::Arc;

/// What the page cache knows of one file.
pub(crate) struct Cached {
    /// Its folios.
    pub(crate) pages: Arc<FileCache>,
    /// Its blocks that are promised and not allocated.
    pub(crate) delayed: Mutex<Delayed>,
    /// Its blocks that will need another one, and have the promise of it.
    pub(crate) rewrites: Mutex<Rewrites>,
    /// What is promised to its map.
    pub(crate) map_share: Mutex<MapShare>,
}

impl Cached {
    fn new(pages: Arc<FileCache>) -> Arc<Cached> {
        Arc::new(Cached {
            pages,
            delayed: Mutex::new(Rank::Leaf, Delayed::default()),
            rewrites: Mutex::new(Rank::Leaf, Rewrites::default()),
            map_share: Mutex::new(Rank::Leaf, MapShare::default()),
        })
    }
}

impl fmt::Debug for Cached {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Cached").field("len", &self.pages.len()).finish_non_exhaustive()
    }
}

impl Volume {
    /// Whether the bytes of this file go through the page cache, now.
    pub(crate) fn goes_through_cache(&self, body: &Body) -> bool {
        self.page_cache().is_some()
            && body.file_kind() == FileKind::Regular
            && !body.disk.has_inline_data()
            && !body.flags.contains(InodeFlags::ENCRYPT)
            && !self.journals_data(body)
    }

    /// What the cache does with bytes when nobody says.
    pub(crate) fn cache_use(&self) -> Use {
        if self.drops_behind() { Use::DropBehind } else { Use::Keep }
    }

    /// The folios of a file; `None` where its bytes are not cached.
    ///
    /// Locks: the inode's is held, shared at least.
    pub(crate) fn cached<'a>(&self, inode: &'a Inode, body: &Body) -> Option<&'a Arc<Cached>> {
        let cache = self.page_cache().filter(|_| self.goes_through_cache(body))?;
        Some(inode.cached.get_or_init(|| {
            let pages = cache.file(inode.ino);
            pages.set_len(body.size);
            Cached::new(pages)
        }))
    }

    /// The folios of a file that outlived its inode in memory, for the inode that was read from its table again: who
    /// cuts or releases it finds them there.
    pub(crate) fn cached_before(&self, ino: Ino) -> Option<Arc<Cached>> {
        let pages = self.page_cache()?.find(ino)?;
        Some(Cached::new(pages))
    }
}
