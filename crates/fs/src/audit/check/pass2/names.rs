//! No name appears twice in a directory.
//!
//! ```text
//!   each name ──► 64-bit hash, random key ──► sorted ──► equal neighbours: names compared
//! ```
//!
//! This needs 16 bytes per name, whatever its length. With the random key, a forged directory
//! cannot contain prepared collisions.

use super::entries::Directory;
use extant_base::narrow::len_u32;
use extant_base::{BlockNr, Site, What};
use extant_ondisk::casefold::{CaseFold, fold};
use extant_ondisk::dirent::{DirBlock, Dirent};
use extant_ondisk::inline_dir::{BLOCK_AREA_LEN, InlineDir};
use std::hash::{BuildHasher, RandomState};
use std::sync::OnceLock;

/// How many pairs with equal hashes are compared in one directory.
const PAIRS_MAX: usize = 64;

static KEY: OnceLock<RandomState> = OnceLock::new();

/// The names of one directory.
#[derive(Default)]
pub(super) struct Names(Vec<(u64, u32, u32)>);

impl Names {
    /// Adds a name: folded if the directory is casefolded.
    pub(super) fn add(&mut self, folds: Option<&CaseFold>, entry: &Dirent<'_>, logical: u32) {
        let key = KEY.get_or_init(RandomState::new);
        let hash = match folds {
            Some(_) => match fold(entry.name) {
                Some(folded) => key.hash_one(&folded[..]),
                None => key.hash_one(entry.name),
            },
            None => key.hash_one(entry.name),
        };
        self.0.push((hash, logical, len_u32(entry.offset)));
    }

    /// Reports names that appear twice.
    pub(super) fn finish(mut self, directory: &Directory<'_, '_>) {
        self.0.sort_unstable();
        let pairs = self.0.windows(2).filter(|pair| pair[0].0 == pair[1].0);
        for pair in pairs.take(PAIRS_MAX) {
            let (first, second) = (name_at(directory, pair[0]), name_at(directory, pair[1]));
            let (Some(first), Some(second)) = (first, second) else { continue };
            let same = match directory.fold {
                Some(_) => {
                    first == second || fold(&first).is_some_and(|f| fold(&second) == Some(f))
                }
                None => first == second,
            };
            if same {
                let at = place_of(directory, pair[1].1).offset(pair[1].2 as usize);
                let detail = second.escape_ascii().to_string();
                directory.view.error_with(What::DirentDuplicate, at, detail);
            }
        }
    }
}

fn block_of(directory: &Directory<'_, '_>, logical: u32) -> Option<BlockNr> {
    let dir = directory.dir;
    let blocks = &directory.tables.dir_blocks[dir.first..dir.first + dir.count];
    let n = blocks.binary_search_by_key(&logical, |block| block.logical).ok()?;
    Some(BlockNr(blocks[n].physical))
}

fn place_of(directory: &Directory<'_, '_>, logical: u32) -> Site {
    Site { block: block_of(directory, logical), ..directory.site() }
}

/// Reads a name from the device again.
fn name_at(
    directory: &Directory<'_, '_>,
    (_, logical, offset): (u64, u32, u32),
) -> Option<Vec<u8>> {
    let view = directory.view;
    let offset = offset as usize;
    if let Some(areas) = directory.dir.inline.as_deref() {
        let (i_block, value) = areas.split_first_chunk::<BLOCK_AREA_LEN>()?;
        let inline = InlineDir::new(i_block, value, directory.format, Site::NOWHERE);
        let mut entries = inline.entries().filter_map(|entry| entry.ok());
        return entries.find(|entry| entry.offset == offset).map(|entry| entry.name.to_vec());
    }
    let mut bytes = vec![0; view.block_bytes()];
    let block = block_of(directory, logical)?;
    view.device.read_at(view.geometry.block_size().start_of(block), &mut bytes).ok()?;
    let block = DirBlock::new(&bytes, directory.format.without_tail(), Site::NOWHERE);
    let mut entries = block.entries();
    entries.seek(offset);
    entries.next()?.ok().map(|entry| entry.name.to_vec())
}
