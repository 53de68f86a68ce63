//! Whole files by path, as in `std::fs`.

use crate::api::filesystem::Filesystem;
use crate::files::attributes::SetAttributes;
use crate::tree::names::NewFile;
use extant_base::{Error, Result};
use std::path::Path;

/// Bytes that a copy reads at a time.
const COPIED_AT_ONCE: usize = 1 << 20;

impl Filesystem {
    /// Makes `bytes` the whole content of a file, which is created if it does not exist. Symlinks
    /// are followed.
    ///
    /// # Errors
    /// Those of creating a file and of [`File::write_at`](crate::File::write_at). After an error
    /// some of the bytes may be written.
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
        file.write_all_at(bytes.as_ref(), 0)
    }

    /// Copies the content and the permission bits of a file to `to`. If `to` does not exist it is
    /// created; otherwise its content is replaced. Returns the length in bytes. Symlinks are
    /// followed, and holes stay holes.
    ///
    /// # Errors
    /// Those of [`Filesystem::open_file`], [`File::read_at`](crate::File::read_at) and
    /// [`Filesystem::write`]; `Invalid` for a file onto itself, which is not changed. After another
    /// error some of the bytes may be copied.
    ///
    /// # Examples
    ///
    /// ```
    /// # let _here = extant_guide_tests::with_image();
    /// let fs = extant::OpenOptions::new().write(true).open("disk.img")?;
    /// let bytes = fs.copy("/etc/hostname", "/etc/hostname.old")?;
    /// assert_eq!(bytes, fs.metadata("/etc/hostname.old")?.len());
    /// # Ok::<(), extant::Error>(())
    /// ```
    pub fn copy(&self, from: impl AsRef<Path>, to: impl AsRef<Path>) -> Result<u64> {
        let source = self.open_file(from)?;
        let found = source.metadata();
        let new = NewFile { mode: found.permissions(), ..NewFile::default() };
        let node = match self.create_file(to.as_ref(), &new) {
            Err(Error::Exists) => self.node(to.as_ref())?,
            made => made?,
        };
        if node.ino() == source.ino() {
            return Err(Error::Invalid("a file is not copied onto itself"));
        }
        let target = node.open()?;
        target.set_len(0)?;
        let mut buf = vec![0; COPIED_AT_ONCE];
        let mut at = 0;
        while let Some(data) = source.seek_data(at)? {
            let end = source.seek_hole(data)?.unwrap_or(data);
            at = data;
            while at < end {
                let most = usize::try_from(end - at).map_or(buf.len(), |left| left.min(buf.len()));
                let len = source.read_at(&mut buf[..most], at)?;
                if len == 0 {
                    break;
                }
                target.write_all_at(&buf[..len], at)?;
                at += len as u64;
            }
            if at == data {
                break;
            }
        }
        let len = source.metadata().len().max(at);
        target.set_len(len)?;
        // Writing may have cleared set-ID bits, and a file that existed before has other bits.
        let mode = Some(found.permissions());
        target.set_attributes(&SetAttributes { mode, ..SetAttributes::default() })?;
        Ok(len)
    }
}
