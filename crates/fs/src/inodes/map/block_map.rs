//! Reading block maps: direct, indirect, double and triple indirect pointers.
//!
//! ```text
//!   i_block ─slot─► pointer block ─slot─► pointer block ─slot─► data
//!      │ 0: a hole as long as everything below this slot and the zero slots after it
//!      └ neighbouring pointers to neighbouring blocks: one run, within one pointer block
//! ```
//!
//! Pointer blocks have no checksum, so every pointer is checked each time it is followed. Source:
//! ext4 documentation, "Direct/Indirect Block Addressing".

pub(crate) mod change;

use super::{Run, Target};
use crate::inodes::file::FileRef;
use crate::volume::Volume;
use extant_base::narrow::len_u32;
use extant_base::{BlockNr, LogicalBlock, Result, Site, What};
use extant_ondisk::block_map::{DIRECT, Path, ROOT_SLOTS, check_pointer, pointer};

/// The content of one slot of `i_block` or of a pointer block.
enum Slot {
    /// This slot and those after it, `slots` in all, are zero.
    Hole { slots: u32 },
    /// The slot points to `first`, the next ones to the blocks after it; `slots` in all.
    Block { first: BlockNr, slots: u32 },
}

/// See [`FileRef::map`].
pub(super) fn map(file: FileRef<'_>, at: LogicalBlock, limit: u32) -> Result<Run> {
    let size = file.volume.block_size();
    let Some(path) = Path::to(at, size) else {
        // A map reaches no block here.
        return Ok(Run { logical: at, len: limit, target: Target::Hole });
    };
    let site = Site::of_ino(file.ino());
    let depth = path.depth();
    // In `i_block`, only a direct slot has neighbours of its own kind.
    let root_end = if depth == 0 { DIRECT } else { path.slots()[0] + 1 };
    let root = &file.body.disk.i_block[..ROOT_SLOTS.min(root_end as usize) * 4];
    let mut slot = read_slot(file.volume, root, path.slots()[0], depth == 0, limit, site)?;
    for level in 1..=depth {
        let pointers = match slot {
            Slot::Hole { .. } => return Ok(hole(&path, level - 1, slot, at, limit, size)),
            Slot::Block { first, .. } => first,
        };
        if file.volume.context().guards_system(file.ino())
            && file.volume.space().is_system(pointers, 1)
        {
            return Err(site.block(pointers).corrupt(What::MapBlockRange));
        }
        let block = file.volume.journal().cache().get(pointers)?;
        let bytes = block.read();
        let last = level == depth;
        slot =
            read_slot(file.volume, &bytes, path.slots()[level], last, limit, site.block(pointers))?;
    }
    match slot {
        Slot::Hole { .. } => Ok(hole(&path, depth, slot, at, limit, size)),
        Slot::Block { first, slots } => {
            if file.volume.context().guards_system(file.ino())
                && file.volume.space().is_system(first, u64::from(slots))
            {
                return Err(site.block(first).corrupt(What::MapBlockRange));
            }
            Ok(Run { logical: at, len: slots, target: Target::Written(first) })
        }
    }
}

/// Reads `slot` of `bytes`. With `runs`, also counts the slots after it that continue the run.
fn read_slot(
    volume: &Volume,
    bytes: &[u8],
    slot: u32,
    runs: bool,
    limit: u32,
    at: Site,
) -> Result<Slot> {
    let valid = volume.geometry().block_range();
    let Some(first) = check_pointer(bytes, slot, &valid, at)? else {
        let zeros = (slot + 1..).take_while(|n| pointer(bytes, *n) == Some(0));
        return Ok(Slot::Hole { slots: 1 + len_u32(zeros.take(limit as usize - 1).count()) });
    };
    if !runs {
        return Ok(Slot::Block { first, slots: 1 });
    }
    let next = |n: u32| first.0 + u64::from(n) + 1;
    let follows = |n: u32| {
        valid.contains(&next(n)) && pointer(bytes, slot + 1 + n).map(u64::from) == Some(next(n))
    };
    let more = len_u32((0..limit - 1).take_while(|n| follows(*n)).count());
    Ok(Slot::Block { first, slots: 1 + more })
}

/// The hole from `at` to the end of the range that the zero slots at `level` of the path map.
fn hole(
    path: &Path,
    level: usize,
    slot: Slot,
    at: LogicalBlock,
    limit: u32,
    size: extant_base::BlockSize,
) -> Run {
    let Slot::Hole { slots } = slot else { unreachable!("only holes are passed here") };
    let mut before = 0;
    for (deeper, slot) in path.slots().iter().enumerate().skip(level + 1) {
        before += u64::from(*slot) * path.blocks_below(deeper, size);
    }
    let len = u64::from(slots) * path.blocks_below(level, size) - before;
    let len = u32::try_from(len).unwrap_or(u32::MAX).min(limit);
    Run { logical: at, len, target: Target::Hole }
}
