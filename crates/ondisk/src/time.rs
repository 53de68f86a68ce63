//! Times of inodes: 34 bits of seconds and 30 bits of nanoseconds in two words.
//!
//! ```text
//!   base  s32   ┌────────────────────────────────┐   seconds = base (sign-extended) + epoch << 32
//!               └────────────────────────────────┘
//!   extra u32   ┌──────────────────────────┬─────┐
//!               │ nanoseconds, 30 bits     │epoch│  the word exists only if extra_isize covers it
//!               └──────────────────────────┴─────┘
//!                31                       2 1   0
//! ```
//!
//! Source: ext4 documentation, "Inode Timestamps".

use extant_base::narrow::{high_u32, low_u32};

/// Nanoseconds in a second.
pub const NSEC_PER_SEC: u32 = 1_000_000_000;

/// A point in time: seconds since 1970, and nanoseconds after that second.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Timestamp {
    /// Seconds since the start of 1970, UTC; negative before.
    pub sec: i64,
    /// Nanoseconds after that second, 0..=999_999_999.
    pub nsec: u32,
}

impl Timestamp {
    /// The earliest time that fits, 1901-12-13.
    pub const MIN: Timestamp = Timestamp { sec: i32::MIN as i64, nsec: 0 };
    /// The latest time that fits with an extra word, 2446-05-10.
    pub const MAX: Timestamp =
        Timestamp { sec: i32::MAX as i64 + (3i64 << 32), nsec: NSEC_PER_SEC - 1 };
    /// The latest time that fits without one, 2038-01-19.
    pub const MAX_WITHOUT_EXTRA: Timestamp = Timestamp { sec: i32::MAX as i64, nsec: 0 };

    /// Whole seconds.
    pub const fn from_secs(sec: i64) -> Timestamp {
        Timestamp { sec, nsec: 0 }
    }

    /// Decodes the two words; `extra` is `None` if the inode is too short for it.
    ///
    /// Nanoseconds above 999_999_999, which no writer stores, are read as 999_999_999.
    pub const fn decode(base: u32, extra: Option<u32>) -> Timestamp {
        let sec = base.cast_signed() as i64;
        match extra {
            None => Timestamp { sec, nsec: 0 },
            Some(extra) => {
                let nsec = extra >> 2;
                let nsec = if nsec < NSEC_PER_SEC { nsec } else { NSEC_PER_SEC - 1 };
                Timestamp { sec: sec + (((extra & 3) as i64) << 32), nsec }
            }
        }
    }

    /// The base word and the extra word. Times out of range are clamped, never wrapped. Without an
    /// extra word (`with_extra` false) the range ends in 2038, and the extra word is 0.
    pub fn encode(self, with_extra: bool) -> (u32, u32) {
        if !with_extra {
            let sec = self.sec.clamp(Self::MIN.sec, Self::MAX_WITHOUT_EXTRA.sec);
            return (low_u32(sec.cast_unsigned()), 0);
        }
        let time = self.clamp(Self::MIN, Self::MAX);
        let base = low_u32(time.sec.cast_unsigned()).cast_signed();
        let epoch = high_u32((time.sec - i64::from(base)).cast_unsigned()) & 3;
        (base.cast_unsigned(), epoch | time.nsec.min(NSEC_PER_SEC - 1) << 2)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_epoch_covers_its_years() {
        // base, epoch bits, seconds: the table of the ext4 documentation.
        let table: [(u32, u32, i64); 12] = [
            (0x8000_0000, 0, -0x8000_0000),
            (0xFFFF_FFFF, 0, -1),
            (0x0000_0000, 0, 0),
            (0x7FFF_FFFF, 0, 0x7FFF_FFFF),
            (0x8000_0000, 1, 0x8000_0000),
            (0xFFFF_FFFF, 1, 0xFFFF_FFFF),
            (0x0000_0000, 1, 0x1_0000_0000),
            (0x7FFF_FFFF, 1, 0x1_7FFF_FFFF),
            (0x8000_0000, 2, 0x1_8000_0000),
            (0x7FFF_FFFF, 2, 0x2_7FFF_FFFF),
            (0x8000_0000, 3, 0x2_8000_0000),
            (0x7FFF_FFFF, 3, 0x3_7FFF_FFFF),
        ];
        for (base, epoch, sec) in table {
            let time = Timestamp::decode(base, Some(epoch | 5 << 2));
            assert_eq!(time, Timestamp { sec, nsec: 5 });
            assert_eq!(time.encode(true), (base, epoch | 5 << 2));
        }
    }

    #[test]
    fn out_of_range_times_are_clamped() {
        let far = Timestamp { sec: i64::MAX, nsec: 7 };
        let early = Timestamp { sec: i64::MIN, nsec: 7 };
        let (base, extra) = far.encode(true);
        assert_eq!(Timestamp::decode(base, Some(extra)), Timestamp::MAX);
        let (base, extra) = early.encode(true);
        assert_eq!(Timestamp::decode(base, Some(extra)), Timestamp::MIN);
        assert_eq!(far.encode(false), (0x7FFF_FFFF, 0));
        assert_eq!(early.encode(false), (0x8000_0000, 0));
    }

    #[test]
    fn nanoseconds_past_the_second_stay_within_it() {
        assert_eq!(Timestamp::decode(1, Some(!3)), Timestamp { sec: 1, nsec: 999_999_999 });
    }
}
