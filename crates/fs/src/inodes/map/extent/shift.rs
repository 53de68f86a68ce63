//! Moving extents to other logical blocks, in place in the tree.
//!
//! ```text
//!   left 8 by 3     [0 2][8 10] │ [14 20]         one leaf a call: its entries from 8 on, and the
//!                   [0 2][5  7] │ [14 20]   ◄──   keys above it if its first entry changed
//!                   [0 2][5  7] │ [11 17]   ◄──   the next call
//! ```
//!
//! The order stays the same, so no entry leaves its leaf and no block is needed. In a move to the
//! left, the first entry joins its new left neighbour in the leaf if their blocks are adjacent on
//! the device.

use crate::inodes::file::{FileMut, FileRef};
use crate::inodes::map::LOGICAL_END;
use crate::inodes::map::extent::insert::insert_unmerged;
use crate::inodes::map::extent::node::{self, Entry};
use crate::inodes::map::extent::path::{Path, edit, fix_keys, with_bytes};
use crate::inodes::map::extent::truncate::piece;
use crate::state::inode::Body;
use extant_base::{LogicalBlock, Result};
use extant_journal::{Handle, Ineligible};
use extant_ondisk::extent::Extent;
use std::ops::Range;

/// Moves the extents of one leaf, from logical block `from` on, `by` blocks to the left, where
/// nothing is mapped. Returns the start of the next leaf; `None` after the last one.
///
/// The caller stores the inode. Errors: `Corrupt`, `Device`.
pub(crate) fn left(
    file: &mut FileMut<'_>,
    handle: &Handle<'_>,
    from: u32,
    by: u32,
) -> Result<Option<u32>> {
    file.volume.context().require_full_commit(handle, Ineligible::FallocRange);
    let path = Path::to(file.as_ref(), LogicalBlock(from))?;
    let next = path.next_key().map(|key| key.0);
    move_entries(&path, file, handle, from, |at| at - by)?;
    Ok(next)
}

/// Moves the extents of the last leaf before `range.end`, from `range.start` on, `by` blocks to the
/// right. Returns the end of the range that is left to move; `None` when none is left.
///
/// The caller stores the inode, and makes sure that no extent ends after the last block that a file
/// can have. Errors: `Corrupt`, `Device`.
pub(crate) fn right(
    file: &mut FileMut<'_>,
    handle: &Handle<'_>,
    range: Range<u32>,
    by: u32,
) -> Result<Option<u32>> {
    file.volume.context().require_full_commit(handle, Ineligible::FallocRange);
    let path = Path::to(file.as_ref(), LogicalBlock(range.end - 1))?;
    let first = with_bytes(&path.leaf().place, file.body, |bytes| {
        (node::entries(bytes) > 0).then(|| node::key(bytes, 0))
    });
    move_entries(&path, file, handle, range.start, |at| at + by)?;
    let is_first = path.steps[..path.depth()].iter().all(|step| step.slot == 0);
    Ok(first.map(|key| key.0).filter(|first| *first > range.start && !is_first))
}

fn move_entries(
    path: &Path,
    file: &mut FileMut<'_>,
    handle: &Handle<'_>,
    from: u32,
    to: impl Fn(u32) -> u32,
) -> Result<()> {
    let leaf = path.leaf();
    let place = &leaf.place;
    let first = with_bytes(place, file.body, |bytes| {
        (0..node::entries(bytes)).find(|n| node::key(bytes, *n).0 >= from)
    });
    let Some(first) = first else { return Ok(()) };
    edit(place, file, handle, |bytes| {
        for n in first..node::entries(bytes) {
            let key = node::key(bytes, n);
            node::set_key(bytes, n, LogicalBlock(to(key.0)));
        }
        if let Some(before) = first.checked_sub(1) {
            let (left, right) = (node::extent(bytes, before), node::extent(bytes, first));
            if left.can_merge(&right) {
                let whole = Extent { len: left.len + right.len, ..left };
                node::set(bytes, before, Entry::leaf(whole));
                node::remove(bytes, first);
            }
        }
    })?;
    if first == 0 { fix_keys(&path.steps, file, handle) } else { Ok(()) }
}

/// The logical block after the last one that is mapped.
pub(crate) fn mapped_end(file: FileRef<'_>) -> Result<u32> {
    let path = Path::to(file, LogicalBlock(LOGICAL_END - 1))?;
    let leaf = path.leaf();
    Ok(leaf.slot.checked_sub(1).map_or(0, |slot| {
        let last = with_bytes(&leaf.place, file.body, |bytes| node::extent(bytes, slot));
        last.logical.0 + last.len
    }))
}

/// Splits the extent that contains both logical block `at` and the one before it.
///
/// The caller stores the inode. Errors: `NoSpace` (tree unchanged), `Corrupt`, `Device`.
pub(crate) fn split_at(file: &mut FileMut<'_>, handle: &Handle<'_>, at: u32) -> Result<()> {
    file.volume.context().require_full_commit(handle, Ineligible::FallocRange);
    let path = Path::to(file.as_ref(), LogicalBlock(at))?;
    let leaf = path.leaf();
    let Some(slot) = leaf.slot.checked_sub(1) else { return Ok(()) };
    let old = with_bytes(&leaf.place, file.body, |bytes| node::extent(bytes, slot));
    let end = old.logical.0 + old.len;
    if old.logical.0 >= at || end <= at {
        return Ok(());
    }
    let set = |body: &mut Body, extent: Extent| {
        edit(&leaf.place, &mut file.volume.file_mut(body), handle, |bytes| {
            node::set(bytes, slot, Entry::leaf(extent));
        })
    };
    set(file.body, piece(old, old.logical.0..at))?;
    // Inserted as an entry of its own, since it would join the first part again.
    let done = insert_unmerged(file, handle, piece(old, at..end));
    if done.is_err() {
        set(file.body, old)?;
    }
    done
}
