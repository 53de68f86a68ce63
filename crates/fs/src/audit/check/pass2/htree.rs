//! The index of a directory: every leaf appears once, at the right depth, and every name is in its
//! leaf's range.
//!
//! ```text
//!   as blocks are read: root, nodes ──► entries kept      leaf ──► smallest and largest hash
//!   afterwards:         from the root down, with the range of hashes of each entry:
//!
//!        [0 ─────── k1) [k1 ─────── k2) [k2 ──────── end)      k with bit 0: its hash may also
//!          leaf A         leaf B          leaf C               be in the leaf before
//! ```

use super::entries::Directory;
use crate::audit::check::view::View;
use extant_base::{Site, What};
use extant_ondisk::casefold::CaseFold;
use extant_ondisk::dirent::{DirFormat, Dirent};
use extant_ondisk::features::Incompat;
use extant_ondisk::hash::{HashVersion, NameHasher};
use extant_ondisk::htree::{
    Index, IndexEntry, RawCountLimit, levels_max, limit_node, looks_like_node,
};
use extant_ondisk::superblock::SuperFlags;
use hashbrown::HashMap;
use zerocopy::FromBytes;

/// The hashes of a leaf's names.
#[derive(Clone, Copy, Debug)]
struct Leaf {
    min: u32,
    max: u32,
}

/// The index of one directory.
pub(super) struct Tree {
    hasher: NameHasher,
    levels: u8,
    root: Vec<IndexEntry>,
    nodes: HashMap<u32, Vec<IndexEntry>>,
    leaves: HashMap<u32, Leaf>,
    /// The leaf to which the names that are added now belong.
    now: Option<(u32, Leaf)>,
}

impl Tree {
    /// The tree whose root is `bytes`; `None`, with a finding, if this is not a root.
    pub(super) fn root(directory: &Directory<'_, '_>, bytes: &[u8], at: Site) -> Option<Tree> {
        let view = directory.view;
        let levels = levels_max(view.has_incompat(Incompat::LARGEDIR));
        let (info, index) = match Index::root(bytes, &directory.format, levels, at) {
            Ok(root) => root,
            Err(error) => {
                view.corrupt(&error, "");
                return None;
            }
        };
        let sip = info.hash_version == HashVersion::SipHash;
        if sip != directory.format.hash_words {
            view.error_with(What::HtreeRoot, at, "hash version");
            return None;
        }
        check_index(view, &index, directory.dir.seed);
        let unsigned = view.sb.flags.contains(SuperFlags::UNSIGNED_HASH);
        Some(Tree {
            hasher: NameHasher::new(info.hash_version, unsigned, view.sb.hash_seed),
            levels: info.levels,
            root: index.entries().collect(),
            nodes: HashMap::new(),
            leaves: HashMap::new(),
            now: None,
        })
    }

    /// Whether a block is an inner node. An empty leaf may look like one but has no limit field.
    pub(super) fn is_node(format: &DirFormat, bytes: &[u8]) -> bool {
        let limit = limit_node(bytes.len(), format.checksums, format.hash_words);
        let raw = bytes.get(8..).and_then(|rest| RawCountLimit::ref_from_prefix(rest).ok());
        looks_like_node(bytes) && raw.is_some_and(|(raw, _)| usize::from(raw.limit.get()) == limit)
    }

    /// Stores an inner node for later.
    pub(super) fn node(
        &mut self,
        view: &View<'_>,
        format: &DirFormat,
        seed: u32,
        logical: u32,
        bytes: &[u8],
        at: Site,
    ) {
        match Index::node(bytes, format, at) {
            Ok(index) => {
                check_index(view, &index, seed);
                self.nodes.insert(logical, index.entries().collect());
            }
            Err(error) => view.corrupt(&error, ""),
        }
    }

    /// From now on, names belong to leaf `logical`.
    pub(super) fn begin_leaf(&mut self, logical: u32) {
        self.end_leaf();
        self.now = Some((logical, Leaf { min: u32::MAX, max: 0 }));
    }

    fn end_leaf(&mut self) {
        if let Some((logical, leaf)) = self.now.take() {
            self.leaves.insert(logical, leaf);
        }
    }

    /// Adds the hash of a name to its leaf.
    pub(super) fn name(&mut self, fold: Option<&CaseFold>, entry: &Dirent<'_>, logical: u32) {
        let hash = match (entry.stored_hash, fold) {
            (Some((hash, _)), _) => hash & !1,
            (None, Some(fold)) => self.hasher.hash(&fold.hashed(entry.name)).hash,
            (None, None) => self.hasher.hash(entry.name).hash,
        };
        if let Some((now, leaf)) = &mut self.now
            && *now == logical
        {
            leaf.min = leaf.min.min(hash);
            leaf.max = leaf.max.max(hash);
        }
    }

    /// Walks the tree after all blocks were read.
    pub(super) fn finish(mut self, directory: &Directory<'_, '_>) {
        self.end_leaf();
        let mut walk = Walk { tree: &self, directory, seen: HashMap::new() };
        walk.index(&self.root, self.levels, 0, None);
        let seen = walk.seen;
        let mut missing: Vec<u32> = (self.leaves.keys().chain(self.nodes.keys()))
            .filter(|logical| !seen.contains_key(*logical))
            .copied()
            .collect();
        missing.sort_unstable();
        for logical in missing.into_iter().take(16) {
            let detail = format!("block {logical} is not in the index");
            directory.view.error_with(What::HtreeLeaf, directory.site(), detail);
        }
    }
}

fn check_index(view: &View<'_>, index: &Index<'_>, seed: u32) {
    if let Err(error) = index.verify_checksum(seed) {
        view.corrupt(&error, "");
    }
    if let Err(error) = index.check_order() {
        view.corrupt(&error, "order");
    }
}

struct Walk<'w, 'd, 'v> {
    tree: &'w Tree,
    directory: &'w Directory<'d, 'v>,
    /// How often the index contains each block.
    seen: HashMap<u32, u32>,
}

impl Walk<'_, '_, '_> {
    /// Checks the entries of an index block that covers the hashes from `low` up to the key `end`.
    fn index(&mut self, entries: &[IndexEntry], levels: u8, low: u32, end: Option<u32>) {
        for (n, entry) in entries.iter().enumerate() {
            let low = if n == 0 { low } else { entry.key & !1 };
            let end = entries.get(n + 1).map(|next| next.key).or(end);
            let logical = entry.block.0;
            let count = self.seen.entry(logical).or_insert(0);
            *count += 1;
            // A block that appears twice is not walked twice.
            if *count > 1 || logical == 0 {
                self.wrong(What::HtreeLeaf, format!("block {logical} is named twice"));
                continue;
            }
            if levels > 0 {
                match self.tree.nodes.get(&logical) {
                    Some(node) => self.index(node, levels - 1, low, end),
                    None => self.wrong(What::HtreeNode, format!("block {logical} is no node")),
                }
                continue;
            }
            match self.tree.leaves.get(&logical) {
                None => self.wrong(What::HtreeLeaf, format!("block {logical} is no leaf")),
                // A leaf without names fits any range.
                Some(leaf) if leaf.min > leaf.max => {}
                Some(leaf) => {
                    let above = end.is_some_and(|end| match end & 1 {
                        0 => leaf.max >= end,
                        _ => leaf.max > end & !1,
                    });
                    if leaf.min < low || above {
                        let end = end.unwrap_or(u32::MAX);
                        let (min, max) = (leaf.min, leaf.max);
                        self.wrong(
                            What::HtreeHash,
                            format!(
                                "block {logical} holds {min:#x}..={max:#x} in {low:#x}..{end:#x}"
                            ),
                        );
                    }
                }
            }
        }
    }

    fn wrong(&self, what: What, detail: String) {
        self.directory.view.error_with(what, self.directory.site(), detail);
    }
}
