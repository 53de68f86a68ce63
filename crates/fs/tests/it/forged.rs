//! Maps that were forged to point to the journal. Access to its blocks is refused: no caller can
//! overwrite or free them.

use crate::common::{Image, image_of, judge, pattern};
use extant::mkfs::{self, MkfsOptions};
use extant::tune;
use extant::{
    BlockDevice, BlockSize, Environment, Error, FallocateMode, File, Filesystem, MemoryDevice,
    NewFile, OpenOptions, Result, What,
};
use extant_base::ByteOffset;
use extant_testkit::e2fsprogs::{clear_data_csum, debugfs, debugfs_write, dumpe2fs};
use extant_testkit::require;
use std::path::Path;
use std::process::Command;
use std::sync::Arc;

const BLOCK_4K: BlockSize = BlockSize::ALL[2];
/// Bytes that no journal contains.
const FORGED: [u8; 8192] = [0xA5; 8192];

fn forge(img: &Path, requests: &str) {
    requests.split(';').for_each(|request| debugfs_write(img, request.trim()).unwrap());
}

fn number(img: &Path, request: &str) -> u64 {
    debugfs(img, request).unwrap().trim().parse().unwrap()
}

/// A volume with `/file` of 10 blocks of 4096 bytes. Returns where most of its journal starts.
fn volume(options: &str) -> (Image, u64) {
    let image = Image::mke2fs(40, &format!("-b 4096 -J size=4 {options}"));
    let fs = image.open();
    let file = fs.root().unwrap().create_file("file", &NewFile::default()).unwrap().open().unwrap();
    file.write_all_at(&pattern(40_960, 1), 0).unwrap();
    drop(file);
    fs.close().unwrap();
    // The first blocks are around the bitmaps.
    let journal = number(&image.path, "bmap <8> 100");
    (image, journal)
}

#[track_caller]
fn is_refused<T: std::fmt::Debug>(done: Result<T>, file: &str, journal: u64) {
    match done {
        Err(Error::Corrupt { what: What::ExtentRange | What::MapBlockRange, at }) => {
            assert!(at.ino.is_some(), "{file}: names no file: {at}");
            let block = at.block.unwrap_or_else(|| panic!("{file}: names no block: {at}"));
            assert!((journal..journal + 900).contains(&block.0), "{file}: {at}");
        }
        other => panic!("{file}: {other:?}"),
    }
}

#[track_caller]
fn journal_is_whole(img: &Path, journal: u64) {
    let bytes = std::fs::read(img).unwrap();
    let log = &bytes[(journal as usize) << 12..][..900 << 12];
    assert!(!log.chunks(4096).any(|block| block == &FORGED[..4096]), "the log was written over");
    let used = debugfs(img, &format!("testb {journal} 900")).unwrap();
    assert!(!used.contains("not in use"), "the log was freed: {used}");
}

/// How a file's map is made to point to the journal.
const FORGERIES: [(&str, &str); 4] = [
    // The only extent of the root.
    ("", "sif /file block[5] {}"),
    // A block of pointers, and a direct one.
    ("-O ^extents,^64bit", "sif /file block[0] {}; sif /file block[1] {}"),
    ("-O ^extents,^64bit", "sif /file size 4000000; sif /file block[IND] {}"),
    ("-O ^extents,^64bit", "sif /file size 400000000; sif /file block[DIND] {}"),
];

#[test]
fn a_file_mapped_onto_the_journal_is_neither_written_nor_freed() {
    require!(E2fsprogs);
    type Change = fn(&Filesystem, &File) -> Result<()>;
    let changes: [(&str, Change); 8] = [
        ("written", |_, file| {
            file.write_all_at(&FORGED, 0)?;
            file.write_all_at(&FORGED, 2 << 20)?;
            file.write_all_at(&FORGED, 8 << 20)?;
            file.sync_all()
        }),
        ("written past the cache", |_, file| {
            for at in [0, 65_536, 8 << 20] {
                file.write_direct_at(&FORGED, at, &Default::default())?;
            }
            Ok(())
        }),
        ("emptied", |_, file| file.set_len(0)),
        ("cut in a block", |_, file| file.set_len(100)),
        ("punched", |_, file| file.allocate(FallocateMode::PunchHole, 0, 64 << 20)),
        ("zeroed", |_, file| file.allocate(FallocateMode::ZeroRange, 0, 8192)),
        ("collapsed", |_, file| file.allocate(FallocateMode::Collapse, 0, 4096)),
        ("read", |_, file| file.read_at(&mut [0; 100_000], 0).map(drop)),
    ];
    for (options, forgery) in FORGERIES {
        let (image, journal) = volume(options);
        forge(&image.path, &forgery.replace("{}", &(journal + 7).to_string()));
        let forged = image.path.with_extension("forged");
        std::fs::copy(&image.path, &forged).unwrap();
        for (what, change) in &changes {
            if *what == "collapsed" && !options.is_empty()
                || *what == "zeroed" && !options.is_empty()
                || *what == "read" && forgery.contains("IND")
                || what.starts_with("cut") && forgery.contains("IND")
            {
                // No access uses the forged part, or such files do not have it.
                continue;
            }
            std::fs::copy(&forged, &image.path).unwrap();
            let fs = image.open();
            let file = fs.open_file("/file").unwrap();
            is_refused(change(&fs, &file), &format!("{forgery}, {what}"), journal);
            drop(file);
            let _ = fs.close();
            journal_is_whole(&image.path, journal);
        }
        std::fs::copy(&forged, &image.path).unwrap();
        // Without its last name it cannot be freed, now or later; the volume stays usable.
        let fs = image.open();
        fs.remove_file("/file").unwrap();
        let _ = fs.close();
        journal_is_whole(&image.path, journal);
        let fs = image.open();
        fs.root().unwrap().create_file("other", &NewFile::default()).unwrap();
        let _ = fs.close();
        journal_is_whole(&image.path, journal);
    }
}

#[test]
fn blocks_of_the_journal_that_are_marked_as_free_are_not_allocated() {
    require!(E2fsprogs);
    let (image, journal) = volume("-O ^flex_bg");
    let group = journal / 32_768;
    let described = dumpe2fs(&image.path).unwrap();
    let free = described
        .lines()
        .filter_map(|line| line.trim().split_once(" free blocks,"))
        .nth(group as usize)
        .and_then(|(free, _)| free.parse::<u64>().ok())
        .unwrap_or_else(|| panic!("{described}"));
    forge(
        &image.path,
        &format!(
            "freeb {journal} 900; set_bg {group} free_blocks_count {}; set_bg {group} checksum calc",
            free + 900
        ),
    );
    let fs = image.open();
    let file = fs.root().unwrap().create_file("big", &NewFile::default()).unwrap().open().unwrap();
    let mut at = 0;
    while file.write_all_at(&FORGED, at).is_ok() && at < 64 << 20 {
        at += FORGED.len() as u64;
    }
    let _ = file.sync_all();
    drop(file);
    let _ = fs.close();
    let bytes = std::fs::read(&image.path).unwrap();
    let log = &bytes[(journal as usize) << 12..][..900 << 12];
    assert!(!log.chunks(4096).any(|block| block == &FORGED[..4096]), "the log was written over");
}

/// Sets `data_csum` again, which debugfs does not know.
fn set_data_csum(img: &Path) -> Arc<MemoryDevice> {
    let device = MemoryDevice::from_bytes(&std::fs::read(img).unwrap());
    let mut sb = [0; 1024];
    device.read_at(ByteOffset(1024), &mut sb).unwrap();
    sb[0x64 + 3] |= 0x40;
    let checksum = extant_crc32c::crc32c(!0, &sb[..1020]).to_le_bytes();
    sb[1020..].copy_from_slice(&checksum);
    device.write_at(ByteOffset(1024), &sb).unwrap();
    Arc::new(device)
}

#[test]
fn a_forged_checksum_file_is_refused() {
    require!(E2fsprogs);
    let scratch = tempfile::tempdir().unwrap();
    let img = scratch.path().join("img");
    let made = || {
        let device = Arc::new(MemoryDevice::new(64 << 20));
        let options = MkfsOptions::new().block_size(BLOCK_4K).zeroed(true);
        let options = options.features("data_csum").unwrap();
        mkfs::format(device.clone(), &options, &Environment::default()).unwrap();
        let fs = OpenOptions::new().write(true).open_device(device.clone()).unwrap();
        let file =
            fs.root().unwrap().create_file("file", &NewFile::default()).unwrap().open().unwrap();
        file.write_all_at(&pattern(40_960, 1), 0).unwrap();
        drop(file);
        fs.close().unwrap();
        judge(&*device);
        std::fs::write(&img, image_of(&*device)).unwrap();
        clear_data_csum(&img).unwrap();
    };
    made();
    let journal = number(&img, "bmap <8> 100");
    let checksum_block = number(&img, "bmap <5> 0");
    // 16384 blocks of 1023 checksums: 17 blocks.
    let forgeries = [
        (format!("sif <5> block[5] {}", journal + 7), Some(journal + 7)),
        (
            format!(
                "sif <5> block[0] 0x2f30a; sif <5> block[4] 8; sif <5> block[6] 8; sif <5> block[7] 9; \
                 sif <5> block[8] {}",
                checksum_block + 4
            ),
            Some(checksum_block + 4),
        ),
        ("sif <5> size 69633".to_owned(), None),
        ("sif <5> size 73727".to_owned(), None),
        ("sif <5> size 65536".to_owned(), None),
    ];
    for (forgery, block) in forgeries {
        made();
        forge(&img, &forgery);
        let device = set_data_csum(&img);
        let fs = OpenOptions::new().write(true).open_device(device.clone()).unwrap();
        let is_refused = |done: Result<()>| match done {
            Err(Error::Corrupt { what: What::DataSumsFile, at }) => {
                assert_eq!(at.ino.map(|ino| ino.get()), Some(5), "{forgery}");
                assert_eq!(at.block.map(|block| block.0), block, "{forgery}: {at}");
            }
            other => panic!("{forgery}: {other:?}"),
        };
        let file = fs.open_file("/file").unwrap();
        is_refused(file.read_at(&mut [0; 4096], 0).map(drop));
        is_refused(file.write_all_at(&FORGED, 0).and_then(|()| file.sync_all()));
        is_refused(file.write_direct_at(&FORGED, 0, &Default::default()).map(drop));
        drop(file);
        let _ = fs.close();
        let mut log = vec![0; 900 << 12];
        device.read_at(ByteOffset(journal << 12), &mut log).unwrap();
        assert!(!log.chunks(4096).any(|block| block == &FORGED[..4096]), "{forgery}");

        // The feature can be removed, and the rest be repaired.
        let off = tune::Tune::default().features("^data_csum").unwrap();
        let as_device: Arc<dyn BlockDevice> = device.clone();
        tune::tune_device(&OpenOptions::new(), &as_device, &off).unwrap();
        std::fs::write(&img, image_of(&*device)).unwrap();
        let repaired = Command::new("e2fsck").arg("-fy").arg(&img).output().unwrap();
        assert!(repaired.status.code().is_some_and(|code| code <= 1), "{forgery}: {repaired:?}");
        let fs = OpenOptions::new().open(&img).unwrap();
        assert_eq!(fs.read("/file").unwrap(), pattern(40_960, 1), "{forgery}");
    }
}
