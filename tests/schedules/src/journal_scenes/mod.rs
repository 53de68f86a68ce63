//! The journal: threads that change metadata, commit, make log space and abort, and power cuts at
//! any moment.
//!
//! ```text
//!   thread   lock a pair ► handle [ both blocks := n ] ► unlock ► commit ► n is acknowledged
//!   cut      what is durable, part of the rest ► replay ► both blocks of each pair show the same,
//!                                                             not less than was acknowledged
//! ```

mod checkpoints;
mod commits;
mod disk;
mod fast;
mod freed;

use crate::explore::{Scene, Timers};
use crate::journal::test_journal::{home, journal_on, recover, stamp};
use crate::journal::test_log::{OLD, SIZE, TestLog};
use crate::journal::{Credits, Journal, JournalOptions};
use crate::lock::{Mutex, Rank};
use crate::model::{below, point};
use disk::Disk;
use extant_base::{BlockNr, Error, Result, Tid};
use extant_blockdev::MemoryDevice;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};

/// Blocks that change together, their numbers, and what is known of them.
struct Pair {
    blocks: [u64; 2],
    /// The equivalent of an inode's lock: one handle at a time changes them.
    turn: Mutex<u64>,
    /// `std`'s own atomic: reading it is no point where other threads run.
    written: AtomicU64,
    acknowledged: AtomicU64,
}

/// A volume, its journal, and what threads did.
struct Ground {
    log: TestLog,
    disk: Arc<Disk>,
    journal: Journal,
    pairs: Vec<Pair>,
    /// Points where other threads may run between two changes of a handle.
    dwell: u32,
    /// How a volume is recovered.
    recover: fn(&TestLog, &Arc<MemoryDevice>),
}

impl Ground {
    fn new(log: TestLog, options: JournalOptions, pairs: u64) -> Ground {
        let disk = Arc::new(Disk::new(log.image.clone()));
        let journal = journal_on(&log, &disk, options);
        let pair = |n| Pair {
            blocks: [n + 1, n + 60],
            turn: Mutex::new(Rank::Inode, 0),
            written: AtomicU64::new(0),
            acknowledged: AtomicU64::new(0),
        };
        // What is read later may fail.
        let pairs: Vec<Pair> = (0..pairs).map(pair).collect();
        for nr in pairs.iter().flat_map(|pair| pair.blocks) {
            journal.cache().get(BlockNr(nr)).unwrap();
        }
        let recover = |log: &TestLog, device: &Arc<MemoryDevice>| drop(recover(log, device));
        Ground { log, disk, journal, pairs, dwell: 1, recover }
    }

    /// Gives a pair its next value, and changes `more` blocks that no pair has. Returns value and
    /// transaction.
    fn change(&self, pair: usize, more: &[u64]) -> Result<(u64, Tid)> {
        let pair = &self.pairs[pair];
        let mut turn = pair.turn.lock();
        let value = *turn + 1;
        let handle = self.journal.start(Credits::blocks(2 + more.len() as u32))?;
        pair.written.store(value, SeqCst);
        for nr in pair.blocks.iter().chain(more) {
            let block = self.journal.cache().get(BlockNr(*nr))?;
            (0..self.dwell).for_each(|_| point());
            block.write(&handle)?.bytes_mut().copy_from_slice(&stamp(value));
        }
        let tid = handle.tid();
        handle.stop()?;
        *turn = value;
        Ok((value, tid))
    }

    fn acknowledge(&self, pair: usize, value: u64) {
        self.pairs[pair].acknowledged.fetch_max(value, SeqCst);
        if below(3) == 0 {
            self.cut();
        }
    }

    /// Cuts the power now.
    fn cut(&self) {
        let before: Vec<_> = self.pairs.iter().map(|pair| pair.acknowledged.load(SeqCst)).collect();
        let left = self.disk.cut();
        let device = Arc::new(MemoryDevice::from_bytes(&left));
        (self.recover)(&self.log, &device);
        for (pair, acknowledged) in self.pairs.iter().zip(before) {
            let [first, second] = pair.blocks.map(|nr| home(&*device, nr));
            assert!(first == second, "half of a handle is there: {:?}", pair.blocks);
            let value = value_of(&first);
            assert!(value >= acknowledged, "{:?} lost {acknowledged}, has {value}", pair.blocks);
            assert!(value <= pair.written.load(SeqCst), "no handle wrote {value}");
        }
    }

    /// All threads have ended: everything goes home, and the log is empty.
    fn close(&self) {
        self.journal.close().unwrap();
        for pair in &self.pairs {
            for nr in pair.blocks {
                let value = value_of(&home(&*self.disk, nr));
                assert_eq!(value, pair.written.load(SeqCst), "block {nr} did not go home");
            }
        }
        assert!(!self.log.open(&self.disk).unwrap().needs_recovery());
        assert_eq!(self.journal.cache().stats().dirty_bytes, 0, "something counts as dirty");
        let late = self.journal.start(Credits::blocks(1)).map(drop);
        assert!(matches!(late, Err(Error::ReadOnly)), "{late:?}");
    }
}

/// The value that [`stamp`] stored; 0 before.
fn value_of(block: &[u8; SIZE]) -> u64 {
    if *block == [OLD; SIZE] {
        return 0;
    }
    let value = u64::from_le_bytes(block[8..16].try_into().unwrap());
    assert!(*block == stamp(value), "a block holds no value");
    value
}

fn scene(name: &'static str, timers: Timers, run: fn()) -> Scene {
    Scene { name, timers, run }
}
