//! Locks that know their place in the order.
//!
//! ```text
//!   a thread may only take a lock whose rank is higher than every lock it holds
//!
//!   Door → Mount → Rename → Write → WriteBack → Stream → Inode → Handle → Orphan → Shared → Quota
//!         → Folio → Superblock → Group → JournalState → Leaf
//! ```
//!
//! Debug builds keep the ranks each thread holds and panic, naming both places, when the order is
//! broken. Release builds pay nothing. `docs/LOCKS.md` says what each rank guards.

use std::fmt;
use std::ops::{Deref, DerefMut};
use std::panic::Location;
use std::time::Duration;

/// The order in which locks are taken: later ones inside earlier ones, never the other way.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Rank {
    /// A door's own state that it keeps while it asks the engine: an open directory's place.
    Door,
    /// Closing a volume.
    Mount,
    /// Renames of directories from one parent to another.
    Rename,
    /// One file: who writes to it where that needs more than its folios, or changes its size.
    Write,
    /// One file: its data on the way from the page cache to the device.
    WriteBack,
    /// One file: whose turn it is to find and take the next of that data.
    Stream,
    /// One inode: its fields and what its names mean.
    Inode,
    /// A running journal handle: starting one can wait for a commit.
    Handle,
    /// The list of orphans, or one block of the orphan file.
    Orphan,
    /// Counts of attribute values that inodes share.
    Shared,
    /// One quota file: where its entries are.
    Quota,
    /// One folio of file data.
    Folio,
    /// The superblock's fields that change while a volume is open.
    Superblock,
    /// One block group: its bitmaps, descriptor and free extents.
    Group,
    /// The journal's lists of transactions and buffers.
    JournalState,
    /// Anything that takes no further lock: a buffer's bytes, a table's shard.
    Leaf,
}

#[cfg(debug_assertions)]
mod held {
    use super::{Location, Rank};
    use std::cell::RefCell;

    thread_local! {
        static HELD: RefCell<Vec<(Rank, &'static Location<'static>)>> = const { RefCell::new(Vec::new()) };
    }

    #[derive(Debug)]
    pub struct Mark(Rank);

    impl Mark {
        pub fn take(rank: Rank, same_rank_ok: bool, at: &'static Location<'static>) -> Mark {
            HELD.with_borrow_mut(|held| {
                if let Some((high, place)) = held.iter().max_by_key(|(rank, _)| *rank) {
                    let fine = rank > *high || (same_rank_ok && rank == *high);
                    assert!(
                        fine,
                        "lock order: {rank:?} at {at} while holding {high:?} from {place}"
                    );
                }
                held.push((rank, at));
            });
            Mark(rank)
        }

        /// Of a lock that was free for certain, so that taking it could not wait.
        pub fn note(rank: Rank, at: &'static Location<'static>) -> Mark {
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
        pub fn note(_: Rank, _: &'static Location<'static>) -> Mark {
            Mark
        }
    }
}

/// Holds the place of `rank` for as long as it lives, for things that exclude like a lock without
/// being one (a running handle).
#[derive(Debug)]
pub struct RankMark(#[allow(dead_code)] held::Mark);

impl RankMark {
    /// Enters `rank` on this thread; several of one rank may be held at once.
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

/// Holds a [`Mutex`].
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

    /// The value, without the lock.
    pub fn into_inner(self) -> T {
        self.inner.into_inner()
    }
}

impl<T: ?Sized> Mutex<T> {
    /// Waits for the lock.
    #[track_caller]
    pub fn lock(&self) -> MutexGuard<'_, T> {
        let mark = held::Mark::take(self.rank, false, Location::caller());
        MutexGuard { inner: self.inner.lock(), _mark: mark }
    }

    /// The lock, if it is to be had at once, whatever the caller holds: what does not wait needs no order.
    #[track_caller]
    pub fn try_lock(&self) -> Option<MutexGuard<'_, T>> {
        let inner = self.inner.try_lock()?;
        Some(MutexGuard { inner, _mark: held::Mark::note(self.rank, Location::caller()) })
    }

    /// Waits for the lock while holding another of the same rank. The caller keeps number order.
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

/// How often a thread looks before it sleeps (see [`Condvar::wait_soon`]). To be woken takes tens of
/// microseconds, so what takes one or two is not slept for.
#[derive(Debug, Default)]
pub struct Patience(u32);

impl Patience {
    /// Looks in all.
    const LOOKS: u32 = 16;
    /// The first ones, with the processor kept in between.
    const SPINS: u32 = 8;
    /// Pauses of the processor between two of those.
    const PAUSES: u32 = 32;

    /// Whether there was some left.
    fn spend(&mut self) -> bool {
        self.0 += 1;
        self.0 <= Self::LOOKS
    }
}

/// Lets threads wait for something that a [`Mutex`] guards.
#[derive(Debug, Default)]
pub struct Condvar(parking_lot::Condvar);

impl Condvar {
    /// A condition nobody waits for.
    pub const fn new() -> Condvar {
        Condvar(parking_lot::Condvar::new())
    }

    /// Gives the lock up, waits to be woken, and takes the lock again. What was waited for may
    /// not be so yet.
    pub fn wait<T: ?Sized>(&self, guard: &mut MutexGuard<'_, T>) {
        self.0.wait(&mut guard.inner);
    }

    /// [`Condvar::wait`] for what others are about to do: looks again a few times, letting others have the
    /// processor in between, before it sleeps. `patience` is of one wait, from its first call to its last.
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

    /// [`Condvar::wait`] for at most `time`; a time too long to be reckoned is for ever.
    pub fn wait_for<T: ?Sized>(&self, guard: &mut MutexGuard<'_, T>, time: Duration) {
        self.0.wait_for(&mut guard.inner, time);
    }

    /// Wakes everyone who waits.
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

/// Reads under a [`RwLock`].
pub struct ReadGuard<'a, T: ?Sized> {
    inner: parking_lot::RwLockReadGuard<'a, T>,
    _mark: held::Mark,
}

impl<T: ?Sized + fmt::Debug> fmt::Debug for ReadGuard<'_, T> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.inner.fmt(f)
    }
}

/// Writes under a [`RwLock`].
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

    /// Shared access, if it is to be had at once.
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

    /// Waits for shared access while holding another lock of the same rank. The caller keeps
    /// number order.
    #[track_caller]
    pub fn read_second(&self) -> ReadGuard<'_, T> {
        let mark = held::Mark::take(self.rank, true, Location::caller());
        ReadGuard { inner: self.inner.read(), _mark: mark }
    }

    /// Exclusive access while holding another lock of the same rank, if it is to be had at once:
    /// what does not wait needs no number order.
    #[track_caller]
    pub fn try_write_second(&self) -> Option<WriteGuard<'_, T>> {
        let mark = held::Mark::take(self.rank, true, Location::caller());
        Some(WriteGuard { inner: self.inner.try_write()?, _mark: mark })
    }

    /// Exclusive access to what no other thread knows yet, whatever the caller holds: nothing is
    /// waited for. Panics when somebody does know it.
    #[track_caller]
    pub fn write_unshared(&self) -> WriteGuard<'_, T> {
        let mark = held::Mark::note(self.rank, Location::caller());
        let inner = self.inner.try_write().expect("a lock that nobody knows is free");
        WriteGuard { inner, _mark: mark }
    }

    /// Waits for exclusive access while holding another lock of the same rank. The caller keeps
    /// number order.
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
    fn what_comes_soon_and_what_comes_late_are_both_waited_for() {
        for late in [Duration::ZERO, Duration::from_millis(20)] {
            let (come, told) = (Mutex::new(Rank::Leaf, false), Condvar::new());
            std::thread::scope(|scope| {
                scope.spawn(|| {
                    let mut patience = Patience::default();
                    let mut come = come.lock();
                    while !*come {
                        told.wait_soon(&mut come, &mut patience);
                    }
                });
                std::thread::sleep(late);
                *come.lock() = true;
                told.notify_all();
            });
        }
    }

    #[test]
    fn the_order_lets_inner_locks_follow_outer_ones() {
        let inode = Mutex::new(Rank::Inode, 1);
        let group = RwLock::new(Rank::Group, 2);
        let outer = inode.lock();
        let inner = group.write();
        assert_eq!(*outer + *inner, 3);
    }

    #[test]
    #[cfg(debug_assertions)]
    #[should_panic(expected = "lock order")]
    fn an_outer_lock_inside_an_inner_one_panics() {
        let inode = Mutex::new(Rank::Inode, ());
        let group = Mutex::new(Rank::Group, ());
        let _inner = group.lock();
        let _outer = inode.lock();
    }

    #[test]
    #[cfg(debug_assertions)]
    #[should_panic(expected = "lock order")]
    fn two_of_one_rank_need_to_say_so() {
        let a = Mutex::new(Rank::Inode, ());
        let b = Mutex::new(Rank::Inode, ());
        let _a = a.lock();
        let _b = b.lock();
    }

    #[test]
    fn two_of_one_rank_go_in_order_when_said() {
        let a = Mutex::new(Rank::Inode, ());
        let b = Mutex::new(Rank::Inode, ());
        let _a = a.lock();
        let _b = b.lock_second();
    }
}
