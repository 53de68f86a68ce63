//! Volumes whose fsyncs go to the byte log: their costs, the states after a cut, and who may open
//! them.

use crate::common::{Device, Image, judge, new_file};
use extant::dax::{ByteLogMode, DaxMode, PersistenceDomain, SyncWay};
use extant::journal::Ineligible;
use extant::{Error, Filesystem, MemoryDevice, NewFile, OpenOptions, SetAttributes};
use extant_base::ByteOffset;
use extant_blockdev::BlockDevice;
use extant_ondisk::features::Incompat;
use extant_testdev::Recorder;
use extant_testkit::{e2fsprogs, require};
use std::collections::BTreeMap;
use std::process::Command;
use std::sync::Arc;

const FAST: &str = "-b 4096 -O fast_commit";

fn options() -> OpenOptions {
    let mut options = OpenOptions::new();
    options.write(true).commit_interval(None).page_cache_bytes(0).byte_log(ByteLogMode::Force);
    options
}

/// A volume in memory with a byte log: a copy of its first content, and its device.
fn volume(options_of_mke2fs: &str) -> (MemoryDevice, Device, Filesystem) {
    let base = crate::common::mke2fs(32, options_of_mke2fs);
    let device = Arc::new(Recorder::new(base.clone()));
    let fs = options().open_device(device.clone()).unwrap();
    (base, device, fs)
}

/// The incompatible features on disk.
fn incompat(device: &dyn BlockDevice) -> Incompat {
    let mut bits = [0; 4];
    device.read_at(ByteOffset(1024 + 0x60), &mut bits).unwrap();
    Incompat::from_bits_retain(u32::from_le_bytes(bits))
}

fn copy(device: &dyn BlockDevice) -> Arc<MemoryDevice> {
    Arc::new(MemoryDevice::copy_of(device).unwrap())
}

/// Creates files and syncs each of them.
fn sync_files(fs: &Filesystem, names: impl Iterator<Item = usize>) {
    for n in names {
        let file = new_file(fs, &format!("file {n}"));
        file.append(format!("content of {n}").as_bytes()).unwrap();
        file.sync_all().unwrap();
    }
}

#[track_caller]
fn assert_files(fs: &Filesystem, names: impl Iterator<Item = usize>) {
    for n in names {
        let content = fs.read(format!("/file {n}")).unwrap();
        assert_eq!(content, format!("content of {n}").into_bytes());
    }
}

#[test]
fn the_feature_is_set_only_while_the_volume_is_open_for_writing() {
    require!(E2fsprogs);
    let (_, device, fs) = volume(FAST);
    assert!(incompat(&device).contains(Incompat::LIVE));
    sync_files(&fs, 0..5);
    let crashed = copy(&device);
    fs.close().unwrap();
    assert!(!incompat(&device).intersects(Incompat::LIVE));
    judge(&device);
    // An implementation that does not know the feature refuses the volume.
    let image = tempfile::NamedTempFile::new().unwrap();
    let mut bytes = vec![0; crashed.len() as usize];
    crashed.read_at(ByteOffset(0), &mut bytes).unwrap();
    std::fs::write(image.path(), &bytes).unwrap();
    assert!(e2fsprogs::e2fsck(image.path(), None).expect_clean().is_err());
    assert!(std::fs::read(image.path()).unwrap() == bytes, "e2fsck changed it");
    // For reading, the volume is recovered in memory.
    let reading = OpenOptions::new().open_device(crashed.clone()).unwrap();
    assert_files(&reading, 0..5);
    drop(reading);
    assert!(incompat(&crashed).contains(Incompat::LIVE));
    // Replay needs neither the option nor a DAX mapping.
    let report = OpenOptions::new().recover_device_in_place(crashed.clone()).unwrap();
    assert!(report.was_needed && report.fast_commits == 4, "{report:?}");
    assert!(!incompat(&crashed).intersects(Incompat::LIVE));
    judge(&*crashed);
    assert_files(&OpenOptions::new().open_device(crashed).unwrap(), 0..5);
}

#[test]
fn any_opening_to_write_recovers_it() {
    require!(E2fsprogs);
    let (_, device, fs) = volume(FAST);
    sync_files(&fs, 0..3);
    for mode in [ByteLogMode::Off, ByteLogMode::On] {
        let crashed = copy(&device);
        let again = options().byte_log(mode).open_device(crashed.clone()).unwrap();
        assert_files(&again, 0..3);
        assert_eq!(incompat(&crashed).contains(Incompat::DAX_FC_BYTELOG), mode == ByteLogMode::On);
        sync_files(&again, 3..6);
        let crashed_again = copy(&*crashed);
        let once_more = options().open_device(crashed_again.clone()).unwrap();
        assert_files(&once_more, 0..6);
        once_more.close().unwrap();
        judge(&*crashed_again);
    }
}

#[test]
fn a_small_fsync_writes_five_lines_and_flushes_nothing() {
    require!(E2fsprogs);
    let (_, device, fs) = volume(FAST);
    let file = new_file(&fs, "file");
    file.append(&[1; 100]).unwrap();
    file.sync_all().unwrap();
    let touch = |mode| {
        let changes = SetAttributes { mode: Some(mode), ..SetAttributes::default() };
        fs.set_attributes("/file", &changes).unwrap();
    };
    // The first fast commit of the epoch.
    touch(0o600);
    file.sync_all().unwrap();
    for (what, call) in [
        ("attributes", &(|| touch(0o640)) as &dyn Fn()),
        ("a link", &|| fs.hard_link("/file", "/another").unwrap()),
        ("a rename", &|| fs.rename("/another", "/third").unwrap()),
    ] {
        call();
        let costs = crate::common::costs(&device, || file.sync_all().unwrap());
        assert!(costs.stored_bytes > 0 && costs.stored_bytes <= 320, "{what}: {costs:?}");
        assert_eq!((costs.writes, costs.flushes, costs.fences), (0, 0, 1), "{what}: {costs:?}");
    }
    // A new file: its inode, its name, and its inode again with its link count.
    let new = new_file(&fs, "a new file");
    let costs = crate::common::costs(&device, || new.sync_all().unwrap());
    assert!(costs.stored_bytes <= 512 && (costs.writes, costs.flushes) == (0, 0), "{costs:?}");
    let stats = fs.stats().journal.unwrap();
    assert_eq!((stats.commits, stats.fast_commits), (1, 5), "{stats:?}");
    assert_eq!(stats.byte_log.unwrap().records, 5);
}

#[test]
fn a_full_ring_takes_a_full_commit_and_nothing_is_lost() {
    require!(E2fsprogs);
    let (_, device, fs) = volume("-b 1024 -J size=1 -O fast_commit");
    sync_files(&fs, 0..30);
    let file = new_file(&fs, "file");
    let mut mode = 0;
    let has_overflowed = |fs: &Filesystem| {
        let reasons = fs.stats().journal.unwrap().full_because;
        reasons.iter().any(|(why, _)| *why == Ineligible::ByteLogFull)
    };
    while !has_overflowed(&fs) || mode % 100 < 50 {
        mode += 1;
        assert!(mode < 5000, "{:?}", fs.stats().journal);
        let changes = SetAttributes { mode: Some(mode & 0o777), ..SetAttributes::default() };
        fs.set_attributes("/file", &changes).unwrap();
        file.sync_all().unwrap();
    }
    sync_files(&fs, 30..35);
    let crashed = copy(&device);
    let again = options().open_device(crashed.clone()).unwrap();
    assert_files(&again, 0..35);
    assert_eq!(again.metadata("/file").unwrap().mode() & 0o777, u32::from(mode & 0o777));
    again.close().unwrap();
    judge(&*crashed);
}

#[test]
fn synced_data_survives_a_cut_after_any_cache_line() {
    require!(E2fsprogs);
    let (base, device, fs) = volume(FAST);
    // An older epoch is in the ring, longer than the next one.
    sync_files(&fs, 0..12);
    fs.create_dir("/dir", &NewFile::directory()).unwrap();
    let file = new_file(&fs, "file");
    file.sync_all().unwrap();
    let from = device.position();
    let mut done = BTreeMap::new();
    for n in 20..23 {
        sync_files(&fs, n..n + 1);
        done.insert(n, device.position());
    }
    let until = device.position();
    let plan = device.crash_plan(&base).cuts(from..=until).seed(3).samples(6);
    let (mut states, mut all) = (0, 0);
    for state in plan.states() {
        let what = state.to_string();
        let image = Arc::new(state.image);
        let fs = OpenOptions::new().write(true).open_device(image.clone()).expect(&what);
        assert_files(
            &fs,
            (0..12).chain(
                done.iter().filter_map(|(n, mark)| (*mark <= state.completed).then_some(*n)),
            ),
        );
        all += usize::from(fs.exists("/file 22").unwrap());
        fs.close().unwrap();
        states += 1;
        if states % 10 == 0 {
            judge(&*image);
        }
    }
    assert!(states > 100 && all > 0, "{states} {all}");
}

#[test]
fn where_it_cannot_be_used_force_fails_and_on_continues_without() {
    require!(E2fsprogs);
    let image = Image::mke2fs(32, FAST);
    let without = Image::mke2fs(32, "-b 4096");
    let no_journal = Image::mke2fs(32, "-b 4096 -O ^has_journal");
    let path = |image: &Image| image.path.clone();
    for (path, dax) in [
        (path(&image), DaxMode::Never),
        (path(&without), DaxMode::Always),
        (path(&no_journal), DaxMode::Always),
    ] {
        let before = std::fs::read(&path).unwrap();
        let refused = options().dax(dax).open(&path).err();
        assert!(matches!(refused, Some(Error::NotSupported(_))), "{refused:?}");
        assert!(std::fs::read(&path).unwrap() == before, "something was written");
        let fs = options().byte_log(ByteLogMode::On).dax(dax).open(&path).unwrap();
        assert!(!matches!(fs.sync_way(), SyncWay::ByteLog { .. }));
        assert_eq!(fs.sync_way().persistence_domain(), PersistenceDomain::Power);
        sync_files(&fs, 0..2);
        fs.close().unwrap();
        e2fsprogs::e2fsck(&path, None).expect_clean().unwrap();
    }
    // The option is not set.
    let fs = OpenOptions::new().write(true).dax(DaxMode::Always).open(path(&image)).unwrap();
    assert_eq!(fs.sync_way(), SyncWay::FastCommits);
    assert!(
        !incompat(&*Arc::new(extant::FileOptions::new().lock(false).open(path(&image)).unwrap()))
            .contains(Incompat::DAX_FC_BYTELOG)
    );
    fs.close().unwrap();
}

#[test]
fn the_sync_way_is_reported() {
    let (_, _device, fs) = volume(FAST);
    let way = fs.sync_way();
    assert!(matches!(way, SyncWay::ByteLog { persistence_domain: PersistenceDomain::Power, .. }));
    assert_eq!(way.to_string(), "stores into the byte log (memory): survives a power cut");
    let weaker = SyncWay::ByteLog {
        persistence_domain: PersistenceDomain::ProcessCrash,
        way: extant::dax::Way::Clwb,
    };
    assert!(weaker.to_string().contains("NOT a power cut"));
    fs.close().unwrap();
}

#[test]
fn synced_data_survives_a_killed_process() {
    const PATH: &str = "EXTANT_TEST_BYTE_LOG_PATH";
    require!(E2fsprogs);
    let open = |path: &std::path::Path| options().dax(DaxMode::Always).open(path);
    if let Some(path) = std::env::var_os(PATH) {
        let fs = open(path.as_ref()).unwrap();
        sync_files(&fs, 0..40);
        std::process::abort();
    }
    let image = Image::mke2fs(32, FAST);
    match open(&image.path) {
        // Not every CPU can write back cache lines.
        Err(Error::NotSupported(_)) if !cfg!(target_arch = "x86_64") => return,
        opened => opened.unwrap().close().unwrap(),
    }
    let mut child = Command::new(std::env::current_exe().unwrap());
    child
        .args(["--exact", "byte_log::synced_data_survives_a_killed_process"])
        .env(PATH, &image.path);
    assert!(!child.output().unwrap().status.success(), "it aborts");
    let report = OpenOptions::new().recover_in_place(&image.path).unwrap();
    assert!(report.fast_commits > 30, "{report:?}");
    image.judge();
    assert_files(&OpenOptions::new().open(&image.path).unwrap(), 0..40);
}
