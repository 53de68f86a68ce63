//! Free space in fewer runs: files keep content, times and extents, also after a power cut at any
//! write.

use crate::common::{image_of, judge};
use extant::check::check_device;
use extant::mkfs::{self, MkfsOptions};
use extant::{BlockDevice, Environment, Error, Filesystem, MemoryDevice, OpenOptions, Timestamp};
use extant_testdev::Recorder;
use extant_testkit::rng::Rng;
use std::collections::BTreeMap;
use std::path::PathBuf;
use std::process::Command;
use std::sync::Arc;

const KINDS: [(u32, &str); 4] =
    [(4096, ""), (1024, "^metadata_csum"), (1024, "data_csum"), (4096, "fast_commit")];

fn volume(block: u32, features: &str, mib: u64) -> Arc<MemoryDevice> {
    let device = Arc::new(MemoryDevice::new(mib << 20));
    let size = extant::BlockSize::from_bytes(block).unwrap();
    let options = MkfsOptions::new().zeroed(true).block_size(size).features(features).unwrap();
    mkfs::format(Arc::clone(&device) as _, &options, &Environment::default()).unwrap();
    device
}

fn open(device: Arc<dyn BlockDevice>) -> Filesystem {
    OpenOptions::new().write(true).open_device(device).unwrap()
}

/// Files of random lengths, of which every second one was removed.
fn fill(fs: &Filesystem, files: usize, longest: usize) {
    let mut rng = Rng::new(3);
    for n in 0..files {
        let content: Vec<u8> = (0..rng.below(longest)).map(|at| (n * 7 + at / 3) as u8).collect();
        fs.write(format!("/{n}"), content).unwrap();
        if n % 50 == 0 {
            fs.sync().unwrap();
        }
    }
    fs.sync().unwrap();
    (0..files).step_by(2).for_each(|n| fs.remove_file(format!("/{n}")).unwrap());
    fs.sync().unwrap();
}

/// Content, times and the number of extents of each file.
type Seen = BTreeMap<PathBuf, (Vec<u8>, Timestamp, Timestamp)>;

fn seen(fs: &Filesystem) -> Seen {
    let files = fs.walk("/").map(Result::unwrap).filter(|entry| entry.file_type().is_file());
    let one = |entry: extant::WalkEntry| {
        let meta = entry.metadata().unwrap();
        let content = fs.read(entry.path()).unwrap();
        (entry.path().to_path_buf(), (content, meta.modified(), meta.changed()))
    };
    files.map(one).collect()
}

fn extents(fs: &Filesystem) -> usize {
    let files = fs.walk("/").map(Result::unwrap).filter(|entry| entry.file_type().is_file());
    files.map(|entry| entry.open().unwrap().extents().unwrap().len()).sum()
}

/// Number and shortest, longest run in KiB, as e2freefrag counts them.
fn e2freefrag(device: &dyn BlockDevice) -> [u64; 3] {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("img");
    std::fs::write(&path, image_of(device)).unwrap();
    extant_testkit::e2fsprogs::clear_data_csum(&path).unwrap();
    let done = Command::new("e2freefrag").arg(&path).output().unwrap();
    let text = String::from_utf8(done.stdout).unwrap();
    let number = |name: &str| {
        let line = text.lines().find_map(|line| line.strip_prefix(name));
        let word = line.and_then(|line| line.split_whitespace().next());
        word.and_then(|word| word.parse().ok()).unwrap_or_else(|| panic!("{name}: {text}"))
    };
    [number("Num. free extent:"), number("Min. free extent:"), number("Max. free extent:")]
}

#[test]
fn free_space_gets_fewer_runs_and_files_stay_as_they_are() {
    extant_testkit::require!(E2fsprogs);
    for (block, features) in KINDS {
        let device = volume(block, features, 48);
        let fs = open(device.clone());
        fill(&fs, 700, 60_000);
        let (before, pieces) = (seen(&fs), extents(&fs));
        let done = fs.defragment_free_space().unwrap();
        let (old, new) = (&done.before, &done.after);
        assert_eq!(old.blocks, new.blocks, "{block} {features}");
        assert!(
            new.runs * 3 <= old.runs,
            "{block} {features}: {} runs, now {}",
            old.runs,
            new.runs
        );
        assert!(new.longest >= old.longest, "{block} {features}: {done:?}");
        assert!(done.moves > 0 && done.files_left == 0, "{done:?}");
        assert!(seen(&fs) == before, "{block} {features}: a file has changed");
        assert!(extents(&fs) <= pieces, "{block} {features}: {} extents", extents(&fs));
        assert_eq!(fs.free_runs().unwrap(), *new);
        let kib = u64::from(block) >> 10;
        let runs = [new.runs, new.shortest * kib, new.longest * kib];
        fs.close().unwrap();
        assert_eq!(e2freefrag(&*device), runs, "{block} {features}");
        let fs = Filesystem::open_device(device.clone()).unwrap();
        assert!(seen(&fs) == before, "{block} {features}: after opening");
        let report = check_device(device.clone(), &Default::default(), &()).unwrap();
        assert!(report.clean, "{block} {features}: {:?}", report.findings);
        judge(&*device);
    }
}

#[test]
fn volumes_whose_files_cannot_move_are_refused_or_stay() {
    extant_testkit::require!(E2fsprogs);
    let fs = open(volume(1024, "bigalloc", 32));
    let done = fs.defragment_free_space();
    assert!(matches!(done, Err(Error::NotSupported(_))), "{done:?}");
    let device = volume(1024, "^extents,^64bit", 32);
    let fs = open(device.clone());
    fill(&fs, 100, 20_000);
    let before = seen(&fs);
    let done = fs.defragment_free_space().unwrap();
    assert_eq!((done.moves, done.files_left, &done.after), (0, 50, &done.before));
    assert!(seen(&fs) == before);
    fs.close().unwrap();
    judge(&*device);
    let fs = Filesystem::open_device(device).unwrap();
    assert!(matches!(fs.defragment_free_space(), Err(Error::ReadOnly)));
}

#[test]
fn readers_and_writers_go_on_meanwhile() {
    extant_testkit::require!(E2fsprogs);
    let device = volume(4096, "", 48);
    let fs = open(device.clone());
    fill(&fs, 400, 60_000);
    let before = seen(&fs);
    let is_over = std::sync::atomic::AtomicBool::new(false);
    let order = std::sync::atomic::Ordering::Relaxed;
    std::thread::scope(|scope| {
        scope.spawn(|| {
            while !is_over.load(order) {
                for (path, (content, ..)) in &before {
                    assert!(fs.read(path).unwrap() == *content, "{}", path.display());
                }
            }
        });
        scope.spawn(|| {
            let mut n = 0;
            while !is_over.load(order) {
                fs.write("/other", vec![n as u8; n * 1000 % 90_000]).unwrap();
                n += 1;
            }
        });
        let done = fs.defragment_free_space();
        is_over.store(true, order);
        done.unwrap();
    });
    fs.remove_file("/other").unwrap();
    assert!(seen(&fs) == before);
    fs.close().unwrap();
    judge(&*device);
}

#[test]
fn a_power_cut_at_any_write_leaves_the_files() {
    extant_testkit::require!(E2fsprogs);
    for (block, features) in [(1024, ""), (1024, "data_csum"), (4096, "fast_commit")] {
        let base = volume(block, features, 24);
        let fs = open(base.clone());
        fill(&fs, 60, 12_000);
        let before = seen(&fs);
        fs.close().unwrap();
        let base = MemoryDevice::copy_of(&base).unwrap();
        let device = Arc::new(Recorder::new(MemoryDevice::copy_of(&base).unwrap()));
        let fs = open(device.clone());
        let done = fs.defragment_free_space().unwrap();
        assert!(done.after.runs < done.before.runs, "{block} {features}: {done:?}");
        fs.sync().unwrap();
        // The blocks that files had before get other content.
        fs.write("/other", vec![0xEE; 100_000]).unwrap();
        fs.sync().unwrap();
        let plan = device.crash_plan(&base).samples(2).torn(1);
        let mut states = plan.states();
        let mut cuts = 0;
        while let Some(state) = states.next_where(|_, n| n < 3) {
            let left = Arc::new(state.image);
            let fs = open(left.clone());
            let mut now = seen(&fs);
            now.remove(&PathBuf::from("/other"));
            assert!(now == before, "{block} {features}, cut {}: a file has changed", state.cut);
            fs.close().unwrap();
            let report = check_device(left.clone(), &Default::default(), &()).unwrap();
            assert!(report.findings.is_empty(), "cut {}: {:?}", state.cut, report.findings);
            if cuts % 40 == 0 {
                judge(&*left);
            }
            cuts += 1;
        }
        assert!(cuts > 20, "only {cuts} cuts");
    }
}
