//! Inline directories: entries that are stored in the inode itself.
//!
//! ```text
//!   i_block   0        4                          60      attribute "system.data"
//!             ┌────────┬──────────────────────────┐      ┌───────────────────────┐
//!             │ parent │ entries, tiling 56 bytes │      │ entries, tiling it    │
//!             └────────┴──────────────────────────┘      └───────────────────────┘
//! ```
//!
//! "." and ".." have no entries. There is no separate checksum: the inode's checksum covers both
//! areas.

use super::{Dir, Found, Place, fold::Wanted};
use extant_base::Result;
use extant_ondisk::dirent::EntryKind;
use extant_ondisk::inline_dir::InlineDir;

impl<'a> Dir<'a> {
    /// Both areas of an inline directory.
    ///
    /// Errors: those of [`FileRef::inline_parts`](crate::inodes::file::FileRef::inline_parts).
    pub(crate) fn inline(&self) -> Result<InlineDir<'a>> {
        let parts = self.volume.file(self.body).inline_parts()?;
        Ok(InlineDir::new(parts.head, parts.tail, self.format, self.site()))
    }
}

pub(super) fn find(dir: &Dir<'_>, wanted: &Wanted<'_>) -> Result<Option<Found>> {
    let inline = dir.inline()?;
    let implied = |ino| Found { ino, kind: EntryKind::Directory, place: Place::Implied };
    match wanted.name() {
        b"." => return Ok(Some(implied(dir.ino))),
        b".." => return Ok(Some(implied(inline.parent()?))),
        _ => {}
    }
    for entry in inline.entries() {
        let entry = entry?;
        if let Some(ino) = entry.ino
            && wanted.is(&entry)
        {
            let place = Place::Inline { offset: entry.offset };
            return Ok(Some(Found { ino, kind: entry.kind, place }));
        }
    }
    Ok(None)
}
