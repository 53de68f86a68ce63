//! The state of each inode in use, in one word per inode.
//!
//! ```text
//!   63          52 51    48 47         32 31                    0
//!   ┌─────────────┬────────┬─────────────┬───────────────────────┐
//!   │ marks       │ kind   │ i_links     │ links counted         │     0 = not in use
//!   └─────────────┴────────┴─────────────┴───────────────────────┘
//! ```
//!
//! The words are allocated in parts of 4096 inodes, once an inode of the part is in use.

use extant_base::narrow::{high_u32, len_u32, low_u16, low_u32};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

const PART: usize = 4096;

/// In use: it has links, or the volume reserves it for itself.
pub(super) const IN_USE: u64 = 1 << 52;
/// Value inode.
pub(super) const VALUE: u64 = 1 << 53;
/// An internal inode of the volume, without a name.
pub(super) const HIDDEN: u64 = 1 << 54;
/// Has an orphan record: without links but still in use.
pub(super) const ORPHAN: u64 = 1 << 55;
/// The type from the mode; see `State::kind`.
const KIND_SHIFT: u32 = 48;

/// The state of one inode.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct State(pub(super) u64);

impl State {
    pub(super) fn of(mode: u16, links: u16, marks: u64) -> State {
        State(marks | u64::from(mode >> 12) << KIND_SHIFT | u64::from(links) << 32)
    }

    pub(super) fn has(self, mark: u64) -> bool {
        self.0 & mark != 0
    }

    /// Bits 12 to 15 of the mode, not shifted.
    pub(super) fn mode_type(self) -> u16 {
        ((self.0 >> KIND_SHIFT) as u16) << 12
    }

    pub(super) fn is_dir(self) -> bool {
        self.mode_type() == 0x4000
    }

    pub(super) fn links(self) -> u16 {
        low_u16(high_u32(self.0))
    }

    pub(super) fn counted(self) -> u32 {
        low_u32(self.0)
    }
}

/// The states of all inodes.
pub(super) struct Inodes {
    parts: Box<[OnceLock<Box<[AtomicU64]>>]>,
    count: u32,
}

impl Inodes {
    pub(super) fn new(count: u32) -> Inodes {
        let parts = (count as usize).div_ceil(PART);
        Inodes { parts: (0..parts).map(|_| OnceLock::new()).collect(), count }
    }

    fn word(&self, ino: u32) -> Option<&AtomicU64> {
        let index = ino.checked_sub(1).filter(|_| ino <= self.count)? as usize;
        self.parts[index / PART].get()?.get(index % PART)
    }

    /// Stores the state of `ino`, which must be a number of this volume.
    pub(super) fn set(&self, ino: u32, state: State) {
        let index = (ino - 1) as usize;
        let part =
            self.parts[index / PART].get_or_init(|| (0..PART).map(|_| AtomicU64::new(0)).collect());
        part[index % PART].store(state.0, Ordering::Relaxed);
    }

    /// The state of `ino`; zero if it is not in use or not a number of this volume.
    pub(super) fn get(&self, ino: u32) -> State {
        State(self.word(ino).map_or(0, |word| word.load(Ordering::Relaxed)))
    }

    /// Counts one more link to `ino`, if it is in use.
    pub(super) fn count_link(&self, ino: u32) {
        if let Some(word) = self.word(ino) {
            // More than 2^32 entries would need more than 2^35 bytes of directories, so the count
            // does not overflow.
            word.fetch_add(1, Ordering::Relaxed);
        }
    }

    /// All inodes in use, in order.
    pub(super) fn in_use(&self) -> impl Iterator<Item = (u32, State)> + '_ {
        self.parts.iter().enumerate().flat_map(|(n, part)| {
            let words = part.get().map(|words| &**words).unwrap_or_default();
            words.iter().enumerate().filter_map(move |(m, word)| {
                let state = State(word.load(Ordering::Relaxed));
                state.has(IN_USE).then_some((len_u32(n * PART + m) + 1, state))
            })
        })
    }

    /// Whether any inode of `first..=last` may be in use.
    pub(super) fn any_in(&self, first: u32, last: u32) -> bool {
        let parts = (first - 1) as usize / PART..=(last - 1) as usize / PART;
        parts.into_iter().any(|n| self.parts.get(n).is_some_and(|part| part.get().is_some()))
    }
}
