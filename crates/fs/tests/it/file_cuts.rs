//! Power cuts during changes that take many transactions. After recovery the volume needs no
//! repair, and contains the file as before, as after, or in between.
//!
//! ```text
//!   prepare ─► sync ─► record: change, sync ─► every few operations: cut, recover, judge
//! ```

use extant::check::check_device;
use extant::direct::{AlignedBuf, DirectOptions};
use extant::{
    BlockDevice, DataMode, FallocateMode, File, Filesystem, InodeFlags, MemoryDevice, NewFile,
    OpenOptions, SetAttributes, XattrMode,
};
use extant_testdev::Recorder;
use extant_testkit::e2fsprogs;
use std::sync::Arc;

fn mke2fs(mib: u64, options: &str) -> MemoryDevice {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("img");
    e2fsprogs::mke2fs(&path, mib << 20, options, None).unwrap();
    MemoryDevice::from_bytes(&std::fs::read(&path).unwrap())
}

fn open(device: Arc<dyn BlockDevice>, mode: DataMode) -> Filesystem {
    let mut options = OpenOptions::new();
    options.write(true).commit_interval(None).data_mode(mode).open_device(device).unwrap()
}

/// e2fsck checks one of this many cuts.
const JUDGED: usize = 40;

/// Cuts `change`, which takes at least this many commits, at about `cuts` places, and lets `judge`
/// check the file after recovery.
fn cut_short(
    options: &str,
    mode: DataMode,
    cuts: usize,
    commits: u64,
    prepare: impl FnOnce(&File),
    change: impl FnOnce(&Filesystem, File),
    judge: impl Fn(Option<Vec<u8>>),
) {
    let base = mke2fs(40, options);
    {
        let device = Arc::new(MemoryDevice::copy_of(&base).unwrap());
        let fs = open(device.clone(), mode);
        prepare(&fs.create_file("/f", &NewFile::default()).unwrap().open().unwrap());
        fs.close().unwrap();
        cut_changed(MemoryDevice::copy_of(&device).unwrap(), mode, cuts, commits, change, judge);
    }
}

fn cut_changed(
    base: MemoryDevice,
    mode: DataMode,
    cuts: usize,
    commits: u64,
    change: impl FnOnce(&Filesystem, File),
    judge: impl Fn(Option<Vec<u8>>),
) {
    let device = Arc::new(Recorder::new(MemoryDevice::copy_of(&base).unwrap()));
    let fs = open(device.clone(), mode);
    let file = fs.open_file("/f").unwrap();
    change(&fs, file);
    fs.sync().unwrap();
    // The volume's superblock, the log's superblock, and the commit blocks.
    assert!(device.counts_since(0).fua_writes >= 2 + commits, "fewer than {commits} commits");
    let plan = device.crash_plan(&base).samples(2).torn(1);
    let every = (device.position() / cuts).max(1);
    let mut states = plan.states();
    let mut seen = 0;
    while let Some(state) = states.next_where(|cut, n| cut % every == 0 && n < 2) {
        let left = Arc::new(state.image);
        let fs = open(left.clone(), mode);
        judge(fs.read("/f").ok());
        // Whatever remains can be changed further.
        if let Ok(file) = fs.open_file("/f") {
            file.write_all_at(&[9; 5_000], 3_000).unwrap();
            file.set_len(0).unwrap();
        }
        fs.close().unwrap();
        let report = check_device(left.clone(), &Default::default(), &()).unwrap();
        assert!(report.findings.is_empty(), "cut {}: {:?}", state.cut, report.findings);
        if seen % JUDGED == 0 {
            crate::common::judge(&*left);
        }
        seen += 1;
    }
    assert!(seen >= 5, "only {seen} cuts");
}

/// Gives a file this many blocks of 1 KiB full of ones, each `stride` blocks after the one before.
fn fragmented(file: &File, blocks: u64, stride: u64) {
    for n in (0..blocks).rev() {
        file.write_all_at(&[1; 1024], n * stride * 1024).unwrap();
    }
}

/// Volumes with a small journal, and a number of blocks and a distance that make a map too large
/// for one transaction.
const SMALL: [(&str, u64, u64); 2] = [
    ("-b 1024 -J size=1", 30_000, 2),
    ("-b 1024 -J size=1 -O ^extents,^64bit,^orphan_file", 600, 256),
];

#[test]
fn an_interrupted_truncation_is_finished() {
    for (options, blocks, stride) in SMALL {
        let full = ((blocks - 1) * stride + 1) as usize * 1024;
        let judge = |bytes: Option<Vec<u8>>| {
            let bytes = bytes.unwrap();
            assert!([full, 100].contains(&bytes.len()), "{}", bytes.len());
            assert!(bytes.iter().take(100).all(|byte| *byte == 1));
        };
        let prepare = |file: &File| fragmented(file, blocks, stride);
        let change = |_: &Filesystem, file: File| file.set_len(100).unwrap();
        cut_short(options, DataMode::Ordered, 12, 2, prepare, change, judge);
    }
}

#[test]
fn an_interrupted_release_is_finished() {
    let (options, blocks, stride) = SMALL[1];
    let full = ((blocks - 1) * stride + 1) as usize * 1024;
    let judge = |bytes: Option<Vec<u8>>| {
        assert!(bytes.is_none_or(|bytes| bytes.len() == full));
    };
    let prepare = |file: &File| fragmented(file, blocks, stride);
    let change = |fs: &Filesystem, file: File| {
        fs.remove_file("/f").unwrap();
        drop(file);
    };
    cut_short(options, DataMode::Ordered, 30, 2, prepare, change, judge);
}

#[test]
fn collapsed_and_inserted_ranges_leave_a_consistent_volume() {
    let modes = [
        FallocateMode::PunchHole,
        FallocateMode::ZeroRange,
        FallocateMode::Allocate,
        FallocateMode::Collapse,
        FallocateMode::Insert,
    ];
    for mode in modes {
        let judge = |bytes: Option<Vec<u8>>| {
            // Only what was written, and zeros.
            assert!(bytes.unwrap().iter().all(|byte| *byte <= 1));
        };
        let change = |_: &Filesystem, file: File| file.allocate(mode, 4096, 1 << 20).unwrap();
        let prepare = |file: &File| fragmented(file, 900, 2);
        cut_short(SMALL[0].0, DataMode::Ordered, 30, 1, prepare, change, judge);
    }
}

#[test]
fn data_that_is_no_longer_journaled_is_not_replayed() {
    let flags = |file: &File, on: bool| {
        let mut flags = file.metadata().flags();
        flags.set(InodeFlags::JOURNAL_DATA, on);
        file.set_attributes(&SetAttributes { flags: Some(flags), ..Default::default() }).unwrap();
    };
    let prepare = |file: &File| {
        flags(file, true);
        file.write_all_at(&[1; 20_000], 0).unwrap();
    };
    let device = Arc::new(mke2fs(12, "-b 1024 -J size=1"));
    let fs = open(device.clone(), DataMode::Ordered);
    prepare(&fs.create_file("/f", &NewFile::default()).unwrap().open().unwrap());
    let file = fs.open_file("/f").unwrap();
    file.sync_all().unwrap();
    file.write_all_at(&[2; 20_000], 0).unwrap();
    file.sync_all().unwrap();
    flags(&file, false);
    file.write_all_at(&[3; 20_000], 0).unwrap();
    file.sync_all().unwrap();
    // The log still contains the older bytes.
    let left = Arc::new(MemoryDevice::copy_of(&device).unwrap());
    let again = open(left.clone(), DataMode::Ordered);
    assert!(again.read("/f").unwrap() == [3; 20_000]);
    again.close().unwrap();
    crate::common::judge(&*left);
}

#[test]
fn a_write_through_the_journal_is_whole_or_absent() {
    let judge = |bytes: Option<Vec<u8>>| {
        let bytes = bytes.unwrap();
        assert_eq!(bytes.len(), 30_000);
        let new = bytes[5_000];
        assert!(bytes[5_000..25_000].iter().all(|byte| *byte == new), "torn");
        assert!(bytes[..5_000].iter().chain(&bytes[25_000..]).all(|byte| *byte == 1));
    };
    let prepare = |file: &File| file.write_all_at(&[1; 30_000], 0).unwrap();
    let change = |_: &Filesystem, file: File| {
        for n in 2..12 {
            file.write_all_at(&[n; 20_000], 5_000).unwrap();
            file.sync_data().unwrap();
        }
    };
    cut_short("-b 1024 -J size=1", DataMode::Journal, 60, 10, prepare, change, judge);
}

/// Bytes of a file of the next test.
const WHOLE: usize = 512 << 10;

#[test]
fn space_is_discarded_only_after_the_commit_that_freed_it() {
    let base = mke2fs(16, "-b 1024 -J size=1");
    let device = Arc::new(Recorder::new(MemoryDevice::copy_of(&base).unwrap()));
    let mut options = OpenOptions::new();
    options.write(true).commit_interval(None).discard(true);
    let fs = options.open_device(device.clone()).unwrap();
    for round in 1..8u8 {
        let file = fs.create_file(format!("/{round}"), &NewFile::default()).unwrap();
        file.open().unwrap().write_all_at(&vec![round; WHOLE], 0).unwrap();
        drop(file);
        fs.sync().unwrap();
        // Files removed here exist again after a crash until the next sync.
        fs.remove_file(format!("/{round}")).unwrap();
        let other = fs.create_file(format!("/{round} more"), &NewFile::default()).unwrap();
        other.open().unwrap().write_all_at(&vec![round; 8192], 0).unwrap();
        if round % 2 == 0 {
            assert!(fs.trim(0..u64::MAX, 0).unwrap() > WHOLE as u64);
        }
        fs.sync().unwrap();
    }
    fs.close().unwrap();
    assert!(device.counts_since(0).discards > 7, "{:?}", device.counts_since(0));
    let mut states = device.crash_plan(&base).samples(8).states();
    let mut seen = 0;
    while let Some(state) = states.next_where(|_, n| n < 12) {
        let left = Arc::new(state.image);
        let fs = open(left.clone(), DataMode::Ordered);
        for name in names_in_root(&fs) {
            let Ok(round) = name[..1].parse::<u8>() else { continue };
            let content = fs.read(format!("/{name}")).unwrap();
            let wrong = content.iter().position(|byte| *byte != round);
            assert_eq!(wrong, None, "cut {}: {name}: {} bytes", state.cut, content.len());
        }
        fs.close().unwrap();
        let report = check_device(left.clone(), &Default::default(), &()).unwrap();
        assert!(report.findings.is_empty(), "cut {}: {:?}", state.cut, report.findings);
        if seen % JUDGED == 0 {
            crate::common::judge(&*left);
        }
        seen += 1;
    }
    assert!(seen > 50, "only {seen} cuts");
}

fn names_in_root(fs: &Filesystem) -> Vec<String> {
    let names = fs.read_dir("/").unwrap();
    names.map(|entry| entry.unwrap().file_name().to_str().unwrap().to_owned()).collect()
}

/// One change, and whether it is visible.
type Step = (&'static str, fn(&Filesystem), fn(&Filesystem) -> bool);

/// Changes of a file with `SYNC`, and of names in directories with `SYNC` and `DIRSYNC`.
const FLAGGED: &[Step] = &[
    (
        "write",
        |fs| fs.open_file("/f").unwrap().write_all_at(&[3; 9_000], 0).unwrap(),
        |fs| fs.read("/f").unwrap() == [3; 9_000],
    ),
    (
        "append",
        |fs| assert_eq!(fs.open_file("/f").unwrap().append(b"end").unwrap(), 3),
        |fs| fs.read("/f").unwrap().ends_with(b"end"),
    ),
    (
        "write directly",
        |fs| {
            let bytes = AlignedBuf::copy_of(&[4; 4096]);
            let file = fs.open_file("/f").unwrap();
            assert_eq!(file.write_direct_at(&bytes, 0, &DirectOptions::default()).unwrap(), 4096);
        },
        |fs| fs.read("/f").unwrap()[..4096] == [4; 4096],
    ),
    (
        "cut",
        |fs| fs.open_file("/f").unwrap().set_len(5_000).unwrap(),
        |fs| fs.symlink_metadata("/f").unwrap().len() == 5_000,
    ),
    (
        "punch",
        |fs| fs.open_file("/f").unwrap().allocate(FallocateMode::PunchHole, 0, 4096).unwrap(),
        |fs| fs.read("/f").unwrap()[..4096] == [0; 4096],
    ),
    (
        "set a mode",
        |fs| {
            let changes = SetAttributes { mode: Some(0o600), ..Default::default() };
            fs.set_attributes("/f", &changes).unwrap();
        },
        |fs| fs.symlink_metadata("/f").unwrap().permissions() == 0o600,
    ),
    (
        "set an attribute",
        |fs| fs.set_xattr("/f", "user.a", b"b", XattrMode::Any).unwrap(),
        |fs| fs.xattr("/f", "user.a").unwrap() == b"b",
    ),
    (
        "create",
        |fs| drop(fs.create_file("/d/new", &NewFile::default()).unwrap()),
        |fs| fs.exists("/d/new").unwrap(),
    ),
    (
        "make a directory",
        |fs| drop(fs.create_dir("/s/below", &NewFile::directory()).unwrap()),
        |fs| fs.exists("/s/below").unwrap(),
    ),
    (
        "symlink, below a directory that inherited the flag",
        |fs| drop(fs.symlink("target", "/s/below/symlink", &NewFile::default()).unwrap()),
        |fs| fs.symlink_metadata("/s/below/symlink").is_ok(),
    ),
    ("link", |fs| fs.hard_link("/plain", "/d/link").unwrap(), |fs| fs.exists("/d/link").unwrap()),
    (
        "rename out of it",
        |fs| fs.rename("/d/new", "/moved").unwrap(),
        |fs| fs.exists("/moved").unwrap() && !fs.exists("/d/new").unwrap(),
    ),
    (
        "rename into it",
        |fs| fs.rename("/moved", "/d/back").unwrap(),
        |fs| fs.exists("/d/back").unwrap() && !fs.exists("/moved").unwrap(),
    ),
    ("unlink", |fs| fs.remove_file("/d/link").unwrap(), |fs| !fs.exists("/d/link").unwrap()),
    (
        "rmdir",
        |fs| {
            fs.remove_file("/s/below/symlink").unwrap();
            fs.remove_dir("/s/below").unwrap();
        },
        |fs| !fs.exists("/s/below").unwrap(),
    ),
    (
        "write to a file that inherited the flag",
        |fs| fs.write("/s/inherits", b"content").unwrap(),
        |fs| fs.read("/s/inherits").is_ok_and(|bytes| bytes == b"content"),
    ),
];

#[test]
fn a_change_of_an_inode_with_the_sync_flag_is_durable_when_it_returns() {
    for (options, cache) in [("", 0), ("", 1 << 20), ("-O fast_commit", 1 << 20)] {
        let device = Arc::new(mke2fs(16, options));
        let fs = open(device.clone(), DataMode::Ordered);
        fs.write("/f", [1; 5_000]).unwrap();
        fs.write("/plain", b"plain").unwrap();
        let flag = |path: &str, flag: InodeFlags| {
            let flags = Some(fs.symlink_metadata(path).unwrap().flags() | flag);
            fs.set_attributes(path, &SetAttributes { flags, ..Default::default() }).unwrap();
        };
        flag("/f", InodeFlags::SYNC);
        for (path, of) in [("/d", InodeFlags::DIRSYNC), ("/s", InodeFlags::SYNC)] {
            fs.create_dir(path, &NewFile::directory()).unwrap();
            flag(path, of);
        }
        fs.close().unwrap();
        let base = MemoryDevice::copy_of(&device).unwrap();
        let device = Arc::new(Recorder::new(MemoryDevice::copy_of(&base).unwrap()));
        let mut open_options = OpenOptions::new();
        open_options.write(true).commit_interval(None).cache_bytes(cache);
        let fs = open_options.open_device(device.clone()).unwrap();
        for (name, change, is_there) in FLAGGED {
            change(&fs);
            // Requests that were not flushed when the call returned are lost in whole or in part.
            let end = device.position();
            let plan = device.crash_plan(&base).samples(4).torn(0);
            let mut states = plan.states();
            let mut seen = 0;
            while let Some(state) = states.next_where(|cut, _| cut == end) {
                let left = Arc::new(state.image);
                let recovered = open(left.clone(), DataMode::Ordered);
                assert!(is_there(&recovered), "{name} is lost: {options} cache {cache}");
                recovered.close().unwrap();
                if seen == 0 {
                    crate::common::judge(&*left);
                }
                seen += 1;
            }
            assert!(seen > 0, "{name}: a state after the last operation");
        }
        fs.close().unwrap();
    }
}

/// A way to write bytes to an open file.
type Write = (&'static str, fn(&File));

/// Ways after which the bytes are dirty, or on the device, when the file is closed.
const WRITES: &[Write] = &[
    ("write", |file| file.write_all_at(&[7; 9_000], 0).unwrap()),
    ("write, write back", |file| {
        file.write_all_at(&[7; 9_000], 0).unwrap();
        file.write_back(0, u64::MAX).unwrap();
    }),
    ("write directly", |file| {
        let bytes = AlignedBuf::copy_of(&[7; 12_288]);
        let written = file.write_direct_at(&bytes, 0, &DirectOptions::default()).unwrap();
        assert_eq!(written, bytes.len());
        file.set_len(9_000).unwrap();
    }),
];

#[test]
fn data_of_closed_files_is_durable_after_a_sync_of_another_file() {
    let kinds = [("", 0), ("", 1 << 20), ("-O fast_commit", 1 << 20)];
    let ways = WRITES.iter().flat_map(|way| [(way, "/new"), (way, "/f")]);
    for ((options, cache), ((name, write), path)) in
        kinds.into_iter().flat_map(|kind| ways.clone().map(move |way| (kind, way)))
    {
        let base = mke2fs(16, options);
        let fs = open(Arc::new(MemoryDevice::copy_of(&base).unwrap()), DataMode::Ordered);
        fs.close().unwrap();
        let device = Arc::new(Recorder::new(MemoryDevice::copy_of(&base).unwrap()));
        let mut open_options = OpenOptions::new();
        open_options.write(true).commit_interval(None).cache_bytes(cache);
        let fs = open_options.open_device(device.clone()).unwrap();
        fs.write("/f", [1; 9_000]).unwrap();
        // Its own sync has nothing to commit later.
        fs.write("/synced", b"content").unwrap();
        let synced = fs.open_file("/synced").unwrap();
        fs.sync().unwrap();
        if path == "/new" {
            fs.create_file(path, &NewFile::default()).unwrap();
        }
        let file = fs.open_file(path).unwrap();
        write(&file);
        drop(file);
        fs.write_back_closed_files();
        synced.sync_data().unwrap();
        let end = device.position();
        let plan = device.crash_plan(&base).samples(4).torn(0);
        let mut states = plan.states();
        let mut seen = 0;
        while let Some(state) = states.next_where(|cut, _| cut == end) {
            let left = Arc::new(state.image);
            let recovered = open(left.clone(), DataMode::Ordered);
            let there = recovered.read(path).is_ok_and(|bytes| bytes == [7; 9_000]);
            assert!(there, "{name} {path} is lost: {options} cache {cache}");
            recovered.close().unwrap();
            if seen == 0 {
                crate::common::judge(&*left);
            }
            seen += 1;
        }
        assert!(seen > 0, "a state after the last operation");
        fs.close().unwrap();
    }
}
