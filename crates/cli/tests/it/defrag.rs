//! `extant defrag`: the list, the move, and that a kill at any moment loses nothing.

use crate::common::{assert_clean, pattern, succeed};
use extant_testkit::fuse_mount::FuseMount;
use std::fs;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

/// A volume with a file in many pieces: it filled the gaps between small files.
fn fragmented() -> tempfile::TempDir {
    let dir = tempfile::tempdir().unwrap();
    let at = dir.path();
    for half in ["keep", "gone"] {
        fs::create_dir(at.join(half)).unwrap();
    }
    fs::create_dir(at.join("src")).unwrap();
    for n in 0..400 {
        let half = if n % 2 == 0 { "a" } else { "b" };
        fs::write(at.join(format!("src/{n:03}{half}")), pattern(9000 + n)).unwrap();
    }
    succeed(at, &["build", "src", "-q", "-o", "a.img", "--size", "24M"]);
    // What is free at the end of the volume is taken meanwhile.
    fs::write(at.join("fill"), pattern(14 << 20)).unwrap();
    succeed(at, &["put", "a.img", "fill", "/fill"]);
    let gone: Vec<String> = (1..400).step_by(2).map(|n| format!("/{n:03}b")).collect();
    let mut rm = vec!["rm", "a.img"];
    rm.extend(gone.iter().map(String::as_str));
    succeed(at, &rm);
    fs::write(at.join("big"), pattern(2 << 20)).unwrap();
    succeed(at, &["put", "a.img", "big", "/big"]);
    succeed(at, &["rm", "a.img", "/fill"]);
    dir
}

/// The content of a volume, without the count of blocks, to which maps belong.
fn content(dir: &Path, image: &str) -> Vec<serde_json::Value> {
    let read = |line| {
        let mut record: serde_json::Value = serde_json::from_str(line).unwrap();
        record.as_object_mut().unwrap().remove("blocks");
        record
    };
    succeed(dir, &["tree", "--json", "--hash", image]).lines().map(read).collect()
}

#[test]
fn files_are_listed_and_move_and_nothing_else_changes() {
    let dir = fragmented();
    let at = dir.path();
    let before = fs::read(at.join("a.img")).unwrap();
    let listed = succeed(at, &["defrag", "-n", "a.img"]);
    assert!(listed.contains("/big: ") && listed.contains(" extents, needs 1\n"), "{listed}");
    assert!(fs::read(at.join("a.img")).unwrap() == before, "the list changed the image");
    let old = content(at, "a.img");
    let moved = succeed(at, &["defrag", "--verbose", "a.img"]);
    assert!(moved.contains("/big: ") && moved.contains(" extents, now 1\n"), "{moved}");
    assert!(content(at, "a.img") == old, "the content changed");
    assert_clean(&at.join("a.img"));
    let again = succeed(at, &["defrag", "--json", "a.img", "/big"]);
    let totals: serde_json::Value = serde_json::from_str(again.lines().last().unwrap()).unwrap();
    assert_eq!((&totals["files"], &totals["moved"]), (&1.into(), &0.into()), "{again}");
}

#[test]
fn a_kill_loses_nothing() {
    let dir = fragmented();
    let at = dir.path();
    fs::rename(at.join("a.img"), at.join("old.img")).unwrap();
    let old = content(at, "old.img");
    fs::copy(at.join("old.img"), at.join("a.img")).unwrap();
    let started = Instant::now();
    succeed(at, &["defrag", "-q", "a.img"]);
    let took = started.elapsed();
    for n in 0..8u32 {
        fs::copy(at.join("old.img"), at.join("a.img")).unwrap();
        let mut child = Command::new(assert_cmd::cargo::cargo_bin("extant"))
            .current_dir(at)
            .args(["defrag", "-q", "a.img"])
            .stdout(Stdio::null())
            .stderr(Stdio::null())
            .spawn()
            .unwrap();
        std::thread::sleep(Duration::from_micros(took.as_micros() as u64 * u64::from(n) / 8));
        let _ = child.kill();
        child.wait().unwrap();
        succeed(at, &["replay", "-q", "a.img"]);
        assert!(content(at, "a.img") == old, "killed in part {n}");
        assert_clean(&at.join("a.img"));
    }
}

#[test]
fn free_space_gets_fewer_runs() {
    let dir = fragmented();
    let at = dir.path();
    let before = fs::read(at.join("a.img")).unwrap();
    let listed = succeed(at, &["defrag", "--free-space", "-n", "a.img"]);
    assert!(listed.contains(" runs of free blocks; longest "), "{listed}");
    assert!(fs::read(at.join("a.img")).unwrap() == before, "the list changed the image");
    let old = content(at, "a.img");
    let done = succeed(at, &["defrag", "--free-space", "--json", "a.img"]);
    let done: serde_json::Value = serde_json::from_str(&done).unwrap();
    let runs = |when: &str| done[when]["runs"].as_u64().unwrap();
    assert!(runs("after") < runs("before"), "{done}");
    assert_eq!(done["before"]["blocks"], done["after"]["blocks"]);
    assert!(content(at, "a.img") == old, "the content changed");
    assert_clean(&at.join("a.img"));
    let again = succeed(at, &["defrag", "--free-space", "a.img"]);
    assert!(again.contains(" runs of free blocks, now "), "{again}");
    let (code, _, _) = crate::common::run(at, &["defrag", "--free-space", "a.img", "/big"]);
    assert_eq!(code, 2);
}

#[test]
fn files_on_a_mount_move_while_they_are_open() {
    extant_testkit::require!(Root, Fuse);
    let dir = fragmented();
    let at = dir.path();
    let image = at.join("a.img");
    let before = content(at, "a.img");
    let mount = FuseMount::new(&image, "allow_other").unwrap();
    let big = mount.path().join("big");
    let open = fs::File::open(&big).unwrap();
    let (bytes, meta) = (fs::read(&big).unwrap(), open.metadata().unwrap());
    let path = big.to_str().unwrap();
    let listed = succeed(at, &["defrag", "-n", path]);
    assert!(listed.contains(" extents, needs 1\n"), "{listed}");
    // The owner may, and another user may not.
    let as_other = |uid: u32| {
        let extant = extant_testkit::extant::Extant::get().unwrap();
        let user = format!("--reuid={uid}");
        let mut command = Command::new("setpriv");
        command.args([&user, "--clear-groups"]).arg(extant.bin()).args(["defrag", path]);
        command.output().unwrap()
    };
    std::os::unix::fs::chown(&big, Some(4711), None).unwrap();
    let refused = as_other(4712);
    let text = String::from_utf8_lossy(&refused.stderr);
    assert!(refused.status.code() == Some(1) && text.contains("not permitted"), "{text}");
    let times =
        |meta: fs::Metadata| (meta.mtime(), meta.mtime_nsec(), meta.ctime(), meta.ctime_nsec());
    let before_move = times(open.metadata().unwrap());
    let moved = as_other(4711);
    assert!(moved.status.success(), "{}", String::from_utf8_lossy(&moved.stderr));
    let text = String::from_utf8_lossy(&moved.stdout);
    assert!(text.contains("1 of 1 files moved: ") && text.ends_with(" extents, now 1\n"), "{text}");
    assert_eq!(times(open.metadata().unwrap()), before_move);
    std::os::unix::fs::chown(&big, Some(meta.uid()), None).unwrap();
    let all = succeed(at, &["defrag", "--verbose", mount.path().to_str().unwrap()]);
    assert!(all.contains(": 0 of 201 files moved: "), "{all}");
    let now = open.metadata().unwrap();
    assert_eq!(now.modified().unwrap(), meta.modified().unwrap());
    assert!(fs::read(&big).unwrap() == bytes);
    drop(open);
    let (code, _, err) = crate::common::run(at, &["defrag", "src"]);
    assert!(code == 1 && err.contains("is not on a mount by extant"), "{err}");
    mount.unmount().unwrap();
    let shown = |all: &[serde_json::Value]| {
        // The owner was changed twice, and the file was read.
        let fields = |one: &serde_json::Value| {
            ["path", "size", "mode", "mtime", "sha256", "hash"].map(|name| one[name].clone())
        };
        all.iter().map(fields).collect::<Vec<_>>()
    };
    assert!(shown(&content(at, "a.img")) == shown(&before), "the content changed");
    assert_clean(&image);
}
