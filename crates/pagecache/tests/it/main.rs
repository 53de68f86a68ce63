//! The page cache over a store in memory.

mod common;
mod flusher;
mod model;
mod prepare;
mod readahead;
mod reclaim;
mod threads;
