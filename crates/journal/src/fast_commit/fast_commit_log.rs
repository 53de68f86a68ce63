//! The fast commits of one epoch, as recovery reads them.

use extant_base::{BlockNr, Tid};
use extant_ondisk::fast_commit::{Record, Records};

/// The fast commits of one epoch, checked, up to the last whole one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FastCommitLog {
    pub(crate) tid: Tid,
    pub(crate) commits: u32,
    /// No record crosses a multiple of this many bytes.
    pub(crate) block_bytes: usize,
    pub(crate) inode_bytes: usize,
    pub(crate) bytes: Vec<u8>,
    pub(crate) excluded: Vec<(BlockNr, u32)>,
}

impl FastCommitLog {
    /// The transaction of these records: the first one that is not complete in the log.
    pub fn tid(&self) -> Tid {
        self.tid
    }

    /// Whole fast commits, at least 1.
    pub fn commits(&self) -> u32 {
        self.commits
    }

    /// Blocks that ADD_RANGE records map, as (first, count) in log order. They hold data of files,
    /// so they must not be allocated while the records are applied. They are not checked against
    /// the volume's size.
    pub fn excluded(&self) -> &[(BlockNr, u32)] {
        &self.excluded
    }

    /// Whether they come from the byte log.
    pub fn is_byte_log(&self) -> bool {
        self.block_bytes == usize::MAX
    }

    /// The bytes of the area up to the end of the block with the last TAIL. For a byte log: its
    /// records' payloads without ANCHORs.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// The records to apply, in order, without HEAD, PAD and TAIL.
    pub fn records(&self) -> impl Iterator<Item = Record<'_>> {
        self.bytes
            .chunks(self.block_bytes)
            .flat_map(|block| Records::new(block, self.inode_bytes, Default::default()))
            .filter_map(Result::ok)
            .map(|located| located.record)
            .filter(|record| {
                !matches!(record, Record::Head { .. } | Record::Pad | Record::Tail { .. })
            })
    }

    /// Of a byte log, without any fast commit yet.
    pub(crate) fn of_byte_log(tid: Tid, inode_bytes: usize) -> FastCommitLog {
        let (bytes, excluded) = (Vec::new(), Vec::new());
        let block_bytes = usize::MAX;
        FastCommitLog { tid, commits: 0, block_bytes, inode_bytes, bytes, excluded }
    }

    /// Adds a fast commit of a byte log: checked records, and the ranges that they map.
    pub(crate) fn add_commit(&mut self, records: &[u8], ranges: Vec<(BlockNr, u32)>) {
        self.commits += 1;
        self.bytes.extend_from_slice(records);
        self.excluded.extend(ranges);
    }
}
