//! The gate before a don't-cache write: the cap holds exactly.
//!
//! ```text
//!   make_room(n): held + expected + n ≤ cap ──► expected += n ──► the call dirties: held += …
//!                 else wait in line ───────────────┘                 Room dropped: expected -= n
//! ```
//!
//! `held` is what is dirty or on its way, `expected` what calls that passed the gate may yet make dirty.
//! A byte is in `held` before it leaves `expected`, so the sum is never too small. In the usual case
//! passing is one addition; the brakes after a call ([`super::throttle`]) see to it that it is.

use super::account::Account;
use extant_base::lock::{Condvar, Mutex, Rank};
use extant_base::{Error, Result};
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

/// How often one who waits looks whether that is in vain.
const LOOK: Duration = Duration::from_millis(50);

/// Room for the bytes of one don't-cache write, which is given back when this is dropped: after the
/// write, before [`PageCache::wrote`](crate::PageCache::wrote).
pub struct Room<'a> {
    account: &'a Account,
    bytes: u64,
}

impl std::fmt::Debug for Room<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Room").field("bytes", &self.bytes).finish_non_exhaustive()
    }
}

impl<'a> Room<'a> {
    pub(super) fn new(account: &'a Account, bytes: u64) -> Room<'a> {
        Room { account, bytes }
    }
}

impl Drop for Room<'_> {
    fn drop(&mut self) {
        if self.bytes > 0 {
            self.account.gate.expected.fetch_sub(self.bytes, Ordering::SeqCst);
            self.account.gate.moved(|| self.account.marked_held());
        }
    }
}

struct Waiter {
    passed: AtomicBool,
    changed: Condvar,
}

/// Where don't-cache writers wait for room under the cap, first come, first served.
pub(super) struct Gate {
    cap: u64,
    expected: AtomicU64,
    waiting: AtomicU64,
    line: Mutex<VecDeque<(Arc<Waiter>, u64)>>,
}

impl Gate {
    pub fn new(cap: u64) -> Gate {
        Gate {
            cap,
            expected: AtomicU64::new(0),
            waiting: AtomicU64::new(0),
            line: Mutex::new(Rank::Leaf, VecDeque::new()),
        }
    }

    /// Bytes that may be dirty, on their way or expected.
    pub fn cap(&self) -> u64 {
        self.cap
    }

    /// Passes at once if there is room for `bytes` and nobody waits: how many bytes are expected for
    /// it, at most the cap.
    pub fn try_pass(&self, bytes: u64, held: impl Fn() -> u64) -> Option<u64> {
        let bytes = bytes.min(self.cap);
        let free = self.waiting.load(Ordering::SeqCst) == 0;
        (free && self.expect(bytes, &held)).then_some(bytes)
    }

    fn expect(&self, bytes: u64, held: &impl Fn() -> u64) -> bool {
        let expected = self.expected.fetch_add(bytes, Ordering::SeqCst) + bytes;
        let fits = held() + expected <= self.cap;
        if !fits {
            self.expected.fetch_sub(bytes, Ordering::SeqCst);
        }
        fits
    }

    /// Waits for room. `end` tells, now and then, whether to stop waiting: with an error, or `Ok` to
    /// pass without room.
    pub fn pass(
        &self,
        bytes: u64,
        held: impl Fn() -> u64,
        end: impl Fn() -> Option<Result<(), Error>>,
    ) -> Result<u64> {
        let bytes = bytes.min(self.cap);
        let waiter = Arc::new(Waiter { passed: AtomicBool::new(false), changed: Condvar::new() });
        let mut line = self.line.lock();
        // From here on whoever makes room looks at the line; this looks once after that, too.
        self.waiting.fetch_add(1, Ordering::SeqCst);
        line.push_back((waiter.clone(), bytes));
        let answer = loop {
            self.serve(&mut line, &held);
            if waiter.passed.load(Ordering::Relaxed) {
                break Ok(bytes);
            }
            if let Some(end) = end() {
                line.retain(|(other, _)| !Arc::ptr_eq(other, &waiter));
                break end.map(|()| 0);
            }
            waiter.changed.wait_for(&mut line, LOOK);
        };
        self.waiting.fetch_sub(1, Ordering::SeqCst);
        answer
    }

    fn serve(&self, line: &mut VecDeque<(Arc<Waiter>, u64)>, held: &impl Fn() -> u64) {
        while let Some((waiter, bytes)) = line.front() {
            if !self.expect(*bytes, held) {
                break;
            }
            waiter.passed.store(true, Ordering::Relaxed);
            waiter.changed.notify_all();
            line.pop_front();
        }
    }

    /// There may be room.
    #[inline]
    pub fn moved(&self, held: impl Fn() -> u64) {
        if self.waiting.load(Ordering::SeqCst) > 0 {
            // Innermost: called under locks of the same rank, and takes none.
            self.serve(&mut self.line.lock_second(), &held);
        }
    }
}
