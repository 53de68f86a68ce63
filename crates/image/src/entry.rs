//! One entry of a tree: its kind, its owner, and where its bytes come from.
//!
//! ```text
//!   Node
//!   ┌───────────────┬───────────────────────────┬────────┬───────┬────────┐
//!   │ Kind          │ Meta                      │ xattrs │ times │ parent │   about 90 bytes
//!   │ File          │ mode uid gid mtime        │ shared │ rare  │        │
//!   │  ├ size       └───────────────────────────┴────────┴───────┴────────┘
//!   │  ├ Content ──► nothing | host file | span of an archive | bytes in memory
//!   │  └ map ──────► which ranges hold data, when not all do
//!   └───────────────┘
//! ```
//!
//! A node has one or more names (hard links). The tree's entry table holds the names.

use std::fmt;

/// A point in time as filesystems store it: seconds since 1970 and nanoseconds below a second.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Time {
    /// Seconds since 1970-01-01 UTC; may be negative.
    pub sec: i64,
    /// Nanoseconds, 0..=999_999_999.
    pub nsec: u32,
}

/// What every entry has besides its kind.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Meta {
    /// Permission bits with set-user-id, set-group-id and sticky: 0..=0o7777. No type bits.
    pub mode: u16,
    /// Owner.
    pub uid: u32,
    /// Group.
    pub gid: u32,
    /// Last change of the content.
    pub mtime: Time,
}

impl Meta {
    /// Attributes of a directory that only a path below it implies: mode 0755, owner root, time
    /// 1970.
    pub const IMPLIED_DIRECTORY: Meta =
        Meta { mode: 0o755, uid: 0, gid: 0, mtime: Time { sec: 0, nsec: 0 } };
}

/// Times that most sources do not give. A tar has them in PAX records. For a directory source they
/// are never given, because they would differ on every build.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct ExtraTimes {
    /// Last access.
    pub atime: Option<Time>,
    /// Last change of the metadata.
    pub ctime: Option<Time>,
}

/// A node of a [`Tree`](crate::Tree): an index that stays valid as long as the tree.
#[derive(Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct NodeId(pub(crate) u32);

impl NodeId {
    /// The root directory of every tree.
    pub const ROOT: NodeId = NodeId(0);

    /// The position in [`Tree::nodes`](crate::Tree::nodes), for tables with one element per node.
    pub fn index(self) -> usize {
        self.0 as usize
    }
}

impl fmt::Debug for NodeId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "node {}", self.0)
    }
}

/// A name or a symlink target in the tree's text store.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Text {
    pub(crate) at: u32,
    pub(crate) len: u16,
}

/// A directory's range in the tree's entry table.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Entries {
    pub(crate) first: u32,
    pub(crate) count: u32,
}

/// The kind of a node.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kind {
    /// A directory; its names are [`Tree::children`](crate::Tree::children).
    Directory(Entries),
    /// A regular file.
    File {
        /// Length in bytes, holes included.
        size: u64,
        /// Where the bytes come from.
        content: Content,
        /// Which ranges hold data; see [`Tree::data_map`](crate::Tree::data_map).
        map: MapId,
    },
    /// A symbolic link; its target is [`Tree::target`](crate::Tree::target), 1..=4095 bytes.
    Symlink(Text),
    /// A character device.
    CharDevice {
        /// Major number.
        major: u32,
        /// Minor number.
        minor: u32,
    },
    /// A block device.
    BlockDevice {
        /// Major number.
        major: u32,
        /// Minor number.
        minor: u32,
    },
    /// A named pipe.
    Fifo,
    /// A socket.
    Socket,
}

impl Kind {
    /// True for a directory.
    pub fn is_directory(&self) -> bool {
        matches!(self, Kind::Directory(_))
    }

    /// The length of a regular file in bytes; zero for all else.
    pub fn size(&self) -> u64 {
        match self {
            Kind::File { size, .. } => *size,
            _ => 0,
        }
    }

    /// The file type bits of `st_mode`.
    pub fn mode_type(&self) -> u16 {
        match self {
            Kind::Directory(_) => 0o040000,
            Kind::File { .. } => 0o100000,
            Kind::Symlink(_) => 0o120000,
            Kind::CharDevice { .. } => 0o020000,
            Kind::BlockDevice { .. } => 0o060000,
            Kind::Fifo => 0o010000,
            Kind::Socket => 0o140000,
        }
    }
}

/// Where a regular file's bytes come from; read them with a
/// [`ContentReader`](crate::ContentReader).
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Content {
    /// The file has no data: it is empty or one hole.
    Empty,
    /// A file of a source directory, opened when read.
    Host(HostFileId),
    /// The ranges of the data map, one after the other, from a position in an archive on.
    Archive {
        /// Which archive.
        archive: ArchiveId,
        /// Offset in bytes from its start.
        offset: u64,
    },
    /// Bytes held in memory.
    Inline(u32),
    /// No bytes of its own: the name is a hard link to a file outside of the tree
    /// ([`Tree::outside`](crate::Tree::outside)).
    Outside(Text),
}

/// An index into the tree's source files.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct HostFileId(pub(crate) u32);

/// An index into the tree's archives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ArchiveId(pub(crate) u32);

/// An index into the tree's data maps.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct MapId(pub(crate) u32);

impl MapId {
    /// The map of a file without holes.
    pub const DENSE: MapId = MapId(0);
}

/// A range of a sparse file that holds data.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct DataRange {
    /// Bytes from the start of the file.
    pub offset: u64,
    /// Bytes, never zero.
    pub len: u64,
    /// In an archive: bytes of data stored before this range.
    pub stored: u64,
}

/// An extended attribute in the form of the system calls: `user.mime_type`,
/// `security.capability`, `system.posix_acl_access` (version 2) and so on.
#[derive(Clone, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Xattr {
    /// The whole name with its prefix.
    pub name: Box<[u8]>,
    /// The value, at most 64 KiB.
    pub value: Box<[u8]>,
}

/// One future inode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Node {
    /// What it is.
    pub kind: Kind,
    /// Mode, owner, time.
    pub meta: Meta,
    pub(crate) links: u32,
    pub(crate) xattrs: u32,
    pub(crate) times: u32,
    pub(crate) parent: u32,
    /// A directory that no source lists: only a path below it implies it.
    pub(crate) implied: bool,
}

impl Node {
    pub(crate) fn new(kind: Kind, meta: Meta) -> Node {
        Node { kind, meta, links: 1, xattrs: 0, times: 0, parent: 0, implied: false }
    }

    pub(crate) fn implied_directory() -> Node {
        let kind = Kind::Directory(Entries::default());
        Node { implied: true, ..Node::new(kind, Meta::IMPLIED_DIRECTORY) }
    }

    /// The number of names that the node has in this tree. One for directories: `.` and the `..` of
    /// subdirectories do not count here.
    pub fn links(&self) -> u32 {
        self.links
    }

    /// The directory that holds the node's first name; the root for the root itself.
    pub fn parent(&self) -> NodeId {
        NodeId(self.parent)
    }

    /// True for a directory that no source lists: only a path below it implies it.
    pub fn is_implied(&self) -> bool {
        self.implied
    }

    /// True if both nodes have the same list of extended attributes.
    pub fn same_xattrs(&self, other: &Node) -> bool {
        self.xattrs == other.xattrs
    }
}

const _: () = assert!(size_of::<Node>() <= 96 && size_of::<Kind>() <= 40);

/// Attribute namespaces that ext4 has an index for; others cannot be stored.
pub(crate) fn is_storable_xattr(name: &[u8]) -> bool {
    const PREFIXES: [&[u8]; 3] = [b"user.", b"trusted.", b"security."];
    let prefixed = PREFIXES.iter().any(|p| name.starts_with(p) && name.len() > p.len());
    prefixed || name == b"system.posix_acl_access" || name == b"system.posix_acl_default"
}
