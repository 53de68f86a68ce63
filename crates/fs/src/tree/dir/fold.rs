//! Matching a caller's name with stored names: by bytes, by casefolded form, or by the encoded form
//! of ciphertext.
//!
//! ```text
//!   caller's name ──► Wanted ─┬─ ordinary directory     equal bytes
//!                             ├─ casefold               equal after folding
//!                             └─ encrypted, no key      NoKey::encode(stored) == name
//! ```

use super::{Dir, nokey::NoKey};
use extant_base::Result;
use extant_ondisk::casefold::{CaseFold, FoldedQuery};
use extant_ondisk::dirent::Dirent;
use extant_ondisk::hash::{NameHash, NameHasher};

/// The name that a caller looks for.
pub(crate) struct Wanted<'a> {
    name: &'a [u8],
    by: By<'a>,
}

enum By<'a> {
    Bytes,
    Folded(FoldedQuery<'a>),
    /// The encoded form of ciphertext.
    NoKey(NoKey),
}

impl<'a> Wanted<'a> {
    /// Prepares the comparison of `name` with the names in `dir`.
    ///
    /// Errors: `NameNotUtf8` in a strict casefold directory; `Unsupported` for an unknown encoding.
    pub(crate) fn new(dir: &Dir<'_>, name: &'a [u8]) -> Result<Wanted<'a>> {
        let dots = matches!(name, b"." | b"..");
        let by = if dir.is_encrypted() && !dots {
            By::NoKey(NoKey::of(dir))
        } else if dir.folds() && !dots {
            let superblock = dir.volume.at_open();
            let rules = CaseFold::new(superblock.encoding, superblock.encoding_flags)?;
            rules.check_new(name)?;
            By::Folded(rules.query(name))
        } else {
            By::Bytes
        };
        Ok(Wanted { name, by })
    }

    /// The caller's bytes.
    pub(crate) fn name(&self) -> &'a [u8] {
        self.name
    }

    /// The name's bytes, if names are compared by bytes.
    pub(crate) fn exact(&self) -> Option<&'a [u8]> {
        matches!(self.by, By::Bytes).then_some(self.name)
    }

    /// Whether `entry` has this name.
    #[inline]
    pub(crate) fn is(&self, entry: &Dirent<'_>) -> bool {
        match &self.by {
            By::Bytes => entry.name == self.name,
            By::Folded(query) => query.matches(entry.name),
            By::NoKey(nokey) => nokey.encode(entry) == self.name,
        }
    }

    /// The hash under which the name is indexed; `None` if it can be computed only with the key.
    pub(crate) fn hash(&self, hasher: &NameHasher) -> Option<NameHash> {
        match &self.by {
            By::Bytes => Some(hasher.hash(self.name)),
            By::Folded(query) => Some(hasher.hash(query.hashed())),
            By::NoKey(_) => None,
        }
    }
}
