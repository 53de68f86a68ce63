//! Fast commits beside full ones: each change is recorded, or committed, before its thread
//! continues.

use super::Ground;
use crate::explore::{Scene, Timers, explore, finds};
use crate::journal::test_journal::{options, put, stamp};
use crate::journal::test_log::{SIZE, TestLog};
use crate::journal::{
    Change, CommitPoint, Credits, Journal, JournalOptions, Piece, RecordedInode, Snapshot,
};
use crate::model::{below, point, thread};
use extant_base::{BlockNr, ByteOffset, Ino, Result, Tid};
use extant_blockdev::{BlockDevice, MemoryDevice};
use extant_ondisk::fast_commit::Record;
use extant_ondisk::jbd2::{BlockSum, JournalIncompat};
use std::sync::Arc;
use std::sync::atomic::Ordering::SeqCst;

/// Block n is inode n + 12.
const FIRST: u64 = 12;

/// Inodes as the cache has them.
struct Cached<'a>(&'a Journal);

impl Snapshot for Cached<'_> {
    fn inode(&self, ino: Ino, raw: &mut Vec<u8>) -> Result<Option<RecordedInode>> {
        point();
        let block = self.0.cache().get(BlockNr(u64::from(ino.get()) - FIRST))?;
        raw.extend_from_slice(&block.read()[..128]);
        Ok(Some(RecordedInode { links: 1, regular: true, mapped: true }))
    }

    fn pieces(&self, _: Ino, _: u32, _: u32, _: &mut dyn FnMut(Piece)) -> Result<()> {
        Ok(())
    }
}

fn log() -> TestLog {
    let mut log = TestLog::new((BlockSum::V3, true), Tid(u32::MAX - 3).0, 1, 4);
    log.superblock.start = None;
    log.superblock.features.incompat.remove(JournalIncompat::FAST_COMMIT);
    log.put_superblock();
    log
}

fn recover(log: &TestLog, device: &Arc<MemoryDevice>) {
    let mut opened = log.open(device).unwrap();
    let recovery = opened.recover(&**device, log.limits()).unwrap();
    for record in recovery.fast_commit.iter().flat_map(|found| found.records()) {
        let Record::Inode { ino, raw } = record else { panic!("{record:?}") };
        let value = u64::from_le_bytes(raw[8..16].try_into().unwrap());
        let at = (u64::from(ino.get()) - FIRST) * SIZE as u64;
        device.write_at(ByteOffset(at), &stamp(value)).unwrap();
    }
    opened.finish(&**device, &recovery).unwrap();
}

/// As [`Ground::change`], with notes.
fn change(ground: &Ground, pair: usize) -> (u64, CommitPoint) {
    let pair = &ground.pairs[pair];
    let mut turn = pair.turn.lock();
    *turn += 1;
    let handle = ground.journal.start(Credits::blocks(2)).unwrap();
    pair.written.store(*turn, SeqCst);
    for nr in pair.blocks {
        put(&handle, nr, *turn);
        handle.note(Change::Inode(Ino::new((nr + FIRST) as u32).unwrap()));
    }
    let step = handle.commit_point();
    handle.stop().unwrap();
    (*turn, step)
}

fn fast() {
    let options = JournalOptions { fast_commits: true, ..options() };
    let ground = Ground { recover, ..Ground::new(log(), options, 2) };
    let journal = &ground.journal;
    // After the first full commit there are fast ones.
    let (value, step) = change(&ground, 0);
    journal.commit_with_data(step, Some(&Cached(journal))).unwrap();
    ground.acknowledge(0, value);
    thread::scope(|scope| {
        for n in 0..3 {
            let ground = &ground;
            scope.spawn(move || {
                for round in 0..3 {
                    let pair = (n + round) % 2;
                    let (value, step) = change(ground, pair);
                    let cached = Cached(&ground.journal);
                    // One in six is a full commit, and there is space for three fast ones.
                    let snapshot = if below(6) > 0 { Some(&cached as &dyn Snapshot) } else { None };
                    ground.journal.commit_with_data(step, snapshot).unwrap();
                    ground.acknowledge(pair, value);
                }
            });
        }
        scope.spawn(|| {
            for _ in 0..3 {
                ground.cut();
            }
        });
    });
    ground.cut();
    assert!(journal.stats().fast_commits + journal.stats().commits > 1);
    ground.close();
}

const FAST: Scene = Scene {
    name: "journal_scenes::fast::fast_commits_beside_full_ones",
    timers: Timers::Never,
    run: fast,
};

#[test]
fn fast_commits_beside_full_ones() {
    explore(&FAST, 1000);
}

#[test]
fn fast_commits_that_record_too_much_or_too_little_are_found() {
    finds("a fast commit tells of handles that still run", &FAST, 3000, "");
    finds("a fast commit counts for handles that came after it", &FAST, 3000, "lost");
}
