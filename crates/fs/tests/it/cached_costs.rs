//! The costs of calls on files through the page cache, counted at the device: no more than without
//! the cache, and nothing at all until the bytes must be there.

use crate::common::{costs, counted, judge, leave_front_of_log, new_file};
use extant::NewFile;
use extant::cache::CacheUse;
use std::io::IoSlice;
use std::time::{Duration, Instant};

/// Calls `attempt` until a call ends before its dirty data is old enough to be written back, and
/// returns that call's result. A machine with other work may need several calls.
fn before_data_expires<R>(mut attempt: impl FnMut() -> R) -> R {
    for _ in 0..20 {
        let began = Instant::now();
        let result = attempt();
        if began.elapsed() < Duration::from_secs(2) {
            return result;
        }
    }
    panic!("no call of 20 ends within 2 seconds");
}

#[test]
fn an_append_and_a_sync_cost_what_they_cost_without_the_cache() {
    let (device, fs) = counted(64, "-b 4096", 16);
    let file = new_file(&fs, "f");
    leave_front_of_log(&file);
    for _ in 0..3 {
        let data = costs(&device, || assert_eq!(file.append(&[2; 4096]).unwrap(), 4096));
        assert_eq!((data.writes, data.flushes), (0, 0));
        let sync = costs(&device, || file.sync_all().unwrap());
        // Data; descriptor, inode table, block bitmap, descriptors; commit block.
        assert_eq!((sync.writes, sync.fua_writes, sync.flushes), (3, 1, 1), "{sync:?}");
        assert_eq!(sync.written_bytes, 6 * 4096, "{sync:?}");
        let again = costs(&device, || file.sync_all().unwrap());
        assert_eq!((again.writes, again.flushes), (0, 0), "nothing was written since the flush");
    }
    drop(file);
    fs.close().unwrap();
    judge(&*device);
}

/// As a mount does before each fsync.
#[test]
fn closed_files_and_a_sync_of_another_one_share_a_commit() {
    for options in ["-b 4096", "-b 4096 -O fast_commit"] {
        let (device, fs) = counted(64, options, 16);
        let (closed, file) = (new_file(&fs, "closed"), new_file(&fs, "f"));
        leave_front_of_log(&file);
        drop(closed);
        for _ in 0..3 {
            let sync = before_data_expires(|| {
                fs.open_file("closed").unwrap().append(&[1; 4096]).unwrap();
                file.append(&[2; 4096]).unwrap();
                costs(&device, || {
                    fs.write_back_closed_files();
                    file.sync_all().unwrap();
                })
            });
            assert_eq!((sync.fua_writes, sync.flushes), (1, 1), "{options}: {sync:?}");
            let again = costs(&device, || {
                fs.write_back_closed_files();
                fs.open_file("closed").unwrap().sync_all().unwrap();
                file.sync_all().unwrap();
            });
            assert_eq!((again.writes, again.flushes), (0, 0), "{options}: {again:?}");
        }
        drop(file);
        fs.close().unwrap();
        judge(&*device);
    }
}

#[test]
fn an_overwrite_and_a_sync_cost_one_write_of_its_blocks_and_a_flush() {
    let (device, fs) = counted(32, "-b 4096", 16);
    let file = new_file(&fs, "f");
    file.append(&[1; 100_000]).unwrap();
    file.sync_all().unwrap();
    let all = costs(&device, || {
        file.write_all_at(&[3; 700], 5000).unwrap();
        file.write_all_at(&[4; 70], 9000).unwrap();
    });
    assert_eq!((all.writes, all.flushes), (0, 0));
    let all = costs(&device, || file.sync_data().unwrap());
    assert_eq!((all.writes, all.written_bytes, all.flushes), (1, 8192, 1), "{all:?}");
    drop(file);
    fs.close().unwrap();
    judge(&*device);
}

#[test]
fn a_sync_of_a_directory_writes_no_data_of_files() {
    let (device, fs) = counted(32, "-b 4096", 16);
    let file = new_file(&fs, "f");
    file.sync_all().unwrap();
    let node = fs.symlink("f", "link", &NewFile::default()).unwrap();
    let (root, link, dirty) = before_data_expires(|| {
        file.write_all_at(&vec![1; 1 << 20], 0).unwrap();
        fs.hard_link("f", "other").unwrap();
        let root = costs(&device, || fs.node("/").unwrap().sync_all().unwrap());
        let link = costs(&device, || node.sync_all().unwrap());
        let dirty = fs.cache_stats().unwrap().dirty;
        fs.remove_file("other").unwrap();
        (root, link, dirty)
    });
    assert!(root.flushes > 0 && root.written_bytes < 1 << 20, "{root:?}");
    assert!(link.written_bytes < 1 << 20, "{link:?}");
    assert!(dirty >= 1 << 20, "{dirty}");
    drop((file, node));
    fs.close().unwrap();
    judge(&*device);
}

#[test]
fn overwriting_cached_bytes_costs_the_device_nothing_until_a_sync() {
    let (device, fs) = counted(32, "-b 4096", 16);
    let file = new_file(&fs, "f");
    file.write_all_at(&vec![1; 1 << 20], 0).unwrap();
    file.sync_all().unwrap();
    let misses = fs.cache_stats().unwrap().misses;
    let all = before_data_expires(|| {
        file.sync_data().unwrap();
        costs(&device, || {
            for n in 0..3000u64 {
                file.write_all_at(&[2; 1000], n * 331 % 1_000_000).unwrap();
                file.read_at(&mut [0; 500], n * 37).unwrap();
            }
        })
    });
    assert_eq!((all.writes, all.flushes), (0, 0));
    assert_eq!(fs.cache_stats().unwrap().misses, misses, "they are all there");
    // One run of dirty blocks; the times are not needed to read it.
    let sync = costs(&device, || file.sync_data().unwrap());
    assert!(sync.writes <= 4 && sync.flushes == 1, "{sync:?}");
    drop(file);
    fs.close().unwrap();
    judge(&*device);
}

#[test]
fn a_long_sequential_write_is_few_large_device_writes_and_few_pieces() {
    // A group of 1 KiB blocks has 8 MiB, of which the tables occupy the start.
    for (options, most) in [("-b 4096", 3), ("-b 1024", 12), ("-b 4096 -O bigalloc", 3)] {
        for how in [CacheUse::Keep, CacheUse::DropBehind] {
            let (device, fs) = counted(160, options, 256);
            let file = new_file(&fs, "f");
            let chunk: Vec<u8> = (0..65_536u32).map(|n| (n / 7) as u8).collect();
            let all = costs(&device, || {
                for n in 0..1024 {
                    file.write_vectored_at_with(&[IoSlice::new(&chunk)], n << 16, how).unwrap();
                }
                file.sync_all().unwrap();
            });
            // 2 MiB each, plus those of the log. Drop-behind writes when its thread gets to it, so
            // some writes are smaller.
            let writes = if how == CacheUse::Keep { 60 } else { 120 };
            assert!(all.writes <= writes, "{options}, {how:?}: {all:?}");
            assert!(all.written_bytes < (64 << 20) + (1 << 20), "{options}, {how:?}: {all:?}");
            let pieces = file.extents().unwrap();
            assert!(pieces.len() <= most, "{options}, {how:?}: {} pieces", pieces.len());
            let stats = fs.cache_stats().unwrap();
            assert_eq!(stats.dirty + stats.writing, 0);
            if how == CacheUse::DropBehind {
                assert!(stats.cached <= 2 << 20, "{options}: {stats:?}");
            }
            drop(file);
            fs.close().unwrap();
            judge(&*device);
        }
    }
}

#[test]
fn small_appends_to_many_files_are_laid_out_one_after_the_other() {
    let (_device, fs) = counted(96, "-b 4096", 64);
    let files: Vec<_> = (0..4)
        .map(|n| fs.root().unwrap().create_file(format!("f{n}"), &NewFile::default()).unwrap())
        .map(|node| node.open().unwrap())
        .collect();
    for _ in 0..1000 {
        for file in &files {
            file.append(&[5; 1000]).unwrap();
        }
    }
    fs.sync().unwrap();
    for file in &files {
        let pieces = file.extents().unwrap();
        assert!(pieces.len() <= 2, "{pieces:?}");
        // No space is kept that was only reserved.
        assert_eq!(file.metadata().sectors(), 1_000_000u64.next_multiple_of(4096) / 512);
    }
}

#[test]
fn dirty_data_is_written_back_at_a_certain_age() {
    let (device, fs) = counted(32, "-b 4096", 16);
    let file = new_file(&fs, "f");
    file.append(&[1; 50_000]).unwrap();
    let before = device.position();
    let waited = Instant::now();
    while device.counts_since(before).written_bytes < 50_000 {
        assert!(waited.elapsed() < Duration::from_secs(30), "the flusher wrote nothing");
        std::thread::sleep(Duration::from_millis(50));
    }
    while fs.cache_stats().unwrap().dirty > 0 {
        assert!(waited.elapsed() < Duration::from_secs(30), "it stays dirty");
        std::thread::sleep(Duration::from_millis(10));
    }
}
