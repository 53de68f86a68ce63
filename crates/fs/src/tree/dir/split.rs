//! Making space in an htree, in steps that each leave a valid tree.
//!
//! ```text
//!   leaf full, parent has space      leaf ──upper half of the hashes──► new leaf, key into parent
//!   parent full, one above has space node ──upper half of the keys────► new node, key one level up
//!   all full, a level is left        root's keys ──► new node, root keeps one entry
//!   all full, no level left          NoSpace
//! ```
//!
//! Each step first prepares its content in memory, then allocates its block, then changes the tree.
//! A step that fails has therefore changed nothing. The insert searches again after each step.

use super::Dir;
use super::htree::{Probe, Step};
use crate::context::role::Role;
use crate::tree::dir::DirMut;
use extant_base::{Error, LogicalBlock, Result, What};
use extant_journal::{Handle, MetaBlock};
use extant_ondisk::casefold::CaseFold;
use extant_ondisk::dirent::DirBlockMut;
use extant_ondisk::features::Incompat;
use extant_ondisk::hash::{HashVersion, NameHash};
use extant_ondisk::htree::{IndexMut, levels_max, limit_node, limit_root, split_leaf};
use std::borrow::Cow;

impl DirMut<'_> {
    /// Takes one step towards free space in the leaf of `probe`.
    ///
    /// Errors: `NoSpace` if no block or no level is left; `Corrupt`; `Device`.
    pub(super) fn split(&mut self, handle: &Handle<'_>, probe: &Probe) -> Result<()> {
        let dir = self.volume.file(self.body).dir()?;
        let steps = probe.steps();
        match (0..steps.len()).rev().find(|level| !dir.is_full(*level, &steps[*level])) {
            Some(level) if level + 1 == steps.len() => self.split_leaf(handle, probe, level),
            Some(level) => self.split_node(handle, steps, level),
            None if probe.info.levels < self.levels_max() => self.push_down(handle),
            None => Err(Error::NoSpace),
        }
    }

    fn levels_max(&self) -> u8 {
        levels_max(self.volume.has_incompat(Incompat::LARGEDIR))
    }

    fn split_leaf(&mut self, handle: &Handle<'_>, probe: &Probe, level: usize) -> Result<()> {
        let dir = self.volume.file(self.body).dir()?;
        let block = dir.mapped_block(probe.leaf)?;
        let (site, seed) = (dir.site_of(&block), dir.seed.unwrap_or(0));
        let mut old = block.read().to_vec();
        let mut new = vec![0; old.len()];
        let key = split_leaf(
            DirBlockMut::new(&mut old, dir.format, seed, site),
            DirBlockMut::new(&mut new, dir.format, seed, site),
            |name| dir.hash_stored(probe.info.hash_version, name),
        )?;
        let (at, added) = self.append(handle)?;
        put(&added, handle, &new, Role::DirLeaf(self.ino()))?;
        put(&block, handle, &old, Role::DirLeaf(self.ino()))?;
        self.body.moves.note(probe.leaf, at);
        let dir = self.volume.file(self.body).dir()?;
        self.list(handle, &dir, level, &probe.steps()[level], key, at)
    }

    /// Splits the node below `steps[level]`. The node of that step has space for one more entry.
    fn split_node(&mut self, handle: &Handle<'_>, steps: &[Step], level: usize) -> Result<()> {
        let dir = self.volume.file(self.body).dir()?;
        let block = dir.mapped_block(steps[level + 1].block)?;
        let (site, seed) = (dir.site_of(&block), dir.seed.unwrap_or(0));
        let mut old = block.read().to_vec();
        let mut new = vec![0; old.len()];
        let key =
            IndexMut::node(&mut old, &dir.format, seed, site)?.split_into(&mut new, &dir.format);
        let (at, added) = self.append(handle)?;
        put(&added, handle, &new, Role::DirNode(self.ino()))?;
        put(&block, handle, &old, Role::DirNode(self.ino()))?;
        let dir = self.volume.file(self.body).dir()?;
        self.list(handle, &dir, level, &steps[level], key, at)
    }

    /// Adds block `below` under `key` after the entry that `step` took.
    fn list(
        &self,
        handle: &Handle<'_>,
        dir: &Dir<'_>,
        level: usize,
        step: &Step,
        key: u32,
        below: LogicalBlock,
    ) -> Result<()> {
        let block = dir.mapped_block(step.block)?;
        let (site, seed) = (dir.site_of(&block), dir.seed.unwrap_or(0));
        let block = block.write(handle)?;
        let mut bytes = block.bytes_mut();
        let mut index = match level {
            0 => IndexMut::root(&mut bytes, &dir.format, self.levels_max(), seed, site)?,
            _ => IndexMut::node(&mut bytes, &dir.format, seed, site)?,
        };
        if step.entry >= index.view().count() || !index.insert_after(step.entry, key, below) {
            return Err(site.corrupt(What::HtreeNode));
        }
        Ok(())
    }

    /// Adds one level to the tree, below the root.
    fn push_down(&mut self, handle: &Handle<'_>) -> Result<()> {
        let (at, added) = self.append(handle)?;
        let dir = self.volume.file(self.body).dir()?;
        let block = dir.mapped_block(LogicalBlock(0))?;
        let (site, seed) = (dir.site_of(&block), dir.seed.unwrap_or(0));
        let mut root = block.read().to_vec();
        let mut node = vec![0; root.len()];
        IndexMut::root(&mut root, &dir.format, self.levels_max(), seed, site)?.push_down(
            &mut node,
            &dir.format,
            at,
        );
        put(&added, handle, &node, Role::DirNode(self.ino()))?;
        put(&block, handle, &root, Role::DirRoot(self.ino()))
    }
}

/// Replaces the whole content of a block, including its checksum, and records what the block is.
pub(super) fn put(
    block: &MetaBlock,
    handle: &Handle<'_>,
    content: &[u8],
    role: Role,
) -> Result<()> {
    block.write(handle)?.bytes_mut().copy_from_slice(content);
    block.set_verified_as(role.kind());
    Ok(())
}

impl Dir<'_> {
    fn is_full(&self, level: usize, step: &Step) -> bool {
        let (bytes, format) = (self.volume.block_size().bytes(), &self.format);
        let limit = match level {
            0 => limit_root(bytes, format.checksums),
            _ => limit_node(bytes, format.checksums, format.hash_words),
        };
        step.count >= limit
    }

    /// The bytes of a stored name that are hashed: folded if the directory is casefolded.
    ///
    /// Errors: `Unsupported` for an unknown encoding.
    pub(super) fn hashed<'n>(&self, name: &'n [u8]) -> Result<Cow<'n, [u8]>> {
        if !self.folds() {
            return Ok(Cow::Borrowed(name));
        }
        let superblock = self.volume.at_open();
        Ok(CaseFold::new(superblock.encoding, superblock.encoding_flags)?.hashed(name))
    }

    /// The hash of a stored name.
    pub(super) fn hash_stored(&self, version: HashVersion, name: &[u8]) -> Result<NameHash> {
        if version == HashVersion::SipHash {
            return Err(Error::Encrypted);
        }
        Ok(self.hasher(version).hash(&self.hashed(name)?))
    }
}
