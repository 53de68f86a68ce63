//! Errors of write-back, told once to each opener.

use super::FileCache;
use extant_base::{Error, Result};
use std::sync::atomic::AtomicU64;

impl FileCache {
    /// Write-back failed: every opener is told once.
    pub fn note_error(&self, _error: &Error) {
        unimplemented!("follows")
    }

    /// The mark of a new opener, to be kept for [`FileCache::check_error`].
    pub fn error_seen(&self) -> u64 {
        unimplemented!("follows")
    }

    /// The error that this opener has not been told of, once.
    pub fn check_error(&self, _seen: &AtomicU64) -> Result<()> {
        unimplemented!("follows")
    }
}
