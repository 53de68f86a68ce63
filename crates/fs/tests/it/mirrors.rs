//! Volumes on two mirrors of which one fails or decays: each flipped bit is found and repaired from
//! the other copy, and a request that fails on one of them has no consequences.

use crate::common::mirrored::{LEN, byte, copies, expect_same, made, mirror, open};
use crate::common::seen::{Tree, differences, tree};
use crate::common::{image_of, judge, pattern};
use extant::check::{Options, check_device};
use extant::direct::{Bounce, DirectOptions};
use extant::raid::record_of;
use extant::{BlockDevice, Error, Filesystem, MemoryDevice, NewFile, OpenOptions};
use extant_base::{ByteOffset, IoOp, MemberError, MemberProblem};
use extant_ondisk::superblock::VolumeState;
use extant_testdev::Faulty;
use extant_testkit::e2fsprogs;
use extant_testkit::rng::Rng;
use std::collections::BTreeSet;
use std::path::Path;
use std::sync::{Arc, Mutex};

fn seed() -> u64 {
    std::env::var("EXTANT_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(1)
}

/// Blocks in use, except those of the log, which is empty.
fn used_blocks(device: &MemoryDevice, block: u64) -> Vec<u64> {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("img");
    let mut bytes = vec![0; LEN as usize];
    device.read_at(ByteOffset(0), &mut bytes).unwrap();
    std::fs::write(&path, &bytes).unwrap();
    let log = e2fsprogs::debugfs(&path, "blocks <8>").unwrap();
    let log: BTreeSet<u64> = log.split_whitespace().skip(1).map(|n| n.parse().unwrap()).collect();
    let is_used = |n: &u64| {
        let bytes = &bytes[(n * block) as usize..][..block as usize];
        !log.contains(n) && bytes.iter().any(|byte| *byte != 0)
    };
    (0..LEN / block).filter(is_used).collect()
}

#[test]
fn a_flipped_bit_anywhere_on_one_mirror_is_repaired_or_has_no_effect() {
    for (block, features) in [(4096, "data_csum"), (1024, "data_csum,quota")] {
        let devices = made(block, features);
        let want = tree(&open(mirror(&copies(&devices)), 0)).unwrap();
        let blocks = used_blocks(&devices[0], block.into());
        let mut rng = Rng::new(seed());
        let (mut repaired, mut found, mut unread) = (0, 0, 0);
        for round in 0..80 {
            let devices = copies(&devices);
            let (bad, n) = (rng.below(2), blocks[rng.below(blocks.len())]);
            let mut at = n * u64::from(block) + rng.below(block as usize) as u64;
            while at < 1536 {
                // The member record, and the sector that reveals foreign changes: the layout's own
                // tests cover them.
                at += 512;
            }
            if byte(&devices[bad], at) == b't' {
                // Perhaps in the link's target, which has no checksum.
                continue;
            }
            let flipped = byte(&devices[bad], at) ^ 1 << rng.below(8);
            devices[bad].write_at(ByteOffset(at), &[flipped]).unwrap();
            let context = format!("round {round}: member {bad}, block {n}, byte {at}");

            let device = mirror(&devices);
            let fs = open(device.clone(), [0, 8][round % 2]);
            expect_same(&fs, &want, &context);
            // Changes next to it must not include the damage.
            let name = format!("/file{}", rng.below(40));
            let changes = extant::SetAttributes { uid: Some(77), ..Default::default() };
            fs.set_attributes(&name, &changes).unwrap();
            fs.create_file("/new", &NewFile::default()).unwrap();
            fs.sync().unwrap();
            let after = tree(&fs).unwrap();
            let state = fs.superblock().state;
            assert!(!state.contains(VolumeState::ERROR), "{context}: marked as damaged");
            fs.close().unwrap_or_else(|error| panic!("{context}: {error}"));
            drop(device);
            let again = mirror(&devices);
            assert!(again.left_out().is_empty(), "{context}");
            expect_same(&open(again.clone(), 0), &after, &context);
            drop(again);

            let same = byte(&devices[0], at) == byte(&devices[1], at);
            if same {
                repaired += 1;
                continue;
            }
            // Nothing read it: a check of this member alone finds it, or nothing uses the byte.
            let options = Options { data: true, ..Options::default() };
            let report = check_device(devices[bad].clone(), &options, &()).unwrap();
            match report.clean {
                true => unread += 1,
                false => found += 1,
            }
        }
        println!(
            "{features}: {repaired} repaired, {found} found by a check, {unread} without meaning"
        );
        assert!(repaired + found > 40, "{repaired} repaired, {found} found");
    }
}

#[test]
fn each_repaired_place_is_reported() {
    let devices = made(4096, "data_csum");
    let dir = tempfile::tempdir().unwrap();
    let paths = ["a", "b"].map(|name| dir.path().join(name));
    for (device, path) in devices.iter().zip(&paths) {
        let mut bytes = image_of(&**device);
        if path.ends_with("b") {
            for at in used_blocks(&devices[1], 4096).into_iter().map(|n| n as usize * 4096 + 77) {
                // Except the layout's own block, which its own tests cover, and the link's, which
                // has no checksum.
                if at > 4096 && bytes[at] != b't' {
                    bytes[at] ^= 1;
                }
            }
        }
        std::fs::write(path, bytes).unwrap();
    }
    let reported = Arc::new(Mutex::new(Vec::new()));
    let report = Arc::clone(&reported);
    let mut options = OpenOptions::new();
    options.write(true).commit_interval(None).member(&paths[1]);
    options.on_error(Arc::new(move |error| match error {
        Error::Member(error) => report.lock().unwrap().push(MemberError::clone(error)),
        error => panic!("{error}"),
    }));
    let fs = options.open(&paths[0]).unwrap();
    expect_same(&fs, &tree(&open(mirror(&devices), 0)).unwrap(), "");
    let reported = std::mem::take(&mut *reported.lock().unwrap());
    let [a, b] = paths.each_ref().map(|path| std::fs::read(path).unwrap());
    let mut places = BTreeSet::new();
    for error in &reported {
        assert_eq!(Path::new(&error.member), paths[1], "{error}");
        let MemberProblem::Repaired { at, len } = error.problem else { panic!("{error}") };
        let range = at as usize..(at + len) as usize;
        assert!(a[range.clone()] == b[range.clone()], "{error}");
        assert!(places.insert(at), "reported twice: {error}");
    }
    // The mirror decides how many of them are read from this member.
    assert!(reported.len() > 3, "{}", reported.len());
    fs.close().unwrap();
}

/// The block of the inode table with the inode of `name`, according to debugfs.
fn inode_block(image: &Path, name: &str) -> u64 {
    let place = e2fsprogs::debugfs(image, &format!("imap {name}")).unwrap();
    let block = place.split("at block ").nth(1).expect("the block of the inode");
    block.split(',').next().unwrap().trim().parse().unwrap()
}

#[test]
fn a_block_that_is_zeroed_on_one_mirror_is_taken_from_the_other() {
    let devices = made(4096, "data_csum");
    let want = tree(&open(mirror(&copies(&devices)), 0)).unwrap();
    for bad in [0, 1] {
        let devices = copies(&devices);
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("img");
        let mut bytes = vec![0; LEN as usize];
        devices[0].read_at(ByteOffset(0), &mut bytes).unwrap();
        std::fs::write(&path, &bytes).unwrap();
        let inodes = inode_block(&path, "/file5");
        let checksum_block = e2fsprogs::debugfs(&path, "blocks <5>").unwrap();
        let checksum_block =
            checksum_block.split_whitespace().skip(1).map(|n| n.parse::<u64>().unwrap());
        for block in checksum_block.chain([inodes]) {
            devices[bad].write_at(ByteOffset(block * 4096), &[0; 4096]).unwrap();
        }
        let fs = open(mirror(&devices), 0);
        expect_same(&fs, &want, "zeroed");
        fs.remove_file("/file5").unwrap();
        fs.create_file("/new", &NewFile::default()).unwrap();
        fs.sync().unwrap();
        let after = tree(&fs).unwrap();
        fs.close().unwrap();
        expect_same(&open(mirror(&devices), 0), &after, "changed");
        judge(&*mirror(&devices));
    }
}

#[test]
fn entries_of_a_block_are_each_taken_from_the_mirror_where_they_are_right() {
    let devices = made(4096, "");
    let want = tree(&open(mirror(&copies(&devices)), 0)).unwrap();
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("img");
    let mut bytes = vec![0; LEN as usize];
    devices[0].read_at(ByteOffset(0), &mut bytes).unwrap();
    std::fs::write(&path, &bytes).unwrap();
    let block = inode_block(&path, "/file5");
    // Sixteen slots: every other one is wrong on this member, the rest on the other.
    for slot in 0..16 {
        let at = ByteOffset(block * 4096 + slot * 256 + 4);
        devices[slot as usize % 2].write_at(at, &[0xA5; 8]).unwrap();
    }
    let fs = open(mirror(&devices), 0);
    expect_same(&fs, &want, "mixed");
    let changes = extant::SetAttributes { uid: Some(77), ..Default::default() };
    fs.set_attributes("/file5", &changes).unwrap();
    fs.sync().unwrap();
    let after = tree(&fs).unwrap();
    fs.close().unwrap();
    devices.iter().for_each(|device| judge(&**device));
    expect_same(&open(mirror(&devices), 0), &after, "changed");
}

type Member = Arc<Faulty<MemoryDevice>>;

/// Uses a volume in every way. Returns what it shows then.
fn worked(fs: &Filesystem, bounce: Bounce) -> extant::Result<Tree> {
    let root = fs.root()?;
    let direct = DirectOptions { bounce, ..DirectOptions::default() };
    for round in 0..3u8 {
        let file = fs.open_file("/file30")?;
        file.write_all_at(&pattern(20_000, round), 10_000)?;
        file.write_direct_at(&pattern(16_384, round), 40_960, &direct)?;
        let mut back = vec![0; 20_000];
        file.read_at(&mut back, 10_000)?;
        assert_eq!(back, pattern(20_000, round));
        file.sync_all()?;
        let mut back = vec![0; 16_384];
        file.read_direct_at(&mut back, 40_960, &direct)?;
        assert_eq!(back, pattern(16_384, round));
        root.create_file(format!("new{round}"), &NewFile::default())?;
        fs.rename(format!("/file{round}"), format!("/many/moved{round}"))?;
        fs.remove_file(format!("/file{}", 10 + round))?;
        fs.sync()?;
    }
    tree(fs)
}

#[test]
fn requests_that_one_mirror_fails_cost_nothing() {
    for (features, bounce) in
        [("", Bounce::Auto), ("data_csum", Bounce::Auto), ("", Bounce::Always)]
    {
        let base = made(4096, features);
        for op in [IoOp::Read, IoOp::Write, IoOp::Flush] {
            for nth in [1, 2, 3, 5, 8, 13, 21, 34, 55, 89] {
                for (bad, for_good) in [(0, false), (1, false), (0, true), (1, true)] {
                    let context = format!("{features} {bounce:?}: {op} {nth} of {bad}, {for_good}");
                    let members: Vec<Member> = base
                        .iter()
                        .map(|d| Arc::new(Faulty::new(MemoryDevice::clone(d))))
                        .collect();
                    let device = mirror(&members);
                    let fs = open(device.clone(), 1);
                    match for_good {
                        true => members[bad].fail_from(op, nth),
                        false => members[bad].fail(op, nth),
                    }
                    let want = worked(&fs, bounce).unwrap_or_else(|e| panic!("{context}: {e}"));
                    fs.close().unwrap_or_else(|e| panic!("{context}: {e}"));
                    let lost = device.stats().failed_members;
                    drop(device);
                    assert!(op != IoOp::Read || for_good || lost == 0, "{context}: {lost} lost");
                    members.iter().for_each(|member| member.heal());
                    let device = mirror(&members);
                    assert_eq!(device.left_out().len() as u64, lost, "{context}");
                    let found = tree(&open(device.clone(), 0)).unwrap();
                    assert_eq!(differences(&want, &found), [""; 0], "{context}");
                    if nth == 5 {
                        judge(&*device);
                    }
                }
            }
        }
    }
}

#[test]
fn a_closed_volume_leaves_nothing_to_compare_though_a_clone_of_it_is_kept() {
    let devices = made(4096, "");
    let fs = open(mirror(&devices), 8);
    let kept = fs.clone();
    let file = fs.root().unwrap().create_file("late", &NewFile::default()).unwrap().open().unwrap();
    file.write_all_at(&pattern(2 << 20, 3), 0).unwrap();
    file.sync_all().unwrap();
    let record = |device: &MemoryDevice| record_of(device).unwrap().unwrap();
    assert!(!record(&devices[0]).intent.is_empty());
    drop(file);
    fs.close().unwrap();
    for device in &devices {
        let record = record(device);
        assert!(record.confirmed && record.intent.is_empty(), "{record:?}");
        judge(device);
    }
    drop(kept);
}
