//! What is printed about volumes: dumpe2fs, tune2fs -l, e2label.

use super::{Scene, VOLUMES};

#[test]
fn superblocks_and_groups_are_printed_as_by_the_originals() {
    for (name, options) in VOLUMES {
        let Some(scene) = Scene::new(options, "12M") else { return };
        eprintln!("{name}");
        for line in [
            "dumpe2fs -h v.img",
            "dumpe2fs v.img",
            "dumpe2fs -x v.img",
            "dumpe2fs -g v.img",
            "dumpe2fs -b v.img",
            "tune2fs -l v.img",
            "e2label v.img",
        ] {
            assert_eq!(scene.same(line).code, 0, "{name}: {line}");
        }
    }
}

#[test]
fn fields_that_are_seldom_set_are_printed_as_by_the_originals() {
    let Some(scene) = Scene::new("-t ext4 -O metadata_csum_seed", "12M") else { return };
    for field in [
        "error_count 3",
        "first_error_time 20200102",
        "first_error_func function",
        "first_error_line 12",
        "last_error_time 20200103",
        "last_error_ino 12",
        "last_error_block 77",
        "mount_opts abc",
        "last_orphan 12",
        "journal_uuid 11111111-2222-3333-4444-555555555555",
        "journal_dev 0x801",
        "kbytes_written 5000000",
        "flags 7",
        "default_mount_opts 0xfff",
        "checkinterval 90061",
        "def_resuid 1234",
        "def_resgid 5",
        "creator_os 3",
        "errors 7",
        "mtime 20210101",
        "max_mnt_count 5",
        "state 2",
    ] {
        scene.debugfs(&format!("set_super_value {field}"));
    }
    scene.same("dumpe2fs -h v.img");
    scene.same("tune2fs -l v.img");
    for field in ["checkinterval 2592000", "kbytes_written 99999999999", "creator_os 9"] {
        scene.debugfs(&format!("set_super_value {field}"));
        scene.same("dumpe2fs -h v.img");
    }
}

#[test]
fn wrong_calls_and_wrong_volumes_have_the_originals_words() {
    let Some(scene) = Scene::new("-t ext4", "12M") else { return };
    std::fs::write(scene.path().join("zero"), vec![0; 1 << 20]).unwrap();
    std::fs::write(scene.path().join("short"), b"x").unwrap();
    for line in [
        "dumpe2fs",
        "dumpe2fs -V",
        "dumpe2fs -Y v.img",
        "dumpe2fs -h none",
        "dumpe2fs -h zero",
        "dumpe2fs -h short",
        "dumpe2fs -i v.img",
        "dumpe2fs -o x v.img",
        "tune2fs",
        "tune2fs v.img",
        "tune2fs -l",
        "tune2fs -Y v.img",
        "tune2fs -l none",
        "tune2fs -l short",
        "e2label",
        "e2label v.img a b",
        "e2label none",
        "e2label -x",
    ] {
        scene.same(line);
    }
    // A wrong checksum.
    let image = std::fs::read(scene.image()).unwrap();
    let base = scene.path().join("base.img");
    let mut wrong = image.clone();
    wrong[1024 + 120] ^= 1;
    std::fs::write(&base, &wrong).unwrap();
    for line in ["tune2fs -l v.img", "e2label v.img", "tune2fs -L x v.img"] {
        assert_eq!(scene.same(line).code, 1, "{line}");
    }
    // An incompatible feature that no version knows.
    let mut unknown = image;
    unknown[1024 + 99] = 0x40;
    std::fs::write(&base, &unknown).unwrap();
    assert_eq!(scene.same("dumpe2fs -h v.img").code, 67);
}

#[test]
fn an_external_journal_is_printed_as_by_the_originals() {
    let Some(scene) = Scene::new("-t ext4", "12M") else { return };
    let words = ["-q", "-F", "-O", "journal_dev", "-b", "1024", "log", "4M"];
    super::run(&mut std::process::Command::new("mke2fs"), scene.path(), &words);
    for line in ["dumpe2fs log", "dumpe2fs -h log", "tune2fs -l log", "e2label log"] {
        scene.same(line);
    }
}
