//! The files that come and go with features: quota, orphan file, journal.
//!
//! ```text
//!   quota, orphan_file   made or freed in memory, part of the step
//!   has_journal on       in a volume without a log: written, then the volume is marked as closed
//!   has_journal off      superblock first: from then on nobody looks for the log; then its blocks
//! ```

use super::turned;
use crate::environment::Environment;
use crate::exclusive::Exclusive;
use crate::inode::{Body, Counted};
use crate::map::LOGICAL_END;
use crate::mkfs::{plan, reserved};
use crate::recovery::quota_usage;
use crate::superblock::patch_superblock;
use crate::volume::Volume;
use extant_base::{Error, Ino, Result, Site, What};
use extant_blockdev::BlockDevice;
use extant_journal::Credits;
use extant_ondisk::features::{Compat, FeatureBit, Features, RoCompat};
use extant_ondisk::inode::Inode as DiskInode;
use extant_ondisk::superblock::{Superblock, VolumeState};
use std::sync::Arc;

const CREDITS: Credits = Credits::blocks(64);

/// Makes and frees the files of quota and orphans as the features turn.
pub(super) fn switch(volume: &Volume, old: &Features, new: &Features) -> Result<()> {
    if turned(old, new, FeatureBit::Compat(Compat::ORPHAN_FILE)) == Some(false) {
        let number = std::mem::take(&mut volume.superblock.write().orphan_file_inum);
        free_file(volume, number)?;
    }
    if turned(old, new, FeatureBit::RoCompat(RoCompat::QUOTA)) == Some(false) {
        let numbers = {
            let sb = &mut *volume.superblock.write();
            [&mut sb.usr_quota_inum, &mut sb.grp_quota_inum, &mut sb.prj_quota_inum]
                .map(std::mem::take)
        };
        numbers.into_iter().try_for_each(|number| free_file(volume, number))?;
    }
    if turned(old, new, FeatureBit::Compat(Compat::ORPHAN_FILE)) == Some(true) {
        reserved::orphan_file(volume, plan::orphan_blocks(&volume.at_open))?;
    }
    if turned(old, new, FeatureBit::RoCompat(RoCompat::QUOTA)) == Some(true) {
        let usage = quota_usage(volume)?;
        reserved::quota_files(volume, &usage, new.ro_compat.contains(RoCompat::PROJECT))?;
    }
    Ok(())
}

/// Frees what one of the volume's own files holds, and its number where that is not reserved.
fn free_file(volume: &Volume, number: u32) -> Result<()> {
    let Some(ino) = Ino::new(number) else { return Ok(()) };
    let mut body = volume.read_inode(ino)?;
    let handle = volume.journal.start(CREDITS)?;
    volume.unmap_content(&handle, ino, &mut body, 0)?;
    let mut empty = Body::fresh(volume, DiskInode::default());
    empty.counted = Counted::Gone;
    empty.store(volume, ino, &handle)?;
    volume.inodes.forget(ino);
    if number >= volume.at_open.first_ino {
        volume.free_inode(&handle, ino, false)?;
    }
    handle.stop()
}

/// The fewest blocks of a log besides its fast commits, and those that Linux takes for them where
/// the journal does not say.
const LOG_MIN: u32 = 1024;
const FAST_COMMIT_BLOCKS: u32 = 256;

/// Whether the journal leaves room for fast commits.
///
/// Errors: `NotSupported` when it does not: Linux would not mount the volume.
pub(super) fn check_fast_commit(device: &Arc<dyn BlockDevice>) -> Result<()> {
    let fs = crate::filesystem::Filesystem::open_device(Arc::clone(device))?;
    let Some(log) = fs.journal_superblock()? else { return Ok(()) };
    let blocks = match log.fast_commit_blocks {
        0 => FAST_COMMIT_BLOCKS,
        blocks => blocks,
    };
    match log.maxlen.saturating_sub(blocks) < LOG_MIN {
        true => Err(Error::NotSupported(
            "the journal is too small for fast_commit: remove it and add a larger one with it",
        )),
        false => Ok(()),
    }
}

/// Gives a volume without one a journal of so many blocks, and room for fast commits behind them.
pub(super) fn add_journal(
    device: &Arc<dyn BlockDevice>,
    old: &Superblock,
    (blocks, fast_commits): (Option<u32>, bool),
    environment: &Environment,
) -> Result<()> {
    let usual = plan::journal_blocks(old.blocks_count);
    let blocks = u64::from(blocks.unwrap_or(usual as u32));
    if !(1024..=(old.blocks_count / 2).min(10_240_000)).contains(&blocks) {
        return Err(Error::Invalid(
            "the journal must have at least 1024 blocks and at most half of the volume's",
        ));
    }
    let fast = if fast_commits { (blocks / 64) as u32 } else { 0 };
    let ratio = u64::from(1u32 << old.log_cluster_ratio);
    if old.free_blocks < blocks.next_multiple_of(ratio) + 64 * ratio {
        return Err(Error::NoSpace);
    }
    let mut exclusive = Exclusive::begin(device, environment)?;
    let done = make_journal(&mut exclusive, blocks as u32 + fast, fast);
    let finished = exclusive.finish();
    done.and(finished)
}

fn make_journal(exclusive: &mut Exclusive, blocks: u32, fast_commit_blocks: u32) -> Result<()> {
    let volume = exclusive.volume()?;
    reserved::journal(&volume, blocks, fast_commit_blocks, true)?;
    volume.superblock.write().features.compat.insert(Compat::HAS_JOURNAL);
    volume.settle_superblock()?;
    volume.journal.sync()?;
    let map = volume.log_runs(Ino::JOURNAL, &volume.read_inode(Ino::JOURNAL)?)?;
    let size = volume.block_size();
    for run in map.runs() {
        // Past the first block, which says that the log is empty.
        let skip = u32::from(run.first == 0);
        let at = extant_base::ByteOffset(run.at.0 + (u64::from(skip) << size.log2()));
        exclusive.staged.home().zero(at, u64::from(run.count - skip) << size.log2())?;
    }
    let now = exclusive.now();
    exclusive.staged.settle_whole(volume.layout.blocks_count(), now)?;
    super::seal::backups(exclusive, &volume.layout, false)
}

/// Takes the journal away.
pub(super) fn remove_journal(
    device: &Arc<dyn BlockDevice>,
    environment: &Environment,
) -> Result<()> {
    let old = Exclusive::check(device)?;
    let number = old.journal_inum;
    patch_superblock(&**device, |sb| {
        sb.features.compat.remove(Compat::HAS_JOURNAL);
        sb.state.remove(VolumeState::VALID);
        (sb.journal_inum, sb.jnl_backup_type, sb.jnl_blocks) = (0, 0, [0; 17]);
    })?;
    let mut now = crate::volume::read_superblock(&**device, None)?;
    now.state = old.state;
    let mut exclusive = Exclusive::begin_from(device, now, environment)?;
    let done = free_journal(&mut exclusive, number);
    match done {
        Ok(()) => exclusive.finish(),
        // Left as it is: marked as not closed.
        Err(error) => Err(error),
    }
}

fn free_journal(exclusive: &mut Exclusive, number: u32) -> Result<()> {
    let volume = exclusive.volume()?;
    let ino = Ino::new(number).ok_or_else(|| Site::NOWHERE.corrupt(What::JournalInode))?;
    let mut body = volume.read_inode(ino)?;
    let handle = volume.journal.start(CREDITS)?;
    volume.unmap(ino, &mut body, &handle, 0..LOGICAL_END)?;
    Body::fresh(&volume, DiskInode::default()).store(&volume, ino, &handle)?;
    if number >= volume.at_open.first_ino {
        volume.free_inode(&handle, ino, false)?;
    }
    handle.stop()?;
    volume.settle_superblock()?;
    volume.journal.sync()?;
    let now = exclusive.now();
    exclusive.staged.settle_whole(volume.layout.blocks_count(), now)?;
    super::seal::backups(exclusive, &volume.layout, false)
}
