//! The format of an entry: its fixed part, the encoding of its length, the kinds of file.
//!
//! ```text
//!   0       4        6         7      8            8+n
//!   ┌───────┬────────┬─────────┬──────┬─────────────┐       rec_len  in 64 KiB blocks: 65536 is
//!   │ inode │rec_len │name_len │ type │ name        │                FFFF (or 0), else bits 16, 17
//!   └───────┴────────┴─────────┴──────┴─────────────┘                are in bits 0, 1
//! ```
//!
//! Source: ext4 documentation, "Directory Entries".

use core::mem::offset_of;
use extant_base::narrow::len_u16;
use zerocopy::little_endian::{U16, U32};
use zerocopy::{FromBytes, Immutable, IntoBytes, KnownLayout, Unaligned};

/// Bytes of an entry before its name.
pub const HEAD_LEN: usize = 8;
/// Bytes of the checksum tail.
pub const TAIL_LEN: usize = 12;
/// The longest name in bytes.
pub const NAME_MAX: usize = 255;
/// `file_type` of the tail; an entry with a name never has it.
pub const TAIL_TYPE: u8 = 0xDE;

/// The fixed part of an entry as stored.
#[derive(Clone, Copy, Debug, FromBytes, IntoBytes, KnownLayout, Immutable, Unaligned)]
#[repr(C)]
pub struct RawDirent {
    /// Inode number; 0 marks an unused entry.
    pub inode: U32,
    /// Bytes from this entry to the next, encoded for [`rec_len_decode`].
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

/// The kind of file that an entry records.
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
    /// An unknown value, which is kept.
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

/// The properties of the volume and the directory that determine the format of its blocks.
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
    /// The same format for areas without a tail: those of an inline directory, and index blocks
    /// that are read as linear blocks.
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

    /// Whether this directory may hold `name`.
    pub fn admits(&self, name: &[u8]) -> bool {
        match self.opaque_names {
            true => (1..=NAME_MAX).contains(&name.len()),
            false => name_is_legal(name),
        }
    }

    /// The end of the entries of a block of `block_len` bytes, in bytes.
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
    if len == 65536 { 0xFFFF } else { len_u16(len) }
}

/// Whether a directory may hold `name`: 1..=255 bytes, no slash, no NUL.
pub fn name_is_legal(name: &[u8]) -> bool {
    // A loop without an early exit: the compiler turns it into vector instructions.
    let bad = name.iter().fold(false, |bad, &b| bad | (b == b'/') | (b == 0));
    (1..=NAME_MAX).contains(&name.len()) && !bad
}
