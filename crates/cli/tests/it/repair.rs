//! `extant repair`: the plan, the repair, and taking it back.

use crate::common::{assert_clean, built, fail, run, succeed};
use extant::OpenOptions;
use extant_testkit::e2fsprogs::{debugfs, e2fsck, mke2fs};
use extant_testkit::loop_mount::LoopDevice;
use std::fs;
use std::os::unix::fs::{FileExt, PermissionsExt};
use std::path::Path;
use std::process::Command;

/// An image whose superblock has a wrong checksum: a repair cannot lose anything.
fn harmless() -> tempfile::TempDir {
    let dir = built();
    let image = fs::File::options().write(true).open(dir.path().join("a.img")).unwrap();
    image.write_all_at(&[0xFF; 4], 1024 + 16).unwrap();
    dir
}

/// An image in which the inode of `/etc/script` was cleared.
fn lossy() -> tempfile::TempDir {
    let dir = built();
    let clear = ["-w", "-R", "clri /etc/script", "a.img"];
    let done = Command::new("debugfs").current_dir(dir.path()).args(clear).output().unwrap();
    assert!(done.status.success(), "{done:?}");
    dir
}

fn bytes(dir: &Path) -> Vec<u8> {
    fs::read(dir.join("a.img")).unwrap()
}

/// Runs a command that shows its plan and then fails. Returns what is on standard error.
fn fail_with_plan(dir: &Path, status: i32, args: &[&str]) -> String {
    let (code, _, err) = run(dir, args);
    assert_eq!(code, status, "{err}");
    err
}

/// As [`run`], without an error.
fn exits(dir: &Path, status: i32, args: &[&str]) -> String {
    let (code, out, err) = run(dir, args);
    assert_eq!((code, err.as_str()), (status, ""), "extant {args:?}: {out}");
    out
}

#[test]
fn a_sound_image_is_left_alone() {
    let dir = built();
    let path = dir.path();
    let before = bytes(path);
    assert_eq!(succeed(path, &["repair", "a.img"]), "a.img: clean, nothing to repair\n");
    assert!(bytes(path) == before && !path.join("a.img.repair").exists());
}

#[test]
fn the_plan_changes_nothing_and_the_repair_can_be_undone() {
    extant_testkit::require!(E2fsprogs);
    let dir = lossy();
    let path = dir.path();
    let before = bytes(path);
    for args in [&["repair", "--dry-run", "a.img"][..], &["repair", "a.img"]] {
        let shown = exits(path, 4, args);
        assert!(shown.contains("lost: names lost: 1\n"), "{shown}");
        assert!(bytes(path) == before && !path.join("a.img.repair").exists());
    }
    let shown = exits(path, 4, &["repair", "--preen", "a.img"]);
    assert!(shown.ends_with("run `extant repair` without --preen\n"), "{shown}");
    assert!(bytes(path) == before);

    let shown = exits(path, 1, &["repair", "--yes", "a.img"]);
    assert!(shown.ends_with("--undo a.img.repair takes it back\n"), "{shown}");
    assert_clean(&path.join("a.img"));
    let after = bytes(path);
    succeed(path, &["repair", "a.img"]);
    assert!(bytes(path) == after, "the second repair wrote");

    succeed(path, &["repair", "--undo", "a.img.repair", "a.img"]);
    assert!(bytes(path) == before);
    // The side file of an earlier repair stays; a new one has another name.
    let shown = exits(path, 1, &["repair", "--yes", "a.img"]);
    assert!(shown.ends_with("--undo a.img.repair.1 takes it back\n"), "{shown}");
    succeed(path, &["repair", "--undo", "a.img.repair.1", "a.img"]);
    assert!(bytes(path) == before);
    let mode = fs::metadata(path.join("a.img.repair")).unwrap().permissions().mode();
    assert_eq!(mode & 0o777, 0o600);
    let taken = ["repair", "--yes", "--side-file", "a.img.repair", "a.img"];
    let refused = fail_with_plan(path, 8, &taken);
    assert!(refused.contains("a.img.repair: the side file of an earlier repair"), "{refused}");
    exits(path, 1, &["repair", "--yes", "--side-file", "side", "a.img"]);
    assert_clean(&path.join("a.img"));
    // Bytes that were changed since are not overwritten.
    let image = fs::File::options().write(true).open(path.join("a.img")).unwrap();
    image.write_all_at(b"later", 1024 + 0x78).unwrap();
    let refused = fail(path, 8, &["repair", "--undo", "side", "a.img"]);
    assert!(refused.contains("was changed after the repair"), "{refused}");
}

#[test]
fn preen_repairs_what_cannot_lose_anything() {
    let dir = harmless();
    let path = dir.path();
    exits(path, 1, &["repair", "--preen", "a.img"]);
    assert_clean(&path.join("a.img"));
}

#[test]
fn json_has_classes_files_places_and_a_summary() {
    extant_testkit::require!(E2fsprogs);
    let dir = lossy();
    let shown = exits(dir.path(), 4, &["repair", "--dry-run", "--json", "a.img"]);
    let rows: Vec<serde_json::Value> =
        shown.lines().map(|line| serde_json::from_str(line).unwrap()).collect();
    assert!(rows.iter().any(|row| row["change"] == "name-lost" && row["loss"] == true), "{shown}");
    assert!(rows.iter().any(|row| row["path"] == "/etc" && row["state"] == "whole"), "{shown}");
    let places: Vec<_> = rows.iter().filter(|row| row["at"].is_u64()).collect();
    let last = rows.last().unwrap();
    assert_eq!((&last["status"], &last["places"]), (&"planned".into(), &places.len().into()));
    let sum: u64 = places.iter().map(|row| row["length"].as_u64().unwrap()).sum();
    assert_eq!(last["bytes"], sum);
}

#[test]
fn an_image_that_cannot_be_repaired_is_refused() {
    let dir = built();
    let path = dir.path();
    fs::write(path.join("text"), "no volume").unwrap();
    fail(path, 8, &["repair", "text"]);
    fail(path, 8, &["repair", "none.img"]);
    fail(path, 8, &["repair", "--undo", "text", "a.img"]);
    let (code, ..) = run(path, &["repair", "--yes", "--preen", "a.img"]);
    assert_eq!(code, 16);
}

#[test]
fn a_damaged_volume_is_read_as_a_repair_would_leave_it() {
    extant_testkit::require!(E2fsprogs);
    let dir = lossy();
    let path = dir.path();
    let before = bytes(path);
    assert_eq!(succeed(path, &["ls", "--repaired", "a.img", "/etc"]), "alias\nempty\nhostname\n");
    assert_eq!(succeed(path, &["cat", "--repaired", "a.img", "/etc/hostname"]), "host\n");
    assert!(succeed(path, &["tree", "--repaired", "a.img"]).contains("hostname"));
    succeed(path, &["stat", "--repaired", "a.img", "/etc/hostname"]);
    succeed(path, &["get", "--repaired", "a.img", "/etc", "copy"]);
    assert_eq!(fs::read_to_string(path.join("copy/hostname")).unwrap(), "host\n");
    assert!(bytes(path) == before);
}

#[test]
fn a_copy_is_repaired_and_the_volume_is_not_touched() {
    extant_testkit::require!(E2fsprogs);
    let dir = lossy();
    let path = dir.path();
    let before = bytes(path);
    let shown = exits(path, 1, &["repair", "--yes", "--copy-to", "copy.img", "a.img"]);
    assert!(shown.contains("copy.img: repaired"), "{shown}");
    assert!(bytes(path) == before && !path.join("a.img.repair").exists());
    assert!(!path.join("copy.img.partial").exists());
    assert_clean(&path.join("copy.img"));

    // An existing file is never replaced.
    let copied = fs::read(path.join("copy.img")).unwrap();
    let (code, _, err) = run(path, &["repair", "--yes", "--copy-to", "copy.img", "a.img"]);
    assert_eq!((code, err.contains("already exists")), (8, true), "{err}");
    assert!(fs::read(path.join("copy.img")).unwrap() == copied);

    // Without --yes the copy stays as the volume was.
    exits(path, 4, &["repair", "--copy-to", "other.img", "a.img"]);
    assert!(fs::read(path.join("other.img")).unwrap() == before);
}

/// Runs a tool of e2fsprogs, whose exit status may say that something was changed.
fn tool(dir: &Path, line: &str) {
    let mut words = line.split(' ');
    let done = Command::new(words.next().unwrap()).current_dir(dir).args(words).output().unwrap();
    assert!(done.status.code().is_some_and(|code| code < 2), "{line}: {done:?}");
}

#[test]
fn undo_files_of_e2fsprogs_are_taken() {
    extant_testkit::require!(E2fsprogs);
    for change in [
        "tune2fs -z undo -L other a.img",
        "tune2fs -z undo -U random a.img",
        "e2fsck -z undo -fy a.img",
        "resize2fs -z undo a.img 40M",
        "mke2fs -q -z undo -t ext4 -b 4096 a.img",
    ] {
        let dir = lossy();
        let path = dir.path();
        if !change.starts_with("e2fsck") {
            tool(path, "e2fsck -fy a.img");
        }
        let before = bytes(path);
        let file = fs::File::options().write(true).open(path.join("a.img")).unwrap();
        file.set_len(u64::try_from(before.len()).unwrap().max(64 << 20)).unwrap();
        tool(path, change);
        let after = bytes(path);
        let shown = exits(path, 0, &["repair", "--undo", "undo", "a.img"]);
        assert!(shown.ends_with("--undo a.img.repair makes the change again\n"), "{shown}");
        assert!(bytes(path).starts_with(&before), "{change}");
        let shown = exits(path, 0, &["repair", "--undo", "undo", "a.img"]);
        assert!(shown.ends_with("it was already taken back\n"), "{shown}");
        exits(path, 0, &["repair", "--undo", "a.img.repair", "a.img"]);
        assert!(bytes(path) == after, "{change}");
        // The volume is used, so that the old blocks do not belong to it any more.
        tool(path, "tune2fs -L later a.img");
        let used = bytes(path);
        let refused = fail_with_plan(path, 8, &["repair", "--undo", "undo", "a.img"]);
        assert!(refused.contains("was changed after the undo file was written"), "{refused}");
        assert!(bytes(path) == used);
    }
}

#[test]
fn damaged_undo_files_are_refused() {
    extant_testkit::require!(E2fsprogs);
    let dir = built();
    let path = dir.path();
    tool(path, "tune2fs -z undo -L other a.img");
    let whole = fs::read(path.join("undo")).unwrap();
    let before = bytes(path);
    for at in (8..whole.len()).step_by(331) {
        let mut damaged = whole.clone();
        damaged[at] ^= 1;
        fs::write(path.join("damaged"), &damaged).unwrap();
        let (code, _, _) = run(path, &["repair", "--undo", "damaged", "a.img"]);
        // Some bytes of the file mean nothing.
        assert!(code == 8 || bytes(path) != before, "byte {at}: {code}");
        fs::write(path.join("a.img"), &before).unwrap();
        let _ = fs::remove_file(path.join("a.img.repair"));
    }
    for len in [0, 7, 400, 512, 1024, 2048, whole.len() - 1024] {
        fs::write(path.join("cut"), &whole[..len]).unwrap();
        fail_with_plan(path, 8, &["repair", "--undo", "cut", "a.img"]);
        assert!(bytes(path) == before, "{len} bytes");
    }
}

#[test]
fn a_volume_that_starts_elsewhere_is_reported_and_left_alone() {
    extant_testkit::require!(E2fsprogs);
    let dir = built();
    let path = dir.path();
    let disk = [vec![0; 63 * 512], bytes(path)].concat();
    fs::write(path.join("a.img"), &disk).unwrap();
    let shown = exits(path, 8, &["repair", "--yes", "a.img"]);
    assert!(shown.starts_with("found: a volume of ") && shown.contains(" at byte 32256: UUID "));
    assert!(shown.contains("repair a.img?offset=32256, or let the partition start there\n"));
    let json = exits(path, 8, &["repair", "--json", "a.img"]);
    assert!(json.starts_with("{\"volume_at\":32256,") && json.contains("\"status\":\"elsewhere\""));
    let (code, _, err) = run(path, &["ls", "--repaired", "a.img", "/"]);
    assert!(code == 1 && err.contains("a volume starts at byte 32256"), "{err}");
    assert!(bytes(path) == disk);
    assert_eq!(
        succeed(path, &["repair", "a.img?offset=32256"]),
        "a.img?offset=32256: clean, nothing to repair\n"
    );
}

/// A volume `v.img` of two groups with its journal on `j.img`, after a power cut.
fn cut_with_external_journal() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path();
    let (volume, journal) = (path.join("v.img"), path.join("j.img"));
    mke2fs(&journal, 16 << 20, "-b 4096 -O journal_dev", None).unwrap();
    let device = LoopDevice::attach(&journal).unwrap();
    let options = format!("-b 4096 -g 8192 -t ext4 -J device={}", device.path().display());
    mke2fs(&volume, 64 << 20, &options, None).unwrap();
    drop(device);
    let mut options = OpenOptions::new();
    let fs = options.write(true).journal_device(&journal).open(&volume).unwrap();
    for n in 0..50 {
        fs.write(format!("/file{n}"), format!("content {n}")).unwrap();
    }
    fs.sync().unwrap();
    // The power goes.
    for name in ["v.img", "j.img"] {
        fs::copy(path.join(name), path.join(format!("cut-{name}"))).unwrap();
    }
    drop(fs);
    for name in ["v.img", "j.img"] {
        fs::rename(path.join(format!("cut-{name}")), path.join(name)).unwrap();
    }
    dir
}

#[test]
fn a_volume_with_an_external_journal_is_replayed_and_repaired() {
    extant_testkit::require!(Root, Loop, E2fsprogs);
    let dir = cut_with_external_journal();
    let path = dir.path();
    let (volume, journal) = (path.join("v.img"), path.join("j.img"));
    let named = "v.img?journal=j.img";
    let before = (fs::read(&volume).unwrap(), fs::read(&journal).unwrap());
    let refused = fail_with_plan(path, 8, &["repair", "--yes", "v.img"]);
    assert!(refused.contains("name that device as IMG?journal=DEVICE"), "{refused}");
    let shown = exits(path, 4, &["repair", "--dry-run", named]);
    assert!(shown.contains("repair: journal replayed: 1\n"), "{shown}");
    assert!((fs::read(&volume).unwrap(), fs::read(&journal).unwrap()) == before);
    let shown = exits(path, 1, &["repair", "--yes", named]);
    assert!(
        shown.ends_with("and the journal's superblock; --undo cannot take it back\n"),
        "{shown}"
    );
    assert_eq!(succeed(path, &["cat", named, "/file49"]), "content 49");
    e2fsck(&volume, Some(&journal)).expect_clean().unwrap();
    assert!(succeed(path, &["repair", named]).ends_with("clean, nothing to repair\n"));
    // The volume as it was would need the log that is no longer there.
    let after = fs::read(&volume).unwrap();
    let refused = fail(path, 8, &["repair", "--undo", "v.img.repair", named]);
    assert!(refused.contains("it cannot be taken back"), "{refused}");
    assert!(fs::read(&volume).unwrap() == after);
    // As after a kill before the log was emptied: it is older than the volume.
    fs::write(&journal, &before.1).unwrap();
    let after = fs::read(&volume).unwrap();
    let shown = exits(path, 1, &["repair", "--yes", named]);
    assert!(shown.ends_with("repaired, the journal was emptied\n"), "{shown}");
    assert!(fs::read(&volume).unwrap() == after);
    e2fsck(&volume, Some(&journal)).expect_clean().unwrap();
}

#[test]
fn an_external_journal_is_replayed_if_the_superblock_with_its_mark_is_lost() {
    extant_testkit::require!(Root, Loop, E2fsprogs);
    let dir = cut_with_external_journal();
    let path = dir.path();
    let (volume, journal) = (path.join("v.img"), path.join("j.img"));
    let named = "v.img?journal=j.img";
    let image = fs::File::options().write(true).open(&volume).unwrap();
    image.write_all_at(&[0; 1024], 1024).unwrap();
    // The copy does not say that a replay is needed.
    let shown = exits(path, 4, &["repair", "--dry-run", "v.img"]);
    assert!(shown.contains("the journal on another device may hold newer changes"), "{shown}");
    let shown = exits(path, 1, &["repair", "--yes", named]);
    assert!(shown.contains("repair: journal replayed: 1\n"), "{shown}");
    assert_eq!(succeed(path, &["cat", named, "/file49"]), "content 49");
    e2fsck(&volume, Some(&journal)).expect_clean().unwrap();
}

#[test]
fn a_layout_is_repaired_with_all_its_members() {
    extant_testkit::require!(E2fsprogs);
    for (layout, volume_at) in [("raid0", 1 << 20), ("raid1", 0)] {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path();
        succeed(path, &["mkfs", "a.img", "--size", "32M", "--layout", layout, "b.img"]);
        let named = "b.img?member=a.img";
        let members = ["a.img", "b.img"].map(|name| path.join(name));
        for member in members.iter().take(if layout == "raid1" { 2 } else { 1 }) {
            let member = fs::File::options().write(true).open(member).unwrap();
            member.write_all_at(&[0xFF; 4], volume_at + 1024 + 16).unwrap();
        }
        let before = members.each_ref().map(|member| fs::read(member).unwrap());
        let refused = fail_with_plan(path, 8, &["repair", "--yes", "a.img"]);
        assert!(refused.contains("is one of 2 members"), "{refused}");
        let refused = fail_with_plan(path, 8, &["repair", "--yes", "--copy-to", "copy", named]);
        assert!(refused.contains("cannot be copied to one file"), "{refused}");
        exits(path, 4, &["repair", "--dry-run", named]);
        assert!(members.each_ref().map(|member| fs::read(member).unwrap()) == before);
        exits(path, 1, &["repair", "--yes", named]);
        assert!(succeed(path, &["check", named]).contains(": clean, "));
        assert!(succeed(path, &["repair", named]).ends_with("clean, nothing to repair\n"));
        if layout == "raid1" {
            members.iter().for_each(|member| assert_clean(member));
            assert!(succeed(path, &["scrub", named]).ends_with(": 2 members, all the same\n"));
        }
    }
}

#[test]
fn a_volume_with_checksums_of_data_is_repaired() {
    extant_testkit::require!(E2fsprogs);
    let dir = tempfile::tempdir().unwrap();
    let path = dir.path();
    succeed(path, &["mkfs", "a.img", "--size", "32M"]);
    fs::write(path.join("file"), vec![7; 100_000]).unwrap();
    succeed(path, &["put", "a.img", "file", "/file"]);
    succeed(path, &["tune", "-O", "data_csum", "a.img"]);
    // The inode of the checksum file, which only the journal still has.
    let place = debugfs(&path.join("a.img"), "imap <5>").unwrap();
    let block = place.split("located at block ").nth(1).unwrap().split(',').next().unwrap();
    let image = fs::File::options().write(true).open(path.join("a.img")).unwrap();
    image.write_all_at(&[0; 1024], block.parse::<u64>().unwrap() * 1024).unwrap();
    image.write_all_at(&[0xFF; 4], 1024 + 16).unwrap();
    exits(path, 1, &["repair", "--yes", "a.img"]);
    let checked = succeed(path, &["check", "--data", "a.img"]);
    assert!(checked.contains(": clean, "), "{checked}");
}
