//! The tree of a volume as it was at a time.
//!
//! ```text
//!   time ─► the last transaction that was committed by then
//!   root ─► its inode as of that transaction ─► its blocks ─► names ─► their inodes ─► …
//!                                               │
//!           the log's copy, or the block itself if the log has no later change of it: certain
//!           else the log's first later copy: perhaps newer, not certain
//! ```
//!
//! The log must be complete since that transaction, so that every later change of metadata is
//! known. An inode and its name did not change if the time of its last change is before that
//! transaction: then a later copy is certain, too. Content is not in the log. What is left of it is
//! determined as for deleted files, and a file that was changed since has newer content where it
//! was written.

use super::evidence::{Evidence, Source};
use super::examine;
use super::files::{PastFile, PastFiles};
use super::inodes::{self, has_name};
use super::left::Since;
use super::map::{self, Map, Run};
use super::owner::Owner;
use super::{Candidate, Options};
use crate::api::filesystem::Filesystem;
use crate::progress::Progress;
use crate::state::inode::Body;
use extant_base::{BlockNr, Ino, Result, Site, Tid};
use extant_journal::OldCommit;
use extant_ondisk::dirent::{DirBlock, DirFormat, Dirent, EntryKind, name_is_legal};
use extant_ondisk::inode::Inode as DiskInode;
use hashbrown::{HashMap, HashSet};
use rangemap::RangeSet;
use std::ffi::OsStr;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;

/// The files of a volume at an earlier time.
#[derive(Debug)]
pub struct PastTree {
    files: PastFiles,
    committed_at: u64,
    incomplete: Vec<PathBuf>,
}

impl PastTree {
    /// The files and directories, by path.
    pub fn files(&self) -> &PastFiles {
        &self.files
    }

    /// When the transaction was committed that the tree shows, in seconds since 1970. Changes after
    /// it are not in the tree, even if they are older than the time that was asked for.
    pub fn committed_at(&self) -> u64 {
        self.committed_at
    }

    /// Directories whose names of that time are not all known: a block of them was written later,
    /// and the log has no older copy.
    pub fn incomplete(&self) -> &[PathBuf] {
        &self.incomplete
    }
}

/// The tree at a time, if the log goes back so far.
#[derive(Debug)]
pub enum AsOf {
    /// The tree.
    Tree(PastTree),
    /// The log does not go back so far.
    TooEarly {
        /// The earliest time that it goes back to, in seconds since 1970; `None` if it has no
        /// transaction.
        since: Option<u64>,
    },
}

impl Filesystem {
    /// The files of the volume as they were at a time, `seconds` since 1970. Changes nothing.
    ///
    /// # Errors
    /// `Corrupt` if the journal cannot be read; `Device`.
    ///
    /// # Examples
    ///
    /// ```no_run
    /// use extant::undelete::{AsOf, Options};
    /// let fs = extant::Filesystem::open("disk.img")?;
    /// if let AsOf::Tree(tree) = fs.files_as_of(1_700_000_000, &Options::default(), &())? {
    ///     for file in tree.files().files() {
    ///         println!("{:?}: {:?}, {:?}", file.path(), file.state(), file.is_changed());
    ///     }
    /// }
    /// # Ok::<(), extant::Error>(())
    /// ```
    pub fn files_as_of(
        &self,
        seconds: u64,
        options: &Options,
        progress: &dyn Progress,
    ) -> Result<AsOf> {
        let evidence = Evidence::read(self.volume())?;
        let Some(moment) = moment(&evidence, seconds) else {
            let since = evidence.history.complete_since().map(|commit| commit.seconds);
            return Ok(AsOf::TooEarly { since });
        };
        let mut walk = Walk::new(&evidence, options, moment);
        walk.tree()?;
        let deleted = inodes::find(&evidence, options, progress)?;
        let known: HashSet<_> = walk.found.iter().map(|seen| seen.candidate.identity()).collect();
        let mut last = HashMap::new();
        let mut later = RangeSet::new();
        for candidate in &deleted.candidates {
            let is_newer = candidate.seen.is_some_and(|seen| seen.is_after(moment.tid));
            if known.contains(&candidate.identity()) {
                last.insert(candidate.identity(), candidate);
            } else if is_newer {
                later.extend(map::walk(&evidence, candidate)?.runs.iter().map(Run::blocks));
            }
        }
        let mut files = Vec::new();
        for seen in &walk.found {
            let last = last.get(&seen.candidate.identity()).copied();
            files.extend(seen.examine(&evidence, last, &later, moment.tid)?);
        }
        let count = files.len() as u64 + walk.not_kept;
        let files = PastFiles::sorted(self.clone(), files, count);
        let committed_at = moment.seconds;
        Ok(AsOf::Tree(PastTree { files, committed_at, incomplete: walk.incomplete }))
    }
}

/// The last transaction that was committed by then, in the complete part of the log.
fn moment(evidence: &Evidence<'_>, seconds: u64) -> Option<OldCommit> {
    let history = &evidence.history;
    let since = history.place(history.complete_since()?.tid);
    let commits = history.commits().iter().rev();
    let mut complete = commits.take_while(|commit| history.place(commit.tid) >= since);
    complete.find(|commit| commit.seconds <= seconds).copied()
}

/// A file or directory of the tree.
struct Seen {
    candidate: Candidate,
    paths: Vec<PathBuf>,
    is_certain: bool,
}

/// A directory to read.
struct Directory {
    body: Body,
    path: PathBuf,
    /// The path is certain.
    is_certain: bool,
    /// The inode is certain.
    is_known: bool,
}

/// An entry of a directory.
struct Entry {
    name: Vec<u8>,
    ino: Ino,
    kind: EntryKind,
    is_certain: bool,
}

struct Walk<'a> {
    evidence: &'a Evidence<'a>,
    limit: usize,
    tid: Tid,
    seconds: u64,
    found: Vec<Seen>,
    not_kept: u64,
    /// Where in `found` a number is.
    by_ino: HashMap<Ino, usize>,
    incomplete: Vec<PathBuf>,
    /// The block of an inode table that was read last.
    table: Option<(BlockNr, Source)>,
    bytes: Vec<u8>,
}

impl<'a> Walk<'a> {
    fn new(evidence: &'a Evidence<'a>, options: &Options, moment: OldCommit) -> Walk<'a> {
        Walk {
            evidence,
            limit: options.files_limit,
            tid: moment.tid,
            seconds: moment.seconds,
            found: Vec::new(),
            not_kept: 0,
            by_ino: HashMap::new(),
            incomplete: Vec::new(),
            table: None,
            bytes: evidence.block_buffer(),
        }
    }

    /// Finds everything below the root.
    fn tree(&mut self) -> Result<()> {
        let root = PathBuf::from("/");
        let Some((body, is_known)) = self.inode(Ino::ROOT)? else {
            self.incomplete.push(root);
            return Ok(());
        };
        let is_known = is_known || is_unchanged(&body, self.seconds);
        let mut left = vec![Directory { body, path: root, is_certain: true, is_known }];
        while let Some(directory) = left.pop() {
            if !self.directory(&directory, &mut left)? {
                self.incomplete.push(directory.path);
            }
        }
        Ok(())
    }

    /// Adds the file of an entry. Returns the directory, if it is one.
    fn entry(&mut self, parent: &Directory, entry: Entry) -> Result<Option<Directory>> {
        let path = parent.path.join(OsStr::from_bytes(&entry.name));
        if !self.evidence.spend_path(path.as_os_str().len()) {
            return Ok(None);
        }
        if let Some(n) = self.by_ino.get(&entry.ino) {
            let seen = &mut self.found[*n];
            // A directory has one name; a second one is damage.
            if !seen.candidate.body.is_dir() {
                let is_unchanged = is_unchanged(&seen.candidate.body, self.seconds);
                seen.paths.push(path);
                seen.is_certain &= parent.is_certain && (entry.is_certain || is_unchanged);
            }
            return Ok(None);
        }
        let inode = self.inode(entry.ino)?;
        let Some((body, is_known)) = inode.filter(|(body, _)| {
            let kind = EntryKind::from_mode(body.disk.mode);
            inodes::is_file(self.evidence, entry.ino, &body.disk)
                && (entry.kind == EntryKind::Unknown || entry.kind == kind)
        }) else {
            return Ok(None);
        };
        if self.found.len() >= self.limit {
            self.not_kept += 1;
            return Ok(None);
        }
        let is_unchanged = is_unchanged(&body, self.seconds);
        let is_certain = parent.is_certain && (entry.is_certain || is_unchanged);
        let is_known = is_known || is_unchanged;
        let candidate = self.candidate(body);
        let directory = candidate.body.is_dir().then(|| Directory {
            body: candidate.body.clone(),
            path: path.clone(),
            is_certain,
            is_known,
        });
        self.by_ino.insert(entry.ino, self.found.len());
        let is_certain = is_certain && is_known;
        self.found.push(Seen { candidate, paths: vec![path], is_certain });
        Ok(directory)
    }

    /// An inode of that time, whose map may have to be restored.
    fn candidate(&self, mut body: Body) -> Candidate {
        let (seen, gone) = (Some(self.tid), Some(self.tid));
        if has_name(&body.disk) {
            return Candidate { seen, gone, ..Candidate::new(body) };
        }
        // Only a later copy is left, in which it is deleted.
        let is_restored = map::restore_root(self.evidence, &mut body);
        let size_known = false;
        let mut candidate = Candidate { seen, gone, size_known, ..Candidate::new(body) };
        if candidate.body.is_file() {
            let walked = is_restored.then(|| map::walk(self.evidence, &candidate).ok()).flatten();
            let map = walked.unwrap_or(Map { runs: Vec::new(), damaged: true });
            let end = map.runs.last().map_or(0, Run::end);
            candidate.body.disk.size = end << self.evidence.volume.block_size().log2();
            candidate.recorded = Some(map);
        }
        candidate
    }

    /// The inode of that time, and whether that is certain; `None` if it had no name.
    fn inode(&mut self, ino: Ino) -> Result<Option<(Body, bool)>> {
        let Some((block, offset)) = self.evidence.slot_of(ino) else { return Ok(None) };
        let source = match self.table.filter(|(read, _)| *read == block) {
            Some((_, source)) => source,
            None => {
                self.table = None;
                let read = self.evidence.read_as_of(block, self.tid, &mut self.bytes)?;
                let Some(source) = read else { return Ok(None) };
                self.table = Some((block, source));
                source
            }
        };
        let inode = self.bytes.get(offset..).and_then(|bytes| self.evidence.inode_in(ino, bytes));
        let is_certain = source != Source::Later;
        let is_there = |body: &Body| has_name(&body.disk) || (!is_certain && body.kind().is_some());
        let format = self.evidence.volume.inode_format();
        let body = inode.filter(|body| {
            is_there(body) && (!has_name(body) || body.disk.check_fields(ino, format).is_ok())
        });
        Ok(body.map(|body| (body, is_certain)))
    }

    /// Adds what a directory had; its directories to `left`. Returns whether all its names of that
    /// time are known.
    fn directory(&mut self, directory: &Directory, left: &mut Vec<Directory>) -> Result<bool> {
        let (evidence, body, is_certain) = (self.evidence, &directory.body, directory.is_known);
        if body.has_inline_data() {
            let Some(inline) = inodes::inline_names(evidence, body, self.tid) else {
                return Ok(false);
            };
            for entry in inline.names {
                let (name, ino, kind) = (entry.name, entry.ino, entry.kind);
                left.extend(self.entry(directory, Entry { name, ino, kind, is_certain })?);
            }
            return Ok(is_certain);
        }
        let map = map::walk(evidence, &self.candidate(body.clone()))?;
        let mut is_complete = is_certain && !map.damaged;
        let owner = Owner::of(evidence, body);
        let mut bytes = evidence.block_buffer();
        let blocks = map.runs.iter().flat_map(|run| run.blocks().zip(run.in_file()));
        for (nr, at) in blocks.map(|(nr, at)| (BlockNr(nr), at)) {
            if !evidence.spend() {
                return Ok(false);
            }
            let source = evidence.read_as_of(nr, self.tid, &mut bytes)?;
            let is_right = match source {
                None => false,
                Some(Source::Log) => true,
                Some(Source::Home | Source::Later) => owner.has(&bytes, at == 0),
            };
            if !is_right {
                is_complete = false;
                continue;
            }
            let is_certain = is_certain && source != Some(Source::Later);
            is_complete &= is_certain;
            for entry in entries(&bytes, owner.format, nr, is_certain) {
                left.extend(self.entry(directory, entry)?);
            }
        }
        Ok(is_complete)
    }
}

/// Whether neither an inode nor its names changed since `seconds`: each sets the time of change.
fn is_unchanged(body: &Body, seconds: u64) -> bool {
    u64::try_from(body.disk.ctime.sec).is_ok_and(|changed| changed < seconds)
}

/// The names in a block of a directory.
fn entries(bytes: &[u8], format: DirFormat, nr: BlockNr, is_certain: bool) -> Vec<Entry> {
    let entries = DirBlock::new(bytes, format, Site::of_block(nr)).entries().flatten();
    let entries = entries.filter(|entry| !entry.is_dot_or_dotdot() && name_is_legal(entry.name));
    let entry = |entry: Dirent<'_>| {
        let (name, kind) = (entry.name.to_vec(), entry.kind);
        Some(Entry { name, ino: entry.ino?, kind, is_certain })
    };
    entries.filter_map(entry).collect()
}

impl Seen {
    /// What is left of the file, and what became of it. `last`: its last state, if it was deleted.
    fn examine(
        &self,
        evidence: &Evidence<'_>,
        last: Option<&Candidate>,
        later: &RangeSet<u64>,
        tid: Tid,
    ) -> Result<Option<PastFile>> {
        let then = &self.candidate.body.disk;
        let now = evidence.inode_now(self.candidate.ino()).filter(|now| {
            has_name(&now.disk) && now.generation == then.generation && now.kind() == then.kind()
        });
        let is_deleted = now.is_none();
        let content = |disk: &DiskInode| (disk.size, disk.mtime);
        let newer = now.as_ref().or(last.map(|last| &last.body)).map(|body| content(&body.disk));
        let is_changed = newer.is_some_and(|newer| newer != content(then));
        let mut own = RangeSet::new();
        if let Some(now) = now.filter(|now| now.is_file() || now.is_symlink()) {
            own.extend(map::walk(evidence, &Candidate::new(now))?.runs.iter().map(Run::blocks));
        }
        let since = Since { later, own: &own, gone: Some(tid) };
        let done = examine::examine(evidence, &self.candidate, &since)?;
        let deleted_at = last.and_then(|last| last.deleted_at).filter(|_| is_deleted);
        let (paths, is_certain) = (self.paths.clone(), self.is_certain);
        Ok(done.map(|(file, _)| PastFile {
            paths,
            is_deleted,
            is_changed,
            is_certain,
            deleted_at,
            ..file
        }))
    }
}
