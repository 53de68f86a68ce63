//! Writing files whose content is in the inode.
//!
//! ```text
//!   empty, no blocks ──fits──► inline ──fits──► inline
//!                                  └─ too long ─► blocks, for good; the write continues there
//! ```

use crate::files::file::set_len::is_unmapped;
use crate::inodes::file::{FileMut, FileRef};
use extant_base::Result;
use extant_base::narrow::fits_usize;
use extant_journal::Credits;
use extant_ondisk::features::Incompat;
use extant_ondisk::inode::{I_BLOCK_SIZE, InodeFlags};
use extant_pagecache::Content;

impl FileMut<'_> {
    /// Writes `content` at byte `pos` into the inode, if it fits there. Returns how many bytes,
    /// always all of them. `None` means that the file has blocks now.
    pub(super) fn write_inline(&mut self, pos: u64, content: Content<'_>) -> Result<Option<usize>> {
        if !self.body.disk.has_inline_data() && !self.as_ref().may_become_inline() {
            return Ok(None);
        }
        if self.body.disk.has_inline_data() {
            self.as_ref().inline_parts()?; // damaged content is not overwritten
        }
        let end = pos + content.len() as u64;
        let capacity = (I_BLOCK_SIZE + self.as_ref().inline_value_max()?) as u64;
        if end > capacity || self.body.size > capacity {
            self.leave_inline()?;
            return Ok(None);
        }
        let handle = self.volume.journal().start(Credits::blocks(self.volume.credits().store()))?;
        if !self.body.disk.has_inline_data() && !self.volume.inline_mut(self.body).begin()? {
            handle.stop()?;
            return Ok(None);
        }
        // Bytes that an earlier, longer content left there must not reappear.
        let size = self.body.size;
        self.volume.inline_mut(self.body).truncate(size)?;
        let value_len = fits_usize(end.max(self.body.size)).saturating_sub(I_BLOCK_SIZE);
        if self.as_ref().inline_value_range()?.len() < value_len {
            self.volume.inline_mut(self.body).resize_value(value_len)?;
        }
        let mut bytes = vec![0; content.len()];
        content.copy_to(&mut bytes);
        self.volume.inline_mut(self.body).put(fits_usize(pos), &bytes)?;
        self.body.resize(self.body.size.max(end));
        let now = self.volume.environment().now();
        self.body.content_changed(now);
        self.body.store(self.volume, &handle)?;
        handle.stop()?;
        Ok(Some(content.len()))
    }

    /// Moves inline content into blocks, under a handle of its own. Does nothing for other files.
    ///
    /// Errors: `NoSpace`, `Device` (nothing changed); `Corrupt`.
    pub(crate) fn leave_inline(&mut self) -> Result<()> {
        if !self.body.disk.has_inline_data() {
            return Ok(());
        }
        let handle = self.volume.journal().start(self.volume.credits().inline())?;
        let done = self.volume.inline_mut(self.body).move_to_blocks(&handle);
        if done.is_ok() {
            self.body.store(self.volume, &handle)?;
        }
        handle.stop()?;
        done
    }
}

impl FileRef<'_> {
    /// Whether a file that is not inline could be: it is empty.
    fn may_become_inline(self) -> bool {
        self.volume.has_incompat(Incompat::INLINE_DATA)
            && self.body.size == 0
            && !self.body.flags.contains(InodeFlags::JOURNAL_DATA)
            && is_unmapped(self.body)
    }
}
