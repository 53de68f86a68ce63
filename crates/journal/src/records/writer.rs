//! Writes folded changes as records.
//!
//! ```text
//!   names, in order      first name of a hidden inode:     INODE, ADD_RANGE …, CREAT
//!                        other names:                      LINK, UNLINK
//!   then each inode      hidden, recorded above:           INODE again
//!   in order             recorded earlier, not freed:      DEL_RANGE, ADD_RANGE …, INODE
//! ```
//!
//! So an inode exists before a name refers to it, and its final state comes last: Linux counts a
//! file's blocks when it replays its INODE, and CREAT sets its change time and its number of names.
//! Source: the order in which Linux and e2fsck can replay them.

use crate::records::changes::{Piece, RecordedInode, Snapshot};
use crate::records::fold::{Fold, FoldedInode};
use crate::records::ineligible::Ineligible;
use extant_base::{BlockNr, Ino, LogicalBlock};
use extant_ondisk::fast_commit::{INODE_LEN_MIN, MappedRange, NameChange, Record, encode};

/// The last block number of a file.
const LAST_BLOCK: u32 = u32::MAX - 1;
/// Most blocks of one ADD_RANGE: the limit of an extent that holds data, and of one that is
/// unwritten.
const WRITTEN_MAX: u32 = 0x8000;
const UNWRITTEN_MAX: u32 = 0x7FFF;
/// Most blocks of one DEL_RANGE; Linux splits holes likewise.
const HOLE_MAX: u32 = i32::MAX as u32;
/// Most bytes of an inode in one record.
const INODE_LEN_MAX: usize = u16::MAX as usize - 4;

/// Appends records to a buffer of limited size.
pub(crate) struct RecordWriter<'a> {
    snapshot: &'a dyn Snapshot,
    records: &'a mut Vec<u8>,
    capacity: usize,
    raw: Vec<u8>,
}

type Outcome<T = ()> = Result<T, Ineligible>;

impl<'a> RecordWriter<'a> {
    /// A writer of at most `capacity` bytes of records into `records`, which is empty.
    pub(crate) fn new(
        snapshot: &'a dyn Snapshot,
        records: &'a mut Vec<u8>,
        capacity: usize,
    ) -> RecordWriter<'a> {
        RecordWriter { snapshot, records, capacity, raw: Vec::new() }
    }

    /// Writes the records of `fold`. Errors: why a full commit is needed.
    pub(crate) fn write(mut self, fold: &Fold<'_>) -> Outcome {
        let mut created = vec![false; fold.inodes.len()];
        for op in fold.names.iter().filter(|op| !op.cancelled) {
            let inode = &fold.inodes[op.inode];
            let change = NameChange { parent: op.parent, ino: inode.ino, name: op.name };
            let record = match (op.adds, inode.hidden && !created[op.inode]) {
                (true, true) => {
                    self.create(inode)?;
                    created[op.inode] = true;
                    Record::Create(change)
                }
                (true, false) => Record::Link(change),
                (false, _) => Record::Unlink(change),
            };
            self.put(&record)?;
        }
        for (inode, created) in fold.inodes.iter().zip(created) {
            if created {
                self.load_inode(inode.ino)?;
                self.inode(inode.ino)?;
            } else if !inode.hidden && !inode.gone {
                self.change(inode)?;
            }
        }
        Ok(())
    }

    /// Records an inode that was hidden, completely.
    fn create(&mut self, inode: &FoldedInode) -> Outcome {
        let state = self.load_inode(inode.ino)?;
        if !state.regular {
            return Err(Ineligible::Special);
        }
        if i64::from(state.links) != i64::from(inode.names) {
            return Err(Ineligible::Unclear);
        }
        self.inode(inode.ino)?;
        if state.mapped {
            self.pieces(inode.ino, 0, LAST_BLOCK, false)?;
        }
        Ok(())
    }

    /// Records the current state of an inode that was recorded before.
    fn change(&mut self, inode: &FoldedInode) -> Outcome {
        let state = self.load_inode(inode.ino)?;
        if !state.regular {
            return if inode.renamed.is_some() { Err(Ineligible::Special) } else { Ok(()) };
        }
        // Replay frees an inode when it loses its last name, so no record may take away the last
        // name of an inode that is not freed.
        let before = i64::from(state.links) - i64::from(inode.names);
        if state.links == 0 {
            return Err(Ineligible::LastLink);
        } else if before + i64::from(inode.names_min) < 1 {
            return Err(Ineligible::Unclear);
        }
        if state.mapped {
            for (first, last) in inode.ranges.iter() {
                self.pieces(inode.ino, first, last.min(LAST_BLOCK), true)?;
            }
        }
        self.inode(inode.ino)
    }

    /// Reads an inode into `raw`.
    fn load_inode(&mut self, ino: Ino) -> Outcome<RecordedInode> {
        self.raw.clear();
        match self.snapshot.inode(ino, &mut self.raw) {
            Ok(Some(state)) => Ok(state),
            // The error itself is for the caller that next reads the inode.
            Ok(None) | Err(_) => Err(Ineligible::NotRecordable),
        }
    }

    /// Records the inode in `raw`.
    fn inode(&mut self, ino: Ino) -> Outcome {
        if !(INODE_LEN_MIN..=INODE_LEN_MAX).contains(&self.raw.len()) {
            return Err(Ineligible::NotRecordable);
        }
        let raw = std::mem::take(&mut self.raw);
        let done = self.put(&Record::Inode { ino, raw: &raw });
        self.raw = raw;
        done
    }

    /// Records the mapping of the blocks from `first` to `last`, holes included if `holes`.
    fn pieces(&mut self, ino: Ino, first: u32, last: u32, holes: bool) -> Outcome {
        let snapshot = self.snapshot;
        // The next block to record. Past the end of a file it exceeds 32 bits.
        let mut next = u64::from(first);
        let mut done = Ok(());
        let each = &mut |piece: Piece| {
            if done.is_ok() {
                done = self.piece(ino, &mut next, last, piece, holes);
            }
        };
        snapshot.pieces(ino, first, last, each).map_err(|_| Ineligible::NotRecordable)?;
        done?;
        if holes { self.hole(ino, next, u64::from(last) + 1) } else { Ok(()) }
    }

    fn piece(&mut self, ino: Ino, next: &mut u64, last: u32, piece: Piece, holes: bool) -> Outcome {
        let end = (u64::from(piece.logical) + u64::from(piece.len)).min(u64::from(last) + 1);
        let mut at = u64::from(piece.logical).max(*next);
        if at >= end {
            return Ok(());
        }
        if holes {
            self.hole(ino, *next, at)?;
        }
        *next = end;
        while at < end {
            let most = if piece.written { WRITTEN_MAX } else { UNWRITTEN_MAX };
            let len = (end - at).min(u64::from(most));
            let start = piece.physical.0.saturating_add(at - u64::from(piece.logical));
            if start >= 1 << 48 {
                return Err(Ineligible::NotRecordable);
            }
            self.put(&Record::AddRange(MappedRange {
                ino,
                first: LogicalBlock(at as u32),
                len_blocks: len as u16,
                unwritten: !piece.written,
                start: BlockNr(start),
            }))?;
            at += len;
        }
        Ok(())
    }

    /// Records that the blocks from `at` to before `end` are not mapped.
    fn hole(&mut self, ino: Ino, mut at: u64, end: u64) -> Outcome {
        while at < end {
            let len_blocks = (end - at).min(u64::from(HOLE_MAX)) as u32;
            self.put(&Record::DelRange { ino, first: LogicalBlock(at as u32), len_blocks })?;
            at += u64::from(len_blocks);
        }
        Ok(())
    }

    fn put(&mut self, record: &Record<'_>) -> Outcome {
        encode(record, self.records);
        if self.records.len() <= self.capacity { Ok(()) } else { Err(Ineligible::LogFull) }
    }
}
