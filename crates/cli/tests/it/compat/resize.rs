//! `resize2fs`.

use super::Scene;
use crate::common::assert_clean;

#[test]
fn volumes_get_the_sizes_that_the_original_gives_them() {
    for options in ["-t ext4", "-t ext2 -b 4096", "-t ext4 -O ^64bit -b 4096"] {
        let Some(scene) = Scene::new(options, "20M") else { return };
        for line in [
            "resize2fs v.img",
            "resize2fs v.img 30M",
            "resize2fs v.img 31000k",
            "resize2fs v.img 15M",
            "resize2fs v.img x",
            "resize2fs v.img 5x",
            "resize2fs a b c",
            "resize2fs -Y v.img",
            "resize2fs none",
        ] {
            let line = line.replace("-Y", "--");
            if line.contains("a b c") || line.contains("--") {
                // The usage lists only the options that are known here.
                assert_eq!(scene.ours(&line).code, scene.original(&line).code, "{line}");
                continue;
            }
            if scene.same(&line).code == 0 {
                assert_clean(&scene.image());
            }
        }
    }
}

#[test]
fn the_smallest_size_is_printed_and_reached() {
    let Some(scene) = Scene::new("-t ext4 -b 4096", "60M") else { return };
    let answer = scene.ours("resize2fs -P v.img");
    let least = answer.out.strip_prefix("Estimated minimum size of the filesystem: ").unwrap();
    let least: u64 = least.trim_end().parse().unwrap();
    let answer = scene.ours(&format!("resize2fs v.img {least}"));
    assert_eq!(answer.code, 0, "{answer:?}");
    assert!(answer.out.ends_with(&format!("is now {least} (4k) blocks long.\n\n")), "{answer:?}");
    assert_clean(&scene.image());
    scene.reset();
    let answer = scene.ours("resize2fs -M v.img");
    assert_eq!(answer.code, 0, "{answer:?}");
    assert!(answer.out.starts_with("Resizing the filesystem on v.img to "), "{answer:?}");
    assert_clean(&scene.image());
    let answer = scene.ours("resize2fs v.img 100");
    assert_eq!(answer.code, 1);
    assert!(answer.err.contains("New size smaller than minimum ("), "{answer:?}");
}

#[test]
fn a_volume_that_was_mounted_since_its_last_check_is_refused() {
    let Some(scene) = Scene::new("-t ext4", "20M") else { return };
    scene.debugfs("set_super_value mtime 20400101");
    assert_eq!(scene.same("resize2fs v.img 30M").code, 1);
    assert_eq!(scene.same("resize2fs -f v.img 30M").code, 0);
    assert_eq!(scene.ours("resize2fs -P v.img").code, 0);
    assert_clean(&scene.image());
}
