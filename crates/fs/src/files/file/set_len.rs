//! A file's size: how large it can become, truncating it, extending it.
//!
//! ```text
//!   shorter   rest of the last block zeroed ─► folios dropped      may fail without loss
//!             size ─► blocks past it, from the end ─► …            has an orphan record from the
//!                                                                  handle's first restart on
//!   longer    rest of the old last block zeroed ─► size            a hole follows
//! ```
//!
//! Rule F2: the size never covers bytes before they are readable. Rule F4: recovery truncates a
//! file with an orphan record at its size; so it completes a truncation that a crash interrupted.

use crate::context::superblock::SUPERBLOCK_CREDITS;
use crate::files::FileIo;
use crate::files::file::write::check_writable_file;
use crate::inodes::file::{FileMut, FileRef};
use crate::inodes::map::LOGICAL_END;
use crate::inodes::map::credits::FileCredits;
use crate::inodes::orphan::ORPHAN_CREDITS;
use crate::state::inode::Body;
use crate::state::inode::orphans::OrphanPlace;
use extant_base::{Error, Result};
use extant_journal::{Credits, Handle};
use extant_ondisk::features::RoCompat;
use extant_ondisk::inode::{I_BLOCK_SIZE, InodeFlags};
use std::sync::atomic::Ordering;

/// From this size on the volume needs the feature `large_file`.
pub(crate) const LARGE_FILE: u64 = 1 << 31;

impl FileRef<'_> {
    /// The largest size that the file can have. It is limited by what the map reaches, by the size
    /// field, and, without `huge_file`, by what the sector count can express.
    pub(crate) fn max_file_size(self) -> u64 {
        let log2 = self.volume.block_size().log2();
        let reach = match self.body.disk.has_inline_data() {
            // It will get the map of a new file.
            true => u64::MAX,
            false => self.body.disk.max_size(self.volume.inode_format()),
        };
        let most = reach.min(u64::from(LOGICAL_END) << log2).min(i64::MAX as u64);
        if self.volume.has_ro_compat(RoCompat::HUGE_FILE) {
            return most;
        }
        most.min(u64::from(u32::MAX) << 9 >> log2 << log2)
    }
}

impl FileMut<'_> {
    /// Sets the size in the inode, and the volume's feature for large files if needed.
    pub(crate) fn set_size_field(&mut self, handle: &Handle<'_>, size: u64) -> Result<()> {
        self.body.resize(size);
        match size >= LARGE_FILE {
            true => self.volume.context().add_ro_compat(handle, RoCompat::LARGE_FILE),
            false => Ok(()),
        }
    }
}

impl FileIo<'_> {
    /// Truncates a regular file to `size` bytes, or extends it with a hole.
    ///
    /// Errors: as `File::set_len`. Locks: as [`FileIo::quiesce`], then handles.
    pub(crate) fn set_len(self, size: u64) -> Result<()> {
        self.volume.context().check_writable()?;
        let mut body = self.quiesce();
        self.volume.file(&body).check_resizable(size)?;
        if size == 0 && body.size > 0 {
            self.inode.write_back_at_close.store(true, Ordering::Relaxed);
        }
        self.volume.file_mut(&mut body).resize_file(size)
    }
}

impl FileRef<'_> {
    /// Whether the size of this file may become `size`.
    ///
    /// Errors: `IsADirectory`, `Invalid` for other kinds of file, `NotPermitted`, `Encrypted`,
    /// `FileTooLarge`.
    pub(crate) fn check_resizable(self, size: u64) -> Result<()> {
        check_writable_file(self.body)?;
        if self.body.flags.contains(InodeFlags::APPEND) {
            return Err(Error::NotPermitted);
        }
        match size > self.max_file_size() {
            true => Err(Error::FileTooLarge),
            false => Ok(()),
        }
    }
}

impl FileMut<'_> {
    /// Gives a regular file its new size and sets its times. The caller has checked it with
    /// `FileRef::check_resizable`, and no data of it is in flight ([`FileIo::quiesce`]).
    pub(crate) fn resize_file(&mut self, size: u64) -> Result<()> {
        self.volume.xattrs_mut(self.body).drop_capability()?;
        if self.body.disk.has_inline_data() {
            self.as_ref().inline_parts()?;
            let capacity = (I_BLOCK_SIZE + self.as_ref().inline_value_max()?) as u64;
            if size > capacity {
                self.leave_inline()?;
            }
        }
        let done =
            self.volume.journal().start(self.volume.credits_of(self.body).resize()).and_then(
                |mut handle| {
                    let done = self.resize_under(&mut handle, size);
                    self.body.store(self.volume, &handle)?;
                    handle.stop()?;
                    done
                },
            );
        if let (Err(_), Some(file_cache)) = (&done, &self.body.file_cache) {
            file_cache.pages.set_len(self.body.size);
        }
        done
    }
}

impl FileCredits<'_> {
    /// Credits of the first handle of a size change: the inode, the block around the end if the
    /// journal has it, the features, an orphan record.
    fn resize(self) -> Credits {
        Credits::blocks(self.volume.credits().store() + 1 + SUPERBLOCK_CREDITS + 2 * ORPHAN_CREDITS)
            .plus(self.zero())
    }
}

impl FileMut<'_> {
    fn resize_under(&mut self, handle: &mut Handle<'_>, size: u64) -> Result<()> {
        let old = self.body.size;
        if self.body.disk.has_inline_data() {
            self.volume.inline_mut(self.body).truncate(size.min(old))?;
        } else {
            self.zero_after(self.as_ref().data_path(handle), size.min(old))?;
        }
        // Not earlier: if anything up to here fails, the dirty bytes must still be there.
        if let Some(file_cache) = self.body.file_cache.as_ref().filter(|_| size <= old) {
            // First the length: a concurrent reader then sees the end, not zeros before it.
            file_cache.pages.set_len(size);
            file_cache.pages.truncate(size);
            let keep =
                u32::try_from(self.volume.block_size().blocks_for(size)).unwrap_or(LOGICAL_END);
            self.volume.reservations(self.body).forget_delayed(keep..LOGICAL_END);
        }
        self.set_size_field(handle, size)?;
        let now = self.volume.environment().now();
        self.body.content_changed(now);
        // Setting the same size frees what was allocated beyond it.
        if size > old || self.body.disk.has_inline_data() || is_unmapped(self.body) {
            return Ok(());
        }
        let keep = u32::try_from(self.volume.block_size().blocks_for(size)).unwrap_or(LOGICAL_END);
        self.unmap_tail(handle, keep)
    }

    /// Frees the blocks of a file from `keep` on, in as many transactions as needed.
    fn unmap_tail(&mut self, handle: &mut Handle<'_>, keep: u32) -> Result<()> {
        let rest = Credits::blocks(self.volume.credits().store() + 2 * ORPHAN_CREDITS);
        let range = keep..LOGICAL_END;
        let mut recorded = false;
        let ready = &mut |handle: &Handle<'_>, body: &mut Body| {
            // An unlinked inode has its orphan record anyway, until its last holder releases it.
            recorded |= body.orphan == OrphanPlace::None;
            self.volume.file_mut(body).orphan_add(handle)
        };
        let done = self.unmap_in_steps(handle, range, rest, ready);
        // Also after an error: what cannot be freed now could not be freed at the next open either.
        match recorded {
            true => self.orphan_remove(handle).and(done),
            false => done,
        }
    }
}

/// Whether no block is mapped, judged from the root of the map alone.
pub(crate) fn is_unmapped(body: &Body) -> bool {
    match body.disk.has_extents() {
        true => crate::inodes::map::extent::node::entries(&body.disk.i_block) == 0,
        false => body.disk.i_block == [0; I_BLOCK_SIZE],
    }
}
