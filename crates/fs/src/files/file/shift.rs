//! Removing a range from a file and inserting one: what follows it moves.
//!
//! ```text
//!   collapse   unmap the range ─► smaller keys after it, leaf by leaf from the left ─► size
//!   insert     size ─► split an extent across the place ─► larger keys after it, from the right
//! ```
//!
//! After each leaf the tree is in order, with a hole where the moved part meets the rest. If the
//! journal is too small for all leaves at once, a crash may leave that state, as on Linux.

use crate::inodes::map::LOGICAL_END;
use crate::inodes::map::extent::shift;
use crate::state::inode::Body;
use crate::volume::Volume;
use extant_base::{Error, Ino, Result};
use extant_journal::{Credits, Handle};
use std::ops::Range;

impl Volume {
    /// Collapse: removes `bytes` from the file.
    pub(super) fn collapse(&self, ino: Ino, body: &mut Body, bytes: Range<u64>) -> Result<()> {
        let blocks = self.whole_blocks(&bytes)?;
        if bytes.end >= body.size {
            return Err(Error::Invalid("a range to collapse ends before the file does"));
        }
        self.changing(ino, body, Credits::default(), |body, handle| {
            let ready = &mut |_: &Handle<'_>, _: &mut Body| Ok(());
            self.unmap_in_steps(ino, body, handle, blocks.clone(), self.rest_credits(), ready)?;
            let mut at = Some(blocks.end);
            while let Some(from) = at {
                let step = self.shift_credits(body);
                self.next_step(ino, body, handle, step, self.rest_credits(), ready)?;
                at = shift::left(self, ino, body, handle, from, blocks.end - blocks.start)?;
            }
            body.resize(body.size - (bytes.end - bytes.start));
            Ok(())
        })
    }

    /// Insert: puts a hole of `bytes` into the file.
    pub(super) fn insert_range(&self, ino: Ino, body: &mut Body, bytes: Range<u64>) -> Result<()> {
        let blocks = self.whole_blocks(&bytes)?;
        if bytes.start >= body.size {
            return Err(Error::Invalid("a range to insert starts inside the file"));
        }
        let by = blocks.end - blocks.start;
        let end = shift::mapped_end(self, ino, body)?;
        if end.checked_add(by).is_none() {
            return Err(Error::Invalid("blocks would move beyond the longest file"));
        }
        let first = self.convert_credits(body);
        self.changing(ino, body, first, |body, handle| {
            shift::split_at(self, ino, body, handle, blocks.start)?;
            self.set_size_field(body, handle, body.size + (bytes.end - bytes.start))?;
            let ready = &mut |_: &Handle<'_>, _: &mut Body| Ok(());
            let mut at = Some(LOGICAL_END);
            while let Some(before) = at {
                let step = self.shift_credits(body);
                self.next_step(ino, body, handle, step, self.rest_credits(), ready)?;
                at = shift::right(self, ino, body, handle, blocks.start..before, by)?;
            }
            Ok(())
        })
    }

    /// The blocks of a range, which must be whole blocks and whole clusters.
    fn whole_blocks(&self, bytes: &Range<u64>) -> Result<Range<u32>> {
        let unit = u64::from(self.geometry().cluster_ratio()) << self.block_size().log2();
        if !bytes.start.is_multiple_of(unit) || !bytes.end.is_multiple_of(unit) {
            return Err(Error::Invalid("a range to collapse or insert has whole blocks"));
        }
        let log2 = self.block_size().log2();
        // It was checked before that the range lies within the largest possible file.
        Ok((bytes.start >> log2) as u32..(bytes.end >> log2) as u32)
    }
}
