//! The memory of folios: frames of 4 KiB to 2 MiB, allocated from anonymous mappings.
//!
//! ```text
//!   class 0   ┌slab 256 KiB────────────┐ ┌slab──────┐     one bit per frame: free or in use
//!   4 KiB     │▪│▪│ │▪│ │ …  64 frames │ │          │
//!             └────────────────────────┘ └──────────┘
//!   class 6…9 ┌slab 2 MiB, one huge page───┐              a second bit: free, without memory
//!   256 KiB … │▪▪▪▪▪▪│      │▪▪▪▪▪▪│░░░░░░│
//!             └────────────────────────────┘              take: the lowest slab with a free frame
//! ```
//! Free frames keep their memory, so that their next user meets no page faults. The limit for them
//! is a reserve, or up to 64 MiB while the cache has as many bytes below its limit. Beyond the
//! limit an empty slab is unmapped. Beyond twice the limit a free large frame in a slab that is
//! still in use loses its memory, which splits its huge page.
//!
//! A frame's bytes are zeros or the bytes that its last user left.

#![allow(unsafe_code)]

use extant_base::lock::{Mutex, Rank};
use extant_base::narrow::{fits_usize, len_u8, len_u32, low_u8};
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
/// Slab size for small frames, in bytes.
const SLAB: usize = 256 << 10;
/// Slab size for frames of [`SLAB`] bytes and more: one huge page, which saves 512 page faults and
/// is zeroed at once.
const HUGE: usize = 2 << 20;

/// Upper limit of free memory kept, in bytes, however far the cache is below its limit.
const KEPT_MAX: usize = 64 << 20;

/// Pages mapped from the system.
struct Mapping {
    start: NonNull<u8>,
    len: usize,
}

// SAFETY: a mapping is memory of this process; which thread unmaps it does not matter, and its
// bytes are reached through frames only.
unsafe impl Send for Mapping {}
// SAFETY: as above; `&Mapping` offers no access to the bytes.
unsafe impl Sync for Mapping {}

impl Mapping {
    #[cfg(not(miri))]
    fn new(len: usize) -> Option<Mapping> {
        // A huge page is aligned to its size: map more than needed and unmap both ends.
        let wide = if len < HUGE { len } else { len + HUGE };
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: no address is requested, so the new mapping replaces no existing one.
        let start =
            unsafe { mmap_anonymous(std::ptr::null_mut(), wide, protection, MapFlags::PRIVATE) };
        let start: NonNull<u8> = NonNull::new(start.ok()?.cast())?;
        if len < HUGE {
            return Some(Mapping { start, len });
        }
        let before = start.as_ptr().align_offset(HUGE).min(HUGE);
        // SAFETY: `before <= HUGE`, so all three addresses are within the mapping or at its end.
        let (first, start, after) = unsafe { (start, start.add(before), start.add(before + len)) };
        for (part, len) in [(first, before), (after, wide - before - len)] {
            if len > 0 {
                // SAFETY: these pages belong to the new mapping, and `Mapping` does not keep them.
                let _ = unsafe { munmap(part.as_ptr().cast(), len) };
            }
        }
        // SAFETY: the page size does not change what a program observes. A system without huge
        // pages refuses the call, and small pages work as well.
        let _ = unsafe { madvise(start.as_ptr().cast(), len, Advice::LinuxHugepage) };
        Some(Mapping { start, len })
    }

    /// Returns the memory of the bytes `from..from + len` to the system. They stay usable and read
    /// as zeros.
    #[cfg(not(miri))]
    fn discard_memory(&self, from: usize, len: usize) {
        assert!(from + len <= self.len, "a frame is within its slab");
        // SAFETY: these pages belong to this mapping, and `&mut Slab` gives the caller exclusive
        // access to a position that no frame uses. If the system refuses, the bytes stay as they
        // are.
        let _ =
            unsafe { madvise(self.start.as_ptr().add(from).cast(), len, Advice::LinuxDontNeed) };
    }
}

impl Drop for Mapping {
    #[cfg(not(miri))]
    fn drop(&mut self) {
        // SAFETY: these pages came from `mmap_anonymous` with this length. Every frame in them
        // holds the mapping by an `Arc`, so no frame is left.
        let _ = unsafe { munmap(self.start.as_ptr().cast(), self.len) };
    }

    #[cfg(miri)]
    fn drop(&mut self) {
        // SAFETY: the allocation came from `alloc_zeroed` with this layout.
        unsafe { std::alloc::dealloc(self.start.as_ptr(), Mapping::layout(self.len)) }
    }
}

/// Miri does not support `madvise`, and it unmaps whole mappings only. Under Miri a mapping is a
/// heap allocation.
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

    fn discard_memory(&self, from: usize, len: usize) {
        assert!(from + len <= self.len, "a frame is within its slab");
        // SAFETY: the bytes belong to this mapping, and `&mut Slab` gives the caller exclusive
        // access to a position that no frame uses.
        unsafe { self.start.as_ptr().add(from).write_bytes(0, len) }
    }
}

/// Memory for one folio.
pub(crate) struct Frame {
    start: NonNull<u8>,
    len: usize,
    order: u8,
    position: u8,
    slab: u32,
    /// Keeps the memory mapped.
    _mapping: Arc<Mapping>,
}

// SAFETY: only the frame reaches its bytes, as with a `Box<[u8]>`.
unsafe impl Send for Frame {}
// SAFETY: shared access only reads.
unsafe impl Sync for Frame {}

impl Deref for Frame {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        // SAFETY: `start` and `len` are within `_mapping`, which is readable, zeroed or written
        // from its start, and lives as long as `self`. `Frames::take` gives each position of a slab
        // to one frame at a time, so `&self` excludes writers.
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
    /// The part of `free` without memory: never used, or returned to the system.
    without_memory: u64,
}

#[derive(Default)]
struct Class {
    slabs: Vec<Option<Slab>>,
    /// Empty entries of `slabs`.
    vacant: Vec<u32>,
    /// Slabs with free frames.
    open: BTreeSet<u32>,
}

/// The allocator of frames.
pub(crate) struct Frames {
    classes: [Mutex<Class>; ORDERS as usize],
    reserve: usize,
    /// Whether large frames are allocated from huge pages.
    is_huge: bool,
    /// Bytes of free frames that have memory.
    idle: AtomicUsize,
}

/// Sizes of a class, in bytes.
struct Shape {
    frame: usize,
    slab: usize,
    /// One bit per frame.
    all: u64,
}

impl Frames {
    /// An allocator that keeps up to `reserve` free bytes even when the cache is full.
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

    /// Maximum free bytes to keep while the cache is `free_bytes` bytes below its limit.
    fn most(&self, free_bytes: u64) -> usize {
        self.reserve.max(fits_usize(free_bytes.min(KEPT_MAX as u64)))
    }

    /// A frame of 4 KiB << `order` with arbitrary content, or `None` when the system has no memory.
    /// `free_bytes` is the number of bytes below the cache's limit.
    pub fn take(&self, order: u32, free_bytes: u64) -> Option<Frame> {
        let shape = self.shape(order);
        if self.idle.load(Relaxed) > self.most(free_bytes)
            && self.classes[order as usize].lock().open.is_empty()
        {
            self.trim(self.most(free_bytes));
        }
        let mut class = self.classes[order as usize].lock();
        let number = match class.open.first() {
            Some(number) => *number,
            None => {
                let mapping = Arc::new(Mapping::new(shape.slab)?);
                let slab = Slab { mapping, free: shape.all, without_memory: shape.all };
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
        // Prefer frames that have memory.
        let from = if slab.free & !slab.without_memory != 0 {
            slab.free & !slab.without_memory
        } else {
            slab.free
        };
        let position = from.trailing_zeros() as usize;
        assert!(position * shape.frame < shape.slab, "an open slab has a free frame");
        let bit = 1u64 << position;
        if slab.without_memory & bit == 0 {
            self.idle.fetch_sub(shape.frame, Relaxed);
        }
        slab.free &= !bit;
        slab.without_memory &= !bit;
        let full = slab.free == 0;
        let mapping = slab.mapping.clone();
        // SAFETY: `position` is within the slab, and so is the whole frame.
        let start = unsafe { mapping.start.add(position * shape.frame) };
        if full {
            class.open.remove(&number);
        }
        let (order, position) = (low_u8(order), len_u8(position));
        Some(Frame { start, len: shape.frame, order, position, slab: number, _mapping: mapping })
    }

    /// Unmaps empty slabs until at most `most` free bytes are kept, as far as there are empty
    /// slabs. If more than twice as many remain, takes the memory of large frames in other slabs.
    #[cold]
    fn trim(&self, most: usize) {
        for (order, class) in self.classes.iter().enumerate() {
            let shape = self.shape(len_u32(order));
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
            let shape = self.shape(len_u32(order));
            if shape.frame < SLAB {
                continue;
            }
            for slab in class.lock().slabs.iter_mut().flatten() {
                let mut with_memory = slab.free & !slab.without_memory;
                while with_memory != 0 && self.idle.load(Relaxed) > 2 * most {
                    self.discard_frame(slab, with_memory.trailing_zeros() as usize, &shape);
                    with_memory &= with_memory - 1;
                }
            }
        }
    }

    /// Returns the memory of a free frame to the system.
    fn discard_frame(&self, slab: &mut Slab, position: usize, shape: &Shape) {
        slab.mapping.discard_memory(position * shape.frame, shape.frame);
        slab.without_memory |= 1 << position;
        self.idle.fetch_sub(shape.frame, Relaxed);
    }

    /// Removes an empty slab; dropping it unmaps it.
    fn close(&self, class: &mut Class, number: u32, shape: &Shape) -> Option<Slab> {
        let slab = class.slabs[number as usize].take()?;
        let with_memory = (slab.free & !slab.without_memory).count_ones() as usize;
        self.idle.fetch_sub(with_memory * shape.frame, Relaxed);
        class.open.remove(&number);
        class.vacant.push(number);
        Some(slab)
    }

    /// Frees a frame; `free_bytes` as in [`Frames::take`].
    pub fn give(&self, frame: Frame, free_bytes: u64) {
        let most = self.most(free_bytes);
        let Frame { order, position, slab: number, .. } = frame;
        let shape = self.shape(order.into());
        // The next frame at this position must be the only one, so this frame ends first.
        drop(frame);
        let mut class = self.classes[order as usize].lock();
        let Some(slab) = class.slabs[number as usize].as_mut() else { return };
        let bit = 1u64 << position;
        slab.free |= bit;
        let idle = self.idle.fetch_add(shape.frame, Relaxed) + shape.frame;
        let is_empty = slab.free == shape.all;
        if idle > most && is_empty {
            let slab = self.close(&mut class, number, &shape);
            drop(class);
            drop(slab);
            return;
        }
        // Small frames are not worth the system call.
        if idle > 2 * most && shape.frame >= SLAB {
            self.discard_frame(slab, position.into(), &shape);
        }
        class.open.insert(number);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Compares whole slices: a loop over bytes is slow under Miri.
    fn is_all(frame: &Frame, byte: u8) -> bool {
        **frame == vec![byte; frame.len()]
    }

    #[test]
    fn frames_are_disjoint_and_reused() {
        let frames = Frames::new(1 << 20);
        let count = if cfg!(miri) { 3 } else { 70 };
        for order in 0..ORDERS {
            let mut in_use: Vec<Frame> =
                (0..count).map(|_| frames.take(order, 0).unwrap()).collect();
            for (n, frame) in in_use.iter_mut().enumerate() {
                assert_eq!(frame.len(), 4096 << order);
                assert_eq!(frame.as_ptr() as usize % 4096, 0);
                frame.fill(n as u8);
            }
            for (n, frame) in in_use.iter().enumerate() {
                assert!(is_all(frame, n as u8));
            }
            in_use.into_iter().for_each(|frame| frames.give(frame, 0));
            assert!(frames.idle.load(Relaxed) <= 1 << 20);
        }
    }

    #[test]
    fn memory_above_the_reserve_is_unmapped() {
        let frames = Frames::new(0);
        let in_use: Vec<Frame> = (0..200).map(|_| frames.take(0, 0).unwrap()).collect();
        in_use.into_iter().for_each(|frame| frames.give(frame, 0));
        assert!(frames.classes[0].lock().slabs.iter().all(Option::is_none));
        assert_eq!(frames.idle.load(Relaxed), 0);
    }

    #[test]
    fn frames_share_huge_pages_and_keep_their_bytes_when_others_lose_memory() {
        const HALF: u32 = 8;
        let frames = Frames::new(4 << 20);
        let mut in_use: Vec<Frame> = (0..20).map(|_| frames.take(HALF, 0).unwrap()).collect();
        assert!(in_use.chunks(2).all(|pair| pair[0].as_ptr().align_offset(HUGE) == 0));
        in_use.iter_mut().for_each(|frame| frame.fill(7));
        let (even, odd): (Vec<_>, Vec<_>) =
            in_use.into_iter().enumerate().partition(|(n, _)| n % 2 == 0);
        even.into_iter().for_each(|(_, frame)| frames.give(frame, 0));
        // Ten halves are free: eight keep their memory, the last two do not.
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
    fn memory_kept_below_the_limit_is_returned_at_the_limit() {
        let frames = Frames::new(4 << 20);
        let in_use: Vec<Frame> = (0..40).map(|_| frames.take(9, u64::MAX).unwrap()).collect();
        in_use.into_iter().for_each(|frame| frames.give(frame, u64::MAX));
        assert_eq!(frames.idle.load(Relaxed), KEPT_MAX);
        let small = frames.take(0, 0).unwrap();
        assert_eq!(frames.idle.load(Relaxed), 4 << 20);
        frames.give(small, 0);
    }

    #[test]
    fn large_free_frames_lose_their_memory_at_the_limit() {
        const EIGHTH: u32 = 6;
        let frames = Frames::new(4 << 20);
        let in_use: Vec<Frame> = (0..160).map(|_| frames.take(EIGHTH, u64::MAX).unwrap()).collect();
        let (kept, given): (Vec<_>, Vec<_>) =
            in_use.into_iter().enumerate().partition(|(n, _)| n % 8 == 0);
        given.into_iter().for_each(|(_, frame)| frames.give(frame, u64::MAX));
        assert_eq!(frames.idle.load(Relaxed), 35 << 20);
        let small = frames.take(0, 0).unwrap();
        assert_eq!(frames.idle.load(Relaxed), 8 << 20);
        frames.give(small, 0);
        kept.into_iter().for_each(|(_, frame)| frames.give(frame, 0));
        assert!(frames.idle.load(Relaxed) <= 8 << 20);
    }
}
