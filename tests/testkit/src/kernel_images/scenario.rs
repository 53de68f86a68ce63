//! What happens before a crash: operations on a mounted volume that end in a persistence call, and
//! the list of what must be there after recovery.
//!
//! ```text
//!   settle base/ ──► operations … fsync ──► note what is durable now ──► (caller) shut down
//! ```
//! What a scenario notes is durable because of its own calls: the inode that was fsynced, and the
//! new or changed names on the path to it. (fsync of an unchanged file makes nothing else durable,
//! and the scenarios do not rely on that.)

use std::fs::File;
use std::io;
use std::os::unix::fs::FileExt;
use std::path::Path;

use rustix::fs::{
    AtFlags, CWD, FallocateFlags, FileType, Mode, RenameFlags, Timespec, Timestamps, makedev,
    mknodat, renameat_with, utimensat,
};

use crate::manifest::{Diff, Entry, Look, Manifest};
use crate::populate::Place;
use crate::rng::{Rng, bytes};

/// Something that must hold after recovery.
#[derive(Debug, Clone)]
pub enum Must {
    /// This entry is there with this content and these attributes, apart from times, place,
    /// directory sizes and inode numbers.
    Be(Box<Entry>),
    /// This name does not exist.
    BeAbsent(String),
}

impl Must {
    /// `Ok` if it holds in `after`.
    pub fn check(&self, after: &Manifest) -> Result<(), String> {
        match self {
            Must::BeAbsent(path) if after.entries.contains_key(path) => {
                Err(format!("{path}: was removed and synced, is there again"))
            }
            Must::BeAbsent(_) => Ok(()),
            Must::Be(entry) => {
                let alone = |e: &Entry| Manifest {
                    entries: [(e.path.clone(), e.clone())].into_iter().collect(),
                };
                let found = after.entries.get(&entry.path);
                let found = found.ok_or_else(|| format!("{}: was synced, is gone", entry.path))?;
                let look = Look { mtime: false, nanoseconds: false, ..Look::copy() };
                let diff: Diff = alone(entry).diff(&alone(found), look);
                if diff.is_empty() { Ok(()) } else { Err(format!("synced | recovered: {diff}")) }
            }
        }
    }
}

/// A volume on which a scenario runs.
pub(super) struct Stage {
    place: Place,
    must: Vec<Must>,
    /// Files kept open until the crash.
    held: Vec<File>,
    dir: File,
}

impl Stage {
    fn new(dir: &Path) -> io::Result<Self> {
        let place = Place::at(dir)?;
        Ok(Self { place, must: Vec::new(), held: Vec::new(), dir: File::open(dir)? })
    }

    fn syncfs(&self) -> io::Result<()> {
        Ok(rustix::fs::syncfs(&self.dir)?)
    }

    fn fsync(&self, name: &str) -> io::Result<()> {
        File::open(self.place.path(name))?.sync_all()
    }

    /// Writes at `at` (at the end if `None`), then calls fsync.
    fn write(&self, name: &str, bytes: &[u8], at: Option<u64>) -> io::Result<()> {
        self.write_only(name, bytes, at)?.sync_all()
    }

    fn write_only(&self, name: &str, bytes: &[u8], at: Option<u64>) -> io::Result<File> {
        let file = self.place.open(name)?;
        let at = match at {
            Some(at) => at,
            None => file.metadata()?.len(),
        };
        file.write_all_at(bytes, at)?;
        Ok(file)
    }

    fn fallocate(&self, name: &str, mode: FallocateFlags, at: u64, len: u64) -> io::Result<()> {
        self.place.fallocate(name, mode, at, len)?;
        self.fsync(name)
    }

    fn truncate(&self, name: &str, size: u64) -> io::Result<()> {
        let file = self.place.open(name)?;
        file.set_len(size)?;
        file.sync_all()
    }

    fn rename(&self, from: &str, to: &str) -> io::Result<()> {
        std::fs::rename(self.place.path(from), self.place.path(to))
    }

    /// Notes the present state of `names`, existing or absent, as what must be there after
    /// recovery.
    fn keep<S: AsRef<str>>(&mut self, names: impl IntoIterator<Item = S>) -> io::Result<()> {
        for name in names {
            let name = name.as_ref();
            self.must.push(match Manifest::entry_of(&self.place.path(""), name) {
                Ok(entry) => Must::Be(Box::new(entry)),
                Err(error) if error.kind() == io::ErrorKind::NotFound => {
                    Must::BeAbsent(format!("/{name}"))
                }
                Err(error) => return Err(error),
            });
        }
        Ok(())
    }
}

type Act = fn(&mut Stage) -> io::Result<()>;

const ACTS: &[(&str, Act)] = &[
    ("create", create),
    ("append", append),
    ("overwrite", overwrite),
    ("newdir", newdir),
    ("rename", rename),
    ("dirrename", dirrename),
    ("exchange", exchange),
    ("linkunlink", linkunlink),
    ("truncate", truncate),
    ("fallocs", fallocs),
    ("special", special),
    ("xattr", xattr),
    ("chattrs", chattrs),
    ("sparse", sparse),
    ("mixed", mixed),
    ("many", many),
    ("orphans", orphans),
    ("revoke", revoke),
    ("escape", escape),
    ("wrap", wrap),
];

/// The names of the scenarios that work with every journal.
pub(super) fn everyday() -> impl Iterator<Item = &'static str> {
    ACTS.iter().map(|(name, _)| *name).take_while(|name| *name != "revoke")
}

/// Runs scenario `name` (`random-SEED` and `quick-SEED` for random ones) in `dir`. Returns what
/// must survive, and the files to keep open until the crash.
pub fn run_scenario(dir: &Path, name: &str) -> Result<(Vec<Must>, Vec<File>), String> {
    let run = || -> io::Result<Stage> {
        let mut stage = Stage::new(dir)?;
        stage.place.mkdir("base")?;
        for i in 0..20 {
            stage.place.put(format!("base/f{i:02}"), &bytes(i, 700 * i as usize))?;
        }
        stage.syncfs()?;
        match name.rsplit_once('-') {
            Some(("random", seed)) => random(&mut stage, number(seed), Ending::FsyncAll)?,
            Some(("quick", seed)) => random(&mut stage, number(seed), Ending::FsyncFiles)?,
            _ => {
                let act = ACTS.iter().find(|(n, _)| *n == name).expect("a known scenario");
                (act.1)(&mut stage)?;
            }
        }
        Ok(stage)
    };
    let stage = run().map_err(|e| format!("scenario {name}: {e}"))?;
    Ok((stage.must, stage.held))
}

fn number(seed: &str) -> u64 {
    seed.parse().expect("SCENARIO-NUMBER")
}

fn numbered(prefix: &str, count: usize) -> Vec<String> {
    (0..count).map(|i| format!("{prefix}{i}")).collect()
}

fn create(s: &mut Stage) -> io::Result<()> {
    for i in 0..6 {
        s.write(&format!("new{i}"), &bytes(100 + i, 5000 * i as usize + 1), None)?;
    }
    s.keep(numbered("new", 6))
}

fn append(s: &mut Stage) -> io::Result<()> {
    for i in 0..12 {
        s.write("base/f03", &bytes(200 + i, 3000), None)?;
    }
    for i in 0..5 {
        s.write_only("base/f04", &bytes(300 + i, 100), None)?.sync_data()?;
    }
    s.keep(["base/f03", "base/f04"])
}

fn overwrite(s: &mut Stage) -> io::Result<()> {
    for i in 0..6 {
        s.write("base/f19", &bytes(400 + i, 900), Some(1000 * i))?;
    }
    s.keep(["base/f19"])
}

fn newdir(s: &mut Stage) -> io::Result<()> {
    s.place.mkdir("dir1")?;
    s.write("dir1/in", &bytes(1, 3000), None)?;
    s.place.mkdir("dir1/sub")?;
    s.write("dir1/sub/deep", &bytes(2, 10_000), None)?;
    s.keep(["dir1", "dir1/in", "dir1/sub", "dir1/sub/deep"])
}

fn rename(s: &mut Stage) -> io::Result<()> {
    s.write("r.tmp", &bytes(3, 9000), None)?;
    s.rename("r.tmp", "base/f07")?;
    s.fsync("base/f07")?;
    s.rename("base/f08", "moved")?;
    s.fsync("moved")?;
    s.keep(["base/f07", "moved", "base/f08", "r.tmp"])
}

fn dirrename(s: &mut Stage) -> io::Result<()> {
    s.place.mkdir("da")?;
    s.write("da/x", &[b'x'; 3000], None)?;
    s.place.mkdir("db")?;
    s.syncfs()?;
    s.rename("da", "db/da")?;
    s.fsync("db")?;
    s.fsync("")?;
    s.keep(["da", "db/da", "db/da/x"])
}

fn exchange(s: &mut Stage) -> io::Result<()> {
    let (a, b) = (s.place.path("base/f05"), s.place.path("base/f06"));
    renameat_with(CWD, a, CWD, b, RenameFlags::EXCHANGE)?;
    s.fsync("base/f05")?;
    s.keep(["base/f05", "base/f06"])
}

fn linkunlink(s: &mut Stage) -> io::Result<()> {
    s.place.link("base/f09", "lnk")?;
    s.fsync("base/f09")?;
    s.place.unlink("base/f10")?;
    s.fsync("base")?;
    s.write("base/f11", b"tail", None)?;
    s.place.unlink("base/f12")?;
    s.write("base/f12", b"recreated", None)?;
    s.keep(["lnk", "base/f09", "base/f10", "base/f11", "base/f12"])
}

fn truncate(s: &mut Stage) -> io::Result<()> {
    s.truncate("base/f18", 3000)?;
    s.truncate("base/f17", 100_000)?;
    s.truncate("base/f16", 0)?;
    s.write("base/f16", b"again", None)?;
    s.keep(["base/f16", "base/f17", "base/f18"])
}

fn fallocs(s: &mut Stage) -> io::Result<()> {
    s.fallocate("pre", FallocateFlags::empty(), 0, 200_000)?;
    s.write("pre", &bytes(5, 5000), Some(40_000))?;
    s.fallocate("ks", FallocateFlags::KEEP_SIZE, 0, 100_000)?;
    let punch = FallocateFlags::PUNCH_HOLE | FallocateFlags::KEEP_SIZE;
    s.fallocate("base/f19", punch, 4096, 4096)?;
    s.fallocate("base/f18", FallocateFlags::ZERO_RANGE, 2000, 6000)?;
    s.keep(["pre", "ks", "base/f19", "base/f18"])
}

fn special(s: &mut Stage) -> io::Result<()> {
    s.place.symlink("short", "sl")?;
    s.place.symlink(&"L".repeat(300), "sl_long")?;
    let mode = Mode::from_raw_mode(0o600);
    mknodat(CWD, s.place.path("ff"), FileType::Fifo, mode, 0)?;
    mknodat(CWD, s.place.path("nod"), FileType::CharacterDevice, mode, makedev(5, 7))?;
    s.fsync("")?;
    s.write("after", b"a", None)?;
    s.keep(["sl", "sl_long", "ff", "nod", "after"])
}

fn xattr(s: &mut Stage) -> io::Result<()> {
    s.place.setxattr("base/f02", "user.small", b"v")?;
    s.fsync("base/f02")?;
    s.place.setxattr("base/f02", "user.large", &bytes(6, 600))?;
    s.fsync("base/f02")?;
    s.write_only("xa", b"x", None)?;
    s.place.setxattr("xa", "user.n", b"1")?;
    s.fsync("xa")?;
    s.keep(["base/f02", "xa"])
}

fn chattrs(s: &mut Stage) -> io::Result<()> {
    let path = s.place.path("base/f01");
    std::os::unix::fs::chown(&path, Some(12_345), Some(70_000))?;
    std::fs::set_permissions(&path, std::os::unix::fs::PermissionsExt::from_mode(0o4711))?;
    s.fsync("base/f01")?;
    let at = |nsec| Timespec { tv_sec: 1_000_000_000, tv_nsec: nsec };
    let times = Timestamps { last_access: at(0), last_modification: at(7) };
    utimensat(CWD, s.place.path("base/f02"), &times, AtFlags::empty())?;
    s.fsync("base/f02")?;
    s.keep(["base/f01", "base/f02"])
}

fn sparse(s: &mut Stage) -> io::Result<()> {
    let step = 3 * s.place.block_size as u64;
    for i in 0..40 {
        s.write("holes", &bytes(i, 500), Some(i * step))?;
    }
    s.keep(["holes"])
}

fn mixed(s: &mut Stage) -> io::Result<()> {
    create(s)?;
    s.must.clear();
    s.syncfs()?;
    append(s)?;
    s.write("late", &bytes(9, 20_000), None)?;
    newdir(s)?;
    s.keep(numbered("new", 6))?;
    s.keep(["late"])
}

fn many(s: &mut Stage) -> io::Result<()> {
    for i in 0..400 {
        s.write(&format!("m{i}"), &bytes(i, 300), None)?;
    }
    s.keep(numbered("m", 400))
}

/// Files open and removed at the crash, and one truncated but not synced.
fn orphans(s: &mut Stage) -> io::Result<()> {
    for i in 0..5 {
        let name = format!("orph{i}");
        s.write(&name, &bytes(i, 30_000 * i as usize + 5), None)?;
        s.held.push(s.place.open(&name)?);
        s.place.unlink(&name)?;
    }
    s.write_only("base/f19", b"", None)?;
    s.fsync("")?;
    s.write("mark", b"m", None)?;
    s.keep(["mark"])?;
    s.keep(numbered("orph", 5))
}

/// Directory blocks are freed and reused as file data: recovery needs the revoke records.
fn revoke(s: &mut Stage) -> io::Result<()> {
    let name = |k: usize, i: usize| format!("rv{k}/{}_{i}", "n".repeat(100));
    for k in 0..3 {
        s.place.mkdir(format!("rv{k}"))?;
        for i in 0..300 {
            s.place.link("base/f01", name(k, i))?;
        }
        s.fsync(&format!("rv{k}"))?;
    }
    for k in 0..3 {
        for i in 0..300 {
            s.place.unlink(name(k, i))?;
        }
        std::fs::remove_dir(s.place.path(format!("rv{k}")))?;
    }
    s.write("rv_data", &bytes(77, 400 << 10), None)?;
    s.fsync("base/f01")?;
    s.keep(["rv_data", "rv0", "rv1", "rv2", "base/f01"])
}

/// Data blocks that begin with the journal's magic number, for data=journal.
fn escape(s: &mut Stage) -> io::Result<()> {
    let bs = s.place.block_size;
    let block = |seed, len| [&[0xc0, 0x3b, 0x39, 0x98][..], &bytes(seed, len)].concat();
    let all: Vec<u8> = (0..12).flat_map(|i| block(i, bs - 4)).collect();
    s.write("esc", &all, None)?;
    s.write("base/f05", &block(1, bs), Some(0))?;
    s.keep(["esc", "base/f05"])
}

/// Enough full commits that a small journal wraps.
fn wrap(s: &mut Stage) -> io::Result<()> {
    for k in 0..60u64 {
        for i in 0..40u64 {
            s.write_only(&format!("wr_{i:02}_{}", k % 3), &bytes(i * k, 2000), Some(0))?;
        }
        for i in (0..40).step_by(7) {
            s.place.unlink(format!("wr_{i:02}_{}", k % 3))?;
        }
        if k % 5 == 0 {
            s.syncfs()?;
        } else {
            s.write("wr_sync", format!("{k}\n").as_bytes(), None)?;
        }
    }
    s.syncfs()?;
    s.write("wr_last", b"last", None)?;
    s.keep(["wr_sync", "wr_last"])?;
    let names: Vec<String> =
        (0..40).flat_map(|i| (0..3).map(move |k| format!("wr_{i:02}_{k}"))).collect();
    s.keep(names)
}

/// How a random scenario makes everything durable.
#[derive(Clone, Copy, PartialEq)]
enum Ending {
    /// fsync of every remaining file and directory; that of a directory is a full commit.
    FsyncAll,
    /// fsync of files only, and often during the run. With fast commits, each fsync is one, and a
    /// fast commit contains every name created before it.
    FsyncFiles,
}

/// 120 random operations, then an ending.
fn random(s: &mut Stage, seed: u64, ending: Ending) -> io::Result<()> {
    let mut rng = Rng::new(seed);
    let mut files: Vec<String> = (0..20).map(|i| format!("base/f{i:02}")).collect();
    let mut dirs = vec![String::from("base")];
    for k in 0..120u64 {
        let dir = dirs[rng.below(dirs.len())].clone();
        let new = if rng.below(2) == 0 { format!("r{k}") } else { format!("{dir}/r{k}") };
        let at = rng.below(files.len());
        match rng.below(12) {
            0..3 => {
                s.write_only(&new, &bytes(k, rng.below(20_000)), Some(0))?;
                files.push(new);
            }
            3 => drop(s.write_only(&files[at], &bytes(k, rng.below(5000)), None)?),
            4 => {
                let len = std::fs::metadata(s.place.path(&files[at]))?.len();
                let to = rng.below(len as usize + 1) as u64;
                drop(s.write_only(&files[at], &bytes(k, 700), Some(to))?);
            }
            5 if files.len() > 5 => s.place.unlink(files.swap_remove(at))?,
            6 => {
                s.rename(&files[at], &new)?;
                files[at] = new;
            }
            7 => {
                s.place.link(&files[at], &new)?;
                files.push(new);
            }
            8 => {
                s.place.mkdir(&new)?;
                dirs.push(new);
            }
            9 => {
                let file = s.place.open(&files[at])?;
                file.set_len(rng.below(file.metadata()?.len() as usize + 3000) as u64)?;
            }
            10 => s.place.symlink(&"t".repeat(1 + rng.below(200)), &new)?,
            _ => s.fsync(&files[at])?,
        }
        if ending == Ending::FsyncFiles && rng.below(3) == 0 {
            let at = rng.below(files.len());
            s.write(&files[at], &bytes(k, 20), None)?;
        }
    }
    match ending {
        Ending::FsyncAll => files.iter().chain(&dirs).try_for_each(|name| s.fsync(name))?,
        Ending::FsyncFiles => {
            files.iter().try_for_each(|name| s.fsync(name))?;
            s.write(&files[0], b"the end", None)?;
        }
    }
    let names: std::collections::BTreeSet<String> = files.into_iter().chain(dirs).collect();
    s.keep(names)
}
