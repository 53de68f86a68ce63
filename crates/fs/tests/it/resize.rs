//! Volumes after a change of size: e2fsck finds nothing, all content is there, and Linux mounts
//! them.

use extant::resize::{Size, minimum, resize, resize_device};
use extant::{BlockDevice, FileKind, Filesystem, MemoryDevice, OpenOptions};
use extant_base::ByteOffset;
use extant_testdev::Recorder;
use extant_testkit::command::run_args;
use extant_testkit::e2fsprogs::{dumpe2fs, e2fsck, mke2fs};
use extant_testkit::loop_mount::LoopMount;
use extant_testkit::report::run_cases;
use extant_testkit::require;
use extant_testkit::rng::{self, Rng};
use extant_testkit::scratch::Scratch;
use std::collections::BTreeMap;
use std::fs;
use std::hash::{DefaultHasher, Hash, Hasher};
use std::os::unix::fs::symlink;
use std::path::Path;
use std::sync::Arc;

const MIB: u64 = 1 << 20;

/// Everything that is visible of a volume, by path.
fn content(img: &Path) -> BTreeMap<String, String> {
    seen(&Filesystem::open(img).expect("the volume opens"))
}

fn seen(fs: &Filesystem) -> BTreeMap<String, String> {
    let mut seen = BTreeMap::new();
    let mut inodes: BTreeMap<u32, usize> = BTreeMap::new();
    for entry in fs.walk("/") {
        let entry = entry.expect("every name is readable");
        let path = entry.path().display().to_string();
        let meta = entry.metadata().expect("every inode is readable");
        let mut hash = DefaultHasher::new();
        let text = match meta.file_type() {
            FileKind::Regular => {
                fs.read(entry.path()).expect("every file is readable").hash(&mut hash);
                format!("{:x}", hash.finish())
            }
            FileKind::Symlink => fs.read_link(entry.path()).unwrap().display().to_string(),
            _ => String::new(),
        };
        let mut attributes = fs.xattrs(entry.path()).unwrap_or_default();
        attributes.sort();
        // Inode numbers change; which names share an inode does not.
        let next = inodes.len();
        let same = *inodes.entry(meta.ino().get()).or_insert(next);
        let (mode, links, size) = (meta.mode(), meta.nlink(), meta.len());
        let owner = (meta.uid(), meta.gid());
        let line = format!("{mode:o} {links} {size} {owner:?} #{same} {text} {attributes:?}");
        seen.insert(path, line);
    }
    seen
}

fn checked(img: &Path) -> Result<(), String> {
    e2fsck(img, None).expect_clean()?;
    dumpe2fs(img).map(drop)
}

/// Fills a volume so that files, directories, attributes and inodes are everywhere on it, with
/// gaps.
fn fill(img: &Path, seed: u64) -> Result<(), String> {
    let mount = LoopMount::rw(img, "")?;
    fill_directory(mount.path(), seed)?;
    mount.unmount()
}

/// A volume of `bytes`, filled by Linux, or by mke2fs if this machine's Linux cannot mount it.
fn filled(img: &Path, bytes: u64, options: &str, seed: u64) -> Result<(), String> {
    if options.contains("quota") {
        let source = tempfile::tempdir().map_err(|e| e.to_string())?;
        fill_directory(source.path(), seed)?;
        mke2fs(img, bytes, options, Some(source.path()))?;
        // mke2fs counts quota before it fills the volume.
        return run_args("e2fsck", &["-fy", img.to_str().unwrap_or_default()]).map(drop);
    }
    mke2fs(img, bytes, options, None)?;
    fill(img, seed)
}

fn fill_directory(root: &Path, seed: u64) -> Result<(), String> {
    let text = |e: std::io::Error| e.to_string();
    let mut rng = Rng::new(seed);
    let bytes = rng::bytes(seed, 400_000);
    for d in 0..24 {
        let dir = root.join(format!("d{d}"));
        fs::create_dir(&dir).map_err(text)?;
        fs::create_dir(dir.join("sub")).map_err(text)?;
        for n in 0..20 {
            let len = rng.below(if n == 3 { 400_000 } else { 9000 });
            fs::write(dir.join(format!("f{n}")), &bytes[..len]).map_err(text)?;
        }
        symlink("x".repeat(20 + d * 9), dir.join("link")).map_err(text)?;
        fs::hard_link(dir.join("f1"), dir.join("sub/f1")).map_err(text)?;
        if d > 0 {
            fs::hard_link(dir.join("f2"), root.join(format!("d{}/other", d - 1))).map_err(text)?;
        }
    }
    for d in 0..24 {
        let dir = root.join(format!("d{d}"));
        for n in (0..20).filter(|n| n % 3 == 1) {
            fs::remove_file(dir.join(format!("f{n}"))).map_err(text)?;
        }
        if d % 4 == 1 {
            let value = vec![b'v'; 300];
            for name in ["f0", "f2", "sub"] {
                let path = dir.join(name);
                let flags = rustix::fs::XattrFlags::empty();
                rustix::fs::setxattr(&path, "user.note", &value, flags)
                    .map_err(|e| e.to_string())?;
            }
        }
    }
    // One directory large enough for an index.
    let big = root.join("d23/big");
    fs::create_dir(&big).map_err(text)?;
    for n in 0..1200 {
        fs::File::create(big.join(format!("a rather long name, number {n}"))).map_err(text)?;
    }
    Ok(())
}

const ROWS: &[(&str, &str)] = &[
    ("4k", "-b 4096 -g 2048"),
    ("1k", "-b 1024"),
    ("1k-small-groups", "-b 1024 -g 2048"),
    ("no-flex", "-b 1024 -O ^flex_bg"),
    ("flex4", "-b 1024 -g 2048 -G 4"),
    ("no-csum", "-b 1024 -O ^metadata_csum,^64bit"),
    ("gdt-csum", "-b 1024 -O ^metadata_csum,uninit_bg"),
    ("ext2", "-t ext2 -b 1024"),
    ("ext3", "-t ext3 -b 1024 -g 4096"),
    ("meta-bg", "-b 1024 -g 1024 -O meta_bg,^resize_inode"),
    ("no-resize-inode", "-b 1024 -g 1024 -O ^resize_inode"),
    ("no-journal", "-b 1024 -O ^has_journal"),
    ("sparse-super2", "-b 1024 -O sparse_super2,^resize_inode -g 2048"),
    ("no-sparse-super", "-b 1024 -O ^sparse_super,^resize_inode -g 4096"),
    ("bigalloc", "-b 1024 -O bigalloc -C 4096"),
    ("quota", "-b 1024 -O quota,project -g 4096"),
    ("orphan-file", "-b 1024 -O orphan_file -g 4096"),
    ("inline", "-b 1024 -O inline_data -g 4096"),
    ("ea-inode", "-b 1024 -O ea_inode -g 4096"),
    ("seed", "-b 1024 -O metadata_csum_seed"),
    ("large-inodes", "-b 4096 -I 1024 -g 2048"),
    ("small-inodes", "-b 1024 -I 128 -O ^metadata_csum"),
];

#[test]
fn a_grown_volume_keeps_its_content() {
    require!(Root, Loop, E2fsprogs);
    run_cases(
        "resize/grow",
        ROWS,
        |row| row.0.to_owned(),
        |&(_, options)| {
            let scratch = Scratch::new();
            let img = scratch.file("a.img");
            filled(&img, 48 * MIB, options, 7)?;
            let before = content(&img);
            let mut text = String::new();
            // Into the last group, a little further, over many groups, and once more.
            for bytes in [49 * MIB, 57 * MIB + 13 * 1024, 200 * MIB, 611 * MIB] {
                let done = resize(&img, Size::Bytes(bytes), &());
                let done = done.map_err(|e| format!("{bytes}: {e}"))?;
                checked(&img).map_err(|e| format!("{bytes}: {e}"))?;
                if before != content(&img) {
                    return Err(format!("{bytes}: the content changed"));
                }
                text += &format!(" {}", done.to_blocks);
            }
            mounts(&img)?;
            Ok(text)
        },
    );
}

/// Linux mounts the volume, and writes to it.
fn mounts(img: &Path) -> Result<(), String> {
    if dumpe2fs(img)?.contains("quota") {
        return Ok(());
    }
    let mount = LoopMount::rw(img, "")?;
    fs::write(mount.path().join("new"), vec![1; 3 << 20]).map_err(|e| e.to_string())?;
    mount.unmount()?;
    checked(img)
}

#[test]
fn a_shrunk_volume_keeps_its_content() {
    require!(Root, Loop, E2fsprogs);
    run_cases(
        "resize/shrink",
        ROWS,
        |row| row.0.to_owned(),
        |&(_, options)| {
            let scratch = Scratch::new();
            let img = scratch.file("a.img");
            filled(&img, 160 * MIB, options, 11)?;
            let before = content(&img);
            let mut text = String::new();
            for size in [Size::Bytes(140 * MIB), Size::Bytes(61 * MIB), Size::Minimum] {
                let fs = Filesystem::open(&img).map_err(|e| e.to_string())?;
                let reported = minimum(&fs).map_err(|e| e.to_string())?;
                drop(fs);
                let done = match resize(&img, size, &()) {
                    Ok(done) => done,
                    Err(error) => {
                        checked(&img).map_err(|e| format!("{size:?}: {error}, and then {e}"))?;
                        return Err(format!("{size:?}: {error}"));
                    }
                };
                checked(&img).map_err(|e| format!("{size:?}: {e}"))?;
                if before != content(&img) {
                    return Err(format!("{size:?}: the content changed"));
                }
                if size == Size::Minimum && done.to_blocks > reported {
                    return Err(format!("{} blocks, reported were {reported}", done.to_blocks));
                }
                text += &format!(
                    " {} ({} blocks, {} inodes)",
                    done.to_blocks, done.moved_blocks, done.moved_inodes
                );
            }
            resize(&img, Size::Bytes(96 * MIB), &()).map_err(|e| e.to_string())?;
            checked(&img)?;
            mounts(&img)?;
            Ok(text)
        },
    );
}

/// The states of a change of size after power cuts.
struct Cuts {
    /// How many states were checked.
    states: usize,
    /// How many of them had the new size.
    new_size: usize,
    /// How many had a size between the old and the new one.
    between: usize,
    /// How many operations the device received.
    operations: usize,
}

/// Cuts the power at moments all over a change of size from `bytes`, on a device of `device_bytes`.
/// Each state must be consistent and have the former content, and repeating the change must end at
/// the same size.
fn cut_anywhere(
    options: &str,
    (bytes, device_bytes): (u64, u64),
    size: Size,
    states: usize,
) -> Result<Cuts, String> {
    let scratch = Scratch::new();
    let img = scratch.file("a.img");
    filled(&img, bytes, options, 5)?;
    let before = content(&img);
    let image = fs::read(&img).map_err(|e| e.to_string())?;
    let base = MemoryDevice::new(device_bytes);
    base.write_at(ByteOffset(0), &image).map_err(|e| e.to_string())?;
    let recorder = Arc::new(Recorder::new(base.clone()));
    let device = Arc::clone(&recorder) as Arc<dyn BlockDevice>;
    let done = resize_device(&OpenOptions::new(), &device, size, &());
    let done = done.map_err(|e| e.to_string())?;

    let plan = recorder.crash_plan(&base).seed(9).samples(2).exhaustive_up_to(2);
    let operations = recorder.position();
    let every = (operations / states).max(1);
    let mut cuts = plan.states();
    let mut seen_cuts = Cuts { states: 0, new_size: 0, between: 0, operations };
    let mut last = usize::MAX;
    // Most states are in the copying of data. All of the last ones, in which the size changes, are
    // checked.
    let tail = operations.saturating_sub(states);
    let mut wanted = |cut: usize, _: usize| {
        let take = (cut.is_multiple_of(every) || cut >= tail) && cut != last;
        last = if take { cut } else { last };
        take
    };
    while let Some(state) = cuts.next_where(&mut wanted) {
        let what = state.to_string();
        let at = |e: String| format!("{what}: {e}");
        let device: Arc<dyn BlockDevice> = Arc::new(state.image);
        let recovered = OpenOptions::new().recover_device_in_place(Arc::clone(&device));
        recovered.map_err(|e| at(e.to_string()))?;
        let fs = Filesystem::open_device(Arc::clone(&device)).map_err(|e| at(e.to_string()))?;
        let blocks = fs.superblock().blocks_count;
        let between = blocks != done.from_blocks && blocks != done.to_blocks;
        let inside = (done.to_blocks..done.from_blocks).contains(&blocks);
        if between && !(size == Size::Minimum && inside) {
            return Err(at(format!("{blocks} blocks")));
        }
        seen_cuts.new_size += usize::from(blocks == done.to_blocks);
        seen_cuts.between += usize::from(between);
        seen_cuts.states += 1;
        if (between || seen_cuts.states % 8 == 1) && seen(&fs) != before {
            return Err(at("the content changed".into()));
        }
        let out = scratch.file("cut.img");
        let mut bytes = vec![0; device.len() as usize];
        device.read_at(ByteOffset(0), &mut bytes).map_err(|e| at(e.to_string()))?;
        fs::write(&out, &bytes).map_err(|e| at(e.to_string()))?;
        e2fsck(&out, None).expect_clean().map_err(at)?;
        if between {
            drop(fs);
            let again = resize_device(&OpenOptions::new(), &device, size, &());
            let again = again.map_err(|e| at(e.to_string()))?;
            if again.to_blocks != done.to_blocks {
                return Err(at(format!("{} blocks after another run", again.to_blocks)));
            }
        }
    }
    Ok(seen_cuts)
}

#[test]
fn a_cut_leaves_the_old_size_or_the_new_one() {
    require!(Root, Loop, E2fsprogs);
    // Blocks, inodes, attribute blocks and the journal move; then only the end changes; then growth
    // into the reserved descriptor blocks, and beyond them.
    let rows: &[(&str, &str, u64, u64)] = &[
        ("shrink", "-b 1024 -g 2048 -J size=1", 40 * MIB, 13 * MIB),
        ("shrink-ext3", "-t ext3 -b 1024 -g 4096 -J size=1", 40 * MIB, 20 * MIB),
        ("grow", "-b 1024 -J size=1", 20 * MIB, 47 * MIB),
        ("grow-meta-bg", "-b 1024 -g 1024 -J size=1 -O ^resize_inode", 20 * MIB, 31 * MIB),
    ];
    run_cases(
        "resize/cut",
        rows,
        |row| row.0.to_owned(),
        |&(_, options, from, to)| {
            let long = std::env::var_os("EXTANT_SOAK").is_some();
            let states = if long { 400 } else { 10 };
            let cuts = cut_anywhere(options, (from, from.max(to)), Size::Bytes(to), states)?;
            let Cuts { states, new_size, operations, .. } = cuts;
            Ok(format!("{states} states of {operations}, {new_size} of them of the new size"))
        },
    );
}

/// The tables of removed groups are in the way, so the volume shrinks in several rounds.
#[test]
fn a_cut_resize_to_the_minimum_leaves_a_consistent_volume_and_ends_at_the_same_size_again() {
    require!(Root, Loop, E2fsprogs);
    let options = "-b 1024 -g 2048 -J size=1";
    let cuts = cut_anywhere(options, (40 * MIB, 40 * MIB), Size::Minimum, 60).unwrap();
    println!("{} states, {} between, {} new", cuts.states, cuts.between, cuts.new_size);
    assert!(cuts.between > 0 && cuts.new_size > 0, "no cut between two rounds");
}
