//! What a filesystem answers: one method an operation of the protocol, in plain types.
//!
//! ```text
//!   NodeId    a file the kernel knows, from the Entry that told it until `forget` took back every count
//!   HandleId  an opening of it, where `Handles` says that the filesystem wants to know of openings
//! ```
//!
//! Every method is called from many threads at once; one that waits keeps one thread. Names are single
//! components: never empty, no '/', no NUL (dispatch saw to that); "." and ".." only in `lookup`.

pub use extant::Timestamp;
use rustix::io::Errno;
use std::ffi::OsStr;
use std::time::Duration;

/// What an operation comes to.
pub type Answer<T> = Result<T, Errno>;

/// A file as the kernel names it; 1 is the root.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct NodeId(pub u64);

impl NodeId {
    /// The root of the mount.
    pub const ROOT: NodeId = NodeId(1);
}

/// An opened file or directory, as the filesystem named it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub struct HandleId(pub u64);

/// How a file was opened.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Opened {
    /// What the filesystem calls the opening.
    pub handle: HandleId,
    /// Reads and writes go past the kernel's cache, as the program makes them.
    pub past_cache: bool,
    /// A program that closes a descriptor of it waits for [`Operations::flush`].
    pub flush: bool,
}

/// Who asks.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Caller {
    /// User, as the filesystem's server sees it.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Process; 0 for the kernel itself.
    pub pid: u32,
}

/// What `stat` shows.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Attributes {
    /// Number shown to programs.
    pub ino: u64,
    /// Bytes.
    pub size: u64,
    /// Units of 512 bytes.
    pub blocks: u64,
    /// Last access.
    pub atime: Timestamp,
    /// Last change of the content.
    pub mtime: Timestamp,
    /// Last change of the inode.
    pub ctime: Timestamp,
    /// Birth, where known.
    pub btime: Option<Timestamp>,
    /// Type and permission bits.
    pub mode: u32,
    /// Names.
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

/// A name's meaning. Each one given to the kernel counts once, until [`Operations::forget`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Entry {
    /// The file; `NodeId(0)` for a name that means nothing, kept as such for `entry_valid`.
    pub node: NodeId,
    /// Tells numbers apart that are used again.
    pub generation: u64,
    /// What is known of it.
    pub attributes: Attributes,
    /// How long the kernel may take the name to mean this without asking.
    pub entry_valid: Duration,
    /// How long it may show the attributes without asking.
    pub attributes_valid: Duration,
}

/// What the filesystem wants of the kernel; each as far as the kernel has it.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Settings {
    /// The kernel collects writes in its own page cache, and keeps sizes and times of written files.
    pub writeback_cache: bool,
    /// The kernel checks access lists, stored as `system.posix_acl_*`; implies checks of permissions.
    pub posix_acl: bool,
    /// Which openings the filesystem wants to hear of.
    pub handles: Handles,
    /// Granularity of times in nanoseconds, 1..=1_000_000_000, a power of ten.
    pub time_granularity_ns: u32,
    /// Largest write and read in bytes; the transport may lower it.
    pub max_transfer: u32,
    /// Every read of content and of a symlink's target comes as a request: the kernel keeps neither. Content is then to be
    /// opened with [`Opened::past_cache`].
    pub every_read: bool,
}

/// Which openings are told: each costs a request.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Handles {
    /// None: files and directories are known by node alone, content may stay in the kernel's cache.
    None,
    /// Those of directories.
    Directories,
    /// All.
    All,
}

/// A file to be made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct NewNode {
    /// Type and permission bits; `umask` is not taken off yet.
    pub mode: u32,
    /// Bits that the caller's files shall not have, unless the directory has a default access list.
    pub umask: u32,
    /// Device of a device file, packed as in [`Attributes::rdev`].
    pub rdev: u32,
}

/// A time to set.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum SetTime {
    /// The moment of the call.
    Now,
    /// This one.
    To(Timestamp),
}

/// What to change; `None` leaves it.
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
    /// Last change of the inode: only from a kernel that collects writes.
    pub ctime: Option<Timestamp>,
    /// The change takes set-user-ID and set-group-ID bits away.
    pub kill_suid_sgid: bool,
}

/// How bytes come to be written.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct WriteFlags {
    /// From the kernel's cache; the caller is whoever it happened to write back for.
    pub from_cache: bool,
    /// The write takes set-user-ID and set-group-ID bits away.
    pub kill_suid_sgid: bool,
    /// `O_SYNC`, `O_DSYNC`, `O_DIRECT` and the like of the opening, as `open` has them.
    pub open_flags: u32,
}

/// How full the volume is, as `statfs` says it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Statistics {
    /// Bytes of a block.
    pub block_bytes: u32,
    /// Blocks in all.
    pub blocks: u64,
    /// Free ones.
    pub free: u64,
    /// Free ones that anybody may have.
    pub available: u64,
    /// Inodes in all.
    pub inodes: u64,
    /// Free ones.
    pub free_inodes: u64,
    /// Longest name in bytes.
    pub name_max: u32,
}

/// Where names of a directory are put, until it is full.
pub trait Listing {
    /// Whether the caller wants attributes: [`Listing::add_entry`], else [`Listing::add_name`].
    fn wants_entries(&self) -> bool;
    /// Whether a name of so many bytes still fits.
    fn fits(&self, name_bytes: usize) -> bool;
    /// Adds a name; `next` is where a later call goes on behind it (never 0). `kind` is the type as in
    /// `st_mode >> 12`, 0 when unknown. Call only what [`Listing::fits`] allowed.
    fn add_name(&mut self, name: &OsStr, ino: u64, kind: u32, next: u64);
    /// Adds a name with what it means, which then counts as from `lookup`; `node` 0 in `entry` gives
    /// the name alone ("." and ".." always do).
    fn add_entry(&mut self, name: &OsStr, entry: &Entry, next: u64);
}

/// A filesystem. What is not answered is `ENOSYS`, which the kernel takes as "never ask again" where
/// the protocol says so.
#[allow(unused_variables)]
pub trait Operations: Send + Sync {
    /// What to agree on with the kernel, asked once.
    fn settings(&self) -> Settings;

    /// What `name` means in `dir`. `ENOENT`, or an entry with node 0 to have that remembered.
    fn lookup(&self, by: &Caller, dir: NodeId, name: &OsStr) -> Answer<Entry>;
    /// Takes back `count` of the entries given for `node`.
    fn forget(&self, node: NodeId, count: u64);
    /// Attributes, and how long they hold.
    fn get_attributes(
        &self,
        by: &Caller,
        node: NodeId,
        handle: Option<HandleId>,
    ) -> Answer<(Attributes, Duration)>;
    /// Changes attributes; what they are then.
    fn set_attributes(
        &self,
        by: &Caller,
        node: NodeId,
        handle: Option<HandleId>,
        wish: &SetAttr,
    ) -> Answer<(Attributes, Duration)>;
    /// Target of a symlink.
    fn read_link(&self, by: &Caller, node: NodeId) -> Answer<Vec<u8>> {
        Err(Errno::NOSYS)
    }
    /// Makes a file, device, pipe or socket.
    fn make_node(&self, by: &Caller, dir: NodeId, name: &OsStr, new: &NewNode) -> Answer<Entry> {
        Err(Errno::NOSYS)
    }
    /// Makes a directory.
    fn make_dir(&self, by: &Caller, dir: NodeId, name: &OsStr, new: &NewNode) -> Answer<Entry> {
        Err(Errno::NOSYS)
    }
    /// Makes a symlink.
    fn symlink(&self, by: &Caller, dir: NodeId, name: &OsStr, target: &OsStr) -> Answer<Entry> {
        Err(Errno::NOSYS)
    }
    /// Makes a regular file and opens it in one step. With [`Handles`] that tell no openings of files it is
    /// not asked: [`Operations::make_node`] is.
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
    /// Makes a regular file without a name and opens it.
    fn make_unnamed(
        &self,
        by: &Caller,
        dir: NodeId,
        new: &NewNode,
        flags: u32,
    ) -> Answer<(Entry, Opened)> {
        Err(Errno::NOSYS)
    }
    /// Takes a name of anything but a directory away.
    fn unlink(&self, by: &Caller, dir: NodeId, name: &OsStr) -> Answer<()> {
        Err(Errno::NOSYS)
    }
    /// Takes the name of an empty directory away.
    fn remove_dir(&self, by: &Caller, dir: NodeId, name: &OsStr) -> Answer<()> {
        Err(Errno::NOSYS)
    }
    /// Renames; `flags` as in `renameat2`.
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
    /// Gives `node` a further name.
    fn link(&self, by: &Caller, node: NodeId, dir: NodeId, name: &OsStr) -> Answer<Entry> {
        Err(Errno::NOSYS)
    }

    /// Opens a file; `flags` as `open` has them. Only with [`Handles::All`].
    fn open(&self, by: &Caller, node: NodeId, flags: u32) -> Answer<Opened> {
        Err(Errno::NOSYS)
    }
    /// A program closes one of its descriptors of an opening with [`Opened::flush`], and waits for the answer. While the
    /// kernel collects writes, this comes for other openings, too.
    fn flush(&self, node: NodeId, handle: HandleId) -> Answer<()> {
        Err(Errno::NOSYS)
    }
    /// Ends an opening. No program waits for it.
    fn release(&self, node: NodeId, handle: HandleId) {}
    /// Fills `out` from `offset` on; fewer bytes only at the file's end.
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
    /// Writes bytes at `offset`; how many.
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
    /// Makes what was written durable; of the inode only what finding the data takes where `data_only`.
    fn sync_file(
        &self,
        by: &Caller,
        node: NodeId,
        handle: Option<HandleId>,
        data_only: bool,
    ) -> Answer<()> {
        Err(Errno::NOSYS)
    }
    /// As [`Operations::sync_file`], of a directory's names.
    fn sync_dir(&self, by: &Caller, node: NodeId, data_only: bool) -> Answer<()> {
        Err(Errno::NOSYS)
    }
    /// Makes everything durable.
    fn sync_all(&self) -> Answer<()> {
        Err(Errno::NOSYS)
    }
    /// Space of a range of an opened file; `mode` as in `fallocate`. Durable on return where the file was opened with
    /// `O_SYNC` or `O_DSYNC`: the kernel requests no sync after it.
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
    /// The next data or hole; `whence` is `SEEK_DATA` or `SEEK_HOLE`.
    fn seek(&self, by: &Caller, node: NodeId, offset: u64, whence: u32) -> Answer<u64> {
        Err(Errno::NOSYS)
    }
    /// Copies bytes between files, each a node and an offset; returns how many. Durable on return where the opening `to_handle`
    /// has `O_SYNC` or `O_DSYNC`.
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
    /// The device's block that holds block `block` of the file, 0 for a hole; both in `block_bytes`.
    fn block_map(&self, node: NodeId, block: u64, block_bytes: u32) -> Answer<u64> {
        Err(Errno::NOSYS)
    }
    /// An `ioctl` whose number says its sizes; `out` has room for the answer: how much of it is one.
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

    /// Opens a directory; `flags` as `open` has them. Only with [`Handles::Directories`] and [`Handles::All`].
    fn open_dir(&self, by: &Caller, node: NodeId, flags: u32) -> Answer<HandleId> {
        Err(Errno::NOSYS)
    }
    /// Ends an opening of a directory.
    fn release_dir(&self, node: NodeId, handle: HandleId) {}
    /// Lists names, "." and ".." included, from `offset` on: 0, or a `next` of an earlier name.
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

    /// Value of an extended attribute. `ENODATA` where there is none.
    fn get_xattr(&self, by: &Caller, node: NodeId, name: &OsStr) -> Answer<Vec<u8>> {
        Err(Errno::NOSYS)
    }
    /// Names of all attributes, each ended by a NUL.
    fn list_xattrs(&self, by: &Caller, node: NodeId) -> Answer<Vec<u8>> {
        Err(Errno::NOSYS)
    }
    /// Sets an attribute; `flags` as in `setxattr`. `kill_sgid`: the set-group-ID bit goes with it.
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
    /// Removes an attribute.
    fn remove_xattr(&self, by: &Caller, node: NodeId, name: &OsStr) -> Answer<()> {
        Err(Errno::NOSYS)
    }

    /// How full the volume is.
    fn statistics(&self) -> Answer<Statistics>;
    /// The kernel is done: it sends no more, and waits for this where it was told to.
    fn destroy(&self) {}
}
