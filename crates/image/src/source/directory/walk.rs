//! Brings the names that the threads listed into the defined order.
//!
//! ```text
//!   lists: directory → (part, first, count) ──► found ──► node, with its text, attributes and
//!                                                         ranges copied from the part
//! ```

use super::{Found, FoundKind, Part};
use crate::draft::{Assembly, Draft, Each};
use crate::entry::{Content, Entries, HostFileId, Kind, MapId, Node, Text, Xattr};
use crate::error::SourceError;
use crate::tree::{HostDir, HostFile, index};
use extant_base::narrow::len_u32;
use std::cell::{Cell, RefCell};
use std::sync::Arc;

/// The parts of a finished listing, ready to be assembled.
pub(super) struct Walk {
    pub(super) parts: Vec<Part>,
    /// By directory: the part, the index of its first name, the count.
    pub(super) lists: Vec<(usize, u32, u32)>,
    pub(super) top: Found,
    pub(super) top_xattrs: Arc<[Xattr]>,
    /// By directory: its number in the tree's `host_dirs`.
    pub(super) host_dirs: Vec<Cell<u32>>,
    /// By part and set: its number in the tree.
    pub(super) sets: Vec<RefCell<Vec<u32>>>,
}

/// The location of a listed name: part and index. The root has no part.
#[derive(Clone, Copy)]
pub(super) struct Place {
    part: u32,
    at: u32,
}

const TOP: Place = Place { part: u32::MAX, at: 0 };

impl Walk {
    fn found(&self, key: Place) -> &Found {
        if key.part == TOP.part {
            return &self.top;
        }
        &self.parts[key.part as usize].found[key.at as usize]
    }

    fn set(&self, key: Place, set: u32, assembly: &mut Assembly) -> Result<u32, SourceError> {
        if key.part == TOP.part {
            return assembly.xattr_set(&self.top_xattrs);
        }
        if set == 0 {
            return Ok(0);
        }
        let known = &mut self.sets[key.part as usize].borrow_mut()[set as usize];
        if *known == u32::MAX {
            *known = assembly.xattr_set(&self.parts[key.part as usize].sets[set as usize])?;
        }
        Ok(*known)
    }
}

impl Draft for Walk {
    type Key = Place;
    type Identity = ((u32, u32), u64);

    fn root(&self) -> Place {
        TOP
    }

    fn children(&self, dir: Place, each: &mut Each<'_, Place>) -> Result<(), SourceError> {
        let FoundKind::Directory(id) = self.found(dir).kind else { return Ok(()) };
        let (part, first, count) = self.lists[id as usize];
        let text = &self.parts[part].text;
        for at in first..first + count {
            let name = self.parts[part].found[at as usize].name;
            each(
                &text[name.at as usize..][..name.len as usize],
                Place { part: len_u32(part), at },
            )?;
        }
        Ok(())
    }

    fn identity(&self, key: Place) -> Option<Self::Identity> {
        let found = self.found(key);
        found.linked.then_some((found.device, found.ino))
    }

    fn node(&self, key: Place, assembly: &mut Assembly) -> Result<Node, SourceError> {
        let found = self.found(key);
        let part = self.parts.get(key.part as usize);
        let text = |t: Text| part.map_or(&[][..], |p| &p.text[t.at as usize..][..t.len as usize]);
        let xattrs = self.set(key, found.xattrs, assembly)?;
        let tree = &mut assembly.tree;
        let kind = match found.kind {
            FoundKind::Directory(0) => Kind::Directory(Entries::default()),
            FoundKind::Directory(id) => {
                let parent = self.host_dirs[found.dir as usize].get();
                let name = tree.add_text(text(found.name))?;
                self.host_dirs[id as usize].set(index(tree.host_dirs.len())?);
                tree.host_dirs.push(HostDir { root: 0, parent, name });
                Kind::Directory(Entries::default())
            }
            FoundKind::File { size, ranges } => {
                let (content, map) = match ranges {
                    _ if size == 0 => (Content::Empty, MapId::DENSE),
                    Some((_, 0)) => (Content::Empty, MapId::DENSE),
                    ranges => {
                        let dir = self.host_dirs[found.dir as usize].get();
                        let name = tree.add_text(text(found.name))?;
                        let id = index(tree.host_files.len())?;
                        let (ino, mtime) = (found.ino, found.meta.mtime);
                        tree.host_files.push(HostFile { dir, name, ino, size, mtime });
                        let map = match (ranges, part) {
                            (Some((first, count)), Some(part)) => {
                                tree.add_map(&part.ranges[first as usize..][..count as usize])?
                            }
                            _ => MapId::DENSE,
                        };
                        (Content::Host(HostFileId(id)), map)
                    }
                };
                Kind::File { size, content, map }
            }
            FoundKind::Symlink(target) => Kind::Symlink(tree.add_text(text(target))?),
            FoundKind::Other(kind) => kind,
        };
        let mut node = Node::new(kind, found.meta);
        node.xattrs = xattrs;
        Ok(node)
    }
}
