//! Listings that the kernel serves from its cache, and those that it must not.

use crate::costs::{mounted, mounted_with, waits};
use crate::rig::Rig;
use extant::{Filesystem, NewFile};
use extant_fuse::Volume;
use rustix::fs::{Dir, Mode, OFlags};
use std::fs::{self, File, Permissions};
use std::os::unix::fs::{MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

/// The inode number of "..", as a listing shows it.
fn listed_parent(dir: &Path) -> u64 {
    let dir = rustix::fs::open(dir, OFlags::RDONLY | OFlags::DIRECTORY, Mode::empty()).unwrap();
    let entries = Dir::read_from(dir).unwrap();
    let parent = entries.map(Result::unwrap).find(|entry| entry.file_name() == c"..");
    parent.expect("every directory has \"..\"").ino()
}

fn names(dir: &Path) -> usize {
    fs::read_dir(dir).unwrap().map(Result::unwrap).count()
}

/// Requests of a listing that send names.
fn lists(rig: &Rig<Volume>, dir: &Path) -> u64 {
    let made = waits(rig, || _ = names(dir));
    made.iter().filter(|(name, _)| name.starts_with("Readdir")).map(|(_, n)| n).sum()
}

/// A directory whose names the kernel has cached.
fn cached(rig: &Rig<Volume>, count: usize) -> PathBuf {
    let dir = rig.path("dir");
    fs::create_dir(&dir).unwrap();
    for n in 0..count {
        File::create(dir.join(format!("name {n:04}"))).unwrap();
    }
    for _ in 0..3 {
        assert_eq!(names(&dir), count);
    }
    assert_eq!(lists(rig, &dir), 0, "the kernel has the names");
    dir
}

#[test]
fn a_cached_listing_shows_changes() {
    let Some(rig) = mounted() else { return };
    let dir = cached(&rig, 10);
    fs::remove_file(dir.join("name 0003")).unwrap();
    assert_eq!(names(&dir), 9);
    fs::rename(dir.join("name 0004"), rig.path("away")).unwrap();
    assert_eq!(names(&dir), 8);
    File::create(dir.join("new")).unwrap();
    assert_eq!(names(&dir), 9);
    rig.end();
}

#[test]
fn a_moved_directory_shows_its_new_parent() {
    let Some(rig) = mounted() else { return };
    let dir = cached(&rig, 3);
    let (parent, moved) = (rig.path("parent"), rig.path("parent/dir"));
    fs::create_dir(&parent).unwrap();
    assert_eq!(listed_parent(&dir), fs::metadata(rig.path("")).unwrap().ino());
    fs::rename(&dir, &moved).unwrap();
    assert_eq!(listed_parent(&moved), fs::metadata(&parent).unwrap().ino());
    rig.end();
}

#[test]
fn a_listing_sets_the_time_of_access_when_it_is_due() {
    let Some(rig) = mounted() else { return };
    let dir = cached(&rig, 3);
    let before = fs::metadata(&dir).unwrap();
    std::thread::sleep(std::time::Duration::from_millis(20));
    // A change time after the time of access makes the next one due. The names stay.
    fs::set_permissions(&dir, Permissions::from_mode(0o700)).unwrap();
    assert_eq!(lists(&rig, &dir), 2, "one with names, one at the end");
    let after = fs::metadata(&dir).unwrap();
    let time = |of: &fs::Metadata| (of.atime(), of.atime_nsec());
    assert!(time(&after) > time(&before), "{:?} {:?}", time(&before), time(&after));
    assert_eq!(lists(&rig, &dir), 0);
    rig.end();
}

/// Names in the cache come without attributes. Many look-ups show that programs want those.
#[test]
fn after_many_look_ups_a_listing_has_attributes_again() {
    let prepare = |fs: &Filesystem| {
        fs.create_dir("/dir", &NewFile::directory()).unwrap();
        for n in 0..1000 {
            fs.write(format!("/dir/name {n:04}"), b"").unwrap();
        }
    };
    let Some(rig) = mounted_with(prepare) else { return };
    let dir = rig.path("dir");
    for _ in 0..2 {
        assert_eq!(names(&dir), 1000);
    }
    assert_eq!(lists(&rig, &dir), 0, "the kernel has the names");
    let stat_all = || {
        for n in 0..1000 {
            assert!(fs::metadata(dir.join(format!("name {n:04}"))).is_ok());
        }
    };
    let looked_up = waits(&rig, stat_all);
    assert!(looked_up.iter().any(|(name, n)| *name == "Lookup" && *n > 100), "{looked_up:?}");
    let made = waits(&rig, || _ = names(&dir));
    assert!(made.iter().any(|(name, _)| *name == "Readdirplus"), "{made:?}");
    assert_eq!(lists(&rig, &dir), 0);
    rig.end();
}
