//! Reads the area of fast commits: those of the transaction that did not commit.
//!
//! ```text
//!   area block 0                 1                    2                     3
//!   ┌────────────────────────┬─────────────────────┬─────────────────────┬──────────────
//!   │HEAD T │ records │ TAIL │ records │ PAD ▒▒▒▒▒ │ records │ TAIL ▒▒▒▒ │ older bytes …
//!   └────────────────────────┴─────────────────────┴─────────────────────┴──────────────
//!    └──── one commit ──────┘ └───────────── one more ──────────────────┘ └ end: kept up to here
//! ```
//!
//! Rule: T is the first transaction that is not complete. A HEAD of another number is stale. A fast
//! commit counts when its TAIL has the number T and the right checksum. A first commit without such
//! a TAIL was torn and does not count. (Linux and e2fsck report it as damage, but a power cut
//! during the first fsync leaves it.) A first block that holds just HEAD, ANCHOR and TAIL leads to
//! the byte log, which then holds the fast commits (see [`crate::fast_commit::byte_log`]).

use crate::fast_commit::fast_commit_log::FastCommitLog;
use crate::log::open_log::Log;
use extant_base::{BlockNr, Error, Result, Tid};
use extant_ondisk::byte_log::Anchor;
use extant_ondisk::fast_commit::{FcSum, Record, Records};
use extant_ondisk::jbd2::LogFormat;
use std::cell::{Cell, RefCell};

/// Largest area, in bytes, of which every copy is read.
const COPIES_BYTES: usize = 16 << 20;

/// The state of a walk over the area's blocks.
struct Walk {
    format: LogFormat,
    inode_bytes: usize,
    tid: Tid,
    sum: FcSum,
    /// Ranges since the last TAIL.
    ranges: Vec<(BlockNr, u32)>,
    /// Records since the last TAIL, without HEAD; and the ANCHOR, if one is among them.
    others: u32,
    anchor: Option<Anchor>,
    found: FastCommitLog,
}

enum Step {
    /// The block is right. It may end a commit with a TAIL.
    Next,
    /// The fast commits are in the byte log.
    ByteLog(Anchor),
    /// The records end here: the block is torn or stale.
    End,
}

impl Log {
    /// Reads the fast commits of transaction `tid`. `inode_bytes` is the volume's inode size.
    ///
    /// `None`: none is whole. Errors: `Device`; `Unsupported` if the area's HEAD requires unknown
    /// features.
    pub(crate) fn fast_commits(
        &self,
        tid: Tid,
        inode_bytes: usize,
    ) -> Result<Option<FastCommitLog>> {
        let mut best = self.walk_area(tid, inode_bytes, None)?;
        for copy in self.area_copies()? {
            let commits =
                |found: &Option<FastCommitLog>| found.as_ref().map_or(0, |found| found.commits);
            // Errors of another copy do not matter while one copy is readable.
            let Ok(found) = self.walk_area(tid, inode_bytes, Some(&copy)) else { continue };
            if commits(&found) > commits(&best) {
                best = found;
            }
        }
        Ok(best)
    }

    /// The whole area as each copy of the device holds it. Empty if there is one copy, or if the
    /// area is too large.
    fn area_copies(&self) -> Result<Vec<Vec<u8>>> {
        let area = self.superblock().fast_commit_area();
        let size = self.format().block_size.bytes();
        let len = area.len().saturating_mul(size);
        if !self.device().needs_stable_buffers() || !(1..=COPIES_BYTES).contains(&len) {
            return Ok(Vec::new());
        }
        let copies = RefCell::new(Vec::<Vec<u8>>::new());
        let mut at = area.start;
        while at < area.end {
            // Run by run. The device does not name the member that a copy comes from, and may begin
            // with another one at the next run. So one assembled copy may consist of parts of
            // several members. Numbers and checksums end the walk where the parts do not fit
            // together.
            let Some((_, run)) = self.map().locate(at) else { break };
            let run = run.min(area.end - at);
            let nth = Cell::new(0);
            let keep = |bytes: &[u8]| {
                let mut copies = copies.borrow_mut();
                if copies.len() == nth.get() {
                    copies.push(Vec::with_capacity(len));
                }
                copies[nth.get()].extend_from_slice(bytes);
                nth.set(nth.get() + 1);
                false
            };
            self.read_right(at, &mut vec![0; run as usize * size], &keep)?;
            at += run;
        }
        Ok(copies.into_inner())
    }

    /// As [`Log::fast_commits`], from the bytes of `area`, or from the device.
    fn walk_area(
        &self,
        tid: Tid,
        inode_bytes: usize,
        area: Option<&[u8]>,
    ) -> Result<Option<FastCommitLog>> {
        let format = self.format();
        let block_bytes = format.block_size.bytes();
        let mut walk = Walk {
            format,
            inode_bytes,
            tid,
            sum: FcSum::default(),
            ranges: Vec::new(),
            others: 0,
            anchor: None,
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
            match area.map(|area| area.get(start..start + block_bytes)) {
                None => self.read(at, &mut bytes[start..])?,
                Some(Some(block)) => bytes[start..].copy_from_slice(block),
                Some(None) => break,
            }
            let commits = walk.found.commits;
            match walk.block(start == 0, &bytes[start..], self.site(at).tid(tid))? {
                Step::ByteLog(anchor) => return self.byte_log(anchor, inode_bytes),
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
                // Features that a stale HEAD requires do not matter.
                Err(error @ Error::Unsupported { .. })
                    if needs_head && block[8..12] == self.tid.0.to_le_bytes() =>
                {
                    return Err(error);
                }
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
                    match self.anchor {
                        Some(anchor) if first && self.others == 1 && anchor.tid == self.tid => {
                            return Ok(Step::ByteLog(anchor));
                        }
                        // An ANCHOR is valid nowhere else.
                        Some(_) => return Ok(Step::End),
                        None => (),
                    }
                    self.others = 0;
                    self.found.commits += 1;
                    self.found.excluded.append(&mut self.ranges);
                    self.sum = FcSum::default();
                    return Ok(Step::Next);
                }
                Record::AddRange(range) => {
                    self.ranges.push((range.start, u32::from(range.len_blocks)));
                }
                Record::Anchor(anchor) => self.anchor = Some(anchor),
                _ => (),
            }
            self.others += u32::from(!matches!(located.record, Record::Head { .. }));
            self.sum = self.sum.with(located.bytes);
        }
        Ok(if needs_head { Step::End } else { Step::Next })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_log::{SIZE, TestLog};
    use extant_base::{Ino, LogicalBlock};
    use extant_ondisk::fast_commit::{MappedRange, NameChange};
    use extant_ondisk::jbd2::{BlockSum, JournalIncompat};

    const T: Tid = Tid(8);

    /// A log with one transaction, 7, and an empty fast-commit area of 15 blocks.
    fn log() -> TestLog {
        let mut log = TestLog::new((BlockSum::V3, true), 7, 1, 16);
        log.transaction(&[(3, 1)]);
        log
    }

    fn ino(number: u32) -> Ino {
        Ino::new(number).unwrap()
    }

    fn link(name: &[u8]) -> Record<'_> {
        Record::Link(NameChange { parent: Ino::ROOT, ino: ino(12), name })
    }

    fn add(start: u64, len_blocks: u16) -> Record<'static> {
        let (first, start) = (LogicalBlock(0), BlockNr(start));
        Record::AddRange(MappedRange { ino: ino(12), first, len_blocks, unwritten: false, start })
    }

    fn found(log: &TestLog) -> Option<FastCommitLog> {
        log.recover().0.unwrap().fast_commit
    }

    #[test]
    fn whole_fast_commits_are_found_in_order() {
        let mut log = log();
        let raw = [9; 200];
        let first = [add(40, 3), Record::Inode { ino: ino(12), raw: &raw }, link(b"a")];
        let second = [add(50, 1), Record::Inode { ino: ino(12), raw: &raw }];
        let third: Vec<_> = (0..12).map(|_| Record::Inode { ino: ino(13), raw: &raw }).collect();
        log.fast(T, &first);
        log.fast(T, &second);
        log.fast(T, &third);
        let found = found(&log).unwrap();
        assert_eq!((found.tid(), found.commits()), (T, 3));
        assert_eq!(found.bytes().len(), 5 * SIZE, "one block, one block, three blocks");
        assert_eq!(found.excluded(), [(BlockNr(40), 3), (BlockNr(50), 1)]);
        let want = first.iter().chain(&second).chain(&third);
        assert!(found.records().eq(want.copied()));
    }

    #[test]
    fn an_area_of_another_transaction_is_stale() {
        for tid in [Tid(7), Tid(9), Tid(u32::MAX)] {
            let mut log = log();
            log.fast(tid, &[add(40, 3)]);
            assert_eq!(found(&log), None, "{tid}");
        }
    }

    #[test]
    fn a_torn_first_commit_never_happened() {
        let raw = [9; 200];
        let records: Vec<_> = (0..12).map(|_| Record::Inode { ino: ino(13), raw: &raw }).collect();
        for junk in [0, 1, 0xFF] {
            for k in 0..3 {
                let mut log = log();
                log.fast(T, &records);
                let block = log.fast_block(k);
                log.block_mut(block)[512..].fill(junk);
                assert_eq!(found(&log), None, "block {k}, {junk:#x}");
                log.block_mut(block).fill(junk);
                assert_eq!(found(&log), None, "whole block {k}, {junk:#x}");
            }
        }
    }

    #[test]
    fn a_torn_later_commit_keeps_the_ones_before() {
        let mut log = log();
        log.fast(T, &[add(40, 3)]);
        log.fast(T, &[add(50, 1)]);
        let block = log.fast_block(1);
        log.block_mut(block)[10] ^= 1;
        let found = found(&log).unwrap();
        assert_eq!((found.commits(), found.bytes().len()), (1, SIZE));
        assert_eq!(found.excluded(), [(BlockNr(40), 3)]);
        assert_eq!(found.records().count(), 1);
    }

    #[test]
    fn a_commit_left_from_an_older_epoch_ends_the_walk() {
        let mut log = log();
        log.fast(Tid(7), &[add(40, 3)]);
        log.fast(Tid(7), &[add(50, 1)]);
        let mut newer = super::tests::log();
        newer.fast(T, &[add(60, 2)]);
        let block = log.fast_block(0);
        log.block_mut(block).copy_from_slice(newer.block_mut(block));
        assert_eq!(found(&log).unwrap().excluded(), [(BlockNr(60), 2)]);
    }

    #[test]
    fn any_changed_bit_before_the_tail_drops_the_commit() {
        let mut log = log();
        log.fast(T, &[add(40, 3), link(b"name")]);
        let live = 12 + 20 + 16 + 12;
        for byte in 0..live {
            for bit in 0..8 {
                let mut log = log.clone();
                let block = log.fast_block(0);
                log.block_mut(block)[byte] ^= 1 << bit;
                match log.recover().0 {
                    Ok(recovery) => assert_eq!(recovery.fast_commit, None, "byte {byte}"),
                    // A changed bit in HEAD's features.
                    Err(error) => {
                        assert!(
                            matches!(error, Error::Unsupported { .. }) && (4..8).contains(&byte)
                        );
                    }
                }
            }
        }
    }

    #[test]
    fn without_the_feature_or_a_live_log_the_area_is_dead() {
        let mut log = log();
        log.fast(T, &[add(40, 3)]);
        assert!(found(&log).is_some());
        let mut empty = log.clone();
        empty.superblock.start = None;
        empty.put_superblock();
        assert_eq!(found(&empty), None);
        log.superblock.features.incompat.remove(JournalIncompat::FAST_COMMIT);
        log.put_superblock();
        assert_eq!(found(&log), None);
    }

    #[test]
    fn an_inode_larger_than_the_volumes_ends_the_walk() {
        let mut log = log();
        log.fast(T, &[Record::Inode { ino: ino(12), raw: &[9; 257] }]);
        assert_eq!(found(&log), None);
    }

    #[test]
    fn finish_ends_the_epoch() {
        let mut log = log();
        log.fast(T, &[add(40, 3)]);
        let device = log.device();
        let mut opened = log.open(&device).unwrap();
        let recovery = opened.recover(&*device, log.limits()).unwrap();
        opened.finish(&*device, &recovery).unwrap();
        let again = log.open(&device).unwrap();
        assert!(!again.superblock().features.incompat.contains(JournalIncompat::FAST_COMMIT));
        assert!(again.next_tid().is_after(T), "fast commits used {T}");
    }
}
