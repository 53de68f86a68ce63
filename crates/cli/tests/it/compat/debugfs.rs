//! `debugfs`.

use super::{Scene, VOLUMES};
use crate::common::{assert_clean, pattern};
use std::fs;

#[test]
fn files_are_shown_as_by_the_original() {
    let shown = ["ext4", "ext2 with 4 KiB blocks", "ext3", "bigalloc"];
    for (name, options) in VOLUMES.iter().filter(|(name, _)| shown.contains(name)) {
        let Some(scene) = Scene::new(options, "12M") else { return };
        for request in
            ["mknod pipe p", "mknod device c 1 3", "ea_set a user.k value", "mkdir dir/x"]
        {
            scene.debugfs(request);
        }
        fs::write(scene.path().join("big"), pattern(300_000)).unwrap();
        scene.debugfs("write big big");
        eprintln!("{name}");
        for request in [
            "ls",
            "ls -l",
            "ls -p",
            "ls -l dir",
            "ls none",
            "ls a",
            "stat a",
            "stat big",
            "stat dir",
            "stat link",
            "stat pipe",
            "stat device",
            "stat <2>",
            "stat <7>",
            "stat <11>",
            "stat none",
            "stat <9999999>",
            "stat",
            "cat a",
            "cat none",
            "blocks big",
            "blocks dir",
            "bmap big 70",
            "bmap big 9999",
            "imap a",
            "testi a",
            "testi <300>",
            "testb 20 3",
            "icheck 10 600 2000",
            "ncheck 2 11 12 13 14",
            "ea_list a",
            "ea_get a user.k",
            "ea_get -V a user.k",
            "ea_get a user.none",
            "stats -h",
            "features",
            "pwd",
            "cd none",
            "cd a",
            "rm a",
            "mkdir x",
            "no_such_request",
        ] {
            let answer = scene.same_words(&["debugfs", "-R", request, "v.img"]);
            assert_eq!(answer.code, i32::from(request == "no_such_request"), "{request}");
        }
    }
}

#[test]
fn copies_are_those_of_the_original() {
    let Some(scene) = Scene::new("-t ext4", "12M") else { return };
    fs::write(scene.path().join("big"), pattern(300_000)).unwrap();
    scene.debugfs("write big dir/big");
    scene.debugfs("set_inode_field a mtime 20200102");
    for target in ["first", "second"] {
        fs::create_dir(scene.path().join(target)).unwrap();
    }
    let answer = scene.words_of_ours(&["debugfs", "-R", "rdump / first", "v.img"]);
    assert_eq!(answer.code, 0, "{answer:?}");
    scene.words_of_original(&["debugfs", "-R", "rdump / second", "v.img"]);
    let mut command = std::process::Command::new("diff");
    let same =
        super::run(&mut command, scene.path(), &["-r", "--no-dereference", "first", "second"]);
    assert_eq!((same.code, same.out.as_str()), (0, ""));
    let time =
        |dir: &str| fs::metadata(scene.path().join(dir).join("a")).unwrap().modified().unwrap();
    assert_eq!(time("first"), time("second"));
    let answer = scene.words_of_ours(&["debugfs", "-R", "dump dir/big out", "v.img"]);
    assert_eq!(answer.code, 0, "{answer:?}");
    assert!(fs::read(scene.path().join("out")).unwrap() == pattern(300_000));
}

#[test]
fn changes_answer_as_the_original_and_leave_a_sound_volume() {
    for options in ["-t ext4", "-t ext2", "-t ext4 -O bigalloc"] {
        let Some(scene) = Scene::new(options, "12M") else { return };
        for request in [
            "write file new",
            "write file a",
            "write none x",
            "mkdir new",
            "mkdir dir",
            "rm a",
            "rm none",
            "rm dir",
            "rmdir dir",
            "rmdir a",
            "rmdir none",
            "ln none x",
            "symlink new a",
            "symlink a x",
            "mknod p p",
            "mknod x y",
            "ea_set a user.x y",
            "ea_rm a user.none",
            "set_inode_field a uid 5",
            "set_inode_field a mode 0100600",
            "set_inode_field a nothing 5",
            "sif a mtime 20200101",
            "rm",
            "mkdir",
        ] {
            // Inode numbers are chosen differently.
            let masked = |text: &str| match text.strip_prefix("Allocated inode: ") {
                Some(_) => "Allocated inode\n".to_owned(),
                None => text.to_owned(),
            };
            scene.reset();
            let original = scene.words_of_original(&["debugfs", "-w", "-R", request, "v.img"]);
            scene.reset();
            let ours = scene.words_of_ours(&["debugfs", "-w", "-R", request, "v.img"]);
            assert_eq!(ours.code, original.code, "{request}: {ours:?}");
            assert_eq!(masked(&ours.out), masked(&original.out), "{request}");
            assert_eq!(ours.err, original.err, "{request}");
            assert_clean(&scene.image());
        }
    }
}

#[test]
fn a_file_of_requests_makes_what_it_says() {
    let Some(scene) = Scene::new("-t ext4", "12M") else { return };
    let lines = "mkdir bin\ncd bin\nwrite file \"two words\"\n# rights\n\
                 set_inode_field \"two words\" mode 0100755\nset_inode_field \"two words\" uid 7\n\
                 ln \"two words\" other\nunlink other\nls -p\nquit\nrm /a\n";
    fs::write(scene.path().join("requests"), lines).unwrap();
    let ours = scene.ours("debugfs -w -f requests v.img");
    assert_eq!(ours.code, 0, "{ours:?}");
    assert!(ours.out.contains("/100755/7/0/two words/9000/\n"), "{ours:?}");
    assert!(ours.out.starts_with("debugfs: mkdir bin\ndebugfs: cd bin\n"), "{ours:?}");
    assert_clean(&scene.image());
    let shown = scene.words_of_original(&["debugfs", "-R", "stat \"bin/two words\"", "v.img"]);
    assert!(shown.out.contains("Mode:  0755") && shown.out.contains("User:     7"), "{shown:?}");
    let before = fs::read(scene.image()).unwrap();
    for request in ["clri a", "freei a", "setb 5", "kill_file a", "seti a", "undel a"] {
        let ours = scene.words_of_ours(&["debugfs", "-w", "-R", request, "v.img"]);
        assert_eq!(ours.code, 1, "{request}: {ours:?}");
        assert!(ours.err.contains("debugfs: Command not found "), "{ours:?}");
    }
    assert!(fs::read(scene.image()).unwrap() == before);
}

/// What genimage writes to the standard input of debugfs.
#[test]
fn fields_of_the_superblock_and_the_time_are_set() {
    let requests = "set_current_time 20000101000000\nset_super_value mkfs_time 20000101000000\n\
                    set_super_value lastcheck 20000101000000\nset_super_value mtime 00000000\n\
                    ssv mnt_count 3\nssv max_mnt_count -1\nssv errors 2\nssv volume_name fresh\n\
                    ssv last_mounted /mnt\nssv raid_stride 4\nssv r_blocks_count 17\n\
                    ssv def_resuid 5\nssv checkinterval 86400\nssv foo 1\nssv mnt_count x\nssv\n\
                    set_current_time foo\nset_current_time\nset_current_time @1000\n\
                    mkdir /fresh\n";
    for options in ["-t ext4", "-t ext2"] {
        let Some(scene) = Scene::new(options, "12M") else { return };
        fs::write(scene.path().join("requests"), requests).unwrap();
        scene.same("debugfs -w -f requests v.img");
        assert_clean(&scene.image());
        let ours = scene.original("dumpe2fs -h v.img").out;
        scene.reset();
        scene.original("debugfs -w -f requests v.img");
        let original = scene.original("dumpe2fs -h v.img").out;
        for field in [
            "Filesystem volume name",
            "Last mounted on",
            "Errors behavior",
            "Reserved block",
            "Filesystem created",
            "Last mount time",
            "Last write time",
            "Mount count",
            "Maximum mount count",
            "Last checked",
            "Check interval",
            "RAID stride",
        ] {
            let lines = |text: &str| {
                let found = text.lines().filter(|line| line.starts_with(field));
                found.map(str::to_owned).collect::<Vec<_>>()
            };
            assert_eq!(lines(&ours), lines(&original), "{options}");
        }
        scene.same("debugfs -R ssv v.img");
        let refused = scene.same_words(&["debugfs", "-R", "ssv mtime now", "v.img"]);
        assert!(refused.err.contains("Filesystem opened read/only"), "{refused:?}");
    }
}
