//! How often what was committed, and why not faster.

use std::sync::atomic::{AtomicU64, Ordering};

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

/// Counts of one journal since it was opened.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct JournalStats {
    /// Whether fast commits are on.
    pub fast_commits_on: bool,
    /// Transactions committed in full.
    pub commits: u64,
    /// Fast commits written.
    pub fast_commits: u64,
    /// Bytes of their records.
    pub fast_commit_bytes: u64,
    /// What went into the byte log; `None` while it is not used.
    pub byte_log: Option<ByteLogStats>,
    /// Syncs that would have taken a fast commit and took a full one, by reason; those that came
    /// up.
    pub full_because: Vec<(Ineligible, u64)>,
}

/// Counts of a byte log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct ByteLogStats {
    /// Records with a header of their own.
    pub records: u64,
    /// Bytes stored, headers and padding included.
    pub bytes: u64,
}

/// The counters.
pub(crate) struct Counts {
    pub(crate) commits: AtomicU64,
    pub(crate) fast_commits: AtomicU64,
    pub(crate) fast_commit_bytes: AtomicU64,
    full_because: [AtomicU64; Ineligible::ALL.len()],
}

impl Default for Counts {
    fn default() -> Counts {
        Counts {
            commits: AtomicU64::new(0),
            fast_commits: AtomicU64::new(0),
            fast_commit_bytes: AtomicU64::new(0),
            full_because: std::array::from_fn(|_| AtomicU64::new(0)),
        }
    }
}

impl Counts {
    pub(crate) fn full(&self, why: Ineligible) {
        self.full_because[why as usize].fetch_add(1, Ordering::Relaxed);
    }

    pub(crate) fn read(&self, fast_commits_on: bool) -> JournalStats {
        let get = |count: &AtomicU64| count.load(Ordering::Relaxed);
        let reasons =
            Ineligible::ALL.iter().map(|why| (*why, get(&self.full_because[*why as usize])));
        JournalStats {
            fast_commits_on,
            commits: get(&self.commits),
            fast_commits: get(&self.fast_commits),
            fast_commit_bytes: get(&self.fast_commit_bytes),
            byte_log: None,
            full_because: reasons.filter(|(_, count)| *count > 0).collect(),
        }
    }
}
