//! What can be asked: one variant for each operation.

use crate::abi::WriteRequest;
use crate::operations::{HandleId, NewNode, NodeId, SetAttr};
use std::ffi::OsStr;

/// What is asked. Handles are as the kernel sent them: whether they mean something is for who gave them.
#[derive(Clone, Copy, Debug)]
pub enum Ask<'a> {
    /// What a name means in the directory.
    Lookup {
        /// The name.
        name: &'a OsStr,
    },
    /// The kernel forgets the file as often as it was told of it. No answer.
    Forget {
        /// How often.
        count: u64,
    },
    /// The same for many files. No answer.
    BatchForget {
        /// One record of 16 bytes a file.
        all: &'a [u8],
    },
    /// What is known of the file.
    Getattr {
        /// The opening it is asked through.
        handle: Option<HandleId>,
    },
    /// The same, with the time it was made.
    Statx {
        /// The opening it is asked through.
        handle: Option<HandleId>,
    },
    /// To change what is known of the file.
    Setattr {
        /// The opening it is asked through.
        handle: Option<HandleId>,
        /// What to change.
        wish: SetAttr,
    },
    /// A symlink's target.
    Readlink,
    /// To make a symlink.
    Symlink {
        /// Its name.
        name: &'a OsStr,
        /// Where it leads.
        target: &'a OsStr,
    },
    /// To make a file, device, pipe or socket.
    Mknod {
        /// Its name.
        name: &'a OsStr,
        /// What it shall have.
        new: NewNode,
    },
    /// To make a directory.
    Mkdir {
        /// Its name.
        name: &'a OsStr,
        /// What it shall have.
        new: NewNode,
    },
    /// To take a name of anything but a directory away.
    Unlink {
        /// The name.
        name: &'a OsStr,
    },
    /// To remove an empty directory.
    Rmdir {
        /// Its name.
        name: &'a OsStr,
    },
    /// To rename.
    Rename {
        /// The old name.
        name: &'a OsStr,
        /// The directory of the new one.
        new_dir: NodeId,
        /// The new name.
        new_name: &'a OsStr,
        /// As `renameat2` has them.
        flags: u32,
    },
    /// A further name, in this directory.
    Link {
        /// Whose.
        node: NodeId,
        /// The name.
        name: &'a OsStr,
    },
    /// To open a file.
    Open {
        /// As `open` has them.
        flags: u32,
    },
    /// To open a directory.
    Opendir {
        /// As `open` has them.
        flags: u32,
    },
    /// Bytes of a file.
    Read {
        /// The opening.
        handle: HandleId,
        /// From this byte on.
        offset: u64,
        /// So many; fewer are the end.
        size: usize,
    },
    /// Names in a directory.
    Readdir {
        /// The opening.
        handle: HandleId,
        /// Behind the name that was given with this number; 0 from the start.
        offset: u64,
        /// Bytes that the answer may take.
        size: usize,
        /// Each name with what is known of its file.
        plus: bool,
    },
    /// Bytes for a file.
    Write {
        /// The opening.
        handle: HandleId,
        /// From this byte on.
        offset: u64,
        /// The bytes.
        bytes: &'a [u8],
        /// Who writes, and what goes with it.
        how: WriteRequest,
        /// As the file was opened.
        open_flags: u32,
    },
    /// How full the volume is.
    Statfs,
    /// An opening of a file ends.
    Release {
        /// The opening.
        handle: HandleId,
    },
    /// An opening of a directory ends.
    Releasedir {
        /// The opening.
        handle: HandleId,
    },
    /// To make a file durable.
    Fsync {
        /// The opening.
        handle: HandleId,
        /// Its content, and what reading it back takes.
        data_only: bool,
    },
    /// A descriptor of an opened file is closed.
    Flush {
        /// The opening.
        handle: HandleId,
    },
    /// To make a directory's names durable.
    Fsyncdir {
        /// The names alone.
        data_only: bool,
    },
    /// To make everything durable.
    Syncfs,
    /// To set an extended attribute.
    Setxattr {
        /// Its name.
        name: &'a OsStr,
        /// Its value.
        value: &'a [u8],
        /// As `setxattr` has them.
        flags: u32,
        /// The set-group-ID bit goes with it.
        kill_sgid: bool,
    },
    /// An extended attribute.
    Getxattr {
        /// Its name.
        name: &'a OsStr,
        /// Bytes that the value may take; 0 asks how many it takes.
        size: usize,
    },
    /// The names of all extended attributes.
    Listxattr {
        /// Bytes that they may take; 0 asks how many they take.
        size: usize,
    },
    /// To remove an extended attribute.
    Removexattr {
        /// Its name.
        name: &'a OsStr,
    },
    /// To make a regular file and open it.
    Create {
        /// Its name.
        name: &'a OsStr,
        /// What it shall have.
        new: NewNode,
        /// As `open` has them.
        flags: u32,
    },
    /// To make a regular file without a name and open it.
    Tmpfile {
        /// What it shall have.
        new: NewNode,
        /// As `open` has them.
        flags: u32,
    },
    /// Where a block of a file lies.
    Bmap {
        /// Which block.
        block: u64,
        /// Bytes of a block.
        block_bytes: u32,
    },
    /// An `ioctl`.
    Ioctl {
        /// Its number.
        command: u32,
        /// What it is given.
        input: &'a [u8],
        /// Bytes that the answer may take.
        room: usize,
    },
    /// To give or take space of a range.
    Fallocate {
        /// The opening.
        handle: HandleId,
        /// From this byte on.
        offset: u64,
        /// So many bytes.
        len: u64,
        /// As `fallocate` has it.
        mode: u32,
    },
    /// The next data or hole.
    Lseek {
        /// From this byte on.
        offset: u64,
        /// `SEEK_DATA` or `SEEK_HOLE`.
        whence: u32,
    },
    /// To copy bytes to another file.
    CopyFileRange {
        /// From this byte on.
        from: u64,
        /// The other file, and the byte there.
        to: (NodeId, u64),
        /// The opening of the other file.
        to_handle: HandleId,
        /// So many bytes.
        len: u64,
        /// The answer has 64 bits.
        wide: bool,
    },
    /// The mount ends.
    Destroy,
    /// Answered ENOSYS, which the kernel takes as an answer for good.
    Never,
}
