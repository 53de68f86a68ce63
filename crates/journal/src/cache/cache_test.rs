//! The cache without a log: its reads, evictions, forgotten blocks and write-out.

use crate::cache::meta_cache::CacheOptions;
use crate::{Credits, Journal};
use extant_base::{BlockNr, BlockSize, ByteOffset, Error};
use extant_blockdev::BlockDevice;
use extant_testdev::{Request, TestDevice};
use std::sync::Arc;
use std::sync::atomic::Ordering;

const SIZE: usize = 1024;

fn journal(blocks: usize, options: CacheOptions) -> (Arc<TestDevice>, Journal) {
    let bytes = (0..blocks * SIZE).map(|at| (at / SIZE) as u8).collect();
    let device = Arc::new(TestDevice::new(bytes));
    let block_size = BlockSize::from_bytes(SIZE as u32).unwrap();
    let journal = Journal::off(Arc::clone(&device) as Arc<dyn BlockDevice>, block_size, options);
    (device, journal)
}

fn change(journal: &Journal, nr: u64, value: u8) {
    let handle = journal.start(Credits::blocks(1)).unwrap();
    let block = journal.cache().get(BlockNr(nr)).unwrap();
    block.write(&handle).unwrap().bytes_mut().fill(value);
    handle.stop().unwrap();
}

#[test]
fn a_block_is_read_once() {
    let (device, journal) = journal(64, CacheOptions::default());
    for _ in 0..3 {
        assert_eq!(journal.cache().get(BlockNr(7)).unwrap().read()[..], [7; SIZE]);
    }
    assert_eq!(device.take_requests(), [Request::Read { at: 7 * 1024, len: 1024 }]);
}

#[test]
fn threads_that_ask_together_read_once() {
    let (device, journal) = journal(64, CacheOptions::default());
    std::thread::scope(|scope| {
        for _ in 0..8 {
            scope.spawn(|| {
                for nr in 0..64 {
                    let block = journal.cache().get(BlockNr(nr)).unwrap();
                    assert_eq!(block.read()[..], [nr as u8; SIZE]);
                }
            });
        }
    });
    assert_eq!(device.take_requests().len(), 64);
}

#[test]
fn a_new_block_is_zero_and_not_read() {
    let (device, journal) = journal(64, CacheOptions::default());
    assert_eq!(journal.cache().get_new(BlockNr(7)).unwrap().read()[..], [0; SIZE]);
    change(&journal, 8, 1);
    device.take_requests();
    assert_eq!(journal.cache().get_new(BlockNr(8)).unwrap().read()[..], [0; SIZE]);
    assert_eq!(device.take_requests(), []);
}

#[test]
fn prefetch_reads_neighbours_at_once_and_keeps_changed_ones() {
    let (device, journal) = journal(64, CacheOptions::default());
    change(&journal, 10, 99);
    device.take_requests();
    journal.cache().prefetch(BlockNr(8), 1000).unwrap();
    assert_eq!(device.take_requests(), [Request::Read { at: 8 * 1024, len: 56 * 1024 }]);
    for nr in 8..64 {
        let want = if nr == 10 { 99 } else { nr as u8 };
        assert_eq!(journal.cache().get(BlockNr(nr)).unwrap().read()[0], want);
    }
    assert_eq!(device.take_requests(), []);
}

#[test]
fn a_block_beyond_the_device_is_an_error() {
    let (_, journal) = journal(64, CacheOptions::default());
    for nr in [64, 1 << 54, u64::MAX] {
        assert!(matches!(journal.cache().get(BlockNr(nr)), Err(Error::Device { .. })));
        assert!(matches!(journal.cache().get_new(BlockNr(nr)), Err(Error::Device { .. })));
        journal.cache().prefetch(BlockNr(nr), u32::MAX).unwrap();
    }
    assert_eq!(journal.cache().stats().cached_bytes, 0);
}

#[test]
fn a_failed_read_leaves_no_block_in_the_table() {
    let (device, journal) = journal(64, CacheOptions::default());
    device.fail_reads.store(true, Ordering::Relaxed);
    assert!(journal.cache().get(BlockNr(3)).is_err());
    assert!(journal.cache().prefetch(BlockNr(0), 8).is_err());
    device.fail_reads.store(false, Ordering::Relaxed);
    assert_eq!(journal.cache().get(BlockNr(3)).unwrap().read()[0], 3);
    assert_eq!(journal.cache().stats().cached_bytes, SIZE);
}

#[test]
fn the_cache_stays_under_its_limit() {
    let options = CacheOptions { limit_bytes: 32 * SIZE, dirty_limit_bytes: 8 * SIZE };
    let (device, journal) = journal(4096, options);
    let held = journal.cache().get(BlockNr(0)).unwrap();
    for nr in 0..4096 {
        journal.cache().get(BlockNr(nr)).unwrap();
        assert!(journal.cache().stats().cached_bytes <= 33 * SIZE);
    }
    device.take_requests();
    journal.cache().get(BlockNr(0)).unwrap();
    assert_eq!(device.take_requests(), [], "a held block stays");
    drop(held);
}

#[test]
fn a_block_requested_often_outlives_a_scan() {
    let options = CacheOptions { limit_bytes: 32 * SIZE, dirty_limit_bytes: 8 * SIZE };
    let (device, journal) = journal(4096, options);
    for nr in 1..4096 {
        journal.cache().get(BlockNr(0)).unwrap();
        journal.cache().get(BlockNr(nr)).unwrap();
    }
    let reads =
        device.take_requests().iter().filter(|a| matches!(a, Request::Read { at: 0, .. })).count();
    assert!(reads < 8, "read {reads} times");
}

#[test]
fn changed_blocks_survive_a_small_cache() {
    let options = CacheOptions { limit_bytes: 32 * SIZE, dirty_limit_bytes: 8 * SIZE };
    let (device, journal) = journal(512, options);
    for nr in 0..512 {
        change(&journal, nr, !(nr as u8));
        assert!(journal.cache().stats().dirty_bytes <= 9 * SIZE);
    }
    journal.sync().unwrap();
    assert_eq!(journal.cache().stats().dirty_bytes, 0);
    let want: Vec<u8> = (0..512 * SIZE).map(|at| !((at / SIZE) as u8)).collect();
    assert!(device.content() == want);
}

#[test]
fn a_forgotten_block_is_never_written() {
    let (device, journal) = journal(64, CacheOptions::default());
    change(&journal, 5, 77);
    let handle = journal.start(Credits { blocks: 0, revokes: 1 }).unwrap();
    let old = journal.cache().get(BlockNr(5)).unwrap();
    handle.forget(BlockNr(5));
    old.write(&handle).unwrap().bytes_mut().fill(78);
    handle.stop().unwrap();
    journal.sync().unwrap();
    assert_eq!(journal.cache().stats().dirty_bytes, 0);
    assert_eq!(device.content()[5 * SIZE], 5);
    assert_eq!(journal.cache().get(BlockNr(5)).unwrap().read()[0], 5);
}

#[test]
fn a_check_of_one_role_does_not_count_for_another() {
    let (_, journal) = journal(64, CacheOptions::default());
    let block = journal.cache().get(BlockNr(5)).unwrap();
    assert!(!block.is_verified());
    block.set_verified_as(0x1_0000_000c);
    assert!(block.is_verified_as(0x1_0000_000c) && !block.is_verified_as(0x2_0000_000c));
    let again = journal.cache().get_new(BlockNr(5)).unwrap();
    assert!(!again.is_verified_as(0x1_0000_000c));
}

#[test]
fn blocks_freed_and_used_for_data_keep_the_data() {
    let options = CacheOptions { limit_bytes: 64 * SIZE, dirty_limit_bytes: 8 * SIZE };
    let (device, journal) = journal(256, options);
    std::thread::scope(|scope| {
        for thread in 0..4u64 {
            let (journal, device) = (&journal, &device);
            scope.spawn(move || {
                // Each thread owns every fourth block; a write-out mixes the blocks of all.
                for round in 0..60u64 {
                    for nr in (thread..256).step_by(4) {
                        change(journal, nr, 0xAA);
                        if (nr / 4 + round) % 3 == 0 {
                            journal.cache().forget(BlockNr(nr));
                            let data = [round as u8; SIZE];
                            device.write_at(ByteOffset(nr * SIZE as u64), &data).unwrap();
                        }
                    }
                }
            });
        }
    });
    journal.sync().unwrap();
    let content = device.content();
    for (nr, block) in content.chunks(SIZE).enumerate() {
        let value = if (nr / 4 + 59) % 3 == 0 { 59 } else { 0xAA };
        assert!(block.iter().all(|byte| *byte == value), "block {nr}");
    }
}

#[test]
#[should_panic(expected = "inside another")]
fn a_handle_inside_a_handle_panics() {
    let (_, journal) = journal(64, CacheOptions::default());
    let _outer = journal.start(Credits::blocks(1)).unwrap();
    let _inner = journal.start(Credits::blocks(1));
}

#[test]
fn many_threads_lose_no_change() {
    let options = CacheOptions { limit_bytes: 64 * SIZE, dirty_limit_bytes: 16 * SIZE };
    let (device, journal) = journal(256, options);
    let counter = |bytes: &[u8]| u32::from_le_bytes(bytes[..4].try_into().unwrap());
    {
        let handle = journal.start(Credits::blocks(256)).unwrap();
        for nr in 0..256 {
            let block = journal.cache().get_new(BlockNr(nr)).unwrap();
            block.write(&handle).unwrap().bytes_mut().fill(0);
        }
    }
    std::thread::scope(|scope| {
        for thread in 0..4u64 {
            let journal = &journal;
            scope.spawn(move || {
                let mut random = 0x9E37_79B9 + thread;
                for round in 0..4000 {
                    random ^= random << 13;
                    random ^= random >> 7;
                    random ^= random << 17;
                    let handle = journal.start(Credits::blocks(1)).unwrap();
                    let block = journal.cache().get(BlockNr(random % 256)).unwrap();
                    let change = block.write(&handle).unwrap();
                    let mut bytes = change.bytes_mut();
                    let next = counter(&bytes) + 1;
                    bytes[..4].copy_from_slice(&next.to_le_bytes());
                    bytes[SIZE - 4..].copy_from_slice(&next.to_le_bytes());
                    drop(bytes);
                    drop(handle);
                    if round % 500 == 0 {
                        journal.sync().unwrap();
                    }
                }
            });
        }
    });
    journal.sync().unwrap();
    let content = device.content();
    let sum: u32 = content.chunks(SIZE).map(counter).sum();
    assert_eq!(sum, 16000);
    assert!(content.chunks(SIZE).all(|block| block[..4] == block[SIZE - 4..]));
}
