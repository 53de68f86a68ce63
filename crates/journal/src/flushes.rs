//! What a flush is owed for: which writes to the volume's device no flush has followed.
//!
//! ```text
//!   write ──returns──► written + 1          mark() = written
//!   flush: before = written ──done──► flushed = before          a mark ≤ flushed is durable
//! ```
//!
//! So a sync with nothing written since the last flush sends none. Forced-unit-access writes are
//! durable by themselves and not counted.
//!
//! ```text
//!   A   flush ├──────────── lost ─► Err          what was written before may be gone, and a system tells of that once
//!   B   flush     ├──── Ok ┄┄┄┄┄┄┄┄► Err         waits for those that began before its end
//!   C   flush                           Err      from then on each
//! ```
//!
//! Rule J11: nothing is acknowledged beside or behind a flush that failed, whoever was told of it. A forced write
//! that fails counts as one; of those themselves only what was under way meanwhile fails.

use crate::checkpoint::is_same_device;
use crate::log::Log;
use extant_base::{ByteOffset, CachePadded, Error, IoOp, Result};
use extant_blockdev::{BlockDevice, Dax, Descriptor};
use parking_lot::{Condvar, Mutex};
use std::io::{IoSlice, IoSliceMut};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// A device that counts its writes and flushes, and remembers that a flush failed.
pub struct Watched {
    inner: Arc<dyn BlockDevice>,
    written: CachePadded<AtomicU64>,
    flushed: AtomicU64,
    /// Inside all other locks, and never held across I/O.
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
    /// How many began.
    begun: u64,
    /// Of those, which are under way.
    under_way: Vec<u64>,
    /// How many failed.
    failed: u64,
}

/// What can tell of what was lost.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Kind {
    Flush,
    /// A write that is durable on return, and says nothing of others.
    Forced,
}

/// One that is under way; a panic counts as a failure.
struct UnderWay<'a> {
    device: &'a Watched,
    nr: u64,
    failed: bool,
}

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        let mut syncs = self.device.syncs.lock();
        syncs.under_way.retain(|nr| *nr != self.nr);
        syncs.failed += u64::from(self.failed);
        self.device.ended.notify_all();
    }
}

impl Watched {
    /// `inner`, of which no failed flush is forgotten.
    pub fn new(inner: Arc<dyn BlockDevice>) -> Arc<Watched> {
        Arc::new(Watched {
            inner,
            written: CachePadded::new(AtomicU64::new(1)),
            flushed: AtomicU64::new(0),
            syncs: Mutex::default(),
            ended: Condvar::new(),
        })
    }

    /// Lets the log go this way, too, where it is on the same device; else a way of its own.
    pub(crate) fn put_under(self: &Arc<Watched>, log: &mut Log) {
        let own = match is_same_device(log.device(), &self.inner) {
            true => Arc::clone(self),
            false => Watched::new(Arc::clone(log.device())),
        };
        log.set_device(own);
    }

    /// Lets `ask` through, and answers for what others meet meanwhile.
    fn synced(&self, kind: Kind, ask: impl FnOnce() -> Result<()>) -> Result<()> {
        let (mut under_way, before) = self.begin(kind)?;
        ask()?;
        under_way.failed = false;
        drop(under_way);
        let mut syncs = self.syncs.lock();
        let begun = syncs.begun;
        // Who began before this end may have taken the error that was also ours.
        while syncs.under_way.iter().any(|nr| *nr <= begun) {
            self.ended.wait(&mut syncs);
        }
        if syncs.failed == before { Ok(()) } else { Err(self.lost()) }
    }

    /// The next of those under way, and how many failures are none of its business.
    fn begin(&self, kind: Kind) -> Result<(UnderWay<'_>, u64)> {
        let mut syncs = self.syncs.lock();
        if kind == Kind::Flush && syncs.failed > 0 {
            return Err(self.lost());
        }
        syncs.begun += 1;
        let nr = syncs.begun;
        syncs.under_way.push(nr);
        Ok((UnderWay { device: self, nr, failed: true }, syncs.failed))
    }

    /// What another thread was told of.
    fn lost(&self) -> Error {
        let len = usize::try_from(self.len()).unwrap_or(usize::MAX);
        let source = std::io::Error::other("what another flush was to make durable may be lost");
        Error::Device { op: IoOp::Flush, at: ByteOffset(0), len, source }
    }

    /// All writes that have returned.
    pub(crate) fn mark(&self) -> u64 {
        self.written.load(Ordering::Acquire)
    }

    /// Whether a flush came after the writes of `mark`.
    pub(crate) fn is_flushed(&self, mark: u64) -> bool {
        self.flushed.load(Ordering::Acquire) >= mark
    }

    /// Counts a write, also one that failed: some of it may be there.
    fn wrote<T>(&self, done: Result<T>) -> Result<T> {
        self.written.fetch_add(1, Ordering::AcqRel);
        done
    }
}

impl BlockDevice for Watched {
    fn len(&self) -> u64 {
        self.inner.len()
    }

    fn read_at(&self, at: ByteOffset, buf: &mut [u8]) -> Result<()> {
        self.inner.read_at(at, buf)
    }

    fn write_at(&self, at: ByteOffset, buf: &[u8]) -> Result<()> {
        self.wrote(self.inner.write_at(at, buf))
    }

    fn read_vectored_at(&self, at: ByteOffset, bufs: &mut [IoSliceMut<'_>]) -> Result<()> {
        self.inner.read_vectored_at(at, bufs)
    }

    fn read_fresh_at(&self, at: ByteOffset, buf: &mut [u8]) -> Result<()> {
        self.inner.read_fresh_at(at, buf)
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

    fn is_read_only(&self) -> bool {
        self.inner.is_read_only()
    }

    fn alignment(&self) -> usize {
        self.inner.alignment()
    }

    fn descriptor(&self) -> Option<Descriptor<'_>> {
        self.inner.descriptor()
    }

    fn needs_stable_buffers(&self) -> bool {
        self.inner.needs_stable_buffers()
    }

    /// A copy that is put right holds the bytes of another one: no flush is owed for it.
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

    fn settle(&self) {
        self.inner.settle();
    }

    fn dax(&self, at: ByteOffset, len: u64) -> Option<Arc<dyn Dax>> {
        self.inner.dax(at, len)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_device::TestDevice;
    use crate::test_journal::{LAST, empty_log, options, put};
    use crate::{CacheOptions, CommitPoint, Credits, Journal};
    use extant_base::BlockSize;
    use extant_ondisk::jbd2::BlockSum;
    use std::sync::mpsc::{Receiver, Sender, channel};
    use std::time::Duration;

    /// A device of which one flush, or forced write, fails, slowly: what was written before is lost, and whoever asks
    /// meanwhile is told of nothing, as by a kernel that tells of an error once.
    struct Forgetful {
        inner: TestDevice,
        /// Set for the one that fails: tells that it began, and waits to be let go.
        failing: parking_lot::Mutex<Option<(Sender<()>, Receiver<()>)>>,
    }

    impl Forgetful {
        fn new(bytes: Vec<u8>) -> Arc<Forgetful> {
            let inner = TestDevice::new(bytes);
            Arc::new(Forgetful { inner, failing: parking_lot::Mutex::new(None) })
        }

        /// The next flush fails: told when it began, and lets it go.
        fn fail_one(&self) -> (Receiver<()>, Sender<()>) {
            let ((tell, began), (go, wait)) = (channel(), channel());
            *self.failing.lock() = Some((tell, wait));
            (began, go)
        }

        fn pass(&self) -> Result<()> {
            let Some((tell, wait)) = self.failing.lock().take() else { return Ok(()) };
            tell.send(()).unwrap();
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

    /// `fails` meets the failure of `device`, and `rides` asks for its flush while it does; both are told of it.
    fn both_are_told(
        device: &Forgetful,
        fails: impl FnOnce() -> Result<()> + Send,
        rides: impl Fn() -> Result<()> + Send + Sync,
    ) {
        let (began, go) = device.fail_one();
        std::thread::scope(|scope| {
            let fails = scope.spawn(fails);
            began.recv().unwrap();
            let rider = scope.spawn(&rides);
            // Time enough to be told that all is well.
            std::thread::sleep(Duration::from_millis(30));
            go.send(()).unwrap();
            assert!(fails.join().unwrap().is_err());
            assert!(rider.join().unwrap().is_err(), "acknowledged behind a flush that failed");
        });
        assert!(rides().is_err(), "acknowledged after a flush that failed");
    }

    #[test]
    fn who_flushes_beside_a_flush_that_fails_is_told() {
        let device = Forgetful::new(vec![0; 4096]);
        let watched = Watched::new(Arc::clone(&device) as Arc<dyn BlockDevice>);
        watched.write_at(ByteOffset(0), &[1; 512]).unwrap();
        let mark = watched.mark();
        both_are_told(&device, || watched.flush(), || watched.flush());
        assert!(!watched.is_flushed(mark));
    }

    #[test]
    fn who_flushes_beside_a_forced_write_that_fails_is_told() {
        let device = Forgetful::new(vec![0; 4096]);
        let watched = Watched::new(Arc::clone(&device) as Arc<dyn BlockDevice>);
        let force = || watched.write_fua(ByteOffset(0), &[1; 512]);
        both_are_told(&device, force, || watched.flush());
        force().expect("what is written later is there");
    }

    #[test]
    fn nothing_is_acknowledged_behind_another_threads_failed_flush() {
        for others in 0..3 {
            let log = empty_log((BlockSum::V3, true), 40);
            let device = Forgetful::new(log.image.clone());
            let home = Arc::clone(&device) as Arc<dyn BlockDevice>;
            let opened = crate::Log::open(Arc::clone(&home), log.map()).unwrap();
            let (size, cache) = (BlockSize::ALL[0], CacheOptions::default());
            let journal = Journal::with_log(home, size, cache, opened, options()).unwrap();
            let handle = journal.start(Credits::blocks(1)).unwrap();
            put(&handle, 3, 1);
            let step = handle.step();
            handle.stop().unwrap();
            journal.device().write_at(ByteOffset(5 * 1024), &[1; 1024]).unwrap();
            // A thread that flushes data alone meets the failure; the other one commits, or also flushes.
            let rides = || match others {
                0 => journal.commit(step.tid),
                1 => journal.commit_with_data(step, None),
                _ => journal.commit_with_data(CommitPoint { tid: LAST, nr: 0 }, None),
            };
            both_are_told(&device, || journal.flush(), rides);
            assert!(journal.is_aborted());
        }
    }

    #[test]
    fn nor_without_a_log() {
        let device = Forgetful::new(vec![0; 64 << 10]);
        let home = Arc::clone(&device) as Arc<dyn BlockDevice>;
        let journal = Journal::off(home, BlockSize::ALL[0], CacheOptions::default());
        let handle = journal.start(Credits::blocks(1)).unwrap();
        put(&handle, 3, 1);
        handle.stop().unwrap();
        both_are_told(&device, || journal.sync(), || journal.sync());
    }

    #[test]
    fn nor_in_a_log_on_a_device_of_its_own() {
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
        // The tail moves, a forced write, while the log's copies of a commit wait for their flush.
        let transactions = journal.transactions().unwrap();
        let all = crate::write_out::Share::UpTo(crate::block::Seq::MAX);
        both_are_told(&device, || transactions.checkpoint(all), || journal.commit(tid));
    }

    #[test]
    fn a_mark_is_flushed_by_a_flush_that_began_after_it() {
        let device = Watched::new(Arc::new(TestDevice::new(vec![0; 4096])));
        assert!(!device.is_flushed(device.mark()), "nobody knows what came before");
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
    fn what_failed_is_owed_a_flush() {
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
