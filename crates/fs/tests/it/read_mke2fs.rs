//! Volumes that mke2fs makes and fills, read and compared with the source tree.
//!
//! ```text
//!   source tree ──mke2fs -d──► image ──extant──► every path, mode, owner, size, content,
//!        └───────────────────────────────────────  target, attribute: the same
//! ```

use extant::{FileKind, Filesystem, WalkEntry};
use extant_testkit::e2fsprogs::mke2fs;
use extant_testkit::rng;
use extant_testkit::scratch::Scratch;
use rustix::fs::{CWD, FileType, Mode, XattrFlags};
use std::collections::BTreeMap;
use std::fs;
use std::io::{Read, Seek, SeekFrom, Write};
use std::os::unix::ffi::OsStringExt;
use std::os::unix::fs::{MetadataExt, PermissionsExt, symlink};
use std::path::{Path, PathBuf};
use std::process::Command;

/// Makes a tree with one of everything that an ordinary user can make.
fn make_tree(root: &Path) {
    fs::create_dir(root).unwrap();
    let sizes = [0, 1, 59, 60, 61, 128, 129, 160, 1023, 1024, 1025, 4095, 4096, 4097, 70_000];
    for size in sizes {
        fs::write(root.join(format!("size-{size}")), rng::bytes(size as u64, size)).unwrap();
    }
    fs::write(root.join("three-mib"), rng::bytes(3, 3 << 20)).unwrap();
    let mut sparse = fs::File::create(root.join("sparse")).unwrap();
    for (at, len) in [(65_536, 5000), (1 << 20, 70_000), (9 << 20, 1)] {
        sparse.seek(SeekFrom::Start(at)).unwrap();
        sparse.write_all(&rng::bytes(at, len)).unwrap();
    }
    fs::File::create(root.join("all-hole")).unwrap().set_len(300_000).unwrap();
    for len in [1, 40, 59, 60, 61, 90, 200, 900] {
        let target: String = "/".chars().cycle().take(len).collect();
        symlink(target, root.join(format!("link-{len}"))).unwrap();
    }
    let sub = root.join("sub");
    fs::create_dir(&sub).unwrap();
    symlink("../sub/./deeper", sub.join("up-and-down")).unwrap();
    symlink("/sub", root.join("absolute")).unwrap();
    symlink("loop-b", root.join("loop-a")).unwrap();
    symlink("loop-a", root.join("loop-b")).unwrap();
    fs::create_dir_all(sub.join("deeper/and/deeper/still")).unwrap();
    fs::write(sub.join("deeper/file"), "found").unwrap();
    fs::hard_link(root.join("size-4097"), sub.join("hard")).unwrap();
    fs::create_dir(root.join("empty")).unwrap();
    let small = root.join("small-dir");
    fs::create_dir(&small).unwrap();
    for n in 0..9 {
        fs::write(small.join(format!("n{n}")), []).unwrap();
    }
    let many = root.join("many");
    fs::create_dir(&many).unwrap();
    for n in 0..1500 {
        fs::write(many.join(format!("a-name-of-some-length-{n:05}")), []).unwrap();
    }
    fs::write(root.join("n".repeat(255)), "long name").unwrap();
    fs::write(root.join("ümläut and spaces"), "utf-8").unwrap();
    fs::set_permissions(root.join("size-1"), fs::Permissions::from_mode(0o4755)).unwrap();
    fs::set_permissions(&sub, fs::Permissions::from_mode(0o1777)).unwrap();
    rustix::fs::mknodat(CWD, root.join("fifo"), FileType::Fifo, Mode::from_raw_mode(0o640), 0)
        .unwrap();
    for (path, name, len) in [
        ("size-60", "user.small", 3),
        ("size-60", "user.empty", 0),
        ("size-4096", "user.middle", 200),
        ("size-4096", "user.large", 700),
        ("sub", "user.on-a-directory", 30),
        ("n", "user.x", 5),
    ] {
        let path = root.join(if path == "n" { "n".repeat(255) } else { path.to_owned() });
        let value = rng::bytes(len, len as usize);
        rustix::fs::lsetxattr(&path, name, &value, XattrFlags::empty()).unwrap();
    }
}

/// Runs one debugfs command that changes `image`.
fn debugfs_write(image: &Path, request: &str) {
    let done = Command::new("debugfs").args(["-w", "-R", request]).arg(image).output().unwrap();
    assert!(done.status.success(), "{done:?}");
}

fn xattrs_of(path: &Path) -> BTreeMap<Vec<u8>, Vec<u8>> {
    let mut names = vec![0; 4096];
    let len = rustix::fs::llistxattr(path, &mut names[..]).unwrap();
    let mut all = BTreeMap::new();
    for name in names[..len].split(|byte| *byte == 0).filter(|name| !name.is_empty()) {
        let mut value = vec![0; 65536];
        let len = rustix::fs::lgetxattr(path, name, &mut value[..]).unwrap();
        // Labels of this machine's security module do not belong to the tree.
        if name != b"security.selinux" {
            all.insert(name.to_vec(), value[..len].to_vec());
        }
    }
    all
}

/// Compares one file of the image with its source.
fn compare(fs: &Filesystem, entry: &WalkEntry, source: &Path) {
    let path = entry.path();
    let shown = source.display();
    let expected = fs::symlink_metadata(source).unwrap_or_else(|e| panic!("{shown}: {e}"));
    let found = entry.metadata().unwrap_or_else(|e| panic!("{shown}: {e}"));
    assert_eq!(found.mode(), expected.mode(), "{shown}: mode");
    assert_eq!((found.uid(), found.gid()), (expected.uid(), expected.gid()), "{shown}: owner");
    assert_eq!(found.modified().sec, expected.mtime(), "{shown}: mtime");
    assert_eq!(found, fs.symlink_metadata(path).unwrap(), "{shown}: by path");
    if !found.is_dir() {
        assert_eq!(found.len(), expected.len(), "{shown}: size");
        assert_eq!(u64::from(found.nlink()), expected.nlink(), "{shown}: links");
    }
    match found.file_type() {
        FileKind::Regular => {
            let content = fs::read(source).unwrap();
            assert!(fs.read(path).unwrap() == content, "{shown}: content");
            let mut file = fs.open_file(path).unwrap();
            // In pieces that match no block, from a position inside a block.
            let start = content.len() as u64 / 3;
            file.seek(SeekFrom::Start(start)).unwrap();
            let mut piece = vec![0; 777_777];
            let mut read = Vec::new();
            loop {
                let n = file.read(&mut piece).unwrap();
                if n == 0 {
                    break;
                }
                read.extend_from_slice(&piece[..n]);
            }
            assert!(read == content[start as usize..], "{shown}: content in pieces");
        }
        FileKind::Symlink => {
            assert_eq!(fs.read_link(path).unwrap(), fs::read_link(source).unwrap(), "{shown}");
        }
        _ => {}
    }
    let attributes: BTreeMap<_, _> = fs
        .node_of_ino(entry.ino())
        .and_then(|node| node.xattr_values())
        .unwrap_or_else(|e| panic!("{shown}: {e}"))
        .into_iter()
        .map(|(name, value)| (name.into_vec(), value))
        .collect();
    assert_eq!(attributes, xattrs_of(source), "{shown}: attributes");
}

/// Compares the whole image with the tree.
fn compare_all(image: &Path, tree: &Path) {
    let fs = Filesystem::open(image).unwrap_or_else(|e| panic!("{}: {e}", image.display()));
    let mut found = BTreeMap::new();
    for entry in fs.walk("/").sorted(true) {
        let entry = entry.unwrap_or_else(|e| panic!("{}: {e}", image.display()));
        if !entry.path().starts_with("/lost+found") {
            found.insert(entry.path().to_path_buf(), entry);
        }
    }
    let mut expected = vec![PathBuf::from("/")];
    let mut at = 0;
    while at < expected.len() {
        let source = tree.join(expected[at].strip_prefix("/").unwrap());
        if fs::symlink_metadata(&source).unwrap().is_dir() {
            for name in fs::read_dir(&source).unwrap() {
                expected.push(expected[at].join(name.unwrap().file_name()));
            }
        }
        at += 1;
    }
    expected.sort();
    assert_eq!(found.keys().cloned().collect::<Vec<_>>(), expected);
    for (path, entry) in &found {
        // mke2fs does not copy the root's own mode and times.
        if path != Path::new("/") {
            compare(&fs, entry, &tree.join(path.strip_prefix("/").unwrap()));
        }
    }
    check_paths(&fs);
    check_names(&fs, tree);
}

fn check_paths(fs: &Filesystem) {
    for path in ["sub/up-and-down/file", "/absolute/deeper/file", "/../sub/../absolute/deeper/file"]
    {
        assert_eq!(fs.read_to_string(path).unwrap(), "found", "{path}");
    }
    assert!(matches!(fs.metadata("loop-a"), Err(extant::Error::TooManyLinks)));
    assert!(matches!(fs.metadata("size-1/x"), Err(extant::Error::NotADirectory)));
    assert!(matches!(fs.metadata("size-1/"), Err(extant::Error::NotADirectory)));
    assert!(matches!(fs.metadata("nowhere"), Err(extant::Error::NotFound)));
    assert!(matches!(fs.open_file("sub"), Err(extant::Error::IsADirectory)));
    assert!(!fs.exists("many/a-name-of-some-length-01500").unwrap());
}

/// Looks up every name of the large directory, so that lookups are tested and not only scans.
fn check_names(fs: &Filesystem, tree: &Path) {
    for name in fs::read_dir(tree.join("many")).unwrap() {
        let path = Path::new("many").join(name.unwrap().file_name());
        assert!(fs.exists(&path).unwrap(), "{}", path.display());
    }
}

struct Case {
    name: &'static str,
    mib: u64,
    options: &'static str,
}

const fn case(name: &'static str, mib: u64, options: &'static str) -> Case {
    Case { name, mib, options }
}

const CASES: &[Case] = &[
    case("ext2, 1 KiB", 40, "-t ext2 -b 1024"),
    case("ext2, 4 KiB, 128-byte inodes", 40, "-t ext2 -b 4096 -I 128"),
    case("ext3", 40, "-t ext3 -b 1024"),
    case("ext4", 40, ""),
    case("ext4, 1 KiB", 40, "-b 1024"),
    case("ext4, 2 KiB", 40, "-b 2048"),
    case("ext4, 4 KiB", 40, "-b 4096"),
    case("ext4, 8 KiB", 60, "-b 8192"),
    case("ext4, 16 KiB", 60, "-b 16384"),
    case("ext4, 32 KiB", 90, "-b 32768"),
    case("ext4, 64 KiB", 160, "-b 65536"),
    case("no extents", 40, "-O ^extents,^64bit"),
    case("no flex groups, no 64-bit", 40, "-b 1024 -O ^flex_bg,^64bit"),
    case("32-byte descriptors", 40, "-O ^64bit"),
    case("meta groups", 80, "-b 1024 -O meta_bg,^resize_inode"),
    case("sparse_super2", 80, "-b 1024 -O sparse_super2,^resize_inode"),
    case("backups everywhere", 60, "-b 1024 -O ^sparse_super,^resize_inode"),
    case("clusters", 60, "-b 4096 -O bigalloc -N 4096"),
    case("clusters of 1 KiB blocks", 60, "-b 1024 -O bigalloc -N 4096"),
    case("clusters of 256 KiB", 800, "-b 4096 -O bigalloc -C 262144 -N 4096"),
    case("inline data", 40, "-O inline_data -I 256"),
    case("inline data, 1 KiB inodes", 40, "-b 4096 -O inline_data -I 1024"),
    case("1 KiB inodes", 40, "-I 1024"),
    case("128-byte inodes", 40, "-I 128"),
    case("no checksums", 40, "-O ^metadata_csum,^uninit_bg"),
    case("descriptor checksums", 40, "-O ^metadata_csum,uninit_bg"),
    case("seed", 40, "-O metadata_csum_seed"),
    case("orphan file", 40, "-O orphan_file"),
    case("no journal", 40, "-O ^has_journal"),
    case("fast commits", 40, "-O fast_commit"),
    case("large directories", 40, "-b 1024 -O large_dir"),
    case("value inodes", 40, "-b 1024 -O ea_inode"),
    case("quota and projects", 40, "-O quota,project -Equotatype=usr:grp:prj"),
    case("encrypt, verity, casefold", 40, "-O encrypt,verity,casefold"),
    case("no index", 40, "-O ^dir_index"),
    case("no types in directories", 40, "-b 1024 -O ^filetype"),
    case("small groups", 40, "-b 1024 -g 1024"),
    case("lazy tables", 60, "-E lazy_itable_init=1"),
    case("one block map and clusters apart", 60, "-b 2048 -g 4096 -G 4"),
];

#[test]
fn files_written_by_mke2fs_are_read_back_the_same() {
    extant_testkit::require!(E2fsprogs);
    let scratch = Scratch::new();
    let tree = scratch.file("tree");
    make_tree(&tree);
    let only = std::env::var("EXTANT_CASE").unwrap_or_default();
    for case in CASES.iter().filter(|case| case.name.contains(&only)) {
        println!("{}", case.name);
        let image = scratch.file("image");
        mke2fs(&image, case.mib << 20, case.options, Some(&tree)).unwrap();
        compare_all(&image, &tree);
        // Again, after e2fsck has indexed and packed every directory.
        if !case.options.contains("^dir_index") {
            let fsck = Command::new("e2fsck").args(["-fyD"]).arg(&image).output().unwrap();
            assert!(fsck.status.code().is_some_and(|code| code <= 1), "{fsck:?}");
            compare_all(&image, &tree);
        }
        fs::remove_file(&image).unwrap();
    }
}

#[test]
fn large_values_come_from_their_inodes() {
    extant_testkit::require!(E2fsprogs);
    let scratch = Scratch::new();
    let image = scratch.file("image");
    // debugfs accepts only values of up to one block.
    for (options, len) in [("-b 1024 -O ea_inode", 1020), ("-b 4096 -O ea_inode -I 128", 4090)] {
        mke2fs(&image, 8 << 20, options, None).unwrap();
        let value = rng::bytes(9, len);
        let file = scratch.file("value");
        fs::write(&file, &value).unwrap();
        debugfs_write(&image, "mkdir d");
        debugfs_write(&image, &format!("ea_set -f {} d user.large", file.display()));
        debugfs_write(&image, "ea_set d user.small v");
        let fs = Filesystem::open(&image).unwrap();
        assert!(fs.xattr("d", "user.large").unwrap() == value, "{options}");
        assert_eq!(fs.xattr("d", "user.small").unwrap(), b"v");
        assert!(matches!(fs.xattr("d", "user.none"), Err(extant::Error::NoAttribute)));
    }
}

#[test]
fn a_backup_superblock_opens_a_volume_whose_start_is_gone() {
    extant_testkit::require!(E2fsprogs);
    let scratch = Scratch::new();
    let tree = scratch.file("tree");
    fs::create_dir(&tree).unwrap();
    fs::write(tree.join("file"), "still here").unwrap();
    let image = scratch.file("image");
    for options in
        ["-b 1024 -N 4096", "-b 4096 -g 1024 -N 4096", "-b 1024 -O meta_bg,^resize_inode"]
    {
        mke2fs(&image, 64 << 20, options, Some(&tree)).unwrap();
        let mut file = fs::OpenOptions::new().write(true).open(&image).unwrap();
        // The superblock, and with 4 KiB blocks also the boot sector before it.
        file.seek(SeekFrom::Start(1024)).unwrap();
        file.write_all(&[0; 1024]).unwrap();
        assert!(Filesystem::open(&image).is_err());
        if options.contains("-g 1024") {
            // Only the primary superblock reveals an unusual group size.
            continue;
        }
        let fs = extant::OpenOptions::new().backup_superblock(1).open(&image).unwrap();
        assert_eq!(fs.read_to_string("file").unwrap(), "still here", "{options}");
    }
}

#[test]
fn a_partition_is_read_at_its_offset() {
    extant_testkit::require!(E2fsprogs);
    let scratch = Scratch::new();
    let (image, disk) = (scratch.file("image"), scratch.file("disk"));
    mke2fs(&image, 4 << 20, "", None).unwrap();
    let mut bytes = vec![0xAB; 1 << 20];
    bytes.extend(fs::read(&image).unwrap());
    fs::write(&disk, bytes).unwrap();
    let fs = extant::OpenOptions::new().offset(1 << 20).open(&disk).unwrap();
    assert!(fs.metadata("lost+found").unwrap().is_dir());
}

#[test]
fn many_threads_read_one_volume_with_hardly_any_cache() {
    extant_testkit::require!(E2fsprogs);
    let scratch = Scratch::new();
    let tree = scratch.file("tree");
    make_tree(&tree);
    let image = scratch.file("image");
    mke2fs(&image, 40 << 20, "-b 1024", Some(&tree)).unwrap();
    let fs = extant::OpenOptions::new().cache_bytes(64 << 10).open(&image).unwrap();
    std::thread::scope(|threads| {
        for _ in 0..4 {
            let fs = fs.clone();
            let tree = &tree;
            threads.spawn(move || {
                for entry in fs.walk("/").map(Result::unwrap) {
                    let below = entry.path().strip_prefix("/").unwrap();
                    if !below.as_os_str().is_empty() && !below.starts_with("lost+found") {
                        compare(&fs, &entry, &tree.join(below));
                    }
                }
            });
        }
    });
}

#[test]
fn free_space_agrees_with_dumpe2fs() {
    extant_testkit::require!(E2fsprogs);
    let scratch = Scratch::new();
    let image = scratch.file("image");
    for options in ["-b 1024", "-b 4096 -O ^has_journal", "-b 1024 -O bigalloc"] {
        mke2fs(&image, 100 << 20, options, None).unwrap();
        let space = Filesystem::open(&image).unwrap().space();
        let text = extant_testkit::e2fsprogs::dumpe2fs(&image).unwrap();
        let field = |name: &str| -> u64 {
            let line = text.lines().find(|line| line.starts_with(name)).unwrap();
            line.rsplit(' ').next().unwrap().parse().unwrap()
        };
        assert_eq!(space.free, field("Free blocks:"), "{options}");
        assert_eq!(u64::from(space.free_inodes), field("Free inodes:"), "{options}");
        let ratio = if options.contains("bigalloc") { 16 } else { 1 };
        let overhead = field("Overhead clusters:") * ratio;
        assert_eq!(space.blocks, field("Block count:") - overhead, "{options}");
    }
}
