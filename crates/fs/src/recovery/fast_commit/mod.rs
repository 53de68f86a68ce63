//! Applying fast commits: what fsync left behind the log.
//!
//! ```text
//!   begin    blocks to be mapped are marked as used, so that nothing else takes them
//!   records  INODE ─► fields   ADD/DEL_RANGE ─► map   CREAT/LINK/UNLINK ─► names
//!   finish   links from names counted; inodes without one freed; blocks, sectors, bitmaps agree
//! ```
//!
//! The volume that the records are applied to is whole: a committed transaction. So links need not
//! be believed from the log: names put in and taken out are counted, and what is on disk plus that
//! count is the truth. Blocks that are freed on the way stay marked until the end, as the writer
//! did not reuse them either before the next commit.
//!
//! Rule: records are believed as far as they make sense together. One that names an inode that is
//! not there is passed over (a later one removed it), as is one that would break a rule of the
//! format; the latter is reported. Source: ext4 documentation, "Fast Commits".

mod finish;
mod inode;
mod names;
mod ranges;

use crate::inode::{Ask, Inode};
use crate::recovery::RecoveryReport;
use crate::recovery::orphans::OrphanRecords;
use crate::volume::Volume;
use extant_base::{BlockNr, Error, Ino, Result, Site, What};
use extant_journal::{Credits, FastCommitLog, Handle};
use extant_ondisk::fast_commit::Record;
use extant_ondisk::features::Incompat;
use extant_ondisk::inode::FileKind;
use hashbrown::HashMap;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Credits of one record; a handle of recovery has no log to reserve in.
const CREDITS: Credits = Credits { blocks: 256, revokes: 256 };

/// What is known of an inode that the records touch.
#[derive(Clone, Copy, Debug)]
struct Touched {
    /// Directory entries that name it, "." and ".." not counted.
    names: i64,
    /// Directories below it; `None`: too many to count, as its one link says.
    subdirectories: Option<i64>,
    /// A directory that was made here and has no "." yet.
    is_raw: bool,
    /// Sectors charged to the inode for attribute values in inodes of their own.
    charged: u64,
}

impl Touched {
    /// A fresh inode that so many entries name.
    fn fresh(names: i64, is_raw: bool) -> Touched {
        Touched { names, subdirectories: Some(0), is_raw, charged: 0 }
    }
}

/// Fast commits being applied.
struct Replay<'a> {
    volume: &'a Volume,
    records: Vec<Record<'a>>,
    /// Where each inode's INODE records stand.
    inode_records: HashMap<Ino, Vec<usize>>,
    touched: BTreeMap<Ino, Touched>,
    /// Blocks that were marked only to keep them.
    kept: Vec<(BlockNr, u64)>,
    orphans: OrphanRecords,
    /// Blocks that may still be mapped. Hardly any block is given out twice between two commits,
    /// so a log that maps several times what the volume has is crafted.
    room: u64,
    report: &'a mut RecoveryReport,
}

/// Applies `log` to `volume`, whose freed blocks stay marked ([`Space::take_freed_later`](crate::space::Space::take_freed_later)).
///
/// Errors: `NoSpace` when a directory or a tree needs a block and none is left; `Corrupt` for
/// damage outside the records; `Device`. The volume is in no state to be kept then.
pub(super) fn apply(
    volume: &Volume,
    log: &FastCommitLog,
    report: &mut RecoveryReport,
) -> Result<()> {
    let records: Vec<Record<'_>> = log.records().collect();
    let mut inode_records: HashMap<Ino, Vec<usize>> = HashMap::new();
    for (n, record) in records.iter().enumerate() {
        if let Record::Inode { ino, .. } = record {
            inode_records.entry(*ino).or_default().push(n);
        }
    }
    report.fast_commits = log.commits();
    let mut replay = Replay {
        volume,
        records,
        inode_records,
        touched: BTreeMap::new(),
        kept: Vec::new(),
        orphans: OrphanRecords::read(volume, report)?,
        room: volume.geometry().blocks_count().saturating_mul(4),
        report,
    };
    replay.keep(log.excluded())?;
    for n in 0..replay.records.len() {
        replay.apply(n)?;
    }
    replay.finish()
}

impl<'a> Replay<'a> {
    /// Marks the free blocks of `ranges` as used for the time of the replay.
    fn keep(&mut self, ranges: &[(BlockNr, u32)]) -> Result<()> {
        // Each block once, however often the log names it.
        let mut sorted: Vec<(u64, u64)> =
            ranges.iter().map(|(start, len)| (start.0, start.0 + u64::from(*len))).collect();
        sorted.sort_unstable();
        let mut done = 0;
        for (start, end) in sorted {
            let start = BlockNr(start.max(done));
            let Some(len) = end.checked_sub(start.0).filter(|len| *len > 0) else { continue };
            done = end;
            let runs = match self.volume.space().free_runs(start, len) {
                Ok(runs) => runs,
                // The record itself will be passed over.
                Err(Error::Corrupt { .. }) => continue,
                Err(error) => return Err(error),
            };
            let handle = self.volume.journal().start(CREDITS)?;
            for (first, len) in runs {
                self.volume.space().mark_blocks(&handle, first, len, true)?;
                self.kept.push((first, len));
            }
            handle.stop()?;
        }
        Ok(())
    }

    fn apply(&mut self, n: usize) -> Result<()> {
        let done = match self.records[n] {
            Record::Inode { ino, raw } => self.inode(ino, raw),
            Record::Create(change) | Record::Link(change) => self.add_name(n, change),
            Record::Unlink(change) => self.remove_name(change),
            Record::AddRange(range) => self.add_range(n, range),
            Record::DelRange { ino, first, len_blocks } => {
                self.del_range(n, ino, first, len_blocks)
            }
            Record::Head { .. } | Record::Pad | Record::Tail { .. } | Record::Anchor(_) => Ok(()),
        };
        match done {
            Err(error) if is_of_the_record(&error) => self.pass_over(error),
            done => return done,
        }
        Ok(())
    }

    /// Notes what was wrong with a record.
    fn pass_over(&mut self, error: Error) {
        self.volume.context().note_error(&error);
        self.report.problems.push(error);
    }

    /// The inode, if it is in use: by its bit, and with fields that make sense.
    fn find(&self, ino: Ino) -> Result<Option<Arc<Inode>>> {
        if self.volume.is_hidden(ino) {
            return Err(Site::of_ino(ino).corrupt(What::FastCommitInode));
        }
        if !self.volume.is_inode_marked(ino)? {
            return Ok(None);
        }
        match self.volume.inode_as(ino, Ask::Internal) {
            Ok(inode) => Ok(Some(inode)),
            // A slot that was never written.
            Err(Error::Corrupt { what: What::InodeMode | What::InodeNotMarked, .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// As [`Replay::find`]; where the inode is not there yet, an INODE record behind `n` may bring
    /// it.
    fn find_or_make(&mut self, n: usize, ino: Ino) -> Result<Option<Arc<Inode>>> {
        if let Some(inode) = self.find(ino)? {
            return Ok(Some(inode));
        }
        let Some(later) = self.later_inode(n, ino) else { return Ok(None) };
        self.inode(ino, later)?;
        self.find(ino)
    }

    /// The first INODE record of `ino` behind record `n`.
    fn later_inode(&self, n: usize, ino: Ino) -> Option<&'a [u8]> {
        let all = self.inode_records.get(&ino)?;
        let at = *all.get(all.partition_point(|at| *at <= n))?;
        match self.records[at] {
            Record::Inode { raw, .. } => Some(raw),
            _ => None,
        }
    }

    /// What is known of an inode in use.
    fn touch(&mut self, inode: &Inode) -> &mut Touched {
        let volume = self.volume;
        self.touched.entry(inode.ino).or_insert_with(|| {
            let body = inode.read();
            let charged = match volume.has_incompat(Incompat::EA_INODE) {
                true => volume
                    .count_sectors(inode.ino, &body)
                    .map_or(0, |own| body.sectors.saturating_sub(own)),
                false => 0,
            };
            let links = i64::from(body.links);
            match body.file_kind() {
                FileKind::Directory => Touched {
                    names: links.min(1),
                    subdirectories: (links != 1).then_some((links - 2).max(0)),
                    charged,
                    ..Touched::fresh(0, false)
                },
                _ => Touched { charged, ..Touched::fresh(links, false) },
            }
        })
    }

    fn handle(&self) -> Result<Handle<'a>> {
        self.volume.journal().start(CREDITS)
    }
}

/// Whether an error condemns one record and not the replay.
fn is_of_the_record(error: &Error) -> bool {
    matches!(
        error,
        Error::Corrupt { .. }
            | Error::Encrypted
            | Error::NameNotUtf8
            | Error::NameTooLong
            | Error::FileTooLarge
            | Error::LinkLimit
            | Error::Invalid(_)
            | Error::NotSupported(_)
            | Error::Exists
            | Error::NotFound
    )
}
