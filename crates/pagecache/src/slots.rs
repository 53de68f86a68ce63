//! Slots hold folios. They never move, and they exist as long as the cache.
//!
//! ```text
//!   chunk 0 │ slot │ slot │ … 256      a number found in the index leads to a slot at any time;
//!   chunk 1 │ …                        the slot's lock shows which folio is in it
//! ```

use crate::folio::Folio;
use extant_base::lock::{Mutex, Rank, RwLock};
use extant_base::narrow::{fits_usize, len_u32};
use std::sync::OnceLock;
use std::sync::atomic::{AtomicBool, AtomicU8, AtomicU32, AtomicU64};

/// No slot.
pub(crate) const NONE: u32 = u32::MAX;
/// `Slot::last_end` of a folio that was not used yet.
pub(crate) const UNUSED: u32 = u32::MAX;

const CHUNK: usize = 256;

/// A container for one folio of a file of type `F`.
#[repr(align(64))]
pub(crate) struct Slot<F> {
    pub folio: RwLock<Folio<F>>,
    /// The index key: file and place of the folio. File 0 means none.
    pub id: AtomicU64,
    pub place: AtomicU64,
    /// The next slot of the hash chain.
    pub next: AtomicU32,
    /// Byte of the folio where its last use ended.
    pub last_end: AtomicU32,
    /// The folio was used again since it entered its queue or reclaim last inspected it.
    pub referenced: AtomicBool,
    /// Drop-behind. Changed under the folio's lock; under the shared lock, the thread that wins the
    /// swap changes it.
    pub marked: AtomicBool,
    /// A reader that arrives at this folio requests more read-ahead.
    pub trigger: AtomicBool,
    /// Links of the reclaim queue, guarded by its lock.
    pub queue: AtomicU8,
    pub older: AtomicU32,
    pub newer: AtomicU32,
}

impl<F> Slot<F> {
    fn new() -> Slot<F> {
        Slot {
            folio: RwLock::new(Rank::Folio, Folio::free()),
            id: AtomicU64::new(0),
            place: AtomicU64::new(0),
            next: AtomicU32::new(NONE),
            last_end: AtomicU32::new(UNUSED),
            referenced: AtomicBool::new(false),
            marked: AtomicBool::new(false),
            trigger: AtomicBool::new(false),
            queue: AtomicU8::new(0),
            older: AtomicU32::new(NONE),
            newer: AtomicU32::new(NONE),
        }
    }
}

/// Slots that are created together, when the first of them is taken.
type Chunk<F> = OnceLock<Box<[Slot<F>]>>;

/// All slots of a cache.
pub(crate) struct Slots<F> {
    chunks: Box<[Chunk<F>]>,
    free: Mutex<Free>,
}

#[derive(Default)]
struct Free {
    numbers: Vec<u32>,
    chunks: usize,
}

impl<F> Slots<F> {
    /// Slots for up to about `most` folios.
    pub fn new(most: u64) -> Slots<F> {
        let chunks = fits_usize((most / CHUNK as u64 + 2).min(u64::from(NONE) / CHUNK as u64));
        let chunks = (0..chunks).map(|_| OnceLock::new()).collect();
        Slots { chunks, free: Mutex::new(Rank::Leaf, Free::default()) }
    }

    /// The slot of a number that [`Slots::take`] gave.
    #[inline]
    pub fn get(&self, number: u32) -> Option<&Slot<F>> {
        self.chunks.get(number as usize / CHUNK)?.get()?.get(number as usize % CHUNK)
    }

    /// The number of a free slot, or `None` when the maximum number of folios exists.
    pub fn take(&self) -> Option<u32> {
        let mut free = self.free.lock();
        if free.numbers.is_empty() {
            let chunk = free.chunks;
            self.chunks.get(chunk)?.get_or_init(|| (0..CHUNK).map(|_| Slot::new()).collect());
            free.chunks += 1;
            let first = len_u32(chunk * CHUNK);
            free.numbers.extend((first..first + len_u32(CHUNK)).rev());
        }
        free.numbers.pop()
    }

    /// Frees a slot.
    pub fn give(&self, number: u32) {
        self.free.lock().numbers.push(number);
    }
}
