//! Files that features add and remove: quota files, orphan file and checksum file, as part of the
//! step.

use super::{data_csum, switched};
use crate::offline::mkfs::{plan, reserved};
use crate::open::exclusive::Exclusive;
use crate::recovery::quota_usage;
use crate::state::inode::{Body, Counted};
use crate::volume::Volume;
use extant_base::{Error, Ino, Result};
use extant_journal::{Credits, Log};
use extant_ondisk::features::{Compat, FeatureBit, Features, RoCompat};
use extant_ondisk::inode::Inode as DiskInode;

const CREDITS: Credits = Credits::blocks(64);

/// Makes and frees these files when their features change.
pub(super) fn switch(
    exclusive: &Exclusive,
    volume: &Volume,
    old: &Features,
    new: &Features,
) -> Result<()> {
    match switched(old, new, FeatureBit::RoCompat(RoCompat::DATA_CSUM)) {
        Some(true) => data_csum::make(exclusive, volume)?,
        Some(false) => free_file(volume, Ino::CHECKSUM_FILE.get())?,
        None => {}
    }
    if switched(old, new, FeatureBit::Compat(Compat::ORPHAN_FILE)) == Some(false) {
        let number = std::mem::take(&mut volume.context().superblock().write().orphan_file_inum);
        free_file(volume, number)?;
    }
    if switched(old, new, FeatureBit::RoCompat(RoCompat::QUOTA)) == Some(false) {
        let numbers = {
            let sb = &mut *volume.context().superblock().write();
            [&mut sb.usr_quota_inum, &mut sb.grp_quota_inum, &mut sb.prj_quota_inum]
                .map(std::mem::take)
        };
        numbers.into_iter().try_for_each(|number| free_file(volume, number))?;
    }
    if switched(old, new, FeatureBit::Compat(Compat::ORPHAN_FILE)) == Some(true) {
        reserved::orphan_file(volume, plan::orphan_blocks(volume.at_open()))?;
    }
    if switched(old, new, FeatureBit::RoCompat(RoCompat::QUOTA)) == Some(true) {
        let usage = quota_usage(volume)?;
        let kinds = reserved::quota_kinds(new.ro_compat.contains(RoCompat::PROJECT));
        reserved::quota_files(volume, &usage, kinds)?;
    }
    Ok(())
}

/// Frees the blocks of an internal file, and its inode number unless that is reserved.
pub(super) fn free_file(volume: &Volume, number: u32) -> Result<()> {
    let Some(ino) = Ino::new(number) else { return Ok(()) };
    let mut body = volume.inodes().read(ino)?;
    let handle = volume.journal().start(CREDITS)?;
    volume.file_mut(&mut body).unmap_content(&handle, 0)?;
    let mut empty = Body::fresh(volume.context(), ino, DiskInode::default());
    empty.counted = Counted::Released;
    empty.store(volume, &handle)?;
    volume.inode_table().forget(ino);
    if number >= volume.at_open().first_ino {
        volume.space().free_inode(&handle, ino, false)?;
    }
    handle.stop()
}

/// The smallest log without its fast-commit area, and the size of that area that Linux assumes if
/// the journal does not specify one.
const LOG_MIN: u32 = 1024;
const FAST_COMMIT_BLOCKS: u32 = 256;

/// Checks that the journal has enough space for fast commits.
///
/// Errors: `NotSupported` if it has not: Linux would not mount the volume.
pub(super) fn check_fast_commit(exclusive: &Exclusive) -> Result<()> {
    let Some(log) = exclusive.staged.log().map(Log::superblock) else { return Ok(()) };
    let blocks = match log.fast_commit_blocks {
        0 => FAST_COMMIT_BLOCKS,
        blocks => blocks,
    };
    match log.maxlen.saturating_sub(blocks) < LOG_MIN {
        true => Err(Error::NotSupported(
            "the journal is too small for fast_commit: remove it, then add both with more blocks",
        )),
        false => Ok(()),
    }
}
