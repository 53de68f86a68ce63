//! Volumes without a superblock where one should be: a search of the whole device.

use crate::files;
use crate::repairs::{plan_of, repair};
use extant::{BlockDevice, FileDevice, MemoryDevice, NewFile, OpenOptions, Phase, Progress};
use extant_repair::Plan;
use extant_testkit::e2fsprogs::mke2fs;
use extant_testkit::require;
use extant_testkit::scratch::Scratch;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

const MIB: usize = 1 << 20;

fn volume(scratch: &Scratch, name: &str, bytes: u64, options: &str) -> Vec<u8> {
    let img = scratch.file(name);
    mke2fs(&img, bytes, options, None).unwrap();
    let fs = OpenOptions::new().write(true).open(&img).unwrap();
    fs.create_dir("/dir", &NewFile::directory()).unwrap();
    fs.write("/dir/file", b"content").unwrap();
    fs.close().unwrap();
    std::fs::read(&img).unwrap()
}

fn plan_of_bytes(bytes: &[u8]) -> extant::Result<Plan> {
    plan_of(Arc::new(MemoryDevice::from_bytes(bytes)))
}

/// Repairs a volume that has lost its primary superblock and the usual copies.
fn comes_back(scratch: &Scratch, bytes: &[u8]) {
    let img = scratch.file("lost");
    std::fs::write(&img, bytes).unwrap();
    repair(&img).unwrap();
    assert!(files::all(&img).contains_key(Path::new("/dir/file")));
}

#[test]
fn a_copy_at_an_unusual_place_is_found() {
    require!(E2fsprogs);
    let scratch = Scratch::new();
    let mut bytes = volume(&scratch, "img", 64 << 20, "-b 1024 -g 2048 -t ext4");
    bytes[1024..2048].fill(0);
    comes_back(&scratch, &bytes);
}

#[test]
fn copies_of_an_earlier_volume_do_not_win() {
    require!(E2fsprogs);
    let scratch = Scratch::new();
    let older = volume(&scratch, "older", 64 << 20, "-b 1024 -g 2048 -t ext4");
    let mut bytes = volume(&scratch, "img", 64 << 20, "-b 4096 -g 4096 -N 64 -O ^has_journal");
    let mut pasted = 0;
    for group in [1, 3, 5, 7, 9, 25, 27] {
        let place = group * 2 * MIB + 1024..group * 2 * MIB + 2048;
        if bytes[place.clone()].iter().all(|byte| *byte == 0) {
            bytes[place.clone()].copy_from_slice(&older[place]);
            pasted += 1;
        }
    }
    assert!(pasted > 4);
    bytes[1024..2048].fill(0);
    comes_back(&scratch, &bytes);
}

#[test]
fn a_copy_in_the_log_is_found() {
    require!(E2fsprogs);
    let scratch = Scratch::new();
    // One group, so there is no backup.
    let options = "-b 4096 -t ext4";
    let mut bytes = volume(&scratch, "img", 64 << 20, options);
    bytes[1024..2048].fill(0);
    comes_back(&scratch, &bytes);
    // Nothing was written through the log.
    let img = scratch.file("fresh");
    mke2fs(&img, 64 << 20, options, None).unwrap();
    let mut bytes = std::fs::read(&img).unwrap();
    bytes[1024..2048].fill(0);
    let refused = plan_of_bytes(&bytes).unwrap_err();
    assert!(refused.to_string().contains("not an ext2"), "{refused}");
}

#[test]
fn a_shifted_partition_is_reported_with_its_offset() {
    require!(E2fsprogs);
    let scratch = Scratch::new();
    for options in ["-b 1024 -t ext4", "-b 1024 -t ext2", "-b 4096 -t ext4"] {
        let bytes = volume(&scratch, "img", 64 << 20, options);
        for start in [MIB, 63 * 512] {
            let disk = [vec![0; start], bytes.clone(), vec![0; 3 * MIB]].concat();
            let plan = plan_of_bytes(&disk).unwrap();
            assert!(!plan.is_clean() && plan.is_empty().unwrap(), "{options}");
            let found = &plan.elsewhere()[0];
            assert_eq!((found.start, found.len), (start as i64, 64 << 20), "{options}");
        }
    }
    // The device starts within the volume.
    let bytes = volume(&scratch, "img", 64 << 20, "-b 1024 -t ext4");
    let plan = plan_of_bytes(&bytes[3 * 512..]).unwrap();
    let found = &plan.elsewhere()[0];
    assert_eq!((found.start, found.copies), (-3 * 512, 4));
    assert_eq!(found.uuid, bytes[1024 + 0x68..1024 + 0x78]);
}

#[test]
fn bytes_that_look_like_superblocks_are_no_volume() {
    require!(E2fsprogs);
    let mut bytes = vec![0; 8 * MIB];
    for at in (0..bytes.len()).step_by(512) {
        bytes[at + 0x38..at + 0x3A].copy_from_slice(&[0x53, 0xEF]);
    }
    plan_of_bytes(&bytes).unwrap_err();
}

/// Counts the bytes of the search.
#[derive(Default)]
struct Searched(AtomicU64);

impl Progress for Searched {
    fn advance(&self, phase: Phase, amount: u64) {
        if phase == Phase::RepairSearch {
            self.0.fetch_add(amount, Ordering::Relaxed);
        }
    }
}

#[test]
fn each_block_is_read_once_and_holes_are_not_read() {
    require!(E2fsprogs);
    let scratch = Scratch::new();
    let bytes = volume(&scratch, "img", 64 << 20, "-b 1024 -t ext4");
    let disk = scratch.file("disk");
    // 4 TiB, of which a minute would not suffice to read the holes.
    let file = std::fs::File::create(&disk).unwrap();
    file.set_len(4 << 40).unwrap();
    std::os::unix::fs::FileExt::write_all_at(&file, &bytes, 1 << 40).unwrap();
    let device: Arc<dyn BlockDevice> = Arc::new(FileDevice::open(&disk).unwrap());
    let searched = Searched::default();
    let options = extant_repair::Options { threads: 2, ..Default::default() };
    let plan = extant_repair::plan(device, &options, &searched).unwrap();
    assert_eq!(searched.0.into_inner(), 4 << 40);
    assert_eq!(plan.elsewhere()[0].start, 1 << 40);
}
