//! Orphan records: the list through `i_dtime`, and the orphan file.
//!
//! ```text
//!   superblock ──► ino ──i_dtime──► ino ──► 0          orphan file: slots of each block
//! ```

use super::own;
use crate::audit::check::view::View;
use extant_base::{Ino, Site, What};
use extant_ondisk::features::{Compat, RoCompat};
use extant_ondisk::orphan_file;
use hashbrown::HashSet;

/// All inodes with orphan records.
pub(super) fn find(view: &View<'_>) -> HashSet<u32> {
    let mut orphans = HashSet::new();
    list(view, &mut orphans);
    let listed = orphans.len();
    if view.has_compat(Compat::ORPHAN_FILE) {
        file(view, &mut orphans);
    }
    if orphans.len() > listed && !view.has_ro_compat(RoCompat::ORPHAN_PRESENT) {
        view.error_with(
            What::OrphanFile,
            Site::NOWHERE,
            "orphan entries in a volume that was cleanly unmounted",
        );
    }
    if !orphans.is_empty() {
        let detail = format!("{} inodes are to be freed or truncated", orphans.len());
        view.note(What::OrphanList, Site::NOWHERE, detail);
    }
    orphans
}

fn list(view: &View<'_>, orphans: &mut HashSet<u32>) {
    let mut next = view.sb.last_orphan;
    let mut at = Site::NOWHERE.offset(0xE8);
    while next != 0 {
        let is_file = next >= view.sb.first_ino && next <= view.sb.inodes_count;
        let Some(ino) = Ino::new(next).filter(|_| is_file) else {
            return view.error_with(What::OrphanList, at, format!("inode {next}"));
        };
        if !orphans.insert(next) {
            return view.error_with(What::OrphanList, at, "loops");
        }
        let Some((inode, _)) = own::read_inode(view, ino) else {
            return view.error(What::OrphanList, Site::of_ino(ino));
        };
        at = Site::of_ino(ino).offset(0x14);
        next = inode.dtime;
    }
}

fn file(view: &View<'_>, orphans: &mut HashSet<u32>) {
    let Some(ino) = Ino::new(view.sb.orphan_file_inum) else { return };
    let Some((inode, map)) = own::open(view, ino) else { return };
    let blocks = inode.size >> view.geometry.block_size().log2();
    let blocks = match u32::try_from(blocks) {
        Ok(blocks) if blocks <= orphan_file::MAX_BLOCKS => blocks,
        _ => return view.error_with(What::OrphanFile, Site::of_ino(ino), "too long"),
    };
    let mut bytes = vec![0; view.block_bytes()];
    for logical in 0..blocks {
        let at = Site::of_ino(ino);
        let Some(block) = map.locate(logical) else {
            return view.error_with(What::OrphanFile, at, "has a hole");
        };
        if !view.read_blocks(block, &mut bytes, at) {
            continue;
        }
        let seed = inode.seed(ino, &view.format);
        match orphan_file::check(&bytes, block, seed, view.geometry.inodes_count()) {
            Ok(entries) => orphans.extend(entries.map(|(_, ino)| ino.get())),
            Err(error) => view.corrupt(&error, ""),
        }
    }
}
