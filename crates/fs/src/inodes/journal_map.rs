//! The place of the volume's journal.
//!
//! ```text
//!   superblock ─┬─ journal_inum ──► inode 8 ──► its runs              inside the volume
//!               │                   └ unreadable: the copy in s_jnl_blocks
//!               └─ journal_uuid ──► another device, given by the caller
//! ```
//!
//! Source: ext4 documentation, "Journal (jbd2)". A journal has no holes and no unwritten blocks.

use crate::inodes::file::FileRef;
use crate::inodes::map::Target;
use crate::state::inode::Body;
use crate::volume::Volume;
use extant_base::{BlockSize, ByteOffset, Error, Ino, Result, Site, What};
use extant_blockdev::BlockDevice;
use extant_journal::{LogMap, LogRun};
use extant_ondisk::extent::EXTENT_MAGIC;
use extant_ondisk::features::Incompat;
use extant_ondisk::inode::{FileKind, Inode as DiskInode, InodeFlags};
use extant_ondisk::superblock::{RawSuperblock, SUPERBLOCK_OFFSET, SUPERBLOCK_SIZE};
use std::sync::Arc;
use zerocopy::FromBytes;

/// The file or device that holds the journal.
#[derive(Clone, Copy)]
pub(crate) struct JournalFile<'a> {
    volume: &'a Volume,
}

impl Volume {
    /// Where the journal of this volume lies.
    pub(crate) fn journal_file(&self) -> JournalFile<'_> {
        JournalFile { volume: self }
    }
}

/// The place of a journal: the device and the map of its log.
pub(crate) struct JournalPlace {
    /// The volume's own device, or the external one.
    pub(crate) device: Arc<dyn BlockDevice>,
    /// The places of the log's blocks on the device.
    pub(crate) map: LogMap,
}

impl JournalFile<'_> {
    /// The place of the journal; `None` when the volume has none.
    ///
    /// `external` is the device of an external journal. Errors: `JournalElsewhere` when the volume
    /// names an external journal and none was given; `JournalUuid` when the given one is another;
    /// `JournalInode`.
    pub(crate) fn place(
        self,
        external: Option<&Arc<dyn BlockDevice>>,
    ) -> Result<Option<JournalPlace>> {
        let superblock = self.volume.at_open();
        if !superblock.has_journal() {
            return Ok(None);
        }
        match Ino::new(superblock.journal_inum) {
            Some(ino) => {
                let map = self.map_of(ino)?;
                let device = Arc::clone(self.volume.device());
                Ok(Some(JournalPlace { device, map }))
            }
            None => {
                let missing = || Site::NOWHERE.corrupt(What::JournalElsewhere);
                let device = Arc::clone(external.ok_or_else(missing)?);
                let map =
                    external_log(&*device, self.volume.block_size(), &superblock.journal_uuid)?;
                Ok(Some(JournalPlace { device, map }))
            }
        }
    }

    fn map_of(self, ino: Ino) -> Result<LogMap> {
        let from_inode =
            self.volume.inodes().read(ino).and_then(|body| self.volume.file(&body).log_runs());
        match from_inode {
            Ok(map) => Ok(map),
            Err(error @ Error::Device { .. }) => Err(error),
            // The superblock keeps a copy of the map for exactly this case.
            Err(error) => match self.copy(ino) {
                Some(body) => self.volume.file(&body).log_runs(),
                None => Err(error),
            },
        }
    }

    /// The journal inode `ino`, built from the superblock's copy of its map and size.
    fn copy(self, ino: Ino) -> Option<Body> {
        if self.volume.at_open().jnl_backup_type != 1 {
            return None;
        }
        let words = &self.volume.at_open().jnl_blocks;
        let mut disk = DiskInode {
            mode: FileKind::Regular.mode_bits() | 0o600,
            links: 1,
            size: u64::from(words[16]) | u64::from(words[15]) << 32,
            ..DiskInode::default()
        };
        for (to, word) in disk.i_block.chunks_exact_mut(4).zip(words) {
            to.copy_from_slice(&word.to_le_bytes());
        }
        if words[0] & 0xFFFF == u32::from(EXTENT_MAGIC) {
            disk.flags.insert(InodeFlags::EXTENTS);
        }
        Some(Body::fresh(self.volume.context(), ino, disk))
    }
}

impl FileRef<'_> {
    /// The map of a log in an inode.
    ///
    /// Errors: `JournalInode` for an inode that cannot hold a log, or one with holes.
    pub(crate) fn log_runs(self) -> Result<LogMap> {
        let wrong = || Site::of_ino(self.ino()).corrupt(What::JournalInode);
        if self.body.file_kind() != FileKind::Regular || self.body.disk.links == 0 {
            return Err(wrong());
        }
        let size = self.volume.block_size();
        let blocks = u32::try_from(self.body.disk.size >> size.log2()).map_err(|_| wrong())?;
        // A log has no holes, so it has no more blocks than the volume.
        if u64::from(blocks) > self.volume.geometry().blocks_count() {
            return Err(wrong());
        }
        let mut runs: Vec<LogRun> = Vec::new();
        for run in self.runs(0..blocks) {
            let run = run?;
            let Target::Written(block) = run.target else { return Err(wrong()) };
            let at = size.start_of(block);
            match runs.last_mut() {
                Some(last) if last.at.0 + (u64::from(last.count) << size.log2()) == at.0 => {
                    last.count += run.len;
                }
                _ => runs.push(LogRun { first: run.logical.0, count: run.len, at }),
            }
        }
        LogMap::new(size, runs)
    }
}

/// The log on a journal device, which has a superblock with feature `journal_dev`, followed by the
/// log.
fn external_log(device: &dyn BlockDevice, size: BlockSize, uuid: &[u8; 16]) -> Result<LogMap> {
    let wrong = || Site::NOWHERE.corrupt(What::JournalUuid);
    let mut bytes = [0; SUPERBLOCK_SIZE];
    device.read_at(ByteOffset(SUPERBLOCK_OFFSET), &mut bytes)?;
    let raw = RawSuperblock::read_from_bytes(&bytes).map_err(|_| wrong())?;
    let superblock = raw.parse(Site::NOWHERE)?;
    let is_journal = superblock.features.incompat.contains(Incompat::JOURNAL_DEV);
    if !is_journal || superblock.uuid != *uuid || superblock.block_size != size {
        return Err(wrong());
    }
    // The journal's superblock follows the block with the device's superblock. Log blocks are
    // numbered from the device's start, so only log block 0 is not at the place of its number.
    let first = SUPERBLOCK_OFFSET / size.bytes() as u64 + 1;
    let blocks = superblock.blocks_count.min(device.len() >> size.log2());
    let count = u32::try_from(blocks).ok().filter(|count| u64::from(*count) > first + 1);
    let count = count.ok_or_else(wrong)?;
    LogMap::new(
        size,
        vec![
            LogRun { first: 0, count: 1, at: ByteOffset(first << size.log2()) },
            LogRun { first: 1, count: count - 1, at: ByteOffset(1 << size.log2()) },
        ],
    )
}
