//! Each kind of range, at each alignment, with each block size.

use crate::common::{judge, new_file, pattern};
use crate::direct::{ALL, GARBAGE, VOLUMES, by};
use extant::{BlockDevice, FallocateMode, File};
use extant_base::ByteOffset;

/// The state of a range before it is written.
#[derive(Clone, Copy, Debug, PartialEq)]
enum Kind {
    Written,
    Dirty,
    Unwritten,
    Hole,
    Mixed,
    PastEnd,
    WhollyPastEnd,
}

const KINDS: [Kind; 7] = [
    Kind::Written,
    Kind::Dirty,
    Kind::Unwritten,
    Kind::Hole,
    Kind::Mixed,
    Kind::PastEnd,
    Kind::WhollyPastEnd,
];

const LEN: usize = 512 << 10;

/// A file of `LEN` bytes with the kind in its middle. Returns its content.
fn prepare(file: &File, kind: Kind) -> Vec<u8> {
    let (from, to) = ((LEN / 4) as u64, (LEN / 4 * 3) as u64);
    let mut model = pattern(LEN, 1);
    file.write_all_at(&model, 0).unwrap();
    file.sync_all().unwrap();
    let zero = |model: &mut Vec<u8>, from: u64, to: u64| model[from as usize..to as usize].fill(0);
    match kind {
        Kind::Written => {}
        Kind::Dirty => {
            model[from as usize..to as usize].fill(3);
            file.write_all_at(&model[from as usize..to as usize], from).unwrap();
        }
        Kind::Unwritten => {
            file.allocate(FallocateMode::ZeroRange, from, to - from).unwrap();
            zero(&mut model, from, to);
        }
        Kind::Hole => {
            file.allocate(FallocateMode::PunchHole, from, to - from).unwrap();
            zero(&mut model, from, to);
        }
        Kind::Mixed => {
            let middle = (from + to) / 2;
            file.allocate(FallocateMode::PunchHole, from, middle - from).unwrap();
            file.allocate(FallocateMode::ZeroRange, middle, (to - middle) / 2).unwrap();
            zero(&mut model, from, middle + (to - middle) / 2);
        }
        Kind::PastEnd => {
            file.set_len(LEN as u64 / 2 + 777).unwrap();
            model.truncate(LEN / 2 + 777);
        }
        Kind::WhollyPastEnd => {
            file.set_len(from / 2 + 100).unwrap();
            model.truncate(from as usize / 2 + 100);
        }
    }
    model
}

/// Parts of a file: aligned, aligned only to the unit, unaligned, across borders.
fn places(block: usize) -> Vec<(usize, usize)> {
    let quarter = LEN / 4;
    vec![
        (quarter, LEN / 2),
        (quarter - block, block * 2),
        (quarter + 512, 1024),
        (quarter + 512, block + 512),
        (quarter + 1, 100),
        (quarter - 100, 70_000),
        (LEN / 2, 65_536),
        (LEN / 2 + 777, 4096),
        (LEN / 4 * 3 - 4096, 12_288),
    ]
}

#[test]
fn every_kind_of_range_takes_a_direct_write_at_every_alignment() {
    for volume in VOLUMES {
        for block in [1024, 4096, 65_536] {
            for cache in [None, Some(8)] {
                let (device, fs) = volume(block, cache);
                for kind in KINDS {
                    for (n, (at, len)) in places(block).into_iter().enumerate() {
                        let name = format!("{kind:?}-{n}");
                        let file = new_file(&fs, &name);
                        let mut model = prepare(&file, kind);
                        let bytes = pattern(len, 77);
                        let how = by(ALL[n % ALL.len()]);
                        let mut done = 0;
                        while done < len {
                            done += file
                                .write_direct_at(&bytes[done..], (at + done) as u64, &how)
                                .unwrap();
                        }
                        if model.len() < at + len {
                            model.resize(at + len, 0);
                        }
                        model[at..at + len].copy_from_slice(&bytes);
                        let mut back = vec![GARBAGE; model.len() + 10];
                        let site = format!(
                            "blocks of {block}, cache {cache:?}, {kind:?}, {len} at {at}, {how:?}"
                        );
                        assert_eq!(
                            file.read_direct_at(&mut back, 0, &how).unwrap(),
                            model.len(),
                            "{site}"
                        );
                        assert!(back[..model.len()] == model[..], "direct: {site}");
                        assert!(back[model.len()..].iter().all(|byte| *byte == GARBAGE), "{site}");
                        back.fill(GARBAGE);
                        assert_eq!(file.read_at(&mut back, 0).unwrap(), model.len());
                        assert!(back[..model.len()] == model[..], "buffered: {site}");
                        drop(file);
                        fs.remove_file(format!("/{name}")).unwrap();
                    }
                }
                fs.close().unwrap();
                judge(&*device);
            }
        }
    }
}

#[test]
fn bytes_past_the_end_in_the_last_block_are_never_shown() {
    for block in [1024, 4096, 65_536_u64] {
        let (device, fs) = crate::direct::volume(block as usize, None);
        let end = 2 * block + 7;
        // In the block of the end, right after that block, and further on.
        for at in [2 * block + 512, 3 * block - 512, 3 * block, 3 * block + 512, 5 * block] {
            for how in ALL {
                let file = new_file(&fs, "f");
                file.write_all_at(&pattern(end as usize, 1), 0).unwrap();
                file.sync_all().unwrap();
                let extents = file.extents().unwrap();
                let last = extents.last().unwrap();
                let place = last.block.0 * block + (end - last.offset);
                // As a power cut between data and size leaves it, or a mapping of the last page.
                device.write_at(ByteOffset(place), &vec![GARBAGE; (block - 7) as usize]).unwrap();
                file.write_direct_at(&[9; 512], at, &by(how)).unwrap();
                let mut want = pattern(end as usize, 1);
                want.resize(at as usize, 0);
                want.resize(at as usize + 512, 9);
                let mut back = vec![0; want.len()];
                file.read_direct_at(&mut back, 0, &by(how)).unwrap();
                assert!(back == want, "direct: blocks of {block}, at {at}, {how:?}");
                file.read_at(&mut back, 0).unwrap();
                assert!(back == want, "buffered: blocks of {block}, at {at}, {how:?}");
                drop(file);
                fs.remove_file("/f").unwrap();
            }
        }
        fs.close().unwrap();
        judge(&*device);
    }
}

#[test]
fn inline_and_journaled_data_go_through_the_cache() {
    let device = std::sync::Arc::new(crate::common::mke2fs(24, "-O inline_data -I 256"));
    let fs = crate::direct::open(&device, Some(4));
    let file = new_file(&fs, "small");
    assert_eq!(file.write_direct_at(b"in the inode", 0, &by(ALL[0])).unwrap(), 12);
    let mut back = [0; 20];
    assert_eq!(file.read_direct_at(&mut back, 3, &by(ALL[0])).unwrap(), 9);
    assert_eq!(&back[..9], b"the inode");
    assert_eq!(file.write_direct_at(&[5; 4096], 0, &by(ALL[0])).unwrap(), 4096);
    let stats = fs.direct_stats();
    assert_eq!((stats.copied_bytes, stats.lent_bytes), (0, 0));
    drop(file);
    fs.close().unwrap();
    judge(&*device);

    let mut options = extant::OpenOptions::new();
    options.write(true).data_mode(extant::DataMode::Journal).page_cache_bytes(4 << 20);
    let fs = options.open_device(device.clone()).unwrap();
    let file = new_file(&fs, "journaled");
    file.write_direct_at(&[7; 8192], 0, &by(ALL[1])).unwrap();
    let mut back = [0; 8192];
    file.read_direct_at(&mut back, 0, &by(ALL[1])).unwrap();
    assert!(back.iter().all(|byte| *byte == 7));
    assert_eq!(fs.direct_stats().buffered_bytes, 16_384);
    drop(file);
    fs.close().unwrap();
    judge(&*device);
}
