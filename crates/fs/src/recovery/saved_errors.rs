//! What a superblock says of errors must outlive the log's replay.
//!
//! ```text
//!   superblock at home      … │ 194 error count, first and last error … │ 278 high bits, codes │   newer than the log
//!   superblock in the log   … │ older                                   │ older                │
//!   after replay            … │ as it was at home                       │ as it was at home    │   the rest from the log
//! ```
//!
//! A writer that gives up cannot log any more: it writes the error block, and the ERROR state, to
//! the primary superblock directly, and its errno into the journal's superblock. What it noted before
//! went through the log: of the two superblocks the one that counts more errors is the newer.
//!
//! The log's superblock goes home with all of that in it: no cut leaves one without.

use crate::context::superblock::patch_superblock;
use crate::context::superblock::raw_superblock;
use crate::recovery::mark_errors;
use extant_base::Result;
use extant_blockdev::BlockDevice;
use extant_ondisk::superblock::{RawSuperblock, SUPERBLOCK_OFFSET, VolumeState};

/// The primary superblock before a replay.
pub(super) struct SavedErrors {
    before: RawSuperblock,
}

impl SavedErrors {
    /// What the primary superblock on `home` says now; of one that a cut tore both sectors do.
    pub(super) fn of(home: &dyn BlockDevice) -> Result<SavedErrors> {
        Ok(SavedErrors { before: raw_superblock(home, SUPERBLOCK_OFFSET)? })
    }

    /// Puts it into the superblock that the log has.
    pub(super) fn put_into(&self, raw: &mut RawSuperblock) {
        let before = &self.before;
        let error = before.s_state.get() & VolumeState::ERROR.bits();
        raw.s_state = (raw.s_state.get() | error).into();
        if before.s_error_count.get() < raw.s_error_count.get() {
            return;
        }
        raw.s_error_count = before.s_error_count;
        raw.s_first_error_time = before.s_first_error_time;
        raw.s_first_error_time_hi = before.s_first_error_time_hi;
        raw.s_first_error_ino = before.s_first_error_ino;
        raw.s_first_error_block = before.s_first_error_block;
        raw.s_first_error_func = before.s_first_error_func;
        raw.s_first_error_line = before.s_first_error_line;
        raw.s_first_error_errcode = before.s_first_error_errcode;
        raw.s_last_error_time = before.s_last_error_time;
        raw.s_last_error_time_hi = before.s_last_error_time_hi;
        raw.s_last_error_ino = before.s_last_error_ino;
        raw.s_last_error_block = before.s_last_error_block;
        raw.s_last_error_func = before.s_last_error_func;
        raw.s_last_error_line = before.s_last_error_line;
        raw.s_last_error_errcode = before.s_last_error_errcode;
    }
}

/// Takes the log's `errno`, 0 for none, over into the superblock that the replay left, durably: a flag and no more, so
/// that a superblock that is torn meanwhile is known (`torn.rs`).
pub(super) fn take_over(home: &dyn BlockDevice, errno: i32) -> Result<()> {
    if errno == 0 { Ok(()) } else { patch_superblock(home, mark_errors) }
}
