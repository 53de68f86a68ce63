//! Fast commits that extant wrote: the power is cut directly after a sync of a file. What Linux
//! recovers, what extant recovers, and what the volume that continued shows, is one tree.
//!
//! ```text
//!   mke2fs -O fast_commit ─► extant works, syncs ─┬─ cut ─► Linux mounts     ┐ the same,
//!                                                 ├─ cut ─► extant recovers  ├ but for times
//!                                                 └─ closed                  ┘ of directories
//! ```
//!
//! e2fsck finds nothing after either. Each case states how many of its syncs are fast commits, so
//! that none silently tests full commits.

use extant::environment::Clock;
use extant::{
    BlockDevice, Environment, FallocateMode, File, FileDevice, Filesystem, MemoryDevice, NewFile,
    OpenOptions, RenameFlags, SetAttributes, Timestamp, XattrMode,
};
use extant_base::ByteOffset;
use extant_compat_tests::{Verdict, linux_confirms};
use extant_testkit::e2fsprogs::{e2fsck, mke2fs};
use extant_testkit::extant::Extant;
use extant_testkit::loop_mount::LoopDevice;
use extant_testkit::manifest::Look;
use extant_testkit::report::{expect_none, try_cases};
use extant_testkit::require;
use extant_testkit::rng::bytes;
use extant_testkit::scratch::{Scratch, copy_sparse};
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicI64, Ordering};
use std::sync::{Arc, Mutex};

const BYTES: u64 = 48 << 20;

const JOURNAL_BYTES: u64 = 8 << 20;

/// Name, options for mke2fs with `JOURNAL` for the device of an external journal, KiB of memory for
/// content.
const KINDS: [(&str, &str, u64); 5] = [
    ("4k", "-b 4096 -O fast_commit", 0),
    ("1k", "-b 1024 -O fast_commit", 0),
    ("no-csum", "-b 1024 -I 128 -O fast_commit,^metadata_csum,^64bit", 0),
    ("cached", "-b 4096 -O fast_commit", 4096),
    ("external", "-b 4096 -O fast_commit -J device=JOURNAL", 0),
];

/// A kind of volume, made by mke2fs.
struct Made {
    kind: &'static str,
    /// KiB of memory for content.
    cache_kib: u64,
    volume: MemoryDevice,
    /// The device of an external journal.
    journal: Option<MemoryDevice>,
}

impl Made {
    fn make(dir: &Path, kind: &'static str, options: &str, cache_kib: u64) -> Result<Made, String> {
        let (img, log) = (dir.join(kind), dir.join("log"));
        let is_external = options.contains("JOURNAL");
        let mut options = options.to_owned();
        let mut attached = None;
        if is_external {
            mke2fs(&log, JOURNAL_BYTES, "-O journal_dev -b 4096", None)?;
            let device = attached.insert(LoopDevice::attach(&log)?);
            options = options.replace("JOURNAL", &device.path().display().to_string());
        }
        mke2fs(&img, BYTES, &options, None)?;
        drop(attached);
        let journal = if is_external { Some(load(&log)?) } else { None };
        Ok(Made { kind, cache_kib, volume: load(&img)?, journal })
    }
}

/// The volume, and its external journal.
struct Disks {
    volume: Arc<MemoryDevice>,
    journal: Option<Arc<MemoryDevice>>,
}

impl Disks {
    /// The present content of the disks, as files.
    fn save(&self, dir: &Path, name: &str) -> Result<Cut, String> {
        let img = dir.join(name);
        save(&self.volume, &img)?;
        let journal = self.journal.as_ref().map(|journal| {
            let path = dir.join(format!("{name}.journal"));
            save(journal, &path).map(|()| path)
        });
        Ok(Cut { img, journal: journal.transpose()? })
    }
}

/// The disks after a power cut, or after a close.
struct Cut {
    img: PathBuf,
    journal: Option<PathBuf>,
}

impl Cut {
    fn expect_clean(&self) -> Result<(), String> {
        e2fsck(&self.img, self.journal.as_deref()).expect_clean()
    }

    fn remove(self) {
        for path in [Some(self.img), self.journal].into_iter().flatten() {
            // It is removed with its directory at the latest.
            let _ = std::fs::remove_file(path);
        }
    }
}

type Case = fn(&mut Stage) -> extant::Result<()>;

/// Name, the least number of its syncs that are fast commits, what happens.
const CASES: &[(&str, u64, Case)] = &[
    ("create", 2, create),
    ("append", 12, append),
    ("epochs", 6, epochs),
    ("overwrite", 2, overwrite),
    ("truncate", 4, truncate),
    ("pieces", 2, pieces),
    ("punch", 3, punch),
    ("preallocate", 3, preallocate),
    ("links", 3, links),
    ("renames", 4, renames),
    ("rename-over", 3, rename_over),
    ("last-names", 1, last_names),
    ("removed", 14, removed),
    ("attributes", 3, attributes),
    ("crowd", 5, crowd),
    ("come-and-go", 2, come_and_go),
    ("long-names", 1, long_names),
    ("directories", 2, directories),
    ("unnamed", 1, unnamed),
    ("slots", 1, slots),
    ("attribute-blocks", 1, attribute_blocks),
    ("left-overs", 1, left_overs),
];

/// Each reading of the clock is a second later than the last, so every write has another time.
struct Ticking(AtomicI64);

impl Clock for Ticking {
    fn now(&self) -> Timestamp {
        Timestamp { sec: 1_800_000_000 + self.0.fetch_add(1, Ordering::Relaxed), nsec: 0 }
    }
}

/// A volume on which a case works.
struct Stage {
    fs: Filesystem,
}

impl Stage {
    fn file(&self, path: &str) -> extant::Result<File> {
        match self.fs.exists(path)? {
            true => self.fs.node(path)?.open(),
            false => self.fs.create_file(path, &NewFile::default())?.open(),
        }
    }

    fn write(&self, path: &str, at: u64, len: usize) -> extant::Result<File> {
        let file = self.file(path)?;
        file.write_all_at(&bytes(at + len as u64, len), at)?;
        // Compares what was written, synced or not.
        file.write_back(0, u64::MAX)?;
        Ok(file)
    }

    /// Writes to a file and syncs it.
    fn sync(&self, path: &str, at: u64, len: usize) -> extant::Result<()> {
        self.write(path, at, len)?.sync_all()
    }

    /// Syncs a file that is not part of the case, and that a fast commit can record.
    fn sync_other(&self) -> extant::Result<()> {
        let file = self.file("/other")?;
        file.append(b"one line more")?;
        file.sync_all()
    }
}

fn create(stage: &mut Stage) -> extant::Result<()> {
    stage.sync("/new", 0, 10_000)?;
    stage.write("/dir/not synced itself", 0, 0)?;
    stage.sync("/dir/second", 5, 1)
}

fn append(stage: &mut Stage) -> extant::Result<()> {
    (0..12).try_for_each(|n| stage.sync("/old", 20_000 + n * 3000, 3000))
}

fn epochs(stage: &mut Stage) -> extant::Result<()> {
    for n in 0..3 {
        stage.sync("/old", n * 5000, 7000)?;
        stage.sync(&format!("/dir/new{n}"), 0, 3000)?;
        if n < 2 {
            stage.fs.sync()?;
        }
    }
    Ok(())
}

fn overwrite(stage: &mut Stage) -> extant::Result<()> {
    stage.sync("/old", 100, 5000)?;
    let file = stage.write("/old", 9000, 5000)?;
    file.set_attributes(&SetAttributes { modified: Some(LATER), ..SetAttributes::default() })?;
    file.sync_all()
}

fn truncate(stage: &mut Stage) -> extant::Result<()> {
    for (path, size) in [("/old", 5000), ("/dir/old", 0), ("/old", 30_000)] {
        let file = stage.file(path)?;
        file.set_len(size)?;
        file.sync_all()?;
    }
    let file = stage.file("/pieces")?;
    file.set_len(0)?;
    file.write_all_at(b"and again", 0)?;
    file.sync_all()
}

fn pieces(stage: &mut Stage) -> extant::Result<()> {
    // More extents than the inode holds, then more than a block of 1 KiB holds.
    (0..7).try_for_each(|n| stage.write("/holes", n * 16_384, 900).map(drop))?;
    stage.sync("/holes", 0, 900)?;
    (0..200).try_for_each(|n| stage.write("/many", n * 8192, 100).map(drop))?;
    stage.sync("/many", 0, 100)
}

fn punch(stage: &mut Stage) -> extant::Result<()> {
    for (path, at, len) in [("/old", 4096, 8192), ("/pieces", 0, 200_000), ("/dir/old", 100, 50)] {
        let file = stage.file(path)?;
        file.allocate(FallocateMode::PunchHole, at, len)?;
        file.sync_all()?;
    }
    Ok(())
}

fn preallocate(stage: &mut Stage) -> extant::Result<()> {
    let file = stage.file("/room")?;
    file.allocate(FallocateMode::KeepSize, 0, 400_000)?;
    file.sync_all()?;
    file.write_all_at(&bytes(3, 9000), 50_000)?;
    file.sync_all()?;
    let file = stage.file("/old")?;
    file.allocate(FallocateMode::ZeroRange, 3000, 9000)?;
    file.allocate(FallocateMode::Allocate, 90_000, 5000)?;
    file.sync_all()
}

fn links(stage: &mut Stage) -> extant::Result<()> {
    stage.fs.hard_link("/old", "/dir/hard")?;
    stage.sync("/old", 0, 10)?;
    stage.fs.remove_file("/old")?;
    stage.sync_other()?;
    // A new file that is known by its second name only.
    stage.write("/dir/first", 0, 5000)?;
    stage.fs.hard_link("/dir/first", "/second")?;
    stage.fs.remove_file("/dir/first")?;
    stage.sync("/second", 5000, 10)
}

fn renames(stage: &mut Stage) -> extant::Result<()> {
    stage.fs.rename("/old", "/renamed")?;
    stage.sync("/renamed", 0, 10)?;
    stage.fs.rename("/renamed", "/dir/moved")?;
    stage.sync_other()?;
    stage.fs.rename("/dir/moved", "/old")?;
    stage.fs.rename("/old", "/dir/once more")?;
    stage.sync("/dir/once more", 0, 10)?;
    stage.write("/fresh", 0, 3000)?;
    stage.fs.rename_with("/fresh", "/dir/fresh", RenameFlags::NOREPLACE)?;
    stage.sync_other()
}

fn rename_over(stage: &mut Stage) -> extant::Result<()> {
    stage.fs.hard_link("/dir/old", "/kept")?;
    stage.sync_other()?;
    stage.write("/new", 0, 9000)?;
    stage.fs.rename("/new", "/dir/old")?;
    stage.sync("/dir/old", 0, 10)?;
    stage.fs.rename("/dir/old", "/old")?;
    stage.sync("/old", 0, 10)?;
    stage.sync_other()
}

fn last_names(stage: &mut Stage) -> extant::Result<()> {
    stage.fs.remove_file("/old")?;
    stage.sync_other()?;
    stage.write("/dir/new", 0, 700)?;
    stage.sync_other()
}

/// Files that the log contains, and files that only fast commits recorded, lose their only name.
fn removed(stage: &mut Stage) -> extant::Result<()> {
    stage.fs.remove_file("/old")?;
    stage.sync_other()?;
    for n in 0..6 {
        let path = format!("/dir/short{n}");
        stage.sync(&path, n * 3000, 7000)?;
        if n % 2 == 0 {
            stage.fs.hard_link(&path, "/for a moment")?;
            stage.fs.remove_file("/for a moment")?;
        }
        stage.fs.remove_file(&path)?;
    }
    for n in 0..3 {
        stage.write("/next", 0, 2000)?;
        stage.fs.rename("/next", "/dir/old")?;
        stage.sync("/dir/old", 100, 10 * n + 1)?;
        stage.sync_other()?;
    }
    stage.sync("/dir/last", 0, 3000)
}

fn attributes(stage: &mut Stage) -> extant::Result<()> {
    let wish = SetAttributes { mode: Some(0o4711), uid: Some(70_000), ..SetAttributes::default() };
    stage.fs.set_attributes("/old", &wish)?;
    stage.file("/old")?.sync_all()?;
    let wish =
        SetAttributes { modified: Some(LATER), accessed: Some(LATER), ..SetAttributes::default() };
    stage.fs.set_attributes("/dir/old", &wish)?;
    stage.file("/dir/old")?.sync_all()?;
    stage
        .fs
        .set_attributes("/pieces", &SetAttributes { gid: Some(9), ..SetAttributes::default() })?;
    stage.sync_other()
}

fn crowd(stage: &mut Stage) -> extant::Result<()> {
    for n in 0..150 {
        stage.write(&format!("/dir/{n}-{}", "crowd".repeat(1 + n % 20)), 0, n % 7)?;
    }
    stage.sync_other()?;
    // The directory has space for other names of the same lengths.
    for n in (0..150).step_by(6) {
        let rest = "crowd".repeat(1 + n % 20);
        stage.fs.rename(format!("/dir/{n}-{rest}"), format!("/dir/{n}+{rest}"))?;
        stage.sync_other()?;
    }
    Ok(())
}

fn come_and_go(stage: &mut Stage) -> extant::Result<()> {
    for n in 0..9 {
        stage.write("/short", 0, 2000 * n)?;
        stage.fs.remove_file("/short")?;
    }
    stage.write("/long", 0, 3000)?;
    stage.sync_other()?;
    stage.write("/short", 0, 4000)?;
    stage.fs.rename("/short", "/dir/kept")?;
    stage.sync("/dir/kept", 4000, 1)
}

fn long_names(stage: &mut Stage) -> extant::Result<()> {
    for n in 0..2 {
        let name = format!("{n:02}{}", "x".repeat(253));
        stage.write(&format!("/dir/{name}"), 0, 10)?;
        stage.fs.hard_link(format!("/dir/{name}"), format!("/{name}"))?;
    }
    stage.sync_other()
}

fn directories(stage: &mut Stage) -> extant::Result<()> {
    stage.fs.create_dir("/made", &NewFile::directory())?;
    stage.sync("/made/file", 0, 5000)?;
    stage.sync("/made/second", 0, 5000)?;
    stage.fs.rename("/made", "/dir/made")?;
    stage.sync_other()?;
    stage.sync("/dir/made/third", 0, 5000)
}

fn unnamed(stage: &mut Stage) -> extant::Result<()> {
    let file = stage.fs.root()?.tmpfile(&NewFile::default())?;
    file.open()?.write_all_at(&bytes(4, 6000), 0)?;
    stage.fs.root()?.hard_link(&file, "named")?;
    file.open()?.sync_all()?;
    file.open()?.append(b"more")?;
    file.open()?.sync_all()
}

/// A file without attributes gets the inode number of a file that had some.
fn slots(stage: &mut Stage) -> extant::Result<()> {
    for n in 0..3 {
        stage.write(&format!("/dir/marked{n}"), 0, 700)?;
        stage.fs.set_xattr(format!("/dir/marked{n}"), "user.mark", b"one", XattrMode::Any)?;
    }
    stage.fs.sync()?;
    let number = stage.fs.metadata("/dir/marked1")?.ino();
    stage.sync_other()?;
    stage.fs.remove_file("/dir/marked1")?;
    stage.sync("/dir/plain", 0, 700)?;
    assert_eq!(stage.fs.metadata("/dir/plain")?.ino(), number);
    stage.sync_other()
}

/// Attributes in a block of their own count as space of the file.
fn attribute_blocks(stage: &mut Stage) -> extant::Result<()> {
    for path in ["/old", "/dir/old"] {
        stage.fs.set_xattr(path, "user.large", &[b'x'; 600], XattrMode::Any)?;
    }
    stage.fs.sync()?;
    stage.sync("/old", 20_000, 9000)?;
    stage.sync_other()?;
    stage.fs.hard_link("/dir/old", "/hard")?;
    stage.sync_other()?;
    stage.sync_other()
}

/// The bytes left in a slot look like the root of a tree.
fn left_overs(stage: &mut Stage) -> extant::Result<()> {
    let target = OsStr::from_bytes(b"\x0A\xF3\x01\x01\x01\x01\x01\x01 not a tree");
    let link = stage.fs.symlink(target, "/dir/link", &NewFile::default())?;
    let number = link.ino();
    drop(link);
    stage.fs.remove_file("/dir/link")?;
    stage.fs.sync()?;
    stage.sync_other()?;
    stage.sync("/dir/plain", 0, 700)?;
    assert_eq!(stage.fs.metadata("/dir/plain")?.ino(), number);
    stage.sync_other()
}

const LATER: Timestamp = Timestamp { sec: 1_900_000_000, nsec: 987_654_321 };

/// The state at the start of every case: durable, with a log in use.
fn prepare(fs: &Filesystem) -> extant::Result<()> {
    fs.create_dir("/dir", &NewFile::directory())?;
    for (path, len) in [("/old", 20_000), ("/dir/old", 9000), ("/other", 300)] {
        let file = fs.create_file(path, &NewFile::default())?.open()?;
        file.write_all_at(&bytes(len, len as usize), 0)?;
    }
    let file = fs.create_file("/pieces", &NewFile::default())?.open()?;
    (0..12).try_for_each(|n| file.write_all_at(&bytes(n, 3000), n * 20_000))?;
    fs.sync()
}

fn save(device: &MemoryDevice, path: &Path) -> Result<(), String> {
    let file = FileDevice::create(path, device.len()).map_err(|e| e.to_string())?;
    let mut piece = vec![0; 64 << 10];
    for at in (0..device.len()).step_by(piece.len()) {
        device.read_at(ByteOffset(at), &mut piece).map_err(|e| e.to_string())?;
        if piece.iter().any(|&byte| byte != 0) {
            file.write_at(ByteOffset(at), &piece).map_err(|e| e.to_string())?;
        }
    }
    Ok(())
}

/// A case on a kind of volume: the state after the cut, and what the volume showed.
fn play(
    extant: &Extant,
    made: &Made,
    (case, fast, act): &(&str, u64, Case),
    dir: &Path,
) -> Result<Verdict, String> {
    let failed = |error: extant::Error| error.to_string();
    let name = format!("{}-{case}", made.kind);
    let disks = Disks {
        volume: Arc::new(made.volume.clone()),
        journal: made.journal.clone().map(Arc::new),
    };
    let mut options = OpenOptions::new();
    let environment = Environment { clock: Arc::new(Ticking(0.into())), ..Environment::default() };
    options.write(true).commit_interval(None).page_cache_bytes(made.cache_kib << 10);
    options.environment(environment);
    if let Some(journal) = &disks.journal {
        options.journal_on(journal.clone());
    }
    let fs = options.open_device(disks.volume.clone()).map_err(failed)?;
    prepare(&fs).map_err(failed)?;
    let mut stage = Stage { fs };
    act(&mut stage).map_err(failed)?;
    let cut = disks.save(dir, &name)?;
    let stats = stage.fs.stats().journal.ok_or("no journal")?;
    if stats.fast_commits < *fast {
        return Err(format!("{fast} fast commits expected: {stats:?}"));
    }
    stage.fs.close().map_err(failed)?;
    let closed = disks.save(dir, &format!("{name}.closed"))?;
    let expected = extant.manifest(&closed.img)?;
    closed.expect_clean().map_err(|e| format!("closed: {e}"))?;
    closed.remove();

    let copy = Cut {
        img: dir.join(format!("{name}.copy")),
        journal: cut.journal.as_ref().map(|_| dir.join(format!("{name}.copy.journal"))),
    };
    copy_sparse(&cut.img, &copy.img)?;
    let mut options = OpenOptions::new();
    if let (Some(from), Some(to)) = (&cut.journal, &copy.journal) {
        copy_sparse(from, to)?;
        options.journal_device(to);
    }
    let report = options.recover_in_place(&copy.img).map_err(failed)?;
    if report.fast_commits == 0 {
        return Err(format!("no fast commits found: {report:?}"));
    }
    if !report.problems.is_empty() {
        return Err(format!("{:?}", report.problems));
    }
    copy.expect_clean().map_err(|e| format!("extant recovered: {e}"))?;
    let recovered = extant.manifest(&copy.img)?;
    expected.diff(&recovered, look()).expect_same("went on | extant recovered")?;
    copy.remove();
    let Cut { img, journal } = cut;
    Ok(Verdict { name, img, journal, expected, look: look(), recovered_by_linux: false })
}

/// Records contain only names of directories, and nothing of what a map takes.
fn look() -> Look {
    Look { dir_shape: false, dir_times: false, blocks: false, ..Look::all() }
}

fn load(path: &Path) -> Result<MemoryDevice, String> {
    let file = FileDevice::open(path).map_err(|e| e.to_string())?;
    MemoryDevice::copy_of(&file).map_err(|e| e.to_string())
}

#[test]
fn linux_and_extant_recover_what_was_synced_alike() {
    require!(Root, Loop, E2fsprogs, Uml);
    let name = "fast_commits";
    let extant = Extant::get().expect("the extant command");
    let kept = Scratch::new();
    let make = |(kind, options, cache_kib)| {
        Made::make(Scratch::new().path(), kind, options, cache_kib).expect("mke2fs")
    };
    let made = KINDS.map(make);
    let cases: Vec<_> =
        made.iter().flat_map(|made| CASES.iter().map(move |case| (made, case))).collect();
    let verdicts = Mutex::new(Vec::<Verdict>::new());
    let mut failures = try_cases(
        name,
        &cases,
        |(made, (case, ..))| format!("{}-{case}", made.kind),
        |(made, case)| {
            let verdict = play(&extant, made, case, kept.path())?;
            verdicts.lock().expect("no case panics with it").push(verdict);
            Ok("recovered by extant".to_owned())
        },
    );
    let verdicts = verdicts.into_inner().expect("no case panics with it");
    let guest = Scratch::new();
    failures.extend(linux_confirms(name, &verdicts, guest.path()));
    expect_none(name, &failures);
}
