//! The fast commits of one epoch, as recovery found them.

use extant_base::{BlockNr, Tid};
use extant_ondisk::fast_commit::{Record, Records};

/// The fast commits of one epoch, checked, up to the last whole one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FastCommitLog {
    pub(super) tid: Tid,
    pub(super) commits: u32,
    /// Bytes that no record crosses a multiple of.
    pub(super) block_bytes: usize,
    pub(super) inode_bytes: usize,
    pub(super) bytes: Vec<u8>,
    pub(super) excluded: Vec<(BlockNr, u32)>,
}

impl FastCommitLog {
    /// The transaction that these records belong to: the first one not complete in the log.
    pub fn tid(&self) -> Tid {
        self.tid
    }

    /// Whole fast commits, at least 1.
    pub fn commits(&self) -> u32 {
        self.commits
    }

    /// Blocks that ADD_RANGE records map, as (first, count) in log order: they hold the data of
    /// the files to come and must not be allocated while the records are applied. Not checked
    /// against the volume's size.
    pub fn excluded(&self) -> &[(BlockNr, u32)] {
        &self.excluded
    }

    /// Whether they come from the byte log.
    pub fn is_byte_log(&self) -> bool {
        self.block_bytes == usize::MAX
    }

    /// The bytes of the area up to and including the block of the last TAIL; of a byte log its
    /// records' payloads, ANCHORs left out.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// The records to apply, in order; HEAD, PAD and TAIL are left out.
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

    /// Nothing yet, of a byte log.
    pub(crate) fn of_byte_log(tid: Tid, inode_bytes: usize) -> FastCommitLog {
        let (bytes, excluded) = (Vec::new(), Vec::new());
        let block_bytes = usize::MAX;
        FastCommitLog { tid, commits: 0, block_bytes, inode_bytes, bytes, excluded }
    }

    /// Takes one more fast commit of a byte log in: checked records, and what they map.
    pub(crate) fn add_commit(&mut self, records: &[u8], ranges: Vec<(BlockNr, u32)>) {
        self.commits += 1;
        self.bytes.extend_from_slice(records);
        self.excluded.extend(ranges);
    }
}
