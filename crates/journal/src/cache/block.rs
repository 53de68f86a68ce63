//! One cached block: its bytes, and the state of its changes.
//!
//! ```text
//!   without a log
//!              load done            bytes_mut            write-out copied       written
//!   Loading ─────────────► clean ─────────────► DIRTY ─────────────────► WRITING ──────► clean
//!      │ failed                                   ▲        bytes_mut         │
//!      ▼                                          └──────────────────────────┘
//!   FAILED (out of the table)        any ──forget──► FORGOTTEN (out of the table, never written)
//!
//!   with a log, transaction by transaction (numbers, 0 = none)
//!   bytes_mut            copied into the log       commit durable            written home
//!   joined = n ────────► copied = n ─────────────► logged = n, DIRTY ──────► logged = 0, clean
//!        └─ bytes_mut in n + 1 while copied < n: the old bytes are frozen for n's copy
//! ```
//!
//! Without a log, a thread sets DIRTY with the byte lock held exclusively, and write-out clears it
//! with the lock held shared. So a change is either part of the copy that is being written, or
//! makes the block dirty again. With a log, DIRTY also says that the bytes are those of the newest
//! durable commit, so they may go home.
//!
//! Rule J4: a block that joins a transaction loses DIRTY; the transaction's commit sets it again.

use extant_base::BlockNr;
use extant_base::lock::{Rank, RwLock};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// The content is loaded.
pub(crate) const LOADED: u32 = 1;
/// Reading the content failed; the block is out of the table.
pub(crate) const FAILED: u32 = 2;
/// The content differs from the device's and may be written home.
pub(crate) const DIRTY: u32 = 4;
/// A copy of the content is being written home.
pub(crate) const WRITING: u32 = 8;
/// The block was freed; it is out of the table and is never written home.
pub(crate) const FORGOTTEN: u32 = 16;
/// Requested since the clock hand last passed.
pub(crate) const REFERENCED: u32 = 32;

/// The number of a transaction of one [`Journal`](crate::Journal), from 1 on. Unlike a
/// [`Tid`](extant_base::Tid) it does not wrap.
pub(crate) type Seq = u64;

/// Guarded by the byte lock.
pub(crate) struct Content {
    pub(crate) bytes: Box<[u8]>,
    /// The bytes as the committing transaction left them, if they changed before it took its copy.
    frozen: Option<Box<[u8]>>,
}

/// The block itself, shared by the table and all that hold a reference.
pub(crate) struct Block {
    pub(crate) nr: BlockNr,
    pub(crate) flags: AtomicU32,
    /// What the content was checked as; 0 = not checked.
    verified_as: AtomicU64,
    /// The last transaction that changed the content. Set under the exclusive byte lock.
    joined: AtomicU64,
    /// The last transaction whose copy went into the log. Set under the byte lock.
    copied: AtomicU64,
    /// The transaction whose durable copy in the log is newer than the block at home; 0 = none.
    logged: AtomicU64,
    /// The transaction that freed the block.
    forgotten_in: AtomicU64,
    pub(crate) content: RwLock<Content>,
}

/// The result of [`Block::join`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Join {
    /// The block was not part of the transaction before.
    New {
        /// It was dirty: committed, and not yet written home.
        was_dirty: bool,
    },
    /// The block was part of the transaction already.
    Again,
    /// The block was freed: its changes are not logged.
    Freed,
}

impl Block {
    pub(crate) fn new(nr: BlockNr) -> Arc<Block> {
        Arc::new(Block {
            nr,
            flags: AtomicU32::new(0),
            verified_as: AtomicU64::new(0),
            joined: AtomicU64::new(0),
            copied: AtomicU64::new(0),
            logged: AtomicU64::new(0),
            forgotten_in: AtomicU64::new(0),
            content: RwLock::new(Rank::Leaf, Content { bytes: Box::default(), frozen: None }),
        })
    }

    pub(crate) fn has(&self, flag: u32) -> bool {
        self.flags.load(Ordering::Acquire) & flag != 0
    }

    /// Keeps the block when the clock hand passes next.
    #[inline]
    pub(crate) fn touch(&self) {
        if self.flags.load(Ordering::Relaxed) & REFERENCED == 0 {
            self.flags.fetch_or(REFERENCED, Ordering::Relaxed);
        }
    }

    /// Sets what the content was checked as; 0 = not checked.
    pub(crate) fn set_verified_as(&self, kind: u64) {
        self.verified_as.store(kind, Ordering::Release);
    }

    /// What the content was checked as; 0 = not checked.
    pub(crate) fn verified_as(&self) -> u64 {
        self.verified_as.load(Ordering::Acquire)
    }

    /// Sets the content: bytes that were read, or zeros.
    pub(crate) fn fill(&self, bytes: Box<[u8]>) {
        self.content.write().bytes = bytes;
    }

    /// Whether the content is the device's: it was not changed since it was read.
    pub(crate) fn is_as_read(&self) -> bool {
        let unchanged = |number: &AtomicU64| number.load(Ordering::Acquire) == 0;
        unchanged(&self.joined) && unchanged(&self.logged) && !self.has(DIRTY | WRITING | FORGOTTEN)
    }

    /// Replaces the content if it was not changed since it was read. Returns whether it did.
    #[track_caller]
    pub(crate) fn exchange(&self, bytes: Box<[u8]>) -> bool {
        let mut content = self.content.write();
        let as_read = self.is_as_read();
        if as_read {
            content.bytes = bytes;
        }
        as_read
    }

    /// Marks the block dirty. Returns whether it was not. The caller holds the byte lock.
    pub(crate) fn mark_dirty(&self) -> bool {
        if self.flags.load(Ordering::Relaxed) & (DIRTY | FORGOTTEN) != 0 {
            return false;
        }
        self.update(|flags| (flags & (DIRTY | FORGOTTEN) == 0).then_some(flags | DIRTY)).is_ok()
    }

    /// Clears DIRTY and sets WRITING. Returns `false` when there is nothing to write. The caller
    /// holds the byte lock and copies the bytes.
    pub(crate) fn take_for_writing(&self) -> bool {
        self.update(|flags| {
            (flags & (DIRTY | FORGOTTEN) == DIRTY).then_some((flags & !DIRTY) | WRITING)
        })
        .is_ok()
    }

    /// Ends a write that failed. Returns whether the block became dirty again.
    pub(crate) fn set_unwritten(&self) -> bool {
        let again = |flags: u32| if flags & FORGOTTEN == 0 { DIRTY } else { 0 };
        let before = self.update(|flags| Some((flags & !WRITING) | again(flags)));
        before.is_ok_and(|before| before & (DIRTY | FORGOTTEN) == 0)
    }

    /// Marks the block as freed, never to be written. Returns the flags from before.
    pub(crate) fn set_forgotten(&self) -> u32 {
        self.update(|flags| Some((flags | FORGOTTEN) & !DIRTY)).unwrap_or_else(|flags| flags)
    }

    fn update(&self, change: impl FnMut(u32) -> Option<u32>) -> Result<u32, u32> {
        self.flags.fetch_update(Ordering::AcqRel, Ordering::Relaxed, change)
    }

    /// Makes the block part of the running transaction `seq`. The caller changes the bytes
    /// afterwards.
    ///
    /// Rule J3: the log receives the content as it was when the transaction was closed. So if the
    /// committing transaction has not taken its copy yet, the old bytes are kept for it first.
    #[inline]
    pub(crate) fn join(&self, content: &mut Content, seq: Seq) -> Join {
        if self.joined.load(Ordering::Relaxed) == seq {
            return if self.has(FORGOTTEN) { Join::Freed } else { Join::Again };
        }
        self.freeze(content);
        if self.has(FORGOTTEN) {
            return Join::Freed;
        }
        self.joined.store(seq, Ordering::Release);
        let before = self.update(|flags| Some(flags & !DIRTY)).unwrap_or_default();
        Join::New { was_dirty: before & DIRTY != 0 }
    }

    /// Keeps the bytes for a closed transaction that has not copied them yet.
    ///
    /// The caller knows that the block is not part of the running transaction; for one that is, a
    /// useless copy would be kept.
    fn freeze(&self, content: &mut Content) {
        let joined = self.joined.load(Ordering::Relaxed);
        if joined > self.copied.load(Ordering::Relaxed) && content.frozen.is_none() {
            content.frozen = Some(content.bytes.clone());
        }
    }

    /// Sets all bytes to zero, for a block that is allocated again. `running` is the running
    /// transaction, 0 without a log.
    pub(crate) fn clear(&self, running: Seq) {
        let mut content = self.content.write();
        if self.joined.load(Ordering::Relaxed) != running {
            self.freeze(&mut content);
        }
        content.bytes.fill(0);
    }

    /// Copies the content as the closed transaction `seq` left it.
    pub(crate) fn copy_for_log(&self, seq: Seq, into: &mut [u8]) {
        {
            let content = self.content.read();
            if content.frozen.is_none() {
                into.copy_from_slice(&content.bytes);
                self.copied.store(seq, Ordering::Release);
                return;
            }
        }
        let mut content = self.content.write();
        let frozen = content.frozen.take().expect("only the committing thread takes frozen bytes");
        self.copied.store(seq, Ordering::Release);
        drop(content);
        into.copy_from_slice(&frozen);
    }

    /// Records that `seq`'s copy is durable in the log. Returns whether the block became dirty: it
    /// does if no later transaction changed it.
    pub(crate) fn set_logged(&self, seq: Seq) -> bool {
        let _unchanged = self.content.read();
        self.logged.store(seq, Ordering::Release);
        self.joined.load(Ordering::Relaxed) == seq && self.mark_dirty()
    }

    /// The transaction whose copy in the log is still needed; 0 = none.
    pub(crate) fn logged(&self) -> Seq {
        self.logged.load(Ordering::Acquire)
    }

    /// Ends a write of the content that `logged` had committed.
    pub(crate) fn set_written(&self, logged: Seq) {
        // If a newer commit came meanwhile, the block at home is older than the log's copy.
        let _ = self.logged.compare_exchange(logged, 0, Ordering::AcqRel, Ordering::Relaxed);
        self.flags.fetch_and(!WRITING, Ordering::AcqRel);
    }

    /// Sets the transaction that freed the block. Called before FORGOTTEN is set.
    pub(crate) fn set_forgotten_in(&self, seq: Seq) {
        self.forgotten_in.store(seq, Ordering::Release);
    }

    /// Whether `seq` itself freed the block, so that its changes need no copy.
    pub(crate) fn was_forgotten_in(&self, seq: Seq) -> bool {
        self.forgotten_in.load(Ordering::Acquire) == seq
    }

    /// No copy of the block in the log is needed any more: the transaction that freed it is
    /// durable.
    pub(crate) fn release_logged(&self) {
        self.logged.store(0, Ordering::Release);
    }
}
