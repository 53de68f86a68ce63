//! Volumes made by this engine, compared with those that mke2fs makes with the same options.

use extant::check::{self, Options};
use extant::mkfs::{self, MkfsOptions};
use extant::{BlockSize, Environment, FileOptions};
use extant_blockdev::FileDevice;
use extant_testkit::e2fsprogs::{debugfs, e2fsck, mke2fs};
use extant_testkit::report::run_cases;
use extant_testkit::require;
use extant_testkit::scratch::Scratch;
use std::path::Path;
use std::sync::Arc;

const MIB: u64 = 1 << 20;

/// A volume of `bytes` made by this engine, from options that mke2fs also understands. Both
/// checkers must find nothing in it.
fn make(img: &Path, bytes: u64, words: &str) -> Result<(), String> {
    let text = |e: extant::Error| e.to_string();
    let device = FileDevice::create(img, bytes).map_err(text)?;
    let options = options(words).zeroed(true);
    mkfs::format(Arc::new(device), &options, &Environment::default()).map_err(text)?;
    e2fsck(img, None).expect_clean()?;
    let device = FileOptions::new().open(img).map_err(text)?;
    let report = check::check_device(Arc::new(device), &Options::default(), &()).map_err(text)?;
    report.findings.first().map_or(Ok(()), |finding| Err(finding.to_string()))
}

/// The options `-t`, `-b`, `-C`, `-g` and `-O` of mke2fs, the type first.
fn options(words: &str) -> MkfsOptions {
    let words: Vec<&str> = words.split_whitespace().collect();
    let mut options = MkfsOptions::new();
    for pair in words.chunks_exact(2) {
        let number = || pair[1].parse::<u32>().unwrap();
        options = match pair[0] {
            "-t" => MkfsOptions::of_type(pair[1]).unwrap(),
            "-b" => options.block_size(BlockSize::from_bytes(number()).unwrap()),
            "-C" => options.cluster_bytes(number()),
            "-g" => options.blocks_per_group(number()),
            "-I" => options.inode_size(number() as u16),
            _ => options.features(pair[1]).unwrap(),
        };
    }
    options
}

/// The blocks of inode 7 in the output of debugfs: each with its place in the file, except the
/// first, which can be anywhere.
fn reserve(img: &Path) -> Result<Vec<String>, String> {
    let said = debugfs(img, "stat <7>")?;
    let blocks = said.split_once("BLOCKS:").map_or("", |(_, blocks)| blocks);
    Ok(blocks.split(',').skip(1).map(|word| word.trim().to_owned()).collect())
}

#[test]
fn the_resize_inode_names_the_blocks_that_mke2fs_names() {
    require!(E2fsprogs);
    let rows = [
        "-b 1024",
        "-b 4096 -g 2048",
        "-b 1024 -O bigalloc -C 2048",
        "-b 1024 -O bigalloc -C 4096",
        "-b 1024 -O bigalloc,^flex_bg -C 4096",
        "-b 2048 -O bigalloc -C 4096",
    ];
    run_cases(
        "mkfs/resize-inode",
        &rows,
        |row| (*row).to_owned(),
        |row| {
            let scratch = Scratch::new();
            let (by_extant, by_mke2fs) =
                (scratch.file("by_extant.img"), scratch.file("by_mke2fs.img"));
            make(&by_extant, 200 * MIB, row)?;
            mke2fs(&by_mke2fs, 200 * MIB, row, None)?;
            let (by_extant, by_mke2fs) = (reserve(&by_extant)?, reserve(&by_mke2fs)?);
            match by_extant.iter().zip(&by_mke2fs).find(|(a, b)| a != b) {
                Some((by_extant, by_mke2fs)) => Err(format!("{by_extant}, mke2fs has {by_mke2fs}")),
                None if by_extant.len() != by_mke2fs.len() || by_extant.is_empty() => {
                    Err(format!("{} blocks, mke2fs has {}", by_extant.len(), by_mke2fs.len()))
                }
                None => Ok(format!(" {} blocks", by_extant.len())),
            }
        },
    );
}
