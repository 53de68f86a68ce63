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
use crate::inodes::map::{LOGICAL_END, Target};
use crate::state::inode::{Body, Counted};
use crate::volume::Volume;
use extant_base::{BlockNr, Error, Ino, Result, Site, What};
use extant_journal::Handle;
use extant_ondisk::features::RoCompat;
use extant_ondisk::inode::{FileKind, InodeFlags};

impl Volume {
    /// Whether `i_block` holds a map of blocks.
    pub(crate) fn has_map(&self, body: &Body) -> bool {
        match body.file_kind() {
            FileKind::Regular | FileKind::Directory => !body.disk.has_inline_data(),
            FileKind::Symlink => {
                !body.disk.has_inline_data() && !body.disk.is_fast_symlink(self.inode_format())
            }
            _ => false,
        }
    }

    /// Unmaps and frees all blocks from logical block `from` on, of content that the cache of
    /// metadata holds.
    ///
    /// The caller stores the inode. Errors and locks as `Volume::unmap`.
    pub(crate) fn unmap_content(
        &self,
        handle: &Handle<'_>,
        ino: Ino,
        body: &mut Body,
        from: u32,
    ) -> Result<()> {
        self.forget_content(handle, ino, body, from)?;
        self.unmap(ino, body, handle, from..LOGICAL_END)
    }

    /// Drops the cached copies of all mapped blocks from logical block `from` on.
    fn forget_content(&self, handle: &Handle<'_>, ino: Ino, body: &Body, from: u32) -> Result<()> {
        // A crafted map can name one block any number of times.
        let mut left = self.geometry().blocks_count();
        for run in self.runs(ino, body, from..LOGICAL_END) {
            let run = run?;
            let Target::Written(first) = run.target else { continue };
            left = left
                .checked_sub(u64::from(run.len))
                .ok_or_else(|| Site::of_ino(ino).corrupt(What::InodeBlocks))?;
            for n in 0..u64::from(run.len) {
                handle.forget(BlockNr(first.0 + n));
            }
        }
        Ok(())
    }

    /// Frees all blocks of an inode, and its number: the last step of an unlink, or of orphan
    /// processing.
    ///
    /// This stores the slot. The caller has removed every orphan record of the inode. Blocks that
    /// cannot be freed because of damage are noted and stay allocated until a checker frees them:
    /// with a record, the next open of the volume would meet the same damage. Errors: `Device`.
    /// Locks: the inode's is held; takes those of value inodes, and `Group`.
    pub(crate) fn release_inode(
        &self,
        handle: &Handle<'_>,
        ino: Ino,
        body: &mut Body,
    ) -> Result<()> {
        let kind = body.file_kind();
        if self.has_map(body) {
            self.context().skip_damage(match self.content_is_metadata(body) {
                false => self.unmap(ino, body, handle, 0..LOGICAL_END),
                true => self.unmap_content(handle, ino, body, 0),
            })?;
        }
        if let Some(block) = body.disk.translator.take() {
            self.context().skip_damage(self.free_metadata(ino, body, handle, block))?;
        }
        // A value inode has no attributes, whatever its slot contains.
        if !body.disk.flags.contains(InodeFlags::EA_INODE) {
            self.context().skip_damage(self.xattr_release_all(handle, ino, body))?;
        }
        let now = u32::try_from(self.environment().now().sec).unwrap_or(u32::MAX);
        body.disk.links = 0;
        body.disk.size = 0;
        body.disk.dtime = now.max(1);
        (body.disk.uid, body.disk.gid) = (body.disk.uid & 0xFFFF, body.disk.gid & 0xFFFF);
        body.counted = match body.counted {
            // The slot holds an earlier inode.
            Counted::New | Counted::Never => Counted::Never,
            Counted::Kept | Counted::Released => Counted::Released,
        };
        body.store(self, handle)?;
        self.inodes().forget(ino);
        self.context().skip_damage(self.space().free_inode(
            handle,
            ino,
            kind == FileKind::Directory,
        ))
    }

    /// Truncates a regular file to `new_size` bytes, or extends it with a hole.
    ///
    /// Data of the last block after the new end is zeroed on the device. The caller stores the
    /// inode and sets its times. Errors: `Invalid` for other kinds of file, `IsADirectory` for a
    /// directory; `FileTooLarge`; `Corrupt`, `Device`. Locks: the inode's is held; takes `Group`.
    pub(crate) fn truncate(
        &self,
        handle: &Handle<'_>,
        ino: Ino,
        body: &mut Body,
        new_size: u64,
    ) -> Result<()> {
        match body.file_kind() {
            FileKind::Regular => {}
            FileKind::Directory => return Err(Error::IsADirectory),
            _ => return Err(Error::Invalid("not a regular file")),
        }
        if new_size > body.disk.max_size(self.inode_format()) {
            return Err(Error::FileTooLarge);
        }
        let old_size = body.disk.size;
        if body.disk.has_inline_data() {
            self.inline_truncate(ino, body, new_size.min(old_size))?;
        } else {
            let size = self.block_size();
            if new_size < old_size {
                let keep = u32::try_from(size.blocks_for(new_size)).unwrap_or(LOGICAL_END);
                self.unmap(ino, body, handle, keep..LOGICAL_END)?;
            }
            match self.zero_after(DataPath::Under(handle), ino, body, new_size.min(old_size)) {
                // The block stays unreadable, and its bytes after the end belong to no file.
                Err(Error::Corrupt { what: What::DataChecksum, .. }) => {}
                done => done?,
            }
        }
        body.resize(new_size);
        if new_size >= LARGE_FILE {
            self.context().add_ro_compat(handle, RoCompat::LARGE_FILE)?;
        }
        Ok(())
    }
}
