//! stress-ng's file stressors with their own checks, each for a moment, two at once.
//!
//! ```text
//!   stress-ng --verify --temp-path MOUNT, one stressor after the other ──► none reports a failure
//! ```
//! The list has those that Linux' own ext4 passes, without `io`, which syncs the whole machine.

use extant_mount_tests::served::{Served, effort};
use extant_testkit::require;
use std::time::Duration;

const NAMES: &str = "chmod chown dentry dir dirdeep dirmany filename getdent inode-flags link rename symlink \
     touch open utime xattr";
/// Options after the stressor's name: sizes for which two of them have space.
const SIZED: &[(&str, &str)] = &[
    ("fallocate", "--fallocate-bytes 64m"),
    ("hdd", "--hdd-bytes 64m"),
    ("iomix", "--iomix-bytes 32m"),
    ("mmap", "--mmap-file --mmap-bytes 32m"),
    ("readahead", "--readahead-bytes 64m"),
    ("seek", "--seek-size 64m"),
    ("sync-file", "--sync-file-bytes 64m"),
];
const CONTENT: &str = "aiol chattr copy-file eventfd fallocate fpunch hdd iomix locka lockf lockofd flock lease \
     mmap readahead seek sendfile splice sync-file verity";

/// Runs each of `stressors` for a second, longer with `EXTANT_SOAK`. Panics naming all that failed.
fn stressed(stressors: &str) {
    let served = Served::new(512, "");
    let seconds = effort();
    let mut failed = String::new();
    for name in stressors.split_whitespace() {
        let sized = SIZED.iter().find(|(of, _)| *of == name).map_or("", |(_, options)| *options);
        let script = format!(
            "mkdir {name} && stress-ng --temp-path {name} --{name} 2 {sized} --timeout {seconds}s --verify \
             --oomable --quiet"
        );
        let started = std::time::Instant::now();
        let done = served.try_sh(&script, Duration::from_secs(60 + seconds as u64));
        println!("{name}: {} after {:.1} s", done.ending(), started.elapsed().as_secs_f32());
        // 3 and 4: this machine does not support it, or lacks resources for it.
        if !matches!(done.code(), Some(0 | 3 | 4)) {
            failed += &format!("{done}\n");
        }
        served.sh(&format!("rm -rf {name}"));
    }
    assert!(failed.is_empty(), "{failed}");
    served.finish();
}

#[test]
fn names_stand_stress() {
    require!(Root, Fuse, Loop, E2fsprogs, Program("stress-ng"));
    stressed(NAMES);
}

#[test]
fn content_stands_stress() {
    require!(Root, Fuse, Loop, E2fsprogs, Program("stress-ng"));
    stressed(CONTENT);
}
