//! The inodes that every volume starts with, made by the engine.
//!
//! ```text
//!    1  bad blocks, empty          7  descriptor blocks to grow into (resize_inode)
//!    2  root                       8  journal
//!    3  user quota                11  lost+found
//!    4  group quota               12… project quota, orphan file
//!    5  checksums of data (data_csum)
//! ```

use crate::inodes::create::NewInode;
use crate::inodes::file::FileMut;
use crate::inodes::map::Run;
use crate::offline::mkfs::options::MkfsOptions;
use crate::offline::mkfs::plan::Plan;
use crate::space::blocks::{Request, Search};
use crate::space::inodes::InodeGoal;
use crate::space::reservations::Allowance;
use crate::state::inode::Body;
use crate::tree::usage::Usage;
use crate::volume::Volume;
use extant_base::narrow::{fits_u32, high_u32, len_u32, low_u32};
use extant_base::{BlockNr, ByteOffset, Error, GroupNr, Ino, Result, Site, Tid};
use extant_journal::{Credits, Handle};
use extant_ondisk::block_map::pointers_per_block;
use extant_ondisk::data_sums::file_blocks;
use extant_ondisk::dirent::{DirBlockMut, EntryKind};
use extant_ondisk::extent::ExtentState;
use extant_ondisk::features::{Compat, Incompat, RoCompat};
use extant_ondisk::inode::{Inode as DiskInode, InodeFlags};
use extant_ondisk::jbd2::{JournalFeatures, JournalSuperblock};
use extant_ondisk::mmp::{Mmp, MmpState};
use extant_ondisk::orphan_file;
use extant_ondisk::quota::QuotaKind;
use extant_ondisk::superblock::Superblock;

/// Credits for one of these inodes: bitmaps, descriptors, table, directory and map blocks.
const CREDITS: Credits = Credits::blocks(64);

/// Makes all of them.
pub(super) fn make(volume: &Volume, plan: &Plan, options: &MkfsOptions) -> Result<()> {
    mark_reserved_inodes(volume)?;
    root(volume, options)?;
    if options.lost_and_found {
        lost_and_found(volume, options)?;
    }
    if volume.has_compat(Compat::RESIZE_INODE) && volume.at_open().reserved_gdt_blocks > 0 {
        resize_inode(volume)?;
    } else if volume.has_compat(Compat::RESIZE_INODE) {
        empty_resize_inode(volume)?;
    }
    if plan.journal_blocks > 0 {
        let goal = match options.packed_metadata {
            true => BlockNr(0),
            false => middle(volume),
        };
        journal(volume, goal, (plan.journal_blocks, plan.fast_commit_blocks), options.zeroed)?;
    }
    if volume.has_ro_compat(RoCompat::QUOTA) {
        first_quota_files(volume, options)?;
    }
    if plan.orphan_blocks > 0 {
        orphan_file(volume, plan.orphan_blocks)?;
    }
    if volume.data_checksums().has_data_csum() {
        if plan.journal_blocks == 0 {
            return Err(Error::Invalid(
                "data_csum needs a journal, for which this volume is too small",
            ));
        }
        make_checksum_file(volume, &mut |at, bytes| match options.zeroed {
            true => Ok(()),
            false => volume.device().zero(at, bytes),
        })?;
    }
    if volume.has_incompat(Incompat::MMP) {
        mmp_block(volume)?;
    }
    overhead(volume, plan);
    Ok(())
}

/// Marks the numbers below the first free one as used, and gives their slots valid checksums.
fn mark_reserved_inodes(volume: &Volume) -> Result<()> {
    let handle = volume.journal().start(CREDITS)?;
    for number in 1..volume.at_open().first_ino {
        let Some(ino) = Ino::new(number) else { continue };
        volume.space().mark_inode(&handle, ino, ino == Ino::ROOT)?;
        Body::fresh(volume.context(), ino, DiskInode::default()).store(volume, &handle)?;
    }
    handle.stop()
}

/// The inode `ino` as mkfs makes it: links, times and flags set, no blocks.
fn fresh(volume: &Volume, ino: Ino, mode: u16, links: u16) -> Result<Body> {
    let new = NewInode {
        generation: Some(0),
        ..NewInode::at(InodeGoal::InOrder, mode, volume.environment().now())
    };
    let mut body = volume.inodes().new_body(ino, &new)?;
    body.disk.links = links;
    Ok(body)
}

fn root(volume: &Volume, options: &MkfsOptions) -> Result<()> {
    let handle = volume.journal().start(CREDITS)?;
    let links = if options.lost_and_found { 3 } else { 2 };
    let mut body = fresh(volume, Ino::ROOT, 0o040_000 | options.root_mode, links)?;
    (body.disk.uid, body.disk.gid) = options.root_owner;
    directory(&mut volume.file_mut(&mut body), &handle, Ino::ROOT, 1)?;
    body.store(volume, &handle)?;
    handle.stop()
}

/// Gives a directory its blocks: the first one with "." and "..", the others empty.
fn directory(file: &mut FileMut<'_>, handle: &Handle<'_>, parent: Ino, blocks: u32) -> Result<()> {
    let format = file.as_ref().dir_format();
    let seed = file.body.seed(file.volume.context()).unwrap_or(0);
    for n in 0..blocks {
        let (_, block) = file.volume.dir_mut(file.body).append(handle)?;
        let at = Site::of_ino(file.ino()).block(block.nr());
        let block = block.write(handle)?;
        let mut bytes = block.bytes_mut();
        let mut dir = DirBlockMut::new(&mut bytes, format, seed, at);
        if n == 0 { dir.init_first(file.ino(), parent) } else { dir.init_empty() }
    }
    Ok(())
}

/// Makes 16 KiB of empty blocks, at least two and at most twelve, so that a checker has space for
/// names.
fn lost_and_found(volume: &Volume, options: &MkfsOptions) -> Result<()> {
    let handle = volume.journal().start(CREDITS)?;
    let ino = volume.space().allocate_inode(&handle, InodeGoal::InOrder, true)?;
    let mut body = fresh(volume, ino, 0o040_700, 2)?;
    let owner = options.lost_and_found_owner.unwrap_or(options.root_owner);
    (body.disk.uid, body.disk.gid) = owner;
    let blocks = (16_384 / len_u32(volume.block_size().bytes())).clamp(2, 12);
    directory(&mut volume.file_mut(&mut body), &handle, Ino::ROOT, blocks)?;
    body.store(volume, &handle)?;

    let mut root = volume.inodes().read(Ino::ROOT)?;
    let kind = EntryKind::Directory;
    volume.dir_mut(&mut root).insert(&handle, b"lost+found", ino, kind)?;
    root.store(volume, &handle)?;
    handle.stop()
}

/// Inode 7: a double-indirect block whose slots are the reserved descriptor blocks of the first
/// group, each of which lists its copies in the groups that keep backups.
fn resize_inode(volume: &Volume) -> Result<()> {
    let handle = volume.journal().start(CREDITS)?;
    let geometry = volume.geometry();
    let per_block = pointers_per_block(volume.block_size());
    let mut body = resize_body(volume)?;
    let request = Request {
        goal: volume.space().group_start(Ino::RESIZE),
        want: 1,
        below: 1 << 32,
        search: Search::Near,
        allowance: Allowance::Reserved,
        growth: None,
    };
    let double = volume.space().allocate(&handle, request)?.start;
    // The reserved blocks follow the descriptor blocks.
    let table = geometry.desc_block(0).ok_or(Error::NotFound)?.0;
    let base = table + u64::from(geometry.desc_blocks());
    let reserved = u32::from(volume.at_open().reserved_gdt_blocks);
    let block = volume.journal().cache().get_new(double)?;
    {
        let block = block.write(&handle)?;
        let mut bytes = block.bytes_mut();
        for n in 0..reserved {
            let slot = (geometry.desc_blocks() + n) % per_block;
            put_pointer(&mut bytes, slot as usize, base + u64::from(n));
        }
    }
    for n in 0..reserved {
        let first = BlockNr(base + u64::from(n));
        let list = volume.journal().cache().get_new(first)?;
        let list = list.write(&handle)?;
        let mut bytes = list.bytes_mut();
        for (slot, copy) in geometry.reserved_copies(first).enumerate() {
            put_pointer(&mut bytes, slot, copy.0);
        }
    }
    // Each of these blocks counts as a cluster, even where several share one.
    let blocks = 1 + u64::from(reserved) * geometry.super_groups().count() as u64;
    body.disk.sectors = volume.context().sectors(blocks * u64::from(geometry.cluster_ratio()));
    put_pointer(&mut body.disk.i_block, 13, double.0);
    body.store(volume, &handle)?;
    handle.stop()
}

fn empty_resize_inode(volume: &Volume) -> Result<()> {
    let handle = volume.journal().start(CREDITS)?;
    let mut body = resize_body(volume)?;
    let request = Request {
        goal: volume.space().group_start(Ino::RESIZE),
        want: 1,
        below: 1 << 32,
        search: Search::Near,
        allowance: Allowance::Reserved,
        growth: None,
    };
    let double = volume.space().allocate(&handle, request)?.start;
    let block = volume.journal().cache().get_new(double)?;
    drop(block.write(&handle)?.bytes_mut());
    body.disk.sectors = volume.context().sectors(u64::from(volume.geometry().cluster_ratio()));
    put_pointer(&mut body.disk.i_block, 13, double.0);
    body.store(volume, &handle)?;
    handle.stop()
}

fn resize_body(volume: &Volume) -> Result<Body> {
    let p = u64::from(pointers_per_block(volume.block_size()));
    let mut body = fresh(volume, Ino::RESIZE, 0o100_600, 1)?;
    body.disk.flags = InodeFlags::empty();
    body.disk.i_block = [0; 60];
    body.disk.size = (12 + p + p * p) << volume.block_size().log2();
    if body.disk.size > i32::MAX as u64 {
        volume.context().add_ro_compat_later(RoCompat::LARGE_FILE);
    }
    Ok(body)
}

// A volume of more than 2^32 blocks has no reserved descriptor blocks.
fn put_pointer(bytes: &mut [u8], slot: usize, block: u64) {
    bytes[slot * 4..slot * 4 + 4].copy_from_slice(&fits_u32(block).to_le_bytes());
}

/// The first block of the group in the middle of the volume, where the journal usually lies.
pub(crate) fn middle(volume: &Volume) -> BlockNr {
    let geometry = volume.geometry();
    geometry.first_block(GroupNr(geometry.groups_count() / 2)).unwrap_or_default()
}

/// Inode 8: an empty log of this many blocks, some of them for fast commits; in one run after
/// `goal` if there is one.
pub(crate) fn journal(
    volume: &Volume,
    goal: BlockNr,
    (journal_blocks, fast_commit_blocks): (u32, u32),
    zeroed: bool,
) -> Result<()> {
    let handle = volume.journal().start(CREDITS)?;
    let bs = volume.block_size();
    let mut body = fresh(volume, Ino::JOURNAL, 0o100_600, 1)?;
    let mut first = None;
    let blocks = 0..journal_blocks;
    let found = &mut |run: Run| {
        let Some(physical) = run.target.block() else { return Ok(()) };
        first.get_or_insert(physical);
        if !zeroed {
            let bytes = u64::from(run.len) << bs.log2();
            volume.device().zero(bs.start_of(physical), bytes)?;
        }
        Ok(())
    };
    volume.file_mut(&mut body).fill_from(goal, &handle, blocks, ExtentState::Written, found)?;
    body.disk.size = u64::from(journal_blocks) << bs.log2();
    body.store(volume, &handle)?;
    handle.stop()?;

    let log = JournalSuperblock {
        block_size: bs,
        maxlen: journal_blocks,
        first: 1,
        sequence: Tid(1),
        start: None,
        errno: 0,
        features: JournalFeatures::NONE,
        uuid: volume.at_open().uuid,
        fast_commit_blocks,
        head: 0,
        is_v1: false,
        nr_users: 1,
    };
    let mut block = vec![0u8; bs.bytes()];
    log.write(&mut block);
    let first = first.ok_or(Error::NoSpace)?;
    volume.device().write_at(bs.start_of(first), &block)?;

    let mut sb = volume.context().superblock().write();
    sb.journal_inum = Ino::JOURNAL.get();
    sb.jnl_backup_type = 1;
    copy_map(&mut sb, &body);
    Ok(())
}

/// Copies the journal's map and size to the superblock.
pub(crate) fn copy_map(sb: &mut Superblock, body: &Body) {
    for (word, bytes) in sb.jnl_blocks.iter_mut().zip(body.disk.i_block.chunks_exact(4)) {
        *word = u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]);
    }
    sb.jnl_blocks[15] = high_u32(body.disk.size);
    sb.jnl_blocks[16] = low_u32(body.disk.size);
}

/// The hidden quota files, with the usage so far: lost+found and the root.
fn first_quota_files(volume: &Volume, options: &MkfsOptions) -> Result<()> {
    let mut usage = Usage::default();
    usage.charge(volume.file(&volume.inodes().read(Ino::ROOT)?))?;
    if let Some(ino) = Ino::new(volume.at_open().first_ino).filter(|_| options.lost_and_found) {
        usage.charge(volume.file(&volume.inodes().read(ino)?))?;
    }
    let usual = quota_kinds(volume.has_ro_compat(RoCompat::PROJECT));
    quota_files(volume, &usage, options.quota_kinds.as_deref().unwrap_or(usual))
}

/// The kinds of quota that a volume usually accounts, with the feature `project` or without it.
pub(crate) fn quota_kinds(projects: bool) -> &'static [QuotaKind] {
    const ALL: [QuotaKind; 3] = [QuotaKind::User, QuotaKind::Group, QuotaKind::Project];
    &ALL[..if projects { 3 } else { 2 }]
}

/// Makes the hidden quota files of these kinds, with the usage `usage`.
pub(crate) fn quota_files(volume: &Volume, usage: &Usage, kinds: &[QuotaKind]) -> Result<()> {
    for &kind in kinds {
        let handle = volume.journal().start(CREDITS)?;
        let ino = match kind {
            QuotaKind::User => Ino::USER_QUOTA,
            QuotaKind::Group => Ino::GROUP_QUOTA,
            QuotaKind::Project => {
                volume.space().allocate_inode(&handle, InodeGoal::InOrder, false)?
            }
        };
        let mut body = fresh(volume, ino, 0o100_600, 1)?;
        body.disk.flags |= InodeFlags::IMMUTABLE;
        let content = usage.file(kind);
        volume.file_mut(&mut body).write_content(&handle, &content)?;
        body.disk.size = content.len() as u64;
        body.store(volume, &handle)?;
        handle.stop()?;
        let mut sb = volume.context().superblock().write();
        match kind {
            QuotaKind::User => sb.usr_quota_inum = ino.get(),
            QuotaKind::Group => sb.grp_quota_inum = ino.get(),
            QuotaKind::Project => sb.prj_quota_inum = ino.get(),
        }
    }
    Ok(())
}

/// Inode 5: the checksum file at its final length, without checksums. `zero` makes its blocks,
/// given by byte and length, read as zeros.
pub(crate) fn make_checksum_file(
    volume: &Volume,
    zero: &mut dyn FnMut(ByteOffset, u64) -> Result<()>,
) -> Result<()> {
    let bs = volume.block_size();
    let blocks = file_blocks(bs, volume.geometry().blocks_count());
    let blocks = u32::try_from(blocks)
        .map_err(|_| Error::Invalid("data_csum needs larger blocks on a volume of this size"))?;
    let handle = volume.journal().start(CREDITS)?;
    let mut body = fresh(volume, Ino::CHECKSUM_FILE, 0o100_600, 1)?;
    let goal = volume.space().group_start(Ino::CHECKSUM_FILE);
    let state = ExtentState::Written;
    volume.file_mut(&mut body).fill_from(goal, &handle, 0..blocks, state, &mut |run| match run
        .target
        .block()
    {
        Some(first) => zero(bs.start_of(first), u64::from(run.len) << bs.log2()),
        None => Ok(()),
    })?;
    body.disk.size = u64::from(blocks) << bs.log2();
    body.store(volume, &handle)?;
    handle.stop()
}

/// Makes the orphan file, empty.
pub(crate) fn orphan_file(volume: &Volume, blocks: u32) -> Result<()> {
    let handle = volume.journal().start(Credits::blocks(64 + blocks))?;
    let bs = volume.block_size();
    let ino = volume.space().allocate_inode(&handle, InodeGoal::InOrder, false)?;
    let mut body = fresh(volume, ino, 0o100_600, 1)?;
    let seed = body.seed(volume.context());
    volume.file_mut(&mut body).fill(&handle, 0..blocks, ExtentState::Written, &mut |run| {
        let Some(first) = run.target.block() else { return Ok(()) };
        for n in 0..u64::from(run.len) {
            let nr = BlockNr(first.0 + n);
            let block = volume.journal().cache().get_new(nr)?;
            let block = block.write(&handle)?;
            orphan_file::init(&mut block.bytes_mut(), nr, seed);
        }
        Ok(())
    })?;
    body.disk.size = u64::from(blocks) << bs.log2();
    body.store(volume, &handle)?;
    handle.stop()?;
    volume.context().superblock().write().orphan_file_inum = ino.get();
    Ok(())
}

fn mmp_block(volume: &Volume) -> Result<()> {
    let handle = volume.journal().start(CREDITS)?;
    let goal = volume.space().group_start(Ino::ROOT);
    let request = Request {
        goal,
        want: 1,
        below: u64::MAX,
        search: Search::Near,
        allowance: Allowance::Reserved,
        growth: None,
    };
    let nr = volume.space().allocate(&handle, request)?.start;
    handle.stop()?;
    let mut block = vec![0u8; volume.block_size().bytes()];
    let mmp = Mmp {
        state: MmpState::Clean,
        time: 0,
        nodename: [0; 64],
        bdevname: [0; 32],
        check_interval: volume.at_open().mmp_update_interval,
    };
    mmp.write(&mut block, volume.checksums());
    let at: ByteOffset = volume.block_size().start_of(nr);
    volume.device().write_at(at, &block)?;
    volume.context().superblock().write().mmp_block = nr;
    Ok(())
}

/// Stores the overhead in the superblock: all metadata, the journal and everything before the first
/// data block, in clusters.
fn overhead(volume: &Volume, plan: &Plan) {
    let geometry = volume.geometry();
    let fixed = volume.at_open().free_blocks >> geometry.log_cluster_ratio();
    let journal = u64::from(plan.journal_blocks).div_ceil(u64::from(geometry.cluster_ratio()));
    let clusters = geometry.clusters_count().saturating_sub(fixed) + journal;
    let clusters = clusters + geometry.first_data_block().0;
    volume.context().superblock().write().overhead_clusters = u32::try_from(clusters).unwrap_or(0);
}
