//! Log space: how much is used, and how much a transaction may use.
//!
//! ```text
//!          tail                                        head
//!   ┌───────┬────────┬───────┬──────────┬───────────────┬───────────────────┐
//!   │ free  │ 5      │ 6     │ 7        │ reserved for  │ free              │  cyclic
//!   │       │        │       │          │ the committing│                   │
//!   └───────┴────────┴───────┴──────────┴───────────────┴───────────────────┘
//!   before a handle starts:  running, its credits counted + reserved + margin ≤ free
//! ```
//!
//! Rule: the log space of a transaction is free again only after the superblock says so durably.

use crate::cache::block::Seq;
use crate::log::stream::LogArea;
use std::collections::VecDeque;

/// Limits of a transaction, in log blocks.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Limits {
    /// No transaction grows beyond this.
    pub(crate) hard: u64,
    /// A larger transaction is committed by the background thread.
    pub(crate) soft: u64,
    /// Kept free in addition to the reserved credits, for handles that change more than they
    /// reserved.
    pub(crate) margin: u64,
}

impl Limits {
    /// For a log of which `len` blocks can be filled and a cache that keeps `cached` blocks. Two
    /// transactions at the hard limit fit and leave a third of the log to older ones.
    pub(crate) fn of_log(len: u64, cached: u64) -> Limits {
        let margin = (len / 32).max(1);
        let most = (cached / 2).max(1024);
        let hard = (len.saturating_sub(margin) / 3).min(most);
        Limits { hard, soft: (len / 4).min(hard * 3 / 4), margin }
    }

    /// For a log that takes a single transaction.
    pub(crate) fn of_one_transaction(len: u64) -> Limits {
        Limits { hard: len, soft: u64::MAX, margin: 0 }
    }
}

/// A committed transaction's place in the log.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Placed {
    pub(crate) seq: Seq,
    pub(crate) start: u32,
    pub(crate) len: u32,
}

/// Where a log begins: its oldest needed transaction, and the first block of that.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Tail {
    pub(crate) seq: Seq,
    pub(crate) start: u32,
}

/// What the log holds, and how many blocks are free.
pub(crate) struct LogSpace {
    /// The next block to write.
    pub(crate) head: u32,
    /// Blocks that may be written. One block of the cycle is never filled.
    free: u64,
    /// Of those, the most that the committing transaction will use.
    reserved: u64,
    placed: VecDeque<Placed>,
    newest: Seq,
}

impl LogSpace {
    /// An empty log whose first transaction goes to `head`.
    pub(crate) fn new(area: &LogArea, head: u32) -> LogSpace {
        let free = u64::from(area.cycle.len()) - 1;
        LogSpace { head, free, reserved: 0, placed: VecDeque::new(), newest: 0 }
    }

    /// Free blocks that are not reserved.
    pub(crate) fn unreserved(&self) -> u64 {
        self.free.saturating_sub(self.reserved)
    }

    /// Free blocks, reserved ones included.
    pub(crate) fn free(&self) -> u64 {
        self.free
    }

    /// Reserves the most that the closed transaction will use.
    pub(crate) fn reserve(&mut self, blocks: u64) {
        self.reserved = blocks;
    }

    /// Adds the committed transaction that was written at the head; `head` is the new head.
    pub(crate) fn place(&mut self, placed: Placed, head: u32) {
        self.reserved = 0;
        self.free -= u64::from(placed.len);
        self.head = head;
        self.newest = placed.seq;
        self.placed.push_back(placed);
    }

    /// Where the log begins if no transaction before `oldest_needed` is needed any more.
    pub(crate) fn tail(&self, oldest_needed: Seq) -> Tail {
        match self.placed.iter().find(|placed| placed.seq >= oldest_needed) {
            Some(placed) => Tail { seq: placed.seq, start: placed.start },
            None => Tail { seq: self.newest + 1, start: self.head },
        }
    }

    /// Frees the space before `tail`. The superblock on the device says so already.
    pub(crate) fn release(&mut self, tail: Tail) {
        while let Some(oldest) = self.placed.front().filter(|placed| placed.seq < tail.seq) {
            self.free += u64::from(oldest.len);
            self.placed.pop_front();
        }
    }

    /// The newest of the transactions that must go home so that `wanted` blocks become free; the
    /// oldest go first.
    pub(crate) fn home_for(&self, wanted: u64) -> Seq {
        let mut free = self.unreserved();
        let mut upto = 0;
        for placed in &self.placed {
            if free >= wanted {
                break;
            }
            free += u64::from(placed.len);
            upto = placed.seq;
        }
        upto
    }
}
