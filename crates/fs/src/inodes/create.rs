//! Creating inodes: a number, a whole slot, and content that lies in the inode itself.
//!
//! ```text
//!   new_inode ──► number marked as used, fields set, links 1 (directories 2), empty map
//!       │
//!       ├─ regular     blocks by the writer, or `inline_write`
//!       ├─ directory   `dir_init` or `dir_pack`
//!       ├─ symlink     `symlink_write`: up to 59 bytes in i_block, else one block
//!       └─ device      the number in i_block; pipes and sockets hold nothing
//! ```
//!
//! The table block does not change before the caller stores the body. Source: ext4 documentation,
//! "Index Nodes".

use crate::inodes::Inodes;
use crate::inodes::file::FileMut;
use crate::inodes::map::Target;
use crate::space::inodes::InodeGoal;
use crate::state::inode::Body;
use crate::volume::Volume;
use extant_base::{BlockNr, Error, Ino, Result};
use extant_journal::Handle;
use extant_ondisk::extent::{ExtentNodeMut, ExtentState};
use extant_ondisk::features::{Incompat, RoCompat};
use extant_ondisk::inode::{
    DeviceNumber, FileKind, I_BLOCK_SIZE, Inode as DiskInode, InodeFlags, LINK_MAX,
};
use extant_ondisk::time::Timestamp;

/// The smallest `i_extra_isize` of an inode with a birth time.
const CRTIME_EXTRA: u16 = 24;

/// An inode to create.
#[derive(Clone, Copy, Debug)]
pub(crate) struct NewInode {
    /// The goal of its number.
    pub(crate) goal: InodeGoal,
    /// Kind and permissions.
    pub(crate) mode: u16,
    /// Owner.
    pub(crate) uid: u32,
    /// Group.
    pub(crate) gid: u32,
    /// Access time.
    pub(crate) atime: Timestamp,
    /// Change time.
    pub(crate) ctime: Timestamp,
    /// Modification time.
    pub(crate) mtime: Timestamp,
    /// Birth time; dropped if the inode has no space for it.
    pub(crate) crtime: Timestamp,
    /// The caller's flags, inherited ones included; the flags of the map are added.
    pub(crate) flags: InodeFlags,
    /// The device, for device files.
    pub(crate) rdev: Option<DeviceNumber>,
    /// Project.
    pub(crate) projid: u32,
    /// Generation; `None`: a random one.
    pub(crate) generation: Option<u32>,
}

impl NewInode {
    /// An inode of `mode` at `goal`, owned by root, with all its times `now`.
    pub(crate) fn at(goal: InodeGoal, mode: u16, now: Timestamp) -> NewInode {
        NewInode {
            goal,
            mode,
            uid: 0,
            gid: 0,
            atime: now,
            ctime: now,
            mtime: now,
            crtime: now,
            flags: InodeFlags::empty(),
            rdev: None,
            projid: 0,
            generation: None,
        }
    }
}

impl Inodes<'_> {
    /// Allocates an inode number and returns its new body: links 1 (2 for a directory), no content,
    /// no attributes.
    ///
    /// The caller fills the body and stores it; until then the slot keeps its old content. Spends 3
    /// credits; storing spends one more. Errors: `NoSpace`, `QuotaExceeded`; `Invalid` for a mode
    /// without a kind, a device file without a device or with one that does not fit; `Device`.
    /// Locks: takes `Group`.
    pub(crate) fn allocate(self, handle: &Handle<'_>, new: NewInode) -> Result<(Ino, Body)> {
        let disk = self.new_fields(&new)?;
        self.volume.quota_accounting().check_new(&disk)?;
        let ino = self.volume.space().allocate_inode(handle, new.goal, disk.is_dir())?;
        Ok((ino, Body::fresh(self.volume.context(), ino, disk)))
    }

    /// The body of [`Inodes::allocate`] for a number that was allocated before.
    ///
    /// Errors: `Invalid`, as there.
    pub(crate) fn new_body(self, ino: Ino, new: &NewInode) -> Result<Body> {
        Ok(Body::fresh(self.volume.context(), ino, self.new_fields(new)?))
    }

    /// The fields of a new inode.
    fn new_fields(self, new: &NewInode) -> Result<DiskInode> {
        let kind = FileKind::from_mode(new.mode).ok_or(Error::Invalid("a mode without a kind"))?;
        let i_block = match kind {
            FileKind::CharDevice | FileKind::BlockDevice => {
                let encoded = new.rdev.and_then(DeviceNumber::encode);
                encoded.ok_or(Error::Invalid("a device file needs a device number that fits"))?
            }
            _ => [0; I_BLOCK_SIZE],
        };
        let extra_isize = self.volume.inode_format().want_extra_isize();
        let directory = kind == FileKind::Directory;
        // These flags depend on the inode's content and are set here or later.
        let format_flags = InodeFlags::EXTENTS
            | InodeFlags::INLINE_DATA
            | InodeFlags::INDEX
            | InodeFlags::HUGE_FILE;
        let mut disk = DiskInode {
            mode: new.mode,
            uid: new.uid,
            gid: new.gid,
            atime: new.atime,
            ctime: new.ctime,
            mtime: new.mtime,
            crtime: (extra_isize >= CRTIME_EXTRA).then_some(new.crtime),
            links: if directory { 2 } else { 1 },
            flags: new.flags.difference(format_flags),
            i_block,
            generation: new.generation.unwrap_or_else(|| self.volume.environment().next_u32()),
            extra_isize,
            projid: if self.volume.has_ro_compat(RoCompat::PROJECT) { new.projid } else { 0 },
            ..DiskInode::default()
        };
        if matches!(kind, FileKind::Regular | FileKind::Directory | FileKind::Symlink) {
            self.init_map(&mut disk);
        }
        Ok(disk)
    }

    /// Makes the map of an inode empty: an extent root if the volume has extents, else no pointers.
    pub(crate) fn init_map(self, disk: &mut DiskInode) {
        disk.i_block = [0; I_BLOCK_SIZE];
        if self.volume.has_incompat(Incompat::EXTENTS) {
            disk.flags |= InodeFlags::EXTENTS;
            ExtentNodeMut::init(&mut disk.i_block, 0);
        } else {
            disk.flags.remove(InodeFlags::EXTENTS);
        }
    }
}

impl FileMut<'_> {
    /// Stores a symlink's target: in the inode up to 59 bytes, else in one block of its own.
    ///
    /// The caller stores the inode. Errors: `Invalid` for an empty target or one with NUL;
    /// `NameTooLong` for a target of a block's size or more; `NoSpace`, `Device`. Locks: the
    /// inode's is held; takes `Group`.
    pub(crate) fn symlink_write(&mut self, handle: &Handle<'_>, target: &[u8]) -> Result<()> {
        if target.is_empty() || target.contains(&0) {
            return Err(Error::Invalid("a symlink target is empty or holds NUL"));
        }
        if target.len() >= self.volume.block_size().bytes() {
            return Err(Error::NameTooLong);
        }
        if target.len() < I_BLOCK_SIZE {
            self.body.disk.flags.remove(InodeFlags::EXTENTS);
            self.body.disk.i_block = [0; I_BLOCK_SIZE];
            self.body.disk.i_block[..target.len()].copy_from_slice(target);
        } else {
            self.write_content(handle, target)?;
        }
        self.body.disk.size = target.len() as u64;
        Ok(())
    }

    /// Writes `content` from block 0 on into new blocks that the engine treats as metadata. The
    /// caller sets the size.
    ///
    /// Errors: `NoSpace` (then the map is empty again), `Device`.
    pub(crate) fn write_content(&mut self, handle: &Handle<'_>, content: &[u8]) -> Result<()> {
        let size = self.volume.block_size();
        let blocks = u32::try_from(size.blocks_for(content.len() as u64));
        let blocks = blocks.map_err(|_| Error::FileTooLarge)?;
        let mut parts = content.chunks(size.bytes());
        let filled = self.fill(handle, 0..blocks, ExtentState::Written, &mut |run| {
            let Target::Written(first) = run.target else {
                return Err(Error::Invalid("content is written to new blocks"));
            };
            for (n, part) in (0..u64::from(run.len)).zip(&mut parts) {
                let block = self.volume.journal().cache().get_new(BlockNr(first.0 + n))?;
                let block = block.write(handle)?;
                block.bytes_mut()[..part.len()].copy_from_slice(part);
            }
            Ok(())
        });
        if let Err(error) = filled {
            self.unmap_content(handle, 0)?;
            return Err(error);
        }
        Ok(())
    }
}

impl Body {
    /// Counts one more name of this inode.
    ///
    /// Errors: `LinkLimit` at 65000.
    pub(crate) fn add_link(&mut self) -> Result<()> {
        if self.disk.links >= LINK_MAX {
            return Err(Error::LinkLimit);
        }
        self.disk.links += 1;
        Ok(())
    }

    /// Counts one more subdirectory of this directory. Beyond 65000 links, an indexed directory of
    /// a volume with `dir_nlink` has 1 link, which means "many", and keeps it.
    ///
    /// Errors: `LinkLimit` for others.
    pub(crate) fn add_subdirectory(&mut self, volume: &Volume) -> Result<()> {
        if self.disk.links == 1 {
            return Ok(());
        }
        let indexed = self.disk.flags.contains(InodeFlags::INDEX);
        let subdirectories = u32::from(self.disk.links).saturating_sub(2) + 1;
        self.disk.links = volume.inodes().directory_links(indexed, subdirectories)?;
        Ok(())
    }

    /// Counts one subdirectory less.
    pub(crate) fn drop_subdirectory(&mut self) {
        if self.disk.links > 2 {
            self.disk.links -= 1;
        }
    }
}

impl Inodes<'_> {
    /// The links of a directory with `subdirectories` subdirectories.
    ///
    /// Errors: `LinkLimit` beyond 64998 of them, unless the directory is indexed and the volume has
    /// `dir_nlink`: then 1.
    pub(crate) fn directory_links(self, indexed: bool, subdirectories: u32) -> Result<u16> {
        match u16::try_from(subdirectories.saturating_add(2)) {
            Ok(links) if links <= LINK_MAX => Ok(links),
            _ if indexed && self.volume.has_ro_compat(RoCompat::DIR_NLINK) => Ok(1),
            _ => Err(Error::LinkLimit),
        }
    }
}
