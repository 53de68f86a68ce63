use super::*;
use crate::dirent::{DirBlockMut, DirPacker, EntryKind};
use crate::hash::NameHash;
use alloc::format;
use extant_base::{Error, Ino};

const FORMAT: DirFormat = DirFormat {
    filetype: true,
    checksums: true,
    hash_words: false,
    opaque_names: false,
    inodes_count: 1000,
};
const INFO: RootInfo = RootInfo { hash_version: HashVersion::HalfMd4, levels: 0 };

fn ino(number: u32) -> Ino {
    Ino::new(number).unwrap()
}

fn root(bytes: &mut [u8]) -> IndexMut<'_> {
    let own = (ino(12), Ino::ROOT);
    IndexMut::init_root(bytes, &FORMAT, 9, own, INFO, LogicalBlock(1))
}

fn what<T>(result: Result<T>) -> Option<What> {
    match result {
        Err(Error::Corrupt { what, .. }) => Some(what),
        _ => None,
    }
}

#[test]
fn limits_are_exact() {
    for (bytes, checksums, root, node) in [
        (1024, true, 123, 126),
        (1024, false, 124, 127),
        (4096, true, 507, 510),
        (4096, false, 508, 511),
        (65536, true, 8187, 8190),
    ] {
        assert_eq!(limit_root(bytes, checksums), root);
        assert_eq!(limit_node(bytes, checksums, false), node);
    }
    assert_eq!(limit_node(4096, true, true), 509);
}

#[test]
fn a_search_finds_the_last_key_not_above() {
    let mut bytes = [0; 1024];
    let mut index = root(&mut bytes);
    for (i, key) in [10, 20, 21, 40].into_iter().enumerate() {
        assert!(index.insert_after(i, key, LogicalBlock(i as u32 + 2)));
    }
    let view = index.view();
    view.verify_checksum(9).unwrap();
    view.check_order().unwrap();
    for (hash, want) in [(0, 0), (9, 0), (10, 1), (19, 1), (20, 2), (21, 3), (39, 3), (40, 4)] {
        assert_eq!(view.search(hash), want, "{hash}");
    }
    assert_eq!(view.search(u32::MAX), 4);
    assert!(view.entry(3).unwrap().continues(20));
    assert!(!view.entry(2).unwrap().continues(20));
    assert_eq!(view.entry(0), Some(IndexEntry { key: 0, block: LogicalBlock(1) }));
    assert_eq!(view.entry(5), None);
}

#[test]
fn a_full_root_is_pushed_down_and_its_node_splits() {
    let (mut bytes, mut low, mut high) = ([0; 1024], [0xEE; 1024], [0xEE; 1024]);
    let mut index = root(&mut bytes);
    for i in 1..123 {
        assert!(index.insert_after(i - 1, i as u32 * 10, LogicalBlock(i as u32 + 1)));
    }
    assert!(index.view().is_full());
    assert!(!index.insert_after(5, 55, LogicalBlock(9)));
    index.push_down(&mut low, &FORMAT, LogicalBlock(200));
    index.view().verify_checksum(9).unwrap();
    let (info, view) = Index::root(&bytes, &FORMAT, 1, Site::NOWHERE).unwrap();
    assert_eq!((info.levels, view.count()), (1, 1));
    assert_eq!(view.entry(0).unwrap().block, LogicalBlock(200));
    let mut node = IndexMut::node(&mut low, &FORMAT, 9, Site::NOWHERE).unwrap();
    assert_eq!(node.view().count(), 123);
    assert_eq!(node.view().search(777), 77);
    let key = node.split_into(&mut high, &FORMAT);
    assert_eq!((key, node.view().count()), (620, 62));
    let upper = Index::node(&high, &FORMAT, Site::NOWHERE).unwrap();
    upper.verify_checksum(9).unwrap();
    assert_eq!(upper.count(), 61);
    assert_eq!(upper.entry(0).unwrap().block, LogicalBlock(63));
    assert_eq!(upper.entry(1).unwrap().key, 630);
    Index::node(&low, &FORMAT, Site::NOWHERE).unwrap().verify_checksum(9).unwrap();
}

#[test]
fn each_malformed_index_is_named() {
    for (offset, value, want) in [
        (4, 16, What::DirentDot),
        (8, b'x', What::DirentDot),
        (16, 12, What::DirentDot),
        (24, 1, What::HtreeRoot),
        (28, 3, What::HtreeRoot),
        (28, 7, What::HtreeRoot),
        (29, 9, What::HtreeRoot),
        (30, 2, What::HtreeDepth),
        (31, 1, What::HtreeRoot),
        (32, 122, What::HtreeNode),
        (34, 0, What::HtreeNode),
        (34, 124, What::HtreeNode),
    ] {
        let mut bytes = [0; 1024];
        root(&mut bytes);
        bytes[offset] = value;
        let read = Index::root(&bytes, &FORMAT, 1, Site::NOWHERE);
        assert_eq!(what(read), Some(want), "{offset} {value}");
    }
    let mut bytes = [0; 1024];
    root(&mut bytes);
    assert_eq!(what(Index::node(&bytes, &FORMAT, Site::NOWHERE)), Some(What::HtreeNode));
    // The checksum covers the entries in use and no byte after them.
    let check =
        |bytes: &[u8]| Index::root(bytes, &FORMAT, 1, Site::NOWHERE).unwrap().1.verify_checksum(9);
    bytes[500] = 1;
    assert!(check(&bytes).is_ok());
    bytes[36] = 1 ^ 2;
    assert_eq!(what(check(&bytes)), Some(What::HtreeChecksum));
}

fn leaf(names: &[&str]) -> [u8; 1024] {
    let mut bytes = [0; 1024];
    let mut packer = DirPacker::new(DirBlockMut::new(&mut bytes, FORMAT, 9, Site::NOWHERE));
    for name in names {
        assert!(packer.push(name.as_bytes(), ino(20), EntryKind::Regular, None));
    }
    packer.finish();
    bytes
}

fn names(bytes: &[u8]) -> Vec<&[u8]> {
    let view = DirBlock::new(bytes, FORMAT, Site::NOWHERE);
    view.verify_checksum(9).unwrap();
    view.entries().map(|entry| entry.unwrap().name).collect()
}

fn split(bytes: &mut [u8], new: &mut [u8], by: impl Fn(&[u8]) -> u32) -> Result<u32> {
    split_leaf(
        DirBlockMut::new(bytes, FORMAT, 9, Site::NOWHERE),
        DirBlockMut::new(new, FORMAT, 9, Site::NOWHERE),
        |name| Ok(NameHash { hash: by(name), minor: 0 }),
    )
}

#[test]
fn a_leaf_splits_in_the_middle_of_its_bytes() {
    let all: Vec<_> = (0..50).map(|i| format!("name-{i:04}")).collect();
    let all: Vec<_> = all.iter().map(|name| &**name).collect();
    let number =
        |name: &[u8]| core::str::from_utf8(&name[5..]).unwrap().parse::<u32>().unwrap() * 2;
    let (mut bytes, mut new) = (leaf(&all), [0xEE; 1024]);
    let key = split(&mut bytes, &mut new, number).unwrap();
    assert_eq!(key, 50);
    assert_eq!((names(&bytes).len(), names(&new).len()), (25, 25));
    assert!(names(&bytes).iter().all(|name| number(name) < key));
}

#[test]
fn equal_hashes_on_both_sides_set_the_collision_bit() {
    let all = ["a", "b", "c", "d"];
    let (mut bytes, mut new) = (leaf(&all), [0; 1024]);
    assert_eq!(split(&mut bytes, &mut new, |_| 8).unwrap(), 9);
    assert_eq!((names(&bytes).len(), names(&new).len()), (2, 2));
    let mut lone = leaf(&["a"]);
    assert!(matches!(split(&mut lone, &mut new, |_| 8), Err(Error::NoSpace)));
}

#[test]
fn one_giant_among_dwarfs_still_leaves_names_on_both_sides() {
    let giant = "g".repeat(255);
    for order in [[&*giant, "a", "b"], ["a", "b", &*giant], ["a", &*giant, "b"]] {
        let (mut bytes, mut new) = (leaf(&order), [0; 1024]);
        let place = |name: &[u8]| order.iter().position(|o| o.as_bytes() == name).unwrap();
        let key = split(&mut bytes, &mut new, |name| place(name) as u32 * 2).unwrap();
        assert!(!names(&bytes).is_empty() && !names(&new).is_empty());
        assert!(names(&new).iter().all(|name| place(name) as u32 * 2 >= key));
    }
}
