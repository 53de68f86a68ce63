//! Limits: how much an id may use, and for how long it may exceed its soft limit.
//!
//! ```text
//!   use ──────────────┬───────────────────────┬──────────► refused
//!                soft │ until the grace ends  │ hard
//!                     │                       │
//! ```
//!
//! Limits apply only if the volume was opened to enforce them. A limit of 0 means none. Source:
//! Linux, "Quota subsystem".

use extant_ondisk::quota::{QuotaEntry, QuotaInfo};

/// How much a user, group or project may use. 0 is no limit.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct QuotaLimits {
    /// Bytes that may be used for the grace period only; a multiple of 1024, or rounded up to one.
    pub bytes_soft: u64,
    /// Bytes that may be used at most; as `bytes_soft`.
    pub bytes_hard: u64,
    /// Inodes that may be used for the grace period only.
    pub inodes_soft: u64,
    /// Inodes that may be used at most.
    pub inodes_hard: u64,
}

impl QuotaLimits {
    /// The limits of an entry.
    pub(crate) fn of(entry: &QuotaEntry) -> QuotaLimits {
        QuotaLimits {
            bytes_soft: entry.space_soft_kib.saturating_mul(1024),
            bytes_hard: entry.space_hard_kib.saturating_mul(1024),
            inodes_soft: entry.inodes_soft,
            inodes_hard: entry.inodes_hard,
        }
    }

    pub(super) fn apply(&self, entry: &mut QuotaEntry) {
        entry.space_soft_kib = self.bytes_soft.div_ceil(1024);
        entry.space_hard_kib = self.bytes_hard.div_ceil(1024);
        entry.inodes_soft = self.inodes_soft;
        entry.inodes_hard = self.inodes_hard;
    }
}

/// The additional usage of a request.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Wanted {
    pub(crate) inodes: u64,
    pub(crate) bytes: u64,
}

/// Whether the limits of `entry` allow `wanted` at time `now`, in seconds.
pub(super) fn allows(entry: &QuotaEntry, wanted: Wanted, now: i64) -> bool {
    let kib = |kib: u64| kib.saturating_mul(1024);
    let inodes = Limit {
        hard: entry.inodes_hard,
        soft: entry.inodes_soft,
        grace_end: entry.inodes_grace_end,
    };
    let space = Limit {
        hard: kib(entry.space_hard_kib),
        soft: kib(entry.space_soft_kib),
        grace_end: entry.space_grace_end,
    };
    inodes.allows(entry.inodes, wanted.inodes, now) && space.allows(entry.space, wanted.bytes, now)
}

struct Limit {
    hard: u64,
    soft: u64,
    grace_end: u64,
}

impl Limit {
    fn allows(&self, used: u64, more: u64, now: i64) -> bool {
        if more == 0 {
            return true;
        }
        let then = used.saturating_add(more);
        let expired =
            self.grace_end != 0 && u64::try_from(now).is_ok_and(|now| now >= self.grace_end);
        let over_hard = self.hard != 0 && then > self.hard;
        let over_soft = self.soft != 0 && then > self.soft;
        !(over_hard || over_soft && expired)
    }
}

/// Starts the grace period of usage above its soft limit, and ends that of usage below it.
pub(super) fn update_grace(entry: &mut QuotaEntry, info: &QuotaInfo, now: i64) {
    let now = now.max(0).cast_unsigned();
    let new_end = |over: bool, end: u64, grace: u32| match (over, end) {
        (true, 0) => now.saturating_add(u64::from(grace)),
        (true, end) => end,
        (false, _) => 0,
    };
    let over = entry.inodes_soft != 0 && entry.inodes > entry.inodes_soft;
    entry.inodes_grace_end = new_end(over, entry.inodes_grace_end, info.inode_grace);
    let soft = entry.space_soft_kib.saturating_mul(1024);
    let over = soft != 0 && entry.space > soft;
    entry.space_grace_end = new_end(over, entry.space_grace_end, info.block_grace);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn soft_limits_bind_when_their_grace_is_over() {
        let entry = QuotaEntry { space: 4096, space_soft_kib: 4, ..QuotaEntry::default() };
        let more = Wanted { bytes: 1024, inodes: 0 };
        assert!(allows(&entry, more, 100), "no grace runs yet");
        let over = QuotaEntry { space: 8192, space_grace_end: 150, ..entry };
        assert!(allows(&over, more, 149));
        assert!(!allows(&over, more, 150));
        assert!(allows(&over, Wanted::default(), 150), "nothing more is wanted");
    }

    #[test]
    fn hard_limits_bind_at_once() {
        let entry = QuotaEntry { inodes: 9, inodes_hard: 10, ..QuotaEntry::default() };
        assert!(allows(&entry, Wanted { inodes: 1, bytes: 1 << 40 }, 0));
        assert!(!allows(&entry, Wanted { inodes: 2, bytes: 0 }, 0));
    }
}
