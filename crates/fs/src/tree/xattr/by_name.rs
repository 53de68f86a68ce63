//! Attributes by the names that callers use: which names are valid, and which errors callers get.
//!
//! ```text
//!   user.       regular files and directories        trusted. security. gnu.   every file
//!   system.posix_acl_access, _default                 not symlinks; the second directories only
//!   anything else                                     NotSupported
//! ```
//!
//! Source: xattr(7), setxattr(2).

use crate::state::inode::{Body, Inode};
use crate::tree::xattr::{XattrStore, XattrsMut};
use extant_base::{Error, Result};
use extant_ondisk::inode::{FileKind, InodeFlags};
use extant_ondisk::xattr::NameIndex;

/// The longest name including its prefix, in bytes.
const NAME_MAX: usize = 255;
/// The longest value, in bytes.
const VALUE_MAX: usize = 65536;

/// A condition for setting an attribute.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum XattrMode {
    /// No condition.
    #[default]
    Any,
    /// The attribute must not exist; otherwise `Exists`.
    Create,
    /// The attribute must exist; otherwise `NoAttribute`.
    Replace,
}

impl XattrStore<'_> {
    /// Sets the attribute with this full name, or removes it if `value` is `None`.
    ///
    /// Errors: as [`Filesystem::set_xattr`](crate::Filesystem::set_xattr). Locks: takes `Inode`,
    /// then a handle.
    pub(crate) fn set_xattr(
        self,
        inode: &Inode,
        full: &[u8],
        value: Option<&[u8]>,
        mode: XattrMode,
    ) -> Result<()> {
        // In Linux the length is checked before anything else.
        check_name_len(full)?;
        self.volume.context().check_writable()?;
        let (index, name) = split_name(full)?;
        if value.is_some_and(|value| value.len() > VALUE_MAX) {
            return Err(Error::TooBig);
        }
        let mut locked = inode.write();
        let body = &mut *locked;
        check_attribute(body, index)?;
        body.no_capability = false;
        self.volume.space().with_space_retry(|| {
            self.volume.xattrs_mut(body).change_xattr((index, name), value, mode)
        })?;
        drop(locked);
        self.volume.io(inode).sync_if_flagged()
    }
}

impl XattrsMut<'_> {
    /// Removes the capabilities of a file whose content is about to change, as Linux does.
    ///
    /// Errors: `Corrupt`, `Device`. Locks: the caller holds the inode's, and no handle.
    pub(crate) fn drop_capability(&mut self) -> Result<()> {
        if self.body.no_capability {
            return Ok(());
        }
        let name = (NameIndex::SECURITY, &b"capability"[..]);
        if self.as_ref().stored(name.0, name.1)?.is_some() {
            self.change_xattr(name, None, XattrMode::Any)?;
        }
        self.body.no_capability = true;
        Ok(())
    }

    fn change_xattr(
        &mut self,
        (index, name): (NameIndex, &[u8]),
        value: Option<&[u8]>,
        mode: XattrMode,
    ) -> Result<()> {
        let len = value.map_or(0, <[u8]>::len);
        let handle = self.volume.journal().start(self.as_ref().credits(len)?)?;
        let done = self.set(&handle, index, name, value, mode);
        if done.is_ok() {
            self.body.ctime = self.volume.environment().now();
        }
        self.body.store(self.volume, &handle)?;
        handle.stop()?;
        match done {
            // A missing list means the mode, so removing it is not an error.
            Err(Error::NoAttribute) if is_list(index) && value.is_none() => Ok(()),
            done => done,
        }
    }
}

fn is_list(index: NameIndex) -> bool {
    matches!(index, NameIndex::ACL_ACCESS | NameIndex::ACL_DEFAULT)
}

/// The namespace of an attribute, and its name there.
///
/// Errors: `OutOfRange`, `Invalid`, `NotSupported` for a name that no attribute can have.
pub(crate) fn split_name(full: &[u8]) -> Result<(NameIndex, &[u8])> {
    check_name_len(full)?;
    if [&b"user."[..], b"trusted.", b"security.", b"gnu."].contains(&full) {
        return Err(Error::Invalid("an attribute name is only a prefix"));
    }
    match NameIndex::split(full) {
        Some((NameIndex::SYSTEM | NameIndex::RICHACL, _)) | None => {
            Err(Error::NotSupported("an attribute in a namespace that ext4 does not have"))
        }
        Some(split) => Ok(split),
    }
}

fn check_name_len(full: &[u8]) -> Result<()> {
    match full.is_empty() || full.len() > NAME_MAX {
        true => Err(Error::OutOfRange),
        false => Ok(()),
    }
}

fn check_attribute(body: &Body, index: NameIndex) -> Result<()> {
    let fixed = InodeFlags::IMMUTABLE | InodeFlags::APPEND;
    if body.flags.intersects(fixed) {
        return Err(Error::NotPermitted);
    }
    let plain = matches!(body.file_kind(), FileKind::Regular | FileKind::Directory);
    match index == NameIndex::USER && !plain {
        true => Err(Error::NotPermitted),
        false => Ok(()),
    }
}
