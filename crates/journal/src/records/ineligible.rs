//! Why a sync took a full commit instead of a fast one.

macro_rules! ineligible {
    ($($(#[$doc:meta])* $name:ident = $words:literal,)*) => {
        /// Why an fsync took a full commit.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[non_exhaustive]
        pub enum Ineligible {
            $($(#[$doc])* $name,)*
        }

        impl Ineligible {
            /// All of them, in the order of their numbers.
            pub const ALL: &[Ineligible] = &[$(Ineligible::$name,)*];

            /// For people.
            pub const fn words(self) -> &'static str {
                match self {
                    $(Ineligible::$name => $words,)*
                }
            }
        }
    };
}

ineligible! {
    /// It was the first commit since the volume was opened.
    First = "first commit since opening",
    /// The file is none that records tell: a directory, a link, a device.
    NotRegular = "not a regular file",
    /// An extended attribute, an ACL.
    Xattr = "extended attributes",
    /// Two names changed places.
    CrossRename = "exchange of names",
    /// A file's data goes, or no longer goes, through the journal.
    JournalFlag = "journal flag of a file",
    /// Memory ran out.
    NoMemory = "no memory",
    /// The boot loader's inode was swapped.
    SwapBoot = "boot loader's inode",
    /// The volume changed its size.
    Resize = "change of the volume's size",
    /// A directory got another name or parent.
    RenameDir = "rename of a directory",
    /// A range was collapsed or inserted.
    FallocRange = "range collapsed or inserted",
    /// File data in the journal.
    JournaledData = "file data in the journal",
    /// Data with a checksum became readable.
    DataSums = "checksums of data",
    /// Encrypted names.
    Encrypted = "encrypted names",
    /// A directory was made or removed.
    Directory = "directory made or removed",
    /// A directory got a block: Linux' recovery would not count it.
    DirectoryGrew = "directory that got a block",
    /// An inode that is no file or directory was made, or changed names.
    Special = "link, device, pipe or socket",
    /// An inode lost its last name.
    LastLink = "last name of a file",
    /// The list of orphans changed.
    Orphan = "list of orphans",
    /// A file got the other kind of map.
    Migrate = "other kind of map",
    /// Content inside an inode.
    InlineData = "content in the inode",
    /// A feature of the volume that records do not carry.
    Feature = "feature of the volume",
    /// Fields of an inode or a directory that records do not carry.
    Flags = "flags of an inode",
    /// The superblock or the volume's settings.
    Superblock = "settings of the volume",
    /// A number was given to another inode in one transaction.
    InodeReused = "inode number used again",
    /// What was noted of an inode does not fit together.
    Unclear = "unclear order of changes",
    /// An inode or its map could not be read, or not be told.
    CannotTell = "inode that cannot be told",
    /// A handle changed blocks and did not say what that means.
    Unnoted = "change without a note",
    /// There is no room for the records.
    LogFull = "no room for fast commits",
    /// There is no room in the byte log.
    ByteLogFull = "byte log overflow",
}
