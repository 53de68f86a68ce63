//! What a repair found and changes, in classes that people understand, and the affected files.

use std::collections::BTreeMap;
use std::fmt;
use std::ops::Range;

/// A class of changes.
///
/// JSON prints [`Class::name`], which never changes afterwards.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash)]
#[non_exhaustive]
pub enum Class {
    /// The journal was replayed, as at a mount.
    JournalReplayed,
    /// The journal was damaged: what it held and could not be proven is lost.
    JournalReset,
    /// Records of fast commits that could not be applied: what they held is lost.
    RecordsLost,
    /// Blocks or inodes that were damaged, and of which the journal still holds a copy.
    FromJournal,
    /// Deleted files that were still open in a crash were freed, or truncations finished.
    Orphans,
    /// Fields of the superblock.
    Superblock,
    /// The superblock was taken from a backup.
    SuperblockBackup,
    /// A group descriptor was repaired.
    Descriptor,
    /// An inode table was not found; its inodes are lost.
    TableLost,
    /// Only the checksum of an inode was wrong, and everything else fits.
    InodeChecksum,
    /// Fields of an inode.
    InodeField,
    /// An inode that could not be understood.
    InodeLost,
    /// An inode that was marked as free, but has a name.
    InodeRevived,
    /// Parts of a file's map are lost.
    MapLost,
    /// The target of a symbolic link was cut at a zero byte: the rest is lost.
    TargetCut,
    /// A file's map was written again; all blocks that it is known to have had are in it.
    MapRebuilt,
    /// Blocks that several files claimed were copied.
    Cloned,
    /// Extended attributes are lost.
    AttributesLost,
    /// Extended attributes were written again without a loss.
    AttributesRebuilt,
    /// Names whose entry was damaged, or that lead to no file.
    NameLost,
    /// Fields of a directory's entries.
    NameField,
    /// Names that were changed because they were illegal or appeared twice.
    NameChanged,
    /// A directory's blocks or index.
    Directory,
    /// Files without a name got a new one in lost+found.
    Reconnected,
    /// Files without a name got their name back: from the journal, or from what is left of a
    /// damaged directory block.
    NameRestored,
    /// Link counts.
    Links,
    /// Bitmaps, counts and checksums that follow from everything else.
    Counts,
    /// Usage in quota files.
    Quota,
    /// The volume's own files: journal, orphan file, reserved descriptors, multi-mount block.
    OwnFiles,
}

impl Class {
    /// The name that `--json` prints.
    pub const fn name(self) -> &'static str {
        self.row().0
    }

    /// One line for people.
    pub const fn text(self) -> &'static str {
        self.row().1
    }

    /// Whether a repair makes this change without being asked: it cannot lose anything.
    pub const fn is_safe(self) -> bool {
        self.row().2
    }

    /// Whether content, names or attributes are lost with it.
    pub const fn is_loss(self) -> bool {
        matches!(
            self,
            Class::JournalReset
                | Class::RecordsLost
                | Class::TableLost
                | Class::InodeLost
                | Class::MapLost
                | Class::TargetCut
                | Class::AttributesLost
                | Class::NameLost
        )
    }

    const fn row(self) -> (&'static str, &'static str, bool) {
        match self {
            Class::JournalReplayed => ("journal-replayed", "journal replayed", true),
            Class::JournalReset => ("journal-reset", "damaged journal emptied", false),
            Class::RecordsLost => ("records-lost", "fast commits that could not be applied", false),
            Class::FromJournal => {
                ("from-journal", "damaged blocks and inodes taken from the journal's copies", false)
            }
            Class::Orphans => ("orphans", "deleted files freed, truncations finished", true),
            Class::Superblock => ("superblock", "superblock fields repaired", true),
            Class::SuperblockBackup => {
                ("superblock-backup", "superblock restored from a backup", false)
            }
            Class::Descriptor => ("descriptor", "group descriptors repaired", false),
            Class::TableLost => ("table-lost", "inode tables lost", false),
            Class::InodeChecksum => {
                ("inode-checksum", "inodes kept whose checksum is wrong: uncertain", true)
            }
            Class::InodeField => ("inode-field", "inode fields repaired", true),
            Class::InodeLost => ("inode-lost", "inodes lost", false),
            Class::InodeRevived => ("inode-revived", "inodes with a name taken back in use", false),
            Class::MapLost => ("map-lost", "files with lost blocks", false),
            Class::TargetCut => ("target-cut", "targets of symbolic links cut short", false),
            Class::MapRebuilt => ("map-rebuilt", "block maps written again", false),
            Class::Cloned => ("cloned", "files that got copies of shared blocks", false),
            Class::AttributesLost => ("attributes-lost", "attributes or access lists lost", false),
            Class::AttributesRebuilt => ("attributes-rebuilt", "attributes written again", true),
            Class::NameLost => ("name-lost", "names lost", false),
            Class::NameField => ("name-field", "directory entries repaired", true),
            Class::NameChanged => ("name-changed", "names changed", false),
            Class::Directory => ("directory", "directories repaired", false),
            Class::Reconnected => ("reconnected", "files without a name reconnected", false),
            Class::NameRestored => {
                ("name-restored", "names taken from the journal or from damaged blocks", false)
            }
            Class::Links => ("links", "link counts corrected", true),
            Class::Counts => ("counts", "bitmaps and counts corrected", true),
            Class::Quota => ("quota", "quota usage corrected", true),
            Class::OwnFiles => ("own-files", "internal files made again", true),
        }
    }
}

impl fmt::Display for Class {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.text())
    }
}

/// What a repair does to one file.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct FileVerdict {
    /// The path after the repair, if the file still exists and has one.
    pub path: Option<Vec<u8>>,
    /// What was changed.
    pub classes: Vec<Class>,
    /// Lost or uncertain ranges of the content, in bytes.
    pub ranges: Vec<Range<u64>>,
}

impl FileVerdict {
    /// What is left of the file: "gone", "partly lost", "renamed", "uncertain" or "whole".
    ///
    /// Whole means that the map and the attributes are right; content is not verified.
    pub fn state(&self) -> &'static str {
        let has = |class: Class| self.classes.contains(&class);
        if has(Class::InodeLost) {
            "gone"
        } else if [Class::MapLost, Class::TargetCut, Class::AttributesLost].into_iter().any(has) {
            "partly lost"
        } else if has(Class::Reconnected) || has(Class::NameChanged) {
            "renamed"
        } else if UNCERTAIN.into_iter().any(has) {
            "uncertain"
        } else {
            "whole"
        }
    }
}

/// Changes after which a file is complete, but may not be what it was.
const UNCERTAIN: [Class; 6] = [
    Class::FromJournal,
    Class::NameRestored,
    Class::Cloned,
    Class::InodeChecksum,
    Class::InodeRevived,
    Class::MapRebuilt,
];

/// How many files are listed by number; further ones are only counted.
const FILES_MAX: usize = 100_000;
/// How many ranges are listed for one file.
const RANGES_MAX: usize = 1000;

/// Everything that a repair changes.
#[derive(Clone, Debug, Default)]
pub struct Report {
    counts: BTreeMap<Class, u64>,
    files: BTreeMap<u32, FileVerdict>,
    notes: Vec<String>,
}

impl Report {
    /// Counts a change that concerns no single file.
    pub(crate) fn add(&mut self, class: Class) {
        *self.counts.entry(class).or_default() += 1;
    }

    /// Counts a change of the file `ino`.
    pub(crate) fn add_file(&mut self, class: Class, ino: u32) {
        match self.file(ino) {
            Some(file) if file.classes.contains(&class) => {}
            Some(file) => {
                file.classes.push(class);
                self.add(class);
            }
            None => self.add(class),
        }
    }

    /// Adds lost or uncertain bytes of the file `ino`.
    pub(crate) fn add_range(&mut self, ino: u32, range: Range<u64>) {
        if let Some(file) = self.file(ino)
            && file.ranges.len() < RANGES_MAX
            && !file.ranges.contains(&range)
        {
            file.ranges.push(range);
        }
    }

    /// Whether the file `ino` was changed in one of these ways.
    pub(crate) fn has_any(&self, ino: u32, classes: &[Class]) -> bool {
        let of_file = self.files.get(&ino).map(|file| &file.classes);
        of_file.is_some_and(|known| known.iter().any(|class| classes.contains(class)))
    }

    /// Adds a sentence for people.
    pub(crate) fn note(&mut self, text: impl Into<String>) {
        let text = text.into();
        if !self.notes.contains(&text) {
            self.notes.push(text);
        }
    }

    /// Whether content, names or attributes are lost, or may be: what a damaged block of a
    /// directory held is not known.
    pub(crate) fn may_have_loss(&self) -> bool {
        self.counts.keys().any(|class| class.is_loss() || *class == Class::Directory)
    }

    /// Sets the paths of the listed files.
    pub(crate) fn set_paths(&mut self, mut path_of: impl FnMut(u32) -> Option<Vec<u8>>) {
        for (ino, file) in &mut self.files {
            file.path = path_of(*ino);
        }
    }

    fn file(&mut self, ino: u32) -> Option<&mut FileVerdict> {
        if self.files.len() >= FILES_MAX && !self.files.contains_key(&ino) {
            return None;
        }
        Some(self.files.entry(ino).or_default())
    }

    /// The classes of changes and how often each occurs.
    pub fn counts(&self) -> impl Iterator<Item = (Class, u64)> + '_ {
        self.counts.iter().map(|(class, count)| (*class, *count))
    }

    /// The affected files, by inode number; at most 100,000.
    pub fn files(&self) -> impl Iterator<Item = (u32, &FileVerdict)> + '_ {
        self.files.iter().map(|(ino, file)| (*ino, file))
    }

    /// Sentences for people.
    pub fn notes(&self) -> &[String] {
        &self.notes
    }

    /// Whether every change is of a class that is made without being asked.
    pub fn is_safe(&self) -> bool {
        self.counts.keys().all(|class| class.is_safe())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_class_is_counted_once_for_each_file() {
        let mut report = Report::default();
        report.add_file(Class::MapLost, 12);
        report.add_file(Class::MapLost, 12);
        report.add_file(Class::MapLost, 13);
        report.add_range(12, 0..4096);
        report.add_range(12, 0..4096);
        assert_eq!(report.counts().collect::<Vec<_>>(), [(Class::MapLost, 2)]);
        let (_, file) = report.files().next().unwrap();
        assert_eq!((file.state(), file.ranges.len()), ("partly lost", 1));
        assert!(!report.is_safe());
    }
}
