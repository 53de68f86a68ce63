//! `e2fsck` and its other names.

use super::{Scene, VOLUMES, plain, run, split};
use crate::common::assert_clean;
use assert_cmd::cargo::cargo_bin;
use extant_testkit::e2fsprogs::{debugfs_write, e2fsck, mke2fs};
use extant_testkit::loop_mount::LoopDevice;
use std::fs;
use std::os::unix::fs::FileExt;
use std::os::unix::process::CommandExt;
use std::process::Command;

const CALLS: [&str; 7] = [
    "e2fsck -n v.img",
    "e2fsck -p v.img",
    "e2fsck -y v.img",
    "e2fsck -fn v.img",
    "e2fsck -f -p v.img",
    "e2fsck -fy v.img",
    "fsck.ext4 -a v.img",
];

#[test]
fn sound_volumes_are_answered_as_by_the_original() {
    for (name, options) in VOLUMES {
        // debugfs keeps no quota.
        if name == "many features" {
            continue;
        }
        let Some(scene) = Scene::new(options, "12M") else { return };
        eprintln!("{name}");
        for line in CALLS {
            scene.same(line);
            assert_clean(&scene.image());
        }
    }
}

#[test]
fn a_check_that_is_due_is_made_and_recorded() {
    for (fields, codes) in [
        (&["max_mnt_count 5", "mnt_count 3"][..], 0),
        (&["max_mnt_count 5", "mnt_count 4"], 0),
        (&["max_mnt_count 5", "mnt_count 7"], 0),
        (&["checkinterval 86400", "lastcheck 20200101"], 0),
        (&["checkinterval 86400", "lastcheck 20400101"], 0),
        (&["state 3", "error_count 2", "first_error_time 20200101"], 0),
        (&["state 0"], 1),
    ] {
        let Some(scene) = Scene::new("-t ext4 -L label", "12M") else { return };
        for field in fields {
            scene.debugfs(&format!("set_super_value {field}"));
        }
        for line in ["e2fsck -n v.img", "e2fsck -p v.img", "e2fsck -fy v.img"] {
            let answer = scene.same(line);
            assert!(answer.code <= codes, "{fields:?}: {line}: {answer:?}");
            if line.contains("-fy") {
                // The next one has nothing to do.
                let again = scene.ours("e2fsck -p v.img");
                assert!(again.out.starts_with("label: clean, "), "{fields:?}: {line}: {again:?}");
                let shown = scene.original("dumpe2fs -h v.img").out;
                assert!(shown.contains("Filesystem state:         clean\n"), "{shown}");
                assert!(!shown.contains("FS Error count"), "{shown}");
            }
        }
    }
}

#[test]
fn damage_is_left_repaired_or_refused_by_the_option() {
    let Some(scene) = Scene::new("-t ext4 -O ^has_journal", "12M") else { return };
    // A count of links: preen repairs it. A map outside the volume: preen does not.
    scene.debugfs("set_inode_field a links_count 7");
    for (line, code) in [("e2fsck -fn v.img", 4), ("e2fsck -fp v.img", 1), ("e2fsck -fy v.img", 1)]
    {
        scene.reset();
        let original = scene.original(line);
        scene.reset();
        let before = fs::read(scene.image()).unwrap();
        let ours = scene.ours(line);
        assert_eq!((ours.code, original.code), (code, code), "{line}: {ours:?}");
        let last = |text: &str| text.trim_end().lines().last().unwrap_or_default().to_owned();
        assert_eq!(last(&ours.out), last(&original.out), "{line}");
        if code == 1 {
            assert_clean(&scene.image());
        } else {
            assert!(fs::read(scene.image()).unwrap() == before, "{line} changed the volume");
            assert!(ours.out.contains("WARNING: Filesystem still has errors"), "{ours:?}");
        }
    }
    let Some(scene) = Scene::new("-t ext2", "12M") else { return };
    scene.debugfs("set_inode_field a block[2] 0x7fffffff");
    let ours = scene.ours("e2fsck -p -f v.img");
    assert_eq!(ours.code, 4, "{ours:?}");
    assert!(ours.err.contains("v.img: UNEXPECTED INCONSISTENCY; RUN fsck MANUALLY.\n"), "{ours:?}");
    let ours = scene.ours("e2fsck -y -f v.img");
    assert_eq!(ours.code, 1, "{ours:?}");
    assert!(ours.out.contains("\nv.img: ***** FILE SYSTEM WAS MODIFIED *****\n"), "{ours:?}");
    assert_clean(&scene.image());
    let left = fs::read_dir(scene.path()).unwrap().map(|entry| entry.unwrap().file_name());
    assert!(!left.into_iter().any(|name| name.to_string_lossy().contains("repair")));
}

#[test]
fn a_volume_with_an_external_journal_is_repaired() {
    extant_testkit::require!(Root, Loop, E2fsprogs);
    let dir = tempfile::tempdir().unwrap();
    let (volume, journal) = (dir.path().join("v.img"), dir.path().join("j.img"));
    mke2fs(&journal, 16 << 20, "-b 4096 -O journal_dev", None).unwrap();
    let device = LoopDevice::attach(&journal).unwrap();
    let options = format!("-b 4096 -t ext4 -J device={}", device.path().display());
    mke2fs(&volume, 64 << 20, &options, None).unwrap();
    drop(device);
    let ours = |line: &str| {
        let mut command = Command::new(cargo_bin("extant"));
        plain(run(command.arg0("e2fsck"), dir.path(), &split(line)))
    };
    debugfs_write(&volume, "set_inode_field lost+found links_count 7").unwrap();
    let answer = ours("-f -y -j j.img v.img");
    assert_eq!(answer.code, 1, "{answer:?}");
    assert!(answer.out.contains("\nv.img: ***** FILE SYSTEM WAS MODIFIED *****\n"), "{answer:?}");
    e2fsck(&volume, Some(&journal)).expect_clean().unwrap();
    // A log that is older than the volume: its start is set.
    let file = fs::File::options().write(true).open(&journal).unwrap();
    file.write_all_at(&[0, 0, 0, 3], 4096 + 0x1C).unwrap();
    let answer = ours("-f -y -j j.img v.img");
    assert_eq!(answer.code, 1, "{answer:?}");
    assert_eq!(ours("-f -n -j j.img v.img").code, 0);
    e2fsck(&volume, Some(&journal)).expect_clean().unwrap();
}

#[test]
fn an_undo_file_of_the_original_takes_its_change_back() {
    let Some(scene) = Scene::new("-t ext4 -b 1024", "12M") else { return };
    let before = fs::read(scene.image()).unwrap();
    let made = scene.original("tune2fs -z undo -L other v.img");
    assert_eq!(made.code, 0, "{made:?}");
    let after = fs::read(scene.image()).unwrap();
    assert_eq!(scene.ours("e2undo -n undo v.img").code, 0);
    assert!(fs::read(scene.image()).unwrap() == after);
    assert_eq!(scene.ours("e2undo undo v.img").code, 0);
    assert!(fs::read(scene.image()).unwrap() == before);
}

#[test]
fn an_undo_file_takes_a_repair_back() {
    let Some(scene) = Scene::new("-t ext4 -O ^has_journal", "12M") else { return };
    scene.debugfs("set_inode_field a links_count 7");
    let before = fs::read(scene.image()).unwrap();
    assert_eq!(scene.ours("e2fsck -fy -z undo v.img").code, 1);
    assert_clean(&scene.image());
    let repaired = fs::read(scene.image()).unwrap();
    assert_eq!(scene.ours("e2undo -n undo v.img").code, 0);
    assert!(fs::read(scene.image()).unwrap() == repaired);
    for line in ["e2undo none v.img", "e2undo base.img v.img"] {
        let (ours, original) = (scene.ours(line), scene.original(line));
        assert_eq!((ours.code, original.code), (1, 1), "{line}");
        assert_eq!(ours.err.trim(), original.err.trim(), "{line}");
    }
    assert_eq!(scene.ours("e2undo -f undo v.img").code, 1);
    assert_eq!(scene.ours("e2undo undo v.img").code, 0);
    assert!(fs::read(scene.image()).unwrap() == before);
    // The device has other bytes now.
    fs::write(scene.image(), vec![1; before.len()]).unwrap();
    assert_eq!(scene.ours("e2undo undo v.img").code, 1);
}

#[test]
fn a_lost_superblock_is_repaired_on_request_only() {
    let Some(scene) = Scene::new("-t ext4", "12M") else { return };
    let mut image = fs::read(scene.image()).unwrap();
    image[1024..2048].fill(0);
    fs::write(scene.path().join("base.img"), &image).unwrap();
    assert_eq!(scene.same("e2fsck -p v.img").code, 8);
    let ours = scene.ours("e2fsck -y v.img");
    assert_eq!(ours.code, 1, "{ours:?}");
    assert!(ours.out.contains("Superblock invalid, trying backup blocks...\n"), "{ours:?}");
    assert_clean(&scene.image());
    scene.reset();
    assert_eq!(scene.ours("e2fsck -fy -b 8193 v.img").code, 1);
    assert_clean(&scene.image());
}

#[test]
fn wrong_calls_never_look_like_a_repair() {
    let Some(scene) = Scene::new("-t ext4", "12M") else { return };
    for line in [
        "e2fsck v.img",
        "e2fsck -f v.img",
        "e2fsck -n none",
        "e2fsck -p none",
        "e2fsck -n -y v.img",
        "e2fsck -fn -C 99 v.img",
        "e2fsck -p -E journal_only v.img",
    ] {
        scene.same(line);
    }
    assert_eq!(scene.ours("e2fsck -V").code, 0);
    for line in ["e2fsck", "e2fsck a b", "e2fsck -Y v.img"] {
        assert_eq!(scene.ours(line).code, 16, "{line}");
        assert_eq!(scene.original(line).code, 16, "{line}");
    }
    let before = fs::read(scene.image()).unwrap();
    for option in ["-c", "-k", "-l list", "-L list", "-E discard", "-E bmap2extent", "-S"] {
        let answer = scene.ours(&format!("e2fsck -fy {option} v.img"));
        assert_eq!(answer.code, 16, "{option}: {answer:?}");
        assert!(fs::read(scene.image()).unwrap() == before, "{option} changed the volume");
    }
}

#[test]
fn progress_goes_to_the_descriptor_in_lines_of_numbers() {
    let Some(scene) = Scene::new("-t ext4", "12M") else { return };
    let script = "exec \"$0\" -f -p -C 3 v.img 3>numbers";
    let mut command = std::process::Command::new("bash");
    let program = assert_cmd::cargo::cargo_bin("extant");
    let link = scene.path().join("fsck.ext4");
    std::os::unix::fs::symlink(program, &link).unwrap();
    let answer = super::run(&mut command, scene.path(), &["-c", script, link.to_str().unwrap()]);
    assert_eq!(answer.code, 0, "{answer:?}");
    let numbers = fs::read_to_string(scene.path().join("numbers")).unwrap();
    let mut passes = Vec::new();
    for line in numbers.lines() {
        let words: Vec<&str> = line.split(' ').collect();
        let [pass, done, total, "v.img"] = words[..] else { panic!("{line}") };
        let numbers = [pass, done, total].map(|word| word.parse::<u64>().unwrap());
        assert!(numbers[1] <= numbers[2], "{line}");
        passes.push(numbers[0]);
    }
    assert!(passes.is_sorted() && passes.first() == Some(&1) && passes.last() == Some(&5));
}

/// genimage and Yocto end with `e2fsck -pvfD`.
#[test]
fn directories_are_packed() {
    for options in ["-t ext4 -b 1024", "-t ext3 -b 1024", "-t ext2 -b 1024 -O ^dir_index"] {
        let Some(scene) = Scene::new(options, "12M") else { return };
        let mut lines = String::from("cd dir\n");
        (0..200).for_each(|n| lines += &format!("write ../file name_of_some_length_{n}\n"));
        (20..200).for_each(|n| lines += &format!("rm name_of_some_length_{n}\n"));
        fs::write(scene.path().join("file"), "").unwrap();
        fs::write(scene.path().join("lines"), lines.replace("../file", "file")).unwrap();
        scene.original("debugfs -w -f lines base.img");
        scene.reset();
        let answer = |ours: bool, line: &str| match ours {
            true => scene.ours(line),
            false => scene.original(line),
        };
        let blocks = |ours: bool| {
            scene.reset();
            let first = answer(ours, "e2fsck -pvfD v.img");
            assert_eq!(first.code, 0, "{options}: {first:?}");
            assert_clean(&scene.image());
            let again = answer(ours, "e2fsck -fyD v.img");
            assert_eq!(again.code, 0, "{options}: {again:?}");
            assert!(again.out.contains("Pass 3A: Optimizing directories\n"), "{again:?}");
            let names = scene.words_of_original(&["debugfs", "-R", "ls -l dir", "v.img"]).out;
            assert_eq!(names.matches("name_of_some_length_").count(), 20, "{options}");
            let shown = scene.original("dumpe2fs -h v.img").out;
            let free = shown.lines().find(|line| line.starts_with("Free blocks")).unwrap();
            free.split_whitespace().last().unwrap().parse::<u64>().unwrap()
        };
        assert!(blocks(true) >= blocks(false), "{options}: as many blocks become free");
    }
    let Some(scene) = Scene::new("-t ext4", "12M") else { return };
    assert_eq!(scene.same("e2fsck -nD v.img").code, 8);
    assert_eq!(scene.same("e2fsck -pD v.img").code, 0);
}
