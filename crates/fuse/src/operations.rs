//! The interface of a filesystem: one method for each operation of the protocol, in plain types.
//!
//! ```text
//!   NodeId    a file that the kernel knows: from the first Entry that names it until `forget` has
//!             returned as many counts as there were entries
//!   HandleId  an opening of it, if `Handles` says that the filesystem wants requests for openings
//! ```
//!
//! Many threads call every method at the same time. A method that waits blocks one thread. Names
//! are single components: the decoder of requests rejects empty names and names with '/' or NUL;
//! "." and ".." occur only in `lookup`.

pub use extant::Timestamp;
use rustix::io::Errno;
use std::ffi::OsStr;
use std::time::Duration;

/// Result of an operation.
pub type Answer<T> = Result<T, Errno>;

/// The number by which the kernel and the filesystem name a file. 1 is the root.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct NodeId(pub u64);

impl NodeId {
    /// The root of the mount.
    pub const ROOT: NodeId = NodeId(1);
}

/// The number by which the filesystem names an opening of a file or directory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct HandleId(pub u64);

/// How a file was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Opened {
    /// The filesystem's number of the opening.
    pub handle: HandleId,
    /// Reads and writes bypass the kernel's cache and arrive as the program makes them.
    pub past_cache: bool,
    /// When a program closes one of its descriptors, it waits for [`Operations::flush`].
    pub flush: bool,
}

/// How a directory was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct OpenedDir {
    /// The filesystem's number of the opening.
    pub handle: HandleId,
    /// What the kernel may do with the names that it receives.
    pub cache: DirCache,
}

/// Whether the kernel caches the names of a directory. It then serves later listings without a
/// request. It drops them itself when it changes a name in the directory.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub enum DirCache {
    /// This opening neither uses nor fills the cache. Cached names are dropped.
    #[default]
    Off,
    /// Cached names are dropped. This opening fills the cache.
    Fill,
    /// Names that are cached are still right.
    Keep,
}

/// The process that made a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Caller {
    /// User id, as the server's user namespace shows it.
    pub uid: u32,
    /// Group id.
    pub gid: u32,
    /// Process id; 0 for the kernel itself.
    pub pid: u32,
}

/// The attributes that `stat` shows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Attributes {
    /// Inode number that programs see.
    pub ino: u64,
    /// Size in bytes.
    pub size: u64,
    /// Allocated space in units of 512 bytes.
    pub blocks: u64,
    /// Last access.
    pub atime: Timestamp,
    /// Last change of the content.
    pub mtime: Timestamp,
    /// Last change of the inode.
    pub ctime: Timestamp,
    /// Time of birth, if known.
    pub btime: Option<Timestamp>,
    /// Type and permission bits.
    pub mode: u32,
    /// Link count.
    pub nlink: u32,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Device of a device file, as `makedev` of Linux packs it into 32 bits.
    pub rdev: u32,
    /// Preferred size of a transfer, bytes.
    pub blksize: u32,
}

/// The file that a name leads to. Each entry that the kernel receives counts once, until
/// [`Operations::forget`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The file. `NodeId(0)` means that the name does not exist; the kernel caches that for
    /// `entry_valid`.
    pub node: NodeId,
    /// Distinguishes successive uses of one number.
    pub generation: u64,
    /// The file's attributes.
    pub attributes: Attributes,
    /// How long the kernel may use the name without a new `lookup`.
    pub entry_valid: Duration,
    /// How long the kernel may use the attributes without a new request.
    pub attributes_valid: Duration,
}

/// What the filesystem wants from the kernel. Each setting applies only if the kernel supports it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// The kernel collects writes in its page cache and maintains sizes and times of files that are
    /// written (write-back mode).
    pub writeback_cache: bool,
    /// The kernel checks access lists, which are stored as `system.posix_acl_*`. Implies permission
    /// checks.
    pub posix_acl: bool,
    /// For which openings the filesystem wants requests.
    pub handles: Handles,
    /// Granularity of times in nanoseconds, 1..=1_000_000_000, a power of ten.
    pub time_granularity_ns: u32,
    /// Largest write and read in bytes. The transport may lower it.
    pub max_transfer: u32,
    /// Every read of content and of a symlink's target arrives as a request: the kernel caches
    /// neither. Files must then be opened with [`Opened::past_cache`].
    pub every_read: bool,
}

/// For which openings the kernel sends requests. Each opening then costs a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Handles {
    /// None: files and directories are identified by node alone, and content may stay in the
    /// kernel's cache.
    None,
    /// Openings of directories.
    Directories,
    /// All openings.
    All,
}

/// Attributes of a file that is to be created.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NewNode {
    /// Type and permission bits, before `umask` is applied.
    pub mode: u32,
    /// Permission bits to clear, unless the directory has a default access list.
    pub umask: u32,
    /// Device of a device file, packed as in [`Attributes::rdev`].
    pub rdev: u32,
}

/// A time to set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SetTime {
    /// The time of the call.
    Now,
    /// This time.
    To(Timestamp),
}

/// Attributes to change. `None` leaves an attribute as it is.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct SetAttr {
    /// Permission bits.
    pub mode: Option<u32>,
    /// Owner.
    pub uid: Option<u32>,
    /// Group.
    pub gid: Option<u32>,
    /// Size in bytes.
    pub size: Option<u64>,
    /// Last access.
    pub atime: Option<SetTime>,
    /// Last change of the content.
    pub mtime: Option<SetTime>,
    /// Last change of the inode. Only a kernel in write-back mode sets it.
    pub ctime: Option<Timestamp>,
    /// The change clears the set-user-ID and set-group-ID bits.
    pub kill_suid_sgid: bool,
}

/// Origin of the bytes of a write, and what else the write does.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WriteFlags {
    /// The write comes from the kernel's cache. Its caller is then the process for which the kernel
    /// wrote back, not the one that wrote the bytes.
    pub from_cache: bool,
    /// The write clears the set-user-ID and set-group-ID bits.
    pub kill_suid_sgid: bool,
    /// `O_SYNC`, `O_DSYNC`, `O_DIRECT` and the other flags with which the file was opened.
    pub open_flags: u32,
}

/// Sizes and free space of the volume, as `statfs` reports them.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Statistics {
    /// Block size in bytes.
    pub block_bytes: u32,
    /// Number of blocks.
    pub blocks: u64,
    /// Free blocks.
    pub free: u64,
    /// Free blocks that unprivileged users may allocate.
    pub available: u64,
    /// Number of inodes.
    pub inodes: u64,
    /// Free inodes.
    pub free_inodes: u64,
    /// Longest name, in bytes.
    pub name_max: u32,
}

/// Receives the names of a directory until it is full.
pub trait Listing {
    /// Whether the caller wants attributes. If so, names are added by [`Listing::add_entry`],
    /// otherwise by [`Listing::add_name`].
    fn wants_entries(&self) -> bool;
    /// Whether a name of this length still fits.
    fn fits(&self, name_bytes: usize) -> bool;
    /// Adds a name. `next` (never 0) is the offset at which a later call continues after this name.
    /// `kind` is the type as in `st_mode >> 12`, or 0 if unknown. Call only if [`Listing::fits`]
    /// returned true.
    fn add_name(&mut self, name: &OsStr, ino: u64, kind: u32, next: u64);
    /// Adds a name with its entry, which then counts like one from `lookup`. If `node` in `entry`
    /// is 0, only the name is added. That is always so for "." and "..".
    fn add_entry(&mut self, name: &OsStr, entry: &Entry, next: u64);
}

/// A filesystem. A method without an implementation returns `ENOSYS` (`control`: `ENOTTY`). Where
/// the protocol says so, the kernel never sends an operation again that was answered with `ENOSYS`.
#[allow(unused_variables)]
pub trait Operations: Send + Sync {
    /// Settings to negotiate with the kernel. Called once.
    fn settings(&self) -> Settings;

    /// Finds `name` in `dir`. `ENOENT`, or an entry with node 0 so that the kernel caches the
    /// absence.
    fn lookup(&self, by: &Caller, dir: NodeId, name: &OsStr) -> Answer<Entry>;
    /// Returns `count` of the entries that the kernel received for `node`.
    fn forget(&self, node: NodeId, count: u64);
    /// The attributes, and how long the kernel may use them.
    fn get_attributes(
        &self,
        by: &Caller,
        node: NodeId,
        handle: Option<HandleId>,
    ) -> Answer<(Attributes, Duration)>;
    /// Changes attributes and returns the new ones.
    fn set_attributes(
        &self,
        by: &Caller,
        node: NodeId,
        handle: Option<HandleId>,
        changes: &SetAttr,
    ) -> Answer<(Attributes, Duration)>;
    /// Target of a symlink.
    fn read_link(&self, by: &Caller, node: NodeId) -> Answer<Vec<u8>> {
        Err(Errno::NOSYS)
    }
    /// Creates a file, device, pipe or socket.
    fn make_node(&self, by: &Caller, dir: NodeId, name: &OsStr, new: &NewNode) -> Answer<Entry> {
        Err(Errno::NOSYS)
    }
    /// Creates a directory.
    fn make_dir(&self, by: &Caller, dir: NodeId, name: &OsStr, new: &NewNode) -> Answer<Entry> {
        Err(Errno::NOSYS)
    }
    /// Creates a symlink.
    fn symlink(&self, by: &Caller, dir: NodeId, name: &OsStr, target: &OsStr) -> Answer<Entry> {
        Err(Errno::NOSYS)
    }
    /// Creates a regular file and opens it in one step. Where [`Handles`] exclude openings of
    /// files, the kernel calls [`Operations::make_node`] instead.
    fn create(
        &self,
        by: &Caller,
        dir: NodeId,
        name: &OsStr,
        new: &NewNode,
        flags: u32,
    ) -> Answer<(Entry, Opened)> {
        Err(Errno::NOSYS)
    }
    /// Creates a regular file without a name and opens it.
    fn make_unnamed(
        &self,
        by: &Caller,
        dir: NodeId,
        new: &NewNode,
        flags: u32,
    ) -> Answer<(Entry, Opened)> {
        Err(Errno::NOSYS)
    }
    /// Removes a name of anything but a directory.
    fn unlink(&self, by: &Caller, dir: NodeId, name: &OsStr) -> Answer<()> {
        Err(Errno::NOSYS)
    }
    /// Removes an empty directory.
    fn remove_dir(&self, by: &Caller, dir: NodeId, name: &OsStr) -> Answer<()> {
        Err(Errno::NOSYS)
    }
    /// Renames a file. `flags` as in `renameat2`.
    fn rename(
        &self,
        by: &Caller,
        dir: NodeId,
        name: &OsStr,
        new_dir: NodeId,
        new_name: &OsStr,
        flags: u32,
    ) -> Answer<()> {
        Err(Errno::NOSYS)
    }
    /// Adds a name for `node`.
    fn link(&self, by: &Caller, node: NodeId, dir: NodeId, name: &OsStr) -> Answer<Entry> {
        Err(Errno::NOSYS)
    }

    /// Opens a file. `flags` as in `open`. Called only with [`Handles::All`].
    fn open(&self, by: &Caller, node: NodeId, flags: u32) -> Answer<Opened> {
        Err(Errno::NOSYS)
    }
    /// A program closes one of its descriptors of an opening with [`Opened::flush`], and waits for
    /// the result. In write-back mode the kernel sends this for other openings too.
    fn flush(&self, node: NodeId, handle: HandleId) -> Answer<()> {
        Err(Errno::NOSYS)
    }
    /// Ends an opening. No program waits for it.
    fn release(&self, node: NodeId, handle: HandleId) {}
    /// Fills `out` with the bytes from `offset` on. Returns fewer bytes only at the end of the
    /// file.
    fn read(
        &self,
        by: &Caller,
        node: NodeId,
        handle: Option<HandleId>,
        offset: u64,
        out: &mut [u8],
    ) -> Answer<usize> {
        Err(Errno::NOSYS)
    }
    /// Writes bytes at `offset` and returns how many were written.
    fn write(
        &self,
        by: &Caller,
        node: NodeId,
        handle: Option<HandleId>,
        offset: u64,
        bytes: &[u8],
        flags: WriteFlags,
    ) -> Answer<usize> {
        Err(Errno::NOSYS)
    }
    /// Makes earlier writes durable. With `data_only`, only those parts of the inode that are
    /// needed to read the data.
    fn sync_file(
        &self,
        by: &Caller,
        node: NodeId,
        handle: Option<HandleId>,
        data_only: bool,
    ) -> Answer<()> {
        Err(Errno::NOSYS)
    }
    /// Makes a directory's names durable, as [`Operations::sync_file`] does for a file.
    fn sync_dir(&self, by: &Caller, node: NodeId, data_only: bool) -> Answer<()> {
        Err(Errno::NOSYS)
    }
    /// Makes everything durable.
    fn sync_all(&self) -> Answer<()> {
        Err(Errno::NOSYS)
    }
    /// Changes the allocation of a range of an open file. `mode` as in `fallocate`. The change is
    /// durable on return if the file was opened with `O_SYNC` or `O_DSYNC`: the kernel sends no
    /// sync after it.
    fn allocate(
        &self,
        by: &Caller,
        opened: (NodeId, HandleId),
        offset: u64,
        len: u64,
        mode: u32,
    ) -> Answer<()> {
        Err(Errno::NOSYS)
    }
    /// Finds the next data or hole. `whence` is `SEEK_DATA` or `SEEK_HOLE`.
    fn seek(&self, by: &Caller, node: NodeId, offset: u64, whence: u32) -> Answer<u64> {
        Err(Errno::NOSYS)
    }
    /// Copies bytes between two files, each given as a node and an offset, and returns how many.
    /// The copy is durable on return if the opening `to_handle` has `O_SYNC` or `O_DSYNC`.
    fn copy_range(
        &self,
        by: &Caller,
        from: (NodeId, u64),
        to: (NodeId, u64),
        to_handle: HandleId,
        len: u64,
    ) -> Answer<u64> {
        Err(Errno::NOSYS)
    }
    /// The device's block that holds block `block` of the file, or 0 for a hole. Both count in
    /// units of `block_bytes`.
    fn block_map(&self, node: NodeId, block: u64, block_bytes: u32) -> Answer<u64> {
        Err(Errno::NOSYS)
    }
    /// An `ioctl` whose number encodes its sizes. `out` is the buffer for the result; returns how
    /// many bytes of it were filled.
    fn control(
        &self,
        by: &Caller,
        node: NodeId,
        command: u32,
        input: &[u8],
        out: &mut [u8],
    ) -> Answer<usize> {
        Err(Errno::NOTTY)
    }

    /// Opens a directory. `flags` as in `open`. Called only with [`Handles::Directories`] and
    /// [`Handles::All`].
    fn open_dir(&self, by: &Caller, node: NodeId, flags: u32) -> Answer<OpenedDir> {
        Err(Errno::NOSYS)
    }
    /// Whether the kernel may have names of `dir` in its cache ([`DirCache`]) that a change of
    /// names has made wrong. It drops them afterwards.
    fn expire_names(&self, dir: NodeId) -> bool {
        false
    }
    /// Ends an opening of a directory.
    fn release_dir(&self, node: NodeId, handle: HandleId) {}
    /// Lists names, "." and ".." included, from `offset` on: 0, or the `next` of an earlier name.
    fn read_dir(
        &self,
        by: &Caller,
        node: NodeId,
        handle: Option<HandleId>,
        offset: u64,
        into: &mut dyn Listing,
    ) -> Answer<()> {
        Err(Errno::NOSYS)
    }

    /// Value of an extended attribute. `ENODATA` if it does not exist.
    fn get_xattr(&self, by: &Caller, node: NodeId, name: &OsStr) -> Answer<Vec<u8>> {
        Err(Errno::NOSYS)
    }
    /// Names of all extended attributes, each terminated by a NUL.
    fn list_xattrs(&self, by: &Caller, node: NodeId) -> Answer<Vec<u8>> {
        Err(Errno::NOSYS)
    }
    /// Sets an extended attribute. `flags` as in `setxattr`. With `kill_sgid`, also clears the
    /// set-group-ID bit.
    fn set_xattr(
        &self,
        by: &Caller,
        node: NodeId,
        name: &OsStr,
        value: &[u8],
        flags: u32,
        kill_sgid: bool,
    ) -> Answer<()> {
        Err(Errno::NOSYS)
    }
    /// Removes an extended attribute.
    fn remove_xattr(&self, by: &Caller, node: NodeId, name: &OsStr) -> Answer<()> {
        Err(Errno::NOSYS)
    }

    /// Sizes and free space of the volume.
    fn statistics(&self) -> Answer<Statistics>;
    /// The kernel sends no more requests. For a block device (`fuseblk`), its unmount waits for
    /// this call to return.
    fn destroy(&self) {}
}
