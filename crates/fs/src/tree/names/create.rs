//! Creating a file with its first name, or without a name.
//!
//! ```text
//!   check the name, find its space ─► handle ─► number ─► content, default access list ─► slot
//!                                                                   │ failed          ─► name
//!                                                                   └► free number and blocks
//! ```

use super::hold::Held;
use super::{check_name, entry_kind};
use crate::inodes::create::NewInode;
use crate::inodes::fast_commit::Named;
use crate::state::inode::{Body, Inode};
use crate::tree::dir::insert::InsertPlace;
use crate::tree::names::Names;
use crate::volume::Volume;
use extant_base::{Error, Ino, Result};
use extant_journal::{Handle, Ineligible};
use extant_ondisk::inode::{DeviceNumber, FileKind};
use extant_ondisk::time::Timestamp;
use std::sync::Arc;
use std::sync::atomic::Ordering;

/// The longest symlink target that a system call accepts, in bytes.
const TARGET_MAX: usize = 4095;

/// The attributes of a new file.
///
/// # Examples
///
/// ```
/// use extant::NewFile;
/// let private = NewFile { mode: 0o600, uid: 1000, gid: 1000, ..NewFile::default() };
/// assert!(private.time.is_none());
/// ```
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NewFile {
    /// Permission bits, 0..=0o7777; a default access list of the directory reduces them. A symlink
    /// always gets 0o777.
    pub mode: u16,
    /// Bits that are removed from `mode` if the directory has no default access list.
    pub umask: u16,
    /// Owner.
    pub uid: u32,
    /// Group; replaced by the directory's group if the directory has the set-group-ID bit.
    pub gid: u32,
    /// The device number of a device file.
    pub device: Option<DeviceNumber>,
    /// Project; replaced by the directory's project if the directory passes it on.
    pub project: u32,
    /// The time for all four timestamps; `None` means the volume's clock.
    pub time: Option<Timestamp>,
}

/// A file of root that every user may read.
impl Default for NewFile {
    fn default() -> NewFile {
        NewFile { mode: 0o644, umask: 0, uid: 0, gid: 0, device: None, project: 0, time: None }
    }
}

impl NewFile {
    /// A directory of root that every user may enter and list.
    pub fn directory() -> NewFile {
        NewFile { mode: 0o755, ..NewFile::default() }
    }
}

/// The content of a new inode.
#[derive(Clone, Copy, Debug)]
pub(crate) enum Content<'a> {
    /// Nothing: a regular file, pipe, socket or device.
    Empty(FileKind),
    /// No names.
    Directory,
    /// A target.
    Symlink(&'a [u8]),
}

impl Content<'_> {
    fn kind(self) -> FileKind {
        match self {
            Content::Empty(kind) => kind,
            Content::Directory => FileKind::Directory,
            Content::Symlink(_) => FileKind::Symlink,
        }
    }

    fn check(self, volume: &Volume) -> Result<()> {
        match self {
            Content::Empty(FileKind::Directory | FileKind::Symlink) => {
                Err(Error::Invalid("neither a regular file, device, pipe nor socket"))
            }
            Content::Symlink([]) => Err(Error::NotFound),
            Content::Symlink(target)
                if target.len() > TARGET_MAX || target.len() >= volume.block_size().bytes() =>
            {
                Err(Error::NameTooLong)
            }
            Content::Symlink(target) if target.contains(&0) => {
                Err(Error::Invalid("a symlink target holds NUL"))
            }
            _ => Ok(()),
        }
    }
}

impl<'a> Names<'a> {
    /// Creates a file called `name` in directory `dir`.
    ///
    /// Errors: `Exists`, `NameTooLong`, `NotADirectory`; `NotFound` in a removed directory;
    /// `ReadOnly`; `NotPermitted` in an immutable directory; `LinkLimit`; `Encrypted`; `NoSpace`;
    /// `Invalid` for a device file without a device number; `Corrupt`, `Device`. After an error
    /// nothing has changed. Locks: takes `Inode` of the directory, then a handle.
    pub(crate) fn create(
        self,
        dir: &Inode,
        name: &[u8],
        content: Content<'_>,
        new: &NewFile,
    ) -> Result<Held<'a>> {
        let made =
            self.volume.space().with_space_retry(|| self.create_once(dir, name, content, new))?;
        self.volume.mount_state().sync_names_if_flagged(&[dir])?;
        Ok(made)
    }

    fn create_once(
        self,
        dir: &Inode,
        name: &[u8],
        content: Content<'_>,
        new: &NewFile,
    ) -> Result<Held<'a>> {
        content.check(self.volume)?;
        check_name(name)?;
        let mut body = dir.write();
        let place = self.insert_place(dir, &body, name)?;
        self.volume.context().check_writable()?;
        body.check_accepts_names()?;
        let directory = content.kind() == FileKind::Directory;
        if directory {
            self.check_subdirectory(&body)?;
        }
        let now = new.time.unwrap_or_else(|| self.volume.environment().now());
        let plan = self.inherit(dir.ino, &body, content.kind(), new, now)?;
        self.volume.quota_accounting().prepare(
            plan.inode.uid,
            plan.inode.gid,
            plan.inode.projid,
        )?;
        let handle = self.volume.journal().start(self.volume.credits().create(
            &body,
            content,
            &plan.lists,
            Some(&place),
        ))?;
        let (ino, made) = self.make(&handle, dir.ino, content, &plan.inode, &plan.lists)?;
        let inode = Arc::new(Inode::new(made));
        let mut made = inode.body.write_unshared();
        self.volume.inode_table().put(ino, &inode);
        let done = made
            .store(self.volume, &handle)
            .and_then(|()| self.insert_at(&handle, &mut body, place, name, ino, content));
        if let Err(error) = done {
            self.unmake(&handle, &mut made);
            handle.stop()?;
            return Err(error);
        }
        body.names_changed(now);
        let named = Named { parent: dir.ino, name, ino };
        self.volume.notes().note_named(&handle, &body, content.kind(), true, named);
        if directory {
            body.add_subdirectory(self.volume)?;
        }
        body.store(self.volume, &handle)?;
        handle.stop()?;
        drop(made);
        Ok(Held::new(self.volume, inode))
    }

    /// Creates a file without a name near directory `dir`. Unless it gets a name, it is released
    /// when its last holder drops it.
    ///
    /// Errors: as [`Names::create`], without those of the name.
    pub(crate) fn create_unnamed(self, dir: &Inode, new: &NewFile) -> Result<Held<'a>> {
        self.volume.context().check_writable()?;
        let content = Content::Empty(FileKind::Regular);
        let now = new.time.unwrap_or_else(|| self.volume.environment().now());
        let body = dir.write();
        body.check_directory()?;
        body.check_accepts_names()?;
        let plan = self.inherit(dir.ino, &body, FileKind::Regular, new, now)?;
        self.volume.quota_accounting().prepare(
            plan.inode.uid,
            plan.inode.gid,
            plan.inode.projid,
        )?;
        let handle = self.volume.journal().start(self.volume.credits().create(
            &body,
            content,
            &plan.lists,
            None,
        ))?;
        let (ino, made) = self.make(&handle, dir.ino, content, &plan.inode, &plan.lists)?;
        let inode = Arc::new(Inode::new(made));
        inode.unlinked.store(true, Ordering::Release);
        inode.nameable.store(true, Ordering::Release);
        let mut made = inode.body.write_unshared();
        made.disk.links = 0;
        self.volume.inode_table().put(ino, &inode);
        let done = self
            .volume
            .file_mut(&mut made)
            .orphan_add(&handle)
            .and_then(|()| made.store(self.volume, &handle));
        if let Err(error) = done {
            self.unmake(&handle, &mut made);
            handle.stop()?;
            return Err(error);
        }
        handle.stop()?;
        drop(made);
        Ok(Held::new(self.volume, inode))
    }

    /// Where `name` can be inserted in directory `dir`.
    ///
    /// Errors: `Exists`; `NotFound` in a removed directory; `Encrypted`.
    pub(super) fn insert_place(
        self,
        _dir: &Inode,
        body: &Body,
        name: &[u8],
    ) -> Result<InsertPlace> {
        body.check_directory()?;
        if matches!(name, b"." | b"..") {
            return Err(Error::Exists);
        }
        self.volume.file(body).dir_insert_place(name)
    }

    /// `LinkLimit` if the directory's link count cannot grow by a subdirectory.
    pub(super) fn check_subdirectory(self, body: &Body) -> Result<()> {
        body.clone().add_subdirectory(self.volume)
    }

    /// A new inode with its content and access lists, not stored yet. After an error nothing is
    /// left of it.
    pub(super) fn make(
        self,
        handle: &Handle<'_>,
        parent: Ino,
        content: Content<'_>,
        new: &NewInode,
        lists: &[super::inherit::List],
    ) -> Result<(Ino, Body)> {
        let (ino, mut body) = self.volume.inodes().allocate(handle, *new)?;
        let filled = match content {
            Content::Empty(_) => Ok(()),
            Content::Directory => self.volume.dir_mut(&mut body).init(handle, parent),
            Content::Symlink(target) => {
                self.volume.file_mut(&mut body).symlink_write(handle, target)
            }
        };
        let lists: Vec<_> = lists.iter().map(super::inherit::List::attribute).collect();
        let done = filled.and_then(|()| self.volume.xattrs_mut(&mut body).set_all(handle, &lists));
        match done {
            Ok(()) => Ok((ino, body)),
            Err(error) => {
                self.unmake(handle, &mut body);
                Err(error)
            }
        }
    }

    /// Releases an inode that never got a name.
    pub(super) fn unmake(self, handle: &Handle<'_>, body: &mut Body) {
        self.volume.context().require_full_commit(handle, Ineligible::LastLink);
        let undone = self
            .volume
            .file_mut(body)
            .orphan_remove(handle)
            .and_then(|()| self.volume.file_mut(body).release_inode(handle));
        if let Err(error) = undone {
            // The caller gets the first error; this one is only recorded.
            self.volume.context().note_error(&error);
        }
    }

    /// Inserts the name of a new inode at the place that was found for it.
    fn insert_at(
        self,
        handle: &Handle<'_>,
        body: &mut Body,
        place: InsertPlace,
        name: &[u8],
        ino: Ino,
        content: Content<'_>,
    ) -> Result<()> {
        self.volume.dir_mut(body).insert_at(handle, place, name, ino, entry_kind(content.kind()))
    }
}
