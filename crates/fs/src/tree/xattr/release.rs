//! Freeing the values in value inodes, whatever the size of the journal.
//!
//! ```text
//!   one attribute ─► one value freed ─► … transaction full: restart ─► … ─► none left
//!   a block that other inodes share keeps its references: nothing to free
//! ```

use crate::tree::xattr::by_name::XattrMode;
use crate::tree::xattr::list::{Attribute, Stored};
use crate::tree::xattr::{Xattrs, XattrsMut};
use extant_base::{Result, Site};
use extant_journal::{Credits, Handle};
use extant_ondisk::features::Incompat;
use extant_ondisk::xattr::{BlockHeader, NameIndex};

impl XattrsMut<'_> {
    /// Removes all attributes that have value inodes, and restarts the handle as
    /// [`FileMut::unmap_in_steps`](crate::inodes::file::FileMut::unmap_in_steps) does. For an inode
    /// that is being released.
    ///
    /// The caller stores the inode at the end, even after an error. Errors: `Corrupt`, `Device`.
    /// Locks: the caller holds the inode's; takes `Shared`, `Group`.
    pub(crate) fn drop_values(&mut self, handle: &mut Handle<'_>, keep: Credits) -> Result<()> {
        if !self.volume.has_incompat(Incompat::EA_INODE) {
            return Ok(());
        }
        while let Some((index, name)) = self.as_ref().any_value()? {
            let step = self.as_ref().credits(0)?;
            self.volume.file_mut(self.body).next_step(handle, step, keep, &mut |_, _| Ok(()))?;
            self.set(handle, index, &name, None, XattrMode::Any)?;
        }
        Ok(())
    }
}

impl Xattrs<'_> {
    /// An attribute that has a value inode and is not in a block that other inodes share.
    fn any_value(self) -> Result<Option<(NameIndex, Vec<u8>)>> {
        let mut list = self.tail_list()?;
        if let Some(nr) = self.body.disk.file_acl {
            let block = self.volume.xattr_store().block(self.ino(), nr)?;
            let at = Site::of_ino(self.ino()).block(nr);
            if BlockHeader::read(&block.read(), at)?.refcount <= 1 {
                list.extend(self.block_list()?);
            }
        }
        let is_value = |a: &Attribute| matches!(a.value, Stored::InInode { .. });
        Ok(list.into_iter().find(is_value).map(|a| (a.index, a.name)))
    }
}
