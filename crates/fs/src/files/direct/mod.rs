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
//!   size waits for all entries ([`crate::state::inode::transfers`]); a buffered writer waits for
//!   those that overlap its
//!   bytes.
//! - Overwrites share the inode lock, and hold it only to begin.
//! - Blocks new to the file stay unwritten until their data is on the device.
//! - Some bytes cannot be transferred directly: parts of the device's unit, parts of new blocks,
//!   content in the inode or the journal. They go through the cache, and from there to the device
//!   before the call returns.

pub(crate) mod begin;
mod begin_read;
mod blocks;
mod buffered;
mod data_csum;
mod finish;
mod in_flight;
mod read;
pub(crate) mod step;
mod write;

use crate::inodes::file::FileRef;
use crate::state::inode::Inode;
use crate::volume::Volume;

/// Direct transfers of one file.
#[derive(Clone, Copy)]
pub(crate) struct DirectIo<'a> {
    volume: &'a Volume,
    inode: &'a Inode,
}

impl Volume {
    /// Direct transfers of this file.
    pub(crate) fn direct<'a>(&'a self, inode: &'a Inode) -> DirectIo<'a> {
        DirectIo { volume: self, inode }
    }
}

/// The steps of direct transfers: their bounds, and how their bytes move.
#[derive(Clone, Copy)]
pub(crate) struct DirectSteps<'a> {
    volume: &'a Volume,
}

impl Volume {
    /// The steps of direct transfers.
    pub(crate) fn direct_steps(&self) -> DirectSteps<'_> {
        DirectSteps { volume: self }
    }
}

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
    Checksummed,
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
    Checksummed,
}

impl DirectSteps<'_> {
    /// See [`File::direct_unit`](crate::File::direct_unit).
    pub(crate) fn direct_unit(self) -> u64 {
        (self.volume.device().alignment() as u64).max(512)
    }
}

impl FileRef<'_> {
    /// Whether direct I/O is possible for this file: its blocks hold its bytes unchanged.
    pub(crate) fn supports_direct(self) -> bool {
        !self.body.disk.has_inline_data() && !self.journals_data()
    }

    /// What this file and its device require of the memory that is written: that it does not
    /// change, if the device writes it more than once; that checksums are computed of what is
    /// written, if the file has them.
    pub(crate) fn stability(self) -> Stability {
        match self.volume.device().needs_stable_buffers() {
            _ if self.has_data_checksums() => Stability::Checksummed,
            true => Stability::Stable,
            false => Stability::Any,
        }
    }
}
