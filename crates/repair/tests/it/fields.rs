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
