//! Freeing the values in value inodes, whatever the size of the journal.
//!
//! ```text
//!   one attribute ─► one value freed ─► … transaction full: restart ─► … ─► none left
//!   a block that other inodes share keeps its references: nothing to free
//! ```

use crate::state::inode::Body;
use crate::tree::xattr::by_name::XattrMode;
use crate::tree::xattr::list::{Attribute, Stored};
use crate::volume::Volume;
use extant_base::{Ino, Result, Site};
use extant_journal::{Credits, Handle};
use extant_ondisk::features::Incompat;
use extant_ondisk::xattr::{BlockHeader, NameIndex};

impl Volume {
    /// Removes all attributes that have value inodes, and restarts the handle as
    /// [`Volume::unmap_in_steps`] does. For an inode that is being released.
    ///
    /// The caller stores the inode at the end, even after an error. Errors: `Corrupt`, `Device`.
    /// Locks: the caller holds the inode's; takes `Shared`, `Group`.
    pub(crate) fn xattr_drop_values(
        &self,
        ino: Ino,
        body: &mut Body,
        handle: &mut Handle<'_>,
        keep: Credits,
    ) -> Result<()> {
        if !self.has_incompat(Incompat::EA_INODE) {
            return Ok(());
        }
        while let Some((index, name)) = self.any_value(ino, body)? {
            let step = self.xattr_credits(ino, body, 0)?;
            self.next_step(ino, body, handle, step, keep, &mut |_, _| Ok(()))?;
            self.xattr_set(handle, ino, body, index, &name, None, XattrMode::Any)?;
        }
        Ok(())
    }

    /// An attribute that has a value inode and is not in a block that other inodes share.
    fn any_value(&self, ino: Ino, body: &Body) -> Result<Option<(NameIndex, Vec<u8>)>> {
        let mut list = self.xattr_tail_list(ino, body)?;
        if let Some(nr) = body.disk.file_acl {
            let block = self.xattr_block(ino, nr)?;
            let at = Site::of_ino(ino).block(nr);
            if BlockHeader::read(&block.read(), at)?.refcount <= 1 {
                list.extend(self.xattr_block_list(ino, body)?);
            }
        }
        let is_value = |a: &Attribute| matches!(a.value, Stored::InInode { .. });
        Ok(list.into_iter().find(is_value).map(|a| (a.index, a.name)))
    }
}
