//! Mutexes, readers-writer locks and condition variables that check the lock order.
//!
//! ```text
//!   A thread may wait only for a lock whose rank is higher than the rank of every lock it holds.
//!
//!   Listing → Mount → Rename → Write → WriteBack → Stream → Inode → Handle → Orphan → Shared
//!         → Quota → Folio → Superblock → Group → JournalState → Leaf
//! ```
//!
//! There are three exceptions:
//! - The methods named `…_second` also allow a lock of the same rank as the highest one held. The
//!   caller takes locks of one rank in ascending order of their numbers (inode, group).
//! - [`Mutex::try_lock`] does not wait, so it cannot deadlock and takes a lock of any rank.
//! - [`RwLock::write_unshared`] takes a lock that no other thread can reach yet, of any rank.
//!
//! Debug builds record the ranks that each thread holds. When a thread breaks the order, they panic
//! and name the place of both locks. Release builds check nothing, at no cost. `docs/LOCKS.md` says
//! what each rank guards.

use std::fmt;
use std::ops::{Deref, DerefMut};
use std::panic::Location;
use std::time::Duration;

/// The order of the locks: a thread that holds a lock may take those of later ranks only.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Rank {
    /// State that a front end keeps locked while it calls the engine: the position of an open
    /// directory's listing.
    Listing,
    /// Whether the superblock on disk says that the volume is in use by a writer.
    Mount,
    /// Renames of directories from one parent to another.
    Rename,
    /// One file: writes that need more than its folios, and changes of its size or its mapping.
    Write,
    /// One file: the write-back of its dirty data from the page cache to the device.
    WriteBack,
    /// One file: the cursor of its write-back; the holder finds and takes the next dirty data.
    Stream,
    /// One inode: its fields, its mapping and, for a directory, its entries.
    Inode,
    /// A running journal handle: starting one can wait for a commit.
    Handle,
    /// The orphan list, or one block of the orphan file.
    Orphan,
    /// Reference counts of attribute values that several inodes share.
    Shared,
    /// One quota file: the tree of its entries.
    Quota,
    /// One folio of file data.
    Folio,
    /// The superblock's fields that change while a volume is open.
    Superblock,
    /// One block group: its bitmaps, descriptor and free extents.
    Group,
    /// The journal's own state: transactions, log, fast commits, writes of metadata to its home.
    JournalState,
    /// Objects whose holder takes no other lock: a buffer's bytes, one shard of a table.
    Leaf,
}

#[cfg(debug_assertions)]
mod held {
    use super::{Location, Rank};
    use std::cell::RefCell;

    thread_local! {
        static HELD: RefCell<Vec<(Rank, &'static Location<'static>)>> = const { RefCell::new(Vec::new()) };
    }

    /// The record of one held rank; dropping it removes the record.
    #[derive(Debug)]
    pub struct Mark(Rank);

    impl Mark {
        /// Records `rank` before the thread waits for a lock.
        ///
        /// # Panics
        /// If the thread holds a higher rank, or the same one and `same_rank_ok` is false.
        pub fn take(rank: Rank, same_rank_ok: bool, at: &'static Location<'static>) -> Mark {
            HELD.with_borrow_mut(|held| {
                if let Some((high, place)) = held.iter().max_by_key(|(rank, _)| *rank) {
                    let in_order = rank > *high || (same_rank_ok && rank == *high);
                    assert!(
                        in_order,
                        "lock order: {rank:?} at {at} while holding {high:?} from {place}"
                    );
                }
                held.push((rank, at));
            });
            Mark(rank)
        }

        /// Records `rank` without a check, for a lock that the thread took without waiting.
        pub fn unchecked(rank: Rank, at: &'static Location<'static>) -> Mark {
            HELD.with_borrow_mut(|held| held.push((rank, at)));
            Mark(rank)
        }
    }

    impl Drop for Mark {
        fn drop(&mut self) {
            HELD.with_borrow_mut(|held| {
                if let Some(n) = held.iter().rposition(|(rank, _)| *rank == self.0) {
                    held.remove(n);
                }
            });
        }
    }
}

#[cfg(not(debug_assertions))]
mod held {
    use super::{Location, Rank};

    #[derive(Debug)]
    pub struct Mark;

    impl Mark {
        #[inline(always)]
        pub fn take(_: Rank, _: bool, _: &'static Location<'static>) -> Mark {
            Mark
        }

        #[inline(always)]
        pub fn unchecked(_: Rank, _: &'static Location<'static>) -> Mark {
            Mark
        }
    }
}

/// Counts as a held lock of its rank until it is dropped.
///
/// It puts objects that other threads wait for, but that are no locks (a running journal handle),
/// into the lock order.
#[derive(Debug)]
pub struct RankMark(#[allow(dead_code)] held::Mark);

impl RankMark {
    /// Marks `rank` as held by this thread, which may hold several marks of one rank.
    ///
    /// # Panics
    /// In debug builds, if the thread holds a lock of a higher rank.
    #[track_caller]
    pub fn enter(rank: Rank) -> RankMark {
        RankMark(held::Mark::take(rank, true, Location::caller()))
    }
}

/// A mutual-exclusion lock with a rank.
pub struct Mutex<T: ?Sized> {
    rank: Rank,
    inner: parking_lot::Mutex<T>,
}

impl<T: ?Sized + fmt::Debug> fmt::Debug for Mutex<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.fmt(f)
    }
}

/// Exclusive access to the value of a [`Mutex`]; dropping it releases the lock.
pub struct MutexGuard<'a, T: ?Sized> {
    inner: parking_lot::MutexGuard<'a, T>,
    _mark: held::Mark,
}

impl<T: ?Sized + fmt::Debug> fmt::Debug for MutexGuard<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.fmt(f)
    }
}

impl<T> Mutex<T> {
    /// A lock of `rank` around `value`.
    pub const fn new(rank: Rank, value: T) -> Self {
        Mutex { rank, inner: parking_lot::Mutex::new(value) }
    }

    /// Consumes the lock and returns the value.
    pub fn into_inner(self) -> T {
        self.inner.into_inner()
    }
}

impl<T: ?Sized> Mutex<T> {
    /// Waits for the lock.
    ///
    /// # Panics
    /// In debug builds, if the thread holds a lock of the same or a higher rank. The same holds for
    /// every method here that waits.
    #[track_caller]
    pub fn lock(&self) -> MutexGuard<'_, T> {
        let mark = held::Mark::take(self.rank, false, Location::caller());
        MutexGuard { inner: self.inner.lock(), _mark: mark }
    }

    /// Takes the lock if it is free. The caller may hold locks of any rank: a call that does not
    /// wait cannot deadlock.
    #[track_caller]
    pub fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        let inner = self.inner.try_lock()?;
        Some(MutexGuard { inner, _mark: held::Mark::unchecked(self.rank, Location::caller()) })
    }

    /// Waits for the lock while the caller may hold others of the same rank. The caller takes them
    /// in ascending order of their numbers.
    #[track_caller]
    pub fn lock_second(&self) -> MutexGuard<'_, T> {
        let mark = held::Mark::take(self.rank, true, Location::caller());
        MutexGuard { inner: self.inner.lock(), _mark: mark }
    }

    /// The value, through exclusive access.
    pub fn get_mut(&mut self) -> &mut T {
        self.inner.get_mut()
    }
}

impl<T: ?Sized> Deref for MutexGuard<'_, T> {
    type Target = T;
    fn deref(&self) -> &T {
        &self.inner
    }
}

impl<T: ?Sized> DerefMut for MutexGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.inner
    }
}

/// How often one wait has checked its condition before the thread sleeps (see
/// [`Condvar::wait_soon`]).
///
/// To wake a sleeping thread takes tens of microseconds, so a thread does not sleep for an event
/// that takes one or two.
#[derive(Debug, Default)]
pub struct Patience(u32);

impl Patience {
    /// Checks before the thread sleeps.
    const CHECKS: u32 = 16;
    /// The first of those: the thread spins between them and keeps the processor. Between the later
    /// ones it yields.
    const SPINS: u32 = 8;
    /// Spin-loop hints between two of the first checks.
    const PAUSES: u32 = 32;

    /// Counts one check; false when none is left.
    fn spend(&mut self) -> bool {
        self.0 += 1;
        self.0 <= Self::CHECKS
    }
}

/// A condition variable: threads wait for a change of a value that a [`Mutex`] guards.
#[derive(Debug, Default)]
pub struct Condvar(parking_lot::Condvar);

impl Condvar {
    /// A condition variable without waiters.
    pub const fn new() -> Condvar {
        Condvar(parking_lot::Condvar::new())
    }

    /// Releases the lock, sleeps until another thread wakes this one, and takes the lock again. The
    /// caller checks its condition afterwards, which may still be false.
    pub fn wait<T: ?Sized>(&self, guard: &mut MutexGuard<'_, T>) {
        self.0.wait(&mut guard.inner);
    }

    /// Waits as [`Condvar::wait`] does, for an event that is expected within microseconds.
    ///
    /// The first calls of one wait release the lock only to spin or yield, so that the caller
    /// checks its condition again at once; later calls sleep. `patience` counts the calls: the
    /// caller makes a new one for each wait and passes it to every call of that wait.
    pub fn wait_soon<T: ?Sized>(&self, guard: &mut MutexGuard<'_, T>, patience: &mut Patience) {
        if !patience.spend() {
            return self.wait(guard);
        }
        let yields = patience.0 > Patience::SPINS;
        parking_lot::MutexGuard::unlocked(&mut guard.inner, || match yields {
            true => std::thread::yield_now(),
            false => (0..Patience::PAUSES).for_each(|_| std::hint::spin_loop()),
        });
    }

    /// Waits as [`Condvar::wait`] does, for at most `time`. Without a limit if the end of `time`
    /// cannot be represented.
    pub fn wait_for<T: ?Sized>(&self, guard: &mut MutexGuard<'_, T>, time: Duration) {
        self.0.wait_for(&mut guard.inner, time);
    }

    /// Wakes all waiting threads.
    pub fn notify_all(&self) {
        self.0.notify_all();
    }
}

/// A readers-writer lock with a rank.
pub struct RwLock<T: ?Sized> {
    rank: Rank,
    inner: parking_lot::RwLock<T>,
}

impl<T: ?Sized + fmt::Debug> fmt::Debug for RwLock<T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.fmt(f)
    }
}

/// Shared access to the value of a [`RwLock`]; dropping it releases the lock.
pub struct ReadGuard<'a, T: ?Sized> {
    inner: parking_lot::RwLockReadGuard<'a, T>,
    _mark: held::Mark,
}

impl<T: ?Sized + fmt::Debug> fmt::Debug for ReadGuard<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.fmt(f)
    }
}

/// Exclusive access to the value of a [`RwLock`]; dropping it releases the lock.
pub struct WriteGuard<'a, T: ?Sized> {
    inner: parking_lot::RwLockWriteGuard<'a, T>,
    _mark: held::Mark,
}

impl<T: ?Sized + fmt::Debug> fmt::Debug for WriteGuard<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.fmt(f)
    }
}

impl<T> RwLock<T> {
    /// A lock of `rank` around `value`.
    pub const fn new(rank: Rank, value: T) -> Self {
        RwLock { rank, inner: parking_lot::RwLock::new(value) }
    }
}

impl<T: ?Sized> RwLock<T> {
    /// Waits for shared access.
    #[track_caller]
    pub fn read(&self) -> ReadGuard<'_, T> {
        let mark = held::Mark::take(self.rank, false, Location::caller());
        ReadGuard { inner: self.inner.read(), _mark: mark }
    }

    /// Takes shared access if the lock allows it at once.
    ///
    /// # Panics
    /// In debug builds, if the thread holds a lock of the same or a higher rank: unlike
    /// [`Mutex::try_lock`], this checks the lock order.
    #[track_caller]
    pub fn try_read(&self) -> Option<ReadGuard<'_, T>> {
        let mark = held::Mark::take(self.rank, false, Location::caller());
        Some(ReadGuard { inner: self.inner.try_read()?, _mark: mark })
    }

    /// Waits for exclusive access.
    #[track_caller]
    pub fn write(&self) -> WriteGuard<'_, T> {
        let mark = held::Mark::take(self.rank, false, Location::caller());
        WriteGuard { inner: self.inner.write(), _mark: mark }
    }

    /// Waits for shared access while the caller may hold other locks of the same rank. The caller
    /// takes them in ascending order of their numbers.
    #[track_caller]
    pub fn read_second(&self) -> ReadGuard<'_, T> {
        let mark = held::Mark::take(self.rank, true, Location::caller());
        ReadGuard { inner: self.inner.read(), _mark: mark }
    }

    /// Takes exclusive access if the lock is free, while the caller may hold other locks of the
    /// same rank. They need no order of numbers: a call that does not wait cannot deadlock.
    ///
    /// # Panics
    /// In debug builds, if the thread holds a lock of a higher rank.
    #[track_caller]
    pub fn try_write_second(&self) -> Option<WriteGuard<'_, T>> {
        let mark = held::Mark::take(self.rank, true, Location::caller());
        Some(WriteGuard { inner: self.inner.try_write()?, _mark: mark })
    }

    /// Takes exclusive access to a value that no other thread can reach yet. The caller may hold
    /// locks of any rank, because this does not wait.
    ///
    /// # Panics
    /// If a guard of this lock exists.
    #[track_caller]
    pub fn write_unshared(&self) -> WriteGuard<'_, T> {
        let mark = held::Mark::unchecked(self.rank, Location::caller());
        let inner = self.inner.try_write().expect("no other thread can reach the lock");
        WriteGuard { inner, _mark: mark }
    }

    /// Waits for exclusive access while the caller may hold other locks of the same rank. The
    /// caller takes them in ascending order of their numbers.
    #[track_caller]
    pub fn write_second(&self) -> WriteGuard<'_, T> {
        let mark = held::Mark::take(self.rank, true, Location::caller());
        WriteGuard { inner: self.inner.write(), _mark: mark }
    }
}

impl<T: ?Sized> Deref for ReadGuard<'_, T> {
    type Target = T;
    fn deref(&self) -> &T {
        &self.inner
    }
}

impl<T: ?Sized> Deref for WriteGuard<'_, T> {
    type Target = T;
    fn deref(&self) -> &T {
        &self.inner
    }
}

impl<T: ?Sized> DerefMut for WriteGuard<'_, T> {
    fn deref_mut(&mut self) -> &mut T {
        &mut self.inner
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn wait_soon_waits_for_early_and_for_late_events() {
        for delay in [Duration::ZERO, Duration::from_millis(20)] {
            let (happened, changed) = (Mutex::new(Rank::Leaf, false), Condvar::new());
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    let mut patience = Patience::default();
                    let mut happened = happened.lock();
                    while !*happened {
                        changed.wait_soon(&mut happened, &mut patience);
                    }
                });
                std::thread::sleep(delay);
                *happened.lock() = true;
                changed.notify_all();
            });
        }
    }

    #[test]
    fn a_lock_of_a_higher_rank_may_follow() {
        let inode = Mutex::new(Rank::Inode, 1);
        let group = RwLock::new(Rank::Group, 2);
        let outer = inode.lock();
        let inner = group.write();
        assert_eq!(*outer + *inner, 3);
    }

    #[test]
    #[cfg(debug_assertions)]
    #[should_panic(expected = "lock order")]
    fn a_lock_of_a_lower_rank_panics() {
        let inode = Mutex::new(Rank::Inode, ());
        let group = Mutex::new(Rank::Group, ());
        let _inner = group.lock();
        let _outer = inode.lock();
    }

    #[test]
    #[cfg(debug_assertions)]
    #[should_panic(expected = "lock order")]
    fn a_second_lock_of_one_rank_panics() {
        let a = Mutex::new(Rank::Inode, ());
        let b = Mutex::new(Rank::Inode, ());
        let _a = a.lock();
        let _b = b.lock();
    }

    #[test]
    fn lock_second_takes_a_second_lock_of_one_rank() {
        let a = Mutex::new(Rank::Inode, ());
        let b = Mutex::new(Rank::Inode, ());
        let _a = a.lock();
        let _b = b.lock_second();
    }
}
