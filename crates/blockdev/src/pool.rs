//! Aligned buffers that are reused instead of allocated again.
//!
//! ```text
//!   class   4K    8K   16K   …   4M         take(len): the smallest class that holds len
//!          [▪▪]  [ ]   [▪]      [▪▪▪]       drop: back into its class, within the limit for all
//!           each class is a list with its own lock
//! ```

use crate::aligned::AlignedBuf;
use parking_lot::Mutex;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering::Relaxed};

const SMALLEST_LOG2: u32 = 12;
const LARGEST_LOG2: u32 = 22;
const CLASSES: usize = (LARGEST_LOG2 - SMALLEST_LOG2 + 1) as usize;

/// A pool of [`AlignedBuf`]s. Clones share one pool.
#[derive(Clone)]
pub struct BufPool {
    shared: Arc<Shared>,
}

impl std::fmt::Debug for BufPool {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("BufPool").finish_non_exhaustive()
    }
}

struct Shared {
    /// The most unused bytes in all classes together, and the current number of them.
    most_idle: usize,
    idle_bytes: AtomicUsize,
    idle: [Mutex<Vec<AlignedBuf>>; CLASSES],
}

impl BufPool {
    /// A pool that keeps at most `most_idle` bytes of unused buffers.
    pub fn new(most_idle: usize) -> BufPool {
        let idle = std::array::from_fn(|_| Mutex::new(Vec::new()));
        BufPool { shared: Arc::new(Shared { most_idle, idle_bytes: AtomicUsize::new(0), idle }) }
    }

    /// A buffer of `len` bytes with any content: zeros, or what its last user left. Buffers longer
    /// than 4 MiB are not kept when they are dropped.
    pub fn take(&self, len: usize) -> PooledBuf {
        let buf = class_of(len).and_then(|class| self.idle(class)).unwrap_or_else(|| {
            AlignedBuf::zeroed(
                class_of(len).map_or(len, |class| 1 << (SMALLEST_LOG2 as usize + class)),
            )
        });
        PooledBuf { buf: Some(buf), len, pool: self.clone() }
    }

    /// As [`BufPool::take`]; `None` where the system has no memory for the buffer.
    pub fn try_take(&self, len: usize) -> Option<PooledBuf> {
        let class = class_of(len);
        let idle = class.and_then(|class| self.idle(class));
        let size = class.map_or(len, |class| 1 << (SMALLEST_LOG2 as usize + class));
        let buf = match idle {
            Some(buf) => buf,
            None => AlignedBuf::try_zeroed(size)?,
        };
        Some(PooledBuf { buf: Some(buf), len, pool: self.clone() })
    }

    /// An unused buffer of the class. When there is none, unused buffers of other classes are freed
    /// for the new one.
    fn idle(&self, class: usize) -> Option<AlignedBuf> {
        let found = self.pop(class);
        if found.is_none() {
            let most = self.shared.most_idle.saturating_sub(1 << (SMALLEST_LOG2 as usize + class));
            let mut others = (0..CLASSES).rev();
            while self.idle_bytes() > most {
                let Some(other) = others.next() else { break };
                while self.idle_bytes() > most && self.pop(other).is_some() {}
            }
        }
        found
    }

    fn pop(&self, class: usize) -> Option<AlignedBuf> {
        let buf = self.shared.idle[class].lock().pop()?;
        self.shared.idle_bytes.fetch_sub(buf.len(), Relaxed);
        Some(buf)
    }

    /// Bytes of unused buffers in the pool.
    pub fn idle_bytes(&self) -> usize {
        self.shared.idle_bytes.load(Relaxed)
    }
}

/// Keeps up to 16 MiB of unused buffers.
impl Default for BufPool {
    fn default() -> BufPool {
        BufPool::new(16 << 20)
    }
}

/// The class of buffers that hold `len` bytes; `None` above the largest class.
fn class_of(len: usize) -> Option<usize> {
    let log2 = len.checked_next_power_of_two()?.trailing_zeros().max(SMALLEST_LOG2);
    (log2 <= LARGEST_LOG2).then(|| (log2 - SMALLEST_LOG2) as usize)
}

/// A buffer that returns to its pool when dropped.
pub struct PooledBuf {
    buf: Option<AlignedBuf>,
    len: usize,
    pool: BufPool,
}

impl std::fmt::Debug for PooledBuf {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "PooledBuf({} bytes)", self.len)
    }
}

impl PooledBuf {
    /// The address of the bytes, without a reference to them.
    pub(crate) fn start(&self) -> *mut u8 {
        self.buf.as_ref().expect(PRESENT).start()
    }
}

const PRESENT: &str = "only drop takes the buffer out";

impl Deref for PooledBuf {
    type Target = [u8];
    fn deref(&self) -> &[u8] {
        &self.buf.as_ref().expect(PRESENT)[..self.len]
    }
}

impl DerefMut for PooledBuf {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.buf.as_mut().expect(PRESENT)[..self.len]
    }
}

impl Drop for PooledBuf {
    fn drop(&mut self) {
        let (Some(class), Some(buf)) = (class_of(self.len), self.buf.take()) else { return };
        let Shared { most_idle, idle_bytes, idle } = &*self.pool.shared;
        let kept = idle_bytes.fetch_update(Relaxed, Relaxed, |waiting| {
            waiting.checked_add(buf.len()).filter(|bytes| bytes <= most_idle)
        });
        if kept.is_ok() {
            idle[class].lock().push(buf);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dropped_buffer_serves_the_next_of_its_class() {
        let pool = BufPool::default();
        let first = pool.take(5000);
        let address = first.as_ptr();
        drop(first);
        let second = pool.take(8192);
        assert_eq!((second.as_ptr(), second.len()), (address, 8192));
        assert_eq!(pool.idle_bytes(), 0);
    }

    #[test]
    fn a_pool_keeps_no_more_than_it_may() {
        let pool = BufPool::new(8192);
        drop([pool.take(4096), pool.take(1), pool.take(0)]);
        assert_eq!(pool.idle_bytes(), 8192);
        drop(pool.take(16384));
        assert!(pool.idle_bytes() <= 8192);
    }

    #[test]
    fn buffers_of_one_size_make_way_for_those_of_another() {
        let pool = BufPool::new(64 << 10);
        drop((0..16).map(|_| pool.take(4096)).collect::<Vec<_>>());
        assert_eq!(pool.idle_bytes(), 64 << 10);
        let large = pool.take(32 << 10);
        assert_eq!(pool.idle_bytes(), 32 << 10);
        drop(large);
        assert_eq!(pool.idle_bytes(), 64 << 10);
    }

    #[test]
    fn a_length_above_every_class_is_served_and_not_kept() {
        let pool = BufPool::default();
        let buf = pool.take((4 << 20) + 1);
        assert_eq!(buf.len(), (4 << 20) + 1);
        drop(buf);
        assert_eq!(pool.idle_bytes(), 0);
    }
}
