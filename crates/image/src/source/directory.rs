//! A directory of this machine as a source: listed by several threads first, its files read later.
//!
//! ```text
//!   queue of directories            one part per thread                     assemble
//!   ┌─────┬─────┬───┐  open,       ┌───────────────────────────────┐
//!   │ /usr│ /etc│ … │  getdents,   │ found: name, kind, meta, …    │
//!   └─────┴─────┴───┘  statx,  ──► │ lists: directory → found[a..b]│  ──►  Tree
//!      ▲               xattrs      │ text, attribute sets, ranges  │
//!      └── directories found ──────└───────────────────────────────┘
//! ```
//!
//! Threads take directories in any order. Each directory is sorted by name, and the assembly
//! visits the directories in order, so timing has no influence on the tree.

mod place;
mod walk;

use super::SourceOptions;
use super::holes::data_ranges;
use crate::draft::{Assembly, assemble};
use crate::entry::{DataRange, Kind, Meta, Text, Time, Xattr, is_storable_xattr};
use crate::error::SourceError;
use crate::tree::{HostDir, HostRoot, Tree, index};
use extant::{Phase, Progress};
use extant_base::narrow::len_u16;
use hashbrown::HashMap;
use parking_lot::{Condvar, Mutex};
use place::Place;
use rustix::fd::{AsFd, AsRawFd, BorrowedFd, OwnedFd};
use rustix::fs::{
    Access, AtFlags, CWD, Mode, OFlags, RawDir, Statx, StatxFlags, accessat, lgetxattr, llistxattr,
    openat, readlinkat_raw, statx,
};
use rustix::io::Errno;
use std::cell::{Cell, RefCell};
use std::ffi::{CStr, OsStr};
use std::mem::MaybeUninit;
use std::os::unix::ffi::OsStrExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicUsize, Ordering::Relaxed};
use walk::Walk;

/// Lists the directory `path` and everything below it.
pub(crate) fn read_directory(
    path: &Path,
    options: &SourceOptions,
    progress: &dyn Progress,
) -> Result<Tree, SourceError> {
    let flags = OFlags::RDONLY | OFlags::DIRECTORY | OFlags::CLOEXEC;
    let root = openat(CWD, path, flags, Mode::empty())
        .map_err(|e| SourceError::io("open directory", path, e.into()))?;
    let scan = Scan::new(path, root, options, progress)?;
    let threads = options.thread_count();
    let parts = std::thread::scope(|scope| {
        let workers: Vec<_> =
            (0..threads).map(|_| scope.spawn(|| Worker::new(&scan).run())).collect();
        workers.into_iter().map(|w| w.join().expect("a walker does not panic")).collect()
    });
    scan.into_tree(parts)
}

/// A directory waiting to be listed.
struct Job {
    id: u32,
    place: Arc<Place>,
}

struct Queue {
    jobs: Vec<Job>,
    /// The number of threads that are listing a directory and may add more.
    busy: usize,
    failed: Option<SourceError>,
}

/// The data that all threads of one listing share.
struct Scan<'a> {
    options: &'a SourceOptions,
    progress: &'a dyn Progress,
    path: PathBuf,
    root: OwnedFd,
    device: (u32, u32),
    /// Whether to check that files are readable, because this process is not the superuser.
    check_access: bool,
    queue: Mutex<Queue>,
    wake: Condvar,
    next_dir: AtomicU32,
    /// The number of directories that are held open for those below them.
    held: Arc<AtomicUsize>,
    problems: Mutex<Vec<SourceError>>,
    top: Found,
    top_xattrs: Arc<[Xattr]>,
}

/// The names that one thread has listed.
#[derive(Default)]
struct Part {
    found: Vec<Found>,
    /// For each listed directory: its id, the index of its first name in `found`, and the count.
    lists: Vec<(u32, u32, u32)>,
    text: Vec<u8>,
    sets: Vec<Arc<[Xattr]>>,
    ranges: Vec<DataRange>,
}

/// One listed name. Its text and attribute set are in the same part.
#[derive(Clone, Copy)]
struct Found {
    /// The directory that holds the name.
    dir: u32,
    name: Text,
    kind: FoundKind,
    meta: Meta,
    ino: u64,
    device: (u32, u32),
    /// Whether the file has other names, in this source or elsewhere.
    linked: bool,
    xattrs: u32,
}

#[derive(Clone, Copy)]
enum FoundKind {
    Directory(u32),
    File { size: u64, ranges: Option<(u32, u32)> },
    Symlink(Text),
    Other(Kind),
}

impl<'a> Scan<'a> {
    fn new(
        path: &Path,
        root: OwnedFd,
        options: &'a SourceOptions,
        progress: &'a dyn Progress,
    ) -> Result<Scan<'a>, SourceError> {
        let stat = statx(&root, c"", AtFlags::EMPTY_PATH, StatxFlags::BASIC_STATS)
            .map_err(|e| SourceError::io("stat", path, e.into()))?;
        let kind = FoundKind::Directory(0);
        let top = Found::new(0, Text::default(), kind, &stat);
        let queue =
            Queue { jobs: vec![Job { id: 0, place: Place::root() }], busy: 0, failed: None };
        let mut scan = Scan {
            options,
            progress,
            path: path.to_owned(),
            root,
            device: (stat.stx_dev_major, stat.stx_dev_minor),
            check_access: !rustix::process::geteuid().is_root(),
            queue: Mutex::new(queue),
            wake: Condvar::new(),
            next_dir: AtomicU32::new(1),
            held: Arc::default(),
            problems: Mutex::new(Vec::new()),
            top,
            top_xattrs: Arc::from([]),
        };
        let mut worker = Worker::new(&scan);
        let set = worker.xattrs(scan.root.as_fd(), &Place::root(), c".")?;
        let set = worker.part.sets[set as usize].clone();
        scan.top_xattrs = set;
        Ok(scan)
    }

    /// The next directory, or `None` when all are listed or a thread has failed.
    fn take(&self, was_busy: bool) -> Option<Job> {
        let mut queue = self.queue.lock();
        if was_busy {
            queue.busy -= 1;
        }
        loop {
            if queue.failed.is_some() {
                self.wake.notify_all();
                return None;
            }
            if let Some(job) = queue.jobs.pop() {
                queue.busy += 1;
                return Some(job);
            }
            if queue.busy == 0 {
                self.wake.notify_all();
                return None;
            }
            self.wake.wait(&mut queue);
        }
    }

    fn add(&self, jobs: &mut Vec<Job>) {
        if jobs.is_empty() {
            return;
        }
        self.queue.lock().jobs.append(jobs);
        self.wake.notify_all();
    }

    fn fail(&self, error: SourceError) {
        self.queue.lock().failed.get_or_insert(error);
        self.wake.notify_all();
    }

    fn into_tree(self, parts: Vec<Part>) -> Result<Tree, SourceError> {
        if let Some(error) = self.queue.into_inner().failed {
            return Err(error);
        }
        let mut lists = vec![(0, 0, 0); self.next_dir.into_inner() as usize];
        for (number, part) in parts.iter().enumerate() {
            for &(dir, first, count) in &part.lists {
                lists[dir as usize] = (number, first, count);
            }
        }
        let mut assembly = Assembly::new(Tree::bare());
        let tree = &mut assembly.tree;
        tree.keep_going = self.options.keep_going;
        tree.problems = self.problems;
        tree.roots.push(HostRoot { path: self.path, fd: Arc::new(self.root) });
        tree.host_dirs.push(HostDir { root: 0, parent: 0, name: Text::default() });
        let names: usize = parts.iter().map(|p| p.found.len()).sum();
        tree.nodes.reserve_exact(names + 1);
        tree.entries.reserve_exact(names);
        tree.host_files.reserve(names / 2);
        tree.text.reserve(parts.iter().map(|p| p.text.len()).sum());
        let host_dirs = lists.iter().map(|_| Cell::new(0)).collect();
        let sets = parts.iter().map(|p| RefCell::new(vec![u32::MAX; p.sets.len()])).collect();
        let (top, top_xattrs) = (self.top, self.top_xattrs);
        let walk = Walk { parts, lists, top, top_xattrs, host_dirs, sets };
        assemble(&walk, &mut assembly)?;
        Ok(assembly.tree)
    }
}

impl Found {
    fn new(dir: u32, name: Text, kind: FoundKind, stat: &Statx) -> Found {
        let mtime = Time { sec: stat.stx_mtime.tv_sec, nsec: stat.stx_mtime.tv_nsec };
        Found {
            dir,
            name,
            kind,
            meta: Meta {
                mode: stat.stx_mode & 0o7777,
                uid: stat.stx_uid,
                gid: stat.stx_gid,
                mtime,
            },
            ino: stat.stx_ino,
            device: (stat.stx_dev_major, stat.stx_dev_minor),
            linked: stat.stx_nlink > 1 && !matches!(kind, FoundKind::Directory(_)),
            xattrs: 0,
        }
    }
}

/// One thread of a listing, with its buffers.
struct Worker<'s> {
    scan: &'s Scan<'s>,
    part: Part,
    sets: HashMap<Arc<[Xattr]>, u32>,
    listing: Vec<MaybeUninit<u8>>,
    names: Vec<u8>,
    jobs: Vec<Job>,
    /// The path of the current directory below the root, for excludes and for attributes by path.
    /// Empty where the path is too long for a system call and there are no excludes.
    dir_path: Vec<u8>,
    path: Vec<u8>,
    attr_names: Vec<u8>,
    attr_value: Vec<u8>,
}

/// The most bytes of a path in one system call; the kernel's `PATH_MAX` is 4096.
const PATH_SHORT: usize = 4000;
/// On Linux, an attribute's value and a list of attribute names have at most 64 KiB.
const XATTR_MAX: usize = 65536;

impl<'s> Worker<'s> {
    fn new(scan: &'s Scan<'s>) -> Worker<'s> {
        let empty: Arc<[Xattr]> = Arc::from([]);
        Worker {
            scan,
            part: Part { sets: vec![empty.clone()], ..Part::default() },
            sets: HashMap::from([(empty, 0)]),
            listing: vec![MaybeUninit::uninit(); 64 << 10],
            names: Vec::new(),
            jobs: Vec::new(),
            dir_path: Vec::new(),
            path: Vec::new(),
            attr_names: vec![0; XATTR_MAX],
            attr_value: vec![0; XATTR_MAX],
        }
    }

    fn run(mut self) -> Part {
        let mut busy = false;
        while let Some(job) = self.scan.take(busy) {
            busy = true;
            if let Err(error) = self.list(&job) {
                self.scan.fail(error);
            }
            let mut jobs = std::mem::take(&mut self.jobs);
            self.scan.add(&mut jobs);
            self.jobs = jobs;
        }
        self.part
    }

    /// With `keep_going`, records an error so that the listing continues.
    fn survive(&self, error: SourceError) -> Result<(), SourceError> {
        if !self.scan.options.keep_going {
            return Err(error);
        }
        self.scan.problems.lock().push(error);
        Ok(())
    }

    fn shown(&self, place: &Place, name: &CStr) -> PathBuf {
        let name = OsStr::from_bytes(name.to_bytes());
        self.scan.path.join(OsStr::from_bytes(&place.path())).join(name)
    }

    /// Lists one directory.
    fn list(&mut self, job: &Job) -> Result<(), SourceError> {
        let flags = OFlags::RDONLY | OFlags::DIRECTORY;
        let fd = match job.place.open(&self.scan.root, flags) {
            Ok(fd) => fd,
            Err(e) => {
                let path = self.scan.path.join(OsStr::from_bytes(&job.place.path()));
                return self.survive(broken("open directory", path, e));
            }
        };
        self.dir_path.clear();
        if job.place.path_len < PATH_SHORT || !self.scan.options.excludes.is_empty() {
            self.dir_path = job.place.path();
        }
        let mut names = std::mem::take(&mut self.names);
        names.clear();
        let mut places: Vec<(u64, u32)> = Vec::new();
        let mut listing = RawDir::new(&fd, &mut self.listing);
        let mut failed = None;
        while let Some(entry) = listing.next() {
            match entry {
                Ok(entry) => {
                    let name = entry.file_name().to_bytes();
                    if name != b"." && name != b".." {
                        places.push((entry.ino(), index(names.len())?));
                        names.extend_from_slice(entry.file_name().to_bytes_with_nul());
                    }
                }
                Err(e) => {
                    failed = Some(e);
                    break;
                }
            }
        }
        if let Some(e) = failed {
            let path = self.scan.path.join(OsStr::from_bytes(&job.place.path()));
            self.survive(broken("list directory", path, e))?;
        }
        // Inode order: with a cold cache, the inode tables are read once and in ascending order.
        places.sort_unstable();
        let first = self.part.found.len();
        let mut bytes = 0u64;
        for &(_, at) in &places {
            let name = CStr::from_bytes_until_nul(&names[at as usize..])
                .expect("each name was stored with its NUL");
            match self.look(job, fd.as_fd(), name) {
                Ok(Some(found)) => {
                    if let FoundKind::File { size, .. } = found.kind {
                        bytes += size;
                    }
                    self.part.found.push(found);
                }
                Ok(None) => {}
                Err(error) => self.survive(error)?,
            }
        }
        self.names = names;
        if self.jobs.iter().any(|below| Arc::ptr_eq(&job.place, below.place.above())) {
            job.place.hold(fd, &self.scan.held);
        }
        let text = &self.part.text;
        let name = |f: &Found| &text[f.name.at as usize..][..f.name.len as usize];
        self.part.found[first..].sort_unstable_by(|a, b| name(a).cmp(name(b)));
        // A directory that changes while it is listed may return a name twice.
        let mut last: Option<Vec<u8>> = None;
        let listed = &self.part.found[first..];
        if listed.windows(2).any(|w| name(&w[0]) == name(&w[1])) {
            let mut kept = Vec::new();
            for found in listed {
                if last.as_deref() != Some(name(found)) {
                    last = Some(name(found).to_vec());
                    kept.push(*found);
                }
            }
            self.part.found.truncate(first);
            self.part.found.extend(kept);
        }
        let count = index(self.part.found.len())? - index(first)?;
        self.part.lists.push((job.id, index(first)?, count));
        self.scan.progress.advance(Phase::BuildList, count.into());
        self.scan.progress.advance(Phase::BuildRead, bytes);
        Ok(())
    }

    /// Examines one name. `None` if it is left out.
    fn look(
        &mut self,
        job: &Job,
        dir: BorrowedFd<'_>,
        name: &CStr,
    ) -> Result<Option<Found>, SourceError> {
        let scan = self.scan;
        let flags = AtFlags::SYMLINK_NOFOLLOW | AtFlags::NO_AUTOMOUNT;
        let stat = statx(dir, name, flags, StatxFlags::BASIC_STATS)
            .map_err(|e| broken("stat", self.shown(&job.place, name), e))?;
        let device = (stat.stx_dev_major, stat.stx_dev_minor);
        if scan.options.skips(device, stat.stx_ino) {
            return Ok(None);
        }
        let is_directory = stat.stx_mode & 0o170000 == 0o040000;
        if !scan.options.excludes.is_empty() {
            self.path.clear();
            self.path.extend_from_slice(&self.dir_path);
            if !self.dir_path.is_empty() {
                self.path.push(b'/');
            }
            self.path.extend_from_slice(name.to_bytes());
            if scan.options.leaves_out(&self.path, is_directory) {
                return Ok(None);
            }
        }
        let kind = match stat.stx_mode & 0o170000 {
            0o040000 => {
                let id = scan.next_dir.fetch_add(1, Relaxed);
                if !scan.options.one_file_system || device == scan.device {
                    self.jobs.push(Job { id, place: job.place.below(name.to_bytes()) });
                }
                FoundKind::Directory(id)
            }
            0o100000 => {
                let ranges = self.data_ranges(job, dir, name, &stat)?;
                FoundKind::File { size: stat.stx_size, ranges }
            }
            0o120000 => {
                let mut target = [MaybeUninit::<u8>::uninit(); 4097];
                let (target, _) = readlinkat_raw(dir, name, target.as_mut_slice())
                    .map_err(|e| broken("read link", self.shown(&job.place, name), e))?;
                let target = target.to_vec();
                FoundKind::Symlink(self.text(&target)?)
            }
            0o020000 => {
                let (major, minor) = (stat.stx_rdev_major, stat.stx_rdev_minor);
                FoundKind::Other(Kind::CharDevice { major, minor })
            }
            0o060000 => {
                let (major, minor) = (stat.stx_rdev_major, stat.stx_rdev_minor);
                FoundKind::Other(Kind::BlockDevice { major, minor })
            }
            0o010000 => FoundKind::Other(Kind::Fifo),
            0o140000 => FoundKind::Other(Kind::Socket),
            _ => {
                let path = self.shown(&job.place, name);
                return Err(SourceError::source(path, "its file type is not known: exclude it"));
            }
        };
        let xattrs = self.xattrs(dir, &job.place, name)?;
        let name = self.text(name.to_bytes())?;
        let mut found = Found::new(job.id, name, kind, &stat);
        found.xattrs = xattrs;
        Ok(Some(found))
    }

    fn text(&mut self, bytes: &[u8]) -> Result<Text, SourceError> {
        let at = index(self.part.text.len())?;
        self.part.text.extend_from_slice(bytes);
        Ok(Text { at, len: len_u16(bytes.len()) })
    }

    /// The data ranges of a file that has fewer blocks than bytes; `None` if all of it is data.
    fn data_ranges(
        &mut self,
        job: &Job,
        dir: BorrowedFd<'_>,
        name: &CStr,
        stat: &Statx,
    ) -> Result<Option<(u32, u32)>, SourceError> {
        let size = stat.stx_size;
        let sparse = stat.stx_blocks.saturating_mul(512) < size;
        if self.scan.check_access && stat.stx_mode & 0o444 != 0o444 && size > 0 && !sparse {
            accessat(dir, name, Access::READ_OK, AtFlags::EACCESS)
                .map_err(|e| broken("read", self.shown(&job.place, name), e))?;
        }
        if !sparse {
            return Ok(None);
        }
        let flags = OFlags::RDONLY | OFlags::NOFOLLOW | OFlags::CLOEXEC | OFlags::NONBLOCK;
        let file = openat(dir, name, flags, Mode::empty())
            .map_err(|e| broken("open", self.shown(&job.place, name), e))?;
        let first = self.part.ranges.len();
        let is_known = data_ranges(&file, size, &mut |offset, len| {
            self.part.ranges.push(DataRange { offset, len, stored: 0 });
        });
        if !is_known {
            self.part.ranges.truncate(first);
            return Ok(None);
        }
        let found = &self.part.ranges[first..];
        if matches!(found, [only] if only.offset == 0 && only.len == size) {
            self.part.ranges.truncate(first);
            return Ok(None);
        }
        Ok(Some((index(first)?, index(found.len())?)))
    }

    /// Reads the attributes of a name. Returns the index of their set in this part.
    ///
    /// Most kernels have no call for attributes relative to a directory descriptor. So this uses
    /// the path: the plain one where it is short enough, else one through /proc.
    fn xattrs(
        &mut self,
        dir: BorrowedFd<'_>,
        place: &Place,
        name: &CStr,
    ) -> Result<u32, SourceError> {
        let root = self.scan.path.as_os_str().as_bytes();
        self.path.clear();
        if root.len() + place.path_len + name.to_bytes().len() < PATH_SHORT {
            self.path.extend_from_slice(root);
            self.path.push(b'/');
            self.path.extend_from_slice(&self.dir_path);
        } else {
            self.path.extend_from_slice(format!("/proc/self/fd/{}", dir.as_raw_fd()).as_bytes());
        }
        self.path.push(b'/');
        self.path.extend_from_slice(name.to_bytes_with_nul());
        let path = CStr::from_bytes_until_nul(&self.path).expect("the name ends in NUL");
        let len = match llistxattr(path, self.attr_names.as_mut_slice()) {
            Ok(0) => return Ok(0),
            Ok(len) => len,
            // Kernel filesystems without attributes, and short-lived names in /proc.
            Err(Errno::NOTSUP | Errno::NOSYS) => return Ok(0),
            Err(e) => return Err(broken("list attributes of", self.shown(place, name), e)),
        };
        let mut set = Vec::new();
        for attr in self.attr_names[..len].split_inclusive(|&b| b == 0) {
            let Ok(attr) = CStr::from_bytes_with_nul(attr) else { continue };
            if !is_storable_xattr(attr.to_bytes()) {
                continue;
            }
            let len = match lgetxattr(path, attr, self.attr_value.as_mut_slice()) {
                Ok(len) => len,
                Err(Errno::NODATA) => continue,
                Err(e) => return Err(broken("read attributes of", self.shown(place, name), e)),
            };
            set.push(Xattr { name: attr.to_bytes().into(), value: self.attr_value[..len].into() });
        }
        if set.is_empty() {
            return Ok(0);
        }
        set.sort_unstable();
        let set: Arc<[Xattr]> = set.into();
        if let Some(&id) = self.sets.get(&set) {
            return Ok(id);
        }
        let id = index(self.part.sets.len())?;
        self.part.sets.push(set.clone());
        self.sets.insert(set, id);
        Ok(id)
    }
}

fn broken(action: &'static str, path: PathBuf, e: Errno) -> SourceError {
    match e {
        Errno::NOENT => SourceError::Changed { path, change: "vanished" },
        e => SourceError::io(action, path, e.into()),
    }
}

#[cfg(test)]
mod tests;
