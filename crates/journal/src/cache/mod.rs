//! Metadata blocks in memory.

pub(crate) mod block;
#[cfg(test)]
mod cache_test;
pub(crate) mod homeward;
pub(crate) mod load;
pub(crate) mod meta_block;
pub(crate) mod meta_cache;
pub(crate) mod reread;
pub(crate) mod shard;
pub(crate) mod write_out;
pub(crate) mod writer;
