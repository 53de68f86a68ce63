//! The journal: permission to change metadata, and when changes reach the device.
//!
//! ```text
//!   Journal::off    start → Handle → change blocks → stop    changes stay in the cache
//!                   start, get      dirty limit passed?      write-out of the older half
//!                   sync            all dirty blocks home, one flush
//!
//!   with_log        start → Handle → change blocks → stop    changes join the running transaction
//!                   commit(tid)     the log, two flushes     durable, whole or absent
//!                   later           home, then their log space is free
//! ```
//!
//! After the first write or flush that fails, the journal refuses new handles. It never retries a
//! write that may have been lost.

use crate::cache::meta_cache::{CacheOptions, MetaCache};
use crate::commit::background::Background;
use crate::commit::leader::{Flushed, Handles};
use crate::commit::one_handle::assert_no_handle;
use crate::commit::point::CommitPoint;
use crate::commit::stats::{ByteLogStats, JournalStats};
use crate::commit::transactions::{JournalOptions, Transactions};
use crate::log::open_log::Log;
use crate::log::watched::Watched;
use crate::records::changes::Snapshot;
use extant_base::{BlockSize, Error, Result, Site, Tid, What};
use extant_blockdev::{BlockDevice, PersistenceDomain, Way};
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// Owns the metadata cache, and the log when there is one.
///
/// Dropping it without [`Journal::close`] leaves the volume as a power cut would.
pub struct Journal {
    cache: Arc<MetaCache>,
    /// Dropped before the transactions.
    _background: Option<Background>,
    transactions: Option<Arc<Transactions>>,
}

impl std::fmt::Debug for Journal {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Journal").field("cache", &self.cache).finish_non_exhaustive()
    }
}

impl Journal {
    /// A journal without a log. The cache writes changes home in device order. Until
    /// [`Journal::sync`] returns, a crash may leave any of them on the device and lose the others.
    pub fn off(
        device: Arc<dyn BlockDevice>,
        block_size: BlockSize,
        options: CacheOptions,
    ) -> Journal {
        let device = Watched::new(device) as Arc<dyn BlockDevice>;
        let cache = Arc::new(MetaCache::new(device, block_size, options));
        Journal { cache, _background: None, transactions: None }
    }

    /// A journal of the volume on `device` with `log`, which has been recovered and is empty.
    /// Nothing is written before the first commit.
    ///
    /// # Errors
    /// `Corrupt(JournalSuperblock)` when the log is not empty or has space for fewer than 2 blocks.
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
        volume.watch_log(&mut log);
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

    /// Whether [`JournalOptions::one_transaction`] is set: all changes are one transaction.
    pub fn is_one_transaction(&self) -> bool {
        self.transactions().is_some_and(Transactions::is_one)
    }

    /// The cache of metadata blocks.
    #[inline]
    pub fn cache(&self) -> &MetaCache {
        &self.cache
    }

    /// The volume's device. File data must be written through it: [`Journal::commit_with_data`]
    /// does not know of writes that take another path.
    pub fn device(&self) -> &Arc<dyn BlockDevice> {
        self.cache.device()
    }

    #[inline]
    pub(crate) fn transactions(&self) -> Option<&Transactions> {
        self.transactions.as_deref()
    }

    /// Returns when all changes of transaction `tid` are durable. Threads that wait at the same
    /// time share one commit.
    ///
    /// The caller has no handle and no lock above `Rank::Handle`. Without a log this does nothing.
    ///
    /// # Errors
    /// `Device` for the thread whose commit failed; `Aborted` for all others.
    #[track_caller]
    pub fn commit(&self, tid: Tid) -> Result<()> {
        assert_no_handle();
        match self.transactions() {
            Some(transactions) => transactions.commit(tid).map(drop),
            None => self.cache.refuse_if_aborted(),
        }
    }

    /// Returns when the changes up to `point` are durable, and all file data that was written
    /// before the call. This is what an fsync needs.
    ///
    /// Only file data that was written through [`Journal::device`] counts. If none was written
    /// since the last flush and there is nothing to commit, no request is sent. With a `snapshot`,
    /// which the caller gives for regular files, a fast commit may do the work. Without one the
    /// commit is a full one, as by [`Journal::commit`]. Without a log this is [`Journal::sync`].
    ///
    /// # Errors
    /// As [`Journal::commit`] and [`Journal::sync`].
    #[track_caller]
    pub fn commit_with_data(
        &self,
        point: CommitPoint,
        snapshot: Option<&dyn Snapshot>,
    ) -> Result<()> {
        assert_no_handle();
        let Some(transactions) = self.transactions() else { return self.sync() };
        let written = transactions.volume.mark();
        transactions.commit_to(point, snapshot)?;
        if transactions.volume.is_flushed(written) { Ok(()) } else { self.flush() }
    }

    /// The newest commit point that is durable. It lies in the running transaction if a fast commit
    /// recorded changes of that. Without a log it is always that of transaction 0.
    pub fn durable_point(&self) -> CommitPoint {
        let Some(transactions) = self.transactions() else {
            return CommitPoint { tid: Tid(0), nr: 0 };
        };
        let recorded = transactions.state.lock().recorded;
        let durable = transactions.durable();
        match recorded.seq > durable {
            true => CommitPoint { tid: transactions.tid_of(recorded.seq), nr: recorded.nr },
            false => CommitPoint { tid: transactions.tid_of(durable), nr: u64::MAX },
        }
    }

    /// The persistence domain of the byte log, and how its cache lines are written back; `None`
    /// when fast commits do not go to a byte log.
    pub fn byte_log(&self) -> Option<(PersistenceDomain, Way)> {
        let state = self.transactions()?.byte_log.as_ref()?;
        Some((state.persistence_domain, state.way))
    }

    /// Counts of commits since the journal was opened. Without a log all are 0.
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

    /// Whether transaction `tid` is durable. Without a log the answer is always yes.
    pub fn is_durable(&self, tid: Tid) -> bool {
        self.is_off() || !tid.is_after(self.committed())
    }

    /// Makes every change from before the call durable, file data included. With a log it commits,
    /// or sends one flush when there is nothing to commit. Without a log it writes all dirty blocks
    /// home in device order and flushes.
    ///
    /// # Errors
    /// `Device`, `Aborted`; the journal is aborted then.
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

    /// Makes every change from before the call durable at home, where a reader of the volume finds
    /// it without the log. New handles wait meanwhile: a block that joins the next transaction
    /// cannot go home, see rule J4, and [`Journal::sync`] with [`Journal::write_back`] leaves it
    /// out. So call these two first, which make this call short.
    ///
    /// # Errors
    /// `Device`, `Aborted`; the journal is aborted then.
    #[track_caller]
    pub fn sync_home(&self) -> Result<()> {
        let Some(transactions) = self.transactions() else { return self.sync() };
        assert_no_handle();
        let _held = transactions.hold_handles();
        transactions.commit_all(Handles::Await)?;
        self.write_back(0)?;
        self.flush()
    }

    /// Whether fast commits recorded all changes since the last full commit. A full commit would
    /// then make nothing durable but fields that records leave out. Without a log always `false`.
    pub fn is_all_recorded(&self) -> bool {
        self.transactions().is_some_and(|transactions| {
            let state = transactions.state.lock();
            state.recorded.covers(state.running.seq, transactions.numbers.load(Ordering::Acquire))
        })
    }

    /// Makes the file data durable that was written before the call; metadata is not written.
    ///
    /// # Errors
    /// `Device`, `Aborted`; the journal is aborted then.
    pub fn flush(&self) -> Result<()> {
        self.cache.flush().inspect_err(|_| self.record_abort())
    }

    /// Writes dirty blocks home, in device order, until at most `down_to_bytes` are dirty. With a
    /// log it writes committed blocks only. It does not flush.
    ///
    /// # Errors
    /// `Device`, `Aborted`; the journal is aborted then.
    pub fn write_back(&self, down_to_bytes: usize) -> Result<()> {
        self.cache.write_back(down_to_bytes).inspect_err(|_| self.record_abort())
    }

    /// Whether the journal is aborted: it writes nothing any more.
    pub fn is_aborted(&self) -> bool {
        self.cache.refuse_if_aborted().is_err()
    }

    /// Aborts the journal, as a failed write does: for a change that can neither be finished nor
    /// undone. What is not committed by now never will be, and no change is possible any more.
    ///
    /// The log keeps the errno of `error`.
    #[cold]
    pub fn abort(&self, error: &Error) {
        match self.transactions() {
            Some(transactions) => transactions.abort(Some(error)),
            None => self.cache.abort(),
        }
    }

    /// Records an abort in the log's superblock.
    #[cold]
    pub(crate) fn record_abort(&self) {
        if let Some(transactions) = self.transactions() {
            transactions.abort(None);
        }
    }

    /// Commits everything, writes everything home and leaves the log empty, all of it durable. No
    /// handle starts after it. The caller may then clear the volume's RECOVER flag. Without a log
    /// this is [`Journal::sync`].
    ///
    /// # Errors
    /// `Device`, `Aborted`; the log then still holds all blocks that are not home.
    #[track_caller]
    pub fn close(&self) -> Result<()> {
        assert_no_handle();
        match self.transactions() {
            Some(transactions) => transactions.close(),
            None => self.sync(),
        }
    }
}
