//! Entries of a directory block, judged one by one, also after a broken length.
//!
//! ```text
//!   entry ─► entry ─► ?? broken ?? ─ every 4 bytes: an entry with a legal length, name and a
//!                                    living inode of its type? ─► entry ─► …
//!   slack of an entry: entries in it are not used, but remembered for inodes without a name
//! ```

use extant_ondisk::dirent::{
    DirFormat, HEAD_LEN, RawDirent, TAIL_LEN, TAIL_TYPE, rec_len_decode, tail_of,
};
use std::borrow::Cow;
use zerocopy::FromBytes;

/// One entry as stored.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(crate) struct Entry<'b> {
    /// Bytes from the block's start.
    pub(crate) offset: usize,
    pub(crate) ino: u32,
    pub(crate) kind: u8,
    pub(crate) name: Cow<'b, [u8]>,
    /// Hash words of an encrypted and casefolded directory.
    pub(crate) hash: Option<(u32, u32)>,
}

impl Entry<'_> {
    /// Whether its name is "." or "..".
    pub(crate) fn is_dots(&self) -> bool {
        matches!(&*self.name, b"." | b"..")
    }

    /// The entry without a reference to the block.
    pub(crate) fn into_owned(self) -> Entry<'static> {
        Entry { name: Cow::Owned(self.name.into_owned()), ..self }
    }
}

/// The entries of a block.
#[derive(Clone, Debug, Default)]
pub(crate) struct Parsed<'b> {
    /// Used entries in order.
    pub(crate) entries: Vec<Entry<'b>>,
    /// Lengths or the tail are not legal: the block has to be packed again.
    pub(crate) broken: bool,
    /// Entries in the slack of others: names of deleted files, mostly.
    pub(crate) slack: Vec<Entry<'b>>,
}

/// Reads a block or an inline area. `lives` says whether an inode is in use, and is of the type
/// that an entry records (0: any).
pub(crate) fn parse<'b>(
    bytes: &'b [u8],
    format: &DirFormat,
    with_slack: bool,
    lives: &dyn Fn(u32, u8) -> bool,
) -> Parsed<'b> {
    let mut parsed = Parsed::default();
    let end = format.entries_end(bytes.len());
    parsed.broken = format.checksums && tail_of(bytes).is_none();
    let reader = Reader { bytes, format, end, lives };
    let mut offset = 0;
    while offset < end {
        if let Some((entry, next)) = reader.at(offset) {
            let used = offset + reader.need(&entry);
            if with_slack {
                reader.slack(
                    if entry.ino == 0 { offset + 4 } else { used },
                    next,
                    &mut parsed.slack,
                );
            }
            if entry.ino != 0 {
                parsed.entries.push(entry);
            }
            offset = next;
            continue;
        }
        parsed.broken = true;
        if let Some((entry, next)) = reader.with_shorter_name(offset) {
            parsed.entries.push(entry);
            offset = next;
            continue;
        }
        let mut from = offset + 4;
        if let Some(entry) =
            reader.without_length(offset).filter(|entry| reader.is_plausible(entry))
        {
            from = offset + reader.need(&entry);
            parsed.entries.push(entry);
        }
        let next = (from..end).step_by(4).find(|at| {
            reader.at(*at).is_some_and(|(entry, _)| entry.ino != 0 && reader.is_plausible(&entry))
        });
        offset = next.unwrap_or(end);
    }
    parsed
}

struct Reader<'r, 'b> {
    bytes: &'b [u8],
    format: &'r DirFormat,
    end: usize,
    lives: &'r dyn Fn(u32, u8) -> bool,
}

impl<'b> Reader<'_, 'b> {
    /// The entry at `offset` and where the next one starts, if the length is legal.
    fn at(&self, offset: usize) -> Option<(Entry<'b>, usize)> {
        let (raw, _) = RawDirent::ref_from_prefix(self.bytes.get(offset..)?).ok()?;
        let len = rec_len_decode(raw.rec_len.get(), self.bytes.len());
        let least = DirFormat::need_plain(1);
        let next = offset.checked_add(len).filter(|next| *next <= self.end)?;
        let fits = len >= least && len.is_multiple_of(4);
        if !fits || (next != self.end && self.end - next < least) {
            return None;
        }
        let name = self.bytes.get(offset + HEAD_LEN..)?.get(..usize::from(raw.name_len))?;
        if len < self.format.need(name) {
            return None;
        }
        let mut entry = self.without_length(offset)?;
        if raw.inode.get() == 0 {
            entry.name = Cow::Borrowed(&[]);
        } else if raw.name_len == 0 {
            return None;
        }
        Some((entry, offset + len))
    }

    /// The entry at `offset`, whatever its length.
    fn without_length(&self, offset: usize) -> Option<Entry<'b>> {
        let (raw, rest) = RawDirent::ref_from_prefix(self.bytes.get(offset..self.end)?).ok()?;
        if raw.inode.get() == 0 {
            return Some(Entry { offset, ino: 0, kind: 0, name: Cow::Borrowed(&[]), hash: None });
        }
        let name = rest.get(..usize::from(raw.name_len))?;
        let words = DirFormat::need_plain(name.len());
        let word = |n: usize| {
            let at = offset + words + 4 * n;
            self.bytes.get(at..at + 4)?.first_chunk().map(|word| u32::from_le_bytes(*word))
        };
        let hash = match self.format.hash_words && name != b"." && name != b".." {
            true => word(0).zip(word(1)),
            false => None,
        };
        let (ino, kind) = (raw.inode.get(), raw.file_type);
        Some(Entry { offset, ino, kind, name: Cow::Borrowed(name), hash })
    }

    /// The entry at `offset` if only its name's length is wrong: its own length leads to an entry,
    /// or to the end, and the name ends where zeros begin.
    fn with_shorter_name(&self, offset: usize) -> Option<(Entry<'b>, usize)> {
        let (raw, rest) = RawDirent::ref_from_prefix(self.bytes.get(offset..self.end)?).ok()?;
        let len = rec_len_decode(raw.rec_len.get(), self.bytes.len());
        let next = offset.checked_add(len).filter(|next| *next <= self.end)?;
        let most = len.checked_sub(DirFormat::need_plain(0)).filter(|_| len.is_multiple_of(4))?;
        let leads_on = next == self.end
            || self.at(next).is_some_and(|(entry, _)| entry.ino != 0 && self.is_plausible(&entry));
        let name = rest.get(..most)?;
        let name = name.split(|byte| *byte == 0).next()?;
        let short = name.len() < usize::from(raw.name_len) && !self.format.opaque_names;
        // A name of a multiple of four bytes may be followed by another's remains.
        let kept = &name[..name.len().min(extant_ondisk::dirent::NAME_MAX)];
        let entry = Entry {
            offset,
            ino: raw.inode.get(),
            kind: raw.file_type,
            name: Cow::Borrowed(kept),
            hash: None,
        };
        (leads_on && short && entry.ino != 0 && !name.is_empty() && self.is_plausible(&entry))
            .then_some((entry, next))
    }

    /// Bytes that the entry takes.
    fn need(&self, entry: &Entry<'_>) -> usize {
        match entry.ino {
            0 => HEAD_LEN,
            _ => self.format.need(&entry.name),
        }
    }

    fn is_plausible(&self, entry: &Entry<'_>) -> bool {
        entry.ino <= self.format.inodes_count
            && entry.kind < TAIL_TYPE
            && self.format.admits(&entry.name)
            && entry.offset + self.need(entry) <= self.end
            && (self.lives)(entry.ino, if self.format.filetype { entry.kind } else { 0 })
    }

    fn slack(&self, from: usize, to: usize, found: &mut Vec<Entry<'b>>) {
        let mut at = from.next_multiple_of(4);
        while at + HEAD_LEN + TAIL_LEN / 3 <= to {
            match self.without_length(at).filter(|entry| entry.ino != 0 && self.is_plausible(entry))
            {
                Some(entry) => {
                    at += self.need(&entry);
                    found.push(entry);
                }
                None => at += 4,
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use extant_base::{Ino, Site};
    use extant_ondisk::dirent::{DirBlockMut, DirPacker, EntryKind};

    const FORMAT: DirFormat = DirFormat {
        filetype: true,
        checksums: false,
        hash_words: false,
        opaque_names: false,
        inodes_count: 100,
    };

    fn block() -> Vec<u8> {
        let mut bytes = vec![0; 1024];
        let mut pack = DirPacker::new(DirBlockMut::new(&mut bytes, FORMAT, 0, Site::NOWHERE));
        for (n, name) in [&b"first"[..], b"second", b"third"].iter().enumerate() {
            let ino = Ino::new(20 + u32::try_from(n).unwrap()).unwrap();
            assert!(pack.push(name, ino, EntryKind::Regular, None));
        }
        pack.finish();
        bytes
    }

    fn names<'p>(parsed: &'p Parsed<'_>) -> Vec<&'p str> {
        parsed.entries.iter().map(|entry| std::str::from_utf8(&entry.name).unwrap()).collect()
    }

    #[test]
    fn entries_after_a_broken_length_are_found() {
        let mut bytes = block();
        let lives = |ino: u32, kind: u8| (20..23).contains(&ino) && kind == 1;
        let parsed = parse(&bytes, &FORMAT, true, &lives);
        assert!(!parsed.broken && parsed.slack.is_empty());
        assert_eq!(names(&parsed), ["first", "second", "third"]);
        bytes[4..6].copy_from_slice(&[0x07, 0x70]);
        let parsed = parse(&bytes, &FORMAT, true, &lives);
        assert!(parsed.broken);
        assert_eq!(names(&parsed), ["first", "second", "third"]);
        // A length that swallows the second entry leaves it in the slack.
        bytes[4..6].copy_from_slice(&[32, 0]);
        let parsed = parse(&bytes, &FORMAT, true, &lives);
        assert_eq!(names(&parsed), ["first", "third"]);
        assert_eq!(parsed.slack.len(), 1);
        assert_eq!(*parsed.slack[0].name, *b"second");
    }

    #[test]
    fn no_block_makes_the_reader_panic() {
        let mut seed = 1u64;
        for _ in 0..2000 {
            let mut bytes = vec![0u8; 1024];
            for byte in &mut bytes {
                seed = seed.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
                *byte = seed.to_le_bytes()[6] & seed.to_le_bytes()[7];
            }
            for format in [FORMAT, DirFormat { checksums: true, hash_words: true, ..FORMAT }] {
                parse(&bytes, &format, true, &|ino, _| ino % 2 == 0);
            }
        }
    }
}
