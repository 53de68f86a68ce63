//! The names of deleted files.
//!
//! ```text
//!   blocks of directories ─┬─ old copies ──► entries ─────┐
//!                          └─ now: space between entries ─┼─► a candidate's number: its names
//!   fast commits ──► names that were added and removed ───┘   those that were there last are best
//! ```
//!
//! Linux clears an entry when it removes the name; older versions only made the entry before it
//! longer, and the name stays in the space between entries.

use super::Candidate;
use super::evidence::Evidence;
use super::inodes::{DirBlocks, Directory, Found, InlineNames};
use super::owner::Owner;
use extant_base::{BlockNr, Ino, Result, Site, Tid};
use extant_ondisk::dirent::{DirBlock, DirFormat, Dirent, EntryKind, RawDirent, name_is_legal};
use extant_ondisk::fast_commit::{NameChange, Record};
use hashbrown::HashMap;
use zerocopy::FromBytes;

/// Most names of one candidate: the limit of links of a file.
const NAMES_MAX: usize = 65_000;
/// An `until` of names that were not removed before the file was deleted.
const TO_THE_END: u64 = u64::MAX;

/// A name that a candidate had.
pub(super) struct Name {
    pub(super) directory: Directory,
    pub(super) name: Vec<u8>,
    until: Until,
}

/// Until when a name was there, as far as is known: of two names, the greater one was there later.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct Until {
    /// Twice the place of the transaction that no longer has it, or [`TO_THE_END`].
    gone: u64,
    /// The place of the newest transaction that has it.
    seen: u32,
    /// Among fast commits: which record.
    order: u32,
}

/// The names of each candidate, the best first, as many as it had links.
pub(super) type Names = Vec<Vec<Name>>;

struct Search<'a> {
    evidence: &'a Evidence<'a>,
    candidates: &'a [Candidate],
    by_ino: HashMap<Ino, Vec<usize>>,
    names: Vec<HashMap<(Directory, Vec<u8>), Until>>,
}

/// A version of a directory block, or of an inline directory.
#[derive(Clone, Copy)]
struct Version {
    /// The transaction; `None`: as it is now.
    tid: Option<Tid>,
    /// `gone` of the names in it.
    gone: u64,
}

pub(super) fn find(evidence: &Evidence<'_>, found: &Found) -> Result<Names> {
    let candidates = &found.candidates[..];
    let mut by_ino: HashMap<Ino, Vec<usize>> = HashMap::new();
    for (n, candidate) in candidates.iter().enumerate() {
        by_ino.entry(candidate.ino()).or_default().push(n);
    }
    let names = candidates.iter().map(|_| HashMap::new()).collect();
    let mut search = Search { evidence, candidates, by_ino, names };
    for blocks in &found.dir_blocks {
        search.copies(blocks)?;
        search.now(blocks);
    }
    search.untagged(found)?;
    search.inline(found);
    search.fast_commits();
    Ok(search.best())
}

impl Search<'_> {
    /// Examines the old copies of a directory's blocks.
    fn copies(&mut self, of: &DirBlocks) -> Result<()> {
        let mut bytes = self.evidence.block_buffer();
        let copies = self.evidence.copies_in(&of.run);
        for copies in copies.chunk_by(|a, b| a.block == b.block) {
            let mut gone = TO_THE_END;
            for copy in copies {
                if !self.evidence.read_old(copy, &mut bytes)? {
                    continue;
                }
                if of.owner.has(&bytes, of.is_first(copy.block)) && self.had_number(of, copy.tid) {
                    let version = Version { tid: Some(copy.tid), gone };
                    self.block(of.directory, &of.owner, &bytes, version);
                }
                gone = 2 * u64::from(self.evidence.history.place(copy.tid));
            }
        }
        Ok(())
    }

    /// Examines the blocks of a deleted directory as they are now. A directory in use has names of
    /// deleted files only where the log has copies.
    fn now(&mut self, of: &DirBlocks) {
        let Directory::Deleted(_) = of.directory else { return };
        let mut bytes = self.evidence.block_buffer();
        for nr in of.run.blocks().map(BlockNr) {
            if !self.evidence.spend() {
                break;
            }
            if self.evidence.read_now(nr, &mut bytes) && of.owner.has(&bytes, of.is_first(nr)) {
                let gone = if of.owner.is_proven() { TO_THE_END } else { 0 };
                self.block(of.directory, &of.owner, &bytes, Version { tid: None, gone });
            }
        }
    }

    /// Examines blocks of the log without a tag, which directories had at some place. Until when
    /// their names were there is not known.
    fn untagged(&mut self, found: &Found) -> Result<()> {
        let evidence = self.evidence;
        let mut bytes = evidence.block_buffer();
        for (directory, owner) in &found.untagged_dirs {
            for block in evidence.untagged.of_directory(owner.seed()) {
                if !evidence.spend() {
                    return Ok(());
                }
                if evidence.read_untagged(block, &mut bytes)? && owner.has(&bytes, false) {
                    let gone = 2 * u64::from(evidence.history.place(block.tid)) + 1;
                    let version = Version { tid: Some(block.tid), gone };
                    self.block(*directory, owner, &bytes, version);
                }
            }
        }
        Ok(())
    }

    /// Examines directories that lay in their inodes.
    fn inline(&mut self, found: &Found) {
        // Of each directory, the newest version comes first.
        let mut newer: Option<&InlineNames> = None;
        for inline in &found.inline_dirs {
            let is_same = |newer: &&InlineNames| {
                (newer.ino, newer.generation) == (inline.ino, inline.generation)
            };
            let gone = newer
                .filter(is_same)
                .map_or(TO_THE_END, |newer| 2 * u64::from(self.evidence.history.place(newer.tid)));
            newer = Some(inline);
            let Some(directory) = self.directory_of(inline) else { continue };
            let version = Version { tid: Some(inline.tid), gone };
            for entry in &inline.names {
                self.name(directory, &entry.name, entry.ino, entry.kind, version);
            }
        }
    }

    /// The directory that once was inline: in use, or one of the candidates.
    fn directory_of(&self, of: &InlineNames) -> Option<Directory> {
        if let Ok(body) = self.evidence.volume.inodes().read(of.ino)
            && body.is_dir()
            && body.disk.links > 0
            && body.disk.generation == of.generation
        {
            return Some(Directory::Live(of.ino));
        }
        let candidates = self.by_ino.get(&of.ino)?;
        let is_it = |n: &&usize| self.candidates[**n].body.disk.generation == of.generation;
        candidates.iter().find(is_it).map(|n| Directory::Deleted(*n))
    }

    /// Examines a block of a directory.
    fn block(&mut self, of: Directory, owner: &Owner, bytes: &[u8], version: Version) {
        let block = DirBlock::new(bytes, owner.format, Site::NOWHERE);
        let mut entries = block.entries();
        let mut at = entries.offset();
        while let Some(entry) = entries.next() {
            let end = entries.offset();
            if let Ok(entry) = &entry {
                if let Some(ino) = entry.ino {
                    self.name(of, entry.name, ino, entry.kind, version);
                }
                // The index of a directory lies in the space of its "..".
                if !is_dotdot(entry) {
                    let used = entry.ino.map_or(0, |_| owner.format.need(entry.name));
                    self.slack(of, owner, &bytes[at..end], used, version);
                }
            }
            at = end;
        }
    }

    /// Examines the space of an entry, of which `used` bytes are in use. What is found there was
    /// removed before.
    fn slack(&mut self, of: Directory, owner: &Owner, space: &[u8], used: usize, version: Version) {
        let removed = |tid| 2 * u64::from(self.evidence.history.place(tid));
        let version = Version { gone: version.tid.map_or(0, removed), ..version };
        let mut at = used;
        while let Some(left) = space.get(at..).filter(|left| !left.is_empty()) {
            at += match removed_entry(left, &owner.format) {
                Some((name, ino, kind)) if self.by_ino.contains_key(&ino) => {
                    self.name(of, name, ino, kind, version);
                    owner.format.need(name)
                }
                _ => 4,
            };
        }
    }

    /// Adds a name of `ino` in a version of a directory.
    fn name(
        &mut self,
        directory: Directory,
        name: &[u8],
        ino: Ino,
        kind: EntryKind,
        version: Version,
    ) {
        let Some(candidates) = self.by_ino.get(&ino) else { return };
        let seen = version.tid.map_or(0, |tid| self.evidence.history.place(tid));
        let until = Until { gone: version.gone, seen, order: 0 };
        // The directory had the name no later than the version was committed, or than it was
        // deleted itself: a block that stays at home has no transaction.
        let committed = version.tid.and_then(|tid| self.evidence.history.committed_at(tid));
        let deleted = match directory {
            Directory::Deleted(n) => self.candidates[n].deleted_at,
            Directory::Live(_) => None,
        };
        let last_time = committed.into_iter().chain(deleted).min();
        for n in candidates {
            let candidate = &self.candidates[*n];
            let is_kind = kind == EntryKind::Unknown
                || kind == EntryKind::from_mode(candidate.body.disk.mode);
            // When the file was deleted, the name was gone.
            let in_time = match (version.tid, candidate.gone) {
                (Some(tid), Some(gone)) => gone.is_after(tid),
                _ => true,
            };
            // A name from before the inode was made is that of an earlier one with its number.
            let made = candidate.body.disk.crtime.and_then(|made| u64::try_from(made.sec).ok());
            let is_older = last_time.zip(made).is_some_and(|(last, made)| last < made);
            if is_kind && in_time && !is_older {
                add(&mut self.names[*n], directory, name, until);
            }
        }
    }

    /// Examines the names that fast commits added and removed.
    fn fast_commits(&mut self) {
        let mut order = 0;
        for commit in &self.evidence.fast_commits {
            for record in commit.records() {
                order += 1;
                match record {
                    Record::Create(change) | Record::Link(change) => {
                        self.change(&change, commit.tid(), order, true);
                    }
                    Record::Unlink(change) => self.change(&change, commit.tid(), order, false),
                    _ => {}
                }
            }
        }
    }

    /// Adds the name of a record; `stays`: it was there at the end of the fast commit.
    fn change(&mut self, change: &NameChange<'_>, tid: Tid, order: u32, stays: bool) {
        let Some(candidates) = self.by_ino.get(&change.ino) else { return };
        let Some(directory) = self.directory_at(change.parent, tid) else { return };
        let seen = self.evidence.history.place(tid);
        let until = Until { gone: 2 * u64::from(seen) + u64::from(stays), seen, order };
        for n in candidates {
            let is_later = self.candidates[*n].gone.is_some_and(|gone| tid.is_after(gone));
            if !is_later {
                let names = &mut self.names[*n];
                if !stays {
                    // What an earlier record of this transaction added is gone.
                    let earlier = names.get_mut(&(directory, change.name.to_vec()));
                    if let Some(earlier) =
                        earlier.filter(|until| until.gone == 2 * u64::from(seen) + 1)
                    {
                        *earlier = until;
                        continue;
                    }
                }
                add(names, directory, change.name, until);
            }
        }
    }

    /// Whether it was this directory that had its number in transaction `tid`. A checksum proves
    /// that by the generation.
    fn had_number(&self, of: &DirBlocks, tid: Tid) -> bool {
        let ino = match of.directory {
            Directory::Live(ino) => ino,
            Directory::Deleted(n) => self.candidates[n].ino(),
        };
        of.owner.is_proven() || self.directory_at(ino, tid) == Some(of.directory)
    }

    /// The directory that had this number in transaction `tid`.
    fn directory_at(&self, ino: Ino, tid: Tid) -> Option<Directory> {
        let deleted = self.by_ino.get(&ino).into_iter().flatten().copied().filter(|n| {
            let candidate = &self.candidates[*n];
            candidate.body.is_dir() && !candidate.gone.is_some_and(|gone| tid.is_after(gone))
        });
        // Of several that were deleted later, the first one.
        let place =
            |n: &usize| self.candidates[*n].gone.map(|gone| self.evidence.history.place(gone));
        if let Some(n) = deleted.min_by_key(place) {
            return Some(Directory::Deleted(n));
        }
        let body = self.evidence.volume.inodes().read(ino).ok()?;
        (body.is_dir() && body.disk.links > 0).then_some(Directory::Live(ino))
    }

    /// The names that were there last, of each candidate as many as it had links.
    fn best(self) -> Names {
        let candidates = self.candidates.iter();
        let best = |(names, candidate): (HashMap<_, _>, &Candidate)| {
            let name = |((directory, name), until)| Name { directory, name, until };
            let mut names: Vec<Name> = names.into_iter().map(name).collect();
            names.sort_unstable_by(|a, b| (b.until, &a.name).cmp(&(a.until, &b.name)));
            // What only the space between entries shows may be the name of an earlier file.
            let proven = names.iter().filter(|name| name.until.gone > 0).count();
            names.truncate(candidate.names_max().min(proven.max(1)));
            names
        };
        self.names.into_iter().zip(candidates).map(best).collect()
    }
}

/// Adds a name, or what is known of it.
fn add(
    names: &mut HashMap<(Directory, Vec<u8>), Until>,
    directory: Directory,
    name: &[u8],
    until: Until,
) {
    if name == b"." || name == b".." || !name_is_legal(name) || names.len() >= NAMES_MAX {
        return;
    }
    let known = names.entry((directory, name.to_vec())).or_insert(until);
    *known = until.max(*known);
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
