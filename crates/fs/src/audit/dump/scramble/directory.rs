//! The names of one directory.

use super::entries;
use super::pool::{LeafRange, Leaves, Want};
use super::{Names, Scrambler, letter};
use crate::audit::dump::scan::Directory;
use crate::context::environment::SeededRng;
use extant_base::{Ino, Site};
use extant_ondisk::casefold::CaseFold;
use extant_ondisk::dirent::{DirBlock, DirBlockMut, DirFormat, name_is_legal, tail_of};
use extant_ondisk::features::Incompat;
use extant_ondisk::hash::{HashVersion, NameHasher};
use extant_ondisk::htree::{ENTRY_LEN, Index, IndexEntry, levels_max};
use extant_ondisk::superblock::SuperFlags;
use hashbrown::HashMap;
use std::ops::Range;

/// A block of a directory: its number in the directory, its number on the volume, its bytes.
pub(in crate::audit::dump) type Block = (u32, u64, Vec<u8>);

/// Where the entries of an index start in its root, and in its nodes.
const ROOT_ENTRIES: usize = 32;
const NODE_ENTRIES: usize = 8;

/// A name and the block or area that has it.
struct Place {
    block: usize,
    name: Range<usize>,
}

impl Scrambler<'_> {
    fn format(&self) -> DirFormat {
        DirFormat {
            filetype: self.view.has_incompat(Incompat::FILETYPE),
            checksums: self.view.csum.seed().is_some(),
            hash_words: false,
            opaque_names: false,
            inodes_count: self.view.geometry.inodes_count(),
        }
    }

    /// Replaces the names in all blocks of a directory.
    pub(in crate::audit::dump) fn directory(&self, dir: &Directory, blocks: &mut [Block]) -> Names {
        let Some(ino) = Ino::new(dir.ino) else { return Names::default() };
        let format = self.format();
        let mut leaves = None;
        let mut is_index = vec![false; blocks.len()];
        if dir.indexed {
            leaves = self.leaves(blocks, &format, &mut is_index);
        }
        let mut places = Vec::new();
        let mut were_right = Vec::with_capacity(blocks.len());
        for (n, (logical, _, bytes)) in blocks.iter_mut().enumerate() {
            let is_right =
                DirBlock::new(bytes, format, Site::NOWHERE).verify_checksum(dir.seed).is_ok();
            were_right.push(is_right && !is_index[n]);
            if is_index[n] {
                clear_unused(bytes, *logical == 0, &format);
                continue;
            }
            let has_tail = format.checksums && tail_of(bytes).is_some();
            let end = if has_tail { format.entries_end(bytes.len()) } else { bytes.len() };
            if dir.indexed && *logical == 0 && leaves.is_none() {
                // The root of an index that cannot be read.
                bytes[ROOT_ENTRIES + ENTRY_LEN..].fill(0);
                continue;
            }
            let names = entries::names(bytes, end);
            places.extend(names.into_iter().map(|name| Place { block: n, name }));
        }
        let fold = match dir.casefold {
            true => CaseFold::new(self.view.sb.encoding, self.view.sb.encoding_flags).ok(),
            false => None,
        };
        let logical: Vec<u32> = blocks.iter().map(|block| block.0).collect();
        let mut areas: Vec<&mut [u8]> = blocks.iter_mut().map(|block| &mut block.2[..]).collect();
        let names = self.replace(ino, &mut areas, &logical, places, leaves.as_ref(), fold.as_ref());
        for ((_, _, bytes), was_right) in blocks.iter_mut().zip(were_right) {
            if was_right && format.checksums {
                DirBlockMut::new(bytes, format, dir.seed, Site::NOWHERE).set_checksum();
            }
        }
        names
    }

    /// Replaces the names in both areas of an inline directory.
    pub(in crate::audit::dump) fn inline_directory(
        &self,
        ino: Ino,
        first: &mut [u8],
        second: &mut [u8],
    ) -> Names {
        let mut areas = [first, second];
        let mut places = Vec::new();
        for (n, area) in areas.iter_mut().enumerate() {
            let end = area.len();
            let names = entries::names(area, end);
            places.extend(names.into_iter().map(|name| Place { block: n, name }));
        }
        // Letters of one case are right with and without case folding.
        let fold = CaseFold::new(self.view.sb.encoding, self.view.sb.encoding_flags).ok();
        self.replace(ino, &mut areas, &[0, 0], places, None, fold.as_ref())
    }

    fn replace(
        &self,
        ino: Ino,
        areas: &mut [&mut [u8]],
        logical: &[u32],
        places: Vec<Place>,
        leaves: Option<&Leaves>,
        fold: Option<&CaseFold>,
    ) -> Names {
        let mut names = Names::default();
        let rng = SeededRng::new(self.seed ^ u64::from(ino.get()));
        let (mut wants, mut wanted) = (Vec::new(), Vec::new());
        for place in places {
            let name = &mut areas[place.block][place.name.clone()];
            if ino == Ino::ROOT && name == b"lost+found" {
                continue;
            }
            if !name_is_legal(name) {
                let replaced = name.iter_mut().filter(|byte| !matches!(byte, 0 | b'/'));
                replaced.for_each(|byte| *byte = letter(&rng));
                names.replaced += 1;
                continue;
            }
            let folded = fold.map_or_else(|| name.to_vec(), |fold| fold.hashed(name).into_owned());
            // Folding can change the length; the new name has that of the old one.
            let folded = if folded.len() == name.len() { folded } else { name.to_vec() };
            wants.push(Want { name: folded, leaf: logical[place.block] });
            wanted.push(place);
        }
        let found = self.pool(ino).names(&wants, leaves, fold.is_some());
        for (place, new) in wanted.into_iter().zip(found) {
            match new {
                Some(new) => {
                    areas[place.block][place.name].copy_from_slice(&new);
                    names.replaced += 1;
                }
                None => names.kept += 1,
            }
        }
        names
    }

    /// The leaves of a directory's index, and which blocks are the index. `None` if the root cannot
    /// be read, or if the hashes need a key.
    fn leaves(
        &self,
        blocks: &[Block],
        format: &DirFormat,
        is_index: &mut [bool],
    ) -> Option<Leaves> {
        let levels = levels_max(self.view.has_incompat(Incompat::LARGEDIR));
        let mut nodes = HashMap::new();
        let mut root = None;
        for (n, (logical, _, bytes)) in blocks.iter().enumerate() {
            if *logical == 0 {
                let (info, index) = Index::root(bytes, format, levels, Site::NOWHERE).ok()?;
                root = Some((info, index.entries().collect::<Vec<_>>()));
                is_index[n] = true;
            } else if let Ok(index) = Index::node(bytes, format, Site::NOWHERE) {
                nodes.insert(*logical, index.entries().collect::<Vec<_>>());
                is_index[n] = true;
            }
        }
        let (info, root) = root?;
        if info.hash_version == HashVersion::SipHash {
            return None;
        }
        let mut ranges = Vec::new();
        collect(&root, info.levels, None, &mut nodes, &mut ranges);
        ranges.sort_unstable_by_key(|range| range.low);
        let unsigned = self.view.sb.flags.contains(SuperFlags::UNSIGNED_HASH);
        let hasher = NameHasher::new(info.hash_version, unsigned, self.view.sb.hash_seed);
        Some(Leaves { hasher, ranges })
    }
}

/// Adds the leaves below an index block, which covers hashes up to `end`. A node that the index
/// names twice is walked once.
fn collect(
    entries: &[IndexEntry],
    levels: u8,
    end: Option<u32>,
    nodes: &mut HashMap<u32, Vec<IndexEntry>>,
    ranges: &mut Vec<LeafRange>,
) {
    for (n, entry) in entries.iter().enumerate() {
        let end = entries.get(n + 1).map(|next| next.key & !1).or(end);
        if levels > 0 {
            if let Some(below) = nodes.remove(&entry.block.0) {
                collect(&below, levels - 1, end, nodes, ranges);
            }
            continue;
        }
        // Where names with the smallest hash may also be in the leaf before, none is made.
        let low = entry.key.saturating_add(entry.key & 1);
        ranges.push(LeafRange { leaf: entry.block.0, low, end });
    }
}

/// Zeroes the part of an index block that has no entries.
fn clear_unused(bytes: &mut [u8], is_root: bool, format: &DirFormat) {
    let base = if is_root { ROOT_ENTRIES } else { NODE_ENTRIES };
    let levels = levels_max(true);
    let index = match is_root {
        true => Index::root(bytes, format, levels, Site::NOWHERE).map(|(_, index)| index),
        false => Index::node(bytes, format, Site::NOWHERE),
    };
    if let Ok(index) = index {
        let unused = base + index.count() * ENTRY_LEN..base + index.limit() * ENTRY_LEN;
        bytes[unused].fill(0);
    }
}
