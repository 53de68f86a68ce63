//! The volume's state (clean, in use, with errors), and how a mount and an unmount change it.
//!
//! ```text
//!                    write mount                        unmount
//!   journaled    VALID ────────► VALID + RECOVER ─────────────► VALID      crash: RECOVER stays
//!   no journal   VALID ────────► (none)          ─────────────► VALID      crash: VALID stays off
//!                         any corruption found: + ERROR, which only a checker clears
//! ```

use super::Superblock;
use crate::features::{Compat, Incompat, RoCompat};

bitflags::bitflags! {
    /// `s_state`.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct VolumeState: u16 {
        /// Unmounted cleanly, or in use with a journal.
        const VALID = 1;
        /// Errors were found; a check is due.
        const ERROR = 2;
        /// Orphans are being processed.
        const ORPHANS = 4;
        /// A fast-commit replay is under way.
        const FC_REPLAY = 0x20;
        const _ = !0;
    }

    /// `s_flags`.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct SuperFlags: u32 {
        /// Directory hashes take bytes as signed.
        const SIGNED_HASH = 1;
        /// Directory hashes take bytes as unsigned.
        const UNSIGNED_HASH = 2;
        /// For testing only.
        const TEST_FILESYS = 4;
        const _ = !0;
    }

    /// `s_default_mount_opts`.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct DefaultMountOpts: u32 {
        /// Print debugging messages.
        const DEBUG = 0x1;
        /// New files take their directory's group.
        const BSDGROUPS = 0x2;
        /// User attributes.
        const XATTR_USER = 0x4;
        /// Access control lists.
        const ACL = 0x8;
        /// 16-bit user IDs.
        const UID16 = 0x10;
        /// Data goes through the journal (data=journal). Both data bits together: data=writeback.
        const JOURNAL_DATA = 0x20;
        /// Data is written before the commit that makes it reachable (data=ordered).
        const JOURNAL_DATA_ORDERED = 0x40;
        /// No write barriers.
        const NOBARRIER = 0x100;
        /// Keep track of which blocks are metadata.
        const BLOCK_VALIDITY = 0x200;
        /// Tell the device which blocks are free.
        const DISCARD = 0x400;
        /// No delayed allocation.
        const NODELALLOC = 0x800;
        const _ = !0;
    }
}

/// `s_errors`: what to do when an error is found. Unknown values are kept.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ErrorPolicy(pub u16);

impl ErrorPolicy {
    /// Continue.
    pub const CONTINUE: ErrorPolicy = ErrorPolicy(1);
    /// Remount read-only. Unknown values mean the same.
    pub const REMOUNT_RO: ErrorPolicy = ErrorPolicy(2);
    /// Panic.
    pub const PANIC: ErrorPolicy = ErrorPolicy(3);
}

/// An error that is recorded in the superblock.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ErrorRecord {
    /// Time of the error, seconds since 1970; 0 if there is none.
    pub time: u64,
    /// The inode, or 0.
    pub ino: u32,
    /// The block, or 0.
    pub block: u64,
    /// Function that found it, NUL-padded.
    pub func: [u8; 32],
    /// Line that found it.
    pub line: u32,
    /// Kind of error: 1 unknown, 2 EIO, 4 bad checksum, 5 corrupt, …
    pub code: u8,
}

impl Superblock {
    /// Whether the journal must be replayed before anything else is read.
    pub fn needs_recovery(&self) -> bool {
        self.features.incompat.contains(Incompat::RECOVER)
    }

    /// Whether the superblock has recorded errors that no checker has cleared.
    pub fn has_errors(&self) -> bool {
        self.state.contains(VolumeState::ERROR)
    }

    /// Whether the volume is clean: valid, no errors, nothing to replay, no orphans.
    pub fn is_clean(&self) -> bool {
        self.state.contains(VolumeState::VALID)
            && !self.has_errors()
            && !self.needs_recovery()
            && !self.features.ro_compat.contains(RoCompat::ORPHAN_PRESENT)
            && self.last_orphan == 0
    }

    /// Whether the volume has a journal, inside or on another device.
    pub fn has_journal(&self) -> bool {
        self.features.compat.contains(Compat::HAS_JOURNAL)
    }

    /// Whether a check is due at `now` (seconds since 1970), by mount count or interval.
    pub fn check_is_due(&self, now: u64) -> bool {
        (self.max_mnt_count > 0 && i32::from(self.max_mnt_count) <= i32::from(self.mnt_count))
            || (self.checkinterval != 0
                && self
                    .lastcheck
                    .checked_add(u64::from(self.checkinterval))
                    .is_some_and(|due| due <= now))
    }

    /// Changes the fields for a mount for writing at `now` (seconds since 1970). The caller makes
    /// the result durable before the first transaction commits.
    pub fn begin_write_mount(&mut self, now: u64) {
        if self.has_journal() {
            self.features.incompat.insert(Incompat::RECOVER);
        } else {
            self.state.remove(VolumeState::VALID);
        }
        if self.features.compat.contains(Compat::ORPHAN_FILE) {
            self.features.ro_compat.insert(RoCompat::ORPHAN_PRESENT);
        }
        if self.max_mnt_count == 0 {
            self.max_mnt_count = 20;
        }
        self.mnt_count = self.mnt_count.saturating_add(1);
        self.mtime = now;
        self.wtime = now;
    }

    /// Changes the fields for a clean unmount at `now` (seconds since 1970); `at_mount` is the
    /// state at mount. The caller calls this only when the log is empty. A recorded error stays.
    pub fn end_write_mount(&mut self, at_mount: VolumeState, now: u64) {
        self.features.incompat.remove(Incompat::RECOVER);
        self.features.ro_compat.remove(RoCompat::ORPHAN_PRESENT);
        let error = self.state & VolumeState::ERROR;
        self.state = at_mount | error;
        self.wtime = now;
    }

    /// Records an error: sets ERROR, counts it, and stores it as the last one, and as the first one
    /// if there is none.
    pub fn record_error(&mut self, error: ErrorRecord) {
        self.state.insert(VolumeState::ERROR);
        self.error_count = self.error_count.saturating_add(1);
        if self.first_error.time == 0 {
            self.first_error = error;
        }
        self.last_error = error;
    }
}
