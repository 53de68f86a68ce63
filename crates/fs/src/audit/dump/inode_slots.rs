//! Inodes without content: inline data becomes zeros, and names and targets in inodes others.
//!
//! ```text
//!   slot   │ fields │ i_block                       │ fields │ "system.data" = the rest │
//!                     inline file    zeros                     zeros
//!                     inline dir.    other names               other names
//!                     symlink        another target            another target
//! ```
//!
//! A checksum that was right stays right, and a wrong one stays wrong.

use super::scramble::{Names, Scrambler};
use crate::audit::check::view::View;
use extant_base::narrow::{fits_u32, len_u32};
use extant_base::{GroupNr, Ino, Site};
use extant_ondisk::block_map::pointers;
use extant_ondisk::extent::EXTENT_MAGIC;
use extant_ondisk::features::Incompat;
use extant_ondisk::inline_dir::PARENT_LEN;
use extant_ondisk::inode::{
    EXTRA_ISIZE, FileKind, I_BLOCK_SIZE, INODE_SIZE_MIN, Inode as DiskInode, InodeFlags,
    checksum_is_right, is_zero_slot, set_checksum,
};
use extant_ondisk::xattr::{INODE_HEADER_LEN, NameIndex, ValueRef, XattrArea, entry_hash};
use std::ops::Range;

/// Where `i_block` is in a slot.
const I_BLOCK: Range<usize> = 0x28..0x28 + I_BLOCK_SIZE;

/// The inode table of one group.
pub(super) struct Table<'t, 'v> {
    pub(super) view: &'t View<'v>,
    pub(super) group: GroupNr,
    pub(super) scrambler: Option<&'t Scrambler<'t>>,
}

/// What was replaced in inodes.
#[derive(Clone, Copy, Debug, Default)]
pub(super) struct Replaced {
    pub(super) inline_files: u64,
    pub(super) names: Names,
}

impl Table<'_, '_> {
    /// Rewrites the slots in `bytes`, which are whole blocks of the table from block `first` of the
    /// volume on.
    pub(super) fn rewrite(&self, first: u64, bytes: &mut [u8]) -> Replaced {
        let mut replaced = Replaced::default();
        if self.scrambler.is_none() && !self.view.has_incompat(Incompat::INLINE_DATA) {
            return replaced;
        }
        let geometry = &self.view.geometry;
        let group = self.view.group(self.group);
        let used = match group.csum_ok {
            true => group.desc.used_slots(geometry, &self.view.csum),
            false => geometry.inodes_per_group(),
        };
        let blocks = first.saturating_sub(group.desc.inode_table.0);
        let first_slot = fits_u32(blocks * u64::from(geometry.inodes_per_block()));
        for (n, slot) in bytes.chunks_exact_mut(geometry.inode_size()).enumerate() {
            let nr = first_slot + len_u32(n);
            match geometry.ino_of_slot(self.group, nr).filter(|_| nr < used) {
                Some(ino) if !is_zero_slot(slot) => self.slot(ino, slot, &mut replaced),
                Some(_) => {}
                // Never used: whatever it holds is from an older volume.
                None => slot.fill(0),
            }
        }
        replaced
    }

    fn slot(&self, ino: Ino, slot: &mut [u8], replaced: &mut Replaced) {
        let view = self.view;
        let was_right = checksum_is_right(slot, ino, &view.csum);
        match DiskInode::parse_unverified(slot, ino, &view.format) {
            Ok(inode) => Slot { table: self, ino, inode, slot, was_right }.rewrite(replaced),
            Err(_) => {
                // Fields that contradict each other: what is content is not known.
                slot[I_BLOCK].fill(0);
                wipe_attributes(slot);
            }
        }
        if was_right {
            set_checksum(slot, ino, &view.csum);
        }
    }
}

/// One inode.
struct Slot<'s, 't, 'v> {
    table: &'s Table<'t, 'v>,
    ino: Ino,
    inode: DiskInode,
    slot: &'s mut [u8],
    was_right: bool,
}

impl Slot<'_, '_, '_> {
    fn rewrite(&mut self, replaced: &mut Replaced) {
        let view = self.table.view;
        if view.has_incompat(Incompat::INLINE_DATA) {
            self.rewrite_inline(replaced);
        }
        let is_encrypted = self.inode.flags.contains(InodeFlags::ENCRYPT);
        let Some(scrambler) = self.table.scrambler.filter(|_| !is_encrypted) else { return };
        match self.inode.kind() {
            Some(FileKind::Directory) if self.inode.has_inline_data() => {
                let value = value_in(view, &self.inode, self.slot).unwrap_or_default();
                let (start, end) = self.slot.split_at_mut(INODE_SIZE_MIN);
                let first = &mut start[I_BLOCK.start + PARENT_LEN..I_BLOCK.end];
                let second = match value {
                    Some(value) => {
                        &mut end[value.start - INODE_SIZE_MIN..value.end - INODE_SIZE_MIN]
                    }
                    None => &mut [],
                };
                replaced.names.add(scrambler.inline_directory(self.ino, first, second));
            }
            Some(FileKind::Symlink) if self.inode.has_inline_data() => {
                scrambler.text(&mut self.slot[I_BLOCK]);
                if let Ok(Some(value)) = value_in(view, &self.inode, self.slot) {
                    scrambler.text(&mut self.slot[value]);
                }
            }
            Some(FileKind::Symlink) if self.inode.is_fast_symlink(&view.format) => {
                scrambler.text(&mut self.slot[I_BLOCK]);
            }
            _ if !self.holds_map() => self.slot[I_BLOCK].fill(0),
            _ => return,
        }
        fit_hash(view, &self.inode, self.slot);
    }

    /// Zeroes content in an inode of a volume with inline data. Damage may hide that there is some,
    /// so what is kept must look like what it should be.
    fn rewrite_inline(&mut self, replaced: &mut Replaced) {
        let view = self.table.view;
        let is_inline = self.inode.has_inline_data();
        let is_kept = match self.inode.kind() {
            Some(FileKind::Directory) if is_inline => self.looks_like_directory(),
            Some(FileKind::Symlink) => self.was_right,
            _ if is_inline => false,
            _ => self.holds_map(),
        };
        let value = value_in(view, &self.inode, self.slot);
        let keeps_value = is_kept && is_inline;
        match value {
            Ok(Some(value)) if !keeps_value => {
                self.slot[value].fill(0);
                fit_hash(view, &self.inode, self.slot);
            }
            // The rest of the content is somewhere else, or nowhere.
            Ok(None) if is_inline && self.inode.size > I_BLOCK_SIZE as u64 => {
                wipe_attributes(self.slot);
            }
            Err(()) => wipe_attributes(self.slot),
            _ if !self.was_right => wipe_attributes(self.slot),
            _ => {}
        }
        if !is_kept {
            self.slot[I_BLOCK].fill(0);
        }
        replaced.inline_files += u64::from(is_inline && !is_kept);
    }

    /// Whether `i_block` has the form of a map, or of a device number.
    fn holds_map(&self) -> bool {
        if self.inode.has_inline_data() {
            return true;
        }
        let i_block = &self.inode.i_block;
        if self.inode.has_extents() {
            return i_block.starts_with(&EXTENT_MAGIC.to_le_bytes());
        }
        let is_device =
            matches!(self.inode.kind(), Some(FileKind::CharDevice | FileKind::BlockDevice));
        let skip = if is_device { 2 } else { 0 };
        let blocks = self.table.view.geometry.block_range();
        let is_wrong = |pointer: &u32| *pointer != 0 && !blocks.contains(&u64::from(*pointer));
        pointers(i_block).skip(skip).filter(is_wrong).count() <= 1
    }

    /// Whether the entries of an inline directory start with one.
    fn looks_like_directory(&self) -> bool {
        let head = &self.inode.i_block[PARENT_LEN..];
        let rec_len = usize::from(u16::from_le_bytes([head[4], head[5]]));
        let is_entry = rec_len >= 8 + usize::from(head[6]) && rec_len <= head.len();
        let ino = u32::from_le_bytes([head[0], head[1], head[2], head[3]]);
        is_entry && rec_len.is_multiple_of(4) && ino <= self.table.view.geometry.inodes_count()
    }
}

/// Zeroes everything in a slot that may be an attribute: what follows the fields of this size.
fn wipe_attributes(slot: &mut [u8]) {
    let start = INODE_SIZE_MIN + usize::from(EXTRA_ISIZE);
    slot.get_mut(start..).unwrap_or_default().fill(0);
}

/// The entry of the attribute that has the rest of inline data: its offset and that of its value,
/// from the start of the slot. An error if the attributes are malformed.
fn entry_in(
    view: &View<'_>,
    inode: &DiskInode,
    slot: &[u8],
) -> Result<Option<(usize, Range<usize>)>, ()> {
    let area = inode.xattr_area(&view.format);
    let ea_inode = view.has_incompat(Incompat::EA_INODE);
    let attributes = XattrArea::in_inode(&slot[area.clone()], ea_inode, Site::NOWHERE);
    let Some(attributes) = attributes.map_err(drop)? else { return Ok(None) };
    let Some(entry) = attributes.find(NameIndex::SYSTEM, b"data") else { return Ok(None) };
    let ValueRef::Here(value) = entry.value else { return Ok(None) };
    let base = area.start + INODE_HEADER_LEN;
    let at = base + entry.offset;
    let start = base + usize::from(u16::from_le_bytes([slot[at + 2], slot[at + 3]]));
    Ok((!value.is_empty()).then(|| (at, start..start + value.len())))
}

fn value_in(view: &View<'_>, inode: &DiskInode, slot: &[u8]) -> Result<Option<Range<usize>>, ()> {
    Ok(entry_in(view, inode, slot)?.map(|(_, value)| value))
}

/// Stores the hash of the changed value, if the entry has a hash.
fn fit_hash(view: &View<'_>, inode: &DiskInode, slot: &mut [u8]) {
    if let Ok(Some((at, value))) = entry_in(view, inode, slot)
        && slot[at + 12..at + 16] != [0; 4]
    {
        let hash = entry_hash(b"data", &slot[value]);
        slot[at + 12..at + 16].copy_from_slice(&hash.to_le_bytes());
    }
}
