//! What one handle adds to its transaction.

use crate::cache::block::{Block, Seq};
use crate::records::notes::Notes;
use extant_base::BlockNr;
use std::sync::Arc;

/// How much a handle may change.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Credits {
    /// Metadata blocks that may be dirtied, each counted once.
    pub blocks: u32,
    /// Metadata blocks that may be freed.
    pub revokes: u32,
}

impl Credits {
    /// Room for `blocks` changed blocks and no freed ones.
    pub const fn blocks(blocks: u32) -> Credits {
        Credits { blocks, revokes: 0 }
    }

    /// These and `more`.
    pub const fn plus(self, more: Credits) -> Credits {
        Credits {
            blocks: self.blocks.saturating_add(more.blocks),
            revokes: self.revokes.saturating_add(more.revokes),
        }
    }
}

/// What a handle did, for its transaction.
#[derive(Default)]
pub(crate) struct Done {
    /// Blocks that it was the first to change in this transaction.
    pub(crate) joined: Vec<Arc<Block>>,
    /// Blocks that it freed.
    pub(crate) revoked: Vec<BlockNr>,
    /// Of those, what was cached: their older copies count until the transaction is durable.
    pub(crate) forgotten: Vec<Arc<Block>>,
    /// It changed a block that another handle of the transaction had changed before.
    pub(crate) again: bool,
    /// What its changes mean.
    pub(crate) notes: Notes,
}

impl Done {
    /// Whether it changed metadata at all.
    pub(crate) fn has_changed(&self) -> bool {
        self.again || !(self.joined.is_empty() && self.revoked.is_empty())
    }
}

/// A handle's place in a transaction.
#[derive(Clone, Copy, Debug, Default)]
pub(crate) struct Place {
    /// The transaction; 0 without a log.
    pub(crate) seq: Seq,
    /// Its number there.
    pub(crate) nr: u64,
    /// Where its notes come among those of others.
    pub(crate) order: u64,
    /// Its notes are of use.
    pub(crate) keeps_notes: bool,
}
