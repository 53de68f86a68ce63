//! Direct transfers beside threads that exclude them: one that closes the file, and one that writes
//! buffered.
//!
//! ```text
//!   transfer   inode (shared) ► begin ► no lock: bytes move ► end
//!   queue      the same, but a thread that waits for it may end it
//!   closer     close ► inode ► nothing moves ► open
//!   buffered   inode while no transfer meets its blocks
//! ```

use crate::explore::{Scene, Timers, explore, finds};
use crate::lock::{Mutex, Rank};
use crate::model::{point, thread};
use crate::transfers::Help;
use extant_base::BlockSize;
use inode::Inode;
use std::ops::Range;
use std::sync::atomic::{AtomicU64, Ordering::SeqCst};
use std::sync::{Arc, Weak};

/// What `in_flight.rs` needs of an inode: its transfers, from `transfers.rs`.
pub(crate) mod inode {
    use crate::lock::{Rank, RwLock, WriteGuard};
    use crate::transfers::DirectTransfers;

    pub(crate) struct Body;

    pub(crate) struct Inode {
        pub(crate) body: RwLock<Body>,
        pub(crate) transfers: DirectTransfers,
    }

    impl Inode {
        pub(crate) fn new() -> Inode {
            Inode { body: RwLock::new(Rank::Inode, Body), transfers: DirectTransfers::new() }
        }

        pub(crate) fn write(&self) -> WriteGuard<'_, Body> {
            self.body.write()
        }
    }
}

/// What it needs of a volume.
pub(crate) struct Volume;

impl Volume {
    pub(crate) fn block_size(&self) -> BlockSize {
        BlockSize::ALL[0]
    }

    pub(crate) fn direct_steps(&self) -> DirectSteps<'_> {
        DirectSteps { volume: self }
    }
}

/// The types whose methods are in `in_flight.rs`.
#[derive(Clone, Copy)]
pub(crate) struct DirectIo<'a> {
    pub(crate) volume: &'a Volume,
    pub(crate) inode: &'a Inode,
}

#[derive(Clone, Copy)]
pub(crate) struct DirectSteps<'a> {
    pub(crate) volume: &'a Volume,
}

/// The number of transfers that move bytes of each block now.
#[derive(Default)]
struct Moving([AtomicU64; 4]);

impl Moving {
    fn add(&self, range: &Range<u64>, count: u64) {
        for block in &self.0[range.start as usize / 1024..(range.end as usize).div_ceil(1024)] {
            block.fetch_add(count, SeqCst);
        }
    }

    fn nothing(&self, range: Range<u64>) {
        for block in &self.0[range.start as usize / 1024..(range.end as usize).div_ceil(1024)] {
            assert_eq!(block.load(SeqCst), 0, "bytes move where none may");
        }
    }
}

struct File {
    inode: Inode,
    moving: Moving,
}

impl File {
    fn new() -> File {
        File { inode: Inode::new(), moving: Moving::default() }
    }

    /// Begins a transfer and marks its bytes as moving.
    fn begin(&self, range: &Range<u64>, helper: Option<Weak<dyn Help>>) -> u64 {
        loop {
            let body = self.inode.body.read();
            if let Some(id) = self.inode.transfers.begin(range.clone(), true, helper.clone()) {
                self.moving.add(range, 1);
                return id;
            }
            drop(body);
            self.inode.transfers.wait_open();
        }
    }

    fn end(&self, range: &Range<u64>, id: u64) {
        self.moving.add(range, u64::MAX);
        self.inode.transfers.end(id);
    }

    fn transfer(&self, range: Range<u64>) {
        let id = self.begin(&range, None);
        point();
        self.end(&range, id);
    }

    fn change_map(&self) {
        let closed = self.inode.transfers.close();
        let body = self.inode.write();
        self.moving.nothing(0..4096);
        point();
        self.moving.nothing(0..4096);
        drop(body);
        drop(closed);
    }

    fn write_buffered(&self, range: Range<u64>) {
        let direct = DirectIo { volume: &Volume, inode: &self.inode };
        let body = direct.write_after_transfers(range.clone());
        self.moving.nothing(range.clone());
        point();
        self.moving.nothing(range);
        drop(body);
    }
}

fn threads() {
    let file = File::new();
    thread::scope(|scope| {
        for n in 0..2 {
            let file = &file;
            scope.spawn(move || {
                file.transfer(n * 1024..n * 1024 + 2048);
                file.transfer(0..512);
            });
        }
        for _ in 0..2 {
            scope.spawn(|| file.change_map());
        }
        scope.spawn(|| {
            file.write_buffered(1000..1100);
            file.write_buffered(0..10);
        });
    });
    file.moving.nothing(0..4096);
    assert!(!file.inode.transfers.any_writes());
}

/// A queue whose owner does not poll it: a thread that waits completes what the queue holds.
struct Queue {
    file: Arc<File>,
    holds: Mutex<Vec<(u64, Range<u64>)>>,
}

impl Help for Queue {
    fn help(&self) {
        let holds = std::mem::take(&mut *self.holds.lock());
        if holds.is_empty() {
            // What has begun will arrive.
            thread::yield_now();
        }
        for (id, range) in holds {
            self.file.end(&range, id);
        }
    }
}

fn queue() {
    let file = Arc::new(File::new());
    let holds = Mutex::new(Rank::Leaf, Vec::new());
    let queue = Arc::new(Queue { file: file.clone(), holds });
    thread::scope(|scope| {
        let (file, queue) = (&file, &queue);
        scope.spawn(|| {
            for range in [0..1024, 2048..4096, 512..600] {
                let helper: Weak<dyn Help> = Arc::downgrade(queue) as Weak<dyn Help>;
                let id = file.begin(&range, Some(helper));
                queue.holds.lock().push((id, range));
            }
        });
        scope.spawn(|| file.transfer(1024..2048));
        scope.spawn(|| file.change_map());
        scope.spawn(|| file.write_buffered(500..600));
    });
    queue.help();
    file.moving.nothing(0..4096);
}

const THREADS: Scene = Scene {
    name: "direct_scenes::transfers_next_to_an_operation_that_excludes_them",
    timers: Timers::Never,
    run: threads,
};

#[test]
fn transfers_next_to_an_operation_that_excludes_them() {
    explore(&THREADS, 2000);
}

#[test]
fn queues_that_no_thread_polls() {
    // Between the start of an entry and its place in the queue no thread can complete it: waiting
    // threads look again.
    let queue = Scene {
        name: "direct_scenes::queues_that_no_thread_polls",
        timers: Timers::Never,
        run: queue,
    };
    explore(&queue, 2000);
}

#[test]
fn wrong_forms_of_entries_are_found() {
    finds("a waiter for a direct transfer is not woken at its end", &THREADS, 500, "deadlock");
    finds("a waiter for the file to open is not woken", &THREADS, 500, "deadlock");
    finds("a direct transfer begins in a closed file", &THREADS, 1000, "bytes move");
}
