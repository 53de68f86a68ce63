//! What a change of an inode's slot means for a fast commit, from the slot before and after.
//!
//! ```text
//!   regular file     fields                                        ─► recorded
//!   directory        size, map, times, version: names changed them ─► follows from the names
//!   anything else, and: flags, attributes, no extents, content
//!   in the inode, no links, space for extra fields                 ─► full commit
//!   released         its freed number says it; with attributes     ─► full commit
//! ```
//!
//! Rule C6: a file with attributes outside its inode needs a full commit. When Linux replays an
//! INODE record it recounts the file's blocks, and does not count those of the attributes.
//!
//! A reused slot needs a full commit, too, if the previous inode left other bytes after the fields
//! than the new inode has. An INODE record does not carry these bytes, so the old ones would come
//! back. Source: ext4 documentation, "Fast Commits".

use extant_journal::Ineligible;
use extant_ondisk::inode::{FileKind, INODE_SIZE_MIN, InodeFlags};
use std::ops::Range;

const MODE: usize = 0x00;
const LINKS: usize = 0x1A;
const FLAGS: usize = 0x20;
const MAP: usize = 0x28;
const EXTRA_ISIZE: usize = 0x80;
const FILE_ACL: [Range<usize>; 2] = [0x68..0x6C, 0x76..0x78];

/// What the root of an extent tree begins with, and how many entries it can hold.
const EXTENT_MAGIC: u16 = 0xF30A;
const ROOT_ENTRIES: u16 = 4;

/// The parts of a directory's slot that do not follow from its names. These are mode, owner, access
/// time, links and dtime, generation, attributes; and after the fixed part extra_isize, access
/// time, birth time and project.
const OF_DIRECTORY: [Range<usize>; 8] = [
    0x00..0x04,
    0x08..0x0C,
    0x14..0x1C,
    0x64..0x68,
    0x78..0x7C,
    0x80..0x82,
    0x8C..0x98,
    0x9C..0xA0,
];

/// What never changes while a file exists: generation, extra_isize.
const FIXED_WHILE_IN_USE: [Range<usize>; 2] = [0x64..0x68, 0x80..0x82];

/// Flags of files whose content or names depend on more than their blocks.
const TRANSFORMED: InodeFlags = InodeFlags::ENCRYPT.union(InodeFlags::VERITY);

/// What storing an inode means for a fast commit.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Stored {
    /// Fields of a file: an INODE record expresses them.
    Fields,
    /// Names that were added or removed changed it, and replaying their records changes it again.
    ByNames,
    /// No record expresses it.
    Ineligible(Ineligible),
}

/// What it means that the slot's bytes change from `before` to `after`.
pub(super) fn meaning(before: &[u8], after: &[u8]) -> Stored {
    let differs = |range: Range<usize>| before.get(range.clone()) != after.get(range);
    let any = |ranges: &[Range<usize>]| ranges.iter().cloned().any(differs);
    if changes_attributes(before, after) || any(&FILE_ACL) {
        return Stored::Ineligible(Ineligible::Xattr);
    }
    let was_in_use = half(before, LINKS) > 0;
    let changed = flags(before) ^ flags(after);
    if kind(after) == Some(FileKind::Directory) {
        let inline = flags(after).contains(InodeFlags::INLINE_DATA);
        let kept = was_in_use && !inline && !any(&OF_DIRECTORY);
        return match kept && changed.difference(InodeFlags::INDEX).is_empty() {
            true => Stored::ByNames,
            false if was_in_use => Stored::Ineligible(Ineligible::Flags),
            false => Stored::Ineligible(Ineligible::Directory),
        };
    }
    match ineligible_reason(after) {
        Some(reason) => Stored::Ineligible(reason),
        None if was_in_use && (!changed.is_empty() || any(&FIXED_WHILE_IN_USE)) => {
            Stored::Ineligible(Ineligible::Flags)
        }
        None if !was_in_use && leaves_a_root(before) => Stored::Ineligible(Ineligible::Unclear),
        None => Stored::Fields,
    }
}

/// Whether the previous inode left bytes in the map's place that look like the root of a tree that
/// is not empty. INODE records do not change the map, so Linux would take this root for the new
/// file's.
fn leaves_a_root(slot: &[u8]) -> bool {
    // Magic, entries, most entries, depth.
    let root = [0, 2, 4, 6].map(|at| half(slot, MAP + at));
    root[0] == EXTENT_MAGIC && root[1..] != [0, ROOT_ENTRIES, 0]
}

/// Whether the bytes after the fields change. When an inode is released and its slot is reused,
/// replaying records would leave the old bytes there: Linux would give one file's attributes to
/// another.
pub(super) fn changes_attributes(before: &[u8], after: &[u8]) -> bool {
    let unrecorded = end_of_fields(after)..after.len();
    before.get(unrecorded.clone()) != after.get(unrecorded)
}

/// Whether there are bytes after the fields.
pub(super) fn has_attributes(slot: &[u8]) -> bool {
    slot[end_of_fields(slot)..].iter().any(|byte| *byte != 0)
}

/// Why no record can express the inode in `slot`, if that is so.
pub(super) fn ineligible_reason(slot: &[u8]) -> Option<Ineligible> {
    let flags = flags(slot);
    match kind(slot) {
        Some(FileKind::Regular) => {}
        Some(FileKind::Directory) => return Some(Ineligible::Directory),
        _ => return Some(Ineligible::Special),
    }
    let reasons = [
        (half(slot, LINKS) == 0, Ineligible::Orphan),
        (flags.contains(InodeFlags::JOURNAL_DATA), Ineligible::JournaledData),
        (flags.intersects(TRANSFORMED), Ineligible::Encrypted),
        (flags.contains(InodeFlags::INLINE_DATA), Ineligible::InlineData),
        (flags.contains(InodeFlags::EA_INODE), Ineligible::Xattr),
        (!flags.contains(InodeFlags::EXTENTS), Ineligible::Feature),
        (
            FILE_ACL.into_iter().any(|range| slot[range].iter().any(|byte| *byte != 0)),
            Ineligible::Xattr,
        ),
    ];
    reasons.into_iter().find(|(is_so, _)| *is_so).map(|(_, reason)| reason)
}

/// Where the bytes begin that an INODE record does not contain.
pub(super) fn end_of_fields(slot: &[u8]) -> usize {
    match slot.len() > INODE_SIZE_MIN {
        true => slot.len().min(INODE_SIZE_MIN + usize::from(half(slot, EXTRA_ISIZE))),
        false => slot.len(),
    }
}

/// The link count.
pub(super) fn links(slot: &[u8]) -> u32 {
    half(slot, LINKS).into()
}

fn kind(slot: &[u8]) -> Option<FileKind> {
    FileKind::from_mode(half(slot, MODE))
}

fn flags(slot: &[u8]) -> InodeFlags {
    InodeFlags::from_bits_retain(word(slot, FLAGS))
}

fn half(slot: &[u8], at: usize) -> u16 {
    u16::from_le_bytes([slot[at], slot[at + 1]])
}

fn word(slot: &[u8], at: usize) -> u32 {
    u32::from(half(slot, at)) | u32::from(half(slot, at + 2)) << 16
}

#[cfg(test)]
mod tests {
    use super::*;

    const FILE: u16 = 0o100_644;
    const DIRECTORY: u16 = 0o040_755;

    /// A slot in use, 32 bytes of extra fields, with extents.
    fn slot(mode: u16) -> Vec<u8> {
        let mut slot = vec![0; 256];
        slot[MODE..MODE + 2].copy_from_slice(&mode.to_le_bytes());
        slot[LINKS] = 2;
        slot[EXTRA_ISIZE] = 32;
        set_flags(&mut slot, InodeFlags::EXTENTS);
        slot
    }

    fn set_flags(slot: &mut [u8], flags: InodeFlags) {
        slot[FLAGS..FLAGS + 4].copy_from_slice(&flags.bits().to_le_bytes());
    }

    fn changed(mode: u16, at: usize) -> Stored {
        let before = slot(mode);
        let mut after = before.clone();
        after[at] ^= 1;
        meaning(&before, &after)
    }

    #[test]
    fn of_a_file_all_fields_are_recorded_and_nothing_after_them() {
        for at in 0..256 {
            let want = match at {
                0x20..0x24 => Stored::Ineligible(Ineligible::Flags),
                0x64..0x68 | 0x80..0x82 => Stored::Ineligible(Ineligible::Flags),
                0x68..0x6C | 0x76..0x78 | 160..256 => Stored::Ineligible(Ineligible::Xattr),
                _ => Stored::Fields,
            };
            // Other tests cover other kinds, and files without extents.
            if ![MODE + 1, FLAGS + 2].contains(&at) {
                assert_eq!(changed(FILE, at), want, "byte {at:#x}");
            }
        }
    }

    #[test]
    fn of_a_directory_only_fields_that_follow_from_names_are_not_recorded() {
        // Size, change and modification time, space, version, map, unused, checksums.
        let by_names: [Range<usize>; 8] = [
            0x04..0x08,
            0x0C..0x14,
            0x1C..0x20,
            0x24..0x64,
            0x6C..0x76,
            0x7C..0x80,
            0x82..0x8C,
            0x98..0x9C,
        ];
        for at in (0..256).filter(|at| *at != MODE + 1) {
            let expected = by_names.iter().any(|range| range.contains(&at));
            let is_by_names = changed(DIRECTORY, at) == Stored::ByNames;
            assert_eq!(is_by_names, expected, "byte {at:#x}");
        }
        let mut indexed = slot(DIRECTORY);
        set_flags(&mut indexed, InodeFlags::EXTENTS | InodeFlags::INDEX);
        assert_eq!(meaning(&slot(DIRECTORY), &indexed), Stored::ByNames);
    }

    #[test]
    fn a_new_inode_is_recorded_if_its_slot_holds_nothing_else() {
        let empty = vec![0; 256];
        assert_eq!(meaning(&empty, &slot(FILE)), Stored::Fields);
        assert_eq!(meaning(&empty, &slot(DIRECTORY)), Stored::Ineligible(Ineligible::Directory));
        let mut freed = slot(FILE);
        (freed[LINKS], freed[0x64]) = (0, 9);
        set_flags(&mut freed, InodeFlags::empty());
        assert_eq!(meaning(&freed, &slot(FILE)), Stored::Fields, "another generation and flags");
        freed[200] = 1;
        assert_eq!(meaning(&freed, &slot(FILE)), Stored::Ineligible(Ineligible::Xattr));
    }

    #[test]
    fn files_that_no_record_expresses_have_a_reason() {
        let with = |flags| {
            let mut slot = slot(FILE);
            set_flags(&mut slot, flags);
            ineligible_reason(&slot)
        };
        let extents = InodeFlags::EXTENTS;
        assert_eq!(with(extents | InodeFlags::NOATIME), None);
        for (flags, reason) in [
            (InodeFlags::empty(), Ineligible::Feature),
            (extents | InodeFlags::INLINE_DATA, Ineligible::InlineData),
            (extents | InodeFlags::JOURNAL_DATA, Ineligible::JournaledData),
            (extents | InodeFlags::ENCRYPT, Ineligible::Encrypted),
            (extents | InodeFlags::EA_INODE, Ineligible::Xattr),
        ] {
            assert_eq!(with(flags), Some(reason));
        }
        assert_eq!(ineligible_reason(&slot(0o120_777)), Some(Ineligible::Special));
        let mut with_block = slot(FILE);
        with_block[0x68] = 1;
        assert_eq!(ineligible_reason(&with_block), Some(Ineligible::Xattr));
        let mut unlinked = slot(FILE);
        unlinked[LINKS] = 0;
        assert_eq!(ineligible_reason(&unlinked), Some(Ineligible::Orphan));
    }

    #[test]
    fn a_released_inode_leaves_no_attributes() {
        let mut before = slot(FILE);
        let after = slot(FILE);
        assert!(!changes_attributes(&before, &after) && !has_attributes(&before));
        before[200] = 1;
        assert!(changes_attributes(&before, &after) && has_attributes(&before));
        assert!(!changes_attributes(&before[..128], &after[..128]));
    }

    #[test]
    fn bytes_that_look_like_a_tree_need_a_full_commit_before_reuse() {
        let mut before = slot(FILE);
        (before[LINKS], before[MAP], before[MAP + 1]) = (0, 0x0A, 0xF3);
        before[MAP + 4] = 4;
        assert_eq!(meaning(&before, &slot(FILE)), Stored::Fields, "an empty tree");
        for at in [2, 3, 4, 5, 6, 7] {
            let mut before = before.clone();
            before[MAP + at] ^= 1;
            assert_eq!(meaning(&before, &slot(FILE)), Stored::Ineligible(Ineligible::Unclear));
            before[MAP] ^= 1;
            assert_eq!(meaning(&before, &slot(FILE)), Stored::Fields, "something else");
        }
    }

    #[test]
    fn small_inodes_have_nothing_after_their_fields() {
        let small = &slot(FILE)[..128];
        assert_eq!(end_of_fields(small), 128);
        assert_eq!(meaning(&[0; 128], small), Stored::Fields);
        assert_eq!(end_of_fields(&slot(FILE)), 160);
    }
}
