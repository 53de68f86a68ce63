//! The flusher's threads, and the write-back part of a write call.

use super::account::Account;
use super::dirty_list::{DirtyList, Reason, Visit};
use super::flag::{Kick, WakeUp};
use super::gate::WritePermit;
use super::throttle::{Rate, Throttle};
use super::{DirtyFile, WriteBack, whole};
use crate::config::{CacheConfig, DontCachePolicy};
use crate::interface::{Demand, Use};
use extant_base::lock::{Mutex, Rank};
use extant_base::{ByteOffset, Error, IoOp, Result};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Flusher threads. Each visits another file: while one thread waits for its last bytes or maps
/// blocks, the device is busy with the files of the others. With 32 writers that have 1 MiB dirty
/// each, a device of 1 GB/s and 0.1 ms latency was 80 to 90 % busy with one thread, 75 to 90 % with
/// two (a thread that wakes late leaves it idle) and 99 % with four. With few writers all are
/// alike.
const THREADS: usize = 4;
/// A visit takes the device about this long, in seconds,
const VISIT_TIME: f64 = 0.1;
/// but has at least and at most this many bytes,
const VISIT_MIN: u64 = 1 << 20;
const VISIT_MAX: u64 = 16 << 20;
/// and this many before the device's rate is measured.
const VISIT_FIRST: u64 = 8 << 20;
/// A visit requests at least this many bytes, however few are pending, to make writes large.
const PENDING_MIN: u64 = 4 << 20;

/// Files that have been dirty for too long are looked for at most this often. Otherwise a thread
/// would wake for each of many small files, a fraction of a millisecond after the one before.
const AGE_STEP: Duration = Duration::from_millis(50);

/// How long a thread pauses for readers until it checks again.
const READER_RECHECK: Duration = Duration::from_millis(5);

/// Limits, times and the policy.
pub(crate) struct Settings {
    pub policy: DontCachePolicy,
    pub expire: Duration,
    /// Unit of writing in bytes: a page or a block, whichever is larger.
    pub page: u64,
}

struct Running<F> {
    threads: Vec<JoinHandle<()>>,
    owner: Option<Arc<dyn WriteBack<F>>>,
}

/// The flusher: a list of dirty files, threads, and the throttles of writers.
pub(crate) struct Writeback<F> {
    pub(super) account: Arc<Account>,
    pub(super) settings: Settings,
    pub(super) kick: Kick,
    list: Mutex<DirtyList<F>>,
    pub(super) rate: Rate,
    running: Mutex<Running<F>>,
    is_running: AtomicBool,
    /// All files that were dirty at this time must be written ("write everything").
    write_all_since: Mutex<Option<Instant>>,
    /// Bytes that write calls left to the flusher, under the policies that write in the call.
    pub(super) handed_over: AtomicU64,
    /// Threads that choose or visit a file.
    active_threads: AtomicUsize,
    is_stuck: AtomicBool,
    /// The latest failure.
    failure: Mutex<Option<Error>>,
}

/// The demand of a visit. At its bound the visit continues while no other file waits: otherwise the
/// device would be idle until the next visit has found its first bytes.
struct VisitDemand<'a, F> {
    flusher: &'a Writeback<F>,
    limit: AtomicU64,
    /// Bytes that `rate` has counted.
    counted: AtomicU64,
}

impl<F: DirtyFile> Demand for VisitDemand<'_, F> {
    fn wanted(&self, begun: u64) -> u64 {
        let limit = self.limit.load(Ordering::Relaxed);
        if begun < limit {
            return limit;
        }
        let counted = self.counted.swap(begun, Ordering::Relaxed);
        self.flusher.rate.add(begun.saturating_sub(counted));
        let limit = limit.saturating_add(self.flusher.extension());
        self.limit.store(limit, Ordering::Relaxed);
        limit
    }

    fn writes_in_flight(&self, most: usize) -> usize {
        if self.flusher.account.readers.are_active() { 1 } else { most }
    }
}

impl<F: DirtyFile> Writeback<F> {
    /// Write-back configured by `config`, not started.
    pub fn new(config: &CacheConfig, account: Arc<Account>) -> Arc<Writeback<F>> {
        let page = (config.block_size.bytes() as u64).max(4096);
        let settings = Settings { policy: config.policy, expire: config.expire, page };
        Writeback::with_settings(settings, account)
    }

    /// Starts the threads. Called once between two `stop`s.
    ///
    /// # Errors
    /// As [`Writeback::start_threads`].
    pub fn start(self: &Arc<Self>, owner: Arc<dyn WriteBack<F>>) -> Result<()> {
        self.start_threads(owner, THREADS)
    }

    /// Write-back with `account`'s limits, not started.
    pub fn with_settings(settings: Settings, account: Arc<Account>) -> Arc<Writeback<F>> {
        let list = DirtyList::new(settings.page);
        let running = Running { threads: Vec::new(), owner: None };
        Arc::new(Writeback {
            account,
            settings,
            kick: Kick::default(),
            list: Mutex::new(Rank::Leaf, list),
            rate: Rate::new(),
            running: Mutex::new(Rank::Leaf, running),
            is_running: AtomicBool::new(false),
            write_all_since: Mutex::new(Rank::Leaf, None),
            handed_over: AtomicU64::new(0),
            active_threads: AtomicUsize::new(0),
            is_stuck: AtomicBool::new(false),
            failure: Mutex::new(Rank::Leaf, None),
        })
    }

    /// Starts `count` threads. Called once between two `stop`s.
    ///
    /// # Errors
    /// `Device` if the system starts no thread at all.
    pub fn start_threads(
        self: &Arc<Self>,
        owner: Arc<dyn WriteBack<F>>,
        count: usize,
    ) -> Result<()> {
        self.running.lock().owner = Some(owner.clone());
        self.is_running.store(true, Ordering::SeqCst);
        self.throttles(|throttle| throttle.set_disabled(false));
        for _ in 0..count.max(1) {
            let (this, owner) = (self.clone(), owner.clone());
            let thread = std::thread::Builder::new().name("extant-flusher".into());
            match thread.spawn(move || this.run(&*owner)) {
                Ok(thread) => self.running.lock().threads.push(thread),
                // One thread is enough.
                Err(_) if !self.running.lock().threads.is_empty() => break,
                Err(source) => {
                    self.stop();
                    return Err(Error::Device {
                        op: IoOp::Open,
                        at: ByteOffset(0),
                        len: 0,
                        source,
                    });
                }
            }
        }
        Ok(())
    }

    /// Wakes all waiting threads, joins the flusher's threads and drops the owner. Dirty files stay
    /// dirty and stay in [`Writeback::dirty_files`]. Further calls have no effect.
    pub fn stop(&self) {
        self.is_running.store(false, Ordering::SeqCst);
        self.throttles(|throttle| throttle.set_disabled(true));
        self.kick.events().notify();
        let threads = std::mem::take(&mut self.running.lock().threads);
        for thread in threads {
            // The last user of the cache may be a flusher thread, at the end of a visit.
            if thread.thread().id() != std::thread::current().id() {
                // A thread that panicked has reported it.
                let _ = thread.join();
            }
        }
        let owner = self.running.lock().owner.take();
        drop(owner);
    }

    fn throttles(&self, each: impl Fn(&Throttle)) {
        each(&self.account.throttle);
        each(&self.account.marked_throttle);
    }

    /// Records that `file`, which was clean, has dirty bytes.
    pub fn file_dirtied(&self, file: &Arc<F>) {
        // Innermost, like the event count: see "Locks" in the module documentation.
        let mut list = self.list.lock_second();
        let is_first = list.dirtied(file, Instant::now());
        self.is_stuck.store(list.is_stuck(), Ordering::SeqCst);
        drop(list);
        // Sleeping threads have no time set at which to wake.
        if is_first {
            self.kick.events().notify();
        }
    }

    /// Files that have dirty bytes, oldest first.
    pub fn dirty_files(&self) -> Vec<Arc<F>> {
        // Dropped after the lock.
        let mut gone = Vec::new();
        self.list.lock().dirty_files(&mut gone)
    }

    /// Requests that the flusher write all bytes that are dirty now, before anything else. Does not
    /// wait.
    pub fn write_everything(&self) {
        *self.write_all_since.lock() = Some(Instant::now());
        self.kick.events().notify();
    }

    pub(super) fn owner(&self) -> Option<Arc<dyn WriteBack<F>>> {
        self.running.lock().owner.clone()
    }

    fn run(&self, owner: &dyn WriteBack<F>) {
        loop {
            let seen = self.kick.events().count();
            if !self.is_running.load(Ordering::SeqCst) {
                return;
            }
            // While there are readers, one thread works; the others check again later.
            let others = self.active_threads.fetch_add(1, Ordering::SeqCst);
            if others > 0 && self.account.readers.are_active() {
                self.active_threads.fetch_sub(1, Ordering::SeqCst);
                self.kick.events().wait(seen, Some(Instant::now() + READER_RECHECK));
                continue;
            }
            let pending = self.kick.take(|| self.pending());
            let next = self.next(pending);
            let is_idle = next.is_none();
            if let Some(visit) = next {
                self.visit(owner, visit);
            }
            self.active_threads.fetch_sub(1, Ordering::SeqCst);
            if is_idle {
                let soonest = Instant::now() + AGE_STEP;
                let due = self.list.lock().next_due(self.settings.expire, soonest);
                self.kick.events().wait(seen, due);
            }
        }
    }

    /// Drop-behind bytes that the flusher has to write.
    fn pending(&self) -> u64 {
        let dirty = self.account.marked_dirty();
        match self.settings.policy {
            DontCachePolicy::Flusher => dirty,
            _ => self.handed_over.load(Ordering::Relaxed).min(dirty),
        }
    }

    /// Maximum bytes of a visit, and of each extension of it.
    fn visit_limit(&self) -> u64 {
        match self.rate.now() {
            0.0 => VISIT_FIRST,
            rate => whole(rate * VISIT_TIME).clamp(VISIT_MIN, VISIT_MAX),
        }
    }

    /// Bytes by which a visit at its bound may be extended; 0 ends it.
    fn extension(&self) -> u64 {
        if !self.is_running.load(Ordering::Relaxed) || self.list.lock().has_waiting() {
            return 0;
        }
        let (limit, pending) = (self.visit_limit(), self.pending());
        if self.account.dirty() > self.account.throttle.thresholds().start {
            limit
        } else if pending > 0 {
            limit.min(pending.max(PENDING_MIN))
        } else {
            0
        }
    }

    fn next(&self, pending: u64) -> Option<Visit<F>> {
        let limit = self.visit_limit();
        let now = Instant::now();
        let mut gone = Vec::new();
        let mut list = self.list.lock();
        let mut pick = |reason, limit| list.pick(reason, limit, now, &mut gone);
        let write_all_since = *self.write_all_since.lock_second();
        if let Some(time) = write_all_since {
            if let Some(visit) = pick(Reason::Since(time), limit) {
                return Some(visit);
            }
            let mut write_all_since = self.write_all_since.lock_second();
            if *write_all_since == Some(time) {
                *write_all_since = None;
            }
        }
        if pending > 0 {
            let thresholds = self.account.marked_throttle.thresholds();
            let spare_tails = self.account.marked_held() < thresholds.start;
            let reason = Reason::DropBehind { spare_tails };
            if let Some(visit) = pick(reason, limit.min(pending.max(PENDING_MIN))) {
                return Some(visit);
            }
        }
        if self.account.dirty() > self.account.throttle.thresholds().start
            && let Some(visit) = pick(Reason::Oldest, limit)
        {
            return Some(visit);
        }
        let expired = now.checked_sub(self.settings.expire)?;
        let visit = pick(Reason::Since(expired), limit);
        drop(list);
        drop(gone);
        visit
    }

    fn visit(&self, owner: &dyn WriteBack<F>, mut visit: Visit<F>) {
        let limit = AtomicU64::new(visit.limit);
        let demand = VisitDemand { flusher: self, limit, counted: AtomicU64::new(0) };
        self.rate.begin();
        let written = self.write_file(owner, &visit.file, visit.range.clone(), &demand);
        let bytes = *written.as_ref().unwrap_or(&0);
        self.rate.end(bytes.saturating_sub(demand.counted.into_inner()));
        visit.limit = demand.limit.into_inner();
        let done = written.as_ref().ok().copied();
        let mut list = self.list.lock();
        list.done(&visit, done, Instant::now());
        if let Err(error) = written {
            *self.failure.lock_second() = Some(error);
        }
        let is_stuck = list.is_stuck();
        let changed = self.is_stuck.swap(is_stuck, Ordering::SeqCst) != is_stuck;
        drop(list);
        if changed {
            self.throttles(Throttle::recheck_stuck);
        }
    }

    /// Writes `bytes` of a file back within a write call. An error is recorded for the file's
    /// openers.
    pub(super) fn write(
        &self,
        owner: &dyn WriteBack<F>,
        file: &Arc<F>,
        range: std::ops::Range<u64>,
        bytes: u64,
    ) -> Result<u64> {
        self.rate.begin();
        let written = self.write_file(owner, file, range, &bytes);
        self.rate.end(*written.as_ref().unwrap_or(&0));
        written
    }

    fn write_file(
        &self,
        owner: &dyn WriteBack<F>,
        file: &Arc<F>,
        range: std::ops::Range<u64>,
        demand: &dyn Demand,
    ) -> Result<u64> {
        let written = owner.write_back(file, range, demand);
        if let Err(error) = &written {
            file.note_error(error);
        }
        let bytes = *written.as_ref().unwrap_or(&0);
        let less = |bytes_left: u64| Some(bytes_left.saturating_sub(bytes));
        let _ = self.handed_over.fetch_update(Ordering::Relaxed, Ordering::Relaxed, less);
        written
    }

    /// Waits, before a write of `len` bytes, until don't-cache bytes fit under the cap. The caller
    /// holds no lock.
    ///
    /// # Errors
    /// The write-back error, when every dirty file fails and waiting cannot succeed.
    pub fn acquire_permit(&self, len: u64, how: Use) -> Result<WritePermit<'_>> {
        let account = &*self.account;
        if how == Use::Keep || !self.is_running.load(Ordering::Relaxed) {
            return Ok(WritePermit::new(account, 0));
        }
        let held = || account.marked_held();
        if let Some(bytes) = account.gate.try_admit(len, held) {
            return Ok(WritePermit::new(account, bytes));
        }
        let end = || {
            self.handed_over.fetch_max(account.marked_dirty(), Ordering::Relaxed);
            self.kick.kick();
            if !self.is_running.load(Ordering::SeqCst) {
                return Some(Ok(()));
            }
            // Bytes that are only reserved are released without the flusher's help.
            let is_full = held() + len > account.gate.cap();
            self.stuck().filter(|_| is_full).map(Err)
        };
        let bytes = account.gate.admit(len, held, end)?;
        Ok(WritePermit::new(account, bytes))
    }

    /// Applies the policy and then throttling after a write of `len` bytes at `offset`. May sleep;
    /// the caller holds no lock.
    ///
    /// # Errors
    /// The write-back error, when every dirty file fails and waiting cannot succeed; the bytes are
    /// in the cache nevertheless.
    pub fn wrote(&self, file: &Arc<F>, offset: u64, len: u64, how: Use) -> Result<()> {
        if len == 0 || !self.is_running.load(Ordering::Relaxed) {
            return Ok(());
        }
        if how == Use::DropBehind {
            self.account.marked_throttle.note_written(len);
            self.dont_cache(file, offset..offset.saturating_add(len));
        }
        let account = &self.account;
        account.throttle.note_written(len);
        let (held, thresholds) = (account.held(), account.throttle.thresholds());
        if held <= thresholds.start && how == Use::Keep {
            return Ok(());
        }
        let all = thresholds.position(held);
        let marked = match how {
            Use::DropBehind => account.marked_throttle.thresholds().position(account.marked_held()),
            Use::Keep => 0.0,
        };
        if all.max(marked) <= 0.0 {
            return Ok(());
        }
        // The flusher writes these bytes under every policy.
        if how == Use::DropBehind && marked > 0.0 {
            self.handed_over.fetch_max(account.marked_dirty(), Ordering::Relaxed);
        }
        self.kick.kick();
        let rate = self.rate.now();
        if marked > all {
            account.marked_throttle.throttle(len, rate, || account.marked_held(), || self.stuck())
        } else {
            account.throttle.throttle(len, rate, || account.held(), || self.stuck())
        }
    }

    /// Lists `file` as one with drop-behind data, unless it is listed so. Returns whether it was.
    pub(super) fn list_as_drop_behind(&self, file: &F) -> bool {
        let was_listed = file.state().is_listed_as_drop_behind();
        if !was_listed {
            self.list.lock().drop_behind(file.state().id());
        }
        was_listed
    }

    fn stuck(&self) -> Option<Error> {
        if !self.is_stuck.load(Ordering::SeqCst) {
            return None;
        }
        self.failure.lock_second().as_ref().map(Error::again)
    }
}
