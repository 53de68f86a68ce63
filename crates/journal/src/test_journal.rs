//! Journals for tests: a volume of [`HOME`] blocks and a log of 64 blocks after it, and their
//! recovery.

use crate::test_log::{HOME, SIZE, TestLog};
use crate::{CacheOptions, CommitPoint, Credits, Handle, Journal, JournalOptions, Recovery};
use extant_base::{BlockNr, BlockSize, ByteOffset, Tid};
use extant_blockdev::BlockDevice;
use extant_ondisk::jbd2::BlockSum;
use std::sync::Arc;

/// The last transaction of the log's earlier session.
pub(crate) const LAST: Tid = Tid(u32::MAX - 3);

/// A volume with an empty log whose next transaction begins at block `head`.
pub(crate) fn empty_log(kind: (BlockSum, bool), head: u32) -> TestLog {
    let mut log = TestLog::new(kind, LAST.0, 1, 0);
    log.superblock.start = None;
    log.superblock.head = head;
    log.put_superblock();
    log
}

/// Options: no background thread, checksums v3.
pub(crate) fn options() -> JournalOptions {
    JournalOptions {
        commit_interval: None,
        one_transaction: false,
        checksums: true,
        wide: true,
        fast_commits: false,
        byte_log: None,
        clock: Arc::new(|| (9000, 1)),
    }
}

/// A journal of the volume on `device`, as `log` describes it.
pub(crate) fn journal_on<D: BlockDevice + 'static>(
    log: &TestLog,
    device: &Arc<D>,
    options: JournalOptions,
) -> Journal {
    journal_with_cache(log, device, options, CacheOptions::default())
}

/// [`journal_on`] with options for the cache.
pub(crate) fn journal_with_cache<D: BlockDevice + 'static>(
    log: &TestLog,
    device: &Arc<D>,
    options: JournalOptions,
    cache: CacheOptions,
) -> Journal {
    let home = Arc::clone(device) as Arc<dyn BlockDevice>;
    let opened = crate::Log::open(Arc::clone(&home), log.map()).unwrap();
    Journal::with_log(home, BlockSize::ALL[0], cache, opened, options).unwrap()
}

/// A block filled with `value`, which starts with the jbd2 magic when that is a multiple of 3.
pub(crate) fn stamp(value: u64) -> [u8; SIZE] {
    let mut block = [value as u8; SIZE];
    for at in [8, SIZE - 8] {
        block[at..at + 8].copy_from_slice(&value.to_le_bytes());
    }
    if value.is_multiple_of(3) {
        block[..4].copy_from_slice(&[0xC0, 0x3B, 0x39, 0x98]);
    }
    block
}

/// Stamps one block under `handle`.
pub(crate) fn put(handle: &Handle<'_>, nr: u64, value: u64) {
    let block = handle.journal().cache().get(BlockNr(nr)).unwrap();
    block.write(handle).unwrap().bytes_mut().copy_from_slice(&stamp(value));
}

/// Stamps blocks in one handle. Returns its transaction.
pub(crate) fn change(journal: &Journal, numbers: &[u64], value: u64) -> Tid {
    let handle = journal.start(Credits::blocks(numbers.len() as u32)).unwrap();
    for nr in numbers {
        put(&handle, *nr, value);
    }
    let tid = handle.tid();
    handle.stop().unwrap();
    tid
}

/// The last commit point of transaction `tid`.
pub(crate) fn end_of(tid: Tid) -> CommitPoint {
    CommitPoint { tid, nr: u64::MAX }
}

/// Recovers the volume on `device` and leaves its log empty.
pub(crate) fn recover<D: BlockDevice + 'static>(log: &TestLog, device: &Arc<D>) -> Recovery {
    let mut opened = log.open(device).unwrap();
    let recovery = opened.recover(&**device, log.limits()).unwrap();
    opened.finish(&**device, &recovery).unwrap();
    recovery
}

/// Block `nr` as it is on `device`.
pub(crate) fn home<D: BlockDevice + ?Sized>(device: &D, nr: u64) -> [u8; SIZE] {
    let mut block = [0; SIZE];
    assert!(nr < HOME);
    device.read_at(ByteOffset(nr * SIZE as u64), &mut block).unwrap();
    block
}
