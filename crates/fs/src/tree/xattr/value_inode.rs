//! Value inodes: created, shared by content, reference-counted, freed.
//!
//! ```text
//!   value inode   mode 0100600, flag EA_INODE, no name
//!     size, blocks    the value
//!     atime           crc32c(filesystem seed, value)
//!     ctime, version  high and low half of the number of entries that point to it
//! ```
//!
//! All counts change under one lock (`Rank::Shared`), without the table of inodes in use: a thread
//! that holds a handle must not wait for an inode's lock. An old style belongs to one inode (whose
//! number is in mtime, and whose generation it has); it has no count and is never shared. Source:
//! ext4 documentation, "Extended Attributes", value inodes.

use super::list::Stored;
use crate::inodes::create::NewInode;
use crate::space::inodes::InodeGoal;
use crate::state::inode::Body;
use crate::tree::xattr::{XattrStore, Xattrs, XattrsMut};
use extant_base::narrow::len_u32;
use extant_base::{Ino, LogicalBlock, Result, Site, What};
use extant_crc32c::crc32c;
use extant_journal::Handle;
use extant_ondisk::inode::{FileKind, InodeFlags};

impl XattrStore<'_> {
    /// A value inode with this value, with one more reference for an attribute of `owner`: an
    /// existing inode with the value, or a new one.
    ///
    /// `value` must not be empty. Errors: `NoSpace`, `Device`, `Corrupt`. Locks: takes `Shared`,
    /// `Group`.
    pub(super) fn value_make(
        self,
        handle: &Handle<'_>,
        owner: &Body,
        value: &[u8],
    ) -> Result<Stored> {
        let crc = crc32c(self.volume.checksum_seed(), value);
        let size = u32::try_from(value.len()).map_err(|_| extant_base::Error::NoSpace)?;
        let mut known = self.volume.shared_xattrs().values().lock();
        if let Some(ino) = known.find((crc, size)) {
            let mut body = self.volume.inodes().read(ino)?;
            if body.disk.value_crc() == crc
                && body.disk.value_references() > 0
                && self.volume.xattrs(&body).holds(value)?
            {
                let more = body.disk.value_references() + 1;
                self.volume.xattrs_mut(&mut body).store_count(handle, more)?;
                return Ok(Stored::InInode { ino, size, crc });
            }
        }
        let goal = match self.volume.space().bulk().is_on() {
            true => InodeGoal::InOrder,
            false => InodeGoal::Other { parent: owner.ino() },
        };
        let new = NewInode {
            uid: owner.disk.uid,
            gid: owner.disk.gid,
            flags: InodeFlags::EA_INODE,
            ..NewInode::at(goal, 0o100_600, self.volume.environment().now())
        };
        let (ino, mut body) = self.volume.inodes().allocate(handle, new)?;
        if let Err(error) = self.volume.file_mut(&mut body).write_content(handle, value) {
            self.volume.space().free_inode(handle, ino, false)?;
            return Err(error);
        }
        body.disk.size = u64::from(size);
        body.disk.set_value_crc(crc);
        self.volume.xattrs_mut(&mut body).store_count(handle, 1)?;
        known.note((crc, size), ino);
        Ok(Stored::InInode { ino, size, crc })
    }

    /// Adds a reference to a value inode.
    ///
    /// Errors: `XattrInode` if `value` is not a value inode; `Corrupt`, `Device`.
    pub(super) fn value_add(self, handle: &Handle<'_>, value: Ino) -> Result<()> {
        let _known = self.volume.shared_xattrs().values().lock();
        let mut body = self.value_body(value)?;
        let more = body.disk.value_references().saturating_add(1);
        self.volume.xattrs_mut(&mut body).store_count(handle, more)
    }

    /// Drops a reference of `owner` to a value inode, and frees the inode with its last reference.
    ///
    /// Errors: `XattrInode` if `value` is not a value inode; `Corrupt`, `Device`.
    pub(super) fn value_drop(self, handle: &Handle<'_>, owner: &Body, value: Ino) -> Result<()> {
        let mut known = self.volume.shared_xattrs().values().lock();
        let mut body = self.value_body(value)?;
        let owned = body.disk.value_owner() == owner.ino().get()
            && body.disk.generation == owner.disk.generation;
        let left = body.disk.value_references().saturating_sub(1);
        if left > 0 && !owned {
            return self.volume.xattrs_mut(&mut body).store_count(handle, left);
        }
        // Only values below 4 GiB are known.
        if let Ok(size) = u32::try_from(body.disk.size) {
            known.drop_inode((body.disk.value_crc(), size), value);
        }
        body.disk.set_value_references(0);
        self.volume.file_mut(&mut body).release_inode(handle)
    }

    fn value_body(self, value: Ino) -> Result<Body> {
        let body = self.volume.inodes().read(value)?;
        let is_value = body.disk.flags.contains(InodeFlags::EA_INODE)
            && body.file_kind() == FileKind::Regular
            && body.disk.links > 0;
        match is_value && value.get() >= self.volume.at_open().first_ino {
            true => Ok(body),
            false => Err(Site::of_ino(value).corrupt(What::XattrInode)),
        }
    }
}

impl XattrsMut<'_> {
    fn store_count(&mut self, handle: &Handle<'_>, count: u64) -> Result<()> {
        self.body.disk.set_value_references(count);
        self.body.store(self.volume, handle)?;
        self.volume.inode_table().forget(self.ino());
        Ok(())
    }
}

impl Xattrs<'_> {
    /// Whether the inode's content is `value`.
    fn holds(self, value: &[u8]) -> Result<bool> {
        if self.body.disk.size != value.len() as u64 {
            return Ok(false);
        }
        for (n, part) in value.chunks(self.volume.block_size().bytes()).enumerate() {
            let block = self.volume.file(self.body).content_block(LogicalBlock(len_u32(n)))?;
            match block {
                Some(block) if block.read()[..part.len()] == *part => {}
                _ => return Ok(false),
            }
        }
        Ok(true)
    }
}
