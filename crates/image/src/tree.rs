//! The tree that an image is made of: all sources are read into it, and the builder starts from it.
//!
//! ```text
//!   entries   ┌ etc │ lib │ usr ┬ passwd │ shadow ┬ …      one run per directory,
//!             └──┬──┴──┬──┴──┬──┴────┬───┴────────┘        names sorted by bytes
//!   nodes     ┌──▼──┬──▼──┬──▼──┬────▼───┬────────┬ …      two entries may lead to
//!             └─────┴─────┴─────┴────────┴────────┘        one node: a hard link
//! ```
//!
//! Nodes are numbered directory by directory, parents first, the children of one directory
//! consecutively in the order of their names. The numbering depends only on the content, not on the
//! order in which threads or archives delivered it.

use crate::entry::{
    Content, DataRange, Entries, ExtraTimes, HostFileId, Kind, MapId, Meta, Node, NodeId, Text,
    Time, Xattr,
};
use crate::error::SourceError;
use extant_base::narrow::len_u32;
use parking_lot::Mutex;
use rustix::fd::OwnedFd;
use std::ffi::OsStr;
use std::fs::File;
use std::os::unix::ffi::OsStrExt;
use std::path::PathBuf;
use std::sync::Arc;

/// One name in a directory.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Entry {
    pub(crate) name: Text,
    pub(crate) node: u32,
}

/// A source directory that is held open.
#[derive(Clone, Debug)]
pub(crate) struct HostRoot {
    pub(crate) path: PathBuf,
    pub(crate) fd: Arc<OwnedFd>,
}

/// A directory below a source's root that holds files of the tree.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HostDir {
    pub(crate) root: u32,
    /// Index of the parent; its own index for the source's root itself.
    pub(crate) parent: u32,
    pub(crate) name: Text,
}

/// A file of a source directory, with the values that the listing saw.
#[derive(Clone, Copy, Debug)]
pub(crate) struct HostFile {
    pub(crate) dir: u32,
    pub(crate) name: Text,
    pub(crate) ino: u64,
    pub(crate) size: u64,
    pub(crate) mtime: Time,
}

/// A file that contains files' bytes: an archive, or the spool of a compressed one.
#[derive(Clone, Debug)]
pub(crate) struct Archive {
    pub(crate) path: PathBuf,
    pub(crate) file: Arc<File>,
}

/// The sources of an image, read and merged: names, inodes, and where the bytes are.
#[derive(Debug)]
pub struct Tree {
    pub(crate) nodes: Vec<Node>,
    pub(crate) entries: Vec<Entry>,
    pub(crate) text: Vec<u8>,
    /// Index 0 is the empty set.
    pub(crate) xattr_sets: Vec<Arc<[Xattr]>>,
    /// Index 0 is "none given".
    pub(crate) times: Vec<ExtraTimes>,
    /// Index 0 is "dense".
    pub(crate) maps: Vec<(u32, u32)>,
    pub(crate) ranges: Vec<DataRange>,
    pub(crate) inline: Vec<Box<[u8]>>,
    pub(crate) roots: Vec<HostRoot>,
    pub(crate) host_dirs: Vec<HostDir>,
    pub(crate) host_files: Vec<HostFile>,
    pub(crate) archives: Vec<Archive>,
    pub(crate) problems: Mutex<Vec<SourceError>>,
    pub(crate) keep_going: bool,
}

impl Default for Tree {
    fn default() -> Tree {
        Tree::empty()
    }
}

impl Tree {
    /// A tree that consists of a root directory (mode 0755, owner 0:0, time 0).
    pub fn empty() -> Tree {
        let mut tree = Tree::bare();
        tree.nodes.push(Node::implied_directory());
        tree
    }

    /// A tree without a root, for an assembly.
    pub(crate) fn bare() -> Tree {
        Tree {
            nodes: Vec::new(),
            entries: Vec::new(),
            text: Vec::new(),
            xattr_sets: vec![Arc::from([])],
            times: vec![ExtraTimes::default()],
            maps: vec![(0, 0)],
            ranges: Vec::new(),
            inline: Vec::new(),
            roots: Vec::new(),
            host_dirs: Vec::new(),
            host_files: Vec::new(),
            archives: Vec::new(),
            problems: Mutex::new(Vec::new()),
            keep_going: false,
        }
    }

    /// Replaces mode, owner, group and time of the root directory.
    pub fn set_root(&mut self, meta: Meta) {
        if let Some(root) = self.nodes.first_mut() {
            root.meta = meta;
        }
    }

    /// All nodes, by [`NodeId::index`]. The first is the root directory.
    pub fn nodes(&self) -> &[Node] {
        &self.nodes
    }

    /// All nodes with their ids, parents before children.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = (NodeId, &Node)> {
        self.nodes.iter().enumerate().map(|(at, node)| (NodeId(len_u32(at)), node))
    }

    /// A node of this tree.
    ///
    /// # Panics
    /// If `id` belongs to another tree and is out of range here.
    pub fn node(&self, id: NodeId) -> &Node {
        &self.nodes[id.index()]
    }

    /// The number of nodes, which is the number of inodes that the image needs, including the root.
    pub fn node_count(&self) -> usize {
        self.nodes.len()
    }

    /// The number of names, including all hard links but not the root.
    pub fn name_count(&self) -> usize {
        self.entries.len()
    }

    /// Bytes of data of all regular files, without holes.
    pub fn data_bytes(&self) -> u64 {
        self.iter().map(|(id, _)| self.data_map(id).data_bytes()).fold(0, u64::saturating_add)
    }

    /// The names in a directory, sorted by bytes; empty for anything else.
    pub fn children(&self, id: NodeId) -> Children<'_> {
        let run = match self.node(id).kind {
            Kind::Directory(run) => run,
            _ => Entries::default(),
        };
        let first = run.first as usize;
        Children { tree: self, entries: self.entries[first..first + run.count as usize].iter() }
    }

    /// The node at a path. Components are separated by `/`; `.` and empty components are skipped.
    /// Symbolic links are not followed.
    pub fn find(&self, path: &[u8]) -> Option<NodeId> {
        let mut at = NodeId::ROOT;
        for name in path.split(|&b| b == b'/').filter(|n| !n.is_empty() && *n != b".") {
            at = self.child(at, name)?;
        }
        Some(at)
    }

    /// The node of a name in a directory.
    pub fn child(&self, dir: NodeId, name: &[u8]) -> Option<NodeId> {
        let Kind::Directory(run) = self.node(dir).kind else { return None };
        let run = &self.entries[run.first as usize..][..run.count as usize];
        let at = run.binary_search_by(|e| self.text(e.name).cmp(name)).ok()?;
        Some(NodeId(run[at].node))
    }

    /// A symbolic link's target, 1..=4095 bytes; empty for anything else.
    pub fn target(&self, id: NodeId) -> &[u8] {
        match self.node(id).kind {
            Kind::Symlink(target) => self.text(target),
            _ => &[],
        }
    }

    /// The path from the root of the file that a hard link names, when that file is not in this
    /// tree but on the volume to which the tree is added. Only with
    /// [`SourceOptions::links_outside`](crate::SourceOptions::links_outside).
    pub fn outside(&self, id: NodeId) -> Option<&[u8]> {
        match self.node(id).kind {
            Kind::File { content: Content::Outside(target), .. } => Some(self.text(target)),
            _ => None,
        }
    }

    /// The extended attributes of a node, sorted by name.
    pub fn xattrs(&self, id: NodeId) -> &[Xattr] {
        &self.xattr_sets[self.node(id).xattrs as usize]
    }

    /// Access and change time, where the source gives them.
    pub fn extra_times(&self, id: NodeId) -> ExtraTimes {
        self.times[self.node(id).times as usize]
    }

    /// The data ranges of a regular file; empty for anything else.
    pub fn data_map(&self, id: NodeId) -> DataMap<'_> {
        match self.node(id).kind {
            Kind::File { size, content: Content::Empty | Content::Outside(_), .. } => {
                DataMap { size, ranges: Some(&[]) }
            }
            Kind::File { size, map: MapId::DENSE, .. } => DataMap { size, ranges: None },
            Kind::File { size, map, .. } => DataMap { size, ranges: Some(self.map_ranges(map)) },
            _ => DataMap { size: 0, ranges: Some(&[]) },
        }
    }

    pub(crate) fn map_ranges(&self, map: MapId) -> &[DataRange] {
        let (first, count) = self.maps[map.0 as usize];
        &self.ranges[first as usize..][..count as usize]
    }

    /// The path of a node's first name from the root of the tree, without a leading `/`; empty
    /// for the root. Meant for messages, because it searches the parents.
    pub fn path(&self, id: NodeId) -> PathBuf {
        let mut names = Vec::new();
        let mut at = id;
        while at != NodeId::ROOT {
            let parent = self.node(at).parent();
            let name = self.children(parent).find(|(_, child)| *child == at).map(|(name, _)| name);
            names.push(name.unwrap_or(b"?"));
            at = parent;
        }
        names.iter().rev().map(|name| OsStr::from_bytes(name)).collect()
    }

    /// The errors that `keep_going` skipped, in the order of the paths: entries that could not be
    /// listed, which are missing in the tree, and files that could not be read, which are zero
    /// from the position of the error on.
    pub fn take_problems(&self) -> Vec<SourceError> {
        let mut problems = std::mem::take(&mut *self.problems.lock());
        problems.sort_by(|a, b| a.path().cmp(&b.path()));
        problems
    }

    pub(crate) fn text(&self, text: Text) -> &[u8] {
        &self.text[text.at as usize..][..text.len as usize]
    }

    /// The location of a source directory, for messages and for opening it: the root and the path
    /// below it.
    pub(crate) fn host_dir_path(&self, dir: u32) -> (&HostRoot, Vec<u8>) {
        let mut names = Vec::new();
        let mut at = dir;
        while self.host_dirs[at as usize].parent != at {
            names.push(self.host_dirs[at as usize].name);
            at = self.host_dirs[at as usize].parent;
        }
        let mut path = Vec::new();
        for name in names.iter().rev() {
            path.extend_from_slice(self.text(*name));
            path.push(b'/');
        }
        path.pop();
        (&self.roots[self.host_dirs[at as usize].root as usize], path)
    }

    pub(crate) fn host_file_path(&self, file: HostFileId) -> PathBuf {
        let file = &self.host_files[file.0 as usize];
        let (root, dir) = self.host_dir_path(file.dir);
        root.path.join(OsStr::from_bytes(&dir)).join(OsStr::from_bytes(self.text(file.name)))
    }

    /// Stores a name or target. Errors: more than 4 GiB of text.
    pub(crate) fn add_text(&mut self, bytes: &[u8]) -> Result<Text, SourceError> {
        let at = self.text.len();
        let len = u16::try_from(bytes.len());
        let (Ok(at_word), Ok(len)) = (u32::try_from(at), len) else {
            return Err(too_much("names longer than 4 GiB in all"));
        };
        self.text.extend_from_slice(bytes);
        Ok(Text { at: at_word, len })
    }

    pub(crate) fn add_map(&mut self, ranges: &[DataRange]) -> Result<MapId, SourceError> {
        let first = u32::try_from(self.ranges.len());
        let count = u32::try_from(ranges.len());
        let id = u32::try_from(self.maps.len());
        let (Ok(first), Ok(count), Ok(id)) = (first, count, id) else {
            return Err(too_much("more than 2^32 ranges of sparse files"));
        };
        self.ranges.extend_from_slice(ranges);
        self.maps.push((first, count));
        Ok(MapId(id))
    }

    pub(crate) fn add_times(&mut self, times: ExtraTimes) -> Result<u32, SourceError> {
        if times == ExtraTimes::default() {
            return Ok(0);
        }
        self.times.push(times);
        index(self.times.len() - 1)
    }
}

/// Converts an index to 32 bits. Errors: the sources contain more than one image can store.
pub(crate) fn index(len: usize) -> Result<u32, SourceError> {
    u32::try_from(len).map_err(|_| too_much("more than 2^32 entries"))
}

fn too_much(what: &str) -> SourceError {
    SourceError::source("sources", format!("{what}: more than one image can hold"))
}

/// The names in a directory and their nodes, in order; see [`Tree::children`].
#[derive(Clone)]
pub struct Children<'t> {
    tree: &'t Tree,
    entries: std::slice::Iter<'t, Entry>,
}

impl std::fmt::Debug for Children<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Children").field("left", &self.entries.len()).finish_non_exhaustive()
    }
}

impl<'t> Iterator for Children<'t> {
    type Item = (&'t [u8], NodeId);

    fn next(&mut self) -> Option<Self::Item> {
        self.entries.next().map(|e| (self.tree.text(e.name), NodeId(e.node)))
    }

    fn size_hint(&self) -> (usize, Option<usize>) {
        self.entries.size_hint()
    }
}

impl ExactSizeIterator for Children<'_> {}

/// The data ranges of a regular file. Everything between them reads as zeros.
#[derive(Clone, Copy, Debug)]
pub struct DataMap<'t> {
    size: u64,
    ranges: Option<&'t [DataRange]>,
}

impl DataMap<'_> {
    /// True if the whole file is data, or it is empty.
    pub fn is_dense(&self) -> bool {
        self.ranges.is_none() || self.size == 0
    }

    /// The data ranges: ascending, separate, never empty, all below the file's size. Each is
    /// `(offset, len)` in bytes.
    pub fn ranges(&self) -> impl Iterator<Item = (u64, u64)> + '_ {
        let whole = (self.ranges.is_none() && self.size > 0).then_some((0, self.size));
        whole.into_iter().chain(self.ranges.unwrap_or(&[]).iter().map(|r| (r.offset, r.len)))
    }

    /// Bytes of data.
    pub fn data_bytes(&self) -> u64 {
        self.ranges().map(|(_, len)| len).sum()
    }
}
