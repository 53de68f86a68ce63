//! The page cache: writers, readers, write-back, reclaim and truncation on a few small folios, and
//! the flusher.

mod flusher;
mod folios;

use crate::cache_driver::{Driver, Store};
use crate::pagecache::{CacheConfig, CacheStats, PageCache};
use extant_base::{BlockSize, Ino};

/// Bytes of a block; a folio has four.
const BLOCK: usize = 1024;

fn cache(limit: u64, dont_cache_cap: u64) -> PageCache {
    let size = BlockSize::from_bytes(BLOCK as u32).unwrap();
    PageCache::new(CacheConfig { limit, dont_cache_cap, ..CacheConfig::new(size) })
}

/// A file of `cache`, as the engine drives it.
fn file(cache: &PageCache, ino: u32) -> Driver {
    Driver {
        cache: cache.clone(),
        file: cache.file(Ino::new(ino).unwrap()),
        store: Store::new(BLOCK),
        inode: crate::model::sync::RwLock::new(()),
        write_back: crate::model::sync::Mutex::new(()),
    }
}

/// A block of `generation`: every word identifies the block and the generation.
fn pattern(block: u64, generation: u64) -> Vec<u8> {
    (block << 40 | generation).to_le_bytes().repeat(BLOCK / 8)
}

/// The generation of a block; panics if the block is torn or another one.
fn generation(block: u64, bytes: &[u8]) -> u64 {
    let word = u64::from_le_bytes(bytes[..8].try_into().unwrap());
    assert!(bytes.chunks(8).all(|chunk| chunk == word.to_le_bytes()), "block {block} is torn");
    assert_eq!(word >> 40, block, "another block's bytes");
    word & ((1 << 40) - 1)
}

/// Nothing is dirty or in flight, and nothing counts as that.
fn is_clean(stats: &CacheStats) {
    let left = (stats.dirty, stats.writing, stats.drop_behind_dirty);
    assert_eq!(left, (0, 0, 0), "the account is off");
}
