//! `extant report`, on volumes with known facts, on damaged ones and on large ones.

use crate::common::{assert_clean, fail, run, succeed};
use extant::{FallocateMode, FileKind, Filesystem, NewFile, OpenOptions};
use serde_json::Value;
use std::ffi::OsStr;
use std::fs;
use std::os::unix::ffi::OsStrExt;
use std::os::unix::fs::FileExt;
use std::path::Path;
use tempfile::TempDir;

/// A name that would break a page, a line or a terminal if it were not escaped.
const HOSTILE: &[u8] = b"<b>&\"'\x1b[31m\n\xff\xef\xbf\xbe]]>\xe2\x80\xae";

fn open_to_write(image: &Path) -> Filesystem {
    OpenOptions::new().write(true).page_cache_bytes(0).open(image).unwrap()
}

/// `a.img` of 64 MiB in 8 groups: a file that fills groups, one in 50 pieces, a directory of 2000
/// names.
fn known() -> TempDir {
    let dir = TempDir::new().unwrap();
    succeed(dir.path(), &["mkfs", "a.img", "--size", "64M", "-b", "1024", "-L", "known", "-q"]);
    let fs = open_to_write(&dir.path().join("a.img"));
    let new = NewFile::default();
    let big = fs.create_file("/big", &new).unwrap().open().unwrap();
    big.allocate(FallocateMode::Allocate, 0, 36 << 20).unwrap();
    let split = fs.create_file("/split", &new).unwrap().open().unwrap();
    split.allocate(FallocateMode::Allocate, 0, 99 << 10).unwrap();
    for n in (1..99).step_by(2) {
        split.allocate(FallocateMode::PunchHole, n << 10, 1 << 10).unwrap();
    }
    fs.create_dir("/many", &new).unwrap();
    for n in 0..2000 {
        fs.mknod(format!("/many/name-{n}"), FileKind::Fifo, &new).unwrap();
    }
    let hostile = Path::new("/many").join(OsStr::from_bytes(HOSTILE));
    let hostile = fs.create_file(hostile, &new).unwrap().open().unwrap();
    hostile.allocate(FallocateMode::Allocate, 0, 5 << 20).unwrap();
    drop((big, split, hostile));
    fs.close().unwrap();
    assert_clean(&dir.path().join("a.img"));
    dir
}

fn json(text: &str) -> Value {
    serde_json::from_str(text).expect("one object")
}

#[test]
fn json_contains_known_facts() {
    let dir = known();
    let report = json(&succeed(dir.path(), &["report", "a.img", "--json", "--top", "3"]));
    let info = json(&succeed(dir.path(), &["info", "a.img", "--json"]));
    for field in ["label", "uuid", "state", "features", "blocks", "block_bytes"] {
        assert_eq!(report[field], info[field], "{field}");
    }
    assert_eq!(report["space"]["free"], info["free_blocks"]);
    assert_eq!(report["free_runs"]["blocks"], info["free_blocks"]);
    assert_eq!(report["journal"]["blocks"], info["journal"]["blocks"]);
    assert_eq!(
        (&report["journal"]["used_blocks"], &report["replayed"]),
        (&0.into(), &false.into())
    );
    assert_eq!(report["checksums"]["metadata"], "all");
    assert_eq!(report["groups"]["count"], 8);
    assert!(report["groups"]["full"].as_u64().unwrap() >= 3, "{}", report["groups"]);
    let files = &report["files"];
    assert_eq!((&files["regular"], &files["special"]), (&3.into(), &2000.into()));
    assert_eq!(report["most_pieces"][0]["path"], "/split");
    assert_eq!(report["most_pieces"][0]["pieces"], 50);
    assert_eq!(report["largest_files"][0]["path"], "/big");
    assert_eq!(report["largest_files"][0]["size"], 36 << 20);
    assert_eq!(report["largest_files"].as_array().unwrap().len(), 3);
    assert_eq!(report["largest_dirs"][0]["path"], "/");
    assert_eq!(report["fullest_dirs"][0]["path"], "/many");
    assert_eq!(report["fullest_dirs"][0]["names"], 2001);
    let map = report["map"].as_array().unwrap();
    let blocks: u64 = map.iter().map(|cell| cell["blocks"].as_u64().unwrap()).sum();
    assert_eq!(blocks + 1, info["blocks"].as_u64().unwrap(), "all but the boot block");
    assert_eq!(report["problems"], Value::Array(Vec::new()));
}

#[test]
fn text_draws_the_map_and_names_the_worst() {
    let dir = known();
    let text = succeed(dir.path(), &["report", "a.img"]);
    for part in
        ["64.0 MiB in 8 groups", "Map ", "50 pieces", "/split", "/big", "2,001 names", "clean"]
    {
        assert!(text.contains(part), "{part}: {text}");
    }
    assert!(!text.contains('\x1b'), "no colour in a pipe, and no name steers a terminal");
    let rows = text.lines().skip_while(|line| !line.starts_with("Map")).skip(1);
    let map: Vec<&str> = rows.take_while(|line| !line.is_empty()).collect();
    assert_eq!(map.len(), 16);
    assert!(map.iter().all(|row| row.chars().count() == 74), "{map:#?}");
}

#[test]
fn the_page_needs_nothing_and_is_well_formed() {
    let dir = known();
    assert_eq!(succeed(dir.path(), &["report", "a.img", "-o", "a.html"]), "");
    let page = fs::read_to_string(dir.path().join("a.html")).unwrap();
    well_formed(&page);
    assert!(page.len() < 1 << 20, "{} bytes", page.len());
    for part in ["known", "/split", "Group 7, blocks", "metadata_csum", "&lt;b&gt;&amp;"] {
        assert!(page.contains(part), "{part}");
    }
    let page = page.replace("http://www.w3.org/", "");
    for part in ["http", "<script", "url(", "@import", "NaN", "inf%", "src="] {
        assert!(!page.contains(part), "{part}");
    }
    assert_eq!(
        succeed(dir.path(), &["report", "a.img", "-o", "-"]),
        fs::read_to_string(dir.path().join("a.html")).unwrap()
    );
}

#[test]
fn a_page_is_written_over_a_page_only() {
    let dir = known();
    let image = fs::read(dir.path().join("a.img")).unwrap();
    let said = fail(dir.path(), 1, &["report", "a.img", "-o", "a.img"]);
    assert!(said.contains("not a page"), "{said}");
    assert!(fs::read(dir.path().join("a.img")).unwrap() == image, "the volume is as it was");
    succeed(dir.path(), &["report", "a.img", "-o", "a.html"]);
    succeed(dir.path(), &["report", "a.img", "-o", "a.html"]);
    fail(dir.path(), 1, &["report", "a.img", "-o", "."]);
    fail(dir.path(), 2, &["report", "a.img", "-o", "-", "--json"]);
    fail(dir.path(), 1, &["report", "none.img"]);
}

#[test]
fn a_volume_that_was_not_closed_is_shown_replayed_and_left_alone() {
    let dir = known();
    let (image, crashed) = (dir.path().join("a.img"), dir.path().join("crashed.img"));
    let fs = open_to_write(&image);
    fs.create_dir("/late", &NewFile::default()).unwrap();
    fs.sync().unwrap();
    fs::copy(&image, &crashed).unwrap();
    drop(fs);
    let before = fs::read(&crashed).unwrap();
    let report = json(&succeed(dir.path(), &["report", "crashed.img", "--json"]));
    assert_eq!((&report["state"], &report["replayed"]), (&"needs recovery".into(), &true.into()));
    assert!(report["journal"]["transactions"].as_u64().unwrap() >= 1, "{}", report["journal"]);
    assert_eq!(report["files"]["directories"], 4);
    succeed(dir.path(), &["report", "crashed.img", "-o", "crashed.html"]);
    well_formed(&fs::read_to_string(dir.path().join("crashed.html")).unwrap());
    assert!(fs::read(&crashed).unwrap() == before, "nothing was written");
}

#[test]
fn damage_is_named_and_the_rest_shown() {
    let dir = known();
    let device = fs::File::options().write(true).open(dir.path().join("a.img")).unwrap();
    // A byte of the superblock that only its checksum covers.
    device.write_at(&[0x77], 1024 + 0x264).unwrap();
    let (code, out, err) = run(dir.path(), &["report", "a.img", "--json"]);
    assert_eq!(code, 1, "{err}");
    let report = json(&out);
    assert_eq!(report["label"], "known");
    assert_eq!(report["problems_count"], 1);
    assert!(report.get("map").is_none() && report.get("journal").is_none());
    let (code, page, _) = run(dir.path(), &["report", "a.img", "-o", "-"]);
    assert_eq!(code, 1);
    well_formed(&page);
    assert!(page.contains("Could not be read"), "{page}");
}

/// Random bytes anywhere in a volume's metadata: each time there is a result and a valid page.
#[test]
fn random_damage_gives_a_page_all_the_same() {
    let dir = known();
    let (sound, image) = (dir.path().join("a.img"), dir.path().join("b.img"));
    let mut seed = 0x9E37_79B9_7F4A_7C15u64;
    let mut next = |below: u64| {
        seed ^= seed << 13;
        seed ^= seed >> 7;
        seed ^= seed << 17;
        seed % below
    };
    for round in 0..24 {
        fs::copy(&sound, &image).unwrap();
        let device = fs::File::options().write(true).open(&image).unwrap();
        for _ in 0..40 {
            // Superblock, descriptors, bitmaps, tables and the first directories are at the start.
            let at = next(if round % 2 == 0 { 16 << 10 } else { 6 << 20 });
            device.write_at(&(next(u64::MAX)).to_le_bytes()[..1 + next(7) as usize], at).unwrap();
        }
        let (code, page, err) = run(dir.path(), &["report", "b.img", "-o", "-"]);
        assert!(code <= 1, "round {round}: {code} {err}");
        if !page.is_empty() {
            well_formed(&page);
        }
    }
}

#[test]
fn a_large_volume_gives_a_small_page() {
    let dir = TempDir::new().unwrap();
    succeed(dir.path(), &["mkfs", "a.img", "--size", "2T", "-q"]);
    let report = json(&succeed(dir.path(), &["report", "a.img", "--json", "-o", "a.html"]));
    assert_eq!(report["groups"]["count"], 16384);
    assert_eq!(report["map"].as_array().unwrap().len(), 2048);
    let page = fs::read_to_string(dir.path().join("a.html")).unwrap();
    well_formed(&page);
    assert!(page.len() < 1 << 20, "{} bytes", page.len());
}

/// Checks strictly: tags nest, attributes are quoted, entities are known, no characters that XML
/// forbids.
fn well_formed(page: &str) {
    let body =
        page.strip_prefix("<!DOCTYPE html>\n<!-- made by extant report -->\n").expect("a start");
    assert!(body.chars().all(|c| c == '\n' || (!c.is_control() && c != '\u{fffe}')), "characters");
    let mut open: Vec<&str> = Vec::new();
    let mut rest = body;
    while let Some(at) = rest.find('<') {
        entities(&rest[..at]);
        assert!(!rest[..at].contains('>'), "a > in text: {:?}", &rest[..at]);
        let end = rest[at..].find('>').expect("a tag ends") + at;
        let tag = &rest[at + 1..end];
        rest = &rest[end + 1..];
        if let Some(name) = tag.strip_prefix('/') {
            assert_eq!(open.pop(), Some(name), "nesting");
            continue;
        }
        let (tag, empty) = tag.strip_suffix('/').map_or((tag, false), |tag| (tag, true));
        let (name, attributes) = tag.split_once(' ').unwrap_or((tag, ""));
        assert!(name.chars().all(|c| c.is_ascii_alphanumeric()), "{name:?}");
        let mut attributes = attributes.trim();
        while !attributes.is_empty() {
            let (name, value) = attributes.split_once("=\"").expect("name=\"value\"");
            assert!(name.chars().all(|c| c.is_ascii_alphanumeric() || c == '-'), "{name:?}");
            let (value, further) = value.split_once('"').expect("the value ends");
            entities(value);
            attributes = further.trim_start();
        }
        if !empty {
            open.push(name);
        }
    }
    assert!(open.is_empty() && rest.trim().is_empty(), "{open:?} {rest:?}");
}

fn entities(text: &str) {
    for part in text.split('&').skip(1) {
        let known = ["amp;", "lt;", "gt;", "quot;", "#10;"];
        assert!(known.iter().any(|entity| part.starts_with(entity)), "&{part:.10}");
    }
}
