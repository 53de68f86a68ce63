//! Volumes that grow while they are open: e2fsck finds nothing, all content is there, the new space
//! can be used, and Linux mounts the result.

use crate::common::{image_of, judge, pattern};
use extant::check;
use extant::resize::{Resized, Size, grow, resize};
use extant::tune::{Tune, tune};
use extant::{BlockDevice, Error, Filesystem, MemoryDevice, NewFile, OpenOptions, Phase, Progress};
use extant_ondisk::superblock::RawSuperblock;
use extant_testdev::Recorder;
use extant_testkit::command::run_args;
use extant_testkit::e2fsprogs::{self, dumpe2fs, mke2fs};
use extant_testkit::loop_mount::LoopMount;
use extant_testkit::report::run_cases;
use extant_testkit::require;
use extant_testkit::scratch::Scratch;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use zerocopy::FromBytes;

/// Name, options of mke2fs, MiB before and after, whether the volume changes to `meta_bg`.
const SHAPES: &[(&str, &str, u64, u64, bool)] = &[
    ("last-group", "-b 1024", 12, 14, false),
    ("two-groups", "-b 1024", 12, 30, false),
    ("large-blocks", "-b 4096", 40, 140, false),
    ("many-groups", "-b 1024 -g 1024 -N 512 -J size=2", 9, 32, false),
    ("cut-flex-group", "-b 1024 -g 1024 -N 512 -G 8 -J size=2", 9, 31, false),
    ("no-flex", "-b 1024 -g 1024 -N 512 -J size=2 -O ^flex_bg", 9, 40, false),
    ("no-64bit", "-b 1024 -g 1024 -N 512 -J size=2 -O ^64bit", 9, 26, false),
    ("no-checksums", "-b 1024 -g 1024 -N 512 -J size=2 -O ^metadata_csum", 9, 26, false),
    ("gdt-csum", "-b 1024 -g 1024 -N 512 -O ^metadata_csum,uninit_bg", 9, 26, false),
    ("ext3", "-t ext3 -b 1024 -g 1024 -N 512 -J size=2", 9, 26, false),
    ("ext2", "-t ext2 -b 1024 -g 1024 -N 512", 9, 26, false),
    ("every-super", "-b 1024 -g 2048 -J size=2 -O ^sparse_super,^resize_inode", 9, 40, true),
    ("bigalloc", "-b 1024 -O bigalloc -C 8192 -J size=2", 20, 68, false),
    ("quota", "-b 1024 -g 2048 -J size=2 -O quota", 9, 40, false),
    ("meta-bg", "-b 1024 -g 512 -N 256 -J size=2 -O meta_bg,^resize_inode", 9, 26, false),
    ("no-reserve", "-b 1024 -g 1024 -N 512 -J size=2 -O ^resize_inode", 9, 26, true),
    ("reserve-used-up", "-b 1024 -g 512 -N 512 -J size=2 -E resize=40000", 9, 80, true),
    ("fast-commit", "-b 1024 -J size=4 -O fast_commit", 12, 40, false),
    ("data-csum", "-b 1024 -g 2048 -J size=2 +data_csum", 9, 60, false),
    ("data-csum-4k", "-b 4096 -O quota +data_csum", 40, 140, false),
];

/// A volume of mke2fs on a device of `mib_after`, with garbage after its end.
fn made(options: &str, mib: u64, mib_after: u64) -> Result<MemoryDevice, String> {
    let scratch = Scratch::new();
    let img = scratch.file("a.img");
    let (options, data_csum) = match options.strip_suffix("+data_csum") {
        Some(options) => (options, true),
        None => (options, false),
    };
    mke2fs(&img, mib << 20, options, None)?;
    if data_csum {
        let on = Tune::default().features("data_csum").map_err(|e| e.to_string())?;
        tune(&img, &on).map_err(|e| e.to_string())?;
    }
    let mut bytes = std::fs::read(&img).map_err(|e| e.to_string())?;
    bytes.resize(usize::try_from(mib_after << 20).unwrap(), 0xAB);
    Ok(MemoryDevice::from_bytes(&bytes))
}

fn open(device: Arc<dyn BlockDevice>) -> Filesystem {
    OpenOptions::new().write(true).open_device(device).unwrap()
}

fn put(fs: &Filesystem, name: &str, bytes: &[u8]) -> extant::Result<()> {
    let file = fs.create_file(name, &NewFile::default())?.open()?;
    file.write_all_at(bytes, 0)
}

/// Fills the volume with files of 300 KB. Returns how many there are.
fn fill(fs: &Filesystem) -> usize {
    (0..).find(|n| put(fs, &format!("/fill {n}"), &pattern(300_000, *n as u8)).is_err()).unwrap()
}

fn holds(fs: &Filesystem, count: usize) {
    for n in 0..count {
        let content = fs.read(format!("/fill {n}")).unwrap();
        assert!(content == pattern(300_000, n as u8), "file {n} changed");
    }
}

fn grown(options: &str, mib: u64, mib_after: u64) -> Result<Resized, String> {
    let device = Arc::new(made(options, mib, mib_after)?);
    let fs = open(device.clone());
    let count = fill(&fs);
    let (before, inodes) = (fs.space(), fs.space().free_inodes);
    let done = grow(&fs, Size::Device, &()).map_err(|e| e.to_string())?;
    let after = fs.space();
    let added = done.to_blocks - done.from_blocks;
    if after.blocks <= before.blocks || after.blocks - before.blocks > added {
        return Err(format!("{before:?}, then {after:?}, with {done:?}"));
    }
    if done.to_blocks * done.block_bytes as u64 > 2 * (mib << 20) && after.free_inodes <= inodes {
        return Err(format!("{inodes} free inodes, then {}", after.free_inodes));
    }
    let all = fill_more(&fs, count);
    if all <= count {
        return Err("no more files fit".into());
    }
    holds(&fs, all);
    fs.close().map_err(|e| e.to_string())?;
    judge(&*device);
    let options = check::Options { data: true, ..check::Options::default() };
    let report = check::check_device(device.clone(), &options, &()).unwrap();
    if !report.findings.is_empty() {
        return Err(format!("{:?}", report.findings));
    }
    let fs = open(device.clone());
    if fs.space().blocks != after.blocks {
        return Err(format!("{after:?}, and after opening {:?}", fs.space()));
    }
    holds(&fs, all);
    fs.close().map_err(|e| e.to_string())?;
    seen_by_linux(&image_of(&*device), all)?;
    Ok(done)
}

/// Adds files until the volume is full, 60 at most. Returns how many there are.
fn fill_more(fs: &Filesystem, from: usize) -> usize {
    let put = |n: &usize| put(fs, &format!("/fill {n}"), &pattern(300_000, *n as u8)).is_err();
    // The file that failed exists with a part of its content.
    let _ = fs.remove_file(format!("/fill {from}"));
    let all = (from..from + 60).find(put).unwrap_or(from + 60);
    let _ = fs.remove_file(format!("/fill {all}"));
    all
}

fn seen_by_linux(image: &[u8], count: usize) -> Result<(), String> {
    let scratch = Scratch::new();
    let img = scratch.file("a.img");
    std::fs::write(&img, image).map_err(|e| e.to_string())?;
    e2fsprogs::clear_data_csum(&img)?;
    dumpe2fs(&img)?;
    let Ok(mount) = LoopMount::rw(&img, "") else { return Ok(()) };
    for n in 0..count {
        let content = std::fs::read(mount.path().join(format!("fill {n}")));
        if content.map_err(|e| e.to_string())? != pattern(300_000, n as u8) {
            return Err(format!("Linux reads another file {n}"));
        }
    }
    std::fs::remove_file(mount.path().join("fill 0")).map_err(|e| e.to_string())?;
    std::fs::create_dir(mount.path().join("new")).map_err(|e| e.to_string())?;
    mount.unmount()?;
    e2fsprogs::e2fsck(&img, None).expect_clean()
}

#[test]
fn a_full_volume_grows_while_it_is_open() {
    require!(E2fsprogs);
    run_cases(
        "grow",
        SHAPES,
        |(name, ..)| name.to_string(),
        |(_, options, before, after, meta_bg)| {
            let done = grown(options, *before, *after)?;
            match done.now_meta_bg == *meta_bg {
                true => Ok(String::new()),
                false => Err(format!("meta_bg: {}", done.now_meta_bg)),
            }
        },
    );
}

#[test]
fn a_volume_grows_in_many_small_calls() {
    let device = Arc::new(made("-b 1024 -g 512 -N 512 -J size=2", 9, 40).unwrap());
    let fs = open(device.clone());
    let count = fill(&fs);
    for kib in (9500..40 << 10).step_by(377) {
        grow(&fs, Size::Bytes(kib << 10), &()).unwrap();
    }
    let all = fill_more(&fs, count);
    holds(&fs, all);
    fs.close().unwrap();
    judge(&*device);
}

/// Name, options of mke2fs, MiB before and after, every how many states one is judged.
const CUT: &[(&str, &str, u64, u64, usize)] = &[
    ("last-group", "-b 1024", 12, 14, 6),
    ("steps", "-b 1024 -g 512 -N 512 -J size=2", 9, 21, 20),
    ("to-meta-bg", "-b 1024 -g 512 -N 512 -J size=2 -O ^resize_inode", 9, 14, 18),
    ("bigalloc", "-b 1024 -O bigalloc -C 8192 -J size=2", 12, 20, 8),
    ("fast-commit", "-b 1024 -J size=4 -O fast_commit", 12, 20, 12),
    ("data-csum", "-b 1024 -J size=2 +data_csum", 12, 20, 12),
];

/// A power cut at every write of a growth, and of writes after it that use the new space.
fn cut(options: &str, mib: u64, mib_after: u64, every: usize) -> Result<String, String> {
    let base = made(options, mib, mib_after)?;
    let device = Arc::new(base);
    let fs = open(device.clone());
    let count = fill(&fs);
    fs.remove_file(format!("/fill {count}")).unwrap();
    fs.close().unwrap();
    let base = MemoryDevice::copy_of(&device).unwrap();
    let recorder = Arc::new(Recorder::new(MemoryDevice::copy_of(&base).unwrap()));
    let mut options = OpenOptions::new();
    let fs = options.write(true).commit_interval(None).open_device(recorder.clone()).unwrap();
    let before = fs.space().blocks;
    grow(&fs, Size::Device, &()).map_err(|e| e.to_string())?;
    let grown_at = recorder.position();
    put(&fs, "/new", &pattern(900_000, 3)).map_err(|e| e.to_string())?;
    fs.open_file("/new").unwrap().sync_all().unwrap();
    fs.close().unwrap();
    let (mut judged, mut sizes) = (0, std::collections::BTreeSet::new());
    let plan = recorder.crash_plan(&base).seed(3).samples(2).exhaustive_up_to(2).torn(1);
    for state in plan.states().step_by(every) {
        let what = state.to_string();
        let bytes = image_of(&state.image);
        let left = Arc::new(state.image);
        let fs = open(left.clone());
        holds(&fs, count);
        sizes.insert(fs.space().blocks);
        if state.cut >= grown_at && fs.space().blocks == before {
            return Err(format!("{what}: a growth that had returned is lost"));
        }
        // The new groups, if they are there, can be used.
        let _ = fill_more(&fs, count);
        fs.close().unwrap();
        let at = |e: String| format!("{what}: {e}");
        if judged % 4 == 0 {
            let scratch = Scratch::new();
            let img = scratch.file("a.img");
            std::fs::write(&img, image_of(&*left)).map_err(|e| at(e.to_string()))?;
            let data_csum = e2fsprogs::has_data_csum(&img);
            e2fsprogs::clear_data_csum(&img).map_err(at)?;
            e2fsprogs::e2fsck(&img, None).expect_clean().map_err(at)?;
            let (raw, _) = RawSuperblock::ref_from_prefix(&bytes[1024..]).unwrap();
            // e2fsck treats a torn superblock as a damaged one, and knows no data checksums.
            if raw.checksum_is_right() && !data_csum {
                std::fs::write(&img, bytes).map_err(|e| at(e.to_string()))?;
                let _ = run_args("e2fsck", &["-fp", img.to_str().unwrap()]);
                e2fsprogs::e2fsck(&img, None).expect_clean().map_err(at)?;
                holds(&Filesystem::open(&img).map_err(|e| at(e.to_string()))?, count);
            }
        } else {
            let report = check::check_device(left, &Default::default(), &()).unwrap();
            if !report.clean {
                return Err(at(format!("{:?}", report.findings)));
            }
        }
        judged += 1;
    }
    Ok(format!("{judged} states, {} sizes", sizes.len()))
}

#[test]
fn a_growth_that_is_cut_short_leaves_a_volume_of_the_old_or_the_new_size() {
    require!(E2fsprogs);
    run_cases(
        "grow/cut",
        CUT,
        |case| case.0.to_owned(),
        |&(_, options, mib, after, every)| cut(options, mib, after, every),
    );
}

#[test]
fn threads_work_while_the_volume_grows() {
    let device = Arc::new(made("-b 1024 -g 512 -N 512 -J size=2", 9, 60).unwrap());
    let fs = open(device.clone());
    let done = AtomicBool::new(false);
    let work = |n: u64| {
        let mut round = 0;
        while !done.load(Ordering::Relaxed) {
            let name = format!("/{n} {}", round % 40);
            let bytes = pattern(20_000 + (round * 977 % 90_000) as usize, n as u8);
            let _ = fs.remove_file(&name);
            // A full volume grows in a moment.
            match put(&fs, &name, &bytes) {
                Ok(()) => assert!(fs.read(&name).unwrap() == bytes),
                Err(Error::NoSpace) => {}
                Err(error) => panic!("{error}"),
            }
            let _ = fs.create_dir(format!("/d {n} {round}"), &Default::default());
            if round % 7 == 0 {
                fs.sync().unwrap();
            }
            round += 1;
        }
    };
    std::thread::scope(|threads| {
        let work = &work;
        for n in 0..3 {
            threads.spawn(move || work(n));
        }
        for kib in (9500..60 << 10).step_by(997) {
            grow(&fs, Size::Bytes(kib << 10), &()).unwrap();
            let space = fs.space();
            assert!(space.free <= space.blocks && space.free_inodes <= space.inodes);
        }
        done.store(true, Ordering::Relaxed);
    });
    fs.close().unwrap();
    judge(&*device);
}

/// Writes a file as soon as a step is done, when its space cannot be used yet.
struct Writer<'a>(&'a Filesystem, AtomicBool);

impl Progress for Writer<'_> {
    fn advance(&self, phase: Phase, _: u64) {
        if phase == Phase::ResizeGrow && !self.1.swap(true, Ordering::Relaxed) {
            let before = self.0.space();
            put(self.0, "/beside", &pattern(60_000, 9)).unwrap();
            assert!(self.0.space().free < before.free);
        }
    }
}

#[test]
fn what_is_kept_for_root_grows_with_the_space_and_not_before() {
    let device = Arc::new(made("-b 1024 -g 512 -N 512 -J size=2 -m 5", 9, 60).unwrap());
    let mut options = OpenOptions::new();
    let fs = options.write(true).use_reserve(false).open_device(device.clone()).unwrap();
    let count = fill(&fs);
    fs.remove_file(format!("/fill {count}")).unwrap();
    fs.sync().unwrap();
    let before = fs.space();
    let writer = Writer(&fs, AtomicBool::new(false));
    // Five percent of the added blocks are more than what is available now.
    assert!(before.available > 80 && before.available < 400, "{before:?}");
    grow(&fs, Size::Device, &writer).unwrap();
    assert!(writer.1.load(Ordering::Relaxed));
    let after = fs.space();
    let kept = |space: &extant::SpaceInfo| space.free - space.available;
    assert!(kept(&after) > 4 * kept(&before), "{before:?}, then {after:?}");
    holds(&fs, fill_more(&fs, count));
    assert_eq!(fs.read("/beside").unwrap(), pattern(60_000, 9));
    fs.close().unwrap();
    judge(&*device);
}

#[test]
fn what_cannot_grow_is_refused_and_stays_as_it_is() {
    let device = Arc::new(made("-b 1024", 12, 14).unwrap());
    let fs = open(device.clone());
    let refused = |size: Size| grow(&fs, size, &()).unwrap_err().to_string();
    assert!(refused(Size::Bytes(8 << 20)).contains("unmount it first"));
    assert!(refused(Size::Minimum).contains("unmount it first"));
    assert!(refused(Size::Bytes(15 << 20)).contains("make the device larger first"));
    assert!(refused(Size::Blocks(u64::MAX)).contains("volume"));
    fs.close().unwrap();
    let fs = Filesystem::open_device(device.clone()).unwrap();
    assert!(matches!(grow(&fs, Size::Device, &()), Err(Error::ReadOnly)));
    judge(&*device);
    let device = Arc::new(made("-b 1024 -O sparse_super2", 12, 14).unwrap());
    let fs = open(device.clone());
    assert!(matches!(grow(&fs, Size::Device, &()), Err(Error::NotSupported(_))));
    fs.close().unwrap();
    judge(&*device);
}

#[test]
fn a_refused_growth_takes_no_space_for_data_checksums() {
    // A step that adds backups changes every block that is reserved for descriptors: more than the
    // journal takes in one transaction.
    let options = "-b 4096 -g 4096 -J size=4 -E resize=268000000 +data_csum";
    let device = Arc::new(made(options, 40, 80).unwrap());
    let fs = open(device.clone());
    let before = (fs.space(), fs.blocks_count());
    let refused = grow(&fs, Size::Device, &()).unwrap_err().to_string();
    assert!(refused.contains("the journal is too small"), "{refused}");
    assert_eq!((fs.space(), fs.blocks_count()), before);
    fs.close().unwrap();
    judge(&*device);
}

#[test]
fn a_file_becomes_longer() {
    let scratch = Scratch::new();
    let img = scratch.file("a.img");
    mke2fs(&img, 12 << 20, "-b 1024", None).unwrap();
    let fs = OpenOptions::new().write(true).open(&img).unwrap();
    let done = grow(&fs, Size::Bytes(40 << 20), &()).unwrap();
    assert_eq!(done.to_blocks, 40 << 10);
    assert_eq!(std::fs::metadata(&img).unwrap().len(), 40 << 20);
    // A file that another program extended is measured again.
    std::fs::OpenOptions::new().write(true).open(&img).unwrap().set_len(50 << 20).unwrap();
    assert_eq!(grow(&fs, Size::Device, &()).unwrap().to_blocks, 50 << 10);
    put(&fs, "/large", &pattern(35 << 20, 1)).unwrap();
    fs.close().unwrap();
    e2fsprogs::e2fsck(&img, None).expect_clean().unwrap();
}

#[test]
fn a_closed_volume_with_data_checksums_grows() {
    let scratch = Scratch::new();
    let img = scratch.file("a.img");
    mke2fs(&img, 12 << 20, "-b 1024", None).unwrap();
    tune(&img, &Tune::default().features("data_csum").unwrap()).unwrap();
    let fs = OpenOptions::new().write(true).open(&img).unwrap();
    put(&fs, "/before", &pattern(100_000, 1)).unwrap();
    fs.close().unwrap();
    assert_eq!(resize(&img, Size::Bytes(40 << 20), &()).unwrap().to_blocks, 40 << 10);
    let refused = resize(&img, Size::Bytes(20 << 20), &()).unwrap_err();
    assert!(matches!(refused, Error::NotSupported(_)), "{refused}");
    let fs = OpenOptions::new().write(true).open(&img).unwrap();
    put(&fs, "/after", &pattern(20 << 20, 2)).unwrap();
    assert!(fs.read("/before").unwrap() == pattern(100_000, 1));
    fs.close().unwrap();
    judge(&extant::FileDevice::open(&img).unwrap());
}
