//! Volumes made by this engine, checked by `e2fsck -fn`.

use extant::mkfs::{self, InodeCount, JournalSize, MkfsOptions};
use extant::{Environment, Error};
use extant_base::BlockSize;
use extant_blockdev::FileDevice;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;

fn block(bytes: u32) -> BlockSize {
    BlockSize::from_bytes(bytes).unwrap()
}

fn make(path: &Path, mib: u64, options: MkfsOptions) -> Result<mkfs::Made, Error> {
    let device = FileDevice::create(path, mib << 20)?;
    mkfs::format(Arc::new(device), &options.zeroed(true), &Environment::default())
}

/// The output of `e2fsck -fn`; `None` if there is no e2fsck and it is not required.
fn e2fsck(path: &Path) -> Option<(i32, String)> {
    match Command::new("e2fsck").arg("-fn").arg(path).output() {
        Ok(output) => {
            let mut text = String::from_utf8_lossy(&output.stdout).into_owned();
            text.push_str(&String::from_utf8_lossy(&output.stderr));
            Some((output.status.code().unwrap_or(-1), text))
        }
        Err(_) if std::env::var_os("CI").is_none() => {
            eprintln!("no e2fsck here: not judged");
            None
        }
        Err(error) => panic!("e2fsck is needed in CI: {error}"),
    }
}

#[test]
fn volumes_of_every_kind_are_clean() {
    let dir = tempfile::tempdir().unwrap();
    let features = |names: &str| MkfsOptions::new().features(names).unwrap();
    let sized = |bytes: u32| MkfsOptions::new().block_size(block(bytes));
    let kinds: Vec<(&str, u64, MkfsOptions)> = vec![
        ("default", 64, MkfsOptions::new()),
        ("default-1g", 1024, MkfsOptions::new()),
        ("default-20g", 20 << 10, MkfsOptions::new()),
        ("tiny", 1, MkfsOptions::new()),
        ("1k", 64, sized(1024)),
        ("2k", 64, sized(2048)),
        ("4k", 64, sized(4096)),
        ("8k", 64, sized(8192)),
        ("16k", 128, sized(16_384)),
        ("32k", 256, sized(32_768)),
        ("64k", 512, sized(65_536)),
        ("ext2", 32, MkfsOptions::of_type("ext2").unwrap()),
        ("ext3", 64, MkfsOptions::of_type("ext3").unwrap()),
        ("ext2-i128", 32, MkfsOptions::of_type("ext2").unwrap().inode_size(128)),
        ("i1024", 64, MkfsOptions::new().inode_size(1024)),
        ("nojournal", 64, features("^has_journal")),
        ("noextent", 64, features("^extent,^64bit")),
        ("no64bit", 64, features("^64bit")),
        ("gdtcsum", 64, features("uninit_bg")),
        ("gdtcsum-no64", 64, features("uninit_bg,^64bit")),
        ("nocsum", 64, features("^metadata_csum")),
        ("csumseed", 64, features("metadata_csum_seed")),
        ("orphanfile", 64, features("orphan_file")),
        ("bigalloc", 64, features("bigalloc").block_size(block(4096)).cluster_bytes(16_384)),
        ("bigalloc-1k", 64, features("bigalloc").block_size(block(1024)).cluster_bytes(65_536)),
        ("inline", 64, features("inline_data")),
        ("noflexbg", 64, features("^flex_bg")),
        ("small-groups", 64, sized(1024).blocks_per_group(256).inodes(InodeCount::AtLeast(8192))),
        (
            "metabg",
            64,
            features("meta_bg,^resize_inode").block_size(block(1024)).blocks_per_group(1024),
        ),
        ("nosparse", 64, features("^sparse_super,^resize_inode").block_size(block(1024))),
        ("sparse2", 64, features("sparse_super2,^resize_inode")),
        ("sparse2-one", 64, features("sparse_super2,^resize_inode").backups(1)),
        ("noresize", 64, features("^resize_inode")),
        ("nofiletype", 64, features("^filetype,^has_journal,^metadata_csum")),
        ("eainode-largedir", 64, features("ea_inode,large_dir")),
        ("mmp", 64, features("mmp")),
        ("quota", 64, features("quota")),
        ("quota-project", 64, features("quota,project")),
        ("fastcommit", 64, features("fast_commit")),
        ("casefold", 64, features("casefold")),
        ("bigjournal", 128, MkfsOptions::new().journal(JournalSize::Bytes(32 << 20))),
        ("owner", 64, MkfsOptions::new().root_owner(70_000, 80_000).root_mode(0o700)),
    ];
    let mut bad = String::new();
    for (name, mib, options) in kinds {
        let path = dir.path().join(name);
        match make(&path, mib, options) {
            Ok(_) => {}
            Err(error) => {
                bad += &format!("{name}: {error}\n");
                continue;
            }
        }
        if let Some((status, text)) = e2fsck(&path)
            && status != 0
        {
            bad += &format!("{name}: e2fsck says {status}\n{text}\n");
        }
        std::fs::remove_file(&path).unwrap();
    }
    assert!(bad.is_empty(), "{bad}");
}
