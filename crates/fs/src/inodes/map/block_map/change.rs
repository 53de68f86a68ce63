//! Adding blocks to a block map and removing them.
//!
//! ```text
//!   i_block [0..11] direct   [12] ──► [p pointers]
//!                            [13] ──► [p] ──► [p]            a pointer block is made, zeroed, when
//!                            [14] ──► [p] ──► [p] ──► [p]    the first pointer goes in, and freed
//!                                                            when the last one has gone
//! ```
//!
//! Pointers have 32 bits, and there is no unwritten state.

use crate::inodes::file::{FileMut, FileRef};
use crate::state::inode::Body;
use crate::volume::Volume;
use extant_base::narrow::{fits_u32, len_u32};
use extant_base::{BlockNr, Error, LogicalBlock, Result, Site, What};
use extant_journal::Handle;
use extant_ondisk::block_map::{self, Path};
use extant_ondisk::extent::{Extent, ExtentState};
use std::ops::Range;

/// Makes the logical blocks of `new` point to its physical blocks.
///
/// Allocates pointer blocks after the data as needed. Errors: `FileTooLarge` beyond the reach of a
/// map, `NoSpace` (the pointers set so far are removed), `Corrupt`.
pub(crate) fn insert(file: &mut FileMut<'_>, handle: &Handle<'_>, new: Extent) -> Result<()> {
    if new.state != ExtentState::Written {
        return Err(Error::NotSupported("unwritten blocks in a block map"));
    }
    for n in 0..new.len {
        let logical = LogicalBlock(new.logical.0 + n);
        let physical = BlockNr(new.physical.0 + u64::from(n));
        if let Err(error) = point(file, handle, logical, physical, new) {
            // The block that failed may have left pointer blocks without pointers.
            let done = new.logical.0..logical.0.saturating_add(1);
            clear(file, handle, done, &mut |_, _| Ok(true))?;
            return Err(error);
        }
    }
    Ok(())
}

fn point(
    file: &mut FileMut<'_>,
    handle: &Handle<'_>,
    logical: LogicalBlock,
    physical: BlockNr,
    near: Extent,
) -> Result<()> {
    let path = Path::to(logical, file.volume.block_size()).ok_or(Error::FileTooLarge)?;
    let slots = path.slots();
    let Some((&last, ways)) = slots.split_last() else { return Err(Error::FileTooLarge) };
    let mut parent: Option<BlockNr> = None;
    for &slot in ways {
        let child = pointer(file.as_ref(), parent, slot)?;
        parent = Some(match child {
            Some(child) => child,
            None => {
                let goal = BlockNr(near.physical.0 + u64::from(near.len));
                let child = file.allocate_for_map(handle, goal)?;
                let block = file.volume.journal().cache().get_new(child)?;
                // The block is zeroed before a pointer leads to it.
                drop(block.write(handle)?.bytes_mut());
                set_pointer(file.volume, file.body, handle, parent, slot, Some(child))?;
                child
            }
        });
    }
    set_pointer(file.volume, file.body, handle, parent, last, Some(physical))
}

/// The pointer in `slot` of `i_block` or of the pointer block `parent`.
fn pointer(file: FileRef<'_>, parent: Option<BlockNr>, slot: u32) -> Result<Option<BlockNr>> {
    let valid = file.volume.geometry().block_range();
    let at = Site::of_ino(file.ino());
    match parent {
        None => block_map::check_pointer(&file.body.disk.i_block, slot, &valid, at),
        Some(parent) => {
            if file.volume.context().guards_system(file.ino())
                && file.volume.space().is_system(parent, 1)
            {
                return Err(at.block(parent).corrupt(What::MapBlockRange));
            }
            let block = file.volume.journal().cache().get(parent)?;
            block_map::check_pointer(&block.read(), slot, &valid, at.block(parent))
        }
    }
}

fn set_pointer(
    volume: &Volume,
    body: &mut Body,
    handle: &Handle<'_>,
    parent: Option<BlockNr>,
    slot: u32,
    to: Option<BlockNr>,
) -> Result<()> {
    match parent {
        None => block_map::set_pointer(&mut body.disk.i_block, slot, to),
        Some(parent) => {
            let block = volume.journal().cache().get(parent)?;
            block_map::set_pointer(&mut block.write(handle)?.bytes_mut(), slot, to)
        }
    }
}

/// Removes the blocks of `range` from the map and frees them, and pointer blocks that become empty.
pub(crate) fn remove(file: &mut FileMut<'_>, handle: &Handle<'_>, range: Range<u32>) -> Result<()> {
    let all = &mut |_: BlockNr| ();
    remove_step(file, handle, range, Budget::unlimited(), all).map(drop)
}

/// The most that one step of [`remove_step`] may touch.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Budget {
    /// Pointer blocks, and runs of data blocks.
    pub(crate) runs: u32,
    /// Data blocks.
    pub(crate) blocks: u32,
}

impl Budget {
    fn unlimited() -> Budget {
        Budget { runs: u32::MAX, blocks: u32::MAX }
    }
}

/// As [`remove`], from the right until `budget` is spent. Calls `forget` for each data block that
/// it removes. Returns whether all of `range` is removed.
pub(crate) fn remove_step(
    file: &mut FileMut<'_>,
    handle: &Handle<'_>,
    range: Range<u32>,
    budget: Budget,
    forget: &mut dyn FnMut(BlockNr),
) -> Result<bool> {
    let mut run: Option<Range<u64>> = None;
    let Budget { mut runs, mut blocks } = budget;
    let volume = file.volume;
    let free = |body: &mut Body, run: Range<u64>| {
        let len = run.end - run.start;
        volume.free_of(body.ino(), handle, BlockNr(run.start), len)?;
        body.disk.sectors = body.disk.sectors.saturating_sub(volume.context().sectors(len));
        Ok::<(), Error>(())
    };
    let cleared = clear(file, handle, range, &mut |body, removed| {
        let Removed::Data(block) = removed else {
            runs = runs.saturating_sub(1);
            return Ok(runs > 0);
        };
        forget(block);
        match &mut run {
            // The walk goes right to left, so each block extends the run to the left.
            Some(run) if run.start == block.0 + 1 => run.start = block.0,
            _ => {
                if let Some(run) = run.replace(block.0..block.0 + 1) {
                    free(body, run)?;
                }
                runs = runs.saturating_sub(1);
            }
        }
        blocks = blocks.saturating_sub(1);
        Ok(runs > 0 && blocks > 0)
    })?;
    if let Some(run) = run {
        free(file.body, run)?;
    }
    Ok(cleared != Cleared::Stopped)
}

/// What a removal has reached.
enum Removed {
    /// A pointer block that the removal enters. It may become empty.
    Pointers,
    /// A block of data that no pointer names any more.
    Data(BlockNr),
}

/// Called for each item of a removal. Returns whether to continue.
type OnRemoved<'a> = &'a mut dyn FnMut(&mut Body, Removed) -> Result<bool>;

/// How a removal below a pointer block ended.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Cleared {
    /// No pointer is left.
    Empty,
    /// Pointers outside the range are left.
    Kept,
    /// `removed` stopped the removal; more may be left.
    Stopped,
}

/// Clears the pointers of `range`, right to left. Calls `removed` for each block that was pointed
/// to.
fn clear(
    file: &mut FileMut<'_>,
    handle: &Handle<'_>,
    range: Range<u32>,
    removed: OnRemoved<'_>,
) -> Result<Cleared> {
    let most = block_map::max_blocks(file.volume.block_size());
    let end = u64::from(range.end).min(most);
    // The four trees of i_block, from the right: slots 14, 13, 12, then the direct pointers.
    for slot in (0..len_u32(block_map::ROOT_SLOTS)).rev() {
        let (first, below) = root_slot(file.volume, slot);
        let from = u64::from(range.start).max(first);
        let to = end.min(first + below);
        if from >= to {
            continue;
        }
        let Some(child) = pointer(file.as_ref(), None, slot)? else { continue };
        if slot < block_map::DIRECT {
            set_pointer(file.volume, file.body, handle, None, slot, None)?;
            if !removed(file.body, Removed::Data(child))? {
                return Ok(Cleared::Stopped);
            }
            continue;
        }
        let levels = slot - block_map::DIRECT;
        let tree = Subtree { block: child, first, levels };
        match tree.clear(file, handle, from..to, removed)? {
            Cleared::Stopped => return Ok(Cleared::Stopped),
            Cleared::Kept => {}
            Cleared::Empty => {
                set_pointer(file.volume, file.body, handle, None, slot, None)?;
                file.free_metadata(handle, child)?;
            }
        }
    }
    Ok(Cleared::Kept)
}

/// The first logical block below slot `slot` of `i_block`, and how many lie below it.
fn root_slot(volume: &Volume, slot: u32) -> (u64, u64) {
    let p = u64::from(block_map::pointers_per_block(volume.block_size()));
    match slot {
        12 => (12, p),
        13 => (12 + p, p * p),
        14 => (12 + p + p * p, p * p * p),
        direct => (u64::from(direct), 1),
    }
}

/// A pointer block and what lies below it.
struct Subtree {
    block: BlockNr,
    /// The first logical block it maps.
    first: u64,
    /// Levels of pointer blocks below this one.
    levels: u32,
}

impl Subtree {
    /// Clears `range` below this block.
    fn clear(
        &self,
        file: &mut FileMut<'_>,
        handle: &Handle<'_>,
        range: Range<u64>,
        removed: OnRemoved<'_>,
    ) -> Result<Cleared> {
        if !removed(file.body, Removed::Pointers)? {
            return Ok(Cleared::Stopped);
        }
        let p = u64::from(block_map::pointers_per_block(file.volume.block_size()));
        let below = p.pow(self.levels);
        // At most 16384 pointers in a block.
        let low = fits_u32((range.start - self.first) / below);
        let high = fits_u32((range.end - 1 - self.first) / below);
        for slot in (low..=high).rev() {
            let Some(child) = pointer(file.as_ref(), Some(self.block), slot)? else {
                continue;
            };
            let first = self.first + u64::from(slot) * below;
            if self.levels > 0 {
                let tree = Subtree { block: child, first, levels: self.levels - 1 };
                let part = range.start.max(first)..range.end.min(first + below);
                match tree.clear(file, handle, part, removed)? {
                    Cleared::Stopped => return Ok(Cleared::Stopped),
                    Cleared::Kept => continue,
                    Cleared::Empty => {}
                }
                set_pointer(file.volume, file.body, handle, Some(self.block), slot, None)?;
                file.free_metadata(handle, child)?;
            } else {
                set_pointer(file.volume, file.body, handle, Some(self.block), slot, None)?;
                if !removed(file.body, Removed::Data(child))? {
                    return Ok(Cleared::Stopped);
                }
            }
        }
        let block = file.volume.journal().cache().get(self.block)?;
        let empty = block_map::is_empty(&block.read());
        Ok(if empty { Cleared::Empty } else { Cleared::Kept })
    }
}
