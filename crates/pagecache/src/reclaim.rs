//! Which folios leave when room is needed.
//!
//! ```text
//!   new ──► small (a tenth) ── not used again ──► out, remembered as a ghost
//!             │ used again                          │ comes back soon
//!             ▼                                     ▼
//!           main ◄──────────────────────────────────┘      used again: once more round; else out
//!
//!   drop-behind ──► marked, by age                         out first beyond its cap
//! ```
//! A scan passes through `small` and never reaches what is hot. A hit sets a flag, and only if it
//! is clear; going on where the last use of the folio ended is no new use. Only clean folios that
//! nobody holds leave, and nothing is waited for. A dirty one that is met steps out of its queue and
//! comes back when it is clean, so it is met once.

use crate::slots::{NONE, Slot, Slots, UNUSED};
use extant_base::lock::{Mutex, Rank};
use std::collections::{HashSet, VecDeque};
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

/// `Slot::queue`: in none.
pub(crate) const OUT: u8 = 0;
const SMALL: u8 = 1;
const MAIN: u8 = 2;
const MARKED: u8 = 3;
/// Added to a queue's number: out of it while dirty.
const PARKED: u8 = 16;

#[derive(Clone, Copy)]
struct Ends {
    oldest: u32,
    newest: u32,
    bytes: u64,
    len: usize,
}

/// The queues and the room that folios take.
pub(crate) struct Reclaim {
    limit: u64,
    used: AtomicU64,
    queues: Mutex<Queues>,
}

struct Queues {
    /// By queue number; place 0 is not used.
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

    /// Takes room for `bytes` if there is some.
    pub fn reserve(&self, bytes: u64) -> bool {
        let more = |used: u64| used.checked_add(bytes).filter(|sum| *sum <= self.limit);
        self.used.fetch_update(Relaxed, Relaxed, more).is_ok()
    }

    /// Bytes that are left of the limit.
    pub fn room(&self) -> u64 {
        self.limit.saturating_sub(self.used.load(Relaxed))
    }

    /// Takes room for `bytes` beyond the limit.
    pub fn force(&self, bytes: u64) {
        self.used.fetch_add(bytes, Relaxed);
    }

    /// Gives room back.
    pub fn release(&self, bytes: u64) {
        self.used.fetch_sub(bytes, Relaxed);
    }

    /// A folio of `bytes` came to stay; `ghost` says which it is, should it come again.
    pub fn enter(&self, slots: &Slots, number: u32, bytes: u64, marked: bool, ghost: u64) {
        let mut queues = self.queues.lock();
        let queue = match marked {
            true => MARKED,
            false if queues.known.remove(&ghost) => MAIN,
            false => SMALL,
        };
        queues.push(slots, number, queue, bytes);
    }

    /// A folio leaves.
    pub fn leave(&self, slots: &Slots, number: u32, bytes: u64) {
        let mut queues = self.queues.lock();
        queues.unlink(slots, number, bytes);
        if let Some(slot) = slots.get(number) {
            slot.queue.store(OUT, Relaxed);
        }
    }

    /// A marked folio became an ordinary one.
    pub fn unmark(&self, slots: &Slots, number: u32, bytes: u64) {
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

    /// A folio was met dirty: it waits aside. The caller holds it alone.
    pub fn park(&self, slots: &Slots, number: u32, bytes: u64) {
        let mut queues = self.queues.lock();
        let Some(slot) = slots.get(number) else { return };
        let queue = slot.queue.load(Relaxed);
        if matches!(queue, SMALL | MAIN | MARKED) {
            queues.unlink(slots, number, bytes);
            slot.queue.store(queue + PARKED, Relaxed);
        }
    }

    /// A folio is clean again. The caller holds it alone.
    pub fn unpark(&self, slots: &Slots, number: u32, bytes: u64) {
        let Some(slot) = slots.get(number) else { return };
        if slot.queue.load(Relaxed) > PARKED {
            let mut queues = self.queues.lock();
            let queue = slot.queue.load(Relaxed);
            if queue > PARKED {
                queues.push(slots, number, queue - PARKED, bytes);
            }
        }
    }

    /// Remembers a folio that leaves for want of room without having been used again.
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

    /// Folios that may have to be looked at until one is found that can leave.
    pub fn len(&self, from: From) -> usize {
        let queues = self.queues.lock();
        match from {
            From::Any => queues.ends.iter().map(|ends| ends.len).sum(),
            From::Marked => queues.ends[MARKED as usize].len,
        }
    }

    /// The folio that should leave next, and whether it goes as a ghost. It stays in its queue, as
    /// the newest, so another one is named next time.
    pub fn candidate(&self, slots: &Slots, from: From) -> Option<(u32, bool)> {
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

/// The size of the folio in a slot that is in a queue: its place does not change there.
fn slot_bytes(slot: &Slot) -> u64 {
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

    fn push(&mut self, slots: &Slots, number: u32, queue: u8, bytes: u64) {
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

    fn unlink(&mut self, slots: &Slots, number: u32, bytes: u64) {
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

/// A use of the bytes `start..end` of a folio.
#[inline]
pub(crate) fn touch(slot: &Slot, start: u32, end: u32) {
    let last = slot.last_end.load(Relaxed);
    if last != start && last != UNUSED && !slot.referenced.load(Relaxed) {
        slot.referenced.store(true, Relaxed);
    }
    if last != end {
        slot.last_end.store(end, Relaxed);
    }
}
