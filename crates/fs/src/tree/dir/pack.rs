//! Building a whole directory from its complete list of names.
//!
//! ```text
//!   names, sorted ─┬─ fit the inode (inline_data)      inline
//!                  ├─ fit one block                    linear
//!                  ├─ no dir_index                     linear blocks, filled in order of names
//!                  └─ else                             htree, in order of hashes:
//!
//!   block   0      1 … M           M+1 … M+L
//!           root   inner nodes     leaves, filled to 95 %      all allocated at once
//! ```
//!
//! The result depends only on the set of names, not on their order. Names with the same hash go
//! into one leaf unless they alone need several; the key after such a cut has the collision bit.

use super::Dir;
use super::insert::check_new_name;
use crate::context::role::Role;
use crate::inodes::map::Target;
use crate::tree::dir::DirMut;
use crate::tree::dir::convert::new_hash_version;
use extant_base::narrow::{fits_u32, len_u32};
use extant_base::{BlockNr, Error, Ino, LogicalBlock, Result, Site};
use extant_journal::{Handle, Ineligible};
use extant_ondisk::casefold::CaseFold;
use extant_ondisk::dirent::{DirBlockMut, DirFormat, DirPacker, EntryKind};
use extant_ondisk::extent::ExtentState;
use extant_ondisk::features::{Compat, Incompat};
use extant_ondisk::htree::{IndexMut, RootInfo, levels_max, limit_node, limit_root};
use extant_ondisk::inline_dir::{BLOCK_AREA_LEN, InlineDirMut, PARENT_LEN};
use extant_ondisk::inode::InodeFlags;
use std::ops::Range;

/// Bytes of "." and ".." in block 0.
const DOTS_LEN: usize = 24;
/// How full leaves are made, in percent. The rest is for names that are added later.
const LEAF_FILL: usize = 95;

/// One name of a directory to be built.
#[derive(Clone, Copy, Debug)]
pub struct PackEntry<'a> {
    /// The name.
    pub name: &'a [u8],
    /// The inode of the name.
    pub ino: Ino,
    /// The kind of file.
    pub kind: EntryKind,
}

/// An htree to be written.
struct Plan {
    order: Vec<Ranked>,
    leaves: Vec<Leaf>,
    shape: Shape,
}

/// A leaf to write: the range of sorted names in it, and its key in the index.
struct Leaf {
    names: Range<u32>,
    key: u32,
}

/// Writes the directory's block with this number; its site and the inode's checksum seed are
/// arguments.
type WriteBlock<'a> = dyn FnMut(u32, &mut [u8], Site, u32) -> Role + 'a;

/// A name's position in the order: hash and minor hash, and its index in the entries.
type Ranked = (u64, u32);

impl DirMut<'_> {
    /// Makes the directory hold exactly `entries`, plus "." and ".." (`parent`).
    ///
    /// The former content is lost; its blocks are reused. The caller stores the inode and sets its
    /// times and links. Errors: `Exists` for a name that appears twice (in a casefolded directory:
    /// after folding); `NameTooLong`, `NameNotUtf8`, `Invalid` for names that are not allowed;
    /// `Encrypted`; `NoSpace`; after these the directory is unchanged, or empty and without blocks.
    /// `Device`. Locks: the caller holds the inode's; takes `Group`.
    pub(crate) fn pack(
        &mut self,
        handle: &Handle<'_>,
        parent: Ino,
        entries: &[PackEntry<'_>],
    ) -> Result<()> {
        self.volume.context().require_full_commit(handle, Ineligible::Directory);
        self.body.moves.change();
        let dir = self.volume.file(self.body).dir()?;
        if dir.is_encrypted() {
            return Err(Error::Encrypted);
        }
        let format = dir.format;
        let mut bytes = 0;
        for entry in entries {
            check_new_name(entry.name)?;
            bytes += format.need(entry.name);
        }
        let capacity = format.entries_end(self.volume.block_size().bytes());
        if bytes + DOTS_LEN > capacity && self.volume.has_compat(Compat::DIR_INDEX) {
            return self.pack_htree(handle, parent, entries);
        }
        let order = dir.by_name(entries)?;
        if self.pack_inline(parent, entries, &order, bytes)? {
            return Ok(());
        }
        self.pack_linear(handle, parent, entries, &order)
    }

    /// Puts the names into the inode. Returns `false`, without a change, if they do not fit.
    fn pack_inline(
        &mut self,
        parent: Ino,
        entries: &[PackEntry<'_>],
        order: &[u32],
        bytes: usize,
    ) -> Result<bool> {
        if !self.volume.has_incompat(Incompat::INLINE_DATA)
            || (self.body.disk.size > 0 && !self.body.disk.has_inline_data())
        {
            return Ok(false);
        }
        let format = self.volume.file(self.body).dir_format();
        let most = self.volume.file(self.body).inline_value_max()?;
        if bytes > BLOCK_AREA_LEN - PARENT_LEN + most {
            return Ok(false);
        }
        // The first area takes the names that fit, in order; the value takes the rest.
        let (mut first, mut second) = (BLOCK_AREA_LEN - PARENT_LEN, 0);
        for n in order {
            let need = format.need(entries[*n as usize].name);
            match first.checked_sub(need) {
                Some(left) => first = left,
                None => second += need,
            }
        }
        if second > most {
            return Ok(false);
        }
        let mut fresh = self.body.clone();
        if fresh.disk.has_inline_data() {
            self.volume.inline_mut(&mut fresh).end()?;
        }
        if !self.volume.inline_mut(&mut fresh).begin()? {
            return Ok(false);
        }
        self.volume.inline_mut(&mut fresh).resize_value(second)?;
        let range = self.volume.file(&fresh).inline_value_range()?;
        let (i_block, value) = (&mut fresh.disk.i_block, &mut fresh.raw[range]);
        let mut dir = InlineDirMut::new(i_block, value, format, Site::of_ino(self.ino()));
        dir.init(parent);
        for n in order {
            let entry = entries[*n as usize];
            if dir.insert(entry.name, entry.ino, entry.kind)?.is_none() {
                return Ok(false);
            }
        }
        fresh.disk.size = (BLOCK_AREA_LEN + second) as u64;
        *self.body = fresh;
        Ok(true)
    }

    /// Puts the names into linear blocks.
    fn pack_linear(
        &mut self,
        handle: &Handle<'_>,
        parent: Ino,
        entries: &[PackEntry<'_>],
        order: &[u32],
    ) -> Result<()> {
        let format = self.volume.file(self.body).dir_format();
        let capacity = format.entries_end(self.volume.block_size().bytes());
        let cuts = cut_blocks(&format, capacity, entries, order);
        let blocks = cuts.len() - 1;
        let ino = self.ino();
        self.fill_blocks(handle, blocks as u64, &mut |at, bytes, site, seed| {
            let mut packer = DirPacker::new(DirBlockMut::new(bytes, format, seed, site));
            if at == 0 {
                packer.push(b".", ino, EntryKind::Directory, None);
                packer.push(b"..", parent, EntryKind::Directory, None);
            }
            for index in &order[cuts[at as usize]..cuts[at as usize + 1]] {
                push(&mut packer, &entries[*index as usize]);
            }
            packer.finish();
            Role::DirLeaf(ino)
        })
    }

    /// Builds leaves in order of hashes and the index above them.
    fn pack_htree(
        &mut self,
        handle: &Handle<'_>,
        parent: Ino,
        entries: &[PackEntry<'_>],
    ) -> Result<()> {
        let dir = self.volume.file(self.body).dir()?;
        let format = dir.format;
        let Plan { order, leaves, shape } = dir.plan_htree(entries)?;
        let hash_version = new_hash_version(self.volume);
        let info = RootInfo { hash_version, levels: shape.levels() };
        let blocks = shape.blocks();
        let ino = self.ino();
        self.fill_blocks(handle, blocks, &mut |at, bytes, site, seed| {
            let at = at as usize;
            if at == 0 {
                let list = shape.children_of_root();
                let child = LogicalBlock(len_u32(list.start));
                let mut root =
                    IndexMut::init_root(bytes, &format, seed, (ino, parent), info, child);
                shape.fill_index(&mut root, list, &leaves);
                Role::DirRoot(ino)
            } else if at <= shape.nodes() {
                let list = shape.children_of(at);
                let child = LogicalBlock(len_u32(list.start));
                let mut node = IndexMut::init_node(bytes, &format, seed, child);
                shape.fill_index(&mut node, list, &leaves);
                Role::DirNode(ino)
            } else {
                let names = &leaves[at - 1 - shape.nodes()].names;
                let mut packer = DirPacker::new(DirBlockMut::new(bytes, format, seed, site));
                for (_, index) in &order[names.start as usize..names.end as usize] {
                    push(&mut packer, &entries[*index as usize]);
                }
                packer.finish();
                Role::DirLeaf(ino)
            }
        })?;
        self.body.disk.flags |= InodeFlags::INDEX;
        Ok(())
    }

    /// Gives the directory exactly `blocks` blocks, and calls `each` to write them in order.
    fn fill_blocks(
        &mut self,
        handle: &Handle<'_>,
        blocks: u64,
        each: &mut WriteBlock<'_>,
    ) -> Result<()> {
        self.check_dir_blocks(blocks)?;
        let blocks = fits_u32(blocks); // fewer than 2^28
        let size = self.volume.block_size();
        if self.body.disk.has_inline_data() {
            self.volume.inline_mut(self.body).end()?;
        }
        self.body.disk.flags.remove(InodeFlags::INDEX);
        let seed = self.body.seed(self.volume.context()).unwrap_or(0);
        let old = u32::try_from(self.body.disk.size >> size.log2()).unwrap_or(u32::MAX);
        if old > blocks {
            self.volume.file_mut(self.body).unmap_content(handle, blocks)?;
        }
        let (volume, ino) = (self.volume, self.ino());
        let filled =
            volume.file_mut(self.body).fill(handle, 0..blocks, ExtentState::Written, &mut |run| {
                let Target::Written(first) = run.target else {
                    return Err(Error::Invalid("a directory's blocks are written"));
                };
                for n in 0..run.len {
                    let nr = BlockNr(first.0 + u64::from(n));
                    let block = volume.journal().cache().get_new(nr)?;
                    let site = Site::of_ino(ino).block(nr);
                    let role = {
                        let block = block.write(handle)?;
                        each(run.logical.0 + n, &mut block.bytes_mut(), site, seed)
                    };
                    block.set_verified_as(role.kind());
                }
                Ok(())
            });
        if let Err(error) = filled {
            self.volume.file_mut(self.body).unmap_content(handle, 0)?;
            self.body.disk.size = 0;
            return Err(error);
        }
        self.body.disk.size = u64::from(blocks) << size.log2();
        Ok(())
    }
}

fn push(packer: &mut DirPacker<'_>, entry: &PackEntry<'_>) {
    let fits = packer.push(entry.name, entry.ino, entry.kind, None);
    assert!(fits, "the names of a block were counted to fit it");
}

impl Dir<'_> {
    /// How many blocks [`DirMut::pack`] gives to a directory with these entries, if they do not fit
    /// the inode.
    ///
    /// Errors: as `pack`.
    pub(crate) fn packed_blocks(&self, entries: &[PackEntry<'_>]) -> Result<u64> {
        let bytes: usize = entries.iter().map(|entry| self.format.need(entry.name)).sum();
        let capacity = self.format.entries_end(self.volume.block_size().bytes());
        if bytes + DOTS_LEN <= capacity {
            return Ok(1);
        }
        if self.volume.has_compat(Compat::DIR_INDEX) {
            return Ok(self.plan_htree(entries)?.shape.blocks());
        }
        let order = self.by_name(entries)?;
        Ok(cut_blocks(&self.format, capacity, entries, &order).len() as u64 - 1)
    }

    /// The order of names, the leaves and the index of a directory with these entries.
    fn plan_htree(&self, entries: &[PackEntry<'_>]) -> Result<Plan> {
        let block = self.volume.block_size().bytes();
        let order = self.by_hash(entries)?;
        let leaves = cut_leaves(&self.format, block, entries, &order);
        let levels_max = levels_max(self.volume.has_incompat(Incompat::LARGEDIR));
        let shape = Shape::of(leaves.len(), block, &self.format, levels_max);
        Ok(Plan { order, leaves, shape: shape.ok_or(Error::NoSpace)? })
    }

    /// The indexes of the entries in order of their names.
    ///
    /// Errors: `Exists` for a name that appears twice.
    fn by_name(&self, entries: &[PackEntry<'_>]) -> Result<Vec<u32>> {
        let mut order: Vec<u32> = (0..len_u32(entries.len())).collect();
        if self.folds() {
            self.check_folded(entries, &mut order.clone())?;
        }
        order.sort_unstable_by_key(|n| entries[*n as usize].name);
        let twice = |pair: &[u32]| entries[pair[0] as usize].name == entries[pair[1] as usize].name;
        if order.windows(2).any(twice) {
            return Err(Error::Exists);
        }
        Ok(order)
    }

    /// `Exists` if two names are equal after folding, `NameNotUtf8` if a name is not allowed.
    fn check_folded(&self, entries: &[PackEntry<'_>], of: &mut [u32]) -> Result<()> {
        let superblock = self.volume.at_open();
        let rules = CaseFold::new(superblock.encoding, superblock.encoding_flags)?;
        let mut folded = Vec::with_capacity(of.len());
        for n in of {
            let name = entries[*n as usize].name;
            rules.check_new(name)?;
            folded.push(rules.hashed(name));
        }
        folded.sort_unstable();
        if folded.windows(2).any(|pair| pair[0] == pair[1]) {
            return Err(Error::Exists);
        }
        Ok(())
    }

    /// The indexes of the entries in order of their hashes; names with the same hash in order of
    /// names.
    ///
    /// Errors: `Exists` for a name that appears twice.
    fn by_hash(&self, entries: &[PackEntry<'_>]) -> Result<Vec<Ranked>> {
        let version = new_hash_version(self.volume);
        let hasher = self.hasher(version);
        let mut order: Vec<Ranked> = Vec::with_capacity(entries.len());
        for (n, entry) in entries.iter().enumerate() {
            let hash = match self.folds() {
                true => hasher.hash(&self.hashed(entry.name)?),
                false => hasher.hash(entry.name),
            };
            order.push((u64::from(hash.hash) << 32 | u64::from(hash.minor), len_u32(n)));
        }
        order.sort_unstable();
        // Equal names have equal hashes, so only names with the same hash need to be compared.
        for part in order.chunk_by_mut(|a, b| a.0 >> 32 == b.0 >> 32) {
            if part.len() > 1 {
                part.sort_unstable_by_key(|(_, n)| entries[*n as usize].name);
                let twice = |pair: &[Ranked]| {
                    entries[pair[0].1 as usize].name == entries[pair[1].1 as usize].name
                };
                if part.windows(2).any(twice) {
                    return Err(Error::Exists);
                }
                if self.folds() {
                    let mut same: Vec<u32> = part.iter().map(|(_, n)| *n).collect();
                    self.check_folded(entries, &mut same)?;
                }
            } else if self.folds() {
                self.check_folded(entries, &mut [part[0].1])?;
            }
        }
        Ok(order)
    }
}

/// Cuts the sorted names into linear blocks: where each begins, and the number of names.
fn cut_blocks(
    format: &DirFormat,
    capacity: usize,
    entries: &[PackEntry<'_>],
    order: &[u32],
) -> Vec<usize> {
    let mut cuts = vec![0];
    let mut used = DOTS_LEN;
    for (n, index) in order.iter().enumerate() {
        let need = format.need(entries[*index as usize].name);
        if used + need > capacity {
            cuts.push(n);
            used = 0;
        }
        used += need;
    }
    cuts.push(order.len());
    cuts
}

/// Cuts the sorted names into leaves.
fn cut_leaves(
    format: &DirFormat,
    block: usize,
    entries: &[PackEntry<'_>],
    order: &[Ranked],
) -> Vec<Leaf> {
    let capacity = format.entries_end(block);
    let target = capacity * LEAF_FILL / 100;
    let mut leaves = Vec::with_capacity(order.len() / (capacity / 32) + 1);
    let (mut start, mut at, mut used, mut key) = (0_u32, 0_u32, 0, 0);
    for part in order.chunk_by(|a, b| a.0 >> 32 == b.0 >> 32) {
        let hash = (part[0].0 >> 32) as u32;
        let need = |ranked: &Ranked| format.need(entries[ranked.1 as usize].name);
        let whole: usize = part.iter().map(need).sum();
        // All names of one hash go into one leaf if they fit into one.
        if used > 0 && used + whole > target {
            leaves.push(Leaf { names: start..at, key });
            (start, used, key) = (at, 0, hash);
        }
        for ranked in part {
            if used + need(ranked) > capacity {
                leaves.push(Leaf { names: start..at, key });
                // The hash continues from the leaf before.
                (start, used, key) = (at, 0, hash | 1);
            }
            used += need(ranked);
            at += 1;
        }
    }
    leaves.push(Leaf { names: start..len_u32(order.len()), key });
    leaves
}

/// How many index blocks are on each level below the root, and where.
struct Shape {
    leaves: usize,
    /// Nodes on the level below the root, and on the one above the leaves (0 with one level).
    upper: usize,
    lower: usize,
}

impl Shape {
    /// The flattest tree over this many leaves; `None` if it would have too many levels.
    fn of(leaves: usize, block: usize, format: &DirFormat, levels_max: u8) -> Option<Shape> {
        let root = limit_root(block, format.checksums);
        let node = limit_node(block, format.checksums, format.hash_words);
        if leaves <= root {
            return Some(Shape { leaves, upper: 0, lower: 0 });
        }
        // Nodes keep a little free space, unless that costs a level.
        let loose = node - node / 16;
        for fill in [loose, node] {
            let upper = leaves.div_ceil(fill);
            if upper <= root {
                return Some(Shape { leaves, upper, lower: 0 });
            }
        }
        for fill in [loose, node] {
            let lower = leaves.div_ceil(fill);
            let upper = lower.div_ceil(fill);
            if upper <= root && levels_max >= 2 {
                return Some(Shape { leaves, upper, lower });
            }
        }
        None
    }

    fn levels(&self) -> u8 {
        u8::from(self.upper > 0) + u8::from(self.lower > 0)
    }

    fn nodes(&self) -> usize {
        self.upper + self.lower
    }

    /// Blocks of the directory: the root, nodes and leaves.
    fn blocks(&self) -> u64 {
        1 + self.nodes() as u64 + self.leaves as u64
    }

    /// The logical blocks that the root points to.
    fn children_of_root(&self) -> Range<usize> {
        match self.upper {
            0 => 1..1 + self.leaves,
            upper => 1..1 + upper,
        }
    }

    /// The logical blocks that the node in block `at` points to: an even share.
    fn children_of(&self, at: usize) -> Range<usize> {
        let share = |n: usize, of: usize, total: usize| total * n / of;
        let n = at - 1;
        if self.lower > 0 && n < self.upper {
            let first = 1 + self.upper;
            let part = |n| first + share(n, self.upper, self.lower);
            return part(n)..part(n + 1);
        }
        let (n, of) = match self.lower {
            0 => (n, self.upper),
            lower => (n - self.upper, lower),
        };
        let first = 1 + self.nodes();
        let part = |n| first + share(n, of, self.leaves);
        part(n)..part(n + 1)
    }

    /// The first leaf below logical block `at`.
    fn first_leaf(&self, mut at: usize) -> usize {
        while at <= self.nodes() {
            at = self.children_of(at).start;
        }
        at - 1 - self.nodes()
    }

    /// Adds the blocks of `list` to the index, except the first, which is there already.
    fn fill_index(&self, index: &mut IndexMut<'_>, list: Range<usize>, leaves: &[Leaf]) {
        let rest = list.start + 1..list.end;
        index.extend(rest.map(|at| (leaves[self.first_leaf(at)].key, LogicalBlock(len_u32(at)))));
    }
}
