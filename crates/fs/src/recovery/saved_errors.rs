//! Keeps the superblock's error fields across the log's replay.
//!
//! ```text
//!   superblock at home    … │ 194 error count, first, last error … │ 278 high bits, codes │ newer
//!   superblock in the log … │ older                                │ older                │
//!   after replay          … │ as it was at home                    │ as it was at home    │
//! ```
//!
//! A writer whose journal aborted can no longer log. It writes the error fields and the ERROR state
//! directly to the primary superblock, and its errno into the journal's superblock. Errors that it
//! noted earlier went through the log. So of the two superblocks, the one with the larger error
//! count is the newer.
//!
//! Replay writes the log's superblock home with these fields already in it: no power cut leaves a
//! superblock without them.

use crate::context::superblock::{patch_superblock, raw_superblock};
use crate::recovery::mark_errors;
use extant_base::Result;
use extant_blockdev::BlockDevice;
use extant_ondisk::superblock::{RawSuperblock, SUPERBLOCK_OFFSET, VolumeState};

/// The primary superblock before a replay.
pub(super) struct SavedErrors {
    before: RawSuperblock,
}

impl SavedErrors {
    /// Reads the primary superblock on `home`. A torn one will do: each of its two sectors is
    /// intact.
    pub(super) fn of(home: &dyn BlockDevice) -> Result<SavedErrors> {
        Ok(SavedErrors { before: raw_superblock(home, SUPERBLOCK_OFFSET)? })
    }

    /// Puts the saved fields into the superblock from the log.
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

/// Records the log's `errno` (0 for none) in the superblock after the replay, durably. It changes a
/// single flag only, so that `torn.rs` recognises a superblock that is torn meanwhile.
pub(super) fn record_log_errno(home: &dyn BlockDevice, errno: i32) -> Result<()> {
    if errno == 0 { Ok(()) } else { patch_superblock(home, mark_errors) }
}
