//! The differences between two manifests, in the detail that the case allows.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use super::{Entry, Kind, Manifest};

/// The fields to compare. A field that one side does not know is never compared.
#[derive(Debug, Clone, Copy)]
pub struct Look {
    /// Inode numbers; if false, only which paths share an inode.
    pub ino: bool,
    /// Size and link count of directories.
    pub dir_shape: bool,
    /// mtime.
    pub mtime: bool,
    /// Times of directories.
    pub dir_times: bool,
    /// Fractions of seconds.
    pub nanoseconds: bool,
    /// atime, ctime, birth.
    pub other_times: bool,
    /// Space taken.
    pub blocks: bool,
    /// Flags and project id.
    pub flags: bool,
    /// Extended attributes.
    pub xattrs: bool,
    /// The directory `/lost+found` and the root's link count.
    pub lost_and_found: bool,
}

impl Look {
    /// Everything: for two readings of one volume.
    pub fn all() -> Self {
        Self {
            ino: true,
            dir_shape: true,
            mtime: true,
            dir_times: true,
            nanoseconds: true,
            other_times: true,
            blocks: true,
            flags: true,
            xattrs: true,
            lost_and_found: true,
        }
    }

    /// What a copy preserves: not inode numbers, space, directory sizes, flags, ctime.
    pub fn copy() -> Self {
        Self {
            ino: false,
            dir_shape: false,
            other_times: false,
            blocks: false,
            flags: false,
            lost_and_found: false,
            ..Self::all()
        }
    }
}

/// The differences; at most a few dozen of them in words.
#[derive(Debug, Default)]
pub struct Diff {
    lines: Vec<String>,
    count: usize,
}

const SHOWN_MAX: usize = 12;

/// The inode flags that the kernel shows; it hides `PROJECT_INHERIT` on regular files.
const USER_VISIBLE: u32 = 0x725b_dfff;
const PROJECT_INHERIT: u32 = 0x2000_0000;

impl Diff {
    /// No difference.
    pub fn is_empty(&self) -> bool {
        self.count == 0
    }

    /// Number of differences.
    pub fn len(&self) -> usize {
        self.count
    }

    /// `Ok` when there is none.
    pub fn expect_same(&self, what: &str) -> Result<(), String> {
        if self.is_empty() { Ok(()) } else { Err(format!("{what}: {self}")) }
    }

    fn add(&mut self, line: impl FnOnce() -> String) {
        self.count += 1;
        if self.lines.len() < SHOWN_MAX {
            self.lines.push(line());
        }
    }
}

impl fmt::Display for Diff {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} differences (left | right)", self.count)?;
        for line in &self.lines {
            write!(f, "\n      {line}")?;
        }
        if self.count > self.lines.len() {
            write!(f, "\n      … {} more", self.count - self.lines.len())?;
        }
        Ok(())
    }
}

impl Manifest {
    /// What differs between `self` (left) and `other` (right).
    pub fn diff(&self, other: &Self, look: Look) -> Diff {
        let mut diff = Diff::default();
        let paths: BTreeSet<&String> = self.entries.keys().chain(other.entries.keys()).collect();
        for path in paths {
            if !look.lost_and_found && path.as_str() == "/lost+found" {
                continue;
            }
            match (self.entries.get(path), other.entries.get(path)) {
                (Some(a), Some(b)) => compare(a, b, look, &mut diff),
                (Some(a), None) => diff.add(|| format!("{path}: only on the left ({:?})", a.kind)),
                (None, Some(b)) => diff.add(|| format!("{path}: only on the right ({:?})", b.kind)),
                (None, None) => {}
            }
        }
        if !look.ino {
            let (a, b) = (self.hard_links(), other.hard_links());
            for path in a.keys().chain(b.keys()).collect::<BTreeSet<_>>() {
                if a.get(path) != b.get(path) {
                    let (a, b) = (a.get(path), b.get(path));
                    diff.add(|| format!("{path}: hard link of {a:?} | {b:?}"));
                }
            }
        }
        diff
    }

    /// Each path that shares its inode, with the first path that does.
    fn hard_links(&self) -> BTreeMap<&str, &str> {
        let mut first = BTreeMap::new();
        let mut links = BTreeMap::new();
        for entry in self.entries.values().filter(|e| e.kind != Kind::Dir) {
            let head = *first.entry(entry.ino).or_insert(entry.path.as_str());
            if head != entry.path {
                links.insert(entry.path.as_str(), head);
            }
        }
        links
    }
}

fn compare(a: &Entry, b: &Entry, look: Look, diff: &mut Diff) {
    let path = &a.path;
    let mut field = |name: &str, left: String, right: String| {
        if left != right {
            diff.add(|| format!("{path}: {name} {left} | {right}"));
        }
    };
    field("type", format!("{:?}", a.kind), format!("{:?}", b.kind));
    field("mode", a.mode.clone(), b.mode.clone());
    field("uid", a.uid.to_string(), b.uid.to_string());
    field("gid", a.gid.to_string(), b.gid.to_string());
    if a.kind != Kind::Dir || look.dir_shape {
        field("size", a.size.to_string(), b.size.to_string());
        field("nlink", a.nlink.to_string(), b.nlink.to_string());
    }
    field("rdev", format!("{:?}", a.rdev), format!("{:?}", b.rdev));
    field("target", format!("{:?}", a.target), format!("{:?}", b.target));
    if a.error.is_some() != b.error.is_some() {
        field("error", format!("{:?}", a.error), format!("{:?}", b.error));
    }
    if look.xattrs {
        for name in a.xattrs.keys().chain(b.xattrs.keys()).collect::<BTreeSet<_>>() {
            let show = |e: &Entry| match e.xattrs.get(name) {
                Some(v) if v.len() > 64 => format!("{}… ({} characters)", &v[..60], v.len()),
                other => format!("{other:?}"),
            };
            if a.xattrs.get(name) != b.xattrs.get(name) {
                field(&format!("xattr {name}"), show(a), show(b));
            }
        }
    }
    let hash = |e: &Entry| e.sha256.clone().or_else(|| e.sha256_nonzero.clone());
    if let (Some(a), Some(b)) = (hash(a), hash(b)) {
        field("content", a, b);
    }
    if look.ino {
        field("ino", a.ino.to_string(), b.ino.to_string());
    }
    let mut time = |name: &str, left: Option<super::Time>, right: Option<super::Time>| {
        let (Some(left), Some(right)) = (left, right) else { return };
        if a.kind == Kind::Dir && !look.dir_times {
            return;
        }
        let show = |t: super::Time| {
            if look.nanoseconds { format!("{}.{:09}", t.sec, t.nsec) } else { t.sec.to_string() }
        };
        field(name, show(left), show(right));
    };
    if look.mtime {
        time("mtime", Some(a.mtime), Some(b.mtime));
    }
    if look.other_times {
        time("atime", a.atime, b.atime);
        time("ctime", a.ctime, b.ctime);
        time("crtime", a.crtime, b.crtime);
    }
    let mut number = |on: bool, name: &str, left: Option<u64>, right: Option<u64>| {
        if let (true, Some(left), Some(right)) = (on, left, right) {
            field(name, left.to_string(), right.to_string());
        }
    };
    number(look.blocks, "blocks", a.blocks, b.blocks);
    number(look.flags, "project", a.project.map(u64::from), b.project.map(u64::from));
    if let (true, Some(left), Some(right)) = (look.flags, a.flags, b.flags) {
        let hidden = if a.kind == Kind::File { PROJECT_INHERIT } else { 0 };
        let show = |flags| format!("{:#x}", flags & USER_VISIBLE & !hidden);
        field("flags", show(left), show(right));
    }
}
