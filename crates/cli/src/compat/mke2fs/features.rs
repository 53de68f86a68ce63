//! The features of a new volume, edited by words as `-O` has them.

use crate::compat::mke2fs::options::Wrong;
use std::collections::BTreeSet;

/// The features that the original lets a user choose, in an order in which the engine takes them:
/// one that removes others first.
const KNOWN: [&str; 31] = [
    "meta_bg",
    "uninit_bg",
    "has_journal",
    "ext_attr",
    "resize_inode",
    "dir_index",
    "sparse_super2",
    "fast_commit",
    "stable_inodes",
    "orphan_file",
    "filetype",
    "extent",
    "64bit",
    "flex_bg",
    "mmp",
    "ea_inode",
    "metadata_csum_seed",
    "large_dir",
    "inline_data",
    "encrypt",
    "casefold",
    "sparse_super",
    "large_file",
    "huge_file",
    "dir_nlink",
    "extra_isize",
    "quota",
    "bigalloc",
    "metadata_csum",
    "project",
    "verity",
];

/// A set of features, by their names.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(super) struct Features(BTreeSet<&'static str>);

impl Features {
    /// Adds and removes features by words.
    pub(super) fn edit(&mut self, words: &str) -> Result<(), Wrong> {
        for word in words.split([',', ' ']).filter(|word| !word.is_empty()) {
            let (on, name) = match word.strip_prefix(['^', '-']) {
                Some(name) => (false, name),
                None => (true, word.strip_prefix('+').unwrap_or(word)),
            };
            if word == "none" {
                self.0.clear();
                continue;
            }
            let name = match name {
                "extents" => "extent",
                "gdt_csum" | "uninit_groups" => "uninit_bg",
                "largedir" => "large_dir",
                "fname_encoding" => "casefold",
                "csum_seed" => "metadata_csum_seed",
                name => name,
            };
            let wrong = || Wrong::Text(format!("Invalid filesystem option set: {words}\n"));
            let known = *KNOWN.iter().find(|known| **known == name).ok_or_else(wrong)?;
            self.set(known, on);
        }
        Ok(())
    }

    pub(super) fn has(&self, name: &str) -> bool {
        self.0.contains(name)
    }

    pub(super) fn set(&mut self, name: &'static str, on: bool) {
        if on {
            self.0.insert(name);
        } else {
            self.0.remove(name);
        }
    }

    /// Refuses contradictions as the original does, and drops what another feature replaces.
    pub(super) fn settle(&mut self) -> Result<(), Wrong> {
        let refuse = |text: &str| Err(Wrong::Named(text.into()));
        if self.has("resize_inode") && self.has("meta_bg") {
            return Err(Wrong::Text(
                "The resize_inode and meta_bg features are not compatible.\n\
                 They can not be both enabled simultaneously.\n"
                    .into(),
            ));
        }
        if self.has("64bit") && !self.has("extent") {
            return Err(Wrong::Printed(
                "Extents MUST be enabled for a 64-bit filesystem.  \
                 Pass -O extents to rectify.\n",
            ));
        }
        if self.has("bigalloc") && !self.has("extent") {
            return Err(Wrong::Printed("Can't support bigalloc feature without extents feature\n"));
        }
        if self.has("metadata_csum_seed") && !self.has("metadata_csum") {
            return Err(Wrong::Printed(
                "The metadata_csum_seed feature requires the metadata_csum feature.\n",
            ));
        }
        if self.has("orphan_file") && !self.has("has_journal") {
            return refuse("cannot set orphan_file feature without a journal.");
        }
        if self.has("resize_inode") && !self.has("sparse_super") {
            return refuse("reserved online resize blocks not supported on non-sparse filesystem");
        }
        if self.has("resize_inode") && self.has("sparse_super2") {
            return refuse("sparse_super2 with resize_inode cannot be made: add ^resize_inode");
        }
        if self.has("metadata_csum") {
            self.set("uninit_bg", false);
        }
        Ok(())
    }

    /// What the original says about features that it would like to see.
    pub(super) fn advice(&self) -> Vec<&'static str> {
        let mut lines = Vec::new();
        if self.has("metadata_csum") && !self.has("extent") {
            lines.push(
                "Extents are not enabled.  The file extent tree can be checksummed, whereas block \
                 maps cannot.  Not enabling extents reduces the coverage of metadata \
                 checksumming.  Pass -O extents to rectify.\n",
            );
        }
        if self.has("metadata_csum") && !self.has("64bit") {
            lines.push(
                "64-bit filesystem support is not enabled.  The larger fields afforded by this \
                 feature enable full-strength checksumming.  Pass -O 64bit to rectify.\n",
            );
        }
        lines
    }

    /// The words that make the engine's options these features.
    pub(super) fn words(&self) -> String {
        let names = KNOWN.iter().filter(|name| self.has(name));
        names.fold("none".to_owned(), |words, name| words + "," + name)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use extant::mkfs::MkfsOptions;

    #[test]
    fn the_engine_takes_every_feature_as_it_is_named() {
        for name in KNOWN {
            let mut features = Features::default();
            features.edit(name).unwrap();
            let options = MkfsOptions::new().features(&features.words()).unwrap();
            let wanted = extant::features::FeatureBit::by_name(name).unwrap();
            let have = options.requested_features();
            let has = match wanted {
                extant::features::FeatureBit::Compat(bit) => have.compat == bit,
                extant::features::FeatureBit::Incompat(bit) => have.incompat == bit,
                extant::features::FeatureBit::RoCompat(bit) => have.ro_compat == bit,
            };
            assert!(has, "{name}: {have:?}");
        }
    }

    #[test]
    fn words_add_and_remove() {
        let mut features = Features::default();
        features.edit("has_journal,extents 64bit").unwrap();
        features.edit("^has_journal,gdt_csum").unwrap();
        assert_eq!(features.words(), "none,uninit_bg,extent,64bit");
        features.edit("quota,none,verity").unwrap();
        assert_eq!(features.words(), "none,verity");
        for words in ["data_csum", "needs_recovery", "journal_dev", "foo", "^foo"] {
            assert!(features.edit(words).is_err(), "{words}");
        }
    }
}
