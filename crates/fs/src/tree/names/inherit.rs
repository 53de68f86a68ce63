//! What a new file inherits from its directory.
//!
//! ```text
//!   set-group-ID     the group; a new directory also gets the bit
//!   PROJINHERIT      the project
//!   flags            the flags that are inherited: fewer for files than for directories
//!   default list     access list and mode; a new directory also gets the default list
//! ```

use super::create::NewFile;
use crate::inodes::create::NewInode;
use crate::space::inodes::InodeGoal;
use crate::state::inode::Body;
use crate::tree::names::Names;
use crate::tree::xattr::change::NewAttribute;
use extant_base::{Error, Ino, Result};
use extant_ondisk::acl::Acl;
use extant_ondisk::inode::{FileKind, InodeFlags};
use extant_ondisk::time::Timestamp;
use extant_ondisk::xattr::NameIndex;

const SET_GROUP_ID: u16 = 0o2000;
const DEFAULT_LIST: &[u8] = b"system.posix_acl_default";

/// The fields and access lists of an inode to create.
pub(super) struct Plan {
    pub(super) inode: NewInode,
    pub(super) lists: Vec<List>,
}

/// An access list of a new inode, in the format of the system calls.
pub(super) struct List {
    index: NameIndex,
    value: Vec<u8>,
}

impl List {
    pub(super) fn attribute(&self) -> NewAttribute<'_> {
        (self.index, b"", &self.value)
    }

    /// Length in bytes.
    pub(super) fn len(&self) -> usize {
        self.value.len()
    }
}

impl Names<'_> {
    /// The plan for a new inode of `kind` in directory `dir`.
    ///
    /// Errors: `Corrupt` if the directory's default list is malformed; `Encrypted` in an encrypted
    /// directory, because its key is not known.
    pub(super) fn inherit(
        self,
        dir: Ino,
        body: &Body,
        kind: FileKind,
        new: &NewFile,
        now: Timestamp,
    ) -> Result<Plan> {
        if body.disk.flags.contains(InodeFlags::ENCRYPT) {
            return Err(Error::Encrypted);
        }
        let goal = match kind {
            FileKind::Directory => InodeGoal::Directory { parent: dir },
            _ => InodeGoal::Other { parent: dir },
        };
        let mut mode = match kind {
            FileKind::Symlink => 0o777,
            _ => new.mode & 0o7777,
        };
        let mut gid = new.gid;
        if body.disk.mode & SET_GROUP_ID != 0 {
            gid = body.disk.gid;
            if kind == FileKind::Directory {
                mode |= SET_GROUP_ID;
            }
        }
        let lists = self.inherited_lists(dir, body, kind, new.umask, &mut mode)?;
        let inherits_project = body.disk.flags.contains(InodeFlags::PROJINHERIT);
        let projid = if inherits_project { body.disk.projid } else { new.project };
        let inode = NewInode {
            uid: new.uid,
            gid,
            projid,
            flags: body.disk.flags.inherited_by(kind),
            rdev: new.device,
            ..NewInode::at(goal, kind.mode_bits() | mode, now)
        };
        Ok(Plan { inode, lists })
    }

    /// The access lists that follow from the directory's default list, which also reduces `mode`.
    /// Without a default list, `umask` reduces `mode`.
    fn inherited_lists(
        self,
        _dir: Ino,
        body: &Body,
        kind: FileKind,
        umask: u16,
        mode: &mut u16,
    ) -> Result<Vec<List>> {
        if kind == FileKind::Symlink {
            return Ok(Vec::new());
        }
        let value = match self.may_have_xattrs(body) {
            true => self.volume.xattrs(body).get(DEFAULT_LIST)?,
            false => None,
        };
        let Some(value) = value else {
            *mode &= !umask;
            return Ok(Vec::new());
        };
        let list = Acl::from_call(&value).ok_or(Error::Invalid("malformed default access list"))?;
        let mut lists = Vec::new();
        if kind == FileKind::Directory {
            lists.push(List { index: NameIndex::ACL_DEFAULT, value });
        }
        let (own, bits) = list.inherit(*mode & 0o777);
        *mode = *mode & !0o777 | bits;
        if !own.to_mode().1 {
            lists.push(List { index: NameIndex::ACL_ACCESS, value: own.to_call() });
        }
        Ok(lists)
    }

    /// Whether an inode may have attributes. Cheap, because most inodes have none.
    pub(super) fn may_have_xattrs(self, body: &Body) -> bool {
        let tail = body.xattr_tail(self.volume.context());
        body.disk.file_acl.is_some()
            || tail.first_chunk::<4>().is_some_and(|magic| *magic != [0; 4])
    }
}
