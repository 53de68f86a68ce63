//! Casefolded names: when two names are equal in a directory that ignores case.
//!
//! ```text
//!   name ─► is it UTF-8? ─ no ─► strict: refused; else: its bytes
//!              │ yes
//!              └─► per character:
//!                     ignorable?                     ─► nothing, but it ends a run of marks
//!                     not assigned in Unicode 12.1?  ─► itself
//!                     else  full case folding ─► decomposition ─► marks in canonical order
//! ```
//!
//! Encoding 1 is UTF-8 of Unicode 12.1. Names are stored as given. Lookups compare folded names,
//! and an htree hashes folded names. A character that a later version assigned folds to itself, as
//! in the tables of e2fsprogs, even if later versions fold it to another.
//! Source: ext4 documentation, "Case-insensitive file name lookups"; Unicode 12.1, sections 3.11
//! and 3.13, UAX #15; the choice of tables is decision 0002.

#[path = "casefold_gaps.rs"]
mod gaps;

use alloc::borrow::Cow;
use alloc::string::String;
use alloc::vec::Vec;
use extant_base::{Error, Feature, FeatureSet, Result};
use unicase::UniCase;
use unicode_normalization::char::{canonical_combining_class, decompose_canonical};

/// `s_encoding` of UTF-8, Unicode 12.1: the only encoding that is defined.
pub const ENCODING_UTF8_12_1: u16 = 1;
/// `s_encoding_flags`: names that are not valid are refused.
pub const FLAG_STRICT: u16 = 1;

/// The rules of a volume's casefolded directories.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct CaseFold {
    strict: bool,
}

impl CaseFold {
    /// The rules of these `s_encoding` and `s_encoding_flags`.
    ///
    /// # Errors
    /// `Unsupported` for an unknown encoding.
    pub fn new(encoding: u16, flags: u16) -> Result<CaseFold> {
        if encoding != ENCODING_UTF8_12_1 {
            let (set, bits) = (FeatureSet::Option, u32::from(encoding));
            let feature = Feature { set, bits, name: "file name encoding" };
            return Err(Error::Unsupported { feature });
        }
        Ok(CaseFold { strict: flags & FLAG_STRICT != 0 })
    }

    /// Whether names that are not valid are refused.
    pub fn is_strict(&self) -> bool {
        self.strict
    }

    /// Checks a name for a new entry.
    ///
    /// # Errors
    /// `NameNotUtf8` in a strict volume for a name that is not valid.
    pub fn check_new(&self, name: &[u8]) -> Result<()> {
        if self.strict && fold(name).is_none() { Err(Error::NameNotUtf8) } else { Ok(()) }
    }

    /// The bytes that are hashed for `name`: the folded name, or `name` itself if it is not valid.
    pub fn hashed<'a>(&self, name: &'a [u8]) -> Cow<'a, [u8]> {
        fold(name).map_or(Cow::Borrowed(name), Cow::Owned)
    }

    /// A query for `name`.
    pub fn query<'a>(&self, name: &'a [u8]) -> FoldedQuery<'a> {
        FoldedQuery { name, folded: fold(name) }
    }
}

/// A name that a lookup searches for, folded once.
#[derive(Clone, Debug)]
pub struct FoldedQuery<'a> {
    name: &'a [u8],
    folded: Option<Vec<u8>>,
}

impl FoldedQuery<'_> {
    /// Whether a stored name equals the queried one: in its bytes, or after folding.
    pub fn matches(&self, stored: &[u8]) -> bool {
        if self.name == stored {
            return true;
        }
        let Some(folded) = &self.folded else { return false };
        // Most names in a scan already differ in their ASCII characters and need no folding.
        if stored.is_ascii() {
            return stored.len() == folded.len()
                && stored.iter().zip(folded).all(|(s, f)| s.to_ascii_lowercase() == *f);
        }
        fold(stored).is_some_and(|stored| stored == *folded)
    }

    /// The bytes that are hashed for the queried name.
    pub fn hashed(&self) -> &[u8] {
        self.folded.as_deref().unwrap_or(self.name)
    }
}

/// The folded form of a name, or `None` when it is not UTF-8. May be longer than 255 bytes, or
/// empty.
pub fn fold(name: &[u8]) -> Option<Vec<u8>> {
    if name.is_ascii() {
        return Some(name.to_ascii_lowercase());
    }
    let name = core::str::from_utf8(name).ok()?;
    let mut out = String::with_capacity(name.len());
    let mut marks = Vec::new();
    for c in name.chars() {
        if is_ignorable(c) {
            flush(&mut marks, &mut out);
            continue;
        }
        if !is_assigned(c) {
            flush(&mut marks, &mut out);
            out.push(c);
            continue;
        }
        // A folded character may decompose, and its parts may fold again: repeat until neither
        // does.
        fold_char(c, |c| {
            decompose_canonical(c, |c| {
                fold_char(c, |c| {
                    decompose_canonical(c, |c| {
                        if is_ignorable(c) {
                            return;
                        }
                        match canonical_combining_class(c) {
                            0 => {
                                flush(&mut marks, &mut out);
                                out.push(c);
                            }
                            class => marks.push((class, c)),
                        }
                    });
                });
            });
        });
    }
    flush(&mut marks, &mut out);
    Some(out.into_bytes())
}

/// Ends a run of marks: appends them in the order of their classes, equal ones in their order.
fn flush(marks: &mut Vec<(u8, char)>, out: &mut String) {
    marks.sort_by_key(|&(class, _)| class);
    out.extend(marks.drain(..).map(|(_, c)| c));
}

fn fold_char(c: char, mut each: impl FnMut(char)) {
    if c.is_ascii() {
        return each(c.to_ascii_lowercase());
    }
    let mut utf8 = [0; 4];
    let folded = UniCase::unicode(&*c.encode_utf8(&mut utf8)).to_folded_case();
    folded.chars().for_each(each);
}

fn is_assigned(c: char) -> bool {
    let c = c as u32;
    let next = gaps::UNASSIGNED.partition_point(|&(_, last)| last < c);
    gaps::UNASSIGNED.get(next).is_none_or(|&(first, _)| c < first)
}

/// `Default_Ignorable_Code_Point` of Unicode 12.1, unassigned ones included.
fn is_ignorable(c: char) -> bool {
    matches!(c as u32,
        0xAD | 0x34F | 0x61C | 0x115F..=0x1160 | 0x17B4..=0x17B5 | 0x180B..=0x180E
        | 0x200B..=0x200F | 0x202A..=0x202E | 0x2060..=0x206F | 0x3164 | 0xFE00..=0xFE0F | 0xFEFF
        | 0xFFA0 | 0xFFF0..=0xFFF8 | 0x1BCA0..=0x1BCA3 | 0x1D173..=0x1D17A | 0xE0000..=0xE0FFF)
}

#[cfg(test)]
mod tests {
    use super::*;
    use regex_syntax::hir::{Class, HirKind};

    fn folded(name: &str) -> Option<String> {
        fold(name.as_bytes()).map(|folded| String::from_utf8(folded).unwrap())
    }

    #[test]
    fn names_fold_in_full_and_decompose() {
        for (name, want) in [
            ("README.md", "readme.md"),
            ("Straße", "strasse"),
            ("ÅNGSTRÖM", "a\u{30a}ngstro\u{308}m"),
            ("\u{212A}elvin", "kelvin"),
            ("ΟΔΟΣ", "οδοσ"),
            ("\u{1F80}", "α\u{313}ι"),
            ("α\u{345}\u{301}", "αι\u{301}"),
            ("각", "\u{1100}\u{1161}\u{11A8}"),
            ("a\u{301}\u{323}", "a\u{323}\u{301}"),
            ("a\u{AD}b\u{200D}c", "abc"),
            ("a\u{301}\u{34F}\u{323}", "a\u{301}\u{323}"),
            ("\u{FEFF}", ""),
            ("İ", "i\u{307}"),
            // Unicode 13 folds the first to U+A7C8, 14 made the second ignorable.
            ("A\u{A7C7}", "a\u{A7C7}"),
            ("A\u{180F}", "a\u{180F}"),
            ("A\u{1FAE0}", "a\u{1FAE0}"),
            ("A\u{2065}\u{E0FFF}", "a"),
        ] {
            assert_eq!(folded(name).as_deref(), Some(want), "{name:?}");
        }
    }

    #[test]
    fn names_that_are_not_utf_8_are_bytes() {
        let rules = CaseFold::new(1, 0).unwrap();
        let strict = CaseFold::new(1, FLAG_STRICT).unwrap();
        for name in [&b"A\xFF"[..], b"A\xC3", b"A\xED\xA0\x80"] {
            assert_eq!(fold(name), None);
            assert_eq!(*rules.hashed(name), *name);
            assert!(rules.query(name).matches(name));
            assert!(!rules.query(name).matches(&name.to_ascii_lowercase()));
            assert!(rules.check_new(name).is_ok());
            assert!(matches!(strict.check_new(name), Err(Error::NameNotUtf8)));
        }
        assert!(CaseFold::new(2, 0).is_err());
    }

    #[test]
    fn a_query_matches_every_spelling() {
        let rules = CaseFold::new(1, 0).unwrap();
        let query = rules.query("Größe".as_bytes());
        for same in ["Größe", "GRÖSSE", "gro\u{308}sse", "gr\u{F6}\u{DF}E"] {
            assert!(query.matches(same.as_bytes()), "{same}");
        }
        for other in ["Grosse", "Größ", "größen"] {
            assert!(!query.matches(other.as_bytes()), "{other}");
        }
        assert!(rules.query(b"ABC").matches(b"abc"));
        assert!(!rules.query(b"ABC").matches(b"abd"));
        assert!(rules.query("\u{212A}".as_bytes()).matches(b"K"));
    }

    fn property(class: &str) -> Vec<(u32, u32)> {
        let parsed = regex_syntax::parse(class).unwrap();
        let HirKind::Class(Class::Unicode(class)) = parsed.kind() else { panic!("no class") };
        class.ranges().iter().map(|range| (range.start() as u32, range.end() as u32)).collect()
    }

    #[test]
    fn the_tables_are_those_of_the_unicode_database() {
        let inside = |ranges: &[(u32, u32)], c: char| {
            let next = ranges.partition_point(|&(_, last)| last < c as u32);
            ranges.get(next).is_some_and(|&(first, _)| first <= c as u32)
        };
        let assigned = property(r"\p{age=12.1}");
        let ignorable = property(r"\p{Default_Ignorable_Code_Point}");
        for c in '\0'..=char::MAX {
            assert_eq!(is_assigned(c), inside(&assigned, c), "{c:?}");
            // The one code point that became ignorable in a later version.
            if c != '\u{180F}' {
                assert_eq!(is_ignorable(c), inside(&ignorable, c), "{c:?}");
            }
        }
    }
}
