//! From a draft in any order to a tree in its defined order.
//!
//! ```text
//!   walk ──┐
//!   tar  ──┼── Draft: root, sorted children, node, identity ──► assemble ──► Tree
//!   merge ─┘
//! ```
//!
//! A draft identifies its nodes by keys of its own. `assemble` visits them parents first, numbers
//! them, joins names of one identity into hard links, and drops nodes without a name.

use crate::entry::{Entries, Kind, Node, NodeId, Xattr};
use crate::error::SourceError;
use crate::tree::{Entry, Tree, index};
use hashbrown::HashMap;
use std::sync::Arc;

/// Called with each name of a directory and its node.
pub(crate) type Each<'e, K> = dyn FnMut(&[u8], K) -> Result<(), SourceError> + 'e;

/// Nodes and names before they have their final order.
pub(crate) trait Draft {
    /// A node of the draft.
    type Key: Copy;
    /// The same value for all names of one file.
    type Identity: Eq + std::hash::Hash;

    /// The root directory.
    fn root(&self) -> Self::Key;

    /// Calls `each` with the names of a directory, sorted by bytes, none twice.
    fn children(&self, dir: Self::Key, each: &mut Each<'_, Self::Key>) -> Result<(), SourceError>;

    /// Two names of one file have the same identity. `None` for a node with only one name, and
    /// always for directories.
    fn identity(&self, key: Self::Key) -> Option<Self::Identity>;

    /// Makes the node, and adds what it refers to to `tree`. Called once for each identity.
    fn node(&self, key: Self::Key, tree: &mut Assembly) -> Result<Node, SourceError>;
}

/// A tree being assembled, with the data that only the assembly needs.
pub(crate) struct Assembly {
    pub(crate) tree: Tree,
    sets: HashMap<Arc<[Xattr]>, u32>,
}

impl Assembly {
    pub(crate) fn new(tree: Tree) -> Assembly {
        let sets = tree.xattr_sets.iter().cloned().zip(0..).collect();
        Assembly { tree, sets }
    }

    /// The number of a set of attributes. Equal sets have the same number.
    pub(crate) fn xattr_set(&mut self, set: &Arc<[Xattr]>) -> Result<u32, SourceError> {
        if set.is_empty() {
            return Ok(0);
        }
        if let Some(&id) = self.sets.get(set) {
            return Ok(id);
        }
        let id = index(self.tree.xattr_sets.len())?;
        self.tree.xattr_sets.push(set.clone());
        self.sets.insert(set.clone(), id);
        Ok(id)
    }
}

/// Builds the tree that `draft` describes into `assembly`.
pub(crate) fn assemble<D: Draft>(draft: &D, assembly: &mut Assembly) -> Result<(), SourceError> {
    let root = draft.node(draft.root(), assembly)?;
    debug_assert!(root.kind.is_directory() && assembly.tree.nodes.is_empty());
    assembly.tree.nodes.push(root);
    let mut seen: HashMap<D::Identity, u32> = HashMap::new();
    let mut open = vec![(NodeId::ROOT, draft.root())];
    let mut below = Vec::new();
    while let Some((dir, key)) = open.pop() {
        let first = index(assembly.tree.entries.len())?;
        draft.children(key, &mut |name, child| {
            let name = assembly.tree.add_text(name)?;
            let known = draft.identity(child).and_then(|i| seen.get(&i).copied());
            let node = match known {
                Some(node) => {
                    assembly.tree.nodes[node as usize].links += 1;
                    node
                }
                None => {
                    let mut made = draft.node(child, assembly)?;
                    made.parent = dir.0;
                    made.links = 1;
                    let node = index(assembly.tree.nodes.len())?;
                    if made.kind.is_directory() {
                        below.push((NodeId(node), child));
                    }
                    assembly.tree.nodes.push(made);
                    if let Some(identity) = draft.identity(child) {
                        seen.insert(identity, node);
                    }
                    node
                }
            };
            assembly.tree.entries.push(Entry { name, node });
            Ok(())
        })?;
        let count = index(assembly.tree.entries.len())? - first;
        assembly.tree.nodes[dir.index()].kind = Kind::Directory(Entries { first, count });
        open.extend(below.drain(..).rev());
    }
    Ok(())
}
