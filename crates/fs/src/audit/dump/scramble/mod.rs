//! Other names of the same length, in the same places.
//!
//! ```text
//!   name      letters and digits; in an indexed directory its hash stays in the range of its leaf
//!   target    each byte but '/' becomes a letter                also the label, the last path
//! ```
//!
//! What no longer belongs to a name (the rest of an entry, removed entries, unused index entries)
//! becomes zeros, because it may be an older name. Damage stays: lengths, inode numbers and bytes
//! that no name may have are not changed. Attributes and the names of encrypted directories stay.

mod directory;
mod entries;
mod pool;

use crate::audit::check::view::View;
use crate::context::environment::{Rng, SeededRng};
use extant_base::narrow::fits_usize;
use extant_base::{ByteOffset, Ino, Site};
use extant_ondisk::features::Incompat;
use extant_ondisk::mmp::Mmp;
use extant_ondisk::superblock::{RawSuperblock, SUPERBLOCK_MAGIC};
use hashbrown::HashMap;
use pool::Pool;

/// The largest directory whose names are replaced, in bytes: it is held in memory.
const DIRECTORY_MAX: u64 = 1 << 30;

/// How many names were replaced, and how many stay.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct Names {
    pub(super) replaced: u64,
    pub(super) kept: u64,
}

impl Names {
    pub(super) fn add(&mut self, other: Names) {
        self.replaced += other.replaced;
        self.kept += other.kept;
    }
}

/// Replaces names of one volume.
pub(super) struct Scrambler<'s> {
    view: &'s View<'s>,
    seed: u64,
    /// Blocks that contain a superblock, and the offset in them.
    superblocks: HashMap<u64, usize>,
}

impl<'s> Scrambler<'s> {
    pub(super) fn new(view: &'s View<'_>, seed: u64) -> Scrambler<'s> {
        let size = view.block_bytes() as u64;
        let places = view.geometry.super_groups().filter_map(|group| {
            let ByteOffset(at) = view.geometry.super_offset(group)?;
            Some((at / size, fits_usize(at % size)))
        });
        Scrambler { superblocks: places.collect(), view, seed }
    }

    pub(super) fn largest_directory(&self) -> u64 {
        DIRECTORY_MAX
    }

    /// Replaces a text up to its first NUL, and everything after that by zeros. Equal texts become
    /// equal ones.
    pub(super) fn text(&self, bytes: &mut [u8]) {
        let len = bytes.iter().position(|byte| *byte == 0).unwrap_or(bytes.len());
        let (text, rest) = bytes.split_at_mut(len);
        rest.fill(0);
        let rng = SeededRng::new(self.seed ^ u64::from(extant_crc32c::crc32c(!0, text)));
        for byte in text.iter_mut().filter(|byte| **byte != b'/') {
            *byte = letter(&rng);
        }
    }

    /// A block with the target of a symbolic link.
    pub(super) fn symlink(&self, block: &mut [u8]) {
        self.text(block);
    }

    /// A block at a fixed place: replaces the names in superblocks, and the host in the MMP block.
    pub(super) fn fixed(&self, nr: u64, block: &mut [u8]) {
        let view = self.view;
        if let Some(at) = self.superblocks.get(&nr)
            && let Some(raw) = RawSuperblock::from_prefix_mut(&mut block[*at..])
        {
            let was_right = raw.s_magic.get() == SUPERBLOCK_MAGIC && raw.checksum_is_right();
            self.text(&mut raw.s_volume_name);
            self.text(&mut raw.s_last_mounted);
            if was_right {
                raw.set_checksum();
            }
        }
        let is_mmp = view.has_incompat(Incompat::MMP);
        if is_mmp
            && nr == view.sb.mmp_block.0
            && let Ok(mut mmp) = Mmp::check(block, &view.csum, Site::NOWHERE)
        {
            self.text(&mut mmp.nodename);
            self.text(&mut mmp.bdevname);
            mmp.write(block, &view.csum);
        }
    }

    fn pool(&self, ino: Ino) -> Pool {
        Pool::new(self.seed ^ u64::from(ino.get()) << 32)
    }
}

fn letter(rng: &SeededRng) -> u8 {
    const LETTERS: &[u8; 26] = b"abcdefghijklmnopqrstuvwxyz";
    LETTERS[fits_usize(rng.next_u64() % 26)]
}
