//! Several trees in order: later ones replace earlier ones.
//!
//! ```text
//!   below     over       result
//!   dir    +  dir    ──► dir: metadata of the upper, names of both
//!   any    +  other  ──► only the upper
//!   any    +  none   ──► the lower
//!   dir    +  dir that only paths below it imply ──► metadata of the lower
//! ```
//!
//! The result is the same as unpacking the later source over the earlier one.

use crate::draft::{Assembly, Draft, Each, assemble};
use crate::entry::{Node, NodeId};
use crate::error::SourceError;
use crate::graft::Graft;
use crate::tree::Tree;
use std::cmp::Ordering;

/// Merges `over` onto `below`.
pub(crate) fn merge(below: &Tree, over: &Tree) -> Result<Tree, SourceError> {
    let mut assembly = Assembly::new(Tree::bare());
    let grafts = [Graft::new(below, &mut assembly.tree)?, Graft::new(over, &mut assembly.tree)?];
    assemble(&Merge { trees: [below, over], grafts }, &mut assembly)?;
    Ok(assembly.tree)
}

/// Leaves out every name for which `keep` returns false, and everything below it. The arguments of
/// `keep` are the path without a leading `/`, and whether it is a directory.
pub(crate) fn filter(tree: &Tree, keep: &dyn Fn(&[u8], bool) -> bool) -> Result<Tree, SourceError> {
    let mut dropped = vec![false; tree.entries.len()];
    let mut any = false;
    tree.each_name(&mut |path, at, id| {
        dropped[at] = !keep(path, tree.node(id).kind.is_directory());
        any |= dropped[at];
        !dropped[at]
    });
    let mut assembly = Assembly::new(Tree::bare());
    let graft = Graft::new(tree, &mut assembly.tree)?;
    assemble(&Filter { tree, graft, dropped }, &mut assembly)?;
    Ok(assembly.tree)
}

impl Tree {
    /// Visits every name, parents first, with its path, its index in the entry table and its
    /// node. Names below a directory are visited only if `visit` returns true for it.
    pub(crate) fn each_name(&self, visit: &mut dyn FnMut(&[u8], usize, NodeId) -> bool) {
        let mut path = Vec::new();
        // The directories being visited: the range of entries left, and the length of the path.
        let mut open = vec![(self.run(NodeId::ROOT), 0)];
        while let Some((run, len)) = open.last_mut() {
            let Some(at) = run.next() else {
                open.pop();
                continue;
            };
            path.truncate(*len);
            if *len > 0 {
                path.push(b'/');
            }
            path.extend_from_slice(self.text(self.entries[at].name));
            let id = NodeId(self.entries[at].node);
            if visit(&path, at, id) && self.node(id).kind.is_directory() {
                let len = path.len();
                open.push((self.run(id), len));
            }
        }
    }

    fn run(&self, id: NodeId) -> std::ops::Range<usize> {
        match self.node(id).kind {
            crate::entry::Kind::Directory(run) => {
                run.first as usize..run.first as usize + run.count as usize
            }
            _ => 0..0,
        }
    }
}

struct Merge<'t> {
    trees: [&'t Tree; 2],
    grafts: [Graft<'t>; 2],
}

/// A node of the result, and the directory of the lower tree that it is merged with, if both are
/// directories.
#[derive(Clone, Copy)]
struct Pair {
    below: Option<NodeId>,
    tree: usize,
    node: NodeId,
}

impl Draft for Merge<'_> {
    type Key = Pair;
    type Identity = (usize, NodeId);

    fn root(&self) -> Pair {
        Pair { below: Some(NodeId::ROOT), tree: 1, node: NodeId::ROOT }
    }

    fn children(&self, dir: Pair, each: &mut Each<'_, Pair>) -> Result<(), SourceError> {
        let Some(below) = dir.below else {
            for (name, node) in self.trees[dir.tree].children(dir.node) {
                each(name, Pair { below: None, tree: dir.tree, node })?;
            }
            return Ok(());
        };
        let [lower, upper] = self.trees;
        let mut a = lower.children(below).peekable();
        let mut b = upper.children(dir.node).peekable();
        loop {
            let order = match (a.peek(), b.peek()) {
                (None, None) => return Ok(()),
                (Some(_), None) => Ordering::Less,
                (None, Some(_)) => Ordering::Greater,
                (Some((a, _)), Some((b, _))) => a.cmp(b),
            };
            let old = if order.is_le() { a.next() } else { None };
            let new = if order.is_ge() { b.next() } else { None };
            match (old, new) {
                (Some((name, node)), None) => each(name, Pair { below: None, tree: 0, node })?,
                (old, Some((name, node))) => {
                    let is_directory = |tree: &Tree, id| tree.node(id).kind.is_directory();
                    let below = old
                        .map(|(_, old)| old)
                        .filter(|old| is_directory(lower, *old) && is_directory(upper, node));
                    each(name, Pair { below, tree: 1, node })?;
                }
                (None, None) => {}
            }
        }
    }

    fn identity(&self, key: Pair) -> Option<(usize, NodeId)> {
        (self.trees[key.tree].node(key.node).links > 1).then_some((key.tree, key.node))
    }

    fn node(&self, key: Pair, assembly: &mut Assembly) -> Result<Node, SourceError> {
        let node = self.trees[key.tree].node(key.node);
        match key.below {
            // The upper source only implies the directory: the lower one's metadata stays.
            Some(below) if node.implied => self.grafts[0].node(self.trees[0].node(below), assembly),
            _ => self.grafts[key.tree].node(node, assembly),
        }
    }
}

struct Filter<'t> {
    tree: &'t Tree,
    graft: Graft<'t>,
    dropped: Vec<bool>,
}

impl Draft for Filter<'_> {
    type Key = NodeId;
    type Identity = NodeId;

    fn root(&self) -> NodeId {
        NodeId::ROOT
    }

    fn children(&self, dir: NodeId, each: &mut Each<'_, NodeId>) -> Result<(), SourceError> {
        for at in self.tree.run(dir).filter(|at| !self.dropped[*at]) {
            let entry = self.tree.entries[at];
            each(self.tree.text(entry.name), NodeId(entry.node))?;
        }
        Ok(())
    }

    fn identity(&self, key: NodeId) -> Option<NodeId> {
        (self.tree.node(key).links > 1).then_some(key)
    }

    fn node(&self, key: NodeId, assembly: &mut Assembly) -> Result<Node, SourceError> {
        self.graft.node(self.tree.node(key), assembly)
    }
}
