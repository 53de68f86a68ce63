//! Named sets of features that a given reader can mount.
//!
//! ```text
//!   default        what mke2fs 1.47.0 makes; no further feature is refused
//!   kernel-N       nothing that Linux N cannot mount for writing
//!   grub-2.06      nothing that GRUB 2.06 cannot read
//!   ext2, ext3     the old types, for the drivers of that name
//!
//!   set ──► options ──► + requests ──► are the volume's features ⊆ those that the reader knows?
//!                                      no: error
//! ```
//!
//! A table lists what each reader knows, with its source. The features of a volume made for a set
//! are compared with that table before anything is written, so a feature that the caller adds
//! cannot make the set's name untrue.

use crate::builder::error::BuildError;
use extant::mkfs::MkfsOptions;
use extant_ondisk::features::{Compat as CompatBits, FeatureBit, Features, Incompat, RoCompat};

/// A set by its name, and the features that it switches, in mke2fs's notation.
#[derive(Clone, Copy, Debug)]
pub struct Compat {
    /// Its name, as `--compat` takes it.
    pub name: &'static str,
    /// The type that it starts from.
    pub of_type: &'static str,
    /// Features switched on, or off with `^`.
    pub features: &'static str,
    /// The systems that can read and write such a volume.
    pub readers: &'static str,
    /// The reader that the name of the set guarantees.
    reader: Reader,
}

/// The reader that a set is for.
#[derive(Clone, Copy, Debug)]
enum Reader {
    /// No particular one: every feature is allowed.
    Any,
    /// The ext4 driver of this release of Linux, reading and writing.
    Linux(u32, u32),
    /// A driver that knows these features.
    Driver(Features),
}

/// All sets.
pub const COMPAT_SETS: &[Compat] = &[
    Compat {
        name: "default",
        of_type: "ext4",
        features: "",
        readers: "Linux 3.18 and later, e2fsprogs 1.43 and later, GRUB 2.06 and later",
        reader: Reader::Any,
    },
    Compat {
        name: "kernel-6.1",
        of_type: "ext4",
        features: "metadata_csum_seed,orphan_file",
        readers: "Linux 5.15 and later, e2fsprogs 1.47 and later",
        reader: Reader::Linux(6, 1),
    },
    Compat {
        name: "kernel-5.15",
        of_type: "ext4",
        features: "metadata_csum_seed,orphan_file",
        readers: "Linux 5.15 and later, e2fsprogs 1.47 and later",
        reader: Reader::Linux(5, 15),
    },
    Compat {
        name: "kernel-5.4",
        of_type: "ext4",
        features: "metadata_csum_seed",
        readers: "Linux 4.4 and later, e2fsprogs 1.43 and later",
        reader: Reader::Linux(5, 4),
    },
    Compat {
        name: "kernel-4.19",
        of_type: "ext4",
        features: "metadata_csum_seed",
        readers: "Linux 4.4 and later, e2fsprogs 1.43 and later",
        reader: Reader::Linux(4, 19),
    },
    Compat {
        name: "kernel-3.10",
        of_type: "ext4",
        features: "^metadata_csum,uninit_bg",
        readers: "Linux 2.6.28 and later, e2fsprogs 1.42 and later",
        reader: Reader::Linux(3, 10),
    },
    Compat {
        name: "grub-2.06",
        of_type: "ext4",
        features: "",
        readers: "GRUB 2.06 and later, Linux 3.18 and later",
        reader: Reader::Driver(GRUB_2_06),
    },
    Compat {
        name: "ext3",
        of_type: "ext3",
        features: "",
        readers: "the ext3 and ext4 drivers of Linux, and whatever else knows ext3",
        reader: Reader::Driver(EXT3),
    },
    Compat {
        name: "ext2",
        of_type: "ext2",
        features: "",
        readers: "the ext2, ext3 and ext4 drivers of Linux, and whatever else knows ext2",
        reader: Reader::Driver(EXT2),
    },
];

/// The first release of Linux whose ext4 supports a feature: major, minor.
///
/// Source: ext4(5) of e2fsprogs, "Kernel support" (all 2.6 releases are earlier than that of any
/// set, and are 2.6 here). That page does not list the last two; they follow the release notes of
/// e2fsprogs 1.46 and 1.47. A feature that is missing in this table is one that no release
/// supports.
const LINUX: &[(&str, (u32, u32))] = &[
    ("filetype", (2, 2)),
    ("sparse_super", (2, 2)),
    ("large_file", (2, 2)),
    ("has_journal", (2, 4)),
    ("needs_recovery", (2, 4)),
    ("ext_attr", (2, 6)),
    ("dir_index", (2, 6)),
    ("resize_inode", (2, 6)),
    ("64bit", (2, 6)),
    ("dir_nlink", (2, 6)),
    ("extent", (2, 6)),
    ("extra_isize", (2, 6)),
    ("flex_bg", (2, 6)),
    ("huge_file", (2, 6)),
    ("meta_bg", (2, 6)),
    ("uninit_bg", (2, 6)),
    ("mmp", (3, 0)),
    ("bigalloc", (3, 2)),
    ("quota", (3, 6)),
    ("inline_data", (3, 8)),
    ("sparse_super2", (3, 16)),
    ("metadata_csum", (3, 18)),
    ("encrypt", (4, 1)),
    ("metadata_csum_seed", (4, 4)),
    ("project", (4, 5)),
    ("ea_inode", (4, 13)),
    ("large_dir", (4, 13)),
    ("casefold", (5, 2)),
    ("verity", (5, 4)),
    ("stable_inodes", (5, 5)),
    ("fast_commit", (5, 10)),
    ("orphan_file", (5, 15)),
];

/// A driver that only reads checks nothing but the incompat word, and ignores some bits of that.
///
/// Source: GRUB 2.06, "ext2" module: the features that it supports, and those whose absence it
/// ignores. Debian's 2.06 has the list of 2.12 (also `metadata_csum_seed` and `large_dir`); this
/// table has that of the unmodified release.
const GRUB_2_06: Features = Features {
    compat: CompatBits::all(),
    incompat: Incompat::FILETYPE
        .union(Incompat::EXTENTS)
        .union(Incompat::FLEX_BG)
        .union(Incompat::META_BG)
        .union(Incompat::IS_64BIT)
        .union(Incompat::ENCRYPT)
        .union(Incompat::RECOVER)
        .union(Incompat::MMP),
    ro_compat: RoCompat::all(),
};

/// Source: Linux, what its ext4 driver accepts of a volume mounted as ext2. Linux ignores compat
/// bits, but an e2fsck of that time refuses those that it does not know.
const EXT2: Features = Features {
    compat: CompatBits::EXT_ATTR.union(CompatBits::RESIZE_INODE).union(CompatBits::DIR_INDEX),
    incompat: Incompat::FILETYPE.union(Incompat::META_BG),
    ro_compat: RoCompat::SPARSE_SUPER.union(RoCompat::LARGE_FILE).union(RoCompat::BTREE_DIR),
};

/// As [`EXT2`], with a journal.
const EXT3: Features = Features {
    compat: EXT2.compat.union(CompatBits::HAS_JOURNAL),
    incompat: EXT2.incompat.union(Incompat::RECOVER),
    ro_compat: EXT2.ro_compat,
};

impl Compat {
    /// The set called `name`.
    ///
    /// # Errors
    /// `Option`, naming the existing sets.
    pub fn by_name(name: &str) -> Result<Compat, BuildError> {
        COMPAT_SETS.iter().find(|set| set.name == name).copied().ok_or_else(|| {
            let names: Vec<_> = COMPAT_SETS.iter().map(|set| set.name).collect();
            BuildError::Option(format!(
                "no compatibility set is called {name}: there are {}",
                names.join(", ")
            ))
        })
    }

    /// Options for a volume of this set. The caller may request more features; [`Compat::check`]
    /// finds those that the reader does not know.
    pub fn mkfs(&self) -> MkfsOptions {
        MkfsOptions::of_type(self.of_type)
            .and_then(|options| options.features(self.features))
            .expect("the sets name types and features that mkfs knows")
    }

    /// Every feature that the set's reader knows; `None` when every feature is allowed.
    pub fn knows(&self) -> Option<Features> {
        match self.reader {
            Reader::Any => None,
            Reader::Driver(words) => Some(words),
            Reader::Linux(major, minor) => Some(known_to_linux(major, minor)),
        }
    }

    /// Compares a volume's features with those that the set's reader knows.
    ///
    /// # Errors
    /// `Option`, naming each feature that it does not know.
    pub fn check(&self, features: &Features) -> Result<(), BuildError> {
        let Some(knows) = self.knows() else { return Ok(()) };
        let beyond = Features {
            compat: features.compat.difference(knows.compat),
            incompat: features.incompat.difference(knows.incompat),
            ro_compat: features.ro_compat.difference(knows.ro_compat),
        };
        match beyond.iter().next() {
            None => Ok(()),
            Some(_) => Err(BuildError::Option(format!(
                "the compatibility set {} excludes {beyond}: leave out the feature or the set",
                self.name
            ))),
        }
    }
}

/// The features that a release of Linux supports.
fn known_to_linux(major: u32, minor: u32) -> Features {
    let mut known = Features::default();
    for (name, since) in LINUX {
        if *since <= (major, minor) {
            known.set(FeatureBit::by_name(name).expect("e2fsprogs knows the name"), true);
        }
    }
    // The bit that marks the orphan file as used belongs to the same feature.
    if known.compat.contains(CompatBits::ORPHAN_FILE) {
        known.ro_compat.insert(RoCompat::ORPHAN_PRESENT);
    }
    known
}

#[cfg(test)]
mod tests {
    use super::*;
    use extant::{Environment, mkfs};
    use extant_blockdev::MemoryDevice;
    use std::sync::Arc;

    #[test]
    fn a_volume_of_each_set_has_only_what_its_reader_knows() {
        for set in COMPAT_SETS {
            for mib in [8, 600] {
                let device = Arc::new(MemoryDevice::new(mib << 20));
                let made = mkfs::format(device, &set.mkfs(), &Environment::default()).unwrap();
                set.check(&made.features).unwrap_or_else(|error| panic!("{}: {error}", set.name));
            }
        }
    }

    #[test]
    fn a_feature_that_came_later_is_refused_by_name() {
        for (set, features, refused) in [
            ("kernel-6.1", "casefold,verity,fast_commit", ""),
            ("kernel-5.15", "fast_commit,project,quota", ""),
            ("kernel-5.4", "orphan_file", "orphan_file"),
            ("kernel-5.4", "fast_commit", "fast_commit"),
            ("kernel-4.19", "casefold", "casefold"),
            ("kernel-4.19", "ea_inode,large_dir", ""),
            ("kernel-3.10", "metadata_csum", "metadata_csum"),
            ("kernel-3.10", "inline_data,bigalloc,mmp", ""),
            ("grub-2.06", "metadata_csum_seed", "metadata_csum_seed"),
            ("grub-2.06", "inline_data", "inline_data"),
            ("grub-2.06", "orphan_file", ""),
            ("ext3", "extent", "extent"),
            ("ext2", "has_journal", "has_journal"),
            ("default", "casefold", ""),
        ] {
            let set = Compat::by_name(set).unwrap();
            let options = set.mkfs().features(features).unwrap();
            let device = Arc::new(MemoryDevice::new(600 << 20));
            let made = mkfs::format(device, &options, &Environment::default()).unwrap();
            let answer = set.check(&made.features);
            match refused {
                "" => answer.unwrap(),
                name => {
                    let text = answer.unwrap_err().to_string();
                    assert!(text.contains(&format!("excludes {name}:")), "{text}");
                }
            }
        }
    }

    #[test]
    fn linux_6_1_knows_all_that_the_engine_writes() {
        let known = known_to_linux(6, 1);
        let unknown = Incompat::READABLE.difference(known.incompat);
        assert_eq!(unknown, Incompat::DAX_FC_BYTELOG, "stands only while a volume is written");
        // One is historic, the other is an extension of extant.
        let unknown = RoCompat::BTREE_DIR | RoCompat::DATA_CSUM;
        assert_eq!(RoCompat::WRITABLE.difference(known.ro_compat), unknown);
    }
}
