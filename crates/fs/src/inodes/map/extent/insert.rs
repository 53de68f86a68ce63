//! Adding a run of blocks to an extent tree.
//!
//! ```text
//!   join       [..][a a a][n n][b b]     →  [..][a a a a a a a]        same state, both sides meet
//!   insert     [..][a a][ ]              →  [..][a a][n]
//!   split      [a][b][c][d] ← n at 1     →  [a][n][b][ ]  and a new leaf [c][d]
//!   append     [a][b][c][d] ← n at 4     →  [a][b][c][d]  and a new leaf [n], if no leaf follows
//!   grow       root full at every level  →  root's entries move to a new block, root points to it
//! ```
//!
//! A split never leaves a node empty. Appending leaves the nodes before it full. Any other leaf is
//! split in halves, wherever the entry goes: so leaves take many entries to fill, in whatever order
//! they come (`files/cached/map_reservation.rs` relies on that). All blocks that a split needs are
//! allocated before the first byte changes. So running out of space leaves the tree as it was.

use crate::inodes::file::FileMut;
use crate::inodes::map::extent::node::{self, Entry, NodeMut};
use crate::inodes::map::extent::path::{Path, Place, edit, fix_keys, with_bytes};
use crate::state::inode::Body;
use extant_base::{Error, Result};
use extant_journal::{Handle, MetaBlock};
use extant_ondisk::extent::Extent;

/// Deepest tree that ext4 reads.
const DEPTH_MAX: usize = 5;

/// Adds `new` to the inode's tree. The range must be a hole there.
///
/// The caller stores the inode afterwards. Errors: `NoSpace` (tree unchanged), `Corrupt`.
/// Locks: the inode's is held; takes `Group` for node blocks.
pub(crate) fn insert(file: &mut FileMut<'_>, handle: &Handle<'_>, new: Extent) -> Result<()> {
    let path = Path::to(file.as_ref(), new.logical)?;
    insert_at(path, file, handle, new)
}

/// As [`insert`], with a path to the range. The tree has not changed since the path was made.
pub(crate) fn insert_at(
    path: Path,
    file: &mut FileMut<'_>,
    handle: &Handle<'_>,
    new: Extent,
) -> Result<()> {
    if join(&path, file, handle, new)? {
        return Ok(());
    }
    insert_at_path(path, file, handle, new)
}

/// As [`insert`], but never joins `new` with a neighbour.
pub(crate) fn insert_unmerged(
    file: &mut FileMut<'_>,
    handle: &Handle<'_>,
    new: Extent,
) -> Result<()> {
    let path = Path::to(file.as_ref(), new.logical)?;
    insert_at_path(path, file, handle, new)
}

fn insert_at_path(
    mut path: Path,
    file: &mut FileMut<'_>,
    handle: &Handle<'_>,
    new: Extent,
) -> Result<()> {
    if first_level_with_space(&path, file.body).is_none() {
        grow(file, handle, new)?;
        path = Path::to(file.as_ref(), new.logical)?;
    }
    place(&path, file, handle, new)
}

/// Joins `new` with adjacent entries of its leaf. Returns whether it did.
fn join(path: &Path, file: &mut FileMut<'_>, handle: &Handle<'_>, new: Extent) -> Result<bool> {
    let leaf = path.leaf();
    let slot = leaf.slot;
    let left = path.left.filter(|left| left.can_merge(&new));
    let right = path.right.filter(|right| new.can_merge(right));
    match (left, right) {
        (Some(left), right) => {
            let joined = Extent { len: left.len + new.len, ..left };
            let both = right.filter(|right| joined.can_merge(right));
            edit(&leaf.place, file, handle, |bytes| {
                if let Some(right) = both {
                    let whole = Extent { len: joined.len + right.len, ..joined };
                    node::set(bytes, slot - 1, Entry::leaf(whole));
                    node::remove(bytes, slot);
                } else {
                    node::set(bytes, slot - 1, Entry::leaf(joined));
                }
            })?;
        }
        (None, Some(right)) => {
            let joined = Extent { len: new.len + right.len, ..new };
            edit(&leaf.place, file, handle, |bytes| {
                node::set(bytes, slot, Entry::leaf(joined));
            })?;
            if slot == 0 {
                fix_keys(&path.steps, file, handle)?;
            }
        }
        (None, None) => return Ok(false),
    }
    Ok(true)
}

/// The lowest level of `path` whose node has space for one more entry.
fn first_level_with_space(path: &Path, body: &Body) -> Option<usize> {
    (0..path.steps.len()).rev().find(|&level| {
        with_bytes(&path.steps[level].place, body, |bytes| {
            node::entries(bytes) < node::capacity(bytes)
        })
    })
}

/// Moves the root's entries into a new block below it.
fn grow(file: &mut FileMut<'_>, handle: &Handle<'_>, new: Extent) -> Result<()> {
    let depth = node::depth(&file.body.disk.i_block);
    if usize::from(depth) >= DEPTH_MAX {
        return Err(Error::FileTooLarge);
    }
    let block = new_node(file, handle, new)?;
    let root = file.body.disk.i_block;
    let below = Place::Block(block.clone());
    edit(&below, file, handle, |bytes| {
        node::init(bytes, depth);
        node::append_from(bytes, &root, 0);
    })?;
    let key = node::key(&root, 0);
    let root = &mut NodeMut::without_checksum(&mut file.body.disk.i_block);
    node::init(root, depth + 1);
    node::insert(root, 0, Entry::index(key, block.nr()));
    Ok(())
}

/// Puts `new` into the leaf of `path`. Splits full nodes up to the first one with space.
fn place(path: &Path, file: &mut FileMut<'_>, handle: &Handle<'_>, new: Extent) -> Result<()> {
    let level_with_space =
        first_level_with_space(path, file.body).expect("growing made space in the root");
    let full = path.depth() - level_with_space;
    let mut blocks = Vec::with_capacity(full);
    for _ in 0..full {
        match new_node(file, handle, new) {
            Ok(block) => blocks.push(block),
            Err(error) => {
                for block in blocks {
                    free_node(file, handle, &block)?;
                }
                return Err(error);
            }
        }
    }

    let mut entry = Entry::leaf(new);
    for level in (level_with_space..=path.depth()).rev() {
        let step = &path.steps[level];
        let is_leaf = level == path.depth();
        // After the child that was split, or at the leaf's slot.
        let slot = if is_leaf { step.slot } else { step.slot + 1 };
        if level == level_with_space {
            edit(&step.place, file, handle, |bytes| node::insert(bytes, slot, entry))?;
            break;
        }
        let block = blocks.pop().expect("one block was allocated for each full level");
        let sibling = Place::Block(block.clone());
        let old = with_bytes(&step.place, file.body, |bytes| bytes.to_vec());
        let entries = node::entries(&old);
        let is_append = slot == entries && path.next_key().is_none();
        // A new sibling follows the child that it was split from, so inner nodes are split after
        // that child.
        let cut = if is_leaf && !is_append { entries / 2 } else { slot };
        let into_left = slot <= cut && cut < entries;
        edit(&sibling, file, handle, |bytes| {
            node::init(bytes, node::depth(&old));
            if cut < entries {
                node::append_from(bytes, &old, cut);
            }
            if !into_left {
                node::insert(bytes, slot - cut, entry);
            }
        })?;
        if cut < entries {
            edit(&step.place, file, handle, |bytes| {
                node::truncate(bytes, cut);
                if into_left {
                    node::insert(bytes, slot, entry);
                }
            })?;
        }
        let key = with_bytes(&sibling, file.body, |bytes| node::key(bytes, 0));
        entry = Entry::index(key, block.nr());
    }
    if path.leaf().slot == 0 {
        fix_keys(&path.steps, file, handle)?;
    }
    Ok(())
}

/// Allocates a node block near the data and counts it in the inode.
fn new_node(file: &mut FileMut<'_>, handle: &Handle<'_>, near: Extent) -> Result<MetaBlock> {
    let goal = near.physical.checked_add(u64::from(near.len)).unwrap_or(near.physical);
    let nr = file.allocate_for_map(handle, goal)?;
    file.volume.journal().cache().get_new(nr)
}

/// Frees a node block.
pub(super) fn free_node(
    file: &mut FileMut<'_>,
    handle: &Handle<'_>,
    block: &MetaBlock,
) -> Result<()> {
    file.free_metadata(handle, block.nr())
}
