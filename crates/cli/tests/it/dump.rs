//! `extant dump`: the copy, its messages, and what is refused.

use crate::common::{assert_clean, built, fail, run, succeed};
use std::fs;
use std::os::unix::fs::MetadataExt;

#[test]
fn a_copy_is_sparse_and_the_verbs_open_it() {
    let dir = built();
    let at = dir.path();
    let said = succeed(at, &["dump", "a.img", "meta.img"]);
    assert!(said.starts_with("meta.img: ") && said.contains(" blocks of metadata\n"), "{said}");
    let (image, copy) =
        (fs::metadata(at.join("a.img")).unwrap(), fs::metadata(at.join("meta.img")).unwrap());
    assert_eq!(image.len(), copy.len());
    assert!(copy.blocks() * 512 < image.len() / 2, "{} sectors", copy.blocks());
    assert_clean(&at.join("meta.img"));
    for verb in [&["check", "meta.img"][..], &["info", "meta.img"], &["report", "meta.img"]] {
        succeed(at, verb);
    }
    let json = |image| succeed(at, &["tree", "--json", image]);
    assert!(json("a.img") == json("meta.img"));
    succeed(at, &["dump", "--scramble-names", "--json", "a.img", "other.img"]);
    assert_clean(&at.join("other.img"));
    assert!(!json("other.img").contains("hostname"));
}

#[test]
fn nothing_is_replaced_and_nothing_is_left_after_an_error() {
    let dir = built();
    let at = dir.path();
    fs::write(at.join("there"), "mine").unwrap();
    let why = fail(at, 1, &["dump", "a.img", "there"]);
    assert_eq!(why, "there: already exists: choose another name for OUT");
    assert_eq!(fs::read(at.join("there")).unwrap(), b"mine");
    fs::write(at.join("none.img"), vec![7; 100_000]).unwrap();
    let (code, _, err) = run(at, &["dump", "none.img", "meta.img"]);
    assert_eq!(code, 1, "{err}");
    assert!(err.contains("none.img: ") && !at.join("meta.img").exists(), "{err}");
}
