//! Whether a block has the form of what it should hold.
//!
//! A damaged map leads anywhere, also to the content of files, deleted or not. So what has another
//! form is not copied, and where a file claims the same block, its bytes must leave no doubt.

use super::scan::Kind;
use crate::audit::check::view::View;
use extant_base::Site;
use extant_ondisk::block_map::pointers;
use extant_ondisk::dirent::{DirBlock, DirFormat, rec_len_decode, tail_of};
use extant_ondisk::extent::{EXTENT_MAGIC, capacity};
use extant_ondisk::features::Incompat;
use extant_ondisk::xattr::{self, XattrArea};

/// Whether a block can hold what `kind` says. Damage does not matter.
pub(super) fn fits(view: &View<'_>, kind: Kind, block: &[u8]) -> bool {
    match kind {
        Kind::Node => block.starts_with(&EXTENT_MAGIC.to_le_bytes()),
        Kind::Attributes => block.starts_with(&xattr::MAGIC.to_le_bytes()),
        Kind::Pointers => {
            let blocks = view.geometry.block_range();
            let is_right = |pointer: u32| pointer == 0 || blocks.contains(&u64::from(pointer));
            let wrong = pointers(block).filter(|pointer| !is_right(*pointer)).count();
            wrong <= block.len() / 64
        }
        Kind::Directory => {
            let rec_len = rec_len_decode(u16::from_le_bytes([block[4], block[5]]), block.len());
            let ino = u32::from_le_bytes([block[0], block[1], block[2], block[3]]);
            ino <= view.geometry.inodes_count()
                && rec_len >= 8 + usize::from(block[6])
                && rec_len <= block.len()
                && rec_len.is_multiple_of(4)
        }
        _ => true,
    }
}

/// Whether a block can hold nothing but what `kind` says.
pub(super) fn proves(view: &View<'_>, kind: Kind, block: &[u8]) -> bool {
    match kind {
        Kind::Node => {
            let half = |at: usize| usize::from(u16::from_le_bytes([block[at], block[at + 1]]));
            let (entries, max, depth) = (half(2), half(4), half(6));
            let most = usize::from(capacity(block.len()));
            fits(view, kind, block) && entries <= max && max <= most && max + 2 >= most && depth < 5
        }
        Kind::Attributes => {
            let ea_inode = view.has_incompat(Incompat::EA_INODE);
            XattrArea::in_block(block, ea_inode, Site::NOWHERE).is_ok()
        }
        Kind::Directory => is_directory(view, block),
        _ => false,
    }
}

/// Whether all of a block is entries of a directory.
fn is_directory(view: &View<'_>, block: &[u8]) -> bool {
    let format = DirFormat {
        filetype: view.has_incompat(Incompat::FILETYPE),
        checksums: tail_of(block).is_some(),
        hash_words: false,
        opaque_names: true,
        inodes_count: view.geometry.inodes_count(),
    };
    let mut names = 0;
    let entries = DirBlock::new(block, format, Site::NOWHERE).entries();
    let is_whole = entries.into_iter().all(|entry| {
        names += usize::from(entry.as_ref().is_ok_and(|entry| entry.ino.is_some()));
        entry.is_ok()
    });
    is_whole && (names > 0 || format.checksums)
}
