//! The journal's inode and superblock.
//!
//! ```text
//!   inode 8 ─┬─ whole, its superblock right ──────────────► used
//!            ├─ superblock not right ─────────────────────► a new one: the log is empty
//!            └─ not whole ─► copy in the volume's superblock ─► else a new journal, else none
//! ```

use crate::map::{self, Budget, Mapping, Run};
use crate::report::Class;
use crate::scan::Table;
use crate::usage::Usage;
use crate::volume::Volume;
use extant_base::{BlockNr, ByteOffset, Ino, Result, Site, Tid};
use extant_blockdev::BlockDevice;
use extant_ondisk::extent::EXTENT_MAGIC;
use extant_ondisk::features::Compat;
use extant_ondisk::inode::InodeFlags;
use extant_ondisk::jbd2::{JournalFeatures, JournalSuperblock};

/// The fewest blocks of a journal.
const BLOCKS_MIN: u64 = 1024;
/// The most blocks of a journal that is made again.
const BLOCKS_MAX: u64 = 262_144;

/// The runs of the journal's blocks, and their number; `None` if the inode cannot be one.
pub(crate) fn runs(volume: &Volume) -> Result<Option<(Vec<Run>, u64)>> {
    let ino = volume.sb().journal_inum;
    let Some(inode) = volume.inode(ino)? else { return Ok(None) };
    let blocks = volume.geometry.block_size().blocks_for(inode.size);
    if !inode.is_file() || inode.links == 0 || inode.has_inline_data() || blocks == 0 {
        return Ok(None);
    }
    let map = map::read(volume, ino, &inode, &mut Budget::of(volume), false)?;
    let whole = !map.damaged && map.lost.is_empty() && is_whole(&map, blocks);
    Ok(whole.then_some((map.runs, blocks)))
}

fn is_whole(map: &Mapping, blocks: u64) -> bool {
    map.blocks() >= blocks
        && u64::from(map.end()) == map.blocks()
        && map.runs.iter().all(|run| run.written)
}

/// Restores the journal's inode from the copy in the superblock, if it is not whole itself.
pub(crate) fn restore(volume: &mut Volume) -> Result<()> {
    let sb = volume.sb();
    if !sb.has_journal() || sb.journal_inum == 0 || runs(volume)?.is_some() {
        return Ok(());
    }
    if sb.jnl_backup_type != 1 {
        return Ok(());
    }
    let (ino, words) = (sb.journal_inum, sb.jnl_blocks);
    let mut inode = super::fresh(volume);
    inode.size = u64::from(words[16]) | u64::from(words[15]) << 32;
    for (to, word) in inode.i_block.chunks_exact_mut(4).zip(words) {
        to.copy_from_slice(&word.to_le_bytes());
    }
    inode.flags.set(InodeFlags::EXTENTS, words[0] & 0xFFFF == u32::from(EXTENT_MAGIC));
    let before = volume.slot(ino)?.unwrap_or_default();
    volume.put_slot(ino, &vec![0; volume.geometry.inode_size()])?;
    volume.put_inode(ino, &inode)?;
    if runs(volume)?.is_none() {
        return volume.put_slot(ino, &before);
    }
    let mut map = map::read(volume, ino, &inode, &mut Budget::of(volume), false)?;
    let clusters = map.clusters(volume.geometry.log_cluster_ratio()) + map.nodes.len() as u64;
    map.nodes.clear();
    inode.sectors = clusters * volume.cluster_sectors();
    volume.report.add(Class::OwnFiles);
    volume.report.note("the journal's inode was restored from its copy in the superblock");
    volume.put_inode(ino, &inode)
}

/// The superblock on the device of an external journal, and where it lies.
struct OnDevice {
    at: ByteOffset,
    bytes: Vec<u8>,
    found: JournalSuperblock,
}

/// Reads it; `None` if it is damaged, or of a journal that is not the volume's.
fn on_device(volume: &Volume, journal: &dyn BlockDevice) -> Result<Option<OnDevice>> {
    let size = volume.geometry.block_size();
    // A superblock of ext4 lies before it.
    let at = size.start_of(BlockNr(if size.bytes() == 1024 { 2 } else { 1 }));
    let blocks = journal.len() >> size.log2();
    let mut bytes = vec![0; size.bytes()];
    if at.0 + size.bytes() as u64 > journal.len() {
        return Ok(None);
    }
    journal.read_at(at, &mut bytes)?;
    let Ok(found) = JournalSuperblock::read(&bytes, size, blocks, Site::NOWHERE) else {
        return Ok(None);
    };
    let is_own = found.uuid == volume.sb().journal_uuid;
    Ok(is_own.then_some(OnDevice { at, bytes, found }))
}

/// Whether the volume's log on the device of an external journal holds transactions.
///
/// Errors: `Device`.
pub(crate) fn device_is_used(volume: &Volume, journal: &dyn BlockDevice) -> Result<bool> {
    Ok(on_device(volume, journal)?.is_some_and(|on| on.found.start.is_some()))
}

/// Empties the log on the device of an external journal, of a volume that needs no replay: what the
/// log has is older than the volume. A journal of another volume is left alone.
///
/// Errors: `Device`.
pub(crate) fn empty_device(volume: &mut Volume, journal: &dyn BlockDevice) -> Result<()> {
    let Some(OnDevice { at, mut bytes, found }) = on_device(volume, journal)? else {
        return Ok(());
    };
    if found.start.is_none() && found.errno == 0 {
        return Ok(());
    }
    volume.report.add(Class::OwnFiles);
    volume.report.note("the log on the journal's device is older than the volume: it was emptied");
    JournalSuperblock { start: None, errno: 0, ..found }.write(&mut bytes);
    journal.write_at(at, &bytes)
}

/// Makes sure that the journal can be used, and is empty.
pub(super) fn run(volume: &mut Volume, table: &mut Table, usage: &mut Usage) -> Result<()> {
    let sb = volume.sb();
    if !sb.has_journal() || sb.journal_inum == 0 {
        return Ok(());
    }
    let ino = sb.journal_inum;
    let broken = table.broken_own.contains(&ino) || !table.nodes.has(ino);
    let usable = if broken { None } else { runs(volume)? };
    match usable.filter(|(_, blocks)| *blocks >= BLOCKS_MIN) {
        Some((runs, blocks)) => superblock(volume, runs[0].physical, blocks),
        None => again(volume, table, usage, ino),
    }
}

/// Writes the journal's superblock if it is not right.
fn superblock(volume: &mut Volume, first: u64, blocks: u64) -> Result<()> {
    let size = volume.geometry.block_size();
    let mut bytes = volume.disk.read(first)?;
    let is_v1 = bytes[..8] == [0xC0, 0x3B, 0x39, 0x98, 0, 0, 0, 3];
    if is_v1 && bytes[0x24..0x100].iter().any(|byte| *byte != 0) {
        bytes[0x24..0x100].fill(0);
        volume.report.add(Class::OwnFiles);
        volume.disk.put(first, &bytes)?;
    }
    let read = JournalSuperblock::read(&bytes, size, blocks, Site::NOWHERE);
    if let Ok(found) = &read
        && u64::from(found.maxlen) >= BLOCKS_MIN
    {
        let right = JournalSuperblock {
            start: None,
            errno: 0,
            nr_users: found.nr_users.min(1),
            ..found.clone()
        };
        if right != *found {
            volume.report.add(Class::OwnFiles);
            right.write(&mut bytes);
            volume.disk.put(first, &bytes)?;
        }
        return Ok(());
    }
    volume.report.add(Class::JournalReset);
    volume.report.note("the journal's superblock is damaged: the journal was emptied");
    let sequence = bytes[0x18..0x1C].first_chunk().map_or(1, |word| u32::from_be_bytes(*word));
    put_superblock(volume, first, blocks, sequence.wrapping_add(fits(blocks)).max(1))
}

fn fits(n: u64) -> u32 {
    u32::try_from(n).unwrap_or(u32::MAX)
}

fn put_superblock(volume: &Volume, first: u64, blocks: u64, sequence: u32) -> Result<()> {
    let mut bytes = vec![0; volume.block_bytes()];
    let new = JournalSuperblock {
        block_size: volume.geometry.block_size(),
        maxlen: fits(blocks),
        first: 1,
        sequence: Tid(sequence),
        start: None,
        errno: 0,
        features: JournalFeatures::NONE,
        uuid: volume.sb().uuid,
        fast_commit_blocks: 256,
        head: 0,
        is_v1: false,
        nr_users: 1,
    };
    new.write(&mut bytes);
    volume.disk.put(first, &bytes)
}

/// Makes a new journal; without space for one, the volume becomes one without a journal.
fn again(volume: &mut Volume, table: &mut Table, usage: &mut Usage, ino: u32) -> Result<()> {
    let log = volume.geometry.block_size().log2();
    let old = volume.inode(ino)?.map_or(0, |inode| inode.size >> log);
    let copy = (u64::from(volume.sb().jnl_blocks[16])) >> log;
    let usual = match volume.geometry.blocks_count() {
        0..32_768 => 1024,
        32_768..262_144 => 4096,
        _ => 8192,
    };
    let wanted = [copy, old]
        .into_iter()
        .find(|blocks| (BLOCKS_MIN..=BLOCKS_MAX).contains(blocks))
        .unwrap_or(usual);
    if table.nodes.has(ino) {
        crate::claims::release(volume, table, usage, ino)?;
    }
    volume.report.add(Class::JournalReset);
    for blocks in [wanted, usual, BLOCKS_MIN] {
        if let Some(map) = allocate(volume, usage, blocks) {
            volume.report.note(format!("a new journal of {blocks} blocks was made"));
            return put(volume, table, usage, ino, map, blocks);
        }
    }
    volume.report.note("no space is free for a new journal: the volume has none now");
    volume.put_slot(ino, &vec![0; volume.geometry.inode_size()])?;
    volume.change_superblock(|sb| {
        sb.features.compat.remove(Compat::HAS_JOURNAL);
        sb.jnl_backup_type = 0;
        crate::volume::superblock::settle(sb);
    })
}

/// Space for a journal, in as few runs as there are.
fn allocate(volume: &Volume, usage: &mut Usage, blocks: u64) -> Option<Mapping> {
    let ratio = u64::from(volume.geometry.cluster_ratio());
    let mut within = volume.geometry.block_range();
    within.end = within.end.min(1 << 32);
    let extents = volume.has_incompat(extant_ondisk::features::Incompat::EXTENTS);
    let clusters = blocks.div_ceil(ratio);
    let middle = (within.start + within.end) / 2;
    if let Some(physical) = usage.take_run(clusters, &within) {
        let runs = vec![Run { logical: 0, physical, len: fits(blocks), written: true }];
        return with_nodes(volume, usage, Mapping { runs, extents, ..Mapping::default() });
    }
    let mut runs: Vec<Run> = Vec::new();
    let mut taken = Vec::new();
    let mut goal = middle;
    for cluster in 0..clusters {
        let Some(physical) = usage.take(goal, &within) else {
            taken.iter().for_each(|block| usage.remove(*block));
            return None;
        };
        taken.push(physical);
        goal = physical + ratio;
        let logical = fits(cluster * ratio);
        let len = fits(ratio.min(blocks - cluster * ratio));
        match runs.last_mut() {
            Some(last) if last.blocks().end == physical => last.len += len,
            _ => runs.push(Run { logical, physical, len, written: true }),
        }
    }
    with_nodes(volume, usage, Mapping { runs, extents, ..Mapping::default() })
}

/// The map, if space is left for its own blocks; else its blocks are free again.
fn with_nodes(volume: &Volume, usage: &mut Usage, map: Mapping) -> Option<Mapping> {
    let within = map.node_range(volume);
    if usage.can_take(map::nodes_needed(volume, &map), &within) {
        return Some(map);
    }
    map.each().for_each(|(_, block)| usage.remove(block));
    None
}

fn put(
    volume: &mut Volume,
    table: &mut Table,
    usage: &mut Usage,
    ino: u32,
    mut map: Mapping,
    blocks: u64,
) -> Result<()> {
    let mut inode = super::fresh(volume);
    inode.size = blocks << volume.geometry.block_size().log2();
    volume.put_slot(ino, &vec![0; volume.geometry.inode_size()])?;
    map::write(volume, usage, ino, &mut inode, &mut map)?;
    let clusters = map.clusters(volume.geometry.log_cluster_ratio()) + map.nodes.len() as u64;
    inode.sectors = clusters * volume.cluster_sectors();
    volume.put_inode(ino, &inode)?;
    put_superblock(volume, map.runs[0].physical, blocks, 1)?;
    table.nodes.insert(
        ino,
        crate::scan::Node {
            mode: inode.mode,
            links: 1,
            flags: inode.flags,
            hidden: true,
            suspect: false,
            has_content: true,
        },
    );
    table.broken_own.retain(|one| *one != ino);
    let size = inode.size;
    volume.change_superblock(|sb| {
        sb.jnl_backup_type = 1;
        for (word, bytes) in sb.jnl_blocks.iter_mut().zip(inode.i_block.as_chunks::<4>().0) {
            *word = u32::from_le_bytes(*bytes);
        }
        sb.jnl_blocks[15] = extant_base::narrow::high_u32(size);
        sb.jnl_blocks[16] = extant_base::narrow::low_u32(size);
    })?;
    debug_assert!(Ino::new(ino).is_some());
    Ok(())
}
