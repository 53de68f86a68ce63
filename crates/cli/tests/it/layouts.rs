//! Volumes on several devices, from the command line: made, filled, degraded, rebuilt, scrubbed.

use crate::common::{assert_clean, fail, pattern, run, succeed};
use extant::raid::{Assembled, Part};
use std::fs;
use std::os::unix::fs::FileExt;
use std::path::Path;
use std::sync::Arc;
use tempfile::TempDir;

const BOTH: &str = "a.img?member=b.img";
const THREE: &str = "a.img?member=b.img&member=c.img";

/// A directory with a file `f`, and a layout that holds it as `/f`.
fn made(args: &[&str], whole: &str) -> TempDir {
    let dir = tempfile::tempdir().unwrap();
    fs::write(dir.path().join("f"), content(1)).unwrap();
    fs::write(dir.path().join("g"), content(2)).unwrap();
    let all: Vec<&str> = ["mkfs", "-q", "--size", "16M"].iter().chain(args).copied().collect();
    succeed(dir.path(), &all);
    succeed(dir.path(), &["put", whole, "f", "/f"]);
    dir
}

fn mirrored() -> TempDir {
    made(&["a.img", "--layout", "raid1", "b.img"], BOTH)
}

fn with_data_csum() -> TempDir {
    made(&["a.img", "--layout", "raid1", "b.img", "-O", "data_csum"], BOTH)
}

fn striped() -> TempDir {
    made(&["a.img", "--layout", "raid0", "b.img", "c.img", "--stripe", "16K"], THREE)
}

/// Bytes in which each piece of 64 occurs only once.
fn content(seed: u64) -> Vec<u8> {
    let mut state = seed;
    let mut next = || {
        state =
            state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1_442_695_040_888_963_407);
        (state >> 33) as u8 & 0x7F
    };
    (0..700_000).map(|_| next()).collect()
}

fn holds(dir: &Path, image: &str, path: &str, seed: u64) {
    let (code, out, err) = run(dir, &["cat", image, path]);
    assert_eq!(code, 0, "{image} {path}: {err}");
    assert!(out.as_bytes() == content(seed), "{image}: {path} has other bytes");
}

/// Flips a bit in a member's copy of content `seed`, at byte `at` of the content.
fn flip_content(dir: &Path, member: &str, seed: u64, at: usize) {
    let file = fs::OpenOptions::new().read(true).write(true).open(dir.join(member)).unwrap();
    let bytes = fs::read(dir.join(member)).unwrap();
    let wanted = &content(seed)[at..at + 64];
    let place = bytes.windows(64).position(|window| window == wanted).expect("a whole block");
    file.write_all_at(&[bytes[place] ^ 1], place as u64).unwrap();
}

fn same_but_records(dir: &Path) -> bool {
    let read = |name: &str| fs::read(dir.join(name)).unwrap();
    let (mut a, mut b) = (read("a.img"), read("b.img"));
    a[512..1024].fill(0);
    b[512..1024].fill(0);
    a == b
}

/// The state of each member, as `info` shows it.
fn states(dir: &Path, image: &str) -> Vec<String> {
    // `info` also reports the members that are not in use.
    let json = run(dir, &["info", "--json", image]).1;
    let layout = json.split("\"layout\":").nth(1).expect("it has a layout");
    let state = |part: &str| part.split('"').next().unwrap_or_default().to_owned();
    layout.split("\"state\":\"").skip(1).map(state).collect()
}

#[test]
fn each_mirror_is_a_volume_by_itself() {
    let dir = mirrored();
    let at = dir.path();
    assert!(same_but_records(at));
    for image in [BOTH, "b.img?member=a.img", "a.img", "b.img"] {
        holds(at, image, "/f", 1);
    }
    assert_clean(&at.join("a.img"));
    assert_clean(&at.join("b.img"));
    // One member alone can be read, with a message that it is not complete.
    let (code, out, err) = run(at, &["ls", "b.img"]);
    assert!(code == 0 && out.contains('f'), "{out}");
    let reported = "extant: b.img: is one of 2 members, and member 0 is missing: ";
    assert!(err.starts_with(reported) && err.lines().count() == 1, "{err}");
    succeed(at, &["ls", "b.img?degraded"]);
    assert_eq!(states(at, BOTH), ["in use", "in use"]);
    let text = succeed(at, &["info", BOTH]);
    assert!(text.contains("raid1 of 2 members") && text.contains("1: b.img, in use"), "{text}");
    assert!(succeed(at, &["check", BOTH]).contains("clean"));
}

#[test]
fn a_member_that_is_not_there_is_named() {
    let dir = mirrored();
    let at = dir.path();
    fs::remove_file(at.join("b.img")).unwrap();
    for verb in [&["ls", BOTH][..], &["info", BOTH], &["rm", BOTH, "/f"]] {
        let line = fail(at, 1, verb);
        assert_eq!(
            line,
            format!(
                "{BOTH}: b.img: cannot be opened: No such file or directory: name a member that \
                 can be opened; a mirror can be used without it as IMG?degraded"
            )
        );
    }
    let line = fail(at, 8, &["check", BOTH]);
    assert!(line.contains("b.img: cannot be opened"), "{line}");
}

#[test]
fn a_mirror_without_one_member_is_changed_when_that_is_asked_for() {
    let dir = mirrored();
    let at = dir.path();
    let line = fail(at, 1, &["put", "a.img", "g", "/g"]);
    assert!(line.contains("member 1 is missing") && line.contains("IMG?degraded"), "{line}");
    fs::copy(at.join("b.img"), at.join("old.img")).unwrap();
    succeed(at, &["put", "a.img?degraded", "g", "/g"]);

    // The other member is out of date: it is reported, not used, and never mixed in.
    let (code, out, err) = run(at, &["cat", BOTH, "/g"]);
    assert!(code == 0 && out.as_bytes() == content(2));
    assert!(err.contains("b.img: is out of date"), "{err}");
    assert_eq!(states(at, BOTH), ["in use", "dropped"]);

    let json = succeed(at, &["rebuild", "--json", "a.img", "--member", "b.img"]);
    assert!(json.contains("\"index\":1") && json.contains("\"copied_bytes\":16777216"), "{json}");
    assert_eq!(states(at, BOTH), ["in use", "in use"]);
    assert!(same_but_records(at));
    holds(at, "b.img", "/g", 2);
    assert_clean(&at.join("b.img"));

    // An old copy that is put back is recognised, though a.img expects a member there.
    fs::copy(at.join("old.img"), at.join("b.img")).unwrap();
    let line = fail(at, 1, &["put", BOTH, "g", "/h"]);
    assert!(line.contains("b.img: is out of date"), "{line}");
    assert_eq!(states(at, BOTH), ["in use", "out of date"]);

    // The member is lost: a new file takes its place.
    fs::remove_file(at.join("b.img")).unwrap();
    succeed(at, &["put", "a.img?degraded", "g", "/h"]);
    let text = succeed(at, &["rebuild", "a.img", "--member", "b.img"]);
    assert_eq!(text, "b.img: member 1 is complete, 16.0 MiB copied\n");
    assert!(same_but_records(at));
    holds(at, "b.img", "/h", 2);

    // A member too many, and a new member in the place of one that is not named.
    let line = fail(at, 1, &["rebuild", BOTH, "--member", "d.img"]);
    assert!(line.contains("has all its members") && !at.join("d.img").exists(), "{line}");
    succeed(at, &["rebuild", "-q", "a.img", "--member", "d.img"]);
    holds(at, "a.img?member=d.img", "/h", 2);
    assert_eq!(states(at, "a.img?member=d.img"), ["in use", "in use"]);
    let line = fail(at, 1, &["put", BOTH, "g", "/i"]);
    assert!(line.contains("b.img: is out of date"), "{line}");
}

#[test]
fn a_member_whose_record_is_damaged_is_left_out_when_that_is_asked_for() {
    for wrong in [&[0; 512][..], b"bits"] {
        let dir = mirrored();
        let at = dir.path();
        let file = fs::OpenOptions::new().write(true).open(at.join("a.img")).unwrap();
        file.write_all_at(wrong, 512 + if wrong.len() == 4 { 100 } else { 0 }).unwrap();
        let line = fail(at, 1, &["put", BOTH, "g", "/g"]);
        assert!(line.contains(": a.img: "), "{line}");
        if wrong.len() == 4 {
            assert!(line.contains("`extant rebuild --force OTHER --member IT`"), "{line}");
        }
        let both = "a.img?member=b.img&degraded";
        let (code, _, err) = run(at, &["put", both, "g", "/g"]);
        assert!(code == 0 && err.contains("a.img: "), "{err}");
        holds(at, "b.img", "/g", 2);
        succeed(at, &["rebuild", "-q", "--force", "b.img?degraded", "--member", "a.img"]);
        assert!(same_but_records(at));
        assert_eq!(states(at, BOTH), ["in use", "in use"]);
    }
}

#[test]
fn mirrors_that_went_their_own_ways_are_refused() {
    let dir = mirrored();
    let at = dir.path();
    succeed(at, &["put", "a.img?degraded", "g", "/g"]);
    succeed(at, &["put", "b.img?degraded", "f", "/h"]);
    for args in [&["ls", BOTH, "/"][..], &["put", BOTH, "g", "/i"]] {
        let line = fail(at, 1, args);
        assert!(line.contains("b.img"), "{line}");
    }
    holds(at, "a.img", "/g", 2);
    holds(at, "b.img", "/h", 1);
    // The user must decide whose content is valid.
    for (img, new) in [("a.img", "b.img"), ("b.img", "a.img")] {
        let line = fail(at, 1, &["rebuild", img, "--member", new]);
        assert_eq!(
            line,
            format!(
                "{new}: generation 4, and {img}, generation 4, may each have changes that the other lacks: \
                 copy what you need from {new}, then use --force; or exchange them"
            )
        );
    }
    holds(at, "a.img", "/g", 2);
    holds(at, "b.img", "/h", 1);
    succeed(at, &["rebuild", "--force", "a.img?degraded", "--member", "b.img"]);
    holds(at, "b.img", "/g", 2);
    assert!(same_but_records(at));
}

#[test]
fn a_rebuild_the_wrong_way_round_is_refused() {
    let dir = mirrored();
    let at = dir.path();
    succeed(at, &["put", "a.img?degraded", "g", "/g"]);
    let before = fs::read(at.join("b.img")).unwrap();
    let line = fail(at, 1, &["rebuild", "b.img", "--member", "a.img"]);
    assert_eq!(
        line,
        "a.img: generation 4, newer than b.img, generation 3: exchange them, `extant rebuild a.img --member \
         b.img`; --force loses the changes that only a.img has"
    );
    for itself in ["b.img", "./b.img"] {
        for force in [&[][..], &["--force"]] {
            let line = fail(at, 1, &[&["rebuild", "b.img", "--member", itself], force].concat());
            assert!(line.contains("NEW is the same file as IMG"), "{line}");
        }
    }
    assert!(before == fs::read(at.join("b.img")).unwrap(), "a refusal writes nothing");
    holds(at, "a.img", "/g", 2);
    succeed(at, &["rebuild", "-q", "a.img", "--member", "b.img"]);
    // A member that is in use already, under another name.
    let text = succeed(at, &["rebuild", BOTH, "--member", "./b.img"]);
    assert!(text.starts_with("./b.img: member 1 is complete already"), "{text}");
    assert!(same_but_records(at));
    holds(at, "b.img", "/g", 2);
    assert_clean(&at.join("a.img"));
    assert_clean(&at.join("b.img"));
}

#[test]
fn the_newest_of_three_is_not_written_over_by_a_stale_one() {
    let dir = made(&["a.img", "--layout", "raid1", "b.img", "c.img"], THREE);
    let at = dir.path();
    succeed(at, &["put", "a.img?member=b.img&degraded", "g", "/g"]);
    for newest in ["a.img", "b.img"] {
        let line = fail(at, 1, &["rebuild", "c.img", "--member", newest]);
        assert!(line.starts_with(&format!("{newest}: generation 4, newer than c.img")), "{line}");
        holds(at, newest, "/g", 2);
    }
    succeed(at, &["rebuild", "-q", "a.img?member=b.img", "--member", "c.img"]);
    holds(at, "c.img", "/g", 2);
    assert_eq!(states(at, THREE), ["in use", "in use", "in use"]);
}

#[test]
fn scrub_repairs_what_a_checksum_decides() {
    let dir = with_data_csum();
    let at = dir.path();
    assert_eq!(succeed(at, &["scrub", BOTH]), format!("{BOTH}: 2 members, all the same\n"));
    for member in ["a.img", "b.img"] {
        flip_content(at, member, 1, if member == "a.img" { 100_000 } else { 500_000 });
        let line = fail(at, 1, &["cat", &format!("{member}?degraded"), "/f"]);
        assert!(line.contains("checksum of data does not match"), "{line}");
    }
    // Reading the whole file takes each block from a member where it is right.
    (0..4).for_each(|_| holds(at, BOTH, "/f", 1));

    let (code, out, err) = run(at, &["scrub", "--read-only", BOTH]);
    assert_eq!((code, err.as_str()), (4, ""));
    assert_eq!(out.matches("it is known which is right").count(), 2, "{out}");
    assert!(out.contains("2 blocks differed, 0 repaired"), "{out}");
    assert!(!same_but_records(at), "nothing was to be changed");

    let json = succeed(at, &["scrub", "--json", BOTH]);
    let want = "\"members\":2,\"missing_members\":[],\"differing_blocks\":2,\"mended_blocks\":2,\"more\":false,\
         \"unresolved\":[],\"unresolved_omitted\":0,\"behind\":[],\"errors\":0}";
    assert!(json.contains(want), "{json}");
    assert!(same_but_records(at));
    holds(at, "a.img", "/f", 1);
    holds(at, "b.img", "/f", 1);
    let text = succeed(at, &["check", "--data", "b.img?degraded"]);
    assert!(text.contains("blocks of data verified"), "{text}");
}

#[test]
fn scrub_leaves_what_no_checksum_decides_to_the_user() {
    let dir = mirrored();
    let at = dir.path();
    flip_content(at, "b.img", 1, 300_000);
    let (code, out, _) = run(at, &["scrub", BOTH]);
    assert_eq!(code, 4);
    assert!(out.contains("and it is not known which is right"), "{out}");
    let (code, out, _) = run(at, &["scrub", "-q", "--read-only", BOTH]);
    assert!(code == 4 && out.lines().count() == 1, "{out}");
    succeed(at, &["scrub", "--trust", "0", BOTH]);
    assert!(same_but_records(at));
    holds(at, "b.img", "/f", 1);
    let line = fail(at, 1, &["scrub", "f"]);
    assert!(line.contains("f: "), "{line}");
}

#[test]
fn scrub_takes_no_unfinished_rebuild_for_damage() {
    let dir = mirrored();
    let at = dir.path();
    fs::remove_file(at.join("b.img")).unwrap();
    {
        let mut options = extant::OpenOptions::new();
        let Assembled::Mirrored(mirror) =
            options.write(true).degraded(true).assemble(at.join("a.img")).unwrap()
        else {
            panic!("no mirror")
        };
        let new = extant::FileOptions::new().create_new(at.join("b.img"), 16 << 20).unwrap();
        mirror.add(Part::new(Arc::new(new), "b.img")).unwrap();
        mirror.resync(&mut |done, _| done < 1 << 20).unwrap();
    }
    let text = succeed(at, &["scrub", "--read-only", BOTH]);
    let want = format!(
        "{BOTH}: member 1 is being rebuilt, 16.0 MiB to copy\n{BOTH}: 2 members, all the same \
         except where they are out of date\n"
    );
    assert_eq!(text, want);
    assert_eq!(succeed(at, &["scrub", "-q", "--read-only", BOTH]), "");
    let json = succeed(at, &["scrub", "--json", "--read-only", BOTH]);
    let behind = "\"behind\":[{\"index\":1,\"rebuilding\":true,\"bytes\":16777216}]";
    assert!(json.contains(behind) && json.contains("\"differing_blocks\":0"), "{json}");
    assert_eq!(succeed(at, &["scrub", BOTH]), format!("{BOTH}: 2 members, all the same\n"));
    assert!(same_but_records(at));
    holds(at, "b.img", "/f", 1);
}

#[test]
fn scrub_reports_adjacent_blocks_as_one_and_no_more_than_requested() {
    let dir = mirrored();
    let at = dir.path();
    // Blocks of 1 KiB. The content is in one piece.
    for n in [0, 1024, 2048, 100_000, 300_000] {
        flip_content(at, "b.img", 1, n);
    }
    let (code, out, _) = run(at, &["scrub", "--read-only", "--max-findings", "2", BOTH]);
    assert_eq!(code, 4);
    let lines: Vec<_> = out.lines().collect();
    assert!(lines[0].contains("members differ in 3 blocks from byte "), "{out}");
    assert!(lines[1].contains("members differ at byte "), "{out}");
    assert_eq!(lines[2], format!("{BOTH}: members differ in 1 more places"));
    assert_eq!(lines[3], format!("{BOTH}: 2 members, 5 blocks differed, 0 repaired"));
    assert_eq!(lines.len(), 4, "{out}");
    let (_, json, _) = run(at, &["scrub", "-n", "--json", "--max-findings", "1", BOTH]);
    assert!(json.contains(",\"bytes\":3072,\"known\":false}],\"unresolved_omitted\":2,"), "{json}");
}

#[test]
fn stripes_are_whole_or_nothing() {
    let dir = striped();
    let at = dir.path();
    for image in [THREE, "c.img?member=a.img&member=b.img"] {
        holds(at, image, "/f", 1);
    }
    assert!(succeed(at, &["check", THREE]).contains("clean"));
    let text = succeed(at, &["info", THREE]);
    assert!(text.contains("raid0 of 3 members, stripes of 16.0 KiB"), "{text}");
    for image in ["a.img", BOTH, "b.img?degraded"] {
        let line = fail(at, 1, &["ls", image, "/"]);
        assert!(line.contains("is missing"), "{line}");
    }
    let line = fail(at, 1, &["scrub", THREE]);
    assert!(line.contains("not a mirror"), "{line}");
    let line = fail(at, 1, &["rebuild", THREE, "--member", "d.img"]);
    assert!(line.contains("not a mirror") && !at.join("d.img").exists(), "{line}");

    let old = fs::read(at.join("b.img")).unwrap();
    succeed(at, &["put", THREE, "g", "/g"]);
    fs::write(at.join("b.img"), old).unwrap();
    let line = fail(at, 1, &["cat", THREE, "/f"]);
    assert!(line.contains("b.img: is out of date"), "{line}");
    assert!(line.contains("raid0 has no second copy") && !line.contains("rebuild"), "{line}");
    let line = fail(at, 1, &["cat", "a.img?member=b.img&member=none.img&degraded", "/f"]);
    assert!(line.contains("none.img: cannot be opened"), "{line}");
}

#[test]
fn a_member_is_not_written_over() {
    let dir = striped();
    let at = dir.path();
    let line = fail(at, 1, &["mkfs", "b.img"]);
    assert_eq!(line, "b.img: contains a member of a layout: use --force to overwrite it");
    holds(at, THREE, "/f", 1);
    let other = mirrored();
    fs::copy(at.join("b.img"), other.path().join("c.img")).unwrap();
    let longer = fs::OpenOptions::new().write(true).open(other.path().join("c.img")).unwrap();
    longer.set_len(16 << 20).unwrap();
    succeed(other.path(), &["put", "a.img?degraded", "g", "/g"]);
    let line = fail(other.path(), 1, &["rebuild", "a.img", "--member", "c.img"]);
    assert!(line.contains("a member of a layout"), "{line}");
    succeed(other.path(), &["rebuild", "--force", "-q", "a.img", "--member", "c.img"]);
    holds(other.path(), "c.img", "/g", 2);
    succeed(at, &["mkfs", "-q", "--force", "b.img"]);
    assert_clean(&at.join("b.img"));
}

#[test]
fn what_makes_no_layout_is_named() {
    let dir = mirrored();
    let at = dir.path();
    fs::write(at.join("plain"), pattern(16 << 20)).unwrap();
    let line = fail(at, 1, &["ls", "a.img?member=plain", "/"]);
    assert!(line.contains("plain: is no member of a layout"), "{line}");
    for verb in [&["ls", "a.img?member=./a.img"][..], &["put", "a.img?member=./a.img", "f", "/h"]] {
        let line = fail(at, 1, verb);
        assert_eq!(line, "./a.img: the same file as a.img: name each member once");
    }
    let line = fail(at, 2, &["mkfs", "x.img", "--size", "16M", "--layout", "raid1"]);
    assert!(line.contains("needs a second device") && !at.join("x.img").exists(), "{line}");
    let args = ["mkfs", "x.img", "--size", "16M", "--layout", "raid0", "y.img", "--stripe", "5000"];
    let line = fail(at, 2, &args);
    assert!(line.contains("power of two") && !at.join("x.img").exists(), "{line}");
    let line = fail(at, 1, &["mkfs", "x.img", "--size", "16M", "--layout", "raid1", "./x.img"]);
    assert!(line.starts_with("./x.img: the same file as x.img"), "{line}");
    let line = fail(at, 2, &["ls", "a.img?membr=b.img"]);
    assert!(
        line.contains("'membr=b.img' is not one of") && line.ends_with("did you mean member=?"),
        "{line}"
    );
    let args = ["mkfs", "x.img", "--size", "16M", "--layout", "raid1", "a.img"];
    let line = fail(at, 1, &args);
    assert!(line.contains("a.img: contains") && !at.join("x.img").exists(), "{line}");
    let (code, _, err) = run(at, &["mkfs", "x.img", "--size", "16M", "y.img"]);
    assert!(code == 2 && err.contains("--layout"), "{err}");
}

#[test]
fn check_and_scrub_name_the_members_that_are_not_in_use() {
    let dir = mirrored();
    let at = dir.path();
    let reported = |args: &[&str], status: i32| {
        let (code, out, err) = run(at, args);
        assert_eq!(code, status, "{args:?}: {err}");
        (out, err)
    };
    let json = "\"missing_members\":[1]";
    // Not named: reported, with the next step.
    for verb in [&["check", "a.img"][..], &["scrub", "--read-only", "a.img"]] {
        let (out, err) = reported(verb, 0);
        assert!(err.starts_with("extant: a.img: is one of 2 members, and member 1 is"), "{err}");
        assert!(err.lines().count() == 1 && !out.contains("not in use"), "{out}{err}");
    }
    assert!(reported(&["check", "--json", "a.img"], 0).0.contains(json));
    assert!(succeed(at, &["check", "--json", BOTH]).contains("\"missing_members\":[]"));
    // Left out on request: part of the result.
    for verb in ["check", "scrub"] {
        let out = succeed(at, &[verb, "a.img?degraded"]);
        assert!(out.contains("a.img?degraded: member 1 is not in use and was not"), "{out}");
        assert!(succeed(at, &[verb, "--json", "a.img?degraded"]).contains(json));
    }
    // Named but unusable: reported once, however often the volume is opened.
    succeed(at, &["put", "a.img?degraded", "g", "/g"]);
    let degraded = "a.img?member=b.img&degraded";
    for verb in [
        &["check", BOTH][..],
        &["scrub", "--read-only", BOTH],
        &["scrub", degraded],
        &["info", BOTH],
        &["report", BOTH],
    ] {
        let (out, err) = reported(verb, 0);
        assert!(err.contains("b.img: is out of date") && err.lines().count() == 1, "{err}");
        assert!(!out.contains("not in use"), "{out}");
    }
    assert!(reported(&["scrub", "--json", degraded], 0).0.contains(json));
}

#[test]
fn a_member_that_cannot_be_opened_is_left_out_when_that_is_asked_for() {
    let dir = mirrored();
    let at = dir.path();
    fs::remove_file(at.join("b.img")).unwrap();
    let (code, _, err) = run(at, &["put", "a.img?member=b.img&degraded", "g", "/g"]);
    let said = "extant: a.img?member=b.img&degraded: b.img: cannot be opened: No such file or \
                directory: the volume is used without this member\n";
    assert_eq!((code, err.as_str()), (0, said));
    holds(at, "a.img", "/g", 2);
    // A misspelt name does not cost a member its place.
    let line = fail(at, 1, &["rebuild", BOTH, "--member", "c.img"]);
    assert!(line.contains("b.img: cannot be opened") && !at.join("c.img").exists(), "{line}");
    succeed(at, &["rebuild", "-q", BOTH, "--member", "b.img"]);
    assert!(same_but_records(at));
}

#[test]
fn the_member_that_is_wrong_is_named() {
    let dir = made(&["a.img", "--layout", "raid1", "b.img", "c.img"], THREE);
    let at = dir.path();
    let other = mirrored();
    fs::copy(other.path().join("b.img"), at.join("x.img")).unwrap();
    for image in ["a.img?member=b.img&member=x.img", "x.img?member=a.img&member=b.img"] {
        let line = fail(at, 1, &["ls", image]);
        assert!(line.contains("x.img: is a member of another volume"), "{line}");
    }
    fs::write(at.join("x.img"), "").unwrap();
    let line = fail(at, 1, &["ls", "a.img?member=b.img&member=x.img"]);
    assert!(line.contains("x.img: is empty: "), "{line}");
    fs::remove_file(at.join("c.img")).unwrap();
    succeed(at, &["rebuild", "-q", "a.img?member=b.img", "--member", "x.img"]);
    holds(at, "x.img?degraded", "/f", 1);
    assert_clean(&at.join("x.img"));
}

#[test]
fn a_member_that_is_whole_is_not_copied_again() {
    let dir = mirrored();
    let at = dir.path();
    let before = (fs::read(at.join("a.img")).unwrap(), fs::read(at.join("b.img")).unwrap());
    let text = succeed(at, &["rebuild", "a.img", "--member", "b.img"]);
    assert_eq!(
        text,
        "b.img: member 1 is complete already: nothing was copied (--force copies all)\n"
    );
    let json = succeed(at, &["rebuild", "--json", "a.img", "--member", "b.img"]);
    assert!(json.contains("\"index\":1") && json.contains("\"copied_bytes\":0}"), "{json}");
    assert!(before == (fs::read(at.join("a.img")).unwrap(), fs::read(at.join("b.img")).unwrap()));
    flip_content(at, "b.img", 1, 300_000);
    let json = succeed(at, &["rebuild", "--force", "--json", "a.img", "--member", "b.img"]);
    assert!(json.contains("\"copied_bytes\":16777216}"), "{json}");
    assert!(same_but_records(at));
    holds(at, "b.img?degraded", "/f", 1);
}

#[test]
fn a_new_member_is_sparse_where_the_other_is() {
    use std::os::unix::fs::MetadataExt;
    let dir = mirrored();
    let at = dir.path();
    fs::remove_file(at.join("b.img")).unwrap();
    succeed(at, &["rebuild", "-q", "a.img", "--member", "b.img"]);
    let blocks = |name: &str| fs::metadata(at.join(name)).unwrap().blocks();
    let (a, b) = (blocks("a.img"), blocks("b.img"));
    assert!(b <= a + (1 << 20) / 512, "{a} and {b} blocks of 512 bytes");
    assert!(same_but_records(at));
    // Other content in the new member does not remain visible.
    fs::write(at.join("b.img"), pattern(16 << 20)).unwrap();
    succeed(at, &["rebuild", "-q", "--force", "a.img", "--member", "b.img"]);
    assert!(same_but_records(at));
    assert_clean(&at.join("b.img"));
}

#[test]
fn a_rebuild_that_fails_says_why() {
    let dir = mirrored();
    let at = dir.path();
    fs::File::create(at.join("b.img")).unwrap().set_len(16 << 20).unwrap();
    // A limit of the file size simulates a full disk.
    let limited = "trap '' XFSZ; ulimit -f 64; exec \"$0\" rebuild a.img --member b.img";
    let output = std::process::Command::new("sh")
        .current_dir(at)
        .args(["-c", limited])
        .arg(assert_cmd::cargo::cargo_bin("extant"))
        .output()
        .unwrap();
    let err = String::from_utf8_lossy(&output.stderr);
    assert_eq!(output.status.code(), Some(1), "{err}");
    let said = "extant: b.img: a write failed: File too large: ";
    assert!(err.starts_with(said) && err.lines().count() == 1, "{err}");
    succeed(at, &["rebuild", "-q", "a.img", "--member", "b.img"]);
    assert!(same_but_records(at));
}
