//! Writing files whose content is in the inode.
//!
//! ```text
//!   empty, no blocks ──fits──► inline ──fits──► inline
//!                                  └─ too long ─► blocks, for good; the write continues there
//! ```

use crate::files::file::content::Content;
use crate::files::file::set_len::is_unmapped;
use crate::state::inode::Body;
use crate::volume::Volume;
use extant_base::{Ino, Result};
use extant_journal::Credits;
use extant_ondisk::features::Incompat;
use extant_ondisk::inode::{I_BLOCK_SIZE, InodeFlags};

impl Volume {
    /// Writes `content` at byte `pos` into the inode, if it fits there. Returns how many bytes,
    /// always all of them. `None` means that the file has blocks now.
    pub(super) fn write_inline(
        &self,
        ino: Ino,
        body: &mut Body,
        pos: u64,
        content: Content<'_>,
    ) -> Result<Option<usize>> {
        if !body.disk.has_inline_data() && !self.may_become_inline(body) {
            return Ok(None);
        }
        if body.disk.has_inline_data() {
            self.inline_parts(ino, body)?; // damaged content is not overwritten
        }
        let end = pos + content.len() as u64;
        let capacity = (I_BLOCK_SIZE + self.inline_value_max(ino, body)?) as u64;
        if end > capacity || body.size > capacity {
            self.leave_inline(ino, body)?;
            return Ok(None);
        }
        let handle = self.journal().start(Credits::blocks(self.store_credits()))?;
        if !body.disk.has_inline_data() && !self.inline_begin(ino, body)? {
            handle.stop()?;
            return Ok(None);
        }
        // Bytes that an earlier, longer content left there must not reappear.
        self.inline_truncate(ino, body, body.size)?;
        let value_len = (end.max(body.size) as usize).saturating_sub(I_BLOCK_SIZE);
        if self.inline_value_range(ino, body)?.len() < value_len {
            self.inline_value_resize(ino, body, value_len)?;
        }
        let mut bytes = vec![0; content.len()];
        content.copy_to(&mut bytes);
        self.inline_put(ino, body, pos as usize, &bytes)?;
        body.resize(body.size.max(end));
        let now = self.environment().now();
        body.content_changed(now);
        body.store(self, &handle)?;
        handle.stop()?;
        Ok(Some(content.len()))
    }

    /// Moves inline content into blocks, under a handle of its own. Does nothing for other files.
    ///
    /// Errors: `NoSpace`, `Device` (nothing changed); `Corrupt`.
    pub(crate) fn leave_inline(&self, ino: Ino, body: &mut Body) -> Result<()> {
        if !body.disk.has_inline_data() {
            return Ok(());
        }
        let handle = self.journal().start(self.inline_credits())?;
        let done = self.inline_to_blocks(&handle, ino, body);
        if done.is_ok() {
            body.store(self, &handle)?;
        }
        handle.stop()?;
        done
    }

    /// Whether a file that is not inline could be: it is empty.
    fn may_become_inline(&self, body: &Body) -> bool {
        self.has_incompat(Incompat::INLINE_DATA)
            && body.size == 0
            && !body.flags.contains(InodeFlags::JOURNAL_DATA)
            && is_unmapped(body)
    }
}
