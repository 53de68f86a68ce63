//! The cached bytes of one file.

pub(crate) mod borrow;
pub(crate) mod dirty;
mod discard;
mod errors;
mod read;
mod write;

use extant_base::Ino;

/// The cached bytes of one file.
pub struct FileCache {
    ino: Ino,
}

impl FileCache {
    /// Whose bytes these are.
    pub fn ino(&self) -> Ino {
        self.ino
    }

    /// The file's length in bytes, which hits are clipped to.
    pub fn len(&self) -> u64 {
        unimplemented!("follows")
    }

    /// Whether the file has no bytes.
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Sets the length. The caller holds the inode; a file that shrinks is set before its folios
    /// are discarded or zeroed.
    pub fn set_len(&self, _len: u64) {
        unimplemented!("follows")
    }

    /// Lets hits find folios, or hides them (the file changes its kind of storage).
    pub fn set_hits(&self, _on: bool) {
        unimplemented!("follows")
    }
}
