//! The backups of superblock and descriptors after a change of size.
//!
//! ```text
//!   after the old end      before the switch, at once
//!   before it              after the switch, in transactions of their own; old size until then
//! ```

use super::switch::Switch;
use extant_base::{BlockNr, GroupNr, Result};

/// Writes the backups that are after the old end.
pub(super) fn write_after_old_end(switch: &Switch<'_>) -> Result<()> {
    let old_end = switch.old.blocks_count();
    for group in switch.new.super_groups().filter(|group| group.0 != 0) {
        write_super(switch, group, |block| block.0 >= old_end)?;
    }
    for k in 0..switch.new.desc_blocks() {
        for (_, block) in switch.new.desc_block_backups(k).filter(|(_, nr)| nr.0 >= old_end) {
            switch.write(block, &switch.table_block(k)?)?;
        }
    }
    Ok(())
}

/// Writes and commits the backups that are before the old end.
pub(super) fn write_before_old_end(switch: &mut Switch<'_>) -> Result<()> {
    let old_end = switch.old.blocks_count();
    let groups: Vec<GroupNr> = switch.new.super_groups().filter(|group| group.0 != 0).collect();
    for group in groups {
        write_super(switch, group, |block| block.0 < old_end)?;
        commit_step(switch, false)?;
    }
    for k in 0..switch.new.desc_blocks() {
        let backups = switch.new.desc_block_backups(k).filter(|(_, nr)| nr.0 < old_end);
        let backups: Vec<BlockNr> = backups.map(|(_, nr)| nr).collect();
        if !backups.is_empty() {
            let bytes = switch.table_block(k)?;
            for block in backups {
                switch.write(block, &bytes)?;
            }
            commit_step(switch, false)?;
        }
    }
    commit_step(switch, true)
}

fn write_super(
    switch: &Switch<'_>,
    group: GroupNr,
    wanted: impl Fn(BlockNr) -> bool,
) -> Result<()> {
    let Some(at) = switch.new.super_offset(group) else { return Ok(()) };
    let bs = switch.new.block_size();
    let block = bs.block_at(at);
    if !wanted(block) {
        return Ok(());
    }
    let mut bytes = vec![0; bs.bytes()];
    if block.0 < switch.old.blocks_count() {
        switch.read(block, &mut bytes)?;
    }
    let copy = switch.superblock_copy(group)?;
    bytes[..copy.len()].copy_from_slice(&copy);
    switch.write(block, &bytes)
}

fn commit_step(switch: &mut Switch<'_>, last: bool) -> Result<()> {
    if !last && !switch.exclusive.staged.is_large() {
        return Ok(());
    }
    let now = switch.exclusive.now();
    let end = switch.old.blocks_count().min(switch.new.blocks_count());
    switch.exclusive.staged.commit_whole_step(end, now)
}
