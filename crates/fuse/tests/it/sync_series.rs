//! The costs of syncs of several files one after the other, counted at the device.

use extant::mkfs::{self, MkfsOptions};
use extant::{MemoryDevice, OpenOptions};
use extant_fuse::{Caller, NewNode, NodeId, Operations, Volume, VolumeOptions, WriteFlags};
use extant_testdev::Recorder;
use std::ffi::OsStr;
use std::sync::Arc;
use std::time::{Duration, Instant};

const READ_WRITE: u32 = 2;
const FILES: usize = 16;

/// A volume with several open files.
struct Mount {
    device: Arc<Recorder<MemoryDevice>>,
    volume: Volume,
    files: Vec<(NodeId, extant_fuse::HandleId)>,
}

const ROOT: Caller = Caller { uid: 0, gid: 0, pid: 1 };

impl Mount {
    fn new(features: &str) -> Mount {
        let image = Arc::new(MemoryDevice::new(64 << 20));
        let options = MkfsOptions::new().features(features).unwrap();
        mkfs::format(image.clone(), &options, &Default::default()).unwrap();
        let device = Arc::new(Recorder::new(MemoryDevice::copy_of(&image).unwrap()));
        let mut options = OpenOptions::new();
        options.write(true).page_cache_bytes(125 << 20).commit_interval(None);
        let fs = options.open_device(device.clone()).unwrap();
        let volume = Volume::new(fs, VolumeOptions::default()).unwrap();
        let new = NewNode { mode: 0o100_644, umask: 0, rdev: 0 };
        let files = (0..FILES).map(|n| {
            let name = format!("file{n}");
            let made = volume.create(&ROOT, NodeId(1), OsStr::new(&name), &new, READ_WRITE);
            let (entry, opened) = made.unwrap();
            (entry.node, opened.handle)
        });
        let files = files.collect();
        volume.filesystem().sync().unwrap();
        Mount { device, volume, files }
    }

    fn write(&self, n: usize, bytes: &[u8]) {
        let (node, handle) = self.files[n];
        let written = self.volume.write(&ROOT, node, Some(handle), 0, bytes, WriteFlags::default());
        assert_eq!(written, Ok(bytes.len()));
    }

    /// Syncs file `n`. Returns the number of writes, and of flushes and forced writes.
    fn sync(&self, n: usize) -> (u64, u64) {
        let before = self.device.position();
        let (node, handle) = self.files[n];
        self.volume.sync_file(&ROOT, node, Some(handle), false).unwrap();
        let cost = self.device.counts_since(before);
        (cost.writes, cost.flushes + cost.fua_writes)
    }

    fn dirty(&self) -> u64 {
        self.volume.filesystem().cache_stats().unwrap().dirty
    }
}

/// Calls `scene` until a call ends before the flusher writes dirty data because of its age.
fn before_data_expires(scene: impl Fn()) {
    for _ in 0..20 {
        let began = Instant::now();
        let done = std::panic::catch_unwind(std::panic::AssertUnwindSafe(&scene));
        if began.elapsed() < Duration::from_secs(2) {
            return done.unwrap();
        }
    }
    panic!("no call of 20 ends within 2 seconds");
}

#[test]
fn syncs_of_files_in_a_row_cost_two_commits_and_then_one() {
    before_data_expires(|| {
        for features in ["", "fast_commit"] {
            let mount = Mount::new(features);
            // The first commit of a session also writes superblocks.
            mount.write(0, &[1; 4096]);
            mount.sync(0);
            let write_all = || (0..FILES).for_each(|n| mount.write(n, &[2; 8192]));
            write_all();
            let flushes: Vec<u64> = (0..FILES).map(|n| mount.sync(n).1).collect();
            assert_eq!(flushes[..2], [2, 2], "{features}: {flushes:?}");
            assert_eq!(flushes[2..], [0; FILES - 2], "{features}: {flushes:?}");
            for _ in 0..3 {
                write_all();
                assert_eq!(mount.sync(0).1, 2, "{features}");
                for n in 1..FILES {
                    assert_eq!(mount.sync(n), (0, 0), "{features}: file {n}");
                }
            }
        }
    });
}

#[test]
fn a_single_sync_writes_nothing_of_other_open_files() {
    before_data_expires(|| {
        let mount = Mount::new("");
        for _ in 0..3 {
            mount.write(1, &[3; 40_960]);
            for _ in 0..3 {
                mount.write(0, &[4; 4096]);
                mount.sync(0);
                assert!(mount.dirty() >= 40_960, "{}", mount.dirty());
            }
        }
    });
}

#[test]
fn a_series_of_syncs_leaves_much_dirty_data_of_other_files_alone() {
    before_data_expires(|| {
        let mount = Mount::new("");
        mount.write(5, &vec![5; 5 << 20]);
        for n in 0..4 {
            mount.write(n, &[6; 4096]);
        }
        for n in 0..4 {
            mount.sync(n);
            assert!(mount.dirty() >= 5 << 20, "{}", mount.dirty());
        }
    });
}
