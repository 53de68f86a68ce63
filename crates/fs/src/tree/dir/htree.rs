//! Looking a name up through the htree.
//!
//! ```text
//!   hash ─► root ─► node ─► leaf ── not there, and the next key continues the hash ─► next leaf
//!            │ malformed index                                            │ other key
//!            └──────────────────► block by block ◄── casefold             └► not found
//! ```
//!
//! If the index is malformed (other than by a wrong checksum), the lookup scans all blocks, as
//! Linux does: the leaves can be read without it. Source: ext4 documentation, "Hash Tree
//! Directories".

use super::{Dir, Found, fold::Wanted, linear};
use crate::context::role::Role;
use extant_base::{Error, LogicalBlock, Result, What};
use extant_journal::MetaBlock;
use extant_ondisk::features::Incompat;
use extant_ondisk::hash::{HashVersion, NameHash, NameHasher};
use extant_ondisk::htree::{Index, IndexEntry, RootInfo, levels_max};
use extant_ondisk::superblock::SuperFlags;

/// How many index blocks lie on the path to a leaf at most, including the root.
pub(crate) const DEPTH_MAX: usize = 3;

/// The leaf that follows another.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NextLeaf {
    /// There is no further leaf.
    None,
    /// The next leaf, which starts at this key, is not wanted.
    Other(u32),
    /// The probe moved to the next leaf, which starts at this key.
    Moved(u32),
}

/// One index block on the path to a leaf.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Step {
    /// The index block.
    pub(crate) block: LogicalBlock,
    /// Which entry the path takes.
    pub(crate) entry: usize,
    /// How many entries it has.
    pub(crate) count: usize,
}

/// The path from the root to a leaf.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Probe {
    /// The root's fields.
    pub(crate) info: RootInfo,
    /// The hash that is looked up.
    pub(crate) hash: NameHash,
    steps: [Step; DEPTH_MAX],
    depth: usize,
    /// The leaf.
    pub(crate) leaf: LogicalBlock,
}

impl Probe {
    /// The index blocks, root first.
    pub(crate) fn steps(&self) -> &[Step] {
        &self.steps[..self.depth]
    }
}

impl Dir<'_> {
    /// How this directory's names are hashed under `version`.
    pub(crate) fn hasher(&self, version: HashVersion) -> NameHasher {
        let superblock = self.volume.at_open();
        let unsigned = superblock.flags.contains(SuperFlags::UNSIGNED_HASH);
        NameHasher::new(version, unsigned, superblock.hash_seed)
    }

    /// The path to the leaf in which a name with this hash belongs.
    ///
    /// `hash` is called once, with the tree's hash version. Errors: `HtreeRoot`, `HtreeNode`,
    /// `HtreeDepth`, `HtreeLeaf`, `DirentDot`, `HtreeChecksum`.
    pub(crate) fn probe(
        &self,
        hash: impl FnOnce(HashVersion) -> Result<NameHash>,
    ) -> Result<Probe> {
        let (info, hash, first) = {
            let block = self.index_block(LogicalBlock(0))?;
            self.verify_index(0, &block)?;
            let bytes = block.read();
            let levels = levels_max(self.volume.has_incompat(Incompat::LARGEDIR));
            let site = self.site_of(&block);
            let (info, index) = Index::root(&bytes, &self.format, levels, site)?;
            let hash = hash(info.hash_version)?;
            (info, hash, self.step(LogicalBlock(0), &index, index.search(hash.hash))?)
        };
        let empty = Step { block: LogicalBlock(0), entry: 0, count: 0 };
        let (step, mut below) = first;
        let mut probe = Probe { info, hash, steps: [empty; DEPTH_MAX], depth: 1, leaf: below };
        probe.steps[0] = step;
        for _ in 0..usize::from(info.levels).min(DEPTH_MAX - 1) {
            let (step, next) = self.node(below, |index| index.search(hash.hash))?;
            probe.steps[probe.depth] = step;
            probe.depth += 1;
            below = next;
        }
        probe.leaf = below;
        Ok(probe)
    }

    /// Moves `probe` to the next leaf if names with the same hash may continue there.
    pub(crate) fn next_leaf(&self, probe: &mut Probe) -> Result<bool> {
        let hash = probe.hash.hash;
        let next = self.next_leaf_if(probe, |entry| entry.continues(hash))?;
        Ok(matches!(next, NextLeaf::Moved(_)))
    }

    /// The smallest hash of the leaf that `probe` leads to, with the collision bit in bit 0.
    pub(super) fn key_of(&self, probe: &Probe) -> Result<u32> {
        let Some(level) = (0..probe.depth).rev().find(|level| probe.steps[*level].entry > 0) else {
            return Ok(0);
        };
        let step = probe.steps[level];
        let block = self.index_block(step.block)?;
        let bytes = block.read();
        let entry = self.index_of(level, &bytes, &block)?.entry(step.entry);
        entry.map(|e| e.key).ok_or_else(|| self.site_of(&block).corrupt(What::HtreeNode))
    }

    /// The hash version of the index, if all of its blocks are valid and in order.
    pub(super) fn checked_index(&self) -> Option<HashVersion> {
        let (info, below) = {
            let block = self.index_block(LogicalBlock(0)).ok()?;
            self.verify_index(0, &block).ok()?;
            let bytes = block.read();
            let levels = levels_max(self.volume.has_incompat(Incompat::LARGEDIR));
            let (info, index) =
                Index::root(&bytes, &self.format, levels, self.site_of(&block)).ok()?;
            index.check_order().ok()?;
            (info, index.entries().map(|entry| entry.block).collect::<Vec<_>>())
        };
        // Limits the number of index blocks visited to the number of blocks of the directory.
        let mut left = self.blocks;
        let mut nodes = vec![below.into_iter()];
        while let Some(siblings) = nodes.last_mut() {
            let Some(at) = siblings.next() else {
                nodes.pop();
                continue;
            };
            if at.0 == 0 || at.0 >= self.blocks {
                return None;
            }
            if nodes.len() > usize::from(info.levels) {
                continue;
            }
            left = left.checked_sub(1)?;
            let block = self.index_block(at).ok()?;
            self.verify_index(1, &block).ok()?;
            let bytes = block.read();
            let index = Index::node(&bytes, &self.format, self.site_of(&block)).ok()?;
            index.check_order().ok()?;
            nodes.push(index.entries().map(|entry| entry.block).collect::<Vec<_>>().into_iter());
        }
        Some(info.hash_version)
    }

    /// Moves `probe` to the next leaf if `is_wanted` accepts the index entry that points to it.
    pub(super) fn next_leaf_if(
        &self,
        probe: &mut Probe,
        is_wanted: impl FnOnce(IndexEntry) -> bool,
    ) -> Result<NextLeaf> {
        // The lowest index block that has a further entry.
        let Some(level) = (0..probe.depth).rev().find(|n| {
            let step = &probe.steps[*n];
            step.entry + 1 < step.count
        }) else {
            return Ok(NextLeaf::None);
        };
        let step = probe.steps[level];
        let next = step.entry + 1;
        let (step, mut below, entry) = {
            let block = self.index_block(step.block)?;
            let bytes = block.read();
            let index = self.index_of(level, &bytes, &block)?;
            let entry = index.entry(next);
            let entry = entry.ok_or_else(|| self.site_of(&block).corrupt(What::HtreeNode))?;
            (Step { entry: next, ..step }, entry.block, entry)
        };
        if !is_wanted(entry) {
            return Ok(NextLeaf::Other(entry.key));
        }
        probe.steps[level] = step;
        for deeper in level + 1..probe.depth {
            let (step, next) = self.node(below, |_| 0)?;
            probe.steps[deeper] = step;
            below = next;
        }
        probe.leaf = below;
        Ok(NextLeaf::Moved(entry.key))
    }

    /// Verifies an index block of this level, once while it is cached.
    fn verify_index(&self, level: usize, block: &MetaBlock) -> Result<()> {
        let role = if level == 0 { Role::DirRoot(self.ino) } else { Role::DirNode(self.ino) };
        if !block.is_verified_as(role.kind()) {
            let seed = self.seed.unwrap_or(0);
            let check = |bytes: &[u8]| self.index_of(level, bytes, block)?.verify_checksum(seed);
            self.volume.journal().cache().checked(block, check)?;
            block.set_verified_as(role.kind());
        }
        Ok(())
    }

    fn index_of<'b>(&self, level: usize, bytes: &'b [u8], block: &MetaBlock) -> Result<Index<'b>> {
        let site = self.site_of(block);
        if level > 0 {
            return Index::node(bytes, &self.format, site);
        }
        let levels = levels_max(self.volume.has_incompat(Incompat::LARGEDIR));
        Ok(Index::root(bytes, &self.format, levels, site)?.1)
    }

    /// Takes the entry that `pick` chooses in the inner node at `at`. Returns the block below it.
    fn node(
        &self,
        at: LogicalBlock,
        pick: impl FnOnce(&Index<'_>) -> usize,
    ) -> Result<(Step, LogicalBlock)> {
        let block = self.index_block(at)?;
        self.verify_index(1, &block)?;
        let bytes = block.read();
        let index = Index::node(&bytes, &self.format, self.site_of(&block))?;
        self.step(at, &index, pick(&index))
    }

    fn step(
        &self,
        at: LogicalBlock,
        index: &Index<'_>,
        entry: usize,
    ) -> Result<(Step, LogicalBlock)> {
        let below = index.entry(entry).map(|entry| entry.block);
        // Block 0 is the root: no index points to it, nor beyond the directory.
        let below = below.filter(|below| below.0 != 0 && below.0 < self.blocks);
        let below = below.ok_or_else(|| self.site().corrupt(What::HtreeLeaf))?;
        Ok((Step { block: at, entry, count: index.count() }, below))
    }

    fn index_block(&self, at: LogicalBlock) -> Result<MetaBlock> {
        self.block(at)?.ok_or_else(|| self.site().corrupt(What::DirectoryHole))
    }
}

pub(super) fn find(dir: &Dir<'_>, wanted: &Wanted<'_>) -> Result<Option<Found>> {
    if matches!(wanted.name(), b"." | b"..") {
        // Both are in block 0, outside the index.
        let Some(block) = dir.block(LogicalBlock(0))? else {
            return Err(dir.site().corrupt(What::DirectoryHole));
        };
        return dir.find_in_block(LogicalBlock(0), &block, wanted);
    }
    match find_by_hash(dir, wanted) {
        // The hash of a folded name depends on the Unicode tables of its writer, so the name may be
        // in another leaf.
        Ok(None) if dir.folds() => linear::find(dir, wanted),
        Err(Error::Corrupt {
            what:
                What::HtreeRoot
                | What::HtreeNode
                | What::HtreeDepth
                | What::HtreeLeaf
                | What::DirentDot
                | What::DirectoryHole,
            ..
        }) => linear::find(dir, wanted),
        // SipHash needs the directory's key.
        Err(Error::Encrypted) => linear::find(dir, wanted),
        other => other,
    }
}

fn find_by_hash(dir: &Dir<'_>, wanted: &Wanted<'_>) -> Result<Option<Found>> {
    let mut probe = dir.probe(|version| match version {
        HashVersion::SipHash => Err(Error::Encrypted),
        version => wanted.hash(&dir.hasher(version)).ok_or(Error::Encrypted),
    })?;
    // A forged index can lead through the same leaves repeatedly.
    for _ in 0..dir.blocks {
        let block = dir.block(probe.leaf)?;
        let block = block.ok_or_else(|| dir.site().corrupt(What::HtreeLeaf))?;
        if let Some(found) = dir.find_in_block(probe.leaf, &block, wanted)? {
            return Ok(Some(found));
        }
        if !dir.next_leaf(&mut probe)? {
            return Ok(None);
        }
    }
    Err(dir.site().corrupt(What::HtreeLeaf))
}
