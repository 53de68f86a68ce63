//! Notes of changes, appended to one buffer.
//!
//! ```text
//!   a handle's     tag u8 │ ino u32 │ Range: first u32, last u32
//!                                   │ names: parent u32, len u8, name
//!   a transaction's     order u64 │ bytes u32 │ a handle's notes │ order … │ …
//! ```
//!
//! Each thread keeps the buffer of its last handle, so a note costs no allocation.

use crate::records::changes::Change;
use crate::records::ineligible::Ineligible;
use extant_base::Ino;
use std::cell::Cell;

const INODE: u8 = 0;
const RANGE: u8 = 1;
const CREATE: u8 = 2;
const LINK: u8 = 3;
const UNLINK: u8 = 4;
const ALLOCATED: u8 = 5;
const FREED: u8 = 6;

/// Most bytes of a buffer that a thread keeps.
const KEPT: usize = 4096;

thread_local! {
    static SPARE: Cell<Vec<u8>> = const { Cell::new(Vec::new()) };
}

/// The notes of one handle.
#[derive(Default)]
pub(crate) struct Notes {
    bytes: Vec<u8>,
    /// Where the last note starts.
    last: usize,
    /// A change was noted, even if it needs no record.
    pub(crate) any: bool,
    pub(crate) full: Option<Ineligible>,
}

impl Notes {
    #[inline]
    pub(crate) fn push(&mut self, change: Change<'_>) {
        self.any = true;
        if self.full.is_some() {
            return;
        }
        match change {
            Change::Nothing => {}
            Change::Full(why) => self.full = Some(why),
            Change::Inode(ino) => {
                // Every note of an inode, except that of its allocation, covers its fields too.
                let known = self.bytes.get(self.last..).is_some_and(|last| {
                    last.len() > 4 && last[0] < ALLOCATED && last[1..5] == ino.get().to_le_bytes()
                });
                if !known {
                    self.start(INODE, ino);
                }
            }
            Change::Range { ino, first, last } => {
                if !self.widen(ino, first, last) {
                    self.start(RANGE, ino);
                    let both = u64::from(first) | u64::from(last) << 32;
                    self.bytes.extend_from_slice(&both.to_le_bytes());
                }
            }
            Change::Create { parent, ino, name } => self.name(CREATE, parent, ino, name),
            Change::Link { parent, ino, name } => self.name(LINK, parent, ino, name),
            Change::Unlink { parent, ino, name } => self.name(UNLINK, parent, ino, name),
            Change::InodeAllocated(ino) => self.start(ALLOCATED, ino),
            Change::InodeFreed(ino) => self.start(FREED, ino),
        }
    }

    #[inline]
    fn start(&mut self, tag: u8, ino: Ino) {
        if self.bytes.capacity() == 0 {
            self.bytes = SPARE.take();
        }
        self.last = self.bytes.len();
        let [a, b, c, d] = ino.get().to_le_bytes();
        self.bytes.extend_from_slice(&[tag, a, b, c, d]);
    }

    fn name(&mut self, tag: u8, parent: Ino, ino: Ino, name: &[u8]) {
        let Ok(len) = u8::try_from(name.len()) else {
            self.full = Some(Ineligible::Unclear);
            return;
        };
        self.start(tag, ino);
        self.bytes.extend_from_slice(&parent.get().to_le_bytes());
        self.bytes.push(len);
        self.bytes.extend_from_slice(name);
    }

    /// Extends the last note's range, if one range then says the same as two. Returns whether it
    /// did.
    fn widen(&mut self, ino: Ino, first: u32, last: u32) -> bool {
        let Some(note) = self.bytes.get_mut(self.last..).filter(|note| note.len() == 13) else {
            return false;
        };
        if note[0] != RANGE || note[1..5] != ino.get().to_le_bytes() {
            return false;
        }
        let at =
            |at: usize| u32::from_le_bytes([note[at], note[at + 1], note[at + 2], note[at + 3]]);
        let (from, upto) = (at(5), at(9));
        if first > upto.saturating_add(1) || from > last.saturating_add(1) {
            return false;
        }
        note[5..9].copy_from_slice(&from.min(first).to_le_bytes());
        note[9..13].copy_from_slice(&upto.max(last).to_le_bytes());
        true
    }

    /// Moves the notes to the end of `to`; `order` is their position among the notes of all
    /// handles.
    pub(crate) fn append_to(&mut self, order: u64, to: &mut Vec<u8>) {
        let Ok(len) = u32::try_from(self.bytes.len()) else { return };
        if len > 0 {
            to.reserve(12 + self.bytes.len());
            to.extend_from_slice(&order.to_le_bytes());
            to.extend_from_slice(&len.to_le_bytes());
            to.extend_from_slice(&self.bytes);
        }
        self.clear();
    }

    /// Drops all notes.
    pub(crate) fn clear(&mut self) {
        let mut bytes = std::mem::take(&mut self.bytes);
        if (1..=KEPT).contains(&bytes.capacity()) {
            bytes.clear();
            SPARE.set(bytes);
        }
        (self.last, self.any, self.full) = (0, false, None);
    }
}

/// The notes of all handles of a transaction, in the order in which the handles started, or last
/// allocated or freed an inode number. Both moments lie between a handle's start and its stop. A
/// thread locks a name or file before it starts the handle that changes it, and unlocks it after
/// the stop. So two changes of the same name or file come in the order in which they happened.
pub(crate) fn in_order(bytes: &[u8]) -> Vec<&[u8]> {
    let mut rest = bytes;
    let mut handles = Vec::new();
    while let Some((nr, after)) = rest.split_first_chunk::<8>() {
        let (len, after) = after.split_first_chunk::<4>().expect("hand_over wrote a length");
        let (notes, after) = after.split_at(u32::from_le_bytes(*len) as usize);
        handles.push((u64::from_le_bytes(*nr), notes));
        rest = after;
    }
    handles.sort_by_key(|(nr, _)| *nr);
    handles.into_iter().map(|(_, notes)| notes).collect()
}

/// Reads one handle's notes.
pub(crate) struct Read<'a>(pub(crate) &'a [u8]);

impl<'a> Iterator for Read<'a> {
    type Item = Change<'a>;

    fn next(&mut self) -> Option<Change<'a>> {
        let (&tag, rest) = self.0.split_first()?;
        let (ino, rest) = number(rest);
        let ino = Ino::new(ino).expect("the note was of an inode");
        let (change, rest) = match tag {
            INODE => (Change::Inode(ino), rest),
            RANGE => {
                let (first, rest) = number(rest);
                let (last, rest) = number(rest);
                (Change::Range { ino, first, last }, rest)
            }
            ALLOCATED => (Change::InodeAllocated(ino), rest),
            FREED => (Change::InodeFreed(ino), rest),
            _ => {
                let (parent, rest) = number(rest);
                let parent = Ino::new(parent).expect("the note was of a directory");
                let (name, rest) = rest[1..].split_at(usize::from(rest[0]));
                let change = match tag {
                    CREATE => Change::Create { parent, ino, name },
                    LINK => Change::Link { parent, ino, name },
                    _ => Change::Unlink { parent, ino, name },
                };
                (change, rest)
            }
        };
        self.0 = rest;
        Some(change)
    }
}

fn number(bytes: &[u8]) -> (u32, &[u8]) {
    let (number, rest) = bytes.split_first_chunk::<4>().expect("push wrote a number");
    (u32::from_le_bytes(*number), rest)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn ino(number: u32) -> Ino {
        Ino::new(number).unwrap()
    }

    fn read(notes: &mut Notes) -> Vec<String> {
        let mut all = Vec::new();
        notes.append_to(1, &mut all);
        in_order(&all).into_iter().flat_map(Read).map(|change| format!("{change:?}")).collect()
    }

    #[test]
    fn every_note_reads_back() {
        let (parent, name) = (ino(2), &[b'n'; 255][..]);
        let changes = [
            Change::InodeAllocated(ino(12)),
            Change::Create { parent, ino: ino(12), name },
            Change::Link { parent, ino: ino(12), name: b"b" },
            Change::Unlink { parent, ino: ino(12), name: b"c" },
            Change::Inode(ino(u32::MAX)),
            Change::Range { ino: ino(12), first: 0, last: u32::MAX },
            Change::InodeFreed(ino(13)),
        ];
        let mut notes = Notes::default();
        for change in changes {
            notes.push(change);
        }
        let want: Vec<_> = changes.iter().map(|change| format!("{change:?}")).collect();
        assert_eq!(read(&mut notes), want);
        assert!(!notes.any && notes.bytes.is_empty());
    }

    #[test]
    fn what_a_note_says_already_is_not_noted_again() {
        let mut notes = Notes::default();
        notes.push(Change::Range { ino: ino(12), first: 4, last: 5 });
        notes.push(Change::Range { ino: ino(12), first: 6, last: 6 });
        notes.push(Change::Range { ino: ino(12), first: 3, last: 3 });
        notes.push(Change::Inode(ino(12)));
        notes.push(Change::Nothing);
        notes.push(Change::Range { ino: ino(12), first: 8, last: 9 });
        notes.push(Change::Range { ino: ino(13), first: 10, last: 10 });
        notes.push(Change::Inode(ino(12)));
        let range = |ino, first, last| format!("{:?}", Change::Range { ino, first, last });
        let want = [
            range(ino(12), 3, 6),
            range(ino(12), 8, 9),
            range(ino(13), 10, 10),
            format!("{:?}", Change::Inode(ino(12))),
        ];
        assert_eq!(read(&mut notes), want);
        // The note of its allocation does not cover an inode's fields.
        notes.push(Change::InodeAllocated(ino(12)));
        notes.push(Change::Inode(ino(12)));
        assert_eq!(read(&mut notes).len(), 2);
    }

    #[test]
    fn handles_come_in_the_order_they_started() {
        let mut all = Vec::new();
        for nr in [3, 1, 2] {
            let mut notes = Notes::default();
            notes.push(Change::Inode(ino(nr)));
            notes.append_to(u64::from(nr), &mut all);
        }
        let order: Vec<_> = in_order(&all).into_iter().flat_map(Read).collect();
        assert_eq!(order, [1, 2, 3].map(|nr| Change::Inode(ino(nr))));
    }
}
