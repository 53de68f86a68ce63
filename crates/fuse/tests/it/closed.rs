//! A program's `close` ends with FLUSH; RELEASE comes later, and no program waits for it.

use extant::mkfs::{self, MkfsOptions};
use extant::{MemoryDevice, OpenOptions};
use extant_fuse::{Caller, NewNode, NodeId, Operations, Volume, VolumeOptions, WriteFlags};
use std::ffi::OsStr;
use std::sync::Arc;

const WRITE_ONLY: u32 = 1;

#[test]
fn a_sync_makes_closed_files_durable_before_their_openings_are_released() {
    let device = Arc::new(MemoryDevice::new(16 << 20));
    mkfs::format(device.clone(), &MkfsOptions::default(), &Default::default()).unwrap();
    let mut options = OpenOptions::new();
    options.write(true).cache_bytes(1 << 20).commit_interval(None);
    let volume =
        Volume::new(options.open_device(device.clone()).unwrap(), VolumeOptions::default())
            .unwrap();
    let by = Caller { uid: 0, gid: 0, pid: 1 };
    let new = NewNode { mode: 0o100_644, umask: 0, rdev: 0 };
    let create = |name: &str| {
        let made = volume.create(&by, NodeId(1), OsStr::new(name), &new, WRITE_ONLY);
        let (entry, opened) = made.unwrap();
        (entry.node, opened)
    };
    let (last, last_opened) = create("last");
    let (file, opened) = create("closed");
    assert!(opened.flush);
    let written =
        volume.write(&by, file, Some(opened.handle), 0, b"content", WriteFlags::default());
    assert_eq!(written, Ok(7));
    volume.flush(file, opened.handle).unwrap();
    volume.sync_file(&by, last, Some(last_opened.handle), true).unwrap();
    // A power cut.
    let left = Arc::new(MemoryDevice::copy_of(&device).unwrap());
    let fs = OpenOptions::new().open_device(left).unwrap();
    assert_eq!(fs.read("/closed").unwrap(), b"content");
}
