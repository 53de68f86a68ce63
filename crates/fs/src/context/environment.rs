//! The two inputs of the engine besides bytes: time and randomness.
//!
//! ```text
//!   Environment ─┬─ Clock    now()          SystemClock │ FixedClock
//!                └─ Rng   next_u64()     SystemRng │ SeededRng
//! ```
//!
//! Both arrive as arguments. So one seed replays one run exactly, and two builds of an image from
//! the same seed and time are equal to the byte.

use extant_ondisk::time::Timestamp;
use rustix::time::{ClockId, clock_gettime};
use std::collections::hash_map::RandomState;
use std::hash::{BuildHasher, Hasher};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{SystemTime, UNIX_EPOCH};

/// A clock.
pub trait Clock: Send + Sync {
    /// The time now.
    fn now(&self) -> Timestamp;

    /// The time of the clock's last tick, at most 10 ms ago. It can be cheaper to get than `now`.
    fn last_tick(&self) -> Timestamp {
        self.now()
    }
}

/// Gives unpredictable numbers: inode generations, UUIDs, hash seeds.
pub trait Rng: Send + Sync {
    /// The next number.
    fn next_u64(&self) -> u64;
}

/// The system's clock.
#[derive(Clone, Copy, Debug, Default)]
pub struct SystemClock;

impl Clock for SystemClock {
    fn now(&self) -> Timestamp {
        match SystemTime::now().duration_since(UNIX_EPOCH) {
            Ok(since) => Timestamp {
                sec: i64::try_from(since.as_secs()).unwrap_or(i64::MAX),
                nsec: since.subsec_nanos(),
            },
            // A clock before 1970 is set wrong. Any fixed time will do.
            Err(_) => Timestamp { sec: 0, nsec: 0 },
        }
    }

    fn last_tick(&self) -> Timestamp {
        let time = clock_gettime(ClockId::RealtimeCoarse);
        Timestamp { sec: time.tv_sec.max(0), nsec: u32::try_from(time.tv_nsec).unwrap_or(0) }
    }
}

/// A clock that always shows the same time.
#[derive(Clone, Copy, Debug)]
pub struct FixedClock(pub Timestamp);

impl Clock for FixedClock {
    fn now(&self) -> Timestamp {
        self.0
    }
}

/// Rng from a seed: the same seed gives the same numbers (SplitMix64).
#[derive(Debug)]
pub struct SeededRng(AtomicU64);

impl SeededRng {
    /// A generator whose numbers depend on `seed` only.
    pub fn new(seed: u64) -> SeededRng {
        SeededRng(AtomicU64::new(seed))
    }
}

impl Rng for SeededRng {
    fn next_u64(&self) -> u64 {
        const STEP: u64 = 0x9E37_79B9_7F4A_7C15;
        let mut z = self.0.fetch_add(STEP, Ordering::Relaxed).wrapping_add(STEP);
        z = (z ^ (z >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        z ^ (z >> 31)
    }
}

/// Random numbers of the system: each comes from new random keys of the standard library's hasher.
#[derive(Debug, Default)]
pub struct SystemRng(());

impl Rng for SystemRng {
    fn next_u64(&self) -> u64 {
        // No thread gets the same keys twice, and no two threads start with the same keys.
        RandomState::new().build_hasher().finish()
    }
}

/// Clock and randomness of one volume.
#[derive(Clone)]
pub struct Environment {
    /// The clock.
    pub clock: Arc<dyn Clock>,
    /// The random numbers.
    pub rng: Arc<dyn Rng>,
}

impl Environment {
    /// A clock that always shows `now`, and numbers that depend on `seed` only.
    pub fn fixed(now: Timestamp, seed: u64) -> Environment {
        Environment { clock: Arc::new(FixedClock(now)), rng: Arc::new(SeededRng::new(seed)) }
    }

    /// The time now.
    pub fn now(&self) -> Timestamp {
        self.clock.now()
    }

    /// See [`Clock::last_tick`].
    pub fn last_tick(&self) -> Timestamp {
        self.clock.last_tick()
    }

    /// A random 32-bit number.
    pub fn next_u32(&self) -> u32 {
        (self.rng.next_u64() >> 32) as u32
    }

    /// Fills `bytes` with random ones.
    pub fn fill(&self, bytes: &mut [u8]) {
        for part in bytes.chunks_mut(8) {
            let word = self.rng.next_u64().to_le_bytes();
            part.copy_from_slice(&word[..part.len()]);
        }
    }
}

/// The system's clock and randomness.
impl Default for Environment {
    fn default() -> Environment {
        Environment { clock: Arc::new(SystemClock), rng: Arc::new(SystemRng::default()) }
    }
}

impl std::fmt::Debug for Environment {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str("Environment")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_seed_gives_one_sequence() {
        let (a, b) = (SeededRng::new(7), SeededRng::new(7));
        let first: Vec<u64> = (0..4).map(|_| a.next_u64()).collect();
        let second: Vec<u64> = (0..4).map(|_| b.next_u64()).collect();
        assert_eq!(first, second);
        assert_ne!(first[0], first[1]);
    }

    #[test]
    fn filling_takes_any_length() {
        let environment = Environment::fixed(Timestamp { sec: 1, nsec: 0 }, 1);
        let mut bytes = [0; 13];
        environment.fill(&mut bytes);
        assert_ne!(bytes, [0; 13]);
    }
}
