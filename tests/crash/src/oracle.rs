//! Whether the state after a recovery is allowed.
//!
//! ```text
//!   names, attributes    those of one view from floor to newest, all together
//!   bytes of a file      each from a view since the byte got its block, not before its floor;
//!                        later overwrites in place may have landed, whole or torn
//!   holes, unwritten     exactly what that one view has
//! ```
//! A byte with any other value is stale data, another file's, or lost.

use crate::history::{Floor, History};
use crate::op::Op;
use crate::view::{Node, View, node_differences};
use extant::{FileExtent, FileKind};
use std::ops::RangeInclusive;

/// What a cut allows.
#[derive(Debug)]
pub struct Bounds {
    /// What must be there.
    pub floor: Floor,
    /// The newest view that may be there.
    pub newest: usize,
}

impl History {
    /// The bounds for a cut after `cut` device operations of which `completed` had returned.
    pub fn bounds(&self, cut: usize, completed: usize) -> Bounds {
        Bounds { floor: self.floor(completed), newest: self.newest(cut) }
    }

    /// The views that names and attributes may show, newest first.
    fn candidates(&self, bounds: &Bounds) -> Vec<usize> {
        let committed = |view: &usize| {
            !self.one_transaction || *view == 0 || self.steps[*view - 1].op.persists()
        };
        (bounds.floor.view..=bounds.newest).rev().filter(committed).collect()
    }

    /// Compares a recovered volume with the run. Returns the number of the view that it shows, or
    /// what is wrong.
    pub fn judge(&self, found: &View, bounds: &Bounds) -> Result<usize, String> {
        let candidates = self.candidates(bounds);
        let mut wrong_bytes = None;
        for view in &candidates {
            if !same_but_bytes(found, &self.views[*view]) {
                continue;
            }
            match self.judge_bytes(found, *view, bounds) {
                Ok(()) => return Ok(*view),
                Err(error) => wrong_bytes = wrong_bytes.or(Some(error)),
            }
        }
        let newest_partial = candidates.iter().find(|view| self.between(found, **view, bounds));
        match (newest_partial, wrong_bytes) {
            (Some(view), _) => Ok(*view),
            (None, Some(error)) => Err(error),
            (None, None) => Err(self.nearest(found, &candidates, bounds)),
        }
    }

    /// Compares the bytes of every file with the views; names and attributes are those of `view`.
    fn judge_bytes(&self, found: &View, view: usize, bounds: &Bounds) -> Result<(), String> {
        for (path, ino) in &found.names {
            let (node, want) = (&found.inodes[ino], &self.views[view].inodes[ino]);
            if node.content == want.content {
                continue;
            }
            if node.attributes.kind != FileKind::Regular {
                return Err(format!("view {view}: {path}: another target"));
            }
            if node.content.len() != want.content.len() {
                return Err(format!("view {view}: {path}: {} bytes read", node.content.len()));
            }
            for at in 0..node.content.len() {
                let byte = node.content[at];
                if byte != want.content[at] && !self.may_hold(*ino, view, bounds, at, byte) {
                    let floor = bounds.floor.data_of(*ino);
                    return Err(format!(
                        "view {view}: {path} (inode {ino}): byte {at} is {byte:#04x}, wanted {:#04x} \
                         or one of a view in {:?} (synced: {floor}); {}",
                        want.content[at],
                        self.in_place(*ino, view, bounds, at),
                        self.whose(&node.content[at..(at + 32).min(node.content.len())]),
                    ));
                }
            }
        }
        Ok(())
    }

    /// Whether byte `at` of an inode may be `byte`, although `view` has another one there.
    fn may_hold(&self, ino: u32, view: usize, bounds: &Bounds, at: usize, byte: u8) -> bool {
        if self.whole_writes {
            return false;
        }
        let Some(range) = self.in_place(ino, view, bounds, at) else { return false };
        range.clone().any(|other| {
            let node = &self.views[other].inodes[&ino];
            // Became unwritten: nothing was written there.
            if node.extent_at(at as u64).is_some_and(|extent| !extent.written) {
                return false;
            }
            let content = &node.content;
            match content.get(at) {
                Some(value) => *value == byte,
                // Beyond a new end that a later step set: the step may have zeroed what it
                // truncated.
                None => other > view && byte == 0,
            }
        })
    }

    /// The views around `view` in which byte `at` of an inode is in the same block, written up to
    /// `view`, from the floor of the data on; `None` if `view` has no written block there.
    fn in_place(
        &self,
        ino: u32,
        view: usize,
        bounds: &Bounds,
        at: usize,
    ) -> Option<RangeInclusive<usize>> {
        let extent = |view: usize| -> Option<FileExtent> {
            let node: &Node = self.views[view].inodes.get(&ino)?;
            node.extent_at(at as u64)
        };
        let lies =
            |extent: FileExtent| extent.block.0 * self.block_bytes + (at as u64 - extent.offset);
        let block = |view| extent(view).filter(|extent| extent.written).map(lies);
        let place = |view| extent(view).map(lies);
        let visible = |view: usize| {
            self.views[view].inodes.get(&ino).is_some_and(|n| n.attributes.size > at as u64)
        };
        let here = block(view)?;
        let mut first = view;
        while first > bounds.floor.data_of(ino).min(view)
            && block(first - 1) == Some(here)
            && visible(first - 1)
        {
            first -= 1;
        }
        // A block that became unwritten and was written again is the same block: the data may be
        // there and the change of the map not.
        let mut last = view;
        while last < bounds.newest && place(last + 1) == Some(here) {
            last += 1;
        }
        Some(first..=last)
    }

    /// Whether the volume is between `view` and the next one, in an operation of several handles:
    /// only its file differs, and its size and bytes are between the two.
    fn between(&self, found: &View, view: usize, bounds: &Bounds) -> bool {
        if view >= bounds.newest || self.one_transaction {
            return false;
        }
        let (before, after) = (&self.views[view], &self.views[view + 1]);
        let op = &self.steps[view].op;
        if self.whole_writes && matches!(op, Op::Write { .. } | Op::Append { .. }) {
            return false;
        }
        let Some(path) = op.stepwise_path() else { return false };
        let Some(ino) = after.names.get(path) else { return false };
        let others = |view: &View| {
            let mut others = view.clone();
            others.inodes.remove(ino);
            others.names.retain(|_, meant| meant != ino);
            others
        };
        if !same_but_bytes(&others(found), &others(before)) {
            return false;
        }
        let (Some(was), Some(is), Some(node)) =
            (before.inodes.get(ino), after.inodes.get(ino), found.inodes.get(ino))
        else {
            return false;
        };
        let (low, high) = (
            was.attributes.size.min(is.attributes.size),
            was.attributes.size.max(is.attributes.size),
        );
        let on_the_way = |at: usize, byte: u8| {
            byte == 0
                || [was, is].iter().any(|n| n.content.get(at) == Some(&byte))
                || self.may_hold(*ino, view, bounds, at, byte)
        };
        node.attributes.mode == was.attributes.mode
            && node.xattrs == was.xattrs
            && (low..=high).contains(&node.attributes.size)
            && node.content.iter().enumerate().all(|(at, byte)| on_the_way(at, *byte))
            && self.judge_bytes(&others(found), view, bounds).is_ok()
    }

    /// The differences from the most similar view.
    fn nearest(&self, found: &View, candidates: &[usize], bounds: &Bounds) -> String {
        let all = candidates.iter().map(|view| (found.differences(&self.views[*view]), *view));
        let nearest = all.min_by_key(|(differences, _)| differences.len());
        let Some((differences, view)) = nearest else {
            return format!(
                "no view may be shown: floor {:?}, newest {}",
                bounds.floor, bounds.newest
            );
        };
        let older = (0..bounds.floor.view).rev();
        let matching = older.clone().find(|view| same_but_bytes(found, &self.views[*view]));
        let lost = match matching {
            Some(older) => format!("it is view {older}: synced steps are lost; "),
            None => String::new(),
        };
        format!(
            "{lost}found | view {view} (of {}..={}): {}{}",
            bounds.floor.view,
            bounds.newest,
            differences[..differences.len().min(4)].join("; "),
            if differences.len() > 4 { "; …" } else { "" },
        )
    }

    /// Which view of the run has these bytes, for the message.
    fn whose(&self, bytes: &[u8]) -> String {
        if bytes.iter().all(|byte| *byte == crate::view::POISON) {
            return "stale: what the free block held before the run".to_owned();
        }
        if bytes.iter().all(|byte| *byte == 0) {
            return "zeros".to_owned();
        }
        for (n, view) in self.views.iter().enumerate() {
            for (ino, node) in &view.inodes {
                if let Some(at) = node.content.windows(bytes.len()).position(|part| part == bytes) {
                    return format!("view {n} has these bytes in inode {ino} at {at}");
                }
            }
        }
        "no view has these bytes".to_owned()
    }
}

/// Names, attributes, extended attributes and symlink targets are equal.
pub fn same_but_bytes(a: &View, b: &View) -> bool {
    a.names == b.names
        && a.inodes.len() == b.inodes.len()
        && a.inodes.iter().all(|(ino, node)| {
            b.inodes.get(ino).is_some_and(|other| node_differences(node, other).is_none())
        })
}
