//! Attributes of deleted files: those in the inode, and those in a block of their own.

use super::find;
use extant::undelete::{Options, PastFiles};
use extant::{Filesystem, Metadata, NewFile, OpenOptions, XattrMode};
use extant_testkit::e2fsprogs::{debugfs, e2fsck, mke2fs};
use extant_testkit::scratch::Scratch;
use std::path::Path;

#[test]
fn attributes_are_those_of_the_file() {
    extant_testkit::require!(E2fsprogs);
    let scratch = Scratch::new();
    let image = scratch.file("image");
    mke2fs(&image, 16 << 20, "-t ext4", None).unwrap();
    let fs = OpenOptions::new().write(true).open(&image).unwrap();
    let new = NewFile { mode: 0o640, uid: 70_000, gid: 80_000, ..NewFile::default() };
    let file = fs.create_file("/file", &new).unwrap();
    fs.set_xattr("/file", "user.kept", b"value", XattrMode::Any).unwrap();
    fs.symlink("some/target", "/link", &new).unwrap();
    let before = file.metadata();
    fs.sync().unwrap();
    drop(file);
    fs.remove_file("/file").unwrap();
    fs.remove_file("/link").unwrap();
    fs.close().unwrap();
    let fs = Filesystem::open(&image).unwrap();
    let deleted = fs.deleted_files(&Options::default(), &()).unwrap();
    let file = find(&deleted, "/file");
    let parts = |metadata: &Metadata| {
        let owners = (metadata.uid(), metadata.gid(), metadata.permissions());
        (owners, metadata.modified(), metadata.generation(), metadata.ino())
    };
    assert_eq!(parts(file.metadata()), parts(&before));
    assert_eq!(file.xattrs(), [("user.kept".into(), b"value".to_vec())]);
    assert_eq!(deleted.read_link(find(&deleted, "/link")).unwrap(), b"some/target");
}

/// A value that does not fit an inode.
fn large(of: u8) -> Vec<u8> {
    vec![of; 700]
}

fn deleted(image: &Path) -> PastFiles {
    let fs = Filesystem::open(image).unwrap();
    fs.deleted_files(&Options::default(), &()).unwrap()
}

#[test]
fn attributes_in_a_block_are_found_for_each_file_that_shared_it() {
    extant_testkit::require!(E2fsprogs);
    for kind in ["-t ext4", "-t ext4 -b 1024 -O ^metadata_csum", "-t ext3 -b 1024 -I 128"] {
        let scratch = Scratch::new();
        let image = scratch.file("image");
        mke2fs(&image, 16 << 20, kind, None).unwrap();
        let fs = OpenOptions::new().write(true).open(&image).unwrap();
        for name in ["/a", "/b", "/other"] {
            fs.write(name, name.as_bytes()).unwrap();
        }
        for name in ["/a", "/b"] {
            fs.set_xattr(name, "user.large", &large(1), XattrMode::Any).unwrap();
        }
        fs.set_xattr("/other", "user.large", &large(2), XattrMode::Any).unwrap();
        fs.sync().unwrap();
        fs.remove_file("/a").unwrap();
        fs.sync().unwrap();
        fs.remove_file("/b").unwrap();
        fs.remove_file("/other").unwrap();
        fs.close().unwrap();
        e2fsck(&image, None).expect_clean().unwrap();
        let deleted = deleted(&image);
        for (name, value) in [("/a", large(1)), ("/b", large(1)), ("/other", large(2))] {
            let file = find(&deleted, name);
            assert_eq!(file.xattrs(), [("user.large".into(), value)], "{kind}: {name}");
        }
    }
}

#[test]
fn an_attribute_block_that_was_written_later_gives_nothing() {
    extant_testkit::require!(E2fsprogs);
    for overwrite in [false, true] {
        let scratch = Scratch::new();
        let image = scratch.file("image");
        // With one inode in a block, other files are not in the log with this one.
        mke2fs(&image, 32 << 20, "-t ext4 -b 1024 -I 1024 -J size=1", None).unwrap();
        let fs = OpenOptions::new().write(true).open(&image).unwrap();
        fs.write("/file", b"content").unwrap();
        fs.set_xattr("/file", "user.large", &vec![7; 950], XattrMode::Any).unwrap();
        fs.create_file("/busy", &NewFile::default()).unwrap();
        fs.close().unwrap();
        let block = debugfs(&image, "stat /file").unwrap();
        let block = block.split("File ACL: ").nth(1).unwrap().split_whitespace().next().unwrap();
        let block: u64 = block.parse().unwrap();
        assert!(block > 0, "the attribute has a block");
        let fs = OpenOptions::new().write(true).open(&image).unwrap();
        // The log forgets the block.
        for n in 0..700 {
            fs.set_xattr("/busy", "user.n", n.to_string().as_bytes(), XattrMode::Any).unwrap();
            fs.sync().unwrap();
        }
        // The inode is in the log again, the block is not.
        super::set_mode(&fs, "/file", 0o640);
        fs.sync().unwrap();
        fs.remove_file("/file").unwrap();
        fs.close().unwrap();
        if overwrite {
            let mut bytes = std::fs::read(&image).unwrap();
            bytes[block as usize * 1024 + 1000] ^= 1;
            std::fs::write(&image, bytes).unwrap();
        }
        let deleted = deleted(&image);
        // The log does not have its name.
        let [file] = deleted.files() else { panic!("{} files", deleted.files().len()) };
        assert_eq!((file.metadata().permissions(), file.path()), (0o640, None));
        let want: &[(std::ffi::OsString, Vec<u8>)] =
            if overwrite { &[] } else { &[("user.large".into(), vec![7; 950])] };
        assert_eq!(file.xattrs(), want, "written over: {overwrite}");
    }
}
