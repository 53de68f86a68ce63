//! Copying nodes from one tree into another.
//!
//! ```text
//!   from ── node: text, attributes, map, times, content ──► to
//!           └── every index is translated; archives and source roots are shared, not copied
//! ```

use crate::draft::Assembly;
use crate::entry::{ArchiveId, Content, Entries, HostFileId, Kind, MapId, Node};
use crate::error::SourceError;
use crate::tree::{HostDir, Tree, index};
use hashbrown::HashMap;
use std::cell::RefCell;

/// Translates the nodes of one tree for another. Each source tree needs its own.
pub(crate) struct Graft<'t> {
    from: &'t Tree,
    archives: u32,
    roots: u32,
    host_dirs: RefCell<HashMap<u32, u32>>,
}

impl<'t> Graft<'t> {
    pub(crate) fn new(from: &'t Tree, to: &mut Tree) -> Result<Graft<'t>, SourceError> {
        let archives = index(to.archives.len())?;
        let roots = index(to.roots.len())?;
        to.archives.extend(from.archives.iter().cloned());
        to.roots.extend(from.roots.iter().cloned());
        to.keep_going |= from.keep_going;
        to.problems.lock().append(&mut from.problems.lock());
        Ok(Graft { from, archives, roots, host_dirs: RefCell::default() })
    }

    /// The node, after everything that it refers to was added to `to`. A directory comes without
    /// entries.
    pub(crate) fn node(&self, node: &Node, to: &mut Assembly) -> Result<Node, SourceError> {
        let from = self.from;
        let mut made = *node;
        made.xattrs = to.xattr_set(&from.xattr_sets[node.xattrs as usize])?;
        let to = &mut to.tree;
        made.times = to.add_times(from.times[node.times as usize])?;
        made.kind = match node.kind {
            Kind::Directory(_) => Kind::Directory(Entries::default()),
            Kind::Symlink(target) => Kind::Symlink(to.add_text(from.text(target))?),
            Kind::File { size, content, map } => {
                let map = match map {
                    MapId::DENSE => MapId::DENSE,
                    map => to.add_map(from.map_ranges(map))?,
                };
                Kind::File { size, content: self.content(content, to)?, map }
            }
            other => other,
        };
        Ok(made)
    }

    fn content(&self, content: Content, to: &mut Tree) -> Result<Content, SourceError> {
        Ok(match content {
            Content::Empty => Content::Empty,
            Content::Outside(target) => Content::Outside(to.add_text(self.from.text(target))?),
            Content::Archive { archive, offset } => {
                Content::Archive { archive: ArchiveId(archive.0 + self.archives), offset }
            }
            Content::Inline(at) => {
                let id = index(to.inline.len())?;
                to.inline.push(self.from.inline[at as usize].clone());
                Content::Inline(id)
            }
            Content::Host(HostFileId(at)) => {
                let mut file = self.from.host_files[at as usize];
                file.dir = self.host_dir(file.dir, to)?;
                file.name = to.add_text(self.from.text(file.name))?;
                let id = index(to.host_files.len())?;
                to.host_files.push(file);
                Content::Host(HostFileId(id))
            }
        })
    }

    fn host_dir(&self, dir: u32, to: &mut Tree) -> Result<u32, SourceError> {
        let mut known = self.host_dirs.borrow_mut();
        let mut missing = Vec::new();
        let mut at = dir;
        let mut parent = loop {
            if let Some(&id) = known.get(&at) {
                break Some(id);
            }
            missing.push(at);
            let up = self.from.host_dirs[at as usize].parent;
            if up == at {
                break None;
            }
            at = up;
        };
        while let Some(at) = missing.pop() {
            let old = self.from.host_dirs[at as usize];
            let id = index(to.host_dirs.len())?;
            let name = to.add_text(self.from.text(old.name))?;
            let root = old.root + self.roots;
            to.host_dirs.push(HostDir { root, parent: parent.unwrap_or(id), name });
            known.insert(at, id);
            parent = Some(id);
        }
        Ok(parent.expect("the directory itself was known or missing"))
    }
}
