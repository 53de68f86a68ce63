//! Linear directory block: entries that tile the block, and a checksum dressed as an entry.
//!
//! ```text
//!   0       4        6         7      8            8+n   rec_len
//!   ┌───────┬────────┬─────────┬──────┬─────────────┬─────┬──────────────── … ──┬─────────────┐
//!   │ inode │rec_len │name_len │ type │ name        │slack│ next entry          │ tail        │
//!   └───────┴────────┴─────────┴──────┴─────────────┴─────┴──────────────── … ──┴─────────────┘
//!    0 = unused entry          0 without `filetype`                           bs-12          bs
//!
//!   tail (metadata_csum):  inode 0 │ rec_len 12 │ name_len 0 │ type DE │ checksum u32
//!   checksum = crc32c(inode seed, block[0 .. bs-12))
//! ```
//!
//! Rules: `rec_len` is a multiple of 4 and at least what the name needs; entries leave no gap; the
//! last one ends at the tail, or at the block's end. In a directory both encrypted and casefolded
//! each name but "." and ".." is followed by its hash, 8 bytes at the next multiple of 4.
//! In 64 KiB blocks the length 65536 is stored as FFFF, and longer ones keep bits 16, 17 in bits 0, 1.
//! Source: ext4 documentation, "Directory Entries", linear directories and the block tail.

use core::mem::offset_of;
use extant_base::{Error, Ino, Result, Site, What};
use zerocopy::little_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Bytes of an entry before its name.
pub const HEAD_LEN: usize = 8;
/// Bytes of the checksum tail.
pub const TAIL_LEN: usize = 12;
/// The longest name in bytes.
pub const NAME_MAX: usize = 255;
/// `file_type` of the tail; in a real entry it is corruption.
pub const TAIL_TYPE: u8 = 0xDE;

/// The fixed part of an entry as stored.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct RawDirent {
    /// Inode number; 0 marks an unused entry.
    pub inode: U32,
    /// Bytes from this entry to the next, coded as [`rec_len_decode`] says.
    pub rec_len: U16,
    /// Bytes of the name.
    pub name_len: u8,
    /// Kind of the file with feature `filetype`, else 0.
    pub file_type: u8,
}
const _: () = assert!(size_of::<RawDirent>() == HEAD_LEN && offset_of!(RawDirent, file_type) == 7);

/// The checksum tail as stored.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct RawDirTail {
    /// 0.
    pub det_reserved_zero1: U32,
    /// 12.
    pub det_rec_len: U16,
    /// 0.
    pub det_reserved_zero2: u8,
    /// DE.
    pub det_reserved_ft: u8,
    /// crc32c(inode seed, the block before the tail).
    pub det_checksum: U32,
}
const _: () =
    assert!(size_of::<RawDirTail>() == TAIL_LEN && offset_of!(RawDirTail, det_checksum) == 8);

/// The kind of file an entry names, as far as the entry says.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum EntryKind {
    /// Not recorded (0, or the volume has no `filetype`).
    Unknown,
    /// A regular file.
    Regular,
    /// A directory.
    Directory,
    /// A character device.
    CharDevice,
    /// A block device.
    BlockDevice,
    /// A named pipe.
    Fifo,
    /// A socket.
    Socket,
    /// A symbolic link.
    Symlink,
    /// A value nobody has named; kept as it is.
    Other(u8),
}

impl EntryKind {
    /// The kind that `file_type` stores.
    pub const fn from_code(code: u8) -> EntryKind {
        match code {
            0 => EntryKind::Unknown,
            1 => EntryKind::Regular,
            2 => EntryKind::Directory,
            3 => EntryKind::CharDevice,
            4 => EntryKind::BlockDevice,
            5 => EntryKind::Fifo,
            6 => EntryKind::Socket,
            7 => EntryKind::Symlink,
            other => EntryKind::Other(other),
        }
    }

    /// The value stored in `file_type`.
    pub const fn code(self) -> u8 {
        match self {
            EntryKind::Unknown => 0,
            EntryKind::Regular => 1,
            EntryKind::Directory => 2,
            EntryKind::CharDevice => 3,
            EntryKind::BlockDevice => 4,
            EntryKind::Fifo => 5,
            EntryKind::Socket => 6,
            EntryKind::Symlink => 7,
            EntryKind::Other(code) => code,
        }
    }

    /// The kind of an inode with this `i_mode` (type bits in 12..=15).
    pub const fn from_mode(mode: u16) -> EntryKind {
        match mode >> 12 {
            0x1 => EntryKind::Fifo,
            0x2 => EntryKind::CharDevice,
            0x4 => EntryKind::Directory,
            0x6 => EntryKind::BlockDevice,
            0x8 => EntryKind::Regular,
            0xA => EntryKind::Symlink,
            0xC => EntryKind::Socket,
            _ => EntryKind::Unknown,
        }
    }
}

/// What a reader must know of the volume and the directory to read its blocks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DirFormat {
    /// Feature `filetype`: entries record the kind of file.
    pub filetype: bool,
    /// Feature `metadata_csum`: blocks end in a tail (or, in an index, hold one after the entries).
    pub checksums: bool,
    /// The directory is both encrypted and casefolded: names are followed by their hash.
    pub hash_words: bool,
    /// The directory is encrypted: names are ciphertext and may hold any byte.
    pub opaque_names: bool,
    /// `s_inodes_count`: the largest inode number an entry may hold.
    pub inodes_count: u32,
}

impl DirFormat {
    /// The same directory, for areas that end without a tail: inline ones, and index blocks
    /// looked at as if they were linear.
    pub fn without_tail(self) -> DirFormat {
        DirFormat { checksums: false, ..self }
    }

    /// Bytes an entry for a name of `name_len` bytes needs, hash words not counted.
    pub const fn need_plain(name_len: usize) -> usize {
        (HEAD_LEN + name_len + 3) & !3
    }

    /// Bytes an entry for `name` needs in this directory.
    pub fn need(&self, name: &[u8]) -> usize {
        let words = self.hash_words && !name.is_empty() && name != b"." && name != b"..";
        Self::need_plain(name.len() + if words { 8 } else { 0 })
    }

    /// Where the entries of a block of `block_len` bytes end.
    pub fn entries_end(&self, block_len: usize) -> usize {
        if self.checksums { block_len.saturating_sub(TAIL_LEN) } else { block_len }
    }
}

/// The length in bytes that a stored `rec_len` means in an area of `area_len` bytes.
pub const fn rec_len_decode(stored: u16, area_len: usize) -> usize {
    if area_len < 65536 {
        stored as usize
    } else if stored == 0xFFFF || stored == 0 {
        65536
    } else {
        (stored as usize & 0xFFFC) | (stored as usize & 3) << 16
    }
}

/// The stored form of a length of at most 65536 bytes, a multiple of 4.
pub const fn rec_len_encode(len: usize) -> u16 {
    assert!(len <= 65536 && len.is_multiple_of(4));
    if len == 65536 { 0xFFFF } else { len as u16 }
}

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
    /// Hash and minor hash stored behind the name, in a directory with hash words.
    pub stored_hash: Option<(u32, u32)>,
}

impl Dirent<'_> {
    /// Whether this is the directory itself or its parent.
    pub fn is_dot_or_dotdot(&self) -> bool {
        self.name == b"." || self.name == b".."
    }

    /// Bytes of this entry that its own name does not need.
    fn slack(&self, format: &DirFormat) -> usize {
        match self.ino {
            None => self.rec_len,
            Some(_) => self.rec_len.saturating_sub(format.need(self.name)),
        }
    }
}

/// Whether `name` may stand in a directory: 1..=255 bytes, no slash, no NUL.
pub fn name_is_legal(name: &[u8]) -> bool {
    (1..=NAME_MAX).contains(&name.len()) && !name.iter().any(|&b| b == b'/' || b == 0)
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
    /// An entry with a bad name or inode is answered with an error and the walk goes on behind it;
    /// a bad length ends the walk, since nothing says where the next entry starts.
    /// Errors: `Corrupt` with `DirentLength`, `DirentName`, `DirentInode`, `DirentType` or
    /// `DirentDot`.
    pub fn entries(&self) -> Entries<'a> {
        Entries {
            bytes: self.bytes,
            format: self.format,
            at: self.at,
            next: 0,
            end: self.format.entries_end(self.bytes.len()),
        }
    }

    /// The used entry with exactly this name.
    ///
    /// Errors: the first `Corrupt` entry that stands before it.
    pub fn find(&self, name: &[u8]) -> Result<Option<Dirent<'a>>> {
        for entry in self.entries() {
            let entry = entry?;
            if entry.ino.is_some() && entry.name == name {
                return Ok(Some(entry));
            }
        }
        Ok(None)
    }

    /// The entry that starts at `offset`, with the one before it.
    fn at_offset(&self, offset: usize) -> Result<(Option<Dirent<'a>>, Dirent<'a>)> {
        let mut before = None;
        for entry in self.entries() {
            let entry = entry?;
            if entry.offset == offset {
                return Ok((before, entry));
            }
            before = Some(entry);
        }
        Err(self.at.offset(offset).corrupt(What::DirentLength))
    }

    /// Checks the tail's shape and checksum. Without checksums there is nothing to check.
    ///
    /// `inode_seed` is the checksum seed of the directory's inode.
    /// Errors: `Corrupt` with `DirectoryTail` or `DirectoryChecksum`.
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

/// The tail of a block, if its last 12 bytes have the shape of one.
pub fn tail_of(block: &[u8]) -> Option<&RawDirTail> {
    let (_, tail) = RawDirTail::ref_from_suffix(block).ok()?;
    let shaped = tail.det_reserved_zero1.get() == 0
        && tail.det_rec_len.get() == TAIL_LEN as u16
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
    /// Bytes from the block's start of the entry that comes next; the end when there is none.
    pub fn offset(&self) -> usize {
        self.next
    }

    /// Goes on at `offset`, which an earlier entry's `offset + rec_len` gave.
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
        if let Some(ino) = ino {
            if ino.get() > self.format.inodes_count {
                return Err(at.corrupt(What::DirentInode));
            }
            if name.is_empty() || !(self.format.opaque_names || name_is_legal(name)) {
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

/// A directory block to change. Every edit carries the checksum along: right stays right, at the
/// cost of the bytes that changed, and wrong stays wrong.
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

    /// How the block is laid out.
    pub fn format(&self) -> DirFormat {
        self.format
    }

    /// Makes the block hold one unused entry and the tail; every other byte is zero.
    pub fn init_empty(&mut self) {
        self.bytes.fill(0);
        let end = self.format.entries_end(self.bytes.len());
        self.put_head(0, None, end, 0, EntryKind::Unknown);
        self.put_tail();
        self.sum();
    }

    /// Makes the block the first of a directory: "." and "..", the latter up to the end.
    pub fn init_first(&mut self, own: Ino, parent: Ino) {
        self.bytes.fill(0);
        let end = self.format.entries_end(self.bytes.len());
        self.put_entry(0, own, 12, b".", EntryKind::Directory, None);
        self.put_entry(12, parent, end - 12, b"..", EntryKind::Directory, None);
        self.put_tail();
        self.sum();
    }

    /// Puts a name into the first entry with enough slack and gives its offset, or `None` when
    /// the block is full. Does not look whether the name is already there.
    ///
    /// `stored_hash` is written behind the name in a directory with hash words and ignored in
    /// others. Errors: `NameTooLong` or `Invalid` for a name that may not stand in a directory;
    /// `Corrupt` when the block's entries are malformed; then nothing was changed.
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
        if !name_is_legal(name) {
            return Err(Error::Invalid("a name is empty or holds a slash or NUL"));
        }
        let need = self.format.need(name);
        let mut room = None;
        for entry in self.view().entries() {
            let entry = entry?;
            if entry.slack(&self.format) >= need {
                let own = entry.rec_len - entry.slack(&self.format);
                room = Some((entry.offset, own, entry.rec_len));
                break;
            }
        }
        let Some((offset, own, rec_len)) = room else { return Ok(None) };
        if own > 0 {
            self.patch(offset + offset_of!(RawDirent, rec_len), &rec_len_encode(own).to_le_bytes());
        }
        let offset = offset + own;
        self.put_entry(offset, ino, rec_len - own, name, kind, stored_hash);
        Ok(Some(offset))
    }

    /// Removes the entry that starts at `offset`: the entry before it takes its bytes; the first
    /// of a block becomes unused. The name's bytes are zeroed.
    ///
    /// Errors: `Corrupt` when no used entry starts there or the block is malformed.
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
    /// Errors: `Corrupt` when no used entry starts there or the block is malformed.
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

    /// Writes the checksum over whatever the block holds now, tail included.
    pub fn set_checksum(&mut self) {
        self.put_tail();
        self.sum();
    }

    fn put_tail(&mut self) {
        if self.format.checksums {
            let at = self.bytes.len() - TAIL_LEN;
            let tail = RawDirTail {
                det_reserved_zero1: U32::ZERO,
                det_rec_len: U16::new(TAIL_LEN as u16),
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

    /// The one place that changes bytes before the tail: the checksum follows at the cost of what
    /// changed, and a sum that was wrong before stays wrong.
    fn patch(&mut self, offset: usize, new: &[u8]) {
        let end = offset + new.len();
        if self.format.checksums {
            let (body, tail) = self.bytes.split_at_mut(self.bytes.len() - TAIL_LEN);
            let trailing = (body.len() - end) as u64;
            let delta = extant_crc32c::splice_delta(trailing, &body[offset..end], new);
            let sum = &mut tail[offset_of!(RawDirTail, det_checksum)..];
            let old = u32::from_le_bytes([sum[0], sum[1], sum[2], sum[3]]);
            sum.copy_from_slice(&(old ^ delta).to_le_bytes());
        }
        self.bytes[offset..end].copy_from_slice(new);
    }

    fn sum(&mut self) {
        if self.format.checksums {
            let (body, tail) = self.bytes.split_at_mut(self.bytes.len() - TAIL_LEN);
            let sum = extant_crc32c::crc32c(self.seed, body);
            tail[offset_of!(RawDirTail, det_checksum)..].copy_from_slice(&sum.to_le_bytes());
        }
    }
}

/// Fills a block from the front with entries packed tight: what splits, conversions and bulk
/// builds want. The last entry is stretched to the end by [`DirPacker::finish`].
#[derive(Debug)]
pub struct DirPacker<'a> {
    block: DirBlockMut<'a>,
    next: usize,
    last: Option<usize>,
}

impl<'a> DirPacker<'a> {
    /// Starts over in `block`: what it held is gone.
    pub fn new(block: DirBlockMut<'a>) -> DirPacker<'a> {
        block.bytes.fill(0);
        DirPacker { block, next: 0, last: None }
    }

    /// Bytes still free for entries.
    pub fn room(&self) -> usize {
        self.block.format.entries_end(self.block.bytes.len()) - self.next
    }

    /// Adds a legal name behind the others; `false`, and no change, when it does not fit.
    pub fn push(
        &mut self,
        name: &[u8],
        ino: Ino,
        kind: EntryKind,
        stored_hash: Option<(u32, u32)>,
    ) -> bool {
        assert!(name_is_legal(name), "an illegal name would reach the disk");
        let need = self.block.format.need(name);
        // The last entry is stretched to the end, so nothing too short for an entry is left over.
        if need > self.room() {
            return false;
        }
        self.block.put_entry(self.next, ino, need, name, kind, stored_hash);
        self.last = Some(self.next);
        self.next += need;
        true
    }

    /// Stretches the last entry to the end (or makes one unused entry) and writes the tail.
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
