//! The journal: who may change metadata, and when changes reach the device.
//!
//! ```text
//!   Journal::off    start → Handle → change blocks → stop        changes stay in the cache
//!                   start, get      dirty limit passed?          write-out of the older half
//!                   sync            everything dirty home, one flush
//!
//!   with_log        start → Handle → change blocks → stop        changes are the running transaction's
//!                   commit(tid)     the log, two flushes         durable, whole or absent
//!                   later           home, then their place in the log is free
//! ```
//!
//! After the first write or flush that fails the journal refuses new handles: a lost write is
//! never retried past.

use crate::background::Background;
use crate::cache::{CacheOptions, MetaCache};
use crate::changes::{CommitPoint, Snapshot};
use crate::commit::{Flushed, Handles};
use crate::flushes::Watched;
use crate::handle::{Credits, Handle, assert_no_handle};
use crate::log::Log;
use crate::stats::{ByteLogStats, JournalStats};
use crate::transactions::{JournalOptions, Transactions};
use extant_base::{BlockSize, Error, Result, Site, Tid, What};
use extant_blockdev::{BlockDevice, PersistenceDomain, Way};
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Owns the metadata cache, and the log when there is one.
///
/// Dropped without [`Journal::close`] it leaves the volume as a power cut would.
pub struct Journal {
    cache: Arc<MetaCache>,
    /// Ended before the transactions go.
    _background: Option<Background>,
    transactions: Option<Arc<Transactions>>,
}

impl std::fmt::Debug for Journal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Journal").field("cache", &self.cache).finish_non_exhaustive()
    }
}

impl Journal {
    /// A journal without a log: changes go home from the cache, in device order, with no promise
    /// about which arrive before a crash until [`Journal::sync`] returns.
    pub fn off(
        device: Arc<dyn BlockDevice>,
        block_size: BlockSize,
        options: CacheOptions,
    ) -> Journal {
        let device = Watched::new(device) as Arc<dyn BlockDevice>;
        let cache = Arc::new(MetaCache::new(device, block_size, options));
        Journal { cache, _background: None, transactions: None }
    }

    /// A journal of the volume on `device` with `log`, which was recovered and is empty. Nothing
    /// is written before the first commit.
    ///
    /// Errors: `Corrupt(JournalSuperblock)` when the log is not empty or has no room for anything.
    pub fn with_log(
        device: Arc<dyn BlockDevice>,
        block_size: BlockSize,
        cache: CacheOptions,
        mut log: Log,
        options: JournalOptions,
    ) -> Result<Journal> {
        if log.needs_recovery() || log.cycle().len() < 2 {
            return Err(Site::NOWHERE.corrupt(What::JournalSuperblock));
        }
        let volume = Watched::new(device);
        volume.put_under(&mut log);
        let device = Arc::clone(&volume) as Arc<dyn BlockDevice>;
        let cache = Arc::new(MetaCache::new(device, block_size, cache));
        let transactions = Transactions::new(Arc::clone(&cache), volume, log, &options);
        let transactions = Arc::new(transactions);
        let interval = options.commit_interval.filter(|_| !options.one_transaction);
        let background = interval.map(|interval| Background::start(&transactions, interval));
        Ok(Journal { cache, _background: background, transactions: Some(transactions) })
    }

    /// Whether there is no log.
    #[inline]
    pub fn is_off(&self) -> bool {
        self.transactions.is_none()
    }

    /// Whether nothing is committed before the end.
    pub fn is_one_transaction(&self) -> bool {
        self.transactions().is_some_and(Transactions::is_one)
    }

    /// The cache of metadata blocks.
    #[inline]
    pub fn cache(&self) -> &MetaCache {
        &self.cache
    }

    /// The volume's device, as file data is to be written to it: what goes another way is not known
    /// to [`Journal::commit_with_data`].
    pub fn device(&self) -> &Arc<dyn BlockDevice> {
        self.cache.device()
    }

    #[inline]
    pub(crate) fn transactions(&self) -> Option<&Transactions> {
        self.transactions.as_deref()
    }

    /// Starts a change that may dirty `credits.blocks` metadata blocks and revoke
    /// `credits.revokes`.
    ///
    /// Can wait for room, so it comes before any lock above `Rank::Handle`. One thread has one
    /// handle at a time: a nested start is a bug and panics. Errors: `Aborted` after a failed
    /// write; `Device` when making room fails; `TransactionTooLarge`; `ReadOnly` once closed.
    #[track_caller]
    pub fn start(&self, credits: Credits) -> Result<Handle<'_>> {
        self.cache
            .refuse_if_aborted()
            .and_then(|()| self.cache.relieve())
            .inspect_err(|_| self.give_up())?;
        Handle::begin(self, credits)
    }

    /// Returns when all changes of transaction `tid` are durable. Many threads that ask together
    /// share one commit.
    ///
    /// The caller has no handle and no lock above `Rank::Handle`. Without a log nothing is done.
    /// Errors: `Device` for who led the commit that failed, `Aborted` for all others.
    #[track_caller]
    pub fn commit(&self, tid: Tid) -> Result<()> {
        assert_no_handle();
        match self.transactions() {
            Some(transactions) => transactions.commit(tid).map(drop),
            None => self.cache.refuse_if_aborted(),
        }
    }

    /// Returns when the changes of `step`'s handle, and of all before it, are durable, and all file
    /// data written before the call: what an fsync asks for.
    ///
    /// Data counts that was written through [`Journal::device`]; without any since the last flush,
    /// and nothing to commit, nothing is done. With a `snapshot` a fast commit will do: for a regular file.
    /// Without it is a full one, as [`Journal::commit`]. Without a log this is [`Journal::sync`]. Errors: as there.
    #[track_caller]
    pub fn commit_with_data(
        &self,
        step: CommitPoint,
        snapshot: Option<&dyn Snapshot>,
    ) -> Result<()> {
        assert_no_handle();
        let Some(transactions) = self.transactions() else { return self.sync() };
        let written = transactions.volume.mark();
        transactions.commit_step(step, snapshot)?;
        if transactions.volume.is_flushed(written) { Ok(()) } else { self.flush() }
    }

    /// The newest step that is durable: of the running transaction if a fast commit told of it.
    /// Without a log always that of transaction 0.
    pub fn durable_step(&self) -> CommitPoint {
        let Some(transactions) = self.transactions() else {
            return CommitPoint { tid: Tid(0), nr: 0 };
        };
        let told = transactions.state.lock().told;
        let durable = transactions.durable();
        match told.seq > durable {
            true => CommitPoint { tid: transactions.tid_of(told.seq), nr: told.nr },
            false => CommitPoint { tid: transactions.tid_of(durable), nr: u64::MAX },
        }
    }

    /// What survives of a fast commit in the byte log, and how its cache lines are written back;
    /// `None` where fast commits do not go there.
    pub fn byte_log(&self) -> Option<(PersistenceDomain, Way)> {
        let state = self.transactions()?.byte_log.as_ref()?;
        Some((state.persistence_domain, state.way))
    }

    /// What was committed since the journal was opened, and how. Without a log nothing.
    pub fn stats(&self) -> JournalStats {
        match self.transactions() {
            Some(transactions) => {
                let stats = transactions.counts.read(transactions.has_fast_commits());
                let byte_log = transactions.byte_log.as_ref().map(|state| ByteLogStats {
                    records: state.records.load(Ordering::Relaxed),
                    bytes: state.bytes.load(Ordering::Relaxed),
                });
                JournalStats { byte_log, ..stats }
            }
            None => JournalStats::default(),
        }
    }

    /// The newest transaction that is durable. Without a log always 0.
    pub fn committed(&self) -> Tid {
        match self.transactions() {
            Some(transactions) => transactions.tid_of(transactions.durable()),
            None => Tid(0),
        }
    }

    /// Whether transaction `tid` is durable. Without a log every one counts as that.
    pub fn is_durable(&self, tid: Tid) -> bool {
        self.is_off() || !tid.is_after(self.committed())
    }

    /// Makes everything that was changed before the call durable, file data included: with a log
    /// by a commit, or one flush when there is nothing to commit; without one by writing every
    /// dirty block home in device order and flushing.
    ///
    /// Errors: `Device`, `Aborted`; the journal is aborted then.
    #[track_caller]
    pub fn sync(&self) -> Result<()> {
        let Some(transactions) = self.transactions() else {
            self.cache.write_back(0)?;
            return self.cache.flush();
        };
        assert_no_handle();
        match transactions.commit_all(Handles::Ignore)? {
            Flushed::Since => Ok(()),
            Flushed::Earlier => self.flush(),
        }
    }

    /// Whether fast commits told all that handles did since the last full commit: a full one would make
    /// nothing durable but what records leave out. Without a log never.
    pub fn is_all_told(&self) -> bool {
        self.transactions().is_some_and(|transactions| {
            let state = transactions.state.lock();
            state.told.covers(state.running.seq, transactions.numbers.load(Ordering::Acquire))
        })
    }

    /// Makes the file data durable that was written before the call; metadata is not touched.
    ///
    /// Errors: `Device`, `Aborted`; the journal is aborted then.
    pub fn flush(&self) -> Result<()> {
        self.cache.flush().inspect_err(|_| self.give_up())
    }

    /// Writes dirty blocks home, in device order, until at most `down_to_bytes` are left dirty:
    /// with a log only what is committed. Nothing is flushed.
    pub fn write_back(&self, down_to_bytes: usize) -> Result<()> {
        self.cache.write_back(down_to_bytes).inspect_err(|_| self.give_up())
    }

    /// Whether the journal gave up: nothing is written through it any more.
    pub fn is_aborted(&self) -> bool {
        self.cache.refuse_if_aborted().is_err()
    }

    /// Gives up on purpose, as after a failed write: what is not committed yet never is, and nothing is
    /// changed any more. For changes that can neither be finished nor taken back.
    ///
    /// `error` leaves its errno in the log. Locks: as a commit, and a handle may run.
    #[cold]
    pub fn abort(&self, error: &Error) {
        match self.transactions() {
            Some(transactions) => transactions.give_up(Some(error)),
            None => self.cache.abort(),
        }
    }

    /// Leaves a note of an abort in the log.
    #[cold]
    fn give_up(&self) {
        if let Some(transactions) = self.transactions() {
            transactions.give_up(None);
        }
    }

    /// Commits everything, brings everything home and leaves the log empty, all durable; no handle
    /// starts after it. The caller may then clear the volume's RECOVER flag. Without a log this is
    /// [`Journal::sync`].
    ///
    /// Errors: `Device`, `Aborted`; the log then still holds what is not home.
    #[track_caller]
    pub fn close(&self) -> Result<()> {
        assert_no_handle();
        match self.transactions() {
            Some(transactions) => transactions.close(),
            None => self.sync(),
        }
    }
}
