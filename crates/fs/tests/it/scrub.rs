//! `extant::scrub`: damage of each kind on one of two mirrors is replaced by the other's copy, and
//! differences that cannot be decided are reported and left.

use crate::common::judge;
use crate::common::mirrored::{LEN, byte, copies, expect_same, made, mirror, open, parts};
use crate::common::seen::tree;
use extant::mkfs::{self, MkfsOptions};
use extant::raid::{Assembled, Mirror, Opening, Wanted, assemble, create, record_of};
use extant::scrub::{Options as Scrub, Report, scrub};
use extant::{BlockDevice, BlockSize, Environment, MemoryDevice, NewFile, Phase, Progress};
use extant_base::ByteOffset;
use extant_ondisk::member;
use extant_testkit::e2fsprogs;
use extant_testkit::rng::Rng;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

/// A location in a volume to be damaged, and its content.
type Kind = (&'static str, u64);

/// One location of each kind in the volume of [`made`], in bytes.
fn kinds(image: &std::path::Path, block: u64, with_data_csum: bool) -> Vec<Kind> {
    let debugfs = |command: &str| e2fsprogs::debugfs(image, command).unwrap();
    let numbers = |text: &str| -> Vec<u64> {
        text.split(|c: char| !c.is_ascii_digit()).filter_map(|n| n.parse().ok()).collect()
    };
    let blocks = |name: &str| -> Vec<u64> {
        let text = debugfs(&format!("blocks {name}"));
        text.split_whitespace().filter_map(|n| n.parse().ok()).collect()
    };
    let stats = debugfs("stats");
    let after = |text: &str, word: &str| {
        let rest = text.split(word).nth(1).unwrap_or_else(|| panic!("{word} in {text}"));
        numbers(rest)[0]
    };
    let group = stats.split("Group  0:").nth(1).expect("a group");
    let per_group = after(&stats, "Blocks per group:");
    let first = after(&stats, "First block:");
    let torn = debugfs("ex /torn");
    let map =
        torn.lines().find(|line| line.trim_start().starts_with("0/")).expect("a block of the map");
    let map = numbers(map)[6];
    let xattr = after(&debugfs("stat /file30"), "File ACL:");
    let place = debugfs("imap /file5");
    let inode = after(&place, "at block ") * block
        + place.split("offset 0x").nth(1).map_or(0, |hex| {
            u64::from_str_radix(hex.trim().trim_end_matches('.'), 16).expect("an offset")
        });
    let table = after(group, "inode table at") * block;
    let backup = (first + per_group) * block;
    let dir = blocks("/many");
    let mut kinds = vec![
        ("superblock", 1024 + 0x78),
        ("second sector of the superblock", 1024 + 0x210),
        ("descriptors", (first + 1) * block + 0x0C),
        ("block bitmap", after(group, "block bitmap at") * block + 8),
        ("inode bitmap", after(group, "inode bitmap at") * block + 1),
        ("inode", inode + 0x10),
        ("reserved inode", table + 256 * 5 + 0x20),
        ("inode that was never used", table + 256 * (after(&stats, "Inodes per group:") - 2)),
        ("index of a directory", dir[0] * block + 0x30),
        ("block of a directory", dir[2] * block + 0x0A),
        ("map", map * block + 12 + 4),
        ("attributes", xattr * block + 40),
        ("journal's superblock", blocks("<8>")[0] * block + 0x18),
        ("log", blocks("<8>")[20] * block + 7),
        ("free block", (LEN / block - 3) * block + 9),
    ];
    if backup < LEN {
        kinds.push(("backup of the superblock", backup + 0x78));
        kinds.push(("backup of the descriptors", backup + block + 0x0C));
    }
    if let Some(reserve) = blocks("<7>").first().filter(|_| block == 1024) {
        kinds.push(("resize inode", reserve * block));
    }
    if with_data_csum {
        kinds.push(("checksum file", blocks("<5>")[0] * block + 40));
        kinds.push(("data", blocks("/file30")[3] * block + 77));
    }
    kinds
}

fn image_of(device: &dyn BlockDevice, path: &std::path::Path) {
    let mut bytes = vec![0; LEN as usize];
    device.read_at(ByteOffset(0), &mut bytes).unwrap();
    std::fs::write(path, &bytes).unwrap();
}

fn expect_equal(devices: &[Arc<MemoryDevice>], context: &str) {
    let found = mirror(devices).compare(1024, 99, &mut |_, _| true).unwrap().ranges;
    assert!(found.is_empty(), "{context}: {found:?}");
}

#[test]
fn a_scrub_repairs_damage_of_each_kind_on_either_member() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("img");
    for (block, features) in [(4096, "data_csum"), (1024, "data_csum,quota"), (1024, "")] {
        let devices = made(block, features);
        let with_data_csum = features.contains("data_csum");
        let want = tree(&open(mirror(&copies(&devices)), 0)).unwrap();
        image_of(&*devices[0], &path);
        for (kind, at) in kinds(&path, block.into(), with_data_csum) {
            for bad in [0, 1] {
                for zeros in [false, true] {
                    let context = format!("{block} {features:?}: {kind}, member {bad}, {zeros}");
                    let devices = copies(&devices);
                    match zeros {
                        true => {
                            // A block of the checksum file that is all zeros is valid by itself.
                            let unit = if kind == "checksum file" { u64::from(block) } else { 512 };
                            let start = ByteOffset(at - at % unit);
                            devices[bad].write_at(start, &vec![0; unit as usize]).unwrap();
                        }
                        false => {
                            let flipped = byte(&devices[bad], at) ^ 0x10;
                            devices[bad].write_at(ByteOffset(at), &[flipped]).unwrap();
                        }
                    }
                    let opened = mirror(&devices);
                    let report = scrub(
                        &opened,
                        &Scrub { write: true, trust: None, ..Scrub::default() },
                        &(),
                    );
                    let report = report.unwrap_or_else(|error| panic!("{context}: {error}"));
                    drop(opened);
                    assert!(report.unresolved.is_empty(), "{context}: {report:?}");
                    assert!(report.errors.iter().all(|count| *count == 0), "{context}: {report:?}");
                    expect_equal(&devices, &context);
                    expect_same(&open(mirror(&devices), 0), &want, &context);
                    judge(&*devices[bad]);
                }
            }
        }
    }
}

#[test]
fn a_scrub_reports_undecided_blocks_and_copies_no_damage_from_a_trusted_member() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("img");
    let base = made(4096, "");
    image_of(&*base[0], &path);
    let data = e2fsprogs::debugfs(&path, "blocks /file30").unwrap();
    let data: u64 = data.split_whitespace().nth(3).unwrap().parse().unwrap();
    let kinds = kinds(&path, 4096, false);
    let place = |name: &str| kinds.iter().find(|(kind, _)| *kind == name).expect("a kind").1;
    for trusted in [0, 1] {
        let devices = copies(&base);
        let flip = |member: usize, at: u64| {
            let flipped = byte(&devices[member], at) ^ 4;
            devices[member].write_at(ByteOffset(at), &[flipped]).unwrap();
        };
        flip(0, data * 4096 + 5);
        // The trusted member is damaged, too, where damage can be detected.
        flip(trusted, place("map"));
        flip(trusted, place("attributes"));
        flip(1 - trusted, place("block of a directory"));
        let right = byte(&devices[trusted], data * 4096 + 5);
        let opened = mirror(&devices);
        let report = scrub(&opened, &Scrub::default(), &()).unwrap();
        let known = report.unresolved.iter().filter(|block| block.is_known).count();
        assert_eq!(
            (report.unresolved.len(), known, report.repaired_blocks),
            (4, 3, 0),
            "{report:?}"
        );
        let options = Scrub { write: true, trust: None, ..Scrub::default() };
        let report = scrub(&opened, &options, &()).unwrap();
        let left: Vec<_> = report.unresolved.iter().map(|found| found.range.start).collect();
        assert_eq!((left, report.repaired_blocks), (vec![data * 4096], 3), "{report:?}");
        assert_ne!(byte(&devices[0], data * 4096 + 5), byte(&devices[1], data * 4096 + 5));
        flip(trusted, place("inode"));
        let options = Scrub { write: true, trust: Some(trusted), ..Scrub::default() };
        let report = scrub(&opened, &options, &()).unwrap();
        assert!(report.unresolved.is_empty() && !report.trust_refused, "{report:?}");
        drop(opened);
        expect_equal(&devices, "trusted");
        assert_eq!(byte(&devices[1 - trusted], data * 4096 + 5), right);
        devices.iter().for_each(|device| judge(&**device));
    }
}

#[test]
fn entries_of_a_block_that_are_wrong_on_different_members_are_each_repaired() {
    for features in ["", "data_csum"] {
        let base = made(4096, features);
        let want = tree(&open(mirror(&copies(&base)), 0)).unwrap();
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("img");
        image_of(&*base[0], &path);
        let kinds = kinds(&path, 4096, false);
        let inode = kinds.iter().find(|(kind, _)| *kind == "inode").expect("it is there").1;
        // Of two adjacent slots in a block of inodes.
        let other = if inode % 4096 >= 256 { inode - 256 } else { inode + 256 };
        base[0].write_at(ByteOffset(inode), &[0xFF; 4]).unwrap();
        base[1].write_at(ByteOffset(other), &[0xFF; 4]).unwrap();
        let opened = mirror(&base);
        let options = Scrub { write: true, trust: None, ..Scrub::default() };
        let report = scrub(&opened, &options, &()).unwrap();
        assert!(report.unresolved.is_empty(), "{report:?}");
        drop(opened);
        expect_equal(&base, "entries");
        expect_same(&open(mirror(&base), 0), &want, "entries");
        base.iter().for_each(|device| judge(&**device));
    }
}

/// Opens the content of one member as a volume by itself.
fn alone(device: &Arc<MemoryDevice>) -> extant::Filesystem {
    extant::OpenOptions::new().open_device(Arc::new(MemoryDevice::clone(device))).unwrap()
}

#[test]
fn the_right_member_is_unchanged_whatever_the_other_contains() {
    let seed = std::env::var("EXTANT_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(1);
    let mut rng = Rng::new(seed);
    let kinds = [(4096, "data_csum"), (1024, ""), (1024, "^metadata_csum"), (4096, "^has_journal")];
    for (block, features) in kinds {
        let base = made(block, features);
        let want = tree(&alone(&base[0])).unwrap();
        let mut bytes = vec![0; LEN as usize];
        base[0].read_at(ByteOffset(0), &mut bytes).unwrap();
        let (mut repaired, mut left) = (0, 0);
        for round in 0..20 {
            let devices = copies(&base);
            let bad = rng.below(2);
            let context = format!("{block} {features}: round {round}, member {bad}");
            for _ in 0..1 + rng.below(6) {
                let used = |rng: &mut Rng| loop {
                    let at = (2048 + rng.below(LEN as usize - 4096)) & !511;
                    if bytes[at..at + 512].iter().any(|byte| *byte != 0) {
                        return at as u64;
                    }
                };
                let at = used(&mut rng);
                match rng.below(3) {
                    0 => devices[bad].write_at(ByteOffset(at), &[0; 512]).unwrap(),
                    1 => devices[bad].write_at(ByteOffset(at), &[0x5A; 512]).unwrap(),
                    _ => {
                        let at = at + rng.below(512) as u64;
                        let flipped = byte(&devices[bad], at) ^ 1 << rng.below(8);
                        devices[bad].write_at(ByteOffset(at), &[flipped]).unwrap();
                    }
                }
            }
            let opened = mirror(&devices);
            let options = Scrub { write: true, trust: None, ..Scrub::default() };
            let report = scrub(&opened, &options, &());
            let report = report.unwrap_or_else(|error| panic!("{context}: {error}"));
            drop(opened);
            expect_same(&alone(&devices[1 - bad]), &want, &context);
            judge(&*devices[1 - bad]);
            (repaired, left) = (repaired + report.repaired_blocks, left + report.unresolved.len());
            if features == "data_csum" {
                assert!(report.unresolved.is_empty(), "{context}: {report:?}");
                expect_equal(&devices, &context);
            }
            let trust = Scrub { write: true, trust: Some(1 - bad), ..Scrub::default() };
            let report = scrub(&mirror(&devices), &trust, &()).unwrap();
            assert!(report.unresolved.is_empty() && !report.trust_refused, "{context}: {report:?}");
            expect_equal(&devices, &context);
            expect_same(&alone(&devices[bad]), &want, &context);
        }
        println!("{block} {features}: {repaired} repaired, {left} left to be judged by people");
    }
}

fn changes(mirror: &Arc<Mirror>, write: bool) -> Report {
    scrub(mirror, &Scrub { write, ..Scrub::default() }, &()).unwrap()
}

fn expect_nothing(report: &Report, context: &str) {
    assert!(report.unresolved.is_empty() && !report.more, "{context}: {report:?}");
    assert_eq!((report.differing_blocks, &report.errors[..]), (0, &[0, 0][..]), "{context}");
}

#[test]
fn blocks_that_an_unfinished_rebuild_did_not_reach_are_no_damage() {
    for (block, features) in [(4096, "data_csum"), (1024, "")] {
        let base = made(block, features);
        let want = tree(&open(mirror(&copies(&base)), 0)).unwrap();
        for new in [0, 1] {
            for steps in [1, 40, 200] {
                let context = format!("{block} {features:?}, member {new}, {steps} regions");
                let mut devices = copies(&base);
                let all: Vec<u8> = (0..LEN).map(|at| (at >> 9) as u8 ^ 0x5A).collect();
                devices[new] = Arc::new(MemoryDevice::from_bytes(&all));
                let opening = Opening { degraded: true, together: false, ..Opening::write() };
                let left = parts(&devices[1 - new..2 - new]);
                let Assembled::Mirrored(opened) = assemble(left, opening).unwrap() else {
                    panic!("no mirror")
                };
                opened.add(parts(&devices).swap_remove(new)).unwrap();
                let mut calls = 0;
                opened
                    .resync(&mut |_, _| {
                        calls += 1;
                        calls <= steps
                    })
                    .unwrap();
                expect_nothing(&changes(&opened, false), &context);
                // Damage in the copied part is damage: the superblock.
                devices[new].write_at(ByteOffset(2000), &[0xEE; 40]).unwrap();
                let report = changes(&opened, false);
                let [found] = &report.unresolved[..] else { panic!("{context}: {report:?}") };
                assert!(found.is_known && found.range.contains(&2000), "{context}: {found:?}");
                assert_eq!(report.errors, [0, 0], "{context}");
                drop(opened);
                // A part has no intent bit, and is out of date again.
                let opened = mirror(&devices);
                let stale = opened.out_of_sync_bytes();
                assert!(stale > 0, "{context}");
                expect_nothing(&changes(&opened, false), &context);
                assert_eq!(
                    opened.out_of_sync_bytes(),
                    stale,
                    "{context}: nothing was to be copied"
                );
                drop(opened);
                let report = changes(&mirror(&devices), true);
                assert!(report.unresolved.is_empty(), "{context}: {report:?}");
                assert_eq!(report.errors, [0, 0], "{context}");
                expect_equal(&devices, &context);
                expect_same(&open(mirror(&devices), 0), &want, &context);
                judge(&*devices[new]);
            }
        }
    }
}

#[test]
fn differences_after_a_crash_are_no_damage_to_a_reader() {
    let base = made(4096, "");
    let opened = mirror(&base);
    let fs = open(Arc::clone(&opened) as _, 0);
    let file = fs.root().unwrap().create_file("late", &NewFile::default()).unwrap().open().unwrap();
    file.write_all_at(&[1; 100_000], 0).unwrap();
    fs.sync().unwrap();
    // At the power cut, the members were not equal.
    let devices = copies(&base);
    let stale = mirror(&devices).out_of_sync_bytes();
    assert!(stale > 0);
    let record = record_of(&*devices[1]).unwrap().unwrap();
    let member::Kind::Mirrored { region_log2 } = record.kind else { panic!("no mirror") };
    let region = (1..LEN >> region_log2).find(|region| record.intent.get(*region as usize));
    let at = region.expect("one that was written") << region_log2;
    devices[1].write_at(ByteOffset(at + 8192), &[0x77; 9000]).unwrap();
    expect_nothing(&changes(&mirror(&devices), false), "crashed");
    let report = changes(&mirror(&devices), true);
    assert!(report.unresolved.is_empty(), "{report:?}");
    expect_equal(&devices, "crashed");
    devices.iter().for_each(|device| judge(&**device));
}

/// A device that returns other bytes from `from` on.
#[derive(Debug)]
struct Strange {
    inner: Arc<MemoryDevice>,
    from: u64,
}

impl BlockDevice for Strange {
    fn len(&self) -> u64 {
        self.inner.len()
    }
    fn read_at(&self, at: ByteOffset, buf: &mut [u8]) -> extant::Result<()> {
        self.inner.read_at(at, buf)?;
        let before = self.from.saturating_sub(at.0).min(buf.len() as u64) as usize;
        buf[before..].iter_mut().for_each(|byte| *byte ^= 0x3C);
        Ok(())
    }
    fn write_at(&self, at: ByteOffset, buf: &[u8]) -> extant::Result<()> {
        self.inner.write_at(at, buf)
    }
    fn flush(&self) -> extant::Result<()> {
        Ok(())
    }
}

/// How many bytes a scrub compared.
#[derive(Default)]
struct Compared(AtomicU64);

impl Progress for Compared {
    fn advance(&self, phase: Phase, amount: u64) {
        if phase == Phase::ScrubCompare {
            self.0.fetch_add(amount, Ordering::Relaxed);
        }
    }
}

#[test]
fn members_that_differ_in_all_are_reported_after_so_many_blocks() {
    const BYTES: u64 = 8 << 30;
    let devices: Vec<_> = (0..2).map(|_| Arc::new(MemoryDevice::new(BYTES))).collect();
    create(&parts(&devices), Wanted::Mirrored { alike: true }, [7; 16], BYTES).unwrap();
    let options = MkfsOptions::new().block_size(BlockSize::from_bytes(1024).unwrap());
    mkfs::format(mirror(&devices), &options, &Environment::default()).unwrap();
    let from = 1 << 20;
    let strange: Vec<_> = [u64::MAX, from]
        .into_iter()
        .zip(&devices)
        .map(|(from, inner)| Arc::new(Strange { inner: Arc::clone(inner), from }))
        .collect();
    for write in [false, true] {
        let compared = Compared::default();
        let options = Scrub { write, ..Scrub::default() };
        let report = scrub(&mirror(&strange), &options, &compared);
        let compared = compared.0.into_inner();
        let report = report.unwrap();
        let blocks = options.blocks_max;
        assert!(report.more, "{report:?}");
        assert_eq!((report.differing_blocks, report.repaired_blocks), (blocks, 0));
        // All are adjacent, and what follows was not compared.
        assert_eq!(report.unresolved.len(), 1, "{report:?}");
        assert_eq!(report.unresolved[0].range, from..from + ((blocks as u64) << 10));
        assert!(compared < from + ((blocks as u64 + 4096) << 10), "{compared}");
        assert_eq!(report.errors[0], 0);
        assert!(report.errors[1] > 0);
    }
    // With a limit that is large enough, the volume is checked.
    let few = Scrub { blocks_max: 20, ..Scrub::default() };
    let scrubbed = |len: u64| {
        let devices = made(1024, "");
        devices[1].write_at(ByteOffset(LEN - (30 << 10)), &vec![0x99; len as usize]).unwrap();
        scrub(&mirror(&devices), &few, &()).unwrap()
    };
    let (some, all) = (scrubbed(20 << 10), scrubbed(21 << 10));
    assert_eq!((some.more, some.differing_blocks, some.errors), (false, 20, vec![0, 0]));
    assert!(some.unresolved.iter().all(|found| found.is_known), "free blocks");
    assert_eq!((all.more, all.differing_blocks, all.errors), (true, 20, vec![0, 0]));
}
