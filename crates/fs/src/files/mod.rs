//! Content of files: read and written on the device, through the page cache, or directly.

pub(crate) mod attributes;
pub(crate) mod cached;
pub(crate) mod data;
pub(crate) mod direct;
pub(crate) mod file;
pub(crate) mod remove_inode;

use crate::state::inode::Inode;
use crate::volume::Volume;
/// One file in use: reads, writes, write-back and attributes.
#[derive(Clone, Copy)]
pub(crate) struct FileIo<'a> {
    volume: &'a Volume,
    inode: &'a Inode,
}

impl Volume {
    /// The file of this inode.
    pub(crate) fn io<'a>(&'a self, inode: &'a Inode) -> FileIo<'a> {
        FileIo { volume: self, inode }
    }
}

/// Transfers of file data between memory and the device.
#[derive(Clone, Copy)]
pub(crate) struct DataIo<'a> {
    volume: &'a Volume,
}

impl Volume {
    /// Transfers of file data.
    pub(crate) fn data_io(&self) -> DataIo<'_> {
        DataIo { volume: self }
    }
}
