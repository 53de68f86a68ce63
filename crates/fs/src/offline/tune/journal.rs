//! Adding a journal to a volume without one, and removing the journal.
//!
//! ```text
//!   on    1  free blocks: zeros, the map's nodes, an empty log
//!         2  the step (bitmaps, inode 8, superblock) committed to the new log
//!         3  superblock, first sector: there is a journal to replay   ◄── before: no journal
//!         4  the step is checkpointed, the log is emptied             ◄── after: the log has it
//!
//!   off   1  the step (bitmaps, inode 8 blank, superblock) committed to the log; nothing says yet
//!            that the log must be replayed
//!         2  superblock, first sector: the log must be replayed       ◄── before: as it was
//!         3  the step is checkpointed, the superblock last            ◄── after: the log has it
//! ```
//!
//! Rule D10: while a step is valid but not checkpointed, only the superblock's copy of the
//! journal's map leads to the journal. extant and e2fsck use that copy, and then replay the whole
//! step. Linux looks only at the inode and refuses to mount; otherwise it would continue with a
//! journal that the step removes.

use crate::context::environment::Environment;
use crate::context::superblock::raw_superblock;
use crate::inodes::map::LOGICAL_END;
use crate::inodes::map::used::Used;
use crate::offline::mkfs::{plan, reserved};
use crate::open::exclusive::{Devices, Exclusive, limits};
use crate::state::inode::Body;
use crate::volume::Volume;
use extant_base::narrow::fits_u32;
use extant_base::{ByteOffset, Error, Ino, Result, Site, What};
use extant_blockdev::BlockDevice;
use extant_journal::{Credits, Log};
use extant_ondisk::features::{Compat, Incompat};
use extant_ondisk::inode::Inode as DiskInode;
use extant_ondisk::superblock::{SUPERBLOCK_OFFSET, Superblock};
use zerocopy::IntoBytes;

const CREDITS: Credits = Credits::blocks(64);
/// A device does not tear a sector. The superblock's first sector contains the journal's number and
/// the features.
const SECTOR: usize = 512;
/// A number that no journal has: the undelete directory, which is never used.
const NO_JOURNAL: u32 = 6;

/// Adds a journal of `blocks` blocks to a volume without one, and space for fast commits after
/// them.
pub(super) fn add(
    devices: &Devices,
    old: &Superblock,
    (blocks, fast_commits): (Option<u32>, bool),
    environment: &Environment,
) -> Result<()> {
    let usual = plan::journal_blocks(old.blocks_count);
    let blocks = blocks.map_or(usual, u64::from);
    if !(1024..=(old.blocks_count / 2).min(10_240_000)).contains(&blocks) {
        return Err(Error::Invalid(
            "the journal must have at least 1024 blocks and at most half of the volume's",
        ));
    }
    let fast = if fast_commits { plan::fast_commit_blocks(blocks) } else { 0 };
    let ratio = u64::from(1u32 << old.log_cluster_ratio);
    if old.free_blocks < (blocks + fast).next_multiple_of(ratio) + 64 * ratio {
        return Err(Error::NoSpace);
    }
    let mut exclusive = Exclusive::begin_unmarked(devices, environment)?;
    make(&mut exclusive, fits_u32(blocks + fast), fits_u32(fast))?;
    exclusive.finish()
}

fn make(exclusive: &mut Exclusive, blocks: u32, fast_commit_blocks: u32) -> Result<()> {
    let volume = exclusive.volume()?;
    reserved::journal(&volume, reserved::middle(&volume), (blocks, fast_commit_blocks), true)?;
    {
        let mut sb = volume.context().superblock().write();
        sb.features.compat.insert(Compat::HAS_JOURNAL);
        sb.features.incompat.insert(Incompat::RECOVER);
        change_overhead(&mut sb, i64::from(blocks));
    }
    volume.mount_state().update_superblock()?;
    volume.journal().sync()?;
    let body = volume.inodes().read(Ino::JOURNAL)?;
    let map = volume.file(&body).log_runs()?;
    let home = exclusive.staged.home().clone();
    let size = volume.block_size();
    let mut first = vec![0; size.bytes()];
    let start = map.locate(0).ok_or(Error::NoSpace)?.0;
    exclusive.staged.device().read_at(start, &mut first)?;
    for run in map.runs() {
        home.zero(run.at, u64::from(run.count) << size.log2())?;
    }
    exclusive.staged.write_free(start, &first)?;
    // Recovery that finds the log through the superblock's copy of its map needs the blocks of that
    // map.
    volume.file(&body).each_block(&mut |used| {
        let Used::Node(block) = used else { return Ok(()) };
        let mut bytes = vec![0; size.bytes()];
        exclusive.staged.device().read_at(size.start_of(block), &mut bytes)?;
        exclusive.staged.write_free(size.start_of(block), &bytes)
    })?;
    home.flush()?;
    let log = Log::open(home.clone(), map)?;
    let recovery = log.recover(&*home, limits(&volume.context().superblock().read().clone()))?;
    let sector = first_sector(exclusive)?;
    let now = exclusive.now();
    let mut switch = || home.write_fua(ByteOffset(SUPERBLOCK_OFFSET), &sector);
    let count = volume.geometry().blocks_count();
    exclusive.staged.commit_into(log, recovery, count, now, &mut switch)?;
    super::rewrite::backups(exclusive, volume.geometry(), false)
}

/// Removes the journal.
pub(super) fn remove(devices: &Devices, environment: &Environment) -> Result<()> {
    let mut exclusive = Exclusive::begin_unmarked(devices, environment)?;
    let volume = exclusive.volume()?;
    free(&volume, exclusive.at_begin.journal_inum)?;
    let home = exclusive.staged.home().clone();
    let mut raw = raw_superblock(&*home, SUPERBLOCK_OFFSET)?;
    let mut sb = raw.parse(Site::NOWHERE)?;
    sb.features.incompat.insert(Incompat::RECOVER);
    (sb.journal_inum, sb.jnl_backup_type) = (NO_JOURNAL, 1);
    let body = home_body(devices, exclusive.at_begin.journal_inum)?;
    reserved::copy_map(&mut sb, &body);
    sb.update_raw(&mut raw);
    let mut switch = || home.write_fua(ByteOffset(SUPERBLOCK_OFFSET), &raw.as_bytes()[..SECTOR]);
    let now = exclusive.now();
    exclusive.staged.commit_and_leave_log(volume.geometry().blocks_count(), now, &mut switch)?;
    super::rewrite::backups(&mut exclusive, volume.geometry(), false)
}

/// The journal's inode as it is on the volume, without staged changes.
fn home_body(devices: &Devices, number: u32) -> Result<Body> {
    let ino = Ino::new(number).ok_or_else(|| Site::NOWHERE.corrupt(What::JournalInode))?;
    Volume::open_parts(devices.volume.clone(), &crate::volume::VolumeOptions::default())?
        .inodes()
        .read(ino)
}

fn free(volume: &Volume, number: u32) -> Result<()> {
    let ino = Ino::new(number).ok_or_else(|| Site::NOWHERE.corrupt(What::JournalInode))?;
    let mut body = volume.inodes().read(ino)?;
    let blocks = (body.disk.size >> volume.block_size().log2()).cast_signed();
    let handle = volume.journal().start(CREDITS)?;
    volume.file_mut(&mut body).unmap(&handle, 0..LOGICAL_END)?;
    Body::fresh(volume.context(), ino, DiskInode::default()).store(volume, &handle)?;
    if number >= volume.at_open().first_ino {
        volume.space().free_inode(&handle, ino, false)?;
    }
    handle.stop()?;
    {
        let mut sb = volume.context().superblock().write();
        sb.features.compat.remove(Compat::HAS_JOURNAL);
        (sb.journal_inum, sb.jnl_backup_type, sb.jnl_blocks) = (0, 0, [0; 17]);
        change_overhead(&mut sb, -blocks);
    }
    volume.mount_state().update_superblock()?;
    volume.journal().sync()
}

/// The first sector of the future superblock.
fn first_sector(exclusive: &Exclusive) -> Result<[u8; SECTOR]> {
    let mut sector = [0; SECTOR];
    exclusive.staged.device().read_at(ByteOffset(SUPERBLOCK_OFFSET), &mut sector)?;
    Ok(sector)
}

/// Adds the journal's size to the overhead, if the superblock records an overhead.
fn change_overhead(sb: &mut Superblock, blocks: i64) {
    let ratio = 1i64 << sb.log_cluster_ratio;
    let clusters = (blocks.abs() + ratio - 1) / ratio * blocks.signum();
    if sb.overhead_clusters != 0 {
        let sum = i64::from(sb.overhead_clusters) + clusters;
        sb.overhead_clusters = u32::try_from(sum).unwrap_or(0);
    }
}
