//! Filling a new volume at once: the engine with the journal off and allocation in order.
//!
//! ```text
//!   format ─► number every inode ─► directories ─► symlinks, devices, files' space ─► finish
//!             11, 12, 13, …          names known     front to back, no gaps
//! ```
//!
//! A volume that is discarded on failure needs no journal. The calls alone determine what is
//! written and where: the same calls make the same volume. File data is not handled here: the
//! loader reports the blocks, and the caller writes the data to them.

use crate::context::environment::Environment;
use crate::inodes::create::NewInode;
use crate::inodes::map::Target;
use crate::offline::mkfs::{Formatted, Made, MkfsOptions, format_open};
use crate::space::inodes::InodeGoal;
use crate::state::inode::Body;
use crate::tree::usage::Usage;
use crate::volume::Volume;
use extant_base::{BlockNr, Error, Ino, Result};
use extant_blockdev::BlockDevice;
use extant_journal::Credits;
use extant_ondisk::dirent::EntryKind;
use extant_ondisk::extent::ExtentState;
use extant_ondisk::features::{Incompat, RoCompat};
use extant_ondisk::inode::{DeviceNumber, FileKind, InodeFlags, LINK_MAX};
use extant_ondisk::time::Timestamp;
use extant_ondisk::xattr::NameIndex;
use std::borrow::Cow;
use std::cell::RefCell;
use std::sync::Arc;

pub use crate::tree::dir::pack::PackEntry;

/// An inode's attributes besides its content.
#[derive(Clone, Copy, Debug)]
pub struct Attributes<'a> {
    /// Permission bits, 0..=0o7777.
    pub mode: u16,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// The link count: for a directory 2, and one for each directory in it.
    pub nlink: u32,
    /// Last access.
    pub accessed: Timestamp,
    /// Last change of the content.
    pub modified: Timestamp,
    /// Last change of the inode.
    pub changed: Timestamp,
    /// Extended attributes: full name and value. Access control lists have the form of the system
    /// calls.
    pub xattrs: &'a [(&'a [u8], &'a [u8])],
}

/// Blocks of a file and where they are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Placed {
    /// First block in the file.
    pub logical: u32,
    /// First block on the device.
    pub physical: BlockNr,
    /// How many blocks.
    pub len: u32,
}

/// Loads a volume that it has just made. It is not shared between threads: the order of calls
/// determines the result.
pub struct Loader {
    formatted: Formatted,
    /// Usage of what was loaded so far, if the volume has quota.
    usage: RefCell<Usage>,
}

impl std::fmt::Debug for Loader {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Loader").finish_non_exhaustive()
    }
}

/// Computes the data checksums of a loaded volume, if it has the feature `data_csum`. Call it after
/// the blocks of all files are written.
///
/// # Errors
/// `Corrupt`; `NotSupported` for files that the feature does not allow; `Device`.
pub fn checksum_data(device: &Arc<dyn BlockDevice>) -> Result<()> {
    crate::inodes::data_csum::fill::fill(device)
}

impl Loader {
    /// Makes a volume on `device` and opens it for loading.
    ///
    /// # Errors
    /// As [`crate::offline::mkfs::format()`].
    pub fn format(
        device: Arc<dyn BlockDevice>,
        options: &MkfsOptions,
        environment: &Environment,
    ) -> Result<Loader> {
        let formatted = format_open(device, options, environment)?;
        formatted.volume.space().bulk().begin();
        Ok(Loader { formatted, usage: RefCell::default() })
    }

    fn volume(&self) -> &Volume {
        &self.formatted.volume
    }

    /// The volume as it is now.
    pub fn made(&self) -> Made {
        self.formatted.made()
    }

    /// Blocks in no use yet.
    pub fn free_blocks(&self) -> u64 {
        self.volume().space().free_clusters() << self.volume().geometry().log_cluster_ratio()
    }

    /// Whether an attribute of the greatest possible length could still be stored.
    fn has_space(&self) -> bool {
        let longest = self.volume().block_size().blocks_for(64 << 10) + 8;
        let inodes = self.volume().space().free_inodes();
        self.free_blocks() > longest && inodes > 0
    }

    /// Takes the next inode number. Every number taken must be given content.
    ///
    /// # Errors
    /// `NoSpace` when there are no more.
    pub fn number(&self, directory: bool) -> Result<Ino> {
        let handle = self.volume().journal().start(Credits::blocks(3))?;
        let ino = self.volume().space().allocate_inode(&handle, InodeGoal::InOrder, directory)?;
        handle.stop()?;
        Ok(ino)
    }

    /// Makes `ino` a directory below `parent` with these entries. The root keeps `lost+found` if
    /// the volume was made with one.
    ///
    /// `entries` contains no "." and "..", no name twice, in any order.
    ///
    /// # Errors
    /// `NoSpace`, `NameTooLong`, `Invalid`, `LinkLimit`.
    pub fn directory(
        &self,
        ino: Ino,
        parent: Ino,
        attributes: &Attributes<'_>,
        entries: &[PackEntry<'_>],
    ) -> Result<()> {
        let volume = self.volume();
        let handle = volume.journal().start(Credits::blocks(64))?;
        let mut body = self.fresh(ino, FileKind::Directory, attributes, None)?;
        let named = entries.len();
        let entries = self.with_lost_and_found(ino, entries)?;
        let links = attributes.nlink + u32::from(entries.len() > named);
        if ino == Ino::ROOT {
            let made = volume.inodes().read(ino)?;
            // Reuses the blocks that mkfs gave it.
            body.disk.i_block = made.disk.i_block;
            (body.disk.flags, body.disk.size) = (made.disk.flags, made.disk.size);
            (body.disk.sectors, body.disk.generation) = (made.disk.sectors, made.disk.generation);
        }
        volume.dir_mut(&mut body).pack(&handle, parent, &entries)?;
        let indexed = body.disk.flags.contains(InodeFlags::INDEX);
        body.disk.links = volume.inodes().directory_links(indexed, links.saturating_sub(2))?;
        self.finish_inode(&handle, body, attributes)
    }

    /// How many free blocks [`Loader::directory`] takes for these entries, before it is called: one
    /// block of the root is in use already. For volumes without `inline_data` and without clusters
    /// of several blocks.
    ///
    /// # Errors
    /// As [`Loader::directory`].
    pub fn directory_blocks(&self, ino: Ino, entries: &[PackEntry<'_>]) -> Result<u64> {
        let volume = self.volume();
        let root = volume.inodes().read(Ino::ROOT)?;
        let entries = self.with_lost_and_found(ino, entries)?;
        let blocks = volume.file(&root).dir()?.packed_blocks(&entries)?;
        Ok(blocks - u64::from(ino == Ino::ROOT))
    }

    /// The entries of the directory `ino` with lost+found, if it is the root and the volume was
    /// made with one.
    fn with_lost_and_found<'e>(
        &self,
        ino: Ino,
        entries: &'e [PackEntry<'e>],
    ) -> Result<Cow<'e, [PackEntry<'e>]>> {
        let volume = self.volume();
        let has_one = ino == Ino::ROOT && volume.inodes().read(ino)?.disk.links > 2;
        let kept = Ino::new(volume.at_open().first_ino).filter(|_| has_one);
        let kept =
            kept.map(|ino| PackEntry { name: b"lost+found", ino, kind: EntryKind::Directory });
        Ok(match kept {
            Some(kept) => Cow::Owned([entries, &[kept]].concat()),
            None => Cow::Borrowed(entries),
        })
    }

    /// Makes `ino` a regular file of `size` bytes with space for the blocks that `data` touches,
    /// and reports where they are.
    ///
    /// `data` are ranges of bytes, (offset, length), ascending.
    ///
    /// # Errors
    /// `NoSpace`, `FileTooLarge`.
    pub fn file(
        &self,
        ino: Ino,
        attributes: &Attributes<'_>,
        size: u64,
        data: &mut dyn Iterator<Item = (u64, u64)>,
        placed: &mut dyn FnMut(Placed),
    ) -> Result<()> {
        let volume = self.volume();
        let handle = volume.journal().start(Credits::blocks(64))?;
        let mut body = self.fresh(ino, FileKind::Regular, attributes, None)?;
        if size > body.disk.max_size(volume.inode_format()) {
            return Err(Error::FileTooLarge);
        }
        body.disk.size = size;
        let bs = volume.block_size();
        let mut done = 0;
        for (offset, len) in data {
            let end = offset.saturating_add(len).min(size);
            let first = u32::try_from(offset >> bs.log2()).map_err(|_| Error::FileTooLarge)?;
            let last = u32::try_from(bs.blocks_for(end)).map_err(|_| Error::FileTooLarge)?;
            // Two ranges may share a block.
            let range = first.max(done)..last;
            if range.is_empty() {
                continue;
            }
            done = last;
            volume.file_mut(&mut body).fill(&handle, range, ExtentState::Written, &mut |run| {
                if let Target::Written(physical) = run.target {
                    placed(Placed { logical: run.logical.0, physical, len: run.len });
                }
                Ok(())
            })?;
        }
        if size > i32::MAX as u64 {
            volume.context().add_ro_compat(&handle, RoCompat::LARGE_FILE)?;
        }
        self.finish_inode(&handle, body, attributes)
    }

    /// Makes `ino` a regular file whose content is in the inode, if the volume has `inline_data`
    /// and the content fits. Returns whether it did; if not, nothing has changed.
    ///
    /// # Errors
    /// `NoSpace`.
    pub fn inline_file(
        &self,
        ino: Ino,
        attributes: &Attributes<'_>,
        content: &[u8],
    ) -> Result<bool> {
        let volume = self.volume();
        let handle = volume.journal().start(Credits::blocks(64))?;
        let mut body = self.fresh(ino, FileKind::Regular, attributes, None)?;
        if !volume.inline_mut(&mut body).write(content)? {
            return Ok(false);
        }
        self.finish_inode(&handle, body, attributes)?;
        Ok(true)
    }

    /// Whether small files can be stored in their inodes.
    pub fn has_inline_data(&self) -> bool {
        self.volume().has_incompat(Incompat::INLINE_DATA)
    }

    /// Makes `ino` a symbolic link to `target`.
    ///
    /// # Errors
    /// `NameTooLong` when the target does not fit a block; `NoSpace`.
    pub fn symlink(&self, ino: Ino, attributes: &Attributes<'_>, target: &[u8]) -> Result<()> {
        let volume = self.volume();
        let handle = volume.journal().start(Credits::blocks(64))?;
        let mut body = self.fresh(ino, FileKind::Symlink, attributes, None)?;
        volume.file_mut(&mut body).symlink_write(&handle, target)?;
        self.finish_inode(&handle, body, attributes)
    }

    /// Makes `ino` a device, pipe or socket.
    ///
    /// # Errors
    /// `Invalid` for another kind, or numbers that the format cannot hold.
    pub fn special(
        &self,
        ino: Ino,
        attributes: &Attributes<'_>,
        kind: FileKind,
        device: DeviceNumber,
    ) -> Result<()> {
        let handle = self.volume().journal().start(Credits::blocks(64))?;
        let device = match kind {
            FileKind::CharDevice | FileKind::BlockDevice => Some(device),
            FileKind::Fifo | FileKind::Socket => None,
            _ => return Err(Error::Invalid("neither a device, a pipe nor a socket")),
        };
        let body = self.fresh(ino, kind, attributes, device)?;
        self.finish_inode(&handle, body, attributes)
    }

    /// Stores quota usage, updates the superblock and makes all metadata durable. Returns the
    /// volume's final state.
    ///
    /// # Errors
    /// `NoSpace` when the quota files do not fit; `Device`.
    pub fn finish(self) -> Result<Made> {
        let volume = self.volume();
        if volume.quota_accounting().has_quota() {
            let mut usage = self.usage.take();
            // It was not loaded, but it exists if the root still names it.
            let lost =
                Ino::new(volume.at_open().first_ino).filter(|_| self.formatted.lost_and_found);
            if let Some(lost) = lost {
                usage.charge(volume.file(&volume.inodes().read(lost)?))?;
            }
            volume.quota_accounting().write_quota_files(&usage)?;
        }
        volume.space().bulk().end();
        let made = self.formatted.made();
        self.formatted.finish()?;
        Ok(made)
    }

    fn fresh(
        &self,
        ino: Ino,
        kind: FileKind,
        attributes: &Attributes<'_>,
        rdev: Option<DeviceNumber>,
    ) -> Result<Body> {
        let mut body = self.volume().inodes().new_body(
            ino,
            &NewInode {
                goal: InodeGoal::InOrder,
                mode: kind.mode_bits() | attributes.mode & 0o7777,
                uid: attributes.uid,
                gid: attributes.gid,
                atime: attributes.accessed,
                ctime: attributes.changed,
                mtime: attributes.modified,
                crtime: attributes.modified,
                flags: InodeFlags::empty(),
                rdev,
                projid: 0,
                generation: None,
            },
        )?;
        if kind != FileKind::Directory {
            let links = u16::try_from(attributes.nlink).ok().filter(|&links| links <= LINK_MAX);
            body.disk.links = links.ok_or(Error::LinkLimit)?;
        }
        Ok(body)
    }

    fn finish_inode(
        &self,
        handle: &extant_journal::Handle<'_>,
        mut body: Body,
        attributes: &Attributes<'_>,
    ) -> Result<()> {
        let volume = self.volume();
        if !attributes.xattrs.is_empty() {
            let list: Vec<_> = attributes
                .xattrs
                .iter()
                .map(|&(name, value)| {
                    let unknown =
                        Error::NotSupported("an attribute in a namespace that ext4 does not have");
                    let (index, name) = NameIndex::split(name).ok_or(unknown)?;
                    Ok((index, name, value))
                })
                .collect::<Result<_>>()?;
            volume.xattrs_mut(&mut body).set_all(handle, &list).map_err(|error| {
                // Either the volume is full, or the inode and its block are.
                match error {
                    Error::NoSpace if self.has_space() => Error::NotSupported(
                        "the attributes do not fit an inode and one block: use the ea_inode feature",
                    ),
                    error => error,
                }
            })?;
        }
        if volume.quota_accounting().has_quota() {
            self.usage.borrow_mut().charge(volume.file(&body))?;
        }
        body.store(volume, handle)
    }
}
