//! A damaged volume under a mount: the caller that meets the damage gets an error, everything else
//! works, the server continues.

use extant_mount_tests::raw::{handle_of, open_handle};
use extant_testkit::e2fsprogs::{debugfs, debugfs_write, dumpe2fs, e2fsck, mke2fs};
use extant_testkit::fuse_mount::FuseMount;
use extant_testkit::require;
use extant_testkit::scratch::Scratch;
use rustix::io::Errno;
use std::fs;
use std::os::unix::fs::FileExt;

const BLOCK: u64 = 4096;

#[test]
fn damage_is_an_error_of_the_operation_that_meets_it_and_recorded() {
    require!(Root, Fuse, E2fsprogs);
    let scratch = Scratch::new();
    let (image, tree) = (scratch.file("volume.img"), scratch.file("tree"));
    for dir in ["good", "broken"] {
        fs::create_dir_all(tree.join(dir)).unwrap();
        for n in 0..40 {
            fs::write(tree.join(dir).join(format!("file{n}")), format!("{dir} {n}")).unwrap();
        }
    }
    fs::write(tree.join("unmapped"), vec![1; 3 * BLOCK as usize]).unwrap();
    fs::write(tree.join("nothing"), b"of any kind").unwrap();
    mke2fs(&image, 32 << 20, "-t ext4 -b 4096", Some(&tree)).unwrap();
    // The names of a directory, the head of a map, the type of an inode.
    let block: u64 = debugfs(&image, "blocks /broken").unwrap().trim().parse().unwrap();
    let file = fs::OpenOptions::new().write(true).open(&image).unwrap();
    file.write_all_at(&[0xA5; 512], block * BLOCK).unwrap();
    drop(file);
    debugfs_write(&image, "set_inode_field /unmapped block[0] 0xFFFF").unwrap();
    debugfs_write(&image, "set_inode_field /nothing mode 0170644").unwrap();

    let mount = FuseMount::new(&image, "").unwrap();
    let at = |name: &str| mount.path().join(name);
    let damaged = |error: Option<std::io::Error>, what: &str| {
        let errno = error.and_then(|error| Errno::from_io_error(&error));
        assert!(matches!(errno, Some(Errno::UCLEAN | Errno::IO)), "{what}: {errno:?}");
    };
    damaged(fs::read(at("unmapped")).err(), "a map");
    damaged(fs::metadata(at("nothing")).err(), "an inode");
    damaged(fs::read_dir(at("broken")).unwrap().find_map(Result::err), "a directory");
    damaged(fs::write(at("broken/new"), b"").err(), "a new name in it");
    for n in 0..40 {
        let content = fs::read_to_string(at(&format!("good/file{n}"))).unwrap();
        assert_eq!(content, format!("good {n}"));
    }
    fs::write(at("good/new"), b"still writable").unwrap();
    assert_eq!(fs::read(at("good/new")).unwrap(), b"still writable");
    let log = mount.log();
    for what in ["corrupt", "extent", "block"] {
        assert!(log.contains(what), "{what} is not noted: {log}");
    }
    assert!(mount.pid().is_some_and(|pid| fs::exists(format!("/proc/{pid}")).unwrap()));
    // It ends like any mount, but has printed something.
    let said = mount.unmount().unwrap_err();
    assert!(said.contains("exit status: 0") && said.contains("corrupt"), "{said}");
}

/// Handles that a network file server kept, or invented ones: the volume stays consistent whatever
/// they name.
#[test]
fn a_handle_without_a_file_is_stale_and_no_damage() {
    require!(Root, Fuse, E2fsprogs);
    let scratch = Scratch::new();
    let image = scratch.file("volume.img");
    mke2fs(&image, 32 << 20, "-t ext4 -b 4096 -e remount-ro", None).unwrap();
    let mount = FuseMount::new(&image, "").unwrap();
    fs::write(mount.path().join("kept"), b"kept").unwrap();
    fs::write(mount.path().join("gone"), b"gone").unwrap();
    let kept = handle_of(&mount.path().join("kept")).unwrap();
    let gone = handle_of(&mount.path().join("gone")).unwrap();
    fs::remove_file(mount.path().join("gone")).unwrap();
    let root = fs::File::open(mount.path()).unwrap();
    assert!(open_handle(&root, &kept).is_ok());
    let made_up = [0, 2, 5, 8, 10, 4000, 8192, 8193, 100_000, u64::from(u32::MAX)];
    for ino in made_up {
        let handle = kept.with_node(ino);
        // The root exists, with another generation.
        assert_eq!(open_handle(&root, &handle).err(), Some(Errno::STALE), "inode {ino}");
    }
    assert_eq!(open_handle(&root, &gone).err(), Some(Errno::STALE));
    let far = kept.with_node(1 << 32 | kept.node());
    assert_eq!(open_handle(&root, &far).err(), Some(Errno::STALE));
    drop(root);
    fs::write(mount.path().join("later"), b"the volume is still writable").unwrap();
    mount.unmount().unwrap();
    e2fsck(&image, None).expect_clean().unwrap();
    assert!(!dumpe2fs(&image).unwrap().contains("FS Error count"));
}
