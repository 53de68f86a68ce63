//! Blocks of the log that no descriptor names: what they are follows from their checksums.
//!
//! ```text
//!   block ─┬─ every slot's checksum gives the number of an inode, and the numbers are those of one
//!          │  block of an inode table ──► a copy of that block
//!          ├─ tail of a directory block ─► the seed of the directory's checksums ─┐
//!          └─ extent node ──────────────► the seed of the inode's checksums ──────┴─► `Untagged`
//! ```
//!
//! A log that is written over from its start, as after each mount by Linux before 6.3, loses the
//! descriptor of the oldest transaction first, and has the rest of its copies for long. A checksum
//! can be computed backwards: from the content to the seed, and from an inode's to its number.

use super::evidence::Evidence;
use extant_base::{BlockNr, Ino, Result};
use extant_journal::UntaggedBlock;
use extant_ondisk::extent::EXTENT_MAGIC;
use extant_ondisk::{dirent, extent, inode};
use hashbrown::HashMap;

/// Blocks of directories and extent trees, by the seed of their checksums.
#[derive(Default)]
pub(super) struct Untagged {
    directories: HashMap<u32, Vec<UntaggedBlock>>,
    nodes: HashMap<u32, Vec<UntaggedBlock>>,
}

impl Untagged {
    /// Blocks whose checksum is right for a directory with this seed.
    pub(super) fn of_directory(&self, seed: Option<u32>) -> &[UntaggedBlock] {
        seed.and_then(|seed| self.directories.get(&seed)).map_or(&[], Vec::as_slice)
    }

    /// Nodes whose checksum is right for an inode with this seed.
    pub(super) fn nodes_of(&self, seed: Option<u32>) -> &[UntaggedBlock] {
        seed.and_then(|seed| self.nodes.get(&seed)).map_or(&[], Vec::as_slice)
    }
}

/// Examines the untagged blocks. Those of inode tables become copies of the history.
pub(super) fn find(evidence: &mut Evidence<'_>) -> Result<()> {
    if evidence.volume.checksums().seed().is_none() {
        return Ok(());
    }
    let mut tables: Vec<(BlockNr, UntaggedBlock)> = Vec::new();
    let mut untagged = Untagged::default();
    let mut bytes = evidence.block_buffer();
    for block in evidence.history.untagged() {
        if !evidence.read_untagged(block, &mut bytes)? {
            continue;
        }
        if bytes.starts_with(&EXTENT_MAGIC.to_le_bytes()) {
            if let Some(seed) = extent::seed_from_checksum(&bytes) {
                untagged.nodes.entry(seed).or_default().push(*block);
            }
        } else if let Some(seed) = dirent::seed_from_checksum(&bytes) {
            untagged.directories.entry(seed).or_default().push(*block);
        } else if let Some(home) = table_block(evidence, &bytes) {
            tables.push((home, *block));
        }
    }
    evidence.history.add_copies(tables);
    evidence.untagged = untagged;
    Ok(())
}

/// The block of an inode table that has this content. All its inodes must have the number that
/// their place gives, and one of them a whole checksum.
fn table_block(evidence: &Evidence<'_>, bytes: &[u8]) -> Option<BlockNr> {
    let size = evidence.volume.geometry().inode_size();
    let checksums = evidence.volume.checksums();
    let slots = (0..).zip(bytes.chunks_exact(size));
    let mut used = slots.filter(|(_, slot)| !inode::is_zero_slot(slot));
    let first = used.clone().find_map(|(n, slot)| {
        inode::number_from_checksum(slot, checksums)?.get().checked_sub(n).and_then(Ino::new)
    })?;
    let (block, offset) = evidence.slot_of(first)?;
    let is_right = used.all(|(n, slot): (u32, _)| {
        let ino = first.get().checked_add(n).and_then(Ino::new);
        ino.is_some_and(|ino| inode::checksum_is_right(slot, ino, checksums))
    });
    (offset == 0 && is_right).then_some(block)
}
