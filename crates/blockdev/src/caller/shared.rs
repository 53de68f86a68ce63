//! Memory that other threads may change at any time, like that of a guest or of another process.

use super::{Access, CallerMemory, Faults, Span};
use std::any::Any;
use std::sync::Arc;
use std::sync::atomic::AtomicU64;
use std::sync::atomic::Ordering::Relaxed;

/// Aligned memory that threads share without a lock: every access is an atomic access of an 8-byte
/// word.
///
/// Threads that copy bytes to neighbouring ranges lose none, even where the ranges share a word.
/// This is a model of guest memory. A real guest's memory implements [`CallerMemory`] outside of
/// this crate, with [`Span::shared`], and must keep the rules of that function.
#[derive(Debug)]
pub struct SharedMemory {
    pages: Box<[Page]>,
}

#[derive(Debug)]
#[repr(C, align(4096))]
struct Page([AtomicU64; 512]);

impl SharedMemory {
    /// Zeros, `len` bytes, rounded up to whole pages.
    pub fn zeroed(len: usize) -> SharedMemory {
        let page = || Page([const { AtomicU64::new(0) }; 512]);
        SharedMemory { pages: (0..len.div_ceil(4096)).map(|_| page()).collect() }
    }

    /// The length in bytes.
    pub fn len(&self) -> usize {
        self.pages.len() * 4096
    }

    /// Whether it holds no byte.
    pub fn is_empty(&self) -> bool {
        self.pages.is_empty()
    }

    /// Sets the 8-byte word that holds byte `at`.
    pub fn store(&self, at: usize, word: u64) {
        self.pages[at / 4096].0[at % 4096 / 8].store(word, Relaxed);
    }

    /// The word that holds byte `at`.
    pub fn load(&self, at: usize) -> u64 {
        self.pages[at / 4096].0[at % 4096 / 8].load(Relaxed)
    }
}

/// `len` bytes of shared memory from a start on, as memory of a caller.
#[derive(Clone, Debug)]
pub struct SharedCursor {
    memory: Arc<SharedMemory>,
    start: usize,
    len: usize,
    at: usize,
}

impl SharedCursor {
    /// The bytes `start..start + len` of `memory`.
    ///
    /// # Panics
    /// If the range does not lie wholly in `memory`.
    pub fn new(memory: Arc<SharedMemory>, start: usize, len: usize) -> SharedCursor {
        assert!(start <= memory.len() && len <= memory.len() - start, "a part of the memory");
        SharedCursor { memory, start, len, at: 0 }
    }
}

#[allow(unsafe_code)]
impl SharedCursor {
    fn next(&mut self, most: usize, access: Access) -> Span<'static> {
        let n = most.min(self.len - self.at);
        let keep: Arc<dyn Any + Send + Sync> = self.memory.clone();
        let base = self.memory.pages.as_ptr().cast::<u8>().cast_mut();
        // SAFETY: the part lies in the pages. They are whole words, live as long as `keep`, and are
        // accessed as `AtomicU64` only; the pointer reaches all of them.
        let span = unsafe { Span::shared(base.add(self.start + self.at), n, access, Some(keep)) };
        self.at += n;
        span
    }
}

impl CallerMemory<'static> for SharedCursor {
    fn left(&self) -> usize {
        self.len - self.at
    }

    fn copy_out(&mut self, to: &mut [u8], _: Faults) -> usize {
        let span = self.next(to.len(), Access::Read);
        span.load(&mut to[..span.len()]);
        span.len()
    }

    fn copy_in(&mut self, from: &[u8], _: Faults) -> usize {
        let mut span = self.next(from.len(), Access::Write);
        let n = span.len();
        span.store(&from[..n]);
        n
    }

    fn is_present(&self) -> bool {
        true
    }

    fn revert(&mut self, len: usize) {
        self.at = self.at.checked_sub(len).expect("gives back what was taken");
    }

    fn lend(&mut self, most: usize, access: Access) -> Option<Span<'static>> {
        (self.left() > 0 && most > 0).then(|| self.next(most, access))
    }
}
