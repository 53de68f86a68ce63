//! Direct I/O: bytes between a caller's memory and the device, past the page cache and coherent with it.
//!
//! ```text
//!   begin    inode's lock: range clean and out of the cache? blocks? ──► entry in the file's list of directs
//!   take     no lock: spans lent (zero copy), or chunks filled (bounce); no faults
//!   move     no lock: the device's transfers, at once or through a queue
//!   finish   new blocks shown, size grown, under one handle; the cache forgets the range; the entry ends
//! ```
//!
//! An entry keeps the blocks of its range where they are: who changes map or size waits for all entries
//! ([`in_flight`]), a buffered writer for those that meet his bytes. Overwrites share the inode's lock and hold it only
//! to begin. What is new to the file is unwritten until its data is on the device. What a transfer cannot do (parts of
//! the device's unit, parts of new blocks, content in the inode or the journal) goes through the cache, and from there to
//! the device before the call returns.

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

/// Whether a transfer's bytes are copied to memory that nobody else knows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum Bounce {
    /// Where something is computed from them, and where the caller's memory does not lie as the device wants it.
    #[default]
    Auto,
    /// Always.
    Always,
    /// Always, and a write's blocks are summed in the same pass, as they are where sums of data are kept.
    Summed,
    /// Only where the caller's memory can not be lent. What lies badly takes the device's own, slower way.
    Never,
}

/// How a direct transfer is done.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct DirectOptions {
    /// See [`Bounce`].
    pub bounce: Bounce,
    /// Nothing is waited for but the device: `WouldBlock` where there is dirty data in the way, blocks have to be
    /// found, times to be set, or memory to be had for a copy.
    pub no_wait: bool,
    /// What was written is durable when the call returns, with what is needed to read it back (`O_DSYNC`).
    pub sync: bool,
}

/// What is asked of the memory that a device reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Stability {
    /// It may change meanwhile: the caller gets what he wrote.
    Any,
    /// It stays as it is: several devices get it.
    Stable,
    /// It stays, and its blocks are summed while they are copied.
    Summed,
}

impl File {
    /// Reads bytes from `offset` on straight from the device; how many, fewer than `buf` holds only at the file's end.
    /// Dirty bytes go to the device first.
    ///
    /// Place, length and memory should be multiples of [`File::direct_unit`]; the rest around them goes through the
    /// cache. The device fills `buf` itself: until this returns, behind the bytes that are returned, and after an error
    /// it may hold anything, bytes of other files included. With [`Bounce::Always`] it holds only what was checked.
    /// Errors: as [`File::read_at`]; `WouldBlock`. Locks: takes `Inode`, shared, to begin.
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
    /// Errors: also `Fault`.
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

    /// Writes bytes from `offset` on straight to the device; how many. The cache forgets what it had of them.
    ///
    /// Returns when the bytes are on the device, not flushed unless [`DirectOptions::sync`] says so. Alignment as for
    /// [`File::read_direct_at`]. Errors: as [`File::write_at`]; `WouldBlock`. Locks: takes `Inode` to begin, and to end
    /// where blocks or the size are new; `Write` while the file grows.
    pub fn write_direct_at(
        &self,
        offset: u64,
        bytes: &[u8],
        options: &DirectOptions,
    ) -> Result<usize> {
        self.write_direct(offset, &mut Source::new(bytes), options)
    }

    /// As [`File::write_direct_at`], from any kind of memory. What was not written is given back to it.
    ///
    /// Errors: also `Fault`.
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

    /// What place, length and memory of a direct transfer should be multiples of, in bytes.
    pub fn direct_unit(&self) -> u64 {
        self.volume().direct_unit()
    }
}

impl Volume {
    /// See [`File::direct_unit`].
    pub(crate) fn direct_unit(&self) -> u64 {
        (self.device().alignment() as u64).max(512)
    }

    /// Whether this file's bytes can go past the cache: its blocks hold them as they are.
    pub(crate) fn takes_direct(&self, body: &Body) -> bool {
        !body.disk.has_inline_data() && !self.journals_data(body)
    }

    /// What this file and its device ask of the memory they are written from: a device that writes it more than once,
    /// that it stays as it is; a file with sums, that they are taken of what is written.
    pub(crate) fn stability(&self, ino: Ino, body: &Body) -> Stability {
        match self.device().needs_stable_buffers() {
            _ if self.covers(ino, body) => Stability::Summed,
            true => Stability::Stable,
            false => Stability::Any,
        }
    }
}
