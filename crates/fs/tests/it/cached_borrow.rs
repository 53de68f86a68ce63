//! File bytes that are lent in place.

use extant::{Error, FileKind, NewFile, OpenOptions, SetAttributes};
use extant_testkit::e2fsprogs::{e2fsck, mke2fs};
use extant_testkit::scratch::Scratch;

#[test]
fn borrowed_folios_are_the_files_bytes() {
    extant_testkit::require!(E2fsprogs);
    let scratch = Scratch::new();
    for options in ["-b 1024", "-b 4096 -O ^has_journal", "-b 4096 -O inline_data -I 256"] {
        let path = scratch.file("image");
        mke2fs(&path, 16 << 20, options, None).unwrap();
        let fs = OpenOptions::new().write(true).open(&path).unwrap();
        let file = fs.create_file("f", &NewFile::default()).unwrap().open().unwrap();
        file.write_all_at(&vec![1; 100_000], 0).unwrap();
        file.set_len(1 << 20).unwrap();
        let before = file.metadata().modified();

        let lent = file.borrow(5000).unwrap();
        assert!(lent.start() <= 5000 && lent.iter().all(|byte| *byte == 1));
        drop(lent);
        // Into the hole after them.
        let mut lent = file.borrow_mut(500_000..500_100).unwrap();
        assert!(lent.iter().all(|byte| *byte == 0));
        lent.fill(7);
        drop(lent);
        assert!(file.metadata().modified() >= before);
        assert!(matches!(file.borrow(1 << 20), Err(Error::Invalid(_))));
        assert!(matches!(file.borrow_mut(0..0), Err(Error::Invalid(_))));
        assert!(matches!(file.borrow_mut(0..(1 << 20) + 1), Err(Error::Invalid(_))));

        let fixed = SetAttributes {
            flags: Some(file.metadata().flags() | extant::InodeFlags::IMMUTABLE),
            ..SetAttributes::default()
        };
        file.set_attributes(&fixed).unwrap();
        assert!(matches!(file.borrow_mut(0..10), Err(Error::NotPermitted)));
        assert_eq!(file.metadata().file_type(), FileKind::Regular);
        drop(file);
        fs.close().unwrap();
        e2fsck(&path, None).expect_clean().unwrap();
        let fs = extant::Filesystem::open(&path).unwrap();
        let bytes = fs.read("f").unwrap();
        assert_eq!(bytes.iter().filter(|byte| **byte == 7).count(), 100, "{options}");
        assert_eq!(bytes[500_000..500_100], [7; 100], "{options}");
        drop(fs);
        let uncached = OpenOptions::new().page_cache_bytes(0).open(&path).unwrap();
        let file = uncached.open_file("f").unwrap();
        assert!(matches!(file.borrow(0), Err(Error::NotSupported(_))));
    }
}

#[test]
fn folios_grow_with_a_file_that_is_appended_to() {
    extant_testkit::require!(E2fsprogs);
    let scratch = Scratch::new();
    let path = scratch.file("image");
    mke2fs(&path, 16 << 20, "-b 4096", None).unwrap();
    let fs = OpenOptions::new().write(true).open(&path).unwrap();
    let file = fs.create_file("f", &NewFile::default()).unwrap().open().unwrap();
    for n in 0..100u8 {
        file.append(&[n; 4096]).unwrap();
    }
    for (offset, start, len) in [(0, 0, 4096), (9000, 8192, 8192), (200_000, 196_608, 65_536)] {
        let lent = file.borrow(offset).unwrap();
        assert_eq!((lent.start(), lent.len()), (start, len));
        assert!(lent.chunks(4096).enumerate().all(|(n, block)| {
            block.iter().all(|byte| u64::from(*byte) == start / 4096 + n as u64)
        }));
    }
    drop(file);
    fs.close().unwrap();
    e2fsck(&path, None).expect_clean().unwrap();
}
