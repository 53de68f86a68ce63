//! `e2image`, beside the original: both copies are volumes that e2fsprogs finds consistent.

use super::Scene;
use crate::common::assert_clean;
use std::fs;

#[test]
fn copies_can_be_checked_and_listed() {
    for options in ["-t ext4", "-t ext2 -b 4096", "-t ext4 -O bigalloc"] {
        let Some(scene) = Scene::new(options, "12M") else { return };
        let listed = |image: &str| scene.words_of_original(&["debugfs", "-R", "ls -l", image]).out;
        for call in ["e2image -r v.img c.img", "e2image -ra v.img c.img"] {
            let original = scene.original(call);
            fs::remove_file(scene.path().join("c.img")).unwrap();
            let ours = scene.ours(call);
            assert_eq!((ours.code, &ours.out, &ours.err), (0, &original.out, &original.err));
            assert_clean(&scene.path().join("c.img"));
            assert_eq!(listed("c.img"), listed("v.img"), "{options}: {call}");
        }
        // With content, every file is whole.
        let cat = |image: &str| scene.words_of_original(&["debugfs", "-R", "cat a", image]).out;
        assert_eq!(cat("c.img"), cat("v.img"));
        // What was there is replaced.
        assert_eq!(scene.ours("e2image -rs v.img c.img").code, 0);
        assert_clean(&scene.path().join("c.img"));
        let names = listed("c.img");
        assert!(names.contains("lost+found") && !names.contains(" dir\n"), "{names}");
        assert_eq!(cat("c.img"), cat("nothing.img"), "no content, and no such name");
    }
}

#[test]
fn calls_are_refused_in_the_words_of_the_original() {
    let Some(scene) = Scene::new("-t ext4", "12M") else { return };
    fs::write(scene.path().join("zeros"), vec![0; 100_000]).unwrap();
    for call in [
        "e2image",
        "e2image -r v.img",
        "e2image -x v.img",
        "e2image -a v.img c.img",
        "e2image -r none c.img",
        "e2image -r zeros c.img",
        "e2image -r v.img nowhere/c.img",
        "e2image -r v.img c.img extra",
    ] {
        let ours = scene.same(call);
        assert_eq!(ours.code, 1, "{call}");
        assert!(!scene.path().join("c.img").exists(), "{call}");
    }
    for call in ["e2image v.img c.img", "e2image -Q v.img c.img", "e2image -r v.img v.img"] {
        let ours = scene.ours(call);
        assert!(ours.code == 1 && !ours.err.is_empty(), "{call}: {ours:?}");
        assert!(!scene.path().join("c.img").exists(), "{call}");
    }
    assert_clean(&scene.image());
}
