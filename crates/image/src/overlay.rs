//! A tree that grows by one archive entry at a time, layer over layer.
//!
//! ```text
//!   put  a/b/c ──► a, b made if missing ──► c: new, or replaces what had the name
//!   link a/d c ──► a further name of a node
//!   whiteout a/x, opaque a ──► removes names of lower layers
//!
//!   links   (directory, name) ─hash─► link ──► node        one link for each name ever added;
//!           directory ─chain─► its links                   a removed name has no node
//! ```
//!
//! Paths are relative, without `.` and `..`. They never lead through a symbolic link.

use crate::draft::{Assembly, Draft, Each};
use crate::entry::{
    ArchiveId, Content, DataRange, Entries, ExtraTimes, Kind, MapId, Meta, Node, Xattr,
};
use crate::error::SourceError;
use crate::graft::Graft;
use crate::tree::{Archive, Tree};
use extant_base::narrow::len_u32;
use hashbrown::{DefaultHashBuilder, HashTable};
use std::hash::BuildHasher;
use std::sync::Arc;

const NONE: u32 = u32::MAX;

/// The most bytes of metadata in memory for all archives of one source; larger sources are refused.
const TEXT_LIMIT: usize = 2 << 30;

/// A tree under construction.
pub(crate) struct Overlay {
    /// The most bytes that the archives may unpack to, and the bytes unpacked so far.
    unpacked: (u64, u64),
    store: Assembly,
    aux: Vec<Aux>,
    links: Vec<Link>,
    names: HashTable<u32>,
    hasher: DefaultHashBuilder,
    layer: u32,
    last: LastPath,
    attribute_bytes: usize,
    pub(crate) max_entries: usize,
    /// Whether a hard link may name a file that no entry made, of the volume that the tree will be
    /// added to.
    pub(crate) links_outside: bool,
}

/// Data about a node that is needed only while the tree grows.
#[derive(Clone, Copy)]
struct Aux {
    /// The last layer that added something to the directory.
    layer: u32,
    /// The first link of a directory's chain.
    links: u32,
    /// The last layer in which the directory was opaque.
    opaque: u32,
}

#[derive(Clone, Copy)]
struct Link {
    dir: u32,
    name: crate::entry::Text,
    /// The node, or `NONE` if the name was removed.
    node: u32,
    /// The next link of the same directory.
    next: u32,
    /// The layer that added the name.
    layer: u32,
}

/// The directories of the last entry's path, from which the next entry's path starts: an archive of
/// a deep tree repeats the whole path in each entry.
#[derive(Default)]
struct LastPath {
    path: Vec<u8>,
    /// For each directory of the path: the end of its name in `path`, and its node.
    dirs: Vec<(usize, u32)>,
}

impl LastPath {
    /// Shortens the path to the last directory that `path` shares: the end of its name, and its
    /// node.
    fn common(&mut self, path: &[u8]) -> (usize, u32) {
        let same = self.path.iter().zip(path).take_while(|(a, b)| a == b).count();
        let mut known = self.dirs.partition_point(|(end, _)| *end <= same);
        if known > 0 {
            let end = self.dirs[known - 1].0;
            known -= usize::from(path.get(end).is_some_and(|&byte| byte != b'/'));
        }
        self.dirs.truncate(known);
        let (end, node) = self.dirs.last().copied().unwrap_or((0, 0));
        self.path.truncate(end);
        (end, node)
    }

    /// Adds one more directory, whose name ends `path`.
    fn enter(&mut self, path: &[u8], node: u32) {
        self.path.extend_from_slice(&path[self.path.len()..]);
        self.dirs.push((path.len(), node));
    }

    /// Clears the path: one of its names may now belong to another node.
    fn forget(&mut self) {
        self.path.clear();
        self.dirs.clear();
    }
}

/// One entry of an archive.
pub(crate) struct NewEntry {
    pub(crate) kind: NewKind,
    pub(crate) meta: Meta,
    pub(crate) times: ExtraTimes,
    pub(crate) xattrs: Vec<Xattr>,
}

/// The kind of a new entry, with what it refers to.
pub(crate) enum NewKind {
    Directory,
    Symlink(Vec<u8>),
    File { size: u64, archive: ArchiveId, offset: u64, ranges: Option<Vec<DataRange>> },
    Other(Kind),
}

/// Why an entry cannot be added to the tree.
pub(crate) type Fault = String;

impl Overlay {
    pub(crate) fn new(max_entries: usize) -> Overlay {
        let aux = Aux { layer: 0, links: NONE, opaque: NONE };
        Overlay {
            unpacked: (u64::MAX, 0),
            store: Assembly::new(Tree::empty()),
            aux: vec![aux],
            links: Vec::new(),
            names: HashTable::new(),
            hasher: DefaultHashBuilder::default(),
            layer: 0,
            last: LastPath::default(),
            attribute_bytes: 0,
            max_entries: max_entries.min(NONE as usize - 1),
            links_outside: false,
        }
    }

    /// Refuses archives that together unpack to more bytes.
    pub(crate) fn limit_unpacked(mut self, bytes: u64) -> Overlay {
        self.unpacked.0 = bytes;
        self
    }

    /// That limit.
    pub(crate) fn unpacked_max(&self) -> u64 {
        self.unpacked.0
    }

    /// Bytes that the next archive may unpack to.
    pub(crate) fn unpacked_left(&self) -> u64 {
        self.unpacked.0.saturating_sub(self.unpacked.1)
    }

    /// Adds the bytes of an archive that was read.
    pub(crate) fn count_unpacked(&mut self, bytes: u64) {
        self.unpacked.1 = self.unpacked.1.saturating_add(bytes);
    }

    /// Starts the next layer.
    pub(crate) fn next_layer(&mut self) {
        self.layer += 1;
        self.last.forget();
    }

    /// Adds an archive, to whose content later entries refer.
    pub(crate) fn add_archive(&mut self, archive: Archive) -> ArchiveId {
        let archives = &mut self.store.tree.archives;
        archives.push(archive);
        ArchiveId(len_u32(archives.len() - 1))
    }

    /// How many names were added so far.
    pub(crate) fn name_count(&self) -> usize {
        self.links.len()
    }

    fn kind(&self, node: u32) -> &Kind {
        &self.store.tree.nodes[node as usize].kind
    }

    fn is_directory(&self, node: u32) -> bool {
        self.kind(node).is_directory()
    }

    fn hash(&self, dir: u32, name: &[u8]) -> u64 {
        self.hasher.hash_one((dir, name))
    }

    fn find_link(&self, dir: u32, name: &[u8]) -> Option<u32> {
        let tree = &self.store.tree;
        let same = |&at: &u32| {
            let link = &self.links[at as usize];
            link.dir == dir && tree.text(link.name) == name
        };
        self.names.find(self.hash(dir, name), same).copied()
    }

    /// The node of a name, if the name exists.
    fn find(&self, dir: u32, name: &[u8]) -> Option<u32> {
        let node = self.links[self.find_link(dir, name)? as usize].node;
        (node != NONE).then_some(node)
    }

    /// The node of a path, which must not lead through a symbolic link.
    fn resolve(&self, path: &[u8]) -> Option<u32> {
        let names = path.split(|&b| b == b'/').filter(|n| !n.is_empty());
        names.into_iter().try_fold(0, |dir, name| self.find(dir, name))
    }

    /// Makes a name refer to a node, whatever it referred to before.
    fn set(&mut self, dir: u32, name: &[u8], node: u32) -> Result<(), Fault> {
        if let Some(at) = self.find_link(dir, name) {
            let link = &mut self.links[at as usize];
            let old = std::mem::replace(&mut link.node, node);
            link.layer = self.layer;
            if old != NONE && self.is_directory(old) {
                self.last.forget();
            }
            return Ok(());
        }
        if self.links.len() >= self.max_entries {
            return Err(format!("more than {} entries: not taken", self.max_entries));
        }
        let at = len_u32(self.links.len());
        let hash = self.hash(dir, name);
        let text = self.store.tree.add_text(name).map_err(|e| e.to_string())?;
        let next = std::mem::replace(&mut self.aux[dir as usize].links, at);
        self.links.push(Link { dir, name: text, node, next, layer: self.layer });
        let (links, tree, hasher) = (&self.links, &self.store.tree, &self.hasher);
        self.names.insert_unique(hash, at, |&at| {
            let link = &links[at as usize];
            hasher.hash_one((link.dir, tree.text(link.name)))
        });
        Ok(())
    }

    fn add_node(&mut self, node: Node) -> Result<u32, Fault> {
        let at = self.store.tree.nodes.len();
        // Nodes that lost their names still take memory, so they count.
        if at >= self.max_entries.saturating_mul(2) {
            return Err(format!("more than {} entries: not taken", self.max_entries));
        }
        self.store.tree.nodes.push(node);
        self.aux.push(Aux { layer: self.layer, links: NONE, opaque: NONE });
        Ok(len_u32(at))
    }

    /// The directory that holds the last name of `path`. Missing directories are made.
    fn parent<'p>(&mut self, path: &'p [u8]) -> Result<(u32, &'p [u8]), Fault> {
        let (dirs, name) = match path.iter().rposition(|&b| b == b'/') {
            Some(at) => (&path[..at], &path[at + 1..]),
            None => (&path[..0], path),
        };
        let (mut at, mut dir) = self.last.common(dirs);
        while at < dirs.len() {
            let start = at + usize::from(dirs[at] == b'/');
            at = dirs[start..].iter().position(|&b| b == b'/').map_or(dirs.len(), |n| start + n);
            let part = &dirs[start..at];
            if part.is_empty() {
                continue;
            }
            let link = self.find_link(dir, part).map(|at| self.links[at as usize]);
            dir = match link.filter(|link| link.node != NONE) {
                Some(link) if self.is_directory(link.node) => link.node,
                // A file or link of this layer: no name can be below a file, and below a link it
                // would be stored elsewhere. One of a lower layer: this layer replaces it by a
                // directory.
                Some(link) if link.layer == self.layer => {
                    let what = match self.kind(link.node) {
                        Kind::Symlink(_) => "a symbolic link",
                        _ => "no directory",
                    };
                    let part = crate::error::Shown::bytes(part);
                    return Err(format!("its path leads through {part}, {what}: refused"));
                }
                _ => {
                    let node = self.add_node(Node::implied_directory())?;
                    self.set(dir, part, node)?;
                    node
                }
            };
            self.aux[dir as usize].layer = self.layer;
            self.last.enter(&dirs[..at], dir);
        }
        Ok((dir, name))
    }

    /// Counts bytes that are kept in addition to the tree.
    pub(crate) fn weigh(&mut self, bytes: usize) -> Result<(), Fault> {
        self.attribute_bytes += bytes;
        let ranges = self.store.tree.ranges.len() * size_of::<DataRange>();
        if self.attribute_bytes + ranges + self.store.tree.text.len() > TEXT_LIMIT {
            return Err("names, attributes and sparse maps are over 2 GiB: not taken".into());
        }
        Ok(())
    }

    /// Adds an attribute to a node.
    pub(crate) fn add_xattr(&mut self, node: u32, name: &[u8], value: &[u8]) -> Result<(), Fault> {
        self.weigh(name.len() + value.len() + 64)?;
        let set = self.store.tree.nodes[node as usize].xattrs;
        let mut set = self.store.tree.xattr_sets[set as usize].to_vec();
        set.push(Xattr { name: name.into(), value: value.into() });
        set.sort_unstable_by(|a, b| a.name.cmp(&b.name));
        let set = self.store.xattr_set(&set.into()).map_err(|e| e.to_string())?;
        self.store.tree.nodes[node as usize].xattrs = set;
        Ok(())
    }

    /// Adds an entry and returns its node. It replaces an existing entry of that name, but a
    /// directory that replaces a directory keeps the names below it. An empty path is the root
    /// directory.
    pub(crate) fn put(&mut self, path: &[u8], entry: NewEntry) -> Result<u32, Fault> {
        let fault = |e: SourceError| e.to_string();
        let bytes = entry.xattrs.iter().map(|x| x.name.len() + x.value.len() + 64);
        self.weigh(bytes.sum::<usize>())?;
        let set: Arc<[Xattr]> = entry.xattrs.into();
        let sets = self.store.tree.xattr_sets.len();
        let xattrs = self.store.xattr_set(&set).map_err(fault)?;
        if sets == self.store.tree.xattr_sets.len() {
            // The set existed already: it takes no more memory.
            self.attribute_bytes -=
                set.iter().map(|x| x.name.len() + x.value.len() + 64).sum::<usize>();
        }
        let tree = &mut self.store.tree;
        let kind = match entry.kind {
            NewKind::Directory => Kind::Directory(Entries::default()),
            NewKind::Symlink(target) => Kind::Symlink(tree.add_text(&target).map_err(fault)?),
            NewKind::File { size, archive, offset, ranges } => {
                let map = match &ranges {
                    Some(ranges) if !ranges.is_empty() => tree.add_map(ranges).map_err(fault)?,
                    _ => MapId::DENSE,
                };
                let holes_only = ranges.is_some_and(|r| r.is_empty());
                let content = match size == 0 || holes_only {
                    true => Content::Empty,
                    false => Content::Archive { archive, offset },
                };
                Kind::File { size, content, map }
            }
            NewKind::Other(kind) => kind,
        };
        let mut node = Node::new(kind, entry.meta);
        node.xattrs = xattrs;
        node.times = tree.add_times(entry.times).map_err(fault)?;
        if path.is_empty() {
            if !kind.is_directory() {
                return Err("the root must be a directory".into());
            }
            tree.nodes[0] = node;
            return Ok(0);
        }
        let (dir, name) = self.parent(path)?;
        if kind.is_directory()
            && let Some(old) = self.find(dir, name)
            && self.is_directory(old)
        {
            self.store.tree.nodes[old as usize] = node;
            self.aux[old as usize].layer = self.layer;
            return Ok(old);
        }
        let node = self.add_node(node)?;
        self.set(dir, name, node)?;
        Ok(node)
    }

    /// Adds a further name to the node of `target`.
    pub(crate) fn link(&mut self, path: &[u8], target: &[u8]) -> Result<(), Fault> {
        let shown = crate::error::Shown::bytes(target);
        let node = match self.resolve(target) {
            Some(node) => node,
            None if self.links_outside => {
                let tree = &mut self.store.tree;
                let target = tree.add_text(target).map_err(|e| e.to_string())?;
                let content = Content::Outside(target);
                let kind = Kind::File { size: 0, content, map: MapId::DENSE };
                self.add_node(Node::new(kind, Meta::IMPLIED_DIRECTORY))?
            }
            None => return Err(format!("hard link to {shown}, which no earlier entry made")),
        };
        if self.is_directory(node) {
            return Err(format!("hard link to {shown}, which is a directory"));
        }
        if path.is_empty() {
            return Err("the root must be a directory".into());
        }
        let (dir, name) = self.parent(path)?;
        self.set(dir, name, node)
    }

    /// Removes a name, if lower layers made it.
    pub(crate) fn whiteout(&mut self, dir: &[u8], name: &[u8]) {
        let Some(dir) = self.resolve(dir) else { return };
        let Some(link) = self.find_link(dir, name) else { return };
        self.last.forget();
        self.remove_lower(link);
    }

    /// Removes all names of a directory that lower layers made.
    pub(crate) fn opaque(&mut self, dir: &[u8]) {
        let Some(dir) = self.resolve(dir) else { return };
        self.last.forget();
        self.clear_lower(dir);
    }

    fn remove_lower(&mut self, link: u32) {
        let Link { node, layer, .. } = self.links[link as usize];
        if node == NONE {
            return;
        }
        let is_directory = self.is_directory(node);
        if layer == self.layer && !is_directory {
            return;
        }
        if is_directory && self.aux[node as usize].layer == self.layer {
            // This layer added the directory, or something below it: that stays.
            self.clear_lower(node);
        } else {
            self.links[link as usize].node = NONE;
        }
    }

    fn clear_lower(&mut self, dir: u32) {
        let mut dirs = vec![dir];
        while let Some(dir) = dirs.pop() {
            // Once for each layer is enough: names of this layer are not removed.
            if std::mem::replace(&mut self.aux[dir as usize].opaque, self.layer) == self.layer {
                continue;
            }
            let mut at = self.aux[dir as usize].links;
            while at != NONE {
                let Link { node, next, layer, .. } = self.links[at as usize];
                if node == NONE || (layer == self.layer && !self.is_directory(node)) {
                } else if self.is_directory(node) && self.aux[node as usize].layer == self.layer {
                    dirs.push(node);
                } else {
                    self.links[at as usize].node = NONE;
                }
                at = next;
            }
        }
    }

    /// Returns the finished tree.
    pub(crate) fn finish(self) -> Result<Tree, SourceError> {
        let mut assembly = Assembly::new(Tree::bare());
        let graft = Graft::new(&self.store.tree, &mut assembly.tree)?;
        crate::draft::assemble(&Finished { overlay: &self, graft }, &mut assembly)?;
        Ok(assembly.tree)
    }
}

struct Finished<'o> {
    overlay: &'o Overlay,
    graft: Graft<'o>,
}

impl Draft for Finished<'_> {
    type Key = u32;
    type Identity = u32;

    fn root(&self) -> u32 {
        0
    }

    fn children(&self, dir: u32, each: &mut Each<'_, u32>) -> Result<(), SourceError> {
        let overlay = self.overlay;
        let mut names: Vec<(&[u8], u32)> = Vec::new();
        let mut at = overlay.aux[dir as usize].links;
        while at != NONE {
            let link = &overlay.links[at as usize];
            if link.node != NONE {
                names.push((overlay.store.tree.text(link.name), link.node));
            }
            at = link.next;
        }
        names.sort_unstable();
        names.into_iter().try_for_each(|(name, node)| each(name, node))
    }

    fn identity(&self, key: u32) -> Option<u32> {
        (!self.overlay.is_directory(key)).then_some(key)
    }

    fn node(&self, key: u32, assembly: &mut Assembly) -> Result<Node, SourceError> {
        self.graft.node(&self.overlay.store.tree.nodes[key as usize], assembly)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_way_to_an_entry_begins_where_it_parts_from_the_last_one() {
        let mut last = LastPath::default();
        for (n, end) in [1, 3, 6].into_iter().enumerate() {
            last.enter(&b"a/b/cd"[..end], n as u32 + 1);
        }
        let common = |path: &[u8]| {
            let (path_of, dirs) = (last.path.clone(), last.dirs.clone());
            LastPath { path: path_of, dirs }.common(path)
        };
        for (path, found) in [
            (&b"a/b/cd"[..], (6, 3)),
            (b"a/b/cd/e", (6, 3)),
            (b"a/b/cde", (3, 2)),
            (b"a/b/c", (3, 2)),
            (b"a/bc", (1, 1)),
            (b"ab", (0, 0)),
            (b"", (0, 0)),
        ] {
            assert_eq!(common(path), found, "{path:?}");
        }
    }
}
