//! The feature words of a journal.
//!
//! Source: ext4 documentation, "Journal (jbd2)", Super Block.

use super::log_format::BlockSum;
use extant_base::{Error, Feature, FeatureSet, Result, Site, What};

bitflags::bitflags! {
    /// Compatible features of a journal.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct JournalCompat: u32 {
        /// Commit blocks carry a checksum of the transaction (v1).
        const CHECKSUM = 1;
        const _ = !0;
    }

    /// Incompatible features of a journal.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct JournalIncompat: u32 {
        /// The log may hold revoke blocks. Recovery honours them without this bit, too.
        const REVOKE = 1;
        /// Block numbers have 64 bits.
        const BIT64 = 2;
        /// A commit block may reach the device before the other blocks of its transaction.
        const ASYNC_COMMIT = 4;
        /// 16-bit checksum per block.
        const CSUM_V2 = 8;
        /// 32-bit checksum per block.
        const CSUM_V3 = 0x10;
        /// The fast-commit area may hold records that recovery needs.
        const FAST_COMMIT = 0x20;
        const _ = !0;
    }

    /// Read-only compatible features of a journal: none so far.
    #[derive(Clone, Copy, Debug, PartialEq, Eq)]
    pub struct JournalRoCompat: u32 {
        const _ = !0;
    }
}

const INCOMPAT_KNOWN: JournalIncompat = JournalIncompat::from_bits_retain(0x3F);

/// The feature words of a journal.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct JournalFeatures {
    /// `s_feature_compat`
    pub compat: JournalCompat,
    /// `s_feature_incompat`
    pub incompat: JournalIncompat,
    /// `s_feature_ro_compat`
    pub ro_compat: JournalRoCompat,
}

impl JournalFeatures {
    /// Without any feature, as a v1 superblock.
    pub const NONE: JournalFeatures = JournalFeatures {
        compat: JournalCompat::empty(),
        incompat: JournalIncompat::empty(),
        ro_compat: JournalRoCompat::empty(),
    };

    /// # Errors
    /// `Unsupported` naming the first unknown bit; `Corrupt(JournalSuperblock)` when two kinds of
    /// checksum are set at once.
    pub fn check(self, at: Site) -> Result<()> {
        let unknown = self.incompat.difference(INCOMPAT_KNOWN).bits();
        let unknown = if unknown != 0 { unknown } else { self.ro_compat.bits() };
        if unknown != 0 {
            let bits = 1 << unknown.trailing_zeros();
            let feature = Feature { set: FeatureSet::Journal, bits, name: "" };
            return Err(Error::Unsupported { feature });
        }
        let sums = [
            self.compat.contains(JournalCompat::CHECKSUM),
            self.incompat.contains(JournalIncompat::CSUM_V2),
            self.incompat.contains(JournalIncompat::CSUM_V3),
        ];
        if sums.into_iter().filter(|&set| set).count() > 1 {
            return Err(at.offset(0x24).corrupt(What::JournalSuperblock));
        }
        Ok(())
    }

    /// Which checksums the log carries.
    pub fn block_sum(self) -> BlockSum {
        if self.incompat.contains(JournalIncompat::CSUM_V3) {
            BlockSum::V3
        } else if self.incompat.contains(JournalIncompat::CSUM_V2) {
            BlockSum::V2
        } else if self.compat.contains(JournalCompat::CHECKSUM) {
            BlockSum::V1
        } else {
            BlockSum::None
        }
    }

    /// The names of all set features as `dumpe2fs` prints them. Unknown bits come at the end of
    /// each word.
    pub fn names(self) -> impl Iterator<Item = (&'static str, u32)> {
        const COMPAT: [(&str, u32); 1] = [("journal_checksum", 1)];
        const INCOMPAT: [(&str, u32); 6] = [
            ("journal_incompat_revoke", 1),
            ("journal_64bit", 2),
            ("journal_async_commit", 4),
            ("journal_checksum_v2", 8),
            ("journal_checksum_v3", 0x10),
            ("journal_fast_commit", 0x20),
        ];
        fn words(
            bits: u32,
            known: &'static [(&'static str, u32)],
        ) -> impl Iterator<Item = (&'static str, u32)> {
            let unknown = known.iter().fold(bits, |bits, row| bits & !row.1);
            let named = known.iter().copied().filter(move |row| bits & row.1 != 0);
            named.chain((unknown != 0).then_some(("", unknown)))
        }
        words(self.compat.bits(), &COMPAT)
            .chain(words(self.incompat.bits(), &INCOMPAT))
            .chain(words(self.ro_compat.bits(), &[]))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn features_have_the_names_of_dumpe2fs() {
        let names: alloc::vec::Vec<_> = JournalFeatures {
            compat: JournalCompat::from_bits_retain(1),
            incompat: JournalIncompat::from_bits_retain(0x100 | 0x12),
            ro_compat: JournalRoCompat::empty(),
        }
        .names()
        .collect();
        let want = [
            ("journal_checksum", 1),
            ("journal_64bit", 2),
            ("journal_checksum_v3", 0x10),
            ("", 0x100),
        ];
        assert_eq!(names, want);
    }
}
