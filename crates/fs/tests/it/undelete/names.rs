//! Names of deleted files: hard links, renames, and names that only fast commits have.

use super::as_of::{SetClock, open};
use super::{content_of, find};
use extant::undelete::{Options, PastFiles, State};
use extant::{Filesystem, NewFile, OpenOptions};
use extant_testkit::e2fsprogs::{e2fsck, mke2fs};
use extant_testkit::scratch::Scratch;
use extant_testkit::uml::Uml;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

fn deleted(image: &Path) -> PastFiles {
    let fs = Filesystem::open(image).unwrap();
    fs.deleted_files(&Options::default(), &()).unwrap()
}

#[test]
fn all_names_are_found_that_a_file_had_at_the_end() {
    extant_testkit::require!(E2fsprogs);
    for kind in super::KINDS {
        let scratch = Scratch::new();
        let image = scratch.file("image");
        mke2fs(&image, 16 << 20, kind, None).unwrap();
        let fs = OpenOptions::new().write(true).open(&image).unwrap();
        for dir in ["/a", "/b", "/c"] {
            fs.create_dir(dir, &NewFile::directory()).unwrap();
        }
        let content = vec![5; 3000];
        fs.write("/a/one", &content).unwrap();
        fs.write("/a/alone", b"alone").unwrap();
        fs.hard_link("/a/one", "/b/two").unwrap();
        fs.hard_link("/a/one", "/b/three").unwrap();
        fs.sync().unwrap();
        fs.rename("/b/two", "/c/renamed").unwrap();
        fs.rename("/a/alone", "/a/still alone").unwrap();
        fs.sync().unwrap();
        for dir in ["/a", "/b", "/c"] {
            fs.remove_dir_all(dir).unwrap();
            fs.sync().unwrap();
        }
        fs.close().unwrap();
        e2fsck(&image, None).expect_clean().unwrap();
        let deleted = deleted(&image);
        let file = find(&deleted, "/a/one");
        let mut paths = file.paths().to_vec();
        paths.sort();
        let want = ["/a/one", "/b/three", "/c/renamed"].map(PathBuf::from);
        assert_eq!(paths, want, "{kind}");
        assert_eq!(content_of(&deleted, file), content);
        assert_eq!(find(&deleted, "/a/still alone").paths().len(), 1, "{kind}");
        let one = |name: &str| {
            deleted
                .files()
                .iter()
                .filter(|file| file.paths().iter().any(|path| path.as_path() == Path::new(name)))
                .count()
        };
        assert_eq!((one("/a/one"), one("/b/two"), one("/a/alone")), (1, 0, 0), "{kind}");
    }
}

#[test]
fn names_stay_those_of_the_directory_whose_block_another_one_has_now() {
    extant_testkit::require!(E2fsprogs);
    for kind in ["-t ext4 -b 1024", "-t ext3 -b 1024"] {
        let scratch = Scratch::new();
        let image = scratch.file("image");
        mke2fs(&image, 8 << 20, kind, None).unwrap();
        let fs = OpenOptions::new().write(true).open(&image).unwrap();
        for dir in ["/old", "/old/a", "/old/b"] {
            fs.create_dir(dir, &NewFile::directory()).unwrap();
            fs.write(format!("{dir}/file"), dir).unwrap();
        }
        fs.sync().unwrap();
        fs.remove_dir_all("/old").unwrap();
        fs.sync().unwrap();
        for n in 0..200 {
            fs.create_dir(format!("/new {n}"), &NewFile::directory()).unwrap();
        }
        fs.close().unwrap();
        let deleted = deleted(&image);
        for dir in ["/old", "/old/a", "/old/b"] {
            find(&deleted, dir);
            find(&deleted, &format!("{dir}/file"));
        }
    }
}

/// New files get the numbers of deleted ones. Blocks of the old directory stay at home for a while.
#[test]
fn names_from_before_an_inode_was_made_are_not_its_names() {
    extant_testkit::require!(E2fsprogs);
    for kind in super::KINDS {
        let scratch = Scratch::new();
        let image = scratch.file("image");
        mke2fs(&image, 16 << 20, kind, None).unwrap();
        let clock = Arc::new(SetClock::default());
        let fs = open(&image, &clock);
        fs.create_dir("/old", &NewFile::directory()).unwrap();
        for n in 0..20 {
            fs.write(format!("/old/file {n}"), format!("content {n}")).unwrap();
        }
        fs.sync().unwrap();
        clock.set(1);
        fs.remove_dir_all("/old").unwrap();
        fs.sync().unwrap();
        for step in 2..5 {
            clock.set(step);
            for n in 0..30 {
                fs.write(format!("/new {n}"), b"new").unwrap();
            }
            fs.sync().unwrap();
            (0..30).for_each(|n| fs.remove_file(format!("/new {n}")).unwrap());
            fs.sync().unwrap();
        }
        fs.close().unwrap();
        let deleted = deleted(&image);
        for n in 0..20 {
            let path = format!("/old/file {n}");
            let has_it = |file: &&extant::undelete::PastFile| {
                file.paths().iter().any(|name| name.as_path() == Path::new(&path))
            };
            let found: Vec<_> = deleted.files().iter().filter(has_it).collect();
            assert_eq!(found.len(), 1, "{kind}: {path}: {found:?}");
            assert_eq!(content_of(&deleted, found[0]), format!("content {n}").into_bytes());
        }
    }
}

#[test]
fn fast_commits_have_names_of_files_that_lived_between_two_commits() {
    extant_testkit::require!(E2fsprogs);
    let scratch = Scratch::new();
    let image = scratch.file("image");
    mke2fs(&image, 32 << 20, "-t ext4 -O fast_commit", None).unwrap();
    let fs = OpenOptions::new().write(true).commit_interval(None).open(&image).unwrap();
    fs.create_dir("/dir", &NewFile::directory()).unwrap();
    fs.write("/other", b"other").unwrap();
    fs.sync().unwrap();
    // The first fast commit of a transaction does not stay.
    let other = fs.open_file("/other").unwrap();
    other.append(b"more").unwrap();
    other.sync_all().unwrap();
    let content: Vec<u8> = (0..50_000).map(|n| (n % 251) as u8).collect();
    fs.write("/dir/first", &content).unwrap();
    fs.open_file("/dir/first").unwrap().sync_all().unwrap();
    fs.rename("/dir/first", "/dir/second").unwrap();
    fs.open_file("/dir/second").unwrap().sync_all().unwrap();
    let stats = fs.stats().journal.unwrap();
    assert_eq!(stats.fast_commits, 3, "{stats:?}");
    drop(other);
    fs.remove_file("/dir/second").unwrap();
    fs.close().unwrap();
    e2fsck(&image, None).expect_clean().unwrap();
    let deleted = deleted(&image);
    let file = find(&deleted, "/dir/second");
    assert_eq!(file.paths().len(), 1);
    assert_eq!(file.state(), State::Whole, "{file:?}");
    assert_eq!(content_of(&deleted, file), content);
}

#[test]
fn fast_commits_of_linux_have_names_of_files_that_lived_between_two_commits() {
    extant_testkit::require!(E2fsprogs, Uml);
    let scratch = Scratch::new();
    let image = scratch.file("image");
    mke2fs(&image, 32 << 20, "-t ext4 -O fast_commit", None).unwrap();
    let script = "mount -t ext4 -o commit=300 /dev/ubda /dev/shm/m || exit 9\n\
        cd /dev/shm/m; mkdir dir; echo other > other; sync -f .\n\
        seq 10000 > dir/first; sync dir/first\n\
        mv dir/first dir/second; echo more >> other; sync other\n\
        rm dir/second; echo more >> other; sync other\n\
        cat /proc/fs/ext4/ubda/fc_info; cd /; umount /dev/shm/m";
    let limit = Duration::from_secs(60);
    let end = Uml::get().unwrap().run(script, &[&image], scratch.path(), limit).unwrap();
    let end = end.success().unwrap();
    e2fsck(&image, None).expect_clean().unwrap();
    let deleted = deleted(&image);
    let content: String = (1..=10_000).map(|n| format!("{n}\n")).collect();
    let file = find(&deleted, "/dir/second");
    assert_eq!(file.state(), State::Whole, "{file:?}, {}", end.text);
    assert!(content_of(&deleted, file) == content.as_bytes());
}

#[test]
fn a_name_that_only_fast_commits_have_is_that_of_the_file_that_lost_it() {
    extant_testkit::require!(E2fsprogs);
    let scratch = Scratch::new();
    let image = scratch.file("image");
    mke2fs(&image, 32 << 20, "-t ext4 -O fast_commit", None).unwrap();
    let fs = OpenOptions::new().write(true).commit_interval(None).open(&image).unwrap();
    fs.write("/old", b"content").unwrap();
    fs.write("/other", b"other").unwrap();
    fs.sync().unwrap();
    let other = fs.open_file("/other").unwrap();
    other.append(b"more").unwrap();
    other.sync_all().unwrap();
    // In no copy of the root's block.
    fs.rename("/old", "/between").unwrap();
    fs.open_file("/between").unwrap().sync_all().unwrap();
    assert_eq!(fs.stats().journal.unwrap().fast_commits, 2);
    drop(other);
    fs.remove_file("/between").unwrap();
    fs.close().unwrap();
    let deleted = deleted(&image);
    assert_eq!(deleted.files().len(), 1);
    assert_eq!(deleted.files()[0].paths(), [PathBuf::from("/between")]);
}
