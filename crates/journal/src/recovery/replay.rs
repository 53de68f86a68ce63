//! Third pass over a log: writes the newest living copy of every block home.
//!
//! ```text
//!   log    5:[a b] 6:[c a'] 7:[b'] …   ──tags──►  a → log block of a'        newest wins
//!                                                 b → log block of b'
//!                                                 c → log block of c
//!   sorted by home, some MiB at a time:  read in log order ─► check, unescape ─► merged writes
//! ```
//!
//! Memory is bounded: the table holds at most [`WINDOW`] blocks and those of one descriptor. A
//! longer log is replayed in several rounds, older copies first. A replay can be cut and repeated:
//! it writes the same bytes each time.

use crate::log::open_log::Log;
use crate::recovery::revoke::RevokeTable;
use crate::recovery::scan::{Control, Scan};
use crate::recovery::superblock_last::{self, Amend};
use extant_base::{BlockNr, Error, Result, Tid, What};
use extant_blockdev::BlockDevice;
use extant_ondisk::jbd2::{Tag, TagFlags, Tags, header};
use hashbrown::HashMap;

/// The most blocks that one round of a replay writes home.
pub(crate) const WINDOW: usize = 1 << 20;
/// Bytes of copies in memory at a time.
const BATCH_BYTES: usize = 4 << 20;

/// The blocks that a log may write home.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HomeLimits {
    /// Blocks of the volume according to the superblock at home. The log may hold a newer
    /// superblock with more blocks. A logged block beyond the device is corruption.
    pub volume_blocks: u64,
    /// The log is a file of the volume, so a logged block inside the log is corruption.
    pub log_on_volume: bool,
    /// The size of an inode of the volume, the limit of an inode in a fast commit.
    pub inode_bytes: usize,
}

/// Counts of a replay.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(crate) struct Replayed {
    /// Blocks written home.
    pub(crate) blocks: u64,
    /// Copies that a later transaction revoked.
    pub(crate) revoked: u64,
}

/// Where the newest copy of a block lies.
#[derive(Clone, Copy)]
struct Newest {
    at: u32,
    tid: Tid,
    tag: Tag,
}

/// A replay in progress.
struct Replay<'a> {
    log: &'a Log,
    home: &'a dyn BlockDevice,
    newest: HashMap<u64, Newest>,
    done: Replayed,
    /// The first copy whose checksum was wrong.
    damaged: Option<Error>,
}

impl Log {
    /// Writes the newest living copy of every block in `scan` to `home`, without a flush.
    ///
    /// Blocks beyond the volume's end, by the superblocks at home and in the log, are left out; see
    /// [`Log::blocks_by_log`].
    ///
    /// Errors: `Device`; `Corrupt(JournalDescriptor | JournalTarget | SuperblockBeyondDevice)`,
    /// usually before anything is written; `Corrupt(JournalBlockChecksum)` after all other blocks
    /// are written.
    pub(crate) fn replay(
        &self,
        scan: &Scan,
        revoked: &RevokeTable,
        home: &dyn BlockDevice,
        limits: HomeLimits,
        window: usize,
        amend: Amend<'_>,
    ) -> Result<Replayed> {
        let (format, cycle) = (self.format(), self.cycle());
        let taken = if limits.log_on_volume { self.map().taken() } else { Vec::new() };
        let mut replay = Replay {
            log: self,
            home,
            newest: HashMap::new(),
            done: Replayed::default(),
            damaged: None,
        };
        let mut block = vec![0; format.block_size.bytes()];
        let device_blocks = home.len() >> format.block_size.log2();
        let mut end = limits.volume_blocks;
        let mut has_asked = false;
        for control in &scan.controls {
            let Control::Descriptor { block: at, tid } = *control else { continue };
            self.read_right(at, &mut block, &|bytes| Control::is_right(bytes, &format, tid))?;
            let site = self.site(at).tid(tid);
            for (step, tag) in (1..).zip(Tags::new(&block, format, site)) {
                let tag = tag?;
                if tag.block.0 >= device_blocks || is_in(&taken, tag.block) {
                    return Err(site.block(tag.block).corrupt(What::JournalTarget));
                }
                if tag.block.0 >= end && !std::mem::replace(&mut has_asked, true) {
                    end = end.max(self.blocks_by_log(scan, device_blocks)?);
                }
                if tag.block.0 >= end {
                    continue;
                }
                if revoked.hides(tag.block, tid) {
                    replay.done.revoked += 1;
                    continue;
                }
                replay.newest.insert(tag.block.0, Newest { at: cycle.after(at, step), tid, tag });
            }
            if replay.newest.len() > window {
                replay.write_window()?;
            }
        }
        replay.write_window()?;
        replay.write_superblock(amend)?;
        match replay.damaged {
            Some(error) => Err(error),
            None => Ok(replay.done),
        }
    }
}

fn is_in(ranges: &[(u64, u64)], block: BlockNr) -> bool {
    let before = ranges.partition_point(|(first, _)| *first <= block.0);
    ranges[..before].last().is_some_and(|(_, end)| block.0 < *end)
}

impl Replay<'_> {
    /// Writes the blocks of the table home, in device order. The superblock stays in the table.
    fn write_window(&mut self) -> Result<()> {
        let superblock = superblock_last::block_of(self.log.format().block_size).0;
        let last = self.newest.remove(&superblock);
        let mut blocks: Vec<Newest> = self.newest.drain().map(|(_, newest)| newest).collect();
        blocks.sort_unstable_by_key(|newest| newest.tag.block);
        let size = self.log.format().block_size.bytes();
        let most = BATCH_BYTES / size;
        let mut bytes = vec![0; most.min(blocks.len()) * size];
        for batch in blocks.chunks(most) {
            self.write_batch(batch, &mut bytes[..batch.len() * size])?;
        }
        self.newest.extend(last.map(|newest| (superblock, newest)));
        Ok(())
    }

    /// Writes the superblock home, after all other blocks.
    fn write_superblock(&mut self, amend: Amend<'_>) -> Result<()> {
        let format = self.log.format();
        let nr = superblock_last::block_of(format.block_size).0;
        let Some(newest) = self.newest.remove(&nr) else { return Ok(()) };
        let mut copy = vec![0; format.block_size.bytes()];
        self.log.read(newest.at, &mut copy)?;
        if let Err(error) = self.verified(&newest, &mut copy)? {
            self.damaged.get_or_insert(error);
            return Ok(());
        }
        if newest.tag.flags.contains(TagFlags::ESCAPE) {
            header::unescape(&mut copy);
        }
        superblock_last::amend(format.block_size, &mut copy, amend);
        superblock_last::write(self.home, format.block_size, &copy)?;
        self.done.blocks += 1;
        Ok(())
    }

    /// Reads the copies of `batch` into `bytes`, in log order, and writes the right ones home.
    fn write_batch(&mut self, batch: &[Newest], bytes: &mut [u8]) -> Result<()> {
        let format = self.log.format();
        let size = format.block_size.bytes();
        let mut by_log: Vec<usize> = (0..batch.len()).collect();
        by_log.sort_unstable_by_key(|i| batch[*i].at);
        // One read for neighbours that are adjacent both in the log and at home.
        let together =
            |a: &usize, b: &usize| *b == *a + 1 && batch[*b].at == batch[*a].at.wrapping_add(1);
        for run in by_log.chunk_by(together) {
            let into = run[0] * size..(run[0] + run.len()) * size;
            self.log.read(batch[run[0]].at, &mut bytes[into])?;
        }

        let mut good = 0;
        for (i, newest) in batch.iter().enumerate() {
            let copy = &mut bytes[i * size..(i + 1) * size];
            match self.verified(newest, copy)? {
                Ok(()) if newest.tag.flags.contains(TagFlags::ESCAPE) => header::unescape(copy),
                Ok(()) => (),
                Err(error) => {
                    self.damaged.get_or_insert(error);
                    self.write_runs(&batch[good..i], &bytes[good * size..i * size])?;
                    good = i + 1;
                }
            }
        }
        self.write_runs(&batch[good..], &bytes[good * size..])
    }

    /// Whether `copy` matches its tag. If not, another copy of the log replaces it, if one matches.
    ///
    /// Errors: `Device`.
    fn verified(&self, newest: &Newest, copy: &mut [u8]) -> Result<Result<()>> {
        let format = self.log.format();
        let verify = |copy: &[u8]| newest.tag.verify_copy(&format, newest.tid, copy);
        let first = verify(copy);
        if first.is_err() {
            self.log.read_right(newest.at, copy, &|copy| verify(copy).is_ok())?;
        }
        Ok(first.or_else(|_| verify(copy)))
    }

    /// Writes `blocks`, whose content is `bytes`, neighbours in one write.
    fn write_runs(&mut self, blocks: &[Newest], bytes: &[u8]) -> Result<()> {
        let block_size = self.log.format().block_size;
        let neighbours = |a: &Newest, b: &Newest| b.tag.block.0 == a.tag.block.0 + 1;
        let mut from = 0;
        for run in blocks.chunk_by(neighbours) {
            let upto = from + run.len() * block_size.bytes();
            self.home.write_at(block_size.start_of(run[0].tag.block), &bytes[from..upto])?;
            from = upto;
        }
        self.done.blocks += blocks.len() as u64;
        Ok(())
    }
}
