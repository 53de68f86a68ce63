//! Checksums turned on and off on a volume with data, and what is refused meanwhile.

use crate::common::{image_of, judge, new_file, pattern};
use crate::data_csum::{findings, made, open, switched};
use extant::resize::{Size, resize, resize_device};
use extant::{BlockDevice, Error, MemoryDevice, OpenOptions};
use extant_base::ByteOffset;
use extant_ondisk::features::RoCompat;
use extant_testkit::{e2fsprogs, require};
use std::sync::Arc;

#[test]
fn a_volume_with_data_csum_cannot_be_resized_however_it_is_named() {
    require!(E2fsprogs);
    let device = made(16, 1024, "");
    let shared: Arc<dyn BlockDevice> = device.clone();
    let image = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(image.path(), image_of(&*device)).unwrap();
    for size in [Size::Minimum, Size::Blocks(9000)] {
        let by_device = resize_device(&OpenOptions::new(), &shared, size, &());
        for refused in [by_device, resize(image.path(), size, &())] {
            assert!(matches!(refused, Err(Error::NotSupported(_))), "{refused:?}");
        }
        judge(&*device);
    }
}

#[test]
fn data_csum_is_turned_on_for_existing_data_and_off_again() {
    let dir = tempfile::tempdir().unwrap();
    for (name, len) in [("small", 10), ("a", 70_000), ("b", 3_000_000)] {
        std::fs::write(dir.path().join(name), pattern(len, name.len() as u8)).unwrap();
    }
    for options in ["-b 1024 -O quota", "-b 4096 -O inline_data,^orphan_file", "-b 4096"] {
        let path = dir.path().with_extension("img");
        e2fsprogs::mke2fs(&path, 64 << 20, options, Some(dir.path())).unwrap();
        let device = Arc::new(MemoryDevice::from_bytes(&std::fs::read(&path).unwrap()));
        std::fs::remove_file(&path).unwrap();
        if options.contains("quota") {
            // mke2fs -d counts quota wrongly.
            switched(&device, "^quota").unwrap();
            switched(&device, "quota").unwrap();
        }
        judge(&*device);
        switched(&device, "data_csum").unwrap();
        judge(&*device);
        let (found, blocks) = findings(&device);
        assert!(found.is_empty() && blocks > 700, "{options}: {found:?}, {blocks}");
        let fs = open(&device, 8);
        assert_eq!(fs.read("/b").unwrap(), pattern(3_000_000, 1));
        fs.open_file("/b").unwrap().write_all_at(&[7; 50_000], 12_345).unwrap();
        fs.close().unwrap();
        let fs = open(&device, 0);
        fs.open_file("/small").unwrap().append(&[8; 5000]).unwrap();
        fs.close().unwrap();
        assert_eq!(findings(&device).0, []);
        assert!(matches!(switched(&device, "^has_journal"), Err(Error::NotSupported(_))));
        let free = open(&device, 0).space().free;
        switched(&device, "^data_csum").unwrap();
        let fs = open(&device, 8);
        assert!(fs.space().free > free, "the file's blocks are free again");
        assert_eq!(fs.read("/small").unwrap()[10..], [8; 5000]);
        assert!(!fs.superblock().features.ro_compat.contains(RoCompat::DATA_CSUM));
        fs.close().unwrap();
        judge(&*device);
        switched(&device, "data_csum").unwrap();
        assert_eq!(findings(&device).0, []);
    }
}

#[test]
fn a_volume_that_is_marked_as_damaged_can_be_given_to_e2fsck() {
    let device = made(64, 4096, "");
    let fs = open(&device, 0);
    new_file(&fs, "a").write_all_at(&pattern(100_000, 3), 0).unwrap();
    fs.close().unwrap();
    let mut sb = [0; 1024];
    device.read_at(ByteOffset(1024), &mut sb).unwrap();
    sb[0x3A] |= 2;
    let checksum = extant_crc32c::crc32c(!0, &sb[..1020]).to_le_bytes();
    sb[1020..].copy_from_slice(&checksum);
    device.write_at(ByteOffset(1024), &sb).unwrap();

    for other in ["^data_csum,quota", "^orphan_file"] {
        assert!(matches!(switched(&device, other), Err(Error::NotSupported(_))), "{other}");
    }
    switched(&device, "^data_csum").unwrap();
    let image = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(image.path(), image_of(&*device)).unwrap();
    let repaired = std::process::Command::new("e2fsck").arg("-fy").arg(image.path()).output();
    let repaired = repaired.unwrap();
    assert!(repaired.status.code().is_some_and(|code| code <= 1), "{repaired:?}");

    let device = Arc::new(MemoryDevice::from_bytes(&std::fs::read(image.path()).unwrap()));
    judge(&*device);
    let free = open(&device, 0).space().free;
    switched(&device, "data_csum").unwrap();
    assert_eq!(
        open(&device, 0).space().free,
        free,
        "the file that was left made way for the new one"
    );
    assert_eq!(findings(&device).0, []);
    assert_eq!(open(&device, 8).read("/a").unwrap(), pattern(100_000, 3));
    judge(&*device);
}
