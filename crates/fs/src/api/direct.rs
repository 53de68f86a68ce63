//! Direct transfers of an open file.

use crate::api::file::File;
use crate::files::direct::DirectOptions;
use extant_base::Result;
use extant_blockdev::{CallerMemory, Source, Target};

impl File {
    /// Reads bytes from `offset` on directly from the device. Returns how many: fewer than `buf`
    /// holds only at the file's end. Dirty bytes of the range go to the device first.
    ///
    /// Offset, length and memory should be multiples of [`File::direct_unit`]; the parts that are
    /// not go through the cache. The device fills `buf` itself: until this returns, past the
    /// returned bytes, and after an error, `buf` may hold anything, bytes of other files included.
    /// With [`Bounce::Always`](crate::direct::Bounce::Always) it holds only bytes that were
    /// checked.
    ///
    /// # Errors
    /// As [`File::read_at`]; `WouldBlock`.
    ///
    /// # Examples
    ///
    /// ```
    /// # let _here = extant_guide_tests::with_image();
    /// let fs = extant::OpenOptions::new().direct(true).open("disk.img")?;
    /// let file = fs.open_file("/disk.raw")?;
    /// let mut block = extant::direct::AlignedBuf::zeroed(4096);
    /// file.read_direct_at(&mut block, 1 << 20, &extant::direct::DirectOptions::default())?;
    /// # Ok::<(), extant::Error>(())
    /// ```
    pub fn read_direct_at(
        &self,
        buf: &mut [u8],
        offset: u64,
        options: &DirectOptions,
    ) -> Result<usize> {
        self.read_direct(&mut Target::new(buf), offset, options)
    }

    /// As [`File::read_direct_at`], into any kind of memory.
    ///
    /// # Errors
    /// Also `Fault`.
    pub fn read_direct<'m>(
        &self,
        memory: &mut dyn CallerMemory<'m>,
        offset: u64,
        options: &DirectOptions,
    ) -> Result<usize> {
        self.volume().context().recording_errors(|| {
            self.volume().direct(self.held()).read_direct(offset, memory, options)
        })
    }

    /// Writes bytes from `offset` on directly to the device. Returns how many. The range leaves the
    /// cache.
    ///
    /// When this returns, the bytes are on the device, but not flushed unless
    /// [`DirectOptions::sync`] is set. Alignment as for [`File::read_direct_at`].
    ///
    /// # Errors
    /// As [`File::write_at`]; `WouldBlock`.
    pub fn write_direct_at(
        &self,
        buf: &[u8],
        offset: u64,
        options: &DirectOptions,
    ) -> Result<usize> {
        self.write_direct(&mut Source::new(buf), offset, options)
    }

    /// As [`File::write_direct_at`], from any kind of memory. Bytes that were not written are given
    /// back to it.
    ///
    /// # Errors
    /// Also `Fault`.
    pub fn write_direct<'m>(
        &self,
        memory: &mut dyn CallerMemory<'m>,
        offset: u64,
        options: &DirectOptions,
    ) -> Result<usize> {
        let volume = self.volume();
        let done = volume.context().recording_errors(|| {
            volume.direct(self.held()).write_direct(offset, memory, options)
        })?;
        if options.sync && done > 0 {
            self.sync_data()?;
        }
        volume.context().recording_errors(|| volume.io(self.held()).sync_if_flagged())?;
        Ok(done)
    }

    /// The unit, in bytes, of which offset, length and memory of a direct transfer should be
    /// multiples.
    pub fn direct_unit(&self) -> u64 {
        self.volume().direct_steps().direct_unit()
    }
}
