//! Volumes that extant was changing when the power was cut: Linux, e2fsck and extant itself recover
//! them to the same tree, and e2fsck finds nothing afterwards.
//!
//! ```text
//!   mke2fs ──► extant works, in memory ─┬─ cut: half of it synced      each cut three times:
//!                                       ├─ cut: orphans synced           extant replays ┐
//!                                       ├─ cut: one file synced          Linux mounts   ├ the same
//!                                       └─ closed                        e2fsck -fy     ┘
//! ```
//!
//! A cut here keeps every write that was made. `tests/crash` tests what happens to writes that no
//! flush covered.

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::{Arc, Mutex};
use std::time::Duration;

use extant::{
    BlockDevice, FileDevice, Filesystem, MemoryDevice, NewFile, OpenOptions, SetAttributes,
};
use extant_base::ByteOffset;
use extant_compat_tests::busy::{ACTS, Busy};
use extant_compat_tests::{Verdict, linux_confirms};
use extant_testkit::command::run;
use extant_testkit::e2fsprogs::{e2fsck, mke2fs};
use extant_testkit::extant::Extant;
use extant_testkit::manifest::{Look, Manifest};
use extant_testkit::report::{expect_none, try_cases};
use extant_testkit::require;
use extant_testkit::scratch::{Scratch, copy_sparse};

/// Name, options for mke2fs. Linux mounts no blocks larger than a page: e2fsck alone judges those.
const KINDS: [(&str, &str); 20] = [
    ("4k", "-b 4096"),
    ("2k", "-b 2048"),
    ("1k", "-b 1024"),
    ("64k", "-b 65536 -J size=64"),
    ("8k", "-b 8192"),
    ("no-64bit", "-b 4096 -O ^64bit"),
    ("no-csum", "-b 4096 -O ^metadata_csum"),
    ("no-csum-1k-no-64bit", "-b 1024 -O ^metadata_csum,^64bit"),
    ("gdt-csum", "-b 1024 -O ^metadata_csum,uninit_bg"),
    ("ext3-4k", "-t ext3 -b 4096"),
    ("ext3-1k", "-t ext3 -b 1024 -I 128"),
    ("bigalloc", "-b 4096 -O bigalloc -C 16384"),
    ("bigalloc-1k", "-b 1024 -O bigalloc -C 65536"),
    ("orphan-file", "-b 4096 -O orphan_file"),
    ("orphan-file-1k", "-b 1024 -O orphan_file,metadata_csum_seed"),
    ("inline", "-b 4096 -O inline_data,ea_inode"),
    ("data-journal", "-b 4096"),
    ("small-journal", "-b 1024 -J size=1"),
    ("quota", "-b 4096 -O quota,project -E quotatype=usrquota:grpquota:prjquota"),
    ("external-journal", "-b 4096 -J device=JOURNAL"),
];

const BYTES: u64 = 48 << 20;
const JOURNAL_BYTES: u64 = 8 << 20;

/// The volume, and its external journal.
struct Disks {
    volume: Arc<MemoryDevice>,
    journal: Option<Arc<MemoryDevice>>,
}

impl Disks {
    fn make((_, options): &(&str, &str)) -> Result<Disks, String> {
        let scratch = Scratch::new();
        let img = scratch.file("img");
        if !options.contains("JOURNAL") {
            // The smallest journal has 1024 blocks.
            let bytes = if options.contains("65536") { 4 * BYTES } else { BYTES };
            mke2fs(&img, bytes, options, None)?;
            return Ok(Disks { volume: load(&img)?, journal: None });
        }
        let journal = scratch.file("journal");
        mke2fs(&journal, JOURNAL_BYTES, "-O journal_dev -b 4096", None)?;
        let device = extant_testkit::loop_mount::LoopDevice::attach(&journal)?;
        let path = device.path().display().to_string();
        mke2fs(&img, BYTES, &options.replace("JOURNAL", &path), None)?;
        drop(device);
        Ok(Disks { volume: load(&img)?, journal: Some(load(&journal)?) })
    }

    fn open(&self) -> Result<Filesystem, String> {
        let mut options = OpenOptions::new();
        options.write(true).commit_interval(None);
        if let Some(journal) = &self.journal {
            options.journal_on(journal.clone());
        }
        options.open_device(self.volume.clone()).map_err(|e| format!("open: {e}"))
    }

    /// The present content of the disks, as files in `dir`.
    fn cut(&self, dir: &Path, name: &str) -> Result<Cut, String> {
        let img = dir.join(name);
        save(&self.volume, &img)?;
        let journal = self.journal.as_ref().map(|journal| {
            let path = dir.join(format!("{name}.journal"));
            save(journal, &path).map(|()| path)
        });
        Ok(Cut { img, journal: journal.transpose()? })
    }
}

fn load(path: &Path) -> Result<Arc<MemoryDevice>, String> {
    let file = FileDevice::open(path).map_err(|e| e.to_string())?;
    MemoryDevice::copy_of(&file).map(Arc::new).map_err(|e| e.to_string())
}

fn save(device: &MemoryDevice, path: &Path) -> Result<(), String> {
    let file = FileDevice::create(path, device.len()).map_err(|e| e.to_string())?;
    let mut piece = vec![0; 64 << 10];
    for at in (0..device.len()).step_by(piece.len()) {
        let piece = &mut piece[..(device.len() - at).min(64 << 10) as usize];
        device.read_at(ByteOffset(at), piece).map_err(|e| e.to_string())?;
        if piece.iter().any(|&byte| byte != 0) {
            file.write_at(ByteOffset(at), piece).map_err(|e| e.to_string())?;
        }
    }
    Ok(())
}

/// The disks after a power cut.
#[derive(Clone)]
struct Cut {
    img: PathBuf,
    journal: Option<PathBuf>,
}

impl Cut {
    fn copy(&self, mark: &str) -> Result<Cut, String> {
        let copy = |path: &PathBuf| {
            let to = path.with_extension(mark);
            copy_sparse(path, &to).map(|()| to)
        };
        let journal = self.journal.as_ref().map(|path| {
            let to = path.with_extension(format!("journal-{mark}"));
            copy_sparse(path, &to).map(|()| to)
        });
        Ok(Cut { img: copy(&self.img)?, journal: journal.transpose()? })
    }

    fn remove(self) {
        for path in [Some(self.img), self.journal].into_iter().flatten() {
            // It is removed with its directory at the latest.
            let _ = std::fs::remove_file(path);
        }
    }

    /// The tree after extant's recovery, in which e2fsck found nothing wrong.
    fn recovered(&self, extant: &Extant) -> Result<Manifest, String> {
        let copy = self.copy("extant")?;
        let mut options = OpenOptions::new();
        if let Some(journal) = &copy.journal {
            options.journal_device(journal);
        }
        options.recover_in_place(&copy.img).map_err(|e| format!("recovery: {e}"))?;
        let journal = copy.journal.as_deref();
        e2fsck(&copy.img, journal).expect_clean().map_err(|e| format!("extant recovered: {e}"))?;
        let tree = extant.manifest(&copy.img)?;
        copy.remove();
        Ok(tree)
    }

    /// The same with e2fsck's recovery.
    fn repaired(&self, extant: &Extant) -> Result<Manifest, String> {
        let copy = self.copy("e2fsck")?;
        let mut command = Command::new("e2fsck");
        command.arg("-fy");
        if let Some(journal) = &copy.journal {
            command.arg("-j").arg(journal);
        }
        let done = run(command.arg(&copy.img), Duration::from_secs(120))?;
        if !matches!(done.code(), Some(0 | 1)) {
            return Err(format!("e2fsck -fy: {done}"));
        }
        let journal = copy.journal.as_deref();
        e2fsck(&copy.img, journal).expect_clean().map_err(|e| format!("e2fsck recovered: {e}"))?;
        let tree = extant.manifest(&copy.img)?;
        copy.remove();
        Ok(tree)
    }
}

/// Works on a volume of `kind` and cuts it several times.
fn cuts(kind: &(&str, &str), dir: &Path) -> Result<Vec<(String, Cut)>, String> {
    let disks = Disks::make(kind)?;
    let fs = disks.open()?;
    let failed = |error: extant::Error| error.to_string();
    let mut cuts = Vec::new();
    let mut cut = |point: &str| -> Result<(), String> {
        let name = format!("{}-{point}", kind.0);
        cuts.push((name.clone(), disks.cut(dir, &name)?));
        Ok(())
    };
    if kind.0 == "data-journal" {
        let root = fs.metadata("/").map_err(failed)?.flags();
        let wish = SetAttributes {
            flags: Some(root | extant::InodeFlags::JOURNAL_DATA),
            ..SetAttributes::default()
        };
        fs.set_attributes("/", &wish).map_err(failed)?;
    }
    let mut busy = Busy::new(&fs, 7);
    let (first, rest) = ACTS.split_at(4);
    first.iter().try_for_each(|act| busy.act(act))?;
    fs.sync().map_err(failed)?;
    rest[..1].iter().try_for_each(|act| busy.act(act))?;
    cut("synced-and-more")?;

    rest[1..].iter().try_for_each(|act| busy.act(act))?;
    fs.sync().map_err(failed)?;
    cut("orphans")?;

    let file = fs.create_file("/after", &NewFile::default()).and_then(|node| node.open());
    let file = file.map_err(failed)?;
    file.append(b"kept by its own sync").map_err(failed)?;
    file.sync_all().map_err(failed)?;
    fs.create_file("/later", &NewFile::default()).map_err(failed)?;
    cut("file-synced")?;

    drop((busy, file));
    fs.close().map_err(failed)?;
    cut("closed")?;
    Ok(cuts)
}

fn group(name: &str, kinds: &[(&str, &str)]) {
    let extant = Extant::get().expect("the extant command");
    let kept = Scratch::new();
    let verdicts = Mutex::new(Vec::new());
    let mut failures = try_cases(
        name,
        kinds,
        |kind| kind.0.to_owned(),
        |kind| {
            let cuts = cuts(kind, kept.path())?;
            for (name, cut) in &cuts {
                let expected = cut.recovered(&extant).map_err(|e| format!("{name}: {e}"))?;
                let repaired = cut.repaired(&extant).map_err(|e| format!("{name}: {e}"))?;
                expected
                    .diff(&repaired, Look::all())
                    .expect_same("extant | e2fsck")
                    .map_err(|e| format!("{name}: {e}"))?;
                if ["8k", "64k"].contains(&kind.0) {
                    cut.clone().remove();
                    continue;
                }
                verdicts.lock().expect("no case panics with it").push(Verdict {
                    name: name.clone(),
                    img: cut.img.clone(),
                    journal: cut.journal.clone(),
                    expected,
                    look: Look::all(),
                    recovered_by_linux: false,
                });
            }
            Ok(format!("{} cuts", cuts.len()))
        },
    );
    let guest = Scratch::new();
    let verdicts = verdicts.into_inner().expect("no case panics with it");
    failures.extend(linux_confirms(name, &verdicts, guest.path()));
    expect_none(name, &failures);
}

#[test]
fn what_extant_left_is_recovered_by_all_alike() {
    require!(Root, Loop, E2fsprogs, Uml);
    group("linux_replays", &KINDS);
}
