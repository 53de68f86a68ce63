//! The requests: one variant for each operation.

use crate::abi::WriteRequest;
use crate::operations::{HandleId, NewNode, NodeId, SetAttr};
use std::ffi::OsStr;

/// A request's operation and arguments. Handles are as the kernel sent them; the filesystem that
/// issued them decides whether they are valid.
#[derive(Clone, Copy, Debug)]
pub enum Operation<'a> {
    /// Find a name in the directory.
    Lookup {
        /// The name.
        name: &'a OsStr,
    },
    /// Return the entries that the kernel received for the file. No reply.
    Forget {
        /// How many.
        count: u64,
    },
    /// The same for many files. No reply.
    BatchForget {
        /// One record of 16 bytes for each file.
        all: &'a [u8],
    },
    /// Read the file's attributes.
    Getattr {
        /// The opening through which the request is made.
        handle: Option<HandleId>,
    },
    /// Read the file's attributes and its time of birth.
    Statx {
        /// The opening through which the request is made.
        handle: Option<HandleId>,
    },
    /// Change the file's attributes.
    Setattr {
        /// The opening through which the request is made.
        handle: Option<HandleId>,
        /// What to change.
        changes: SetAttr,
    },
    /// Read a symlink's target.
    Readlink,
    /// Create a symlink.
    Symlink {
        /// Its name.
        name: &'a OsStr,
        /// Its target.
        target: &'a OsStr,
    },
    /// Create a file, device, pipe or socket.
    Mknod {
        /// Its name.
        name: &'a OsStr,
        /// Its attributes.
        new: NewNode,
    },
    /// Create a directory.
    Mkdir {
        /// Its name.
        name: &'a OsStr,
        /// Its attributes.
        new: NewNode,
    },
    /// Remove a name of anything but a directory.
    Unlink {
        /// The name.
        name: &'a OsStr,
    },
    /// Remove an empty directory.
    Rmdir {
        /// Its name.
        name: &'a OsStr,
    },
    /// Rename a file.
    Rename {
        /// The old name.
        name: &'a OsStr,
        /// The directory of the new name.
        new_dir: NodeId,
        /// The new name.
        new_name: &'a OsStr,
        /// As in `renameat2`.
        flags: u32,
    },
    /// Add a name in this directory.
    Link {
        /// The file that gets the name.
        node: NodeId,
        /// The name.
        name: &'a OsStr,
    },
    /// Open a file.
    Open {
        /// As in `open`.
        flags: u32,
    },
    /// Open a directory.
    Opendir {
        /// As in `open`.
        flags: u32,
    },
    /// Read bytes of a file.
    Read {
        /// The opening.
        handle: HandleId,
        /// The first byte.
        offset: u64,
        /// Number of bytes. A shorter reply means the end of the file.
        size: usize,
    },
    /// List the names in a directory.
    Readdir {
        /// The opening.
        handle: HandleId,
        /// Continue after the name that was given with this number; 0 means from the start.
        offset: u64,
        /// Largest size of the reply in bytes.
        size: usize,
        /// List each name with its entry.
        plus: bool,
    },
    /// Write bytes to a file.
    Write {
        /// The opening.
        handle: HandleId,
        /// The first byte.
        offset: u64,
        /// The bytes.
        bytes: &'a [u8],
        /// Origin of the bytes, and what else the write does.
        how: WriteRequest,
        /// The flags with which the file was opened.
        open_flags: u32,
    },
    /// Read the volume's sizes and free space.
    Statfs,
    /// End an opening of a file.
    Release {
        /// The opening.
        handle: HandleId,
    },
    /// End an opening of a directory.
    Releasedir {
        /// The opening.
        handle: HandleId,
    },
    /// Make a file durable.
    Fsync {
        /// The opening.
        handle: HandleId,
        /// Only its content and the metadata that reading it back needs.
        data_only: bool,
    },
    /// A program closes a descriptor of an open file.
    Flush {
        /// The opening.
        handle: HandleId,
    },
    /// Make a directory's names durable.
    Fsyncdir {
        /// Only the names.
        data_only: bool,
    },
    /// Make everything durable.
    Syncfs,
    /// Set an extended attribute.
    Setxattr {
        /// Its name.
        name: &'a OsStr,
        /// Its value.
        value: &'a [u8],
        /// As in `setxattr`.
        flags: u32,
        /// The set-group-ID bit is cleared.
        kill_sgid: bool,
    },
    /// Read an extended attribute.
    Getxattr {
        /// Its name.
        name: &'a OsStr,
        /// Largest size of the value in bytes; 0 requests its length.
        size: usize,
    },
    /// Read the names of all extended attributes.
    Listxattr {
        /// Largest size of the list in bytes; 0 requests its length.
        size: usize,
    },
    /// Remove an extended attribute.
    Removexattr {
        /// Its name.
        name: &'a OsStr,
    },
    /// Create a regular file and open it.
    Create {
        /// Its name.
        name: &'a OsStr,
        /// Its attributes.
        new: NewNode,
        /// As in `open`.
        flags: u32,
    },
    /// Create a regular file without a name and open it.
    Tmpfile {
        /// Its attributes.
        new: NewNode,
        /// As in `open`.
        flags: u32,
    },
    /// Find the device's block that holds a block of a file.
    Bmap {
        /// The file's block.
        block: u64,
        /// Block size in bytes.
        block_bytes: u32,
    },
    /// An `ioctl`.
    Ioctl {
        /// Its number.
        command: u32,
        /// Its input.
        input: &'a [u8],
        /// Largest size of the result in bytes.
        out_size: usize,
    },
    /// Allocate or free the space of a range.
    Fallocate {
        /// The opening.
        handle: HandleId,
        /// The first byte.
        offset: u64,
        /// Number of bytes.
        len: u64,
        /// As in `fallocate`.
        mode: u32,
    },
    /// Find the next data or hole.
    Lseek {
        /// The byte to start at.
        offset: u64,
        /// `SEEK_DATA` or `SEEK_HOLE`.
        whence: u32,
    },
    /// Copy bytes to another file.
    CopyFileRange {
        /// The first byte.
        from: u64,
        /// The other file, and the first byte there.
        to: (NodeId, u64),
        /// The opening of the other file.
        to_handle: HandleId,
        /// Number of bytes.
        len: u64,
        /// The reply has 64 bits.
        wide: bool,
    },
    /// The mount ends.
    Destroy,
    /// Answered with ENOSYS. The kernel then never sends this operation again.
    Never,
}
