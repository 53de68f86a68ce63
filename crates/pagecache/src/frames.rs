//! The memory of folios: frames of 4 KiB to 2 MiB, cut from mappings that go back to the system.
//!
//! ```text
//!   class 0   ┌slab 256 KiB────────────┐ ┌slab──────┐     one bit per frame: free or lent
//!   4 KiB     │▪│▪│ │▪│ │ …  64 frames │ │          │
//!             └────────────────────────┘ └──────────┘
//!   class 6…9 ┌slab = frame, 256 KiB … 2 MiB┐             take: the lowest slab with room
//!             └─────────────────────────────┘             give: an empty slab is unmapped, but
//!                                                               for a small reserve
//! ```
//! A frame's bytes are zeros or what its last user left.

#![allow(unsafe_code)]

use extant_base::lock::{Mutex, Rank};
use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous, munmap};
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
    fn new(len: usize) -> Option<Mapping> {
        let protection = ProtFlags::READ | ProtFlags::WRITE;
        // SAFETY: no address is wished for, so no mapping of anybody else is touched.
        let start =
            unsafe { mmap_anonymous(std::ptr::null_mut(), len, protection, MapFlags::PRIVATE) };
        Some(Mapping { start: NonNull::new(start.ok()?.cast())?, len })
    }
}

impl Drop for Mapping {
    fn drop(&mut self) {
        // SAFETY: these pages came from `mmap_anonymous` with this length. Every frame in them
        // holds the mapping by an `Arc`, so none is left.
        let _ = unsafe { munmap(self.start.as_ptr().cast(), self.len) };
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
    idle: AtomicUsize,
}

/// Frames of a slab, and a bit for each.
fn shape(order: u32) -> (usize, u64) {
    let frames = (SLAB >> (PAGE_LOG2 + order)).max(1);
    (frames, u64::MAX >> (64 - frames))
}

impl Frames {
    /// Keeps at most `reserve` bytes that nobody uses.
    pub fn new(reserve: usize) -> Frames {
        let classes = std::array::from_fn(|_| Mutex::new(Rank::Leaf, Class::default()));
        Frames { classes, reserve, idle: AtomicUsize::new(0) }
    }

    /// A frame of 4 KiB << `order` with any content, or `None`: the system has no memory.
    pub fn take(&self, order: u32) -> Option<Frame> {
        let size = 1usize << (PAGE_LOG2 + order);
        let (frames, all) = shape(order);
        let mut class = self.classes[order as usize].lock();
        let number = match class.open.first() {
            Some(number) => *number,
            None => {
                let slab = Slab { mapping: Arc::new(Mapping::new(size * frames)?), free: all };
                self.idle.fetch_add(size * frames, Relaxed);
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
        if slab.free == all {
            self.idle.fetch_sub(size * frames, Relaxed);
        }
        let spot = slab.free.trailing_zeros();
        assert!((spot as usize) < frames, "an open slab has a free frame");
        slab.free &= slab.free - 1;
        let full = slab.free == 0;
        let mapping = slab.mapping.clone();
        // SAFETY: `spot` is below `frames`, and the mapping has `frames * size` bytes.
        let start = unsafe { mapping.start.add(spot as usize * size) };
        if full {
            class.open.remove(&number);
        }
        let (order, spot) = (order as u8, spot as u8);
        Some(Frame { start, len: size, order, spot, slab: number, _mapping: mapping })
    }

    /// Takes a frame back.
    pub fn give(&self, frame: Frame) {
        let order = u32::from(frame.order);
        let (frames, all) = shape(order);
        let (number, spot, bytes) = (frame.slab, frame.spot, frames << (PAGE_LOG2 + order));
        // The next owner of the spot must be alone: this frame ends first.
        drop(frame);
        let mut class = self.classes[order as usize].lock();
        let Some(slab) = class.slabs[number as usize].as_mut() else { return };
        slab.free |= 1 << spot;
        if slab.free != all {
            class.open.insert(number);
        } else if self.idle.load(Relaxed) + bytes <= self.reserve {
            self.idle.fetch_add(bytes, Relaxed);
            class.open.insert(number);
        } else {
            class.open.remove(&number);
            let slab = class.slabs[number as usize].take();
            class.vacant.push(number);
            drop(class);
            drop(slab);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn frames_are_apart_and_come_again() {
        let frames = Frames::new(1 << 20);
        for order in 0..ORDERS {
            let mut lent: Vec<Frame> = (0..70).map(|_| frames.take(order).unwrap()).collect();
            for (n, frame) in lent.iter_mut().enumerate() {
                assert_eq!(frame.len(), 4096 << order);
                assert_eq!(frame.as_ptr() as usize % 4096, 0);
                frame.fill(n as u8);
            }
            for (n, frame) in lent.iter().enumerate() {
                assert!(frame.iter().all(|byte| *byte == n as u8));
            }
            lent.into_iter().for_each(|frame| frames.give(frame));
            assert!(frames.idle.load(Relaxed) <= 1 << 20);
        }
    }

    #[test]
    fn what_is_above_the_reserve_goes_back() {
        let frames = Frames::new(0);
        let lent: Vec<Frame> = (0..200).map(|_| frames.take(0).unwrap()).collect();
        lent.into_iter().for_each(|frame| frames.give(frame));
        assert!(frames.classes[0].lock().slabs.iter().all(Option::is_none));
        assert_eq!(frames.idle.load(Relaxed), 0);
    }
}
