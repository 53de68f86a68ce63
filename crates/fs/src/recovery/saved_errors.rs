//! What a superblock says of errors must outlive the log's replay.
//!
//! ```text
//!   superblock at home      … │ 194 error count, first and last error … │ 200 …    newer than the log
//!   superblock in the log   … │ older                                   │ …
//!   after replay            … │ as it was at home                       │ …  from the log
//! ```
//!
//! A writer that gives up cannot log any more: it writes the error block, and the ERROR state, to
//! the primary superblock directly, and its errno into the journal's superblock.

use crate::recovery::mark_errors;
use crate::superblock::write_changed_superblock;
use crate::volume::raw_superblock;
use extant_base::Result;
use extant_blockdev::BlockDevice;
use extant_ondisk::superblock::{RawSuperblock, SUPERBLOCK_OFFSET, SUPERBLOCK_SIZE, Superblock};
use std::ops::Range;
use zerocopy::{FromBytes, IntoBytes};

/// The error block.
const ERROR_BYTES: Range<usize> = 0x194..0x200;

/// The error block and state before a replay.
pub(super) struct SavedErrors {
    block: [u8; 0x200 - 0x194],
    has_errors: bool,
}

impl SavedErrors {
    /// What the primary superblock on `home` says now.
    pub(super) fn of(superblock: &Superblock, home: &dyn BlockDevice) -> Result<SavedErrors> {
        let raw = raw_superblock(home, SUPERBLOCK_OFFSET)?;
        let mut block = [0; 0x200 - 0x194];
        block.copy_from_slice(&raw.as_bytes()[ERROR_BYTES]);
        Ok(SavedErrors { block, has_errors: superblock.has_errors() })
    }

    /// Puts it into the superblock that the replay left, durably; adds the log's `errno`, 0 for
    /// none.
    pub(super) fn put_back(&self, home: &dyn BlockDevice, errno: i32) -> Result<()> {
        let raw = raw_superblock(home, SUPERBLOCK_OFFSET)?;
        let mut bytes = [0; SUPERBLOCK_SIZE];
        bytes.copy_from_slice(raw.as_bytes());
        bytes[ERROR_BYTES].copy_from_slice(&self.block);
        let Ok(raw) = RawSuperblock::read_from_bytes(&bytes) else { return Ok(()) };
        write_changed_superblock(home, raw, |superblock| {
            if self.has_errors || errno != 0 {
                mark_errors(superblock);
            }
        })
    }
}
