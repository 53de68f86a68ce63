//! Fills a mounted directory with content that is the same in each run, by profiles.
//!
//! ```text
//!   "common"  files sparse fragmented prealloc links special names dirs xattrs acls times flags
//!   "small"   files links names
//!   "tree"    what a source directory of any filesystem holds: common without prealloc and flags
//!   others    one each: htree5k htree100k htree_deep eainode inline churn project encrypt magic
//! ```
//! What a filesystem refuses (ACLs on one, holes on another) is skipped and named, so one profile
//! serves every feature set.

mod attributes;
mod content;
mod many;
mod namespace;

use std::ffi::OsStr;
use std::fs::{File, OpenOptions, Permissions};
use std::io::{self, Write};
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::{Path, PathBuf};

use rustix::fs::FallocateFlags;

type Item = fn(&Place) -> io::Result<()>;

/// Every item by name.
const ITEMS: &[(&str, Item)] = &[
    ("files", content::files),
    ("sparse", content::sparse),
    ("fragmented", content::fragmented),
    ("prealloc", content::prealloc),
    ("links", namespace::links),
    ("special", namespace::special),
    ("names", namespace::names),
    ("dirs", namespace::dirs),
    ("xattrs", attributes::xattrs),
    ("acls", attributes::acls),
    ("times", attributes::times),
    ("flags", attributes::flags),
    ("project", attributes::project),
    ("encrypt", attributes::encrypt),
    ("eainode", attributes::eainode),
    ("inline", content::inline),
    ("magic", content::magic),
    ("churn", many::churn),
    ("htree5k", many::htree5k),
    ("htree100k", many::htree100k),
    ("htree_deep", many::htree_deep),
];

/// How many items, from the first, are `common`.
const COMMON: usize = 12;
const SMALL: &[&str] = &["files", "links", "names"];
const NOT_IN_TREE: &[&str] = &["prealloc", "flags"];

/// Fills `dir` with the items of `profiles` (separated by spaces). Returns what was skipped and
/// why; `Err` for an unknown word.
pub fn populate(dir: &Path, profiles: &str) -> Result<Vec<String>, String> {
    let place = Place::at(dir).map_err(|e| format!("{}: {e}", dir.display()))?;
    fill(place, profiles)
}

/// The same for a source directory of a volume with blocks of `block_size`: nothing that such
/// blocks cannot hold, whatever the filesystem of `dir`.
pub fn populate_for(dir: &Path, profiles: &str, block_size: usize) -> Result<Vec<String>, String> {
    let place = Place::at(dir).map_err(|e| format!("{}: {e}", dir.display()))?;
    fill(Place { block_size, ..place }, profiles)
}

fn fill(place: Place, profiles: &str) -> Result<Vec<String>, String> {
    for word in profiles.split_whitespace() {
        let names: Vec<&str> = match word {
            "common" => ITEMS[..COMMON].iter().map(|(name, _)| *name).collect(),
            "small" => SMALL.to_vec(),
            "tree" => {
                let common = ITEMS[..COMMON].iter().map(|(name, _)| *name);
                common.filter(|name| !NOT_IN_TREE.contains(name)).collect()
            }
            one => vec![one],
        };
        for name in names {
            let item = ITEMS.iter().find(|(n, _)| *n == name);
            let (_, item) = item.ok_or(format!("populate: no item {name}"))?;
            place.attempt(name, || item(&place));
        }
    }
    if let Ok(dir) = File::open(&place.dir) {
        // Only files on this filesystem. A failure shows when the content is read back.
        let _ = rustix::fs::syncfs(&dir);
    }
    Ok(place.skipped.into_inner())
}

/// The directory being filled.
pub(crate) struct Place {
    dir: PathBuf,
    /// The filesystem's block size in bytes.
    pub block_size: usize,
    skipped: std::cell::RefCell<Vec<String>>,
}

impl Place {
    /// Fills `dir`.
    pub fn at(dir: &Path) -> io::Result<Self> {
        let block_size = rustix::fs::statvfs(dir)?.f_bsize as usize;
        Ok(Self { dir: dir.to_path_buf(), block_size, skipped: Default::default() })
    }

    /// Runs `work`; notes a refusal under `what`.
    pub fn attempt(&self, what: &str, work: impl FnOnce() -> io::Result<()>) {
        if let Err(error) = work() {
            self.skipped.borrow_mut().push(format!("{what}: {error}"));
        }
    }

    /// The path of `name` (bytes) inside.
    pub fn path(&self, name: impl AsRef<[u8]>) -> PathBuf {
        self.dir.join(OsStr::from_bytes(name.as_ref()))
    }

    /// Makes a file of `bytes`, mode 0644.
    pub fn put(&self, name: impl AsRef<[u8]>, bytes: &[u8]) -> io::Result<()> {
        self.put_mode(name, bytes, 0o644)
    }

    /// Makes a file of `bytes` with `mode`.
    pub fn put_mode(&self, name: impl AsRef<[u8]>, bytes: &[u8], mode: u32) -> io::Result<()> {
        let path = self.path(name);
        File::create(&path)?.write_all(bytes)?;
        std::fs::set_permissions(path, Permissions::from_mode(mode))
    }

    /// Makes a directory, mode 0755.
    pub fn mkdir(&self, name: impl AsRef<[u8]>) -> io::Result<()> {
        self.mkdir_mode(name, 0o755)
    }

    /// Makes a directory with `mode`.
    pub fn mkdir_mode(&self, name: impl AsRef<[u8]>, mode: u32) -> io::Result<()> {
        let path = self.path(name);
        std::fs::create_dir(&path)?;
        std::fs::set_permissions(path, Permissions::from_mode(mode))
    }

    /// Opens `name` for reading and writing; creates it with mode 0644 if it is missing.
    pub fn open(&self, name: impl AsRef<[u8]>) -> io::Result<File> {
        let path = self.path(name);
        let new = !path.exists();
        let mut options = OpenOptions::new();
        let file = options.read(true).write(true).create(true).truncate(false).open(path)?;
        if new {
            file.set_permissions(Permissions::from_mode(0o644))?;
        }
        Ok(file)
    }

    /// Writes `bytes` at `offset` of `name`; creates it if it is missing.
    pub fn write_at(&self, name: &str, bytes: &[u8], offset: u64) -> io::Result<()> {
        self.open(name)?.write_all_at(bytes, offset)
    }

    /// fallocate on `name`.
    pub fn fallocate(&self, name: &str, mode: FallocateFlags, at: u64, len: u64) -> io::Result<()> {
        Ok(rustix::fs::fallocate(self.open(name)?, mode, at, len)?)
    }

    /// Makes `new` another name of `old`.
    pub fn link(&self, old: impl AsRef<[u8]>, new: impl AsRef<[u8]>) -> io::Result<()> {
        std::fs::hard_link(self.path(old), self.path(new))
    }

    /// Removes a file.
    pub fn unlink(&self, name: impl AsRef<[u8]>) -> io::Result<()> {
        std::fs::remove_file(self.path(name))
    }

    /// Makes a symlink to `target`.
    pub fn symlink(&self, target: &str, name: &str) -> io::Result<()> {
        std::os::unix::fs::symlink(target, self.path(name))
    }

    /// Sets an extended attribute, of the link itself where `name` is one.
    pub fn setxattr(&self, name: &str, attribute: &str, value: &[u8]) -> io::Result<()> {
        let flags = rustix::fs::XattrFlags::empty();
        Ok(rustix::fs::lsetxattr(self.path(name), attribute, value, flags)?)
    }
}
