//! Listing a directory by places: numbers that have the same meaning in every opening and after any
//! change.
//!
//! ```text
//!   by hash     62        32 31         0      by block      byte offset of the entry + 2
//!               ┌───────────┬────────────┐
//!               │ hash >> 1 │ minor hash │      places 0 and 1 belong to "." and ".."
//!               └───────────┴────────────┘
//!   htree       root ─► leaf of place ─► its names, sorted ─► next leaf      one leaf at a time
//! ```
//!
//! A name keeps its place while it exists, so a name that stays is listed once, whatever happens to
//! others. An htree is listed by hash, and so is a directory of at most one block that can become
//! an htree: its names keep their places. Other directories (no `dir_index`, several blocks without
//! an index, a damaged index) never move an entry, so the entry's byte offset is its place. A name
//! in a leaf to which its hash does not belong is listed as if it had the nearest hash that does.
//!
//! Names with the same hash and minor hash have the same place. Source: ext4 documentation, "Hash
//! Tree Directories".

use super::htree::NextLeaf;
use super::linear::{Names, SCAN_AHEAD};
use super::nokey::NoKey;
use super::{Dir, Form};
use crate::tree::dir::convert::new_hash_version;
use extant_base::narrow::len_u32;
use extant_base::{Error, Ino, LogicalBlock, Result, What};
use extant_ondisk::dirent::{DirBlock, Dirent, EntryKind};
use extant_ondisk::features::Compat;
use extant_ondisk::hash::{HashVersion, NameHash};

/// The first place that a name can have.
pub(crate) const FIRST: u64 = 2;
/// The last place that a name can have.
const LAST: u64 = (1 << 63) - 2;
/// How many leaves the names of one hash may fill. More means a forged index.
const SAME_HASH_LEAVES: usize = 64;

/// The order in which a directory's names are listed.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Order {
    /// By the hash of this version.
    Hash(HashVersion),
    /// By the byte offset of the entry.
    Byte,
}

/// The names of a part of a directory, in order of their places.
#[derive(Debug, Default)]
pub(crate) struct Batch {
    /// Entries and errors, each with its place.
    pub(crate) entries: Vec<(u64, Result<Listed, Box<Error>>)>,
    /// The bytes of all names.
    names: Vec<u8>,
    /// The place at which the next part begins; `None` at the end of the directory.
    pub(crate) next: Option<u64>,
}

/// An entry of a [`Batch`].
#[derive(Clone, Copy, Debug)]
pub(crate) struct Listed {
    /// Where the name begins in the batch's names, and its length.
    name: (u32, u32),
    /// The inode of the name.
    pub(crate) ino: Ino,
    /// The kind of file that the entry records.
    pub(crate) kind: EntryKind,
}

impl Batch {
    /// A batch of one error.
    pub(crate) fn of_error(place: u64, error: Error) -> Batch {
        let mut batch = Batch::default();
        batch.push_error(place, error);
        batch
    }

    /// The name of an entry; in an encrypted directory, the text that encodes it.
    pub(crate) fn name(&self, entry: &Listed) -> &[u8] {
        let (start, len) = entry.name;
        &self.names[start as usize..][..len as usize]
    }

    fn push_error(&mut self, place: u64, error: Error) {
        self.entries.push((place, Err(Box::new(error))));
    }

    /// Keeps the entries from `place` on, and sorts them.
    fn sort_from(&mut self, place: u64) {
        let Batch { entries, names, .. } = self;
        entries.retain(|(at, _)| *at >= place);
        let name = |entry: &Result<Listed, Box<Error>>| {
            let (start, len) = entry.as_ref().ok()?.name;
            names.get(start as usize..)?.get(..len as usize)
        };
        entries.sort_unstable_by(|a, b| a.0.cmp(&b.0).then_with(|| name(&a.1).cmp(&name(&b.1))));
    }
}

/// The first place of names with this hash.
fn start_of(hash: u32) -> u64 {
    u64::from(hash >> 1) << 32
}

fn place_of(hash: NameHash) -> u64 {
    (start_of(hash.hash) | u64::from(hash.minor)).clamp(FIRST, LAST)
}

impl Dir<'_> {
    /// The order of the listing. It stays the same while the directory is in use, except after
    /// damage.
    pub(crate) fn order(&self) -> Order {
        let by_default = || Order::Hash(new_hash_version(self.volume));
        let folds = self.folds() && self.hashed(b"a").is_err();
        if !self.volume.has_compat(Compat::DIR_INDEX) || folds {
            return Order::Byte;
        }
        match self.form {
            Form::Inline => by_default(),
            Form::Linear if self.blocks <= 1 => by_default(),
            Form::Linear => Order::Byte,
            Form::Indexed => self.checked_index().map_or(Order::Byte, Order::Hash),
        }
    }

    /// The part of the directory that contains the first names from `place` on.
    ///
    /// Errors: those of the index and of the directory's map.
    pub(crate) fn batch_at(&self, order: Order, place: u64) -> Result<Batch> {
        let mut batch = match (order, self.form) {
            (_, Form::Inline) => self.inline_batch(order)?,
            (Order::Hash(version), Form::Linear) => {
                let mut batch = Batch::default();
                // The directory may have got a second block without an index since.
                for at in 0..self.blocks {
                    self.names_of(LogicalBlock(at), Some((version, 0..LAST + 1)), &mut batch)?;
                }
                batch
            }
            (Order::Hash(version), Form::Indexed) => self.leaf_batch(version, place)?,
            (Order::Byte, _) => self.block_batch(place)?,
        };
        batch.sort_from(place);
        Ok(batch)
    }

    fn inline_batch(&self, order: Order) -> Result<Batch> {
        let mut batch = Batch::default();
        let nokey = self.is_encrypted().then(|| NoKey::of(self));
        for entry in self.inline()?.entries() {
            let place = match (order, &entry) {
                (Order::Hash(version), Ok(entry)) => self.place_by_hash(version, entry),
                (_, Ok(entry)) => entry.offset as u64 + FIRST,
                (_, Err(_)) => FIRST,
            };
            take(entry, place, nokey.as_ref(), &mut batch);
        }
        Ok(batch)
    }

    /// The leaf for `place`, and the leaves after it in which names of its last hash continue.
    fn leaf_batch(&self, version: HashVersion, place: u64) -> Result<Batch> {
        // Bit 63 is never set, so the shift loses nothing.
        let hash = ((place >> 32) as u32) << 1;
        let mut batch = Batch::default();
        let mut probe = self.probe(|_| Ok(NameHash { hash, minor: 0 }))?;
        let mut start = start_of(self.key_of(&probe)?);
        for _ in 0..SAME_HASH_LEAVES {
            let leaf = probe.leaf;
            let next = self.next_leaf_if(&mut probe, |entry| entry.key & 1 == 1)?;
            let end = match next {
                NextLeaf::None => LAST + 1,
                NextLeaf::Other(key) => start_of(key),
                // Both leaves have names of this hash.
                NextLeaf::Moved(key) => start_of(key) + (1 << 32),
            };
            let range = start..end.clamp(start + 1, LAST + 1);
            self.names_of(leaf, Some((version, range)), &mut batch)?;
            match next {
                NextLeaf::None => return Ok(batch),
                // A listing that does not advance would not end.
                NextLeaf::Other(_) if end <= place => break,
                NextLeaf::Other(_) => {
                    batch.next = Some(end);
                    return Ok(batch);
                }
                NextLeaf::Moved(key) => start = start_of(key),
            }
        }
        Err(self.site().corrupt(What::HtreeNode))
    }

    /// One block of a directory that is listed by bytes.
    fn block_batch(&self, place: u64) -> Result<Batch> {
        let size = self.volume.block_size();
        let mut batch = Batch::default();
        let start = |at: u32| (u64::from(at) << size.log2()) + FIRST;
        let at = place.saturating_sub(FIRST) >> size.log2();
        let Ok(at) = u32::try_from(at) else { return Ok(batch) };
        if at >= self.blocks {
            return Ok(batch);
        }
        let at = LogicalBlock(at);
        if at.0.is_multiple_of(SCAN_AHEAD) {
            self.prefetch(at, SCAN_AHEAD);
        }
        let mut next = at.0 + 1;
        match self.block(at) {
            Ok(Some(_)) => self.names_of(at, None, &mut batch)?,
            Ok(None) => {
                batch.push_error(start(at.0), self.site().corrupt(What::DirectoryHole));
                next = self.after_hole(at)?;
            }
            // If the map is damaged, every later block would fail, too.
            Err(error @ Error::Corrupt { .. }) => {
                batch.push_error(start(at.0), error);
                next = self.blocks;
            }
            Err(error) => batch.push_error(start(at.0), error),
        }
        batch.next = (next < self.blocks).then(|| start(next));
        Ok(batch)
    }

    /// Appends the names of block `at`: by the hash of a version and within a range of places, or
    /// by byte offset. Damage of the block is appended as an error.
    fn names_of(
        &self,
        at: LogicalBlock,
        by_hash: Option<(HashVersion, std::ops::Range<u64>)>,
        batch: &mut Batch,
    ) -> Result<()> {
        let base = (u64::from(at.0) << self.volume.block_size().log2()) + FIRST;
        let start = by_hash.as_ref().map_or(base, |(_, range)| range.start.max(FIRST));
        let block = match self.block(at) {
            Ok(Some(block)) => block,
            Ok(None) => {
                batch.push_error(start, self.site().corrupt(What::DirectoryHole));
                return Ok(());
            }
            Err(error) => {
                batch.push_error(start, error);
                return Ok(());
            }
        };
        let names = match self.check_block(at, &block) {
            Ok(Names::Node) => return Ok(()),
            Ok(names) => names,
            Err(error) => {
                batch.push_error(start, error);
                return Ok(());
            }
        };
        let nokey = self.is_encrypted().then(|| NoKey::of(self));
        let bytes = block.read();
        let view = DirBlock::new(&bytes, self.format_of(names), self.site_of(&block));
        for entry in view.entries() {
            let place = match (&by_hash, &entry) {
                (Some((version, range)), Ok(entry)) => {
                    self.place_by_hash(*version, entry).clamp(start, range.end - 1)
                }
                (None, Ok(entry)) => base + entry.offset as u64,
                (_, Err(_)) => start,
            };
            take(entry, place, nokey.as_ref(), batch);
        }
        Ok(())
    }

    fn place_by_hash(&self, version: HashVersion, entry: &Dirent<'_>) -> u64 {
        let hash = match entry.stored_hash {
            Some((hash, minor)) => NameHash { hash, minor },
            None => self.hash_stored(version, entry.name).unwrap_or_default(),
        };
        // The oldest version has no minor hash.
        let minor = match version {
            HashVersion::Legacy => self.hasher(HashVersion::HalfMd4).hash(entry.name).minor,
            _ => hash.minor,
        };
        place_of(NameHash { minor, ..hash })
    }
}

fn take(entry: Result<Dirent<'_>>, place: u64, nokey: Option<&NoKey>, batch: &mut Batch) {
    match entry {
        Ok(entry) => {
            if let Some(ino) = entry.ino
                && !entry.is_dot_or_dotdot()
            {
                let start = batch.names.len();
                match nokey {
                    Some(nokey) => batch.names.extend_from_slice(&nokey.encode(&entry)),
                    None => batch.names.extend_from_slice(entry.name),
                }
                // The names of a few blocks.
                let name = (len_u32(start), len_u32(batch.names.len() - start));
                batch.entries.push((place, Ok(Listed { name, ino, kind: entry.kind })));
            }
        }
        Err(error) => batch.push_error(place, error),
    }
}
