//! Changing a directory block: insert, remove or redirect one name, or fill the block from scratch.
//!
//! ```text
//!   insert   │ a ──────slack──┤        ──►  │ a │ new ───┤          the first slack that fits
//!   remove   │ a │ gone ──────┤        ──►  │ a ──────────┤          the entry before absorbs it
//!            ┌ gone ──────┤ b          ──►  ┌ unused ─────┤ b        no entry before
//! ```

use super::block::DirBlock;
use super::format::{
    DirFormat, EntryKind, HEAD_LEN, NAME_MAX, RawDirTail, RawDirent, TAIL_LEN, TAIL_TYPE,
    rec_len_encode,
};
use core::mem::offset_of;
use extant_base::narrow::len_u16;
use extant_base::{Error, Ino, Result, Site, What};
use zerocopy::IntoBytes;
use zerocopy::little_endian::{U16, U32};

/// A directory block to change.
///
/// Every edit updates the checksum incrementally, at a cost in proportion to the changed bytes. So
/// a right checksum stays right, and a wrong one stays wrong.
#[derive(Debug)]
pub struct DirBlockMut<'a> {
    bytes: &'a mut [u8],
    format: DirFormat,
    seed: u32,
    at: Site,
}

impl<'a> DirBlockMut<'a> {
    /// A block to edit. `inode_seed` is used only when the format has checksums.
    pub fn new(
        bytes: &'a mut [u8],
        format: DirFormat,
        inode_seed: u32,
        at: Site,
    ) -> DirBlockMut<'a> {
        DirBlockMut { bytes, format, seed: inode_seed, at }
    }

    /// The same block, to read.
    pub fn view(&self) -> DirBlock<'_> {
        DirBlock::new(self.bytes, self.format, self.at)
    }

    /// The block's place, for errors.
    pub fn site(&self) -> Site {
        self.at
    }

    /// The block's format.
    pub fn format(&self) -> DirFormat {
        self.format
    }

    /// Makes the block hold one unused entry and the tail; every other byte is zero.
    pub fn init_empty(&mut self) {
        self.bytes.fill(0);
        let end = self.format.entries_end(self.bytes.len());
        self.put_head(0, None, end, 0, EntryKind::Unknown);
        self.put_tail();
        self.put_checksum();
    }

    /// Makes the block the first of a directory: it holds "." and "..", and the latter's entry
    /// reaches the end.
    pub fn init_first(&mut self, own: Ino, parent: Ino) {
        self.bytes.fill(0);
        let end = self.format.entries_end(self.bytes.len());
        self.put_entry(0, own, 12, b".", EntryKind::Directory, None);
        self.put_entry(12, parent, end - 12, b"..", EntryKind::Directory, None);
        self.put_tail();
        self.put_checksum();
    }

    /// Inserts a name into the slack of the first entry with enough of it. Returns the new entry's
    /// offset, or `None` if the block is full. Does not check whether the name already exists.
    ///
    /// In a directory with hash words `stored_hash` is written after the name; other directories
    /// ignore it.
    ///
    /// # Errors
    /// `NameTooLong` or `Invalid` for an illegal name; `Corrupt` if the block's entries are
    /// malformed. On an error the block is unchanged.
    pub fn insert(
        &mut self,
        name: &[u8],
        ino: Ino,
        kind: EntryKind,
        stored_hash: Option<(u32, u32)>,
    ) -> Result<Option<usize>> {
        if name.len() > NAME_MAX {
            return Err(Error::NameTooLong);
        }
        if !self.format.admits(name) {
            return Err(Error::Invalid("a name is empty or holds a slash or NUL"));
        }
        let need = self.format.need(name);
        for entry in self.view().entries() {
            let entry = entry?;
            if entry.slack(&self.format) >= need {
                let own = entry.rec_len - entry.slack(&self.format);
                let place = (entry.offset, own, entry.rec_len);
                return Ok(Some(self.split_entry(place, name, ino, kind, stored_hash)));
            }
        }
        Ok(None)
    }

    /// As [`DirBlockMut::insert`], into the slack of the entry that starts at `offset`, which the
    /// caller has found before. `None` if its slack is too small for the name.
    ///
    /// # Errors
    /// Those of [`DirBlockMut::insert`].
    pub fn insert_at(
        &mut self,
        offset: usize,
        name: &[u8],
        ino: Ino,
        kind: EntryKind,
        stored_hash: Option<(u32, u32)>,
    ) -> Result<Option<usize>> {
        if name.len() > NAME_MAX {
            return Err(Error::NameTooLong);
        }
        if !self.format.admits(name) {
            return Err(Error::Invalid("a name is empty or holds a slash or NUL"));
        }
        let mut entries = self.view().entries();
        entries.seek(offset);
        let entry = entries.next().ok_or(self.at.offset(offset).corrupt(What::DirentLength))??;
        let slack = entry.slack(&self.format);
        if slack < self.format.need(name) {
            return Ok(None);
        }
        let place = (offset, entry.rec_len - slack, entry.rec_len);
        Ok(Some(self.split_entry(place, name, ino, kind, stored_hash)))
    }

    /// Splits the entry at `offset` after its `own` bytes and puts the name into the rest.
    fn split_entry(
        &mut self,
        (offset, own, rec_len): (usize, usize, usize),
        name: &[u8],
        ino: Ino,
        kind: EntryKind,
        stored_hash: Option<(u32, u32)>,
    ) -> usize {
        if own > 0 {
            self.patch(offset + offset_of!(RawDirent, rec_len), &rec_len_encode(own).to_le_bytes());
        }
        let offset = offset + own;
        self.put_entry(offset, ino, rec_len - own, name, kind, stored_hash);
        offset
    }

    /// Removes the entry that starts at `offset`: the entry before it takes over its bytes, or, if
    /// it is the first, it becomes an unused entry. The name's bytes are zeroed.
    ///
    /// # Errors
    /// `Corrupt` if no used entry starts there, or the block is malformed.
    pub fn remove(&mut self, offset: usize) -> Result<()> {
        let (before, entry) = self.view().at_offset(offset)?;
        if entry.ino.is_none() {
            return Err(self.at.offset(offset).corrupt(What::DirentInode));
        }
        let need = self.format.need(entry.name);
        let rec_len = entry.rec_len;
        let before = before.map(|before| (before.offset, before.rec_len + rec_len));
        const ZEROS: [u8; 8 + NAME_MAX + 8 + 3] = [0; 8 + NAME_MAX + 8 + 3];
        match before {
            Some((before, joined)) => {
                self.patch(offset, &ZEROS[..need]);
                let stored = rec_len_encode(joined).to_le_bytes();
                self.patch(before + offset_of!(RawDirent, rec_len), &stored);
            }
            None => {
                self.patch(offset + HEAD_LEN, &ZEROS[..need - HEAD_LEN]);
                self.put_head(offset, None, rec_len, 0, EntryKind::Unknown);
            }
        }
        Ok(())
    }

    /// Makes the entry that starts at `offset` name another inode; its name stays.
    ///
    /// # Errors
    /// `Corrupt` if no used entry starts there, or the block is malformed.
    pub fn set_inode(&mut self, offset: usize, ino: Ino, kind: EntryKind) -> Result<()> {
        let (_, entry) = self.view().at_offset(offset)?;
        if entry.ino.is_none() {
            return Err(self.at.offset(offset).corrupt(What::DirentInode));
        }
        self.patch(offset, &ino.get().to_le_bytes());
        let code = if self.format.filetype { kind.code() } else { 0 };
        self.patch(offset + offset_of!(RawDirent, file_type), &[code]);
        Ok(())
    }

    /// Writes the tail, with the checksum of the block's present content.
    pub fn set_checksum(&mut self) {
        self.put_tail();
        self.put_checksum();
    }

    fn put_tail(&mut self) {
        if self.format.checksums {
            let at = self.bytes.len() - TAIL_LEN;
            let tail = RawDirTail {
                det_reserved_zero1: U32::ZERO,
                det_rec_len: U16::new(len_u16(TAIL_LEN)),
                det_reserved_zero2: 0,
                det_reserved_ft: TAIL_TYPE,
                det_checksum: U32::ZERO,
            };
            self.bytes[at..].copy_from_slice(tail.as_bytes());
        }
    }

    fn put_head(
        &mut self,
        offset: usize,
        ino: Option<Ino>,
        rec_len: usize,
        name_len: usize,
        kind: EntryKind,
    ) {
        let raw = RawDirent {
            inode: U32::new(ino.map_or(0, Ino::get)),
            rec_len: U16::new(rec_len_encode(rec_len)),
            name_len: u8::try_from(name_len).expect("names were checked to be 255 bytes at most"),
            file_type: if self.format.filetype { kind.code() } else { 0 },
        };
        self.patch(offset, raw.as_bytes());
    }

    fn put_entry(
        &mut self,
        offset: usize,
        ino: Ino,
        rec_len: usize,
        name: &[u8],
        kind: EntryKind,
        stored_hash: Option<(u32, u32)>,
    ) {
        self.put_head(offset, Some(ino), rec_len, name.len(), kind);
        let mut padded = [0; NAME_MAX + 3 + 8];
        padded[..name.len()].copy_from_slice(name);
        let need = self.format.need(name);
        if need > DirFormat::need_plain(name.len()) {
            let (hash, minor) = stored_hash.unwrap_or((0, 0));
            let words = DirFormat::need_plain(name.len()) - HEAD_LEN;
            padded[words..words + 4].copy_from_slice(&hash.to_le_bytes());
            padded[words + 4..words + 8].copy_from_slice(&minor.to_le_bytes());
        }
        self.patch(offset + HEAD_LEN, &padded[..need - HEAD_LEN]);
    }

    /// Changes bytes before the tail and updates the checksum incrementally. Only this function
    /// changes a part of a block, so that a wrong checksum stays wrong.
    fn patch(&mut self, offset: usize, new: &[u8]) {
        let end = offset + new.len();
        let was_right = cfg!(debug_assertions) && self.view().verify_checksum(self.seed).is_ok();
        if self.format.checksums {
            let (body, tail) = self.bytes.split_at_mut(self.bytes.len() - TAIL_LEN);
            let trailing = (body.len() - end) as u64;
            let delta = extant_crc32c::splice_delta(trailing, &body[offset..end], new);
            let sum = &mut tail[offset_of!(RawDirTail, det_checksum)..];
            let old = u32::from_le_bytes([sum[0], sum[1], sum[2], sum[3]]);
            sum.copy_from_slice(&(old ^ delta).to_le_bytes());
        }
        self.bytes[offset..end].copy_from_slice(new);
        debug_assert!(
            !was_right || self.view().verify_checksum(self.seed).is_ok(),
            "the incremental checksum differs from the full one"
        );
    }

    fn put_checksum(&mut self) {
        if self.format.checksums {
            let (body, tail) = self.bytes.split_at_mut(self.bytes.len() - TAIL_LEN);
            let sum = extant_crc32c::crc32c(self.seed, body);
            tail[offset_of!(RawDirTail, det_checksum)..].copy_from_slice(&sum.to_le_bytes());
        }
    }
}

/// Fills a block with entries from its start, without slack, for splits, conversions and bulk
/// builds. [`DirPacker::finish`] extends the last entry to the end.
#[derive(Debug)]
pub struct DirPacker<'a> {
    block: DirBlockMut<'a>,
    next: usize,
    last: Option<usize>,
}

impl<'a> DirPacker<'a> {
    /// Starts an empty block, which overwrites the content of `block`.
    pub fn new(block: DirBlockMut<'a>) -> DirPacker<'a> {
        block.bytes.fill(0);
        DirPacker { block, next: 0, last: None }
    }

    /// Bytes still free for entries.
    pub fn room(&self) -> usize {
        self.block.format.entries_end(self.block.bytes.len()) - self.next
    }

    /// Appends a legal name. Returns `false` and changes nothing if it does not fit.
    pub fn push(
        &mut self,
        name: &[u8],
        ino: Ino,
        kind: EntryKind,
        stored_hash: Option<(u32, u32)>,
    ) -> bool {
        assert!(self.block.format.admits(name), "an illegal name would reach the disk");
        let need = self.block.format.need(name);
        // finish() extends the last entry to the end, so any number of bytes may remain.
        if need > self.room() {
            return false;
        }
        self.block.put_entry(self.next, ino, need, name, kind, stored_hash);
        self.last = Some(self.next);
        self.next += need;
        true
    }

    /// Extends the last entry to the end (or makes one unused entry) and writes the tail.
    pub fn finish(mut self) -> DirBlockMut<'a> {
        let end = self.block.format.entries_end(self.block.bytes.len());
        match self.last {
            Some(last) => {
                let stored = rec_len_encode(end - last).to_le_bytes();
                self.block.patch(last + offset_of!(RawDirent, rec_len), &stored);
            }
            None => self.block.put_head(0, None, end, 0, EntryKind::Unknown),
        }
        self.block.set_checksum();
        self.block
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

    fn edit(bytes: &mut [u8]) -> DirBlockMut<'_> {
        DirBlockMut::new(bytes, FORMAT, 99, Site::NOWHERE)
    }

    fn put(bytes: &mut [u8], name: &[u8], number: u32) -> Option<usize> {
        let at = edit(bytes).insert(name, ino(number), EntryKind::Regular, None).unwrap();
        edit(bytes).view().verify_checksum(99).unwrap();
        at
    }

    fn geometry(bytes: &[u8]) -> Vec<(usize, usize, u32)> {
        DirBlock::new(bytes, FORMAT, Site::NOWHERE)
            .entries()
            .map(|entry| entry.unwrap())
            .map(|entry| (entry.offset, entry.rec_len, entry.ino.map_or(0, Ino::get)))
            .collect()
    }

    #[test]
    fn the_first_block_holds_dot_and_dotdot() {
        let mut bytes = [0xFF; 1024];
        edit(&mut bytes).init_first(ino(12), ino(2));
        assert_eq!(bytes[..12], [12, 0, 0, 0, 12, 0, 1, 2, b'.', 0, 0, 0]);
        assert_eq!(bytes[12..24], [2, 0, 0, 0, 0xE8, 3, 2, 2, b'.', b'.', 0, 0]);
        assert_eq!(bytes[1012..1020], [0, 0, 0, 0, 12, 0, 0, 0xDE]);
        assert!(bytes[24..1012].iter().all(|byte| *byte == 0));
        edit(&mut bytes).view().verify_checksum(99).unwrap();
    }

    #[test]
    fn a_name_takes_the_first_slack_that_fits() {
        let mut bytes = [0; 1024];
        edit(&mut bytes).init_empty();
        assert_eq!(put(&mut bytes, b"first", 11), Some(0));
        assert_eq!(put(&mut bytes, b"second", 12), Some(16));
        assert_eq!(put(&mut bytes, b"third", 13), Some(32));
        assert_eq!(geometry(&bytes), [(0, 16, 11), (16, 16, 12), (32, 980, 13)]);
        edit(&mut bytes).remove(16).unwrap();
        assert_eq!(geometry(&bytes), [(0, 32, 11), (32, 980, 13)]);
        assert!(bytes[16..32].iter().all(|byte| *byte == 0));
        assert_eq!(put(&mut bytes, b"123456789", 14), Some(48), "20 bytes do not fit 16");
        assert_eq!(put(&mut bytes, b"1234", 15), Some(16));
        edit(&mut bytes).view().verify_checksum(99).unwrap();
    }

    #[test]
    fn a_removed_first_entry_is_unused_and_filled_again() {
        let mut bytes = [0; 1024];
        edit(&mut bytes).init_empty();
        put(&mut bytes, b"first", 11);
        put(&mut bytes, b"second", 12);
        edit(&mut bytes).remove(0).unwrap();
        assert_eq!(geometry(&bytes), [(0, 16, 0), (16, 996, 12)]);
        assert_eq!(bytes[..16], [0, 0, 0, 0, 16, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0]);
        assert_eq!(put(&mut bytes, b"again", 13), Some(0));
        edit(&mut bytes).set_inode(16, ino(14), EntryKind::Symlink).unwrap();
        edit(&mut bytes).view().verify_checksum(99).unwrap();
        assert_eq!(geometry(&bytes), [(0, 16, 13), (16, 996, 14)]);
        assert_eq!(bytes[23], 7);
    }

    #[test]
    fn edits_that_name_no_entry_change_nothing() {
        let mut bytes = [0; 1024];
        edit(&mut bytes).init_empty();
        put(&mut bytes, b"first", 11);
        let before = bytes;
        assert!(edit(&mut bytes).remove(4).is_err());
        assert!(edit(&mut bytes).remove(1012).is_err());
        assert!(edit(&mut bytes).set_inode(2000, ino(3), EntryKind::Fifo).is_err());
        for name in [&b""[..], b"a/b", b"a\0", &[b'x'; 256]] {
            assert!(edit(&mut bytes).insert(name, ino(3), EntryKind::Fifo, None).is_err());
        }
        assert_eq!(bytes, before);
    }

    #[test]
    fn a_block_fills_up_to_its_tail() {
        for (size, checksums, want) in
            [(1024, true, 84), (1024, false, 85), (65536, true, 5460), (65536, false, 5461)]
        {
            let format = DirFormat { checksums, ..FORMAT };
            let mut bytes = alloc::vec![0; size];
            let mut block = DirBlockMut::new(&mut bytes, format, 5, Site::NOWHERE);
            block.init_empty();
            let mut packed = alloc::vec![0xEE; size];
            let mut packer =
                DirPacker::new(DirBlockMut::new(&mut packed, format, 5, Site::NOWHERE));
            let mut count = 0;
            // 12 bytes each, so that every gap would show.
            while packer.push(&[b'n'; 4], ino(9), EntryKind::Regular, None) {
                count += 1;
            }
            assert_eq!(count, want, "{size} {checksums}");
            packer.finish().view().verify_checksum(5).unwrap();
            // Inserting one by one ends in the same bytes (for few; it walks the block each time).
            if size == 1024 {
                while block.insert(&[b'n'; 4], ino(9), EntryKind::Regular, None).unwrap().is_some()
                {
                }
                assert_eq!(bytes, packed);
            }
        }
    }

    #[test]
    fn a_wrong_checksum_stays_wrong() {
        let mut bytes = [0; 1024];
        edit(&mut bytes).init_empty();
        bytes[500] ^= 1;
        edit(&mut bytes).insert(b"a", ino(3), EntryKind::Regular, None).unwrap();
        assert!(edit(&mut bytes).view().verify_checksum(99).is_err());
        edit(&mut bytes).set_checksum();
        assert!(edit(&mut bytes).view().verify_checksum(99).is_ok());
    }

    #[test]
    fn hash_words_are_written_after_the_name() {
        let format = DirFormat { hash_words: true, ..FORMAT };
        let mut bytes = [0; 1024];
        let mut block = DirBlockMut::new(&mut bytes, format, 0, Site::NOWHERE);
        block.init_first(ino(12), ino(2));
        let at = block.insert(b"abcde", ino(13), EntryKind::Regular, Some((7, 8))).unwrap();
        assert_eq!(at, Some(24));
        assert_eq!(block.view().find(b"abcde").unwrap().unwrap().stored_hash, Some((7, 8)));
        assert_eq!(bytes[40..48], [7, 0, 0, 0, 8, 0, 0, 0]);
    }
}
