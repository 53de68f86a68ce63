//! The journal: its inode or external device, and its superblock.
//!
//! ```text
//!   journal_inum ──► inode: regular, complete ──► first block ─┐
//!   journal_uuid ──► device: its own UUID, and this volume's  ─┴─► superblock: fields, checksum
//! ```

use super::own;
use crate::audit::check::view::View;
use extant_base::{BlockNr, ByteOffset, Ino, Site, What};
use extant_ondisk::features::Incompat;
use extant_ondisk::inode::InodeFlags;
use extant_ondisk::jbd2::JournalSuperblock;
use extant_ondisk::superblock::{RawSuperblock, SUPERBLOCK_OFFSET, SUPERBLOCK_SIZE};
use zerocopy::FromBytes;

/// How many blocks Linux requires of a journal.
const LOG_BLOCKS_MIN: u32 = 1024;

/// Checks the journal: the internal one, or the external one if its device was given.
pub(super) fn check(view: &View<'_>) {
    if !view.sb.has_journal() {
        return;
    }
    let Some(ino) = Ino::new(view.sb.journal_inum) else {
        return check_external(view);
    };
    let at = Site::of_ino(ino);
    let Some((inode, runs)) = own::open(view, ino) else {
        return view.error(What::JournalInode, at);
    };
    let blocks = inode.size >> view.geometry.block_size().log2();
    let Ok(blocks) = u32::try_from(blocks) else {
        return view.error_with(What::JournalInode, at, "too long");
    };
    if !inode.is_file() || inode.links == 0 || !runs.whole {
        return view.error(What::JournalInode, at);
    }
    if inode.flags.contains(InodeFlags::ENCRYPT) {
        view.error_with(What::JournalInode, at, "is marked as encrypted");
    }
    let first = runs.locate(0).filter(|block| view.geometry.holds(*block, 1));
    let Some(first) = first else {
        return view.error_with(What::JournalInode, at, "has no first block");
    };
    // Linux does not use a part of a block at the end, but e2fsck wants it mapped.
    let mapped = view.geometry.block_size().blocks_for(inode.size);
    if !runs.has_no_hole(u32::try_from(mapped).unwrap_or(u32::MAX)) {
        view.error_with(What::JournalInode, at, "has a hole");
    }
    let mut bytes = vec![0; view.block_bytes()];
    if !view.read_blocks(first, &mut bytes, at) {
        return;
    }
    check_superblock(view, &bytes, u64::from(blocks), at.block(first));
    if is_v1_with_more(&bytes) {
        view.error_with(What::JournalSuperblock, at.offset(0x24), "version 1 with fields of 2");
    }
}

/// A superblock of version 1 ends where the feature fields of version 2 start.
fn is_v1_with_more(bytes: &[u8]) -> bool {
    bytes[..8] == [0xC0, 0x3B, 0x39, 0x98, 0, 0, 0, 3]
        && bytes[0x24..0x100].iter().any(|byte| *byte != 0)
}

/// Checks an external journal, if its device was given.
fn check_external(view: &View<'_>) {
    let Some(device) = &view.journal else {
        return view.note(What::JournalElsewhere, Site::NOWHERE, "it was not checked");
    };
    let mut bytes = [0; SUPERBLOCK_SIZE];
    let wrong = |detail: &str| view.error_with(What::JournalUuid, Site::NOWHERE, detail);
    if device.read_at(ByteOffset(SUPERBLOCK_OFFSET), &mut bytes).is_err() {
        return wrong("the journal's device cannot be read");
    }
    let raw = RawSuperblock::read_from_bytes(&bytes).ok();
    let Some(Ok(superblock)) = raw.map(|raw| raw.parse(Site::NOWHERE)) else {
        return wrong("the journal device holds no journal");
    };
    let is_journal = superblock.features.incompat.contains(Incompat::JOURNAL_DEV);
    if !is_journal || superblock.uuid != view.sb.journal_uuid {
        return wrong("the journal's device is not this volume's");
    }
    if superblock.block_size != view.geometry.block_size() {
        return wrong("the journal's blocks are of another size");
    }
    // The journal's superblock is in the block after the one that holds the device's superblock.
    let size = view.geometry.block_size();
    let first = BlockNr(SUPERBLOCK_OFFSET / size.bytes() as u64 + 1);
    let mut block = vec![0; size.bytes()];
    if device.read_at(size.start_of(first), &mut block).is_err() {
        return wrong("the journal's superblock cannot be read");
    }
    check_superblock(view, &block, superblock.blocks_count, Site::of_block(first));
    let users = block[0x100..].chunks_exact(16).take(48);
    if !users.into_iter().any(|uuid| uuid == view.sb.uuid) {
        wrong("the journal does not name this volume");
    }
}

fn check_superblock(view: &View<'_>, bytes: &[u8], blocks: u64, at: Site) {
    match JournalSuperblock::read(bytes, view.geometry.block_size(), blocks, at) {
        Ok(journal) => {
            if journal.nr_users > 1 && view.sb.journal_inum != 0 {
                view.error_with(
                    What::JournalSuperblock,
                    at.offset(0x40),
                    "several volumes use one internal journal",
                );
            }
            if journal.maxlen < LOG_BLOCKS_MIN {
                view.error_with(What::JournalSuperblock, at.offset(0x10), "too short");
            }
            if journal.start.is_some() && !view.sb.needs_recovery() && !view.recovered {
                let detail = "the log is not empty, and the volume needs no recovery";
                view.error_with(What::JournalSuperblock, at.offset(0x1C), detail);
            }
            if journal.errno != 0 {
                view.note(What::VolumeState, at.offset(0x20), "the journal was aborted");
            }
        }
        Err(error) => view.corrupt(&error, ""),
    }
}
