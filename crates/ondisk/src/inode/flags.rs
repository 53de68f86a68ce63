//! What an inode is and how it is to be treated: `i_mode`'s kind and `i_flags`.
//!
//! ```text
//!   mode   15 … 12   11 … 0        kind: 1 fifo, 2 chr, 4 dir, 6 blk, 8 reg, A lnk, C sock
//!         ┌────────┬────────────┐
//!         │ kind   │permissions │
//!         └────────┴────────────┘
//! ```

bitflags::bitflags! {
    /// `i_flags`. Unknown bits are carried.
    #[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
    pub struct InodeFlags: u32 {
        /// Overwrite on deletion (never done).
        const SECRM = 0x1;
        /// Keep for undeletion (never done).
        const UNRM = 0x2;
        /// Compress (never done).
        const COMPR = 0x4;
        /// Write synchronously.
        const SYNC = 0x8;
        /// May not be changed.
        const IMMUTABLE = 0x10;
        /// May only grow.
        const APPEND = 0x20;
        /// Not for backups.
        const NODUMP = 0x40;
        /// Access time is not kept.
        const NOATIME = 0x80;
        /// Historic.
        const DIRTY = 0x100;
        /// Historic.
        const COMPRBLK = 0x200;
        /// Historic.
        const NOCOMPR = 0x400;
        /// Content and names are encrypted.
        const ENCRYPT = 0x800;
        /// Directory with an htree index.
        const INDEX = 0x1000;
        /// Historic.
        const IMAGIC = 0x2000;
        /// Data goes through the journal.
        const JOURNAL_DATA = 0x4000;
        /// Historic.
        const NOTAIL = 0x8000;
        /// Directory changes are synchronous.
        const DIRSYNC = 0x1_0000;
        /// Subdirectories are to be spread over the volume.
        const TOPDIR = 0x2_0000;
        /// `i_blocks` counts filesystem blocks.
        const HUGE_FILE = 0x4_0000;
        /// Mapped by extents.
        const EXTENTS = 0x8_0000;
        /// Protected by a Merkle tree.
        const VERITY = 0x10_0000;
        /// Holds the value of a large attribute.
        const EA_INODE = 0x20_0000;
        /// Historic.
        const EOFBLOCKS = 0x40_0000;
        /// Data without sums, written in place (extant, with `data_csum`). Linux' ext4 leaves it as it is.
        const NOCOW = 0x80_0000;
        /// Accessed directly on persistent memory.
        const DAX = 0x200_0000;
        /// Content lies in the inode.
        const INLINE_DATA = 0x1000_0000;
        /// New files take the directory's project.
        const PROJINHERIT = 0x2000_0000;
        /// Directory whose names ignore case.
        const CASEFOLD = 0x4000_0000;
        const _ = !0;
    }
}

impl InodeFlags {
    /// What a new inode takes over from its parent directory, before masking by kind.
    pub const INHERITED: InodeFlags = InodeFlags::SECRM
        .union(InodeFlags::UNRM)
        .union(InodeFlags::COMPR)
        .union(InodeFlags::SYNC)
        .union(InodeFlags::NODUMP)
        .union(InodeFlags::NOATIME)
        .union(InodeFlags::NOCOMPR)
        .union(InodeFlags::JOURNAL_DATA)
        .union(InodeFlags::NOTAIL)
        .union(InodeFlags::DIRSYNC)
        .union(InodeFlags::PROJINHERIT)
        .union(InodeFlags::CASEFOLD)
        .union(InodeFlags::NOCOW)
        .union(InodeFlags::DAX);

    /// What a new inode of `kind` takes over from a parent with these flags.
    pub fn inherited_by(self, kind: FileKind) -> InodeFlags {
        let flags = self & InodeFlags::INHERITED;
        match kind {
            FileKind::Directory => flags,
            FileKind::Regular => flags.difference(
                InodeFlags::DIRSYNC
                    | InodeFlags::TOPDIR
                    | InodeFlags::CASEFOLD
                    | InodeFlags::PROJINHERIT,
            ),
            _ => flags & (InodeFlags::NODUMP | InodeFlags::NOATIME),
        }
    }
}

/// The kind of a file, from bits 12 to 15 of its mode.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum FileKind {
    /// Named pipe.
    Fifo,
    /// Character device.
    CharDevice,
    /// Directory.
    Directory,
    /// Block device.
    BlockDevice,
    /// Regular file.
    Regular,
    /// Symbolic link.
    Symlink,
    /// Socket.
    Socket,
}

impl FileKind {
    /// Whether this is a directory.
    pub const fn is_dir(self) -> bool {
        matches!(self, FileKind::Directory)
    }

    /// Whether this is a regular file.
    pub const fn is_file(self) -> bool {
        matches!(self, FileKind::Regular)
    }

    /// Whether this is a symbolic link.
    pub const fn is_symlink(self) -> bool {
        matches!(self, FileKind::Symlink)
    }

    /// The kind that `mode` names, or `None` for a type nobody defined.
    pub const fn from_mode(mode: u16) -> Option<FileKind> {
        Some(match mode & 0xF000 {
            0x1000 => FileKind::Fifo,
            0x2000 => FileKind::CharDevice,
            0x4000 => FileKind::Directory,
            0x6000 => FileKind::BlockDevice,
            0x8000 => FileKind::Regular,
            0xA000 => FileKind::Symlink,
            0xC000 => FileKind::Socket,
            _ => return None,
        })
    }

    /// The kind as bits 12 to 15 of a mode.
    pub const fn mode_bits(self) -> u16 {
        match self {
            FileKind::Fifo => 0x1000,
            FileKind::CharDevice => 0x2000,
            FileKind::Directory => 0x4000,
            FileKind::BlockDevice => 0x6000,
            FileKind::Regular => 0x8000,
            FileKind::Symlink => 0xA000,
            FileKind::Socket => 0xC000,
        }
    }
}
