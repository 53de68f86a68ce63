//! A script with operations of every kind, run on a volume that may be damaged anywhere.
//!
//! ```text
//!   step ──► Ok │ Err: passed to `met`, then the next step
//! ```
//!
//! It changes only what is below /victims and /new. Fuzz targets run it, too.

use extant::{Error, FallocateMode, FileKind, Filesystem, NewFile, Node, RenameFlags, Result};
use extant::{SetAttributes, XattrMode};

/// The most entries that are read of one directory.
const ENTRIES_MAX: usize = 5000;

/// Parts of the script, for [`run_parts`].
pub const PARTS: u32 = 7;

/// Runs every step once; `seed` determines their parameters. `met` gets the name and the error of
/// each step that failed.
pub fn run(fs: &Filesystem, seed: u64, met: &mut dyn FnMut(&'static str, Error)) {
    run_parts(fs, seed, u32::MAX, met);
}

/// Runs those of the [`PARTS`] whose bit is set in `parts`, and syncs.
pub fn run_parts(fs: &Filesystem, seed: u64, parts: u32, met: &mut dyn FnMut(&'static str, Error)) {
    type Part<'a> = fn(&mut Script<'a>);
    let mut script = Script { fs, seed, met };
    let all: [Part<'_>; PARTS as usize] = [
        Script::make,
        Script::write,
        Script::space,
        Script::attributes,
        Script::names,
        Script::look,
        Script::remove,
    ];
    for (n, part) in all.into_iter().enumerate() {
        if parts & (1 << n) != 0 {
            part(&mut script);
        }
    }
    script.step("sync", |fs| fs.sync());
}

struct Script<'a> {
    fs: &'a Filesystem,
    seed: u64,
    met: &'a mut dyn FnMut(&'static str, Error),
}

impl Script<'_> {
    fn step(&mut self, name: &'static str, step: impl FnOnce(&Filesystem) -> Result<()>) {
        if let Err(error) = step(self.fs) {
            (self.met)(name, error);
        }
    }

    fn below(&mut self, end: u64) -> u64 {
        self.seed = self.seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
        (self.seed >> 33) % end
    }

    fn make(&mut self) {
        let new = NewFile { uid: 7, gid: 8, ..NewFile::default() };
        self.step("create_dir", |fs| fs.create_dir("new", &NewFile::directory()).map(drop));
        for n in 0..12 {
            self.step("create_file", |fs| fs.create_file(format!("new/file {n}"), &new).map(drop));
        }
        for n in 0..40 {
            let name = format!("victims/many/a new name that is somewhat long as well {n:03}");
            self.step("create_file in a large directory", |fs| {
                fs.create_file(&name, &NewFile::default()).map(drop)
            });
        }
        self.step("symlink", |fs| fs.symlink("short", "new/s", &new).map(drop));
        self.step("long symlink", |fs| fs.symlink("long/".repeat(40), "new/l", &new).map(drop));
        self.step("mknod", |fs| fs.mknod("new/fifo", FileKind::Fifo, &new).map(drop));
        self.step("hard_link", |fs| fs.hard_link("victims/medium", "new/hard"));
        self.step("hard_link of a new file", |fs| {
            fs.hard_link("new/file 1", "victims/deep/hard 2")
        });
        self.step("tmpfile", |fs| fs.node("victims")?.tmpfile(&new).map(drop));
        self.step("unlinked while held", |fs| {
            let held = fs.create_file("new/held", &new)?;
            fs.remove_file("new/held")?;
            held.open()?.write_all_at(&[5; 3000], 0)
        });
    }

    fn write(&mut self) {
        let at = self.below(30_000);
        for path in PATHS {
            self.step("write_at", |fs| open(fs, path)?.write_all_at(&[0xAB; 7000], at));
            self.step("append", |fs| open(fs, path)?.append(&[0xCD; 3000]).map(drop));
            self.step("sync_all", |fs| open(fs, path)?.sync_all());
        }
        self.step("write far behind", |fs| open(fs, "new/file 2")?.write_all_at(b"far", 1 << 33));
        for n in 0..30u64 {
            let place = self.below(400) * 4096;
            self.step("scattered write", |fs| {
                open(fs, "new/file 3")?.write_all_at(&[n as u8; 900], place)
            });
        }
    }

    fn space(&mut self) {
        let at = self.below(40) * 1024;
        for path in PATHS {
            for mode in [
                FallocateMode::Allocate,
                FallocateMode::KeepSize,
                FallocateMode::ZeroRange,
                FallocateMode::PunchHole,
            ] {
                self.step("allocate", |fs| open(fs, path)?.allocate(mode, at, 9000));
            }
            self.step("collapse", |fs| {
                open(fs, path)?.allocate(FallocateMode::Collapse, 4096, 4096)
            });
            self.step("insert", |fs| open(fs, path)?.allocate(FallocateMode::Insert, 4096, 8192));
            self.step("set_len", |fs| open(fs, path)?.set_len(at / 2 + 100));
            self.step("set_len up", |fs| open(fs, path)?.set_len(at + 100_000));
        }
    }

    fn attributes(&mut self) {
        let owner = SetAttributes { uid: Some(70_000), gid: Some(9), ..Default::default() };
        let mode = SetAttributes { mode: Some(0o640), size: Some(500), ..Default::default() };
        for path in PATHS.iter().chain(&["victims/deep", "new"]) {
            self.step("chown", |fs| fs.set_attributes(path, &owner));
            self.step("chmod", |fs| fs.set_attributes(path, &mode));
            for (name, len) in [("user.small", 10), ("user.large", 700), ("user.huge", 3000)] {
                self.step("set_xattr", |fs| {
                    fs.set_xattr(path, name, &vec![9; len], XattrMode::Any)
                });
            }
            self.step("xattrs", |fs| fs.xattrs(path).map(drop));
            self.step("remove_xattr", |fs| fs.remove_xattr(path, "user.large"));
            self.step("remove_xattr that was there", |fs| fs.remove_xattr(path, "user.attribute"));
        }
    }

    fn names(&mut self) {
        let exchange = RenameFlags { exchange: true, ..RenameFlags::REPLACE };
        self.step("rename", |fs| fs.rename("victims/block", "new/block"));
        self.step("rename over", |fs| fs.rename("victims/tiny", "victims/deep/block"));
        self.step("rename a directory", |fs| fs.rename("victims/deep/er", "new/er"));
        self.step("rename of a directory", |fs| fs.rename("new", "victims/deep/new"));
        self.step("rename back", |fs| fs.rename("victims/deep/new", "new"));
        self.step("exchange", |fs| fs.rename_with("new/file 4", "victims/many", exchange));
        self.step("exchange back", |fs| fs.rename_with("new/file 4", "victims/many", exchange));
        for n in 0..60 {
            let name = format!("victims/many/a name that fills its directory's blocks {n:03}");
            self.step("rename in a large directory", |fs| {
                fs.rename(&name, format!("victims/many/another {n}"))
            });
        }
    }

    /// Everything below the root, content included.
    fn look(&mut self) {
        let mut buf = vec![0; 20_000];
        let entries: Vec<_> = self.fs.walk("/").take(ENTRIES_MAX).collect();
        for entry in entries {
            let entry = match entry {
                Ok(entry) => entry,
                Err(error) => {
                    (self.met)("walk", error);
                    continue;
                }
            };
            self.step("xattr_values", |fs| {
                fs.node_of_ino(entry.ino()).and_then(|node| node.xattr_values()).map(drop)
            });
            match entry.file_type() {
                FileKind::Regular => {
                    self.step("read", |_| entry.open()?.read_at(&mut buf, 0).map(drop));
                    self.step("extents", |_| entry.open()?.extents().map(drop));
                }
                FileKind::Symlink => self.step("read_link", |_| entry.read_link().map(drop)),
                _ => {}
            }
        }
    }

    fn remove(&mut self) {
        for n in 0..120 {
            let name = format!("victims/many/a name that fills its directory's blocks {n:03}");
            self.step("remove_file from a large directory", |fs| fs.remove_file(&name));
        }
        for path in ["victims/large", "victims/holes", "victims/medium", "victims/long", "new/hard"]
        {
            self.step("remove_file", |fs| fs.remove_file(path));
        }
        self.step("remove_dir that is not empty", |fs| fs.remove_dir("new"));
        self.step("remove_dir", |fs| fs.remove_dir("new/er"));
        for n in 0..6 {
            self.step("remove_file that is new", |fs| fs.remove_file(format!("new/file {n}")));
        }
    }
}

/// Files that the script changes in every way.
const PATHS: [&str; 7] = [
    "new/file 0",
    "new/file 1",
    "victims/tiny",
    "victims/medium",
    "victims/large",
    "victims/holes",
    "victims/deep/medium",
];

fn open(fs: &Filesystem, path: &str) -> Result<extant::File> {
    node(fs, path)?.open()
}

fn node(fs: &Filesystem, path: &str) -> Result<Node> {
    fs.node(path)
}
