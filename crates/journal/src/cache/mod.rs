//! Metadata blocks in memory: found by number, read once, written home in device order.
//!
//! ```text
//!   reread       a better copy of a block, from mirrors
//!   load         get, prefetch, forget, reclaim          meta_block   shared access to one block
//!   write_out    dirty blocks written home
//!   meta_cache   the table; limits and counts            writer, checkpoint_queue   its parts
//!   shard        one part of the table
//!   block        the bytes and the state of one block
//! ```

pub(crate) mod block;
#[cfg(test)]
mod cache_test;
pub(crate) mod checkpoint_queue;
pub(crate) mod load;
pub(crate) mod meta_block;
pub(crate) mod meta_cache;
pub(crate) mod reread;
pub(crate) mod shard;
pub(crate) mod write_out;
pub(crate) mod writer;
