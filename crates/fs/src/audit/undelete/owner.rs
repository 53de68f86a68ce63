//! Whether a block has names of a directory.
//!
//! ```text
//!   a block ─┬─ with checksums: the tail of a leaf, a root or a node names inode and generation
//!            └─ without: the form of a directory's block; the first one names the inode in "."
//! ```
//!
//! A block that a deleted directory had may belong to another one now, and the log has copies of
//! both.

use super::evidence::Evidence;
use crate::state::inode::Body;
use extant_base::{Ino, Result, Site};
use extant_ondisk::dirent::{DirBlock, DirFormat};
use extant_ondisk::features::Incompat;
use extant_ondisk::htree::{Index, levels_max};

/// What the blocks of a directory have in common.
#[derive(Clone, Copy)]
pub(super) struct Owner {
    pub(super) format: DirFormat,
    ino: Ino,
    seed: Option<u32>,
    levels_max: u8,
}

impl Owner {
    pub(super) fn of(evidence: &Evidence<'_>, body: &Body) -> Owner {
        let volume = evidence.volume;
        Owner {
            format: volume.file(body).dir_format(),
            ino: body.ino(),
            seed: body.disk.seed(body.ino(), volume.inode_format()),
            levels_max: levels_max(volume.has_incompat(Incompat::LARGEDIR)),
        }
    }

    /// The seed of its checksums, if it has any.
    pub(super) fn seed(&self) -> Option<u32> {
        self.seed
    }

    /// Whether checksums prove that a block is the directory's.
    pub(super) fn is_proven(&self) -> bool {
        self.seed.is_some()
    }

    /// Whether the block is the directory's, as far as can be known; `is_first`: at the place of
    /// its first block.
    pub(super) fn has(&self, bytes: &[u8], is_first: bool) -> bool {
        let block = DirBlock::new(bytes, self.format, Site::NOWHERE);
        let Some(seed) = self.seed else {
            let first = block.trusted_entries().next().and_then(Result::ok);
            let is_own = first.is_some_and(|dot| dot.name == b"." && dot.ino == Some(self.ino));
            return (is_own || !is_first) && block.trusted_entries().all(|entry| entry.is_ok());
        };
        let is_right =
            |index: Result<Index<'_>>| index.is_ok_and(|index| index.verify_checksum(seed).is_ok());
        let root = || Index::root(bytes, &self.format, self.levels_max, Site::NOWHERE);
        block.verify_checksum(seed).is_ok()
            || is_right(root().map(|(_, index)| index))
            || is_right(Index::node(bytes, &self.format, Site::NOWHERE))
    }
}
