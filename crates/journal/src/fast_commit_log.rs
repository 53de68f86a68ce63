//! What fsync left behind the log: the fast commits of the transaction that never committed.
//!
//! ```text
//!   area block 0                 1                    2                     3
//!   ┌────────────────────────┬─────────────────────┬─────────────────────┬──────────────
//!   │HEAD T │ records │ TAIL │ records │ PAD ▒▒▒▒▒ │ records │ TAIL ▒▒▒▒ │ older bytes …
//!   └────────────────────────┴─────────────────────┴─────────────────────┴──────────────
//!    └──── one commit ──────┘ └───────────── one more ──────────────────┘ └ end: kept up to here
//! ```
//!
//! Rule: T is the first transaction that is not complete. A HEAD of another number is left from an
//! older time. A commit counts when its TAIL's number and checksum are right; a first commit
//! without one was torn and never happened. (Linux and e2fsck take that for damage; it is what a
//! power cut during the first fsync leaves.)

use crate::log::Log;
use extant_base::{BlockNr, Error, Result, Tid};
use extant_ondisk::fast_commit::{FcSum, Record, Records};
use extant_ondisk::jbd2::LogFormat;

/// The fast commits of one epoch, checked, up to the last whole one.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct FastCommitLog {
    tid: Tid,
    commits: u32,
    block_bytes: usize,
    inode_bytes: usize,
    bytes: Vec<u8>,
    excluded: Vec<(BlockNr, u32)>,
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

    /// The bytes of the area up to and including the block of the last TAIL.
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
}

/// Checks one block after the other.
struct Walk {
    format: LogFormat,
    inode_bytes: usize,
    tid: Tid,
    sum: FcSum,
    /// Ranges since the last TAIL.
    ranges: Vec<(BlockNr, u32)>,
    found: FastCommitLog,
}

enum Step {
    /// The block is fine; a TAIL may have closed a commit in it.
    Next,
    /// The records end here, torn or stale.
    End,
}

impl Log {
    /// Reads the fast commits of transaction `tid`. `inode_bytes` is the volume's inode size.
    ///
    /// `None`: there is no whole one. Errors: `Device`; `Unsupported` for an area whose HEAD asks
    /// for features.
    pub(crate) fn fast_commits(
        &self,
        tid: Tid,
        inode_bytes: usize,
    ) -> Result<Option<FastCommitLog>> {
        let format = self.format();
        let block_bytes = format.block_size.bytes();
        let mut walk = Walk {
            format,
            inode_bytes,
            tid,
            sum: FcSum::default(),
            ranges: Vec::new(),
            found: FastCommitLog {
                tid,
                commits: 0,
                block_bytes,
                inode_bytes,
                bytes: Vec::new(),
                excluded: Vec::new(),
            },
        };
        let mut bytes = Vec::new();
        let mut whole = 0;
        for at in self.superblock().fast_commit_area() {
            let start = bytes.len();
            bytes.resize(start + block_bytes, 0);
            self.read(at, &mut bytes[start..])?;
            let commits = walk.found.commits;
            match walk.block(start == 0, &bytes[start..], self.site(at).tid(tid))? {
                Step::Next if walk.found.commits > commits => whole = bytes.len(),
                Step::Next => (),
                Step::End => break,
            }
        }
        bytes.truncate(whole);
        walk.found.bytes = bytes;
        Ok((walk.found.commits > 0).then_some(walk.found))
    }
}

impl Walk {
    fn block(&mut self, first: bool, block: &[u8], site: extant_base::Site) -> Result<Step> {
        debug_assert_eq!(block.len(), self.format.block_size.bytes());
        let mut needs_head = first;
        for located in Records::new(block, self.inode_bytes, site) {
            let located = match located {
                Ok(located) => located,
                Err(error @ Error::Unsupported { .. }) if needs_head => return Err(error),
                Err(_) => return Ok(Step::End),
            };
            match located.record {
                Record::Head { tid } if needs_head && tid == self.tid => needs_head = false,
                _ if needs_head => return Ok(Step::End),
                Record::Head { .. } => return Ok(Step::End),
                Record::Tail { tid, crc } => {
                    if tid != self.tid || crc != self.sum.at_tail(located.bytes) {
                        return Ok(Step::End);
                    }
                    self.found.commits += 1;
                    self.found.excluded.append(&mut self.ranges);
                    self.sum = FcSum::default();
                    return Ok(Step::Next);
                }
                Record::AddRange(range) => {
                    self.ranges.push((range.start, u32::from(range.len_blocks)));
                }
                _ => (),
            }
            self.sum = self.sum.with(located.bytes);
        }
        Ok(if needs_head { Step::End } else { Step::Next })
    }
}
