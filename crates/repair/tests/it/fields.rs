//! Single fields that contradict what the volume has.

use crate::repairs::repair;
use extant_repair::Class;
use extant_testkit::e2fsprogs::{debugfs_write, dumpe2fs_superblock, mke2fs};
use extant_testkit::require;
use extant_testkit::scratch::Scratch;

#[test]
fn a_journal_of_two_gib_needs_the_feature_of_large_files() {
    require!(E2fsprogs);
    let scratch = Scratch::new();
    let img = scratch.file("img");
    let options = "-t ext4 -J size=2100 -E lazy_journal_init=1,lazy_itable_init=1";
    mke2fs(&img, 8 << 30, options, None).unwrap();
    debugfs_write(&img, "feature -large_file").unwrap();
    assert!(!dumpe2fs_superblock(&img).unwrap().contains("large_file"));
    let report = repair(&img).unwrap();
    assert_eq!(report.counts().collect::<Vec<_>>(), [(Class::Superblock, 1)]);
    assert!(dumpe2fs_superblock(&img).unwrap().contains("large_file"));
}

#[test]
fn a_symlink_that_is_cut_is_a_loss() {
    require!(E2fsprogs);
    let scratch = Scratch::new();
    let long = "d/".repeat(50);
    // The target is in the inode, or in a block.
    for (target, request) in [("abcdef/ghijk", "block[1] 0x67006665"), (&long, "size 120")] {
        let img = scratch.file("img");
        mke2fs(&img, 8 << 20, "-t ext4", None).unwrap();
        debugfs_write(&img, &format!("symlink link {target}")).unwrap();
        debugfs_write(&img, &format!("set_inode_field link {request}")).unwrap();
        let report = repair(&img).unwrap();
        assert!(report.counts().any(|one| one == (Class::TargetCut, 1)), "{target}: {report:?}");
        assert!(Class::TargetCut.is_loss() && !report.is_safe());
        assert!(report.files().any(|(_, file)| file.state() == "partly lost"), "{report:?}");
    }
}
