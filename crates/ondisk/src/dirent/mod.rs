//! Linear directory block: entries that fill the block without gaps, and a checksum tail that has
//! the form of an unused entry.
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
//! Rules:
//! - `rec_len` is a multiple of 4, and the name fits in it.
//! - There is no gap between entries. The last one ends at the tail, or at the block's end.
//! - In a directory that is both encrypted and casefolded, the hash of the name follows each name
//!   but "." and "..": 8 bytes at the next multiple of 4.
//! - In 64 KiB blocks the length 65536 is stored as FFFF. Bits 16 and 17 of longer ones are stored
//!   in bits 0 and 1.
//!
//! Source: ext4 documentation, "Directory Entries", linear directories and the block tail.

mod block;
mod edit;
mod format;

pub use block::{DirBlock, Dirent, Entries, seed_from_checksum, tail_of};
pub use edit::{DirBlockMut, DirPacker};
pub use format::{
    DirFormat, EntryKind, HEAD_LEN, NAME_MAX, RawDirTail, RawDirent, TAIL_LEN, TAIL_TYPE,
    name_is_legal, rec_len_decode, rec_len_encode,
};
