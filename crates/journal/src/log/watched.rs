//! The device that knows which writes no flush has followed, and which flushes failed.
//!
//! ```text
//!   write ──returns──► written + 1          mark() = written
//!   flush: before = written ──done──► flushed = before          a mark ≤ flushed is durable
//! ```
//!
//! So a sync sends no flush when nothing was written since the last one. Forced-unit-access writes
//! are durable on return and are not counted.
//!
//! ```text
//!   A   flush ├──────────── lost ─► Err     earlier writes may be lost; reported once
//!   B   flush     ├──── Ok ┄┄┄┄┄┄┄┄► Err    waits for the flushes that began before it ended
//!   C   flush                           Err from then on, every flush fails
//! ```
//!
//! Rule J11: after a flush or forced write fails, no concurrent flush or forced write succeeds, and
//! no later flush does, whichever thread saw the error. Later forced writes succeed: each of them
//! makes only its own bytes durable.

use crate::log::open_log::Log;
use extant_base::{ByteOffset, CachePadded, Error, IoOp, Result};
use extant_blockdev::{BlockDevice, forward};
use parking_lot::{Condvar, Mutex};
use std::io::IoSlice;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Whether two handles refer to the same device, so that one flush serves both.
pub(crate) fn is_same_device(a: &Arc<dyn BlockDevice>, b: &Arc<dyn BlockDevice>) -> bool {
    std::ptr::addr_eq(Arc::as_ptr(a), Arc::as_ptr(b))
}

/// A device that counts its writes and flushes, and remembers that a flush or forced write failed.
pub struct Watched {
    inner: Arc<dyn BlockDevice>,
    written: CachePadded<AtomicU64>,
    flushed: AtomicU64,
    /// The innermost of all locks; never held across I/O.
    syncs: Mutex<Syncs>,
    ended: Condvar,
}

impl std::fmt::Debug for Watched {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Watched").finish_non_exhaustive()
    }
}

/// Flushes and forced writes.
#[derive(Default)]
struct Syncs {
    /// How many have begun.
    begun: u64,
    /// The numbers of those in flight.
    in_flight: Vec<u64>,
    /// How many have failed.
    failed: u64,
}

/// The requests whose failure means lost writes.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Flush,
    /// A write that is durable on return, and says nothing of other writes.
    Forced,
}

/// A request in flight. A panic counts as a failure.
struct InFlight<'a> {
    device: &'a Watched,
    nr: u64,
    failed: bool,
}

impl Drop for InFlight<'_> {
    fn drop(&mut self) {
        let mut syncs = self.device.syncs.lock();
        syncs.in_flight.retain(|nr| *nr != self.nr);
        syncs.failed += u64::from(self.failed);
        self.device.ended.notify_all();
    }
}

impl Watched {
    /// Watches `inner`.
    pub fn new(inner: Arc<dyn BlockDevice>) -> Arc<Watched> {
        Arc::new(Watched {
            inner,
            written: CachePadded::new(AtomicU64::new(1)),
            flushed: AtomicU64::new(0),
            syncs: Mutex::default(),
            ended: Condvar::new(),
        })
    }

    /// Makes the log use this device too, if it lies on the same one; else watches the log's own
    /// device.
    pub(crate) fn watch_log(self: &Arc<Watched>, log: &mut Log) {
        let own = match is_same_device(log.device(), &self.inner) {
            true => Arc::clone(self),
            false => Watched::new(Arc::clone(log.device())),
        };
        log.set_device(own);
    }

    /// Runs `request`, and fails also if a concurrent one failed.
    fn synced(&self, kind: Kind, request: impl FnOnce() -> Result<()>) -> Result<()> {
        let (mut in_flight, before) = self.begin(kind)?;
        request()?;
        in_flight.failed = false;
        drop(in_flight);
        let mut syncs = self.syncs.lock();
        let begun = syncs.begun;
        // A request that began before this one ended may have received the error of this one's
        // writes.
        while syncs.in_flight.iter().any(|nr| *nr <= begun) {
            self.ended.wait(&mut syncs);
        }
        if syncs.failed == before { Ok(()) } else { Err(self.lost_error()) }
    }

    /// Registers a request. Returns it, and how many failures came before it.
    fn begin(&self, kind: Kind) -> Result<(InFlight<'_>, u64)> {
        let mut syncs = self.syncs.lock();
        if kind == Kind::Flush && syncs.failed > 0 {
            return Err(self.lost_error());
        }
        syncs.begun += 1;
        let nr = syncs.begun;
        syncs.in_flight.push(nr);
        Ok((InFlight { device: self, nr, failed: true }, syncs.failed))
    }

    /// The error for a caller whose writes a failed flush of another thread may have lost.
    fn lost_error(&self) -> Error {
        let len = usize::try_from(self.len()).unwrap_or(usize::MAX);
        let source = std::io::Error::other("writes may be lost: another flush failed");
        Error::Device { op: IoOp::Flush, at: ByteOffset(0), len, source }
    }

    /// A mark of all writes that have returned.
    pub(crate) fn mark(&self) -> u64 {
        self.written.load(Ordering::Acquire)
    }

    /// Whether a flush began after the writes of `mark` and succeeded.
    pub(crate) fn is_flushed(&self, mark: u64) -> bool {
        self.flushed.load(Ordering::Acquire) >= mark
    }

    /// Counts a write, also one that failed: part of it may be on the device.
    fn wrote<T>(&self, done: Result<T>) -> Result<T> {
        self.written.fetch_add(1, Ordering::AcqRel);
        done
    }
}

impl BlockDevice for Watched {
    forward!(self => self.inner;
        len, lengthen, read_at, read_vectored_at, read_fresh_at, is_read_only, alignment, descriptor,
        needs_stable_buffers, set_idle, dax);

    fn write_at(&self, at: ByteOffset, buf: &[u8]) -> Result<()> {
        self.wrote(self.inner.write_at(at, buf))
    }

    fn write_vectored_at(&self, at: ByteOffset, bufs: &[IoSlice<'_>]) -> Result<()> {
        self.wrote(self.inner.write_vectored_at(at, bufs))
    }

    fn flush(&self) -> Result<()> {
        let mark = self.mark();
        self.synced(Kind::Flush, || self.inner.flush())?;
        self.flushed.fetch_max(mark, Ordering::AcqRel);
        Ok(())
    }

    fn write_fua(&self, at: ByteOffset, buf: &[u8]) -> Result<()> {
        self.synced(Kind::Forced, || self.inner.write_fua(at, buf))
    }

    fn discard(&self, at: ByteOffset, len: u64) -> Result<()> {
        self.wrote(self.inner.discard(at, len))
    }

    fn zero(&self, at: ByteOffset, len: u64) -> Result<()> {
        self.wrote(self.inner.zero(at, len))
    }

    /// The device may repair a copy with the bytes of another one; that needs no flush.
    fn read_verified(
        &self,
        at: ByteOffset,
        buf: &mut [u8],
        verify: &dyn Fn(&[u8]) -> bool,
    ) -> Result<bool> {
        self.inner.read_verified(at, buf, verify)
    }

    fn wrote_past(&self) {
        self.inner.wrote_past();
        self.written.fetch_add(1, Ordering::AcqRel);
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_journal::{LAST, empty_log, options, put};
    use crate::{CacheOptions, CommitPoint, Credits, Journal};
    use extant_base::BlockSize;
    use extant_ondisk::jbd2::BlockSum;
    use extant_testdev::TestDevice;
    use std::sync::mpsc::{Receiver, Sender, channel};
    use std::time::Duration;

    /// A device on which one flush or forced write fails, slowly. Earlier writes are lost, and
    /// concurrent requests succeed, as on a kernel that reports an error once.
    struct Forgetful {
        inner: TestDevice,
        /// Set for the request that fails: it sends that it began, then waits for the test.
        failing: parking_lot::Mutex<Option<(Sender<()>, Receiver<()>)>>,
    }

    impl Forgetful {
        fn new(bytes: Vec<u8>) -> Arc<Forgetful> {
            let inner = TestDevice::new(bytes);
            Arc::new(Forgetful { inner, failing: parking_lot::Mutex::new(None) })
        }

        /// Makes the next flush fail. Returns the signal that it began, and the one that lets it
        /// end.
        fn fail_one(&self) -> (Receiver<()>, Sender<()>) {
            let ((began_tx, began), (go, wait)) = (channel(), channel());
            *self.failing.lock() = Some((began_tx, wait));
            (began, go)
        }

        fn pass(&self) -> Result<()> {
            let Some((began_tx, wait)) = self.failing.lock().take() else { return Ok(()) };
            began_tx.send(()).unwrap();
            wait.recv().unwrap();
            let source = std::io::Error::from_raw_os_error(5);
            Err(Error::Device { op: IoOp::Flush, at: ByteOffset(0), len: 0, source })
        }
    }

    impl BlockDevice for Forgetful {
        fn len(&self) -> u64 {
            self.inner.len()
        }

        fn read_at(&self, at: ByteOffset, buf: &mut [u8]) -> Result<()> {
            self.inner.read_at(at, buf)
        }

        fn write_at(&self, at: ByteOffset, buf: &[u8]) -> Result<()> {
            self.inner.write_at(at, buf)
        }

        fn flush(&self) -> Result<()> {
            self.pass()?;
            self.inner.flush()
        }

        fn write_fua(&self, at: ByteOffset, buf: &[u8]) -> Result<()> {
            self.pass()?;
            self.inner.write_fua(at, buf)
        }
    }

    /// `fails` meets the failure of `device`, and `rides` needs the same flush meanwhile. Both must
    /// fail.
    fn both_see_the_error(
        device: &Forgetful,
        fails: impl FnOnce() -> Result<()> + Send,
        rides: impl Fn() -> Result<()> + Send + Sync,
    ) {
        let (began, go) = device.fail_one();
        std::thread::scope(|scope| {
            let fails = scope.spawn(fails);
            began.recv().unwrap();
            let rider = scope.spawn(&rides);
            // Time enough for a wrong success.
            std::thread::sleep(Duration::from_millis(30));
            go.send(()).unwrap();
            assert!(fails.join().unwrap().is_err());
            assert!(rider.join().unwrap().is_err(), "acknowledged beside a flush that failed");
        });
        assert!(rides().is_err(), "acknowledged after a flush that failed");
    }

    #[test]
    fn a_flush_concurrent_with_a_failing_flush_fails() {
        let device = Forgetful::new(vec![0; 4096]);
        let watched = Watched::new(Arc::clone(&device) as Arc<dyn BlockDevice>);
        watched.write_at(ByteOffset(0), &[1; 512]).unwrap();
        let mark = watched.mark();
        both_see_the_error(&device, || watched.flush(), || watched.flush());
        assert!(!watched.is_flushed(mark));
    }

    #[test]
    fn a_flush_concurrent_with_a_failing_forced_write_fails() {
        let device = Forgetful::new(vec![0; 4096]);
        let watched = Watched::new(Arc::clone(&device) as Arc<dyn BlockDevice>);
        let force = || watched.write_fua(ByteOffset(0), &[1; 512]);
        both_see_the_error(&device, force, || watched.flush());
        force().expect("what is written later is there");
    }

    #[test]
    fn no_sync_succeeds_after_another_threads_flush_failed() {
        for others in 0..3 {
            let log = empty_log((BlockSum::V3, true), 40);
            let device = Forgetful::new(log.image.clone());
            let home = Arc::clone(&device) as Arc<dyn BlockDevice>;
            let opened = crate::Log::open(Arc::clone(&home), log.map()).unwrap();
            let (size, cache) = (BlockSize::ALL[0], CacheOptions::default());
            let journal = Journal::with_log(home, size, cache, opened, options()).unwrap();
            let handle = journal.start(Credits::blocks(1)).unwrap();
            put(&handle, 3, 1);
            let point = handle.commit_point();
            handle.stop().unwrap();
            journal.device().write_at(ByteOffset(5 * 1024), &[1; 1024]).unwrap();
            // A thread that only flushes data meets the failure; the other one commits or flushes.
            let rides = || match others {
                0 => journal.commit(point.tid),
                1 => journal.commit_with_data(point, None),
                _ => journal.commit_with_data(CommitPoint { tid: LAST, nr: 0 }, None),
            };
            both_see_the_error(&device, || journal.flush(), rides);
            assert!(journal.is_aborted());
        }
    }

    #[test]
    fn no_sync_succeeds_after_a_failed_flush_without_a_log() {
        let device = Forgetful::new(vec![0; 64 << 10]);
        let home = Arc::clone(&device) as Arc<dyn BlockDevice>;
        let journal = Journal::off(home, BlockSize::ALL[0], CacheOptions::default());
        let handle = journal.start(Credits::blocks(1)).unwrap();
        put(&handle, 3, 1);
        handle.stop().unwrap();
        both_see_the_error(&device, || journal.sync(), || journal.sync());
    }

    #[test]
    fn no_sync_succeeds_after_a_failed_flush_of_an_external_log() {
        let log = empty_log((BlockSum::V3, true), 40);
        let device = Forgetful::new(log.image.clone());
        let home = Arc::new(TestDevice::new(log.image.clone())) as Arc<dyn BlockDevice>;
        let opened = Arc::clone(&device) as Arc<dyn BlockDevice>;
        let opened = crate::Log::open(opened, log.map()).unwrap();
        let (size, cache) = (BlockSize::ALL[0], CacheOptions::default());
        let journal = Journal::with_log(home, size, cache, opened, options()).unwrap();
        let change = |nr| {
            let handle = journal.start(Credits::blocks(1)).unwrap();
            put(&handle, nr, 1);
            let tid = handle.tid();
            handle.stop().unwrap();
            tid
        };
        let tid = change(3);
        journal.commit(tid).unwrap();
        let tid = change(4);
        // The tail moves, by a forced write, while the log's copies of a commit wait for their
        // flush.
        let transactions = journal.transactions().unwrap();
        let all = crate::cache::write_out::Share::UpTo(crate::cache::block::Seq::MAX);
        both_see_the_error(&device, || transactions.checkpoint(all), || journal.commit(tid));
    }

    #[test]
    fn a_mark_is_flushed_by_a_flush_that_began_after_it() {
        let device = Watched::new(Arc::new(TestDevice::new(vec![0; 4096])));
        assert!(!device.is_flushed(device.mark()), "earlier writes are unknown");
        device.flush().unwrap();
        assert!(device.is_flushed(device.mark()));
        device.write_fua(ByteOffset(0), &[1; 512]).unwrap();
        assert!(device.is_flushed(device.mark()), "durable by itself");
        device.write_at(ByteOffset(0), &[2; 512]).unwrap();
        let mark = device.mark();
        assert!(!device.is_flushed(mark));
        device.flush().unwrap();
        device.write_vectored_at(ByteOffset(0), &[IoSlice::new(&[3; 512])]).unwrap();
        assert!(device.is_flushed(mark) && !device.is_flushed(device.mark()));
        device.flush().unwrap();
        device.wrote_past();
        assert!(device.is_flushed(mark) && !device.is_flushed(device.mark()));
    }

    #[test]
    fn a_failed_write_needs_a_flush() {
        let inner = Arc::new(TestDevice::new(vec![0; 4096]));
        let device = Watched::new(Arc::clone(&inner) as Arc<dyn BlockDevice>);
        device.flush().unwrap();
        inner.fail_writes.store(true, Ordering::Relaxed);
        assert!(device.write_at(ByteOffset(0), &[1; 512]).is_err());
        assert!(!device.is_flushed(device.mark()));
        inner.fail_flushes.store(true, Ordering::Relaxed);
        assert!(device.flush().is_err() && !device.is_flushed(device.mark()));
    }
}
