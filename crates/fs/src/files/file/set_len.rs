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
use crate::files::file::write::check_writable_file;
use crate::inodes::map::LOGICAL_END;
use crate::inodes::orphan::ORPHAN_CREDITS;
use crate::state::inode::orphans::OrphanPlace;
use crate::state::inode::{Body, Inode};
use crate::volume::Volume;
use extant_base::{Error, Ino, Result};
use extant_journal::{Credits, Handle};
use extant_ondisk::features::RoCompat;
use extant_ondisk::inode::{I_BLOCK_SIZE, InodeFlags};
use std::sync::atomic::Ordering;

/// From this size on the volume needs the feature `large_file`.
pub(crate) const LARGE_FILE: u64 = 1 << 31;

impl Volume {
    /// The largest size that the file can have. It is limited by what the map reaches, by the size
    /// field, and, without `huge_file`, by what the sector count can express.
    pub(crate) fn max_file_size(&self, body: &Body) -> u64 {
        let log2 = self.block_size().log2();
        let reach = match body.disk.has_inline_data() {
            // It will get the map of a new file.
            true => u64::MAX,
            false => body.disk.max_size(self.inode_format()),
        };
        let most = reach.min(u64::from(LOGICAL_END) << log2).min(i64::MAX as u64);
        if self.has_ro_compat(RoCompat::HUGE_FILE) {
            return most;
        }
        most.min(u64::from(u32::MAX) << 9 >> log2 << log2)
    }

    /// Sets the size in the inode, and the volume's feature for large files if needed.
    pub(crate) fn set_size_field(
        &self,
        body: &mut Body,
        handle: &Handle<'_>,
        size: u64,
    ) -> Result<()> {
        body.resize(size);
        match size >= LARGE_FILE {
            true => self.context().add_ro_compat(handle, RoCompat::LARGE_FILE),
            false => Ok(()),
        }
    }

    /// Truncates a regular file to `size` bytes, or extends it with a hole.
    ///
    /// Errors: as `File::set_len`. Locks: as [`Volume::quiesce`], then handles.
    pub(crate) fn set_len(&self, inode: &Inode, size: u64) -> Result<()> {
        self.context().check_writable()?;
        let mut body = self.quiesce(inode);
        self.check_resizable(&body, size)?;
        if size == 0 && body.size > 0 {
            inode.write_back_at_close.store(true, Ordering::Relaxed);
        }
        self.resize_file(inode.ino, &mut body, size)
    }

    /// Whether the size of this file may become `size`.
    ///
    /// Errors: `IsADirectory`, `Invalid` for other kinds of file, `NotPermitted`, `Encrypted`,
    /// `FileTooLarge`.
    pub(crate) fn check_resizable(&self, body: &Body, size: u64) -> Result<()> {
        check_writable_file(body)?;
        if body.flags.contains(InodeFlags::APPEND) {
            return Err(Error::NotPermitted);
        }
        match size > self.max_file_size(body) {
            true => Err(Error::FileTooLarge),
            false => Ok(()),
        }
    }

    /// Gives a regular file its new size and sets its times. The caller has checked it with
    /// `Volume::check_resizable`, and no data of it is in flight ([`Volume::quiesce`]).
    pub(crate) fn resize_file(&self, ino: Ino, body: &mut Body, size: u64) -> Result<()> {
        self.drop_capability(ino, body)?;
        if body.disk.has_inline_data() {
            self.inline_parts(ino, body)?;
            let capacity = (I_BLOCK_SIZE + self.inline_value_max(ino, body)?) as u64;
            if size > capacity {
                self.leave_inline(ino, body)?;
            }
        }
        let done = self.journal().start(self.resize_credits(body)).and_then(|mut handle| {
            let done = self.resize_under(ino, body, &mut handle, size);
            body.store(self, &handle)?;
            handle.stop()?;
            done
        });
        if let (Err(_), Some(file_cache)) = (&done, &body.file_cache) {
            file_cache.pages.set_len(body.size);
        }
        done
    }

    /// Credits of the first handle of a size change: the inode, the block around the end if the
    /// journal has it, the features, an orphan record.
    fn resize_credits(&self, body: &Body) -> Credits {
        Credits::blocks(self.store_credits() + 1 + SUPERBLOCK_CREDITS + 2 * ORPHAN_CREDITS)
            .plus(self.zero_credits(body))
    }

    fn resize_under(
        &self,
        ino: Ino,
        body: &mut Body,
        handle: &mut Handle<'_>,
        size: u64,
    ) -> Result<()> {
        let old = body.size;
        if body.disk.has_inline_data() {
            self.inline_truncate(ino, body, size.min(old))?;
        } else {
            self.zero_after(self.data_path(body, handle), ino, body, size.min(old))?;
        }
        // Not earlier: if anything up to here fails, the dirty bytes must still be there.
        if let Some(file_cache) = body.file_cache.as_ref().filter(|_| size <= old) {
            // First the length: a concurrent reader then sees the end, not zeros before it.
            file_cache.pages.set_len(size);
            file_cache.pages.truncate(size);
            let keep = u32::try_from(self.block_size().blocks_for(size)).unwrap_or(LOGICAL_END);
            self.forget_delayed(body, keep..LOGICAL_END);
        }
        self.set_size_field(body, handle, size)?;
        let now = self.environment().now();
        body.content_changed(now);
        // Setting the same size frees what was allocated beyond it.
        if size > old || body.disk.has_inline_data() || is_unmapped(body) {
            return Ok(());
        }
        let keep = u32::try_from(self.block_size().blocks_for(size)).unwrap_or(LOGICAL_END);
        self.unmap_tail(ino, body, handle, keep)
    }

    /// Frees the blocks of a file from `keep` on, in as many transactions as needed.
    fn unmap_tail(
        &self,
        ino: Ino,
        body: &mut Body,
        handle: &mut Handle<'_>,
        keep: u32,
    ) -> Result<()> {
        let rest = Credits::blocks(self.store_credits() + 2 * ORPHAN_CREDITS);
        let range = keep..LOGICAL_END;
        let mut recorded = false;
        let ready = &mut |handle: &Handle<'_>, body: &mut Body| {
            // An unlinked inode has its orphan record anyway, until its last holder releases it.
            recorded |= body.orphan == OrphanPlace::None;
            self.orphan_add(handle, ino, body)
        };
        let done = self.unmap_in_steps(ino, body, handle, range, rest, ready);
        // Also after an error: what cannot be freed now could not be freed at the next open either.
        match recorded {
            true => self.orphan_remove(handle, ino, body).and(done),
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
