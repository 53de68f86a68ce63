//! Disks with partitions: what `info` lists, and verbs on a partition.

use crate::common::{assert_clean, fail, make_partitions, succeed};
use std::fs;
use std::path::Path;

const TABLE: &str = "label: gpt
label-id: 11111111-2222-3333-4444-555555555555
size=4M, type=U, name=\"EFI-SYSTEM\"
size=8M, type=L, name=root, uuid=AAAAAAAA-BBBB-CCCC-DDDD-EEEEEEEEEEEE
size=8M, type=L
";

/// A disk with a volume in its second partition.
fn disk(dir: &Path) {
    make_partitions(&dir.join("disk.img"), 32 << 20, TABLE);
    succeed(dir, &["mkfs", "-q", "-L", "system", "disk.img?partition=2"]);
}

#[test]
fn a_disk_with_one_volume_needs_no_name_of_it() {
    extant_testkit::require!(Program("sfdisk"));
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path();
    disk(path);
    let table = fs::read(path.join("disk.img")).unwrap();
    fs::write(path.join("hosts"), "localhost\n").unwrap();
    succeed(path, &["put", "disk.img", "hosts", "/hosts"]);
    for name in [
        "disk.img",
        "disk.img?partition=2",
        "disk.img?partuuid=aaaaaaaa-bbbb-cccc-dddd-eeeeeeeeeeee",
        "disk.img?partlabel=root",
        "disk.img?label=system",
        "disk.img?offset=5M",
    ] {
        assert_eq!(succeed(path, &["cat", name, "/hosts"]), "localhost\n", "{name}");
        succeed(path, &["check", name]);
        succeed(path, &["repair", "--dry-run", name]);
    }
    let disk = fs::read(path.join("disk.img")).unwrap();
    assert!(disk[..5 << 20] == table[..5 << 20] && disk[13 << 20..] == table[13 << 20..]);
    fs::write(path.join("part"), &disk[5 << 20..13 << 20]).unwrap();
    assert_clean(&path.join("part"));
}

#[test]
fn info_lists_the_partitions() {
    extant_testkit::require!(Program("sfdisk"));
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path();
    disk(path);
    let text = succeed(path, &["info", "disk.img"]);
    let first = "GPT 11111111-2222-3333-4444-555555555555, 3 partitions\n\
                 1   at 1.0 MiB  4.0 MiB  EFI system 'EFI-SYSTEM'\n\
                 2   at 5.0 MiB  8.0 MiB  Linux data 'root'        an ext2, ext3 or ext4 \
                 filesystem 'system', UUID ";
    assert!(text.starts_with(first), "{text}");
    assert!(text.contains("\n\nLabel     system\n"), "{text}");
    let json = succeed(path, &["info", "--json", "disk.img"]);
    let json: serde_json::Value = serde_json::from_str(&json).unwrap();
    let row = &json["disk"]["partitions"][1];
    assert_eq!((&row["number"], &row["start"]), (&2.into(), &(5 << 20).into()));
    assert_eq!((&row["label"], &row["uuid"]), (&json["label"], &json["uuid"]));
    // Of a partition that is named, only the volume is shown.
    assert!(succeed(path, &["info", "disk.img?partition=2"]).starts_with("Label "));
    // Two volumes: the list alone.
    succeed(path, &["mkfs", "-q", "disk.img?partition=3"]);
    let text = succeed(path, &["info", "disk.img"]);
    assert!(text.lines().count() == 4, "{text}");
    let json = succeed(path, &["info", "--json", "disk.img"]);
    assert!(json.starts_with("{\"image\":\"disk.img\",\"disk\":{\"table\":\"gpt\","), "{json}");
}

/// A disk is not one volume, even if something on it looks like a copy of a superblock.
#[test]
fn a_disk_is_not_repaired_as_a_volume() {
    extant_testkit::require!(Program("sfdisk"));
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path();
    succeed(path, &["mkfs", "-q", "old.img", "32M"]);
    make_partitions(&path.join("disk.img"), 32 << 20, TABLE);
    let mut disk = fs::read(path.join("disk.img")).unwrap();
    let old = fs::read(path.join("old.img")).unwrap();
    // Backups of an older volume of the whole disk, beyond the first partition.
    disk[5 << 20..31 << 20].copy_from_slice(&old[5 << 20..31 << 20]);
    fs::write(path.join("disk.img"), &disk).unwrap();
    let why = "disk.img: a disk with partitions: name one as IMG?partition=NUMBER; `extant info \
               IMG` lists them";
    assert_eq!(fail(path, 8, &["repair", "--yes", "disk.img"]), why);
    assert!(fs::read(path.join("disk.img")).unwrap() == disk);
}

#[test]
fn members_of_a_layout_stay_in_their_partitions() {
    extant_testkit::require!(Program("sfdisk"));
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path();
    make_partitions(&path.join("a.img"), 32 << 20, TABLE);
    make_partitions(&path.join("b.img"), 32 << 20, TABLE);
    let before = fs::read(path.join("b.img")).unwrap();
    let two = ["mkfs", "-q", "a.img?partition=2", "--layout", "raid1"];
    let line = fail(path, 1, &[&two[..], &["b.img?partition=1"]].concat());
    assert!(line.contains("members of a layout start at the same byte"), "{line}");
    assert!(fs::read(path.join("b.img")).unwrap() == before);
    succeed(path, &[&two[..], &["b.img?partition=2"]].concat());
    let after = fs::read(path.join("b.img")).unwrap();
    assert!(after[..5 << 20] == before[..5 << 20] && after[13 << 20..] == before[13 << 20..]);
    succeed(path, &["check", "a.img?partition=2&member=b.img"]);
}

/// A mount by an offset does not grow over the next partition.
#[test]
fn a_volume_at_an_offset_does_not_leave_its_partition() {
    extant_testkit::require!(Program("sfdisk"));
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path();
    disk(path);
    let mut options = extant::OpenOptions::new();
    options.write(true).offset(5 << 20);
    let fs = options.open(path.join("disk.img")).unwrap();
    let done = extant::resize::grow(&fs, extant::resize::Size::Device, &()).unwrap();
    assert_eq!(done.to_blocks * done.block_bytes as u64, 8 << 20);
    let size = extant::resize::Size::Bytes(9 << 20);
    assert!(extant::resize::grow(&fs, size, &()).is_err());
    fs.close().unwrap();
}

#[test]
fn what_does_not_name_one_partition_is_refused() {
    extant_testkit::require!(Program("sfdisk"));
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path();
    disk(path);
    succeed(path, &["mkfs", "-q", "disk.img?partition=3"]);
    let before = fs::read(path.join("disk.img")).unwrap();
    let unknown = "has no such partition: `extant info IMG` lists them";
    for (name, code, why) in [
        ("disk.img", 1, "several partitions fit: 2, 3: name one as IMG?partition=NUMBER"),
        ("disk.img?partition=4", 1, unknown),
        ("disk.img?label=none", 1, unknown),
        ("disk.img?partition=x", 2, "partition= takes the number of a partition, from 1"),
        ("disk.img?partition=2&offset=5M", 2, "offset= and a partition exclude each other"),
        ("disk.img?partition=2&label=system", 2, "names a partition twice"),
        ("none.img?partition=2", 1, "cannot open: No such file or directory"),
    ] {
        for verb in
            [&["ls", name][..], &["put", name, "disk.img", "/x"], &["tune", "-L", "x", name]]
        {
            assert_eq!(fail(path, code, verb), format!("{name}: {why}"));
        }
    }
    let line = fail(path, 1, &["mkfs", "disk.img?partition=2", "--size", "9M"]);
    assert!(line.contains("has 8388608 bytes (8.0 MiB): give a --size"), "{line}");
    assert_eq!(
        fail(path, 1, &["mkfs", "disk.img"]),
        "disk.img: contains a GPT partition table: use --force to overwrite it"
    );
    assert!(fs::read(path.join("disk.img")).unwrap() == before);
}
