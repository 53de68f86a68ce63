//! Removing a range from a file and inserting one: what follows it moves.
//!
//! ```text
//!   collapse   unmap the range ─► smaller keys after it, leaf by leaf from the left ─► size
//!   insert     size ─► split an extent across the place ─► larger keys after it, from the right
//! ```
//!
//! After each leaf the tree is in order, with a hole where the moved part meets the rest. If the
//! journal is too small for all leaves at once, a crash may leave that state, as on Linux.

use crate::files::DataIo;
use crate::inodes::file::FileMut;
use crate::inodes::map::LOGICAL_END;
use crate::inodes::map::extent::shift;
use crate::state::inode::Body;
use extant_base::narrow::fits_u32;
use extant_base::{Error, Result};
use extant_journal::{Credits, Handle};
use std::ops::Range;

impl FileMut<'_> {
    /// Collapse: removes `bytes` from the file.
    pub(super) fn collapse(&mut self, bytes: Range<u64>) -> Result<()> {
        let blocks = self.volume.data_io().whole_blocks(&bytes)?;
        if bytes.end >= self.body.size {
            return Err(Error::Invalid("a range to collapse ends before the file does"));
        }
        self.changing(Credits::default(), |file, handle| {
            let ready = &mut |_: &Handle<'_>, _: &mut Body| Ok(());
            file.unmap_in_steps(handle, blocks.clone(), file.volume.credits().rest(), ready)?;
            let mut at = Some(blocks.end);
            while let Some(from) = at {
                let step = file.volume.credits_of(file.body).shift();
                file.next_step(handle, step, file.volume.credits().rest(), ready)?;
                at = shift::left(file, handle, from, blocks.end - blocks.start)?;
            }
            file.body.resize(file.body.size - (bytes.end - bytes.start));
            Ok(())
        })
    }

    /// Insert: puts a hole of `bytes` into the file.
    pub(super) fn insert_range(&mut self, bytes: Range<u64>) -> Result<()> {
        let blocks = self.volume.data_io().whole_blocks(&bytes)?;
        if bytes.start >= self.body.size {
            return Err(Error::Invalid("a range to insert starts inside the file"));
        }
        let by = blocks.end - blocks.start;
        let end = shift::mapped_end(self.as_ref())?;
        if end.checked_add(by).is_none() {
            return Err(Error::Invalid("blocks would move beyond the longest file"));
        }
        let first = self.volume.credits_of(self.body).convert();
        self.changing(first, |file, handle| {
            shift::split_at(file, handle, blocks.start)?;
            file.set_size_field(handle, file.body.size + (bytes.end - bytes.start))?;
            let ready = &mut |_: &Handle<'_>, _: &mut Body| Ok(());
            let mut at = Some(LOGICAL_END);
            while let Some(before) = at {
                let step = file.volume.credits_of(file.body).shift();
                file.next_step(handle, step, file.volume.credits().rest(), ready)?;
                at = shift::right(file, handle, blocks.start..before, by)?;
            }
            Ok(())
        })
    }
}

impl DataIo<'_> {
    /// The blocks of a range, which must be whole blocks and whole clusters.
    fn whole_blocks(self, bytes: &Range<u64>) -> Result<Range<u32>> {
        let unit =
            u64::from(self.volume.geometry().cluster_ratio()) << self.volume.block_size().log2();
        if !bytes.start.is_multiple_of(unit) || !bytes.end.is_multiple_of(unit) {
            return Err(Error::Invalid("a range to collapse or insert has whole blocks"));
        }
        let log2 = self.volume.block_size().log2();
        // It was checked before that the range lies within the largest possible file.
        Ok(fits_u32(bytes.start >> log2)..fits_u32(bytes.end >> log2))
    }
}
