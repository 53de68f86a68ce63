//! Small volumes that contain every structure, and where each of those is on the disk.
//!
//! ```text
//!   /keep/**      never changed: it must stay as it is, whatever happens beside it
//!   /victims/**   changed by the script; its inodes and blocks are damaged more often
//! ```

use extant_testkit::command::run_args;
use extant_testkit::e2fsprogs::{dumpe2fs, mke2fs};
use extant_testkit::rng;
use extant_testkit::scratch::Scratch;
use std::fs;
use std::io::Write;
use std::os::unix::fs::{FileExt, symlink};
use std::path::Path;
use std::process::{Command, Stdio};

/// What is at a place.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Kind {
    /// The primary superblock.
    Superblock,
    /// The first descriptors.
    Descriptors,
    /// A group's block bitmap.
    BlockBitmap,
    /// A group's inode bitmap.
    InodeBitmap,
    /// An inode's slot, its first 128 bytes.
    Inode,
    /// A block of a file's map.
    MapNode,
    /// A block of a directory.
    Directory,
    /// An attribute block.
    Attributes,
    /// A block of a quota file.
    Quota,
    /// A block of the orphan file.
    Orphans,
    /// The journal's superblock.
    Journal,
    /// A block of the file of data checksums.
    Sums,
    /// A block of the journal that is in use, except its superblock.
    Log,
    /// The record of a member of a mirror.
    Member,
}

impl Kind {
    /// All of them.
    pub const ALL: [Kind; 14] = [
        Kind::Superblock,
        Kind::Descriptors,
        Kind::BlockBitmap,
        Kind::InodeBitmap,
        Kind::Inode,
        Kind::MapNode,
        Kind::Directory,
        Kind::Attributes,
        Kind::Quota,
        Kind::Orphans,
        Kind::Journal,
        Kind::Sums,
        Kind::Log,
        Kind::Member,
    ];
}

/// A structure on the disk.
#[derive(Clone, Copy, Debug)]
pub struct Place {
    /// What it is.
    pub kind: Kind,
    /// Where it begins, bytes from the volume's start.
    pub at: usize,
    /// Its length in bytes.
    pub len: usize,
}

/// A volume and its structures.
#[derive(Debug)]
pub struct Rich {
    /// Its name, one of [`names`].
    pub name: &'static str,
    /// The whole volume.
    pub bytes: Vec<u8>,
    /// The block size in bytes.
    pub block: usize,
    /// Its structures; those of an inode follow the inode's slot.
    pub places: Vec<Place>,
    /// Every structure has a checksum, so damage is detected before it is used.
    pub checksummed: bool,
}

const SIZE: u64 = 8 << 20;
/// The seed of checksums and name hashes: every run has the same volumes.
const ID: &str = "68c49f1e-7f3d-4d6c-9c5b-3f1f0a4b7e21";

/// (name, mke2fs options, checksummed). No inline data with checksums: e2fsck 1.47.0 takes the
/// entries of a file whose inode has a wrong checksum for those of the directory that it reads
/// next.
const KINDS: &[(&str, &str, bool)] = &[
    ("csum", "-b 1024 -I 256 -O metadata_csum,quota,project,ea_inode,orphan_file", true),
    ("csum4k", "-b 4096 -I 256 -O metadata_csum,^has_journal", true),
    ("sums", "-b 1024 -I 256 -O metadata_csum,quota,orphan_file", true),
    ("plain", "-b 1024 -I 256 -O ^metadata_csum,quota,inline_data", false),
    ("maps", "-b 1024 -I 128 -O ^metadata_csum,^extent,^64bit,^flex_bg,uninit_bg", false),
    ("cluster", "-b 1024 -C 4096 -O ^metadata_csum,bigalloc,^resize_inode", false),
];

/// The names of all volumes.
pub fn names() -> impl Iterator<Item = &'static str> {
    KINDS.iter().map(|(name, ..)| *name)
}

/// Makes the volume `name`.
pub fn make(name: &str) -> Rich {
    let kind = KINDS.iter().find(|kind| kind.0 == name).expect("its name");
    make_as(kind.0, SIZE, kind.1, kind.2)
}

/// Makes a volume of `bytes` with `options` of mke2fs; `checksummed` says whether those include
/// checksums.
pub fn make_as(name: &'static str, bytes: u64, options: &str, checksummed: bool) -> Rich {
    let scratch = Scratch::new();
    let (tree, image) = (scratch.file("tree"), scratch.file("image"));
    make_tree(&tree);
    let options = format!("{options} -N 600 -U {ID} -E hash_seed={ID}");
    mke2fs(&image, bytes, &options, Some(&tree)).expect("mke2fs");
    // mke2fs does not count what it copies in the quota files.
    run_args("e2fsck", &["-fy", image.to_str().expect("plain")]).expect("e2fsck");
    let block = if options.contains("-b 4096") { 4096 } else { 1024 };
    let mut places = places(&image, block);
    if name == "sums" {
        let wish = extant::tune::Tune::default().features("data_csum").expect("a feature");
        extant::tune::tune(&image, &wish).expect("sums for all data");
        add_inode(&mut places, &image, block, "<5>", Kind::MapNode);
        let said = debugfs(&image, &["bmap <5> 0".to_owned(), "bmap <5> 9".to_owned()]);
        for nr in said.lines().filter_map(number).filter(|nr| *nr > 0) {
            places.push(Place { kind: Kind::Sums, at: nr as usize * block, len: block });
        }
    }
    Rich { name, bytes: fs::read(&image).expect("the image"), block, places, checksummed }
}

/// The journal's blocks, in the order of the log; `image` is a volume of [`make`] or [`make_as`].
pub fn log_blocks(image: &Path, block: usize) -> Vec<Place> {
    let mut places = Vec::new();
    add_inode(&mut places, image, block, "<8>", Kind::Log);
    places.retain(|place| place.kind == Kind::Log);
    places
}

fn make_tree(root: &Path) {
    for (place, seed) in [("keep", 1), ("victims", 2)] {
        let dir = root.join(place);
        fs::create_dir_all(dir.join("deep/er")).unwrap();
        let files =
            [("empty", 0), ("tiny", 40), ("block", 1024), ("medium", 9000), ("large", 200_000)];
        for (name, len) in files {
            fs::write(dir.join(name), rng::bytes(seed, len)).unwrap();
            fs::write(dir.join("deep").join(name), rng::bytes(seed + 5, len / 2)).unwrap();
        }
        // Blocks far apart, so that the map has more than one level.
        let holes = fs::File::create(dir.join("holes")).unwrap();
        for n in 0..60u64 {
            holes.write_all_at(&rng::bytes(n, 1024), n * 9 * 4096).unwrap();
        }
        fs::create_dir(dir.join("many")).unwrap();
        for n in 0..120 {
            let name = format!("many/a name that fills its directory's blocks {n:03}");
            fs::write(dir.join(name), format!("{n}")).unwrap();
        }
        symlink("deep/er", dir.join("short")).unwrap();
        symlink("long/".repeat(40), dir.join("long")).unwrap();
        fs::hard_link(dir.join("medium"), dir.join("deep/hard")).unwrap();
        for (path, len) in [("tiny", 20), ("medium", 300), ("large", 600), ("deep", 300)] {
            let flags = rustix::fs::XattrFlags::empty();
            let value = rng::bytes(len as u64, len);
            let _ = rustix::fs::lsetxattr(dir.join(path), "user.attribute", &value, flags);
        }
    }
}

fn places(image: &Path, block: usize) -> Vec<Place> {
    let mut places = vec![Place { kind: Kind::Superblock, at: 1024, len: 1024 }];
    let says = dumpe2fs(image).expect("dumpe2fs");
    let blocks = |kind, nr: u64| Place { kind, at: nr as usize * block, len: block };
    for line in says.lines() {
        let after = |word: &str| number(line.split_once(word)?.1);
        if let Some(nr) = after("Block bitmap at ") {
            places.push(blocks(Kind::BlockBitmap, nr));
        }
        if let Some(nr) = after("Inode bitmap at ") {
            places.push(blocks(Kind::InodeBitmap, nr));
        }
        if let (Some(nr), true) = (after("Group descriptors at "), line.contains("Primary")) {
            places.push(Place { len: 256, ..blocks(Kind::Descriptors, nr) });
        }
    }
    let mut inodes: Vec<(String, Kind)> = Vec::new();
    for dir in ["/keep", "/victims"] {
        for name in ["", "/deep", "/many"] {
            inodes.push((format!("{dir}{name}"), Kind::Directory));
        }
        for name in ["/tiny", "/medium", "/large", "/holes", "/short", "/long", "/deep/hard"] {
            inodes.push((format!("{dir}{name}"), Kind::MapNode));
        }
    }
    inodes.push(("/".into(), Kind::Directory));
    let inum = |field: &str| {
        let line = says.lines().find(|line| line.starts_with(field))?;
        number(line.split_once(':')?.1.trim()).map(|nr| format!("<{nr}>"))
    };
    for (field, kind) in [
        ("User quota inode", Kind::Quota),
        ("Group quota inode", Kind::Quota),
        ("Project quota inode", Kind::Quota),
        ("Orphan file inode", Kind::Orphans),
        ("Journal inode", Kind::Journal),
    ] {
        inodes.extend(inum(field).map(|name| (name, kind)));
    }
    for (name, kind) in inodes {
        add_inode(&mut places, image, block, &name, kind);
    }
    places
}

/// The slot of an inode, its attribute block, and those of its blocks that are metadata.
fn add_inode(places: &mut Vec<Place>, image: &Path, block: usize, name: &str, kind: Kind) {
    let says = debugfs(image, &[format!("imap {name}"), format!("stat {name}")]);
    if let Some((nr, offset)) = says.split_once("located at block ").map(|(_, rest)| {
        let offset = rest.split_once("offset 0x").map_or("0", |(_, rest)| rest);
        let offset: String = offset.chars().take_while(char::is_ascii_hexdigit).collect();
        (number(rest).unwrap_or(0), usize::from_str_radix(&offset, 16).unwrap_or(0))
    }) {
        places.push(Place { kind: Kind::Inode, at: nr as usize * block + offset, len: 128 });
    }
    let mut add = |kind, nr: u64| {
        if nr > 0 {
            places.push(Place { kind, at: nr as usize * block, len: block });
        }
    };
    if let Some((_, rest)) = says.split_once("File ACL: ") {
        add(Kind::Attributes, number(rest).unwrap_or(0));
    }
    for word in says.replace(',', " ").split_whitespace() {
        let Some((logical, physical)) = word.split_once("):") else { continue };
        let Some(nr) = number(physical) else { continue };
        if logical.contains("IND") || logical.contains("ETB") {
            add(Kind::MapNode, nr);
        } else if kind == Kind::Journal {
            // Only its superblock: the rest is empty.
            if logical.starts_with("(0") {
                add(kind, nr);
            }
        } else if kind != Kind::MapNode {
            let last = physical.split_once('-').and_then(|(_, last)| number(last)).unwrap_or(nr);
            (nr..=last).for_each(|nr| add(kind, nr));
        }
    }
}

fn number(text: &str) -> Option<u64> {
    let digits: String = text.chars().take_while(char::is_ascii_digit).collect();
    digits.parse().ok()
}

fn debugfs(image: &Path, requests: &[String]) -> String {
    let mut child = Command::new("debugfs")
        .args(["-f", "-"])
        .arg(image)
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::null())
        .spawn()
        .expect("debugfs");
    let mut input = child.stdin.take().expect("piped");
    input.write_all(requests.join("\n").as_bytes()).expect("debugfs reads");
    drop(input);
    let done = child.wait_with_output().expect("debugfs ends");
    String::from_utf8_lossy(&done.stdout).into_owned()
}

#[test]
fn every_structure_is_found() {
    extant_testkit::require!(E2fsprogs);
    assert!(run_args("debugfs", &["-V"]).is_ok());
    let mut kinds = std::collections::BTreeMap::new();
    for name in names() {
        for place in make(name).places {
            assert!(place.at + place.len <= SIZE as usize, "{name}: {place:?}");
            *kinds.entry(place.kind).or_insert(0) += 1;
        }
    }
    println!("{kinds:?}");
    assert_eq!(kinds.len(), 12, "{kinds:?}");
}
