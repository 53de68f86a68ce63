//! Pass 4: each inode has as many names as its link count says.

use super::inodes::{HIDDEN, ORPHAN, VALUE};
use super::pass1::Tables;
use super::view::View;
use extant_base::{Ino, Site, What};
use extant_ondisk::features::RoCompat;
use extant_ondisk::inode::LINK_MAX;

/// Runs the pass.
pub(super) fn run(view: &View<'_>, tables: &Tables) {
    let many_is_one = view.has_ro_compat(RoCompat::DIR_NLINK);
    for (ino, state) in tables.inodes.in_use() {
        // The check of attributes has counted the references to value inodes.
        if state.has(HIDDEN) || state.has(VALUE) || state.has(ORPHAN) {
            continue;
        }
        let at = Site { ino: Ino::new(ino), ..Site::NOWHERE };
        let (links, counted) = (u32::from(state.links()), state.counted());
        let is_dir = state.is_dir();
        // A directory without a name counts its own "."; pass 3 has reported it.
        if counted == 0 && !is_dir {
            view.error(What::InodeUnattached, at);
            continue;
        }
        let right = links == counted
            || (is_dir && many_is_one && links == 1)
            || (is_dir && counted > u32::from(LINK_MAX) && links == 1);
        if !right {
            view.error_with(What::LinkCount, at, format!("counts {links}, has {counted}"));
        }
    }
}
