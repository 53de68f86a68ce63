//! Reading a directory block: each entry is checked, and so is the checksum.
//!
//! ```text
//!   entry ──rec_len──► entry ──rec_len──► … ──► tail, or the block's end
//!     a bad name or inode: an error, and on      a bad length: an error, and the end
//! ```

use super::format::{
    DirFormat, EntryKind, HEAD_LEN, RawDirTail, RawDirent, TAIL_LEN, TAIL_TYPE, rec_len_decode,
};
use core::mem::offset_of;
use extant_base::narrow::len_u16;
use extant_base::{Ino, Result, Site, What};
use zerocopy::FromBytes;

/// One entry of a directory, checked.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Dirent<'a> {
    /// Bytes from the block's start.
    pub offset: usize,
    /// Bytes to the next entry.
    pub rec_len: usize,
    /// The inode, or `None` for an unused entry.
    pub ino: Option<Ino>,
    /// The kind of file recorded beside the name.
    pub kind: EntryKind,
    /// The name, 1..=255 bytes without slash and NUL; anything in an unused entry.
    pub name: &'a [u8],
    /// Hash and minor hash, stored after the name in a directory with hash words.
    pub stored_hash: Option<(u32, u32)>,
}

impl Dirent<'_> {
    /// Whether this is the directory itself or its parent.
    pub fn is_dot_or_dotdot(&self) -> bool {
        self.name == b"." || self.name == b".."
    }

    /// Bytes of this entry that its name does not need.
    pub(super) fn slack(&self, format: &DirFormat) -> usize {
        match self.ino {
            None => self.rec_len,
            Some(_) => self.rec_len.saturating_sub(format.need(self.name)),
        }
    }
}

/// A directory block to read.
#[derive(Clone, Copy, Debug)]
pub struct DirBlock<'a> {
    bytes: &'a [u8],
    format: DirFormat,
    at: Site,
}

impl<'a> DirBlock<'a> {
    /// A view of one whole block (or of one inline area, with a format
    /// [without tail](DirFormat::without_tail)). `at` names the block in errors.
    pub fn new(bytes: &'a [u8], format: DirFormat, at: Site) -> DirBlock<'a> {
        DirBlock { bytes, format, at }
    }

    /// Bytes of the block or area.
    pub fn len(&self) -> usize {
        self.bytes.len()
    }

    /// Whether the area has no bytes at all, as the second one of an inline directory may.
    pub fn is_empty(&self) -> bool {
        self.bytes.is_empty()
    }

    /// Every entry in order, used or not, the tail not counted.
    ///
    /// For an entry with a bad name or inode the iterator yields an error and continues after it. A
    /// bad length ends the iteration, because the place of the next entry is unknown.
    ///
    /// # Errors
    /// `Corrupt` with `DirentLength`, `DirentName`, `DirentInode`, `DirentType` or `DirentDot`.
    pub fn entries(&self) -> Entries<'a> {
        Entries {
            bytes: self.bytes,
            format: self.format,
            at: self.at,
            next: 0,
            end: self.format.entries_end(self.bytes.len()),
            trusted: false,
        }
    }

    /// As [`DirBlock::entries`], but checks only lengths. For a block that has passed the full
    /// check and that only [`DirBlockMut`](super::DirBlockMut) has changed since.
    pub fn trusted_entries(&self) -> Entries<'a> {
        Entries { trusted: true, ..self.entries() }
    }

    /// As [`DirBlock::find`], for a block that may be read with [`DirBlock::trusted_entries`]. The
    /// returned entry is checked.
    ///
    /// # Errors
    /// `Corrupt` for a bad length, or for the entry itself.
    pub fn find_trusted(&self, name: &[u8]) -> Result<Option<Dirent<'a>>> {
        let end = self.format.entries_end(self.bytes.len());
        let last = name.last();
        let mut offset = 0;
        while offset < end {
            let head = self.bytes[offset..end].first_chunk::<HEAD_LEN>();
            let head = head.ok_or_else(|| self.at.offset(offset).corrupt(What::DirentLength))?;
            let rec_len = rec_len_decode(u16::from_le_bytes([head[4], head[5]]), self.bytes.len());
            if rec_len < HEAD_LEN || rec_len > end - offset {
                return Err(self.at.offset(offset).corrupt(What::DirentLength));
            }
            // Most names differ in length or in their last byte.
            let start = offset + HEAD_LEN;
            if usize::from(head[6]) == name.len()
                && name.len() <= rec_len - HEAD_LEN
                && self.bytes[start..start + name.len()].last() == last
                && self.bytes[start..start + name.len()] == *name
                && head[..4] != [0; 4]
            {
                let mut entries = self.entries();
                entries.seek(offset);
                return entries.next().transpose();
            }
            offset += rec_len;
        }
        Ok(None)
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

    /// The entry that starts at `offset`, checked, and the one before it, of which only the length
    /// is checked.
    pub(super) fn at_offset(&self, offset: usize) -> Result<(Option<Dirent<'a>>, Dirent<'a>)> {
        let mut before = None;
        for entry in self.trusted_entries() {
            let entry = entry?;
            if entry.offset == offset {
                let mut checked = self.entries();
                checked.seek(offset);
                let entry = checked.next();
                return Ok((
                    before,
                    entry.ok_or(self.at.offset(offset).corrupt(What::DirentLength))??,
                ));
            }
            before = Some(entry);
        }
        Err(self.at.offset(offset).corrupt(What::DirentLength))
    }

    /// Checks the tail's shape and checksum. Without checksums there is nothing to check.
    ///
    /// `inode_seed` is the checksum seed of the directory's inode.
    ///
    /// # Errors
    /// `Corrupt` with `DirectoryTail` or `DirectoryChecksum`.
    pub fn verify_checksum(&self, inode_seed: u32) -> Result<()> {
        if !self.format.checksums {
            return Ok(());
        }
        let Some(tail) = tail_of(self.bytes) else {
            return Err(self.at.corrupt(What::DirectoryTail));
        };
        let body = &self.bytes[..self.bytes.len() - TAIL_LEN];
        if extant_crc32c::crc32c(inode_seed, body) != tail.det_checksum.get() {
            return Err(self
                .at
                .offset(body.len() + offset_of!(RawDirTail, det_checksum))
                .corrupt(What::DirectoryChecksum));
        }
        Ok(())
    }
}

/// The inode's seed with which the checksum of a block with a tail is right; `None` without a tail.
pub fn seed_from_checksum(block: &[u8]) -> Option<u32> {
    let stored = tail_of(block)?.det_checksum.get();
    Some(extant_crc32c::seed_of(stored, &block[..block.len() - TAIL_LEN]))
}

/// The tail of a block, if its last 12 bytes have the shape of one.
pub fn tail_of(block: &[u8]) -> Option<&RawDirTail> {
    let (_, tail) = RawDirTail::ref_from_suffix(block).ok()?;
    let shaped = tail.det_reserved_zero1.get() == 0
        && tail.det_rec_len.get() == len_u16(TAIL_LEN)
        && tail.det_reserved_zero2 == 0
        && tail.det_reserved_ft == TAIL_TYPE;
    shaped.then_some(tail)
}

/// The entries of a [`DirBlock`] in order.
#[derive(Clone, Debug)]
pub struct Entries<'a> {
    bytes: &'a [u8],
    format: DirFormat,
    at: Site,
    next: usize,
    end: usize,
    /// The entries have passed the full check earlier.
    trusted: bool,
}

impl<'a> Iterator for Entries<'a> {
    type Item = Result<Dirent<'a>>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.next >= self.end {
            return None;
        }
        let offset = self.next;
        let at = self.at.offset(offset);
        let left = &self.bytes[offset..self.end];
        let Ok((raw, rest)) = RawDirent::ref_from_prefix(left) else {
            self.next = self.end;
            return Some(Err(at.corrupt(What::DirentLength)));
        };
        let rec_len = rec_len_decode(raw.rec_len.get(), self.bytes.len());
        let name = rest.get(..raw.name_len as usize);
        let fits = rec_len >= DirFormat::need_plain(1)
            && rec_len.is_multiple_of(4)
            && rec_len <= left.len()
            && (rec_len == left.len() || left.len() - rec_len >= DirFormat::need_plain(1))
            && name.is_some_and(|name| rec_len >= self.format.need(name));
        let (true, Some(name)) = (fits, name) else {
            self.next = self.end;
            return Some(Err(at.corrupt(What::DirentLength)));
        };
        self.next = offset + rec_len;
        Some(self.check(raw, offset, rec_len, name, at))
    }
}

impl<'a> Entries<'a> {
    /// The offset of the next entry in the block; the end of the entries if there is none.
    pub fn offset(&self) -> usize {
        self.next
    }

    /// Continues at `offset`, which is `offset + rec_len` of an earlier entry.
    pub fn seek(&mut self, offset: usize) {
        self.next = offset;
    }

    fn check(
        &self,
        raw: &RawDirent,
        offset: usize,
        rec_len: usize,
        name: &'a [u8],
        at: Site,
    ) -> Result<Dirent<'a>> {
        let ino = Ino::new(raw.inode.get());
        let kind = if self.format.filetype {
            EntryKind::from_code(raw.file_type)
        } else {
            EntryKind::Unknown
        };
        let mut stored_hash = None;
        if self.trusted && !self.format.hash_words {
            return Ok(Dirent { offset, rec_len, ino, kind, name, stored_hash });
        }
        if let Some(ino) = ino {
            if ino.get() > self.format.inodes_count {
                return Err(at.corrupt(What::DirentInode));
            }
            if !self.format.admits(name) {
                return Err(at.corrupt(What::DirentName));
            }
            if name == b"." && offset + rec_len == self.bytes.len() {
                return Err(at.corrupt(What::DirentDot));
            }
            if self.format.filetype && raw.file_type == TAIL_TYPE {
                return Err(at.corrupt(What::DirentType));
            }
            if self.format.hash_words && name != b"." && name != b".." {
                let words = offset + DirFormat::need_plain(name.len());
                let word = |i: usize| {
                    let start = words + 4 * i;
                    let bytes = self.bytes.get(start..start + 4)?;
                    Some(u32::from_le_bytes(bytes.try_into().ok()?))
                };
                stored_hash = word(0).zip(word(1));
            }
        }
        Ok(Dirent { offset, rec_len, ino, kind, name, stored_hash })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::vec;
    use alloc::vec::Vec;
    use extant_base::Error;

    const PLAIN: DirFormat = DirFormat {
        filetype: true,
        checksums: false,
        hash_words: false,
        opaque_names: false,
        inodes_count: 100,
    };

    /// Entries as (inode, rec_len, type, name), back to back.
    fn block(entries: &[(u32, u16, u8, &[u8])]) -> Vec<u8> {
        let mut bytes = Vec::new();
        for &(inode, rec_len, kind, name) in entries {
            let start = bytes.len();
            bytes.extend(inode.to_le_bytes());
            bytes.extend(rec_len.to_le_bytes());
            bytes.extend([name.len() as u8, kind]);
            bytes.extend(name);
            bytes.resize(start + usize::from(rec_len).max(8), 0);
        }
        bytes.resize(1024, 0);
        bytes
    }

    fn findings(bytes: &[u8], format: DirFormat) -> Vec<Result<(u32, Vec<u8>), What>> {
        let view = DirBlock::new(bytes, format, Site::NOWHERE);
        view.entries()
            .map(|entry| match entry {
                Ok(entry) => Ok((entry.ino.map_or(0, Ino::get), entry.name.to_vec())),
                Err(Error::Corrupt { what, .. }) => Err(what),
                Err(other) => panic!("{other}"),
            })
            .collect()
    }

    #[test]
    fn a_trusted_search_finds_what_a_checked_one_does() {
        let bytes = block(&[
            (0, 12, 0, b"b"),
            (11, 12, 1, b"a"),
            (13, 16, 1, b"dir2"),
            (12, 984, 2, b"dir"),
        ]);
        let view = DirBlock::new(&bytes, PLAIN, Site::NOWHERE);
        for name in [&b"a"[..], b"b", b"dir", b"dir2", b"di", b"none"] {
            assert_eq!(view.find_trusted(name).unwrap(), view.find(name).unwrap(), "{name:?}");
        }
        assert!(view.trusted_entries().flatten().eq(view.entries().flatten()));
        for len in [0u16, 4, 7, 2000] {
            let mut bad = bytes.clone();
            bad[16..18].copy_from_slice(&len.to_le_bytes());
            let view = DirBlock::new(&bad, PLAIN, Site::NOWHERE);
            assert!(view.find_trusted(b"dir").is_err(), "a length of {len}");
        }
    }

    #[test]
    fn entries_come_in_order_and_unused_ones_too() {
        let bytes = block(&[(11, 12, 1, b"a"), (0, 24, 0, b"gone"), (12, 988, 2, b"dir")]);
        let want = [(11, &b"a"[..]), (0, b"gone"), (12, b"dir")];
        assert_eq!(findings(&bytes, PLAIN), want.map(|(ino, name)| Ok((ino, name.to_vec()))));
        let found = DirBlock::new(&bytes, PLAIN, Site::NOWHERE).find(b"dir").unwrap().unwrap();
        assert_eq!((found.offset, found.rec_len, found.kind), (36, 988, EntryKind::Directory));
        assert_eq!(DirBlock::new(&bytes, PLAIN, Site::NOWHERE).find(b"gone").unwrap(), None);
    }

    #[test]
    fn each_malformed_entry_is_named() {
        let rest = |used: u16| (0, 1024 - used, 0, &b""[..]);
        for (first, more, what) in [
            ((5, 8, 1, &b"a"[..]), true, What::DirentLength),
            ((5, 10, 1, b"a"), true, What::DirentLength),
            ((5, 0, 1, b"a"), true, What::DirentLength),
            ((5, 12, 1, b"12345"), true, What::DirentLength),
            ((5, 1028, 1, b"a"), false, What::DirentLength),
            ((5, 1016, 1, b"a"), true, What::DirentLength),
            ((5, 12, 1, b""), true, What::DirentName),
            ((5, 12, 1, b"a/b"), true, What::DirentName),
            ((5, 12, 1, b"a\0b"), true, What::DirentName),
            ((101, 12, 1, b"a"), true, What::DirentInode),
            ((5, 12, 0xDE, b"a"), true, What::DirentType),
            ((5, 1024, 2, b"."), false, What::DirentDot),
        ] {
            let mut entries = vec![first];
            if more && first.1 < 1016 {
                entries.push(rest(first.1.max(8)));
            }
            let found = findings(&block(&entries), PLAIN);
            assert_eq!(found[0], Err(what), "{first:?}");
            // Only a bad length ends the iteration.
            let ends = what == What::DirentLength || !more;
            assert_eq!(found.len(), if ends { 1 } else { 2 }, "{first:?}");
        }
    }

    #[test]
    fn ciphertext_may_hold_any_byte() {
        let bytes = block(&[(5, 1024, 1, b"a/\0b")]);
        let format = DirFormat { opaque_names: true, ..PLAIN };
        assert_eq!(findings(&bytes, format), [Ok((5, b"a/\0b".to_vec()))]);
    }

    #[test]
    fn without_filetype_the_byte_means_nothing() {
        let bytes = block(&[(5, 1024, 0xDE, b"a")]);
        let format = DirFormat { filetype: false, ..PLAIN };
        let found = DirBlock::new(&bytes, format, Site::NOWHERE).find(b"a").unwrap().unwrap();
        assert_eq!(found.kind, EntryKind::Unknown);
    }

    #[test]
    fn hash_words_follow_the_name() {
        let format = DirFormat { hash_words: true, ..PLAIN };
        assert_eq!(format.need(b"abc"), 20);
        assert_eq!(format.need(b"."), 12);
        let mut bytes = block(&[(5, 12, 2, b"."), (5, 1012, 1, b"abc")]);
        bytes[24..32].copy_from_slice(&[1, 0, 0, 0, 2, 0, 0, 0]);
        let entries: Vec<_> =
            DirBlock::new(&bytes, format, Site::NOWHERE).entries().map(Result::unwrap).collect();
        assert_eq!(entries[0].stored_hash, None);
        assert_eq!(entries[1].stored_hash, Some((1, 2)));
    }

    #[test]
    fn long_lengths_use_the_low_bits() {
        for (len, stored) in [(12, 12), (65500, 0xFFDC), (65532, 0xFFFC), (65536, 0xFFFF)] {
            assert_eq!(super::super::rec_len_encode(len), stored);
            assert_eq!(rec_len_decode(stored, 65536), len);
        }
        assert_eq!(rec_len_decode(0, 65536), 65536);
        assert_eq!(rec_len_decode(0x0009, 65536), 0x1_0008);
        assert_eq!(rec_len_decode(0xFFFF, 32768), 65535);
    }

    #[test]
    fn a_missing_tail_and_a_wrong_checksum_are_different_errors() {
        let format = DirFormat { checksums: true, ..PLAIN };
        let mut bytes = block(&[(5, 1012, 1, b"a"), (0, 12, 0xDE, b"")]);
        let check = |bytes: &[u8]| DirBlock::new(bytes, format, Site::NOWHERE).verify_checksum(7);
        let what = |result| match result {
            Err(Error::Corrupt { what, .. }) => Some(what),
            _ => None,
        };
        assert_eq!(what(check(&bytes)), Some(What::DirectoryChecksum));
        let sum = extant_crc32c::crc32c(7, &bytes[..1012]);
        bytes[1020..].copy_from_slice(&sum.to_le_bytes());
        assert!(check(&bytes).is_ok());
        bytes[1019] = 0;
        assert_eq!(what(check(&bytes)), Some(What::DirectoryTail));
    }
}
