//! Inserting a name into a directory.
//!
//! ```text
//!   inline   i_block ─ attribute ─ attribute grown ──full──► converted to one block
//!   linear   first slack in any block ──none──► one block, dir_index: converted to an htree
//!                                       └─────► else one block more
//!   htree    the leaf of the hash ──full──► one split, then search again
//! ```
//!
//! Each step leaves a valid directory. An insert that runs out of blocks half-way has only split a
//! leaf or node earlier than necessary.

use super::fold::Wanted;
use super::linear::Names;
use super::{Dir, Form};
use crate::context::role::Role;
use crate::inodes::file::FileRef;
use crate::tree::dir::DirMut;
use extant_base::{Error, Ino, LogicalBlock, Result, Site, What};
use extant_journal::{Handle, MetaBlock};
use extant_ondisk::dirent::{DirBlock, DirBlockMut, EntryKind, NAME_MAX, name_is_legal};
use extant_ondisk::features::Compat;
use extant_ondisk::hash::HashVersion;
use extant_ondisk::inode::InodeFlags;

/// More steps than any insert needs: each split halves a leaf, and a tree has at most three levels.
const STEPS_MAX: usize = 64;

/// A name to insert, and its inode.
#[derive(Clone, Copy)]
pub(super) struct NewName<'a> {
    pub(super) name: &'a [u8],
    pub(super) target: Ino,
    pub(super) kind: EntryKind,
}

impl DirMut<'_> {
    /// Inserts `name` for inode `target` into the directory.
    ///
    /// The caller stores the inode, sets its times, and counts links. If the call fails after it
    /// changed the directory's size, it has stored the inode itself. Errors: `Exists`; `NoSpace`;
    /// `NameTooLong`, `NameNotUtf8`, `Invalid` for a name that is not allowed; `Encrypted` if names
    /// can be added only with a key; `Corrupt`; `Device`. Locks: the caller holds the inode's;
    /// takes `Group`.
    pub(crate) fn insert(
        &mut self,
        handle: &Handle<'_>,
        name: &[u8],
        target: Ino,
        kind: EntryKind,
    ) -> Result<()> {
        self.body.moves.change();
        let before = (self.body.disk.size, self.body.disk.sectors, self.body.disk.flags);
        let new = NewName { name, target, kind };
        let done = self.insert_name(handle, new);
        let after = (self.body.disk.size, self.body.disk.sectors, self.body.disk.flags);
        if done.is_err() && before != after {
            self.body.store(self.volume, handle)?;
        }
        done
    }

    fn insert_name(&mut self, handle: &Handle<'_>, new: NewName<'_>) -> Result<()> {
        let dir = self.volume.file(self.body).dir()?;
        if dir.is_encrypted() {
            return Err(Error::Encrypted);
        }
        check_new_name(new.name)?;
        let wanted = Wanted::new(&dir, new.name)?;
        if dir.form == Form::Inline {
            if dir.find(new.name)?.is_some() {
                return Err(Error::Exists);
            }
            if self.insert_inline(new)? {
                return Ok(());
            }
            self.inline_to_block(handle)?;
        }
        if self.volume.file(self.body).dir()?.form == Form::Indexed {
            match self.insert_indexed(handle, &wanted, new) {
                // Without checksums, an index block looks like an empty leaf, so the directory can
                // continue as linear.
                Err(error) if is_bad_index(&error) && self.volume.checksums().seed().is_none() => {
                    self.volume.context().note_error(&error);
                    self.body.disk.flags.remove(InodeFlags::INDEX);
                }
                done => return done,
            }
        }
        self.insert_linear(handle, &wanted, new)
    }
}

impl FileRef<'_> {
    /// Finds where `name` can be inserted in the directory, which must not have the name.
    ///
    /// The result is valid while the directory's lock is held. Errors: `Exists`; those of
    /// [`DirMut::insert`].
    pub(crate) fn dir_insert_place(self, name: &[u8]) -> Result<InsertPlace> {
        let dir = self.dir()?;
        let free = |found: Option<super::Found>| match found {
            Some(_) => Err(Error::Exists),
            None => Ok(()),
        };
        if dir.is_encrypted() {
            return free(dir.find(name)?).and(Err(Error::Encrypted));
        }
        check_new_name(name)?;
        let wanted = Wanted::new(&dir, name)?;
        let space = match dir.form {
            Form::Inline => {
                free(dir.find(name)?)?;
                None
            }
            Form::Linear => dir.find_space(&wanted, name)?,
            Form::Indexed => match dir.find_indexed_space(&wanted, name) {
                Err(error) if is_bad_index(&error) && self.volume.checksums().seed().is_none() => {
                    free(dir.find(name)?)?;
                    None
                }
                space => space?.0,
            },
        };
        Ok(space.map_or(InsertPlace::Search, InsertPlace::Entry))
    }
}

impl DirMut<'_> {
    /// As [`DirMut::insert`], at the place that [`FileRef::dir_insert_place`] found under the
    /// same lock.
    #[allow(clippy::too_many_arguments)]
    pub(crate) fn insert_at(
        &mut self,
        handle: &Handle<'_>,
        place: InsertPlace,
        name: &[u8],
        target: Ino,
        kind: EntryKind,
    ) -> Result<()> {
        self.body.moves.change();
        match place {
            InsertPlace::Entry(space) => self.volume.file(self.body).dir()?.insert_at(
                handle,
                space,
                NewName { name, target, kind },
            ),
            InsertPlace::Search => self.insert(handle, name, target, kind),
        }
    }

    fn insert_linear(
        &mut self,
        handle: &Handle<'_>,
        wanted: &Wanted<'_>,
        new: NewName<'_>,
    ) -> Result<()> {
        let dir = self.volume.file(self.body).dir()?;
        if dir.blocks == 0 {
            return Err(dir.site().corrupt(What::DirectorySize));
        }
        if let Some(space) = dir.find_space(wanted, new.name)? {
            return dir.insert_at(handle, space, new);
        }
        if dir.blocks == 1 && self.volume.has_compat(Compat::DIR_INDEX) {
            self.linear_to_htree(handle)?;
            return self.insert_indexed(handle, wanted, new);
        }
        let (_, block) = self.append(handle)?;
        let dir = self.volume.file(self.body).dir()?;
        {
            let block_mut = block.write(handle)?;
            let seed = dir.seed.unwrap_or(0);
            let mut bytes = block_mut.bytes_mut();
            DirBlockMut::new(&mut bytes, dir.format, seed, dir.site_of(&block)).init_empty();
        }
        block.set_verified_as(Role::DirLeaf(self.ino()).kind());
        dir.insert_at(handle, EntrySpace { block, offset: 0 }, new)
    }

    fn insert_indexed(
        &mut self,
        handle: &Handle<'_>,
        wanted: &Wanted<'_>,
        new: NewName<'_>,
    ) -> Result<()> {
        for _ in 0..STEPS_MAX {
            let dir = self.volume.file(self.body).dir()?;
            let probe = match dir.find_indexed_space(wanted, new.name)? {
                (Some(space), _) => return dir.insert_at(handle, space, new),
                (None, probe) => probe,
            };
            self.split(handle, &probe)?;
        }
        Err(Error::NoSpace)
    }
}

/// Where a name can be inserted.
pub(crate) enum InsertPlace {
    /// In the slack of an entry: the insert changes that block alone.
    Entry(EntrySpace),
    /// The insert must make space, or search for it in the inode.
    Search,
}

/// An entry of a leaf whose slack is large enough for a name.
pub(crate) struct EntrySpace {
    block: MetaBlock,
    offset: usize,
}

/// Checks that `name` is allowed for a file.
pub(super) fn check_new_name(name: &[u8]) -> Result<()> {
    if name.len() > NAME_MAX {
        return Err(Error::NameTooLong);
    }
    if !name_is_legal(name) || matches!(name, b"." | b"..") {
        return Err(Error::Invalid("a name is empty, a dot name, or holds a slash or NUL"));
    }
    Ok(())
}

fn is_bad_index(error: &Error) -> bool {
    let Error::Corrupt { what, .. } = error else { return false };
    matches!(what, What::HtreeRoot | What::HtreeNode | What::HtreeDepth | What::HtreeLeaf)
}

impl Dir<'_> {
    /// Block `at`. A directory without it is damaged.
    pub(super) fn mapped_block(&self, at: LogicalBlock) -> Result<MetaBlock> {
        self.block(at)?.ok_or_else(|| self.site().corrupt(What::DirectoryHole))
    }

    /// A leaf: a block with names, checked.
    fn leaf_block(&self, at: LogicalBlock) -> Result<MetaBlock> {
        let block = self.mapped_block(at)?;
        match self.check_block(at, &block)? {
            Names::Leaf => Ok(block),
            Names::Root | Names::Node => Err(self.site_of(&block).corrupt(What::HtreeLeaf)),
        }
    }

    /// Walks a leaf once and finds the first entry with `need` bytes of slack.
    ///
    /// Errors: `Exists` if the leaf has the name.
    fn scan(&self, block: &MetaBlock, wanted: &Wanted<'_>, need: usize) -> Result<Option<usize>> {
        let bytes = block.read();
        let mut space = None;
        let view = DirBlock::new(&bytes, self.format, self.site_of(block));
        let right = self.names_are_right(block);
        for entry in if right { view.trusted_entries() } else { view.entries() } {
            let entry = entry?;
            let own = match entry.ino {
                Some(_) if wanted.is(&entry) => return Err(Error::Exists),
                Some(_) => self.format.need(entry.name),
                None => 0,
            };
            if space.is_none() && entry.rec_len.saturating_sub(own) >= need {
                space = Some(entry.offset);
            }
        }
        if !right {
            block.set_verified_as(Role::DirNames(self.ino).kind());
        }
        Ok(space)
    }

    /// Free space for `name` in the leaf of its hash, and the path to that leaf.
    ///
    /// Errors: `Exists` if a leaf of the hash has the name.
    fn find_indexed_space(
        &self,
        wanted: &Wanted<'_>,
        name: &[u8],
    ) -> Result<(Option<EntrySpace>, super::htree::Probe)> {
        let probe = self.probe(|version| match version {
            HashVersion::SipHash => Err(Error::Encrypted),
            version => wanted.hash(&self.hasher(version)).ok_or(Error::Encrypted),
        })?;
        let block = self.leaf_block(probe.leaf)?;
        let offset = self.scan(&block, wanted, self.format.need(name))?;
        if self.chain_has(probe, wanted)? {
            return Err(Error::Exists);
        }
        Ok((offset.map(|offset| EntrySpace { block, offset }), probe))
    }

    /// The first free space for `name` in a linear directory.
    ///
    /// Errors: `Exists` if the directory has the name.
    fn find_space(&self, wanted: &Wanted<'_>, name: &[u8]) -> Result<Option<EntrySpace>> {
        let need = self.format.need(name);
        let mut space = None;
        for at in 0..self.blocks {
            if at % super::linear::SCAN_AHEAD == 0 {
                self.prefetch(LogicalBlock(at), super::linear::SCAN_AHEAD);
            }
            let block = self.leaf_block(LogicalBlock(at))?;
            let offset = self.scan(&block, wanted, need)?;
            if space.is_none() {
                space = offset.map(|offset| EntrySpace { block, offset });
            }
        }
        Ok(space)
    }

    /// Whether the name is in one of the further leaves in which the hash of `probe` continues.
    ///
    /// A folded name that a writer with other Unicode tables stored under another hash is not
    /// found: a search through all blocks would make each insert cost as much as the whole
    /// directory.
    fn chain_has(&self, mut probe: super::htree::Probe, wanted: &Wanted<'_>) -> Result<bool> {
        for _ in 0..self.blocks {
            if !self.next_leaf(&mut probe)? {
                return Ok(false);
            }
            let block = self.leaf_block(probe.leaf)?;
            if self.find_in_block(probe.leaf, &block, wanted)?.is_some() {
                return Ok(true);
            }
        }
        Err(self.site().corrupt(What::HtreeLeaf))
    }

    /// Inserts the name at the space that was found for it.
    fn insert_at(&self, handle: &Handle<'_>, space: EntrySpace, new: NewName<'_>) -> Result<()> {
        let site = self.site_of(&space.block);
        let block = space.block.write(handle)?;
        let mut bytes = block.bytes_mut();
        let mut leaf = DirBlockMut::new(&mut bytes, self.format, self.seed.unwrap_or(0), site);
        let placed = leaf.insert_at(space.offset, new.name, new.target, new.kind, None)?;
        placed.map(drop).ok_or(site.offset(space.offset).corrupt(What::DirentLength))
    }
}

impl DirMut<'_> {
    /// Inserts the name into an inline directory, whose attribute grows as far as the inode allows.
    /// Returns `false` if the name does not fit.
    fn insert_inline(&mut self, new: NewName<'_>) -> Result<bool> {
        for grown in [false, true] {
            if grown && !self.grow_inline()? {
                return Ok(false);
            }
            let format = self.volume.file(self.body).dir_format();
            let range = self.volume.file(self.body).inline_value_range()?;
            let at = Site::of_ino(self.ino());
            let mut dir = extant_ondisk::inline_dir::InlineDirMut::new(
                &mut self.body.disk.i_block,
                &mut self.body.raw[range],
                format,
                at,
            );
            if dir.insert(new.name, new.target, new.kind)?.is_some() {
                return Ok(true);
            }
        }
        Ok(false)
    }
}
