//! Free space of volumes: the numbers are those of Linux for the same volume, and those that mke2fs
//! stores.

use extant::mkfs::{self, MkfsOptions};
use extant::resize::{Size, resize};
use extant::{BlockSize, Environment, FileOptions, Filesystem};
use extant_testkit::e2fsprogs::mke2fs;
use extant_testkit::loop_mount::LoopMount;
use extant_testkit::report::run_cases;
use extant_testkit::require;
use extant_testkit::scratch::{Scratch, make_sparse};
use std::path::Path;
use std::sync::Arc;

const MIB: u64 = 1 << 20;

/// Blocks, free, available, inodes, free inodes.
type Space = [u64; 5];

fn here(img: &Path) -> Result<Space, String> {
    let space = Filesystem::open(img).map_err(|e| e.to_string())?.space();
    let (inodes, free_inodes) = (space.inodes.into(), space.free_inodes.into());
    Ok([space.blocks, space.free, space.available, inodes, free_inodes])
}

fn in_linux(img: &Path) -> Result<Space, String> {
    let mount = LoopMount::ro(img, "")?;
    let info = rustix::fs::statfs(mount.path()).map_err(|e| e.to_string())?;
    mount.unmount()?;
    Ok([info.f_blocks, info.f_bfree, info.f_bavail, info.f_files, info.f_ffree])
}

fn as_linux(img: &Path) -> Result<(), String> {
    match (here(img)?, in_linux(img)?) {
        (here, there) if here != there => Err(format!("{here:?}, Linux says {there:?}")),
        _ => Ok(()),
    }
}

#[test]
fn statfs_agrees_with_linux() {
    require!(Root, Loop, E2fsprogs);
    let rows = [
        "-b 1024",
        "-b 2048",
        "-b 4096",
        "-t ext2 -b 1024",
        "-t ext3 -b 1024",
        "-t ext3 -b 4096",
        "-b 1024 -O ^flex_bg",
        "-b 1024 -O ^64bit,^metadata_csum",
        "-b 1024 -O ^has_journal",
        "-b 1024 -O ^resize_inode",
        "-b 1024 -O meta_bg,^resize_inode -g 1024",
        "-b 1024 -O sparse_super2,^resize_inode",
        "-b 1024 -O ^sparse_super,^resize_inode",
        "-b 1024 -O bigalloc -C 4096",
        "-b 1024 -O bigalloc -C 65536",
        "-b 4096 -O bigalloc -C 16384",
        "-b 4096 -O bigalloc,^has_journal",
        "-b 1024 -O fast_commit,orphan_file",
        "-b 1024 -m 0",
        "-b 4096 -m 30",
        "-b 4096 -J size=16",
    ];
    let rows: Vec<_> = rows.iter().flat_map(|row| [64, 100, 300].map(|mib| (*row, mib))).collect();
    run_cases(
        "statfs/linux",
        &rows,
        |(row, mib)| format!("{row}, {mib} MiB"),
        |(row, mib)| {
            let scratch = Scratch::new();
            let img = scratch.file("a.img");
            mke2fs(&img, mib * MIB, row, None)?;
            as_linux(&img)?;
            // Also after a change of size.
            for mib in [mib + 60, mib - 10] {
                resize(&img, Size::Bytes(mib * MIB), &()).map_err(|e| e.to_string())?;
                as_linux(&img).map_err(|e| format!("{mib} MiB: {e}"))?;
            }
            Ok(String::new())
        },
    );
}

#[test]
fn the_overhead_of_a_new_volume_is_that_of_mke2fs() {
    require!(E2fsprogs);
    // Layouts that do not differ otherwise: mke2fs rounds numbers of inodes in its own way, and
    // leaves gaps in flex groups that end early.
    let rows = [
        (1024, "", 64),
        (1024, "^has_journal", 96),
        (1024, "^flex_bg", 64),
        (1024, "uninit_bg,^64bit", 64),
        (1024, "meta_bg,^resize_inode", 64),
        (1024, "sparse_super2,^resize_inode", 64),
        (1024, "^sparse_super,^resize_inode", 128),
        (1024, "bigalloc,^flex_bg", 512),
        (2048, "", 64),
        (2048, "^flex_bg", 128),
        (4096, "", 4096),
    ];
    run_cases(
        "statfs/overhead",
        &rows,
        |row| format!("{row:?}"),
        |&(block, features, mib)| {
            let scratch = Scratch::new();
            let (by_extant, by_mke2fs) =
                (scratch.file("by_extant.img"), scratch.file("by_mke2fs.img"));
            let options = MkfsOptions::new().block_size(BlockSize::from_bytes(block).unwrap());
            let options = options.zeroed(true).features(features).unwrap();
            make_sparse(&by_extant, mib * MIB)?;
            let device = FileOptions::new().write(true).open(&by_extant).unwrap();
            mkfs::format(Arc::new(device), &options, &Environment::default())
                .map_err(|e| e.to_string())?;
            let words =
                format!("-b {block} {} {features}", if features.is_empty() { "" } else { "-O" });
            mke2fs(&by_mke2fs, mib * MIB, &words, None)?;
            let overhead = |img: &Path| {
                Filesystem::open(img).map(|fs| fs.superblock().overhead_clusters).unwrap()
            };
            match (overhead(&by_extant), overhead(&by_mke2fs)) {
                (by_extant, by_mke2fs) if by_extant != by_mke2fs => {
                    Err(format!("{by_extant}, mke2fs says {by_mke2fs}"))
                }
                (by_extant, _) => Ok(format!(" {by_extant}")),
            }
        },
    );
}
