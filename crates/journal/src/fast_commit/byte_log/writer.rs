//! Appending fast commits to the ring.
//!
//! ```text
//!   records ──add──► bytes in memory ─► flush, where file data was written ─► ring ─► durable
//!                    │                                                        └► block 0, first
//!                    └ no room: nothing was touched; a full commit instead        in an epoch
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

/// Bytes that a power cut does not tear.
const SECTOR: usize = 512;

/// What a byte log is worth, and what went into it.
#[derive(Debug)]
pub(crate) struct ByteLogState {
    pub(crate) persistence_domain: PersistenceDomain,
    pub(crate) way: Way,
    /// Records with a header of their own.
    pub(crate) records: AtomicU64,
    /// Bytes stored, headers and padding included.
    pub(crate) bytes: AtomicU64,
}

/// The writing end of the byte log.
pub(crate) struct ByteLog {
    volume: Arc<Watched>,
    dax: Arc<dyn Dax>,
    ring: Ring,
    batch: usize,
    /// Where the epoch is; `None` before its first fast commit.
    epoch: Option<Cursor>,
    /// Block 0 is as an older life left it.
    is_stale: bool,
    /// Memory for the next fast commit's bytes.
    buffer: Vec<u8>,
    /// Block 0 of the area: where, and the memory for it.
    first_block: (ByteOffset, AlignedBuf),
    state: Arc<ByteLogState>,
}

impl ByteLog {
    /// The byte log of `log`, when that lies on `volume`, its area in one piece, and the device
    /// offers a window onto it. `batch` is the limit up to which records are gathered.
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

    /// What it is worth, and what went into it.
    pub(crate) fn state(&self) -> &Arc<ByteLogState> {
        &self.state
    }

    /// Starts a fast commit of transaction `tid`. Rule B1: behind the last one of its epoch.
    fn begin(&mut self, tid: Tid) -> FastCommitBytes {
        let from = match self.epoch {
            Some(cursor) if cursor.tid == tid => cursor,
            _ => Cursor::start(tid, self.ring),
        };
        FastCommitBytes::new(self.ring, from, self.batch, std::mem::take(&mut self.buffer))
    }

    /// Makes a fast commit durable. Errors: `Device`; what is in the log then is not known.
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

    /// Writes block 0, whose live bytes lie in one sector: it is there or not.
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
    fn room(&self) -> usize {
        let head = self.epoch.map_or(self.ring.base, |epoch| epoch.head);
        usize::try_from(self.ring.end - head).unwrap_or(usize::MAX)
    }

    fn put(&mut self, tid: Tid, records: &[u8]) -> Result<bool> {
        let mut commit = self.begin(tid);
        if !whole_records(records).all(|record| commit.add(record)) {
            self.buffer = commit.into_buffer();
            return Ok(false);
        }
        // Rule B4: any line may reach the medium by itself once it is stored, so the data goes first.
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
        // Rule B3: an older life's ANCHOR may have the number of a transaction to come. An old HEAD does no
        // harm here, but to e2fsck, which may meet the volume after a clean close.
        self.volume.write_at(self.first_block.0, &[0; SECTOR])
    }

    fn full(&self) -> Ineligible {
        Ineligible::ByteLogFull
    }
}
