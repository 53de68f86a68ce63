//! Directories: three forms, with one way to look up a name and one way to list the names.
//!
//! ```text
//!   Form::Inline    entries in the inode: i_block, then the attribute
//!   Form::Linear    blocks of entries, in any order
//!   Form::Indexed   the same blocks, and an htree that maps a hash to one of them
//!
//!   Dir ─┬─ find(name)        Indexed: by hash, else block by block
//!        └─ fill(position)    one block of entries after the other (`read.rs`)
//! ```
//!
//! A [`Dir`] is made for one operation, under the directory's lock. It holds what is needed to
//! check the blocks. Source: ext4 documentation, "Directory Entries".

mod convert;
pub(crate) mod fold;
pub(crate) mod htree;
mod init;
pub(crate) mod inline;
pub(crate) mod insert;
pub(crate) mod linear;
pub(crate) mod nokey;
pub(crate) mod pack;
pub(crate) mod places;
pub(crate) mod read;
mod remove;
mod split;

use crate::inodes::file::FileRef;
use crate::inodes::map::Target;
use crate::state::inode::Body;
use crate::volume::Volume;
use extant_base::narrow::fits_u32;
use extant_base::{BlockNr, Error, Ino, LogicalBlock, Result, Site, What};
use extant_journal::MetaBlock;
use extant_ondisk::dirent::{DirFormat, Dirent, EntryKind};
use extant_ondisk::features::{Incompat, RoCompat};
use extant_ondisk::inode::{FileKind, InodeFlags};
use fold::Wanted;

/// One directory, to change its entries.
pub(crate) struct DirMut<'a> {
    /// The volume.
    pub(crate) volume: &'a Volume,
    /// The inode's content. The caller holds the inode's lock, exclusively.
    pub(crate) body: &'a mut Body,
}

impl Volume {
    /// The directory with this content, to change it.
    pub(crate) fn dir_mut<'a>(&'a self, body: &'a mut Body) -> DirMut<'a> {
        DirMut { volume: self, body }
    }
}

impl DirMut<'_> {
    /// The inode's number.
    fn ino(&self) -> Ino {
        self.body.ino()
    }
}

/// How a directory's entries are stored.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Form {
    /// In the inode.
    Inline,
    /// In blocks.
    Linear,
    /// In blocks, with an htree in block 0.
    Indexed,
}

/// Where an entry is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Place {
    /// In a block.
    Block {
        /// The directory's block.
        logical: LogicalBlock,
        /// The same block's number on the volume.
        nr: BlockNr,
        /// Byte offset in the block.
        offset: usize,
    },
    /// In the inode: offsets below 60 are in `i_block`, offsets from 60 on in the attribute.
    Inline {
        /// The offset as `extant_ondisk::inline_dir` counts it.
        offset: usize,
    },
    /// Not stored: the "." and ".." entries of an inline directory are implied.
    Implied,
}

/// An entry that was found.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Found {
    /// The inode of the name.
    pub(crate) ino: Ino,
    /// The kind of file that the entry records.
    pub(crate) kind: EntryKind,
    /// Where the entry is.
    pub(crate) place: Place,
}

impl Found {
    fn in_block(entry: &Dirent<'_>, ino: Ino, logical: LogicalBlock, nr: BlockNr) -> Found {
        let place = Place::Block { logical, nr, offset: entry.offset };
        Found { ino, kind: entry.kind, place }
    }
}

/// One directory, for the duration of one operation.
#[derive(Clone, Copy)]
pub(crate) struct Dir<'a> {
    /// The volume.
    pub(crate) volume: &'a Volume,
    /// The inode's number.
    pub(crate) ino: Ino,
    /// The inode's body; the caller holds the inode's lock.
    pub(crate) body: &'a Body,
    /// How its entries are stored.
    pub(crate) form: Form,
    /// How its blocks are laid out.
    pub(crate) format: DirFormat,
    /// The seed of the blocks' checksums; `None` without `metadata_csum`.
    pub(crate) seed: Option<u32>,
    /// The number of blocks; 0 if inline.
    pub(crate) blocks: u32,
}

impl<'a> FileRef<'a> {
    /// The directory. The caller holds its lock.
    ///
    /// Errors: `NotADirectory`; `DirectorySize` for a size that is impossible on this volume.
    pub(crate) fn dir(self) -> Result<Dir<'a>> {
        if self.body.file_kind() != FileKind::Directory {
            return Err(Error::NotADirectory);
        }
        let flags = self.body.disk.flags;
        let inline = self.body.disk.has_inline_data();
        let blocks =
            if inline { 0 } else { self.body.disk.size >> self.volume.block_size().log2() };
        // A directory has no holes, so it cannot have more blocks than the volume.
        if blocks > self.volume.geometry().blocks_count() || blocks > u64::from(u32::MAX - 1) {
            return Err(Site::of_ino(self.ino()).offset(4).corrupt(What::DirectorySize));
        }
        let form = match inline {
            true => Form::Inline,
            false if flags.contains(InodeFlags::INDEX) => Form::Indexed,
            false => Form::Linear,
        };
        Ok(Dir {
            volume: self.volume,
            ino: self.ino(),
            body: self.body,
            form,
            format: self.dir_format(),
            seed: self.body.seed(self.volume.context()),
            blocks: fits_u32(blocks),
        })
    }
}

impl FileRef<'_> {
    /// How the blocks of a directory are laid out.
    pub(crate) fn dir_format(self) -> DirFormat {
        let flags = self.body.disk.flags;
        let encrypted = flags.contains(InodeFlags::ENCRYPT);
        DirFormat {
            filetype: self.volume.has_incompat(Incompat::FILETYPE),
            checksums: self.volume.has_ro_compat(RoCompat::METADATA_CSUM),
            hash_words: encrypted && flags.contains(InodeFlags::CASEFOLD),
            opaque_names: encrypted,
            inodes_count: self.volume.geometry().inodes_count(),
        }
    }
}

impl<'a> Dir<'a> {
    /// The site of this directory, for errors.
    pub(crate) fn site(&self) -> Site {
        Site::of_ino(self.ino)
    }

    /// Whether names in this directory are compared without regard to case.
    pub(crate) fn folds(&self) -> bool {
        self.body.disk.flags.contains(InodeFlags::CASEFOLD)
    }

    /// Whether names in this directory are ciphertext.
    pub(crate) fn is_encrypted(&self) -> bool {
        self.body.disk.flags.contains(InodeFlags::ENCRYPT)
    }

    /// The entry called `name`, "." and ".." included; `None` if there is none.
    ///
    /// Errors: `NameTooLong`; `NameNotUtf8` if the directory requires UTF-8; `Corrupt`; `Device`.
    pub(crate) fn find(&self, name: &[u8]) -> Result<Option<Found>> {
        if name.len() > extant_ondisk::dirent::NAME_MAX && !self.is_encrypted() {
            return Err(Error::NameTooLong);
        }
        if name.is_empty() {
            return Ok(None);
        }
        let wanted = Wanted::new(self, name)?;
        match self.form {
            Form::Inline => inline::find(self, &wanted),
            Form::Linear => linear::find(self, &wanted),
            Form::Indexed => htree::find(self, &wanted),
        }
    }

    /// As [`Dir::find`]; `NotFound` if there is no entry.
    pub(crate) fn lookup(&self, name: &[u8]) -> Result<Found> {
        self.find(name)?.ok_or(Error::NotFound)
    }

    /// Block `at` of the directory; `None` for a hole.
    ///
    /// Errors: `ExtentUnwritten`; those of the map; `Device`.
    pub(crate) fn block(&self, at: LogicalBlock) -> Result<Option<MetaBlock>> {
        self.volume.file(self.body).content_block(at)
    }

    /// Reads up to `most` neighbouring blocks from `at` on into the cache, in one read.
    pub(crate) fn prefetch(&self, at: LogicalBlock, most: u32) {
        let limit = most.min(self.blocks.saturating_sub(at.0));
        if limit < 2 {
            return;
        }
        // Only a hint: an error recurs when the block itself is read.
        if let Ok(run) = self.volume.file(self.body).map(at, limit)
            && let Target::Written(first) = run.target
            && run.len > 1
        {
            let _ = self.volume.journal().cache().prefetch(first, run.len);
        }
    }
}
