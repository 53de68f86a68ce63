//! The costs of making small changes durable, counted at the device: no more writes and flushes
//! than Linux's ext4 on the same volume.
//!
//! ```text
//!   Linux 6.18, loop device without forced unit access, ordered, no fast commits, noatime;
//!   write requests and flushes of /sys/block/loopN/stat, the same in 50 of 50 calls:
//!
//!     append 4 KiB, fsync          3 writes   2 flushes    rename, fsync of the directory  2  2
//!     create, 4 KiB, fsync         3          2            create, fsync of the directory  2  2
//!     overwrite 4 KiB, fdatasync   1          1            4 threads, append, fsync: 1 flush each
//! ```
//!
//! Such a device implements forced unit access with an additional flush, so here both count as one.

use crate::common::{judge, leave_front_of_log, mke2fs, new_file};
use extant::{BlockDevice, Filesystem, MemoryDevice, NewFile, OpenOptions};
use extant_base::{ByteOffset, Result};
use extant_testdev::Recorder;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::{Arc, Condvar, Mutex};

/// A recorder whose flushes can be blocked.
struct Gated {
    recorder: Recorder<MemoryDevice>,
    is_closed: Mutex<bool>,
    opened: Condvar,
    waiting: AtomicUsize,
}

impl Gated {
    fn close(&self) {
        *self.is_closed.lock().unwrap() = true;
    }

    fn open(&self) {
        *self.is_closed.lock().unwrap() = false;
        self.opened.notify_all();
    }
}

impl BlockDevice for Gated {
    fn len(&self) -> u64 {
        self.recorder.len()
    }

    fn read_at(&self, at: ByteOffset, buf: &mut [u8]) -> Result<()> {
        self.recorder.read_at(at, buf)
    }

    fn write_at(&self, at: ByteOffset, buf: &[u8]) -> Result<()> {
        self.recorder.write_at(at, buf)
    }

    fn write_vectored_at(&self, at: ByteOffset, bufs: &[std::io::IoSlice<'_>]) -> Result<()> {
        self.recorder.write_vectored_at(at, bufs)
    }

    fn write_fua(&self, at: ByteOffset, buf: &[u8]) -> Result<()> {
        self.recorder.write_fua(at, buf)
    }

    fn flush(&self) -> Result<()> {
        let mut is_closed = self.is_closed.lock().unwrap();
        self.waiting.fetch_add(1, Ordering::SeqCst);
        while *is_closed {
            is_closed = self.opened.wait(is_closed).unwrap();
        }
        drop(is_closed);
        self.recorder.flush()
    }
}

fn volume() -> (Arc<Gated>, Filesystem) {
    let device = Arc::new(Gated {
        recorder: Recorder::new(mke2fs(128, "-b 4096")),
        is_closed: Mutex::new(false),
        opened: Condvar::new(),
        waiting: AtomicUsize::new(0),
    });
    let fs = OpenOptions::new().write(true).commit_interval(None).open_device(device.clone());
    let fs = fs.unwrap();
    leave_front_of_log(&new_file(&fs, "first"));
    (device, fs)
}

/// Asserts that `call` costs at most this many writes and flushes, as Linux counts them.
#[track_caller]
fn at_most(device: &Gated, writes: u64, flushes: u64, call: impl FnOnce()) {
    let before = device.recorder.position();
    call();
    let cost = device.recorder.counts_since(before);
    assert!(cost.writes <= writes && cost.flushes + cost.fua_writes <= flushes, "{cost:?}");
}

#[test]
fn small_synced_changes_cost_no_more_than_with_linux() {
    let (device, fs) = volume();
    for n in 0..5 {
        let name = format!("/created{n}");
        at_most(&device, 3, 2, || {
            let file = fs.create_file(&name, &NewFile::default()).unwrap().open().unwrap();
            file.append(&[2; 4096]).unwrap();
            file.sync_all().unwrap();
        });
        let file = fs.open_file(&name).unwrap();
        at_most(&device, 3, 2, || {
            file.append(&[3; 4096]).unwrap();
            file.sync_all().unwrap();
        });
        at_most(&device, 3, 2, || {
            file.append(&[3; 4096]).unwrap();
            file.sync_data().unwrap();
        });
        at_most(&device, 1, 1, || {
            file.write_all_at(&[4; 4096], 0).unwrap();
            file.sync_data().unwrap();
        });
        // The time of that change, if the clock has moved on.
        at_most(&device, 2, 2, || file.sync_all().unwrap());
        at_most(&device, 0, 1, || file.sync_all().unwrap());
        at_most(&device, 2, 2, || {
            fs.rename(&name, format!("/renamed{n}")).unwrap();
            fs.root().unwrap().sync_all().unwrap();
        });
        at_most(&device, 2, 2, || {
            fs.create_file(format!("/empty{n}"), &NewFile::default()).unwrap();
            fs.sync().unwrap();
        });
        at_most(&device, 0, 1, || fs.sync().unwrap());
    }
    fs.close().unwrap();
    judge(&*device);
}

#[test]
fn syncs_during_a_commit_share_the_next_one() {
    const THREADS: usize = 8;
    let (device, fs) = volume();
    let files: Vec<_> = (0..THREADS)
        .map(|n| fs.create_file(format!("/file{n}"), &NewFile::default()).unwrap().open().unwrap())
        .collect();
    fs.sync().unwrap();
    let before = device.recorder.position();
    device.waiting.store(0, Ordering::SeqCst);
    device.close();
    let appended = AtomicUsize::new(0);
    std::thread::scope(|scope| {
        for (n, file) in files.iter().enumerate() {
            // One of them is in the middle of a commit when the others change their files.
            while n > 0 && device.waiting.load(Ordering::SeqCst) == 0 {
                std::thread::yield_now();
            }
            let appended = &appended;
            scope.spawn(move || {
                file.append(&[n as u8; 4096]).unwrap();
                appended.fetch_add(1, Ordering::SeqCst);
                file.sync_all().unwrap();
            });
        }
        while appended.load(Ordering::SeqCst) < THREADS {
            std::thread::yield_now();
        }
        device.open();
    });
    let cost = device.recorder.counts_since(before);
    assert_eq!(cost.fua_writes, 2, "one commit for the first, one for all others: {cost:?}");
    assert!(cost.flushes <= THREADS as u64, "{cost:?}");
    drop(files);
    fs.close().unwrap();
    judge(&*device);
}
