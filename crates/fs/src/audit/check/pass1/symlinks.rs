//! Symlinks whose target is in a block.

use crate::audit::check::scatter::each_block;
use crate::audit::check::view::View;
use extant_base::{BlockNr, Ino, Site, What};

/// A symlink whose target is in a block.
#[derive(Clone, Copy, Debug)]
pub(super) struct SymlinkBlock {
    pub(super) ino: u32,
    pub(super) size: u32,
    pub(super) block: u64,
    pub(super) encrypted: bool,
}

/// Checks that each target has the length in its inode.
pub(super) fn check(view: &View<'_>, links: &mut [SymlinkBlock]) {
    links.sort_unstable_by_key(|link| link.block);
    each_block(
        view,
        links,
        |link| link.block,
        || (),
        |(), link, bytes| {
            let at = Site { ino: Ino::new(link.ino), ..Site::of_block(BlockNr(link.block)) };
            let len = match link.encrypted {
                // Ciphertext starts with its length.
                true => usize::from(u16::from_le_bytes([bytes[0], bytes[1]])) + 2,
                false => bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len()),
            };
            let right = match link.encrypted {
                true => len <= bytes.len(),
                false => len == link.size as usize,
            };
            if !right {
                view.error_with(What::SymlinkTarget, at, "length");
            }
        },
    );
}
