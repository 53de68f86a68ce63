//! `extant build`, checked by `e2fsck -fn`.

use crate::common::{assert_clean, built, extant, fail, run, source_tree, succeed};
use extant_testkit::loop_mount::LoopDevice;
use extant_testkit::require;
use std::fs;
use std::process::Stdio;

#[test]
fn two_builds_are_the_same_whatever_the_threads() {
    let dir = built();
    let path = dir.path();
    let args = ["build", "src", "-o", "b.img", "--free", "1M", "--owner", "7:8", "--threads", "1"];
    let said = succeed(path, &args);
    assert!(said.starts_with("b.img: ") && said.contains("UUID "), "{said}");
    let read = |name: &str| fs::read(path.join(name)).unwrap();
    assert!(read("a.img") == read("b.img"), "the two differ");
    assert_clean(&path.join("a.img"));
    succeed(path, &["check", "a.img"]);
    succeed(path, &["build", "src", "-o", "c.img", "--random", "-q"]);
    succeed(path, &["build", "src", "-o", "d.img", "--random", "-q"]);
    assert!(read("c.img") != read("d.img"), "chance gave the same");
}

#[test]
fn options_reach_the_volume() {
    let dir = tempfile::tempdir().unwrap();
    source_tree(&dir);
    let path = dir.path();
    fs::write(path.join("rules"), "/etc/script 3 4 4711\n").unwrap();
    fs::write(path.join("names"), "/sparse\n# a remark\n").unwrap();
    let id = "3f2b91c4-58a0-4d7c-9a1e-6c0d5e8f7a21";
    let args = [
        "build",
        "src",
        "-o",
        "a.img",
        "--size",
        "32M",
        "-b",
        "1k",
        "-L",
        "label",
        "-U",
        id,
        "-O",
        "^has_journal",
        "-I",
        "512",
        "-N",
        "4096",
        "--owner",
        "1:2",
        "--mode",
        "F0640",
        "--ownership",
        "rules",
        "--exclude",
        "big",
        "--exclude-from",
        "names",
        "--source-date-epoch",
        "1000000000",
        "--json",
    ];
    let built: serde_json::Value = serde_json::from_str(&succeed(path, &args)).unwrap();
    assert_eq!((&built["uuid"], &built["bytes"]), (&id.into(), &(32 << 20).into()));
    assert_clean(&path.join("a.img"));
    let info: serde_json::Value =
        serde_json::from_str(&succeed(path, &["info", "--json", "a.img"])).unwrap();
    let expected: [(&str, serde_json::Value); 3] =
        [("label", "label".into()), ("block_bytes", 1024.into()), ("inode_bytes", 512.into())];
    for (field, value) in expected {
        assert_eq!(info[field], value, "{field}");
    }
    assert_eq!(info["created"], 1_000_000_000);
    assert!(info["inodes"].as_u64().unwrap() >= 4096);
    assert_eq!(info["journal"]["place"], "none");
    let names = succeed(path, &["ls", "a.img"]);
    assert!(!names.contains("big") && !names.contains("sparse"), "{names}");
    let stat = |name: &str| -> serde_json::Value {
        serde_json::from_str(&succeed(path, &["stat", "--json", "a.img", name])).unwrap()
    };
    let (script, hostname) = (stat("/etc/script"), stat("/etc/hostname"));
    assert_eq!((&script["uid"], &script["mode"]), (&3.into(), &"4711".into()));
    assert_eq!((&hostname["uid"], &hostname["mode"]), (&1.into(), &"0640".into()));
    assert_eq!(hostname["mtime"]["sec"], 1_000_000_000);
}

#[test]
fn a_size_too_small_fails_before_writing_and_says_what_is_needed() {
    let dir = tempfile::tempdir().unwrap();
    source_tree(&dir);
    let line = fail(dir.path(), 1, &["build", "src", "-o", "a.img", "--size", "256k"]);
    assert!(line.contains("needs") && line.contains("--size auto"), "{line}");
    let need = line.split_whitespace().find_map(|word| word.parse::<u64>().ok()).unwrap();
    assert_eq!(fs::read_dir(dir.path()).unwrap().count(), 1);
    succeed(dir.path(), &["build", "src", "-o", "a.img", "--size", &need.to_string()]);
    assert_clean(&dir.path().join("a.img"));
}

#[test]
fn standard_input_is_a_source() {
    let dir = built();
    let path = dir.path();
    succeed(path, &["get", "--tar", "a.img", "/", "all.tar"]);
    let tar = fs::read(path.join("all.tar")).unwrap();
    let mut command = extant();
    command.current_dir(path).args(["build", "-", "-o", "b.img", "-q"]).write_stdin(tar);
    command.assert().success();
    assert_eq!(succeed(path, &["cat", "b.img", "/etc/hostname"]), "host\n");
    assert_clean(&path.join("b.img"));
}

#[test]
fn later_sources_go_over_earlier_ones() {
    let dir = tempfile::tempdir().unwrap();
    source_tree(&dir);
    let path = dir.path();
    fs::create_dir_all(path.join("over/etc")).unwrap();
    fs::write(path.join("over/etc/hostname"), "other\n").unwrap();
    succeed(path, &["build", "src", "dir:over", "-o", "a.img", "--compat", "kernel-4.19"]);
    assert_eq!(succeed(path, &["cat", "a.img", "/etc/hostname"]), "other\n");
    assert_eq!(succeed(path, &["cat", "a.img", "/etc/alias"]), "host\n");
    let info = succeed(path, &["info", "a.img"]);
    assert!(info.contains("metadata_csum_seed"), "{info}");
}

#[test]
fn what_cannot_be_built_is_named() {
    let dir = tempfile::tempdir().unwrap();
    source_tree(&dir);
    let path = dir.path();
    fs::write(path.join("text"), "no archive").unwrap();
    let cases: [(i32, &[&str], &str); 7] = [
        (1, &["build", "none", "-o", "a.img"], "cannot open none: No such file or directory"),
        (1, &["build", "text", "-o", "a.img"], "text"),
        (2, &["build", "src", "-o", "a.img", "--compat", "dos"], "dos"),
        (
            2,
            &["build", "src", "-o", "a.img", "--compat", "kernel-4.19", "-O", "casefold"],
            "kernel-4.19 excludes casefold",
        ),
        (1, &["build", "src", "-o", "src"], "src: neither a file nor a block device"),
        (2, &["build", "src", "-o", "a.img", "--size", "8M", "--free", "1M"], "--free"),
        (1, &["build", "src", "-o", "no/where/a.img"], "no/where/a.img"),
    ];
    for (status, args, part) in cases {
        let line = fail(path, status, args);
        assert!(line.contains(part), "{args:?}: {line}");
        assert!(!path.join("a.img").exists() && !path.join("a.img.partial").exists());
    }
}

#[test]
fn a_block_device_that_is_too_small_stays_as_it_was() {
    require!(Root, Loop, E2fsprogs);
    let dir = built();
    let path = dir.path();
    let old = vec![0xA5; 2 << 20];
    fs::write(path.join("disk"), &old).unwrap();
    let disk = LoopDevice::attach(&path.join("disk")).unwrap();
    let device = disk.path().to_str().unwrap();
    for size in [["--size", "64M"], ["--free", "64M"]] {
        let line = fail(path, 1, &[&["build", "src", "--force", "-o", device], &size[..]].concat());
        assert!(line.contains("the device has 2097152 bytes and the image needs"), "{line}");
        assert!(fs::read(path.join("disk")).unwrap() == old, "{size:?}: the device was written");
    }
    drop(disk);
    // One block less than the size that is found to be the least.
    succeed(path, &["build", "src", "-o", "file.img", "--free", "1M"]);
    let need = fs::metadata(path.join("file.img")).unwrap().len();
    let old = vec![0xA5; need as usize - 4096];
    fs::write(path.join("disk"), &old).unwrap();
    let disk = LoopDevice::attach(&path.join("disk")).unwrap();
    let device = disk.path().to_str().unwrap();
    let line = fail(path, 1, &["build", "src", "--force", "-o", device, "--free", "1M"]);
    assert!(line.contains(&format!("the image needs {need}")), "{line}");
    assert!(fs::read(path.join("disk")).unwrap() == old, "the device was written");
    drop(disk);
    // One that is large enough holds what a file would hold.
    fs::write(path.join("disk"), vec![0xA5; 64 << 20]).unwrap();
    let disk = LoopDevice::attach(&path.join("disk")).unwrap();
    let device = disk.path().to_str().unwrap();
    succeed(path, &["build", "src", "--force", "-o", device, "--free", "1M"]);
    drop(disk);
    assert_clean(&path.join("disk"));
    assert_eq!(
        succeed(path, &["tree", "disk", "--json", "--hash"]),
        succeed(path, &["tree", "file.img", "--json", "--hash"])
    );
}

#[test]
fn an_image_that_another_program_changes_is_not_replaced() {
    let dir = tempfile::tempdir().unwrap();
    let at = dir.path();
    fs::create_dir(at.join("tree")).unwrap();
    succeed(at, &["build", "tree", "-o", "o.img", "--free", "4M"]);
    let held = extant::OpenOptions::new().write(true).open(at.join("o.img")).unwrap();
    held.write("/mine", b"here").unwrap();
    let line = fail(at, 1, &["build", "tree", "-o", "o.img", "--force"]);
    assert!(line.contains("in use"), "{line}");
    assert!(!at.join("o.img.partial").exists());
    held.close().unwrap();
    assert_eq!(succeed(at, &["cat", "o.img", "/mine"]), "here");
    // A reader keeps the file that it opened.
    let reader = extant::Filesystem::open(at.join("o.img")).unwrap();
    succeed(at, &["build", "tree", "-o", "o.img", "--force"]);
    assert_eq!(reader.read_to_string("/mine").unwrap(), "here");
}

#[test]
fn a_backup_superblock_shows_what_was_made_since_the_backups_were() {
    let dir = tempfile::tempdir().unwrap();
    let at = dir.path();
    fs::create_dir_all(at.join("tree/in/here")).unwrap();
    fs::write(at.join("tree/in/here/file"), "still").unwrap();
    succeed(at, &["mkfs", "-q", "o.img", "--size", "64M"]);
    succeed(at, &["put", "-r", "o.img", "tree", "/"]);
    assert_eq!(succeed(at, &["cat", "o.img?backup=1", "/tree/in/here/file"]), "still");
}

#[test]
fn the_sets_of_features_are_listed() {
    for verb in ["build", "mkfs"] {
        let (code, out, _) = run(".".as_ref(), &[verb, "--compat", "help"]);
        assert_eq!(code, 0);
        assert!(out.contains("kernel-4.19") && out.contains("grub-2.06"), "{out}");
    }
}

#[test]
fn an_interrupted_build_leaves_nothing() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path();
    // The source is so large that the signal should arrive before the end. If it does not, the
    // image is complete.
    fs::create_dir(path.join("src")).unwrap();
    for n in 0..64 {
        fs::write(path.join(format!("src/{n}")), crate::common::pattern(4 << 20)).unwrap();
    }
    let mut child = std::process::Command::new(assert_cmd::cargo::cargo_bin("extant"))
        .current_dir(path)
        .args(["build", "src", "-o", "a.img", "--threads", "1"])
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .unwrap();
    // Waits until the partial image exists, or until the program ends.
    while !path.join("a.img.partial").exists() && child.try_wait().unwrap().is_none() {
        std::thread::yield_now();
    }
    let pid = rustix::process::Pid::from_child(&child);
    let _ = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
    let output = child.wait_with_output().unwrap();
    let said = String::from_utf8_lossy(&output.stderr).into_owned();
    match output.status.code() {
        Some(143) => {
            assert_eq!(said, "extant: a.img: interrupted: no image was created\n");
            assert!(!path.join("a.img").exists());
        }
        Some(0) => assert_clean(&path.join("a.img")),
        other => panic!("{other:?}: {said}"),
    }
    assert!(!path.join("a.img.partial").exists());
}

#[test]
fn a_source_that_is_no_archive_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path();
    succeed(path, &["mkfs", "disk.img", "8M", "-q"]);
    fs::write(path.join("zeros"), vec![0; 1 << 20]).unwrap();
    fs::write(path.join("empty.tar"), vec![0; 10_240]).unwrap();
    let line = fail(path, 1, &["build", "disk.img", "-o", "a.img"]);
    assert_eq!(
        line,
        "disk.img: an ext2, ext3 or ext4 filesystem, not a tar archive: name a directory, an \
         archive or a container image"
    );
    let line = fail(path, 1, &["build", "zeros", "-o", "a.img"]);
    assert!(line.contains("no tar archive: it starts with zeros"), "{line}");
    assert!(!path.join("a.img").exists());
    // tar itself creates archives without entries.
    succeed(path, &["build", "empty.tar", "-o", "a.img", "-q"]);
    assert_clean(&path.join("a.img"));
}

#[test]
fn a_volume_or_an_archive_is_replaced_with_force_only() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path();
    fs::create_dir(path.join("src")).unwrap();
    succeed(path, &["mkfs", "disk.img", "8M", "-q"]);
    for name in ["a.qcow2", "a.img.XZ"] {
        let line = fail(path, 2, &["build", "src", "-o", name]);
        assert!(line.contains("extant writes raw images, not "), "{line}");
        assert!(!path.join(name).exists());
    }
    fs::write(path.join("packed"), b"\x1f\x8b\x08\0\0\0\0\0").unwrap();
    fs::write(path.join("text"), "not worth keeping").unwrap();
    for (name, what) in
        [("disk.img", "an ext2, ext3 or ext4 filesystem"), ("packed", "a gzip archive")]
    {
        let before = fs::read(path.join(name)).unwrap();
        let line = fail(path, 1, &["build", "src", "-o", name]);
        assert_eq!(line, format!("{name}: the file is {what}: use --force to replace it"));
        assert!(fs::read(path.join(name)).unwrap() == before, "{name} was changed");
    }
    succeed(path, &["build", "src", "-o", "disk.img", "-q", "--force"]);
    assert_clean(&path.join("disk.img"));
    succeed(path, &["build", "src", "-o", "text", "-q"]);
}

#[test]
fn an_image_goes_to_standard_output_when_it_is_whole() {
    let dir = tempfile::tempdir().unwrap();
    source_tree(&dir);
    let spool = dir.path().join("spool");
    fs::create_dir(&spool).unwrap();
    succeed(dir.path(), &["build", "src", "-o", "a.img", "-q"]);
    let args = ["build", "src", "-o", "-", "--spool-dir", "spool"];
    let output = extant().current_dir(dir.path()).args(args).output().unwrap();
    assert!(output.status.success() && output.stderr.is_empty());
    assert!(output.stdout == fs::read(dir.path().join("a.img")).unwrap());
    assert_eq!(fs::read_dir(&spool).unwrap().count(), 0);
    let line = fail(dir.path(), 2, &["build", "src", "-o", "-", "--json"]);
    assert!(line.starts_with("the image and JSON cannot both go to standard output"), "{line}");
    let (code, out, _) = run(dir.path(), &["build", "nowhere", "-o", "-"]);
    assert_eq!((code, out.as_str()), (1, ""));
}

#[test]
fn blocks_of_zeros_of_long_files_take_no_space() {
    let dir = tempfile::tempdir().unwrap();
    fs::create_dir(dir.path().join("src")).unwrap();
    fs::write(dir.path().join("src/zeros"), vec![0; 1 << 20]).unwrap();
    let mixed = [&[1; 4096][..], &[0; 16 * 4096], &[2; 100]].concat();
    fs::write(dir.path().join("src/mixed"), &mixed).unwrap();
    succeed(dir.path(), &["build", "src", "-o", "a.img", "-q"]);
    assert_clean(&dir.path().join("a.img"));
    let sectors = |name: &str| -> u64 {
        let text = succeed(dir.path(), &["stat", "--json", "a.img", name]);
        serde_json::from_str::<serde_json::Value>(&text).unwrap()["blocks"].as_u64().unwrap()
    };
    assert_eq!((sectors("/zeros"), sectors("/mixed")), (0, 16));
    succeed(dir.path(), &["get", "a.img", "/", "out"]);
    assert_eq!(fs::read(dir.path().join("out/mixed")).unwrap(), mixed);
    assert_eq!(fs::read(dir.path().join("out/zeros")).unwrap(), vec![0; 1 << 20]);
}

#[test]
fn an_archive_that_unpacks_to_too_much_is_refused() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path();
    fs::create_dir(path.join("src")).unwrap();
    fs::write(path.join("src/file"), crate::common::pattern(3 << 20)).unwrap();
    succeed(path, &["build", "src", "-o", "a.img", "-q", "--free", "8M"]);
    succeed(path, &["get", "--tar", "a.img", "/file", "a.tar"]);
    for args in [
        &["build", "a.tar", "-o", "b.img", "--max-size", "2M"][..],
        &["apply-tar", "a.img", "a.tar", "--max-size", "2M"],
    ] {
        let line = fail(path, 1, args);
        assert!(line.contains("unpacks to more than 2097152 bytes, the limit"), "{line}");
    }
    // A limit below the first header is named in the message too.
    for limit in ["512", "1"] {
        let line = fail(path, 1, &["build", "a.tar", "-o", "b.img", "--max-size", limit]);
        assert!(line.contains(&format!("unpacks to more than {limit} bytes, the limit")), "{line}");
    }
    assert!(!path.join("b.img").exists());
    succeed(path, &["build", "a.tar", "-o", "b.img", "--max-size", "4M", "-q"]);
    succeed(path, &["apply-tar", "a.img", "a.tar", "--max-size", "4M"]);
}

#[test]
fn a_deep_tree_is_built_and_comes_back_through_a_tar() {
    const LEVELS: usize = 1500;
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path();
    // The paths of all levels together take 46 MB.
    crate::common::deep(path, LEVELS, &"n".repeat(40));
    let limited = |args: &[&str]| {
        let (code, _, err) = crate::common::run_limited(path, 400 << 10, 128, args);
        assert_eq!((code, err.as_str()), (0, ""), "{args:?}");
    };
    limited(&["get", "deep.img", "/", "src"]);
    limited(&["build", "src", "-o", "a.img", "-q", "--threads", "2"]);
    limited(&["get", "--tar", "a.img", "/", "a.tar"]);
    limited(&["build", "a.tar", "-o", "b.img", "-q", "--threads", "2"]);
    for image in ["a.img", "b.img"] {
        assert_clean(&path.join(image));
        let tree = succeed(path, &["tree", image]);
        assert!(tree.ends_with(&format!("\n{} directories, 1 file\n", LEVELS + 1)));
    }
    let removed = std::process::Command::new("rm").arg("-rf").arg(path.join("src")).status();
    assert!(removed.unwrap().success());
}
