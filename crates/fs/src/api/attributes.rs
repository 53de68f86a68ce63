//! Attributes of files by path and by node.

use crate::api::filesystem::Filesystem;
use crate::api::node::Node;
use crate::files::attributes::SetAttributes;
use crate::tree::path::Last;
use extant_base::Result;
use std::path::Path;

impl Filesystem {
    /// Changes the metadata of a file. Symlinks are followed.
    ///
    /// # Errors
    /// `ReadOnly`; `NotPermitted` for a file whose flags forbid the change; `NotSupported` for
    /// flags or a project that the volume or the file cannot have; `NotEmpty` for casefolding a
    /// directory that has names; for a size, those of [`File::set_len`](crate::File::set_len);
    /// `Corrupt`; `Device`. After an error nothing has changed, except perhaps the size and the
    /// kind of map.
    pub fn set_attributes(&self, path: impl AsRef<Path>, changes: &SetAttributes) -> Result<()> {
        self.volume().context().recording_errors(|| {
            let inode = self.resolve(path.as_ref(), Last::Follow)?;
            self.volume().io(&inode).set_attributes(changes)
        })
    }

    /// As [`Filesystem::set_attributes`], but a symlink at the end of the path is not followed.
    ///
    /// # Errors
    /// As [`Filesystem::set_attributes`].
    pub fn set_symlink_attributes(
        &self,
        path: impl AsRef<Path>,
        changes: &SetAttributes,
    ) -> Result<()> {
        self.volume().context().recording_errors(|| {
            let inode = self.resolve(path.as_ref(), Last::Keep)?;
            self.volume().io(&inode).set_attributes(changes)
        })
    }
}

impl Node {
    /// Changes the metadata of the file.
    ///
    /// # Errors
    /// As [`Filesystem::set_attributes`].
    pub fn set_attributes(&self, changes: &SetAttributes) -> Result<()> {
        self.volume()
            .context()
            .recording_errors(|| self.volume().io(self.inode()).set_attributes(changes))
    }
}
