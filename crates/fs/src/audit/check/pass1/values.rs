//! Value inodes: each attribute that refers to one is compared with its content, and the reference
//! count with the number of attributes.
//!
//! ```text
//!   uses, by value inode    ▪▪▪  ▪  ▪▪             ─┐
//!   value inodes, by number  A   B  C   D ◄─ no use ─┴─► size, hash of content, references
//! ```

use super::attributes::ValueUse;
use super::tables::{Out, Scan};
use crate::audit::check::inodes::{Inodes, VALUE};
use crate::audit::check::map::{Buffers, Gather, Map, walk};
use crate::audit::check::view::View;
use crate::parallel;
use extant_base::{Ino, Site, What};
use extant_crc32c::crc32c;
use extant_ondisk::inode::{I_BLOCK_SIZE, Inode as DiskInode};
use extant_ondisk::xattr::VALUE_MAX;
use hashbrown::HashSet;

/// A value inode.
#[derive(Clone, Copy, Debug)]
pub(super) struct ValueInode {
    ino: u32,
    generation: u32,
    size: u64,
    crc: u32,
    references: u64,
    /// In the old style: the number of the one inode that uses the value.
    owner: u32,
    extents: bool,
    i_block: [u8; I_BLOCK_SIZE],
}

impl Scan<'_, '_> {
    pub(super) fn note_value(&mut self, ino: Ino, inode: &DiskInode) {
        self.out.values.push(ValueInode {
            ino: ino.get(),
            generation: inode.generation,
            size: inode.size,
            crc: inode.value_crc(),
            references: inode.value_references(),
            owner: inode.value_owner(),
            extents: inode.has_extents(),
            i_block: inode.i_block,
        });
    }
}

/// Checks all value inodes.
pub(super) fn check(view: &View<'_>, inodes: &Inodes, out: &mut Out) {
    out.values.sort_unstable_by_key(|value| value.ino);
    out.value_uses.sort_unstable();
    let (values, uses) = (&out.values, &out.value_uses);
    for one in uses {
        if !inodes.get(one.value).has(VALUE) {
            let at = Site { ino: Ino::new(one.owner), ..Site::NOWHERE };
            view.error_with(What::XattrInode, at, format!("value in inode {}", one.value));
        }
    }
    let old = parallel::each(view.threads, values.len(), Vec::new, |old: &mut Vec<u32>, n| {
        let value = &values[n];
        let start = uses.partition_point(|one| one.value < value.ino);
        let end = uses.partition_point(|one| one.value <= value.ino);
        if check_value(view, value, &uses[start..end]) {
            old.push(value.ino);
        }
    });
    let mut old: Vec<u32> = old.into_iter().flatten().collect();
    old.sort_unstable();
    // Only values of the old style charge nothing to their owners.
    let modern: HashSet<u32> = uses
        .iter()
        .filter(|one| old.binary_search(&one.value).is_err())
        .map(|one| one.owner)
        .collect();
    for ino in &out.uncharged {
        if modern.contains(ino) || old.is_empty() {
            let at = Site { ino: Ino::new(*ino), ..Site::NOWHERE };
            view.error_with(What::InodeBlocks, at.offset(0x1C), "attribute values are not counted");
        }
    }
}

/// Checks one value. Returns whether it is in the old style.
fn check_value(view: &View<'_>, value: &ValueInode, uses: &[ValueUse]) -> bool {
    let at = Site { ino: Ino::new(value.ino), ..Site::NOWHERE };
    if uses.is_empty() {
        view.error_with(What::InodeUnattached, at, "no attribute uses this value");
        return false;
    }
    let crc = content_crc(view, value);
    let is_old = crc != Some(value.crc) && uses.len() == 1 && uses[0].owner == value.owner;
    if crc.is_none() || (crc != Some(value.crc) && !is_old) {
        view.error_with(What::XattrHash, at, "of the value");
    }
    if !is_old && value.references != uses.len() as u64 {
        let detail = format!("counts {}, used {} times", value.references, uses.len());
        view.error_with(What::XattrRefcount, at, detail);
    }
    for one in uses {
        let owner = Site { ino: Ino::new(one.owner), ..Site::NOWHERE };
        let detail = || format!("value in inode {}", value.ino);
        if u64::from(one.size) != value.size {
            view.error_with(What::XattrValue, owner, detail());
        } else if !is_old
            && let Some(crc) = crc
            && one.names.iter().all(|name| one.hash != name ^ crc)
        {
            view.error_with(What::XattrHash, owner, detail());
        }
    }
    is_old
}

/// The checksum of the value; `None` if it cannot be read completely.
fn content_crc(view: &View<'_>, value: &ValueInode) -> Option<u32> {
    let ino = Ino::new(value.ino)?;
    let size = u32::try_from(value.size).ok().filter(|size| *size <= VALUE_MAX)?;
    let map = Map {
        ino,
        extents: value.extents,
        i_block: &value.i_block,
        seed: view.csum.inode_seed(ino, value.generation),
    };
    let mut runs = Gather::new(1 << 16);
    walk(view, &map, &mut Buffers::default(), &mut runs);
    let block_bytes = view.block_bytes();
    let mut bytes = vec![0; block_bytes];
    let mut crc = view.csum_seed;
    let mut left = size as usize;
    let mut logical = 0;
    while left > 0 {
        let block = runs.locate(logical)?;
        if !view.read_blocks(block, &mut bytes, Site::of_ino(ino)) {
            return None;
        }
        let part = left.min(block_bytes);
        crc = crc32c(crc, &bytes[..part]);
        left -= part;
        logical += 1;
    }
    Some(crc)
}
