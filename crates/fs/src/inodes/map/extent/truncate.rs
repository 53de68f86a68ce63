//! Removing a range of blocks from an extent tree: truncate, punch, replace.
//!
//! ```text
//!   range            ├───────────────┤
//!   [a a a a]   [b b b]   [c c]   [d d d d]        right to left:
//!   [a a a a]                         [d d]        d loses its head, c and b go, a stays
//!
//!   one extent around the range: [e e e e e e e] → [e e] [e e]   (one entry more: may split)
//! ```
//!
//! Removing an entry may empty its leaf: then the leaf is freed and its index entry removed, and so
//! on up. If the first entry of a leaf changes, its key is corrected in every node above that
//! repeats it. If the only leaf of a depth-1 tree fits the root, its entries move back there.

use crate::inodes::file::FileMut;
use crate::inodes::map::change::max_len;
use crate::inodes::map::extent::insert::{free_node, insert};
use crate::inodes::map::extent::node::{self, Entry, NodeMut};
use crate::inodes::map::extent::path::{Path, Place, edit, fix_keys, with_bytes};
use crate::state::inode::Body;
use crate::volume::Volume;
use extant_base::{BlockNr, LogicalBlock, Result, Site, What};
use extant_journal::Handle;
use extant_ondisk::extent::{Extent, ExtentState};
use std::ops::Range;

/// The result of one step of a removal.
enum Step {
    /// Nothing (more) of the range is mapped.
    Done,
    /// An empty leaf was removed; more of the range may be mapped to the left.
    Pruned,
    /// These blocks were removed; more of the range may be mapped to the left.
    Freed(Extent),
}

/// Removes the logical blocks of `range` from the inode's tree. Calls `freed` for each run that it
/// removed, right to left.
///
/// The tree is valid before each call of `freed`, which frees the blocks. The caller stores the
/// inode afterwards. Errors: `NoSpace` when the range lies inside one extent of a full leaf and no
/// block is free to split it (tree unchanged); `Corrupt`. Locks: the inode's is held.
pub(crate) fn remove(
    file: &mut FileMut<'_>,
    handle: &Handle<'_>,
    range: Range<u32>,
    freed: &mut dyn FnMut(&mut Body, Extent) -> Result<()>,
) -> Result<()> {
    let mut end = Some(range.end);
    while let Some(last) = end {
        end = remove_step(file, handle, range.start..last, u32::MAX, freed)?;
    }
    Ok(())
}

/// One step of [`remove`]: at most `most` blocks of one extent. Returns the end of the part of
/// `range` that is left; `None` when none is left.
pub(crate) fn remove_step(
    file: &mut FileMut<'_>,
    handle: &Handle<'_>,
    range: Range<u32>,
    most: u32,
    freed: &mut dyn FnMut(&mut Body, Extent) -> Result<()>,
) -> Result<Option<u32>> {
    let mut left = None;
    if !range.is_empty() {
        match remove_last(file, handle, range.clone(), most)? {
            Step::Done => {}
            // The tree has one leaf less each time, so this ends.
            Step::Pruned => left = Some(range.end),
            Step::Freed(extent) => {
                left = Some(extent.logical.0).filter(|end| *end > range.start);
                freed(file.body, extent)?;
            }
        }
    }
    if left.is_none() {
        fold(file, handle)?;
    }
    Ok(left)
}

/// Removes the rightmost piece of `range` that one extent maps, at most `most` blocks.
fn remove_last(
    file: &mut FileMut<'_>,
    handle: &Handle<'_>,
    range: Range<u32>,
    most: u32,
) -> Result<Step> {
    let path = Path::to(file.as_ref(), LogicalBlock(range.end - 1))?;
    let leaf = path.leaf();
    let Some(slot) = leaf.slot.checked_sub(1) else {
        let empty = with_bytes(&leaf.place, file.body, |bytes| node::entries(bytes) == 0);
        if path.depth() == 0 || !empty {
            return Ok(Step::Done);
        }
        remove_node(&path, path.depth(), file.volume, file.body, handle)?;
        return Ok(Step::Pruned);
    };
    let old = with_bytes(&leaf.place, file.body, |bytes| node::extent(bytes, slot));
    let old_end = old.logical.0 + old.len;
    if old_end <= range.start {
        return Ok(Step::Done);
    }
    let end = range.end.min(old_end);
    let start = range.start.max(old.logical.0).max(end.saturating_sub(most));
    let gone = piece(old, start..end);
    let head = (old.logical.0 < start).then(|| piece(old, old.logical.0..start));
    let tail = (end < old_end).then(|| piece(old, end..old_end));
    match (head, tail) {
        (None, None) => remove_entry(&path, slot, file.volume, file.body, handle)?,
        (Some(kept), None) | (None, Some(kept)) => {
            edit(&leaf.place, file, handle, |bytes| {
                node::set(bytes, slot, Entry::leaf(kept));
            })?;
            if slot == 0 {
                fix_keys(&path.steps, file, handle)?;
            }
        }
        (Some(head), Some(tail)) => {
            edit(&leaf.place, file, handle, |bytes| {
                node::set(bytes, slot, Entry::leaf(head));
            })?;
            if let Err(error) = insert(file, handle, tail) {
                edit(&leaf.place, file, handle, |bytes| {
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
    slot: usize,
    volume: &Volume,
    body: &mut Body,
    handle: &Handle<'_>,
) -> Result<()> {
    let left = edit(&path.leaf().place, &mut volume.file_mut(body), handle, |bytes| {
        node::remove(bytes, slot);
        node::entries(bytes)
    })?;
    if left == 0 {
        remove_node(path, path.depth(), volume, body, handle)
    } else if slot == 0 {
        fix_keys(&path.steps, &mut volume.file_mut(body), handle)
    } else {
        Ok(())
    }
}

/// Removes the node at `level` of `path`, which is empty, and the nodes above that become empty.
fn remove_node(
    path: &Path,
    level: usize,
    volume: &Volume,
    body: &mut Body,
    handle: &Handle<'_>,
) -> Result<()> {
    for level in (1..=level).rev() {
        let Place::Block(block) = &path.steps[level].place else { break };
        let above = &path.steps[level - 1];
        let left = edit(&above.place, &mut volume.file_mut(body), handle, |bytes| {
            node::remove(bytes, above.slot);
            node::entries(bytes)
        })?;
        free_node(&mut volume.file_mut(body), handle, block)?;
        if left > 0 {
            if above.slot == 0 {
                fix_keys(&path.steps[..level], &mut volume.file_mut(body), handle)?;
            }
            return Ok(());
        }
    }
    // The tree is empty: a root without levels.
    node::init(&mut NodeMut::without_checksum(&mut body.disk.i_block), 0);
    Ok(())
}

/// Moves the entries of a depth-1 tree's only leaf back into the root when they fit.
fn fold(file: &mut FileMut<'_>, handle: &Handle<'_>) -> Result<()> {
    let root = &file.body.disk.i_block;
    if node::depth(root) != 1 || node::entries(root) != 1 {
        return Ok(());
    }
    let path = Path::to(file.as_ref(), LogicalBlock(0))?;
    let Place::Block(block) = &path.leaf().place else { return Ok(()) };
    let leaf = block.read().to_vec();
    if node::entries(&leaf) > node::ROOT_CAPACITY {
        return Ok(());
    }
    let root = &mut NodeMut::without_checksum(&mut file.body.disk.i_block);
    node::init(root, 0);
    node::append_from(root, &leaf, 0);
    free_node(file, handle, block)
}

/// Converts the mapped blocks of `range` to `state`, splitting and joining extents.
///
/// Holes, and blocks that have that state already, stay as they are. Errors: `NoSpace` when a split
/// needs a block (conversions made so far stay; the tree is valid and maps the same blocks). Locks:
/// the inode's is held.
pub(crate) fn convert(
    file: &mut FileMut<'_>,
    handle: &Handle<'_>,
    range: Range<u32>,
    state: ExtentState,
) -> Result<()> {
    let limit = max_len(state);
    let mut at = range.start;
    while at < range.end {
        let path = Path::to(file.as_ref(), LogicalBlock(at))?;
        let leaf = path.leaf();
        let here = with_bytes(&leaf.place, file.body, |bytes| {
            leaf.slot.checked_sub(1).map(|slot| node::extent(bytes, slot))
        });
        let Some(old) = here.filter(|old| old.logical.0 + old.len > at) else {
            at = file.as_ref().map(LogicalBlock(at), range.end - at)?.end().0;
            continue;
        };
        let old_end = old.logical.0 + old.len;
        let end = range.end.min(old_end).min(at.saturating_add(limit));
        if old.state == state {
            // Nothing to do.
        } else if (at, end) == (old.logical.0, old_end) {
            convert_whole(&path, file, handle, Extent { state, ..old })?;
        } else {
            let part = piece(old, at..end);
            convert_part(file, handle, part, Extent { state, ..part })?;
        }
        at = end;
    }
    fold(file, handle)
}

/// Maps the logical blocks of `new` to its blocks. One extent maps them to other blocks now; those
/// are returned. Splits and joins as [`convert`] does.
///
/// Errors: `NoSpace` when a split needs a block (then the tree maps the same blocks as before);
/// `ExtentOrder` if no single extent maps them all. Locks: the inode's is held.
pub(crate) fn replace(file: &mut FileMut<'_>, handle: &Handle<'_>, new: Extent) -> Result<Extent> {
    let path = Path::to(file.as_ref(), new.logical)?;
    let leaf = path.leaf();
    let here = with_bytes(&leaf.place, file.body, |bytes| {
        leaf.slot.checked_sub(1).map(|slot| node::extent(bytes, slot))
    });
    let old = here.filter(|old| new.logical.0 + new.len <= old.logical.0 + old.len);
    let old = old.ok_or_else(|| Site::of_ino(file.ino()).corrupt(What::ExtentOrder))?;
    let part = piece(old, new.logical.0..new.logical.0 + new.len);
    if part == old {
        convert_whole(&path, file, handle, new)?;
    } else {
        convert_part(file, handle, part, new)?;
    }
    fold(file, handle)?;
    Ok(part)
}

/// Replaces the entry that `path` leads to with `new`, which has the same logical blocks. Joins it
/// with adjacent entries in its leaf. Needs no block.
fn convert_whole(
    path: &Path,
    file: &mut FileMut<'_>,
    handle: &Handle<'_>,
    new: Extent,
) -> Result<()> {
    let leaf = path.leaf();
    let slot = leaf.slot - 1;
    edit(&leaf.place, file, handle, |bytes| {
        let mut joined = new;
        if slot + 1 < node::entries(bytes) {
            let right = node::extent(bytes, slot + 1);
            if joined.can_merge(&right) {
                joined.len += right.len;
                node::remove(bytes, slot + 1);
            }
        }
        node::set(bytes, slot, Entry::leaf(joined));
        if let Some(before) = slot.checked_sub(1) {
            let left = node::extent(bytes, before);
            if left.can_merge(&joined) {
                node::set(
                    bytes,
                    before,
                    Entry::leaf(Extent { len: left.len + joined.len, ..left }),
                );
                node::remove(bytes, slot);
            }
        }
    })
}

/// Replaces `part`, a piece of one extent but not all of it, with `new`.
fn convert_part(
    file: &mut FileMut<'_>,
    handle: &Handle<'_>,
    part: Extent,
    new: Extent,
) -> Result<()> {
    let range = part.logical.0..part.end();
    let Step::Freed(taken) = remove_last(file, handle, range, u32::MAX)? else {
        return Err(Site::of_ino(file.ino()).corrupt(What::ExtentOrder));
    };
    debug_assert_eq!(taken, part, "the removed extent is the part");
    let Err(error) = insert(file, handle, new) else { return Ok(()) };
    // The rest of the extent, before or after, is in the leaf where the piece belongs. In its old
    // state the piece joins that rest again, which needs no block.
    insert(file, handle, taken)?;
    Err(error)
}
