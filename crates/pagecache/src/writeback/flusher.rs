//! The flusher's threads, and what a write call does for write-back.

use super::account::Account;
use super::dirty_list::{DirtyList, Visit, Why};
use super::flag::{Kick, Ring};
use super::gate::Room;
use super::throttle::{Line, Rate};
use super::{DirtyFile, WriteBack};
use crate::config::{CacheConfig, DontCachePolicy};
use crate::owner::{Demand, Use};
use extant_base::lock::{Mutex, Rank};
use extant_base::{ByteOffset, Error, IoOp, Result};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::thread::JoinHandle;
use std::time::{Duration, Instant};

/// Threads that write back, each another file at a time: while one file's last bytes are on their way,
/// or its blocks are found, the device is busy with others'. With 32 writers that have 1 MiB dirty
/// each, a device of 1 GB/s and 0.1 ms was 80 to 90 % busy with one thread, 75 to 90 % with two (a
/// thread that wakes late leaves it idle) and 99 % with four; with few writers all are alike.
const THREADS: usize = 4;
/// A visit to a file takes the device about this long,
const VISIT_TIME: f64 = 0.1;
/// but is no smaller or larger than this many bytes,
const VISIT_MIN: u64 = 1 << 20;
const VISIT_MAX: u64 = 16 << 20;
/// and this many before anybody knows the device.
const VISIT_FIRST: u64 = 8 << 20;
/// However few bytes are owed, the device is given as many as make a large write.
const OWED_MIN: u64 = 4 << 20;

/// How long a thread stands aside for readers until it looks again.
const ASIDE: Duration = Duration::from_millis(5);

/// Limits, times and the policy.
pub(crate) struct Settings {
    pub policy: DontCachePolicy,
    pub expire: Duration,
    /// Bytes that are written as one at least: a page or a block, whichever is larger.
    pub page: u64,
}

struct Running<F> {
    threads: Vec<JoinHandle<()>>,
    owner: Option<Arc<dyn WriteBack<F>>>,
}

/// The one who writes back: a list of dirty files, threads, and the writers' brakes.
pub(crate) struct Writeback<F> {
    pub(super) account: Arc<Account>,
    pub(super) settings: Settings,
    pub(super) kick: Kick,
    list: Mutex<DirtyList<F>>,
    pub(super) rate: Rate,
    running: Mutex<Running<F>>,
    is_running: AtomicBool,
    /// Everything that was dirty then is to be written ("write everything").
    everything: Mutex<Option<Instant>>,
    /// Bytes that write calls gave to the flusher, where the policy does not give it all.
    pub(super) handed_over: AtomicU64,
    /// Threads that look for a file or are at one.
    at_work: AtomicUsize,
    is_stuck: AtomicBool,
    /// The latest failure.
    failure: Mutex<Option<Error>>,
}

/// What a visit is to write. Where it would end, it goes on while no other file waits: until a next
/// visit has found its first bytes the device would have nothing to do.
struct Visiting<'a, F> {
    flusher: &'a Writeback<F>,
    limit: AtomicU64,
    /// Bytes that the rate knows of.
    counted: AtomicU64,
}

impl<F: DirtyFile> Demand for Visiting<'_, F> {
    fn wanted(&self, begun: u64) -> u64 {
        let limit = self.limit.load(Ordering::Relaxed);
        if begun < limit {
            return limit;
        }
        let counted = self.counted.swap(begun, Ordering::Relaxed);
        self.flusher.rate.so_far(begun.saturating_sub(counted));
        let limit = limit.saturating_add(self.flusher.more());
        self.limit.store(limit, Ordering::Relaxed);
        limit
    }

    fn flights(&self, most: usize) -> usize {
        if self.flusher.account.readers.are_there() { 1 } else { most }
    }
}

impl<F: DirtyFile> Writeback<F> {
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
            everything: Mutex::new(Rank::Leaf, None),
            handed_over: AtomicU64::new(0),
            at_work: AtomicUsize::new(0),
            is_stuck: AtomicBool::new(false),
            failure: Mutex::new(Rank::Leaf, None),
        })
    }

    /// Starts `count` threads. Called once between two `stop`s.
    pub fn start_threads(
        self: &Arc<Self>,
        owner: Arc<dyn WriteBack<F>>,
        count: usize,
    ) -> Result<()> {
        self.running.lock().owner = Some(owner.clone());
        self.is_running.store(true, Ordering::SeqCst);
        self.lines(|line| line.open(false));
        for _ in 0..count.max(1) {
            let (this, owner) = (self.clone(), owner.clone());
            let thread = std::thread::Builder::new().name("extant-flusher".into());
            match thread.spawn(move || this.run(&*owner)) {
                Ok(thread) => self.running.lock().threads.push(thread),
                // One is enough to live on.
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

    /// Wakes all who wait, joins the threads, drops the owner. What is dirty stays so, and in
    /// [`Writeback::dirty_files`]. Again is fine.
    pub fn stop(&self) {
        self.is_running.store(false, Ordering::SeqCst);
        self.lines(|line| line.open(true));
        self.kick.bell().ring();
        let threads = std::mem::take(&mut self.running.lock().threads);
        for thread in threads {
            // The last user of the cache may be the flusher itself, at the end of a visit.
            if thread.thread().id() != std::thread::current().id() {
                // A thread that panicked has told so itself.
                let _ = thread.join();
            }
        }
        let owner = self.running.lock().owner.take();
        drop(owner);
    }

    fn lines(&self, each: impl Fn(&Line)) {
        each(&self.account.all_line);
        each(&self.account.marked_line);
    }

    /// `file` has dirty bytes and had none.
    pub fn file_dirtied(&self, file: &Arc<F>) {
        // Innermost, as the bell: see the module's locks.
        let mut list = self.list.lock_second();
        let is_first = list.dirtied(file, Instant::now());
        self.is_stuck.store(list.is_stuck(), Ordering::SeqCst);
        drop(list);
        // Whoever sleeps knows of no time to wake at.
        if is_first {
            self.kick.bell().ring();
        }
    }

    /// Files that have dirty bytes, oldest first.
    pub fn dirty_files(&self) -> Vec<Arc<F>> {
        let mut files = self.list.lock().files();
        files.retain(|file| file.is_dirty());
        files
    }

    /// Has the flusher write all that is dirty now, before anything else. Does not wait.
    pub fn write_everything(&self) {
        *self.everything.lock() = Some(Instant::now());
        self.kick.bell().ring();
    }

    pub(super) fn owner(&self) -> Option<Arc<dyn WriteBack<F>>> {
        self.running.lock().owner.clone()
    }

    fn run(&self, owner: &dyn WriteBack<F>) {
        loop {
            let heard = self.kick.bell().heard();
            if !self.is_running.load(Ordering::SeqCst) {
                return;
            }
            // Beside readers there is one at a time; the others look again when they have gone.
            let others = self.at_work.fetch_add(1, Ordering::SeqCst);
            if others > 0 && self.account.readers.are_there() {
                self.at_work.fetch_sub(1, Ordering::SeqCst);
                self.kick.bell().sleep(heard, Some(Instant::now() + ASIDE));
                continue;
            }
            let owed = self.kick.claim(|| self.owed());
            let next = self.next(owed);
            let is_idle = next.is_none();
            if let Some(visit) = next {
                self.visit(owner, visit);
            }
            self.at_work.fetch_sub(1, Ordering::SeqCst);
            if is_idle {
                let due = self.list.lock().next_due(self.settings.expire);
                self.kick.bell().sleep(heard, due);
            }
        }
    }

    /// Drop-behind bytes that the flusher is to write.
    fn owed(&self) -> u64 {
        let dirty = self.account.marked_dirty();
        match self.settings.policy {
            DontCachePolicy::Flusher => dirty,
            _ => self.handed_over.load(Ordering::Relaxed).min(dirty),
        }
    }

    /// Most bytes of a visit, and of each time that it goes on.
    fn visit_limit(&self) -> u64 {
        match self.rate.now() {
            0.0 => VISIT_FIRST,
            rate => ((rate * VISIT_TIME) as u64).clamp(VISIT_MIN, VISIT_MAX),
        }
    }

    /// How many bytes a visit that has come to its end may go on for.
    fn more(&self) -> u64 {
        if !self.is_running.load(Ordering::Relaxed) || self.list.lock().has_waiting() {
            return 0;
        }
        let (limit, owed) = (self.visit_limit(), self.owed());
        if self.account.dirty() > self.account.all_line.fill().start {
            limit
        } else if owed > 0 {
            limit.min(owed.max(OWED_MIN))
        } else {
            0
        }
    }

    fn next(&self, owed: u64) -> Option<Visit<F>> {
        let limit = self.visit_limit();
        let now = Instant::now();
        let mut gone = Vec::new();
        let mut list = self.list.lock();
        let mut pick = |why, limit| list.pick(why, limit, now, &mut gone);
        let everything = *self.everything.lock_second();
        if let Some(time) = everything {
            if let Some(visit) = pick(Why::Since(time), limit) {
                return Some(visit);
            }
            let mut everything = self.everything.lock_second();
            if *everything == Some(time) {
                *everything = None;
            }
        }
        if owed > 0 {
            let brakes = self.account.marked_line.fill();
            let spare_tails = self.account.marked_held() < brakes.start;
            let why = Why::DropBehind { spare_tails };
            if let Some(visit) = pick(why, limit.min(owed.max(OWED_MIN))) {
                return Some(visit);
            }
        }
        if self.account.dirty() > self.account.all_line.fill().start
            && let Some(visit) = pick(Why::Oldest, limit)
        {
            return Some(visit);
        }
        let expired = now.checked_sub(self.settings.expire)?;
        let visit = pick(Why::Since(expired), limit);
        drop(list);
        drop(gone);
        visit
    }

    fn visit(&self, owner: &dyn WriteBack<F>, mut visit: Visit<F>) {
        let limit = AtomicU64::new(visit.limit);
        let demand = Visiting { flusher: self, limit, counted: AtomicU64::new(0) };
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
            self.lines(Line::look_again);
        }
    }

    /// Writes `bytes` of a file back, in a write call; an error is kept for the file's openers.
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

    /// Before a write of `len` bytes, no lock held: waits until don't-cache bytes have room under the
    /// cap. Errors: that of write-back, when waiting for it is in vain.
    pub fn make_room(&self, len: u64, how: Use) -> Result<Room<'_>> {
        let account = &*self.account;
        if how == Use::Keep || !self.is_running.load(Ordering::Relaxed) {
            return Ok(Room::new(account, 0));
        }
        let held = || account.marked_held();
        if let Some(bytes) = account.gate.try_pass(len, held) {
            return Ok(Room::new(account, bytes));
        }
        let end = || {
            self.handed_over.fetch_max(account.marked_dirty(), Ordering::Relaxed);
            self.kick.kick();
            if !self.is_running.load(Ordering::SeqCst) {
                return Some(Ok(()));
            }
            // What is only expected goes by itself.
            let is_full = held() + len > account.gate.cap();
            self.stuck().filter(|_| is_full).map(Err)
        };
        let bytes = account.gate.pass(len, held, end)?;
        Ok(Room::new(account, bytes))
    }

    /// A write of `len` bytes at `offset` has returned: policy, then brakes. May sleep; holds no
    /// lock. An error is that of write-back, when waiting for it is in vain; the bytes are in the
    /// cache nevertheless.
    pub fn wrote(&self, file: &Arc<F>, offset: u64, len: u64, how: Use) -> Result<()> {
        if len == 0 || !self.is_running.load(Ordering::Relaxed) {
            return Ok(());
        }
        if how == Use::DropBehind {
            self.account.marked_line.used(len);
            self.dont_cache(file, offset..offset.saturating_add(len));
        }
        let account = &self.account;
        account.all_line.used(len);
        let (held, brakes) = (account.held(), account.all_line.fill());
        if held <= brakes.start && how == Use::Keep {
            return Ok(());
        }
        let all = brakes.of(held);
        let marked = match how {
            Use::DropBehind => account.marked_line.fill().of(account.marked_held()),
            Use::Keep => 0.0,
        };
        if all.max(marked) <= 0.0 {
            return Ok(());
        }
        // The flusher relieves the pressure under any policy.
        if how == Use::DropBehind && marked > 0.0 {
            self.handed_over.fetch_max(account.marked_dirty(), Ordering::Relaxed);
        }
        self.kick.kick();
        let rate = self.rate.now();
        if marked > all {
            account.marked_line.brake(len, rate, || account.marked_held(), || self.stuck())
        } else {
            account.all_line.brake(len, rate, || account.held(), || self.stuck())
        }
    }

    /// The list learns that `file` has drop-behind data, if it does not know. Whether it did.
    pub(super) fn know(&self, file: &F) -> bool {
        let known = file.state().is_known();
        if !known {
            self.list.lock().drop_behind(file.state().id());
        }
        known
    }

    fn stuck(&self) -> Option<Error> {
        if !self.is_stuck.load(Ordering::SeqCst) {
            return None;
        }
        self.failure.lock_second().as_ref().map(Error::again)
    }
}

impl Writeback<crate::file::FileCache> {
    /// Write-back as `config` has it, not started.
    pub fn new(config: &CacheConfig, account: Arc<Account>) -> Arc<Self> {
        let page = (config.block_size.bytes() as u64).max(4096);
        let settings = Settings { policy: config.policy, expire: config.expire, page };
        Writeback::with_settings(settings, account)
    }

    /// Starts the threads. Called once between two `stop`s.
    pub fn start(self: &Arc<Self>, owner: Arc<dyn crate::owner::Owner>) -> Result<()> {
        self.start_threads(Arc::new(owner), THREADS)
    }
}
