//! Logs changed at random: recovery ends in bounded time with a result or an error, and the log
//! itself is not written.

use crate::recovery::cut_test::Random;
use crate::test_log::{HOME, KINDS, SIZE, TestLog};
use extant_base::{BlockNr, Ino, LogicalBlock, Tid};
use extant_ondisk::fast_commit::{MappedRange, NameChange, Record};
use extant_ondisk::jbd2::{BlockSum, JournalSuperblock};

/// Changes log block `block` a little.
fn mutate(log: &mut TestLog, block: u32, random: &mut Random) {
    let other = random.below(u64::from(log.superblock.maxlen)) as u32;
    let copy = log.block_mut(other).to_vec();
    let bytes = log.block_mut(block);
    // Most fields are at the start of a block.
    let span = if random.below(3) == 0 { SIZE as u64 } else { 64 };
    let at = random.below(span - 3) as usize;
    match random.below(6) {
        0 => bytes[at] ^= 1 << random.below(8),
        1 => bytes[at] = random.next() as u8,
        2 => bytes[at..at + 4].copy_from_slice(&(random.next() as u32).to_be_bytes()),
        3 => bytes[at..at + 4].fill(0xFF),
        4 => bytes[at..at + 4].copy_from_slice(&(random.below(80) as u32).to_be_bytes()),
        _ => bytes.copy_from_slice(&copy),
    }
}

fn check(log: &TestLog, what: &str) {
    let device = log.device();
    let Ok(mut opened) = log.open(&device) else { return };
    let recovered = opened.recover(&*device, log.limits());
    let after = device.content();
    assert!(after[HOME as usize * SIZE..] == log.image[HOME as usize * SIZE..], "{what}");
    if let Ok(recovery) = recovered {
        if let Some(fast) = &recovery.fast_commit {
            assert_eq!(fast.tid(), recovery.end_tid);
            assert!(fast.records().count() <= fast.bytes().len());
        }
        opened.finish(&*device, &recovery).unwrap();
        let again = log.open(&device).expect("finish leaves a superblock that reads");
        assert!(!again.needs_recovery(), "{what}");
    }
}

#[test]
fn changed_logs_never_panic_or_write_into_the_log() {
    for (kind_nr, kind) in KINDS.into_iter().enumerate() {
        let mut base = TestLog::new(kind, 7, 50, 0);
        for value in 0..8 {
            base.revoke(&[u64::from(value), 100]);
            base.transaction(&[(u64::from(value) + 20, value), (3, value)]);
        }
        for seed in 0..1500 {
            let mut random = Random(seed << 8 | kind_nr as u64);
            let mut log = base.clone();
            for _ in 0..1 + random.below(4) {
                let block = random.below(64) as u32;
                mutate(&mut log, block, &mut random);
            }
            check(&log, &format!("{kind:?}, seed {seed}"));
        }
    }
}

#[test]
fn changed_superblocks_with_a_right_checksum_never_panic() {
    let mut base = TestLog::new((BlockSum::V3, true), 7, 50, 0);
    for value in 0..8 {
        base.transaction(&[(u64::from(value) + 20, value), (3, value)]);
    }
    for seed in 0..3000 {
        let mut random = Random(seed);
        let mut log = base.clone();
        for _ in 0..1 + random.below(3) {
            mutate(&mut log, 0, &mut random);
        }
        // Write a right checksum for the changed superblock: read it without checksums, write it
        // with them.
        let format = log.superblock.block_size;
        let block = log.block_mut(0);
        let sums = u32::from_be_bytes(block[0x28..0x2C].try_into().unwrap()) & 0x18;
        block[0x2B] &= !0x18;
        let read = JournalSuperblock::read(block, format, 64, Default::default());
        if let Ok(mut superblock) = read {
            superblock.features.incompat |=
                extant_ondisk::jbd2::JournalIncompat::from_bits_retain(sums);
            superblock.write(log.block_mut(0));
        }
        check(&log, &format!("seed {seed}"));
    }
}

#[test]
fn changed_fast_commits_never_panic() {
    let ino = Ino::new(12).unwrap();
    let mut base = TestLog::new((BlockSum::V3, true), 7, 1, 16);
    base.transaction(&[(3, 1)]);
    let raw = [9; 200];
    let (first, start) = (LogicalBlock(0), BlockNr(40));
    for _ in 0..3 {
        let range = MappedRange { ino, first, len_blocks: 3, unwritten: false, start };
        let name = NameChange { parent: Ino::ROOT, ino, name: b"name" };
        let records = [Record::Inode { ino, raw: &raw }, Record::AddRange(range)];
        base.fast(Tid(8), &records);
        base.fast(Tid(8), &[Record::Create(name), Record::Unlink(name)]);
    }
    for seed in 0..600 {
        let mut random = Random(seed);
        let mut log = base.clone();
        for _ in 0..1 + random.below(4) {
            let block = log.fast_block(random.below(7) as u32);
            mutate(&mut log, block, &mut random);
        }
        check(&log, &format!("seed {seed}"));
    }
}
