//! The buffer that write-out gathers neighbouring blocks in.

use crate::cache::block::{Block, Seq};
use std::sync::Arc;

/// State of the thread that writes.
#[derive(Default)]
pub(crate) struct Writer {
    /// The block after the last one written.
    pub(super) next: u64,
    pub(super) bytes: Vec<u8>,
    /// The blocks whose bytes those are, and the transaction that each had logged.
    pub(super) run: Vec<(Arc<Block>, Seq)>,
}
