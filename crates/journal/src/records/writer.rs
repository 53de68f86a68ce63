//! Folded changes as records.
//!
//! ```text
//!   names, in order      of a hidden inode the first one:  INODE, ADD_RANGE …, CREAT
//!                        others:                           LINK, UNLINK
//!   then each inode      hidden, now told:                 INODE again
//!   in order             told before, and still there:     DEL_RANGE, ADD_RANGE …, INODE
//! ```
//!
//! So an inode is there before a name leads to it, and what it is at the end comes last: Linux counts the
//! blocks of a file when it comes to its INODE, and CREAT sets its change time and its number of names.
//! Source: the order in which Linux and e2fsck can replay them.

use crate::records::changes::{InodeTold, Piece, Snapshot};
use crate::records::fold::{Fold, Touched};
use crate::records::ineligible::Ineligible;
use extant_base::{BlockNr, Ino, LogicalBlock};
use extant_ondisk::fast_commit::{INODE_LEN_MIN, MappedRange, NameChange, Record, encode};

/// The last block that a file can have.
const LAST_BLOCK: u32 = u32::MAX - 1;
/// Blocks of one ADD_RANGE: an extent's, for data and for zeros.
const WRITTEN_MAX: u32 = 0x8000;
const UNWRITTEN_MAX: u32 = 0x7FFF;
/// Blocks of one DEL_RANGE, as Linux splits it.
const HOLE_MAX: u32 = i32::MAX as u32;
/// Bytes of an inode that one record can carry.
const INODE_LEN_MAX: usize = u16::MAX as usize - 4;

/// Puts records behind others, as many as there is room for.
pub(crate) struct RecordWriter<'a> {
    snapshot: &'a dyn Snapshot,
    records: &'a mut Vec<u8>,
    room: usize,
    raw: Vec<u8>,
}

type Told<T = ()> = Result<T, Ineligible>;

impl<'a> RecordWriter<'a> {
    /// Puts at most `room` bytes of records into `records`, which is empty.
    pub(crate) fn new(
        snapshot: &'a dyn Snapshot,
        records: &'a mut Vec<u8>,
        room: usize,
    ) -> RecordWriter<'a> {
        RecordWriter { snapshot, records, room, raw: Vec::new() }
    }

    /// Tells `fold`. Errors: why it takes a full commit.
    pub(crate) fn tell(mut self, fold: &Fold<'_>) -> Told {
        let mut created = vec![false; fold.inodes.len()];
        for op in fold.names.iter().filter(|op| !op.void) {
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
                self.look(inode.ino)?;
                self.inode(inode.ino)?;
            } else if !inode.hidden && !inode.gone {
                self.change(inode)?;
            }
        }
        Ok(())
    }

    /// An inode that nobody has heard of, with all it has.
    fn create(&mut self, inode: &Touched) -> Told {
        let told = self.look(inode.ino)?;
        if !told.regular {
            return Err(Ineligible::Special);
        }
        if i64::from(told.links) != i64::from(inode.names) {
            return Err(Ineligible::Unclear);
        }
        self.inode(inode.ino)?;
        if told.mapped {
            self.pieces(inode.ino, 0, LAST_BLOCK, false)?;
        }
        Ok(())
    }

    /// An inode that is known, as it is now.
    fn change(&mut self, inode: &Touched) -> Told {
        let told = self.look(inode.ino)?;
        if !told.regular {
            return if inode.renamed.is_some() { Err(Ineligible::Special) } else { Ok(()) };
        }
        // Replay takes an inode away with its last name, and so must not meet that on the way.
        let before = i64::from(told.links) - i64::from(inode.names);
        if told.links == 0 {
            return Err(Ineligible::LastLink);
        } else if before + i64::from(inode.names_least) < 1 {
            return Err(Ineligible::Unclear);
        }
        if told.mapped {
            for (first, last) in inode.ranges.iter() {
                self.pieces(inode.ino, first, last.min(LAST_BLOCK), true)?;
            }
        }
        self.inode(inode.ino)
    }

    /// Reads an inode into `raw`.
    fn look(&mut self, ino: Ino) -> Told<InodeTold> {
        self.raw.clear();
        match self.snapshot.inode(ino, &mut self.raw) {
            Ok(Some(told)) => Ok(told),
            // What is wrong with it whoever asks for it is told.
            Ok(None) | Err(_) => Err(Ineligible::CannotTell),
        }
    }

    /// The inode that is in `raw`.
    fn inode(&mut self, ino: Ino) -> Told {
        if !(INODE_LEN_MIN..=INODE_LEN_MAX).contains(&self.raw.len()) {
            return Err(Ineligible::CannotTell);
        }
        let raw = std::mem::take(&mut self.raw);
        let done = self.put(&Record::Inode { ino, raw: &raw });
        self.raw = raw;
        done
    }

    /// What the blocks from `first` to `last` map to, holes included if asked for.
    fn pieces(&mut self, ino: Ino, first: u32, last: u32, holes: bool) -> Told {
        let snapshot = self.snapshot;
        // The next block to tell; past the end of a file it is more than 32 bits could say.
        let mut next = u64::from(first);
        let mut done = Ok(());
        let each = &mut |piece: Piece| {
            if done.is_ok() {
                done = self.piece(ino, &mut next, last, piece, holes);
            }
        };
        snapshot.pieces(ino, first, last, each).map_err(|_| Ineligible::CannotTell)?;
        done?;
        if holes { self.hole(ino, next, u64::from(last) + 1) } else { Ok(()) }
    }

    fn piece(&mut self, ino: Ino, next: &mut u64, last: u32, piece: Piece, holes: bool) -> Told {
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
                return Err(Ineligible::CannotTell);
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

    /// Nothing is mapped from block `at` to before `end`.
    fn hole(&mut self, ino: Ino, mut at: u64, end: u64) -> Told {
        while at < end {
            let len_blocks = (end - at).min(u64::from(HOLE_MAX)) as u32;
            self.put(&Record::DelRange { ino, first: LogicalBlock(at as u32), len_blocks })?;
            at += u64::from(len_blocks);
        }
        Ok(())
    }

    fn put(&mut self, record: &Record<'_>) -> Told {
        encode(record, self.records);
        if self.records.len() <= self.room { Ok(()) } else { Err(Ineligible::LogFull) }
    }
}
