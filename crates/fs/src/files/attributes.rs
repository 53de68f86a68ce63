//! Changing a file's metadata: mode, owner, times, flags, project, size.
//!
//! ```text
//!   SetAttributes ──check everything──► size ──► fields ──► store        all of it or none
//!                                                  │
//!                    access list ◄── mode ─────────┤      chmod rewrites owner, mask, other
//!                    set-id bits off ◄── owner ────┤      unless the mode is given too
//!                    quota ◄── owner, project ─────┘
//! ```
//!
//! The caller's rights are not checked here; the front end that serves other users checks them.
//! What an inode's flags forbid is refused for every caller. Source: chattr(1), chmod(2), chown(2),
//! utimensat(2), inode(7).

use crate::files::FileIo;
use crate::files::file::set_len::is_unmapped;
use crate::inodes::file::{FileMut, FileRef};
use crate::inodes::map::credits::FileCredits;
use crate::volume::DataMode;
use extant_base::{Error, Result};
use extant_journal::{Credits, Handle, Ineligible};
use extant_ondisk::acl::Acl;
use extant_ondisk::features::{Incompat, RoCompat};
use extant_ondisk::inode::{FileKind, INODE_SIZE_MIN, InodeFlags};
use extant_ondisk::time::Timestamp;
use extant_ondisk::xattr::NameIndex;

/// Which metadata of a file to change. A field that is `None` is left as it is.
///
/// # Examples
///
/// ```
/// # let _here = extant_guide_tests::with_image();
/// use extant::{OpenOptions, SetAttributes};
/// let fs = OpenOptions::new().write(true).open("disk.img")?;
/// let private = SetAttributes { mode: Some(0o600), uid: Some(0), ..Default::default() };
/// fs.set_attributes("/etc/shadow", &private)?;
/// # Ok::<(), extant::Error>(())
/// ```
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SetAttributes {
    /// Permission bits, 0..=0o7777; other bits are ignored.
    pub mode: Option<u16>,
    /// Owner.
    pub uid: Option<u32>,
    /// Group.
    pub gid: Option<u32>,
    /// Size in bytes, of a regular file.
    pub size: Option<u64>,
    /// Last access.
    pub accessed: Option<Timestamp>,
    /// Last change of the content.
    pub modified: Option<Timestamp>,
    /// Whether `accessed` and `modified` are the present time, as `touch` sets it. An append-only
    /// file accepts only such times.
    pub touch: bool,
    /// Last change of the inode; `None` means now.
    pub changed: Option<Timestamp>,
    /// The flags that `chattr` may change. The other flags are left as they are.
    pub flags: Option<InodeFlags>,
    /// Project.
    pub project: Option<u32>,
}

/// Set-user-ID.
const SUID: u16 = 0o4000;
/// Set-group-ID, if the group may execute.
const SGID: u16 = 0o2000;
const GROUP_EXEC: u16 = 0o010;

/// Flags that a caller may pass at all.
const VISIBLE: InodeFlags = InodeFlags::from_bits_retain(0x725B_DFFF);
/// Flags that a caller may change.
const MODIFIABLE: InodeFlags = InodeFlags::SECRM
    .union(InodeFlags::UNRM)
    .union(InodeFlags::COMPR)
    .union(InodeFlags::SYNC)
    .union(InodeFlags::IMMUTABLE)
    .union(InodeFlags::APPEND)
    .union(InodeFlags::NODUMP)
    .union(InodeFlags::NOATIME)
    .union(InodeFlags::JOURNAL_DATA)
    .union(InodeFlags::NOTAIL)
    .union(InodeFlags::DIRSYNC)
    .union(InodeFlags::TOPDIR)
    .union(InodeFlags::EXTENTS)
    .union(InodeFlags::DAX)
    .union(InodeFlags::PROJINHERIT)
    .union(InodeFlags::CASEFOLD);
/// Flags that only directories have.
const OF_DIRECTORIES: InodeFlags = InodeFlags::DIRSYNC
    .union(InodeFlags::TOPDIR)
    .union(InodeFlags::CASEFOLD)
    .union(InodeFlags::PROJINHERIT);
/// Flags that files other than regular files and directories can have.
const OF_OTHERS: InodeFlags = InodeFlags::NODUMP.union(InodeFlags::NOATIME);
/// How many bytes beyond the first 128 an inode needs to store a project.
const PROJECT_EXTRA: u16 = 32;

impl FileIo<'_> {
    /// See [`Filesystem::set_attributes`](crate::Filesystem::set_attributes). Locks: takes `Write`,
    /// `WriteBack`, `Inode`, then handles.
    pub(crate) fn set_attributes(self, changes: &SetAttributes) -> Result<()> {
        self.change_attributes(changes)?;
        self.sync_if_flagged()
    }

    fn change_attributes(self, changes: &SetAttributes) -> Result<()> {
        self.volume.context().check_writable()?;
        // No other I/O may run while the kind of storage or the size changes.
        let mut body = match changes.flags {
            Some(_) => self.settle(0..u64::MAX)?,
            None => self.quiesce(),
        };
        let body = &mut *body;
        let flags = self.volume.file(body).check_attributes(changes)?;
        if let Some(size) = changes.size {
            self.volume.file(body).check_resizable(size)?;
            self.volume.file_mut(body).resize_file(size)?;
        }
        if flags.is_some_and(|flags| !flags.contains(InodeFlags::JOURNAL_DATA))
            && body.flags.contains(InodeFlags::JOURNAL_DATA)
            && self.volume.data_mode() != DataMode::Journal
        {
            self.volume.file_mut(body).leave_journal()?;
        }
        if let Some(flags) = flags
            && (flags ^ body.flags).contains(InodeFlags::EXTENTS)
        {
            self.volume.file_mut(body).migrate(flags.contains(InodeFlags::EXTENTS))?;
        }
        let (uid, gid) = (changes.uid.unwrap_or(body.uid), changes.gid.unwrap_or(body.gid));
        let project = changes.project.unwrap_or(body.projid);
        self.volume
            .space()
            .with_space_retry(|| self.volume.quota_accounting().prepare(uid, gid, project))?;
        let handle = self.volume.journal().start(self.volume.credits_of(body).attributes()?)?;
        if body.file_kind() == FileKind::Directory {
            self.volume.context().require_full_commit(&handle, Ineligible::Flags);
        }
        let done = self.volume.file_mut(body).apply(&handle, changes, flags);
        self.inode.note_sync(body);
        // Store the body even after an error: it records where the attributes are now.
        body.store(self.volume, &handle)?;
        handle.stop()?;
        done
    }

    /// See [`Node::set_generation`](crate::Node::set_generation). Locks: takes `Inode`, then a
    /// handle.
    pub(crate) fn set_generation(self, generation: u32) -> Result<()> {
        self.volume.context().check_writable()?;
        if self.volume.has_ro_compat(RoCompat::METADATA_CSUM) {
            return Err(Error::NotSupported("another generation on a volume with metadata_csum"));
        }
        let mut body = self.inode.write();
        let handle = self.volume.journal().start(Credits::blocks(self.volume.credits().store()))?;
        self.volume.context().require_full_commit(&handle, Ineligible::Flags);
        body.generation = generation;
        body.ctime = self.volume.environment().now();
        body.store(self.volume, &handle)?;
        handle.stop()
    }

    /// See [`Node::set_accessed`](crate::Node::set_accessed). Locks: takes `Inode`, then a handle.
    pub(crate) fn set_accessed(self, time: Timestamp) -> Result<()> {
        self.volume.context().check_writable()?;
        let mut body = self.inode.write();
        if body.links == 0 || body.atime == time {
            return Ok(());
        }
        let handle = self.volume.journal().start(Credits::blocks(self.volume.credits().store()))?;
        body.atime = time;
        body.store(self.volume, &handle)?;
        handle.stop()
    }
}

impl FileRef<'_> {
    /// Checks that all of `changes` is possible. Returns the resulting flags.
    fn check_attributes(self, changes: &SetAttributes) -> Result<Option<InodeFlags>> {
        let flags = match changes.flags {
            Some(wanted) => Some(self.check_flags(wanted)?),
            None => None,
        };
        if let Some(projid) = changes.project {
            self.check_project(projid)?;
        }
        let symlink = self.body.file_kind() == FileKind::Symlink;
        if changes.mode.is_some() && symlink {
            return Err(Error::NotSupported("a symlink has no mode of its own"));
        }
        let others = changes.mode.is_some()
            || changes.uid.is_some()
            || changes.gid.is_some()
            || changes.project.is_some_and(|projid| projid != self.body.projid)
            || changes.size.is_some();
        let times = changes.accessed.is_some() || changes.modified.is_some();
        let fixed = self.body.flags & (InodeFlags::IMMUTABLE | InodeFlags::APPEND);
        if fixed.contains(InodeFlags::IMMUTABLE) && (others || times) {
            return Err(Error::NotPermitted);
        }
        if fixed.contains(InodeFlags::APPEND) && (others || times && !changes.touch) {
            return Err(Error::NotPermitted);
        }
        if changes.size.is_some() {
            match self.body.file_kind() {
                FileKind::Regular => {}
                FileKind::Directory => return Err(Error::IsADirectory),
                _ => return Err(Error::Invalid("only a regular file has a size to set")),
            }
        }
        Ok(flags)
    }

    /// The flags that the file has after a caller asked for `wanted`.
    fn check_flags(self, wanted: InodeFlags) -> Result<InodeFlags> {
        let visible = match self.volume.data_checksums().has_data_csum() {
            true => VISIBLE | InodeFlags::NOCOW,
            false => VISIBLE,
        };
        if !visible.contains(wanted) {
            return Err(Error::NotSupported("a flag that cannot be set"));
        }
        if self.volume.inodes().is_hidden(self.ino()) {
            return Err(Error::NotPermitted);
        }
        let kind = self.body.file_kind();
        let wanted = match kind {
            FileKind::Directory => wanted,
            FileKind::Regular => wanted.difference(OF_DIRECTORIES),
            _ => wanted & OF_OTHERS,
        };
        let old = self.body.flags;
        let modifiable = visible & (MODIFIABLE | InodeFlags::NOCOW);
        let new = old.difference(modifiable) | wanted & modifiable;
        // Other kinds of file keep the flags that cannot be requested for them.
        let new = match kind {
            FileKind::Regular | FileKind::Directory => new,
            _ => old.difference(OF_OTHERS) | wanted & OF_OTHERS,
        };
        let changed = old ^ new;
        if old.contains(InodeFlags::IMMUTABLE)
            && new.contains(InodeFlags::IMMUTABLE)
            && !changed.is_empty()
        {
            return Err(Error::NotPermitted);
        }
        if self.volume.data_checksums().has_data_csum() && kind == FileKind::Regular {
            let is_empty =
                self.body.size == 0 && (self.body.disk.has_inline_data() || is_unmapped(self.body));
            if changed.contains(InodeFlags::NOCOW) && !is_empty {
                return Err(Error::NotSupported("a change of NOCOW on a file with content"));
            }
            if changed.contains(InodeFlags::EXTENTS) {
                return Err(Error::NotSupported("another kind of map on a volume with data_csum"));
            }
        }
        if self.volume.data_checksums().has_data_csum()
            && (changed & new).contains(InodeFlags::JOURNAL_DATA)
        {
            return Err(Error::NotSupported("journaled data on a volume with data_csum"));
        }
        if changed.contains(InodeFlags::CASEFOLD) {
            if !self.volume.has_incompat(Incompat::CASEFOLD) {
                return Err(Error::NotSupported("casefold on a volume without that feature"));
            }
            if self.body.file_kind() == FileKind::Directory && !self.dir()?.is_empty()? {
                return Err(Error::NotEmpty);
            }
        }
        let dax = new.contains(InodeFlags::DAX) && changed.contains(InodeFlags::DAX);
        let not_with_dax = InodeFlags::ENCRYPT | InodeFlags::VERITY | InodeFlags::JOURNAL_DATA;
        if dax && new.intersects(not_with_dax) {
            return Err(Error::NotSupported("DAX for a file whose bytes are transformed"));
        }
        Ok(new)
    }

    fn check_project(self, projid: u32) -> Result<()> {
        let has_field = self.volume.geometry().inode_size() > INODE_SIZE_MIN
            && self.body.extra_isize >= PROJECT_EXTRA;
        match self.volume.has_ro_compat(RoCompat::PROJECT) && has_field {
            true => Ok(()),
            false if projid == 0 => Ok(()),
            false => Err(Error::NotSupported("a project on this volume or inode")),
        }
    }
}

impl FileCredits<'_> {
    /// Credits for the inode and its attributes: an access list may change with the mode, and the
    /// quota files with the owner.
    fn attributes(self) -> Result<Credits> {
        let mut credits = self.volume.xattrs(self.body).credits(0)?;
        credits.blocks += self.volume.quota_accounting().credits(1);
        Ok(credits)
    }
}

impl FileMut<'_> {
    /// Changes the access list first, which can fail, and then the body, which cannot. After an
    /// error the body's fields are unchanged, and what the body records about its attributes is
    /// what is stored.
    fn apply(
        &mut self,
        handle: &Handle<'_>,
        changes: &SetAttributes,
        flags: Option<InodeFlags>,
    ) -> Result<()> {
        if let Some(mode) = changes.mode {
            self.chmod_list(handle, mode & 0o777)?;
        }
        if (changes.uid.is_some() || changes.gid.is_some())
            && self.body.file_kind() != FileKind::Directory
        {
            let mut drop = SUID;
            if self.body.mode & GROUP_EXEC != 0 {
                drop |= SGID;
            }
            self.body.mode &= !drop;
        }
        self.body.uid = changes.uid.unwrap_or(self.body.uid);
        self.body.gid = changes.gid.unwrap_or(self.body.gid);
        self.body.projid = changes.project.unwrap_or(self.body.projid);
        if let Some(mode) = changes.mode {
            self.body.mode = self.body.mode & !0o7777 | mode & 0o7777;
        }
        self.body.atime = changes.accessed.unwrap_or(self.body.atime);
        self.body.mtime = changes.modified.unwrap_or(self.body.mtime);
        self.body.flags = flags.unwrap_or(self.body.flags);
        if *changes != SetAttributes::default() {
            self.body.ctime = changes.changed.unwrap_or_else(|| self.volume.environment().now());
        }
        Ok(())
    }

    /// Changes the access list, if there is one, to match these permissions.
    ///
    /// On success the body's mode may already be changed, too. Errors: those of changing an
    /// attribute.
    fn chmod_list(&mut self, handle: &Handle<'_>, permissions: u16) -> Result<()> {
        let Some(value) = self.volume.xattrs(self.body).stored(NameIndex::ACL_ACCESS, b"")? else {
            return Ok(());
        };
        let mut acl = Acl::from_disk(&value, extant_base::Site::of_ino(self.ino()))?;
        acl.chmod(permissions);
        let list = acl.to_call();
        self.volume.xattrs_mut(self.body).set_all(handle, &[(NameIndex::ACL_ACCESS, b"", &list)])
    }
}
