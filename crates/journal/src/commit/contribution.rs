//! What one handle adds to its transaction: reserved credits, its position, and its changes.

use crate::cache::block::{Block, Seq};
use crate::records::notes::Notes;
use extant_base::BlockNr;
use std::sync::Arc;

/// The most that a handle may change.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Credits {
    /// Metadata blocks that may be dirtied, each counted once.
    pub blocks: u32,
    /// Metadata blocks that may be freed.
    pub revokes: u32,
}

impl Credits {
    /// Credits for `blocks` changed blocks and no freed ones.
    pub const fn blocks(blocks: u32) -> Credits {
        Credits { blocks, revokes: 0 }
    }

    /// The sum of these credits and `more`.
    pub const fn plus(self, more: Credits) -> Credits {
        Credits {
            blocks: self.blocks.saturating_add(more.blocks),
            revokes: self.revokes.saturating_add(more.revokes),
        }
    }
}

/// The changes of a handle.
#[derive(Default)]
pub(crate) struct HandleChanges {
    /// Blocks that it changed first in this transaction.
    pub(crate) joined: Vec<Arc<Block>>,
    /// Blocks that it freed.
    pub(crate) revoked: Vec<BlockNr>,
    /// The freed blocks that were cached. Their older copies count until the transaction is
    /// durable.
    pub(crate) forgotten: Vec<Arc<Block>>,
    /// It changed a block that another handle of the transaction had changed before.
    pub(crate) again: bool,
    /// Its notes for fast commits.
    pub(crate) notes: Notes,
}

impl HandleChanges {
    /// Whether it changed any metadata.
    pub(crate) fn has_changed(&self) -> bool {
        self.again || !(self.joined.is_empty() && self.revoked.is_empty())
    }
}

/// A handle's position in a transaction.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct HandlePosition {
    /// The transaction; 0 without a log.
    pub(crate) seq: Seq,
    /// The handle's number in the transaction.
    pub(crate) nr: u64,
    /// The position of its notes among the notes of all handles.
    pub(crate) order: u64,
    /// A fast commit may use its notes.
    pub(crate) keeps_notes: bool,
}
