//! The calls that other programs make, in their order.
//!
//! ```text
//!   boot scripts   initramfs-tools, dracut, systemd-fsck: fsck -a, fsck.ext4 -a -C FD
//!   GParted        dumpe2fs -h, resize2fs -P, e2fsck -f -y -v -C 0, resize2fs -p, tune2fs, e2label
//!   libguestfs     e2fsck -p -f, tune2fs -l and its settings, resize2fs -f and -M, e2label
//! ```

use super::Scene;
use crate::common::assert_clean;

const BOOT: [&str; 4] =
    ["fsck.ext4 -a v.img", "e2fsck -a v.img", "e2fsck -y v.img", "fsck.ext4 -a -f v.img"];

const GPARTED: [&str; 10] = [
    "dumpe2fs -h v.img",
    "resize2fs -P v.img",
    "e2fsck -f -y -v -C 0 v.img",
    "resize2fs -p v.img 16000K",
    "e2fsck -f -y -v -C 0 v.img",
    "resize2fs -p v.img",
    "tune2fs -U random v.img",
    "e2label v.img label",
    "tune2fs -l v.img",
    "resize2fs -p v.img 40M",
];

const LIBGUESTFS: [&str; 13] = [
    "e2fsck -p -f v.img",
    "tune2fs -l v.img",
    "tune2fs -L label v.img",
    "tune2fs -U clear v.img",
    "tune2fs -f -c 30 -i 10s -m 1 -u 0 -g 0 -e continue v.img",
    "tune2fs -C 0 -r 10 -M /mnt v.img",
    "tune2fs -O dir_index v.img",
    "e2fsck -f -y v.img",
    "resize2fs -f v.img 20000K",
    "e2fsck -p -f v.img",
    "resize2fs -M v.img",
    "e2fsck -p -f v.img",
    "resize2fs v.img 30M",
];

#[test]
fn the_calls_of_other_programs_end_as_with_the_originals() {
    for calls in [&BOOT[..], &GPARTED, &LIBGUESTFS] {
        let Some(scene) = Scene::new("-t ext4", "20M") else { return };
        let original: Vec<i32> = calls.iter().map(|line| scene.original(line).code).collect();
        scene.reset();
        for (line, code) in calls.iter().zip(original) {
            let ours = scene.ours(line);
            assert_eq!(ours.code, code, "{line}: {ours:?}");
            assert_clean(&scene.image());
        }
        // The originals go on where this program ended.
        assert_eq!(scene.original("e2fsck -f -p v.img").code, 0);
        assert_eq!(scene.original("tune2fs -l v.img").code, 0);
    }
}
