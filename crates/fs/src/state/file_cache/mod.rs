//! What is known in memory about a file's data in the page cache: its folios, and the space that is
//! reserved for those that are dirty.

pub(crate) mod delayed;
pub(crate) mod map_reservation;
pub(crate) mod rewrites;

use delayed::Delayed;
use extant_base::lock::{Mutex, Rank};
use extant_pagecache::FileCache;
use map_reservation::MapReservation;
use rewrites::Rewrites;
use std::fmt;
use std::sync::Arc;

/// The page cache's state of one file.
pub(crate) struct FileCacheState {
    /// Its folios.
    pub(crate) pages: Arc<FileCache>,
    /// Its blocks that are reserved and not allocated.
    pub(crate) delayed: Mutex<Delayed>,
    /// Its blocks that will be rewritten to other blocks, which are reserved.
    pub(crate) rewrites: Mutex<Rewrites>,
    /// What is reserved for its map.
    pub(crate) map_reservation: Mutex<MapReservation>,
}

impl FileCacheState {
    /// Nothing is reserved yet.
    pub(crate) fn new(pages: Arc<FileCache>) -> Arc<FileCacheState> {
        Arc::new(FileCacheState {
            pages,
            delayed: Mutex::new(Rank::Leaf, Delayed::default()),
            rewrites: Mutex::new(Rank::Leaf, Rewrites::default()),
            map_reservation: Mutex::new(Rank::Leaf, MapReservation::default()),
        })
    }
}

impl fmt::Debug for FileCacheState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("FileCacheState").field("len", &self.pages.len()).finish_non_exhaustive()
    }
}
