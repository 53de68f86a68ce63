//! Why a sync took a full commit instead of a fast one.

macro_rules! ineligible {
    ($($(#[$doc:meta])* $name:ident = $words:literal,)*) => {
        /// Why a sync took a full commit.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[non_exhaustive]
        pub enum Ineligible {
            $($(#[$doc])* $name,)*
        }

        impl Ineligible {
            /// All reasons, in the order of their values.
            pub const ALL: &[Ineligible] = &[$(Ineligible::$name,)*];

            /// The reason, for people.
            pub const fn words(self) -> &'static str {
                match self {
                    $(Ineligible::$name => $words,)*
                }
            }
        }
    };
}

ineligible! {
    /// The first commit after the volume was opened.
    First = "first commit since opening",
    /// The file is of a kind that records do not describe: a directory, a link, a device.
    NotRegular = "not a regular file",
    /// An extended attribute or an ACL was changed.
    Xattr = "extended attributes",
    /// Two names were exchanged.
    CrossRename = "exchange of names",
    /// A file's data is journaled from now on, or no longer.
    JournalFlag = "journal flag of a file",
    /// Memory ran out.
    NoMemory = "no memory",
    /// The boot loader's inode was swapped.
    SwapBoot = "boot loader's inode",
    /// The volume was resized.
    Resize = "change of the volume's size",
    /// A directory was renamed or moved.
    RenameDir = "rename of a directory",
    /// A range was collapsed or inserted.
    FallocRange = "range collapsed or inserted",
    /// File data in the journal.
    JournaledData = "file data in the journal",
    /// Data with a checksum became readable.
    DataChecksums = "checksums of data",
    /// Encrypted names were changed.
    Encrypted = "encrypted names",
    /// A directory was created or removed.
    Directory = "directory created or removed",
    /// A directory got a block: recovery by Linux would not count it.
    DirectoryGrew = "directory that got a block",
    /// An inode that is neither a file nor a directory was created, or its names changed.
    Special = "link, device, pipe or socket",
    /// An inode lost its last name.
    LastLink = "last name of a file",
    /// The orphan list changed.
    Orphan = "orphan list",
    /// A file was converted between extents and block pointers.
    Migrate = "conversion of a file's map",
    /// A file has its content in the inode.
    InlineData = "content in the inode",
    /// A feature of the volume that records do not support.
    Feature = "feature of the volume",
    /// Fields of an inode or a directory that records do not carry.
    Flags = "flags of an inode",
    /// The superblock or the volume's settings changed.
    Superblock = "settings of the volume",
    /// An inode number was freed and allocated again in one transaction.
    InodeReused = "inode number used again",
    /// The changes noted for an inode contradict each other.
    Unclear = "contradictory changes",
    /// An inode or its map could not be read, or records cannot describe it.
    NotRecordable = "inode that records cannot describe",
    /// A handle changed blocks and noted no change.
    Unnoted = "change that was not noted",
    /// The fast-commit area is full.
    LogFull = "fast-commit area full",
    /// The byte log is full.
    ByteLogFull = "byte log full",
}
