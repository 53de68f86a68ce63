//! Appends fast commits to the ring.
//!
//! ```text
//!   records ──add──► bytes in memory ─► flush, where file data was written ─► ring ─► durable
//!                    │                                                        └► block 0, first
//!                    └ does not fit: nothing is written; a full commit instead     in an epoch
//! ```

use crate::fast_commit::sink::Sink;
use crate::log::open_log::Log;
use crate::log::watched::Watched;
use crate::log::watched::is_same_device;
use crate::records::ineligible::Ineligible;
use extant_base::{ByteOffset, Result, Tid};
use extant_blockdev::{AlignedBuf, BlockDevice, Dax, PersistenceDomain, Way};
use extant_ondisk::byte_log::{Anchor, Cursor, FastCommitBytes, Ring};
use extant_ondisk::fast_commit::{BlockWriter, FcSum, Record, whole_records};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// Bytes that a power cut leaves whole.
const SECTOR: usize = 512;

/// Properties and counts of a byte log.
#[derive(Debug)]
pub(crate) struct ByteLogState {
    pub(crate) persistence_domain: PersistenceDomain,
    pub(crate) way: Way,
    /// Records with a header of their own.
    pub(crate) records: AtomicU64,
    /// Bytes stored, headers and padding included.
    pub(crate) bytes: AtomicU64,
}

/// The writer of a byte log.
pub(crate) struct ByteLog {
    volume: Arc<Watched>,
    dax: Arc<dyn Dax>,
    ring: Ring,
    batch: usize,
    /// The end of the epoch's records; `None` before its first fast commit.
    epoch: Option<Cursor>,
    /// Block 0 still holds what an earlier session wrote.
    is_stale: bool,
    /// Memory for the bytes of the next fast commit.
    buffer: Vec<u8>,
    /// Block 0 of the area: its place, and memory for it.
    first_block: (ByteOffset, AlignedBuf),
    state: Arc<ByteLogState>,
}

impl ByteLog {
    /// The byte log of `log`; `None` unless the log lies on `volume`, its area is one run, and the
    /// device maps it. Records of at most `batch` bytes are gathered.
    pub(crate) fn open(log: &Log, volume: &Arc<Watched>, batch: usize) -> Option<ByteLog> {
        let superblock = log.superblock();
        let area = superblock.fast_commit_area();
        let ring = Ring::new(superblock.fast_commit_blocks, superblock.block_size)?;
        let (at, run) = log.map().locate(area.start).filter(|_| !area.is_empty())?;
        let in_one_piece = u64::from(run) << superblock.block_size.log2() >= ring.end;
        let of_the_volume =
            is_same_device(log.device(), &(Arc::clone(volume) as Arc<dyn BlockDevice>));
        if !in_one_piece || !of_the_volume {
            return None;
        }
        let window = ByteOffset(at.0.checked_add(ring.base)?);
        let dax = volume.dax(window, ring.end - ring.base)?;
        let state = ByteLogState {
            persistence_domain: dax.persistence_domain(),
            way: dax.way(),
            records: AtomicU64::new(0),
            bytes: AtomicU64::new(0),
        };
        Some(ByteLog {
            volume: Arc::clone(volume),
            dax,
            ring,
            batch,
            epoch: None,
            is_stale: true,
            buffer: Vec::new(),
            first_block: (at, AlignedBuf::zeroed(superblock.block_size.bytes())),
            state: Arc::new(state),
        })
    }

    /// Its properties and counts.
    pub(crate) fn state(&self) -> &Arc<ByteLogState> {
        &self.state
    }

    /// Starts a fast commit of transaction `tid`. Rule B1: it is appended to the last one of its
    /// epoch.
    fn begin(&mut self, tid: Tid) -> FastCommitBytes {
        let from = match self.epoch {
            Some(cursor) if cursor.tid == tid => cursor,
            _ => Cursor::start(tid, self.ring),
        };
        FastCommitBytes::new(self.ring, from, self.batch, std::mem::take(&mut self.buffer))
    }

    /// Makes a fast commit durable. Errors: `Device`; the content of the log is unknown then.
    fn seal(&mut self, commit: FastCommitBytes) -> Result<()> {
        let (bytes, end) = commit.finish();
        let len = bytes.len() as u64;
        let at = end.head - len - self.ring.base;
        self.dax.store(at, &bytes)?;
        self.dax.write_back(at, len)?;
        self.dax.fence()?;
        let opened = self.epoch.filter(|epoch| epoch.tid == end.tid);
        if opened.is_none() {
            self.open_epoch(end.tid)?;
        }
        let before = opened.map_or(0, |epoch| epoch.seq);
        self.state.records.fetch_add(end.seq - before, Ordering::Relaxed);
        self.state.bytes.fetch_add(len, Ordering::Relaxed);
        self.epoch = Some(end);
        self.buffer = bytes;
        Ok(())
    }

    /// Writes block 0. The bytes in use lie in one sector, so the block is written whole or not at
    /// all.
    fn open_epoch(&mut self, tid: Tid) -> Result<()> {
        let (at, block) = &mut self.first_block;
        let mut writer = BlockWriter::new(block, FcSum::default());
        let anchor = Anchor::open(tid, self.ring);
        let fits = writer.record(&Record::Head { tid }) && writer.record(&Record::Anchor(anchor));
        assert!(fits && writer.tail(tid).is_ok(), "three small records fit a block");
        self.volume.write_fua(*at, block)
    }
}

impl Sink for ByteLog {
    fn capacity(&self) -> usize {
        let head = self.epoch.map_or(self.ring.base, |epoch| epoch.head);
        usize::try_from(self.ring.end - head).unwrap_or(usize::MAX)
    }

    fn put(&mut self, tid: Tid, records: &[u8]) -> Result<bool> {
        let mut commit = self.begin(tid);
        if !whole_records(records).all(|record| commit.add(record)) {
            self.buffer = commit.into_buffer();
            return Ok(false);
        }
        // Rule B4: each cache line may reach the medium as soon as it is stored, so file data is
        // flushed first.
        if !self.volume.is_flushed(self.volume.mark()) {
            self.volume.flush()?;
        }
        self.seal(commit)?;
        Ok(true)
    }

    fn new_epoch(&mut self) -> Result<()> {
        let was_open = self.epoch.take().is_some();
        if !std::mem::take(&mut self.is_stale) && !was_open {
            return Ok(());
        }
        // Rule B3: an ANCHOR of an earlier session may have the number of a future transaction.
        // This crate ignores an old HEAD, but e2fsck, which may check the volume after a clean
        // close, does not.
        self.volume.write_at(self.first_block.0, &[0; SECTOR])
    }

    fn full_reason(&self) -> Ineligible {
        Ineligible::ByteLogFull
    }
}
