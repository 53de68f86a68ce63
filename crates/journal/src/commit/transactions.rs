//! The transactions of a journal with a log, and the state that all threads share.
//!
//! ```text
//!             commit begins       last handle stops       commit block durable
//!   Running ────────────► Locked ──────────────► Flushing ──────────► Committed ─► blocks go home
//!      ▲ start, stop                    │            └─ any error: abort
//!      │                                │
//!      └────────── the next one ◄───────┘ opens while this one is written
//! ```
//!
//! There is always exactly one running transaction, and at most one that is being written. A handle
//! takes one short lock when it starts and one when it stops.

use crate::cache::block::Seq;
use crate::cache::meta_cache::MetaCache;
use crate::commit::contribution::{Credits, HandleChanges, HandlePosition};
use crate::commit::gathering::Gathering;
use crate::commit::point::RecordedMark;
use crate::commit::running::Running;
use crate::commit::signal::Signal;
use crate::commit::stats::Counts;
use crate::fast_commit::area::BlockArea;
use crate::fast_commit::byte_log::{ByteLog, ByteLogState};
use crate::fast_commit::sink::{FastCommits, Sink};
use crate::log::open_log::Log;
use crate::log::space::{Limits, LogSpace};
use crate::log::stream::LogArea;
use crate::log::watched::Watched;
use extant_base::lock::{Condvar, Mutex, MutexGuard, Patience, Rank};
use extant_base::{CachePadded, Error, Tid};
use extant_blockdev::AlignedBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

/// Most bytes of notes that a transaction keeps. A fast commit of more would cost as much as a full
/// one.
const NOTES_MAX: usize = 1 << 20;

/// The time, as seconds and nanoseconds since 1970.
pub type CommitClock = Arc<dyn Fn() -> (u64, u32) + Send + Sync>;

/// Options of a journal with a log.
#[derive(Clone)]
pub struct JournalOptions {
    /// The age at which a transaction is committed without a request. `None`: no limit, and no
    /// background thread.
    pub commit_interval: Option<Duration>,
    /// Everything is one transaction, which commits at [`Journal::sync`](crate::Journal::sync) or
    /// [`Journal::close`](crate::Journal::close) and not before.
    pub one_transaction: bool,
    /// The volume has metadata checksums, so the log gets checksums.
    pub checksums: bool,
    /// The volume has 64-bit block numbers, so the log gets them.
    pub wide: bool,
    /// A sync of a file may be a fast commit, if the log has an area for them and records can
    /// describe the change. The volume must have the feature.
    pub fast_commits: bool,
    /// Store fast commits through a memory mapping of the log's device, if it offers one and the
    /// area is one run. The value is the most bytes of records that are gathered, at most 4096.
    pub byte_log: Option<usize>,
    /// The time for commit blocks.
    pub clock: CommitClock,
}

impl std::fmt::Debug for JournalOptions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("JournalOptions")
            .field("commit_interval", &self.commit_interval)
            .field("one_transaction", &self.one_transaction)
            .field("checksums", &self.checksums)
            .field("wide", &self.wide)
            .field("fast_commits", &self.fast_commits)
            .field("byte_log", &self.byte_log)
            .finish_non_exhaustive()
    }
}

/// What happens to a handle that starts now.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum NewHandles {
    /// It joins the running transaction.
    Admitted,
    /// It waits: the running transaction is about to be written.
    Waiting,
    /// It is refused: the journal was closed.
    Refused,
}

/// Shared by all threads. The lock is held briefly, never across I/O.
pub(crate) struct State {
    pub(crate) running: Running,
    pub(super) new_handles: NewHandles,
    /// How many [`HandlesHeld`] there are. While there is one, new handles wait.
    pub(super) holds: u32,
    /// A thread is committing.
    pub(crate) committing: bool,
    pub(crate) space: LogSpace,
    pub(crate) gathering: Gathering,
    /// Up to which handle fast commits have recorded changes.
    pub(crate) recorded: RecordedMark,
}

/// The transactions of one journal.
pub(crate) struct Transactions {
    pub(crate) cache: Arc<MetaCache>,
    /// The volume's device; `cache` has the same one.
    pub(crate) volume: Arc<Watched>,
    pub(crate) area: LogArea,
    /// The log's superblock; held across I/O. Taken before `state` where both are held.
    pub(crate) log: Mutex<Log>,
    /// The committing thread's memory for log writes; held across I/O.
    pub(crate) buffer: Mutex<AlignedBuf>,
    pub(crate) state: CachePadded<Mutex<State>>,
    /// Signals that the running transaction admits handles again.
    pub(super) opened: Condvar,
    /// Signals that the last handle of a locked transaction stopped.
    idle: Condvar,
    /// Signals that all expected threads wait for a commit.
    pub(crate) gathered: Condvar,
    /// Signals that a commit ended.
    pub(crate) ended: Condvar,
    /// State of fast commits; `None` while they are off. Held across I/O by the committing thread.
    pub(crate) fast: Option<Mutex<FastCommits>>,
    /// Properties and counts of the byte log, if fast commits go there.
    pub(crate) byte_log: Option<Arc<ByteLogState>>,
    /// Most bytes of notes that a transaction keeps for fast commits.
    notes_limit: Option<usize>,
    /// Handle numbers given out in the running transaction.
    pub(crate) numbers: CachePadded<AtomicU64>,
    /// The last durable transaction.
    pub(crate) durable: AtomicU64,
    /// The number that transaction 0 has in the log: the last one of the earlier session.
    tid_zero: Tid,
    pub(super) limits: Limits,
    pub(super) one: bool,
    /// The abort's errno was written to the log, or the write was tried.
    abort_recorded: AtomicBool,
    pub(crate) counts: Counts,
    pub(crate) clock: CommitClock,
    pub(crate) signal: Arc<Signal>,
}

impl Transactions {
    pub(crate) fn new(
        cache: Arc<MetaCache>,
        volume: Arc<Watched>,
        mut log: Log,
        options: &JournalOptions,
    ) -> Self {
        let fast_commits = options.fast_commits && !options.one_transaction;
        log.set_features(options.checksums, options.wide, fast_commits);
        let ring = options.byte_log.and_then(|batch| ByteLog::open(&log, &volume, batch));
        let byte_log = ring.as_ref().map(|ring| Arc::clone(ring.state()));
        let sink = match ring {
            Some(ring) => Some(Box::new(ring) as Box<dyn Sink>),
            None => BlockArea::of(&log, &volume).map(|area| Box::new(area) as Box<dyn Sink>),
        };
        let notes_limit = sink.as_ref().map(|sink| sink.capacity().min(NOTES_MAX));
        let fast = sink.map(FastCommits::new);
        let area = LogArea::of(&log);
        let len = u64::from(area.cycle.len()) - 1;
        let limits = match options.one_transaction {
            true => Limits::of_one_transaction(len),
            false => Limits::of_log(len, cache.limit_blocks() as u64),
        };
        let state = State {
            running: Running::new(1, notes_limit),
            new_handles: NewHandles::Admitted,
            holds: 0,
            committing: false,
            space: LogSpace::new(&area, log.empty_head()),
            gathering: Gathering::default(),
            recorded: RecordedMark::default(),
        };
        cache.running.store(1, Ordering::Release);
        Transactions {
            cache,
            volume,
            area,
            tid_zero: log.superblock().sequence,
            log: Mutex::new(Rank::JournalState, log),
            buffer: Mutex::new(Rank::JournalState, AlignedBuf::zeroed(0)),
            state: CachePadded::new(Mutex::new(Rank::JournalState, state)),
            opened: Condvar::new(),
            idle: Condvar::new(),
            gathered: Condvar::new(),
            ended: Condvar::new(),
            fast: fast.map(|fast| Mutex::new(Rank::JournalState, fast)),
            byte_log,
            notes_limit,
            numbers: CachePadded::default(),
            durable: AtomicU64::new(0),
            limits,
            one: options.one_transaction,
            abort_recorded: AtomicBool::new(false),
            counts: Counts::default(),
            clock: Arc::clone(&options.clock),
            signal: Arc::new(Signal::default()),
        }
    }

    /// Whether everything is one transaction.
    pub(crate) fn is_one(&self) -> bool {
        self.one
    }

    /// The number that transaction `seq` has in the log.
    pub(crate) fn tid_of(&self, seq: Seq) -> Tid {
        // Numbers in the log wrap, [`Seq`] does not.
        Tid(self.tid_zero.0.wrapping_add(seq as u32))
    }

    /// The last durable transaction.
    pub(crate) fn durable(&self) -> Seq {
        self.durable.load(Ordering::Acquire)
    }

    /// The next number in the running transaction: for a handle, or for the position of its notes.
    pub(crate) fn next_nr(&self) -> u64 {
        self.numbers.fetch_add(1, Ordering::AcqRel) + 1
    }

    /// Adds the changes of a handle to its transaction, and ends the handle.
    pub(crate) fn stop(&self, credits: Credits, place: HandlePosition, done: &mut HandleChanges) {
        let mut state = self.state.lock();
        self.merge(&mut state, credits, place, done);
        state.running.handles -= 1;
        if state.running.handles == 0 && state.new_handles != NewHandles::Admitted {
            self.idle.notify_all();
        }
    }

    pub(super) fn merge(
        &self,
        state: &mut State,
        credits: Credits,
        place: HandlePosition,
        done: &mut HandleChanges,
    ) {
        let running = &mut state.running;
        running.merge(credits, place, done);
        let large = running.blocks.len() as u64 > self.limits.soft;
        if large && !std::mem::replace(&mut running.commit_requested, true) {
            self.signal.request_commit();
        }
    }

    /// Locks the running transaction, waits for its handles and opens the next one. Returns the
    /// closed one, with log space reserved for it; `None` if it has no changes.
    pub(crate) fn close_running(&self) -> Option<Running> {
        let mut state = self.state.lock();
        self.lock_running(&mut state);
        let closed = (!state.running.is_empty()).then(|| {
            let next = Running::new(state.running.seq + 1, self.notes_limit);
            let closed = std::mem::replace(&mut state.running, next);
            self.numbers.store(0, Ordering::Release);
            state.space.reserve(closed.needed(&self.area, Credits::default()));
            self.cache.running.store(state.running.seq, Ordering::Release);
            closed
        });
        state.gathering.close();
        self.unlock_running(&mut state);
        closed
    }

    /// Admits no handles to the running transaction, and waits until those in it stop.
    pub(crate) fn lock_running(&self, state: &mut MutexGuard<'_, State>) {
        if state.new_handles == NewHandles::Admitted {
            state.new_handles = NewHandles::Waiting;
        }
        let mut patience = Patience::default();
        while state.running.handles > 0 {
            self.idle.wait_soon(state, &mut patience);
        }
    }

    /// Admits handles again, unless the journal was closed.
    pub(crate) fn unlock_running(&self, state: &mut State) {
        if state.new_handles == NewHandles::Waiting {
            state.new_handles = NewHandles::Admitted;
        }
        self.opened.notify_all();
    }

    /// Lets new handles wait until the result is dropped. Those that run continue, and commits are
    /// possible. The caller has no handle.
    pub(crate) fn hold_handles(&self) -> HandlesHeld<'_> {
        self.state.lock().holds += 1;
        HandlesHeld { transactions: self }
    }

    /// Admits no handles from now on.
    pub(crate) fn refuse_handles(&self) -> MutexGuard<'_, State> {
        let mut state = self.state.lock();
        state.new_handles = NewHandles::Refused;
        self.opened.notify_all();
        state
    }

    /// How long until the running transaction is older than `interval`.
    pub(crate) fn time_left(&self, interval: Duration) -> Duration {
        match self.state.lock().running.since {
            Some(since) => interval.saturating_sub(since.elapsed()),
            None => interval,
        }
    }

    /// Rule J9: an abort ends all commits for good. If the log's superblock can be written, it
    /// keeps the errno of `error`, or EIO. Only the first call counts.
    pub(crate) fn abort(&self, error: Option<&Error>) {
        self.cache.abort_in(self.tid_of(self.durable() + 1));
        if !self.abort_recorded.swap(true, Ordering::AcqRel) {
            self.log.lock().put_errno(-error.map_or(5, Error::errno));
        }
        let _state = self.state.lock();
        self.opened.notify_all();
        self.ended.notify_all();
    }
}

/// New handles wait while this exists.
pub(crate) struct HandlesHeld<'a> {
    transactions: &'a Transactions,
}

impl Drop for HandlesHeld<'_> {
    fn drop(&mut self) {
        self.transactions.state.lock().holds -= 1;
        self.transactions.opened.notify_all();
    }
}
