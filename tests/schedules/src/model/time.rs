//! `std::time`, with a clock that advances only when it is read, or waited for.

use std::cell::Cell;
use std::ops::{Add, Sub};

pub(crate) use std::time::Duration;

std::thread_local! {
    static NOW: Cell<u64> = const { Cell::new(0) };
}

/// Nanoseconds that each reading takes.
const LOOK: u64 = 1_000;

/// Starts the clock again.
pub(crate) fn begin() {
    NOW.set(Instant::BORN.0);
}

/// Advances the clock by `time`.
pub(crate) fn pass(time: Duration) {
    NOW.set(NOW.get() + time.as_nanos().min(1 << 60) as u64);
}

#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub(crate) struct Instant(u64);

impl Instant {
    /// When each run begins: an hour after the clock's zero.
    pub(crate) const BORN: Instant = Instant(3_600_000_000_000);

    pub(crate) fn now() -> Instant {
        NOW.set(NOW.get() + LOOK);
        Instant(NOW.get())
    }

    pub(crate) fn elapsed(self) -> Duration {
        Instant::now().duration_since(self)
    }

    pub(crate) fn duration_since(self, other: Instant) -> Duration {
        Duration::from_nanos(self.0.saturating_sub(other.0))
    }

    pub(crate) fn saturating_duration_since(self, other: Instant) -> Duration {
        self.duration_since(other)
    }

    pub(crate) fn checked_duration_since(self, other: Instant) -> Option<Duration> {
        self.0.checked_sub(other.0).map(Duration::from_nanos)
    }

    pub(crate) fn checked_add(self, time: Duration) -> Option<Instant> {
        self.0.checked_add(time.as_nanos().try_into().ok()?).map(Instant)
    }

    pub(crate) fn checked_sub(self, time: Duration) -> Option<Instant> {
        self.0.checked_sub(time.as_nanos().try_into().ok()?).map(Instant)
    }
}

impl Add<Duration> for Instant {
    type Output = Instant;
    fn add(self, time: Duration) -> Instant {
        self.checked_add(time).expect("a time that can be reckoned")
    }
}

impl Sub<Duration> for Instant {
    type Output = Instant;
    fn sub(self, time: Duration) -> Instant {
        self.checked_sub(time).expect("a time that can be reckoned")
    }
}

impl Sub for Instant {
    type Output = Duration;
    fn sub(self, other: Instant) -> Duration {
        self.duration_since(other)
    }
}
