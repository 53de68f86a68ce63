//! The journal's inode and superblock.

use super::own;
use crate::check::view::View;
use extant_base::{Ino, Site, What};
use extant_ondisk::jbd2::JournalSuperblock;

/// Checks the journal inside the volume; one on another device is not here to be looked at.
pub(super) fn check(view: &View<'_>) {
    if !view.sb.has_journal() {
        return;
    }
    let Some(ino) = Ino::new(view.sb.journal_inum) else {
        let detail = "the journal is on another device and was not checked";
        return view.note(What::JournalMissing, Site::NOWHERE, detail);
    };
    let at = Site::of_ino(ino);
    let Some((inode, runs)) = own::open(view, ino) else {
        return view.error(What::JournalInode, at);
    };
    let blocks = inode.size >> view.layout.block_size().log2();
    let Ok(blocks) = u32::try_from(blocks) else {
        return view.error_with(What::JournalInode, at, "too long");
    };
    if !inode.is_file() || inode.links == 0 || !runs.whole {
        return view.error(What::JournalInode, at);
    }
    let first = runs.locate(0).filter(|block| view.layout.holds(*block, 1));
    let Some(first) = first else {
        return view.error_with(What::JournalInode, at, "has no first block");
    };
    if !runs.has_no_hole(blocks) {
        view.error_with(What::JournalInode, at, "has a hole");
    }
    let mut bytes = vec![0; view.block_bytes()];
    if !view.read_blocks(first, &mut bytes, at) {
        return;
    }
    let at = at.block(first);
    match JournalSuperblock::read(&bytes, view.layout.block_size(), u64::from(blocks), at) {
        Ok(journal) => {
            if journal.is_v1 && bytes[0x24..0x100].iter().any(|byte| *byte != 0) {
                view.error_with(
                    What::JournalSuperblock,
                    at.offset(0x24),
                    "version 1 with fields of 2",
                );
            }
            if journal.nr_users > 1 {
                view.error_with(What::JournalSuperblock, at.offset(0x40), "many users of one file");
            }
            if journal.maxlen < 1024 {
                view.error_with(
                    What::JournalSuperblock,
                    at.offset(0x10),
                    "shorter than 1024 blocks",
                );
            }
            if journal.start.is_some() && !view.sb.needs_recovery() {
                let detail = "the log is not empty, and the volume needs no recovery";
                view.error_with(What::JournalSuperblock, at.offset(0x1C), detail);
            }
            if journal.errno != 0 {
                view.note(What::VolumeState, at.offset(0x20), "the journal gave up");
            }
        }
        Err(error) => view.corrupt(&error, ""),
    }
}
