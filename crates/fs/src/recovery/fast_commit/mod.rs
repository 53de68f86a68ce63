//! Applies fast commits: what fsyncs recorded after the log's last transaction.
//!
//! ```text
//!   begin    blocks that records map are marked as used, so that nothing else takes them
//!   records  INODE ─► fields   ADD/DEL_RANGE ─► map   CREAT/LINK/UNLINK ─► names
//!   finish   links counted from names; inodes without one freed; blocks, sectors, bitmaps agree
//! ```
//!
//! The volume to which the records are applied is consistent: a committed transaction. So link
//! counts need not be taken from the log. Names that are added and removed are counted; the count
//! on disk plus that difference is right. Blocks that are freed during the replay stay marked until
//! the end, because the writer did not reuse them before the next commit either.
//!
//! Rule: records are applied as far as they are consistent with each other. A record that names an
//! inode that does not exist is skipped, because a later record removed the inode. A record that
//! would break a rule of the format is skipped and reported. Source: ext4 documentation, "Fast
//! Commits".

mod finish;
mod inode;
mod names;
mod ranges;

use crate::inodes::lookup::Lookup;
use crate::recovery::RecoveryReport;
use crate::recovery::orphans::OrphanRecords;
use crate::state::inode::Inode;
use crate::volume::Volume;
use extant_base::{BlockNr, Error, Ino, Result, Site, What};
use extant_journal::{Credits, FastCommitLog, Handle};
use extant_ondisk::fast_commit::Record;
use extant_ondisk::features::Incompat;
use extant_ondisk::inode::FileKind;
use hashbrown::HashMap;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Credits of one record. A handle of recovery reserves nothing in a log.
const CREDITS: Credits = Credits { blocks: 256, revokes: 256 };

/// What the replay knows of an inode that records touch.
#[derive(Clone, Copy, Debug)]
struct Touched {
    /// Directory entries that name it, "." and ".." not counted.
    names: i64,
    /// Subdirectories; `None` means too many to count (its link count is 1).
    subdirectories: Option<i64>,
    /// A directory that the replay created and that has no "." yet.
    is_raw: bool,
    /// Sectors charged to the inode for attribute values in inodes of their own.
    charged: u64,
}

impl Touched {
    /// A fresh inode that this many entries name.
    fn fresh(names: i64, is_raw: bool) -> Touched {
        Touched { names, subdirectories: Some(0), is_raw, charged: 0 }
    }
}

/// Fast commits being applied.
struct Replay<'a> {
    volume: &'a Volume,
    records: Vec<Record<'a>>,
    /// The indexes of each inode's INODE records.
    inode_records: HashMap<Ino, Vec<usize>>,
    touched: BTreeMap<Ino, Touched>,
    /// Blocks that were marked only to reserve them.
    kept: Vec<(BlockNr, u64)>,
    orphans: OrphanRecords,
    /// Blocks that may still be mapped. Between two commits hardly any block is allocated twice, so
    /// a log that maps several times as many blocks as the volume has is crafted.
    blocks_left: u64,
    report: &'a mut RecoveryReport,
}

/// Applies `log` to `volume`, whose freed blocks stay marked
/// ([`Space::take_freed_later`](crate::space::Space::take_freed_later)).
///
/// Errors: `NoSpace` when a directory or a tree needs a block and none is left; `Corrupt` for
/// damage outside the records; `Device`. After an error the volume must not be kept.
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
        blocks_left: volume.geometry().blocks_count().saturating_mul(4),
        report,
    };
    replay.keep(log.excluded())?;
    for n in 0..replay.records.len() {
        replay.apply(n)?;
    }
    replay.finish()
}

impl<'a> Replay<'a> {
    /// Marks the free blocks of `ranges` as used during the replay.
    fn keep(&mut self, ranges: &[(BlockNr, u32)]) -> Result<()> {
        // Each block once, even if the log names it several times.
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
                // The record itself will be skipped.
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
            Err(error) if is_of_the_record(&error) => self.skip_record(error),
            done => return done,
        }
        Ok(())
    }

    /// Reports an error of a record.
    fn skip_record(&mut self, error: Error) {
        self.volume.context().note_error(&error);
        self.report.problems.push(error);
    }

    /// The inode, if it is in use: its bitmap bit is set and its fields are valid.
    fn find(&self, ino: Ino) -> Result<Option<Arc<Inode>>> {
        if self.volume.inodes().is_hidden(ino) {
            return Err(Site::of_ino(ino).corrupt(What::FastCommitInode));
        }
        if !self.volume.is_inode_marked(ino)? {
            return Ok(None);
        }
        match self.volume.inodes().get_as(ino, Lookup::Internal) {
            Ok(inode) => Ok(Some(inode)),
            // A slot that was never written.
            Err(Error::Corrupt { what: What::InodeMode | What::InodeNotMarked, .. }) => Ok(None),
            Err(error) => Err(error),
        }
    }

    /// As [`Replay::find`]. If the inode does not exist yet, an INODE record after `n` may create
    /// it.
    fn find_or_make(&mut self, n: usize, ino: Ino) -> Result<Option<Arc<Inode>>> {
        if let Some(inode) = self.find(ino)? {
            return Ok(Some(inode));
        }
        let Some(later) = self.later_inode(n, ino) else { return Ok(None) };
        self.inode(ino, later)?;
        self.find(ino)
    }

    /// The first INODE record of `ino` after record `n`.
    fn later_inode(&self, n: usize, ino: Ino) -> Option<&'a [u8]> {
        let all = self.inode_records.get(&ino)?;
        let at = *all.get(all.partition_point(|at| *at <= n))?;
        match self.records[at] {
            Record::Inode { raw, .. } => Some(raw),
            _ => None,
        }
    }

    /// What the replay knows of an inode in use.
    fn touch(&mut self, inode: &Inode) -> &mut Touched {
        let volume = self.volume;
        self.touched.entry(inode.ino).or_insert_with(|| {
            let body = inode.read();
            let charged = match volume.has_incompat(Incompat::EA_INODE) {
                true => volume
                    .file(&body)
                    .count_sectors()
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

/// Whether an error concerns one record and not the whole replay.
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
