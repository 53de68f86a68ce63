//! The gate before a don't-cache write. It enforces the cap exactly.
//!
//! ```text
//!   acquire_permit(n): held + reserved + n ≤ cap ──► reserved += n ──► the write: held += …
//!                       else wait in the queue ───────┘              permit dropped: reserved -= n
//! ```
//!
//! `held` counts the bytes that are dirty or under write-back. `reserved` counts the bytes that
//! admitted calls may still make dirty. A byte is in `held` before it leaves `reserved`, so the sum
//! is never too small. In the usual case admission is one addition; the pauses after each call
//! ([`super::throttle`]) keep the gate from blocking.

use super::account::Account;
use extant_base::lock::{Condvar, Mutex, Rank};
use extant_base::{Error, Result};
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

/// How often a waiting thread checks whether waiting cannot succeed.
const RECHECK: Duration = Duration::from_millis(50);

/// Permission to make the bytes of one don't-cache write dirty. The caller drops it after the write
/// and before [`PageCache::wrote`](crate::PageCache::wrote).
pub struct WritePermit<'a> {
    account: &'a Account,
    bytes: u64,
}

impl std::fmt::Debug for WritePermit<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("WritePermit").field("bytes", &self.bytes).finish_non_exhaustive()
    }
}

impl<'a> WritePermit<'a> {
    pub(super) fn new(account: &'a Account, bytes: u64) -> WritePermit<'a> {
        WritePermit { account, bytes }
    }
}

impl Drop for WritePermit<'_> {
    fn drop(&mut self) {
        if self.bytes > 0 {
            self.account.gate.reserved.fetch_sub(self.bytes, Ordering::SeqCst);
            self.account.gate.level_fell(|| self.account.marked_held());
        }
    }
}

struct Waiter {
    admitted: AtomicBool,
    changed: Condvar,
}

/// The queue in which don't-cache writers wait for space under the cap, in FIFO order.
pub(super) struct Gate {
    cap: u64,
    reserved: AtomicU64,
    waiting: AtomicU64,
    queue: Mutex<VecDeque<(Arc<Waiter>, u64)>>,
}

impl Gate {
    pub fn new(cap: u64) -> Gate {
        Gate {
            cap,
            reserved: AtomicU64::new(0),
            waiting: AtomicU64::new(0),
            queue: Mutex::new(Rank::Leaf, VecDeque::new()),
        }
    }

    /// Maximum of the bytes that are dirty, under write-back or reserved.
    pub fn cap(&self) -> u64 {
        self.cap
    }

    /// Admits a call at once if `bytes` fit and no call waits. Returns the bytes reserved, at most
    /// the cap.
    pub fn try_admit(&self, bytes: u64, held: impl Fn() -> u64) -> Option<u64> {
        let bytes = bytes.min(self.cap);
        let free = self.waiting.load(Ordering::SeqCst) == 0;
        (free && self.try_reserve(bytes, &held)).then_some(bytes)
    }

    fn try_reserve(&self, bytes: u64, held: &impl Fn() -> u64) -> bool {
        let reserved = self.reserved.fetch_add(bytes, Ordering::SeqCst) + bytes;
        let fits = held() + reserved <= self.cap;
        if !fits {
            self.reserved.fetch_sub(bytes, Ordering::SeqCst);
        }
        fits
    }

    /// Waits until `bytes` fit. `end` is called now and then and decides whether to stop waiting:
    /// with an error, or with `Ok` to go on without a reservation. Returns the bytes reserved.
    ///
    /// # Errors
    /// That of `end`.
    pub fn admit(
        &self,
        bytes: u64,
        held: impl Fn() -> u64,
        end: impl Fn() -> Option<Result<(), Error>>,
    ) -> Result<u64> {
        let bytes = bytes.min(self.cap);
        let waiter = Arc::new(Waiter { admitted: AtomicBool::new(false), changed: Condvar::new() });
        let mut queue = self.queue.lock();
        // From here on a thread that frees space sees this waiter in `waiting` and serves the
        // queue. This thread also checks once after the increment, so space freed before it is not
        // missed.
        self.waiting.fetch_add(1, Ordering::SeqCst);
        queue.push_back((waiter.clone(), bytes));
        let answer = loop {
            self.admit_waiters(&mut queue, &held);
            if waiter.admitted.load(Ordering::Relaxed) {
                break Ok(bytes);
            }
            if let Some(end) = end() {
                queue.retain(|(other, _)| !Arc::ptr_eq(other, &waiter));
                break end.map(|()| 0);
            }
            waiter.changed.wait_for(&mut queue, RECHECK);
        };
        self.waiting.fetch_sub(1, Ordering::SeqCst);
        answer
    }

    fn admit_waiters(&self, queue: &mut VecDeque<(Arc<Waiter>, u64)>, held: &impl Fn() -> u64) {
        while let Some((waiter, bytes)) = queue.front() {
            if !self.try_reserve(*bytes, held) {
                break;
            }
            waiter.admitted.store(true, Ordering::Relaxed);
            waiter.changed.notify_all();
            queue.pop_front();
        }
    }

    /// The level has fallen: admits the calls that now fit.
    #[inline]
    pub fn level_fell(&self, held: impl Fn() -> u64) {
        if self.waiting.load(Ordering::SeqCst) > 0 {
            // Innermost lock: callers may hold locks of the same rank, and `admit_waiters` takes
            // none.
            self.admit_waiters(&mut self.queue.lock_second(), &held);
        }
    }
}
