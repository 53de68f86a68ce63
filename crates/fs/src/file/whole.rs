//! Whole files by path, in the manner of `std::fs`.

use crate::filesystem::Filesystem;
use crate::names::NewFile;
use extant_base::{Error, Result};
use std::path::Path;

impl Filesystem {
    /// Makes `bytes` the whole content of a file, which is made where it is missing. Symlinks are
    /// followed.
    ///
    /// On an error some of the bytes may be written. Errors: those of making a name and of
    /// [`File::write_at`](crate::File::write_at).
    ///
    /// # Examples
    ///
    /// ```
    /// # let _here = extant_guide_tests::with_image();
    /// let fs = extant::OpenOptions::new().write(true).open("disk.img")?;
    /// fs.write("/etc/hostname", "box\n")?;
    /// # Ok::<(), extant::Error>(())
    /// ```
    pub fn write(&self, path: impl AsRef<Path>, bytes: impl AsRef<[u8]>) -> Result<()> {
        let path = path.as_ref();
        let node = match self.create_file(path, &NewFile::default()) {
            Err(Error::Exists) => self.node(path)?,
            made => made?,
        };
        let file = node.open()?;
        if file.metadata().len() > 0 {
            file.set_len(0)?;
        }
        file.write_all_at(0, bytes.as_ref())
    }
}
