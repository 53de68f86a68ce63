//! Blocks that do not match: each way of reading reports them, a mirror repairs them, and other
//! data is not harmed.

use crate::common::{image_of, judge, new_file, pattern};
use crate::data_csum::{
    Device, below, cut, findings, findings_of, flip, is_mismatch, made, open, options, read_back,
    seed, switched,
};
use extant::direct::DirectOptions;
use extant::mkfs::MkfsOptions;
use extant::{
    BlockDevice, BlockSize, Environment, Error, MemoryDevice, OpenOptions, SetAttributes, What,
    mkfs,
};
use extant_base::{ByteOffset, IoOp};
use extant_testdev::Faulty;
use extant_testkit::e2fsprogs;
use extant_testkit::rng::Rng;
use std::sync::Arc;

#[test]
fn a_flipped_bit_is_found_by_every_way_of_reading() {
    let device = made(64, 4096, "");
    let fs = open(&device, 8);
    let bytes = pattern(40_960, 3);
    let file = new_file(&fs, "f");
    file.write_all_at(&bytes, 0).unwrap();
    drop(file);
    fs.close().unwrap();
    let image = image_of(&*device);
    let at = image.windows(4096).position(|window| *window == bytes[8192..12_288]).unwrap() as u64;
    for (skip, cache) in [(0, 0), (1234, 8), (4095, 8)] {
        flip(&device, at + skip);
        let fs = open(&device, cache);
        let file = fs.open_file("/f").unwrap();
        let mut buf = vec![0; 4096];
        assert_eq!(file.read_at(&mut buf, 4096).unwrap(), 4096);
        assert!(is_mismatch(file.read_at(&mut buf, 8192)), "buffered, {cache}");
        assert!(is_mismatch(file.read_at(&mut buf[..10], 8192 + 100)), "a part");
        assert!(
            is_mismatch(file.read_direct_at(&mut buf, 8192, &DirectOptions::default())),
            "direct"
        );
        let bounce =
            DirectOptions { bounce: extant::direct::Bounce::Always, ..DirectOptions::default() };
        assert!(is_mismatch(file.read_direct_at(&mut buf, 8192, &bounce)), "direct, copied");
        assert_eq!(file.read_direct_at(&mut buf, 12_288, &bounce).unwrap(), 4096);
        assert_eq!(buf, bytes[12_288..16_384]);
        // A partial overwrite would make the damage valid; a whole overwrite repairs the block.
        assert!(is_mismatch(file.write_at(&[1; 10], 8192 + 5).and_then(|_| file.sync_data())));
        assert!(!fs.superblock().state.contains(extant_ondisk::superblock::VolumeState::ERROR));
        drop(file);
        drop(fs);
        flip(&device, at + skip);
        extant::OpenOptions::new().recover_device_in_place(device.clone()).unwrap();
    }
    let fs = open(&device, 8);
    assert_eq!(fs.read("/f").unwrap(), bytes);
    fs.close().unwrap();
    judge(&*device);
}

#[test]
fn a_check_finds_every_flipped_bit_of_data_and_of_checksums() {
    let device = made(64, 4096, "");
    let fs = open(&device, 8);
    let file = new_file(&fs, "f");
    file.write_all_at(&pattern(2 << 20, 1), 0).unwrap();
    file.sync_all().unwrap();
    let data: Vec<_> = file.extents().unwrap();
    drop(file);
    fs.close().unwrap();
    let (found, blocks) = findings(&device);
    assert_eq!((found, blocks), (vec![], 512));
    let debug = |request: &str| {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("img");
        std::fs::write(&path, image_of(&*device)).unwrap();
        e2fsprogs::debugfs(&path, request).unwrap()
    };
    let checksum_block = debug(&format!("bmap <5> {}", data[0].block.0 / 1023));
    let checksum_block: u64 = checksum_block.trim().parse().unwrap();
    let mut rng = Rng::new(seed());
    for _ in 0..60 {
        let extent = &data[below(&mut rng, data.len() as u64) as usize];
        let at = (extent.block.0 << 12) + below(&mut rng, extent.len);
        flip(&device, at);
        let (found, _) = findings(&device);
        assert_eq!(found, [What::DataChecksum], "data, byte {at}");
        flip(&device, at);
        let at = (checksum_block << 12) + below(&mut rng, 4096);
        flip(&device, at);
        let (found, _) = findings(&device);
        assert!(found.contains(&What::DataSumsChecksum), "checksums, byte {at}: {found:?}");
        flip(&device, at);
    }
    // A block of zeros means that no checksum was stored, which does not match the data.
    let mut block = vec![0; 4096];
    device.read_at(ByteOffset(checksum_block << 12), &mut block).unwrap();
    device.write_at(ByteOffset(checksum_block << 12), &[0; 4096]).unwrap();
    assert!(findings(&device).0.contains(&What::DataChecksum));
    assert!(is_mismatch(read_back(&device, "/f")));
    device.write_at(ByteOffset(checksum_block << 12), &block).unwrap();
    assert_eq!(findings(&device).0, []);
}

#[test]
fn a_mirror_repairs_data_from_the_copy_that_matches() {
    use extant::raid::{Assembled, Opening, Part, Wanted, assemble, create};
    let devices: Vec<Device> = (0..2).map(|_| Arc::new(MemoryDevice::new(32 << 20))).collect();
    let parts = || {
        let part =
            |(n, device): (usize, &Device)| Part::new(Arc::clone(device) as _, format!("m{n}"));
        devices.iter().enumerate().map(part).collect::<Vec<_>>()
    };
    create(&parts(), Wanted::Mirrored { alike: true }, [7; 16], 32 << 20).unwrap();
    let mirror = || match assemble(parts(), Opening::write()).unwrap() {
        Assembled::Mirrored(mirror) => mirror,
        _ => panic!("no mirror"),
    };
    let bytes = pattern(1 << 20, 9);
    let mut at = 0;
    {
        let device = mirror();
        let size = BlockSize::from_bytes(4096).unwrap();
        let words = MkfsOptions::new().block_size(size).features("data_csum").unwrap();
        mkfs::format(device.clone(), &words, &Environment::default()).unwrap();
        let fs = options(8).open_device(device).unwrap();
        let file = new_file(&fs, "f");
        file.write_all_at(&bytes, 0).unwrap();
        file.sync_all().unwrap();
        at += file.extents().unwrap()[0].block.0 << 12;
        drop(file);
        fs.close().unwrap();
    }
    let mut rng = Rng::new(seed());
    for round in 0..20u64 {
        let member = &devices[below(&mut rng, 2) as usize];
        let place = at + below(&mut rng, 100) * 4096 + below(&mut rng, 4096);
        flip(member, place);
        let fs = options([0, 8][round as usize % 2]).open_device(mirror()).unwrap();
        let file = fs.open_file("/f").unwrap();
        // The mirror chooses the member to read, so every member is tried.
        for _ in 0..4 {
            let mut back = vec![0; bytes.len()];
            match round % 3 {
                0 => assert_eq!(file.read_at(&mut back, 0).unwrap(), bytes.len()),
                _ => assert_eq!(
                    file.read_direct_at(&mut back, 0, &DirectOptions::default()).unwrap(),
                    bytes.len()
                ),
            }
            assert!(back == bytes, "round {round}");
        }
        drop(file);
        fs.close().unwrap();
        let mut there = [vec![0; 4096], vec![0; 4096]];
        for (device, there) in devices.iter().zip(&mut there) {
            device.read_at(ByteOffset(place / 4096 * 4096), there).unwrap();
        }
        if there[0] != there[1] {
            // Nothing read the bad member.
            flip(member, place);
        }
    }
    let (found, _) = findings_of(mirror());
    assert_eq!(found, []);
}

#[test]
fn a_file_that_cannot_be_written_back_does_not_cost_others_their_changes() {
    let device = made(64, 4096, "");
    let fs = open(&device, 8);
    let old = pattern(4096, 1);
    new_file(&fs, "a").write_all_at(&old, 0).unwrap();
    fs.close().unwrap();
    // The checksum of its next block is next to this one.
    let word = extant_ondisk::data_sums::sum_of(&old).to_le_bytes();
    let all = image_of(&*device);
    let places = (0..all.len()).step_by(4).filter(|at: &usize| all[*at..].starts_with(&word));
    places.for_each(|at| flip(&device, at as u64));

    let fs = open(&device, 8);
    let a = fs.open_file("/a").unwrap();
    a.write_all_at(&pattern(4096, 2), 0).unwrap();
    new_file(&fs, "b");
    assert!(fs.sync().is_err());
    assert!(read_back(&cut(&device), "/b").unwrap().is_empty());
    new_file(&fs, "c");
    drop(a);
    assert!(fs.close().is_err());
    assert!(read_back(&cut(&device), "/c").unwrap().is_empty());
}

/// A file whose block 0 has a flipped bit on the device. Returns where that block is.
fn bad_at_its_start(device: &Device, blocks: usize) -> u64 {
    let fs = open(device, 8);
    let file = new_file(&fs, "f");
    file.write_all_at(&pattern(blocks * 4096, 3), 0).unwrap();
    file.sync_all().unwrap();
    let at = file.extents().unwrap()[0].block.0 << 12;
    drop(file);
    fs.close().unwrap();
    flip(device, at + 50);
    at
}

#[test]
fn a_truncation_that_fails_keeps_dirty_data() {
    for by_attributes in [false, true] {
        let device = made(64, 4096, "");
        bad_at_its_start(&device, 3);
        let fs = open(&device, 8);
        let file = fs.open_file("/f").unwrap();
        // Over existing data, after a block that is kept, and after the end of the file.
        file.write_all_at(&[7; 4096], 4096).unwrap();
        file.write_all_at(&[8; 9000], 5 * 4096).unwrap();
        let cut = match by_attributes {
            false => file.set_len(100),
            true => {
                let size = Some(100);
                file.set_attributes(&SetAttributes { size, ..SetAttributes::default() })
            }
        };
        assert!(is_mismatch(cut), "{by_attributes}");
        let mut want = pattern(3 * 4096, 3);
        want[4096..8192].fill(7);
        want.resize(5 * 4096, 0);
        want.resize(5 * 4096 + 9000, 8);
        let mut bytes = vec![1; want.len() - 4096];
        assert_eq!(file.read_at(&mut bytes, 4096).unwrap(), bytes.len(), "{by_attributes}");
        assert!(bytes == want[4096..], "{by_attributes}");
        file.sync_all().unwrap();
        // The whole block can be written, and then all of it is truncated.
        file.write_all_at(&want[..4096], 0).unwrap();
        file.sync_all().unwrap();
        drop(file);
        fs.close().unwrap();
        assert!(read_back(&device, "/f").unwrap() == want, "{by_attributes}");
        let fs = open(&device, 8);
        fs.open_file("/f").unwrap().set_len(100).unwrap();
        assert_eq!(fs.read("/f").unwrap(), want[..100]);
        fs.close().unwrap();
        judge(&*device);
    }
}

#[test]
fn a_bad_block_is_reported_although_the_device_fails_after_it() {
    let made = made(64, 4096, "");
    bad_at_its_start(&made, 1);
    let fs = open(&made, 8);
    let file = fs.open_file("/f").unwrap();
    // After a hole, so that each block has its own request.
    file.write_all_at(&pattern(4096, 4), 2 * 4096).unwrap();
    file.sync_all().unwrap();
    let start = file.extents().unwrap()[1].block.0 << 12;
    drop(file);
    fs.close().unwrap();

    let device = Arc::new(Faulty::new(MemoryDevice::copy_of(&*made).unwrap()));
    let fs = options(8).open_device(device.clone()).unwrap();
    let file = fs.open_file("/f").unwrap();
    device.fail_range(IoOp::Read, start..start + 4096);
    let mut buf = vec![0; 3 * 4096];
    for bounce in [extant::direct::Bounce::Auto, extant::direct::Bounce::Always] {
        let how = DirectOptions { bounce, ..DirectOptions::default() };
        assert!(is_mismatch(file.read_direct_at(&mut buf, 0, &how)), "{bounce:?}");
    }
}

#[test]
fn a_bad_block_of_checksums_is_reported_and_made_again() {
    let device = made(64, 4096, "");
    let fs = open(&device, 8);
    let file = new_file(&fs, "f");
    file.write_all_at(&pattern(50_000, 1), 0).unwrap();
    file.sync_all().unwrap();
    let block = file.extents().unwrap()[0].block.0;
    drop(file);
    fs.close().unwrap();
    let image = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(image.path(), image_of(&*device)).unwrap();
    let checksum_block =
        e2fsprogs::debugfs(image.path(), &format!("bmap <5> {}", block / 1023)).unwrap();
    let checksum_block: u64 = checksum_block.trim().parse().unwrap();
    flip(&device, (checksum_block << 12) + 100);

    let is_reported = |done: extant::Result<()>| {
        matches!(done, Err(Error::Corrupt { what: What::DataSumsChecksum, at })
            if at.ino.is_some() && at.block.is_some_and(|block| block.0 == checksum_block))
    };
    let fs = open(&device, 8);
    let file = fs.open_file("/f").unwrap();
    assert!(is_reported(file.read_at(&mut [0; 10], 0).map(drop)));
    assert!(is_reported(file.write_at(&[1; 10], 5).and_then(|_| file.sync_all())));
    drop(file);
    // It leaves nothing for e2fsck to repair.
    let _ = fs.close();
    let fs = options(8).open_device(device.clone()).unwrap();
    assert!(!fs.superblock().state.contains(extant_ondisk::superblock::VolumeState::ERROR));
    drop(fs);
    OpenOptions::new().recover_device_in_place(device.clone()).unwrap();
    switched(&device, "^data_csum").unwrap();
    switched(&device, "data_csum").unwrap();
    assert_eq!(findings(&device).0, []);
    assert_eq!(read_back(&device, "/f").unwrap(), pattern(50_000, 1));
    judge(&*device);
}
