//! Surveys of volumes with known content.

use super::*;
use crate::files::file::FallocateMode;
use crate::offline::mkfs::{MkfsOptions, format};
use crate::open::OpenOptions;
use crate::tree::names::NewFile;
use extant_base::{BlockSize, ByteOffset};
use extant_blockdev::{BlockDevice, MemoryDevice};
use std::path::Path;
use std::sync::Arc;

const BLOCK: u64 = 1024;

/// 64 MiB in 8 groups: a file of one piece, a file with a hole at every other block, a directory of
/// 3000 names.
fn device() -> Arc<MemoryDevice> {
    let device = Arc::new(MemoryDevice::new(64 << 20));
    let options = MkfsOptions::new().block_size(BlockSize::from_bytes(BLOCK as u32).unwrap());
    format(device.clone(), &options, &crate::Environment::default()).unwrap();
    let fs =
        OpenOptions::new().write(true).page_cache_bytes(0).open_device(device.clone()).unwrap();
    let new = NewFile::default();
    fs.create_dir("/a", &new).unwrap();
    fs.create_dir("/a/b", &new).unwrap();
    let whole = fs.create_file("/a/whole", &new).unwrap().open().unwrap();
    whole.allocate(FallocateMode::Allocate, 0, 4000 * BLOCK).unwrap();
    let split = fs.create_file("/a/b/split", &new).unwrap().open().unwrap();
    split.allocate(FallocateMode::Allocate, 0, 100 * BLOCK).unwrap();
    for n in (1..99).step_by(2) {
        split.allocate(FallocateMode::PunchHole, n * BLOCK, BLOCK).unwrap();
    }
    for n in 0..3000 {
        fs.mknod(format!("/a/b/{n}"), extant_ondisk::inode::FileKind::Fifo, &new).unwrap();
    }
    fs.hard_link("/a/whole", "/again").unwrap();
    drop((whole, split));
    fs.close().unwrap();
    device
}

fn open(device: &Arc<MemoryDevice>) -> Filesystem {
    OpenOptions::new().page_cache_bytes(0).open_device(device.clone()).unwrap()
}

#[test]
fn known_facts_are_found() {
    let device = device();
    let fs = open(&device);
    for threads in [1, 4] {
        let options = Options { threads, cells: 64, ..Options::default() };
        let survey = fs.survey(&options, &()).unwrap();
        assert_eq!(survey.problems_count, 0, "{:?}", survey.problems);
        let files = &survey.files;
        // lost+found, a, b and the root; /a/whole has a second name.
        assert_eq!((files.regular, files.directories, files.special), (2, 4, 3000));
        assert_eq!(files.names, 3006);
        assert_eq!((files.pieces, files.fragmented, files.data_blocks), (51, 1, 4051));
        let split = &survey.most_pieces[0];
        assert_eq!((split.path.as_path(), split.pieces), (Path::new("/a/b/split"), 50));
        assert_eq!(survey.largest_files[0].blocks, 4000);
        assert_eq!(survey.largest_dirs[0].path, Path::new("/"));
        assert_eq!(survey.largest_dirs[0].below, 3005);
        assert!(survey.largest_dirs[0].blocks >= 4051);
        assert_eq!(survey.fullest_dirs[0].path, Path::new("/a/b"));
        assert_eq!(survey.fullest_dirs[0].names, 3001);
        let parts = survey.parts;
        assert_eq!(parts.free, fs.superblock().free_blocks);
        assert_eq!(survey.free.blocks, parts.free);
        assert_eq!(parts.journal, u64::from(fs.journal_superblock().unwrap().unwrap().maxlen));
        assert_eq!(parts.other(), 0, "{parts:?}");
        assert_eq!(survey.cells.len(), 64);
        let sum = |part: fn(&Cell) -> u64| survey.cells.iter().map(part).sum::<u64>();
        assert_eq!(sum(|cell| cell.parts.blocks), parts.blocks - 1, "all but the boot block");
        assert_eq!(sum(|cell| cell.parts.free), parts.free);
    }
}

#[test]
fn many_groups_share_cells() {
    let device = device();
    let survey = open(&device).survey(&Options { cells: 3, ..Options::default() }, &()).unwrap();
    let groups: Vec<_> = survey.cells.iter().map(|cell| cell.groups.clone()).collect();
    assert_eq!(groups, [0..3, 3..6, 6..8]);
}

#[test]
fn damage_is_listed_and_the_rest_counted() {
    let device = device();
    let sound = open(&device);
    let desc = sound.volume().space().descriptor(extant_base::GroupNr(0)).unwrap();
    let at = ByteOffset(desc.block_bitmap.0 * BLOCK);
    drop(sound);
    device.write_at(at, &[0x5A; 64]).unwrap();
    let survey = open(&device).survey(&Options::default(), &()).unwrap();
    assert_eq!((survey.problems_count, survey.groups.damaged), (1, 1));
    assert_eq!(survey.unknown_blocks, 8192);
    assert_eq!(survey.files.special, 3000);
}
