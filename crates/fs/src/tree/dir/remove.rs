//! Removing a name, changing its inode, and changing the parent of a directory.
//!
//! ```text
//!   remove       │ a │ gone ──┤  ──►  │ a ───────────┤      blocks are never freed
//!   set          │ name, inode 12, file ┤  ──►  │ name, inode 15, symlink ┤
//!   set_parent   ".." of block 0, of the htree root, or the first 4 bytes of an inline directory
//! ```

use super::linear::Names;
use super::{Form, Found, Place};
use crate::inodes::file::FileRef;
use crate::tree::dir::DirMut;
use extant_base::{BlockNr, Error, Ino, LogicalBlock, Result, Site, What};
use extant_journal::{Handle, Ineligible};
use extant_ondisk::dirent::{DirBlockMut, EntryKind};
use extant_ondisk::features::Incompat;
use extant_ondisk::htree::{IndexMut, levels_max};
use extant_ondisk::inline_dir::InlineDirMut;

/// Where the ".." entry of block 0 starts.
const DOTDOT_OFFSET: usize = 12;

impl DirMut<'_> {
    /// Removes `name` from the directory. Returns the inode of the name.
    ///
    /// The caller stores the inode, sets its times, and counts links. Errors: `NotFound`; `Invalid`
    /// for "." and ".."; `Corrupt`; `Device`. Locks: the caller holds the inode's; takes `Leaf`.
    pub(crate) fn remove(&mut self, handle: &Handle<'_>, name: &[u8]) -> Result<Ino> {
        let found = self.volume.file(self.body).find_to_change(name)?;
        self.remove_found(handle, found)?;
        Ok(found.ino)
    }

    /// As [`DirMut::remove`], for an entry that the caller has just found.
    pub(crate) fn remove_found(&mut self, handle: &Handle<'_>, found: Found) -> Result<()> {
        self.edit_entry(handle, found, |edit, offset| match edit {
            Edit::Block(block) => block.remove(offset),
            Edit::Inline(inline) => inline.remove(offset),
        })
    }

    /// Makes an entry that the caller has just found point to `target`. Otherwise as
    /// [`DirMut::remove`].
    pub(crate) fn set_found(
        &mut self,
        handle: &Handle<'_>,
        found: Found,
        target: Ino,
        kind: EntryKind,
    ) -> Result<()> {
        self.edit_entry(handle, found, |edit, offset| match edit {
            Edit::Block(block) => block.set_inode(offset, target, kind),
            Edit::Inline(inline) => inline.set_inode(offset, target, kind),
        })
    }

    /// Makes `name` in the directory point to `target`. Returns the name's former inode.
    ///
    /// Otherwise as [`DirMut::remove`].
    #[cfg(test)]
    pub(crate) fn set(
        &mut self,
        handle: &Handle<'_>,
        name: &[u8],
        target: Ino,
        kind: EntryKind,
    ) -> Result<Ino> {
        let found = self.volume.file(self.body).find_to_change(name)?;
        self.set_found(handle, found, target, kind)?;
        Ok(found.ino)
    }
}

impl FileRef<'_> {
    /// Checks that ".." of the directory is at its fixed offset and points to `parent`. A move
    /// calls this before it changes anything.
    ///
    /// Errors: `DirentDot`, `DirectoryParent`; `Corrupt`; `Device`.
    pub(crate) fn dir_check_parent(self, parent: Ino) -> Result<()> {
        let dir = self.dir()?;
        let found = dir.find(b"..")?;
        let mut site = Site::of_ino(self.ino());
        if dir.form != Form::Inline {
            let block = dir.mapped_block(LogicalBlock(0))?;
            site = dir.site_of(&block).offset(DOTDOT_OFFSET);
            let here =
                Place::Block { logical: LogicalBlock(0), nr: block.nr(), offset: DOTDOT_OFFSET };
            if found.as_ref().map(|found| &found.place) != Some(&here) {
                return Err(site.corrupt(What::DirentDot));
            }
        }
        match found.is_some_and(|found| found.ino == parent) {
            true => Ok(()),
            false => Err(site.corrupt(What::DirectoryParent)),
        }
    }
}

impl DirMut<'_> {
    /// Makes ".." of the directory point to `parent`.
    ///
    /// The caller stores the inode. Errors: `DirentDot` if block 0 has no ".."; `Corrupt`;
    /// `Device`.
    pub(crate) fn set_parent(&mut self, handle: &Handle<'_>, parent: Ino) -> Result<()> {
        self.volume.context().require_full_commit(handle, Ineligible::RenameDir);
        let dir = self.volume.file(self.body).dir()?;
        if dir.form == Form::Inline {
            let format = dir.format;
            let range = self.volume.file(self.body).inline_value_range()?;
            let at = Site::of_ino(self.ino());
            let (i_block, value) = (&mut self.body.disk.i_block, &mut self.body.raw[range]);
            InlineDirMut::new(i_block, value, format, at).set_parent(parent);
            return Ok(());
        }
        let block = dir.mapped_block(LogicalBlock(0))?;
        let names = dir.check_block(LogicalBlock(0), &block)?;
        let dotdot = dir.find(b"..")?.map(|found| found.place);
        let here = Place::Block { logical: LogicalBlock(0), nr: block.nr(), offset: DOTDOT_OFFSET };
        let (site, seed) = (dir.site_of(&block), dir.seed.unwrap_or(0));
        if dotdot != Some(here) {
            return Err(site.offset(DOTDOT_OFFSET).corrupt(What::DirentDot));
        }
        let block = block.write(handle)?;
        let mut bytes = block.bytes_mut();
        if names == Names::Root {
            let levels = levels_max(self.volume.has_incompat(Incompat::LARGEDIR));
            IndexMut::root(&mut bytes, &dir.format, levels, seed, site)?.set_parent(parent);
            return Ok(());
        }
        DirBlockMut::new(&mut bytes, dir.format_of(names), seed, site).set_inode(
            DOTDOT_OFFSET,
            parent,
            EntryKind::Directory,
        )
    }
}

impl FileRef<'_> {
    fn find_to_change(self, name: &[u8]) -> Result<Found> {
        if matches!(name, b"." | b"..") {
            return Err(Error::Invalid("\".\" and \"..\" stay"));
        }
        self.dir()?.lookup(name)
    }
}

impl DirMut<'_> {
    fn edit_entry(
        &mut self,
        handle: &Handle<'_>,
        found: Found,
        edit: impl FnOnce(Edit<'_, '_>, usize) -> Result<()>,
    ) -> Result<()> {
        self.body.moves.change();
        let dir = self.volume.file(self.body).dir()?;
        let (format, seed) = (dir.format, dir.seed.unwrap_or(0));
        match found.place {
            Place::Block { nr, offset, .. } => {
                let block = self.volume.journal().cache().get(nr)?;
                let block = block.write(handle)?;
                let mut bytes = block.bytes_mut();
                let site = site(self.ino(), nr);
                edit(Edit::Block(&mut DirBlockMut::new(&mut bytes, format, seed, site)), offset)
            }
            Place::Inline { offset } => {
                let at = Site::of_ino(self.ino());
                let range = self.volume.file(self.body).inline_value_range()?;
                let (i_block, value) = (&mut self.body.disk.i_block, &mut self.body.raw[range]);
                edit(Edit::Inline(&mut InlineDirMut::new(i_block, value, format, at)), offset)
            }
            Place::Implied => Err(Error::Invalid("\".\" and \"..\" stay")),
        }
    }
}

fn site(ino: Ino, nr: BlockNr) -> Site {
    Site::of_ino(ino).block(nr)
}

/// Where an entry is changed.
enum Edit<'e, 'b> {
    Block(&'e mut DirBlockMut<'b>),
    Inline(&'e mut InlineDirMut<'b>),
}
