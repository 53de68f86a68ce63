//! One cached block: its bytes, and how far each of its changes has come.
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
//! Without a log DIRTY is set with the byte lock held exclusively and cleared with it held shared, so
//! a change falls either into the copy that is being written or makes the block dirty again. With a
//! log DIRTY means more: the bytes are those of the newest durable commit, so they may go home.
//! Rule J4: joining a transaction takes DIRTY away; its commit gives it back.

use extant_base::BlockNr;
use extant_base::lock::{Rank, RwLock};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};

/// The content is there.
pub(crate) const LOADED: u32 = 1;
/// Reading the content failed; the block is out of the table.
pub(crate) const FAILED: u32 = 2;
/// The content differs from the device's and may be written home.
pub(crate) const DIRTY: u32 = 4;
/// A copy of the content is being written home.
pub(crate) const WRITING: u32 = 8;
/// The block was freed; it is out of the table and is never written home.
pub(crate) const FORGOTTEN: u32 = 16;
/// Somebody asked for the block since the clock hand last passed.
pub(crate) const REFERENCED: u32 = 32;

/// Counts the transactions of one [`Journal`](crate::Journal) from 1 on. Unlike a
/// [`Tid`](extant_base::Tid) it does not wrap.
pub(crate) type Seq = u64;

/// What the byte lock guards.
pub(crate) struct Content {
    pub(crate) bytes: Box<[u8]>,
    /// The bytes as the committing transaction left them, when they changed before its copy was
    /// taken.
    frozen: Option<Box<[u8]>>,
}

/// The block itself, shared by the table and everyone who holds it.
pub(crate) struct Block {
    pub(crate) nr: BlockNr,
    pub(crate) flags: AtomicU32,
    /// What the content was checked as; 0 = not checked.
    verified_as: AtomicU64,
    /// The last transaction that changed the content. Set under the exclusive byte lock.
    joined: AtomicU64,
    /// The last transaction whose copy went into the log. Set under the byte lock.
    copied: AtomicU64,
    /// The transaction whose durable copy in the log is newer than what is at home.
    logged: AtomicU64,
    /// The transaction that freed the block.
    forgotten_in: AtomicU64,
    pub(crate) content: RwLock<Content>,
}

/// What came of [`Block::join`].
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Join {
    /// The block belongs to the transaction now and did not before.
    New {
        /// It was waiting to go home.
        was_dirty: bool,
    },
    /// It belonged to the transaction already.
    Again,
    /// The block was freed: its changes go nowhere.
    Gone,
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

    /// Lets the clock hand pass this block once more.
    #[inline]
    pub(crate) fn touch(&self) {
        if self.flags.load(Ordering::Relaxed) & REFERENCED == 0 {
            self.flags.fetch_or(REFERENCED, Ordering::Relaxed);
        }
    }

    /// Clears or sets what the content was checked as.
    pub(crate) fn set_verified_as(&self, kind: u64) {
        self.verified_as.store(kind, Ordering::Release);
    }

    /// What the content was checked as; 0 = not checked.
    pub(crate) fn verified_as(&self) -> u64 {
        self.verified_as.load(Ordering::Acquire)
    }

    /// Puts the content in that was read, or zeros.
    pub(crate) fn fill(&self, bytes: Box<[u8]>) {
        self.content.write().bytes = bytes;
    }

    /// Whether the content is the device's: read, and not changed since.
    pub(crate) fn is_as_read(&self) -> bool {
        let unchanged = |number: &AtomicU64| number.load(Ordering::Acquire) == 0;
        unchanged(&self.joined) && unchanged(&self.logged) && !self.has(DIRTY | WRITING | FORGOTTEN)
    }

    /// Puts another copy in place of content that is as it was read; whether it still was.
    #[track_caller]
    pub(crate) fn exchange(&self, bytes: Box<[u8]>) -> bool {
        let mut content = self.content.write();
        let as_read = self.is_as_read();
        if as_read {
            content.bytes = bytes;
        }
        as_read
    }

    /// Marks the block dirty; true when it was not. The caller holds the byte lock.
    pub(crate) fn mark_dirty(&self) -> bool {
        if self.flags.load(Ordering::Relaxed) & (DIRTY | FORGOTTEN) != 0 {
            return false;
        }
        self.update(|flags| (flags & (DIRTY | FORGOTTEN) == 0).then_some(flags | DIRTY)).is_ok()
    }

    /// Clears DIRTY and sets WRITING; false when there is nothing to write. The caller holds the
    /// byte lock and copies the bytes.
    pub(crate) fn take_for_writing(&self) -> bool {
        self.update(|flags| {
            (flags & (DIRTY | FORGOTTEN) == DIRTY).then_some((flags & !DIRTY) | WRITING)
        })
        .is_ok()
    }

    /// Ends a write that failed; true when the block became dirty again.
    pub(crate) fn give_back_unwritten(&self) -> bool {
        let again = |flags: u32| if flags & FORGOTTEN == 0 { DIRTY } else { 0 };
        let before = self.update(|flags| Some((flags & !WRITING) | again(flags)));
        before.is_ok_and(|before| before & (DIRTY | FORGOTTEN) == 0)
    }

    /// Marks the block as freed, never to be written; the flags it had.
    pub(crate) fn set_forgotten(&self) -> u32 {
        self.update(|flags| Some((flags | FORGOTTEN) & !DIRTY)).unwrap_or_else(|flags| flags)
    }

    fn update(&self, change: impl FnMut(u32) -> Option<u32>) -> Result<u32, u32> {
        self.flags.fetch_update(Ordering::AcqRel, Ordering::Relaxed, change)
    }

    /// Makes the block part of transaction `seq`, which is running; the bytes change after it.
    ///
    /// Rule J3: a copy that the committing transaction still has to take is kept aside first: what is
    /// logged is the content at commit time.
    #[inline]
    pub(crate) fn join(&self, content: &mut Content, seq: Seq) -> Join {
        if self.joined.load(Ordering::Relaxed) == seq {
            return if self.has(FORGOTTEN) { Join::Gone } else { Join::Again };
        }
        self.freeze(content);
        if self.has(FORGOTTEN) {
            return Join::Gone;
        }
        self.joined.store(seq, Ordering::Release);
        let before = self.update(|flags| Some(flags & !DIRTY)).unwrap_or_default();
        Join::New { was_dirty: before & DIRTY != 0 }
    }

    /// Keeps the bytes aside for a transaction that is closed and has not copied them.
    ///
    /// Right also for a block of the running transaction itself: the copy is then left unused, so
    /// only those who know that the block is not part of it call this.
    fn freeze(&self, content: &mut Content) {
        let joined = self.joined.load(Ordering::Relaxed);
        if joined > self.copied.load(Ordering::Relaxed) && content.frozen.is_none() {
            content.frozen = Some(content.bytes.clone());
        }
    }

    /// Makes the bytes zero, for a block that is allocated anew. `running` is the transaction that
    /// takes changes now, 0 without a log.
    pub(crate) fn clear(&self, running: Seq) {
        let mut content = self.content.write();
        if self.joined.load(Ordering::Relaxed) != running {
            self.freeze(&mut content);
        }
        content.bytes.fill(0);
    }

    /// Copies what transaction `seq`, closed by now, made of the block.
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

    /// Notes that `seq`'s copy is durable in the log; true when the block became dirty: nobody
    /// has changed it since.
    pub(crate) fn set_logged(&self, seq: Seq) -> bool {
        let _unchanged = self.content.read();
        self.logged.store(seq, Ordering::Release);
        self.joined.load(Ordering::Relaxed) == seq && self.mark_dirty()
    }

    /// The transaction whose copy in the log is still needed; 0 = none.
    pub(crate) fn logged(&self) -> Seq {
        self.logged.load(Ordering::Acquire)
    }

    /// Ends a write of what `logged` had committed.
    pub(crate) fn set_written(&self, logged: Seq) {
        // A newer commit may have come meanwhile: then home is still behind.
        let _ = self.logged.compare_exchange(logged, 0, Ordering::AcqRel, Ordering::Relaxed);
        self.flags.fetch_and(!WRITING, Ordering::AcqRel);
    }

    /// Notes which transaction freed the block, before FORGOTTEN is set.
    pub(crate) fn set_forgotten_in(&self, seq: Seq) {
        self.forgotten_in.store(seq, Ordering::Release);
    }

    /// Whether `seq` itself freed the block: its changes need no copy.
    pub(crate) fn was_forgotten_in(&self, seq: Seq) -> bool {
        self.forgotten_in.load(Ordering::Acquire) == seq
    }

    /// Nothing of the block is needed any more: the transaction that freed it is durable.
    pub(crate) fn release_logged(&self) {
        self.logged.store(0, Ordering::Release);
    }
}
