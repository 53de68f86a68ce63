//! A hash table from file and place to the slot that holds the folio. Lookups take no lock.
//!
//! ```text
//!   heads[hash(file, page, order)] ─► slot ─► slot ─► none      chains through Slot::next
//! ```
//! Chains change under the lock of their stripe. A reader at a slot that is being removed may
//! continue in another chain and find nothing: a false miss, which the slow path corrects through
//! the file's own index. A false hit is detected under the folio's lock. The number of steps is
//! bounded.

use crate::slots::{NONE, Slots};
use extant_base::lock::{Mutex, Rank};
use extant_base::narrow::fits_usize;
use std::sync::atomic::AtomicU32;
use std::sync::atomic::Ordering::{Acquire, Relaxed, Release};

const STRIPES: usize = 64;
/// Maximum steps along a chain.
const STEPS: u32 = 64;

/// The hash table.
pub(crate) struct Index {
    heads: Box<[AtomicU32]>,
    shift: u32,
    stripes: [Mutex<()>; STRIPES],
}

/// The place of a folio as one number; folios of different orders have different places.
#[inline]
pub(crate) fn place(page: u64, order: u32) -> u64 {
    page << 4 | u64::from(order)
}

impl Index {
    /// A table for about `folios` folios.
    pub fn new(folios: u64) -> Index {
        let log2 = folios.clamp(1 << 10, 1 << 20).next_power_of_two().trailing_zeros();
        Index {
            heads: (0..1u32 << log2).map(|_| AtomicU32::new(NONE)).collect(),
            shift: 64 - log2,
            stripes: std::array::from_fn(|_| Mutex::new(Rank::Leaf, ())),
        }
    }

    #[inline]
    fn bucket(&self, id: u64, place: u64) -> usize {
        let mixed =
            (id.wrapping_mul(0x9E37_79B9_7F4A_7C15) ^ place).wrapping_mul(0xD6E8_FEB8_6659_FD93);
        fits_usize((mixed ^ mixed >> 32).wrapping_mul(0xD6E8_FEB8_6659_FD93) >> self.shift)
    }

    /// The slot that held this place at the time of the lookup.
    #[inline]
    pub fn find<F>(&self, slots: &Slots<F>, id: u64, place: u64) -> Option<u32> {
        let mut number = self.heads[self.bucket(id, place)].load(Acquire);
        for _ in 0..STEPS {
            let slot = slots.get(number)?;
            if slot.place.load(Relaxed) == place && slot.id.load(Relaxed) == id {
                return Some(number);
            }
            number = slot.next.load(Acquire);
        }
        None
    }

    /// Inserts a slot. The caller holds its folio's exclusive lock.
    pub fn insert<F>(&self, slots: &Slots<F>, number: u32, id: u64, place: u64) {
        let Some(slot) = slots.get(number) else { return };
        let bucket = self.bucket(id, place);
        let _stripe = self.stripes[bucket % STRIPES].lock();
        slot.place.store(place, Relaxed);
        slot.id.store(id, Relaxed);
        slot.next.store(self.heads[bucket].load(Relaxed), Release);
        self.heads[bucket].store(number, Release);
    }

    /// Removes a slot. The caller holds its folio's exclusive lock.
    pub fn remove<F>(&self, slots: &Slots<F>, number: u32) {
        let Some(slot) = slots.get(number) else { return };
        let (id, place) = (slot.id.load(Relaxed), slot.place.load(Relaxed));
        let bucket = self.bucket(id, place);
        let _stripe = self.stripes[bucket % STRIPES].lock();
        slot.id.store(0, Relaxed);
        let after = slot.next.load(Relaxed);
        let mut at = &self.heads[bucket];
        loop {
            let next = at.load(Relaxed);
            if next == number {
                at.store(after, Release);
                return;
            }
            // The stripe is locked, so this chain does not change and it ends.
            let Some(slot) = slots.get(next) else { return };
            at = &slot.next;
        }
    }
}
