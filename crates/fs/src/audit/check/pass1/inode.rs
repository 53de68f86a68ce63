//! One inode: first its own fields, then its attributes and its map.
//!
//! ```text
//!   slot ─┬─ no links, not internal ──► free: its deletion time and checksum are checked
//!         └─ in use ──► checksum ─► fields ─► attributes ─► map ─► size and blocks ─► state
//! ```

use super::tables::Scan;
use super::{Dir, blocks::Blocks};
use crate::audit::check::inodes::{HIDDEN, IN_USE, ORPHAN, State, VALUE};
use crate::audit::check::map::{Map, walk};
use crate::audit::check::view::View;
use extant_base::{Ino, Site, What};
use extant_ondisk::features::{Compat, Incompat, RoCompat};
use extant_ondisk::inode::{
    FileKind, I_BLOCK_SIZE, Inode as DiskInode, InodeFlags, checksum_is_right, is_zero_slot,
};

/// What an inode's number means.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(in crate::audit) enum Role {
    /// A user's file or directory, or the root.
    Ordinary,
    /// The list of bad blocks.
    BadBlocks,
    /// The boot loader.
    BootLoader,
    /// Inode 7, with resize_inode.
    Resize,
    /// An internal file of the volume: journal, quota, orphans.
    Own,
    /// A reserved number that this volume does not use.
    Unused,
}

/// The role of `ino` on this volume.
pub(in crate::audit) fn role(view: &View<'_>, ino: Ino) -> Role {
    let sb = &view.sb;
    let number = ino.get();
    let quota = view.has_ro_compat(RoCompat::QUOTA);
    if quota && [sb.usr_quota_inum, sb.grp_quota_inum, sb.prj_quota_inum].contains(&number) {
        return Role::Own;
    }
    if view.has_compat(Compat::ORPHAN_FILE) && number == sb.orphan_file_inum {
        return Role::Own;
    }
    if view.has_compat(Compat::HAS_JOURNAL) && number == sb.journal_inum {
        return Role::Own;
    }
    match number {
        1 => Role::BadBlocks,
        2 => Role::Ordinary,
        5 => Role::BootLoader,
        7 if view.has_compat(Compat::RESIZE_INODE) => Role::Resize,
        n if n < sb.first_ino => Role::Unused,
        _ => Role::Ordinary,
    }
}

fn half(bytes: &[u8], at: usize) -> u16 {
    u16::from_le_bytes([bytes[at], bytes[at + 1]])
}

fn word(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

impl Scan<'_, '_> {
    /// Checks one slot. `bytes` is `inode_size` long.
    pub(super) fn slot(&mut self, ino: Ino, bytes: &[u8]) {
        let (mode, links) = (half(bytes, 0x00), half(bytes, 0x1A));
        let number = ino.get();
        let is_orphan = self.orphans.contains(&number);
        if number >= self.view.sb.first_ino && links == 0 && !is_orphan {
            self.check_deletion_time(ino, mode, word(bytes, 0x14));
            if !is_zero_slot(bytes) && !checksum_is_right(bytes, ino, &self.view.csum) {
                let at = Site::of_ino(ino).offset(0x7C);
                self.view.error_with(What::InodeChecksum, at, "of a freed inode");
            }
            return;
        }
        let role = role(self.view, ino);
        let mut marks = IN_USE;
        if role != Role::Ordinary {
            marks |= HIDDEN;
        }
        if is_orphan && links == 0 {
            marks |= ORPHAN;
        }
        if half(bytes, 0x20 + 2) & (InodeFlags::EA_INODE.bits() >> 16) as u16 != 0
            && role == Role::Ordinary
            && self.view.has_incompat(Incompat::EA_INODE)
        {
            marks |= VALUE;
        }
        self.inodes.set(number, State::of(mode, links, marks));
        self.out.stats.inodes_used += 1;
        if role != Role::Ordinary && is_zero_slot(bytes) {
            return;
        }
        self.used(ino, role, marks, bytes);
    }

    /// Checks the deletion time of a freed inode without an orphan record.
    fn check_deletion_time(&self, ino: Ino, mode: u16, time: u32) {
        let at = Site::of_ino(ino).offset(0x14);
        if mode != 0 && time == 0 {
            self.view.error_with(What::DeletionTime, at, "freed inode has none");
        }
        // A record that is not in the list: the field names the next orphan.
        let sb = &self.view.sb;
        let is_time = |time: u64| time == 0 || time >= u64::from(sb.inodes_count);
        let clock_was_right = [sb.wtime, sb.mtime, sb.mkfs_time].into_iter().all(is_time);
        if clock_was_right && !is_time(time.into()) {
            let detail = format!("freed inode names inode {time} as the next orphan");
            self.view.error_with(What::DeletionTime, at, detail);
        }
    }

    fn used(&mut self, ino: Ino, role: Role, marks: u64, bytes: &[u8]) {
        let view = self.view;
        let at = Site::of_ino(ino);
        if !checksum_is_right(bytes, ino, &view.csum) {
            view.error(What::InodeChecksum, at.offset(0x7C));
        }
        let mut fixed;
        let mut bytes = bytes;
        let inode = match DiskInode::parse_unverified(bytes, ino, &view.format) {
            Ok(inode) => inode,
            Err(error) => {
                view.corrupt(&error, "");
                // Parse it again as if it had no extra fields.
                fixed = bytes.to_vec();
                fixed[0x80..0x82].fill(0);
                bytes = &fixed;
                match DiskInode::parse_unverified(bytes, ino, &view.format) {
                    Ok(inode) => inode,
                    Err(_) => return,
                }
            }
        };
        if inode.extra_isize != 0 && inode.extra_isize < 4 {
            view.error(What::InodeExtraSize, at.offset(0x80));
        }
        if marks & ORPHAN == 0 && inode.dtime != 0 && (inode.links > 0 || role == Role::Ordinary) {
            view.error(What::DeletionTime, at.offset(0x14));
        }
        let usable = self.check_role(ino, role, &inode);
        let kind = inode.kind();
        if role == Role::Ordinary {
            if kind.is_none() {
                view.error_with(What::InodeMode, at.offset(0), format!("mode {:o}", inode.mode));
            }
            if ino == Ino::ROOT && kind != Some(FileKind::Directory) {
                view.error(What::RootDirectory, at.offset(0));
            }
        }
        if marks & (HIDDEN | VALUE) == 0 {
            self.count_kind(kind);
        }
        self.check_flags(ino, role, &inode, bytes);
        self.check_times(at, bytes, &inode, marks);
        if !usable {
            return;
        }
        let attributes = self.attributes(ino, role, &inode, bytes);
        let mut blocks = Blocks::new(ino, role, kind);
        let fast_link = inode.is_symlink() && self.is_fast_link(&inode);
        let special = matches!(
            kind,
            Some(FileKind::CharDevice | FileKind::BlockDevice | FileKind::Fifo | FileKind::Socket)
        );
        let inline = inode.has_inline_data();
        if !fast_link && !special && !inline {
            let map = Map {
                ino,
                extents: inode.has_extents(),
                i_block: &inode.i_block,
                seed: inode.seed(ino, &view.format),
            };
            if !inode.has_extents() {
                blocks.count_pointers();
            }
            let mut buffers = std::mem::take(&mut self.buffers);
            let mut sink = blocks.sink(view, &mut self.claims, &mut self.out.dir_blocks);
            walk(view, &map, &mut buffers, &mut sink);
            self.buffers = buffers;
        }
        if let Some(block) = inode.translator {
            blocks.take_translator(view, &mut self.claims, block);
        }
        self.check_content(ino, role, &inode, bytes, fast_link, &blocks, &attributes);
        self.check_blocks(ino, &inode, &blocks, &attributes);
        if role == Role::Ordinary && kind == Some(FileKind::Directory) {
            self.note_directory(ino, &inode, &attributes);
        }
        if marks & VALUE != 0 {
            self.note_value(ino, &inode);
        } else if role == Role::Ordinary && view.has_ro_compat(RoCompat::QUOTA) {
            let sectors = blocks.sectors(view) + attributes.sectors(view);
            let space = sectors << 9;
            self.out.usages.add(&inode, space, 1 + attributes.value_inodes);
        }
        // The resize inode maps blocks of every group.
        if blocks.fragments > 1 && role != Role::Resize {
            self.out.stats.fragmented += 1;
        }
    }

    fn count_kind(&mut self, kind: Option<FileKind>) {
        let stats = &mut self.out.stats;
        match kind {
            Some(FileKind::Regular) => stats.files += 1,
            Some(FileKind::Directory) => stats.directories += 1,
            Some(FileKind::Symlink) => stats.symlinks += 1,
            Some(_) => stats.special += 1,
            None => {}
        }
    }

    /// Checks the rules for internal inodes. Returns false if the inode does not fit its number;
    /// its map is then not walked.
    fn check_role(&self, ino: Ino, role: Role, inode: &DiskInode) -> bool {
        let at = Site::of_ino(ino);
        let kind = inode.kind();
        let wrong = |detail: &str| self.view.error_with(What::InodeReserved, at, detail);
        let is_mapped = inode.links != 0 || inode.sectors != 0 || inode.i_block[..4] != [0; 4];
        match role {
            Role::Ordinary => return true,
            Role::BadBlocks => {
                let flags = InodeFlags::EXTENTS | InodeFlags::INLINE_DATA;
                if inode.mode != 0
                    || inode.uid != 0
                    || inode.gid != 0
                    || inode.links != 0
                    || inode.file_acl.is_some()
                    || inode.flags.intersects(flags)
                {
                    wrong("the inode of bad blocks is not a regular file");
                }
            }
            Role::BootLoader => {
                if inode.mode != 0 && kind != Some(FileKind::Regular) {
                    wrong("the boot loader's inode is not a regular file");
                }
            }
            Role::Resize => {
                if kind != Some(FileKind::Regular) {
                    wrong("the resize inode is not a regular file");
                }
            }
            Role::Own => {
                if kind != Some(FileKind::Regular) || inode.links == 0 {
                    let what = match ino.get() == self.view.sb.journal_inum {
                        true => What::JournalInode,
                        false => What::InodeReserved,
                    };
                    self.view.error_with(what, at, "is no regular file");
                }
            }
            Role::Unused => {
                if is_mapped && matches!(ino.get(), 3 | 4 | 7 | 8) {
                    wrong("in use, but the volume has no such internal file");
                } else if inode.mode != 0 && !matches!(ino.get(), 3 | 4 | 8) {
                    wrong("a reserved inode without a use has a mode");
                } else if inode.mode != 0 {
                    self.view.note(What::InodeReserved, at, "a mode without a file type");
                }
                return is_mapped;
            }
        }
        true
    }

    fn check_flags(&self, ino: Ino, role: Role, inode: &DiskInode, bytes: &[u8]) {
        let view = self.view;
        let at = Site::of_ino(ino).offset(0x20);
        let has = |flag| inode.flags.contains(flag);
        let kind = inode.kind();
        let is_dir = kind == Some(FileKind::Directory);
        let wrong = |bad: bool, detail: &str| {
            if bad {
                view.error_with(What::InodeFlags, at, detail);
            }
        };
        let special = matches!(
            kind,
            Some(FileKind::CharDevice | FileKind::BlockDevice | FileKind::Fifo | FileKind::Socket)
        );
        let no = |feature| !view.has_incompat(feature);
        wrong(has(InodeFlags::EXTENTS) && no(Incompat::EXTENTS), "extents without the feature");
        wrong(
            has(InodeFlags::INLINE_DATA) && no(Incompat::INLINE_DATA),
            "inline data without the feature",
        );
        wrong(
            has(InodeFlags::INLINE_DATA) && has(InodeFlags::EXTENTS),
            "extents and inline data at once",
        );
        wrong(has(InodeFlags::EA_INODE) && no(Incompat::EA_INODE), "value without the feature");
        wrong(
            has(InodeFlags::EA_INODE) && kind != Some(FileKind::Regular),
            "value in another kind of file",
        );
        wrong(has(InodeFlags::CASEFOLD) && no(Incompat::CASEFOLD), "casefold without the feature");
        wrong(has(InodeFlags::CASEFOLD) && !is_dir, "casefold on another kind of file");
        wrong(
            has(InodeFlags::IMAGIC) && !view.has_compat(Compat::IMAGIC_INODES),
            "imagic without the feature",
        );
        wrong(has(InodeFlags::INDEX) && !is_dir, "index on another kind of file");
        wrong(
            has(InodeFlags::INDEX) && is_dir && !view.has_compat(Compat::DIR_INDEX),
            "index without the feature",
        );
        wrong(
            (special || kind == Some(FileKind::Symlink))
                && inode.flags.intersects(InodeFlags::IMMUTABLE | InodeFlags::APPEND),
            "immutable or append-only on a special file",
        );
        wrong(special && has(InodeFlags::EXTENTS), "extents on a special file");
        wrong(special && has(InodeFlags::INLINE_DATA), "inline data on a special file");
        wrong(
            !view.format.has_huge_file() && half(bytes, 0x74) != 0,
            "48-bit block count without huge_file",
        );
        wrong(
            no(Incompat::IS_64BIT) && half(bytes, 0x76) != 0 && view.sb.creator_os == 0,
            "48-bit attribute block without 64bit",
        );
        wrong(word(bytes, 0x70) != 0 && role == Role::Ordinary, "a fragment address");
        if is_dir && !view.has_incompat(Incompat::LARGEDIR) && word(bytes, 0x6C) != 0 {
            view.error(What::InodeSize, Site::of_ino(ino).offset(0x6C));
        }
    }

    /// Finds times before 1970 that are stored with the epoch bits of times after 2310.
    fn check_times(&self, at: Site, bytes: &[u8], inode: &DiskInode, marks: u64) {
        if marks & VALUE != 0 {
            return;
        }
        // Offsets of the base and the extra word of ctime, mtime, atime and crtime.
        for (base, extra) in [(0x0C, 0x84), (0x10, 0x88), (0x08, 0x8C), (0x90, 0x94)] {
            if 128 + usize::from(inode.extra_isize) < extra + 4 || extra + 4 > bytes.len() {
                continue;
            }
            if word(bytes, base) >> 31 != 0 && word(bytes, extra) & 3 == 3 {
                self.view.error(What::InodeTime, at.offset(base));
            }
        }
    }

    /// Whether a symlink's target is in `i_block`, even if flags contradict that.
    pub(super) fn is_fast_link(&self, inode: &DiskInode) -> bool {
        inode.is_fast_symlink(&self.view.format)
            && (!inode.has_extents() || inode.size < I_BLOCK_SIZE as u64 && inode.sectors == 0)
    }

    fn note_directory(
        &mut self,
        ino: Ino,
        inode: &DiskInode,
        attributes: &super::attributes::Found,
    ) {
        let view = self.view;
        let inline = inode.has_inline_data().then(|| {
            let mut areas = inode.i_block.to_vec();
            areas.extend_from_slice(attributes.inline_value.as_deref().unwrap_or_default());
            areas.into_boxed_slice()
        });
        self.out.dirs.push(Dir {
            ino: ino.get(),
            seed: inode.seed(ino, &view.format).unwrap_or(0),
            indexed: inode.flags.contains(InodeFlags::INDEX)
                && view.has_compat(Compat::DIR_INDEX)
                && inline.is_none(),
            casefold: inode.flags.contains(InodeFlags::CASEFOLD)
                && view.has_incompat(Incompat::CASEFOLD),
            encrypted: inode.flags.contains(InodeFlags::ENCRYPT),
            inline,
            first: 0,
            count: 0,
        });
    }
}
