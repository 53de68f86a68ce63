//! Removing content: truncating a file, and releasing an inode that is no longer needed.
//!
//! ```text
//!   truncate        blocks after the new end freed, the rest of its last block zeroed
//!   release_inode   content ─► attribute block, value inodes ─► slot: links 0, dtime ─► number
//! ```
//!
//! Blocks that the engine wrote as metadata (directories, long symlinks, attribute values) leave
//! the cache before they can be allocated again: a late write home must not overwrite a new owner's
//! data.

use crate::files::data::DataPath;
use crate::files::file::set_len::LARGE_FILE;
use crate::inodes::file::{FileMut, FileRef};
use crate::inodes::map::{LOGICAL_END, Target};
use crate::state::inode::Counted;
use extant_base::{BlockNr, Error, Result, Site, What};
use extant_journal::Handle;
use extant_ondisk::features::RoCompat;
use extant_ondisk::inode::{FileKind, InodeFlags};

impl FileRef<'_> {
    /// Whether `i_block` holds a map of blocks.
    pub(crate) fn has_map(self) -> bool {
        match self.body.file_kind() {
            FileKind::Regular | FileKind::Directory => !self.body.disk.has_inline_data(),
            FileKind::Symlink => {
                !self.body.disk.has_inline_data()
                    && !self.body.disk.is_fast_symlink(self.volume.inode_format())
            }
            _ => false,
        }
    }
}

impl FileMut<'_> {
    /// Unmaps and frees all blocks from logical block `from` on, of content that the cache of
    /// metadata holds.
    ///
    /// The caller stores the inode. Errors and locks as `FileMut::unmap`.
    pub(crate) fn unmap_content(&mut self, handle: &Handle<'_>, from: u32) -> Result<()> {
        self.as_ref().forget_content(handle, from)?;
        self.unmap(handle, from..LOGICAL_END)
    }
}

impl FileRef<'_> {
    /// Drops the cached copies of all mapped blocks from logical block `from` on.
    fn forget_content(self, handle: &Handle<'_>, from: u32) -> Result<()> {
        // A crafted map can name one block any number of times.
        let mut left = self.volume.geometry().blocks_count();
        for run in self.runs(from..LOGICAL_END) {
            let run = run?;
            let Target::Written(first) = run.target else { continue };
            left = left
                .checked_sub(u64::from(run.len))
                .ok_or_else(|| Site::of_ino(self.ino()).corrupt(What::InodeBlocks))?;
            for n in 0..u64::from(run.len) {
                handle.forget(BlockNr(first.0 + n));
            }
        }
        Ok(())
    }
}

impl FileMut<'_> {
    /// Frees all blocks of an inode, and its number: the last step of an unlink, or of orphan
    /// processing.
    ///
    /// This stores the slot. The caller has removed every orphan record of the inode. Blocks that
    /// cannot be freed because of damage are noted and stay allocated until a checker frees them:
    /// with a record, the next open of the volume would meet the same damage. Errors: `Device`.
    /// Locks: the inode's is held; takes those of value inodes, and `Group`.
    pub(crate) fn release_inode(&mut self, handle: &Handle<'_>) -> Result<()> {
        let kind = self.body.file_kind();
        if self.as_ref().has_map() {
            self.volume.context().skip_damage(match self.as_ref().content_is_metadata() {
                false => self.unmap(handle, 0..LOGICAL_END),
                true => self.unmap_content(handle, 0),
            })?;
        }
        if let Some(block) = self.body.disk.translator.take() {
            self.volume.context().skip_damage(self.free_metadata(handle, block))?;
        }
        // A value inode has no attributes, whatever its slot contains.
        if !self.body.disk.flags.contains(InodeFlags::EA_INODE) {
            self.volume
                .context()
                .skip_damage(self.volume.xattrs_mut(self.body).release_all(handle))?;
        }
        let now = u32::try_from(self.volume.environment().now().sec).unwrap_or(u32::MAX);
        self.body.disk.links = 0;
        self.body.disk.size = 0;
        // A smaller time, of a clock that is not set, would be the number of the next orphan.
        self.body.disk.dtime = now.max(self.volume.geometry().inodes_count());
        (self.body.disk.uid, self.body.disk.gid) =
            (self.body.disk.uid & 0xFFFF, self.body.disk.gid & 0xFFFF);
        self.body.counted = match self.body.counted {
            // The slot holds an earlier inode.
            Counted::New | Counted::Never => Counted::Never,
            Counted::Kept | Counted::Released => Counted::Released,
        };
        self.body.store(self.volume, handle)?;
        self.volume.inode_table().forget(self.ino());
        self.volume.context().skip_damage(self.volume.space().free_inode(
            handle,
            self.ino(),
            kind == FileKind::Directory,
        ))
    }

    /// Truncates a regular file to `new_size` bytes, or extends it with a hole.
    ///
    /// Data of the last block after the new end is zeroed on the device. The caller stores the
    /// inode and sets its times. Errors: `Invalid` for other kinds of file, `IsADirectory` for a
    /// directory; `FileTooLarge`; `Corrupt`, `Device`. Locks: the inode's is held; takes `Group`.
    pub(crate) fn truncate(&mut self, handle: &Handle<'_>, new_size: u64) -> Result<()> {
        match self.body.file_kind() {
            FileKind::Regular => {}
            FileKind::Directory => return Err(Error::IsADirectory),
            _ => return Err(Error::Invalid("not a regular file")),
        }
        if new_size > self.body.disk.max_size(self.volume.inode_format()) {
            return Err(Error::FileTooLarge);
        }
        let old_size = self.body.disk.size;
        if self.body.disk.has_inline_data() {
            self.volume.inline_mut(self.body).truncate(new_size.min(old_size))?;
        } else {
            let size = self.volume.block_size();
            if new_size < old_size {
                let keep = u32::try_from(size.blocks_for(new_size)).unwrap_or(LOGICAL_END);
                self.unmap(handle, keep..LOGICAL_END)?;
            }
            match self.zero_after(DataPath::Under(handle), new_size.min(old_size)) {
                // The block stays unreadable, and its bytes after the end belong to no file.
                Err(Error::Corrupt { what: What::DataChecksum, .. }) => {}
                done => done?,
            }
        }
        self.body.resize(new_size);
        if new_size >= LARGE_FILE {
            self.volume.context().add_ro_compat(handle, RoCompat::LARGE_FILE)?;
        }
        Ok(())
    }
}
