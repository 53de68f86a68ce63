//! Write-back to a device in memory with given bandwidth, latency and faults.

mod faults;
mod list;
mod measure;
mod policies;
mod readers;
mod throttling;

use super::account::Account;
use super::dirty_list::FileState;
use super::flusher::{Settings, Writeback};
use super::{DirtyFile, WriteBack};
use crate::config::DontCachePolicy;
use crate::interface::{Demand, Use};
use crate::stats::CacheStats;
use extant_base::{ByteOffset, Error, IoOp, Result};
use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

const PAGE: u64 = 4096;
const MIB: u64 = 1 << 20;
const FOREVER: Duration = Duration::from_secs(3600);

/// A file: which pages are dirty, and whether they are marked.
#[derive(Default)]
pub struct FakeFile {
    state: Arc<FileState>,
    pages: Mutex<BTreeMap<u64, bool>>,
    /// Bytes that are dirty or under write-back.
    held: AtomicU64,
    errors: AtomicU64,
    fails: AtomicBool,
}

impl FakeFile {
    /// A file with `bytes` dirty, for tests without a device.
    pub fn with_dirty(bytes: u64) -> FakeFile {
        FakeFile { held: AtomicU64::new(bytes), ..FakeFile::default() }
    }

    pub fn dirty(&self, bytes: u64) {
        self.held.fetch_add(bytes, Ordering::SeqCst);
    }

    pub fn clean(&self, bytes: u64) {
        self.held.fetch_sub(bytes, Ordering::SeqCst);
    }
}

impl DirtyFile for FakeFile {
    fn is_dirty(&self) -> bool {
        self.dirty_bytes() > 0
    }

    fn dirty_bytes(&self) -> u64 {
        self.held.load(Ordering::SeqCst)
    }

    fn note_error(&self, _: &Error) {
        self.errors.fetch_add(1, Ordering::SeqCst);
    }

    fn state(&self) -> &Arc<FileState> {
        &self.state
    }
}

/// A device with a rate of `bandwidth` bytes per second; each write completes `latency` after its
/// last byte.
struct Device {
    account: Arc<Account>,
    page: u64,
    bandwidth: f64,
    latency: Duration,
    /// When the device will have transferred the last byte given to it.
    free_at: Mutex<Instant>,
    /// The writes, in order: file, byte offset, bytes.
    log: Mutex<Vec<(u64, u64, u64)>>,
    /// Calls so far.
    visits: AtomicU64,
    /// In-flight limit that the last call got for a maximum of four.
    writes_in_flight: AtomicU64,
    /// While true, no write completes.
    shut: Mutex<bool>,
    opened: Condvar,
}

impl Device {
    /// Bytes of one device write.
    const PIECE: u64 = MIB;

    /// Takes the first dirty run of `range`, `max` bytes at most.
    fn take(&self, file: &FakeFile, range: &Range<u64>, max: u64) -> Vec<(u64, bool)> {
        let mut pages = file.pages.lock().unwrap();
        let mut taken: Vec<(u64, bool)> = Vec::new();
        let first = range.start / self.page;
        for (&n, &marked) in pages.range(first..range.end.div_ceil(self.page)) {
            let goes_on = taken.last().is_none_or(|last| last.0 + 1 == n);
            if !goes_on || taken.len() as u64 * self.page >= max {
                break;
            }
            taken.push((n, marked));
        }
        for &(n, marked) in &taken {
            pages.remove(&n);
            self.account.taken(self.page, marked);
        }
        taken
    }

    fn sleep_until(time: Instant) {
        if let Some(left) = time.checked_duration_since(Instant::now()) {
            std::thread::sleep(left);
        }
    }

    fn written(&self) -> u64 {
        self.log.lock().unwrap().iter().map(|write| write.2).sum()
    }
}

impl WriteBack<FakeFile> for Device {
    /// All writes of a call are in flight at once, as in an engine.
    fn write_back(
        &self,
        file: &Arc<FakeFile>,
        range: Range<u64>,
        demand: &dyn Demand,
    ) -> Result<u64> {
        self.writes_in_flight.store(demand.writes_in_flight(4) as u64, Ordering::SeqCst);
        self.visits.fetch_add(1, Ordering::SeqCst);
        if file.fails.load(Ordering::SeqCst) {
            let source = std::io::Error::from_raw_os_error(5);
            return Err(Error::Device { op: IoOp::Write, at: ByteOffset(0), len: 0, source });
        }
        let mut written = 0;
        loop {
            let limit = demand.wanted(written);
            let batch = self.write_batch(file, &range, limit.saturating_sub(written));
            written += batch;
            if batch == 0 {
                return Ok(written);
            }
        }
    }
}

impl Device {
    fn write_batch(&self, file: &Arc<FakeFile>, range: &Range<u64>, limit: u64) -> u64 {
        let mut flying = Vec::new();
        let mut written = 0;
        while written < limit {
            let run = self.take(file, range, Device::PIECE.min(limit - written).max(self.page));
            let Some(first) = run.first() else { break };
            let bytes = run.len() as u64 * self.page;
            let mut free_at = self.free_at.lock().unwrap();
            *free_at = (*free_at).max(Instant::now())
                + Duration::from_secs_f64(bytes as f64 / self.bandwidth);
            let arrives = *free_at + self.latency;
            drop(free_at);
            self.log.lock().unwrap().push((file.state.id(), first.0 * self.page, bytes));
            flying.push((run, arrives));
            written += bytes;
        }
        for (run, arrives) in flying {
            Device::sleep_until(arrives);
            let mut shut = self.shut.lock().unwrap();
            while *shut {
                shut = self.opened.wait(shut).unwrap();
            }
            drop(shut);
            // The file is clean before the account says so.
            file.held.fetch_sub(run.len() as u64 * self.page, Ordering::SeqCst);
            let marked = run.iter().filter(|page| page.1).count() as u64;
            self.account.written(marked * self.page, true);
            self.account.written((run.len() as u64 - marked) * self.page, false);
        }
        written
    }
}

/// The parameters of a fixture.
struct Plan {
    policy: DontCachePolicy,
    dirty_limit: u64,
    cap: u64,
    expire: Duration,
    page: u64,
    bandwidth: f64,
    latency: Duration,
    threads: usize,
    gate: bool,
}

impl Default for Plan {
    fn default() -> Plan {
        Plan {
            policy: DontCachePolicy::Flusher,
            dirty_limit: 256 * MIB,
            cap: 8 * MIB,
            expire: FOREVER,
            page: PAGE,
            bandwidth: 100e6,
            latency: Duration::from_micros(100),
            threads: 2,
            gate: true,
        }
    }
}

/// A running write-back and its device.
struct Fixture {
    account: Arc<Account>,
    writeback: Arc<Writeback<FakeFile>>,
    device: Arc<Device>,
    page: u64,
    /// Writers acquire permits.
    gate: bool,
    /// Keeps files with dirty bytes alive, as folios do.
    files: Mutex<Vec<Arc<FakeFile>>>,
}

impl Fixture {
    fn new(plan: Plan) -> Fixture {
        let account = Arc::new(Account::new(plan.dirty_limit, plan.cap));
        let settings = Settings { policy: plan.policy, expire: plan.expire, page: PAGE };
        let writeback = Writeback::with_settings(settings, account.clone());
        let device = Arc::new(Device {
            account: account.clone(),
            page: plan.page,
            bandwidth: plan.bandwidth,
            latency: plan.latency,
            free_at: Mutex::new(Instant::now()),
            log: Mutex::default(),
            visits: AtomicU64::new(0),
            writes_in_flight: AtomicU64::new(0),
            shut: Mutex::new(false),
            opened: Condvar::new(),
        });
        writeback.start_threads(device.clone(), plan.threads).unwrap();
        Fixture {
            account,
            writeback,
            device,
            page: plan.page,
            gate: plan.gate,
            files: Mutex::default(),
        }
    }

    /// What folios do in a write.
    fn dirty(&self, file: &Arc<FakeFile>, range: Range<u64>, how: Use) {
        let marked = how == Use::DropBehind;
        let mut pages = file.pages.lock().unwrap();
        for n in range.start / self.page..range.end.div_ceil(self.page) {
            if let std::collections::btree_map::Entry::Vacant(page) = pages.entry(n) {
                page.insert(marked);
                self.account.dirtied(self.page, marked);
                if file.held.fetch_add(self.page, Ordering::SeqCst) == 0 {
                    self.writeback.file_dirtied(file);
                }
            }
        }
    }

    fn write(&self, file: &Arc<FakeFile>, range: Range<u64>, how: Use) -> Result<()> {
        let len = range.end - range.start;
        let permit = if self.gate { Some(self.writeback.acquire_permit(len, how)?) } else { None };
        self.dirty(file, range.clone(), how);
        drop(permit);
        self.writeback.wrote(file, range.start, len, how)
    }

    fn stats(&self) -> CacheStats {
        let mut stats = CacheStats::default();
        self.account.fill_in(&mut stats);
        stats
    }

    /// Waits until nothing is dirty or under write-back; `false` if that takes longer than `time`.
    fn becomes_clean(&self, time: Duration) -> bool {
        self.comes(time, |stats| stats.dirty + stats.writing == 0)
    }

    fn comes(&self, time: Duration, what: impl Fn(&CacheStats) -> bool) -> bool {
        let until = Instant::now() + time;
        while Instant::now() < until {
            if what(&self.stats()) {
                return true;
            }
            std::thread::sleep(Duration::from_millis(1));
        }
        what(&self.stats())
    }

    fn shut(&self, shut: bool) {
        *self.device.shut.lock().unwrap() = shut;
        self.device.opened.notify_all();
    }
}

impl Drop for Fixture {
    fn drop(&mut self) {
        self.shut(false);
        self.writeback.stop();
    }
}

/// The writers' measurements.
struct Seen {
    /// Bytes of each writer.
    written: Vec<u64>,
    /// Duration of each call, sorted.
    calls: Vec<Duration>,
    time: Duration,
}

impl Seen {
    fn quantile(&self, part: f64) -> Duration {
        self.calls[((self.calls.len() - 1) as f64 * part) as usize]
    }

    fn bytes(&self) -> u64 {
        self.written.iter().sum()
    }
}

/// `writers` threads write in order to files of their own, `call` bytes per call, for `time`.
fn storm(fixture: &Fixture, writers: usize, call: u64, how: Use, time: Duration) -> Seen {
    let begun = Instant::now();
    let mut seen = Seen { written: Vec::new(), calls: Vec::new(), time: Duration::ZERO };
    std::thread::scope(|scope| {
        let threads: Vec<_> = (0..writers)
            .map(|_| {
                scope.spawn(move || {
                    let file = Arc::new(FakeFile::default());
                    fixture.files.lock().unwrap().push(file.clone());
                    let (mut at, mut calls) = (0, Vec::new());
                    while begun.elapsed() < time {
                        let start = Instant::now();
                        fixture.write(&file, at..at + call, how).unwrap();
                        calls.push(start.elapsed());
                        at += call;
                    }
                    (at, calls)
                })
            })
            .collect();
        for thread in threads {
            let (written, calls) = thread.join().unwrap();
            seen.written.push(written);
            seen.calls.extend(calls);
        }
    });
    seen.time = begun.elapsed();
    seen.calls.sort();
    seen
}
