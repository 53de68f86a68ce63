//! First pass over a log: where it ends, and where its descriptor and revoke blocks are.
//!
//! ```text
//!   start                                                        end
//!     │ tid 7                     │ tid 8            │ tid 9      │
//!     ├──────┬─────────┬──────────┼──────┬──────────┬┼──────┬─────┼────────────────
//!     │revoke│descr ●●●│ commit 7 │descr │●● commit8││descr │●●● ?│ older blocks …
//!     └──────┴─────────┴──────────┴──────┴──────────┴┴──────┴─────┴────────────────
//!                                              no commit block of tid 9: it did not commit
//! ```
//!
//! The log ends at the first block without the magic and the expected number: normally the place of
//! a commit block that a power cut kept from the device. A block with the right number and a wrong
//! checksum is left from an earlier use of that space if its commit time goes backwards; then the
//! log ends. Otherwise it is damage, an error. Source: Linux's recovery; e2fsprogs agrees.

use crate::log::open_log::Log;
use extant_base::{Error, Result, Tid, What};
use extant_ondisk::jbd2::commit::TransactionCrc;
use extant_ondisk::jbd2::{
    BlockSum, BlockType, Commit, Header, JournalIncompat, LogFormat, Tags, descriptor, revoke,
};

/// A block of a committed transaction that later passes read.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Control {
    /// Names the copies after it.
    Descriptor { block: u32, tid: Tid },
    /// Names dead copies.
    Revoke { block: u32, tid: Tid },
}

/// The result of the first pass.
#[derive(Debug)]
pub(crate) struct Scan {
    /// Descriptor and revoke blocks of committed transactions, in log order.
    pub(crate) controls: Vec<Control>,
    /// Committed transactions.
    pub(crate) transactions: u32,
    /// The first transaction that is not complete.
    pub(crate) end: Tid,
    /// The log block after the last commit block.
    pub(crate) head: u32,
    /// The error for a commit block with a wrong checksum, in a log where a torn write cannot be
    /// the cause.
    pub(crate) failed_commit: Option<Error>,
}

/// Where the transactions of a log lie. Blocks are numbers in the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct LogUsage {
    /// The first block of the oldest transaction; the same as `head` in an empty log.
    pub tail: u32,
    /// The block after the newest transaction, where the next one begins.
    pub head: u32,
    /// Blocks from tail to head, at most one round.
    pub blocks: u32,
    /// Committed transactions between them.
    pub transactions: u32,
    /// The number of the first transaction that is not complete.
    pub next: Tid,
}

impl Log {
    /// Finds the end of the log. Nothing is changed.
    ///
    /// # Errors
    /// `Device`; `Corrupt` for damage in a committed transaction.
    pub fn usage(&self) -> Result<LogUsage> {
        let cycle = self.cycle();
        let Some(tail) = self.superblock().start else {
            let (head, next) = (self.empty_head(), self.superblock().sequence);
            return Ok(LogUsage { tail: head, head, blocks: 0, transactions: 0, next });
        };
        let scan = self.scan()?;
        if let Some(error) = scan.failed_commit {
            return Err(error);
        }
        let blocks = match scan.head.checked_sub(tail) {
            Some(0) if scan.transactions > 0 => cycle.len(),
            Some(blocks) => blocks,
            None => cycle.len() - (tail - scan.head),
        };
        let (head, transactions, next) = (scan.head, scan.transactions, scan.end);
        Ok(LogUsage { tail, head, blocks, transactions, next })
    }

    /// Scans the log from its start, at most one round.
    ///
    /// Errors: `Device`; `Corrupt(JournalDescriptorChecksum | JournalRevoke)` for a damaged
    /// transaction that was committed after the ones before it.
    pub(crate) fn scan(&self) -> Result<Scan> {
        let (format, cycle) = (self.format(), self.cycle());
        let superblock = self.superblock();
        let tolerant = superblock.features.incompat.contains(JournalIncompat::ASYNC_COMMIT);
        let mut tid = superblock.sequence;
        let mut scan = Scan {
            controls: Vec::new(),
            transactions: 0,
            end: tid,
            head: cycle.first,
            failed_commit: None,
        };
        let Some(mut at) = superblock.start else { return Ok(scan) };
        scan.head = at;
        let mut block = vec![0; format.block_size.bytes()];
        let mut copy = vec![0; format.block_size.bytes()];
        let mut left = cycle.len();
        let mut committed = 0;
        let mut last_commit_seconds = 0;
        let mut damage = None;
        let mut crc = TransactionCrc::default();
        while left > 0 {
            self.read_right(at, &mut block, &|bytes| is_right(bytes, &format, tid, crc))?;
            let Some(header) = Header::read(&block) else { break };
            if header.tid != tid {
                break;
            }
            let site = self.site(at).tid(tid);
            let mut steps = 1;
            match header.block_type {
                BlockType::Descriptor => {
                    if !descriptor::checksum_matches(&block, &format) {
                        damage.get_or_insert(site.corrupt(What::JournalDescriptorChecksum));
                    }
                    steps += Tags::new(&block, format, site).count() as u32;
                    if steps > left {
                        break;
                    }
                    if format.sum == BlockSum::V1 {
                        crc = crc.with(&block);
                        for step in 1..steps {
                            self.read(cycle.after(at, step), &mut copy)?;
                            crc = crc.with(&copy);
                        }
                    }
                    scan.controls.push(Control::Descriptor { block: at, tid });
                }
                BlockType::Revoke => {
                    if !revoke::checksum_matches(&block, &format) {
                        damage.get_or_insert(site.corrupt(What::JournalRevoke));
                    }
                    scan.controls.push(Control::Revoke { block: at, tid });
                }
                BlockType::Commit => {
                    let Some(commit) = Commit::read(&block, &format) else { break };
                    let stale = commit.seconds < last_commit_seconds;
                    if let Some(damage) = damage.take() {
                        if stale {
                            break;
                        }
                        return Err(damage);
                    }
                    if !commit.sum.accepts(crc) {
                        // With async_commit the commit block may be on the device before the blocks
                        // that it completes.
                        if !stale && !tolerant {
                            scan.failed_commit = Some(site.corrupt(What::JournalCommitChecksum));
                        }
                        break;
                    }
                    last_commit_seconds = commit.seconds;
                    committed = scan.controls.len();
                    scan.transactions += 1;
                    scan.head = cycle.after(at, 1);
                    tid = tid.next();
                    crc = TransactionCrc::default();
                }
                _ => break,
            }
            at = cycle.after(at, steps);
            left -= steps;
        }
        scan.controls.truncate(committed);
        scan.end = tid;
        Ok(scan)
    }
}

/// Whether a block is one of transaction `tid` with the right checksum. `crc` is that of the
/// transaction's blocks before it.
fn is_right(block: &[u8], format: &LogFormat, tid: Tid, crc: TransactionCrc) -> bool {
    let Some(header) = Header::read(block).filter(|header| header.tid == tid) else { return false };
    match header.block_type {
        BlockType::Commit => {
            Commit::read(block, format).is_some_and(|commit| commit.sum.accepts(crc))
        }
        _ => Control::is_right(block, format, tid),
    }
}

impl Control {
    /// Whether a block is a descriptor or revoke block of transaction `tid` with the right
    /// checksum.
    pub(crate) fn is_right(block: &[u8], format: &LogFormat, tid: Tid) -> bool {
        let Some(header) = Header::read(block).filter(|header| header.tid == tid) else {
            return false;
        };
        match header.block_type {
            BlockType::Descriptor => descriptor::checksum_matches(block, format),
            BlockType::Revoke => revoke::checksum_matches(block, format),
            _ => false,
        }
    }
}
