//! Extended attributes of files by path and by node.

use crate::api::filesystem::Filesystem;
use crate::api::node::Node;
use crate::tree::path::Last;
use crate::tree::xattr::by_name::{XattrMode, split_name};
use extant_base::{Error, Result};
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::{OsStrExt, OsStringExt};
use std::path::Path;

impl Filesystem {
    /// Sets an extended attribute. Access control lists have the format of the system calls, and
    /// set the mode. Symlinks are not followed.
    ///
    /// # Errors
    /// `Exists`, `NoAttribute` as `mode` requires; `OutOfRange` for a name that is empty or longer
    /// than 255 bytes; `TooBig` for a value longer than 64 KiB; `NotSupported` for a name that no
    /// attribute of the file can have; `NotPermitted` for `user.` on anything but regular files and
    /// directories, and if flags forbid the change; `Invalid` for a malformed list; `NoSpace` if
    /// the attribute does not fit; `ReadOnly`, `Corrupt`, `Device`.
    ///
    /// # Examples
    ///
    /// ```
    /// # let _here = extant_guide_tests::with_image();
    /// use extant::{OpenOptions, XattrMode};
    /// let fs = OpenOptions::new().write(true).open("disk.img")?;
    /// fs.set_xattr("/etc/motd", "user.mime", b"text/plain", XattrMode::Any)?;
    /// # Ok::<(), extant::Error>(())
    /// ```
    pub fn set_xattr(
        &self,
        path: impl AsRef<Path>,
        name: impl AsRef<OsStr>,
        value: &[u8],
        mode: XattrMode,
    ) -> Result<()> {
        self.volume().context().recording_errors(|| {
            let inode = self.resolve(path.as_ref(), Last::Keep)?;
            self.volume().xattr_store().set_xattr(
                &inode,
                name.as_ref().as_bytes(),
                Some(value),
                mode,
            )
        })
    }

    /// Removes an extended attribute. Symlinks are not followed.
    ///
    /// # Errors
    /// `NoAttribute`; otherwise as [`Filesystem::set_xattr`].
    pub fn remove_xattr(&self, path: impl AsRef<Path>, name: impl AsRef<OsStr>) -> Result<()> {
        self.volume().context().recording_errors(|| {
            let inode = self.resolve(path.as_ref(), Last::Keep)?;
            self.volume().xattr_store().set_xattr(
                &inode,
                name.as_ref().as_bytes(),
                None,
                XattrMode::Any,
            )
        })
    }
}

impl Node {
    /// The names of the extended attributes, with their prefixes.
    ///
    /// # Errors
    /// `Corrupt`, `Device`.
    pub fn xattrs(&self) -> Result<Vec<OsString>> {
        // Locks: takes `Inode` (shared).
        self.volume().context().recording_errors(|| {
            let names = self.volume().xattrs(&self.inode().read()).names()?;
            Ok(names.into_iter().map(OsString::from_vec).collect())
        })
    }

    /// All extended attributes: names with their prefixes, and values.
    ///
    /// # Errors
    /// As [`Node::xattrs`].
    pub fn xattr_values(&self) -> Result<Vec<(OsString, Vec<u8>)>> {
        // Locks: takes `Inode` (shared).
        self.volume().context().recording_errors(|| {
            let body = self.inode().read();
            let mut all = Vec::new();
            for name in self.volume().xattrs(&body).names()? {
                if let Some(value) = self.volume().xattrs(&body).get(&name)? {
                    all.push((OsString::from_vec(name), value));
                }
            }
            Ok(all)
        })
    }

    /// The value of an extended attribute. Access control lists have the format of the system
    /// calls.
    ///
    /// # Errors
    /// `NoAttribute`; `OutOfRange`, `Invalid`, `NotSupported` for a name that no attribute can
    /// have; otherwise as [`Node::xattrs`].
    pub fn xattr(&self, name: impl AsRef<OsStr>) -> Result<Vec<u8>> {
        // Locks: takes `Inode` (shared).
        self.volume().context().recording_errors(|| {
            let name = name.as_ref().as_bytes();
            let value = self.volume().xattrs(&self.inode().read()).get(name)?;
            match value {
                Some(value) => Ok(value),
                None => Err(split_name(name).err().unwrap_or(Error::NoAttribute)),
            }
        })
    }

    /// Sets an extended attribute.
    ///
    /// # Errors
    /// As [`Filesystem::set_xattr`].
    pub fn set_xattr(&self, name: impl AsRef<OsStr>, value: &[u8], mode: XattrMode) -> Result<()> {
        self.volume().context().recording_errors(|| {
            self.volume().xattr_store().set_xattr(
                self.inode(),
                name.as_ref().as_bytes(),
                Some(value),
                mode,
            )
        })
    }

    /// Removes an extended attribute.
    ///
    /// # Errors
    /// `NoAttribute`; otherwise as [`Filesystem::set_xattr`].
    pub fn remove_xattr(&self, name: impl AsRef<OsStr>) -> Result<()> {
        self.volume().context().recording_errors(|| {
            self.volume().xattr_store().set_xattr(
                self.inode(),
                name.as_ref().as_bytes(),
                None,
                XattrMode::Any,
            )
        })
    }
}
