//! Taking a range of blocks out of an extent tree: truncate, punch, replace.
//!
//! ```text
//!   range            ├───────────────┤
//!   [a a a a]   [b b b]   [c c]   [d d d d]        right to left:
//!   [a a a a]                         [d d]        d loses its head, c and b go, a stays
//!
//!   one extent around the range: [e e e e e e e] → [e e] [e e]   (one entry more: may split)
//! ```
//!
//! An entry that goes may empty its leaf: the leaf is freed and its index entry goes, and so on up.
//! A leaf whose first entry changed gets its key corrected in every node above that repeats it.
//! A depth-1 tree whose one leaf fits the root is folded back into it.

use crate::inode::Body;
use crate::map::change::max_len;
use crate::map::extent::insert::{free_node, insert};
use crate::map::extent::node::{self, Entry};
use crate::map::extent::path::{Path, Place, edit, fix_keys, with_bytes};
use crate::volume::Volume;
use extant_base::{BlockNr, Ino, LogicalBlock, Result};
use extant_journal::Handle;
use extant_ondisk::extent::{Extent, ExtentState};
use std::ops::Range;

/// What became of one step of a removal.
enum Step {
    /// Nothing (more) of the range is mapped.
    Done,
    /// These blocks left the tree; there may be more to the left.
    Freed(Extent),
}

/// Takes the logical blocks of `range` out of the tree of `ino`, calling `freed` for each run that
/// left it, right to left.
///
/// The tree is legal after each call of `freed`, which gives the blocks back. The caller stores the
/// inode afterwards. Errors: `NoSpace` when the range lies inside one extent of a full leaf and no
/// block is left to split it (tree unchanged); `Corrupt`. Locks: the inode's is held.
pub(crate) fn remove(
    volume: &Volume,
    ino: Ino,
    body: &mut Body,
    handle: &Handle<'_>,
    range: Range<u32>,
    freed: &mut dyn FnMut(&mut Body, Extent) -> Result<()>,
) -> Result<()> {
    let mut end = range.end;
    while range.start < end {
        match remove_last(volume, ino, body, handle, range.start..end)? {
            Step::Done => break,
            Step::Freed(extent) => {
                end = extent.logical.0;
                freed(body, extent)?;
            }
        }
    }
    fold(volume, ino, body, handle)
}

/// Removes the rightmost piece of `range` that one extent maps.
fn remove_last(
    volume: &Volume,
    ino: Ino,
    body: &mut Body,
    handle: &Handle<'_>,
    range: Range<u32>,
) -> Result<Step> {
    let path = Path::to(volume, ino, body, LogicalBlock(range.end - 1))?;
    let leaf = path.leaf();
    let Some(slot) = leaf.slot.checked_sub(1) else { return Ok(Step::Done) };
    let old = with_bytes(&leaf.place, body, |bytes| node::extent(bytes, slot));
    let old_end = old.logical.0 + old.len;
    if old_end <= range.start {
        return Ok(Step::Done);
    }
    let start = range.start.max(old.logical.0);
    let end = range.end.min(old_end);
    let gone = piece(old, start..end);
    let head = (old.logical.0 < start).then(|| piece(old, old.logical.0..start));
    let tail = (end < old_end).then(|| piece(old, end..old_end));
    match (head, tail) {
        (None, None) => remove_entry(&path, slot, volume, ino, body, handle)?,
        (Some(kept), None) | (None, Some(kept)) => {
            edit(&leaf.place, volume, ino, body, handle, |bytes| {
                node::set(bytes, slot, Entry::leaf(kept));
            })?;
            if slot == 0 {
                fix_keys(&path, volume, ino, body, handle)?;
            }
        }
        (Some(head), Some(tail)) => {
            edit(&leaf.place, volume, ino, body, handle, |bytes| {
                node::set(bytes, slot, Entry::leaf(head));
            })?;
            if let Err(error) = insert(volume, ino, body, handle, tail) {
                edit(&leaf.place, volume, ino, body, handle, |bytes| {
                    node::set(bytes, slot, Entry::leaf(old));
                })?;
                return Err(error);
            }
        }
    }
    Ok(Step::Freed(gone))
}

/// The part of `extent` that maps the logical blocks of `range`.
pub(crate) fn piece(extent: Extent, range: Range<u32>) -> Extent {
    let skip = range.start - extent.logical.0;
    Extent {
        logical: LogicalBlock(range.start),
        len: range.end - range.start,
        physical: BlockNr(extent.physical.0 + u64::from(skip)),
        state: extent.state,
    }
}

/// Removes entry `slot` of the leaf, and every node that becomes empty.
fn remove_entry(
    path: &Path,
    mut slot: usize,
    volume: &Volume,
    ino: Ino,
    body: &mut Body,
    handle: &Handle<'_>,
) -> Result<()> {
    for level in (0..path.steps.len()).rev() {
        let step = &path.steps[level];
        let left = edit(&step.place, volume, ino, body, handle, |bytes| {
            node::remove(bytes, slot);
            node::entries(bytes)
        })?;
        if left > 0 {
            if slot == 0 {
                let above = Path { steps: path.steps[..=level].to_vec() };
                fix_keys(&above, volume, ino, body, handle)?;
            }
            return Ok(());
        }
        match &step.place {
            Place::Root => node::init(&mut body.disk.i_block, 0),
            Place::Block(block) => {
                free_node(volume, ino, body, handle, block)?;
                slot = path.steps[level - 1].slot;
            }
        }
    }
    Ok(())
}

/// Brings the only leaf of a depth-1 tree back into the root when it fits.
fn fold(volume: &Volume, ino: Ino, body: &mut Body, handle: &Handle<'_>) -> Result<()> {
    let root = &body.disk.i_block;
    if node::depth(root) != 1 || node::entries(root) != 1 {
        return Ok(());
    }
    let path = Path::to(volume, ino, body, LogicalBlock(0))?;
    let Place::Block(block) = &path.leaf().place else { return Ok(()) };
    let leaf = block.read().to_vec();
    if node::entries(&leaf) > node::ROOT_CAPACITY {
        return Ok(());
    }
    let bytes = &mut body.disk.i_block;
    node::init(bytes, 0);
    node::append_from(bytes, &leaf, 0);
    free_node(volume, ino, body, handle, block)
}

/// Changes the state of the mapped blocks of `range` to `state`, splitting and joining extents.
///
/// Blocks that are in that state already, and holes, stay as they are. Errors: `NoSpace` when a
/// split needs a block (what was done so far stays; the tree is legal). Locks: the inode's is held.
pub(crate) fn convert(
    volume: &Volume,
    ino: Ino,
    body: &mut Body,
    handle: &Handle<'_>,
    range: Range<u32>,
    state: ExtentState,
) -> Result<()> {
    let limit = max_len(state);
    let mut at = range.start;
    while at < range.end {
        let path = Path::to(volume, ino, body, LogicalBlock(at))?;
        let leaf = path.leaf();
        let here = with_bytes(&leaf.place, body, |bytes| {
            leaf.slot.checked_sub(1).map(|slot| node::extent(bytes, slot))
        });
        let Some(old) = here.filter(|old| old.logical.0 + old.len > at) else {
            at = volume.map(ino, body, LogicalBlock(at), range.end - at)?.end().0;
            continue;
        };
        let end = range.end.min(old.logical.0 + old.len).min(at.saturating_add(limit));
        if old.state != state {
            let mut taken = None;
            remove(volume, ino, body, handle, at..end, &mut |_, extent| {
                taken = Some(extent);
                Ok(())
            })?;
            let taken = taken.expect("the extent was just found");
            if let Err(error) = insert(volume, ino, body, handle, Extent { state, ..taken }) {
                // In its old state the piece joins its neighbours again and needs no block.
                insert(volume, ino, body, handle, taken)?;
                return Err(error);
            }
        }
        at = end;
    }
    Ok(())
}
