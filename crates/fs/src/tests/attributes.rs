//! Attributes of many sizes in all places, symlinks, devices and inline files, and freeing all of
//! it.

use super::{Bench, NOW, Random, features};
use crate::inodes::create::NewInode;
use crate::offline::mkfs::MkfsOptions;
use crate::space::inodes::InodeGoal;
use crate::state::inode::Body;
use crate::tree::xattr::by_name::XattrMode;
use extant_base::{BlockSize, Error, Ino};
use extant_ondisk::acl::{Acl, AclEntry, AclTag};
use extant_ondisk::dirent::EntryKind;
use extant_ondisk::features::Incompat;
use extant_ondisk::inode::{DeviceNumber, InodeFlags};
use extant_ondisk::xattr::NameIndex;
use std::collections::BTreeMap;

const USER: NameIndex = NameIndex::USER;

fn block(bytes: u32) -> BlockSize {
    BlockSize::from_bytes(bytes).unwrap()
}

/// Makes an inode with a name in the root, not stored yet.
fn create(bench: &Bench, name: &str, new: NewInode) -> (Ino, Body) {
    bench
        .with(|volume, handle| {
            let (ino, body) = volume.inodes().allocate(handle, new)?;
            let mut root = volume.inodes().read(Ino::ROOT)?;
            let kind = EntryKind::from_mode(new.mode);
            volume.dir_mut(&mut root).insert(handle, name.as_bytes(), ino, kind)?;
            root.store(volume, handle)?;
            Ok((ino, body))
        })
        .unwrap()
}

fn new(mode: u16) -> NewInode {
    NewInode::at(InodeGoal::Other { parent: Ino::ROOT }, mode, NOW)
}

fn file(bench: &Bench, name: &str) -> (Ino, Body) {
    create(bench, name, new(0o100_644))
}

fn set(
    bench: &Bench,
    body: &mut Body,
    index: NameIndex,
    name: &[u8],
    value: Option<&[u8]>,
) -> extant_base::Result<()> {
    bench.with(|volume, handle| {
        volume.xattrs_mut(body).set(handle, index, name, value, XattrMode::Any)?;
        body.store(volume, handle)
    })
}

/// Removes the name and releases the inode.
fn unlink(bench: &Bench, name: &str, body: &mut Body) {
    bench
        .with(|volume, handle| {
            let mut root = volume.inodes().read(Ino::ROOT)?;
            volume.dir_mut(&mut root).remove(handle, name.as_bytes())?;
            root.store(volume, handle)?;
            volume.file_mut(body).release_inode(handle)
        })
        .unwrap();
}

fn free(bench: &Bench) -> (u64, u32) {
    (bench.volume.space().free_clusters(), bench.volume.space().free_inodes())
}

fn value(seed: usize, len: usize) -> Vec<u8> {
    (0..len).map(|n| (n * 31 + seed * 7 + n / 256) as u8).collect()
}

/// Random sets and removes on a few files, compared with maps in memory.
fn run(bench: &Bench, steps: usize, most: usize) {
    let mut random = Random::new(3);
    // The root allocates its blocks first, so that the counts at the end can be compared.
    let mut files: Vec<_> = (0..4).map(|n| file(bench, &format!("f{n}"))).collect();
    for (_, body) in &mut files {
        bench.store(body);
    }
    let before = free(bench);
    let mut models = vec![BTreeMap::new(); files.len()];
    for _ in 0..steps {
        let n = random.below(files.len());
        let (ino, body) = &mut files[n];
        let name = format!("name-{}", random.below(6));
        let size = match random.below(4) {
            0 => random.below(20),
            1 => random.below(most / 4),
            _ => random.below(most),
        };
        // Few different values, so that some are shared.
        let value = value(random.below(3), size / 100 * 100);
        let value = (random.below(5) > 0).then_some(value);
        match set(bench, body, USER, name.as_bytes(), value.as_deref()) {
            Ok(()) => match value {
                Some(value) => drop(models[n].insert(name.clone(), value)),
                None => assert!(models[n].remove(&name).is_some()),
            },
            Err(Error::NoAttribute) => assert!(value.is_none() && !models[n].contains_key(&name)),
            Err(Error::NoSpace) => assert!(value.is_some()),
            Err(error) => panic!("{error}"),
        }
        if random.below(20) == 0 {
            let read = bench.volume.inodes().read(*ino).unwrap();
            for (name, value) in &models[n] {
                let name = format!("user.{name}");
                let found = bench.volume.xattrs(&read).get(name.as_bytes()).unwrap();
                assert_eq!(found.as_ref(), Some(value), "{name}");
            }
            assert_eq!(bench.volume.xattrs(&read).names().unwrap().len(), models[n].len());
        }
    }
    bench.judge();
    // Without attributes all counts are as before.
    for ((_, body), model) in files.iter_mut().zip(&models) {
        for name in model.keys() {
            set(bench, body, USER, name.as_bytes(), None).unwrap();
        }
    }
    assert_eq!(free(bench), before);
    bench.judge();
}

#[test]
fn random_attributes_on_volumes_of_many_kinds() {
    run(&Bench::made(64, MkfsOptions::new().block_size(block(4096))), 300, 3000);
    run(&Bench::made(64, MkfsOptions::new().block_size(block(1024))), 300, 900);
    run(&Bench::made(64, features("^metadata_csum").inode_size(128)), 200, 900);
    run(&Bench::made(64, features("ea_inode").block_size(block(4096))), 500, 20_000);
    run(&Bench::made(64, features("ea_inode,^extent,^64bit").block_size(block(1024))), 300, 9000);
    run(&Bench::made(64, features("ea_inode,inline_data").inode_size(1024)), 300, 9000);
    let bigalloc = features("bigalloc,ea_inode").block_size(block(4096)).cluster_bytes(16_384);
    run(&Bench::made(64, bigalloc), 300, 9000);
    run(&Bench::made(256, MkfsOptions::new().block_size(block(65536))), 100, 30_000);
}

#[test]
fn blocks_of_equal_attributes_are_shared_up_to_the_limit() {
    let bench = Bench::made(64, MkfsOptions::new().block_size(block(1024)).inode_size(128));
    let long = value(1, 500);
    let mut files = Vec::new();
    let mut blocks = std::collections::BTreeSet::new();
    for n in 0..1030 {
        let (ino, mut body) = file(&bench, &format!("f{n}"));
        bench
            .with(|volume, handle| {
                let all: [(NameIndex, &[u8], &[u8]); 2] =
                    [(USER, b"long", &long), (NameIndex::SECURITY, b"selinux", b"label")];
                volume.xattrs_mut(&mut body).set_all(handle, &all)?;
                body.store(volume, handle)
            })
            .unwrap();
        blocks.insert(body.disk.file_acl.unwrap());
        files.push((n, ino, body));
    }
    assert_eq!(blocks.len(), 2, "1024 share one block, the others the next");
    bench.judge();
    // An inode that changes its attributes gets its own block; the others keep theirs.
    let (_, _, body) = &mut files[7];
    set(&bench, body, USER, b"long", Some(b"short")).unwrap();
    assert!(!blocks.contains(&body.disk.file_acl.unwrap()));
    bench.judge();
    for (n, _, body) in files.iter_mut().take(1025) {
        unlink(&bench, &format!("f{n}"), body);
    }
    bench.judge();
    assert_eq!(bench.volume.xattrs(&files[1027].2).get(b"user.long").unwrap(), Some(long));
}

#[test]
fn value_inodes_are_shared_and_freed_with_the_last_name() {
    let bench = Bench::made(64, features("ea_inode").block_size(block(1024)));
    let big = value(2, 5000);
    let mut files: Vec<_> = (0..3).map(|n| file(&bench, &format!("f{n}"))).collect();
    let before = free(&bench);
    for (_, body) in &mut files {
        set(&bench, body, USER, b"a", Some(&big)).unwrap();
        set(&bench, body, USER, b"b", Some(&big)).unwrap();
    }
    assert_eq!(before.1 - free(&bench).1, 1, "six names, one value");
    bench.judge();
    for (n, (_, body)) in files.iter_mut().enumerate() {
        unlink(&bench, &format!("f{n}"), body);
        bench.judge();
    }
    assert_eq!(free(&bench).1, before.1 + 3);
    assert!(free(&bench).0 >= before.0);
}

#[test]
fn attributes_are_created_or_replaced_as_the_mode_demands() {
    let bench = Bench::made(64, MkfsOptions::new());
    let (_, mut body) = file(&bench, "f");
    let mut set = |value: Option<&[u8]>, mode| {
        bench.with(|v, h| v.xattrs_mut(&mut body).set(h, USER, b"x", value, mode))
    };
    assert!(matches!(set(Some(b"1"), XattrMode::Replace), Err(Error::NoAttribute)));
    assert!(set(Some(b"1"), XattrMode::Create).is_ok());
    assert!(matches!(set(Some(b"1"), XattrMode::Create), Err(Error::Exists)));
    assert!(set(Some(b"2"), XattrMode::Replace).is_ok());
    assert!(set(None, XattrMode::Any).is_ok());
    assert!(matches!(set(None, XattrMode::Any), Err(Error::NoAttribute)));
    assert!(matches!(set(Some(&[0; 5000]), XattrMode::Any), Err(Error::NoSpace)));
    bench.store(&mut body);
    bench.judge();
}

#[test]
fn access_lists_become_the_mode_where_they_can() {
    let bench = Bench::made(64, MkfsOptions::new());
    let (_, mut body) = file(&bench, "f");
    let index = NameIndex::ACL_ACCESS;
    let plain = Acl::from_mode(0o640).to_call();
    set(&bench, &mut body, index, b"", Some(&plain)).unwrap();
    assert_eq!(body.disk.mode, 0o100_640);
    assert!(bench.volume.xattrs(&body).names().unwrap().is_empty());
    let mut entries = Acl::from_mode(0o640).entries().to_vec();
    entries.push(AclEntry { tag: AclTag::User(1000), perm: 7 });
    entries.push(AclEntry { tag: AclTag::Mask, perm: 6 });
    let named = Acl::new(entries).unwrap().to_call();
    set(&bench, &mut body, index, b"", Some(&named)).unwrap();
    assert_eq!(body.disk.mode, 0o100_660, "the group's bits are the mask's");
    let read = bench.volume.xattrs(&body).get(b"system.posix_acl_access").unwrap();
    assert_eq!(read, Some(named));
    let default = set(&bench, &mut body, NameIndex::ACL_DEFAULT, b"", Some(&plain));
    assert_eq!(default.unwrap_err().errno(), 13);
    assert!(matches!(set(&bench, &mut body, index, b"", Some(b"junk")), Err(Error::Invalid(_))));
    bench.judge();
    set(&bench, &mut body, index, b"", Some(&plain)).unwrap();
    assert!(bench.volume.xattrs(&body).names().unwrap().is_empty());
    bench.judge();
}

#[test]
fn symlinks_devices_and_pipes_are_clean_and_read_back() {
    for options in [
        MkfsOptions::new(),
        features("inline_data,ea_inode"),
        MkfsOptions::of_type("ext2").unwrap(),
    ] {
        let bench = Bench::made(64, options);
        let before = free(&bench);
        let mut made = Vec::new();
        for len in [1, 59, 60, 61, 500, 1023] {
            let target = "t".repeat(len);
            let name = format!("link{len}");
            let (ino, mut body) = create(&bench, &name, new(0o120_777));
            bench
                .with(|volume, handle| {
                    volume.file_mut(&mut body).symlink_write(handle, target.as_bytes())?;
                    let all: [(NameIndex, &[u8], &[u8]); 1] = [(NameIndex::TRUSTED, b"t", b"v")];
                    volume.xattrs_mut(&mut body).set_all(handle, &all)?;
                    body.store(volume, handle)
                })
                .unwrap();
            let read = bench.volume.inodes().read(ino).unwrap();
            assert_eq!(bench.volume.file(&read).symlink_target().unwrap(), target.as_bytes());
            made.push((name, body));
        }
        for (n, (mode, major, minor)) in
            [(0o020_600, 1, 3), (0o060_600, 259, 70_000), (0o010_600, 0, 0), (0o140_600, 0, 0)]
                .into_iter()
                .enumerate()
        {
            let rdev = (major > 0).then_some(DeviceNumber { major, minor });
            let name = format!("node{n}");
            let (ino, mut body) = create(&bench, &name, NewInode { rdev, ..new(mode) });
            bench.store(&mut body);
            assert_eq!(bench.volume.inodes().read(ino).unwrap().disk.device(), rdev);
            made.push((name, body));
        }
        bench.judge();
        for (name, body) in &mut made {
            unlink(&bench, name, body);
        }
        bench.judge();
        assert_eq!(free(&bench).1, before.1);
    }
}

#[test]
fn inline_files_hold_what_fits_and_move_out() {
    for inode_size in [256, 1024] {
        let bench = Bench::made(64, features("inline_data").inode_size(inode_size));
        let capacity = usize::from(inode_size) - 128 - 32 - 4 - 20 - 4 + 60;
        for len in [0, 1, 59, 60, 61, capacity - 1, capacity, capacity + 1] {
            let (_, mut body) = file(&bench, &format!("f{len}"));
            let content = value(len, len);
            let held = bench.volume.inline_mut(&mut body).write(&content).unwrap();
            assert_eq!(held, len <= capacity, "{len}");
            bench.store(&mut body);
            if !held {
                continue;
            }
            // An attribute that is set later goes where there is still space.
            set(&bench, &mut body, USER, b"x", Some(&[7; 30])).unwrap();
            let mut read = vec![0; len];
            bench.volume.file(&body).read_file(0, &mut read).unwrap();
            assert_eq!(read, content);
            bench.judge();
            bench
                .with(|volume, handle| {
                    volume.file_mut(&mut body).truncate(handle, len as u64 / 2)?;
                    volume.file_mut(&mut body).truncate(handle, len as u64)?;
                    volume.inline_mut(&mut body).move_to_blocks(handle)?;
                    body.store(volume, handle)
                })
                .unwrap();
            bench.volume.file(&body).read_file(0, &mut read).unwrap();
            assert_eq!(read[..len / 2], content[..len / 2]);
            assert!(read[len / 2..].iter().all(|byte| *byte == 0));
            bench.judge();
        }
    }
}

#[test]
fn truncating_frees_blocks_and_zeroes_the_rest_of_the_last() {
    for options in [features("^metadata_csum"), MkfsOptions::of_type("ext2").unwrap()] {
        let bench = Bench::made(64, options.block_size(block(1024)));
        let before = free(&bench);
        let (_, mut body) = file(&bench, "f");
        bench
            .with(|volume, handle| {
                volume.file_mut(&mut body).write_content(handle, &[9; 600_000])?;
                body.disk.size = 600_000;
                body.store(volume, handle)
            })
            .unwrap();
        bench.judge();
        for size in [500_000, 300_100, 100, 5000, 0] {
            bench
                .with(|volume, handle| {
                    volume.file_mut(&mut body).truncate(handle, size)?;
                    body.store(volume, handle)
                })
                .unwrap();
            bench.judge();
            let mut read = vec![1; size as usize];
            bench.volume.file(&body).read_file(0, &mut read).unwrap();
            let kept = if size == 5000 { 100 } else { size as usize };
            assert!(read[..kept].iter().all(|byte| *byte == 9));
            assert!(read[kept..].iter().all(|byte| *byte == 0));
        }
        assert_eq!(free(&bench), (before.0, before.1 - 1));
        assert!(bench.volume.has_incompat(Incompat::FILETYPE));
        assert!(!body.disk.flags.contains(InodeFlags::INLINE_DATA));
    }
}
