//! Direct I/O: transfers between a caller's memory and the device that bypass the page cache and
//! stay coherent with it.
//!
//! ```text
//!   begin    inode lock: range clean and out of the cache? blocks? ──► entry in the file's list
//!   take     no lock: caller's memory lent (zero copy), or chunks filled (bounce); no page faults
//!   move     no lock: the device's transfers, at once or through a queue
//!   finish   new blocks shown, size grown, under one handle; range leaves the cache; entry ends
//! ```
//!
//! - An entry keeps the blocks of its range where they are. A thread that changes the map or the
//!   size waits for all entries ([`in_flight`]); a buffered writer waits for those that overlap its
//!   bytes.
//! - Overwrites share the inode lock, and hold it only to begin.
//! - Blocks new to the file stay unwritten until their data is on the device.
//! - Some bytes cannot be transferred directly: parts of the device's unit, parts of new blocks,
//!   content in the inode or the journal. They go through the cache, and from there to the device
//!   before the call returns.

mod begin;
mod begin_read;
mod blocks;
mod bounce;
mod buffered;
mod finish;
pub(crate) mod in_flight;
mod queue;
mod read;
mod step;
mod summed;
mod write;

pub use bounce::DirectStats;
pub use queue::{DirectDone, DirectQueue};

pub(crate) use bounce::Chunks;

use crate::file::File;
use crate::inode::Body;
use crate::volume::Volume;
use extant_base::{Ino, Result};
use extant_blockdev::{CallerMemory, Source, Target};

/// Whether a transfer copies its bytes through memory that only the engine knows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Bounce {
    /// When something is computed from the bytes, and when the caller's memory is not aligned as
    /// the device requires.
    #[default]
    Auto,
    /// Always.
    Always,
    /// Always, and the checksums of a write's blocks are computed in the same pass, as for a file
    /// with data checksums.
    Summed,
    /// Only when the caller's memory cannot be lent. For memory that is not aligned, the device
    /// uses its own, slower path.
    Never,
}

/// How a direct transfer is done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DirectOptions {
    /// See [`Bounce`].
    pub bounce: Bounce,
    /// Wait for nothing but the device. `WouldBlock` is the result if dirty data is in the way, if
    /// blocks must be allocated, if times must be set, or if a copy needs memory.
    pub no_wait: bool,
    /// When the call returns, the written data is durable, with what is needed to read it back
    /// (`O_DSYNC`).
    pub sync: bool,
}

/// What a device requires of the memory that it reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Stability {
    /// It may change during the write; then the caller gets what it wrote.
    Any,
    /// It must not change: several devices read it.
    Stable,
    /// It must not change, and its blocks' checksums are computed while they are copied.
    Summed,
}

impl File {
    /// Reads bytes from `offset` on directly from the device. Returns how many: fewer than `buf`
    /// holds only at the file's end. Dirty bytes of the range go to the device first.
    ///
    /// Offset, length and memory should be multiples of [`File::direct_unit`]; the parts that are
    /// not go through the cache. The device fills `buf` itself: until this returns, past the
    /// returned bytes, and after an error, `buf` may hold anything, bytes of other files included.
    /// With [`Bounce::Always`] it holds only bytes that were checked.
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
    /// let mut block = extant::AlignedBuf::zeroed(4096);
    /// file.read_direct_at(1 << 20, &mut block, &extant::DirectOptions::default())?;
    /// # Ok::<(), extant::Error>(())
    /// ```
    pub fn read_direct_at(
        &self,
        offset: u64,
        buf: &mut [u8],
        options: &DirectOptions,
    ) -> Result<usize> {
        self.read_direct(offset, &mut Target::new(buf), options)
    }

    /// As [`File::read_direct_at`], into any kind of memory.
    ///
    /// # Errors
    /// Also `Fault`.
    pub fn read_direct<'m>(
        &self,
        offset: u64,
        memory: &mut dyn CallerMemory<'m>,
        options: &DirectOptions,
    ) -> Result<usize> {
        self.volume()
            .context()
            .noting(|| self.volume().read_direct(self.held(), offset, memory, options))
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
        offset: u64,
        bytes: &[u8],
        options: &DirectOptions,
    ) -> Result<usize> {
        self.write_direct(offset, &mut Source::new(bytes), options)
    }

    /// As [`File::write_direct_at`], from any kind of memory. Bytes that were not written are given
    /// back to it.
    ///
    /// # Errors
    /// Also `Fault`.
    pub fn write_direct<'m>(
        &self,
        offset: u64,
        memory: &mut dyn CallerMemory<'m>,
        options: &DirectOptions,
    ) -> Result<usize> {
        let volume = self.volume();
        let done = volume
            .context()
            .noting(|| volume.write_direct(self.held(), offset, memory, options))?;
        if options.sync && done > 0 {
            self.sync_data()?;
        }
        volume.context().noting(|| volume.sync_if_flagged(self.held()))?;
        Ok(done)
    }

    /// The unit, in bytes, of which offset, length and memory of a direct transfer should be
    /// multiples.
    pub fn direct_unit(&self) -> u64 {
        self.volume().direct_unit()
    }
}

impl Volume {
    /// See [`File::direct_unit`].
    pub(crate) fn direct_unit(&self) -> u64 {
        (self.device().alignment() as u64).max(512)
    }

    /// Whether direct I/O is possible for this file: its blocks hold its bytes unchanged.
    pub(crate) fn takes_direct(&self, body: &Body) -> bool {
        !body.disk.has_inline_data() && !self.journals_data(body)
    }

    /// What this file and its device require of the memory that is written: that it does not
    /// change, if the device writes it more than once; that checksums are computed of what is
    /// written, if the file has them.
    pub(crate) fn stability(&self, ino: Ino, body: &Body) -> Stability {
        match self.device().needs_stable_buffers() {
            _ if self.covers(ino, body) => Stability::Summed,
            true => Stability::Stable,
            false => Stability::Any,
        }
    }
}
