//! The transactions of a journal with a log: who may join, and when one is full.
//!
//! ```text
//!             commit begins       last handle stops       commit block durable
//!   Running ────────────► Locked ──────────────► Flushing ────────────► Committed
//!      ▲ start, stop                                 └─ any error: abort ─┘  └─► its blocks go home
//!      │                                │
//!      └────────── the next one ◄───────┘ opens while this one is written
//! ```
//!
//! There is always exactly one running transaction and at most one that is being written. What a
//! handle does costs one short lock at its start and one at its stop.

use crate::background::Signal;
use crate::block::Seq;
use crate::byte_log::{ByteLog, ByteLogState};
use crate::cache::MetaCache;
use crate::commit::Handles;
use crate::fast_commit::{FastCommits, ToldMark};
use crate::fast_commit_area::BlockArea;
use crate::flushes::Watched;
use crate::gathering::Gathering;
use crate::handle::{Credits, Done, Place};
use crate::log::Log;
use crate::log_space::{Limits, LogSpace};
use crate::log_stream::LogArea;
use crate::running::Running;
use crate::sink::Sink;
use crate::stats::Counts;
use extant_base::lock::{Condvar, Mutex, MutexGuard, Patience, Rank};
use extant_base::{CachePadded, Error, Result, Tid};
use extant_blockdev::AlignedBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

/// Most bytes of notes that a transaction keeps: from there on a full commit is little more.
const NOTES_MAX: usize = 1 << 20;

/// The time, as seconds and nanoseconds since 1970.
pub type CommitClock = Arc<dyn Fn() -> (u64, u32) + Send + Sync>;

/// How a journal with a log behaves.
#[derive(Clone)]
pub struct JournalOptions {
    /// How old a transaction may become before it is committed though nobody asks. `None`: as old
    /// as it likes, and there is no thread in the background.
    pub commit_interval: Option<Duration>,
    /// Nothing commits before [`Journal::sync`](crate::Journal::sync) or
    /// [`Journal::close`](crate::Journal::close), and all of it at once.
    pub one_transaction: bool,
    /// The volume has checksums, so the log gets them too.
    pub checksums: bool,
    /// The volume has 64-bit block numbers, so the log gets them too.
    pub wide: bool,
    /// Syncs of files are fast commits where the log has room for them and the change allows it.
    /// The volume must have the feature.
    pub fast_commits: bool,
    /// Fast commits are stored into the log's device as memory, where it can be reached so, its area
    /// in one piece: up to this many bytes of records are gathered, at most 4096.
    pub byte_log: Option<usize>,
    /// What commit blocks are dated with.
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

/// What all threads share, behind one short lock.
pub(crate) struct State {
    pub(crate) running: Running,
    /// The running transaction takes no more handles: it is about to be written.
    locked: bool,
    /// A thread is committing.
    pub(crate) committing: bool,
    pub(crate) space: LogSpace,
    pub(crate) gathering: Gathering,
    /// How far fast commits came.
    pub(crate) told: ToldMark,
    closed: bool,
}

/// What a handle that wants to start has to do first.
enum Admission {
    Granted,
    /// The running transaction is full.
    Commit(Seq),
    /// The log is.
    MakeSpace(u64),
}

/// The transactions of one journal.
pub(crate) struct Transactions {
    pub(crate) cache: Arc<MetaCache>,
    /// The volume's device, the same one that `cache` has.
    pub(crate) volume: Arc<Watched>,
    pub(crate) area: LogArea,
    /// The log's superblock; held across I/O. Taken before `state` where both are.
    pub(crate) log: Mutex<Log>,
    /// What the committing thread gathers its writes in; held across I/O.
    pub(crate) buffer: Mutex<AlignedBuf>,
    pub(crate) state: CachePadded<Mutex<State>>,
    /// The running transaction takes handles again.
    opened: Condvar,
    /// The last handle of a locked transaction stopped.
    idle: Condvar,
    /// All threads wait for a commit that are expected to.
    pub(crate) gathered: Condvar,
    /// A commit ended.
    pub(crate) ended: Condvar,
    /// Fast commits, while they are on; held across I/O, by who commits.
    pub(crate) fast: Option<Mutex<FastCommits>>,
    /// What the byte log is worth, where fast commits go there.
    pub(crate) byte_log: Option<Arc<ByteLogState>>,
    /// Bytes of notes that a transaction keeps for them.
    notes_limit: Option<usize>,
    /// Numbers given out in the running transaction.
    pub(crate) numbers: CachePadded<AtomicU64>,
    /// The last durable transaction.
    pub(crate) durable: AtomicU64,
    /// The number of transaction 0, which the log's last life ended with.
    tid_zero: Tid,
    limits: Limits,
    one: bool,
    /// The errno of the abort was written, or that was tried.
    gave_up: AtomicBool,
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
        let notes_limit = sink.as_ref().map(|sink| sink.room().min(NOTES_MAX));
        let fast = sink.map(FastCommits::new);
        let area = LogArea::of(&log);
        let len = u64::from(area.cycle.len()) - 1;
        let limits = match options.one_transaction {
            true => Limits::of_one_transaction(len),
            false => Limits::of_log(len, cache.limit_blocks() as u64),
        };
        let state = State {
            running: Running::new(1, notes_limit),
            locked: false,
            committing: false,
            space: LogSpace::new(&area, log.empty_head()),
            gathering: Gathering::default(),
            told: ToldMark::default(),
            closed: false,
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
            gave_up: AtomicBool::new(false),
            counts: Counts::default(),
            clock: Arc::clone(&options.clock),
            signal: Arc::new(Signal::default()),
        }
    }

    /// Whether everything is one transaction.
    pub(crate) fn is_one(&self) -> bool {
        self.one
    }

    /// What the log calls transaction `seq`.
    pub(crate) fn tid_of(&self, seq: Seq) -> Tid {
        // Numbers of the log wrap where ours do not.
        Tid(self.tid_zero.0.wrapping_add(seq as u32))
    }

    /// The last durable transaction.
    pub(crate) fn durable(&self) -> Seq {
        self.durable.load(Ordering::Acquire)
    }

    /// The next number of the running transaction: of a handle, or of its place among others.
    pub(crate) fn next_nr(&self) -> u64 {
        self.numbers.fetch_add(1, Ordering::AcqRel) + 1
    }

    /// Lets a handle into the running transaction; its place there. Waits while it is full or
    /// about to be written, and works on that.
    ///
    /// Errors: `Aborted`, `Device`, `TransactionTooLarge`; `ReadOnly` after the journal was closed.
    pub(crate) fn start(&self, credits: Credits) -> Result<Place> {
        let mut state = self.state.lock();
        let mut patience = Patience::default();
        loop {
            self.cache.refuse_if_aborted()?;
            if state.closed {
                return Err(Error::ReadOnly);
            }
            if state.locked {
                self.opened.wait_soon(&mut state, &mut patience);
                continue;
            }
            match self.admit(&state, credits)? {
                Admission::Granted => return Ok(state.running.enter(credits, self.next_nr())),
                Admission::Commit(seq) => {
                    drop(state);
                    self.commit_seq(seq, Handles::Await)?;
                }
                Admission::MakeSpace(wanted) => {
                    drop(state);
                    self.make_space(wanted)?;
                }
            }
            state = self.state.lock();
        }
    }

    fn admit(&self, state: &State, credits: Credits) -> Result<Admission> {
        let after = state.running.needed(&self.area, credits);
        if after <= self.limits.hard {
            let wanted = after + self.limits.margin;
            return Ok(match wanted <= state.space.unreserved() {
                true => Admission::Granted,
                false => Admission::MakeSpace(wanted),
            });
        }
        if self.one {
            return Err(Error::TransactionTooLarge { needed: after, limit: self.limits.hard });
        }
        self.check_size(credits)?;
        Ok(Admission::Commit(state.running.seq))
    }

    /// Refuses what no transaction has room for.
    pub(crate) fn check_size(&self, credits: Credits) -> Result<()> {
        let needed = self.area.needed(u64::from(credits.blocks), u64::from(credits.revokes));
        let limit = self.limits.hard;
        if needed > limit { Err(Error::TransactionTooLarge { needed, limit }) } else { Ok(()) }
    }

    /// Promises a running handle more, without waiting; `false` when there is no room.
    pub(crate) fn extend(&self, more: Credits) -> Result<bool> {
        let mut state = self.state.lock();
        let granted = matches!(self.admit(&state, more), Ok(Admission::Granted));
        if granted {
            state.running.promise(more);
        } else if self.one {
            let needed = state.running.needed(&self.area, more);
            return Err(Error::TransactionTooLarge { needed, limit: self.limits.hard });
        }
        Ok(granted)
    }

    /// Takes in what a handle did and promises it `next`, in the same transaction. An error leaves
    /// it with nothing promised.
    pub(crate) fn renew(
        &self,
        credits: Credits,
        place: Place,
        done: &mut Done,
        next: Credits,
    ) -> Result<()> {
        let mut state = self.state.lock();
        self.take_in(&mut state, credits, place, done);
        match self.admit(&state, next)? {
            Admission::Granted => state.running.promise(next),
            Admission::Commit(_) | Admission::MakeSpace(_) => {
                let needed = state.running.needed(&self.area, next);
                return Err(Error::TransactionTooLarge { needed, limit: self.limits.hard });
            }
        }
        Ok(())
    }

    /// Takes in what a handle did, and lets it go.
    pub(crate) fn stop(&self, credits: Credits, place: Place, done: &mut Done) {
        let mut state = self.state.lock();
        self.take_in(&mut state, credits, place, done);
        state.running.handles -= 1;
        if state.running.handles == 0 && state.locked {
            self.idle.notify_all();
        }
    }

    fn take_in(&self, state: &mut State, credits: Credits, place: Place, done: &mut Done) {
        let running = &mut state.running;
        running.take_in(credits, place, done);
        let large = running.blocks.len() as u64 > self.limits.soft;
        if large && !std::mem::replace(&mut running.told, true) {
            self.signal.ask_for_commit();
        }
    }

    /// Keeps handles out of the running transaction, waits for those in it and opens the next one.
    /// The closed one, with its place reserved in the log; `None` when nothing was changed.
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

    /// Keeps handles out of the running transaction and waits for those in it.
    pub(crate) fn lock_running(&self, state: &mut MutexGuard<'_, State>) {
        state.locked = true;
        let mut patience = Patience::default();
        while state.running.handles > 0 {
            self.idle.wait_soon(state, &mut patience);
        }
    }

    /// Lets handles in again.
    pub(crate) fn unlock_running(&self, state: &mut State) {
        state.locked = false;
        self.opened.notify_all();
    }

    /// Refuses handles from now on.
    pub(crate) fn refuse_handles(&self) -> MutexGuard<'_, State> {
        let mut state = self.state.lock();
        state.closed = true;
        self.opened.notify_all();
        state
    }

    /// How long the running transaction may stay, when none may become older than `interval`.
    pub(crate) fn time_left(&self, interval: Duration) -> Duration {
        match self.state.lock().running.since {
            Some(since) => interval.saturating_sub(since.elapsed()),
            None => interval,
        }
    }

    /// Rule J9: ends all commits for good, and says so in the log's superblock if it can be written: with
    /// the errno of `error`, or EIO. Only the first call counts.
    pub(crate) fn give_up(&self, error: Option<&Error>) {
        self.cache.abort_in(self.tid_of(self.durable() + 1));
        if !self.gave_up.swap(true, Ordering::AcqRel) {
            self.log.lock().put_errno(-error.map_or(5, Error::errno));
        }
        let _state = self.state.lock();
        self.opened.notify_all();
        self.ended.notify_all();
    }
}
