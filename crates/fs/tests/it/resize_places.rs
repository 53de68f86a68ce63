//! Changes of size and settings for volumes that are not one plain file: with a journal device,
//! under multiple mount protection, on a block device, beyond 2^32 blocks.

use extant::mkfs::{self, InodeCount, MkfsOptions};
use extant::resize::{Size, minimum, resize, resize_with};
use extant::tune::{Tune, clear_mmp, tune, tune_with};
use extant::{Environment, Error, Filesystem, OpenOptions, What};
use extant_testkit::command::run_args;
use extant_testkit::e2fsprogs::{debugfs, dumpe2fs, e2fsck, mke2fs};
use extant_testkit::loop_mount::{LoopDevice, LoopMount};
use extant_testkit::require;
use extant_testkit::scratch::{Scratch, make_sparse};
use std::fs;
use std::path::{Path, PathBuf};
use std::sync::Arc;

const MIB: u64 = 1 << 20;
const UUID: [u8; 16] = *b"\x01\x02\x03\x04\x05\x06\x47\x08\x89\x0a\x0b\x0c\x0d\x0e\x0f\x10";
const UUID_TEXT: &str = "01020304-0506-4708-890a-0b0c0d0e0f10";

fn content() -> Vec<u8> {
    (0..3_000_000u32).map(|n| (n % 251) as u8).collect()
}

/// A volume of 48 MiB with one file, and its journal device.
fn with_journal_device(scratch: &Scratch) -> (PathBuf, PathBuf) {
    let (img, log) = (scratch.file("a.img"), scratch.file("log.img"));
    mke2fs(&log, 8 * MIB, "-O journal_dev -b 1024", None).unwrap();
    let device = LoopDevice::attach(&log).unwrap();
    let options = format!("-b 1024 -J device={}", device.path().display());
    mke2fs(&img, 48 * MIB, &options, None).unwrap();
    drop(device);
    let mut fs = OpenOptions::new();
    let fs = fs.write(true).journal_device(&log).open(&img).unwrap();
    fs.write("/file", content()).unwrap();
    fs.close().unwrap();
    (img, log)
}

fn assert_elsewhere<T: std::fmt::Debug>(done: extant::Result<T>) {
    let elsewhere = matches!(done, Err(Error::Corrupt { what: What::JournalElsewhere, .. }));
    assert!(elsewhere, "{done:?}");
}

#[test]
fn a_volume_with_a_journal_device_changes_with_it_and_not_without() {
    require!(Root, Loop, E2fsprogs);
    let scratch = Scratch::new();
    let (img, log) = with_journal_device(&scratch);
    let before = fs::read(&img).unwrap();
    let label = Tune { label: Some("fresh".into()), ..Tune::default() };
    let uuid = Tune { uuid: Some(UUID), ..label.clone() };
    for changes in [&label, &uuid] {
        assert_elsewhere(tune(&img, changes));
    }
    assert_elsewhere(resize(&img, Size::Bytes(20 * MIB), &()));
    assert_elsewhere(OpenOptions::new().write(true).open(&img).map(drop));
    assert!(fs::read(&img).unwrap() == before, "nothing was changed");

    let mut open = OpenOptions::new();
    open.journal_device(&log);
    tune_with(&open, &img, &uuid).unwrap();
    let users = |text: &str| text.lines().filter(|line| line.contains("user")).count();
    let said = dumpe2fs(&log).unwrap();
    assert!(said.contains(UUID_TEXT) && users(&said) > 0, "{said}");
    e2fsck(&img, Some(&log)).expect_clean().unwrap();
    for bytes in [20 * MIB, 130 * MIB] {
        resize_with(&open, &img, Size::Bytes(bytes), &()).unwrap();
        e2fsck(&img, Some(&log)).expect_clean().unwrap();
    }
    let fs = open.open(&img).unwrap();
    assert!(fs.read("/file").unwrap() == content());
    drop(fs);
    let refused = tune_with(&open, &img, &Tune::default().features("^has_journal").unwrap());
    assert!(matches!(refused, Err(Error::NotSupported(_))), "{refused:?}");
    LoopMount::mount(&img, Some(&log), "").unwrap().unmount().unwrap();
    e2fsck(&img, Some(&log)).expect_clean().unwrap();
}

#[test]
fn the_journal_device_names_the_volume_whichever_write_is_the_last() {
    require!(Root, Loop, E2fsprogs);
    let scratch = Scratch::new();
    let (img, log) = with_journal_device(&scratch);
    let old = Filesystem::open(&img).unwrap().superblock().uuid;
    let base = extant::MemoryDevice::from_bytes(&fs::read(&log).unwrap());
    let recorder = Arc::new(extant_testdev::Recorder::new(base.clone()));
    let volume: Arc<dyn extant::BlockDevice> =
        Arc::new(extant::MemoryDevice::from_bytes(&fs::read(&img).unwrap()));
    let mut open = OpenOptions::new();
    open.journal_on(recorder.clone());
    let changes = Tune { uuid: Some(UUID), ..Tune::default() };
    extant::tune::tune_device(&open, &volume, &changes).unwrap();
    // The volume's UUID changes between the first and the last of the two writes to the journal
    // device.
    let named = |bytes: &[u8]| -> Vec<[u8; 16]> {
        let mut block = vec![0; 1024];
        block.copy_from_slice(&bytes[2048..3072]);
        extant_ondisk::jbd2::JournalSuperblock::users(&block).collect()
    };
    let plan = recorder.crash_plan(&base).seed(1).samples(1).exhaustive_up_to(1);
    let mut seen = Vec::new();
    for state in plan.states() {
        let mut bytes = vec![0; 8192];
        extant::BlockDevice::read_at(&state.image, extant_base::ByteOffset(0), &mut bytes).unwrap();
        let now = named(&bytes);
        assert!(now.contains(&old) || now.contains(&UUID), "{state}: {now:?}");
        if seen.last() != Some(&now) {
            seen.push(now);
        }
    }
    assert!(seen.contains(&vec![old, UUID]) && seen.last() == Some(&vec![UUID]), "{seen:?}");
}

#[test]
fn a_protected_volume_is_held_while_it_changes() {
    require!(E2fsprogs);
    let scratch = Scratch::new();
    let img = scratch.file("a.img");
    mke2fs(&img, 48 * MIB, "-b 1024 -O mmp -E mmp_update_interval=1", None).unwrap();
    let holder = OpenOptions::new().write(true).open(&img).unwrap();
    holder.write("/file", content()).unwrap();
    holder.sync().unwrap();
    let mut second = OpenOptions::new();
    second.lock(false);
    let label = Tune { label: Some("fresh".into()), ..Tune::default() };
    assert!(matches!(tune_with(&second, &img, &label), Err(Error::Held { .. })));
    let smaller = resize_with(&second, &img, Size::Minimum, &());
    assert!(matches!(smaller, Err(Error::Held { .. })));
    holder.close().unwrap();
    let mut changes = Tune { uuid: Some(UUID), ..label }.features("^has_journal").unwrap();
    for size in [Size::Bytes(100 * MIB), Size::Minimum] {
        tune(&img, &changes).unwrap();
        resize(&img, size, &()).unwrap();
        let said = debugfs(&img, "dump_mmp").unwrap();
        assert!(said.contains("sequence: ff4d4d50"), "given back: {said}");
        e2fsck(&img, None).expect_clean().unwrap();
        changes = Tune { label: Some("once more".into()), ..Tune::default() };
    }
    assert!(Filesystem::open(&img).unwrap().read("/file").unwrap() == content());
    // A checker that was killed.
    debugfs_mmp_checker(&img);
    assert!(matches!(tune(&img, &changes), Err(Error::Held { .. })));
    clear_mmp(&OpenOptions::new(), &img).unwrap();
    e2fsck(&img, None).expect_clean().unwrap();
    let other = scratch.file("b.img");
    mke2fs(&other, 8 * MIB, "-b 1024", None).unwrap();
    assert!(matches!(clear_mmp(&OpenOptions::new(), &other), Err(Error::Invalid(_))));
}

/// The protection block as a running checker leaves it.
fn debugfs_mmp_checker(img: &Path) {
    use extant_ondisk::mmp::{Mmp, MmpState};
    use std::os::unix::fs::FileExt;
    let fs = Filesystem::open(img).unwrap();
    let sb = fs.superblock().clone();
    drop(fs);
    let file = fs::OpenOptions::new().read(true).write(true).open(img).unwrap();
    let at = sb.mmp_block.0 << sb.block_size.log2();
    let mut bytes = vec![0; sb.block_size.bytes()];
    file.read_exact_at(&mut bytes, at).unwrap();
    let mmp = Mmp::check(&bytes, &sb.checksums(), extant::Site::NOWHERE).unwrap();
    Mmp { state: MmpState::Checker, ..mmp }.write(&mut bytes, &sb.checksums());
    file.write_all_at(&bytes, at).unwrap();
}

#[test]
fn a_volume_on_a_block_device_changes_in_it() {
    require!(Root, Loop, E2fsprogs);
    let scratch = Scratch::new();
    let img = scratch.file("a.img");
    mke2fs(&img, 24 * MIB, "-b 1024", None).unwrap();
    fs::OpenOptions::new().write(true).open(&img).unwrap().set_len(64 * MIB).unwrap();
    let device = LoopDevice::attach(&img).unwrap();
    let done = resize(device.path(), Size::Device, &()).unwrap();
    assert_eq!((done.from_blocks, done.to_blocks), (24 << 10, 64 << 10));
    e2fsck(device.path(), None).expect_clean().unwrap();
    let refused = resize(device.path(), Size::Bytes(65 * MIB), &());
    assert!(matches!(refused, Err(Error::Invalid(_))), "{refused:?}");
    tune(device.path(), &Tune::default().features("^has_journal").unwrap()).unwrap();
    tune(device.path(), &Tune::default().features("has_journal").unwrap()).unwrap();
    resize(device.path(), Size::Minimum, &()).unwrap();
    e2fsck(device.path(), None).expect_clean().unwrap();
    let image = LoopMount::rw(device.path(), "");
    drop(image);
    e2fsck(device.path(), None).expect_clean().unwrap();
}

#[test]
fn volumes_pass_two_to_the_32_blocks_and_come_back() {
    let scratch = Scratch::new();
    let img = scratch.file("large.img");
    let small = (1u64 << 32) - 40 * 32_768;
    let large = (1u64 << 32) + 70 * 32_768;
    make_sparse(&img, small << 12).unwrap();
    let options = MkfsOptions::new().inodes(InodeCount::AtLeast(1 << 20)).zeroed(true);
    let device = Arc::new(extant::FileOptions::new().write(true).open(&img).unwrap());
    mkfs::format(device, &options, &Environment::default()).unwrap();
    let write = || OpenOptions::new().write(true).open(&img).unwrap();
    let fs = write();
    fs.write("/file", content()).unwrap();
    fs.close().unwrap();
    let done = resize(&img, Size::Blocks(large), &()).unwrap();
    assert_eq!(done.to_blocks, large);
    let fs = write();
    assert!(fs.read("/file").unwrap() == content());
    assert_eq!(fs.superblock().blocks_count, large);
    fs.write("/more", content()).unwrap();
    fs.close().unwrap();
    let done = resize(&img, Size::Blocks(small), &()).unwrap();
    assert_eq!(done.to_blocks, small);
    assert!(Filesystem::open(&img).unwrap().read("/more").unwrap() == content());
    if std::env::var_os("EXTANT_SOAK").is_some() {
        e2fsck(&img, None).expect_clean().unwrap();
    }
}

#[test]
fn the_reported_minimum_is_reached() {
    require!(E2fsprogs);
    let scratch = Scratch::new();
    let img = scratch.file("a.img");
    mke2fs(&img, 200 * MIB, "-b 1024 -g 2048", None).unwrap();
    let fs = OpenOptions::new().write(true).open(&img).unwrap();
    for n in 0..9 {
        fs.write(format!("/file {n}"), content()).unwrap();
    }
    fs.close().unwrap();
    let reported = minimum(&Filesystem::open(&img).unwrap()).unwrap();
    let done = resize(&img, Size::Minimum, &()).unwrap();
    assert!(done.to_blocks <= reported, "{} blocks, reported were {reported}", done.to_blocks);
    e2fsck(&img, None).expect_clean().unwrap();
    run_args("dumpe2fs", &["-h", img.to_str().unwrap()]).unwrap();
}
