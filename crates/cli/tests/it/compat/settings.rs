//! What changes settings: tune2fs, e2label.

use super::Scene;
use crate::common::assert_clean;

#[test]
fn settings_change_as_by_the_original() {
    let Some(scene) = Scene::new("-t ext4", "12M") else { return };
    let line = "tune2fs -c 7 -C 2 -e panic -g 3 -i 1d -m 2.5 -L name -M /bar -o ^acl -u 3 \
                -T 20200101 -E stride=4,stripe_width=8,hash_alg=tea,mount_opts=ro v.img";
    let line = line.split_whitespace().collect::<Vec<_>>().join(" ");
    scene.same(&line);
    assert_clean(&scene.image());
    scene.reset();
    let listed = |who: fn(&Scene, &str) -> super::Answer| {
        scene.reset();
        who(&scene, &line);
        let text = scene.original("dumpe2fs -h v.img").out;
        let differs = ["Last write time", "Lifetime writes", "Checksum:", "Journal sequence"];
        let kept = text.lines().filter(|line| !differs.iter().any(|key| line.starts_with(key)));
        kept.map(|line| line.to_owned() + "\n").collect::<String>()
    };
    assert_eq!(listed(Scene::ours), listed(Scene::original));
}

#[test]
fn each_setting_answers_as_the_original() {
    let Some(scene) = Scene::new("-t ext4", "12M") else { return };
    for line in [
        "tune2fs -L name v.img",
        "tune2fs -L 12345678901234567890 v.img",
        "e2label v.img name",
        "e2label v.img 12345678901234567890",
        "tune2fs -c 30 v.img",
        "tune2fs -c -1 v.img",
        "tune2fs -c 3x v.img",
        "tune2fs -C 70000 v.img",
        "tune2fs -i 2w v.img",
        "tune2fs -i 30s v.img",
        "tune2fs -i 2y v.img",
        "tune2fs -m 1 v.img",
        "tune2fs -m 60 v.img",
        "tune2fs -r 10 v.img",
        "tune2fs -r 1000000 v.img",
        "tune2fs -e remount-ro v.img",
        "tune2fs -e none v.img",
        "tune2fs -U clear v.img",
        "tune2fs -U none v.img",
        "tune2fs -O quota v.img",
        "tune2fs -O no_such_feature v.img",
        "tune2fs -o acl,^user_xattr v.img",
        "tune2fs -o none v.img",
        "tune2fs -u 5 v.img",
        "tune2fs -u no-such-user v.img",
        "tune2fs -g no-such-group v.img",
        "tune2fs -T none v.img",
        "tune2fs -j v.img",
        "tune2fs -E clear_mmp v.img",
        "tune2fs -l -L x none",
    ] {
        let answer = scene.same(line);
        if answer.code == 0 {
            assert_clean(&scene.image());
        }
    }
}

#[test]
fn a_journal_is_added_and_removed_as_by_the_original() {
    let Some(scene) = Scene::new("-t ext2 -L old", "12M") else { return };
    for line in ["tune2fs -j v.img", "tune2fs -J size=2 v.img", "tune2fs -O has_journal v.img"] {
        scene.same(line);
        assert_clean(&scene.image());
        assert_eq!(scene.ours("tune2fs -O ^has_journal v.img").code, 0);
        assert_clean(&scene.image());
    }
}

#[test]
fn what_is_lacking_is_refused_and_changes_nothing() {
    let Some(scene) = Scene::new("-t ext4", "12M") else { return };
    let before = std::fs::read(scene.image()).unwrap();
    for line in [
        "tune2fs -I 512 v.img",
        "tune2fs -Q usrquota v.img",
        "tune2fs -z undo -L x v.img",
        "tune2fs -s 1 v.img",
        "tune2fs -O bigalloc v.img",
        "tune2fs -O ^extent v.img",
        "tune2fs -E force_fsck v.img",
    ] {
        let answer = scene.ours(line);
        assert_eq!(answer.code, 1, "{line}: {answer:?}");
        assert!(!answer.err.is_empty(), "{line}");
        assert!(std::fs::read(scene.image()).unwrap() == before, "{line} changed the volume");
    }
    let answer = scene.ours("tune2fs -O bigalloc v.img");
    assert!(answer.err.starts_with("Setting filesystem feature 'bigalloc' not supported.\n"));
}
