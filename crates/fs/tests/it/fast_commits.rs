//! When a sync is a fast commit, and when it is not.

use crate::common::{Device, costs, counted, new_file};
use extant::{Filesystem, NewFile, OpenOptions};
use extant_testkit::require;
use std::sync::Arc;

/// A volume whose log is live, and a file in it.
fn live(options: &str) -> (Device, Filesystem, extant::File) {
    let (device, fs) = counted(16, options, 4);
    let file = new_file(&fs, "file");
    file.append(b"content").unwrap();
    fs.sync().unwrap();
    (device, fs, file)
}

/// The number of full and of fast commits.
fn commits(fs: &Filesystem) -> (u64, u64) {
    let stats = fs.stats().journal.unwrap();
    (stats.commits, stats.fast_commits)
}

#[test]
fn a_sync_of_a_directory_is_a_full_commit_unless_the_sync_of_a_file_recorded_all() {
    require!(E2fsprogs);
    let (_, fs, file) = live("-b 4096 -O fast_commit");
    assert_eq!(commits(&fs), (1, 0));
    fs.root().unwrap().create_file("new", &NewFile::default()).unwrap();
    file.append(b"more").unwrap();
    file.sync_all().unwrap();
    assert_eq!(commits(&fs), (1, 1));
    fs.root().unwrap().sync_all().unwrap();
    assert_eq!(commits(&fs), (1, 1), "the new name is durable");
    fs.rename("/new", "/renamed").unwrap();
    fs.root().unwrap().sync_all().unwrap();
    assert_eq!(commits(&fs), (2, 1));
    fs.close().unwrap();
}

#[test]
fn an_append_and_a_sync_write_the_data_and_one_block() {
    require!(E2fsprogs);
    let (device, fs, file) = live("-b 4096 -O fast_commit");
    // The first fast commit of an epoch has two steps, see DURABILITY, C2.
    file.append(&[1; 4096]).unwrap();
    file.sync_all().unwrap();
    let cost = costs(&device, || {
        file.append(&[2; 4096]).unwrap();
        file.sync_all().unwrap();
    });
    // The data's flush, and that of the block.
    assert_eq!((cost.writes, cost.flushes + cost.fua_writes), (2, 2), "{cost:?}");
    assert_eq!(commits(&fs), (1, 2));
    fs.close().unwrap();
}

#[test]
fn fast_commits_are_off_where_they_are_impossible_or_not_wanted() {
    require!(E2fsprogs);
    for options in [
        "-b 4096",
        "-b 4096 -O fast_commit,bigalloc",
        "-b 4096 -O fast_commit,quota",
        "-b 4096 -O ^has_journal",
    ] {
        let (_, fs, file) = live(options);
        file.append(b"more").unwrap();
        file.sync_all().unwrap();
        let stats = fs.stats().journal;
        assert!(stats.is_none_or(|stats| !stats.fast_commits_on && stats.fast_commits == 0));
        fs.close().unwrap();
    }
    let device = Arc::new(crate::common::mke2fs(16, "-b 4096 -O fast_commit"));
    let mut options = OpenOptions::new();
    let fs = options.write(true).fast_commits(false).open_device(device).unwrap();
    let file = new_file(&fs, "file");
    for _ in 0..3 {
        file.append(b"content").unwrap();
        file.sync_all().unwrap();
    }
    assert_eq!(commits(&fs), (3, 0));
    fs.close().unwrap();
}
