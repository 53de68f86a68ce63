//! Volumes on two mirrors after a power cut, where the source member is also damaged. What was
//! synced must still be there, and no right copy may be overwritten.

use crate::common::mirrored::{LEN, byte, copies, expect_same, made, mirror};
use crate::common::seen::{Tree, differences, tree};
use crate::common::{judge, pattern};
use extant::raid::{Mirror, record_of};
use extant::scrub::{Options, Report, scrub};
use extant::{BlockDevice, FileDevice, Filesystem, MemoryDevice, NewFile, OpenOptions};
use extant_base::{ByteOffset, IoOp};
use extant_ondisk::member::{Kind, MEMBER_OFFSET, MEMBER_SIZE};
use extant_testdev::{Faulty, Recorder};
use extant_testkit::e2fsprogs;
use extant_testkit::rng::Rng;
use extant_testkit::scratch::Scratch;
use std::sync::Arc;

fn options() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.write(true).commit_interval(None);
    options
}

/// The members' content if the power is cut after much was synced, and what the volume then shows.
fn crashed(block: u32, features: &str) -> (Vec<Arc<MemoryDevice>>, Tree) {
    let devices = made(block, features);
    let fs = options().open_device(mirror(&devices)).unwrap();
    let root = fs.root().unwrap();
    for n in 0..12u8 {
        let file =
            root.create_file(format!("new{n}"), &NewFile::default()).unwrap().open().unwrap();
        file.write_all_at(&pattern(7000, n), 0).unwrap();
        file.sync_all().unwrap();
        fs.remove_file(format!("/file{}", n + 3)).unwrap();
        if n == 4 {
            fs.rename("/link", "/many/link").unwrap();
            fs.sync().unwrap();
        }
    }
    let file = fs.open_file("/file30").unwrap();
    file.write_all_at(&pattern(20_000, 9), 10_000).unwrap();
    if !features.contains("fast_commit") {
        fs.sync().unwrap();
    }
    file.sync_all().unwrap();
    let want = tree(&fs).unwrap();
    let left = copies(&devices);
    drop(root);
    (left, want)
}

/// The byte offsets of an inode's blocks that are not empty.
fn blocks_of(device: &MemoryDevice, block: u64, ino: u32) -> Vec<u64> {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("img");
    let bytes = content(device);
    std::fs::write(&path, &bytes).unwrap();
    let all = e2fsprogs::debugfs(&path, &format!("blocks <{ino}>")).unwrap();
    let all = all.split_whitespace().filter_map(|n| n.parse::<u64>().ok()).map(|n| n * block);
    all.filter(|at| bytes[*at as usize..][..block as usize].iter().any(|byte| *byte != 0)).collect()
}

/// The byte offsets of the log's blocks that are not empty.
fn log_blocks(device: &MemoryDevice, block: u64) -> Vec<u64> {
    blocks_of(device, block, 8)
}

fn content(device: &dyn BlockDevice) -> Vec<u8> {
    let mut bytes = vec![0; LEN as usize];
    device.read_at(ByteOffset(0), &mut bytes).unwrap();
    bytes
}

fn expect_whole(devices: &[Arc<MemoryDevice>], want: &Tree, context: &str) {
    // First opened for reading: nothing changes.
    let reader = OpenOptions::new()
        .open_device(mirror(devices))
        .unwrap_or_else(|e| panic!("{context}: {e}"));
    let found = tree(&reader).unwrap_or_else(|e| panic!("{context}: {e}"));
    assert_eq!(differences(want, &found), [""; 0], "{context}, to read");
    drop(reader);
    let fs: Filesystem =
        options().open_device(mirror(devices)).unwrap_or_else(|e| panic!("{context}: {e}"));
    expect_same(&fs, want, context);
    fs.close().unwrap_or_else(|e| panic!("{context}: {e}"));
    // Also blocks that nothing has read since, such as those of the log's earlier sessions.
    let report = scrubbed(devices, context);
    assert!(report.unresolved.is_empty(), "{context}: {report:?}");
}

fn scrubbed(devices: &[Arc<MemoryDevice>], context: &str) -> Report {
    let options = Options { write: true, trust: None, ..Options::default() };
    let report = scrub(&mirror(devices), &options, &()).unwrap();
    assert!(report.errors.iter().all(|count| *count == 0), "{context}: {report:?}");
    report
}

fn damage(device: &MemoryDevice, at: u64, len: u64, zeros: bool) {
    match zeros {
        true => device.write_at(ByteOffset(at), &vec![0; len as usize]).unwrap(),
        false => {
            let flipped = byte(device, at + 22) ^ 0x10;
            device.write_at(ByteOffset(at + 22), &[flipped]).unwrap();
        }
    }
}

#[test]
fn a_damaged_log_block_on_one_mirror_loses_nothing_that_was_synced() {
    for (block, features) in [
        (4096, "data_csum"),
        (1024, "quota"),
        (4096, "fast_commit"),
        (1024, "data_csum,fast_commit"),
    ] {
        let (left, want) = crashed(block, features);
        let log = log_blocks(&left[0], block.into());
        assert!(log.len() > 10, "{}", log.len());
        let few = log.len().div_ceil(14);
        for at in log.into_iter().step_by(few) {
            for bad in [0, 1] {
                for zeros in [false, true] {
                    let context =
                        format!("{block} {features}: log block at {at} of {bad}, {zeros}");
                    let devices = copies(&left);
                    damage(&devices[bad], at, block.into(), zeros);
                    expect_whole(&devices, &want, &context);
                    if zeros {
                        judge(&*devices[bad]);
                    }
                }
            }
        }
    }
}

#[test]
fn a_damaged_block_on_one_mirror_is_not_copied_after_a_crash() {
    for (block, features) in [(4096u64, "data_csum"), (1024, "data_csum,quota"), (4096, "")] {
        let (left, want) = crashed(block as u32, features);
        let log = log_blocks(&left[0], block);
        let log = log[0]..=log[log.len() - 1];
        let bytes = content(&left[0]);
        let record = record_of(&*left[0]).unwrap().unwrap();
        let Kind::Mirrored { region_log2 } = record.kind else { panic!("no mirror") };
        // The target of a symlink has no checksum: if two differ, nothing can decide which is
        // right.
        let mut links = want.values().filter(|seen| seen.target.is_some());
        let link = links.next().map_or(vec![], |seen| blocks_of(&left[0], block, seen.ino));
        assert!(link.len() == 1 && links.next().is_none(), "{link:?}");
        // Where the other member follows the first one.
        let is_used = |at: &u64| {
            !log.contains(at)
                && !link.contains(at)
                && record.intent.get((at >> region_log2) as usize)
                && bytes[*at as usize..][..block as usize].iter().any(|b| *b != 0)
        };
        let used: Vec<u64> = (1..LEN / block).map(|n| n * block).filter(is_used).collect();
        assert!(used.len() > 20, "{}", used.len());
        for (n, at) in used.iter().copied().enumerate().step_by(used.len().div_ceil(30)) {
            if block == 1024 && at == 1024 {
                continue;
            }
            let devices = copies(&left);
            damage(&devices[0], at, block, n % 2 == 0);
            let context = format!("{block} {features}: block at {at}");
            // By name: a mirror that the caller assembled is resynced by the caller.
            let dir = Scratch::new();
            let paths = ["a.img", "b.img"].map(|name| dir.file(name));
            for (path, device) in paths.iter().zip(&devices) {
                FileDevice::create(path, LEN)
                    .unwrap()
                    .write_at(ByteOffset(0), &content(&**device))
                    .unwrap();
            }
            let fs = options()
                .member(&paths[1])
                .open(&paths[0])
                .unwrap_or_else(|e| panic!("{context}: {e}"));
            let found = tree(&fs).unwrap_or_else(|e| panic!("{context}: {e}"));
            if features.contains("data_csum") {
                assert_eq!(differences(&want, &found), [""; 0], "{context}");
            }
            fs.close().unwrap_or_else(|e| panic!("{context}: {e}"));
            for (path, device) in paths.iter().zip(&devices) {
                device.write_at(ByteOffset(0), &std::fs::read(path).unwrap()).unwrap();
            }
            let report = scrubbed(&devices, &context);
            if features.contains("data_csum") {
                assert!(report.unresolved.is_empty(), "{context}: {report:?}");
            }
            devices.iter().for_each(|device| judge(&**device));
        }
    }
}

/// A part of a recording that acts as a member of its own.
struct Disk {
    recorder: Arc<Recorder<MemoryDevice>>,
    start: u64,
}

impl Disk {
    fn place(&self, at: ByteOffset) -> ByteOffset {
        ByteOffset(self.start + at.0)
    }
}

impl BlockDevice for Disk {
    fn len(&self) -> u64 {
        LEN
    }
    fn read_at(&self, at: ByteOffset, buf: &mut [u8]) -> extant::Result<()> {
        self.recorder.read_at(self.place(at), buf)
    }
    fn write_at(&self, at: ByteOffset, buf: &[u8]) -> extant::Result<()> {
        self.recorder.write_at(self.place(at), buf)
    }
    fn flush(&self) -> extant::Result<()> {
        self.recorder.flush_range(ByteOffset(self.start), LEN)
    }
    fn write_fua(&self, at: ByteOffset, buf: &[u8]) -> extant::Result<()> {
        self.recorder.write_fua(self.place(at), buf)
    }
}

/// Both members of `image`, one after the other, with injected failures.
fn members_of(image: &MemoryDevice) -> (Arc<Recorder<MemoryDevice>>, [Arc<Faulty<Disk>>; 2]) {
    let recorder = Arc::new(Recorder::new(image.clone()));
    let disk = |start| Disk { recorder: Arc::clone(&recorder), start };
    let members = [disk(0), disk(LEN)].map(|disk| Arc::new(Faulty::new(disk)));
    (recorder, members)
}

/// A state that a cut after `at` operations of the recording could leave, and how many of them had
/// returned.
fn cut(
    recorder: &Recorder<MemoryDevice>,
    base: &MemoryDevice,
    at: usize,
    draw: &mut Rng,
) -> (MemoryDevice, usize) {
    let plan = recorder.crash_plan(base).seed(draw.next_u64()).samples(4).torn(1).cuts(at..=at);
    let states: Vec<_> = plan.states().collect();
    let state = &states[draw.below(states.len())];
    (state.image.clone(), state.completed)
}

/// The expected content of `new{n}`.
fn content_of(n: u8) -> Vec<u8> {
    pattern(6000 + usize::from(n) * 700, n)
}

/// Syncs one file after the other. Returns after which operation of the recording each was durable,
/// and which of them was the first that was durable on one member only.
fn synced_files(
    fs: &Filesystem,
    device: &Mirror,
    recorder: &Recorder<MemoryDevice>,
) -> (Vec<usize>, Option<usize>) {
    let (mut durable, mut alone) = (Vec::new(), None);
    for n in 0..10u8 {
        let file = fs.create_file(format!("/new{n}"), &NewFile::default()).unwrap();
        let file = file.open().unwrap();
        file.write_all_at(&content_of(n), 0).unwrap();
        if n % 3 == 0 {
            fs.remove_file(format!("/file{}", n + 3)).unwrap();
            fs.sync().unwrap();
        }
        file.sync_all().unwrap();
        if device.stats().failed_members > 0 {
            alone.get_or_insert(durable.len());
        }
        durable.push(recorder.position());
    }
    (durable, alone)
}

/// A request fails on one member, the power is cut, a request of the recovery fails, and the power
/// is cut again.
#[test]
fn members_are_equal_after_one_failed_request_a_cut_and_a_recovery() {
    let seed = std::env::var("EXTANT_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(1u64);
    let (mut out, mut in_line) = (0, 0);
    let record = MEMBER_OFFSET..MEMBER_OFFSET + MEMBER_SIZE as u64;
    for (block, features) in [(4096, ""), (1024, "fast_commit"), (4096, "data_csum,fast_commit")] {
        let base = MemoryDevice::new(2 * LEN);
        for (start, device) in [0, LEN].into_iter().zip(made(block, features)) {
            base.write_at(ByteOffset(start), &content(&*device)).unwrap();
        }
        for round in 0..8 {
            let mut draw = Rng::new(seed * 1000 + round);
            let (recorder, members) = members_of(&base);
            let device = mirror(&members);
            let fs = options().open_device(device.clone()).unwrap();
            let op = [IoOp::Write, IoOp::Write, IoOp::Flush][draw.below(3)];
            let (bad, nth) = (draw.below(2), 1 + draw.below(90) as u64);
            members[bad].fail(op, nth);
            let (durable, alone) = synced_files(&fs, &device, &recorder);
            fs.close().unwrap();
            for n in 0..3 {
                let at = match alone {
                    // The only moment at which an unrecorded loss would be visible.
                    Some(alone) if n == 0 => durable[alone],
                    _ => draw.below(recorder.position() + 1),
                };
                let (image, completed) = cut(&recorder, &base, at, &mut draw);
                let kept = durable.iter().filter(|at| **at <= completed).count();
                let (again, members) = members_of(&image);
                let (op, bad) = ([IoOp::Write, IoOp::Flush][draw.below(2)], draw.below(2));
                members[bad].fail(op, 1 + draw.below(30) as u64);
                let context = format!("{block} {features}: seed {seed}, round {round}");
                // The only member that is up to date may be the one that fails: then a later
                // recovery must succeed.
                let recovered = options().recover_device_in_place(mirror(&members));
                let (image, _) = match recovered {
                    Ok(_) if draw.below(2) == 0 => (again.inner().clone(), 0),
                    _ => cut(&again, &image, draw.below(again.position() + 1), &mut draw),
                };
                let (_, members) = members_of(&image);
                let device = mirror(&members);
                options()
                    .recover_device_in_place(device.clone())
                    .unwrap_or_else(|e| panic!("{context}: {e}"));
                device.resync(&mut |_, _| true).unwrap();
                let found = device.compare(1024, 9, &mut |_, _| true).unwrap();
                assert!(found.ranges.is_empty(), "{context}: members differ: {:?}", found.ranges);
                let fs = options().open_device(device.clone()).unwrap();
                for n in 0..kept as u8 {
                    let file = fs.open_file(format!("/new{n}")).unwrap();
                    let mut bytes = vec![0; content_of(n).len() + 1];
                    let len = file.read_at(&mut bytes, 0).unwrap();
                    assert!(bytes[..len] == content_of(n), "{context}: new{n}");
                }
                fs.close().unwrap();
                match device.left_out().is_empty() {
                    true => {
                        in_line += 1;
                        let bytes = [&members[0], &members[1]].map(|member| content(&**member));
                        let differs = (0..LEN as usize).find(|at| {
                            !(record.contains(&(*at as u64))) && bytes[0][*at] != bytes[1][*at]
                        });
                        assert_eq!(differs, None, "{context}: members differ");
                    }
                    false => out += 1,
                }
                drop(device);
                if round == 0 {
                    judge(&*mirror(&members));
                }
            }
        }
    }
    assert!(out > 10 && in_line > 10, "{out} with a member left out, {in_line} in line");
}
