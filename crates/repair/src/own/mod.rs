//! The volume's own files: journal, orphan file, quota files, reserved descriptors, multi-mount
//! block.

mod journal;
mod quota;
mod resize;

pub(crate) use journal::device_is_used as journal_device_is_used;
pub(crate) use journal::empty_device as empty_journal_device;
pub(crate) use journal::restore as restore_journal;
pub(crate) use journal::runs as journal_runs;
pub(crate) use quota::run as quota;

use crate::hints::Hints;
use crate::map::Mapping;
use crate::report::Class;
use crate::scan::Table;
use crate::usage::Usage;
use crate::volume::{Role, Volume};
use extant_base::{BlockNr, Ino, Result, Site};
use extant_ondisk::features::{Compat, Incompat, RoCompat};
use extant_ondisk::inode::{EXTRA_ISIZE, FileKind, Inode};
use extant_ondisk::mmp::{CHECK_INTERVAL_MIN, Mmp, MmpState};
use extant_ondisk::orphan_file;

/// The inode of an internal file that is made again.
fn fresh(volume: &Volume) -> Inode {
    Inode {
        mode: FileKind::Regular.mode_bits() | 0o600,
        links: 1,
        extra_isize: match volume.geometry.inode_size() {
            128 => 0,
            _ => volume.format.want_extra_isize().max(EXTRA_ISIZE),
        },
        ..Inode::default()
    }
}

/// Takes away all blocks of internal files that will be made again: they must not compete with
/// users' files for a block.
pub(crate) fn forget_broken(volume: &mut Volume, table: &mut Table) -> Result<()> {
    resize::forget_broken(volume, table)?;
    let sb = volume.sb();
    let mut broken = Vec::new();
    if sb.has_journal() && sb.journal_inum != 0 && journal::runs(volume)?.is_none() {
        broken.push(sb.journal_inum);
    }
    if volume.has_compat(Compat::ORPHAN_FILE) && whole_orphan_file(volume, table)?.is_none() {
        broken.push(sb.orphan_file_inum);
    }
    for ino in broken {
        if volume.role(ino) == Role::Own && table.nodes.remove(ino).is_some() {
            table.maps.remove(&ino);
            table.claimed = None;
            table.broken_own.push(ino);
        }
    }
    Ok(())
}

/// Makes again what is not sound.
pub(crate) fn run(
    volume: &mut Volume,
    table: &mut Table,
    usage: &mut Usage,
    hints: &Hints,
) -> Result<()> {
    journal::run(volume, table, usage)?;
    orphans(volume, table, usage)?;
    if volume.role(7) == Role::Resize && (hints.resize || table.broken_own.contains(&7)) {
        resize::run(volume, usage)?;
    }
    mmp(volume)
}

/// Empties the orphan file, or drops it if it cannot be read.
fn orphans(volume: &mut Volume, table: &mut Table, usage: &mut Usage) -> Result<()> {
    if volume.sb().last_orphan != 0 {
        volume.report.add(Class::Orphans);
        volume.change_superblock(|sb| sb.last_orphan = 0)?;
    }
    if !volume.has_compat(Compat::ORPHAN_FILE) {
        return Ok(());
    }
    if volume.has_ro_compat(RoCompat::ORPHAN_PRESENT) {
        volume.change_superblock(|sb| sb.features.ro_compat.remove(RoCompat::ORPHAN_PRESENT))?;
    }
    let ino = volume.sb().orphan_file_inum;
    let Some((inode, map)) = whole_orphan_file(volume, table)? else {
        volume.report.add(Class::OwnFiles);
        volume.report.note("the orphan file is lost: the volume works without one");
        if table.nodes.has(ino) {
            crate::claims::release(volume, table, usage, ino)?;
        }
        volume.put_slot(ino, &vec![0; volume.geometry.inode_size()])?;
        return volume.change_superblock(|sb| {
            sb.features.compat.remove(Compat::ORPHAN_FILE);
            sb.orphan_file_inum = 0;
        });
    };
    let seed = Ino::new(ino).and_then(|nr| inode.seed(nr, &volume.format));
    for (_, block) in map.each() {
        let mut bytes = volume.disk.read(block)?;
        let is_empty =
            orphan_file::check(&bytes, BlockNr(block), seed, volume.geometry.inodes_count())
                .is_ok_and(|mut entries| entries.next().is_none());
        if !is_empty {
            volume.report.add(Class::OwnFiles);
            orphan_file::init(&mut bytes, BlockNr(block), seed);
            volume.disk.put(block, &bytes)?;
        }
    }
    Ok(())
}

/// The inode and the map of the orphan file; `None` if it is not whole.
fn whole_orphan_file(volume: &Volume, table: &mut Table) -> Result<Option<(Inode, Mapping)>> {
    let ino = volume.sb().orphan_file_inum;
    if table.broken_own.contains(&ino) || !table.nodes.has(ino) {
        return Ok(None);
    }
    let Some(inode) = volume.inode(ino)? else { return Ok(None) };
    let map = table.map_of(volume, ino)?;
    let blocks = inode.size >> volume.geometry.block_size().log2();
    let whole = (1..=u64::from(orphan_file::MAX_BLOCKS)).contains(&blocks)
        && u64::from(map.end()) == blocks
        && map.blocks() == blocks;
    Ok(whole.then_some((inode, map)))
}

/// Writes the multi-mount block again if it is not one.
fn mmp(volume: &mut Volume) -> Result<()> {
    if !volume.has_incompat(Incompat::MMP) {
        return Ok(());
    }
    let block = volume.sb().mmp_block;
    let mut bytes = volume.disk.read(block.0)?;
    if Mmp::check(&bytes, &volume.checksums, Site::NOWHERE).is_ok() {
        return Ok(());
    }
    volume.report.add(Class::OwnFiles);
    bytes.fill(0);
    let clean = Mmp {
        state: MmpState::Clean,
        time: u64::from(volume.now),
        nodename: [0; 64],
        bdevname: [0; 32],
        check_interval: volume.sb().mmp_update_interval.max(CHECK_INTERVAL_MIN),
    };
    clean.write(&mut bytes, &volume.checksums);
    volume.disk.put(block.0, &bytes)
}
