//! Appending fast commits to the ring.
//!
//! ```text
//!   begin(tid) ──add──► bytes in memory ──store──► ring ──► block 0, in a new epoch ──► durable
//!                       │                  └ error: the caller gives up, as after a lost write
//!                       └ no room: nothing was touched; a full commit instead
//! ```

use crate::log::Log;
use extant_base::{ByteOffset, Result, Tid};
use extant_blockdev::{Dax, Promise, Way};
use extant_ondisk::byte_log::{Anchor, Cursor, FastCommitBytes, Ring};
use extant_ondisk::fast_commit::{BlockWriter, FcSum, Record};
use std::sync::Arc;

/// The writing end of the byte log.
pub(crate) struct ByteLog {
    dax: Arc<dyn Dax>,
    ring: Ring,
    batch: usize,
    /// Where the epoch is that was opened last.
    epoch: Option<Cursor>,
    /// Memory for the next fast commit's bytes.
    buffer: Vec<u8>,
}

impl ByteLog {
    /// The byte log of `log`, when its device offers a window and the area lies in one piece.
    /// `batch` is the limit up to which records are gathered.
    pub(crate) fn open(log: &Log, batch: usize) -> Option<ByteLog> {
        let superblock = log.superblock();
        let ring = Ring::new(superblock.fast_commit_blocks, superblock.block_size)?;
        let first = superblock.log_end()?.checked_add(1)?;
        let (at, run) = log.map().locate(first)?;
        if u64::from(run) << superblock.block_size.log2() < ring.end {
            return None;
        }
        let window = ByteOffset(at.0.checked_add(ring.base)?);
        let dax = log.device().dax(window, ring.end - ring.base)?;
        Some(ByteLog { dax, ring, batch, epoch: None, buffer: Vec::new() })
    }

    /// What survives of a fast commit that is durable, and how it is written back.
    pub(crate) fn promise(&self) -> (Promise, Way) {
        (self.dax.promise(), self.dax.way())
    }

    /// Starts a fast commit of transaction `tid`. Only when no full commit is on its way.
    pub(crate) fn begin(&mut self, tid: Tid) -> FastCommitBytes {
        let from = match self.epoch {
            Some(cursor) if cursor.tid == tid => cursor,
            _ => Cursor::start(tid, self.ring),
        };
        FastCommitBytes::new(self.ring, from, self.batch, std::mem::take(&mut self.buffer))
    }

    /// Takes the memory of a fast commit back that will not be.
    pub(crate) fn give_back(&mut self, commit: FastCommitBytes) {
        self.buffer = commit.into_buffer();
    }

    /// Makes a fast commit durable; the bytes it stored. Whatever the promise of the window says, the
    /// log's device has what was written to it before only after a flush of its own.
    ///
    /// Errors: `Device`; what is in the log then is not known.
    pub(crate) fn seal(&mut self, log: &Log, commit: FastCommitBytes) -> Result<usize> {
        let (bytes, end) = commit.finish();
        let at = end.head - bytes.len() as u64 - self.ring.base;
        self.dax.store(at, &bytes)?;
        self.dax.write_back(at, bytes.len() as u64)?;
        self.dax.fence()?;
        if self.epoch.is_none_or(|epoch| epoch.tid != end.tid) {
            self.open_epoch(log, end.tid)?;
        }
        self.epoch = Some(end);
        let len = bytes.len();
        self.buffer = bytes;
        Ok(len)
    }

    /// Writes block 0, whose live bytes lie in one sector.
    fn open_epoch(&self, log: &Log, tid: Tid) -> Result<()> {
        let superblock = log.superblock();
        let mut block = vec![0; superblock.block_size.bytes()];
        let mut writer = BlockWriter::new(&mut block, FcSum::default());
        let anchor = Anchor::open(tid, self.ring);
        let fits = writer.record(&Record::Head { tid }) && writer.record(&Record::Anchor(anchor));
        assert!(fits && writer.tail(tid).is_ok(), "three small records fit a block");
        log.write_fua(superblock.fast_commit_area().start, &block)
    }
}
