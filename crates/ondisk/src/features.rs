//! Feature bits: the features that an engine must support before it may read or write a volume.
//!
//! ```text
//!   superblock 05C          060            064
//!             ┌────────────┬──────────────┬──────────────┐
//!             │ compat     │ incompat     │ ro_compat    │   three u32, little-endian
//!             └────────────┴──────────────┴──────────────┘
//!   unknown bit: mount      do not mount   mount read-only
//! ```
//!
//! Rule: every rewrite keeps unknown bits. Names are those of e2fsprogs.
//! Source: ext4 documentation, "The Super Block".

use core::fmt;
use extant_base::{Feature, FeatureSet};

macro_rules! feature_set {
    ($(#[$doc:meta])* $set:ident in $kind:ident { $($(#[doc = $bit_doc:literal])* $flag:ident = $bit:literal, $name:literal;)* }
     aliases { $($alias:literal => $target:ident),* $(,)? }) => {
        bitflags::bitflags! {
            $(#[$doc])*
            #[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
            pub struct $set: u32 {
                $($(#[doc = $bit_doc])* const $flag = $bit;)*
                // Unknown bits are kept, not dropped.
                const _ = !0;
            }
        }

        impl $set {
            const NAMES: &'static [($set, &'static str)] = &[$(($set::$flag, $name)),*];

            /// The bit called `name` by e2fsprogs, or `None`. (`from_name` knows the Rust names.)
            pub fn by_name(name: &str) -> Option<$set> {
                match name {
                    $($alias => return Some($set::$target),)*
                    _ => {}
                }
                Self::NAMES.iter().find(|(_, known)| *known == name).map(|(bit, _)| *bit)
            }

            /// The bits that this crate has no name for.
            pub fn unknown(self) -> $set {
                Self::NAMES.iter().fold(self, |left, (bit, _)| left.difference(*bit))
            }

            /// Every set bit as a [`Feature`], lowest first. The name of an unknown bit is empty.
            pub fn features(self) -> impl Iterator<Item = Feature> {
                let bits = self.bits();
                (0..32).map(|n| 1u32 << n).filter(move |bit| bits & bit != 0).map(|bits| Feature {
                    set: FeatureSet::$kind,
                    bits,
                    name: Self::NAMES
                        .iter()
                        .find(|(known, _)| known.bits() == bits)
                        .map_or("", |(_, name)| *name),
                })
            }
        }

        /// The names, separated by spaces; a bit without a name as `FEATURE_` and its letter and
        /// number.
        impl fmt::Display for $set {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                let mut before = "";
                for feature in self.features() {
                    if feature.name.is_empty() {
                        let letter = match feature.set {
                            FeatureSet::Compat => 'C',
                            FeatureSet::Incompat => 'I',
                            _ => 'R',
                        };
                        write!(f, "{before}FEATURE_{letter}{}", feature.bits.trailing_zeros())?;
                    } else {
                        write!(f, "{before}{}", feature.name)?;
                    }
                    before = " ";
                }
                Ok(())
            }
        }
    };
}

feature_set! {
    /// `s_feature_compat`: a reader or writer that does not know a bit may still mount.
    Compat in Compat {
        /// Directories get blocks in advance (historic).
        DIR_PREALLOC = 0x1, "dir_prealloc";
        /// Historic.
        IMAGIC_INODES = 0x2, "imagic_inodes";
        /// `s_journal_inum` or `s_journal_uuid` names a journal.
        HAS_JOURNAL = 0x4, "has_journal";
        /// Some inode has, or had, extended attributes.
        EXT_ATTR = 0x8, "ext_attr";
        /// Inode 7 reserves blocks for a growing descriptor table.
        RESIZE_INODE = 0x10, "resize_inode";
        /// Directories may be htree-indexed.
        DIR_INDEX = 0x20, "dir_index";
        /// Historic.
        LAZY_BG = 0x40, "lazy_bg";
        /// Historic.
        EXCLUDE_BITMAP = 0x100, "snapshot_bitmap";
        /// At most two backups, in `s_backup_bgs`.
        SPARSE_SUPER2 = 0x200, "sparse_super2";
        /// The journal may hold a fast-commit area.
        FAST_COMMIT = 0x400, "fast_commit";
        /// Inode numbers and the UUID must not change.
        STABLE_INODES = 0x800, "stable_inodes";
        /// `s_orphan_file_inum` names the orphan file.
        ORPHAN_FILE = 0x1000, "orphan_file";
    }
    aliases { "exclude_bitmap" => EXCLUDE_BITMAP }
}

feature_set! {
    /// `s_feature_incompat`: an engine that does not know a bit must not mount the volume.
    Incompat in Incompat {
        /// Never finished.
        COMPRESSION = 0x1, "compression";
        /// Directory entries carry a file type.
        FILETYPE = 0x2, "filetype";
        /// The journal must be replayed before use.
        RECOVER = 0x4, "needs_recovery";
        /// This is an external journal, not a filesystem.
        JOURNAL_DEV = 0x8, "journal_dev";
        /// Descriptor blocks are spread over meta groups.
        META_BG = 0x10, "meta_bg";
        /// Files may be mapped by extents.
        EXTENTS = 0x40, "extent";
        /// Block numbers have 64 bits; `s_desc_size` is valid.
        IS_64BIT = 0x80, "64bit";
        /// A block guards against mounting on two hosts at once.
        MMP = 0x100, "mmp";
        /// Bitmaps and inode tables may lie outside their group.
        FLEX_BG = 0x200, "flex_bg";
        /// Large attribute values live in inodes of their own.
        EA_INODE = 0x400, "ea_inode";
        /// Never merged into Linux.
        DIRDATA = 0x1000, "dirdata";
        /// `s_checksum_seed` replaces the seed derived from the UUID.
        CSUM_SEED = 0x2000, "metadata_csum_seed";
        /// Directories may be larger than 2 GiB and indexed three levels deep.
        LARGEDIR = 0x4000, "large_dir";
        /// Small files and directories live in the inode.
        INLINE_DATA = 0x8000, "inline_data";
        /// Some inodes are encrypted.
        ENCRYPT = 0x10000, "encrypt";
        /// Some directories ignore case.
        CASEFOLD = 0x20000, "casefold";
        /// The fast-commit area may hold a byte log. No released kernel or e2fsprogs knows this
        /// bit, so it is set only while the byte log may hold records that recovery needs.
        DAX_FC_BYTELOG = 0x40000, "dax_fc_bytelog";
    }
    aliases { "extents" => EXTENTS, "fname_encoding" => CASEFOLD, "csum_seed" => CSUM_SEED, "largedir" => LARGEDIR }
}

feature_set! {
    /// `s_feature_ro_compat`: an engine that does not know a bit may mount the volume read-only.
    RoCompat in RoCompat {
        /// Only groups 0, 1 and the powers of 3, 5 and 7 hold superblock copies.
        SPARSE_SUPER = 0x1, "sparse_super";
        /// Some file is, or was, larger than 2 GiB - 1.
        LARGE_FILE = 0x2, "large_file";
        /// Never used.
        BTREE_DIR = 0x4, "btree_dir";
        /// `i_blocks` has 48 bits and may count filesystem blocks.
        HUGE_FILE = 0x8, "huge_file";
        /// Descriptors carry a CRC16 and the UNINIT flags have meaning.
        GDT_CSUM = 0x10, "uninit_bg";
        /// A directory's link count may saturate to 1.
        DIR_NLINK = 0x20, "dir_nlink";
        /// `s_min_extra_isize` and `s_want_extra_isize` are valid.
        EXTRA_ISIZE = 0x40, "extra_isize";
        /// Never merged into Linux.
        SNAPSHOT = 0x80, "snapshot";
        /// Hidden quota inodes are kept up to date with every change.
        QUOTA = 0x100, "quota";
        /// Space is allocated in clusters of blocks.
        BIGALLOC = 0x200, "bigalloc";
        /// Every metadata structure carries a CRC32C.
        METADATA_CSUM = 0x400, "metadata_csum";
        /// Never merged into Linux.
        REPLICA = 0x800, "replica";
        /// The volume may only be mounted read-only.
        READONLY = 0x1000, "read-only";
        /// Inodes carry a project ID.
        PROJECT = 0x2000, "project";
        /// Files share blocks (Android, read-only volumes).
        SHARED_BLOCKS = 0x4000, "shared_blocks";
        /// Some files carry a Merkle tree.
        VERITY = 0x8000, "verity";
        /// The orphan file may hold entries.
        ORPHAN_PRESENT = 0x10000, "orphan_present";
        /// File data has checksums, in a file of their own. This is extant's own feature. An engine
        /// that does not know it mounts read-only, so no checksum becomes stale.
        DATA_CSUM = 0x4000_0000, "data_csum";
    }
    aliases { "uninit_groups" => GDT_CSUM, "gdt_csum" => GDT_CSUM, "readonly" => READONLY }
}

impl Incompat {
    /// The features that this engine can read: all that Linux reads, and the byte log. It does not
    /// decrypt encrypted content.
    pub const READABLE: Incompat = Incompat::FILETYPE
        .union(Incompat::RECOVER)
        .union(Incompat::META_BG)
        .union(Incompat::EXTENTS)
        .union(Incompat::IS_64BIT)
        .union(Incompat::MMP)
        .union(Incompat::FLEX_BG)
        .union(Incompat::EA_INODE)
        .union(Incompat::CSUM_SEED)
        .union(Incompat::LARGEDIR)
        .union(Incompat::INLINE_DATA)
        .union(Incompat::ENCRYPT)
        .union(Incompat::CASEFOLD)
        .union(Incompat::DAX_FC_BYTELOG);

    /// The features that are set only while a volume is mounted for writing or needs recovery.
    pub const LIVE: Incompat = Incompat::RECOVER.union(Incompat::DAX_FC_BYTELOG);

    /// The features in which a backup of the superblock may differ from the primary: they are set
    /// while the volume is in use, or on first use, and only the primary is written then.
    pub const MAY_DIFFER_IN_BACKUPS: Incompat = Incompat::LIVE.union(Incompat::EXTENTS);
}

impl RoCompat {
    /// The features that this engine keeps consistent when it writes: all that Linux writes, and
    /// data checksums.
    pub const WRITABLE: RoCompat = RoCompat::SPARSE_SUPER
        .union(RoCompat::LARGE_FILE)
        .union(RoCompat::BTREE_DIR)
        .union(RoCompat::HUGE_FILE)
        .union(RoCompat::GDT_CSUM)
        .union(RoCompat::DIR_NLINK)
        .union(RoCompat::EXTRA_ISIZE)
        .union(RoCompat::QUOTA)
        .union(RoCompat::BIGALLOC)
        .union(RoCompat::METADATA_CSUM)
        .union(RoCompat::PROJECT)
        .union(RoCompat::VERITY)
        .union(RoCompat::ORPHAN_PRESENT)
        .union(RoCompat::DATA_CSUM);

    /// The features in which a backup of the superblock may differ from the primary, as
    /// [`Incompat::MAY_DIFFER_IN_BACKUPS`].
    pub const MAY_DIFFER_IN_BACKUPS: RoCompat =
        RoCompat::LARGE_FILE.union(RoCompat::DIR_NLINK).union(RoCompat::ORPHAN_PRESENT);
}

/// The three feature words of one volume.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Features {
    /// Unknown bits are ignored.
    pub compat: Compat,
    /// Unknown bits forbid mounting.
    pub incompat: Incompat,
    /// Unknown bits forbid writing.
    pub ro_compat: RoCompat,
}

/// One feature bit of any of the three words.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum FeatureBit {
    /// A bit of `s_feature_compat`.
    Compat(Compat),
    /// A bit of `s_feature_incompat`.
    Incompat(Incompat),
    /// A bit of `s_feature_ro_compat`.
    RoCompat(RoCompat),
}

impl FeatureBit {
    /// The bit of any of the three words that e2fsprogs calls `name`.
    pub fn by_name(name: &str) -> Option<FeatureBit> {
        Compat::by_name(name)
            .map(FeatureBit::Compat)
            .or_else(|| Incompat::by_name(name).map(FeatureBit::Incompat))
            .or_else(|| RoCompat::by_name(name).map(FeatureBit::RoCompat))
    }
}

impl Features {
    /// The first feature that forbids even reading, or `None`.
    pub fn unreadable(&self) -> Option<Feature> {
        self.incompat.difference(Incompat::READABLE).features().next()
    }

    /// Every feature that forbids reading.
    pub fn all_unreadable(&self) -> impl Iterator<Item = Feature> {
        self.incompat.difference(Incompat::READABLE).features()
    }

    /// Every feature that forbids writing but not reading. `read-only` is one of them.
    pub fn all_unwritable(&self) -> impl Iterator<Item = Feature> {
        self.ro_compat.difference(RoCompat::WRITABLE).features()
    }

    /// Turns one bit on or off.
    pub fn set(&mut self, bit: FeatureBit, on: bool) {
        match bit {
            FeatureBit::Compat(bit) => self.compat.set(bit, on),
            FeatureBit::Incompat(bit) => self.incompat.set(bit, on),
            FeatureBit::RoCompat(bit) => self.ro_compat.set(bit, on),
        }
    }

    /// Whether one bit is on.
    pub fn has(&self, bit: FeatureBit) -> bool {
        match bit {
            FeatureBit::Compat(bit) => self.compat.contains(bit),
            FeatureBit::Incompat(bit) => self.incompat.contains(bit),
            FeatureBit::RoCompat(bit) => self.ro_compat.contains(bit),
        }
    }

    /// Every set bit of the three words, compat first.
    pub fn iter(&self) -> impl Iterator<Item = Feature> {
        self.compat.features().chain(self.incompat.features()).chain(self.ro_compat.features())
    }
}

/// The names of all set bits, as `dumpe2fs` prints them.
impl fmt::Display for Features {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut before = "";
        let words: [(&dyn fmt::Display, bool); 3] = [
            (&self.compat, self.compat.is_empty()),
            (&self.incompat, self.incompat.is_empty()),
            (&self.ro_compat, self.ro_compat.is_empty()),
        ];
        for (word, empty) in words {
            if !empty {
                write!(f, "{before}{word}")?;
                before = " ";
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::string::ToString;

    #[test]
    fn every_name_finds_its_bit_again() {
        for bit in 0..32 {
            let compat = Compat::from_bits_retain(1 << bit);
            let incompat = Incompat::from_bits_retain(1 << bit);
            let ro_compat = RoCompat::from_bits_retain(1 << bit);
            for (name, found) in [
                (compat.to_string(), FeatureBit::Compat(compat)),
                (incompat.to_string(), FeatureBit::Incompat(incompat)),
                (ro_compat.to_string(), FeatureBit::RoCompat(ro_compat)),
            ] {
                if !name.starts_with("FEATURE_") {
                    assert_eq!(FeatureBit::by_name(&name), Some(found), "{name}");
                }
            }
        }
    }

    #[test]
    fn names_of_e2fsprogs_and_their_aliases_are_known() {
        assert_eq!(Incompat::by_name("64bit"), Some(Incompat::IS_64BIT));
        assert_eq!(Incompat::by_name("extents"), Incompat::by_name("extent"));
        assert_eq!(RoCompat::by_name("gdt_csum"), RoCompat::by_name("uninit_bg"));
        assert_eq!(FeatureBit::by_name("nonsense"), None);
    }

    #[test]
    fn the_masks_are_those_linux_accepts() {
        let readable = Incompat::READABLE - Incompat::DAX_FC_BYTELOG;
        assert_eq!(readable.bits(), 0x3E7D6);
        assert_eq!((RoCompat::WRITABLE - RoCompat::DATA_CSUM).bits(), 0x1A77F);
    }

    #[test]
    fn an_unknown_bit_is_carried_and_reported() {
        let features =
            Features { incompat: Incompat::from_bits_retain(0x8000_0042), ..Features::default() };
        assert_eq!(features.incompat.bits(), 0x8000_0042);
        assert_eq!(features.to_string(), "filetype extent FEATURE_I31");
        let bad = features.unreadable().unwrap();
        assert_eq!((bad.bits, bad.name), (0x8000_0000, ""));
        assert_eq!(features.incompat.unknown().bits(), 0x8000_0000);
    }
}
