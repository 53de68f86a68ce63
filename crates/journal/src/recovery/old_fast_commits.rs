//! Old fast commits: those that stay in their area although a full commit has replaced them.
//!
//! ```text
//!   area   │ HEAD 9 … TAIL 9 │ … TAIL 9 │ stale … PAD │ … TAIL 7 │ … TAIL 7 │ zeros
//!           └ transaction 9 ┘ └──── 9 ──┘              └── 7 ────┘ └── 7 ───┘
//! ```
//!
//! Each transaction writes its fast commits from the start of the area on, so what an earlier one
//! wrote farther on stays. Every block may be the start of a fast commit: it is one if the
//! checksum in its TAIL is right. Records of the byte log prove themselves. The first fast commit
//! of a transaction is lost if this engine wrote it: it replaces a stale HEAD by zeros.

use crate::fast_commit::fast_commit_log::FastCommitLog;
use crate::log::open_log::Log;
use extant_base::{Result, Site, Tid};
use extant_ondisk::byte_log::{HEADER_LEN, Header, Ring};
use extant_ondisk::fast_commit::{FcSum, Record, Records};

/// Most bytes of an area that are examined.
const AREA_MAX: usize = 64 << 20;
/// How often a block may be examined, on average, before the area is treated as forged.
const VISITS: usize = 8;

impl Log {
    /// Takes the last blocks of the log as the area of fast commits, if the log is long enough. The
    /// volume must have the feature `fast_commit`. The log's own superblock names the area only
    /// while the log is not empty.
    #[must_use]
    pub fn with_fast_commit_area(mut self) -> Log {
        self.reserve_fast_commit_area();
        self
    }

    /// All fast commits that the area still holds, in the order of their places; `inode_bytes` is
    /// the volume's inode size. Of an area of more than 64 MiB the start is examined.
    ///
    /// # Errors
    /// `Device`.
    pub fn old_fast_commits(&self, inode_bytes: usize) -> Result<Vec<FastCommitLog>> {
        let area = self.superblock().fast_commit_area();
        let size = self.format().block_size.bytes();
        let mut bytes = vec![0; area.len().min(AREA_MAX / size) * size];
        self.read(area.start, &mut bytes)?;
        let mut found = in_blocks(&bytes, size, inode_bytes);
        let blocks = self.superblock().fast_commit_blocks;
        if let Some(ring) = Ring::new(blocks, self.format().block_size) {
            let end = usize::try_from(ring.end).unwrap_or(usize::MAX).min(bytes.len());
            if let Some(ring) = bytes.get(size..end) {
                found.extend(in_byte_log(ring, inode_bytes));
            }
        }
        Ok(found)
    }
}

/// Fast commits in an area of blocks of `size` bytes.
fn in_blocks(area: &[u8], size: usize, inode_bytes: usize) -> Vec<FastCommitLog> {
    let blocks = area.len() / size;
    let mut visits = blocks.saturating_mul(VISITS);
    let mut found = Vec::new();
    let mut first = 0;
    while first < blocks && visits > 0 {
        let rest = &area[first * size..];
        first += match whole_commit(rest, size, inode_bytes, &mut visits) {
            Some((tid, blocks)) => {
                found.push(FastCommitLog {
                    tid,
                    commits: 1,
                    block_bytes: size,
                    inode_bytes,
                    bytes: rest[..blocks * size].to_vec(),
                    excluded: Vec::new(),
                });
                blocks
            }
            None => 1,
        };
    }
    found
}

/// The transaction and the blocks of the fast commit that starts at the start of `area`.
fn whole_commit(
    area: &[u8],
    size: usize,
    inode_bytes: usize,
    visits: &mut usize,
) -> Option<(Tid, usize)> {
    let mut sum = FcSum::default();
    for (n, block) in area.chunks_exact(size).enumerate() {
        *visits = visits.checked_sub(1)?;
        for located in Records::new(block, inode_bytes, Site::NOWHERE) {
            let located = located.ok()?;
            match located.record {
                Record::Tail { tid, crc } => {
                    return (crc == sum.at_tail(located.bytes)).then_some((tid, n + 1));
                }
                Record::Head { .. } if n > 0 || located.offset > 0 => return None,
                Record::Anchor(_) => return None,
                _ => sum = sum.with(located.bytes),
            }
        }
    }
    None
}

/// Records of the byte log in its ring.
fn in_byte_log(ring: &[u8], inode_bytes: usize) -> Vec<FastCommitLog> {
    let mut found = Vec::new();
    let mut at = 0;
    while let Some(head) = ring.get(at..).and_then(|rest| rest.first_chunk::<HEADER_LEN>()) {
        let space = (ring.len() - at) as u64;
        let header = Header::read(head, space, Site::NOWHERE).ok();
        let whole = header.and_then(|header| {
            let payload = ring.get(at + HEADER_LEN..)?.get(..header.payload_len)?;
            header.records(payload, inode_bytes, Site::NOWHERE).ok()?;
            Some((header, payload))
        });
        at += match whole {
            Some((header, payload)) => {
                let mut commit = FastCommitLog::of_byte_log(header.tid, inode_bytes);
                commit.add_commit(payload, Vec::new());
                found.push(commit);
                usize::try_from(header.record_len()).unwrap_or(usize::MAX)
            }
            None => HEADER_LEN,
        };
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::test_log::TestLog;
    use extant_base::Ino;
    use extant_ondisk::fast_commit::NameChange;
    use extant_ondisk::jbd2::{BlockSum, JournalIncompat};

    fn unlink(name: &[u8]) -> Record<'_> {
        let ino = Ino::new(12).unwrap();
        Record::Unlink(NameChange { parent: Ino::ROOT, ino, name })
    }

    /// A log whose area has three fast commits of transaction 8, the second of two blocks, of which
    /// transaction 9 has replaced the first.
    fn log() -> TestLog {
        let mut log = TestLog::new((BlockSum::V3, true), 7, 1, 16);
        log.transaction(&[(3, 1)]);
        let names: Vec<_> = (0..30).map(|n| vec![b'a' + n; 40]).collect();
        let many: Vec<_> = names.iter().map(|name| unlink(name)).collect();
        log.fast(Tid(8), &[unlink(b"first")]);
        log.fast(Tid(8), &many);
        log.fast(Tid(8), &[unlink(b"third")]);
        let mut newer = TestLog::new((BlockSum::V3, true), 8, 1, 16);
        newer.fast(Tid(9), &[unlink(b"newer")]);
        let block = log.fast_block(0);
        log.block_mut(block).copy_from_slice(newer.block_mut(block));
        log
    }

    fn found(log: &TestLog) -> Vec<(u32, Vec<Vec<u8>>)> {
        let opened = log.open(&log.device()).unwrap().with_fast_commit_area();
        let name = |record: Record<'_>| match record {
            Record::Unlink(change) => change.name.to_vec(),
            record => panic!("{record:?}"),
        };
        let commits = opened.old_fast_commits(256).unwrap();
        commits.iter().map(|one| (one.tid().0, one.records().map(name).collect())).collect()
    }

    #[test]
    fn fast_commits_stay_until_their_place_is_written_again() {
        let found = found(&log());
        assert_eq!(found.iter().map(|(tid, _)| *tid).collect::<Vec<_>>(), [9, 8, 8]);
        assert_eq!(found[0].1, [b"newer"]);
        assert_eq!(found[1].1.len(), 30);
        assert_eq!(found[2].1, [b"third"]);
    }

    #[test]
    fn the_area_of_an_empty_log_is_found() {
        let mut log = log();
        log.superblock.start = None;
        log.superblock.features.incompat.remove(JournalIncompat::FAST_COMMIT);
        log.put_superblock();
        let opened = log.open(&log.device()).unwrap();
        assert!(opened.superblock().fast_commit_area().is_empty());
        assert_eq!(opened.with_fast_commit_area().superblock().fast_commit_area().len(), 15);
        assert_eq!(found(&log).len(), 3);
    }

    #[test]
    fn a_changed_bit_drops_its_fast_commit_only() {
        for (block, left) in [(0, 2), (1, 2), (2, 2), (3, 2)] {
            let mut log = log();
            let block = log.fast_block(block);
            log.block_mut(block)[20] ^= 1;
            assert_eq!(found(&log).len(), left, "block {block}");
        }
    }
}
