//! `ls`, `tree`, `cat`, `stat`, `check`, `replay` on a small image.

use crate::common::{built, fail, pattern, run, run_limited, succeed};
use serde_json::Value;
use std::fs;
use std::path::Path;

fn lines(text: &str) -> Vec<Value> {
    text.lines().map(|line| serde_json::from_str(line).expect("one object a line")).collect()
}

#[test]
fn ls_sorts_names_and_follows_a_link_to_a_directory() {
    let dir = built();
    let path = dir.path();
    let names = "big\ndir-link\netc\nlink\nlost+found\nname with \n line\nsparse\n";
    assert_eq!(succeed(path, &["ls", "a.img"]), names);
    assert_eq!(succeed(path, &["ls", "a.img", "dir-link/"]), "alias\nempty\nhostname\nscript\n");
    assert_eq!(succeed(path, &["ls", "-d", "a.img", "/dir-link"]), "/dir-link\n");
    assert_eq!(succeed(path, &["ls", "a.img", "/big", "/etc"]).lines().count(), 7 + 1);
    let long = succeed(path, &["ls", "-l", "a.img", "/etc"]);
    let script = long.lines().find(|line| line.ends_with("script")).unwrap();
    assert!(script.starts_with("-rwxr-x--- 1 7 8 "), "{script}");
    let link = succeed(path, &["ls", "-l", "a.img", "/link"]);
    assert!(link.starts_with("lrwxrwxrwx ") && link.ends_with("/link -> etc/hostname\n"), "{link}");
}

#[test]
fn tree_draws_and_counts() {
    let dir = built();
    let tree = succeed(dir.path(), &["tree", "a.img", "/etc"]);
    let drawn = "/etc\n├── alias\n├── empty\n├── hostname\n└── script\n\n1 directory, 3 files\n";
    assert_eq!(tree, drawn);
    let top = succeed(dir.path(), &["tree", "--depth", "1", "a.img"]);
    assert!(top.contains("├── link -> etc/hostname\n") && !top.contains("alias"), "{top}");
}

#[test]
fn tree_prints_records_in_order_with_hashes() {
    let dir = built();
    let records = lines(&succeed(dir.path(), &["tree", "a.img", "--json", "--hash"]));
    let paths: Vec<&str> = records.iter().map(|record| record["path"].as_str().unwrap()).collect();
    let expected = [
        "/",
        "/big",
        "/dir-link",
        "/etc",
        "/etc/alias",
        "/etc/empty",
        "/etc/hostname",
        "/etc/script",
        "/link",
        "/lost+found",
        "/name with \n line",
        "/sparse",
    ];
    assert_eq!(paths, expected);
    let of = |path: &str| records.iter().find(|record| record["path"] == path).unwrap();
    assert_eq!(of("/etc/alias")["ino"], of("/etc/hostname")["ino"]);
    assert_eq!(of("/etc/alias")["nlink"], 2);
    assert_eq!(of("/etc/script")["mode"], "0750");
    assert_eq!((&of("/big")["uid"], &of("/big")["gid"]), (&7.into(), &8.into()));
    assert_eq!(of("/link")["target"], "etc/hostname");
    let found = of("/etc/hostname")["sha256"].as_str().unwrap();
    assert_eq!(found.len(), 64);
    assert_eq!(of("/etc/alias")["sha256"], found);
    assert!(of("/sparse")["blocks"].as_u64().unwrap() <= 16);
}

#[test]
fn cat_writes_files_one_after_the_other() {
    let dir = built();
    let output = crate::common::extant()
        .current_dir(dir.path())
        .args(["cat", "a.img", "/link", "/big"])
        .output()
        .unwrap();
    assert!(output.stdout == [b"host\n", &pattern(300_000)[..]].concat());
    let line = fail(dir.path(), 1, &["cat", "a.img", "/etc"]);
    assert_eq!(line, "a.img: /etc: is a directory");
    let line = fail(dir.path(), 1, &["cat", "a.img", "/etc/nothing"]);
    assert_eq!(line, "a.img: /etc/nothing: no such file or directory");
}

#[test]
fn stat_shows_extents_and_does_not_follow() {
    let dir = built();
    let records =
        lines(&succeed(dir.path(), &["stat", "--json", "--extents", "a.img", "/sparse", "link"]));
    let extents = records[0]["extents"].as_array().unwrap();
    assert_eq!(extents.len(), 1);
    assert_eq!((&extents[0]["offset"], &extents[0]["len"]), (&(2 << 20).into(), &4096.into()));
    assert_eq!(records[1]["type"], "symlink");
    let text = succeed(dir.path(), &["stat", "-e", "a.img", "/sparse"]);
    for part in [
        "   Path: /sparse\n",
        "regular file",
        "  Owner: 7  Group: 8",
        "   Size: 4194304",
        " Extent: 4096 bytes at 2097152",
    ] {
        assert!(text.contains(part), "{part}: {text}");
    }
}

#[test]
fn a_file_of_another_format_is_named_with_the_next_step() {
    let dir = built();
    let path = dir.path();
    let with = |at: usize, bytes: &[u8]| {
        let mut content = vec![0; 128 << 10];
        content[at..at + bytes.len()].copy_from_slice(bytes);
        content
    };
    let mut mbr = with(510, &[0x55, 0xAA]);
    (mbr[446], mbr[450], mbr[454], mbr[458]) = (0x80, 0x83, 128, 64);
    let cases: [(&str, Vec<u8>, &str); 16] = [
        (
            "gpt",
            with(512, b"EFI PART"),
            "is a GPT partition table: both copies of its partition table are damaged: name the",
        ),
        (
            "mbr",
            mbr,
            "is an MBR partition table, with no ext2, ext3 or ext4 volume in its partitions",
        ),
        (
            "qcow2",
            with(0, b"QFI\xFB"),
            "is a qcow2 image: `qemu-img convert -O raw qcow2 NEW` converts it to a raw image",
        ),
        ("xz", with(0, b"\xFD7zXZ\0"), "is an xz archive: `xz -dk xz` unpacks it"),
        ("gzip", with(0, &[0x1F, 0x8B, 8]), "is a gzip archive: `gzip -dk gzip` unpacks it"),
        (
            "zstd",
            with(0, &[0x28, 0xB5, 0x2F, 0xFD]),
            "is a zstd archive: `zstd -d zstd` unpacks it",
        ),
        (
            "vdi",
            with(64, &[0x7F, 0x10, 0xDA, 0xBE]),
            "is a VDI image: `qemu-img convert -O raw vdi",
        ),
        ("vhd", with(0, b"conectix"), "is a VHD image: `qemu-img convert -O raw vhd"),
        (
            "btrfs",
            with(65_600, b"_BHRfS_M"),
            "is a btrfs filesystem: extant is for ext2, ext3 and ext4",
        ),
        ("xfs", with(0, b"XFSB"), "is an XFS filesystem: extant is for ext2, ext3 and ext4"),
        (
            "luks",
            with(0, b"LUKS\xBA\xBE"),
            "is a LUKS encrypted volume: `cryptsetup open luks NAME`",
        ),
        (
            "android",
            with(0, &[0x3A, 0xFF, 0x26, 0xED]),
            "is an Android sparse image: `simg2img android NEW`",
        ),
        (
            "tar",
            with(257, b"ustar"),
            "is a tar archive: `extant build tar -o NEW` builds a volume from it",
        ),
        ("zeros", with(0, b""), "not a volume: it starts with zeros"),
        (
            "text",
            b"root:x:0:0:".to_vec(),
            "not an ext2, ext3 or ext4 volume: name a partition as IMG?partition=NUMBER",
        ),
        (
            "shifted?offset=1M",
            Vec::new(),
            "the place of the volume lies beyond the end of the file or device",
        ),
    ];
    for (image, content, why) in cases {
        fs::write(path.join(image.split('?').next().unwrap()), content).unwrap();
        for verb in [
            &["ls", image][..],
            &["info", image],
            &["put", image, "a.img", "/x"],
            &["tune", "-L", "x", image],
        ] {
            if image == "mbr" && verb[0] == "info" {
                assert!(succeed(path, verb).starts_with("MBR 00000000, 1 partition\n"));
                continue;
            }
            let line = fail(path, 1, verb);
            assert!(line.starts_with(&format!("{image}: {why}")), "{line}");
        }
        let line = fail(path, 8, &["check", image]);
        assert!(line.starts_with(&format!("{image}: {why}")), "{line}");
        assert_eq!(line.contains("?backup=1"), image == "zeros" || image == "text", "{line}");
    }
}

#[test]
fn errors_name_the_image_and_what_to_do() {
    let dir = built();
    let path = dir.path();
    fs::write(path.join("text"), "not a volume").unwrap();
    fs::write(path.join("empty"), "").unwrap();
    let whole = fs::read(path.join("a.img")).unwrap();
    fs::write(path.join("cut.img"), &whole[..whole.len() / 2]).unwrap();
    let cases = [
        ("none.img", "cannot open: No such file or directory"),
        ("text", "not an ext2, ext3 or ext4 volume: name a partition as IMG?partition=NUMBER"),
        ("empty", "the file is empty: `extant mkfs empty SIZE` creates a volume in it"),
        ("cut.img", "the image is truncated; get a complete copy"),
    ];
    for (image, why) in cases {
        for verb in
            [&["ls", image][..], &["tree", image], &["cat", image, "/x"], &["get", image, "/"]]
        {
            let line = fail(path, 1, verb);
            assert!(line.starts_with(&format!("{image}: ")) && line.contains(why), "{line}");
        }
        let (code, _, _) = run(path, &["check", image]);
        assert!(code == 8 || code == 4, "{image}: {code}");
    }
    for verb in ["ls", "tree", "stat", "get"] {
        let line = fail(path, 1, &[verb, "a.img", "/etc/nothing"]);
        assert_eq!(line, "a.img: /etc/nothing: no such file or directory", "{verb}");
    }
}

#[test]
fn check_finds_damage_and_says_where() {
    let dir = built();
    let path = dir.path();
    assert!(succeed(path, &["check", "a.img"]).starts_with("a.img: clean, "));
    let last = lines(&succeed(path, &["check", "--json", "a.img"]));
    assert_eq!((&last[0]["status"], &last[0]["findings"]), (&"clean".into(), &0.into()));
    assert_eq!(last[0]["directories"], 4);

    // A directory block: the bytes of the name "script".
    let mut bytes = fs::read(path.join("a.img")).unwrap();
    let name = bytes.windows(6).position(|window| window == b"script").unwrap();
    bytes[name] ^= 1;
    fs::write(path.join("bad.img"), &bytes).unwrap();
    let (code, out, err) = run(path, &["check", "bad.img"]);
    assert_eq!((code, err.as_str()), (4, ""));
    assert!(out.contains("error: ") && out.contains("checksum"), "{out}");
    let (code, out, _) = run(path, &["check", "--json", "bad.img"]);
    let found = lines(&out);
    assert_eq!((code, &found.last().unwrap()["status"]), (4, &"errors".into()));
    assert_eq!(found.last().unwrap()["findings"], found.len() - 1);
    assert!(found[0]["finding"].is_string() && found[0]["message"].is_string());

    // The other files are still shown, and the damage is named.
    let (code, out, err) = run(path, &["tree", "--json", "bad.img"]);
    assert_eq!(code, 1);
    assert!(err.starts_with("extant: bad.img: /etc: corrupt: "), "{err}");
    assert!(lines(&out).iter().any(|record| record["path"] == "/sparse"));
    assert!(lines(&out).iter().any(|record| record["error"].is_string()));
}

#[test]
fn replay_leaves_a_whole_volume_alone() {
    let dir = built();
    let before = fs::read(dir.path().join("a.img")).unwrap();
    let said = succeed(dir.path(), &["replay", "a.img"]);
    assert_eq!(said, "a.img: clean, nothing to replay\n");
    let said = lines(&succeed(dir.path(), &["replay", "--json", "a.img"]));
    assert_eq!(said[0]["was_needed"], false);
    assert!(fs::read(dir.path().join("a.img")).unwrap() == before);
    let line = fail(dir.path(), 1, &["replay", "none.img"]);
    assert_eq!(line, "none.img: cannot open: No such file or directory");
}

#[test]
fn replay_brings_home_what_was_committed() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path();
    let args = ["mkfs", "a.img", "--size", "32M", "-O", "^metadata_csum", "-q"];
    succeed(path, &args);
    // debugfs writes a transaction that replaces block 5000 into the log and leaves it there.
    fs::write(path.join("block"), vec![0xA5; 1024]).unwrap();
    fs::write(path.join("commands"), "jo\njw -b 5000 block\njc\n").unwrap();
    let mut debugfs = std::process::Command::new("debugfs");
    match debugfs.current_dir(path).args(["-w", "-f", "commands", "a.img"]).output() {
        Ok(output) => assert!(output.status.success()),
        Err(_) if std::env::var_os("CI").is_none() => return eprintln!("no debugfs here"),
        Err(error) => panic!("debugfs is needed in CI: {error}"),
    }
    assert!(succeed(path, &["info", "a.img"]).contains("needs recovery"));
    assert_eq!(succeed(path, &["ls", "a.img"]), "lost+found\n");
    let out = succeed(path, &["check", "a.img"]);
    assert!(out.contains("replayed in memory only"), "{out}");
    let home = |image: &[u8]| image[5000 << 10..5001 << 10].iter().all(|&byte| byte == 0xA5);
    assert!(!home(&fs::read(path.join("a.img")).unwrap()), "looking changed the image");
    let said = succeed(path, &["replay", "a.img"]);
    assert_eq!(said, "a.img: replayed: 1 transaction, 1 block written\n");
    assert!(home(&fs::read(path.join("a.img")).unwrap()));
    assert!(succeed(path, &["info", "a.img"]).contains("clean"));
    crate::common::assert_clean(&path.join("a.img"));
}

#[test]
fn a_closed_pipe_ends_the_program_without_a_message() {
    let dir = built();
    let mut child = std::process::Command::new(assert_cmd::cargo::cargo_bin("extant"))
        .current_dir(dir.path())
        .args(["cat", "a.img", "/sparse", "/sparse", "/big"])
        .stdout(std::process::Stdio::piped())
        .stderr(std::process::Stdio::piped())
        .spawn()
        .unwrap();
    drop(child.stdout.take());
    let output = child.wait_with_output().unwrap();
    assert_eq!((output.status.code(), &output.stderr[..]), (Some(0), &b""[..]));
}

#[test]
fn the_exit_status_of_a_check_does_not_depend_on_its_reader() {
    let dir = built();
    let path = dir.path();
    let mut bytes = fs::read(path.join("a.img")).unwrap();
    let name = bytes.windows(6).position(|window| window == b"script").unwrap();
    bytes[name] ^= 1;
    fs::write(path.join("bad.img"), &bytes).unwrap();
    fs::write(path.join("none.img"), pattern(1 << 20)).unwrap();
    for (args, status) in [
        (&["check", "a.img"][..], 0),
        (&["check", "bad.img"], 4),
        (&["check", "--json", "bad.img"], 4),
        (&["check", "--json", "none.img"], 8),
        (&["report", "bad.img"], 1),
    ] {
        let (reader, writer) = std::io::pipe().unwrap();
        drop(reader);
        let output = std::process::Command::new(assert_cmd::cargo::cargo_bin("extant"))
            .current_dir(path)
            .args(args)
            .stdout(writer)
            .stderr(std::process::Stdio::piped())
            .output()
            .unwrap();
        let err = String::from_utf8_lossy(&output.stderr);
        assert_eq!(output.status.code(), Some(status), "{args:?}: {err}");
        assert!(!err.contains("standard output"), "{args:?}: {err}");
    }
}

#[test]
fn reading_never_writes() {
    let dir = built();
    let image = dir.path().join("a.img");
    let before = fs::read(&image).unwrap();
    for args in [&["ls", "a.img"][..], &["tree", "a.img"], &["check", "a.img"], &["info", "a.img"]]
    {
        succeed(dir.path(), args);
    }
    assert!(fs::read(&image).unwrap() == before);
    assert!(!Path::new("a.img").exists());
}

#[test]
fn a_check_of_data_says_what_it_verified() {
    let dir = built();
    let path = dir.path();
    let plain = succeed(path, &["check", "--data", "a.img"]);
    assert!(plain.ends_with(", no checksums of data to verify (data_csum is off)\n"), "{plain}");
    let last = lines(&succeed(path, &["check", "--json", "--data", "a.img"]));
    assert!(last[0].get("data_blocks").is_none());
    let files = last[0]["files"].as_u64().unwrap();

    succeed(path, &["mkfs", "-q", "b.img", "--size", "32M", "-O", "data_csum"]);
    succeed(path, &["put", "-r", "b.img", "src/.", "/"]);
    let with_data_csum = succeed(path, &["check", "--data", "b.img"]);
    assert!(with_data_csum.ends_with(" blocks of data verified\n"), "{with_data_csum}");
    let last = lines(&succeed(path, &["check", "--json", "--data", "b.img"]));
    assert!(last[0]["data_blocks"].as_u64().is_some_and(|blocks| blocks > 0));
    assert_eq!(last[0]["files"], files, "the volume's own are not counted");
    let last = lines(&succeed(path, &["check", "--json", "b.img"]));
    assert!(last[0].get("data_blocks").is_none(), "not asked for");
}

#[test]
fn a_deep_tree_costs_memory_that_is_linear_in_its_depth() {
    const LEVELS: usize = 8000;
    let dir = tempfile::tempdir().unwrap();
    // All paths together take 1.3 GB.
    crate::common::deep(dir.path(), LEVELS, &"n".repeat(40));
    let limited = |args: &[&str]| {
        let (code, out, err) = run_limited(dir.path(), 400 << 10, 64, args);
        (code, String::from_utf8(out).unwrap(), err)
    };
    let (code, out, err) = limited(&["tree", "deep.img"]);
    assert_eq!((code, err.as_str()), (0, ""));
    let end = out.lines().find(|line| line.ends_with("└── end")).unwrap();
    assert!(end.starts_with(&format!("[{} levels] ", LEVELS - 64)), "{end}");
    assert!(out.ends_with(&format!("\n{} directories, 1 file\n", LEVELS + 1)), "{out:.300}");
    assert!(out.lines().all(|line| line.len() < 600));
    let (code, out, err) = limited(&["report", "deep.img", "--threads", "1", "--json"]);
    assert_eq!((code, err.as_str()), (0, ""));
    let report: Value = serde_json::from_str(&out).unwrap();
    assert_eq!(report["largest_dirs"][0]["path"], "/");
    assert_eq!(report["largest_dirs"][0]["below"], LEVELS as u64 + 2);
    let (code, out, err) = limited(&["tree", "deep.img", "--json"]);
    assert_eq!(code, 1);
    assert!(err.len() < 500 && err.lines().count() == 1, "{err}");
    assert!(err.contains(" [...] ") && err.contains("start at a directory nearer"), "{err}");
    // 41 bytes for each level: those up to 64 KiB, the one beyond, the root and lost+found.
    assert_eq!(out.lines().count(), (64 << 10) / 41 + 3);
}
