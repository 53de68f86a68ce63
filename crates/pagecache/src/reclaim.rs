//! Reclaim: the choice of folios to evict when memory is needed.
//!
//! ```text
//!   new ──► small (a tenth) ── not used again ──► evicted, remembered as a ghost
//!             │ used again                          │ read or written again soon
//!             ▼                                     ▼
//!           main ◄──────────────────────────────────┘      used again: once more; else evicted
//!
//!   drop-behind ──► marked, by age                         evicted first beyond its cap
//! ```
//! A scan passes through `small` and never displaces folios that are in frequent use. A hit sets a
//! flag, and only if the flag is clear. A use that continues where the last use of the folio ended
//! does not count as a new use. Reclaim evicts only clean folios that no thread holds, and waits
//! for nothing. A dirty folio that it meets leaves its queue and returns when it is clean, so
//! reclaim meets it once.

use crate::slots::{NONE, Slot, Slots, UNUSED};
use extant_base::lock::{Mutex, Rank};
use std::collections::{HashSet, VecDeque};
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

/// `Slot::queue`: in no queue.
pub(crate) const OUT: u8 = 0;
const SMALL: u8 = 1;
const MAIN: u8 = 2;
const MARKED: u8 = 3;
/// Added to a queue's number while a dirty folio is out of that queue.
const PARKED: u8 = 16;

#[derive(Clone, Copy)]
struct Ends {
    oldest: u32,
    newest: u32,
    bytes: u64,
    len: usize,
}

/// The queues and the bytes that folios occupy.
pub(crate) struct Reclaim {
    limit: u64,
    used: AtomicU64,
    queues: Mutex<Queues>,
}

struct Queues {
    /// Indexed by queue number; entry 0 is not used.
    ends: [Ends; 4],
    ghosts: VecDeque<u64>,
    known: HashSet<u64>,
    most_ghosts: usize,
}

/// Which queues a victim may come from.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum From {
    Any,
    Marked,
}

impl Reclaim {
    pub fn new(limit: u64) -> Reclaim {
        let empty = Ends { oldest: NONE, newest: NONE, bytes: 0, len: 0 };
        let queues = Queues {
            ends: [empty; 4],
            ghosts: VecDeque::new(),
            known: HashSet::new(),
            most_ghosts: (limit >> 14).clamp(64, 1 << 16) as usize,
        };
        Reclaim { limit, used: AtomicU64::new(0), queues: Mutex::new(Rank::Leaf, queues) }
    }

    /// Reserves `bytes`, if they fit under the limit.
    pub fn reserve(&self, bytes: u64) -> bool {
        let more = |used: u64| used.checked_add(bytes).filter(|sum| *sum <= self.limit);
        self.used.fetch_update(Relaxed, Relaxed, more).is_ok()
    }

    /// Bytes below the limit that are not in use.
    pub fn free_bytes(&self) -> u64 {
        self.limit.saturating_sub(self.used.load(Relaxed))
    }

    /// Reserves `bytes` even beyond the limit.
    pub fn force(&self, bytes: u64) {
        self.used.fetch_add(bytes, Relaxed);
    }

    /// Releases `bytes` of the reservation.
    pub fn release(&self, bytes: u64) {
        self.used.fetch_sub(bytes, Relaxed);
    }

    /// Enqueues a new folio of `bytes`. `ghost` is the key by which a recently evicted folio is
    /// found.
    pub fn enter<F>(&self, slots: &Slots<F>, number: u32, bytes: u64, marked: bool, ghost: u64) {
        let mut queues = self.queues.lock();
        let queue = match marked {
            true => MARKED,
            false if queues.known.remove(&ghost) => MAIN,
            false => SMALL,
        };
        queues.push(slots, number, queue, bytes);
    }

    /// Removes a folio from its queue.
    pub fn leave<F>(&self, slots: &Slots<F>, number: u32, bytes: u64) {
        let mut queues = self.queues.lock();
        queues.unlink(slots, number, bytes);
        if let Some(slot) = slots.get(number) {
            slot.queue.store(OUT, Relaxed);
        }
    }

    /// Moves a folio that is no longer marked to the ordinary queues.
    pub fn unmark<F>(&self, slots: &Slots<F>, number: u32, bytes: u64) {
        let mut queues = self.queues.lock();
        let Some(slot) = slots.get(number) else { return };
        match slot.queue.load(Relaxed) {
            MARKED => {
                queues.unlink(slots, number, bytes);
                queues.push(slots, number, SMALL, bytes);
            }
            queue if queue == MARKED + PARKED => slot.queue.store(SMALL + PARKED, Relaxed),
            _ => {}
        }
    }

    /// Takes a dirty folio out of its queue. The caller holds the folio's exclusive lock.
    pub fn park<F>(&self, slots: &Slots<F>, number: u32, bytes: u64) {
        let mut queues = self.queues.lock();
        let Some(slot) = slots.get(number) else { return };
        let queue = slot.queue.load(Relaxed);
        if matches!(queue, SMALL | MAIN | MARKED) {
            queues.unlink(slots, number, bytes);
            slot.queue.store(queue + PARKED, Relaxed);
        }
    }

    /// Returns a folio that is clean again to its queue. The caller holds the folio's exclusive
    /// lock.
    pub fn unpark<F>(&self, slots: &Slots<F>, number: u32, bytes: u64) {
        let Some(slot) = slots.get(number) else { return };
        if slot.queue.load(Relaxed) > PARKED {
            let mut queues = self.queues.lock();
            let queue = slot.queue.load(Relaxed);
            if queue > PARKED {
                queues.push(slots, number, queue - PARKED, bytes);
            }
        }
    }

    /// Remembers a folio that is evicted before it was used again.
    pub fn remember(&self, ghost: u64) {
        let mut queues = self.queues.lock();
        if queues.known.insert(ghost) {
            queues.ghosts.push_back(ghost);
            if queues.ghosts.len() > queues.most_ghosts
                && let Some(old) = queues.ghosts.pop_front()
            {
                queues.known.remove(&old);
            }
        }
    }

    /// Upper bound of the folios to inspect until one can be evicted.
    pub fn len(&self, from: From) -> usize {
        let queues = self.queues.lock();
        match from {
            From::Any => queues.ends.iter().map(|ends| ends.len).sum(),
            From::Marked => queues.ends[MARKED as usize].len,
        }
    }

    /// The next folio to evict, and whether to remember it as a ghost. It stays in its queue as the
    /// newest, so the next call returns another one.
    pub fn candidate<F>(&self, slots: &Slots<F>, from: From) -> Option<(u32, bool)> {
        let mut queues = self.queues.lock();
        let rounds = 2 * queues.ends.iter().map(|ends| ends.len).sum::<usize>();
        for _ in 0..rounds {
            let queue = queues.choose(self.limit, from)?;
            let number = queues.ends[queue as usize].oldest;
            let slot = slots.get(number)?;
            let bytes = slot_bytes(slot);
            let again = queue != MARKED && slot.referenced.swap(false, Relaxed);
            queues.unlink(slots, number, bytes);
            queues.push(slots, number, if again { MAIN } else { queue }, bytes);
            if !again {
                return Some((number, queue == SMALL));
            }
        }
        None
    }
}

/// The size of the folio in a queued slot; its `place` does not change while it is queued.
fn slot_bytes<F>(slot: &Slot<F>) -> u64 {
    4096 << (slot.place.load(Relaxed) & 15)
}

impl Queues {
    fn choose(&self, limit: u64, from: From) -> Option<u8> {
        let [_, small, main, marked] = &self.ends;
        if from == From::Marked {
            return (marked.len > 0).then_some(MARKED);
        }
        match () {
            () if small.len > 0 && (small.bytes > limit / 10 || main.len == 0) => Some(SMALL),
            () if main.len > 0 => Some(MAIN),
            () => (marked.len > 0).then_some(MARKED),
        }
    }

    fn push<F>(&mut self, slots: &Slots<F>, number: u32, queue: u8, bytes: u64) {
        let Some(slot) = slots.get(number) else { return };
        let ends = &mut self.ends[queue as usize];
        slot.queue.store(queue, Relaxed);
        slot.newer.store(NONE, Relaxed);
        slot.older.store(ends.newest, Relaxed);
        match slots.get(ends.newest) {
            Some(newest) => newest.newer.store(number, Relaxed),
            None => ends.oldest = number,
        }
        ends.newest = number;
        ends.bytes += bytes;
        ends.len += 1;
    }

    fn unlink<F>(&mut self, slots: &Slots<F>, number: u32, bytes: u64) {
        let Some(slot) = slots.get(number) else { return };
        let queue = slot.queue.load(Relaxed);
        if !matches!(queue, SMALL | MAIN | MARKED) {
            return;
        }
        let ends = &mut self.ends[queue as usize];
        let (older, newer) = (slot.older.load(Relaxed), slot.newer.load(Relaxed));
        match slots.get(older) {
            Some(slot) => slot.newer.store(newer, Relaxed),
            None => ends.oldest = newer,
        }
        match slots.get(newer) {
            Some(slot) => slot.older.store(older, Relaxed),
            None => ends.newest = older,
        }
        ends.bytes -= bytes;
        ends.len -= 1;
    }
}

/// Records a use of the bytes `start..end` of a folio.
#[inline]
pub(crate) fn touch<F>(slot: &Slot<F>, start: u32, end: u32) {
    let last = slot.last_end.load(Relaxed);
    if last != start && last != UNUSED && !slot.referenced.load(Relaxed) {
        slot.referenced.store(true, Relaxed);
    }
    if last != end {
        slot.last_end.store(end, Relaxed);
    }
}
