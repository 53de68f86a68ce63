//! The memory of folios: frames of 4 KiB to 2 MiB, cut from mappings that go back to the system.
//!
//! ```text
//!   class 0   ┌slab 256 KiB────────────┐ ┌slab──────┐     one bit per frame: free or lent
//!   4 KiB     │▪│▪│ │▪│ │ …  64 frames │ │          │
//!             └────────────────────────┘ └──────────┘
//!   class 6…9 ┌slab 2 MiB, one huge page───┐              another: free, and has no memory
//!   256 KiB … │▪▪▪▪▪▪│      │▪▪▪▪▪▪│░░░░░░│
//!             └────────────────────────────┘              take: the lowest slab with room
//! ```
//! What is given back stays warm, so its next user meets no page faults: up to a reserve, and up to
//! 64 MiB while the cache has that much room. Beyond that an empty slab is unmapped; beyond twice as much
//! a large frame of another loses its memory, which takes its huge page apart.
//!
//! A frame's bytes are zeros or what its last user left.

#![allow(unsafe_code)]

use extant_base::lock::{Mutex, Rank};
#[cfg(not(miri))]
use rustix::mm::{Advice, MapFlags, ProtFlags, madvise, mmap_anonymous, munmap};
use std::collections::BTreeSet;
use std::ops::{Deref, DerefMut};
use std::ptr::NonNull;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

/// Base-2 logarithm of the smallest frame.
pub(crate) const PAGE_LOG2: u32 = 12;
/// Sizes of frames: 4 KiB << order, for orders below this.
pub(crate) const ORDERS: u32 = 10;
/// Small frames share a mapping of this many bytes.
const SLAB: usize = 256 << 10;
/// Frames of [`SLAB`] bytes and more share a huge page: 512 page faults less, and zeroed in one go.
const HUGE: usize = 2 << 20;

/// Bytes that nobody uses are not kept beyond this, whatever room there is.
const KEPT_MAX: usize = 64 << 20;

/// Pages from the system.
struct Mapping {
    start: NonNull<u8>,
    len: usize,
}

// SAFETY: a mapping is memory of this process; which thread unmaps it does not matter, and its
// bytes are reached through frames only.
unsafe impl Send for Mapping {}
// SAFETY: as above; `&Mapping` gives nothing away.
unsafe impl Sync for Mapping {}

impl Mapping {
    #[cfg(not(miri))]
    fn new(len: usize) -> Option<Mapping> {
        // A huge page lies at a multiple of its size: more is asked for, and both ends go back.
        let wide = if len < HUGE { len } else { len + HUGE };
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: no address is wished for, so no mapping of anybody else is touched.
        let start =
            unsafe { mmap_anonymous(std::ptr::null_mut(), wide, protection, MapFlags::PRIVATE) };
        let start: NonNull<u8> = NonNull::new(start.ok()?.cast())?;
        if len < HUGE {
            return Some(Mapping { start, len });
        }
        let before = start.as_ptr().align_offset(HUGE).min(HUGE);
        // SAFETY: `before <= HUGE`, so all of these are within the mapping, or its end.
        let (first, start, behind) = unsafe { (start, start.add(before), start.add(before + len)) };
        for (part, len) in [(first, before), (behind, wide - before - len)] {
            if len > 0 {
                // SAFETY: of the pages that were just mapped those that `Mapping` does not keep.
                let _ = unsafe { munmap(part.as_ptr().cast(), len) };
            }
        }
        // SAFETY: which size the pages have changes nothing that is seen. A system without huge
        // ones refuses; small ones do as well.
        let _ = unsafe { madvise(start.as_ptr().cast(), len, Advice::LinuxHugepage) };
        Some(Mapping { start, len })
    }

    /// The memory of bytes `from..from + len` goes back. They can be used as before and are zeros.
    #[cfg(not(miri))]
    fn let_go(&self, from: usize, len: usize) {
        assert!(from + len <= self.len, "a frame is within its slab");
        // SAFETY: these pages are this mapping's, and `&mut Slab` has the caller alone with a spot
        // that no frame reaches. Where the system refuses, the bytes stay as they are.
        let _ =
            unsafe { madvise(self.start.as_ptr().add(from).cast(), len, Advice::LinuxDontNeed) };
    }
}

impl Drop for Mapping {
    #[cfg(not(miri))]
    fn drop(&mut self) {
        // SAFETY: these pages came from `mmap_anonymous` with this length. Every frame in them
        // holds the mapping by an `Arc`, so none is left.
        let _ = unsafe { munmap(self.start.as_ptr().cast(), self.len) };
    }

    #[cfg(miri)]
    fn drop(&mut self) {
        // SAFETY: it came from `alloc_zeroed` with this very layout.
        unsafe { std::alloc::dealloc(self.start.as_ptr(), Mapping::layout(self.len)) }
    }
}

/// Miri knows no `madvise` and unmaps whole mappings only: there a mapping is an allocation of its own.
#[cfg(miri)]
impl Mapping {
    fn layout(len: usize) -> std::alloc::Layout {
        let align = if len < HUGE { 1 << PAGE_LOG2 } else { HUGE };
        std::alloc::Layout::from_size_align(len, align).expect("slabs are whole pages")
    }

    fn new(len: usize) -> Option<Mapping> {
        // SAFETY: no slab has a length of zero.
        let start = unsafe { std::alloc::alloc_zeroed(Mapping::layout(len)) };
        Some(Mapping { start: NonNull::new(start)?, len })
    }

    fn let_go(&self, from: usize, len: usize) {
        assert!(from + len <= self.len, "a frame is within its slab");
        // SAFETY: the bytes are this mapping's, and `&mut Slab` has the caller alone with a spot that no frame reaches.
        unsafe { self.start.as_ptr().add(from).write_bytes(0, len) }
    }
}

/// Memory for one folio.
pub(crate) struct Frame {
    start: NonNull<u8>,
    len: usize,
    order: u8,
    spot: u8,
    slab: u32,
    /// Keeps the memory.
    _mapping: Arc<Mapping>,
}

// SAFETY: a frame is the only one that reaches its bytes, as a `Box<[u8]>` is.
unsafe impl Send for Frame {}
// SAFETY: shared access only reads.
unsafe impl Sync for Frame {}

impl Deref for Frame {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        // SAFETY: `start` and `len` are within `_mapping`, which is readable, zero or written from
        // its start, and lives as long as `self`. `Frames::take` lends each spot of a slab to one
        // frame at a time, so `&self` keeps writers out.
        unsafe { std::slice::from_raw_parts(self.start.as_ptr(), self.len) }
    }
}

impl DerefMut for Frame {
    fn deref_mut(&mut self) -> &mut [u8] {
        // SAFETY: as in `deref`; `&mut self` makes this the only view.
        unsafe { std::slice::from_raw_parts_mut(self.start.as_ptr(), self.len) }
    }
}

struct Slab {
    mapping: Arc<Mapping>,
    free: u64,
    /// Those of `free` that have no memory: nobody had them yet, or it went back.
    cold: u64,
}

#[derive(Default)]
struct Class {
    slabs: Vec<Option<Slab>>,
    /// Places in `slabs` that are empty.
    vacant: Vec<u32>,
    /// Slabs with free frames.
    open: BTreeSet<u32>,
}

/// Where frames come from.
pub(crate) struct Frames {
    classes: [Mutex<Class>; ORDERS as usize],
    reserve: usize,
    /// Whether large frames share huge pages.
    is_huge: bool,
    /// Bytes of free frames that have memory.
    idle: AtomicUsize,
}

/// How a class cuts its slabs.
struct Shape {
    frame: usize,
    slab: usize,
    /// A bit for each frame.
    all: u64,
}

impl Frames {
    /// Keeps `reserve` bytes that nobody uses even where the cache is full.
    pub fn new(reserve: usize) -> Frames {
        let classes = std::array::from_fn(|_| Mutex::new(Rank::Leaf, Class::default()));
        let is_huge = reserve >= 2 * HUGE;
        Frames { classes, reserve, is_huge, idle: AtomicUsize::new(0) }
    }

    fn shape(&self, order: u32) -> Shape {
        let frame = 1usize << (PAGE_LOG2 + order);
        let least = if self.is_huge && frame >= SLAB { HUGE } else { SLAB };
        let slab = frame.max(least);
        Shape { frame, slab, all: u64::MAX >> (64 - slab / frame) }
    }

    /// Most bytes to keep with `room` in the cache.
    fn most(&self, room: u64) -> usize {
        self.reserve.max(room.min(KEPT_MAX as u64) as usize)
    }

    /// A frame of 4 KiB << `order` with any content, or `None`: the system has no memory. `room` is what
    /// is left of the cache's limit, in bytes.
    pub fn take(&self, order: u32, room: u64) -> Option<Frame> {
        let shape = self.shape(order);
        if self.idle.load(Relaxed) > self.most(room)
            && self.classes[order as usize].lock().open.is_empty()
        {
            self.trim(self.most(room));
        }
        let mut class = self.classes[order as usize].lock();
        let number = match class.open.first() {
            Some(number) => *number,
            None => {
                let mapping = Arc::new(Mapping::new(shape.slab)?);
                let slab = Slab { mapping, free: shape.all, cold: shape.all };
                let number = match class.vacant.pop() {
                    Some(number) => number,
                    None => {
                        class.slabs.push(None);
                        u32::try_from(class.slabs.len() - 1).ok()?
                    }
                };
                class.slabs[number as usize] = Some(slab);
                class.open.insert(number);
                number
            }
        };
        let slab = class.slabs[number as usize].as_mut()?;
        // Warm ones first.
        let from = if slab.free & !slab.cold != 0 { slab.free & !slab.cold } else { slab.free };
        let spot = from.trailing_zeros() as usize;
        assert!(spot * shape.frame < shape.slab, "an open slab has a free frame");
        let bit = 1u64 << spot;
        if slab.cold & bit == 0 {
            self.idle.fetch_sub(shape.frame, Relaxed);
        }
        slab.free &= !bit;
        slab.cold &= !bit;
        let full = slab.free == 0;
        let mapping = slab.mapping.clone();
        // SAFETY: `spot` is within the slab, and so is all of the frame.
        let start = unsafe { mapping.start.add(spot * shape.frame) };
        if full {
            class.open.remove(&number);
        }
        let (order, spot) = (order as u8, spot as u8);
        Some(Frame { start, len: shape.frame, order, spot, slab: number, _mapping: mapping })
    }

    /// Unmaps empty slabs until no more than `most` bytes are kept, as far as there are any; then, of more than twice as
    /// many, large frames of others lose their memory.
    #[cold]
    fn trim(&self, most: usize) {
        for (order, class) in self.classes.iter().enumerate() {
            let shape = self.shape(order as u32);
            let mut gone = Vec::new();
            let mut class = class.lock();
            let open: Vec<u32> = class.open.iter().rev().copied().collect();
            for number in open {
                if self.idle.load(Relaxed) <= most {
                    break;
                }
                let slab = class.slabs[number as usize].as_ref();
                if slab.is_some_and(|slab| slab.free == shape.all) {
                    gone.push(self.close(&mut class, number, &shape));
                }
            }
            drop(class);
        }
        for (order, class) in self.classes.iter().enumerate() {
            let shape = self.shape(order as u32);
            if shape.frame < SLAB {
                continue;
            }
            for slab in class.lock().slabs.iter_mut().flatten() {
                let mut warm = slab.free & !slab.cold;
                while warm != 0 && self.idle.load(Relaxed) > 2 * most {
                    self.chill(slab, warm.trailing_zeros() as usize, &shape);
                    warm &= warm - 1;
                }
            }
        }
    }

    /// The memory of a free frame goes back.
    fn chill(&self, slab: &mut Slab, spot: usize, shape: &Shape) {
        slab.mapping.let_go(spot * shape.frame, shape.frame);
        slab.cold |= 1 << spot;
        self.idle.fetch_sub(shape.frame, Relaxed);
    }

    /// Takes an empty slab out; it is unmapped when it is dropped.
    fn close(&self, class: &mut Class, number: u32, shape: &Shape) -> Option<Slab> {
        let slab = class.slabs[number as usize].take()?;
        let warm = (slab.free & !slab.cold).count_ones() as usize;
        self.idle.fetch_sub(warm * shape.frame, Relaxed);
        class.open.remove(&number);
        class.vacant.push(number);
        Some(slab)
    }

    /// Takes a frame back; `room` as in [`Frames::take`].
    pub fn give(&self, frame: Frame, room: u64) {
        let most = self.most(room);
        let Frame { order, spot, slab: number, .. } = frame;
        let shape = self.shape(order.into());
        // The next owner of the spot must be alone: this frame ends first.
        drop(frame);
        let mut class = self.classes[order as usize].lock();
        let Some(slab) = class.slabs[number as usize].as_mut() else { return };
        let bit = 1u64 << spot;
        slab.free |= bit;
        let idle = self.idle.fetch_add(shape.frame, Relaxed) + shape.frame;
        let is_empty = slab.free == shape.all;
        if idle > most && is_empty {
            let slab = self.close(&mut class, number, &shape);
            drop(class);
            drop(slab);
            return;
        }
        // Small ones are not worth the call.
        if idle > 2 * most && shape.frame >= SLAB {
            self.chill(slab, spot.into(), &shape);
        }
        class.open.insert(number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Compared as a whole: Miri takes long for a loop over bytes.
    fn is_all(frame: &Frame, byte: u8) -> bool {
        **frame == vec![byte; frame.len()]
    }

    #[test]
    fn frames_are_apart_and_come_again() {
        let frames = Frames::new(1 << 20);
        let count = if cfg!(miri) { 3 } else { 70 };
        for order in 0..ORDERS {
            let mut lent: Vec<Frame> = (0..count).map(|_| frames.take(order, 0).unwrap()).collect();
            for (n, frame) in lent.iter_mut().enumerate() {
                assert_eq!(frame.len(), 4096 << order);
                assert_eq!(frame.as_ptr() as usize % 4096, 0);
                frame.fill(n as u8);
            }
            for (n, frame) in lent.iter().enumerate() {
                assert!(is_all(frame, n as u8));
            }
            lent.into_iter().for_each(|frame| frames.give(frame, 0));
            assert!(frames.idle.load(Relaxed) <= 1 << 20);
        }
    }

    #[test]
    fn what_is_above_the_reserve_goes_back() {
        let frames = Frames::new(0);
        let lent: Vec<Frame> = (0..200).map(|_| frames.take(0, 0).unwrap()).collect();
        lent.into_iter().for_each(|frame| frames.give(frame, 0));
        assert!(frames.classes[0].lock().slabs.iter().all(Option::is_none));
        assert_eq!(frames.idle.load(Relaxed), 0);
    }

    #[test]
    fn frames_share_huge_pages_and_keep_their_bytes_when_other_parts_go_back() {
        const HALF: u32 = 8;
        let frames = Frames::new(4 << 20);
        let mut lent: Vec<Frame> = (0..20).map(|_| frames.take(HALF, 0).unwrap()).collect();
        assert!(lent.chunks(2).all(|pair| pair[0].as_ptr().align_offset(HUGE) == 0));
        lent.iter_mut().for_each(|frame| frame.fill(7));
        let (even, odd): (Vec<_>, Vec<_>) =
            lent.into_iter().enumerate().partition(|(n, _)| n % 2 == 0);
        even.into_iter().for_each(|(_, frame)| frames.give(frame, 0));
        // Ten halves came back: eight are warm, the last two have no memory.
        assert_eq!(frames.idle.load(Relaxed), 8 << 20);
        let even: Vec<Frame> = (0..10).map(|_| frames.take(HALF, 0).unwrap()).collect();
        assert_eq!(even.iter().filter(|frame| is_all(frame, 0)).count(), 2);
        assert!(odd.iter().all(|(_, frame)| is_all(frame, 7)));
        assert_eq!(frames.idle.load(Relaxed), 0);
        let odd = odd.into_iter().map(|(_, frame)| frame);
        even.into_iter().chain(odd).for_each(|frame| frames.give(frame, 0));
        assert_eq!(frames.idle.load(Relaxed), 4 << 20);
    }

    #[test]
    fn what_is_kept_while_there_is_room_goes_when_there_is_none() {
        let frames = Frames::new(4 << 20);
        let lent: Vec<Frame> = (0..40).map(|_| frames.take(9, u64::MAX).unwrap()).collect();
        lent.into_iter().for_each(|frame| frames.give(frame, u64::MAX));
        assert_eq!(frames.idle.load(Relaxed), KEPT_MAX);
        let small = frames.take(0, 0).unwrap();
        assert_eq!(frames.idle.load(Relaxed), 4 << 20);
        frames.give(small, 0);
    }

    #[test]
    fn parts_of_slabs_in_use_go_when_there_is_no_room() {
        const EIGHTH: u32 = 6;
        let frames = Frames::new(4 << 20);
        let lent: Vec<Frame> = (0..160).map(|_| frames.take(EIGHTH, u64::MAX).unwrap()).collect();
        let (kept, given): (Vec<_>, Vec<_>) =
            lent.into_iter().enumerate().partition(|(n, _)| n % 8 == 0);
        given.into_iter().for_each(|(_, frame)| frames.give(frame, u64::MAX));
        assert_eq!(frames.idle.load(Relaxed), 35 << 20);
        let small = frames.take(0, 0).unwrap();
        assert_eq!(frames.idle.load(Relaxed), 8 << 20);
        frames.give(small, 0);
        kept.into_iter().for_each(|(_, frame)| frames.give(frame, 0));
        assert!(frames.idle.load(Relaxed) <= 8 << 20);
    }
}
