//! The claims of `--compat`: an image built for each set is clean, its features are among those
//! that the set's reader knows, and the available readers read it.
//!
//! ```text
//!   set ─► build ─► e2fsck ─┬─► Linux 6.1 mounts it as the set's type, reads and writes
//!                           └─► GRUB 2.06 lists it and reads the same bytes
//! ```

use std::fs;
use std::path::{Path, PathBuf};
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use extant::Filesystem;
use extant_base::BlockSize;
use extant_image::{
    BuildError, COMPAT_SETS, Compat, ImageBuilder, ImageSize, SourceOptions, SourceSpec, Tree,
};
use extant_testkit::command::run_args;
use extant_testkit::e2fsprogs::e2fsck;
use extant_testkit::require;
use extant_testkit::scratch::Scratch;
use extant_testkit::uml::Uml;

/// The bytes of the file that every reader must return.
const LARGE: usize = 2_500_007;

fn source(dir: &Path) -> Tree {
    fs::create_dir_all(dir.join("boot/grub")).unwrap();
    let bytes: Vec<u8> =
        (0..LARGE as u32).map(|n| (n.wrapping_mul(2_654_435_761) >> 24) as u8).collect();
    fs::write(dir.join("boot/vmlinuz"), bytes).unwrap();
    fs::write(dir.join("boot/grub/grub.cfg"), b"set timeout=1\n").unwrap();
    std::os::unix::fs::symlink("vmlinuz", dir.join("boot/linux")).unwrap();
    fs::create_dir(dir.join("many")).unwrap();
    for n in 0..1000 {
        fs::write(dir.join(format!("many/one of a thousand names, {n:04}")), [n as u8; 9]).unwrap();
    }
    Tree::read(&[SourceSpec::new(dir)], &SourceOptions::new(), &()).unwrap()
}

fn build(set: Compat, wish: &str, block: u32, tree: &Tree, img: &Path) -> Result<(), BuildError> {
    let options = set.mkfs().features(wish).unwrap().reserved_percent(0.0);
    ImageBuilder::new()
        .mkfs(options)
        .compat(set)
        .block_size(BlockSize::from_bytes(block).unwrap())
        .size(ImageSize::Auto { free: 16 << 20 })
        .build(tree, img, &(), &AtomicBool::new(false))
        .map(drop)
}

#[test]
fn an_image_of_each_set_is_clean_and_within_what_its_reader_knows() {
    require!(E2fsprogs);
    let scratch = Scratch::new();
    let tree = source(&scratch.file("source"));
    for &set in COMPAT_SETS {
        let img = scratch.file(set.name);
        build(set, "", 4096, &tree, &img).unwrap();
        let features = Filesystem::open(&img).unwrap().superblock().features;
        set.check(&features).unwrap();
        e2fsck(&img, None).expect_clean().unwrap_or_else(|e| panic!("{}: {e}", set.name));
        fs::remove_file(&img).unwrap();
    }
}

#[test]
fn features_outside_the_set_are_refused_and_nothing_is_written() {
    let scratch = Scratch::new();
    let tree = source(&scratch.file("source"));
    let img = scratch.file("img");
    let set = Compat::by_name("kernel-3.10").unwrap();
    let error = build(set, "metadata_csum_seed,metadata_csum", 4096, &tree, &img).unwrap_err();
    let text = error.to_string();
    assert!(text.contains("kernel-3.10 excludes metadata_csum_seed metadata_csum"), "{text}");
    assert!(!img.exists());
}

#[test]
fn linux_6_1_mounts_reads_and_writes_an_image_of_each_set() {
    require!(Uml, E2fsprogs);
    let scratch = Scratch::new();
    let source_dir = scratch.file("source");
    let tree = source(&source_dir);
    let mut script = String::from("set -e\n");
    let mut images: Vec<PathBuf> = Vec::new();
    for (at, &set) in COMPAT_SETS.iter().enumerate() {
        let img = scratch.file(set.name);
        build(set, "", 4096, &tree, &img).unwrap();
        let device = char::from(b'a' + at as u8);
        // Mounted as ext2 or ext3, the driver accepts only the features of that type.
        script += &format!(
            "echo {name}; mount -t {of_type} /dev/ubd{device} /dev/shm/m\n\
             cmp /dev/shm/m/boot/linux /mnt/work/source/boot/vmlinuz\n\
             test $(ls /dev/shm/m/many | wc -l) = 1000\n\
             cp /mnt/work/source/boot/vmlinuz /dev/shm/m/again; rm /dev/shm/m/many/*7\n\
             umount /dev/shm/m\n",
            name = set.name,
            of_type = set.of_type,
        );
        images.push(img);
    }
    let paths: Vec<&Path> = images.iter().map(PathBuf::as_path).collect();
    let end = Uml::get().unwrap().run(&script, &paths, scratch.path(), Duration::from_secs(120));
    end.unwrap().success().unwrap();
    for (set, img) in COMPAT_SETS.iter().zip(&images) {
        e2fsck(img, None).expect_clean().unwrap_or_else(|e| panic!("{}: {e}", set.name));
        let fs = Filesystem::open(img).unwrap();
        assert_eq!(fs.read("/again").unwrap(), fs.read("/boot/vmlinuz").unwrap(), "{}", set.name);
        assert_eq!(fs.read_dir("/many").unwrap().count(), 900, "{}", set.name);
    }
}

/// What GRUB prints of the image's root and of the long file's bytes.
fn grub(img: &Path, scratch: &Scratch) -> Result<(), String> {
    let img = img.to_str().expect("a scratch path is plain text");
    let list = run_args("grub-fstest", &[img, "ls", "(loop0)/many/"])?.success()?.out();
    if list.matches("one of a thousand").count() != 1000 {
        return Err(format!("{} bytes listed", list.len()));
    }
    let cfg = run_args("grub-fstest", &[img, "cat", "(loop0)/boot/grub/grub.cfg"])?.success()?;
    if cfg.out() != "set timeout=1\n" {
        return Err(format!("grub.cfg reads {:?}", cfg.out()));
    }
    let copy = scratch.file("copy");
    let to = copy.to_str().expect("a scratch path is plain text");
    run_args("grub-fstest", &[img, "cp", "(loop0)/boot/linux", to])?.success()?;
    let same = fs::read(&copy).ok() == fs::read(scratch.file("source/boot/vmlinuz")).ok();
    same.then_some(()).ok_or_else(|| "the kernel's bytes differ".to_owned())
}

#[test]
fn grub_reads_what_was_made_for_it() {
    require!(Grub);
    let scratch = Scratch::new();
    let tree = source(&scratch.file("source"));
    let img = scratch.file("img");
    for (name, wish, block) in [
        ("grub-2.06", "", 4096),
        ("grub-2.06", "", 1024),
        ("grub-2.06", "", 65_536),
        ("grub-2.06", "^64bit,^metadata_csum", 2048),
        ("grub-2.06", "meta_bg,^resize_inode,mmp", 1024),
        ("grub-2.06", "bigalloc,quota,project,fast_commit,orphan_file", 4096),
        ("default", "", 4096),
        ("kernel-3.10", "", 4096),
        ("ext3", "", 4096),
        ("ext2", "", 1024),
    ] {
        let set = Compat::by_name(name).unwrap();
        build(set, wish, block, &tree, &img).unwrap();
        grub(&img, &scratch).unwrap_or_else(|e| panic!("{name} {wish} {block}: {e}"));
        fs::remove_file(&img).unwrap();
    }
}

#[test]
fn grub_refuses_what_its_set_leaves_out() {
    require!(Grub);
    let scratch = Scratch::new();
    let tree = source(&scratch.file("source"));
    let img = scratch.file("img");
    let any = Compat::by_name("default").unwrap();
    for wish in ["inline_data", "ea_inode", "casefold"] {
        build(any, wish, 4096, &tree, &img).unwrap();
        assert!(grub(&img, &scratch).is_err(), "{wish}");
        let set = Compat::by_name("grub-2.06").unwrap();
        assert!(build(set, wish, 4096, &tree, &scratch.file("other")).is_err(), "{wish}");
        fs::remove_file(&img).unwrap();
    }
}
