//! A volume with its journal on a device of its own, both recorded as one device.
//!
//! ```text
//!   ├──────────── volume ───────────┼─────── journal ───────┤     one log of device operations
//!         flush here ──────────────►│ does not affect this part, and vice versa
//! ```

use extant::superblock::Superblock;
use extant::{BlockDevice, BlockSize, Result};
use extant_base::{BlockNr, ByteOffset, Site, Tid};
use extant_blockdev::MemoryDevice;
use extant_ondisk::features::{Compat, Features, Incompat};
use extant_ondisk::jbd2::{JournalFeatures, JournalIncompat, JournalSuperblock};
use extant_ondisk::superblock::{RawSuperblock, SUPERBLOCK_OFFSET};
use extant_testdev::Recorder;
use std::sync::Arc;

/// The UUID of the journal.
const JOURNAL_UUID: [u8; 16] = *b"the journal's id";

/// A device of which a part can be flushed alone.
pub trait FlushPart: BlockDevice {
    /// Flushes the `len` bytes from `at` on.
    fn flush_part(&self, at: ByteOffset, len: u64) -> Result<()>;
}

impl FlushPart for MemoryDevice {
    fn flush_part(&self, _: ByteOffset, _: u64) -> Result<()> {
        Ok(())
    }
}

impl FlushPart for Recorder<MemoryDevice> {
    fn flush_part(&self, at: ByteOffset, len: u64) -> Result<()> {
        self.flush_range(at, len)
    }
}

/// One of the two parts.
#[derive(Debug)]
pub struct Part<D> {
    device: Arc<D>,
    start: u64,
    len: u64,
}

impl<D: FlushPart> Part<D> {
    /// The part of `device` from `start` on.
    pub fn new(device: Arc<D>, start: u64, len: u64) -> Part<D> {
        Part { device, start, len }
    }

    fn place(&self, at: ByteOffset, len: u64) -> ByteOffset {
        assert!(at.0 + len <= self.len, "{} + {len} lies behind the end {}", at.0, self.len);
        ByteOffset(self.start + at.0)
    }
}

impl<D: FlushPart> BlockDevice for Part<D> {
    fn len(&self) -> u64 {
        self.len
    }

    fn read_at(&self, at: ByteOffset, buf: &mut [u8]) -> Result<()> {
        self.device.read_at(self.place(at, buf.len() as u64), buf)
    }

    fn write_at(&self, at: ByteOffset, buf: &[u8]) -> Result<()> {
        self.device.write_at(self.place(at, buf.len() as u64), buf)
    }

    fn flush(&self) -> Result<()> {
        self.device.flush_part(ByteOffset(self.start), self.len)
    }

    fn write_fua(&self, at: ByteOffset, buf: &[u8]) -> Result<()> {
        self.device.write_fua(self.place(at, buf.len() as u64), buf)
    }

    fn discard(&self, at: ByteOffset, len: u64) -> Result<()> {
        self.device.discard(self.place(at, len), len)
    }

    fn zero(&self, at: ByteOffset, len: u64) -> Result<()> {
        self.device.zero(self.place(at, len), len)
    }
}

/// Makes `journal` the journal of the volume on `volume`, which has none, with fast commits if
/// requested. mkfs omits that feature if it makes no journal.
pub fn attach(
    volume: &dyn BlockDevice,
    journal: &dyn BlockDevice,
    fast_commits: bool,
) -> Result<()> {
    let mut bytes = [0; 1024];
    volume.read_at(ByteOffset(SUPERBLOCK_OFFSET), &mut bytes)?;
    let raw = RawSuperblock::from_prefix_mut(&mut bytes).expect("1024 bytes are a superblock");
    let mut superblock = raw.parse(Site::NOWHERE)?;
    superblock.features.compat.insert(Compat::HAS_JOURNAL);
    superblock.features.compat.set(Compat::FAST_COMMIT, fast_commits);
    superblock.journal_uuid = JOURNAL_UUID;
    superblock.update_raw(raw);
    volume.write_at(ByteOffset(SUPERBLOCK_OFFSET), &bytes)?;
    let size = superblock.block_size;
    let blocks = journal.len() >> size.log2();
    write_head(journal, size, blocks)?;
    write_log(journal, size, blocks, superblock.uuid)
}

/// The superblock that identifies the device.
fn write_head(journal: &dyn BlockDevice, size: BlockSize, blocks: u64) -> Result<()> {
    let mut head = Superblock::new(size);
    head.blocks_count = blocks;
    head.uuid = JOURNAL_UUID;
    head.features = Features { incompat: Incompat::JOURNAL_DEV, ..Features::default() };
    journal.write_at(ByteOffset(SUPERBLOCK_OFFSET), &head.to_raw().to_bytes())
}

/// An empty log in the block after it.
fn write_log(
    journal: &dyn BlockDevice,
    size: BlockSize,
    blocks: u64,
    user: [u8; 16],
) -> Result<()> {
    let first = SUPERBLOCK_OFFSET / size.bytes() as u64 + 1;
    let incompat = JournalIncompat::REVOKE | JournalIncompat::BIT64 | JournalIncompat::CSUM_V3;
    let log = JournalSuperblock {
        block_size: size,
        maxlen: blocks as u32,
        first: first as u32 + 1,
        sequence: Tid(1),
        start: None,
        errno: 0,
        features: JournalFeatures { incompat, ..JournalFeatures::NONE },
        uuid: JOURNAL_UUID,
        fast_commit_blocks: 256,
        head: 0,
        is_v1: false,
        nr_users: 1,
    };
    let mut block = vec![0; size.bytes()];
    JournalSuperblock::put_user(&mut block, 0, user);
    log.write(&mut block);
    journal.write_at(size.start_of(BlockNr(first)), &block)
}
