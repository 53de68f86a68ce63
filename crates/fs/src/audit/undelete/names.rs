//! The names of deleted files.
//!
//! ```text
//!   blocks of directories ─┬─ old copies ──► entries ─────┐
//!                          └─ now: space between entries ─┴─► a candidate's number: its name
//!   name ─► directory ─► … ─► root                             of several the newest before the
//!                                                              file was deleted
//! ```
//!
//! Linux clears an entry when it removes the name; older versions only made the entry before it
//! longer, and the name stays in the space between entries.

use super::Candidate;
use super::evidence::Evidence;
use super::inodes::{DirBlocks, Directory, Found, InlineNames};
use crate::state::inode::Body;
use crate::volume::Volume;
use extant_base::{BlockNr, Ino, Result, Site, Tid};
use extant_ondisk::dirent::{DirBlock, DirFormat, Dirent, EntryKind, RawDirent, name_is_legal};
use hashbrown::HashMap;
use std::ffi::OsString;
use std::os::unix::ffi::OsStringExt;
use std::path::PathBuf;
use zerocopy::FromBytes;

/// Most directories on a path. A longer path begins at the directory that many levels up.
const LEVELS_MAX: usize = 4096;

/// A name that a candidate had.
pub(super) struct Name {
    directory: Directory,
    name: Vec<u8>,
    /// The transaction that has it; `None`: found in the directory as it is now.
    tid: Option<Tid>,
}

/// The best name of each candidate.
pub(super) type Names = Vec<Option<Name>>;

struct Search<'a> {
    candidates: &'a [Candidate],
    by_ino: HashMap<Ino, Vec<usize>>,
    names: Names,
}

pub(super) fn find(evidence: &Evidence<'_>, found: &Found) -> Result<Names> {
    let mut by_ino: HashMap<Ino, Vec<usize>> = HashMap::new();
    for (n, candidate) in found.candidates.iter().enumerate() {
        by_ino.entry(candidate.ino()).or_default().push(n);
    }
    let names = found.candidates.iter().map(|_| None).collect();
    let mut search = Search { candidates: &found.candidates, by_ino, names };
    let mut bytes = evidence.block_buffer();
    for blocks in &found.dir_blocks {
        for copy in evidence.copies_in(&blocks.run) {
            if evidence.read_old(copy, &mut bytes)? {
                search.block(blocks, copy.block, &bytes, Some(copy.tid));
            }
        }
        // A directory in use has names of deleted files only where the log has copies.
        let first = blocks.run.physical;
        let end = match blocks.directory {
            Directory::Live(_) => first,
            Directory::Deleted(_) => first + u64::from(blocks.run.len),
        };
        for nr in (first..end).map(BlockNr).take_while(|_| evidence.spend()) {
            if evidence.read_now(nr, &mut bytes) {
                search.block(blocks, nr, &bytes, None);
            }
        }
    }
    for inline in &found.inline_dirs {
        if let Some(directory) = directory_of(evidence.volume, inline, &search) {
            for entry in &inline.names {
                search.name(directory, &entry.name, entry.ino, entry.kind, Some(inline.tid));
            }
        }
    }
    Ok(search.names)
}

/// The directory that once was inline: in use, or one of the candidates.
fn directory_of(volume: &Volume, of: &InlineNames, search: &Search<'_>) -> Option<Directory> {
    if let Ok(body) = volume.inodes().read(of.ino)
        && body.is_dir()
        && body.disk.links > 0
        && body.disk.generation == of.generation
    {
        return Some(Directory::Live(of.ino));
    }
    let candidates = search.by_ino.get(&of.ino)?;
    let is_it = |n: &&usize| search.candidates[**n].body.disk.generation == of.generation;
    candidates.iter().find(is_it).map(|n| Directory::Deleted(*n))
}

impl Search<'_> {
    /// Examines a block of a directory.
    fn block(&mut self, of: &DirBlocks, nr: BlockNr, bytes: &[u8], tid: Option<Tid>) {
        let block = DirBlock::new(bytes, of.format, Site::of_block(nr));
        let mut entries = block.entries();
        let mut at = entries.offset();
        while let Some(entry) = entries.next() {
            let end = entries.offset();
            if let Ok(entry) = &entry {
                if let Some(ino) = entry.ino {
                    self.name(of.directory, entry.name, ino, entry.kind, tid);
                }
                // The index of a directory lies in the space of its "..".
                if !is_dotdot(entry) {
                    let used = entry.ino.map_or(0, |_| of.format.need(entry.name));
                    self.slack(of, &bytes[at..end], used, tid);
                }
            }
            at = end;
        }
    }

    /// Examines the space of an entry, of which `used` bytes are in use.
    fn slack(&mut self, of: &DirBlocks, space: &[u8], used: usize, tid: Option<Tid>) {
        let mut at = used;
        while let Some(left) = space.get(at..).filter(|left| !left.is_empty()) {
            at += match removed_entry(left, &of.format) {
                Some((name, ino, kind)) if self.by_ino.contains_key(&ino) => {
                    self.name(of.directory, name, ino, kind, tid);
                    of.format.need(name)
                }
                _ => 4,
            };
        }
    }

    fn name(
        &mut self,
        directory: Directory,
        name: &[u8],
        ino: Ino,
        kind: EntryKind,
        tid: Option<Tid>,
    ) {
        let Some(candidates) = self.by_ino.get(&ino) else { return };
        if name == b"." || name == b".." || !name_is_legal(name) {
            return;
        }
        for n in candidates {
            let candidate = &self.candidates[*n];
            let is_kind = kind == EntryKind::Unknown
                || kind == EntryKind::from_mode(candidate.body.disk.mode);
            // When the file was deleted, the name was gone.
            let in_time = match (tid, candidate.gone) {
                (Some(tid), Some(gone)) => gone.is_after(tid),
                _ => true,
            };
            let is_newer = match (&self.names[*n], tid) {
                (None, _) => true,
                (Some(Name { tid: Some(old), .. }), Some(tid)) => tid.is_after(*old),
                (Some(Name { tid: None, .. }), tid) => tid.is_some(),
                (Some(_), None) => false,
            };
            if is_kind && in_time && is_newer {
                let name = name.to_vec();
                self.names[*n] = Some(Name { directory, name, tid });
            }
        }
    }
}

fn is_dotdot(entry: &Dirent<'_>) -> bool {
    entry.name == b".."
}

/// What looks like an entry at the start of `bytes`.
fn removed_entry<'b>(bytes: &'b [u8], format: &DirFormat) -> Option<(&'b [u8], Ino, EntryKind)> {
    let (raw, rest) = RawDirent::ref_from_prefix(bytes).ok()?;
    let ino = Ino::new(raw.inode.get())?;
    let name = rest.get(..usize::from(raw.name_len)).filter(|name| name_is_legal(name))?;
    let kind = match format.filetype {
        true => EntryKind::from_code(raw.file_type),
        false => EntryKind::Unknown,
    };
    (format.need(name) <= bytes.len()).then_some((name, ino, kind))
}

/// Finds the paths of candidates.
pub(super) struct Paths<'a> {
    volume: &'a Volume,
    candidates: &'a [Candidate],
    names: &'a Names,
    /// Directories in use: their parents and names; `None` for one without a path to the root.
    live: HashMap<Ino, Option<(Ino, Vec<u8>)>>,
}

impl<'a> Paths<'a> {
    pub(super) fn new(
        volume: &'a Volume,
        candidates: &'a [Candidate],
        names: &'a Names,
    ) -> Paths<'a> {
        Paths { volume, candidates, names, live: HashMap::new() }
    }

    /// The path of candidate `n`. If a directory on it has no name, the path begins with `#` and
    /// the directory's number.
    pub(super) fn of(&mut self, n: usize) -> Option<PathBuf> {
        let name = self.names[n].as_ref()?;
        let mut parts = vec![name.name.clone()];
        let mut directory = name.directory;
        while parts.len() < LEVELS_MAX {
            let (ino, above) = match directory {
                Directory::Live(Ino::ROOT) => {
                    parts.push(Vec::new());
                    break;
                }
                Directory::Live(ino) => {
                    let above = self.name_in_use(ino);
                    (ino, above.map(|(parent, name)| (Directory::Live(parent), name)))
                }
                Directory::Deleted(n) => {
                    let name = self.names[n].as_ref();
                    let above = name.map(|name| (name.directory, name.name.clone()));
                    (self.candidates[n].ino(), above)
                }
            };
            match above {
                Some((parent, name)) => {
                    parts.push(name);
                    directory = parent;
                }
                None => {
                    parts.push(format!("#{}", ino.get()).into_bytes());
                    break;
                }
            }
        }
        parts.reverse();
        Some(PathBuf::from(OsString::from_vec(parts.join(&b'/'))))
    }

    /// Parent and name of a directory in use.
    fn name_in_use(&mut self, ino: Ino) -> Option<(Ino, Vec<u8>)> {
        let volume = self.volume;
        self.live.entry(ino).or_insert_with(|| find_name(volume, ino)).clone()
    }
}

/// Finds the name of directory `ino` in its parent.
fn find_name(volume: &Volume, ino: Ino) -> Option<(Ino, Vec<u8>)> {
    let body: Body = volume.inodes().read(ino).ok()?;
    let parent = volume.file(&body).dir().ok()?.lookup(b"..").ok()?.ino;
    let above = volume.inodes().read(parent).ok()?;
    let dir = volume.file(&above).dir().ok()?;
    let mut position = crate::tree::dir::read::Position::default();
    let mut name = None;
    while name.is_none() {
        let more = dir.next_batch(&mut position, |entry| match entry {
            Ok(entry) if entry.ino == ino => name = Some(entry.name),
            _ => {}
        });
        if !more.ok()? {
            break;
        }
    }
    name.map(|name| (parent, name))
}
