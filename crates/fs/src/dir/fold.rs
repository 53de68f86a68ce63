//! Which stored name a caller means: equal bytes, equal when folded, or the stand-in for
//! ciphertext.
//!
//! ```text
//!   caller's name ──► Wanted ─┬─ ordinary directory     the same bytes
//!                             ├─ casefold               fold(a) == fold(b); bytes if not UTF-8
//!                             └─ encrypted, no key      nokey::encode(stored) == name
//! ```
//!
//! Folding: canonical decomposition, full case folding, decomposition again, and code points that
//! are ignorable by default left out. Source: ext4 documentation, "casefold"; the Unicode Standard,
//! section 3.13 and 5.21. Simplification: the tables are those of the standard library and of
//! `unicode-normalization`, newer than the UTF-8 12.1 that `s_encoding` 1 names.

use super::{Dir, nokey};
use extant_base::{Error, Result};
use extant_ondisk::dirent::Dirent;
use extant_ondisk::hash::{NameHash, NameHasher};
use unicode_normalization::UnicodeNormalization;

/// The bit of `s_encoding_flags` that rejects names that are not UTF-8.
const STRICT: u16 = 1;

/// A name that a caller looks for.
pub(crate) struct Wanted<'a> {
    name: &'a [u8],
    by: By,
}

enum By {
    Bytes,
    /// Equal bytes, or equal to this when folded.
    Folded(Vec<u8>),
    /// The stand-in of ciphertext.
    NoKey,
}

impl<'a> Wanted<'a> {
    /// What `name` means in `dir`.
    ///
    /// Errors: `NameNotUtf8` in a strict casefold directory.
    pub(crate) fn new(dir: &Dir<'_>, name: &'a [u8]) -> Result<Wanted<'a>> {
        let dots = matches!(name, b"." | b"..");
        let by = if dir.is_encrypted() && !dots {
            By::NoKey
        } else if dir.folds() && !dots {
            match fold(name) {
                Some(folded) => By::Folded(folded),
                None if dir.volume.at_open.encoding_flags & STRICT != 0 => {
                    return Err(Error::NameNotUtf8);
                }
                None => By::Bytes,
            }
        } else {
            By::Bytes
        };
        Ok(Wanted { name, by })
    }

    /// The caller's bytes.
    pub(crate) fn name(&self) -> &'a [u8] {
        self.name
    }

    /// Whether `entry` is the one.
    #[inline]
    pub(crate) fn is(&self, entry: &Dirent<'_>) -> bool {
        match &self.by {
            By::Bytes => entry.name == self.name,
            By::Folded(folded) => {
                entry.name == self.name || fold(entry.name).is_some_and(|name| name == *folded)
            }
            By::NoKey => nokey::encode(entry) == self.name,
        }
    }

    /// The hash under which the name is indexed; `None` when only the key's owner knows.
    pub(crate) fn hash(&self, hasher: &NameHasher) -> Option<NameHash> {
        match &self.by {
            By::Bytes => Some(hasher.hash(self.name)),
            By::Folded(folded) => Some(hasher.hash(folded)),
            By::NoKey => None,
        }
    }
}

/// The folded form of a name, or `None` if it is not UTF-8.
pub(crate) fn fold(name: &[u8]) -> Option<Vec<u8>> {
    let name = std::str::from_utf8(name).ok()?;
    if name.is_ascii() {
        return Some(name.to_ascii_lowercase().into_bytes());
    }
    let mut folded = String::with_capacity(name.len() + 8);
    for c in name.nfd().filter(|c| !is_ignorable(*c)) {
        fold_char(c, &mut folded);
    }
    Some(folded.nfd().collect::<String>().into_bytes())
}

/// Appends the full case folding of `c`. Upper case, then lower case gives it for all but a few.
fn fold_char(c: char, to: &mut String) {
    match c {
        // Folds with the Turkic languages' own i only, which nobody asks for.
        'ı' => to.push('ı'),
        'ẞ' => to.push_str("ss"),
        'İ' => to.push_str("i\u{307}"),
        // Cherokee folds to its capitals.
        '\u{13A0}'..='\u{13F5}' => to.push(c),
        '\u{13F8}'..='\u{13FD}' | '\u{AB70}'..='\u{ABBF}' => to.extend(c.to_uppercase()),
        c => to.extend(c.to_uppercase().flat_map(char::to_lowercase)),
    }
}

/// Default_Ignorable_Code_Point of Unicode 12.1.
fn is_ignorable(c: char) -> bool {
    matches!(u32::from(c),
        0xAD | 0x34F | 0x61C | 0x115F..=0x1160 | 0x17B4..=0x17B5 | 0x180B..=0x180E
        | 0x200B..=0x200F | 0x202A..=0x202E | 0x2060..=0x206F | 0x3164 | 0xFE00..=0xFE0F | 0xFEFF
        | 0xFFA0 | 0xFFF0..=0xFFF8 | 0x1BCA0..=0x1BCA3 | 0x1D173..=0x1D17A | 0xE0000..=0xE0FFF)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_that_differ_in_case_or_composition_fold_alike() {
        let table = [
            ("README", "readme"),
            ("Straße", "STRASSE"),
            ("É", "e\u{301}"),
            ("Å", "\u{212B}"),
            ("ΣΊΣΥΦΟΣ", "σίσυφος"),
            ("ﬁn", "FIN"),
            ("soft\u{AD}", "SOFT"),
            ("ꭰ", "Ꭰ"),
            ("ᾳ", "ΑΙ"),
        ];
        for (a, b) in table {
            assert_eq!(fold(a.as_bytes()), fold(b.as_bytes()), "{a} {b}");
        }
        assert_ne!(fold("ı".as_bytes()), fold(b"i"));
        assert_eq!(fold(b"\xFF"), None);
    }
}
