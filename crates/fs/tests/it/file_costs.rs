//! The costs of calls on files, counted at the device: no more writes and flushes than Linux. Also
//! the state after the device fails in between.
//!
//! ```text
//!   append 4 KiB, sync_all     data │ log: descriptor and blocks │ flush, commit block (FUA)
//!   overwrite, sync_data       data │ flush
//! ```

use crate::common::{costs, counted, judge, leave_front_of_log, mke2fs, new_file};
use extant::{Error, OpenOptions};
use extant_base::IoOp;
use extant_testdev::Faulty;
use std::sync::Arc;

#[test]
fn an_append_and_a_sync_cost_one_data_write_and_one_commit() {
    let (device, fs) = counted(64, "-b 4096", 0);
    let file = new_file(&fs, "f");
    leave_front_of_log(&file);
    // Linux 6.18 on a loop device: 3 writes, including that of the data, and 2 flushes. The same
    // here, with the flush that a device without forced unit access adds.
    for _ in 0..3 {
        let data = costs(&device, || assert_eq!(file.append(&[2; 4096]).unwrap(), 4096));
        assert_eq!((data.writes, data.written_bytes, data.flushes), (1, 4096, 0));
        let sync = costs(&device, || file.sync_all().unwrap());
        assert_eq!((sync.writes, sync.fua_writes, sync.flushes), (2, 1, 1), "{sync:?}");
        // Descriptor, inode table, block bitmap, descriptors; commit block.
        assert_eq!(sync.written_bytes, 5 * 4096, "{sync:?}");
        let again = costs(&device, || file.sync_all().unwrap());
        assert_eq!((again.writes, again.flushes), (0, 0), "nothing was written since the flush");
    }
    drop(file);
    fs.close().unwrap();
    judge(&*device);
}

#[test]
fn overwriting_costs_one_write_and_a_flush() {
    let (device, fs) = counted(32, "-b 4096", 0);
    let file = new_file(&fs, "f");
    file.append(&[1; 100_000]).unwrap();
    file.sync_all().unwrap();
    let all = costs(&device, || {
        file.write_all_at(&[3; 700], 5000).unwrap();
        file.sync_data().unwrap();
    });
    assert_eq!((all.writes, all.written_bytes, all.flushes), (1, 700, 1));
    drop(file);
    fs.close().unwrap();
    judge(&*device);
}

#[test]
fn a_large_write_is_few_large_device_writes() {
    let (device, fs) = counted(64, "-b 4096", 0);
    let file = new_file(&fs, "f");
    let bytes = vec![5; (16 << 20) + 100];
    let all = costs(&device, || file.write_all_at(&bytes, 50).unwrap());
    assert!(all.writes <= 4, "{all:?}");
    // Only the blocks at the ends are padded.
    assert_eq!(all.written_bytes, (16 << 20) + 4096);
    file.sync_all().unwrap();
    assert_eq!(fs.read("f").unwrap()[50..], bytes);
    drop(file);
    fs.close().unwrap();
    judge(&*device);
}

#[test]
fn data_that_the_device_refused_is_not_read() {
    for options in ["-b 4096", "-b 1024", "-b 1024 -O ^extents,^64bit", "-b 1024 -O bigalloc"] {
        let device = Arc::new(Faulty::new(mke2fs(24, options)));
        let fs = OpenOptions::new()
            .write(true)
            .commit_interval(None)
            .page_cache_bytes(0)
            .open_device(device.clone());
        let fs = fs.unwrap();
        let file = new_file(&fs, "f");
        file.write_all_at(&[1; 10_000], 0).unwrap();
        file.allocate(extant::FallocateMode::KeepSize, 20_000, 50_000)
            .or_else(unsupported)
            .unwrap();
        // Small and large, into holes, unwritten blocks and after the end.
        for (at, len) in [(9_000, 5_000), (30_000, 9_000), (100_000, 600_000), (0, 20)] {
            let before = fs.read("f").unwrap();
            device.fail(IoOp::Write, 1);
            let failed = file.write_at(&vec![2; len], at);
            assert!(matches!(failed, Err(Error::Device { op: IoOp::Write, .. })), "{failed:?}");
            device.heal();
            let after = fs.read("f").unwrap();
            assert_eq!(after.len(), before.len(), "{options}: {len} bytes at {at}");
            assert!(after == before, "{options}: {len} bytes at {at}");
        }
        file.write_all_at(&[3; 600_000], 100_000).unwrap();
        let bytes = fs.read("f").unwrap();
        assert!(bytes[10_000..100_000].iter().all(|byte| *byte == 0), "{options}");
        drop(file);
        fs.close().unwrap();
        judge(&*device);
    }
}

/// A file with a block map cannot have unwritten blocks.
fn unsupported(error: Error) -> Result<(), Error> {
    if matches!(error, Error::NotSupported(_)) { Ok(()) } else { Err(error) }
}
