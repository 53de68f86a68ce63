//! `extant defrag`: the list, the move, and that a kill at any moment loses nothing.

use crate::common::{assert_clean, pattern, succeed};
use std::fs;
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
