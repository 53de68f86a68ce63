//! Volumes that this machine's kernel was writing when the power was cut.
//!
//! ```text
//!   mke2fs ─► mount, work, fsync ─► shutdown, no log flush ─► image ─┬─► recovered: all synced
//!             (a new volume)        (never mounted again)            │   data, e2fsck clean
//!                                                                    ├─► recovery cut, repeated
//!                                                                    └─► log mutated: no harm
//! ```

use crate::common::image_of;
use extant::{BlockDevice, FileKind, Filesystem, MemoryDevice, OpenOptions};
use extant_base::ByteOffset;
use extant_testdev::Recorder;
use extant_testkit::e2fsprogs::{debugfs, e2fsck, mke2fs};
use extant_testkit::kernel_images::{CrashCase, CrashState, Must, crash_cases};
use extant_testkit::loop_mount::LoopMount;
use extant_testkit::manifest::base64;
use extant_testkit::require;
use extant_testkit::rng::Rng;
use extant_testkit::scratch::{Scratch, copy_sparse};
use rustix::fs::{AtFlags, CWD, Mode, OFlags};
use std::collections::BTreeMap;
use std::fs;
use std::io::Write;
use std::os::fd::AsRawFd;
use std::path::Path;
use std::sync::Arc;

/// A few of each kind of journal, volume and work. The compatibility suite runs the whole table and
/// compares with Linux.
const CASES: [&str; 27] = [
    "full-mixed",
    "full-revoke",
    "fc-create",
    "fc-append",
    "fc-newdir",
    "fc-rename",
    "fc-linkunlink",
    "fc-truncate",
    "fc-fallocs",
    "fc-orphans",
    "fc-many",
    "fc-quick-3",
    "fc1k-mixed",
    "fc1k-sparse",
    "fc-inline-mixed",
    "fc-inline-quick-22",
    "fc-bigalloc-mixed",
    "fc-bigalloc-quick-22",
    "fc-nocsum-quick-22",
    "fc-noextent-mixed",
    "fc-noextent-quick-22",
    "fc-orphanfile-orphans",
    "fc-i128-quick-22",
    "csum1-mixed",
    "datajournal-escape",
    "wrap-fc-wrap",
    "orphans-noextent-orphans",
];

fn case(name: &str) -> CrashCase {
    let found = crash_cases().into_iter().find(|case| case.name == name);
    found.unwrap_or_else(|| panic!("no case {name}"))
}

/// Makes the crash state `name`: its image in memory and what must survive.
fn crash(name: &str) -> (MemoryDevice, CrashState) {
    let scratch = Scratch::new();
    let state = case(name).make(scratch.path()).unwrap_or_else(|e| panic!("{name}: {e}"));
    let image = MemoryDevice::from_bytes(&fs::read(&state.img).unwrap());
    (image, state)
}

/// Everything that is visible of a tree, by path.
fn tree(device: &Arc<MemoryDevice>) -> BTreeMap<String, String> {
    let device = Arc::clone(device) as Arc<dyn BlockDevice>;
    let fs = OpenOptions::new().open_device(device).unwrap();
    fs.walk("/")
        .map(|entry| {
            let entry = entry.unwrap();
            let path = format!("/{}", entry.path().display().to_string().trim_start_matches('/'));
            (path.clone(), describe(&fs, &path))
        })
        .collect()
}

fn describe(fs: &Filesystem, path: &str) -> String {
    let data = fs.symlink_metadata(path).unwrap();
    let content = match data.file_type() {
        FileKind::Regular => format!("{:08x}", extant_crc32c::crc32c(0, &fs.read(path).unwrap())),
        FileKind::Symlink => fs.read_link(path).unwrap().display().to_string(),
        FileKind::Directory => String::new(),
        _ => format!("{:?}", data.device()),
    };
    let xattrs: Vec<String> = fs
        .xattrs(path)
        .unwrap()
        .into_iter()
        .map(|name| format!("{}={:02x?}", name.display(), fs.xattr(path, &name).unwrap()))
        .collect();
    format!(
        "{:?} {:o} {}:{} links {} size {} sectors {} mtime {:?} {xattrs:?} {content}",
        data.file_type(),
        data.mode(),
        data.uid(),
        data.gid(),
        data.nlink(),
        data.len(),
        data.sectors(),
        data.modified(),
    )
}

/// The parts of `must` that are missing on the volume.
fn lost(device: &Arc<MemoryDevice>, must: &[Must]) -> Vec<String> {
    let device = Arc::clone(device) as Arc<dyn BlockDevice>;
    let fs = OpenOptions::new().open_device(device).unwrap();
    must.iter()
        .filter_map(|must| match must {
            Must::BeAbsent(path) => {
                fs.symlink_metadata(path).is_ok().then(|| format!("{path} is back"))
            }
            Must::Be(entry) => {
                let path = entry.path.as_str();
                let Ok(data) = fs.symlink_metadata(path) else {
                    return Some(format!("{path} is gone"));
                };
                let is_file = data.file_type() == FileKind::Regular;
                let content = is_file.then(|| sha256(&fs.read(path).unwrap()));
                let xattrs = entry.xattrs.iter().all(|(name, value)| {
                    fs.xattr(path, name).is_ok_and(|found| base64(&found) == *value)
                });
                let same = format!("{:04o}", data.mode() & 0o7777) == entry.mode
                    && (data.uid(), data.gid()) == (entry.uid, entry.gid)
                    && u64::from(data.nlink()) == entry.nlink
                    && (data.is_dir() || data.len() == entry.size)
                    && (!is_file || content == entry.sha256)
                    && xattrs;
                (!same).then(|| format!("{path}: {} instead of {entry:?}", describe(&fs, path)))
            }
        })
        .collect()
}

fn sha256(bytes: &[u8]) -> String {
    use sha2::Digest;
    sha2::Sha256::digest(bytes).iter().map(|byte| format!("{byte:02x}")).collect()
}

fn recover(device: &Arc<MemoryDevice>) -> extant::Result<extant::RecoveryReport> {
    OpenOptions::new().recover_device_in_place(Arc::clone(device) as Arc<dyn BlockDevice>)
}

fn save(device: &MemoryDevice, to: &Path) {
    fs::write(to, image_of(device)).unwrap();
}

#[track_caller]
fn assert_clean(device: &MemoryDevice, what: &str) {
    let scratch = Scratch::new();
    let img = scratch.file("recovered.img");
    save(device, &img);
    e2fsck(&img, None).expect_clean().unwrap_or_else(|e| panic!("{what}: {e}"));
}

#[test]
fn synced_data_survives_and_the_volume_is_consistent() {
    require!(Root, Loop, E2fsprogs);
    for name in CASES {
        let (image, state) = crash(name);
        let device = Arc::new(image.clone());
        let overlaid = tree(&device);
        assert!(image_of(&*device) == image_of(&image), "{name}: reading changed the volume");
        let report = recover(&device).unwrap_or_else(|e| panic!("{name}: {e}"));
        assert!(report.was_needed && report.problems.is_empty(), "{name}: {report:?}");
        if name.contains("quick") || name.contains("mixed") && name.starts_with("fc") {
            assert!(report.fast_commits > 0, "{name}");
        }
        assert_eq!(lost(&device, &state.must), Vec::<String>::new(), "{name}");
        assert_eq!(tree(&device), overlaid, "{name}: in memory and in place");
        assert_clean(&device, name);
        let once = image_of(&*device);
        assert!(!recover(&device).unwrap().was_needed, "{name}");
        assert!(image_of(&*device) == once, "{name}: the second recovery changed something");
    }
}

#[test]
fn recovery_cut_anywhere_and_repeated_gives_the_same_tree() {
    require!(Root, Loop, E2fsprogs);
    for (seed, name) in
        ["fc-newdir", "fc-quick-3", "fc-linkunlink", "fc-noextent-mixed", "full-orphans"]
            .into_iter()
            .enumerate()
    {
        let (image, state) = crash(name);
        let want = {
            let device = Arc::new(image.clone());
            recover(&device).unwrap();
            tree(&device)
        };
        let recorder = Arc::new(Recorder::new(image.clone()));
        let options = OpenOptions::new();
        options.recover_device_in_place(Arc::clone(&recorder) as Arc<dyn BlockDevice>).unwrap();
        let plan = recorder.crash_plan(&image).seed(seed as u64).exhaustive_up_to(1).samples(2);
        let mut count = 0;
        for cut in plan.states() {
            let what = format!("{name}, {cut}");
            count += 1;
            let device = Arc::new(cut.image);
            if count % 30 == 0 && cut.torn.is_empty() && !name.starts_with("fc") {
                // Others can finish a recovery that this engine started.
                assert_eq!(tree(&finished_by_e2fsck(&device, &what)), want, "{what}, e2fsck");
            }
            recover(&device).unwrap_or_else(|error| panic!("{what}: {error}"));
            assert_eq!(lost(&device, &state.must), Vec::<String>::new(), "{what}");
            assert_eq!(tree(&device), want, "{what}");
            if count % 40 == 0 {
                assert_clean(&device, &what);
            }
        }
        assert!(count > 20, "{name}: {count} states");
    }
}

/// The volume as e2fsck recovers it.
fn finished_by_e2fsck(device: &MemoryDevice, what: &str) -> Arc<MemoryDevice> {
    let scratch = Scratch::new();
    let img = scratch.file("cut.img");
    save(device, &img);
    let done = std::process::Command::new("e2fsck").arg("-fy").arg(&img).output().unwrap();
    assert!(matches!(done.status.code(), Some(0 | 1)), "{what}: {done:?}");
    Arc::new(MemoryDevice::from_bytes(&fs::read(&img).unwrap()))
}

/// The blocks of the log and of its fast-commit area, in a volume made by mke2fs.
fn journal_blocks(device: &MemoryDevice, size: u64) -> (Vec<u64>, Vec<u64>) {
    let scratch = Scratch::new();
    let img = scratch.file("volume.img");
    save(device, &img);
    let listed = debugfs(&img, "blocks <8>").unwrap();
    let mut log: Vec<u64> =
        listed.split_whitespace().filter_map(|block| block.parse().ok()).collect();
    let mut superblock = [0; 0x58];
    device.read_at(ByteOffset(log[0] * size), &mut superblock).unwrap();
    let word = |at: usize| u32::from_be_bytes(superblock[at..at + 4].try_into().unwrap()) as usize;
    // The first of the s_num_fc_blks blocks stays unused.
    let area = log.split_off(word(0x10) - word(0x54) + 1);
    (log, area)
}

#[test]
fn a_mutated_log_is_replayed_or_refused_and_does_no_harm() {
    require!(Root, Loop, E2fsprogs);
    for name in ["fc-quick-3", "fc-newdir", "fc-nocsum-quick-22", "fc-inline-mixed"] {
        let (image, _) = crash(name);
        let size = 4096;
        let (log, area) = journal_blocks(&image, size);
        let live: Vec<u64> = area
            .iter()
            .copied()
            .filter(|block| {
                let mut bytes = vec![0; size as usize];
                image.read_at(ByteOffset(block * size), &mut bytes).unwrap();
                bytes.iter().any(|byte| *byte != 0)
            })
            .collect();
        let mut rng = Rng::new(7);
        for round in 0..60 {
            let device = Arc::new(image.clone());
            let places = if round % 4 == 0 { &log[..40] } else { &live[..] };
            for _ in 0..=rng.below(3) {
                let block = places[rng.below(places.len())];
                let at = ByteOffset(block * size + rng.below(600) as u64);
                device.write_at(at, &[rng.next_u64() as u8]).unwrap();
            }
            if recover(&device).is_ok() {
                tree(&device);
            }
        }
    }
}

/// Fast commits whose records were changed and whose checksums are right again: only the engine's
/// own checks protect the volume.
#[test]
fn records_that_make_no_sense_are_skipped() {
    require!(Root, Loop, E2fsprogs);
    for (seed, name) in
        ["fc-quick-3", "fc-newdir", "fc-truncate", "fc-nocsum-quick-22", "fc-bigalloc-quick-22"]
            .into_iter()
            .enumerate()
    {
        let (image, _) = crash(name);
        let size = 4096;
        let (_, area) = journal_blocks(&image, size);
        let mut rng = Rng::new(seed as u64);
        let mut noticed = 0;
        for _ in 0..120 {
            let device = Arc::new(image.clone());
            mutate_records(&device, &area, size, &mut rng);
            // An error is accepted, and so is a volume with recorded problems: it can be read.
            if let Ok(report) = recover(&device) {
                noticed += usize::from(!report.problems.is_empty());
                let fs = OpenOptions::new().open_device(device as Arc<dyn BlockDevice>).unwrap();
                for entry in fs.walk("/") {
                    let _ = entry.and_then(|entry| entry.metadata());
                }
            }
        }
        assert!(noticed > 0, "{name}: no mutation was noticed");
    }
}

/// Changes bytes of a record's value in some fast commits, and makes their checksums right.
fn mutate_records(device: &MemoryDevice, area: &[u64], size: u64, rng: &mut Rng) {
    let mut crc = 0;
    for block in area {
        let mut bytes = vec![0; size as usize];
        device.read_at(ByteOffset(block * size), &mut bytes).unwrap();
        let mut at = 0;
        while at + 4 <= bytes.len() {
            let tag = u16::from_le_bytes([bytes[at], bytes[at + 1]]);
            let len = usize::from(u16::from_le_bytes([bytes[at + 2], bytes[at + 3]]));
            let end = at + 4 + len;
            if !(1..=9).contains(&tag) || end > bytes.len() {
                return;
            }
            if tag == 8 {
                crc = extant_crc32c::crc32c(crc, &bytes[at..at + 8]);
                bytes[at + 8..at + 12].copy_from_slice(&crc.to_le_bytes());
                crc = 0;
                break;
            }
            if tag < 7 && rng.below(6) == 0 {
                let byte = at + 4 + rng.below(len);
                bytes[byte] = match rng.below(3) {
                    0 => rng.next_u64() as u8,
                    1 => bytes[byte] ^ 1 << rng.below(8),
                    _ => bytes[byte].wrapping_add(1),
                };
            }
            crc = extant_crc32c::crc32c(crc, &bytes[at..end]);
            at = end;
        }
        device.write_at(ByteOffset(block * size), &bytes).unwrap();
    }
}

/// Fast commits that Linux writes and cannot replay itself: a synced file without a name (Linux
/// refuses the volume), and a file that got its name later (Linux loses its name and content).
#[test]
fn files_made_without_a_name_are_kept_or_freed() {
    require!(Root, Loop, E2fsprogs);
    let scratch = Scratch::new();
    let (work, img) = (scratch.file("work.img"), scratch.file("crash.img"));
    mke2fs(&work, 32 << 20, "-b 4096 -O fast_commit", None).unwrap();
    let mount = LoopMount::rw(&work, "").unwrap();
    let root = fs::File::open(mount.path()).unwrap();
    let unnamed = |byte: u8| {
        let flags = OFlags::TMPFILE | OFlags::RDWR;
        let file = fs::File::from(
            rustix::fs::open(mount.path(), flags, Mode::from_raw_mode(0o640)).unwrap(),
        );
        (&file).write_all(&[byte; 9000]).unwrap();
        file
    };
    let write = |name: &str, byte: u8| {
        let file = fs::File::create(mount.path().join(name)).unwrap();
        (&file).write_all(&[byte; 3000]).unwrap();
        file.sync_all().unwrap();
    };
    write("base", 1);
    rustix::fs::syncfs(&root).unwrap();
    write("second", 2);
    let named = unnamed(3);
    let from = format!("/proc/self/fd/{}", named.as_raw_fd());
    rustix::fs::linkat(CWD, from, &root, "named", AtFlags::SYMLINK_FOLLOW).unwrap();
    named.sync_all().unwrap();
    // Unlinked and created again: the number is reused with another generation.
    write("gone", 4);
    fs::remove_file(mount.path().join("gone")).unwrap();
    write("again", 5);
    let lost = unnamed(6);
    lost.sync_all().unwrap();
    extant_testkit::sys::shut_down(&root).unwrap();
    copy_sparse(&work, &img).unwrap();
    drop((root, named, lost));
    mount.unmount().unwrap();

    let device = Arc::new(MemoryDevice::from_bytes(&fs::read(&img).unwrap()));
    let report = recover(&device).unwrap();
    assert!(report.fast_commits > 0 && report.problems.is_empty(), "{report:?}");
    assert_clean(&device, "unnamed files");
    let fs = OpenOptions::new().open_device(device as Arc<dyn BlockDevice>).unwrap();
    for (name, content) in [
        ("base", vec![1; 3000]),
        ("second", vec![2; 3000]),
        ("named", vec![3; 9000]),
        ("again", vec![5; 3000]),
    ] {
        assert!(fs.read(name).unwrap() == content, "{name}");
    }
    assert!(!fs.exists("gone").unwrap());
}

/// A volume with quota and files of several owners, some of which debugfs turns into orphans.
#[test]
fn quota_follows_the_orphans() {
    require!(E2fsprogs);
    let scratch = Scratch::new();
    let img = scratch.file("quota.img");
    for options in ["-b 1024 -O quota", "-b 4096 -O quota,project,ea_inode,orphan_file -I 256"] {
        mke2fs(&img, 32 << 20, options, None).unwrap();
        let content = scratch.file("content");
        fs::write(&content, vec![7; 100_000]).unwrap();
        let mut requests = String::new();
        for n in 0..40 {
            let name = format!("f{n}");
            requests += &format!("write {} {name}\nsif {name} uid {}\n", content.display(), n % 30);
            requests += &format!("sif {name} gid {}\n", n % 3);
        }
        edit(&img, &requests);
        // e2fsck sets the usage, which debugfs does not update.
        let fixed = std::process::Command::new("e2fsck").args(["-fy"]).arg(&img).output().unwrap();
        assert!(matches!(fixed.status.code(), Some(0 | 1)), "{fixed:?}");
        // f7 is the head of the list, f21 follows; f30 is to be truncated.
        let ino = |name: &str| -> u32 {
            let stat = debugfs(&img, &format!("stat {name}")).unwrap();
            let number = stat.split("Inode:").nth(1).unwrap().split_whitespace().next();
            number.unwrap().parse().unwrap()
        };
        let (first, second, third) = (ino("f7"), ino("f21"), ino("f30"));
        edit(
            &img,
            &format!(
                "unlink f7\nunlink f21\nsif <{first}> links_count 0\nsif <{second}> links_count 0\n\
                 sif <{first}> dtime {second}\nsif <{second}> dtime {third}\n\
                 sif <{third}> size 5000\nssv last_orphan {first}\n"
            ),
        );
        let device = Arc::new(MemoryDevice::from_bytes(&fs::read(&img).unwrap()));
        let report = recover(&device).unwrap();
        assert!(report.problems.is_empty(), "{options}: {report:?}");
        assert_eq!((report.orphans_freed, report.orphans_truncated), (2, 1), "{options}");
        assert_clean(&device, options);
    }
}

/// Runs debugfs requests that change an image, one per line.
fn edit(img: &Path, requests: &str) {
    let script = img.with_extension("debugfs");
    fs::write(&script, requests).unwrap();
    let done = std::process::Command::new("debugfs")
        .args(["-w", "-f"])
        .args([&script, &img.to_path_buf()])
        .output()
        .unwrap();
    assert!(done.status.success(), "{done:?}");
}

#[test]
fn a_clean_volume_stays_as_it_is() {
    require!(E2fsprogs);
    let scratch = Scratch::new();
    let img = scratch.file("clean.img");
    for options in ["-b 4096", "-t ext2 -b 1024", "-b 1024 -O fast_commit,orphan_file"] {
        mke2fs(&img, 16 << 20, options, None).unwrap();
        let device = Arc::new(MemoryDevice::from_bytes(&fs::read(&img).unwrap()));
        let report = recover(&device).unwrap();
        assert!(!report.was_needed, "{options}: {report:?}");
        assert!(image_of(&*device) == fs::read(&img).unwrap(), "{options}");
    }
}
