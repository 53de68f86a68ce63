//! The checks that bytes from a disk can fail: one variant per check, with a text and a stable
//! name.

macro_rules! what {
    ($($(#[$section:meta])* $name:ident => $text:literal,)*) => {
        /// A check that bytes from a disk failed.
        #[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
        #[non_exhaustive]
        pub enum What {
            $($(#[$section])* #[doc = $text] $name,)*
        }

        impl What {
            /// The finding as a clause in lower case, without a full stop.
            pub const fn text(self) -> &'static str {
                match self { $(What::$name => $text,)* }
            }

            /// The stable name of the finding, as `--json` prints it.
            pub const fn name(self) -> &'static str {
                match self { $(What::$name => stringify!($name),)* }
            }
        }
    };
}

// One section per structure: add a variant at the end of its section.
what! {
    // Superblock
    SuperblockMagic => "superblock magic is not EF53",
    SuperblockChecksum => "superblock checksum does not match",
    SuperblockField => "superblock field is out of range",
    SuperblockBlockSize => "superblock block size is out of range",
    SuperblockClusterSize => "superblock cluster size is out of range",
    SuperblockInodeSize => "superblock inode size is out of range",
    SuperblockDescSize => "superblock descriptor size is out of range",
    SuperblockGroups => "superblock block, cluster or inode counts do not fit together",
    SuperblockBeyondDevice => "superblock counts more blocks than the device has",
    SuperblockFeatures => "superblock features contradict each other or its fields",
    // Group descriptors and bitmaps
    DescriptorChecksum => "group descriptor checksum does not match",
    DescriptorBlock => "group descriptor points outside the volume or onto other metadata",
    DescriptorCount => "group descriptor count is out of range",
    BitmapChecksum => "bitmap checksum does not match",
    BitmapPadding => "bitmap padding is not set",
    BitmapMetadataFree => "bitmap marks the group's own metadata as free",
    BitmapCount => "bitmap and group descriptor disagree on the free count",
    BlockAlreadyFree => "block to free is already free",
    BlockAlreadyUsed => "block to allocate is already in use",
    InodeAlreadyFree => "inode to free is already free",
    InodeAlreadyUsed => "inode to allocate is already in use",
    DescriptorFlags => "group descriptor flags contradict its counts or the volume",
    DescriptorOverlap => "metadata of a group lies on other metadata",
    // Inodes
    InodeNumber => "inode number is out of range",
    InodeChecksum => "inode checksum does not match",
    InodeExtraSize => "inode extra size is out of range",
    InodeMode => "inode has no known file type",
    InodeFlags => "inode flags contradict each other or the volume's features",
    InodeSize => "inode size is out of range",
    InodeBlocks => "inode block count is wrong",
    InodeUnlinked => "inode is in use but has no links",
    InodeFileAcl => "inode attribute block is outside the volume or on metadata",
    SymlinkTarget => "symlink target is empty, too long or not terminated",
    DeviceNumber => "device number is malformed",
    InlineData => "inline data is malformed",
    OrphanList => "orphan list loops or points at an unusable inode",
    OrphanFile => "orphan file block is malformed",
    OrphanFileChecksum => "orphan file block checksum does not match",
    QuotaFile => "quota file is malformed",
    MmpBlock => "multi-mount protection block is malformed",
    MmpChecksum => "multi-mount protection block checksum does not match",
    MemberRecord => "member record is malformed",
    MemberChecksum => "member record checksum does not match",
    InodeTime => "inode time is out of range",
    InodeReserved => "reserved inode is not as it must be",
    InodeEncryption => "encrypted inode has no encryption context",
    ResizeInode => "resize inode does not name the reserved descriptor blocks",
    DataSumsFile => "checksum file of data is not as it must be",
    DataSumsChecksum => "checksum of a block of data checksums does not match",
    DataChecksum => "checksum of data does not match",
    EncryptionContext => "encryption context is malformed",
    // Extents and block maps
    ExtentMagic => "extent header magic is not F30A",
    ExtentHeader => "extent header counts are out of range",
    ExtentDepth => "extent tree depth is wrong",
    ExtentChecksum => "extent block checksum does not match",
    ExtentEmpty => "extent length is zero",
    ExtentOrder => "extents are not in ascending order or overlap",
    ExtentKey => "extent index key differs from its child's first key",
    ExtentRange => "extent points outside the volume or onto metadata",
    ExtentCluster => "extent is not aligned with its cluster",
    ExtentUnwritten => "extent of a directory or symlink is unwritten",
    MapBlockRange => "block map points outside the volume or onto metadata",
    // Directories
    DirentLength => "directory entry length is wrong",
    DirentName => "directory entry name is empty, too long or holds a slash or NUL",
    DirentInode => "directory entry points at an inode out of range",
    DirentType => "directory entry type does not match its inode",
    DirentDot => "directory does not start with a proper \".\" and \"..\"",
    DirentDuplicate => "directory holds the same name twice",
    DirectoryChecksum => "directory block checksum does not match",
    DirectoryTail => "directory block has no checksum tail",
    DirectoryHole => "directory has a hole",
    DirectorySize => "directory size is not a whole number of blocks",
    HtreeRoot => "htree root is malformed",
    HtreeNode => "htree node is malformed",
    HtreeChecksum => "htree block checksum does not match",
    HtreeDepth => "htree is deeper than the volume allows",
    HtreeHash => "htree leaf holds a name outside its hash range",
    HtreeLeaf => "htree leaf is missing or referenced twice",
    DirentUnused => "directory entry names an inode that is not in use",
    DirentLink => "directory entry names the root, its own directory or a directory named elsewhere",
    DirentEncoding => "name is not valid in the encoding that its directory demands",
    DirentEncryption => "entry of an encrypted directory names an inode that is not under its policy",
    DirectoryEmpty => "directory has no blocks",
    // Extended attributes
    XattrMagic => "attribute header magic is not EA020000",
    XattrHeader => "attribute block header is malformed",
    XattrChecksum => "attribute block checksum does not match",
    XattrEntry => "attribute entry is malformed",
    XattrValue => "attribute value is out of bounds",
    XattrHash => "attribute hash does not match",
    XattrOrder => "attribute entries are out of order",
    XattrInode => "attribute value inode is unusable",
    Acl => "access control list is malformed",
    XattrRefcount => "attribute block or value inode is used by another number of inodes than it counts",
    // Journal
    JournalMagic => "journal superblock magic is not C03B3998",
    JournalSuperblock => "journal superblock field is out of range",
    JournalChecksum => "journal superblock checksum does not match",
    JournalInode => "journal inode is unusable",
    JournalMissing => "volume needs recovery but has no journal",
    JournalElsewhere => "the journal is on another device, which was not given",
    JournalUuid => "journal and volume do not name each other",
    JournalDescriptor => "journal descriptor block is malformed",
    JournalDescriptorChecksum => "journal descriptor block checksum does not match",
    JournalBlockChecksum => "checksum of a logged block does not match",
    JournalRevoke => "journal revoke block is malformed",
    JournalCommitChecksum => "journal commit block checksum does not match",
    JournalTarget => "journal logs a block outside the volume",
    FastCommitTag => "fast-commit record is malformed",
    ByteLogRecord => "byte-log record is malformed",
    FastCommitInode => "fast-commit record names an unusable inode",
    // Findings of a check of the whole volume
    BlockShared => "block is used more than once",
    BlockNotMarked => "block is in use but free in the bitmap",
    BlockLeaked => "block is marked used but nothing uses it",
    InodeNotMarked => "inode is in use but free in the bitmap",
    InodeLeaked => "inode is marked used but is not",
    InodeUnattached => "inode is not reachable from the root",
    DirectoryUnattached => "directory is not reachable from the root",
    DirectoryLoop => "directory is reachable in more than one way",
    DirectoryParent => "directory's \"..\" does not name its parent",
    LinkCount => "link count is wrong",
    FreeBlocksCount => "free block count is wrong",
    FreeInodesCount => "free inode count is wrong",
    UsedDirsCount => "directory count is wrong",
    RootDirectory => "root inode is not a directory",
    LostAndFound => "lost+found is missing or is not a directory",
    SizeBelowBlocks => "file size is smaller than the blocks it holds",
    QuotaUsage => "quota usage is wrong",
    DeletionTime => "inode in use has a deletion time",
    Backup => "backup superblock differs from the primary",
    VolumeState => "volume was not left in order",
    ItableUnused => "inode in use lies in the part of its table that was never used",
    ResourceLimit => "volume is larger than a check can hold",
    Unreadable => "block cannot be read",
}
