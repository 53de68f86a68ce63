//! Names that the log still holds, for inodes that have lost theirs.
//!
//! ```text
//!   copies of directory blocks ─► whose? ─► entries ──────┐
//!      with checksums: the tail names inode and generation├─► names of an inode, the best first
//!      without: ".", or the directory that has the block  │
//!   fast commits ─► names that were added and removed ────┘
//! ```
//!
//! A name is the better the later the log has it. A name that a newer copy of the same block no
//! longer has was removed, so it comes after all others: a file that was renamed keeps its old name
//! only if nothing shows the new one.

use super::Names;
use crate::older::{Older, OlderBlock};
use crate::scan::{Node, Table, starts_like_directory};
use crate::volume::Volume;
use extant_base::{Ino, Result, Site};
use extant_crc32c::{append_zeros, crc32c};
use extant_ondisk::dirent::{DirBlock, DirFormat, Dirent, EntryKind, TAIL_LEN, tail_of};
use extant_ondisk::fast_commit::{NameChange, Record};
use hashbrown::{HashMap, HashSet};
use std::rc::Rc;

/// How many names of one inode are kept: more than one that is not forged has in a log.
const NAMES_MAX: usize = 1024;
/// The `order` of a copy: it is written after all fast commits of its transaction.
const OF_COPY: u32 = u32::MAX;

/// A name that an inode had.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct OldName {
    pub(crate) dir: u32,
    pub(crate) name: Vec<u8>,
    pub(crate) hash: Option<HashWords>,
    pub(crate) state: State,
}

/// What is known of the end of a name. Of two names, the greater is the better one.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct State {
    /// Nothing shows that it was removed.
    pub(crate) stands: bool,
    /// The newest copy of a block that is lost at home has it.
    pub(crate) is_lost: bool,
    /// The newest transaction that has it.
    seen: u32,
    /// Among the fast commits of that transaction: which record.
    order: u32,
}

/// Hash words of an encrypted and casefolded directory.
type HashWords = (u32, u32);

/// What an inode must have in common with the one of an entry.
struct Wanted {
    kind: EntryKind,
    generation: u32,
    made: Option<u64>,
    /// By directory and name.
    names: HashMap<(u32, Vec<u8>), Known>,
}

/// What is known of a name.
type Known = (State, Option<HashWords>);

struct Search<'s> {
    volume: &'s Volume,
    table: &'s mut Table,
    names: &'s Names,
    owners: Owners,
    wanted: HashMap<u32, Wanted>,
}

/// Finds the names that the log has of each inode in `wanted`, the best first.
///
/// Errors: `Device`.
pub(crate) fn logged(
    volume: &Volume,
    table: &mut Table,
    names: &Names,
    wanted: &[u32],
) -> Result<HashMap<u32, Vec<OldName>>> {
    let Some(older) = volume.older.clone().filter(|_| !wanted.is_empty()) else {
        return Ok(HashMap::new());
    };
    let owners = Owners::new(volume, table)?;
    let mut search = Search { volume, table, names, owners, wanted: HashMap::new() };
    for ino in wanted {
        search.want(*ino)?;
    }
    search.copies(&older)?;
    search.fast_commits(&older)?;
    let best = |(ino, wanted): (u32, Wanted)| {
        let mut names: Vec<OldName> = wanted
            .names
            .into_iter()
            .map(|((dir, name), (state, hash))| OldName { dir, name, hash, state })
            .collect();
        names.sort_unstable_by(|a, b| (b.state, a.dir, &a.name).cmp(&(a.state, b.dir, &b.name)));
        (ino, names)
    };
    Ok(search.wanted.into_iter().map(best).collect())
}

impl Search<'_> {
    fn want(&mut self, ino: u32) -> Result<()> {
        let Some(inode) = self.volume.inode(ino)? else { return Ok(()) };
        let made = inode.crtime.and_then(|made| u64::try_from(made.sec).ok());
        let kind = EntryKind::from_mode(inode.mode);
        let names = HashMap::new();
        self.wanted.insert(ino, Wanted { kind, generation: inode.generation, made, names });
        Ok(())
    }

    /// Reads the copies of directory blocks.
    fn copies(&mut self, older: &Rc<Older>) -> Result<()> {
        let volume = self.volume;
        let mut newest = None;
        older.each(&|block| volume.is_usable(block), &mut |copy| {
            let is_newest = newest != Some(copy.block);
            newest = Some(copy.block);
            self.copy(copy, is_newest)
        })
    }

    fn copy(&mut self, copy: &OlderBlock<'_>, is_newest: bool) -> Result<()> {
        let Some(dir) = self.owners.of(copy) else { return Ok(()) };
        let Some(inode) = self.volume.inode(dir)? else { return Ok(()) };
        let format = self.volume.dir_format(&inode);
        let mut is_lost = None;
        for entry in DirBlock::new(copy.bytes, format, Site::NOWHERE).entries() {
            // A broken entry ends a copy whose checksum does not prove it.
            let Ok(entry) = entry else { break };
            let Some(ino) = entry.ino.filter(|ino| self.wanted.contains_key(&ino.get())) else {
                continue;
            };
            let is_lost = match is_lost {
                Some(known) => known,
                None => *is_lost.insert(is_newest && self.is_lost(dir, copy.block)?),
            };
            let state = State { stands: is_lost, is_lost, seen: copy.place, order: OF_COPY };
            self.entry(dir, ino, &entry, &format, copy.committed_at, state);
        }
        Ok(())
    }

    /// Whether the directory lost what it had in this block.
    fn is_lost(&mut self, dir: u32, block: u64) -> Result<bool> {
        if self.names.lost_blocks.contains(&block) {
            return Ok(true);
        }
        let map = self.table.map_of(self.volume, dir)?;
        Ok(!map.runs.iter().any(|run| run.blocks().contains(&block)))
    }

    fn entry(
        &mut self,
        dir: u32,
        ino: Ino,
        entry: &Dirent<'_>,
        format: &DirFormat,
        committed_at: Option<u64>,
        state: State,
    ) {
        let Some(wanted) = self.wanted.get_mut(&ino.get()) else { return };
        let is_kind = !format.filetype || entry.kind == wanted.kind;
        // A name from before the inode was made is that of an earlier one with its number.
        let is_older = committed_at.zip(wanted.made).is_some_and(|(at, made)| at < made);
        if is_kind && !is_older && !entry.is_dot_or_dotdot() && format.admits(entry.name) {
            wanted.add(dir, entry.name, entry.stored_hash, state);
        }
    }

    /// Reads the names that fast commits added and removed.
    fn fast_commits(&mut self, older: &Rc<Older>) -> Result<()> {
        let mut order = 0;
        for commit in older.fast_commits(self.volume.geometry.inode_size())? {
            let place = older.place(commit.tid());
            let others = self.other_inodes(commit.records());
            for record in commit.records() {
                order = (order + 1).min(OF_COPY - 1);
                let (change, stands) = match record {
                    Record::Create(change) | Record::Link(change) => (change, true),
                    Record::Unlink(change) => (change, false),
                    _ => continue,
                };
                let is_known = self.table.nodes.has_dir(change.parent.get());
                if is_known && !others.contains(&change.ino.get()) {
                    let state = State { stands, is_lost: false, seen: place, order };
                    self.change(&change, state)?;
                }
            }
        }
        Ok(())
    }

    /// Inodes of which a fast commit records another one with the same number.
    fn other_inodes<'r>(&self, records: impl Iterator<Item = Record<'r>>) -> HashSet<u32> {
        let other = |record: Record<'r>| match record {
            Record::Inode { ino, raw } => {
                let wanted = self.wanted.get(&ino.get())?;
                // At 64h in the inode.
                let generation = u32::from_le_bytes(*raw.get(0x64..)?.first_chunk()?);
                (generation != wanted.generation).then_some(ino.get())
            }
            _ => None,
        };
        records.filter_map(other).collect()
    }

    fn change(&mut self, change: &NameChange<'_>, state: State) -> Result<()> {
        let dir = change.parent.get();
        let Some(inode) = self.volume.inode(dir)? else { return Ok(()) };
        let format = self.volume.dir_format(&inode);
        let Some(wanted) = self.wanted.get_mut(&change.ino.get()) else { return Ok(()) };
        // A record has no hash, and a name in such a directory needs one.
        if format.hash_words || !format.admits(change.name) || change.name == b"." {
            return Ok(());
        }
        match state.stands {
            true => wanted.add(dir, change.name, None, state),
            false => wanted.remove(dir, change.name, state),
        }
        Ok(())
    }
}

impl Wanted {
    fn add(&mut self, dir: u32, name: &[u8], hash: Option<HashWords>, state: State) {
        let key = (dir, name.to_vec());
        if self.names.len() < NAMES_MAX || self.names.contains_key(&key) {
            let known = self.names.entry(key).or_insert((state, hash));
            let is_lost = state.is_lost || known.0.is_lost;
            *known = (State { is_lost, ..state.max(known.0) }, hash.or(known.1));
        }
    }

    /// The name was there until `state`.
    fn remove(&mut self, dir: u32, name: &[u8], state: State) {
        match self.names.get_mut(&(dir, name.to_vec())) {
            Some((known, _)) if (known.seen, known.order) > (state.seen, state.order) => {}
            Some((known, _)) => *known = state,
            None => self.add(dir, name, None, state),
        }
    }
}

/// Which directory a block belongs to.
enum Owners {
    /// With checksums: the checksum that the tail of a block of zeros would have, and the
    /// directory. A checksum of other bytes differs from it by the checksum of these bytes alone.
    BySeed { of: HashMap<u32, u32>, body: usize },
    /// Without: the blocks that directories have now.
    ByBlock { of: HashMap<u64, u32>, format: DirFormat, dirs: HashSet<u32> },
}

impl Owners {
    fn new(volume: &Volume, table: &mut Table) -> Result<Owners> {
        let dirs = table.nodes.inos(Node::is_dir);
        if volume.checksums.seed().is_some() {
            let body = volume.block_bytes() - TAIL_LEN;
            let mut of = HashMap::new();
            for dir in dirs {
                if let Some(inode) = volume.inode(dir)? {
                    of.insert(append_zeros(volume.seed(dir, &inode), body as u64), dir);
                }
            }
            return Ok(Owners::BySeed { of, body });
        }
        let mut of = HashMap::new();
        for dir in &dirs {
            let map = table.map_of(volume, *dir)?;
            of.extend(map.each().map(|(_, block)| (block, *dir)));
        }
        let format = volume.dir_format(&extant_ondisk::inode::Inode::default());
        Ok(Owners::ByBlock { of, format, dirs: dirs.into_iter().collect() })
    }

    /// The directory whose names the copy has.
    fn of(&self, copy: &OlderBlock<'_>) -> Option<u32> {
        match self {
            Owners::BySeed { of, body } => {
                let stored = tail_of(copy.bytes)?.det_checksum.get();
                of.get(&(stored ^ crc32c(0, copy.bytes.get(..*body)?))).copied()
            }
            Owners::ByBlock { of, format, dirs } => {
                let first = u32::from_le_bytes(*copy.bytes.first_chunk()?);
                let own = starts_like_directory(copy.bytes, first).then_some(first);
                let dir = own.or_else(|| of.get(&copy.block).copied())?;
                let mut entries = DirBlock::new(copy.bytes, *format, Site::NOWHERE).entries();
                (dirs.contains(&dir) && entries.all(|entry| entry.is_ok())).then_some(dir)
            }
        }
    }
}
