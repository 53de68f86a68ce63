//! Logs for tests, written block by block.
//!
//! ```text
//!   volume block   0 ........ 127 │ 128 ............ │ 128 + half ...... │
//!                  home           │ log, second half │ log, first half   │
//! ```

use crate::{HomeLimits, Log, LogMap, LogRun, Recovery};
use extant_base::{BlockNr, BlockSize, ByteOffset, Result, Tid};
use extant_blockdev::BlockDevice;
use extant_ondisk::fast_commit::{BlockWriter, FcSum, Record};
use extant_ondisk::jbd2::commit::TransactionCrc;
use extant_ondisk::jbd2::{
    BlockSum, Commit, DescriptorWriter, JournalCompat, JournalFeatures, JournalIncompat,
    JournalRoCompat, JournalSuperblock, LogFormat, RevokeWriter, header,
};
use extant_testdev::TestDevice;
use std::sync::Arc;

pub(crate) const SIZE: usize = 1024;
/// Blocks before the log.
pub(crate) const HOME: u64 = 128;
/// What home blocks hold before a replay.
pub(crate) const OLD: u8 = 0xEE;

/// Every layout a log can have.
pub(crate) const KINDS: [(BlockSum, bool); 8] = [
    (BlockSum::None, false),
    (BlockSum::None, true),
    (BlockSum::V1, false),
    (BlockSum::V1, true),
    (BlockSum::V2, false),
    (BlockSum::V2, true),
    (BlockSum::V3, false),
    (BlockSum::V3, true),
];

/// A volume with a log that is being written.
#[derive(Clone)]
pub(crate) struct TestLog {
    pub(crate) image: Vec<u8>,
    pub(crate) superblock: JournalSuperblock,
    pub(crate) tid: Tid,
    /// The next log block to write.
    pub(crate) at: u32,
    crc: TransactionCrc,
    fast_at: u32,
}

impl TestLog {
    /// A log of 64 blocks, or of 1024 and `fast` more, whose transaction `tid` starts at block
    /// `start`.
    pub(crate) fn new((sum, wide): (BlockSum, bool), tid: u32, start: u32, fast: u32) -> TestLog {
        let maxlen = if fast > 0 { 1024 + fast } else { 64 };
        let mut incompat = JournalIncompat::REVOKE;
        incompat.set(JournalIncompat::BIT64, wide);
        incompat.set(JournalIncompat::CSUM_V2, sum == BlockSum::V2);
        incompat.set(JournalIncompat::CSUM_V3, sum == BlockSum::V3);
        incompat.set(JournalIncompat::FAST_COMMIT, fast > 0);
        let mut compat = JournalCompat::empty();
        compat.set(JournalCompat::CHECKSUM, sum == BlockSum::V1);
        let superblock = JournalSuperblock {
            block_size: BlockSize::ALL[0],
            maxlen,
            first: 1,
            sequence: Tid(tid),
            start: Some(start),
            errno: 0,
            features: JournalFeatures { compat, incompat, ro_compat: JournalRoCompat::empty() },
            uuid: *b"the journal uuid",
            fast_commit_blocks: fast,
            head: 0,
            is_v1: false,
            nr_users: 1,
        };
        let mut log = TestLog {
            image: vec![OLD; (HOME as usize + maxlen as usize) * SIZE],
            superblock,
            tid: Tid(tid),
            at: start,
            crc: TransactionCrc::default(),
            fast_at: 0,
        };
        log.image[HOME as usize * SIZE..].fill(0);
        log.put_superblock();
        log
    }

    pub(crate) fn map(&self) -> LogMap {
        let (maxlen, half) = (self.superblock.maxlen, self.superblock.maxlen / 2);
        let at = |block: u64| ByteOffset(block * SIZE as u64);
        let runs = vec![
            LogRun { first: 0, count: half, at: at(HOME + u64::from(maxlen - half)) },
            LogRun { first: half, count: maxlen - half, at: at(HOME) },
        ];
        LogMap::new(BlockSize::ALL[0], runs).unwrap()
    }

    pub(crate) fn format(&self) -> LogFormat {
        self.superblock.log_format()
    }

    pub(crate) fn block_mut(&mut self, block: u32) -> &mut [u8] {
        let at = self.map().locate(block).unwrap().0.0 as usize;
        &mut self.image[at..at + SIZE]
    }

    pub(crate) fn put_superblock(&mut self) {
        let superblock = self.superblock.clone();
        superblock.write(self.block_mut(0));
    }

    pub(crate) fn put(&mut self, bytes: &[u8]) {
        self.block_mut(self.at).copy_from_slice(bytes);
        let end = self.superblock.log_end().unwrap();
        self.at = if self.at + 1 == end { 1 } else { self.at + 1 };
    }

    /// A descriptor and its copies, blocks filled with one value each.
    pub(crate) fn log(&mut self, blocks: &[(u64, u8)]) {
        let blocks: Vec<_> = blocks.iter().map(|(nr, value)| (*nr, [*value; SIZE])).collect();
        self.log_bytes(&blocks);
    }

    pub(crate) fn log_bytes(&mut self, blocks: &[(u64, [u8; SIZE])]) {
        let format = self.format();
        let mut bytes = [0; SIZE];
        let mut writer = DescriptorWriter::new(&mut bytes, format, self.tid);
        let mut copies = Vec::new();
        for (nr, copy) in blocks {
            let mut copy = *copy;
            let escape = header::needs_escape(&copy);
            if escape {
                header::escape(&mut copy);
            }
            assert!(writer.push(BlockNr(*nr), escape, format.copy_sum(self.tid, &copy)));
            copies.push(copy);
        }
        writer.finish();
        self.crc = self.crc.with(&bytes);
        self.put(&bytes);
        for copy in copies {
            self.crc = self.crc.with(&copy);
            self.put(&copy);
        }
    }

    pub(crate) fn revoke(&mut self, blocks: &[u64]) {
        let mut bytes = [0; SIZE];
        let mut writer = RevokeWriter::new(&mut bytes, self.format(), self.tid);
        for nr in blocks {
            assert!(writer.push(BlockNr(*nr)));
        }
        writer.finish();
        self.put(&bytes);
    }

    pub(crate) fn commit(&mut self, seconds: u64) {
        let mut bytes = [0; SIZE];
        Commit::write(&mut bytes, &self.format(), self.tid, (seconds, 5), self.crc);
        self.put(&bytes);
        self.tid = self.tid.next();
        self.crc = TransactionCrc::default();
    }

    /// A transaction of one descriptor.
    pub(crate) fn transaction(&mut self, blocks: &[(u64, u8)]) {
        self.log(blocks);
        self.commit(1000 + u64::from(self.tid.0));
    }

    /// The log block of fast-commit block `k`.
    pub(crate) fn fast_block(&self, k: u32) -> u32 {
        self.superblock.log_end().unwrap() + 1 + k
    }

    /// A fast commit of `records`, after the last one. HEAD comes first in block 0.
    pub(crate) fn fast(&mut self, tid: Tid, records: &[Record<'_>]) {
        let mut records = records.to_vec();
        if self.fast_at == 0 {
            records.insert(0, Record::Head { tid });
        }
        let mut sum = FcSum::default();
        let mut rest = &records[..];
        loop {
            let mut bytes = [0; SIZE];
            let mut writer = BlockWriter::new(&mut bytes, sum);
            while let Some(record) = rest.first()
                && writer.record(record)
            {
                rest = &rest[1..];
            }
            let done = match rest.is_empty() {
                true => writer.tail(tid),
                false => Err(writer.pad()),
            };
            let at = self.fast_block(self.fast_at);
            self.block_mut(at).copy_from_slice(&bytes);
            self.fast_at += 1;
            match done {
                Ok(()) => break,
                Err(carried) => sum = carried,
            }
        }
    }

    pub(crate) fn limits(&self) -> HomeLimits {
        let volume_blocks = (self.image.len() / SIZE) as u64;
        HomeLimits { volume_blocks, log_on_volume: true, inode_bytes: 256 }
    }

    pub(crate) fn device(&self) -> Arc<TestDevice> {
        Arc::new(TestDevice::new(self.image.clone()))
    }

    pub(crate) fn open<D: BlockDevice + 'static>(&self, device: &Arc<D>) -> Result<Log> {
        Log::open(Arc::clone(device) as Arc<dyn BlockDevice>, self.map())
    }

    /// Recovers a copy of the image. Returns the result and the image.
    pub(crate) fn recover(&self) -> (Result<Recovery>, Home) {
        let device = self.device();
        let recovery = self.open(&device).and_then(|log| log.recover(&*device, self.limits()));
        (recovery, Home(device.content()))
    }
}

/// An image after a replay.
pub(crate) struct Home(pub(crate) Vec<u8>);

impl Home {
    pub(crate) fn block(&self, nr: u64) -> &[u8] {
        &self.0[nr as usize * SIZE..][..SIZE]
    }

    /// The value that fills block `nr`.
    #[track_caller]
    pub(crate) fn value(&self, nr: u64) -> u8 {
        let block = self.block(nr);
        assert!(block.iter().all(|byte| *byte == block[0]), "block {nr} is mixed");
        block[0]
    }
}
