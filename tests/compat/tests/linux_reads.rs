//! Linux reads what extant wrote by direct I/O alone, with checksums of data, and to mirrors: every
//! file, of each mirror by itself.
//!
//! ```text
//!   direct writes, each way × each kind of range ──► what was written, kept in memory ─────┐
//!   busy work beside them, then closed           ──► extant tree, of each mirror alone ─┐  │
//!                                                                                       ▼  ▼
//!       e2fsck -fn ◄── each image ──► Linux, this machine's and user-mode: the same tree and bytes
//! ```
//! A mirror, and a volume with checksums of data, are mounted read-only, and not a byte of them
//! changes. To any other volume Linux writes, too, and extant reads the result.

use std::collections::BTreeMap;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex};

use extant::direct::{AlignedBuf, Bounce, DirectOptions, OwnedMemory};
use extant::mkfs::{MkfsOptions, format};
use extant::raid::{Assembled, Opening, Part, Wanted, assemble, create};
use extant::{
    BlockDevice, BlockSize, Environment, Error, FallocateMode, File, FileDevice, Filesystem,
    NewFile, OpenOptions,
};
use extant_compat_tests::busy::Busy;
use extant_compat_tests::{Verdict, linux_confirms};
use extant_testkit::command::run_args;
use extant_testkit::e2fsprogs::{e2fsck, has_data_csum, is_member};
use extant_testkit::extant::Extant;
use extant_testkit::loop_mount::LoopMount;
use extant_testkit::manifest::{Look, Manifest};
use extant_testkit::report::{expect_none, try_cases};
use extant_testkit::require;
use extant_testkit::rng::{Rng, bytes};
use extant_testkit::scratch::Scratch;

/// Name, bytes of a block, features, mirrors.
const KINDS: &[(&str, u32, &str, usize)] = &[
    ("4k", 4096, "", 1),
    ("1k", 1024, "", 1),
    ("no-journal", 4096, "^has_journal", 1),
    ("block-map", 1024, "^extent,^64bit,^metadata_csum", 1),
    ("bigalloc", 4096, "bigalloc", 1),
    ("fast-commit", 4096, "fast_commit", 1),
    ("sums", 4096, "data_csum", 1),
    ("sums-1k", 1024, "data_csum,quota", 1),
    ("mirror", 4096, "", 2),
    ("mirror-of-3", 1024, "fast_commit", 3),
    ("mirror-sums", 4096, "data_csum", 2),
];

const VOLUME_BYTES: u64 = 96 << 20;
const KIB: u64 = 1 << 10;

#[derive(Clone, Copy)]
struct Way {
    name: &'static str,
    bounce: Bounce,
    sync: bool,
    /// Transfers of a queue, or 0 for one call.
    depth: usize,
}

const CALL: Way = Way { name: "call", bounce: Bounce::Auto, sync: false, depth: 0 };
const WAYS: [Way; 6] = [
    CALL,
    Way { name: "synced", sync: true, ..CALL },
    Way { name: "copied", bounce: Bounce::Always, ..CALL },
    Way { name: "summed", bounce: Bounce::Checksummed, ..CALL },
    Way { name: "lent", bounce: Bounce::Never, ..CALL },
    Way { name: "queue", depth: 16, ..CALL },
];

/// Places and lengths in KiB.
#[derive(Clone, Copy)]
enum Step {
    Write(u64, u64),
    Range(FallocateMode, u64, u64),
    SetLen(u64),
    /// This many writes of up to 64 KiB each, anywhere below the first MiB.
    Random(usize),
}

use FallocateMode::{Allocate, Collapse, Insert, KeepSize, PunchHole, ZeroRange};
use Step::{Random, Range, SetLen, Write};

const CASES: &[(&str, &[Step])] = &[
    ("append", &[Write(0, 40), Write(40, 40), Write(80, 4), Write(84, 1024)]),
    ("overwrite", &[Write(0, 512), Write(8, 4), Write(64, 64), Write(300, 100), Write(8, 4)]),
    ("twice", &[Write(0, 256), Write(0, 256)]),
    ("unwritten", &[Range(Allocate, 0, 512), Write(32, 40), Write(128, 4), Write(500, 40)]),
    ("kept", &[Range(KeepSize, 0, 512), Write(0, 40), Write(200, 8)]),
    ("hole", &[SetLen(700), Write(64, 40), Write(600, 4)]),
    ("behind", &[Write(0, 8), Write(256, 40)]),
    ("zeroed", &[Write(0, 256), Range(ZeroRange, 16, 128), Write(32, 40)]),
    ("punched", &[Write(0, 256), Range(PunchHole, 16, 128), Write(32, 40)]),
    ("collapsed", &[Write(0, 256), Range(Collapse, 64, 64), Write(32, 60)]),
    ("inserted", &[Write(0, 256), Range(Insert, 64, 64), Write(100, 8)]),
    ("cut", &[Write(0, 256), SetLen(100), Write(128, 16)]),
    ("random", &[Random(40)]),
];

/// A file and its required content.
struct Pair {
    file: File,
    want: Vec<u8>,
    rng: Rng,
}

impl Pair {
    fn step(&mut self, fs: &Filesystem, way: Way, step: Step) -> extant::Result<()> {
        match step {
            Write(at, len) => self.write(fs, way, at * KIB, len * KIB),
            Random(count) => (0..count).try_for_each(|_| {
                let (at, len) = (self.rng.below(240) as u64, 1 + self.rng.below(16) as u64);
                self.write(fs, way, at * 4 * KIB, len * 4 * KIB)
            }),
            SetLen(len) => {
                self.want.resize((len * KIB) as usize, 0);
                self.file.set_len(len * KIB)
            }
            Range(mode, at, len) => match self.file.allocate(mode, at * KIB, len * KIB) {
                // Files without extents have none of these.
                Err(Error::NotSupported(_)) => Ok(()),
                Ok(()) => {
                    self.ranged(mode, (at * KIB) as usize, ((at + len) * KIB) as usize);
                    Ok(())
                }
                Err(error) => Err(error),
            },
        }
    }

    fn ranged(&mut self, mode: FallocateMode, at: usize, end: usize) {
        match mode {
            Allocate | ZeroRange => self.want.resize(self.want.len().max(end), 0),
            _ => {}
        }
        match mode {
            ZeroRange | PunchHole => self.want[at..end].fill(0),
            Collapse => drop(self.want.drain(at..end)),
            Insert => drop(self.want.splice(at..at, std::iter::repeat_n(0, end - at))),
            _ => {}
        }
    }

    fn write(&mut self, fs: &Filesystem, way: Way, at: u64, len: u64) -> extant::Result<()> {
        let data = AlignedBuf::copy_of(&bytes(self.rng.next_u64(), len as usize));
        let end = (at + len) as usize;
        self.want.resize(self.want.len().max(end), 0);
        self.want[at as usize..end].copy_from_slice(&data);
        let options = DirectOptions { bounce: way.bounce, sync: way.sync, no_wait: false };
        if way.depth == 0 {
            return self.write_all(at, &data, &options);
        }
        let piece = data.len().div_ceil(way.depth).next_multiple_of(4096);
        let mut queue = fs.direct_queue(way.depth);
        for (n, part) in data.chunks(piece).enumerate() {
            let at = at + (n * piece) as u64;
            queue.write(at, &self.file, OwnedMemory::new(AlignedBuf::copy_of(part)), at, &options);
        }
        while let Some(done) = queue.wait() {
            let from = (done.tag - at) as usize;
            let to = data.len().min(from + piece);
            let n = done.result?;
            self.write_all(done.tag + n as u64, &data[from + n..to], &options)?;
        }
        Ok(())
    }

    fn write_all(&self, at: u64, data: &[u8], options: &DirectOptions) -> extant::Result<()> {
        let mut done = 0;
        while done < data.len() {
            match self.file.write_direct_at(&data[done..], at + done as u64, options)? {
                0 => return Err(Error::NoSpace),
                n => done += n,
            }
        }
        Ok(())
    }
}

/// Runs every case in every way, with several files in parallel. Returns the required content of
/// each.
fn written(
    fs: &Filesystem,
    seed: u64,
    has_extents: bool,
) -> extant::Result<BTreeMap<String, Vec<u8>>> {
    let mut all = Vec::new();
    for (n, way) in WAYS.into_iter().enumerate() {
        let dir = fs.root()?.create_dir(way.name, &NewFile::directory())?;
        for (m, (name, steps)) in CASES.iter().enumerate() {
            let file = dir.create_file(name, &NewFile::default())?.open()?;
            let rng = Rng::new(seed * 1000 + (n * CASES.len() + m) as u64);
            all.push((way, *name, *steps, Pair { file, want: Vec::new(), rng }));
        }
    }
    let most = all.iter().map(|(_, _, steps, _)| steps.len()).max().unwrap_or(0);
    for n in 0..most {
        for (way, _, steps, pair) in &mut all {
            if let Some(step) = steps.get(n) {
                pair.step(fs, *way, *step)?;
            }
        }
        if n % 2 == 0 {
            fs.sync()?;
        }
    }
    if has_extents {
        assert_eq!(fs.direct_stats().buffered_bytes, 0, "all of it went past the cache");
    }
    // Holes of files without extents, and unaligned ranges, go there through the cache.
    let mut wants = BTreeMap::new();
    for (way, name, _, mut pair) in all {
        if name == "overwrite" {
            for (at, len) in [(1, 700), (5000, 40_000), (511 * KIB, 5000)] {
                pair.write(fs, Way { depth: 0, ..way }, at, len)?;
            }
        }
        wants.insert(format!("{}/{name}", way.name), pair.want);
    }
    Ok(wants)
}

fn device(images: &[PathBuf]) -> extant::Result<Arc<dyn BlockDevice>> {
    let opened: extant::Result<Vec<_>> = images.iter().map(FileDevice::open_rw).collect();
    if images.len() == 1 {
        return Ok(Arc::new(opened?.remove(0)));
    }
    let named = opened?.into_iter().zip(images);
    let part = |(device, path): (FileDevice, &PathBuf)| {
        Part::new(Arc::new(device), path.display().to_string())
    };
    match assemble(named.map(part).collect(), Opening::write())? {
        Assembled::Mirrored(mirror) if mirror.left_out().is_empty() => Ok(mirror),
        Assembled::Mirrored(mirror) => Err(Error::Member(Box::new(mirror.left_out()[0].clone()))),
        _ => Err(Error::Invalid("it is no mirror")),
    }
}

/// Makes a volume of a kind, works on it, and closes it.
fn made(
    &(_, block, features, mirrors): &(&str, u32, &str, usize),
    images: &[PathBuf],
) -> Result<BTreeMap<String, Vec<u8>>, String> {
    let text = |error: Error| error.to_string();
    let devices: extant::Result<Vec<_>> =
        images.iter().map(|path| FileDevice::create(path, VOLUME_BYTES)).collect();
    let part = |device: FileDevice| Part::new(Arc::new(device), "new");
    let parts: Vec<Part> = devices.map_err(text)?.into_iter().map(part).collect();
    if mirrors > 1 {
        let wanted = Wanted::Mirrored { alike: true };
        create(&parts, wanted, *b"the mirror's id.", VOLUME_BYTES).map_err(text)?;
    }
    drop(parts);
    let size = BlockSize::from_bytes(block).ok_or("a block size")?;
    let options = MkfsOptions::new().block_size(size).features(features).map_err(text)?;
    format(device(images).map_err(text)?, &options, &Environment::default()).map_err(text)?;
    let fs = OpenOptions::new().write(true).open_device(device(images).map_err(text)?);
    let fs = fs.map_err(text)?;
    // It also changes files that were there before, so the files that are compared byte by byte
    // come later.
    Busy::new(&fs, 7).all()?;
    let wants = written(&fs, u64::from(block), !features.contains("^extent")).map_err(text)?;
    fs.close().map_err(text)?;
    Ok(wants)
}

/// Every file below `root` has its required content.
fn expect_bytes(root: &Path, wants: &BTreeMap<String, Vec<u8>>) -> Result<(), String> {
    for (name, want) in wants {
        let found = std::fs::read(root.join(name)).map_err(|e| format!("{name}: {e}"))?;
        if found.len() != want.len() {
            return Err(format!("{name}: {} bytes, wanted {}", found.len(), want.len()));
        }
        if let Some(at) = found.iter().zip(want).position(|(a, b)| a != b) {
            return Err(format!("{name}: another byte at {at}"));
        }
    }
    Ok(())
}

/// Linux reads an image that it may not write to, and leaves it unchanged.
fn read_only(
    img: &Path,
    shown: &Manifest,
    wants: &BTreeMap<String, Vec<u8>>,
) -> Result<(), String> {
    let held = || std::fs::read(img).map_err(|e| e.to_string());
    let before = held()?;
    let mount = LoopMount::ro(img, "")?;
    expect_bytes(mount.path(), wants)?;
    let linux = Manifest::walk(mount.path())?;
    shown.diff(&linux, Look::all()).expect_same("extant | Linux")?;
    if has_data_csum(img) {
        let dir = mount.path().display().to_string();
        if run_args("mount", &["-o", "remount,rw", &dir])?.ok() {
            return Err("Linux writes to a volume whose sums it does not keep".to_owned());
        }
    }
    mount.unmount()?;
    if has_data_csum(img) && LoopMount::rw(img, "").is_ok() {
        return Err("Linux mounts a volume for writing whose sums it does not keep".to_owned());
    }
    match held()? == before {
        true => Ok(()),
        false => Err("reading changed it".to_owned()),
    }
}

/// Linux reads an image and overwrites what extant wrote, and extant reads that.
fn read_and_written(
    img: &Path,
    shown: &Manifest,
    wants: &mut BTreeMap<String, Vec<u8>>,
) -> Result<(), String> {
    let mount = LoopMount::rw(img, "")?;
    let linux = Manifest::walk(mount.path())?;
    shown.diff(&linux, Look::all()).expect_same("extant | Linux")?;
    expect_bytes(mount.path(), wants)?;
    let mut rng = Rng::new(5);
    for (name, want) in wants.iter_mut().step_by(2) {
        let file = std::fs::File::options().write(true).open(mount.path().join(name));
        let file = file.map_err(|e| format!("{name}: {e}"))?;
        for len in [100, 4096, 30_000] {
            let (at, data) = (rng.below(want.len()), bytes(rng.next_u64(), len));
            file.write_all_at(&data, at as u64).map_err(|e| format!("{name}: {e}"))?;
            want.resize(want.len().max(at + len), 0);
            want[at..at + len].copy_from_slice(&data);
        }
    }
    mount.unmount()
}

fn extant_reads(images: &[PathBuf], wants: &BTreeMap<String, Vec<u8>>) -> Result<(), String> {
    let device = device(images).map_err(|e| e.to_string())?;
    let fs = Filesystem::open_device(device).map_err(|e| e.to_string())?;
    for (name, want) in wants {
        let found = fs.read(format!("/{name}")).map_err(|e| format!("extant: {name}: {e}"))?;
        if found != *want {
            return Err(format!("extant: {name}: other bytes"));
        }
    }
    Ok(())
}

#[test]
fn linux_reads_what_was_written_past_the_cache_of_each_mirror_alone() {
    require!(Root, Loop, E2fsprogs, Uml);
    let extant = Extant::get().expect("the extant command");
    let kept = Scratch::new();
    let verdicts = Mutex::new(Vec::new());
    let mut failures = try_cases(
        "linux_reads",
        KINDS,
        |kind| kind.0.to_owned(),
        |kind| {
            let name = |n: usize| kept.file(&format!("{}.{n}", kind.0));
            let images: Vec<PathBuf> = (0..kind.3).map(name).collect();
            let mut wants = made(kind, &images)?;
            extant_reads(&images, &wants)?;
            for (n, img) in images.iter().enumerate() {
                let alone = |error| format!("image {n} alone: {error}");
                e2fsck(img, None).expect_clean().map_err(alone)?;
                let shown = extant.manifest(img).map_err(alone)?;
                if has_data_csum(img) || is_member(img) {
                    read_only(img, &shown, &wants).map_err(alone)?;
                } else {
                    read_and_written(img, &shown, &mut wants)?;
                    e2fsck(img, None).expect_clean()?;
                    extant.expect_clean(img)?;
                }
                verdicts.lock().expect("no case panics with it").push(Verdict {
                    name: format!("{}, image {n}", kind.0),
                    img: img.clone(),
                    journal: None,
                    expected: extant.manifest(img)?,
                    look: Look::all(),
                    recovered_by_linux: false,
                });
            }
            // No member is left out, and what Linux wrote is there.
            extant_reads(&images, &wants)?;
            Ok(format!("{} files, {} images", wants.len(), images.len()))
        },
    );
    let guest = Scratch::new();
    let verdicts = verdicts.into_inner().expect("no case panics with it");
    failures.extend(linux_confirms("linux_reads/uml", &verdicts, guest.path()));
    expect_none("linux_reads", &failures);
}
