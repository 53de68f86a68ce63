//! Older copies of blocks, which the log still holds.
//!
//! ```text
//!   block at home: checksum wrong ──► newest committed copy in the log: checksum right? ─► taken
//! ```
//!
//! All metadata is written through the log, which is a ring. So if it has a copy of a block at all,
//! the newest one of a committed transaction is what was last written home. Only a tool that writes
//! past the log (e2fsck, debugfs, the replay of fast commits) makes a copy out of date, and such a
//! tool leaves right checksums. So a copy replaces only what is wrong at home.

use crate::replay::log_of;
use crate::volume::Volume;
use extant_base::narrow::fits_usize;
use extant_base::{BlockNr, Ino, Result, Tid};
use extant_journal::{Log, LogHistory};
use extant_ondisk::bitmap;
use extant_ondisk::inode::{Inode, checksum_is_right, is_zero_slot};
use hashbrown::HashSet;
use std::cell::{OnceCell, RefCell};

/// The longest log that is read, in blocks: the most that mke2fs makes.
const LOG_BLOCKS_MAX: u64 = 10_240_000;

/// The copies of a volume's log, which are found at the first question.
#[derive(Default)]
pub(crate) struct Older {
    copies: OnceCell<Option<Copies>>,
    /// Blocks that were replaced by their copy.
    taken: RefCell<HashSet<u64>>,
}

struct Copies {
    log: Log,
    history: LogHistory,
    committed: HashSet<Tid>,
}

impl Older {
    /// How many blocks were replaced by their copy.
    pub(crate) fn taken(&self) -> usize {
        self.taken.borrow().len()
    }

    /// The newest committed copy of `block`; `None` if the log has none, or if it is damaged.
    ///
    /// Errors: `Device`.
    pub(crate) fn newest(&self, volume: &Volume, block: u64) -> Result<Option<Vec<u8>>> {
        let copies = match self.copies.get() {
            Some(copies) => copies,
            None => {
                let read = read(volume)?;
                self.copies.get_or_init(|| read)
            }
        };
        let Some(copies) = copies else { return Ok(None) };
        let of_block = copies.history.copies_of(BlockNr(block));
        let newest = of_block.iter().find(|copy| copies.committed.contains(&copy.tid));
        let Some(newest) = newest else { return Ok(None) };
        let mut bytes = vec![0; volume.block_bytes()];
        Ok(copies.log.read_old(newest, &mut bytes)?.then_some(bytes))
    }
}

impl Volume {
    /// What a block is now if `is_right` accepts it, else the log's copy if `is_right` accepts
    /// that, which then replaces the block. If neither is right, what the block is now.
    ///
    /// Errors: `Device`.
    pub(crate) fn restored(
        &self,
        block: u64,
        now: Vec<u8>,
        is_right: impl Fn(&[u8]) -> bool,
    ) -> Result<Vec<u8>> {
        if is_right(&now) {
            return Ok(now);
        }
        match self.older.newest(self, block)? {
            Some(copy) if is_right(&copy) => {
                self.older.taken.borrow_mut().insert(block);
                self.disk.put(block, &copy)?;
                Ok(copy)
            }
            _ => Ok(now),
        }
    }

    /// The log's copy of an inode in use whose slot, `now`, is wrong: it has the wrong checksum, or
    /// it is empty though the bitmap says that it is used. The copy replaces the slot.
    ///
    /// Errors: `Device`.
    pub(crate) fn restored_slot(&self, ino: u32, now: &[u8]) -> Result<Option<Vec<u8>>> {
        let (Some(nr), Some(at)) = (Ino::new(ino), self.slot_at(ino)) else { return Ok(None) };
        let is_empty = is_zero_slot(now);
        if !is_empty && checksum_is_right(now, nr, &self.checksums) {
            return Ok(None);
        }
        let size = self.geometry.block_size();
        let Some(block) = self.older.newest(self, size.block_at(at).0)? else { return Ok(None) };
        let within = fits_usize(at.0) % size.bytes();
        let Some(copy) = block.get(within..within + now.len()) else { return Ok(None) };
        let in_use = Inode::parse_unverified(copy, nr, &self.format)
            .is_ok_and(|inode| inode.links > 0 && inode.kind().is_some());
        let right = in_use && checksum_is_right(copy, nr, &self.checksums);
        if !right || (is_empty && !self.is_marked(nr)?) {
            return Ok(None);
        }
        self.disk.put_bytes(at, copy)?;
        Ok(Some(copy.to_vec()))
    }

    /// Whether the bitmap says that an inode is in use.
    fn is_marked(&self, ino: Ino) -> Result<bool> {
        let Some(place) = self.geometry.inode_place(ino) else { return Ok(false) };
        let group = self.groups.get(place.group.0 as usize);
        let Some(group) = group.filter(|group| !group.inode_bitmap_lost) else { return Ok(false) };
        Ok(bitmap::test(&self.disk.read(group.desc.inode_bitmap.0)?, place.slot))
    }
}

fn read(volume: &Volume) -> Result<Option<Copies>> {
    let sb = volume.sb();
    if !sb.has_journal() || sb.journal_inum == 0 {
        return Ok(None);
    }
    let Some(log) = log_of(volume, volume.disk.device())? else { return Ok(None) };
    if u64::from(log.superblock().maxlen) > LOG_BLOCKS_MAX {
        return Ok(None);
    }
    let history = log.history()?;
    let committed = history.commits().iter().map(|commit| commit.tid).collect();
    Ok(Some(Copies { log, history, committed }))
}
