//! Old copies of blocks: everything that a log still holds, also from transactions that are home.
//!
//! ```text
//!   log   │ 41 [a b] │ 42 [c] │ 37 [a] │ 38 … │ 39 [a d] │ 40 [b] │     written cyclically
//!                             ▲
//!                             next transaction
//!   copies   a: 41, 39, 37     b: 41, 40     c: 42     d: 39          newest first
//! ```
//!
//! A log is a ring: until its place is written again, a transaction stays although nothing needs it
//! any more. Its copies show what a block contained at an earlier time, which is what undelete and
//! repair look for.
//!
//! Nothing here is trusted: each block is examined by itself, and a copy whose checksum does not
//! match is left out. A log without checksums for its copies offers copies that nothing proves.
//!
//! A copy whose descriptor was written over has no tag, so its home is not known from the log. Such
//! blocks are listed: their content may tell what they are.
//!
//! ```text
//!   log   │ 41 [a b] │ 42 [c] │ d  e  f │ commit of 37 │ 38 [a] │ …     d, e, f: untagged, of 37
//! ```

use crate::log::open_log::{Cycle, Log};
use extant_base::{BlockNr, Result, Tid};
use extant_ondisk::jbd2::{
    BlockSum, BlockType, Commit, CommitSum, Header, Tag, TagFlags, Tags, descriptor, header,
};

/// Log blocks that are read at a time.
const BATCH: u32 = 256;
/// Most untagged blocks that are kept: no more than a descriptor names are left by each wrap of the
/// ring.
const UNTAGGED_MAX: usize = 1 << 20;
/// How many numbers Linux skips when a volume is unmounted and mounted again.
const SKIPPED_MAX: u32 = 2;

/// A copy of a block in a log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OldCopy {
    /// The block's home, which is not checked against the volume's size.
    pub block: BlockNr,
    /// The transaction that wrote the copy.
    pub tid: Tid,
    /// Where the copy lies in the log.
    at: u32,
    /// `None` for a copy whose home is known from its content.
    tag: Option<Tag>,
}

/// A block of the log that no descriptor names.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct UntaggedBlock {
    /// The transaction that ends after it.
    pub tid: Tid,
    /// Where it lies in the log.
    at: u32,
}

impl OldCopy {
    /// The log block that holds the copy, from the log's start.
    pub fn place(&self) -> u32 {
        self.at
    }
}

/// The transaction of a commit block.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct OldCommit {
    /// Its number.
    pub tid: Tid,
    /// When it was committed, in seconds since 1970.
    pub seconds: u64,
    /// Where its commit block lies in the log.
    at: u32,
}

/// What a log still holds.
#[derive(Clone, Debug, Default)]
pub struct LogHistory {
    /// By block; of one block, the newest first.
    copies: Vec<OldCopy>,
    /// By number, oldest first.
    commits: Vec<OldCommit>,
    /// By place in the log.
    untagged: Vec<UntaggedBlock>,
    /// See [`LogHistory::complete_since`].
    complete_since: Option<OldCommit>,
    /// The number in the log's superblock.
    newest: Tid,
}

impl LogHistory {
    /// All copies: by block, and of one block the newest first.
    pub fn copies(&self) -> &[OldCopy] {
        &self.copies
    }

    /// The copies of `block`, the newest first.
    pub fn copies_of(&self, block: BlockNr) -> &[OldCopy] {
        let start = self.copies.partition_point(|copy| copy.block < block);
        let len = self.copies[start..].partition_point(|copy| copy.block == block);
        &self.copies[start..start + len]
    }

    /// Blocks that no descriptor names, and that are not all zeros.
    pub fn untagged(&self) -> &[UntaggedBlock] {
        &self.untagged
    }

    /// Adds untagged blocks as copies of `block`: their content proves that they are that.
    pub fn add_copies(&mut self, copies: impl IntoIterator<Item = (BlockNr, UntaggedBlock)>) {
        self.copies.extend(copies.into_iter().map(|(block, UntaggedBlock { tid, at })| OldCopy {
            block,
            tid,
            at,
            tag: None,
        }));
        self.sort();
    }

    /// The transactions whose commit block is still there, the oldest first.
    pub fn commits(&self) -> &[OldCommit] {
        &self.commits
    }

    /// When transaction `tid` was committed, in seconds since 1970; `None` if its commit block is
    /// not there.
    pub fn committed_at(&self, tid: Tid) -> Option<u64> {
        let place = self.place(tid);
        let found = self.commits.binary_search_by_key(&place, |commit| self.place(commit.tid));
        found.ok().map(|n| self.commits[n].seconds)
    }

    /// The oldest transaction since which no other is missing: of every later one the log has all
    /// copies. `None` if the log has no transaction.
    pub fn complete_since(&self) -> Option<OldCommit> {
        self.complete_since
    }

    /// A number that is larger the later a transaction is, also where the numbers of transactions
    /// wrap.
    pub fn place(&self, tid: Tid) -> u32 {
        u32::MAX - self.age(tid)
    }

    /// Numbers wrap, so they are compared by their distance from the number in the log's
    /// superblock; transactions after it are the newest.
    fn age(&self, tid: Tid) -> u32 {
        self.newest.0.wrapping_add(u32::MAX / 2).wrapping_sub(tid.0)
    }
}

impl Log {
    /// Finds all copies that the log still holds, in memory of about 40 bytes for each.
    ///
    /// # Errors
    /// `Device`.
    pub fn history(&self) -> Result<LogHistory> {
        let (format, cycle) = (self.format(), self.cycle());
        let size = format.block_size.bytes();
        let newest = self.superblock().sequence;
        let mut history = LogHistory { newest, ..LogHistory::default() };
        // The first block of each transaction, or any later one that is not a copy.
        let mut controls = Vec::new();
        let mut others = Vec::new();
        let mut bytes = vec![0; BATCH.min(cycle.len()) as usize * size];
        let mut at = cycle.first;
        while at < cycle.end {
            let count = BATCH.min(cycle.end - at);
            let bytes = &mut bytes[..count as usize * size];
            self.read(at, bytes)?;
            for (at, block) in (at..).zip(bytes.chunks_exact(size)) {
                let Some(found) = Header::read(block) else {
                    if others.len() < UNTAGGED_MAX && block.iter().any(|byte| *byte != 0) {
                        others.push(at);
                    }
                    continue;
                };
                controls.push((at, found.tid));
                match found.block_type {
                    BlockType::Descriptor if descriptor::checksum_matches(block, &format) => {
                        let tags = Tags::new(block, format, self.site(at)).map_while(Result::ok);
                        // A copy has a block of its own: further ones do not fit the ring.
                        let places = (1..cycle.len()).map(|step| cycle.after(at, step));
                        history.copies.extend(places.zip(tags).map(|(at, tag)| OldCopy {
                            block: tag.block,
                            tid: found.tid,
                            at,
                            tag: Some(tag),
                        }));
                    }
                    BlockType::Commit => {
                        let commit = Commit::read(block, &format);
                        let commit = commit.filter(|commit| commit.sum != CommitSum::Wrong);
                        history.commits.extend(
                            commit.map(|Commit { tid, seconds, .. }| OldCommit {
                                tid,
                                seconds,
                                at,
                            }),
                        );
                    }
                    _ => {}
                }
            }
            at += count;
        }
        history.untagged = history.find_untagged(others, &controls);
        history.sort();
        history.complete_since = history.find_complete(cycle, &controls);
        Ok(history)
    }

    /// Reads an old copy into `block`, which has the size of a block. Returns whether it is what
    /// was logged; if not, the content of `block` means nothing.
    ///
    /// # Errors
    /// `Device`.
    pub fn read_old(&self, copy: &OldCopy, block: &mut [u8]) -> Result<bool> {
        self.read(copy.at, block)?;
        // What has no tag was examined before.
        let verify = |tag: Tag| tag.verify_copy(&self.format(), copy.tid, block).is_ok();
        let is_right = copy.tag.is_none_or(verify);
        // Copies never start with the magic: a block that does is one of a later transaction.
        let is_later = Header::read(block).is_some();
        if copy.tag.is_some_and(|tag| tag.flags.contains(TagFlags::ESCAPE)) {
            header::unescape(block);
        }
        Ok(is_right && !is_later)
    }

    /// Reads a block without a tag.
    ///
    /// # Errors
    /// `Device`.
    pub fn read_untagged(&self, of: &UntaggedBlock, block: &mut [u8]) -> Result<()> {
        self.read(of.at, block)
    }

    /// Whether checksums prove the old copies.
    pub fn proves_copies(&self) -> bool {
        matches!(self.format().sum, BlockSum::V2 | BlockSum::V3)
    }
}

impl LogHistory {
    fn sort(&mut self) {
        let mut copies = std::mem::take(&mut self.copies);
        copies.sort_unstable_by_key(|copy| (copy.block, self.age(copy.tid), copy.at));
        copies.dedup_by_key(|copy| (copy.block, copy.tid));
        self.copies = copies;
        let mut commits = std::mem::take(&mut self.commits);
        commits.sort_unstable_by_key(|commit| (self.place(commit.tid), commit.seconds));
        commits.dedup_by_key(|commit| commit.tid);
        self.commits = commits;
    }

    /// Those of `places` that no tag names, each with the transaction of the next of `controls`: a
    /// transaction is overwritten from its start, so its end is still there. Without one, the
    /// transaction is not known, and the block is left out.
    fn find_untagged(&self, mut places: Vec<u32>, controls: &[(u32, Tid)]) -> Vec<UntaggedBlock> {
        let mut tagged: Vec<u32> = self.copies.iter().map(|copy| copy.at).collect();
        tagged.sort_unstable();
        places.retain(|at| tagged.binary_search(at).is_err());
        let next = |at: u32| controls.get(controls.partition_point(|(control, _)| *control < at));
        let block = |at| next(at).map(|(_, tid)| UntaggedBlock { tid: *tid, at });
        places.into_iter().filter_map(block).collect()
    }

    /// The oldest commit since which no transaction is missing. Numbers are skipped between two
    /// mounts, so a gap shows a loss only if it is larger than that, and if the next transaction
    /// does not begin where this one ends. `controls` are the blocks of the log that are not
    /// copies, in order, and their transactions.
    fn find_complete(&self, cycle: Cycle, controls: &[(u32, Tid)]) -> Option<OldCommit> {
        let follows = |older: &OldCommit, newer: &OldCommit| {
            let at = controls.binary_search_by_key(&cycle.after(older.at, 1), |(at, _)| *at);
            newer.tid.0.wrapping_sub(older.tid.0) <= 1 + SKIPPED_MAX
                || at.is_ok_and(|n| controls[n].1 == newer.tid)
        };
        let mut complete = self.commits.last()?;
        for older in self.commits.iter().rev().skip(1) {
            if !follows(older, complete) {
                break;
            }
            complete = older;
        }
        Some(*complete)
    }
}

#[cfg(test)]
mod tests {
    use crate::test_journal::{change, empty_log, journal_on, options, recover, stamp};
    use crate::test_log::{KINDS, SIZE};
    use extant_base::{BlockNr, ByteOffset};
    use extant_blockdev::BlockDevice;

    #[test]
    fn copies_stay_until_their_place_is_written_again() {
        for kind in KINDS {
            let log = empty_log(kind, 60);
            let device = log.device();
            let journal = journal_on(&log, &device, options());
            let mut tids = Vec::new();
            for value in 0..40 {
                let tid = change(&journal, &[3, 4 + value], value);
                journal.commit(tid).unwrap();
                tids.push(tid);
            }
            drop(journal);
            recover(&log, &device);
            let opened = log.open(&device).unwrap();
            let history = opened.history().unwrap();
            let copies = history.copies_of(BlockNr(3));
            // 63 blocks, 4 for each transaction.
            assert!((13..=15).contains(&copies.len()), "{kind:?}: {} copies", copies.len());
            assert!(copies.iter().map(|copy| &copy.tid).eq(tids.iter().rev().take(copies.len())));
            for (copy, value) in copies.iter().zip((0..40).rev()) {
                let mut block = [0; SIZE];
                assert!(opened.read_old(copy, &mut block).unwrap());
                assert!(block == stamp(value), "{kind:?}, value {value}");
                assert_eq!(history.committed_at(copy.tid), Some(9000));
            }
            assert_eq!(history.copies_of(BlockNr(4)), [], "its place was written again");
            assert_eq!(history.copies_of(BlockNr(43)).len(), 1);
            assert!(history.commits().windows(2).all(|two| two[1].tid.is_after(two[0].tid)));
            assert_eq!(history.complete_since(), history.commits().first().copied());
        }
    }

    #[test]
    fn a_transaction_that_is_missing_ends_the_complete_part() {
        let kind = KINDS[KINDS.len() - 1];
        let log = empty_log(kind, 60);
        let device = log.device();
        let journal = journal_on(&log, &device, options());
        let mut tids = Vec::new();
        for value in 0..10 {
            let tid = change(&journal, &[3], value);
            journal.commit(tid).unwrap();
            tids.push(tid);
        }
        drop(journal);
        let opened = log.open(&device).unwrap();
        let before = opened.history().unwrap();
        assert_eq!(before.complete_since().map(|commit| commit.tid), Some(tids[0]));
        // Four transactions in the middle go.
        for commit in &before.commits()[3..7] {
            let (at, _) = log.map().locate(commit.at).unwrap();
            device.write_at(at, &[0; SIZE]).unwrap();
        }
        let history = opened.history().unwrap();
        assert_eq!(history.commits().len(), 6);
        assert_eq!(history.complete_since().map(|commit| commit.tid), Some(tids[7]));
        assert_eq!(history.committed_at(tids[4]), None);
        assert_eq!(history.committed_at(tids[9]), Some(9000));
    }

    #[test]
    fn copies_whose_descriptor_is_gone_are_untagged_blocks_of_their_transaction() {
        let kind = KINDS[KINDS.len() - 1];
        let log = empty_log(kind, 1);
        let device = log.device();
        let journal = journal_on(&log, &device, options());
        journal.commit(change(&journal, &[9], 1)).unwrap();
        let tid = change(&journal, &[20, 21, 22], 7);
        journal.commit(tid).unwrap();
        drop(journal);
        let opened = log.open(&device).unwrap();
        let before = opened.history().unwrap();
        assert_eq!(before.untagged(), []);
        let copy = before.copies_of(BlockNr(20))[0];
        let (at, _) = log.map().locate(copy.at - 1).unwrap();
        device.write_at(at, &[0; SIZE]).unwrap();
        let mut history = opened.history().unwrap();
        assert_eq!(history.copies_of(BlockNr(20)), []);
        assert_eq!(history.untagged().len(), 3);
        assert!(history.untagged().iter().all(|block| block.tid == tid));
        let first = history.untagged()[0];
        let mut block = [0; SIZE];
        opened.read_untagged(&first, &mut block).unwrap();
        assert!(block == stamp(7));
        history.add_copies([(BlockNr(20), first)]);
        let copies = history.copies_of(BlockNr(20));
        assert_eq!((copies.len(), copies[0].tid), (1, tid));
        assert!(opened.read_old(&copies[0], &mut block).unwrap());
    }

    #[test]
    fn a_copy_that_was_damaged_is_refused() {
        for kind in KINDS {
            let log = empty_log(kind, 1);
            let device = log.device();
            let journal = journal_on(&log, &device, options());
            journal.commit(change(&journal, &[3], 7)).unwrap();
            drop(journal);
            let opened = log.open(&device).unwrap();
            let history = opened.history().unwrap();
            let copy = &history.copies_of(BlockNr(3))[0];
            let mut block = [0; SIZE];
            assert!(opened.read_old(copy, &mut block).unwrap());
            let (at, _) = log.map().locate(copy.at).unwrap();
            device.write_at(ByteOffset(at.0 + 100), &[0xAA]).unwrap();
            assert_eq!(opened.read_old(copy, &mut block).unwrap(), !opened.proves_copies());
        }
    }
}
