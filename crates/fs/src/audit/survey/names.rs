//! The tree of names, and the inodes of these names.
//!
//! ```text
//!   queue ── directory ──► names ──► inode, the first time it is found ──► counted, mapped, listed
//!     ▲                      └────── a directory: into the queue
//!     └── every 1024 names of a large one, while other threads are idle
//!
//!   Dir ──parent──► Dir        counts of a subtree are added up when all of it was read
//! ```
//!
//! Each directory is entered once, and all maps together may contain every block of the volume
//! twice. Damage can neither cause an endless walk nor multiply the work.

use super::cells::{Cells, Content};
use super::queue::Queue;
use super::top::Top;
use super::{DirRow, FileRow, Files, Options, Problems, merge, put};
use crate::api::filesystem::Filesystem;
use crate::inodes::file::FileRef;
use crate::inodes::lookup::Lookup;
use crate::inodes::map::used::Used;
use crate::progress::{Phase, Progress};
use crate::state::inode::Body;
use crate::volume::Volume;
use extant_base::{Error, Ino, Result, Site, What};
use extant_ondisk::features::{Compat, RoCompat};
use extant_ondisk::inode::FileKind;
use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::sync::{Arc, OnceLock};

/// How many names are given to another thread at once.
const BATCH: usize = 1024;
/// Inodes between two reports of progress.
const REPORTED_AT_ONCE: u64 = 256;
/// Paths up to this length, in bytes, are reported whole; of a longer one, this much from both
/// ends.
const PATH_MAX: usize = 64 << 10;
/// The text that replaces the middle of a longer path.
const CUT: &[u8] = b"[...]";
/// How many inodes' bits are allocated together.
const PART: usize = 4096;

/// The results of one thread.
pub(super) struct NamesFound {
    pub(super) files: Files,
    largest_files: Top<(Place, FileRow)>,
    most_pieces: Top<(Place, FileRow)>,
    largest_dirs: Top<(Place, DirRow)>,
    fullest_dirs: Top<(Place, DirRow)>,
    pub(super) problems: Problems,
}

/// The rows of the four lists, with their paths.
pub(super) struct Rows {
    pub(super) largest_files: Vec<FileRow>,
    pub(super) most_pieces: Vec<FileRow>,
    pub(super) largest_dirs: Vec<DirRow>,
    pub(super) fullest_dirs: Vec<DirRow>,
}

/// The location of a row. The path is built only for the final rows: in a deep tree, each directory
/// on the path up is the largest so far for a while.
#[derive(Debug)]
struct Place {
    dir: Arc<Dir>,
    name: Option<Vec<u8>>,
}

impl Place {
    fn new(dir: &Arc<Dir>, name: Option<&[u8]>) -> Place {
        Place { dir: Arc::clone(dir), name: name.map(<[u8]>::to_vec) }
    }

    fn path(&self) -> PathBuf {
        self.dir.path(self.name.as_deref())
    }
}

/// A directory that is being read, until everything below it was read.
#[derive(Debug)]
struct Dir {
    parent: Option<Arc<Dir>>,
    name: Vec<u8>,
    ino: Ino,
    names: AtomicU64,
    below: AtomicU64,
    blocks: AtomicU64,
    /// How many parts are unfinished: reading its own names, batches given to other threads,
    /// directories below.
    open: AtomicU64,
}

enum Task {
    List(Arc<Dir>),
    Count(Arc<Dir>, Vec<(Vec<u8>, Ino)>),
}

/// One bit per inode: whether it was found.
struct SeenInodes(Box<[OnceLock<Box<[AtomicU64]>>]>);

impl SeenInodes {
    fn new(inodes: u32) -> Result<SeenInodes> {
        let mut parts = Vec::new();
        let count = (inodes as usize).div_ceil(PART);
        parts.try_reserve_exact(count).map_err(|_| Error::NoMemory)?;
        parts.resize_with(count, OnceLock::new);
        Ok(SeenInodes(parts.into_boxed_slice()))
    }

    /// Whether `ino` is found for the first time. Always true for a number that the volume does not
    /// have.
    fn is_new(&self, ino: Ino) -> bool {
        let n = ino.get() as usize - 1;
        let Some(part) = self.0.get(n / PART) else { return true };
        let words = part.get_or_init(|| (0..PART / 64).map(|_| AtomicU64::new(0)).collect());
        let bit = 1 << (n % 64);
        words[n % PART / 64].fetch_or(bit, Relaxed) & bit == 0
    }
}

struct Walk<'a> {
    fs: &'a Filesystem,
    cells: &'a Cells,
    options: &'a Options,
    progress: &'a dyn Progress,
    queue: Queue<Task>,
    seen: SeenInodes,
    inodes_seen: AtomicU64,
    /// How many more blocks maps may contain.
    budget: &'a AtomicU64,
}

/// The size of a map.
#[derive(Clone, Copy, Default)]
struct Mapped {
    data: u64,
    nodes: u64,
    pieces: u64,
}

/// Counts the tree from the root.
pub(super) fn survey(
    fs: &Filesystem,
    cells: &Cells,
    options: &Options,
    progress: &dyn Progress,
) -> Result<NamesFound> {
    let volume = fs.volume();
    let sb = fs.superblock();
    let inodes_used = sb.inodes_count.saturating_sub(sb.free_inodes);
    progress.begin(Phase::SurveyNames, inodes_used.into());
    let root = Arc::new(Dir::new(None, Vec::new(), Ino::ROOT));
    let walk = Walk {
        fs,
        cells,
        options,
        progress,
        queue: Queue::new(Task::List(Arc::clone(&root)), options.threads),
        seen: SeenInodes::new(volume.geometry().inodes_count())?,
        inodes_seen: AtomicU64::new(0),
        budget: &AtomicU64::new(budget(volume)),
    };
    let mut all = NamesFound::new(options.top);
    walk.count_root(&root, &mut all);
    drop(root);
    let others: Vec<NamesFound> = std::thread::scope(|scope| {
        let run = || walk.run();
        let threads: Vec<_> = (1..options.threads).map(|_| scope.spawn(run)).collect();
        let mut found = vec![walk.run()];
        for thread in threads {
            match thread.join() {
                Ok(part) => found.push(part),
                Err(panic) => std::panic::resume_unwind(panic),
            }
        }
        found
    });
    for found in others {
        all.merge(options.problems, found);
    }
    Ok(all)
}

/// Twice the volume's blocks: shared blocks are damage, but the survey shows them.
fn budget(volume: &Volume) -> u64 {
    volume.geometry().blocks_count().saturating_mul(2)
}

/// Counts the blocks of the journal and of other internal files.
pub(super) fn own_files(fs: &Filesystem, cells: &Cells, options: &Options) -> Problems {
    let volume = fs.volume();
    let sb = fs.superblock();
    let budget = AtomicU64::new(budget(volume));
    let mut problems = Problems::default();
    let quotas = [sb.usr_quota_inum, sb.grp_quota_inum, sb.prj_quota_inum].into_iter();
    let quotas = quotas.filter(|_| sb.features.ro_compat.contains(RoCompat::QUOTA));
    let orphans = sb.features.compat.contains(Compat::ORPHAN_FILE).then_some(sb.orphan_file_inum);
    let checksum_file = volume.data_checksums().has_data_csum().then_some(Ino::CHECKSUM_FILE.get());
    let journal = sb.has_journal().then_some(sb.journal_inum);
    for ino in
        journal.into_iter().chain(quotas).chain(orphans).chain(checksum_file).filter_map(Ino::new)
    {
        let content = match sb.has_journal() && ino.get() == sb.journal_inum {
            true => Content::Journal,
            false => Content::Metadata,
        };
        let mapped = volume.context().recording_errors(|| {
            let body = volume.inodes().peek(ino, Lookup::Internal)?;
            match volume.file(&body).has_map() {
                true => {
                    blocks_of(volume, cells, &budget, ino, &body, content, &mut Mapped::default())
                }
                false => Ok(()),
            }
        });
        if let Err(error) = mapped {
            problems.add(options.problems, || None, error);
        }
    }
    // The resize inode maps the blocks that are reserved for more descriptors. They are counted as
    // metadata of their groups; the double-indirect block at the root of this map is elsewhere.
    if sb.features.compat.contains(Compat::RESIZE_INODE)
        && let Ok(body) = volume.inodes().peek(Ino::RESIZE, Lookup::Internal)
    {
        let root = body.disk.i_block[52..56].try_into().expect("a pointer is four bytes");
        let root = u64::from(u32::from_le_bytes(root));
        cells.add(Content::Metadata, root..root + u64::from(root > 0));
    }
    problems
}

/// Counts the blocks of an inode's map, as far as the map can be read.
fn blocks_of(
    volume: &Volume,
    cells: &Cells,
    budget: &AtomicU64,
    ino: Ino,
    body: &Body,
    content: Content,
    mapped: &mut Mapped,
) -> Result<()> {
    let mut after = None;
    volume.file(body).each_block(&mut |used| {
        let (start, len) = match used {
            Used::Node(block) => (block.0, 1),
            Used::Data { start, len, .. } => (start.0, u64::from(len)),
        };
        let spend = |left: u64| Some(left.saturating_sub(len));
        if budget.fetch_update(Relaxed, Relaxed, spend).is_ok_and(|left| left < len) {
            return Err(Site::of_ino(ino).corrupt(What::InodeBlocks));
        }
        match used {
            Used::Node(_) => mapped.nodes += 1,
            Used::Data { .. } => {
                mapped.pieces += u64::from(after != Some(start));
                after = Some(start + len);
                mapped.data += len;
            }
        }
        cells.add(content, start..start + len);
        Ok(())
    })
}

/// Drops a chain of directories in a loop: recursive drops of a deep tree would overflow the stack.
impl Drop for Dir {
    fn drop(&mut self) {
        let mut above = self.parent.take();
        while let Some(mut dir) = above.and_then(Arc::into_inner) {
            above = dir.parent.take();
        }
    }
}

impl Dir {
    fn new(parent: Option<Arc<Dir>>, name: Vec<u8>, ino: Ino) -> Dir {
        let zero = || AtomicU64::new(0);
        let (names, below, blocks) = (zero(), zero(), zero());
        Dir { parent, name, ino, names, below, blocks, open: AtomicU64::new(1) }
    }

    /// The path of `name` in this directory, or of the directory itself. If it is longer than
    /// [`PATH_MAX`], only both ends.
    fn path(&self, name: Option<&[u8]>) -> PathBuf {
        let mut parts: Vec<&[u8]> = name.into_iter().collect();
        let mut at = Some(self);
        while let Some(dir) = at {
            parts.push(&dir.name);
            at = dir.parent.as_deref();
        }
        // The root's name is empty, so the path starts with a slash.
        parts.reverse();
        let mut path = match parts.len() {
            1 => b"/".to_vec(),
            _ => parts.join(&b'/'),
        };
        if path.len() > PATH_MAX {
            let middle = PATH_MAX / 2..path.len() - PATH_MAX / 2;
            path.splice(middle, CUT.iter().copied());
        }
        PathBuf::from(OsString::from_vec(path))
    }
}

impl Walk<'_> {
    fn run(&self) -> NamesFound {
        let mut found = NamesFound::new(self.options.top);
        let mut worker = self.queue.worker();
        while let Some(task) = worker.take() {
            let dir = match task {
                Task::List(dir) => {
                    self.list(&dir, &mut found);
                    dir
                }
                Task::Count(dir, names) => {
                    self.count_names(&dir, names, &mut found);
                    dir
                }
            };
            self.done(dir, &mut found);
        }
        found
    }

    fn count_root(&self, root: &Arc<Dir>, found: &mut NamesFound) {
        self.seen.is_new(Ino::ROOT);
        // Listing the root reports the same damage, so the error is dropped.
        let _ = self.count_inode(root, None, Ino::ROOT, found);
    }

    /// Reads the names of a directory.
    fn list(&self, dir: &Arc<Dir>, found: &mut NamesFound) {
        let problem = |found: &mut NamesFound, error| {
            found.problems.add(self.options.problems, || Some(dir.path(None)), error);
        };
        let names = match self.fs.node_of_ino(dir.ino).and_then(|node| node.read_dir()) {
            Ok(names) => names,
            Err(error) => return problem(found, error),
        };
        let mut batch = Vec::new();
        for entry in names {
            match entry {
                Ok(entry) => {
                    found.files.names += 1;
                    dir.names.fetch_add(1, Relaxed);
                    batch.push((entry.name_bytes().to_vec(), entry.ino()));
                }
                Err(error) => problem(found, error),
            }
            if batch.len() == BATCH {
                let names = std::mem::take(&mut batch);
                if self.options.threads > 1 && self.queue.is_short() {
                    dir.open.fetch_add(1, Relaxed);
                    self.queue.put(Task::Count(Arc::clone(dir), names));
                } else {
                    self.count_names(dir, names, found);
                }
            }
        }
        self.count_names(dir, batch, found);
    }

    fn count_names(&self, dir: &Arc<Dir>, names: Vec<(Vec<u8>, Ino)>, found: &mut NamesFound) {
        for (name, ino) in names {
            // A further name of an inode that was found before. For a directory that is damage,
            // reported below.
            if !self.seen.is_new(ino) {
                self.report_second_name(dir, &name, ino, found);
                continue;
            }
            match self.count_inode(dir, Some(&name), ino, found) {
                Ok(Some(blocks)) => {
                    dir.open.fetch_add(1, Relaxed);
                    let below = Dir::new(Some(Arc::clone(dir)), name, ino);
                    below.blocks.store(blocks, Relaxed);
                    self.queue.put(Task::List(Arc::new(below)));
                }
                Ok(None) => {}
                Err(error) => {
                    let path = || Some(dir.path(Some(&name)));
                    found.problems.add(self.options.problems, path, error);
                }
            }
            if (self.inodes_seen.fetch_add(1, Relaxed) + 1).is_multiple_of(REPORTED_AT_ONCE) {
                self.progress.advance(Phase::SurveyNames, REPORTED_AT_ONCE);
            }
        }
    }

    /// Reports a second name of a directory as damage.
    fn report_second_name(&self, dir: &Arc<Dir>, name: &[u8], ino: Ino, found: &mut NamesFound) {
        let volume = self.fs.volume();
        let done = volume.context().recording_errors(|| {
            match volume.inodes().peek_listed(ino)?.file_kind() {
                FileKind::Directory => Err(Site::of_ino(ino).corrupt(What::DirectoryLoop)),
                _ => Ok(()),
            }
        });
        if let Err(error) = done {
            found.problems.add(self.options.problems, || Some(dir.path(Some(name))), error);
        }
    }

    /// Counts the inode of `name` in `dir`, or of `dir` itself without a name. Returns its blocks
    /// if it is a directory to enter.
    fn count_inode(
        &self,
        dir: &Arc<Dir>,
        name: Option<&[u8]>,
        ino: Ino,
        found: &mut NamesFound,
    ) -> Result<Option<u64>> {
        let volume = self.fs.volume();
        // Another thread may have the inode open and change it, so the rest is done under its lock.
        let kept = volume.inode_table().find(ino);
        let held = kept.as_ref().map(|inode| inode.read());
        let peeked;
        let body: &Body = match &held {
            Some(body) => body,
            None => {
                peeked = volume.context().recording_errors(|| volume.inodes().peek_listed(ino))?;
                &peeked
            }
        };
        let kind = body.file_kind();
        let content = match kind {
            FileKind::Directory => Content::Directory,
            _ => Content::File,
        };
        let mut mapped = Mapped::default();
        let map = match volume.file(body).has_map() {
            true => blocks_of(volume, self.cells, self.budget, ino, body, content, &mut mapped),
            false => Ok(()),
        };
        let blocks = mapped.data + mapped.nodes;
        found.count(volume.file(body), mapped);
        let size = body.disk.size;
        drop(held);
        if kind == FileKind::Regular && mapped.data > 0 {
            let row = || {
                let Mapped { data: blocks, pieces, .. } = mapped;
                (Place::new(dir, name), FileRow { path: PathBuf::new(), ino, size, blocks, pieces })
            };
            found.largest_files.offer(mapped.data, ino, row);
            if mapped.pieces > 1 {
                found.most_pieces.offer(mapped.pieces, ino, row);
            }
        }
        // What is below a directory is added when all of it was read; everything else at once.
        if kind != FileKind::Directory || name.is_none() {
            dir.blocks.fetch_add(blocks, Relaxed);
        }
        if name.is_some() {
            dir.below.fetch_add(1, Relaxed);
        }
        if let Err(error) = volume.context().recording_errors(|| map) {
            found.problems.add(self.options.problems, || Some(dir.path(name)), error);
        }
        let enter = kind == FileKind::Directory && self.budget.load(Relaxed) > 0;
        Ok(enter.then_some(blocks))
    }

    /// Ends one part of `dir`. Directories that are complete now are added to their parents.
    fn done(&self, dir: Arc<Dir>, found: &mut NamesFound) {
        let mut at = Some(dir);
        // Without recursion, also in drops: trees can be as deep as paths are long.
        while let Some(dir) = at {
            if dir.open.fetch_sub(1, std::sync::atomic::Ordering::AcqRel) > 1 {
                return;
            }
            let [names, below, blocks] =
                [&dir.names, &dir.below, &dir.blocks].map(|count| count.load(Relaxed));
            let row = || {
                let row = DirRow { path: PathBuf::new(), ino: dir.ino, names, below, blocks };
                (Place::new(&dir, None), row)
            };
            found.largest_dirs.offer(blocks, dir.ino, row);
            found.fullest_dirs.offer(names, dir.ino, row);
            let parent = dir.parent.clone();
            if let Some(parent) = &parent {
                parent.below.fetch_add(below, Relaxed);
                parent.blocks.fetch_add(blocks, Relaxed);
            }
            drop(dir);
            at = parent;
        }
    }
}

impl NamesFound {
    fn new(top: usize) -> NamesFound {
        NamesFound {
            files: Files::default(),
            largest_files: Top::new(top),
            most_pieces: Top::new(top),
            largest_dirs: Top::new(top),
            fullest_dirs: Top::new(top),
            problems: Problems::default(),
        }
    }

    /// Takes the rows of the lists.
    pub(super) fn take_rows(&mut self) -> Rows {
        let take_files = |top: &mut Top<(Place, FileRow)>| {
            let rows = std::mem::replace(top, Top::new(0)).into_rows().into_iter();
            rows.map(|(place, row)| FileRow { path: place.path(), ..row }).collect()
        };
        let take_dirs = |top: &mut Top<(Place, DirRow)>| {
            let rows = std::mem::replace(top, Top::new(0)).into_rows().into_iter();
            rows.map(|(place, row)| DirRow { path: place.path(), ..row }).collect()
        };
        Rows {
            largest_files: take_files(&mut self.largest_files),
            most_pieces: take_files(&mut self.most_pieces),
            largest_dirs: take_dirs(&mut self.largest_dirs),
            fullest_dirs: take_dirs(&mut self.fullest_dirs),
        }
    }

    fn count(&mut self, file: FileRef<'_>, mapped: Mapped) {
        let files = &mut self.files;
        match file.body.file_kind() {
            FileKind::Regular => {}
            FileKind::Directory => return files.directories += 1,
            FileKind::Symlink => return files.symlinks += 1,
            _ => return files.special += 1,
        }
        files.regular += 1;
        files.bytes = files.bytes.saturating_add(file.body.disk.size);
        files.inline += u64::from(file.body.disk.has_inline_data());
        if mapped.data == 0 {
            return;
        }
        files.with_blocks += 1;
        files.data_blocks += mapped.data;
        files.pieces += mapped.pieces;
        files.fragmented += u64::from(mapped.pieces > 1);
        put(&mut files.by_pieces, mapped.pieces, mapped.data);
        if file.has_data_checksums() {
            files.covered.count += 1;
            files.covered.blocks += mapped.data;
        }
    }

    fn merge(&mut self, problems: usize, other: NamesFound) {
        let (sum, part) = (&mut self.files, other.files);
        for (sum, part) in [
            (&mut sum.regular, part.regular),
            (&mut sum.directories, part.directories),
            (&mut sum.symlinks, part.symlinks),
            (&mut sum.special, part.special),
            (&mut sum.names, part.names),
            (&mut sum.inline, part.inline),
            (&mut sum.with_blocks, part.with_blocks),
            (&mut sum.data_blocks, part.data_blocks),
            (&mut sum.pieces, part.pieces),
            (&mut sum.fragmented, part.fragmented),
            (&mut sum.covered.count, part.covered.count),
            (&mut sum.covered.blocks, part.covered.blocks),
        ] {
            *sum += part;
        }
        sum.bytes = sum.bytes.saturating_add(part.bytes);
        merge(&mut sum.by_pieces, &part.by_pieces);
        self.largest_files.merge(other.largest_files);
        self.most_pieces.merge(other.most_pieces);
        self.largest_dirs.merge(other.largest_dirs);
        self.fullest_dirs.merge(other.fullest_dirs);
        self.problems.merge(problems, other.problems);
    }
}
