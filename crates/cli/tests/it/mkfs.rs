//! `extant mkfs`, checked by `e2fsck -fn`, and `extant info`.

use crate::common::{assert_clean, fail, make_partitions, run, succeed};
use std::fs;

#[test]
fn volumes_made_with_options_are_clean() {
    let dir = tempfile::tempdir().unwrap();
    let kinds: [&[&str]; 12] = [
        &[],
        &["-t", "ext2"],
        &["-t", "ext3", "-b", "1k"],
        &["-b", "64K", "-s", "512M"],
        &["-O", "inline_data,^resize_inode", "-O", "metadata_csum_seed"],
        &["-O", "bigalloc", "-b", "4k", "-C", "64k"],
        &["-I", "1024", "-i", "64k", "-m", "0"],
        &["-N", "5000", "-L", "sixteen bytes ok", "-U", "time"],
        &["-J", "size=8", "-G", "4", "-b", "1024"],
        &["-g", "8192", "-b", "4096", "--root-owner", "1000:1001"],
        &["--compat", "kernel-3.10"],
        &["--compat", "ext2"],
    ];
    for (n, kind) in kinds.iter().enumerate() {
        let name = format!("{n}.img");
        let mut args = vec!["mkfs", name.as_str()];
        if !kind.contains(&"-s") {
            args.extend(["--size", "64M"]);
        }
        args.extend(*kind);
        succeed(dir.path(), &args);
        assert_clean(&dir.path().join(&name));
        fs::remove_file(dir.path().join(&name)).unwrap();
    }
}

#[test]
fn a_terabyte_takes_little_space() {
    use std::os::unix::fs::MetadataExt;
    let dir = tempfile::tempdir().unwrap();
    succeed(dir.path(), &["mkfs", "a.img", "--size", "1T", "-q"]);
    let meta = fs::metadata(dir.path().join("a.img")).unwrap();
    assert_eq!(meta.len(), 1 << 40);
    assert!(meta.blocks() * 512 < 512 << 20, "{} sectors", meta.blocks());
}

#[test]
fn one_seed_of_everything_makes_one_volume() {
    let dir = tempfile::tempdir().unwrap();
    for name in ["a.img", "b.img"] {
        let id = "3f2b91c4-58a0-4d7c-9a1e-6c0d5e8f7a21";
        let args = ["mkfs", name, "--size", "16M", "-U", id, "--hash-seed", id, "-q"];
        let mut command = crate::common::extant();
        command.env("SOURCE_DATE_EPOCH", "1700000000").current_dir(dir.path());
        command.args(args).assert().success();
    }
    let read = |name: &str| fs::read(dir.path().join(name)).unwrap();
    assert!(read("a.img") == read("b.img"), "the two differ");
}

#[test]
fn what_is_there_is_not_written_over() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path();
    succeed(path, &["mkfs", "a.img", "--size", "16M", "-L", "first"]);
    let line = fail(path, 1, &["mkfs", "a.img", "-L", "second"]);
    assert_eq!(
        line,
        "a.img: contains an ext2, ext3 or ext4 filesystem: use --force to overwrite \
                      it"
    );
    assert!(succeed(path, &["info", "a.img"]).contains("first"));
    succeed(path, &["mkfs", "a.img", "-L", "second", "--force"]);
    assert!(succeed(path, &["info", "a.img"]).contains("second"));
    assert_clean(&path.join("a.img"));

    let mut disk = vec![0; 1 << 20];
    disk[450] = 0x83;
    disk[458] = 8;
    disk[510..512].copy_from_slice(&[0x55, 0xAA]);
    fs::write(path.join("disk.img"), &disk).unwrap();
    let line = fail(path, 1, &["mkfs", "disk.img"]);
    assert_eq!(line, "disk.img: contains an MBR partition table: use --force to overwrite it");
    assert!(fs::read(path.join("disk.img")).unwrap() == disk);

    fs::write(path.join("notes"), "not to be lost\n".repeat(99_999)).unwrap();
    let line = fail(path, 1, &["mkfs", "notes"]);
    assert_eq!(line, "notes: contains data: use --force to overwrite it");
    fs::write(path.join("small"), "not even by force\n").unwrap();
    let line = fail(path, 1, &["mkfs", "small", "--force"]);
    assert_eq!(line, "small: the device is too small for a volume");
    for (name, len) in [("notes", 15 * 99_999), ("small", 18)] {
        let bytes = fs::read(path.join(name)).unwrap();
        assert!(bytes.len() == len && bytes.starts_with(b"not "), "{name}");
    }
    fs::write(path.join("zeros"), vec![0; 16 << 20]).unwrap();
    succeed(path, &["mkfs", "zeros"]);
}

#[test]
fn a_failure_leaves_no_new_file() {
    let dir = tempfile::tempdir().unwrap();
    let line = fail(dir.path(), 1, &["mkfs", "a.img", "--size", "1k"]);
    assert!(line.starts_with("a.img: "), "{line}");
    let line = fail(dir.path(), 2, &["mkfs", "a.img", "--size", "1M", "-O", "nonsense"]);
    assert_eq!(line, "-O nonsense: no feature has this name");
    let line = fail(dir.path(), 1, &["mkfs", "a.img"]);
    assert_eq!(line, "a.img: no such file: give a size to create it, as in --size 10G");
    assert!(!dir.path().join("a.img").exists());
}

#[test]
fn a_volume_inside_a_file_is_named_by_its_offset() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path();
    fs::write(path.join("disk"), vec![0xEE; 20 << 20]).unwrap();
    succeed(path, &["mkfs", "disk?offset=1M", "--size", "16M", "-L", "inner"]);
    let disk = fs::read(path.join("disk")).unwrap();
    assert!(disk[..1 << 20].iter().chain(&disk[17 << 20..]).all(|&byte| byte == 0xEE));
    assert!(succeed(path, &["info", "disk?offset=1M"]).contains("inner"));
    assert_eq!(succeed(path, &["ls", "disk?offset=1048576"]), "lost+found\n");
    succeed(path, &["check", "disk?offset=1M"]);
    let line = fail(path, 1, &["ls", "disk"]);
    assert_eq!(
        line,
        "disk: not an ext2, ext3 or ext4 volume: name a partition as IMG?partition=NUMBER, or the \
         volume's first byte as IMG?offset=BYTES"
    );
    fs::write(path.join("inner"), &disk[1 << 20..17 << 20]).unwrap();
    assert_clean(&path.join("inner"));
}

#[test]
fn info_shows_what_was_created() {
    let dir = tempfile::tempdir().unwrap();
    let id = "3f2b91c4-58a0-4d7c-9a1e-6c0d5e8f7a21";
    let args = ["mkfs", "a.img", "--size", "64M", "-b", "4k", "-U", id, "-L", "data", "--json"];
    let made: serde_json::Value = serde_json::from_str(&succeed(dir.path(), &args)).unwrap();
    assert_eq!((&made["blocks"], &made["uuid"]), (&16384.into(), &id.into()));
    let info = succeed(dir.path(), &["info", "--json", "a.img"]);
    let info: serde_json::Value = serde_json::from_str(&info).unwrap();
    for (field, value) in [("label", "data"), ("uuid", id), ("state", "clean"), ("image", "a.img")]
    {
        assert_eq!(info[field], value, "{field}");
    }
    for (field, of_mkfs) in
        [("blocks", "blocks"), ("inodes", "inodes"), ("free_blocks", "free_blocks")]
    {
        assert_eq!(info[field], made[of_mkfs], "{field}");
    }
    assert_eq!(info["journal"]["place"], "internal");
    assert_eq!(info["journal"]["blocks"], made["journal_blocks"]);
    let features: Vec<&str> =
        info["features"].as_array().unwrap().iter().filter_map(|name| name.as_str()).collect();
    assert!(features.contains(&"metadata_csum") && features.contains(&"extent"), "{features:?}");
    let text = succeed(dir.path(), &["info", "a.img"]);
    for part in ["Label     data", "64.0 MiB (16384 blocks of 4096 bytes)", "clean"] {
        assert!(text.contains(part), "{part}: {text}");
    }
}

#[test]
fn interrupted_it_takes_its_file_away_but_no_other() {
    let dir = tempfile::tempdir().unwrap();
    let at = dir.path();
    let mut ended = 0;
    for n in 0..10 {
        let mut child = std::process::Command::new(assert_cmd::cargo::cargo_bin("extant"))
            .current_dir(at)
            .args(["mkfs", "-q", "new.img", "-s", "256G"])
            .stderr(std::process::Stdio::null())
            .spawn()
            .unwrap();
        std::thread::sleep(std::time::Duration::from_millis(4 * n));
        let pid = rustix::process::Pid::from_child(&child);
        let _ = rustix::process::kill_process(pid, rustix::process::Signal::TERM);
        let status = child.wait().unwrap();
        if status.success() {
            // It had finished already.
            fs::remove_file(at.join("new.img")).unwrap();
            continue;
        }
        ended += 1;
        assert!(!at.join("new.img").exists(), "{status:?}");
    }
    assert!(ended > 0, "no signal came in time");
}

#[test]
fn extended_options_of_mke2fs_are_known() {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path();
    let seed = "8d1c7f0e-2b3a-4c5d-8e9f-a0b1c2d3e4f5";
    let given = format!("lazy_itable_init=0,nodiscard,root_owner=7:8,hash_seed={seed}");
    succeed(path, &["mkfs", "-q", "--size", "8M", "-E", &given, "a.img"]);
    assert_clean(&path.join("a.img"));
    let root = succeed(path, &["stat", "--json", "a.img", "/"]);
    let root: serde_json::Value = serde_json::from_str(&root).unwrap();
    assert_eq!((&root["uid"], &root["gid"]), (&7.into(), &8.into()), "{root}");
    let (code, _, why) = run(path, &["mkfs", "--size", "8M", "-E", "stride=4", "b.img"]);
    assert!(code == 2 && why.contains("root_owner"), "{why}");
}

#[test]
fn the_size_may_follow_the_image() {
    extant_testkit::require!(Program("sfdisk"));
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path();
    succeed(path, &["mkfs", "a.img", "16M", "-q"]);
    assert_eq!(fs::metadata(path.join("a.img")).unwrap().len(), 16 << 20);
    assert_clean(&path.join("a.img"));
    let line = fail(path, 2, &["mkfs", "b.img", "65536"]);
    assert_eq!(
        line,
        "65536: the size has no unit: write 65536K for KiB, or --size 65536 for bytes"
    );
    fail(path, 2, &["mkfs", "b.img", "16M", "--size", "32M"]);
    fail(path, 2, &["mkfs", "b.img", "c.img"]);
    assert!(!path.join("b.img").exists());
}

/// A disk of 16 MiB with a partition of 8 MiB at 1 MiB and one of 4 MiB at 10 MiB, filled with 0xEE
/// beyond its tables.
fn partitioned(kind: &str) -> Vec<u8> {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path().join("disk");
    let table = format!("label: {kind}\nstart=2048,size=16384\nstart=20480,size=8192\n");
    make_partitions(&path, 16 << 20, &table);
    let mut disk = fs::read(path).unwrap();
    disk[34 * 512..(16 << 20) - 34 * 512].fill(0xEE);
    disk
}

#[test]
fn a_volume_inside_a_partition_stays_there() {
    extant_testkit::require!(Program("sfdisk"));
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path();
    for kind in ["dos", "gpt"] {
        let disk = partitioned(kind);
        fs::write(path.join("disk"), &disk).unwrap();
        let line = fail(path, 1, &["mkfs", "disk?offset=1M", "--size", "9M"]);
        let want = "disk?offset=1M: the partition at byte 1048576 has 8388608 bytes (8.0 MiB): \
                    give a --size";
        assert!(line.starts_with(want), "{line}");
        let line = fail(path, 1, &["mkfs", "disk?offset=2M"]);
        assert!(line.contains("starts at byte 2097152, they start at bytes 1048576, 10485760"));
        assert!(fs::read(path.join("disk")).unwrap() == disk, "a refusal writes nothing");
        succeed(path, &["mkfs", "disk?offset=1M", "-q"]);
        let now = fs::read(path.join("disk")).unwrap();
        assert!(now[..1 << 20] == disk[..1 << 20] && now[9 << 20..] == disk[9 << 20..]);
        fs::write(path.join("inner"), &now[1 << 20..9 << 20]).unwrap();
        assert_clean(&path.join("inner"));
        let info = succeed(path, &["info", "--json", "disk?offset=1M"]);
        let info: serde_json::Value = serde_json::from_str(&info).unwrap();
        let bytes = info["blocks"].as_u64().unwrap() * info["block_bytes"].as_u64().unwrap();
        assert_eq!(bytes, 8 << 20);
        succeed(path, &["mkfs", "disk?offset=1M", "--size", "9M", "--force", "-q"]);
    }
}
