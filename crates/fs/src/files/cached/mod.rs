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

use crate::files::FileIo;
use crate::inodes::file::FileRef;
use crate::state::file_cache::FileCacheState;
use crate::state::inode::Body;
use crate::volume::Volume;
use extant_base::Ino;
use extant_ondisk::inode::{FileKind, InodeFlags};
use extant_pagecache::Use;
use std::sync::Arc;

/// The space that is reserved for the dirty data of one file.
#[derive(Clone, Copy)]
pub(crate) struct FileReservations<'a> {
    /// The volume.
    pub(crate) volume: &'a Volume,
    /// The inode's content. The caller holds the inode's lock.
    pub(crate) body: &'a Body,
}

impl Volume {
    /// The reservations for dirty data of this file.
    pub(crate) fn reservations<'a>(&'a self, body: &'a Body) -> FileReservations<'a> {
        FileReservations { volume: self, body }
    }
}

/// The space that is reserved for dirty folios, where the inode is not locked.
#[derive(Clone, Copy)]
pub(crate) struct CacheReservations<'a> {
    volume: &'a Volume,
    file_cache: &'a FileCacheState,
}

impl Volume {
    /// The reservations for these folios.
    pub(crate) fn cache_reservations<'a>(
        &'a self,
        file_cache: &'a FileCacheState,
    ) -> CacheReservations<'a> {
        CacheReservations { volume: self, file_cache }
    }
}

impl FileRef<'_> {
    /// Whether the data of this file goes through the page cache now.
    pub(crate) fn goes_through_cache(self) -> bool {
        self.volume.page_cache().is_some()
            && self.body.file_kind() == FileKind::Regular
            && !self.body.disk.has_inline_data()
            && !self.body.flags.contains(InodeFlags::ENCRYPT)
            && !self.journals_data()
    }
}

impl Volume {
    /// How the cache treats data by default.
    pub(crate) fn cache_use(&self) -> Use {
        if self.drops_behind() { Use::DropBehind } else { Use::Keep }
    }
}

impl<'a> FileIo<'a> {
    /// The folios of a file, or `None` if its data is not cached.
    ///
    /// Locks: the caller holds the inode's, at least shared.
    pub(crate) fn file_cache(self, body: &Body) -> Option<&'a Arc<FileCacheState>> {
        let cache =
            self.volume.page_cache().filter(|_| self.volume.file(body).goes_through_cache())?;
        Some(self.inode.file_cache.get_or_init(|| {
            let pages = cache.file(self.inode.ino);
            pages.set_len(body.size);
            FileCacheState::new(pages)
        }))
    }
}

impl Volume {
    /// The folios of a file that outlived its inode in memory. The inode was read from its table
    /// again, and an operation that truncates or releases it finds the folios here.
    pub(crate) fn file_cache_before(&self, ino: Ino) -> Option<Arc<FileCacheState>> {
        let pages = self.page_cache()?.find(ino)?;
        Some(FileCacheState::new(pages))
    }
}
