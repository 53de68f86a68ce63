//! Attributes that several inodes may share: attribute blocks, and values in value inodes.

use extant_base::lock::{Mutex, Rank};
use extant_base::{BlockNr, Ino};
use extant_journal::MetaBlock;
use hashbrown::HashMap;
use std::collections::VecDeque;

/// How many values are remembered at most.
const KNOWN_MAX: usize = 4096;

/// The known attribute blocks and value inodes that may be shared.
pub(crate) struct SharedXattrs {
    blocks: Mutex<KnownBlocks>,
    values: Mutex<KnownValues>,
}

impl SharedXattrs {
    /// Nothing is known yet.
    pub(crate) fn new() -> SharedXattrs {
        SharedXattrs {
            blocks: Mutex::new(Rank::Leaf, KnownBlocks::default()),
            values: Mutex::new(Rank::Shared, KnownValues::default()),
        }
    }

    /// The known attribute blocks.
    pub(crate) fn blocks(&self) -> &Mutex<KnownBlocks> {
        &self.blocks
    }

    /// The known value inodes. The lock guards the reference counts of all value inodes.
    pub(crate) fn values(&self) -> &Mutex<KnownValues> {
        &self.values
    }
}

/// Blocks whose content another inode may need, by hash. The oldest block is forgotten first.
#[derive(Default)]
pub(crate) struct KnownBlocks {
    by_hash: HashMap<u32, MetaBlock>,
    order: VecDeque<u32>,
}

impl KnownBlocks {
    /// The block that is known for `hash`.
    pub(crate) fn find(&self, hash: u32) -> Option<MetaBlock> {
        self.by_hash.get(&hash).cloned()
    }

    /// Remembers `block`, and forgets the oldest if more than `most` are known.
    pub(crate) fn note(&mut self, hash: u32, block: MetaBlock, most: usize) {
        if self.by_hash.insert(hash, block).is_none() {
            self.order.push_back(hash);
            if self.order.len() > most {
                self.order.pop_front().map(|oldest| self.by_hash.remove(&oldest));
            }
        }
    }

    /// Forgets block `nr` if it is the known block for `hash`.
    pub(crate) fn drop_block(&mut self, hash: u32, nr: BlockNr) {
        if self.by_hash.get(&hash).is_some_and(|block| block.nr() == nr) {
            self.by_hash.remove(&hash);
            self.order.retain(|other| *other != hash);
        }
    }
}

/// Value inodes whose content another attribute may need, by crc and size. The oldest is forgotten
/// first.
#[derive(Default)]
pub(crate) struct KnownValues {
    by_content: HashMap<(u32, u32), Ino>,
    order: VecDeque<(u32, u32)>,
}

impl KnownValues {
    /// The value inode that is known to have this content.
    pub(crate) fn find(&self, content: (u32, u32)) -> Option<Ino> {
        self.by_content.get(&content).copied()
    }

    /// Remembers the inode with this content.
    pub(crate) fn note(&mut self, content: (u32, u32), ino: Ino) {
        if self.by_content.insert(content, ino).is_none() {
            self.order.push_back(content);
            if self.order.len() > KNOWN_MAX {
                self.order.pop_front().map(|oldest| self.by_content.remove(&oldest));
            }
        }
    }

    /// Forgets `ino` if it is the known inode of this content.
    pub(crate) fn drop_inode(&mut self, content: (u32, u32), ino: Ino) {
        if self.by_content.get(&content) == Some(&ino) {
            self.by_content.remove(&content);
            self.order.retain(|other| *other != content);
        }
    }
}
