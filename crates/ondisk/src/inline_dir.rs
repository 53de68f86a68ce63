//! Inline directory: a small directory kept inside its inode, in two areas.
//!
//! ```text
//!   i_block          0         4                                  60
//!                    ┌─────────┬──────────────────────────────────┐
//!                    │ parent  │ entries, tiling 56 bytes         │      no "." and no ".." entry
//!                    └─────────┴──────────────────────────────────┘
//!   attribute        60                                   60 + n
//!   system "data"    ┌────────────────────────────────────┐
//!                    │ entries, tiling n bytes (n may be 0)│              no checksum tail
//!                    └────────────────────────────────────┘
//! ```
//!
//! Rules:
//! - An entry lies in one area.
//! - `i_size` is 60 + n.
//! - The inode's checksum covers both areas.
//!
//! Offsets in this module are those of the picture: 4..60 in `i_block`, from 60 on in the value.
//! Source: ext4 documentation, "Inline Directories".

use crate::dirent::{DirBlock, DirBlockMut, DirFormat, Dirent, EntryKind};
use extant_base::{Error, Ino, Result, Site, What};

/// Bytes of `i_block`.
pub const BLOCK_AREA_LEN: usize = 60;
/// Bytes of the parent's number before the first entry.
pub const PARENT_LEN: usize = 4;

/// An inline directory to read.
#[derive(Clone, Copy, Debug)]
pub struct InlineDir<'a> {
    i_block: &'a [u8; BLOCK_AREA_LEN],
    value: &'a [u8],
    format: DirFormat,
    at: Site,
}

impl<'a> InlineDir<'a> {
    /// A view of both areas; `value` is the attribute's value, which may be empty. Inline areas
    /// have no tail, also if `format` has one.
    pub fn new(
        i_block: &'a [u8; BLOCK_AREA_LEN],
        value: &'a [u8],
        format: DirFormat,
        at: Site,
    ) -> InlineDir<'a> {
        InlineDir { i_block, value, format: format.without_tail(), at }
    }

    /// The parent directory.
    ///
    /// # Errors
    /// `Corrupt(DirentInode)` for zero or a number beyond the volume's inodes.
    pub fn parent(&self) -> Result<Ino> {
        let [a, b, c, d, ..] = *self.i_block;
        Ino::new(u32::from_le_bytes([a, b, c, d]))
            .filter(|ino| ino.get() <= self.format.inodes_count)
            .ok_or(self.at.offset(0).corrupt(What::DirentInode))
    }

    fn areas(&self) -> [(usize, DirBlock<'a>); 2] {
        let first = &self.i_block[PARENT_LEN..];
        [
            (PARENT_LEN, DirBlock::new(first, self.format, self.at)),
            (BLOCK_AREA_LEN, DirBlock::new(self.value, self.format, self.at)),
        ]
    }

    /// Every entry of both areas in order, used or not. "." and ".." have no entries.
    ///
    /// The errors are those of [`DirBlock::entries`], with offsets from the area's start, and
    /// `Corrupt(DirentDot)` for an entry "." or "..".
    pub fn entries(&self) -> impl Iterator<Item = Result<Dirent<'a>>> + use<'a> {
        let at = self.at;
        self.areas().into_iter().flat_map(move |(base, area)| {
            area.entries().map(move |entry| {
                let entry = entry?;
                let offset = entry.offset + base;
                if entry.ino.is_some() && entry.is_dot_or_dotdot() {
                    return Err(at.offset(offset).corrupt(What::DirentDot));
                }
                Ok(Dirent { offset, ..entry })
            })
        })
    }

    /// The used entry with exactly this name.
    ///
    /// # Errors
    /// The `Corrupt` of the first bad entry before it.
    pub fn find(&self, name: &[u8]) -> Result<Option<Dirent<'a>>> {
        for entry in self.entries() {
            let entry = entry?;
            if entry.ino.is_some() && entry.name == name {
                return Ok(Some(entry));
            }
        }
        Ok(None)
    }
}

/// An inline directory to change. After the edits the caller sets the inode's checksum.
#[derive(Debug)]
pub struct InlineDirMut<'a> {
    i_block: &'a mut [u8; BLOCK_AREA_LEN],
    value: &'a mut [u8],
    format: DirFormat,
    at: Site,
}

impl<'a> InlineDirMut<'a> {
    /// Both areas, to edit.
    pub fn new(
        i_block: &'a mut [u8; BLOCK_AREA_LEN],
        value: &'a mut [u8],
        format: DirFormat,
        at: Site,
    ) -> InlineDirMut<'a> {
        InlineDirMut { i_block, value, format: format.without_tail(), at }
    }

    /// The same directory, to read.
    pub fn view(&self) -> InlineDir<'_> {
        InlineDir::new(self.i_block, self.value, self.format, self.at)
    }

    /// Overwrites both areas with an empty directory. The value is empty or has at least 12 bytes.
    pub fn init(&mut self, parent: Ino) {
        self.set_parent(parent);
        self.area(PARENT_LEN).0.init_empty();
        if !self.value.is_empty() {
            self.area(BLOCK_AREA_LEN).0.init_empty();
        }
    }

    /// Stores another parent.
    pub fn set_parent(&mut self, parent: Ino) {
        self.i_block[..PARENT_LEN].copy_from_slice(&parent.get().to_le_bytes());
    }

    /// The area that holds `offset`, and the area's start.
    fn area(&mut self, offset: usize) -> (DirBlockMut<'_>, usize) {
        if offset < BLOCK_AREA_LEN {
            let first = &mut self.i_block[PARENT_LEN..];
            (DirBlockMut::new(first, self.format, 0, self.at), PARENT_LEN)
        } else {
            (DirBlockMut::new(self.value, self.format, 0, self.at), BLOCK_AREA_LEN)
        }
    }

    /// Adds the bytes from `old_len` on, by which the value has just grown, to the second area: as
    /// an unused entry, or, if they are too few for one, as slack of the last entry.
    ///
    /// # Errors
    /// `Corrupt` if the entries did not end at `old_len`; `Invalid` if the value was empty and is
    /// still too short for an entry.
    pub fn value_grown(&mut self, old_len: usize) -> Result<()> {
        let grown = self.value.len().saturating_sub(old_len);
        if grown == 0 {
            return Ok(());
        }
        if grown >= DirFormat::need_plain(1) {
            let room = &mut self.value[old_len..];
            DirBlockMut::new(room, self.format, 0, self.at).init_empty();
            return Ok(());
        }
        if old_len == 0 {
            return Err(Error::Invalid("an inline directory's value is shorter than an entry"));
        }
        self.value[old_len..].fill(0);
        let old = DirBlock::new(&self.value[..old_len], self.format, self.at);
        let mut last = None;
        for entry in old.entries() {
            last = Some(entry?);
        }
        if let Some((offset, rec_len)) = last.map(|entry| (entry.offset, entry.rec_len)) {
            let stored = crate::dirent::rec_len_encode(rec_len + grown).to_le_bytes();
            self.value[offset + 4..offset + 6].copy_from_slice(&stored);
        }
        Ok(())
    }

    /// Inserts a name into the slack of the first entry with enough of it. Returns the new entry's
    /// offset, or `None` if both areas are full.
    ///
    /// # Errors
    /// Those of [`DirBlockMut::insert`].
    pub fn insert(&mut self, name: &[u8], ino: Ino, kind: EntryKind) -> Result<Option<usize>> {
        for start in [PARENT_LEN, BLOCK_AREA_LEN] {
            let (mut area, base) = self.area(start);
            if let Some(offset) = area.insert(name, ino, kind, None)? {
                return Ok(Some(base + offset));
            }
        }
        Ok(None)
    }

    /// Removes the entry that starts at `offset`.
    ///
    /// # Errors
    /// Those of [`DirBlockMut::remove`].
    pub fn remove(&mut self, offset: usize) -> Result<()> {
        let (mut area, base) = self.area(offset);
        area.remove(offset.wrapping_sub(base))
    }

    /// Makes the entry that starts at `offset` name another inode.
    ///
    /// # Errors
    /// Those of [`DirBlockMut::set_inode`].
    pub fn set_inode(&mut self, offset: usize, ino: Ino, kind: EntryKind) -> Result<()> {
        let (mut area, base) = self.area(offset);
        area.set_inode(offset.wrapping_sub(base), ino, kind)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec::Vec;

    const FORMAT: DirFormat = DirFormat {
        filetype: true,
        checksums: true,
        hash_words: false,
        opaque_names: false,
        inodes_count: 1000,
    };

    fn ino(number: u32) -> Ino {
        Ino::new(number).unwrap()
    }

    #[test]
    fn a_new_directory_is_the_parent_and_one_unused_entry() {
        let mut i_block = [0xFF; 60];
        InlineDirMut::new(&mut i_block, &mut [], FORMAT, Site::NOWHERE).init(ino(2));
        assert_eq!(i_block[..12], [2, 0, 0, 0, 0, 0, 0, 0, 56, 0, 0, 0]);
        assert_eq!(i_block[12..], [0; 48]);
        let dir = InlineDir::new(&i_block, &[], FORMAT, Site::NOWHERE);
        assert_eq!(dir.parent().unwrap(), Ino::ROOT);
        assert_eq!(dir.entries().count(), 1);
    }

    #[test]
    fn names_fill_both_areas_and_never_span_them() {
        let (mut i_block, mut value) = ([0; 60], [0; 28]);
        let mut dir = InlineDirMut::new(&mut i_block, &mut value, FORMAT, Site::NOWHERE);
        dir.init(ino(2));
        let names = [&b"first-name-of-20-chr"[..], b"second-name", b"third-name-1234"];
        let offsets: Vec<_> = names
            .iter()
            .map(|name| dir.insert(name, ino(12), EntryKind::Regular).unwrap())
            .collect();
        assert_eq!(offsets, [Some(4), Some(32), Some(60)]);
        assert_eq!(dir.insert(b"x", ino(12), EntryKind::Regular).unwrap(), None);
        for (name, offset) in names.iter().zip(&offsets) {
            assert_eq!(dir.view().find(name).unwrap().map(|entry| entry.offset), *offset);
        }
        dir.remove(60).unwrap();
        dir.set_inode(32, ino(13), EntryKind::Symlink).unwrap();
        assert_eq!(dir.view().find(names[2]).unwrap(), None);
        assert_eq!(dir.view().find(names[1]).unwrap().unwrap().ino, Some(ino(13)));
        assert!(dir.remove(33).is_err());
        assert!(dir.remove(0).is_err());
    }

    #[test]
    fn a_grown_value_takes_more_names() {
        for (old, new) in [(0, 12), (12, 16), (12, 24)] {
            let (mut i_block, mut value) = ([0; 60], [0xEE; 24]);
            let value = &mut value[..new];
            let format = FORMAT;
            InlineDirMut::new(&mut i_block, &mut value[..old], format, Site::NOWHERE).init(ino(2));
            let mut dir = InlineDirMut::new(&mut i_block, value, format, Site::NOWHERE);
            dir.value_grown(old).unwrap();
            let room: usize = dir.view().entries().map(|entry| entry.unwrap().rec_len).sum();
            assert_eq!(room, 56 + new);
        }
    }
}
