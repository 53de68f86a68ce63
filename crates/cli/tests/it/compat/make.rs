//! `mke2fs` and its other names, beside the original: the same lines, status and superblock.

use super::{Answer, Scene, split};
use crate::common::{assert_clean, pattern};

use std::fs;
use std::os::unix::fs::{PermissionsExt, symlink};

/// Calls that make a volume. Both programs start without `n.img`.
const MADE: [&str; 33] = [
    "mke2fs n.img 8M",
    "mke2fs -j n.img 20M",
    "mkfs.ext2 n.img 10000",
    "mkfs.ext3 n.img 40M",
    "mkfs.ext4 n.img 600M",
    "mkfs.ext4 -q n.img 600000",
    "mkfs.ext4 -b 1024 n.img 8193",
    "mke2fs -b -2048 n.img 20M",
    "mkfs.ext4 -v -m 0 -N 5000 -g 8192 -G 4 n.img 60M",
    "mkfs.ext4 -n e.img",
    "mke2fs -t ext4 n.img 1800",
    "mkfs.ext4 -J size=8 -O fast_commit,orphan_file n.img 40M",
    "mkfs.ext4 -O quota -E quotatype=prjquota n.img 40M",
    "mkfs.ext4 -O casefold -E encoding_flags=strict,test_fs n.img 40M",
    "mkfs.ext4 -O sparse_super2,^resize_inode -E num_backup_sb=1 -b 1024 n.img 60M",
    "mkfs.ext4 -O meta_bg,^resize_inode,uninit_bg n.img 40M",
    "mkfs.ext4 -O ^extent,^64bit n.img 40M",
    "mkfs.ext4 -O none -U clear n.img 40M",
    "mkfs.ext4 -I 128 -i 65536 n.img 40M",
    "mkfs.ext4 -T largefile4 n.img 40M",
    "mkfs.ext4 -T nothing n.img 40M",
    "mkfs.ext4 -e panic -m 2.5 -M /mnt -L label -E resize=100000,root_owner=1:2 n.img 40M",
    "mkfs.ext4 -b 4096 -g 8192 -E packed_meta_blocks=1 n.img 200M",
    "mkfs.ext3 -O ^has_journal n.img 20M",
    "mke2fs -E stride=4 -E stripe_width=16 n.img 20M",
    // systemd-repart, genimage, Yocto, Buildroot, Kubernetes, Android
    "mkfs.ext4 -q -L root -U 11111111-2222-3333-4444-555555555555 -I 256 -m 0 -b 4096 -T default \
     -E nodiscard,lazy_itable_init=1 -O verity n.img 40M",
    "mke2fs -t ext4 -T default -I 256 -E root_owner=0:0,lazy_itable_init=0,lazy_journal_init=0 \
     -O ^large_file -O ^huge_file -L x n.img 20000k",
    "mkfs.ext4 -F -i 4096 e.img",
    "mkfs.ext4 -r 1 -N 2000 -m 5 -L x -I 256 -O ^64bit n.img 60M",
    "mkfs.ext4 -F -m0 e.img",
    "mke2fs -t ext4 -b 4096 -L system -M / -m 0 -O ^has_journal \
     -U 11111111-2222-3333-4444-555555555555 -E hash_seed=11111111-2222-3333-4444-555555555555 \
     n.img 5000",
    // Apptainer looks for "[-d " in this one's errors.
    "mkfs.ext4 --help",
    "mke2fs -V",
];

/// Calls that are refused.
const REFUSED: [&str; 34] = [
    "mke2fs",
    "mke2fs n.img",
    "mke2fs n.img 1 2",
    "mke2fs n.img 100X",
    "mke2fs nowhere/n.img 8M",
    "mke2fs empty",
    "mke2fs -n n.img 8M",
    "mke2fs -t foo n.img 8M",
    "mke2fs -t ext4 -t ext3 n.img 8M",
    "mke2fs -b 1000 n.img 8M",
    "mke2fs -C 100 n.img 8M",
    "mke2fs -C 4096 n.img 8M",
    "mke2fs -e foo n.img 8M",
    "mke2fs -E foo,stride=4 n.img 8M",
    "mke2fs -E stride=x n.img 8M",
    "mke2fs -E resize=100 n.img 8M",
    "mke2fs -E root_owner=x n.img 8M",
    "mke2fs -O quota -E quotatype=foo n.img 8M",
    "mke2fs -g 100 n.img 8M",
    "mke2fs -G 3 n.img 8M",
    "mke2fs -i 10 n.img 8M",
    "mke2fs -I 100 n.img 8M",
    "mke2fs -J foo n.img 8M",
    "mkfs.ext4 -J size=15 n.img 20M",
    "mkfs.ext4 -J size=20000 n.img 20M",
    "mke2fs -m 60 n.img 8M",
    "mke2fs -N 99999999 n.img 8M",
    "mke2fs -o foo n.img 8M",
    "mke2fs -O foo n.img 8M",
    "mke2fs -r 3 n.img 8M",
    "mke2fs -U foo n.img 8M",
    "mkfs.ext4 -O meta_bg n.img 8M",
    "mkfs.ext4 -O ^extent n.img 8M",
    "mkfs.ext4 -F n.img 10",
];

/// An answer as a terminal shows it, without what differs between any two volumes.
fn shown(answer: Answer) -> Answer {
    let text = |text: String| {
        let lines = text.lines().map(|line| {
            let mut shown: Vec<char> = Vec::new();
            let mut at = 0;
            for letter in line.chars() {
                match letter {
                    '\u{8}' => at -= 1,
                    letter => {
                        shown.resize(shown.len().max(at + 1), ' ');
                        shown[at] = letter;
                        at += 1;
                    }
                }
            }
            let words: Vec<String> =
                String::from_iter(shown).split_whitespace().map(str::to_owned).collect();
            // The original says that it discards; a file that holds nothing needs none.
            let line = words.join(" ");
            match line.strip_prefix("Discarding device blocks: done") {
                Some(rest) => rest.to_owned(),
                None if line.starts_with("Filesystem UUID: ") => "Filesystem UUID".to_owned(),
                None => line,
            }
        });
        lines.filter(|line| !line.is_empty()).collect::<Vec<_>>().join("\n")
    };
    Answer { code: answer.code, out: text(answer.out), err: text(answer.err) }
}

/// The lines of `dumpe2fs -h` without times, random numbers, and what is free.
fn superblock(scene: &Scene, image: &str) -> Vec<String> {
    let differs = [
        "Filesystem UUID",
        "Filesystem created",
        "Last write time",
        "Last checked",
        "Lifetime writes",
        "Directory Hash Seed",
        "Checksum",
        "Journal checksum",
        "Overhead clusters",
        "Free ",
    ];
    let text = scene.original(&format!("dumpe2fs -h {image}")).out;
    let kept = |line: &&str| !differs.iter().any(|start| line.starts_with(start));
    text.lines().filter(kept).map(str::to_owned).collect()
}

fn image_of(line: &str) -> &str {
    if line.contains("e.img") { "e.img" } else { "n.img" }
}

/// Runs both programs. Returns their answers and superblocks.
fn both(scene: &Scene, line: &str) -> [(Answer, Vec<String>); 2] {
    let words: Vec<&str> = split(line).into_iter().filter(|word| !word.is_empty()).collect();
    [true, false].map(|original| {
        let _ = fs::remove_file(scene.path().join("n.img"));
        let file = fs::File::create(scene.path().join("e.img")).unwrap();
        file.set_len(40 << 20).unwrap();
        fs::write(scene.path().join("empty"), "").unwrap();
        let answer = match original {
            true => scene.words_of_original(&words),
            false => scene.words_of_ours(&words),
        };
        let image = image_of(line);
        let made = answer.code == 0 && answer.out.contains("Writing") || line.contains(" -q");
        let has = made && !line.contains("-n ");
        let superblock = if has { superblock(scene, image) } else { Vec::new() };
        if has && !original {
            assert_clean(&scene.path().join(image));
        }
        (shown(answer), superblock)
    })
}

#[test]
fn volumes_are_those_of_the_original() {
    let Some(scene) = Scene::new("-t ext4", "12M") else { return };
    for line in MADE {
        let [(original, wanted), (ours, have)] = both(&scene, line);
        assert_eq!(ours, original, "{line}");
        assert_eq!(have, wanted, "{line}");
    }
}

#[test]
fn calls_are_refused_in_the_words_of_the_original() {
    let Some(scene) = Scene::new("-t ext4", "12M") else { return };
    for line in REFUSED {
        let [(original, _), (ours, _)] = both(&scene, line);
        assert_eq!(original.code, 1, "{line}: {original:?}");
        assert_eq!((ours.code, ours.err), (1, original.err), "{line}");
        assert!(!scene.path().join("n.img").exists(), "{line}: nothing is left behind");
    }
    // What only the original does.
    for line in [
        "mke2fs -c n.img 8M",
        "mke2fs -l list n.img 8M",
        "mke2fs -S n.img 8M",
        "mke2fs -z undo n.img 8M",
        "mke2fs -r 0 n.img 8M",
        "mke2fs -O journal_dev n.img 8M",
        "mke2fs -J device=/dev/x n.img 8M",
        "mke2fs -O data_csum n.img 8M",
        "mke2fs -o hurd n.img 8M",
    ] {
        let ours = scene.ours(line);
        assert_eq!(ours.code, 1, "{line}: {ours:?}");
        assert!(!ours.err.is_empty() && !scene.path().join("n.img").exists(), "{line}: {ours:?}");
    }
}

/// A directory with one of each kind that a test can make without root.
fn source(scene: &Scene) {
    let dir = scene.path().join("src");
    fs::create_dir_all(dir.join("sub/deep")).unwrap();
    fs::write(dir.join("file"), pattern(70_000)).unwrap();
    fs::write(dir.join("sub/empty"), "").unwrap();
    fs::hard_link(dir.join("file"), dir.join("sub/hard")).unwrap();
    symlink("file", dir.join("link")).unwrap();
    symlink("x".repeat(100), dir.join("long")).unwrap();
    let holes = fs::File::create(dir.join("holes")).unwrap();
    holes.set_len(1 << 20).unwrap();
    fs::set_permissions(dir.join("file"), fs::Permissions::from_mode(0o4751)).unwrap();
    fs::set_permissions(&dir, fs::Permissions::from_mode(0o700)).unwrap();
}

/// The entries of directories of `n.img`: all but the numbers of inodes.
fn listing(scene: &Scene) -> Vec<String> {
    let mut lines = Vec::new();
    for dir in ["/", "/sub", "/sub/deep"] {
        for line in scene
            .words_of_original(&["debugfs", "-R", &format!("ls -l {dir}"), "n.img"])
            .out
            .lines()
        {
            let words: Vec<&str> = line.split_whitespace().skip(1).collect();
            // The times of "." and ".." in the root are those of the call.
            let words = if dir == "/" && line.ends_with('.') { &words[..4] } else { &words[..] };
            lines.push(format!("{dir} {}", words.join(" ")));
        }
    }
    lines.sort();
    lines
}

#[test]
fn a_directory_or_a_tar_fills_the_volume() {
    let Some(scene) = Scene::new("-t ext4", "12M") else { return };
    source(&scene);
    for line in [
        "mkfs.ext4 -d src n.img 20M",
        "mke2fs -t ext4 -T default -E root_owner=3:4 -d src -L x n.img 20000k",
        "mkfs.ext2 -b 1024 -d src n.img 10M",
        // Firecracker, Yocto: the file has its size already.
        "mkfs.ext4 -d src -F e.img",
    ] {
        let [(original, wanted), (ours, have)] = both(&scene, line);
        assert_eq!((&ours, &have), (&original, &wanted), "{line}");
        if image_of(line) == "e.img" {
            fs::rename(scene.path().join("e.img"), scene.path().join("n.img")).unwrap();
        }
        let found = listing(&scene);
        let _ = fs::remove_file(scene.path().join("n.img"));
        scene.original(&line.replace("e.img", "n.img 40M"));
        assert_eq!(found, listing(&scene), "{line}");
    }
    assert_eq!(
        super::run(
            &mut std::process::Command::new("tar"),
            scene.path(),
            &["-C", "src", "-cf", "t.tar", "."]
        )
        .code,
        0
    );
    let ours = scene.ours("mkfs.ext4 -q -F -d t.tar n.img 20M");
    assert_eq!((ours.code, ours.err.as_str()), (0, ""), "{ours:?}");
    assert_clean(&scene.path().join("n.img"));
    let cat = scene.words_of_original(&["debugfs", "-R", "stat /sub/hard", "n.img"]).out;
    assert!(cat.contains("Mode:  04751") && cat.contains("Links: 2"), "{cat}");
}

#[test]
fn a_source_that_does_not_fit_leaves_no_new_file() {
    let Some(scene) = Scene::new("-t ext4", "12M") else { return };
    source(&scene);
    fs::write(scene.path().join("src/big"), pattern(3 << 20)).unwrap();
    let ours = scene.ours("mkfs.ext4 -d src n.img 2100k");
    assert_eq!(ours.code, 1);
    let wanted = "mkfs.ext4: Could not allocate block in ext2 filesystem while populating file \
                  system\n";
    assert!(ours.err.ends_with(wanted), "{ours:?}");
    assert!(!scene.path().join("n.img").exists());
    let ours = scene.ours("mkfs.ext4 -d nothing n.img 8M");
    assert!(ours.err.ends_with("No such file or directory while populating file system\n"));
}

#[test]
fn the_configuration_and_the_time_come_from_the_environment() {
    let Some(scene) = Scene::new("-t ext4", "12M") else { return };
    let config = "[defaults]\n blocksize = 2048\n[fs_types]\n ext4 = {\n\
                  features = has_journal,extent\n inode_size = 512\n options = stride=8\n }\n\
                  small = {\n inode_ratio = 8192\n }\n";
    fs::write(scene.path().join("conf"), config).unwrap();
    let call = |program: &mut std::process::Command| {
        let _ = fs::remove_file(scene.path().join("n.img"));
        program.env("MKE2FS_CONFIG", "conf").env("E2FSPROGS_FAKE_TIME", "1000000");
        let answer = super::run(program, scene.path(), &["-t", "ext4", "n.img", "20M"]);
        assert_eq!(answer.code, 0, "{answer:?}");
        let lines = scene.original("dumpe2fs -h n.img").out;
        let time = lines.lines().find(|line| line.starts_with("Filesystem created")).unwrap();
        (superblock(&scene, "n.img"), time.to_owned())
    };
    let original = call(&mut std::process::Command::new("mke2fs"));
    let mut ours = std::process::Command::new(assert_cmd::cargo::cargo_bin("extant"));
    std::os::unix::process::CommandExt::arg0(&mut ours, "mke2fs");
    assert_eq!(call(&mut ours), original);
    fs::write(scene.path().join("conf"), "x\n").unwrap();
    ours.env("MKE2FS_CONFIG", "conf");
    let answer = super::run(&mut ours, scene.path(), &[]);
    assert_eq!(answer.code, 1);
    assert!(
        answer.err.contains("Syntax error in mke2fs config file (conf, line #1)"),
        "{answer:?}"
    );
}

/// Under fakeroot this program would see the real owners.
#[test]
fn owners_that_fakeroot_invents_are_not_replaced_by_the_real_ones() {
    let Some(scene) = Scene::new("-t ext4", "12M") else { return };
    source(&scene);
    let mut ours = std::process::Command::new(assert_cmd::cargo::cargo_bin("extant"));
    std::os::unix::process::CommandExt::arg0(&mut ours, "mke2fs").env("FAKEROOTKEY", "1");
    let answer = super::run(&mut ours, scene.path(), &["-d", "src", "n.img", "8M"]);
    assert!(answer.code == 1 && answer.err.contains("FAKEROOTKEY"), "{answer:?}");
    assert!(!scene.path().join("n.img").exists());
}
